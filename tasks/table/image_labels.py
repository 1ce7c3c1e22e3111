"""Labels of a table that belong to the image of a row: the joints of a person, another model's embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from contml import InputError
from contml.data import View
from contml.data.features import read_features
from contml.data.tables import as_value
from contml.data.values import flag, pairs, points, refuse_outside
from contml.labels import PoseLabels, TeacherLabels

from .._readers.label_maps import image_size
from ..pose.bodies import LSP, Body
from ..pose.people import pose_view
from .label import Array, Cells, FittedLabel, LabelColumn, TableLabel

_CONFIDENCES = "of confidences, write 1 where they are high enough"
_ALLOWED = "must be a JSON list [[x, y], ...] or [[x, y, visible], ...], null for a joint that is not known"


@dataclass(frozen=True)
class PoseLabel(TableLabel):
    """Joints in pixels of the image: [[x, y], ...] or [[x, y, visible], ...] in a cell, or columns x0,y0,x1,y1,...

    The third number is 0 for a joint that is not visible. Such a joint does not count. A row needs more than half of
    its joints. The label distance is Euclidean, over the joints that are visible in both items.

    Args:
        normalize: compare poses in the frame of the person, so that neither position nor size counts.
        joint_names: the name of each joint, as right_knee. null: the names in the file, the names of LSP for 14
            joints, or numbers.
        skeleton: pairs of joints that a limb connects, counted from 0; null: the pairs in the file, or none.
    """

    normalize: bool = False
    joint_names: list[str] | None = None
    skeleton: list[list[int]] | None = None

    takes = (1, None)
    content = "more than half of its joints"
    most_rows = (20_000, 10_000)

    def read(self, cells: Cells) -> LabelColumn:
        """Return the joints of each row `[N, J, 3]`: x, y, and 1 if the joint is visible, else 0."""
        values = _of_columns(cells) if len(cells.columns) > 1 else _of_cells(cells)
        return LabelColumn(self, cells, values, values[..., 2].sum(1) * 2 > values.shape[1], cells.missing)

    def problem(self, column: LabelColumn, row: int) -> str:
        """Return the error of a row with too few joints."""
        if not column.cells.columns[0].filled[row]:
            return super().problem(column, row)
        visible = column.values[row, :, 2]
        return f"{column.name}: {visible.sum():.0f} of {len(visible)} joints are visible; must be more than half"

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:
        """Compare the joints of these rows with the sizes of their images."""
        joints, visible, body = column.values[..., :2], column.values[..., 2] > 0, self._body(column)
        for row in np.concatenate((train, test)).tolist():
            image = Path(column.cells.images[row])
            if (size := image_size(image)) is not None:  # None if the file is broken (see images.broken)
                where = column.cells.error_at(row, "").subject
                refuse_outside(joints[row], visible[row], size, body.names, where, image.name)

        def space(rows: Array) -> PoseLabels:
            labels = PoseLabels(joints[rows], visible[rows], self.normalize, skeleton=body.skeleton)
            labels.part_names = body.names
            return labels

        def view(rows: Array, labels: PoseLabels) -> View:
            return pose_view(labels, joints[rows], visible[rows], body)

        known = f"{visible[train].mean():.0%} of them visible in training"
        summary = f"{len(body.names)} joints, {known}: {', '.join(body.names[:3])}, …"
        if np.abs(joints[train][visible[train]]).max(initial=0) <= 1:
            summary += "; joints are at most 1: if they are shares of the image, multiply by its width and height"
        return column.fitted(space, summary, view=view)

    def _body(self, column: LabelColumn) -> Body:
        """Return the names and the limbs of the joints."""
        count, cells = column.values.shape[1], column.cells
        names, skeleton = cells.table.about.get(column.name, unnamed(count))
        names = names if self.joint_names is None else self.joint_names
        if len(names) != count:
            raise cells.error(f"{len(names)} joint_names for {count} joints", hint="give one name per joint")
        limbs = skeleton if self.skeleton is None else self.skeleton
        return Body(names, pairs(limbs, count, 0, f"{cells.part.section}: skeleton"))


def unnamed(count: int) -> Body:
    """Return a body for joints without names: the names and limbs of LSP for 14 joints, otherwise numbers."""
    return LSP if count == len(LSP.names) else Body([str(joint) for joint in range(count)], ())


def _of_columns(cells: Cells) -> Array:
    """Read the joints in columns of x and y, and perhaps a third column whose name begins with v.

    A joint is not visible if the cell of its third column is 0.
    """
    numbers, third = cells.numbers(), len(cells.columns) > 2 and [*cells.table.columns][2].lower().startswith("v")
    size = 3 if third else 2
    if numbers.shape[1] % size:
        raise cells.error(f"{numbers.shape[1]} columns", f"must be {size} for each joint")
    values = numbers.reshape(len(numbers), -1, size)
    known = np.asarray(np.isfinite(values[..., :2]).all(2))
    if third:
        seen = np.nan_to_num(values[..., 2])
        for row, joint in np.argwhere(~np.isin(seen, (0, 1, 2))).tolist():
            raise cells.error_at(row, f"{seen[row, joint]:g}", "must be 0, 1 or 2", _CONFIDENCES, 3 * joint + 2)
        known &= seen > 0
    return np.concatenate((values[..., :2], known[..., None]), 2)


def _of_cells(cells: Cells) -> Array:
    """Read the joints in lists of a column."""
    texts = cells.columns[0].texts()
    poses = {row: _pose(text, cells.error_at(row, "").subject) for row, text in enumerate(texts) if text}
    count = len(next(iter(poses.values()), ((0.0, 0.0, 0.0),)))
    values = np.full((len(texts), count, 3), np.nan)
    values[..., 2] = 0
    for row, pose in poses.items():
        if len(pose) != count:
            as_in = f"as in {cells.table.where(next(iter(poses)))}"
            allowed = f"must be {count} {as_in}; null for a joint that is not known"
            raise cells.error_at(row, f"{len(pose)} joints", allowed)
        values[row] = pose
    return values


def _pose(text: str, where: str) -> Array:
    """Read the joints of a cell `[J, 3]`."""
    joints = as_value(text)
    if not isinstance(joints, list) or not joints or not all(isinstance(joint, list | None) for joint in joints):
        raise InputError(where, f"'{text[:60]}'", _ALLOWED)
    values = np.zeros((len(joints), 3))
    for number, joint in enumerate(joints):
        if joint is None:
            values[number, :2] = np.nan
        elif len(joint) in (2, 3):
            values[number, :2] = points(joint[:2], where)
            is_known = bool(np.isfinite(values[number, :2]).all())
            is_seen = is_known if len(joint) == 2 else joint[2] == 2 or flag(joint[2], where, _CONFIDENCES)  # 2: COCO
            values[number, 2] = is_seen
            if is_seen and not is_known:
                raise InputError(where, f"joint {number} is visible and not a number", hint="set the third number to 0")
        else:
            raise InputError(where, f"joint {number} has {len(joint)} numbers", _ALLOWED)
    return values


@dataclass(frozen=True)
class TeacherLabel(TableLabel):
    """Another model's embedding of the image. The label distance is the distance of embeddings of length 1.

    The cells of the column are not read.

    Args:
        model: the teacher: a run, a folder of 'contml export', or a file that 'contml embed' or 'contml features' wrote
            for these images (.npz, .parquet).
    """

    model: Path | None = None

    short = "model"
    content = "an embedding of the teacher"

    def read(self, cells: Cells) -> LabelColumn:
        """Return the embeddings `[N, D]`, NaN if the teacher has no embedding."""
        if self.model is None:
            raise cells.error("no teacher", "must name a run or a file", f"{cells.name}=teacher:RUN")
        path = self.model.expanduser()
        values = _embedded(path, cells.images) if path.is_dir() else _from_file(path, cells.images)
        present = np.asarray(np.isfinite(values).all(1))
        if not present.any():
            hint = "embed these images: contml embed RUN FOLDER"
            raise cells.error(f"{path} has no embedding of any image", hint=hint)
        return LabelColumn(self, cells, values, present, cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Return the label, which depends on no rows."""
        values = column.values
        summary = f"embeddings of {values.shape[1]:,} numbers by {self.model}; distance of unit vectors"
        return column.fitted(lambda rows: TeacherLabels(values[rows]), summary)

    def problem(self, column: LabelColumn, row: int) -> str:
        """Return the error of a row without an embedding of the teacher."""
        return f"{self.model} has no embedding of {column.cells.images[row] or 'this row'}"


def _embedded(folder: Path, images: Sequence[str]) -> Array:
    """Return the embeddings of a model. Rows without a readable image are NaN."""
    from contml.search import load  # imported here, as it imports torch and more

    model, rows = load(folder), [row for row, image in enumerate(images) if image]
    if model.bundle.feature_dim is not None:
        raise InputError(str(folder), "a model of features, which embeds no images", hint="name a model of images")
    values = np.full((len(images), model.embedding_dim), np.nan)
    values[rows] = model.embed([images[row] for row in rows], broken="skip")
    return values


def _from_file(path: Path, images: Sequence[str]) -> Array:
    """Return the vectors `[N, D]` of a file for the images, NaN for images without a vector.

    A name in the file is the path of an image, or the end of its path. The longest end that is a name is used.
    """
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
