"""Draw a row of a table with label maps and other labels: the maps beside its image, the words below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from contml.data.renderers.labels import LabelMapRenderer, map_colours
from contml.data.renderers.text import READABLE, draw_words
from contml.labels import WeightedLabels

from .label import Array


@dataclass(frozen=True, eq=False)
class SumRenderer:
    """Draws the label maps of a row beside its picture, and the words of its other labels below.

    Args:
        labels: the labels of each row.
        maps: has the maps, by the number of their label space.
    """

    labels: WeightedLabels
    maps: Mapping[int, LabelMapRenderer]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture with its labels, `size` pixels square."""
        if size >= READABLE:
            picture = beside(picture, [maps.map(row) for n, maps in self.maps.items() if self.labels.has(n, row)])
        return draw_words(picture, self.labels.text(row), size)


def beside(picture: Image.Image, maps: Sequence[Array]) -> Image.Image:
    """A picture with label maps of its size beside it: `[H, W]` class ids, -1 where ignored, drawn grey."""
    if not maps:
        return picture
    height = 240
    width = max(1, round(picture.width * height / picture.height))
    gap = height // 40
    canvas = Image.new("RGB", ((1 + len(maps)) * (width + gap) - gap, height), "#f4f3ef")
    canvas.paste(picture.resize((width, height), Image.Resampling.BICUBIC), (0, 0))
    for index, ids in enumerate(maps, start=1):
        map_image = Image.fromarray(map_colours(ids)).resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(map_image, (index * (width + gap), 0))
    return canvas
