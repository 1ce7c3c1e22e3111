"""The label space of label maps: room layouts, semantic segmentations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.text import percent
from contml.contracts import Part
from contml.distances.segmentation import Maps, PackedMaps, pack_maps, packed_segmentation_distance, sized
from contml.labels.items import ItemLabels


class SegmentationLabels(ItemLabels):
    """Label maps with one class per pixel; the label distance is 1 - mIoU, in [0, 1].

    The intersection over union of each class counts the pixels that neither map ignores. The mean is over the classes
    that occur in these pixels of either map. Maps are packed once, to one bit per pixel and class: 7.7 KiB each at 112
    x 112 x 5.

    Args:
        maps: `[N, H, W]`, or N maps `[H, W]` of one size: whole numbers 0 to classes - 1, or `ignore`.
        classes: the number of classes.
        ignore: the value of pixels that do not count; it may be one of the classes.
        side: maps are resized to side x side pixels by nearest neighbour; None: no resizing.
    """

    unit = "1 - mIoU"
    mirrored = False
    largest = 1.0
    title = "label map"
    item_arguments: ClassVar[Mapping[str, Any]] = {"maps": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"classes": int, "ignore": int | None, "side": int | None}
    typed_as = "picture"
    masks: Tensor
    areas: Tensor

    def __init__(self, maps: Maps, classes: int, ignore: int | None = None, side: int | None = 112) -> None:
        maps, full_size = sized("maps", maps)
        packed = pack_maps(maps, classes, ignore, side)
        if len(empty := (packed.areas.sum(1) == 0).nonzero()[:, 0]):
            got = f"all pixels are ignored, and in {len(empty) - 1} more maps"
            raise InputError(f"label map {int(empty[0])}", got, hint="omit such maps")
        super().__init__(masks=packed.masks, areas=packed.areas)
        size = full_size if side is None else (side, side)
        self._form = {"classes": classes, "ignore": ignore, "side": side, "size": size}

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the maps, as they are compared."""
        height, width = self._form["size"]
        return height, width

    def arguments(self) -> dict[str, Any]:
        """Return the maps `[N, H, W]` as they are compared, and the options."""
        height, width = self.size
        ignored, count = self._form["ignore"], height * width
        dtype = np.min_scalar_type(max(self.areas.shape[1], 0 if ignored is None else ignored))
        dtype = dtype if ignored is None or ignored >= 0 else np.dtype(np.int32)
        maps = np.full((len(self), count), 0 if ignored is None else ignored, dtype)
        for row, masks in enumerate(self.masks.cpu().numpy().view(np.uint8)):
            for number, mask in enumerate(masks):
                maps[row, np.unpackbits(mask, count=count, bitorder="little").astype(bool)] = number
        return {"maps": torch.from_numpy(maps.reshape(-1, height, width)), **self._options()}

    def _options(self) -> dict[str, Any]:
        return {name: self._form[name] for name in self.option_arguments}

    def _item(self, label: Any) -> Self:
        """Return a space of one label map `[H, W]` of class numbers. Without `side`, it has the size of the others."""
        label_map, (height, width) = np.asarray(label), self.size
        if self._form["side"] is None and label_map.shape != (height, width):
            raise InputError(self.title, f"{list(label_map.shape)}", f"must be [{height}, {width}] as in training")
        return super()._item(label_map)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute 1 - mIoU, `[X, Y]`."""
        a = PackedMaps(x.masks, x.areas)
        b = a if y is x else PackedMaps(y.masks, y.areas)
        names = None if x.rows is None or y.rows is None else (x.rows, y.rows)
        return packed_segmentation_distance(a, b, names=names)

    def parts(self, a: int, b: int) -> list[Part]:
        """Return a part for each class of one or both maps: its share of each map, and its intersection over union."""
        x, y = (np.unpackbits(self.masks[row].cpu().numpy().view(np.uint8), axis=1).astype(bool) for row in (a, b))
        x, y = x & y.any(0), y & x.any(0)  # [C,P]: pixels that neither ignores
        parts = []
        for n in np.flatnonzero((x | y).any(1)).tolist():
            overlap = percent((x[n] & y[n]).sum() / (x[n] | y[n]).sum())
            share_x, share_y = (percent(each[n].sum() / each.sum()) for each in (x, y))
            parts.append(Part(self._part_name(n, f"class {n}"), share_x, share_y, f"{overlap} IoU"))
        return parts

    def _select(self, index: Tensor) -> Self:
        if self.device.type != "cpu":
            return super()._select(index)
        # The masks of a batch are about a megabyte: numpy copies them faster than torch starts its threads.
        return self._map(lambda tensor: torch.from_numpy(tensor.numpy().take(index.numpy(), 0)))

    def _contents(self) -> str:
        return f"label maps of {self.areas.shape[1]} classes; unit: {self.unit}"
