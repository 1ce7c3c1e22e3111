"""Vectors moved and scaled so that float32 does well on them: what searches with float32 products share."""

from __future__ import annotations

import torch
from torch import Tensor

#: Rows that are centred and scaled in float64 at a time.
_CHUNK = 4096


class Frame:
    """The gallery's mean as the origin, the largest coordinate as the unit, of queries `[Q, d]` and gallery `[G, d]`.

    An offset or a scale that all share would only make sums round, or overflow.
    """

    def __init__(self, queries: Tensor, gallery: Tensor) -> None:
        self.center = gallery.mean(0, dtype=torch.float64)
        edges = [edge.double() for x in (queries, gallery) if x.numel() for edge in x.aminmax(dim=0)]
        self.scale = max((float((edge - self.center).abs().max()) for edge in edges), default=0.0) or 1.0
        largest = max((float(edge.abs().max()) for edge in edges), default=0.0)
        #: What centring moves a scaled vector at most: it rounds by a share of what the numbers were before.
        self.shift = 4 * torch.finfo(torch.float64).eps * largest / self.scale * gallery.shape[1] ** 0.5

    def place(self, x: Tensor, spare: int = 0) -> Tensor:
        """Vectors `[N, d]` in the frame, in float32, with `spare` further columns of 0."""
        out = torch.zeros(len(x), x.shape[1] + spare, device=x.device)
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part, : x.shape[1]] = ((x[part].double() - self.center) / self.scale).float()
        return out


def squared_lengths(x: Tensor) -> Tensor:
    """Squared norms `[N]` in float64 of x `[N, d]`."""
    return torch.cat([part.double().square().sum(1) for part in x.split(_CHUNK)])
