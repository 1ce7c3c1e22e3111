"""Label spaces of classes, vectors, and of a matrix that somebody computed already."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, Rows, as_rows
from contml.distances import Neighbours, class_distance, euclidean, nearest_vectors, squared_euclidean
from contml.distances.cache import fingerprint
from contml.labels.base import PackedLabels, SpaceView

if TYPE_CHECKING:
    from typing_extensions import Self

#: Rows of a precomputed matrix looked at when it is opened.
_SAMPLE = 64


class ClassLabels(PackedLabels):
    """Class labels: label distance 0 within a class, 1 between classes.

    Args:
        labels: one class an item: integers that need not be consecutive, or strings.
    """

    kind: LabelKind = "classes"
    unit = "another class"
    classes: Tensor

    def __init__(self, labels: Tensor | Sequence[Hashable]) -> None:
        if isinstance(labels, Tensor) and (labels.ndim != 1 or labels.is_floating_point()):
            raise InputError(
                f"classes are {labels.dtype} {list(labels.shape)}; give one whole number or string an item"
            )
        values = labels.tolist() if isinstance(labels, Tensor) else [_plain(label) for label in labels]
        for row, value in enumerate(values):
            if value is None or value != value:
                raise InputError(f"the class of item {row} is {value}; give each item a class")
        if not values:
            raise InputError("there are no labels; give one class an item")
        self.names = sorted(set(values), key=lambda value: (str(type(value)), value))
        position = {name: number for number, name in enumerate(self.names)}
        device = labels.device if isinstance(labels, Tensor) else "cpu"
        super().__init__(classes=torch.tensor([position[v] for v in values], dtype=torch.int64, device=device))

    def distances(self, x: ClassLabels, y: ClassLabels) -> Tensor:
        """0 or 1, `[X, Y]`."""
        return class_distance(x.classes, y.classes)


def _plain(label: Any) -> Any:
    """A number of numpy or torch as Python's own: equal ones are then one class."""
    return label.item() if isinstance(label, np.generic) or (isinstance(label, Tensor) and label.ndim == 0) else label


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
        try:
            packed = torch.tensor(np.asarray(values, dtype=np.float64))
        except (ValueError, TypeError) as error:
            raise InputError(f"values are no numbers [items] or [items, D] ({error})") from None
        if packed.ndim == 0 or packed.numel() == 0:
            raise InputError(f"values are of shape {list(packed.shape)}; give numbers [items] or [items, D]")
        super().__init__(values=packed.flatten(1) if packed.ndim > 1 else packed[:, None])
        self.squared = squared
        self.unit = unit or ("squared difference of labels" if squared else "difference of labels")

    def distances(self, x: VectorLabels, y: VectorLabels) -> Tensor:
        """Euclidean distances, squared or plain, in float64 `[X, Y]`."""
        return (squared_euclidean if self.squared else euclidean)(x.values, y.values)

    def nearest_rows(
        self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Callable[[int], None] | None = None
    ) -> Neighbours:
        """What `nearest` calls: FAISS on the CPU, matrix products on a GPU, certified and ranked again in float64.

        rows `[R]`; among `[C]` ascending; a row is not its own neighbour.
        """
        at = torch.searchsorted(among, rows).clamp_(max=len(among) - 1)
        found = nearest_vectors(
            self.values[rows],
            self.values[among],
            k,
            itself=torch.where(among[at] == rows, at, -1),
            order=self._as_pairwise,
            memory=memory,
            progress=progress,
        )
        return Neighbours(found.values.float(), among[found.positions])

    def _as_pairwise(self, squared: Tensor) -> Tensor:
        # Ties are those of the float32 numbers that `pairwise` gives.
        return (squared if self.squared else squared.sqrt()).float().double()


class PrecomputedLabels:
    """A matrix of label distances on disk, memory-mapped: the pages of the blocks that are asked for are read.

    Args:
        path: a `.npy` file of `[N, N]` numbers >= 0, symmetric, 0 on the diagonal.
        unit: what a label distance of 1 is, in words.
    """

    kind: LabelKind = "distances"

    def __init__(self, path: Path | str, unit: str = "label distance") -> None:
        self.path, self.unit, self.device = Path(path), unit, torch.device("cpu")
        try:
            self._matrix = np.lib.format.open_memmap(self.path, mode="r")
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
        some = np.linspace(0, n - 1, min(n, _SAMPLE), dtype=np.int64)
        corner = self._matrix[np.ix_(some, some)]  # a whole column would read a page of every row
        apart = ~np.isclose(corner, corner.T, rtol=1e-5, atol=1e-6, equal_nan=True)
        if apart.any():
            i, j = (int(some[k]) for k in np.argwhere(apart)[0])
            raise InputError(f"{self.path}: entries [{i}, {j}] and [{j}, {i}] differ; label distances are symmetric")

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
        return torch.from_numpy(self._matrix[np.ix_(r, c)].astype(np.float32)).to(self.device)

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)

    def fingerprint(self) -> str:
        """A hash of the whole file and of the rows in the space, for caches: reads the file once."""
        with self.path.open("rb") as file:
            content = hashlib.sha256()
            while part := file.read(1 << 22):
                content.update(part)
        return fingerprint(type(self), content.hexdigest(), self._index)
