"""Draw a pose on its image, and the joints of the Leeds Sports Pose data set (LSP)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

LSP_JOINTS = (
    "right_ankle",
    "right_knee",
    "right_hip",
    "left_hip",
    "left_knee",
    "left_ankle",
    "right_wrist",
    "right_elbow",
    "right_shoulder",
    "left_shoulder",
    "left_elbow",
    "left_wrist",
    "neck",
    "head_top",
)
#: Pairs of joints to draw a line between: legs, arms, shoulders to the neck, torso, head.
LSP_SKELETON = (
    (0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (9, 10), (10, 11), (8, 12), (9, 12), (2, 8), (3, 9), (2, 3),
    (12, 13),
)  # fmt: skip

_SUPERSAMPLING = 4
_OUTLINE = (16, 16, 22, 210)
_COLOURS = {"right": (255, 122, 36, 255), "left": (48, 176, 255, 255), "": (244, 240, 226, 255)}  # warm, cool, neutral
_TRUNK = ("shoulder", "hip")


def draw_pose(
    image: Image.Image,
    joints: Array,
    visible: Array | None,
    size: int,
    skeleton: Sequence[tuple[int, int]],
    names: Sequence[str] = LSP_JOINTS,
) -> Image.Image:
    """The image in RGB, resized to `size` pixels square, with a skeleton drawn on it.

    joints `[J, 2]`: x, y in pixels of `image`, centres at integers. visible `[J]` bool (None: all): joints that are not
    visible or not finite are left out, and so are the limbs that end there. names: right and left limbs are told by
    "right_" and "left_" before the name; where there is not one name a joint, all is drawn in one colour.
    Joints of another shape, or a skeleton that names a joint that is not there: ValueError.
    """
    joints = np.asarray(joints, np.float64)
    if joints.ndim != 2 or joints.shape[1] != 2:
        raise InputError(f"joints have shape {joints.shape}; give x and y of each joint, [J, 2]")
    shown = np.isfinite(joints).all(axis=1)
    if visible is not None:
        if np.shape(visible) != (len(joints),):
            raise InputError(
                f"visible has shape {np.shape(visible)}; give one truth value for each of {len(joints)} joints"
            )
        shown &= np.asarray(visible, bool)
    strangers = [pair for pair in skeleton if not all(0 <= joint < len(joints) for joint in pair)]
    if strangers:
        raise InputError(f"the skeleton names joints {strangers[0]}; there are joints 0 to {len(joints) - 1}")
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    if not shown.any():
        return picture
    # Pixel centres are integers: x + 0.5 is what scales. Pillow cuts coordinates to whole pixels, so round them first.
    places = (joints + 0.5) * (size / image.width, size / image.height) * _SUPERSAMPLING - 0.5
    places = np.rint(np.where(shown[:, None], places, 0.0))
    overlay = _draw_skeleton(places, shown, size * _SUPERSAMPLING, skeleton, names)
    picture.paste(overlay.convert("RGB"), mask=overlay.getchannel("A"))
    return picture


def _draw_skeleton(
    places: Array, shown: Array, side: int, skeleton: Sequence[tuple[int, int]], names: Sequence[str]
) -> Image.Image:
    """The skeleton alone on a transparent square; `places [J, 2]` in pixels of the supersampled square."""
    sides = [_side(name) for name in names] if len(names) == len(places) else [""] * len(places)
    limb = max(1.4 * _SUPERSAMPLING, side / 64)  # widths in supersampled pixels
    rim = max(0.55 * _SUPERSAMPLING, side / 220)
    lines = [
        (_limb_side(a, b, sides, names), tuple(places[[a, b]].ravel().tolist()))
        for a, b in skeleton
        if shown[a] and shown[b]
    ]
    dots = [(sides[joint], places[joint].tolist()) for joint in np.flatnonzero(shown)]
    overlay = Image.new("RGBA", (side, side))
    draw = ImageDraw.Draw(overlay)
    # The outline of everything first, so that no limb is cut by the outline of another.
    for grow, outlined in ((rim, True), (0.0, False)):
        for colour, line in lines:
            draw.line(line, fill=_OUTLINE if outlined else _COLOURS[colour], width=round(limb + 2 * grow))
        for colour, (x, y) in dots:
            radius = round(0.85 * limb + grow)
            fill = _OUTLINE if outlined else _COLOURS[colour]
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    return overlay.reduce(_SUPERSAMPLING)


def _side(name: str) -> str:
    """Side of a joint, by its name: right, left, or empty for the middle of the body."""
    first = name.split("_")[0]
    return first if first in ("right", "left") else ""


def _limb_side(a: int, b: int, sides: Sequence[str], names: Sequence[str]) -> str:
    """The side a limb is coloured by: none for what crosses the middle, nor for the trunk from shoulder to hip."""
    if sides[a] != sides[b] or not sides[a]:
        return ""
    return "" if names[a].endswith(_TRUNK) and names[b].endswith(_TRUNK) else sides[a]
