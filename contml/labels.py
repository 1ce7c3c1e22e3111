"""Label spaces: the packed labels of a data set, and views of one space as another.

A label space of one's own is a `PackedLabels` with one method, `distances`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, LabelSpace, Rows, as_rows
from contml.distances import class_distance, euclidean, nearest, pairwise, pose_distance, squared_euclidean

if TYPE_CHECKING:
    from typing_extensions import Self

#: Rows of a precomputed matrix looked at when it is opened.
_SAMPLE = 64


class SpaceView:
    """Some rows of a label space against each other; blocks of label distances are computed when asked for."""

    def __init__(self, space: LabelSpace, rows: Rows = None) -> None:
        self.space = space
        self.rows = as_rows(rows, len(space), space.device)
        self.kind: LabelKind = space.kind

    def __len__(self) -> int:
        return len(self.rows)

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        """Label distances `[A, B]` of these positions of the view (default all) to every item of it."""
        return pairwise(self.space, self.rows if anchors is None else self.rows[anchors], self.rows)

    @property
    def classes(self) -> Tensor | None:
        """Class ids `[B]`, or None where the labels are not classes."""
        classes: Tensor | None = getattr(self.space, "classes", None)
        return None if classes is None else classes[self.rows]


class PackedLabels:
    """Base of label spaces that keep their labels as tensors of one row an item: give them, and write `distances`.

    Args:
        tensors: the packed labels, `[N, ...]` each; they move and are cut together, and are attributes by their names.
    """

    kind: LabelKind = "distances"
    unit: str = "label distance"

    def __init__(self, **tensors: Tensor) -> None:
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"the packed labels have {lengths} items; give one row an item in each")
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                row = int((~tensor.isfinite()).flatten(1 if tensor.ndim > 1 else 0).nonzero()[0, 0])
                raise InputError(f"{name} of item {row} is not finite; labels are finite numbers")
        self._names = tuple(tensors)
        self.__dict__.update(tensors)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Label distances `[len(x), len(y)]` of the items of x to the items of y: what a subclass writes."""
        raise NotImplementedError(f"{type(self).__name__} has no distances(self, x, y)")

    def __len__(self) -> int:
        return len(self.__dict__[self._names[0]])

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        device: torch.device = self.__dict__[self._names[0]].device
        return device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def subset(self, rows: Rows) -> Self:
        """These rows as a label space of their own."""
        index = as_rows(rows, len(self), self.device)
        return self._with(lambda tensor: tensor[index])

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """Label distances `[R, C]` in float32."""
        x = self if rows is None else self.subset(rows)
        y = self if cols is None else self.subset(cols)
        return self.distances(x, y).float()

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)

    def _with(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update({name: change(self.__dict__[name]) for name in self._names})
        return changed


class ClassLabels(PackedLabels):
    """Class labels: label distance 0 within a class, 1 between classes.

    Args:
        labels: one class an item: integers that need not be consecutive, or strings.
    """

    kind: LabelKind = "classes"
    unit = "another class"
    classes: Tensor

    def __init__(self, labels: Tensor | Sequence[Hashable]) -> None:
        values = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        self.names = sorted(set(values), key=lambda value: (str(type(value)), value))
        position = {name: number for number, name in enumerate(self.names)}
        device = labels.device if isinstance(labels, Tensor) else "cpu"
        super().__init__(classes=torch.tensor([position[v] for v in values], dtype=torch.int64, device=device))

    def distances(self, x: ClassLabels, y: ClassLabels) -> Tensor:
        """0 or 1, `[X, Y]`."""
        return class_distance(x.classes, y.classes)


class VectorLabels(PackedLabels):
    """Real vectors as labels: an age, a rating, attributes, a place on a line.

    Args:
        values: `[N]` or `[N, D]`.
        squared: squared Euclidean label distance, else plain Euclidean; goes with the loss's option of that name.
        unit: what a label distance of 1 is, in words.
    """

    values: Tensor

    def __init__(
        self, values: Tensor | np.ndarray[Any, Any] | Sequence[Any], squared: bool = True, unit: str = ""
    ) -> None:
        packed = torch.as_tensor(values).double()
        super().__init__(values=packed.reshape(len(packed), -1))
        self.squared = squared
        self.unit = unit or ("squared difference of labels" if squared else "difference of labels")

    def distances(self, x: VectorLabels, y: VectorLabels) -> Tensor:
        """Euclidean distances, squared or plain, in float64 `[X, Y]`."""
        return (squared_euclidean if self.squared else euclidean)(x.values, y.values)


class PoseLabels(PackedLabels):
    """Poses: joints in the plane or in space, some of them perhaps not visible.

    The label distance is the squared Euclidean distance summed over the joints visible in both items, rescaled to all
    joints; `squared=False` takes its square root. An item needs more than half of its joints visible, so that any two
    have one in common. `kept` are the rows of the input that are in the space.

    Args:
        joints: `[N, J, 2]` or `[N, J, 3]` coordinates, in pixels as a rule.
        visible: `[N, J]`, default all; coordinates of joints that are not visible are never read.
        squared: squared Euclidean label distance, else plain Euclidean; goes with the loss's option of that name.
        normalize: move each pose to the mean of its visible joints and divide by their root mean square distance from
            it, so that neither place nor size of the person counts; the unit is then a person's scale.
        hidden: what to do with an item of at most half its joints visible: "refuse" it, or "drop" it.
        unit: what a label distance of 1 is, in words.
    """

    joints: Tensor
    visible: Tensor

    def __init__(
        self,
        joints: Tensor | np.ndarray[Any, Any],
        visible: Tensor | np.ndarray[Any, Any] | None = None,
        squared: bool = True,
        normalize: bool = False,
        hidden: Literal["refuse", "drop"] = "refuse",
        unit: str = "",
    ) -> None:
        joints = torch.as_tensor(joints).double()
        if joints.ndim != 3:
            raise InputError(f"joints are {list(joints.shape)}; give [items, joints, 2] or [items, joints, 3]")
        seen = torch.ones(joints.shape[:2], dtype=torch.bool) if visible is None else torch.as_tensor(visible).bool()
        if seen.shape != joints.shape[:2]:
            raise InputError(
                f"visible is {list(seen.shape)}, but joints are {list(joints.shape)}; give [items, joints]"
            )
        enough = seen.sum(1) * 2 > joints.shape[1]
        if hidden == "refuse" and not bool(enough.all()):
            row = int((~enough).nonzero()[0, 0])
            raise InputError(
                f"item {row} has {int(seen[row].sum())} of {joints.shape[1]} joints visible "
                f"({int((~enough).sum())} such items); a pose needs more than half: leave these out, or set hidden=drop"
            )
        self.kept = enough.nonzero()[:, 0]
        if len(self.kept) == 0:
            raise InputError(f"no item has more than half of its {joints.shape[1]} joints visible")
        seen = seen[self.kept]
        joints = torch.where(seen[:, :, None], joints[self.kept], 0)
        if normalize:
            joints = torch.where(seen[:, :, None], _person_frame(joints, seen), 0)
        super().__init__(joints=joints, visible=seen)
        self.squared = squared
        scale = "person scale" if normalize else "pixel"
        self.unit = unit or (
            f"squared {scale}s, summed over {joints.shape[1]} joints"
            if squared
            else f"{scale}s, over {joints.shape[1]} joints"
        )

    def distances(self, x: PoseLabels, y: PoseLabels) -> Tensor:
        """Pose distances `[X, Y]`."""
        return pose_distance(x.joints, y.joints, x.visible, y.visible, squared=self.squared)


class PrecomputedLabels:
    """A matrix of label distances on disk, memory-mapped: only the blocks that are asked for are read.

    Args:
        path: a `.npy` file of `[N, N]` numbers >= 0, symmetric, 0 on the diagonal.
        unit: what a label distance of 1 is, in words.
    """

    kind: LabelKind = "distances"

    def __init__(self, path: Path | str, unit: str = "label distance") -> None:
        self.path, self.unit, self.device = Path(path), unit, torch.device("cpu")
        try:
            self._matrix = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; give the .npy file of a matrix of label distances") from None
        except (ValueError, EOFError, OSError) as error:
            raise InputError(f"{path}: not a readable .npy matrix ({error})") from None
        if (
            self._matrix.ndim != 2
            or self._matrix.shape[0] != self._matrix.shape[1]
            or self._matrix.dtype.kind not in "fiu"
        ):
            raise InputError(
                f"{path}: {self._matrix.dtype} of shape {list(self._matrix.shape)}; "
                "label distances are a square matrix of numbers"
            )
        self._index = torch.arange(len(self._matrix))
        self._check()

    def _check(self) -> None:
        # The whole matrix may be larger than memory: the diagonal and some rows are looked at, and every block that is
        # read later is checked for NaN and negative numbers by `pairwise` and `nearest`.
        n = len(self._matrix)
        if n and np.abs(np.asarray(self._matrix.diagonal(), dtype=np.float64)).max() != 0:
            raise InputError(f"{self.path}: the diagonal is not 0; an item's label distance to itself is 0")
        for row in np.linspace(0, n - 1, min(n, _SAMPLE), dtype=np.int64):
            if not np.allclose(self._matrix[row], self._matrix[:, row], rtol=1e-5, atol=1e-6, equal_nan=True):
                raise InputError(f"{self.path}: row {row} and column {row} differ; label distances are symmetric")

    def __len__(self) -> int:
        return len(self._index)

    def to(self, device: torch.device | str) -> Self:
        """The same matrix, whose blocks are sent to `device`."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        return moved

    def subset(self, rows: Rows) -> Self:
        """These rows as a label space of their own; the file stays as it is."""
        part = copy.copy(self)
        part._index = self._index[as_rows(rows, len(self))]
        return part

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """Label distances `[R, C]` in float32, read from the file."""
        r, c = (self._index[as_rows(index, len(self), self.device).cpu()].numpy() for index in (rows, cols))
        return torch.from_numpy(self._matrix[r][:, c].astype(np.float32)).to(self.device)

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)


class _BinaryView:
    """Base of the views of a label space as 0 / 1."""

    kind: LabelKind = "binary"

    def __init__(self, space: LabelSpace) -> None:
        self.space = space

    def __len__(self) -> int:
        return len(self.space)

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        return self.space.device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = copy.copy(self)
        moved.space = self.space.to(device)
        return moved

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)  # type: ignore[arg-type]


class ThresholdLabels(_BinaryView):
    """A label space as 0 / 1: items nearer than a threshold are positives.

    Args:
        threshold: label distance below which an item is a positive (0), in the space's unit; all else is a
            negative (1).
    """

    def __init__(self, threshold: float, *, space: LabelSpace) -> None:
        if not threshold > 0:
            raise InputError(f"threshold is {threshold}; it must be above 0, or no item has a positive")
        super().__init__(space)
        self.threshold = threshold
        self.unit = f"{threshold:g} or more ({space.unit})"

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """0 or 1, `[R, C]` in float32."""
        return (pairwise(self.space, rows, cols) >= self.threshold).float()

    def subset(self, rows: Rows) -> ThresholdLabels:
        """These rows as a label space of their own."""
        return ThresholdLabels(self.threshold, space=self.space.subset(rows))


class NearestLabels(_BinaryView):
    """A label space as 0 / 1: the k nearest items of each are its positives.

    A relation that is **not symmetric**: an item may be among another's k nearest and not the other way round; row a
    tells the positives of a. A subset keeps the neighbours found in the whole.

    Args:
        k: how many of an item's nearest by label distance are its positives (0), beside itself; all else is 1.
    """

    def __init__(self, k: int = 30, *, space: LabelSpace) -> None:
        super().__init__(space)
        self.k = k
        self.neighbours = nearest(space, k).rows  # [N,k]
        self.index = torch.arange(len(space), device=space.device)
        self.unit = f"not among the {k} nearest"

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """0 or 1, `[R, C]` in float32."""
        r, c = (self.index[as_rows(index, len(self), self.device)] for index in (rows, cols))
        positive = torch.zeros(len(r), len(self.neighbours), dtype=torch.bool, device=self.device)
        positive.scatter_(1, torch.cat((self.neighbours[r], r[:, None]), 1), True)
        return (~positive[:, c]).float()

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = super().to(device)
        moved.neighbours, moved.index = self.neighbours.to(device), self.index.to(device)
        return moved

    def subset(self, rows: Rows) -> NearestLabels:
        """These rows as a label space of their own, with the neighbours of the whole."""
        part = copy.copy(self)
        part.index = self.index[as_rows(rows, len(self), self.device)]
        return part


def _person_frame(joints: Tensor, visible: Tensor) -> Tensor:
    seen = visible[:, :, None].double()
    count = seen.sum(1, keepdim=True)
    centred = joints - (joints * seen).sum(1, keepdim=True) / count
    scale = ((centred.square() * seen).sum((1, 2), keepdim=True) / count).sqrt()
    if not bool((scale > 0).all()):
        row = int((scale[:, 0, 0] <= 0).nonzero()[0, 0])
        raise InputError(f"all visible joints of item {row} are in one place; a pose without size cannot be normalised")
    return centred / scale


#: Label spaces that a program builds from its own data.
LABELS = {"classes": ClassLabels, "vectors": VectorLabels, "poses": PoseLabels, "precomputed": PrecomputedLabels}

#: Views of a space as another: how class losses train on continuous labels, and the only place of thresholds.
VIEWS = {"threshold": ThresholdLabels, "nearest": NearestLabels}
