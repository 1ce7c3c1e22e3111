"""Distances of label maps, 1 - mIoU, from maps that are packed to one bit a pixel and class.

With A_c the pixels of class c in map x, B_c those in map y, V and W the pixels that x and y do not ignore:

    IoU_c = |A_c & B_c| / (|A_c & W| + |V & B_c| - |A_c & B_c|),    D(x, y) = 1 - mean_c IoU_c

over the classes with |A_c & W| + |V & B_c| > 0. A_c lies in V and B_c in W, so the first count needs no mask. On the
CPU the counts are popcounts; on a GPU they are matrix products of zeros and ones, exact in float32 up to 2^24 pixels
(in TF32 too: sums are float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._compiled import in_threads

#: Label maps: `[N, H, W]` of whole numbers, or N maps `[H, W]`.
Maps: TypeAlias = "Tensor | np.ndarray[Any, Any] | Sequence[Tensor | np.ndarray[Any, Any]]"
Array: TypeAlias = "np.ndarray[Any, Any]"

#: Maps packed at a time.
_PACKED = 256
#: Bytes of columns that a CPU core compares with all rows before it goes on: they stay in its cache.
_CACHED = 1 << 18
#: Words of 64 pixels that a thread must have to compare: below that it takes longer to start than to do the work.
_ALONE = 1 << 23
#: Rows and columns of a matrix product on a GPU: bounds the unpacked pixels.
_PRODUCT = 1 << 10
#: Pixels of a map: float32 counts exactly up to here.
_PIXELS = 1 << 24


class PackedMaps(NamedTuple):
    """Label maps of P pixels as one bit a pixel and class; a pixel that is ignored has no bit."""

    masks: Tensor  # [N,C,words] int64: words of 64 pixels move eight times as fast as bytes
    areas: Tensor  # [N,C] int32, pixels of each class


def segmentation_distance(x: Maps, y: Maps, classes: int, ignore: int | None = None) -> Tensor:
    """Distances `[N, M]` of label maps x `[N, H, W]` and y `[M, H, W]` in float32: 1 - mean IoU, in [0, 1].

    The intersection over union of a class counts the pixels that neither map ignores; the mean is over the classes that
    occur in either map there. Computed in float64 from exact counts.

    Args:
        x: whole numbers 0 to classes - 1, or `ignore`.
        y: the same, of the same height and width.
        classes: how many classes there are.
        ignore: the value of pixels that do not count; it may be one of the classes' numbers.

    Raises:
        InputError: maps of different sizes, a value that is no class, or two maps without a common pixel.
    """
    for one, maps in (("x", x), ("y", y)):
        if len(maps) == 0:
            raise InputError(f"{one} holds no label maps; give [items, height, width]")
    if tuple(x[0].shape) != tuple(y[0].shape):
        raise InputError(f"maps of x are {list(x[0].shape)}, of y {list(y[0].shape)}; give maps of one size")
    device = x.device if isinstance(x, Tensor) else torch.device("cpu")
    a = PackedMaps(*(t.to(device) for t in pack_maps(x, classes, ignore)))
    b = a if y is x else PackedMaps(*(t.to(device) for t in pack_maps(y, classes, ignore)))
    return packed_segmentation_distance(a, b)


def pack_maps(maps: Maps, classes: int, ignore: int | None = None, side: int | None = None) -> PackedMaps:
    """Check label maps, resize them to `side` x `side` pixels by nearest neighbour (None: as they are), and pack them.

    Raises:
        InputError: no maps, maps of different sizes, or a value that is no class: the item and the value are named.
    """
    if classes < 1:
        raise InputError(f"classes is {classes}; it must be at least 1")
    if side is not None and side < 1:
        raise InputError(f"side is {side}; it must be at least 1 pixel")
    if len(maps) == 0:
        raise InputError("there are no label maps; give [items, height, width]")
    size = tuple(maps[0].shape)
    height, width = (size if side is None else (side, side)) if len(size) == 2 else (0, 0)
    if not 0 < height * width <= _PIXELS:
        raise InputError(
            f"label map 0 is {list(size)}, packed at {height} x {width}; give [height, width] of 1 to {_PIXELS} pixels"
        )
    parts = []
    for start in range(0, len(maps), _PACKED):
        part = _checked(maps[start : start + _PACKED], start, size, classes, ignore)
        if (height, width) != size:
            part = part[:, _nearest(size[0], height)[:, None], _nearest(size[1], width)]
        parts.append(_pack(part.reshape(len(part), -1), classes, ignore))
    masks, areas = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    return PackedMaps(masks, areas)


def packed_segmentation_distance(x: PackedMaps, y: PackedMaps, names: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """`segmentation_distance` `[N, M]` of packed maps. Errors name items by `names`, `[N]` and `[M]`, or by position.

    Raises:
        InputError: two maps have no common pixel.
    """
    if x.areas.device.type == "cpu":
        out = _by_popcount(x, y)
    else:
        out = torch.empty(len(x.areas), len(y.areas), device=x.areas.device)
        for i in range(0, len(x.areas), _PRODUCT):
            for j in range(0, len(y.areas), _PRODUCT):
                r, c = slice(i, i + _PRODUCT), slice(j, j + _PRODUCT)
                out[r, c] = _by_product(PackedMaps(x.masks[r], x.areas[r]), PackedMaps(y.masks[c], y.areas[c]))
    if bool((bad := out.isnan()).any()):
        i, j = bad.nonzero()[0].tolist()
        i, j = (i, j) if names is None else (int(names[0][i]), int(names[1][j]))
        raise InputError(
            f"label maps {i} and {j} have no pixel that neither ignores; leave maps out that are mostly ignored"
        )
    return out


def _by_product(x: PackedMaps, y: PackedMaps) -> Tensor:
    """`[N, M]` in float32 by matrix products; NaN where no pixel is common."""
    total = torch.zeros(len(x.areas), len(y.areas), dtype=torch.float64, device=x.areas.device)
    count = torch.zeros_like(total)
    v, w = (_unpack(_union(side.masks)) for side in (x, y))
    for a, b in zip(x.masks.unbind(1), y.masks.unbind(1), strict=True):
        a, b = _unpack(a), _unpack(b)  # [N,P], [M,P]
        common = (a @ b.T).double()
        union = (a @ w.T).double() + (v @ b.T) - common
        total += common / union.clamp(min=1)
        count += union > 0
    return (1 - total / count).float()


def _union(masks: Tensor) -> Tensor:
    """`[N, words]`: the pixels of any class, which are all that are not ignored."""
    out = masks[:, 0].clone()
    for one in masks.unbind(1)[1:]:
        out |= one
    return out


def _unpack(masks: Tensor) -> Tensor:
    bits = torch.arange(8, dtype=torch.uint8, device=masks.device)
    return ((masks.contiguous().view(torch.uint8)[:, :, None] >> bits) & 1).flatten(1).float()


def _by_popcount(x: PackedMaps, y: PackedMaps) -> Tensor:
    """`[N, M]` in float32 in torch's number of threads; NaN where no pixel is common."""
    from contml.distances import _segmentation_counts as counts  # here: it imports numba

    same = y is x
    masks, areas = x.masks.contiguous().numpy(), x.areas.contiguous().numpy()
    v = counts.labelled(masks, areas)
    others, other_areas = (masks, areas) if same else (y.masks.contiguous().numpy(), y.areas.contiguous().numpy())
    w = v if same else counts.labelled(others, other_areas)
    out = np.empty((len(v), len(w)), dtype=np.float32)
    if out.size:
        whole, width = counts.all_equal(v, w), max(1, _CACHED // w[0].nbytes)
        in_threads(
            lambda start, step: counts.distances(
                masks, areas, v, others, other_areas, w, whole, same, width, start, step, out
            ),
            out.size * masks[0].size // _ALONE,
        )
    return torch.from_numpy(out)


def _nearest(length: int, side: int) -> Array:
    """`[side]`: the pixel of `length` whose centre is nearest to that of each new one."""
    return ((2 * np.arange(side) + 1) * length) // (2 * side)


def _checked(maps: Maps, start: int, size: tuple[int, ...], classes: int, ignore: int | None) -> Array:
    part = [np.asarray(m.cpu() if isinstance(m, Tensor) else m) for m in maps]
    for item, one in enumerate(part, start):
        if one.shape != size:
            raise InputError(
                f"label map {item} is {list(one.shape)}, but label map 0 is {list(size)}; give maps of one size"
            )
        if one.dtype.kind not in "iu":
            raise InputError(f"label map {item} is {one.dtype}; label maps are whole numbers")
    stacked = np.stack(part)
    bad = (stacked < 0) | (stacked >= classes)
    if ignore is not None:
        bad &= stacked != ignore
    if bad.any():
        item, row, column = np.argwhere(bad)[0]
        also = "" if ignore is None else f", and {ignore} is ignored"
        raise InputError(
            f"label map {start + item} has the value {stacked[item, row, column]} at row {row}, column {column}; "
            f"classes are 0 to {classes - 1}{also}"
        )
    return stacked


def _pack(maps: Array, classes: int, ignore: int | None) -> tuple[Array, ...]:
    """Masks `[N, C, words]` and areas `[N, C]` of maps `[N, P]`."""
    masks = np.zeros((len(maps), classes, 8 * -(-maps.shape[1] // 64)), dtype=np.uint8)
    areas = np.zeros((len(maps), classes), dtype=np.int32)
    for c in range(classes):
        if c != ignore:
            pixels = maps == c
            bits = np.packbits(pixels, axis=1, bitorder="little")
            masks[:, c, : bits.shape[1]] = bits
            areas[:, c] = pixels.sum(1)
    return masks.view(np.int64), areas
