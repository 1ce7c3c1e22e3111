"""The label space of a matrix of label distances: in memory or in a file, of a data set or of a batch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers, names_of
from contml._support.door import opened
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.validation import as_rows, check_ranges
from contml.contracts import LabelKind, Rows
from contml.distances.nearest import MEMORY, checked
from contml.labels.base import LabelSpace
from contml.labels.items import ItemLabels

#: Number of rows of a matrix that are checked for symmetry.
_SAMPLE = 64
#: Negative numbers, and distances from an item to itself, are rounding and become 0 up to this share of the largest
#: distance: torch.cdist leaves such numbers, and 1 - cosine, in bfloat16 up to 0.008.
_ROUNDING = 1e-2


class MatrixLabels(ItemLabels):
    """A matrix of label distances: row a holds the label distances of item a to all items.

    For a data set, it is `[N, N]`, in memory or in a file. A file is memory-mapped: only the blocks that are needed are
    read. For a batch, it may have rows for some items only, the anchors. Such labels cannot be indexed. A loss makes
    these labels of a tensor of label distances.

    A matrix in memory is checked whole: numbers >= 0, and 0 from each item to itself, up to rounding. The diagonal of a
    file must be exactly 0. Its blocks are checked when they are read. Arrays, lists and files must be symmetric; a file
    is checked on a sample of its rows. A tensor need not be symmetric. A tensor is not copied.

    Args:
        matrix: numbers >= 0 in a tensor, an array, lists, or a `.npy` file: `[N, N]`, or `[A, B]` with anchors.
        anchors: positions of the anchors among the B items `[A]`; None: all items, in order.
        kind: "binary" if all numbers are 0 or 1.
        unit: the meaning of a label distance of 1.
    """

    item_arguments: ClassVar[Mapping[str, Any]] = {"matrix": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"kind": str, "unit": str}
    positions: Tensor

    @check_ranges
    def __init__(
        self,
        matrix: Numbers | Path | str,
        anchors: Rows = None,
        kind: Literal["graded", "binary"] = "graded",
        unit: str = "label distance",
    ) -> None:
        self.kind: LabelKind = kind
        self.unit = unit
        self.anchors: Tensor | None = None
        self._matrix: Tensor | _MatrixFile
        if isinstance(matrix, Path | str):
            if anchors is not None:
                raise InputError("anchors", f"a {type(anchors).__name__}", "must be None for the matrix in a file")
            self._matrix = _MatrixFile(Path(matrix))
            check_symmetry(str(matrix), self._matrix.array)
            super().__init__(positions=torch.arange(len(self._matrix.array)))
        else:
            _check_names(*names_of(matrix))
            values = as_numbers("label distances", matrix, "numbers [items, items], or [anchors, items] with anchors")
            values = values if values.dtype == torch.float64 else values.float()
            shape = list(values.shape)
            if values.ndim != 2 or not shape[1] or (anchors is None and shape[0] != shape[1]):
                raise InputError("label distances", str(shape), "must have a row for each item, or give anchors")
            if anchors is not None:
                if isinstance(anchors, Tensor) and anchors.device.type != "cpu":
                    positions = anchors  # a check would wait for the GPU
                else:
                    positions = as_rows(anchors, shape[1], values.device)
                if len(positions) != shape[0]:
                    allowed = f"must have a row for each of the {len(positions)} anchors"
                    raise InputError("label distances", str(shape), allowed)
                self.anchors = positions
            self._matrix = _checked(values, self.anchors, kind == "binary")
            if anchors is None and not isinstance(matrix, Tensor):
                check_symmetry("label distances", values.numpy(), len(values))
            super().__init__(positions=torch.arange(shape[1], device=values.device))
        if anchors is not None:
            self.rows = None
        self._is_whole = True  # True if the items are all items of the matrix, in its order

    def to(self, device: torch.device | str) -> Self:
        """Return the same labels on another device.

        A matrix in memory moves too, unless the labels are a part of others.
        """
        moved = super().to(device)
        moved.anchors = None if self.anchors is None else self.anchors.to(device)
        if isinstance(self._matrix, Tensor) and self._root is None:
            moved._matrix = self._matrix.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """Return these items as a label space.

        Raises:
            InputError: a row does not exist, or the matrix has rows for some items only.
        """
        if self.anchors is not None:
            got = f"[{len(self.anchors)}, {len(self)}], with rows of anchors only, indexed by items"
            raise InputError("matrix of label distances", got, hint="give all label distances, [items, items]")
        return super().__getitem__(rows)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return entries `[X, Y]` of the matrix. If it has rows for anchors only, return all of them."""
        if isinstance(self._matrix, Tensor):
            return self._entries(self._matrix, *(None if part._is_whole else part.positions for part in (x, y)))
        rows, cols = (part.positions.cpu().numpy() for part in (x, y))
        return torch.from_numpy(self._matrix.array[np.ix_(rows, cols)].astype(np.float32)).to(self.device)

    def pairwise(
        self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None, *, memory: int = MEMORY
    ) -> Tensor:
        """Return label distances `[R, C]` of rows to columns (default all), in float32.

        For labels without row numbers, they are in the dtype of the matrix. If the matrix has rows for anchors only,
        `rows` are positions of anchors in the batch.

        Raises:
            InputError: a row does not exist or is not an anchor, or a label distance in a file is negative or not a
                finite number.
        """
        if isinstance(rows, LabelSpace) or isinstance(cols, LabelSpace) or not isinstance(self._matrix, Tensor):
            return super().pairwise(rows, cols, memory=memory)
        of_matrix = self._positions(rows) if self.anchors is None else self._rows_of_anchors(rows, self.anchors)
        block = self._entries(self._matrix, of_matrix, self._positions(cols))
        return block if self.rows is None else block.float()

    def arguments(self) -> dict[str, Any]:
        """Return the label distances of the items, the kind and the unit."""
        return {"matrix": self.pairwise(), "kind": self.kind, "unit": self.unit}

    def joined(self, other: LabelSpace) -> Self:  # noqa: ARG002
        """Refuse to join: a matrix has no label distances to the items of another one."""
        raise InputError("labels", "two matrices", "must be one matrix of all items")

    def item(self, label: Any) -> Self:
        """Refuse a new label: a matrix has no label distances to it."""
        raise InputError(self.title, f"{label!r:.60}", "a label in a matrix of label distances cannot be typed")

    def fingerprint(self) -> str:
        """Return a hash of the whole matrix and of the rows in the space, for caches. A file is read once."""
        content: Any = self._matrix
        if isinstance(content, _MatrixFile):
            with content.path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        return fingerprint(type(self), content, self.anchors, self.kind, self.positions)

    def _entries(self, matrix: Tensor, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """Return the entries in these rows and columns of the matrix. None means all."""
        r, c = (None if index is None else index.to(matrix.device) for index in (rows, cols))
        if r is not None and c is not None:
            block = matrix[r[:, None], c]
        else:
            block = matrix if r is None else matrix[r]
            block = block if c is None else block[:, c]
        return block.to(self.device)

    def _positions(self, rows: Rows) -> Tensor | None:
        """Return the columns of the matrix that belong to these rows of the space.

        Return None for all columns, in order.
        """
        if rows is None:
            return None if self._is_whole else self.positions
        index = as_rows(rows, len(self), self.device)
        return index if self._is_whole else self.positions[index]

    def _rows_of_anchors(self, rows: Rows, anchors: Tensor) -> Tensor:
        """Return the rows of the matrix that belong to these positions of anchors."""
        index = as_rows(rows, len(self), self.device)
        row_of = torch.full((len(self),), -1, device=self.device)
        row_of[anchors] = torch.arange(len(anchors), device=self.device)
        if bool((row_of[index] < 0).any()):
            got = f"no row for item {int(index[row_of[index] < 0][0])}"
            raise InputError("matrix of label distances", got, "must be asked for anchors only")
        return row_of[index]

    def _select(self, index: Tensor) -> Self:
        part = super()._select(index)
        part._is_whole = False
        return part

    def _contents(self) -> str:
        shape = self._matrix.shape if isinstance(self._matrix, Tensor) else self._matrix.array.shape
        return f"a matrix {list(shape)}; unit: {self.unit}"


class _MatrixFile:
    """A square matrix in a `.npy` file, memory-mapped. Another process opens the file again.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            opened(path).close()
            self.array = np.lib.format.open_memmap(path, mode="r")
        except FileNotFoundError:
            raise InputError(str(path), "no such file", hint="give the .npy file of label distances") from None
        except InputError:
            raise
        except (ValueError, EOFError, OSError) as error:
            raise InputError(str(path), f"not a readable .npy matrix ({error})") from None
        shape, dtype = self.array.shape, self.array.dtype
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0] or dtype.kind not in "fiu":
            raise InputError(str(path), f"{dtype} {list(shape)}", "must be a square matrix of numbers")
        # The matrix may be larger than memory: label distances are checked when they are read.
        if np.abs(np.asarray(self.array.diagonal(), dtype=np.float64)).max() != 0:
            hint = "similarities? save 1 - similarity, with numpy.fill_diagonal(matrix, 0)"
            raise InputError(str(path), "the diagonal is not 0", "must be 0 from each item to itself", hint)

    def __reduce__(self) -> tuple[type[_MatrixFile], tuple[Path]]:
        return _MatrixFile, (self.path,)


def _checked(matrix: Tensor, anchors: Tensor | None, binary: bool) -> Tensor:
    """Check a matrix of label distances `[A, B]` in memory, and return it with 0 in place of rounding.

    The check waits for a GPU once.

    Raises:
        InputError: a number is negative or not finite, not 0 between an anchor and itself, or not 0 or 1 if `binary`.
    """
    if matrix.numel() == 0:
        return matrix
    own = matrix.diagonal() if anchors is None else matrix[torch.arange(len(matrix), device=matrix.device), anchors]
    fraction = matrix.frac().abs().max() if binary else matrix.new_zeros(())
    low, high, most_own, most_fraction = torch.stack((*torch.aminmax(matrix), own.abs().max(), fraction)).tolist()
    rounding = _ROUNDING * high
    if not (-rounding <= low and high < math.inf):
        checked(matrix)  # names the entry
    if binary and (most_fraction or high > 1):
        raise InputError("label distances", f"other numbers, up to {high:g}", 'must be 0 or 1 for kind="binary"')
    if most_own > rounding:
        row = int((own.abs() > rounding).nonzero()[0, 0])
        hint = "similarities? give 1 - similarity"
        if float(own[row]) < high:
            of_item = "item a" if anchors is None else "item anchors[a]"
            hint = f"row a is that of {of_item}; torch.cdist rounds vectors far from 0: subtract their mean"
        raise InputError("label distances", f"{own[row]:g} in row {row}, between an item and itself", "must be 0", hint)
    if low < 0 or most_own > 0:
        matrix = matrix.clamp(min=0)
        items = torch.arange(len(matrix), device=matrix.device)
        matrix[items, items if anchors is None else anchors] = 0
    return matrix


def _check_names(rows: list[Any], columns: list[Any]) -> None:
    """Refuse a table whose columns have the names of its rows in another order. Columns may be only numbered."""
    if rows != columns != [*range(len(columns))] and set(rows) == set(columns):
        n = next(n for n, (row, column) in enumerate(zip(rows, columns, strict=True)) if row != column)
        got = f"row {n} is {rows[n]!r}, column {n} is {columns[n]!r}"
        raise InputError("label distances", got, "must be in one order", "give table.loc[table.columns]")


def check_symmetry(name: str, matrix: np.ndarray[Any, Any], rows: int = _SAMPLE) -> None:
    """Refuse a square matrix that is not symmetric, in a sample of its rows and columns.

    Raises:
        InputError: the matrix is not symmetric.
    """
    sample = np.linspace(0, len(matrix) - 1, min(len(matrix), rows), dtype=np.int64)
    for part in np.array_split(sample, -(-len(sample) // _SAMPLE)):
        corner = matrix[np.ix_(part, sample)]  # a whole column of a file would read a page of every row
        different = ~np.isclose(corner, matrix[np.ix_(sample, part)].T, rtol=1e-5, atol=1e-6, equal_nan=True)
        if different.any():
            i, j = (int(names[k]) for names, k in zip((part, sample), np.argwhere(different)[0], strict=True))
            got, hint = f"entries [{i}, {j}] and [{j}, {i}] differ", "give (matrix + matrix.T) / 2 for their mean"
            raise InputError(name, got, "must be symmetric", hint)
