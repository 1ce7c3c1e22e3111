"""The format of pixels that a network expects."""

from __future__ import annotations

from typing import Literal, NamedTuple


class PixelFormat(NamedTuple):
    """Range, order of channels, mean and std of the pixels that a network was trained with; by default ImageNet's.

    A network of your own that wants others has an attribute `pixel_format` of this class.
    """

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of each channel, in this range and order
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    maximum: int = 1  # black is 0, white is this
    order: Literal["RGB", "BGR"] = "RGB"
