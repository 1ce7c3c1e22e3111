"""A bundle: a trained model in a folder, as `contml export` writes it, without data and config.

    model.safetensors   the weights; their metadata hold the options of the model, and of the decoder of a captioner
    bundle.json         the transform of the images, the unit of label distances, the calibration, versions
    labels.safetensors  training items with their embeddings and labels, unless labels are left out

A run folder is read like a bundle. Its selected weights, its evaluation and its calibration hold the same information.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from contml._support.errors import InputError, one_line
from contml._support.files import check_new_folder, read_bytes, refuse_links, unreadable, write, write_folder
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import PLAIN, Measure
from contml.evaluation.evaluated import Evaluated
from contml.models.backbones import FEATURES
from contml.models.weights import is_captioner, names_a_file
from contml.runs import Run, open_run
from contml.search.calibration import STRICT, Calibration
from contml.search.labelled_items import LabelledItems

#: The number of the format: it rises when an older version of contml could not read the file.
FORMAT: Literal[1] = 1
RECORD, WEIGHTS, LABELS = "bundle.json", "model.safetensors", "labels.safetensors"
#: The page that the user writes for the hub.
README = "README.md"
_FILES = (WEIGHTS, LABELS, README, RECORD)
#: Largest bundle.json in bytes, and largest side of an image in pixels.
_LIMIT, _LARGEST_SIDE = 1 << 24, 1 << 13

_DAMAGED = "export the run again"
#: Pixels are divided by their standard deviations.
_Std: TypeAlias = Annotated[float, Field(ge=1e-6)]


class SavedPixelFormat(BaseModel):
    """The pixels that the network expects (`contml.models.PixelFormat`)."""

    model_config = STRICT

    mean: tuple[float, float, float]
    std: tuple[_Std, _Std, _Std]
    maximum: int = Field(ge=1)
    order: Literal["RGB", "BGR"]


class Transform(BaseModel):
    """The transform of the evaluation: resize to `resize` pixels square, then cut the centre `crop`."""

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
    """The record of a trained model.

    Attributes:
        format: the number of the format.
        name: the name of the config that the model was trained with.
        checkpoint: which weights of the run: "best" on the validation split, or "last".
        epoch: number of epochs that trained the weights. 0 means initial weights.
        sha256: the hash of the file of the weights.
        feature_dim: length of the feature vectors that the model embeds. None if it embeds images.
        transform: the transform of an image before the network. Without `pixels`, the pixels of its backbone are taken.
        unit: the meaning of a label distance of 1, as text.
        measure: how label distances are printed.
        calibration: the meaning of embedding distances. None without a validation split.
        versions: versions of the packages that trained the model. Empty if they are not known.
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
        bundle: the record of the model.
        config: the options of its network, "model". A captioner also has "captioner" and "decoder".
        weights: the weights.
        file: the file of the weights.
        evaluated: the identity of the model that the run evaluated and calibrated. Empty if it is not known.
        labels: the file of training items with embeddings and labels, if there is one.
    """

    bundle: Bundle
    config: dict[str, Any]
    weights: dict[str, Tensor]
    file: Path
    evaluated: str = ""
    labels: Path | None = None


def read(folder: Path) -> SavedModel:
    """Read a bundle, or a run folder.

    Raises:
        InputError: the folder is neither, the run has no result, or a file is damaged.
    """
    if (folder / RECORD).is_file():
        refuse_links(folder)
        return _read_bundle(folder)
    if (folder / "config.yaml").is_file():
        return _read_run(open_run(folder))
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
    return SavedModel(bundle, config, weights, file, labels=folder / LABELS)


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
        images = values["config"]["images"]
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
    except ValidationError as error:
        raise unreadable(file, error, "restore it") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(str(file), f"not the weights of a training ({one_line(error)})", hint="restore it") from None
    return SavedModel(bundle, config, weights, file, evaluated.identity, run.labels)


def _load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Return the weights in a file, the options of their networks, and all values in its metadata."""
    try:
        weights, values = load_tensors(file)
        config = values["config"]
    except FileNotFoundError:
        raise InputError(str(file), "no such file", hint="restore it") from None
    except (KeyError, TypeError):
        config = None
    networks: dict[str, Any] = {}
    for section in ["model", *(["captioner", "decoder"] if is_captioner(weights) else [])]:
        options = config.get(section) if isinstance(config, dict) else None
        if not isinstance(options, dict) or (section == "model" and not isinstance(options.get("backbone"), str)):
            raise InputError(str(file), f"has no options of a {section}", hint="restore it") from None
        networks[section] = dict(options)
        if "weights" in options:  # published ones may expect pixels of their own; a file is not part of the model
            name = options["weights"]
            networks[section]["weights"] = name if isinstance(name, str) and not names_a_file(name) else "none"
    return weights, networks, values


#: The layers whose width is the length of the features, the first that a model without a backbone has.
_INPUTS = ["head.weight", "head.linear.weight", "network.head.weight", "network.head.linear.weight"]
_INPUTS += ["decoder.image.weight", "decoder.places.0.weight"]


def _feature_dim(run: Run, evaluated: Evaluated, weights: Mapping[str, Tensor]) -> int:
    """Return the length of the feature vectors of a run without a backbone."""
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
    """Check that a bundle can be written to a folder.

    Raises:
        InputError: the folder has files that do not belong to a bundle.
    """
    check_new_folder(folder, _FILES)


def save(source: SavedModel, folder: Path, *, labels: LabelledItems | None = None) -> None:
    """Write a bundle in a new folder, or in an empty one. A folder that holds this bundle stays as it is.

    Args:
        source: the model. Its file is not read.
        folder: where to write. A `README.md` in the folder stays as it is.
        labels: training items with embeddings and labels. Default: no labels are written.

    Raises:
        InputError: the folder has other files, or cannot be written.
    """

    def build(temporary: Path) -> None:
        save_tensors(temporary / WEIGHTS, source.weights, config=source.config, epoch=source.bundle.epoch)
        bundle = source.bundle.model_copy(update={"sha256": _sha256(temporary / WEIGHTS)})
        if labels is not None:
            labels.save(temporary / LABELS)
        text = json.dumps(bundle.model_dump(mode="json"), ensure_ascii=False, indent=1)
        write(temporary / RECORD, lambda path: path.write_text(text, encoding="utf-8"))

    write_folder(folder, build, own=_FILES, kept=[README], last=RECORD)
