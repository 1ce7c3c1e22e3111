"""A bundle: a trained model in a folder, as `contml export` writes it, without data and config.

    model.safetensors   the weights; their metadata hold the options of the model, of a captioner also of its decoder
    bundle.json         the transform of the images, the unit of label distances, the calibration, versions
    labels.safetensors  training items with their embeddings and labels, unless labels are left out
    README.md           the model card: labels, result, how to load the model

A run folder is read as one: its selected weights, its evaluation and its calibration hold the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from contml._support.errors import InputError, one_line
from contml._support.files import check_new_folder, read_bytes, refuse_links, unreadable, write, write_folder
from contml._support.pages import page_text
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import PLAIN, Measure
from contml.evaluation.evaluated import Evaluated, sentence
from contml.models.backbones import FEATURES
from contml.models.weights import is_captioner, names_a_file
from contml.runs import Run
from contml.search.calibration import STRICT, Calibration
from contml.search.labelled_items import LabelledItems

#: The number of the format: it rises when an older version of contml could not read the file.
FORMAT: Literal[1] = 1
RECORD, WEIGHTS, LABELS = "bundle.json", "model.safetensors", "labels.safetensors"
CARD = "README.md"
_FILES = (WEIGHTS, LABELS, CARD, RECORD)
#: The place of the model on the hub, until it is known.
PLACE = "USER/NAME"
#: Largest bundle.json and largest card in bytes, and largest side of an image in pixels.
_LIMIT, _CARD_LIMIT, _LARGEST_SIDE = 1 << 24, 1 << 20, 1 << 13

_Channels: TypeAlias = tuple[float, float, float]
_DAMAGED = "export the run again"
#: Pixels are divided by their standard deviations.
_LEAST_STD = 1e-6


class SavedPixelFormat(BaseModel):
    """The pixels that the network expects (`contml.models.PixelFormat`)."""

    model_config = STRICT

    mean: _Channels
    std: _Channels
    maximum: int = Field(ge=1)
    order: Literal["RGB", "BGR"]

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if min(self.std) < _LEAST_STD:
            raise ValueError(f"std must be at least {_LEAST_STD}")
        return self


class Transform(BaseModel):
    """The transform of the evaluation: resized to `resize` pixels square, of which the centre `crop` is the image."""

    model_config = STRICT

    resize: int = Field(ge=1, le=_LARGEST_SIDE)
    crop: int = Field(ge=1)
    pixels: SavedPixelFormat | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.crop > self.resize:
            raise ValueError("crop is larger than resize")
        return self


class Bundle(BaseModel):
    """What is known about a trained model.

    Attributes:
        format: the number of the format.
        name: the name of the config that it was trained with.
        checkpoint: which weights of the run: "best" on the validation split, or "last".
        epoch: number of epochs that trained them; 0: they are the initial weights.
        sha256: the hash of the file of the weights.
        feature_dim: length of the feature vectors that it embeds; None if it embeds images.
        transform: what happens to an image before the network. Without `pixels`, the pixels of its backbone are taken.
        unit: what a label distance of 1 means, in words.
        measure: how label distances are printed.
        calibration: what an embedding distance means; None without a validation split.
        versions: of the packages that trained it; empty if they are not known.
    """

    model_config = STRICT

    format: Literal[1] = FORMAT
    name: str
    checkpoint: Literal["best", "last"]
    epoch: float = Field(ge=0)
    sha256: str
    feature_dim: int | None = Field(ge=1)
    transform: Transform
    unit: str
    measure: Measure = PLAIN
    calibration: Calibration | None
    versions: dict[str, str]


class SavedModel(NamedTuple):
    """A bundle or a run.

    Attributes:
        bundle: what is known about the model.
        config: the options of its network, "model"; of a captioner also "captioner" and "decoder".
        weights: the weights.
        file: the file of the weights.
        card: the model card.
        evaluated: the identity of the model that the run evaluated and calibrated; empty if it is not known.
        labels: the file of training items with embeddings and labels, if there is one.
    """

    bundle: Bundle
    config: dict[str, Any]
    weights: dict[str, Tensor]
    file: Path
    card: str
    evaluated: str = ""
    labels: Path | None = None


def read(folder: Path) -> SavedModel:
    """Read a bundle, or a run folder.

    Raises:
        InputError: the folder is neither, the run has no result, or a file is damaged.
    """
    refuse_links(folder)
    if (folder / RECORD).is_file():
        return _read_bundle(folder)
    if (folder / "config.yaml").is_file():
        return _read_run(Run(folder))
    problem = f"neither a run folder nor a bundle: no config.yaml, no {RECORD}" if folder.is_dir() else "no such folder"
    raise InputError(str(folder), problem, hint="give a folder of 'contml train' or 'contml export'")


def _read_bundle(folder: Path) -> SavedModel:
    path = folder / RECORD
    try:
        text = read_bytes(path, _LIMIT)
        _check_format(path, json.loads(text))
        bundle = Bundle.model_validate_json(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(path, error, _DAMAGED) from None
    file = folder / WEIGHTS
    weights, config, _ = _load(file)
    if _sha256(file) != bundle.sha256:
        raise InputError(str(file), f"not the weights of {path}, or changed since", hint=_DAMAGED)
    card = read_card(folder) or make_card(bundle, captions="captioner" in config)
    return SavedModel(bundle, config, weights, file, card, labels=folder / LABELS)


def _check_format(path: Path, values: Any) -> None:
    """Refuse a format that this version does not know."""
    format_number = values.get("format") if isinstance(values, dict) else None
    if type(format_number) is not int or format_number < 1:
        raise InputError(str(path), "not a bundle of contml", hint=_DAMAGED)
    if format_number > FORMAT:
        versions = values.get("versions")
        version = versions.get("contml") if isinstance(versions, dict) else None
        problem = f"format {format_number}, this version of contml reads 1 to {FORMAT}"
        raise InputError(str(path), problem, hint=f"install contml {version or 'of a later version'}")


def _read_run(run: Run) -> SavedModel:
    try:
        evaluated = Evaluated.read(run.evaluation())
    except FileNotFoundError:
        raise InputError(str(run.folder), "not evaluated yet", hint=f"run 'contml evaluate {run.folder}'") from None
    file = run.checkpoints / f"{evaluated.checkpoint}.safetensors"
    weights, config, values = _load(file)
    try:
        all_options = values["config"]
        images = all_options["images"]
        bundle = Bundle(
            name=run.name,
            checkpoint="best" if evaluated.checkpoint == "best" else "last",
            epoch=0 if evaluated.untrained else evaluated.epoch,
            sha256=_sha256(file),
            feature_dim=None if config["model"]["backbone"] != FEATURES else _feature_dim(run, evaluated, weights),
            transform=Transform(resize=images["resize"], crop=images["crop"]),
            unit=evaluated.evaluation.unit,
            measure=evaluated.evaluation.measure,
            calibration=Calibration.read(run.calibration),
            versions=values.get("versions", {}),
        )
        card = make_card(bundle, captions="captioner" in all_options, evaluated=evaluated)
    except ValidationError as error:
        raise unreadable(file, error, "restore it") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(str(file), f"not the weights of a training ({one_line(error)})", hint="restore it") from None
    return SavedModel(bundle, config, weights, file, card, evaluated.identity, run.labels)


def _load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """The weights in a file, the options of their networks, and all values in its metadata."""
    try:
        weights, values = load_tensors(file)
        config = values["config"]
    except FileNotFoundError:
        raise InputError(str(file), "no such file", hint="restore it") from None
    except (KeyError, TypeError):
        config = None
    sections = ["model", *(["captioner", "decoder"] if is_captioner(weights) else [])]
    networks: dict[str, Any] = {}
    for section in sections:
        options = config.get(section) if isinstance(config, dict) else None
        if not isinstance(options, dict) or (section == "model" and not isinstance(options.get("backbone"), str)):
            raise InputError(str(file), f"has no options of a {section}", hint="restore it") from None
        networks[section] = dict(options)
        if "weights" in options:  # published ones may expect pixels of their own; a file is not part of the model
            name = options["weights"]
            networks[section]["weights"] = name if isinstance(name, str) and not names_a_file(name) else "none"
    return weights, networks, values


#: The layers whose width is the length of the features, the first that a model without a backbone has.
_INPUTS = (
    *("head.weight", "head.linear.weight", "network.head.weight", "network.head.linear.weight"),
    *("decoder.image.weight", "decoder.places.0.weight"),
)


def _feature_dim(run: Run, evaluated: Evaluated, weights: Mapping[str, Tensor]) -> int:
    """The length of the feature vectors of a run without a backbone."""
    for name in _INPUTS:
        if name in weights:
            return weights[name].shape[1]
    if is_captioner(weights):
        raise InputError(str(run.folder), "a decoder of your own on features, whose length it does not say")
    try:  # without a head, the features are the embeddings
        return load_tensors(run.embeddings(evaluated.split))[0]["embeddings"].shape[1]
    except FileNotFoundError:
        raise InputError(str(run.folder), "no embeddings", hint=f"run 'contml evaluate {run.folder}'") from None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_folder(folder: Path) -> None:
    """Checks that a bundle can be written there.

    Raises:
        InputError: the folder has other files than a bundle has.
    """
    check_new_folder(folder, _FILES)


def save(source: SavedModel, folder: Path, *, labels: LabelledItems | None = None, place: str = PLACE) -> None:
    """Write a bundle in a new folder, or in an empty one; a folder that holds this bundle stays as it is.

    Args:
        source: the model; its file is not read.
        folder: where to write. A `README.md` that is there stays as it is.
        labels: training items with embeddings and labels; None: they are left out.
        place: where the model will be on the hub, "user/name".

    Raises:
        InputError: the folder has other files, or cannot be written.
    """

    def build(temporary: Path) -> None:
        save_tensors(temporary / WEIGHTS, source.weights, config=source.config, epoch=source.bundle.epoch)
        bundle = source.bundle.model_copy(update={"sha256": _sha256(temporary / WEIGHTS)})
        if labels is not None:
            labels.save(temporary / LABELS)
        if not (folder / CARD).exists():
            card = source.card.replace(f"hf://{PLACE}", f"hf://{place}")
            write(temporary / CARD, lambda path: path.write_text(card, encoding="utf-8"))
        text = json.dumps(bundle.model_dump(mode="json"), ensure_ascii=False, indent=1)
        write(temporary / RECORD, lambda path: path.write_text(text, encoding="utf-8"))

    write_folder(folder, build, own=_FILES, kept=[CARD], last=RECORD)


_TEXT = """---
# license: (choose one, such as apache-2.0)
library_name: contml
pipeline_tag: {pipeline}
tags:
- contml
---

