"""Label spaces of a matrix of label distances: a file on disk, or a tensor for one batch."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Rows
from contml.distances.cache import fingerprint
from contml.distances.search import MEMORY, checked
from contml.labels.base import LabelSpace

#: Number of rows of a precomputed matrix that are checked for symmetry when it is opened.
_SAMPLE = 64


class PrecomputedLabels(LabelSpace):
    """A matrix of label distances on disk, memory-mapped: only the blocks that are needed are read.

    Args:
        path: a `.npy` file of `[N, N]` numbers >= 0, symmetric, 0 on the diagonal.
        unit: what a label distance of 1 means, in words.
    """

    positions: Tensor

    def __init__(self, path: Path | str, unit: str = "label distance") -> None:
        self.path, self.unit = Path(path), unit
        try:
            self._matrix = np.lib.format.open_memmap(self.path, mode="r")
        except FileNotFoundError:
            hint = "give the .npy file of a matrix of label distances"
            raise InputError(str(path), "no such file", hint=hint) from None
        except (ValueError, EOFError, OSError) as error:
            raise InputError(str(path), f"not a readable .npy matrix ({error})") from None
        shape, dtype = self._matrix.shape, self._matrix.dtype
        if len(shape) != 2 or shape[0] != shape[1] or dtype.kind not in "fiu":
            raise InputError(str(path), f"{dtype} {list(shape)}", "must be a square matrix of numbers")
        super().__init__(positions=torch.arange(len(self._matrix)))
        self._check()

    def _check(self) -> None:
        # The matrix may be larger than memory: only the diagonal and some rows are checked here. `pairwise` and
        # `nearest` check every block that they read for NaN and negative numbers.
        n = len(self._matrix)
        if n and np.abs(np.asarray(self._matrix.diagonal(), dtype=np.float64)).max() != 0:
            raise InputError(str(self.path), "the diagonal is not 0", "must be 0 from each item to itself")
        sample = np.linspace(0, n - 1, min(n, _SAMPLE), dtype=np.int64)
        corner = self._matrix[np.ix_(sample, sample)]  # a whole column would read a page of every row
        different = ~np.isclose(corner, corner.T, rtol=1e-5, atol=1e-6, equal_nan=True)
        if different.any():
            i, j = (int(sample[k]) for k in np.argwhere(different)[0])
            raise InputError(str(self.path), f"entries [{i}, {j}] and [{j}, {i}] differ", "must be symmetric")

    def distances(self, x: Self, y: Self) -> Tensor:
        """Entries `[X, Y]` of the matrix, read from the file."""
        r, c = (labels.positions.cpu().numpy() for labels in (x, y))
        return torch.from_numpy(self._matrix[np.ix_(r, c)].astype(np.float32)).to(self.device)

    def fingerprint(self) -> str:
        """A hash of the whole file and of the rows in the space, for caches: reads the file once."""
        with self.path.open("rb") as file:
            content = hashlib.sha256()
            while chunk := file.read(1 << 22):
                content.update(chunk)
        return fingerprint(type(self), content.hexdigest(), self.positions)


class MatrixLabels(LabelSpace):
    """A matrix of label distances `[A, B]` of a batch: row a has the label distances of anchor a to all items.

    Losses convert a matrix to these labels. They have no row numbers and cannot be indexed.

    Args:
        matrix: `[A, B]` numbers >= 0.
        anchors: positions of the anchors among the B items `[A]`; None: all items, in order.
        kind: "binary" if all numbers are 0 or 1.
    """

    def __init__(self, matrix: Tensor, anchors: Tensor | None = None, kind: LabelKind = "graded") -> None:
        if matrix.ndim != 2 or len(matrix) != (matrix.shape[1] if anchors is None else len(anchors)):
            rows = "item, or give anchors" if anchors is None else f"of the {len(anchors)} anchors"
            raise InputError("label distances", str(list(matrix.shape)), f"must have a row for each {rows}")
        self.matrix = checked(matrix if matrix.dtype == torch.float64 else matrix.float())
        self.anchors, self.kind, self.rows = anchors, kind, None

    def __len__(self) -> int:
        return self.matrix.shape[1]

    @property
    def device(self) -> torch.device:
        """The device of the matrix."""
        return self.matrix.device

    def to(self, device: torch.device | str) -> Self:
        """The same matrix on another device."""
        moved = copy.copy(self)
        moved.matrix = self.matrix.to(device)
        moved.anchors = None if self.anchors is None else self.anchors.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """Not supported: the rows of a matrix are anchors, its columns are items."""
        hint = "give a label space, such as VectorLabels"
        raise InputError("matrix of label distances", "indexed", "cannot be indexed by items", hint)

    def distances(self, x: Self, y: Self) -> Tensor:  # noqa: ARG002
        """The whole matrix: it cannot be indexed."""
        return x.matrix

    def pairwise(
        self,
        rows: Rows | LabelSpace = None,
        cols: Rows | LabelSpace = None,
        *,
        memory: int = MEMORY,  # noqa: ARG002
    ) -> Tensor:
        """Label distances `[R, B]` of anchors given by their positions in the batch, in the dtype of the matrix.

        Raises:
            InputError: a row is not an anchor.
        """
        rows, cols = (None if isinstance(index, LabelSpace) else index for index in (rows, cols))
        block = self.matrix if rows is None and self.anchors is None else self.matrix[self._row_of(rows)]
        return block if cols is None else block[:, as_rows(cols, len(self), self.device)]

    def _row_of(self, positions: Any) -> Tensor:
        index = as_rows(positions, len(self), self.device)
        if self.anchors is None:
            return index
        row_of = torch.full((len(self),), -1, device=self.device)
        row_of[self.anchors] = torch.arange(len(self.anchors), device=self.device)
        if bool((row_of[index] < 0).any()):
            missing = int(index[row_of[index] < 0][0])
            raise InputError(
                "matrix of label distances", f"no row for item {missing}", "must be asked for anchors only"
            )
        return row_of[index]

    def _contents(self) -> str:
        return f"a matrix of label distances {list(self.matrix.shape)}"
