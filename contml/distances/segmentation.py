"""Distances of label maps, 1 - mIoU, computed from maps that are packed to one bit per pixel and class.

A_c are the pixels of class c in map x, B_c in map y; V and W are the pixels that x and y do not ignore:

    IoU_c = |A_c & B_c| / (|A_c & W| + |V & B_c| - |A_c & B_c|),    D(x, y) = 1 - mean_c IoU_c

The mean is over the classes with |A_c & W| + |V & B_c| > 0. A_c is a part of V, and B_c of W, so the count |A_c & B_c|
needs no mask. On the CPU the counts are popcounts. On a GPU they are matrix products of zeros and ones, exact in
float32 up to 2^24 pixels (in TF32 too, which sums in float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_items, as_numbers
from contml._support.errors import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.distances._compiled import in_threads

#: Label maps: `[N, H, W]` of whole numbers, or N maps `[H, W]`.
Maps: TypeAlias = "Tensor | np.ndarray[Any, Any] | Sequence[Tensor | np.ndarray[Any, Any]]"
Array: TypeAlias = "np.ndarray[Any, Any]"

#: What label maps must be.
_MAPS = "label maps [items, height, width]"

#: Maps packed at a time.
_PACKED = 256
#: Bytes of the columns that a CPU core compares with all rows at a time: they fit in its cache.
_CACHED = 1 << 18
#: The least number of words of 64 pixels per thread. With fewer words, starting a thread takes longer than the work.
_WORDS_PER_THREAD = 1 << 23
#: Rows and columns of a matrix product on a GPU. They limit the memory of the unpacked pixels.
_PRODUCT = 1 << 10
#: The largest number of pixels of a map: float32 counts exactly up to this number.
_PIXELS = 1 << 24


class PackedMaps(NamedTuple):
    """Label maps as one bit per pixel and class; an ignored pixel has no bit."""

    masks: Tensor  # [N,C,words] int64: words of 64 pixels are copied eight times as fast as bytes
    areas: Tensor  # [N,C] int32, pixels of each class


def segmentation_distance(x: Maps, y: Maps, classes: int, ignore: int | None = None) -> Tensor:
    """Compute distances `[N, M]` of label maps x `[N, H, W]` and y `[M, H, W]` in float32: 1 - mean IoU, in [0, 1].

    The intersection over union of a class counts the pixels that neither map ignores. The mean is over the classes that
    occur in these pixels of either map. The computation is in float64 from exact counts.

    Args:
        x: whole numbers 0 to classes - 1, or `ignore`.
        y: the same, of the same height and width.
        classes: the number of classes.
        ignore: the value of pixels that do not count; it may be the number of a class.

    Raises:
        InputError: maps have different sizes, a value is not a class, or two maps have no common pixel.
    """
    device = x.device if isinstance(x, Tensor) else torch.device("cpu")
    (first, size), (second, other_size) = sized("x", x), sized("y", y)
    if size != other_size:
        raise InputError("y", f"maps of {list(other_size)}", f"must be {list(size)} as in x")
    a = PackedMaps(*(t.to(device) for t in pack_maps(first, classes, ignore)))
    b = a if y is x else PackedMaps(*(t.to(device) for t in pack_maps(second, classes, ignore)))
    return packed_segmentation_distance(a, b)


@check_ranges
def pack_maps(
    maps: Maps, classes: PositiveInt, ignore: int | None = None, side: PositiveInt | None = None
) -> PackedMaps:
    """Check label maps, resize them to `side` x `side` pixels by nearest neighbour, and pack them.

    If `side` is None, maps keep their size.

    Raises:
        InputError: there are no maps, maps have different sizes, or a value is not a class. The error names the item
            and the value.
    """
    maps, size = sized("maps", maps)
    height, width = (size if side is None else (side, side)) if len(size) == 2 else (0, 0)
    if not 0 < height * width <= _PIXELS:
        packed = f"{list(size)}, packed at {height} x {width}"
        raise InputError("label map 0", packed, f"must be [height, width] of 1 to {_PIXELS} pixels")
    packed_blocks = []
    for start in range(0, len(maps), _PACKED):
        block = _checked(maps[start : start + _PACKED], start, size, classes, ignore)
        if (height, width) != size:
            block = block[:, _nearest(size[0], height)[:, None], _nearest(size[1], width)]
        packed_blocks.append(_pack(block.reshape(len(block), -1), classes, ignore))
    masks, areas = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*packed_blocks, strict=True))
    return PackedMaps(masks, areas)


def packed_segmentation_distance(x: PackedMaps, y: PackedMaps, names: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Compute `segmentation_distance` `[N, M]` of packed maps.

    Errors name items by the row numbers `names`, `[N]` and `[M]`.

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
    if bool((undefined := out.isnan()).any()):
        i, j = undefined.nonzero()[0].tolist()
        i, j = (i, j) if names is None else (int(names[0][i]), int(names[1][j]))
        raise InputError(
            f"label maps {i} and {j}", "no pixel that neither ignores", hint="omit maps of mostly ignored pixels"
        )
    return out


def _by_product(x: PackedMaps, y: PackedMaps) -> Tensor:
    """Compute distances `[N, M]` in float32 by matrix products. They are NaN for maps without a common pixel."""
    total = torch.zeros(len(x.areas), len(y.areas), dtype=torch.float64, device=x.areas.device)
    count = torch.zeros_like(total)
    v, w = (_unpack(_union(maps.masks)) for maps in (x, y))
    for a, b in zip(x.masks.unbind(1), y.masks.unbind(1), strict=True):
        a, b = _unpack(a), _unpack(b)  # [N,P], [M,P]
        common = (a @ b.T).double()
        union = (a @ w.T).double() + (v @ b.T) - common
        total += common / union.clamp(min=1)
        count += union > 0
    return (1 - total / count).float()


def _union(masks: Tensor) -> Tensor:
    """Return the pixels that are not ignored, `[N, words]`: all pixels that have a class."""
    out = masks[:, 0].clone()
    for mask in masks.unbind(1)[1:]:
        out |= mask
    return out


def _unpack(masks: Tensor) -> Tensor:
    bits = torch.arange(8, dtype=torch.uint8, device=masks.device)
    return ((masks.contiguous().view(torch.uint8)[:, :, None] >> bits) & 1).flatten(1).float()


def _by_popcount(x: PackedMaps, y: PackedMaps) -> Tensor:
    """Compute distances `[N, M]` in float32 in torch's number of threads.

    They are NaN for maps without a common pixel.
    """
    from contml.distances._segmentation_counts import MapArrays, distances  # here: it imports numba

    def arrays(maps: PackedMaps) -> MapArrays:
        tensors = maps.masks, maps.areas, _union(maps.masks)
        return MapArrays(*(tensor.contiguous().numpy() for tensor in tensors))

    same, a = y is x, arrays(x)
    b = a if same else arrays(y)
    out = np.empty((len(a.areas), len(b.areas)), dtype=np.float32)
    if out.size:
        same_pixels = bool((a.labelled == a.labelled[0]).all() and (b.labelled == a.labelled[0]).all())
        width = max(1, _CACHED // b.labelled[0].nbytes)
        in_threads(
            lambda start, step: distances(a, b, same_pixels, same, width, start, step, out),
            out.size * a.masks[0].size // _WORDS_PER_THREAD,
        )
    return torch.from_numpy(out)


def _nearest(length: int, side: int) -> Array:
    """Return for each new pixel the one of `length` pixels whose centre is nearest, `[side]`."""
    return ((2 * np.arange(side) + 1) * length) // (2 * side)


def sized(name: str, maps: Maps) -> tuple[Maps, tuple[int, ...]]:
    """Return the maps in a tensor, an array or a list, and the size of the first map."""
    if not isinstance(maps, Tensor | np.ndarray) or maps.ndim == 0:
        maps = as_items(name, maps, _MAPS)
    if len(maps) == 0:
        raise InputError(name, "no label maps", hint="give [items, height, width]")
    return maps, tuple(_numbers(0, maps[0]).shape)


def _numbers(item: int, label_map: object) -> Array:
    return as_numbers(f"label map {item}", label_map, "integers [height, width]").cpu().numpy()


def _checked(maps: Maps, start: int, size: tuple[int, ...], classes: int, ignore: int | None) -> Array:
    arrays = [_numbers(item, label_map) for item, label_map in enumerate(maps, start)]
    for item, label_map in enumerate(arrays, start):
        if label_map.shape != size:
            raise InputError(f"label map {item}", str(list(label_map.shape)), f"must be {list(size)} as label map 0")
        if label_map.dtype.kind not in "iu":
            raise InputError(f"label map {item}", str(label_map.dtype), "must be integers")
    stacked = np.stack(arrays)
    invalid = (stacked < 0) | (stacked >= classes)
    if ignore is not None:
        invalid &= stacked != ignore
    if invalid.any():
        item, row, column = np.argwhere(invalid)[0]
        value = f"{stacked[item, row, column]} at row {row}, column {column}"
        ignored = "" if ignore is None else f", or {ignore} for ignored pixels"
        raise InputError(f"label map {start + item}", value, f"must be 0 to {classes - 1}{ignored}")
    return stacked


def _pack(maps: Array, classes: int, ignore: int | None) -> tuple[Array, ...]:
    """Pack maps `[N, P]` to masks `[N, C, words]` and areas `[N, C]`."""
    masks = np.zeros((len(maps), classes, 8 * -(-maps.shape[1] // 64)), dtype=np.uint8)
    areas = np.zeros((len(maps), classes), dtype=np.int32)
    for c in range(classes):
        if c != ignore:
            pixels = maps == c
            bits = np.packbits(pixels, axis=1, bitorder="little")
            masks[:, c, : bits.shape[1]] = bits
            areas[:, c] = pixels.sum(1)
    return masks.view(np.int64), areas
