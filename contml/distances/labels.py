"""Label distances of classes, poses, places, sets and sequences: functions on tensors.

Arithmetic is in float64, counts are exact, results are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from contml.distances.euclidean import euclidean, recompute

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Squared pose distances below this share of the sum of squares are recomputed: equal poses are at exactly 0.
_CANCELS = 1e-6
#: Mean radius of the earth in km (IUGG: (2 a + b) / 3).
_RADIUS = 6371.0088
#: Edit distances of fewer pairs than this are computed in one thread.
_PAIRS = 1 << 16


def class_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return 0 where the class ids x `[N]` and y `[M]` are equal, else 1, as `[N, M]` in float32."""
    return (x[:, None] != y[None, :]).float()


def pose_distance(
    x: Tensor, y: Tensor, visible_x: Tensor | None = None, visible_y: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """Compute distances `[N, M]` of poses x `[N, J, D]` and y `[M, J, D]`, in float32.

    The distance is the root of S times (sum of all weights) / (sum of the weights of common joints). Common joints are
    visible in both poses: `visible_x` is `[N, J]` and `visible_y` is `[M, J]`; by default all joints are visible. S is
    the weighted sum of the squared Euclidean distances of the common joints. `weight` `[J]` is above 0, by default 1.
    The distance of a pair without a common joint is NaN.
    """
    visible_x = torch.ones_like(x[..., 0], dtype=torch.bool) if visible_x is None else visible_x
    visible_y = torch.ones_like(y[..., 0], dtype=torch.bool) if visible_y is None else visible_y
    weights = (torch.ones(x.shape[1], device=x.device) if weight is None else weight).double()
    x, y = (poses.double() * weights.sqrt()[:, None] for poses in (x, y))
    if bool(visible_x.all()) and bool(visible_y.all()):
        return euclidean(x.flatten(1), y.flatten(1)).float()
    vx, vy = visible_x.double(), visible_y.double()  # [N,J], [M,J]
    px, py = (torch.where(seen[:, :, None], poses, 0) for poses, seen in ((x, visible_x), (y, visible_y)))
    size = torch.cat((px.square().sum(2), vx), 1) @ torch.cat((vy, py.square().sum(2)), 1).T  # [N,M]
    d = torch.addmm(size, px.flatten(1), py.flatten(1).T, alpha=-2)
    i, j = (d < _CANCELS * size).nonzero(as_tuple=True)
    recompute(d, i, j, lambda a, b: ((px[a] - py[b]).square().sum(2) * (vx[a] * vy[b])).sum(1))
    d *= weights.sum() / ((vx * weights) @ vy.T)
    return d.sqrt().float()


def keypoint_dissimilarity(x: Tensor, y: Tensor, visible_x: Tensor, visible_y: Tensor, weights: Tensor) -> Tensor:
    """Compute 1 - (object keypoint similarity) `[N, M]` of poses x `[N, J, D]` and y `[M, J, D]`, in float32.

    The similarity is the weighted mean of exp(-d^2 / 2) over common joints, where d is the distance of a joint. The
    other arguments are as in `pose_distance`. The computation is in float64.
    """
    total = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
    for joint, weight in enumerate(weights.double()):
        squares = (x[:, None, joint].double() - y[:, joint].double()).square().sum(2)  # [N,M]
        total -= weight * (visible_x[:, None, joint] & visible_y[:, joint]) * torch.expm1(squares / -2)
    return (total / ((visible_x * weights.double()) @ visible_y.double().T)).float()


def haversine(x: Tensor, y: Tensor) -> Tensor:
    """Compute great-circle distances in km `[N, M]`, in float32, of places x `[N, 2]` and y `[M, 2]`.

    Places are latitude and longitude in degrees. The computation is in float64.
    """
    return great_circle(x, y).float()


def great_circle(x: Tensor, y: Tensor) -> Tensor:
    """Compute great-circle distances in km `[N, M]`, in float64, of places x `[N, 2]` and y `[M, 2]` in degrees.

        a = sin^2(dphi / 2) + cos(phi_1) cos(phi_2) sin^2(dlambda / 2),    d = 2 R atan2(sqrt(a), sqrt(1 - a))

    with 1 - a = cos^2(dphi / 2) cos^2(dlambda / 2) + sin^2((phi_1 + phi_2) / 2) sin^2(dlambda / 2), a sum of squares,
    so that neither near places nor antipodes cancel. A sphere is within 0.6 % of the earth's ellipsoid.
    """
    (phi, longitude), (phi_y, longitude_y) = x.double().T, y.double().T
    turn = (longitude[:, None] - longitude_y).abs()
    # Wrapped around the circle in degrees, before radians: 180 and -180 are exactly the same meridian.
    turn = torch.deg2rad(torch.minimum(turn, 360 - turn)) / 2
    east = turn.sin().square_()
    west = turn.cos().square_()
    cosines = torch.outer(torch.deg2rad(phi).cos(), torch.deg2rad(phi_y).cos())
    half = torch.deg2rad(phi[:, None] - phi_y) / 2
    a = half.sin().square_() + cosines * east
    complement = half.cos().square_() * west + (torch.deg2rad(phi[:, None] + phi_y) / 2).sin().square_() * east
    return 2 * _RADIUS * torch.atan2(a.sqrt_(), complement.sqrt_())


def circular_difference(x: Tensor, y: Tensor, period: float) -> Tensor:
    """Compute differences `[N, M]` in float64, 0 to half a period, of numbers x `[N]` and y `[M]` along a circle."""
    turn = (x.double()[:, None] - y.double()).abs() % period
    return torch.minimum(turn, period - turn)


def jaccard_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute Jaccard distances `[N, M]` in float32 of sets as 0 / 1 rows, x `[N, L]` and y `[M, L]`.

    The distance is 1 - |A & B| / |A | B|, in [0, 1]. Two empty sets have distance 0. Sets have at most 2^24 members.
    """
    return _jaccard((x.float() @ y.float().T).double(), x.sum(1), y.sum(1))


def hamming_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute the share of the L entries, 0 / 1, in which x `[N, L]` and y `[M, L]` differ: `[N, M]` in float32.

    The share is in [0, 1].
    """
    common = (x.float() @ y.float().T).double()
    return ((x.sum(1)[:, None] + y.sum(1) - 2 * common) / x.shape[1]).float()


def tag_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute Jaccard distances `[N, M]` in float32 of sets, given as rows of ids >= 0, padded with -1.

    x is `[N, K]` and y `[M, L]`. Distances are in [0, 1]. Two empty sets have distance 0. An id appears at most once in
    a set. The cost grows with the number of tags per item, not with the number of different tags. The computation runs
    on the CPU.
    """
    a, b = x.cpu(), y.cpu()
    tags = 1 + max(int(ids.max()) if ids.numel() else 0 for ids in (a, b))
    common = torch.from_numpy((_sparse(a, tags) @ _sparse(b, tags).T).toarray()).double()
    return _jaccard(common, (a >= 0).sum(1), (b >= 0).sum(1)).to(x.device)


def _jaccard(common: Tensor, size_x: Tensor, size_y: Tensor) -> Tensor:
    union = size_x[:, None] + size_y - common
    # Two empty sets, with common = union = 0, are equal.
    return (1 - (common + (union == 0)) / union.clamp(min=1)).float()


def _sparse(ids: Tensor, tags: int) -> csr_array:
    from scipy.sparse import csr_array

    is_tag = ids >= 0
    starts = torch.zeros(len(ids) + 1, dtype=torch.int64)
    torch.cumsum(is_tag.sum(1), 0, out=starts[1:])
    ones = torch.ones(int(starts[-1]), dtype=torch.float32)
    return csr_array((ones.numpy(), ids[is_tag].numpy(), starts.numpy()), shape=(len(ids), max(tags, 1)))


def edit_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute normalised edit distances `[N, M]` in float32 of sequences of ids >= 0, each padded with -1 at its end.

    The distance is Levenshtein's (insertions, deletions and substitutions of a token cost 1) divided by the longer
    length, in [0, 1]. Two empty sequences have distance 0. The distance is not a metric: after the division the
    triangle inequality does not hold.

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
