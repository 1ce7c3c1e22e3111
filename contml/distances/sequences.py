"""Edit distances of sequences of tokens, through RapidFuzz."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Pairs from which on threads pay.
_PAIRS = 1 << 16


def edit_distance(x: Tensor, y: Tensor) -> Tensor:
    """Normalised edit distances `[N, M]` in float32 of sequences of ids >= 0, each filled up with -1 at its end.

    Levenshtein's distance (insertions, deletions, substitutions of one token, each 1) over the longer one's length, in
    [0, 1]; two empty sequences are at 0. No metric: normalised, it breaks the triangle inequality.

    Args:
        x: `[N, K]`, ids below 1,114,112: RapidFuzz reads them as characters.
        y: `[M, L]`, likewise.
    """
    long_x, long_y = ((ids >= 0).sum(1).cpu() for ids in (x, y))
    edits = np.zeros((len(x), len(y)), dtype=np.int32)
    if edits.size:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        workers = torch.get_num_threads() if edits.size >= _PAIRS else 1
        a, b = _strings(x, long_x), _strings(y, long_y)
        edits = cdist(a, b, scorer=Levenshtein.distance, dtype=np.int32, workers=workers)
    longest = torch.maximum(long_x[:, None], long_y).clamp_(min=1)
    return (torch.from_numpy(edits).double() / longest).float().to(x.device)


def _strings(ids: Tensor, lengths: Tensor) -> list[str]:
    words = ids.cpu().numpy().astype("<u4")
    return [
        row[:length].tobytes().decode("utf-32-le", "surrogatepass")
        for row, length in zip(words, lengths.tolist(), strict=True)
    ]