# {name}

{what}, trained with contml. Label distance: {unit}.
{results}
```python
import contml  # pip install "contml[hub]"

model = contml.load("hf://{place}")
{use}
```
"""


def read_card(folder: Path) -> str | None:
    """The card in the folder of a bundle; None if there is none.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return read_bytes(folder / CARD, _CARD_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return None


def make_card(bundle: Bundle, *, captions: bool, evaluated: Evaluated | None = None) -> str:
    """The card of a trained model.

    Args:
        bundle: what is known about the model.
        captions: whether it is a captioner.
        evaluated: the result of the run; None if it is not known.
    """
    inputs, code, pipeline = "images", '"photos"', "image-feature-extraction"
    if bundle.feature_dim is not None:
        inputs, code, pipeline = f"vectors of {bundle.feature_dim} numbers", "vectors", "feature-extraction"
    lines = []
    if evaluated is not None:
        lines = [f"{evaluated.description}: {sentence(evaluated.evaluation)}"]
        lines += [f"{note}." for note in evaluated.notes]
    return _TEXT.format(
        pipeline="image-to-text" if captions else pipeline,
        name=_inline(bundle.name),
        what=f"{'Captions for' if captions else 'An embedding of'} {inputs}",
        unit=_inline(bundle.unit),
        results="".join(f"\n{_inline(line)}\n" for line in lines),
        place=PLACE,
        use=f"captions = model.caption({code})" if captions else f"embeddings = model.embed({code})",
    )


def _inline(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    plain = page_text(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\|<>`*_[]" else c for c in plain)
