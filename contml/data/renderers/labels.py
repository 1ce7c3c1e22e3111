"""Draw a label without its image: a pose, a label map, else its words."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from contml._support.pages import page_text
from contml.data.renderers.label_maps import LabelMapRenderer, map_colours, shrink
from contml.data.renderers.poses import draw_skeleton
from contml.data.renderers.text import font_for, wrapped
from contml.labels.base import LabelSpace
from contml.labels.poses import PoseLabels
from contml.labels.segmentation import SegmentationLabels

_PAPER, _INK = "#f1f1f1", "#222222"
#: Margin of words, as a share of the side; their largest and their smallest size, as shares of the side.
_MARGIN, _LARGEST, _SMALLEST = 0.07, 0.2, 0.07


def label_drawing(labels: LabelSpace, row: int, size: int) -> Image.Image | None:
    """The pose or the label map of an item, `size` pixels square; of a sum, the first one. None for other labels."""
    for space, present in labels.terms:
        if present is not None and not bool(present[row]):
            continue
        if isinstance(space, PoseLabels):
            joints, visible = space.joints[row, :, :2].cpu().numpy(), space.visible[row].cpu().numpy()
            return draw_skeleton(joints, visible, space.skeleton, space.part_names, size, _PAPER)
        if isinstance(space, SegmentationLabels):
            label_map = LabelMapRenderer(space, *space.size).map(row)
            return Image.fromarray(map_colours(np.ascontiguousarray(shrink(label_map, size))))
    return None


def label_picture(labels: LabelSpace, row: int, size: int, words: str) -> Image.Image:
    """The label of an item, `size` pixels square: drawn, or in words as large as they fit.

    Args:
        labels: the labels.
        row: the item.
        size: the side in pixels.
        words: the words of a label that has none.
    """
    drawing = label_drawing(labels, row, size)
    return draw_text(labels.text(row) or words, size) if drawing is None else drawing


def draw_text(text: str, size: int) -> Image.Image:
    """A text on a square, in the largest size in which it fits; what does not fit in the smallest is cut."""
    canvas = Image.new("RGB", (size, size), _PAPER)
    room, texts = size - 2 * round(_MARGIN * size), [page_text(line) for line in text.split("\n")]
    smallest = max(6, round(_SMALLEST * size))
    for points in range(max(smallest, round(_LARGEST * size)), smallest - 1, -1):
        font, max_lines = font_for("".join(texts), points, bold=True)[0], max(1, int(room / (1.25 * points)))
        printable = [font_for(line, points, bold=True)[1] for line in texts]
        wrapped_texts = [wrapped(line, font, room, max_lines) for line in printable]
        lines = [line for each in wrapped_texts for line in each]
        if len(lines) <= max_lines and [" ".join(each) for each in wrapped_texts] == printable:
            break
    lines = lines[:max_lines]
    pen, top = ImageDraw.Draw(canvas), (size - 1.25 * points * len(lines)) / 2
    for number, line in enumerate(lines):
        pen.text((size / 2, top + number * 1.25 * points), line, fill=_INK, font=font, anchor="ma")
    return canvas
