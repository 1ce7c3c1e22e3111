"""Step 2. Word costs, the distances between word vectors: all of a vocabulary once, or blocks when they are needed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._compiled import Floats, Ints
from contml.distances.euclidean import recompute

#: Vocabularies of at most this many words keep all distances: at most 900 MB.
WHOLE = 15_000
#: Squared distances below this share of |x|^2 + |y|^2 are recomputed by subtraction: equal vectors have distance 0.
_CANCELS = 1e-6
_BLOCK = 1024


class WordCosts:
    """Euclidean distances of word vectors, computed in float64 and kept in float32.

    Args:
        vectors: `[V, d]`.
        names: the words, for error messages.
    """

    def __init__(self, vectors: Floats, names: Sequence[Hashable] | None = None) -> None:
        self.names = range(len(vectors)) if names is None else names
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float64).reshape(len(vectors), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares = np.einsum("vd,vd->v", self.vectors, self.vectors)
        # Below 1e37, since four times that still fits in float32.
        invalid_words = np.flatnonzero(~(self.squares < 1e37))
        if len(invalid_words):
            name = self.names[int(invalid_words[0])]
            raise InputError(f"the vector of the word {name!r}", "not finite, or too long", hint="give finite vectors")
        self._whole = self._all_distances() if len(self.vectors) <= WHOLE else None
        self._by_device: dict[torch.device, Tensor] = {}

    @property
    def whole(self) -> bool:
        """Whether all distances are kept, or only the vectors."""
        return self._whole is not None

    def on(self, device: torch.device) -> Tensor:
        """All distances `[V, V]` in float32 on a device, if they are kept, else the vectors `[V, d]` in float64."""
        if device not in self._by_device:
            self._by_device[device] = torch.from_numpy(self.vectors if self._whole is None else self._whole).to(device)
        return self._by_device[device]

    def block(self, rows: Ints, cols: Ints) -> Floats:
        """Distances `[R, C]` in float32 of these words, a contiguous array."""
        if self._whole is None:
            return self._compute_block(rows, cols)
        from contml.transport.bounds import gather_costs  # here: it imports numba

        out = np.empty((len(rows), len(cols)), np.float32)
        gather_costs(self._whole, rows, cols, out)
        return out

    def _all_distances(self) -> Floats:
        v = len(self.vectors)
        out = np.empty((v, v), np.float32)
        for start in range(0, v, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, v))
            block = self._compute_block(rows, np.arange(start, v))
            square = np.triu(block[:, : len(rows)], 1)  # a product need not be symmetric to the last bit
            block[:, : len(rows)] = square + square.T
            out[rows, start:] = block
            out[start:, rows] = block.T
        return out

    def _compute_block(self, rows: Ints, cols: Ints) -> Floats:
        x, y = self.vectors[rows], self.vectors[cols]
        size = self.squares[rows, None] + self.squares[cols]
        d = x @ y.T
        d *= -2
        d += size
        i, j = np.nonzero(d <= _CANCELS * size)
        recompute(d, i, j, lambda a, b: np.square(x[a] - y[b]).sum(1))
        return np.sqrt(d, out=d).astype(np.float32)

    def __getstate__(self) -> dict[str, Any]:
        # The distances of a large vocabulary are quicker to compute again than to send to another process.
        return {**self.__dict__, "_whole": None, "_by_device": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._whole = self._all_distances() if len(self.vectors) <= WHOLE else None
