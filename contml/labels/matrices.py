"""Label spaces of label distances that are given as a matrix: a file on disk, or a tensor for one batch."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Rows
from contml.distances.cache import fingerprint
from contml.distances.search import MEMORY, checked
from contml.labels.base import LabelSpace

#: Rows of a precomputed matrix looked at when it is opened.
_SAMPLE = 64


class PrecomputedLabels(LabelSpace):
    """A matrix of label distances on disk, memory-mapped: the pages of the blocks that are asked for are read.

    Args:
        path: a `.npy` file of `[N, N]` numbers >= 0, symmetric, 0 on the diagonal.
        unit: what a label distance of 1 is, in words.
    """

    positions: Tensor

    def __init__(self, path: Path | str, unit: str = "label distance") -> None:
        self.path, self.unit = Path(path), unit
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
        super().__init__(positions=torch.arange(len(self._matrix)))
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

    def distances(self, x: Self, y: Self) -> Tensor:
        """Entries `[X, Y]` of the matrix, read from the file."""
        r, c = (part.positions.cpu().numpy() for part in (x, y))
        return torch.from_numpy(self._matrix[np.ix_(r, c)].astype(np.float32)).to(self.device)

    def fingerprint(self) -> str:
        """A hash of the whole file and of the rows in the space, for caches: reads the file once."""
        with self.path.open("rb") as file:
            content = hashlib.sha256()
            while part := file.read(1 << 22):
                content.update(part)
        return fingerprint(type(self), content.hexdigest(), self.positions)


class MatrixLabels(LabelSpace):
    """A matrix of label distances `[A, B]` of a batch: row a has the label distances of anchor a to all items.

    What a loss makes of a matrix: it has no row numbers and is not indexed.

    Args:
        matrix: `[A, B]` numbers >= 0.
        anchors: positions of the anchors among the B items `[A]`; None: all items, in order.
        kind: "binary" where all numbers are 0 or 1.
    """

    def __init__(self, matrix: Tensor, anchors: Tensor | None = None, kind: LabelKind = "graded") -> None:
        if matrix.ndim != 2 or len(matrix) != (matrix.shape[1] if anchors is None else len(anchors)):
            wanted = "items, or anchors" if anchors is None else f"{len(anchors)} anchors"
            raise InputError(f"label distances are {list(matrix.shape)}; give a row for each of the {wanted}")
        self.matrix = checked(matrix if matrix.dtype == torch.float64 else matrix.float())
        self.anchors, self.kind, self.rows = anchors, kind, None

    def __len__(self) -> int:
        return self.matrix.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the matrix is."""
        return self.matrix.device

    def to(self, device: torch.device | str) -> Self:
        """The same matrix on another device."""
        moved = copy.copy(self)
        moved.matrix = self.matrix.to(device)
        moved.anchors = None if self.anchors is None else self.anchors.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """Refused: the rows of a matrix are anchors, and its columns items."""
        raise InputError("a matrix of label distances cannot be indexed; give a label space, such as VectorLabels")

    def distances(self, x: Self, y: Self) -> Tensor:  # noqa: ARG002
        """The whole matrix: it has no parts."""
        return x.matrix

    def pairwise(self, rows: Rows = None, cols: Rows = None, *, memory: int = MEMORY) -> Tensor:  # noqa: ARG002
        """Label distances `[R, B]` of these anchors, given by their positions in the batch, in the matrix's dtype.

        Raises:
            InputError: a row is not an anchor.
        """
        block = self.matrix if rows is None and self.anchors is None else self.matrix[self._row_of(rows)]
        return block if cols is None else block[:, as_rows(cols, len(self), self.device)]

    def _row_of(self, positions: Rows) -> Tensor:
        index = as_rows(positions, len(self), self.device)
        if self.anchors is None:
            return index
        row_of = torch.full((len(self),), -1, device=self.device)
        row_of[self.anchors] = torch.arange(len(self.anchors), device=self.device)
        if bool((row_of[index] < 0).any()):
            raise InputError("the matrix of label distances has rows for the anchors of the batch alone")
        return row_of[index]

    def _contents(self) -> str:
        return f"a matrix of label distances {list(self.matrix.shape)}"
