"""The model card of a trained model: what the Hugging Face hub shows of it, as `README.md` beside the weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from contml._support.files import read_bytes, write
from contml._support.text import page_text
from contml.evaluation.evaluated import Evaluated, epoch_text
from contml.evaluation.table import scope, sentence, summary, value_text

if TYPE_CHECKING:
    from contml.retrieval.bundle import Bundle

CARD, GALLERY = "README.md", "gallery.png"
#: The place of the model on the hub, until it is known.
PLACE = "USER/NAME"
#: Largest card in bytes.
_LIMIT = 1 << 20
_PICTURE = f"""
![Queries of the test split, with the items nearest by embedding and by label]({GALLERY})

Queries from good to bad. Beside each: above the items nearest by embedding, below those nearest by label.
"""
_HEAD = "# license: (choose one, such as apache-2.0)\n"


class Card(NamedTuple):
    """A model card.

    Attributes:
        text: the whole `README.md`.
        picture: the gallery of retrieved items that it shows; None if it shows none.
    """

    text: str
    picture: Path | None = None

    def save(self, folder: Path, *, pictures: bool = True, place: str = PLACE) -> None:
        """Write the card in a folder.

        Args:
            folder: the folder of the bundle.
            pictures: also write the gallery, which shows images of the data.
            place: "user/name" on the hub, for the lines that say how to load the model.
        """
        text, picture = self.text.replace(f"hf://{PLACE}", f"hf://{place}"), self.picture
        if pictures and picture is not None and picture.is_file():
            write(folder / GALLERY, lambda path: shutil.copyfile(picture, path))
        else:
            text = text.replace(_PICTURE, "")
        write(folder / CARD, lambda path: path.write_text(text, encoding="utf-8"))


def read_card(folder: Path) -> Card | None:
    """The card in the folder of a bundle; None if there is none.

    Raises:
        InputError: it cannot be read.
    """
    try:
        text = read_bytes(folder / CARD, _LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return None
    return Card(text, folder / GALLERY)


def make_card(
    bundle: Bundle,
    config: Mapping[str, Any],
    evaluated: Evaluated | None = None,
    picture: Path | None = None,
) -> Card:
    """The card of a trained model.

    Args:
        bundle: what is known about the model.
        config: the sections of the config that trained it, at least "model", and "captioner" of a captioner; without
            paths.
        evaluated: the result of the run, for the table; None if it is not known.
        picture: the gallery of retrieved items; left out if there is no such file.
    """
    shown_picture = picture if picture is not None and picture.is_file() else None
    captions = "captioner" in config
    pipeline = "image-feature-extraction" if bundle.feature_dim is None else "feature-extraction"
    metadata = {
        "library_name": "contml",
        "pipeline_tag": "image-to-text" if captions else pipeline,
        "tags": ["contml", *_tags(config, evaluated)],
    }
    head = f"---\n{_HEAD}{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n"
    inputs = "images" if bundle.feature_dim is None else "feature vectors"
    input_code = '"photos"' if bundle.feature_dim is None else "vectors"
    summary = f"An embedding of {inputs}, trained with contml so that embedding distances follow label distances.\n"
    use = f"embeddings = model.embed({input_code})"
    if captions:
        summary = f"Captions for {inputs}, trained with contml: a visual network, and a decoder that writes words.\n"
        use = f"captions = model.caption({input_code})\n{use}  # of the visual network"
    sections = [
        f"# {_inline(bundle.name)}\n",
        summary,
        _table([["", ""], *_facts(bundle, config)]),
        '\n## Use\n\n```python\nimport contml  # pip install "contml[hub]"\n\n'
        f'model = contml.load("hf://{PLACE}")\n{use}\n```\n',
        "" if evaluated is None else _results(bundle, evaluated),
        _PICTURE if shown_picture else "",
    ]
    return Card(head + "\n" + "\n".join(filter(None, sections)), shown_picture)


def _tags(config: Mapping[str, Any], evaluated: Evaluated | None) -> list[str]:
    """`label:KIND` and `loss:NAME`, as far as they are known."""
    task, loss = config.get("task", {}), config.get("loss", {}).get("name")
    if isinstance(task.get("labels"), Mapping):  # of a table: a section by column, in runs of before a text
        sections = task["labels"].values()
        kinds = [str(s.get("kind") if isinstance(s, Mapping) else s).partition(":")[0] for s in sections]
    else:  # of a task of contml: "pose/synthetic"; not of the user's own, "module:function"
        group, slash, name = str(task.get("name", "")).partition("/")
        kinds = [group] if slash and ":" not in name and "labels" not in task else []
    kinds = [kind for kind in dict.fromkeys(kinds) if kind not in ("", "auto")]
    if not kinds and evaluated is not None:
        kinds = [evaluated.evaluation.kind]
    return [*(f"label:{kind}" for kind in kinds), *([f"loss:{loss}"] if loss else [])]


def _facts(bundle: Bundle, config: Mapping[str, Any]) -> list[list[str]]:
    """What the model is and how it was trained: rows of two cells."""
    options, captioner, decoder = (config.get(name, {}) for name in ("model", "captioner", "decoder"))
    task, loss, transform = config.get("task", {}).get("name"), config.get("loss", {}), bundle.transform
    values = ", ".join(f"{key}: {value_text(value)}" for key, value in loss.items() if key != "name")
    images = f"resized to {transform.resize} x {transform.resize} pixels, of which the centre {transform.crop} x "
    rows = [
        ["data", task],
        ["label distance", bundle.unit],
        ["loss", f"{loss['name']} ({values})" if values else loss.get("name")],
        ["backbone", options["backbone"]],
        ["decoder", decoder.get("name")],
        ["captions", f"at most {captioner['length']} words, beam of {captioner['beam']}" if captioner else ""],
        ["levels", ", ".join(options.get("levels") or ())],
        ["normalized", "to length 1" if options.get("normalize") else "no"],
        ["input", f"{images}{transform.crop}" if bundle.feature_dim is None else f"{bundle.feature_dim} numbers"],
        ["epochs of training", epoch_text([bundle.epoch]) if bundle.epoch else "0 (untrained)"],
        ["trained with", ", ".join(f"{name} {version}" for name, version in bundle.versions.items())],
    ]
    return [[name, str(value)] for name, value in rows if value]


def _results(bundle: Bundle, evaluated: Evaluated) -> str:
    evaluation = evaluated.evaluation
    lines = [
        "## Results\n",
        f"{_inline(evaluated.description)}: {_inline(scope(evaluation))}.\n",
        _table(summary(evaluation)),
        sentence(evaluation),
    ]
    lines += [f"\nNote: {note}." for note in evaluated.notes]
    if bundle.calibration is not None:
        lines.append(f"\nCalibration: {bundle.calibration.sentence(bundle.measure)}.")
    return "\n" + "\n".join(lines) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its header."""
    header, *body = [f"| {' | '.join(map(_inline, row))} |" for row in rows]
    return "\n".join([header, "|---" * len(rows[0]) + "|", *body]) + "\n"


def _inline(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    plain = page_text(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\|<>`*_[]" else c for c in plain)
