"""Images with label maps: what every source of them hands out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from contml import InputError
from contml.contracts import ImageItem
from contml.labels import RegionLabels

from .drawing import draw_label_map

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class LabelMapSplit:
    """One split of a data set of label maps; items of at most a share of labelled pixels are dropped and counted.

    Maps of which more than half is labelled always have pixels in common: with less, a label distance may not exist.

    Args:
        images: one an item, files or pixels.
        names: one an item.
        maps: `[N, H, W]`: whole numbers 0 to classes - 1, or `ignore`, over the whole image.
        queries: how many of the first items query the others; 0: every item queries all others.
        classes: how many classes there are.
        ignore: the value of pixels that do not count.
        labelled: the share of a map's pixels that must be exceeded by those that count.
        dropped: how many items had no label to begin with.
    """

    def __init__(
        self,
        images: Sequence[ImageItem],
        names: Sequence[str],
        maps: Array,
        queries: int,
        *,
        classes: int,
        ignore: int | None,
        labelled: float = 0.5,
        dropped: int = 0,
    ) -> None:
        shares = np.array([1.0 if ignore is None else np.mean(one != ignore) for one in maps])
        kept: list[int] = np.flatnonzero(shares > labelled).tolist()
        self.dropped = dropped + len(names) - len(kept)
        if not kept:
            raise InputError(
                f"{names[0]}: {shares[0]:.0%} of its label map is labelled, of no map more than {labelled:.0%}; "
                "check which value is ignored"
            )
        self.labels = RegionLabels(maps[kept], classes, ignore, side=None)
        self.images, self.names = [images[row] for row in kept], [names[row] for row in kept]
        self.shape = (int(maps.shape[1]), int(maps.shape[2]))
        querying = sum(row < queries for row in kept)
        self.queries: Tensor | None = torch.arange(querying) if queries else None
        self.gallery: Tensor | None = torch.arange(querying, len(kept)) if queries else None

    def __len__(self) -> int:
        return len(self.names)

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        return self.images[row]

    def name(self, row: int) -> str:
        """The file of a row, or its number in the synthetic data."""
        return self.names[row]

    def map(self, row: int) -> Array:
        """The label map of a row `[H, W]` as it is compared: class ids, -1 where ignored."""
        masks = self.labels.masks[row].cpu().numpy().view(np.uint8)  # [C,bytes]
        height, width = self.shape
        bits = np.unpackbits(masks, axis=1, count=height * width, bitorder="little").reshape(-1, height, width)
        return np.where(bits.any(0), bits.argmax(0), -1)

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, with its label map in a corner."""
        return draw_label_map(_picture(self.images[row]), self.map(row), size)


def _picture(item: ImageItem) -> Image.Image:
    if isinstance(item, Path):
        with Image.open(item) as file:
            return ImageOps.exif_transpose(file).convert("RGB")
    return (Image.fromarray(item) if isinstance(item, np.ndarray) else item).convert("RGB")
