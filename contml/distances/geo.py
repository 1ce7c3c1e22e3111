"""Distances of places on the earth."""

from __future__ import annotations

import torch
from torch import Tensor

#: Mean radius of the earth in km (IUGG: (2 a + b) / 3).
RADIUS = 6371.0088


def haversine(x: Tensor, y: Tensor) -> Tensor:
    """Great-circle distances in km `[N, M]`, in float32, of places x `[N, 2]` and y `[M, 2]`: latitude, longitude.

    In degrees; computed in float64:

        a = sin^2(dphi / 2) + cos(phi_1) cos(phi_2) sin^2(dlambda / 2),    d = 2 R atan2(sqrt(a), sqrt(1 - a))

    with 1 - a = cos^2(dphi / 2) cos^2(dlambda / 2) + sin^2((phi_1 + phi_2) / 2) sin^2(dlambda / 2), a sum of squares,
    so that neither metres nor antipodes cancel. A sphere is within 0.6 % of the earth's ellipsoid.
    """
    (phi, longitude), (phi_y, longitude_y) = x.double().T, y.double().T
    turn = (longitude[:, None] - longitude_y).abs()
    # Degrees are taken round the circle before they become radians: 180 and -180 are exactly one meridian.
    turn = torch.deg2rad(torch.minimum(turn, 360 - turn)) / 2
    east = turn.sin().square_()
    west = turn.cos().square_()
    cosines = torch.outer(torch.deg2rad(phi).cos(), torch.deg2rad(phi_y).cos())
    half = torch.deg2rad(phi[:, None] - phi_y) / 2
    a = half.sin().square_() + cosines * east
    rest = half.cos().square_() * west + (torch.deg2rad(phi[:, None] + phi_y) / 2).sin().square_() * east
    return (2 * RADIUS * torch.atan2(a.sqrt_(), rest.sqrt_())).float()
