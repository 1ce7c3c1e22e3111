"""Resizes whole images as Pillow does, and crops and flips as torch does; pixels outside an image repeat its edge."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Box: TypeAlias = tuple[int, int, int]


def resize(image: Bytes, side: int) -> Bytes:
    """Return an image `[H, W, 3]` as `[side, side, 3]`."""
    return np.array(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))


def crop(image: Bytes, box: Box, size: int) -> Bytes:
    """Return the box (left, top, side) of an image `[H, W, 3]` as `[size, size, 3]`."""
    return np.ascontiguousarray(_planes(image, box, size).permute(1, 2, 0).numpy())


def crop_planes(image: Bytes, box: Box, flip: bool, out: Bytes) -> None:
    """Write the box (left, top, side) of an image to planes `[3, size, size]`; `flip`: left becomes right."""
    planes = _planes(image, box, out.shape[1]).numpy()
    out[:] = planes[:, :, ::-1] if flip else planes


def _planes(image: Bytes, box: Box, size: int) -> Tensor:
    left, top, side = box
    height, width = image.shape[:2]
    if 0 <= left <= width - side and 0 <= top <= height - side:
        inside = image[top : top + side, left : left + side].copy()
    else:
        y, x = np.arange(top, top + side).clip(0, height - 1), np.arange(left, left + side).clip(0, width - 1)
        inside = image[y[:, None], x]
    planes = torch.from_numpy(inside).permute(2, 0, 1)
    if side == size:
        return planes
    return F.interpolate(planes[None], size=(size, size), mode="bilinear", antialias=True)[0]
