"""The kinds of a label of a table, and the short form of their sections: `number:log:0.5`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from contml import InputError
from contml._support.validation import PositiveFloat
from contml.config import ConfiguredPart, Document, NamedParts, parts_by_name
from contml.data.features import read_features
from contml.labels import TeacherLabels

from .label import Array, Cells, FittedLabel, LabelColumn, TableLabel
from .number_labels import DateLabel, GeoLabel, NumberLabel, VectorLabel
from .pose_label import PoseLabel
from .text_labels import CaptionsLabel, ClassLabel, MapLabel, OrdinalLabel, TagsLabel


@dataclass(frozen=True)
class TeacherLabel(TableLabel):
    """Another model's embedding of the image: the label distance is that of the embeddings, scaled to length 1.

    The cells of the column are not read.

    Args:
        model: the teacher: a run, a folder of 'contml export', or a file that 'contml embed' or 'contml features' wrote
            for these images (.npz, .parquet).
    """

    model: Path | None = None

    short = "model"
    content = "an embedding of the teacher"

    def read(self, cells: Cells) -> LabelColumn:
        """The embeddings `[N, D]`, NaN where the teacher has none."""
        if self.model is None:
            raise cells.error("no teacher", "must name a run or a file", f"{cells.name}=teacher:RUN")
        path = self.model.expanduser()
        values = _embedded(path, cells.images) if path.is_dir() else _from_file(path, cells.images)
        present = np.asarray(np.isfinite(values).all(1))
        if not present.any():
            raise cells.error(
                f"{path} has no embedding of any image", hint="embed these images: contml embed RUN FOLDER"
            )
        return LabelColumn(self, cells, values, present, cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Depends on no rows."""
        values = column.values
        summary = f"embeddings of {values.shape[1]:,} numbers by {self.model}; distance of unit vectors"
        return column.fitted(lambda rows: TeacherLabels(values[rows]), summary)

    def problem(self, column: LabelColumn, row: int) -> str:
        """The error of a row that the teacher has no embedding of."""
        return f"{self.model} has no embedding of {column.cells.images[row] or 'this row'}"


def _embedded(folder: Path, images: Sequence[str]) -> Array:
    """The embeddings of a model; NaN for rows without an image, and for images that cannot be read."""
    from contml.search import load  # here: it imports torch and more

    model, rows = load(folder), [row for row, image in enumerate(images) if image]
    if model.bundle.feature_dim is not None:
        raise InputError(str(folder), "a model of features, which embeds no images", hint="name a model of images")
    values = np.full((len(images), model.embedding_dim), np.nan)
    values[rows] = model.embed([images[row] for row in rows], broken="skip")
    return values


def _from_file(path: Path, images: Sequence[str]) -> Array:
    """The vectors of a file by the names of the images: their path, or the end of it that is longest."""
    names, vectors = read_features(path)
    if names is None or vectors.ndim != 2:
        raise InputError(str(path), "vectors without names" if names is None else "maps", "must be vectors with names")
    row_by_name = {name: row for row, name in enumerate(names)}
    if len(row_by_name) < len(names):
        raise InputError(str(path), f"{len(names) - len(row_by_name)} names that appear twice", "must have each once")
    values, image_by_row = np.full((len(images), vectors.shape[1]), np.nan), dict[int, str]()
    for place, image in enumerate(images):
        parts = PurePosixPath(image).parts
        ends = (str(PurePosixPath(*parts[start:])) for start in range(len(parts)))
        row = next((row_by_name[end] for end in ends if end in row_by_name), None)
        if row is None:
            continue
        if image_by_row.setdefault(row, image) != image:
            problem = f"the name {names[row]} may be {image_by_row[row]} or {image}"
            raise InputError(str(path), problem, hint="embed the folder that holds both")
        values[place] = vectors[row]
    return values


@dataclass(frozen=True)
class AutoLabel:
    """The kind is guessed from the cells, and shown with the reason.

    Args:
        weight: the weight of its label distance in a sum of labels.
    """

    weight: PositiveFloat = 1.0

    short: ClassVar[str] = ""


#: Every kind of label by its name in a config; "auto" is one of the others.
TABLE_LABELS: dict[str, type[TableLabel] | type[AutoLabel]] = {
    "class": ClassLabel,
    "number": NumberLabel,
    "date": DateLabel,
    "vector": VectorLabel,
    "geo": GeoLabel,
    "ordinal": OrdinalLabel,
    "tags": TagsLabel,
    "captions": CaptionsLabel,
    "map": MapLabel,
    "pose": PoseLabel,
    "teacher": TeacherLabel,
    "auto": AutoLabel,
}
#: The kinds that a guess can be.
KINDS = [kind for kind in TABLE_LABELS if kind != "auto"]


def section_of(text: str) -> dict[str, Any]:
    """The section of a label in short: "number", "number:0.5", "number:log", "date:%d.%m.%Y:2", "auto".

    Raises:
        InputError: what follows the kind is not a number, and the kind has no short form.
    """
    kind, colon, rest = text.strip().partition(":")
    section: dict[str, Any] = {"kind": kind.strip() or "auto"}
    part = TABLE_LABELS.get(section["kind"])
    if not colon or part is None:
        return section
    value, _, weight = rest.rpartition(":")
    try:
        section["weight"] = float(weight)
    except ValueError:
        value = rest
    if value.strip() and part.short:
        section[part.short] = value.strip()
    elif value.strip() or "weight" not in section:
        allowed = f"must be a number above 0, as in {section['kind']}:0.5"
        raise InputError("", f"weight '{rest}'", allowed)
    return section


#: What the option `labels` of a table holds.
LABEL_SECTIONS = NamedParts(TABLE_LABELS, "auto", section_of)


def label_parts(labels: Mapping[str, Any]) -> dict[str, ConfiguredPart]:
    """The parts of labels that are given by name, as sections or in short.

    Raises:
        InputError: an unknown kind or option, or a value of another type.
    """
    return parts_by_name(Document("", {"labels": labels}), ("labels",), LABEL_SECTIONS, labels)
