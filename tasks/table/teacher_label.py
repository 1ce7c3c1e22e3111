"""A label of a table that is another model's embedding of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from contml import InputError
from contml.data.features import read_features
from contml.labels import TeacherLabels

from .label import Array, Cells, FittedLabel, LabelColumn, TableLabel


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
