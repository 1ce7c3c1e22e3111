"""Resizes and crops images, and flips crops. Compiled by numba.

    p = sum_k w_k p_k,    w_k ~ max(0, 1 - |k + 1/2 - c| / s),    s = max(1, pixels in / pixels out)

c is the centre of a new pixel among the old ones. First rows are resized, then columns (`resize`: or the other way
round); each result is rounded to 8 bits. Weights are whole numbers of 22 bits, as in Pillow, whose results
(`Resampling.BILINEAR`) are the same to the bit.
Weights of crops have no more than 15 significant bits, as in `torch.nn.functional.interpolate` with
`antialias=True`, so that results equal torch's.

Columns of pixels are neighbours in memory, but the columns that make one new pixel start at any byte. So new pixels are
computed together where their first columns are consecutive, as in crops of nearly the new size; else 16 rows together:

    rows [16][width][3]  ->  block [width][16][3]  ->  48 sums with the same weights  ->  lines [16][size][3]
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import compiled

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Bits of the weights; half of the last one is added before a sum is rounded.
_BITS = 22
_U32, _SHIFT, _HALF = np.uint32, np.uint32(_BITS), np.uint32(1 << (_BITS - 1))
#: Rows that are resized together, and the bytes of a column of them.
_ROWS = 16
_COLUMN = 3 * _ROWS
#: The least mean number of new pixels whose first old ones are consecutive, for which they are computed together.
_LEAST_RUN = 6


@compiled
def _weights(length: int, size: int, is_short: bool) -> tuple[Places, Words]:
    """The first old pixel of each new one `[size]`, and the weights `[size, taps]` of this one and of the next.

    is_short: at most 15 significant bits.
    """
    scale = length / size
    support = max(scale, 1.0)
    starts = np.empty(size, np.int64)
    shares = np.zeros((size, 2 * int(np.ceil(support)) + 1))
    taps, largest = 1, 0.0
    for n in range(size):
        centre = scale * (n + 0.5)
        start = max(int(centre - support + 0.5), 0)
        stop = min(int(centre + support + 0.5), length)
        total = 0.0
        for k in range(start, stop):
            shares[n, k - start] = max(0.0, 1 - abs((k - centre + 0.5) * (1 / support)))
            total += shares[n, k - start]
        for k in range(stop - start):
            shares[n, k] /= total
            largest = max(largest, shares[n, k])
        starts[n] = start
        taps = max(taps, stop - start)
    bits = _BITS
    if is_short:
        bits = 0
        while bits < _BITS and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
            bits += 1
    weights = np.empty((size, taps), np.uint32)
    for n in range(size):
        for k in range(taps):
            weights[n, k] = int(0.5 + shares[n, k] * (1 << bits)) << (_BITS - bits)
    return starts, weights


@compiled
def _runs(starts: Places) -> Places:
    """Where runs of consecutive numbers begin, and the length of `starts`."""
    begins = np.zeros(len(starts) + 1, np.int64)
    count = 1
    for n in range(1, len(starts)):
        if starts[n] != starts[n - 1] + 1:
            begins[count] = n
            count += 1
    begins[count] = len(starts)
    return begins[: count + 1]


@compiled
def _consecutive(row: Bytes, starts: Places, runs: Places, weights: Words, line: Bytes) -> None:
    """Resizes a row `[width, 3]` whose new pixels have 2 or 3 old ones, where the first ones are mostly consecutive.

    weights `[taps, 3 size]`: of each byte of the line.
    """
    for n in range(len(runs) - 1):
        begin, end = runs[n], runs[n + 1]
        old, new = row[3 * starts[begin] :], line[3 * begin : 3 * end]
        first, second = weights[0, 3 * begin : 3 * end], weights[1, 3 * begin : 3 * end]
        if len(weights) == 2:
            for i in range(len(new)):
                new[i] = _U32(first[i] * _U32(old[i]) + second[i] * _U32(old[i + 3]) + _HALF) >> _SHIFT
        else:
            third = weights[2, 3 * begin : 3 * end]
            for i in range(len(new)):
                new[i] = (
                    _U32(first[i] * _U32(old[i]) + second[i] * _U32(old[i + 3]) + third[i] * _U32(old[i + 6]) + _HALF)
                    >> _SHIFT
                )


@compiled
def _together(rows: Bytes, count: int, starts: Places, weights: Words, block: Bytes, lines: Bytes) -> None:
    """Resizes `count` rows `[16, 3 width]` at once; block `[48 width]` is memory to work in."""
    width, taps = rows.shape[1] // 3, weights.shape[1]
    for r in range(count):
        row, column = rows[r], block[3 * r :]
        for x in range(width):
            column[_COLUMN * x] = row[3 * x]
            column[_COLUMN * x + 1] = row[3 * x + 1]
            column[_COLUMN * x + 2] = row[3 * x + 2]
    sums = np.empty(_COLUMN, np.uint32)
    for x in range(len(starts)):
        old = block[_COLUMN * starts[x] : _COLUMN * (starts[x] + taps)]
        for i in range(_COLUMN):
            sums[i] = _HALF
        for k in range(taps):
            weight, column = weights[x, k], old[_COLUMN * k : _COLUMN * (k + 1)]
            for i in range(_COLUMN):
                sums[i] = _U32(sums[i] + weight * _U32(column[i]))
        for r in range(count):
            line = lines[r]
            line[3 * x] = sums[3 * r] >> _SHIFT
            line[3 * x + 1] = sums[3 * r + 1] >> _SHIFT
            line[3 * x + 2] = sums[3 * r + 2] >> _SHIFT


@compiled
def _across(ring: Bytes, start: int, weights: Words, sums: Words, line: Bytes) -> None:
    """The weighted sum of the lines start, start + 1, ...; line n is in row n modulo the length of the ring."""
    for i in range(len(line)):
        sums[i] = _HALF
    for k in range(len(weights)):
        a, old = weights[k], ring[(start + k) % len(ring)]
        for i in range(len(line)):
            sums[i] = _U32(sums[i] + a * _U32(old[i]))
    for i in range(len(line)):
        line[i] = sums[i] >> _SHIFT


@compiled
def _copy(old: Bytes, new: Bytes, count: int) -> None:
    for i in range(count):
        new[i] = old[i]


@compiled
def _store_planes(line: Bytes, y: int, size: int, flip: bool, out: Bytes) -> None:
    """Writes a line `[size, 3]` to row y of the planes `[3, size, size]`."""
    red = out[size * y : size * (y + 1)]
    green = out[size * (size + y) : size * (size + y + 1)]
    blue = out[size * (2 * size + y) : size * (2 * size + y + 1)]
    if flip:
        for x in range(size):
            back = np.uintp(size - 1 - x)  # unsigned: negative numbers would count from the end
            red[back] = line[3 * x]
            green[back] = line[3 * x + 1]
            blue[back] = line[3 * x + 2]
    else:
        for x in range(size):
            red[x] = line[3 * x]
            green[x] = line[3 * x + 1]
            blue[x] = line[3 * x + 2]


@compiled
def resample(
    image: Bytes,
    left: int,
    top: int,
    width: int,
    height: int,
    size: int,
    is_short: bool,
    is_planar: bool,
    flip: bool,
    out: Bytes,
) -> None:
    """Writes a box of an image `[H, W, 3]`, resized; outside the image, its edge is repeated.

    Args:
        image: read only, and contiguous.
        left, top, width, height: the box.
        size: the result has size x size pixels.
        is_short: weights of at most 15 significant bits, as torch's.
        is_planar: the result is `[3, size, size]`, else `[size, size, 3]`.
        flip: left becomes right, of a planar result.
        out: the result, flat.
    """
    x_starts, x_weights = _weights(width, size, is_short)
    y_starts, y_weights = _weights(height, size, is_short)
    x_taps, y_taps = x_weights.shape[1], y_weights.shape[1]
    runs = _runs(x_starts)
    is_consecutive = x_taps <= 3 and len(runs) * _LEAST_RUN <= size
    byte_weights = np.empty((x_taps, 3 * size), np.uint32)
    for k in range(x_taps):
        for x in range(size):
            weight = x_weights[x, k]
            for c in range(3):
                byte_weights[k, 3 * x + c] = weight
    rows = np.zeros((_ROWS, 3 * (width + x_taps)), np.uint8)
    block = np.zeros(0 if is_consecutive else _COLUMN * (width + x_taps), np.uint8)
    ring = np.zeros(((y_taps + 2 * _ROWS - 2) // _ROWS * _ROWS, 3 * size), np.uint8)
    sums, line = np.empty(3 * size, np.uint32), np.empty(3 * size, np.uint8)
    image_height, row_bytes = image.shape[0], 3 * image.shape[1]
    inside, outside = max(left, 0), min(left + width, image.shape[1])
    done = 0
    for y in range(size):
        while done < min(y_starts[y] + y_taps, height):
            count, lines = min(_ROWS, height - done), ring[done % len(ring) :]
            for r in range(count):
                row, pixels = rows[r], image[min(max(top + done + r, 0), image_height - 1)].reshape(row_bytes)
                for i in range(3 * (min(inside, left + width) - left)):
                    row[i] = pixels[i % 3]
                if outside > inside:
                    _copy(pixels[3 * inside :], row[3 * (inside - left) :], 3 * (outside - inside))
                for i in range(3 * (max(outside, left) - left), 3 * width):
                    row[i] = pixels[row_bytes - 3 + i % 3]
                if width == size:
                    _copy(row, lines[r], 3 * size)
                elif is_consecutive:
                    _consecutive(row, x_starts, runs, byte_weights, lines[r])
            if width != size and not is_consecutive:
                _together(rows, count, x_starts, x_weights, block, lines)
            done += count
        new = line
        if height == size:
            new = ring[y % len(ring)]
        else:
            _across(ring, y_starts[y], y_weights[y], sums, line)
        if is_planar:
            _store_planes(new, y, size, flip, out)
        else:
            _copy(new, out[3 * size * y :], 3 * size)


def resize(image: Bytes, side: int) -> Bytes:
    """Returns an image `[H, W, 3]` as `[side, side, 3]`; where far more rows than columns are lost, columns come first.

    Then, as in Pillow from version 13, fewer pixels are computed.
    """
    height, width = image.shape[:2]
    if width != side and height - side > 2 * max(width - side, 0):
        turned = _resized(np.ascontiguousarray(image.transpose(1, 0, 2)), side)
        return np.ascontiguousarray(turned.transpose(1, 0, 2))
    return _resized(image, side)


def _resized(image: Bytes, side: int) -> Bytes:
    out = np.empty((side, side, 3), np.uint8)
    resample(_read_only(image), 0, 0, image.shape[1], image.shape[0], side, False, False, False, out.reshape(-1))
    return out


def crop(image: Bytes, box: tuple[int, int, int], size: int) -> Bytes:
    """Returns the box (left, top, side) of an image `[H, W, 3]` as `[size, size, 3]`."""
    left, top, side = box
    out = np.empty((size, size, 3), np.uint8)
    resample(_read_only(image), left, top, side, side, size, True, False, False, out.reshape(-1))
    return out


def crop_planes(image: Bytes, box: tuple[int, int, int], flip: bool, out: Bytes) -> None:
    """Writes the box (left, top, side) of an image `[H, W, 3]` to planes `[3, size, size]`."""
    left, top, side = box
    resample(_read_only(image), left, top, side, side, out.shape[1], True, True, flip, out.reshape(-1))


def _read_only(image: Bytes) -> Bytes:
    """The same pixels, of one type for numba, which would compile the functions again for another one."""
    pixels = np.ascontiguousarray(image).view()
    pixels.flags.writeable = False
    return pixels
