"""Label distances of classes and poses: pure functions on tensors, computed in float64 where there is arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

from contml.distances.euclidean import squared_euclidean

#: As in euclidean.py: below this share of the summed squares an entry is computed again by subtraction, so that equal
#: poses are at exactly 0 and the rest is right to float32 rounding.
_CANCELS = 1e-6
#: Pairs subtracted at a time: bounds the `[pairs, joints, coordinates]` differences.
_PAIRS = 1 << 16


def class_distance(x: Tensor, y: Tensor) -> Tensor:
    """0 where the class ids x `[N]` and y `[M]` are equal, else 1, as `[N, M]` in float32."""
    return (x[:, None] != y[None, :]).float()


def pose_distance(
    x: Tensor, y: Tensor, visible_x: Tensor | None = None, visible_y: Tensor | None = None, *, squared: bool = True
) -> Tensor:
    """Distances `[N, M]` of poses x `[N, J, D]` and y `[M, J, D]`, in float32.

    The squared Euclidean distance summed over the joints visible in both (`visible_x` `[N, J]`, `visible_y` `[M, J]`,
    default all), times J / their number; `squared=False` takes its square root. A pair with no common joint is NaN.
    """
    if visible_x is None:
        visible_x = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if visible_y is None:
        visible_y = torch.ones(y.shape[:2], dtype=torch.bool, device=y.device)
    if bool(visible_x.all()) and bool(visible_y.all()):
        d = squared_euclidean(x.flatten(1).double(), y.flatten(1).double())
        return (d if squared else d.sqrt()).float()
    joints = x.shape[1]
    vx, vy = visible_x.double(), visible_y.double()  # [N,J], [M,J]
    px = torch.where(visible_x[:, :, None], x, 0).double()
    py = torch.where(visible_y[:, :, None], y, 0).double()
    size = torch.cat((px.square().sum(2), vx), 1) @ torch.cat((vy, py.square().sum(2)), 1).T  # [N,M]
    d = torch.addmm(size, px.flatten(1), py.flatten(1).T, alpha=-2)
    i, j = (d < _CANCELS * size).nonzero(as_tuple=True)
    for a, b in zip(torch.split(i, _PAIRS), torch.split(j, _PAIRS), strict=True):
        common = vx[a] * vy[b]  # [P,J]
        d[a, b] = ((px[a] - py[b]).square().sum(2) * common).sum(1)
    d *= joints / (vx @ vy.T)
    return (d if squared else d.sqrt()).float()
