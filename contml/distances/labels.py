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
#: Tags of one matrix product on a GPU: bounds the `[items, tags]` matrices of zeros and ones.
_TAGS = 1 << 12
#: Edit distances of fewer pairs than this are computed in one thread.
_PAIRS = 1 << 16


def class_distance(x: Tensor, y: Tensor) -> Tensor:
    """0 where the class ids x `[N]` and y `[M]` are equal, else 1, as `[N, M]` in float32."""
    return (x[:, None] != y[None, :]).float()


def pose_distance(x: Tensor, y: Tensor, visible_x: Tensor | None = None, visible_y: Tensor | None = None) -> Tensor:
    """Distances `[N, M]` of poses x `[N, J, D]` and y `[M, J, D]`, in float32.

    The root of: the sum of squared Euclidean distances over the joints visible in both (`visible_x` `[N, J]`,
    `visible_y` `[M, J]`, default all), times J / their number. NaN for pairs without a common joint.
    """
    if visible_x is None:
        visible_x = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if visible_y is None:
        visible_y = torch.ones(y.shape[:2], dtype=torch.bool, device=y.device)
    if bool(visible_x.all()) and bool(visible_y.all()):
        return euclidean(x.flatten(1).double(), y.flatten(1).double()).float()
    joints = x.shape[1]
    vx, vy = visible_x.double(), visible_y.double()  # [N,J], [M,J]
    px = torch.where(visible_x[:, :, None], x, 0).double()
    py = torch.where(visible_y[:, :, None], y, 0).double()
    size = torch.cat((px.square().sum(2), vx), 1) @ torch.cat((vy, py.square().sum(2)), 1).T  # [N,M]
    d = torch.addmm(size, px.flatten(1), py.flatten(1).T, alpha=-2)
    i, j = (d < _CANCELS * size).nonzero(as_tuple=True)
    recompute(d, i, j, lambda a, b: ((px[a] - py[b]).square().sum(2) * (vx[a] * vy[b])).sum(1))
    d *= joints / (vx @ vy.T)
    return d.sqrt().float()


def haversine(x: Tensor, y: Tensor) -> Tensor:
    """Great-circle distances in km `[N, M]`, in float32, of places x `[N, 2]` and y `[M, 2]`, computed in float64.

    Places are latitude and longitude in degrees.
    """
    return great_circle(x, y).float()


def great_circle(x: Tensor, y: Tensor) -> Tensor:
    """Great-circle distances in km `[N, M]`, in float64, of places x `[N, 2]` and y `[M, 2]` in degrees.

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


def heading_difference(x: Tensor, y: Tensor) -> Tensor:
    """Angles `[N, M]` in float64, 0 to 180 degrees, between headings x `[N]` and y `[M]` in degrees."""
    turn = (x.double()[:, None] - y.double()).abs() % 360
    return torch.minimum(turn, 360 - turn)


def jaccard_distance(x: Tensor, y: Tensor) -> Tensor:
    """Jaccard distances `[N, M]` in float32 of sets as 0 / 1 rows, x `[N, L]` and y `[M, L]`: 1 - |A & B| / |A | B|.

    In [0, 1]; two empty sets are at 0. Sets have at most 2^24 members.
    """
    return _jaccard((x.float() @ y.float().T).double(), x.sum(1), y.sum(1))


def hamming_distance(x: Tensor, y: Tensor) -> Tensor:
    """The share of the L entries, 0 / 1, in which x `[N, L]` and y `[M, L]` differ: `[N, M]` in float32, in [0, 1]."""
    common = (x.float() @ y.float().T).double()
    return ((x.sum(1)[:, None] + y.sum(1) - 2 * common) / x.shape[1]).float()


def tag_distance(x: Tensor, y: Tensor) -> Tensor:
    """Jaccard distances `[N, M]` in float32 of sets: rows of ids >= 0, padded with -1, x `[N, K]` and y `[M, L]`.

    In [0, 1]; two empty sets are at 0. An id appears at most once in a set. The cost grows with the number of tags per
    item, not with the number of different tags.
    """
    common = _common_sparse(x, y) if x.device.type == "cpu" else _common_by_product(x, y)
    return _jaccard(common, (x >= 0).sum(1), (y >= 0).sum(1))


def _jaccard(common: Tensor, size_x: Tensor, size_y: Tensor) -> Tensor:
    union = size_x[:, None] + size_y - common
    # Two empty sets, with common = union = 0, are equal.
    return (1 - (common + (union == 0)) / union.clamp(min=1)).float()


def _common_sparse(x: Tensor, y: Tensor) -> Tensor:
    tags = 1 + max(int(ids.max()) if ids.numel() else 0 for ids in (x, y))
    a, b = (_sparse(ids, tags) for ids in (x, y))
    return torch.from_numpy((a @ b.T).toarray()).double()


def _sparse(ids: Tensor, tags: int) -> csr_array:
    from scipy.sparse import csr_array

    is_tag = ids >= 0
    starts = torch.zeros(len(ids) + 1, dtype=torch.int64)
    torch.cumsum(is_tag.sum(1), 0, out=starts[1:])
    ones = torch.ones(int(starts[-1]), dtype=torch.float32)
    return csr_array((ones.numpy(), ids[is_tag].numpy(), starts.numpy()), shape=(len(ids), max(tags, 1)))


def _common_by_product(x: Tensor, y: Tensor) -> Tensor:
    """The same by products of zeros and ones, for the tags that occur, `_TAGS` at a time."""
    present, ids = torch.unique(torch.cat((x.flatten(), y.flatten())), return_inverse=True)
    ids = torch.where(present[ids] >= 0, ids, -1)
    a, b = ids[: x.numel()].view(x.shape), ids[x.numel() :].view(y.shape)
    common = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
    for start in range(0, len(present), _TAGS):
        common += (_ones(a, start) @ _ones(b, start).T).double()
    return common


def _ones(ids: Tensor, start: int) -> Tensor:
    """`[N, tags]`: 1 where an item has the tag start, start + 1, ..."""
    in_range = (ids >= start) & (ids < start + _TAGS)
    out = torch.zeros(len(ids), _TAGS + 1, device=ids.device)  # the last column takes all other tags
    out.scatter_(1, torch.where(in_range, ids - start, _TAGS), 1.0)
    return out[:, :_TAGS]


def edit_distance(x: Tensor, y: Tensor) -> Tensor:
    """Normalised edit distances `[N, M]` in float32 of sequences of ids >= 0, each padded with -1 at its end.

    Levenshtein's distance (insertions, deletions and substitutions of a token cost 1) divided by the longer length, in
    [0, 1]; two empty sequences are at 0. Not a metric: after the division the triangle inequality does not hold.

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
