"""The label space of label maps: room layouts, semantic segmentations."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.segmentation import Maps, PackedMaps, pack_maps, packed_segmentation_distance
from contml.labels.base import LabelSpace


class SegmentationLabels(LabelSpace):
    """Label maps, one class a pixel; the label distance is 1 - mIoU, in [0, 1].

    The intersection over union of each class is over the pixels that neither map ignores, its mean over the classes
    that occur in either map there. Maps are packed once, to one bit a pixel and class: 7.7 KiB each at 112 x 112 x 5.

    Args:
        maps: `[N, H, W]`, or N maps `[H, W]` of one size: whole numbers 0 to classes - 1, or `ignore`.
        classes: how many classes there are.
        ignore: the value of pixels that do not count; it may be one of the classes' numbers.
        side: maps are resized to side x side pixels by nearest neighbour; None: compared as they are.
    """

    unit = "1 - mIoU"
    masks: Tensor
    areas: Tensor

    def __init__(self, maps: Maps, classes: int, ignore: int | None = None, side: int | None = 112) -> None:
        packed = pack_maps(maps, classes, ignore, side)
        empty = packed.areas.sum(1) == 0
        if bool(empty.any()):
            raise InputError(
                f"label map {int(empty.nonzero()[0, 0])} has no pixel that is not ignored "
                f"({int(empty.sum())} such maps); leave these out"
            )
        super().__init__(masks=packed.masks, areas=packed.areas)

    def distances(self, x: Self, y: Self) -> Tensor:
        """1 - mIoU, `[X, Y]`."""
        a = PackedMaps(x.masks, x.areas)
        b = a if y is x else PackedMaps(y.masks, y.areas)
        return packed_segmentation_distance(
            a, b, names=(x.rows, y.rows) if x.rows is not None and y.rows is not None else None
        )

    def _select(self, index: Tensor) -> Self:
        if self.device.type != "cpu":
            return super()._select(index)
        # A batch's masks are a megabyte: numpy copies them before torch has woken its threads.
        rows = index.numpy()
        return self._map(lambda tensor: torch.from_numpy(tensor.numpy().take(rows, 0)))

    def _contents(self) -> str:
        return f"label maps of {self.areas.shape[1]} classes; unit: {self.unit}"
