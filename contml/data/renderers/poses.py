"""Draw a pose on its image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml._support.errors import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_SUPERSAMPLING = 4
_OUTLINE = (16, 16, 22, 210)
_COLOURS = {"right": (255, 122, 36, 255), "left": (48, 176, 255, 255), "": (244, 240, 226, 255)}  # warm, cool, neutral
_TRUNK = ("shoulder", "hip")


@dataclass(frozen=True, eq=False)
class PoseRenderer:
    """Draws the skeleton of a row on its picture.

    Args:
        joints: `[N, J, 2]` in pixels of the images.
        visible: `[N, J]`; None: all.
        skeleton: pairs of joints that a limb connects.
        joint_names: names of the joints; "right_..." and "left_..." are drawn in colours of their own.
    """

    joints: Array
    visible: Array | None
    skeleton: Sequence[tuple[int, int]]
    joint_names: Sequence[str]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture with its skeleton, `size` pixels square."""
        visible = None if self.visible is None else self.visible[row]
        return draw_pose(picture, self.joints[row], visible, size, self.skeleton, self.joint_names)


def draw_pose(
    image: Image.Image,
    joints: Array,
    visible: Array | None,
    size: int,
    skeleton: Sequence[tuple[int, int]],
    names: Sequence[str] = (),
) -> Image.Image:
    """The image in RGB, resized to `size` pixels square, with a skeleton drawn on it.

    Args:
        image: the image of the person.
        joints: `[J, 2]` x, y in pixels of the image, centres at integers.
        visible: `[J]`; None: all. Joints that are hidden or not finite are not drawn, nor the limbs that end there.
        size: side of the result in pixels.
        skeleton: pairs of joints that a limb connects.
        names: of the joints; "right_" or "left_" at the beginning gives the side and its colour. Without one name per
            joint, everything is drawn in one colour.

    Raises:
        InputError: the joints have another shape, or the skeleton refers to a joint that does not exist.
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
    unknown = [pair for pair in skeleton if not all(0 <= joint < len(joints) for joint in pair)]
    if unknown:
        raise InputError(f"the skeleton connects joints {unknown[0]}; joints are numbered 0 to {len(joints) - 1}")
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    if not shown.any():
        return picture
    # Pixel centres are integers, so x + 0.5 is scaled. Pillow cuts coordinates to whole pixels, so they are rounded.
    points = (joints + 0.5) * (size / image.width, size / image.height) * _SUPERSAMPLING - 0.5
    points = np.rint(np.where(shown[:, None], points, 0.0))
    overlay = _draw_skeleton(points, shown, size * _SUPERSAMPLING, skeleton, names)
    picture.paste(overlay.convert("RGB"), mask=overlay.getchannel("A"))
    return picture


def _draw_skeleton(
    points: Array, shown: Array, side: int, skeleton: Sequence[tuple[int, int]], names: Sequence[str]
) -> Image.Image:
    """The skeleton alone on a transparent square; `points [J, 2]` in pixels of the supersampled square."""
    sides = [_side(name) for name in names] if len(names) == len(points) else [""] * len(points)
    limb = max(1.4 * _SUPERSAMPLING, side / 64)  # widths in supersampled pixels
    rim = max(0.55 * _SUPERSAMPLING, side / 220)
    lines = [
        (_limb_side(a, b, sides, names), tuple(points[[a, b]].ravel().tolist()))
        for a, b in skeleton
        if shown[a] and shown[b]
    ]
    dots = [(sides[joint], points[joint].tolist()) for joint in np.flatnonzero(shown)]
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
    """Side of a joint from its name: right, left, or empty for the middle of the body."""
    first = name.split("_")[0]
    return first if first in ("right", "left") else ""


def _limb_side(a: int, b: int, sides: Sequence[str], names: Sequence[str]) -> str:
    """The side that colours a limb: empty if the limb crosses the middle or is the trunk from shoulder to hip."""
    if sides[a] != sides[b] or not sides[a]:
        return ""
    return "" if names[a].endswith(_TRUNK) and names[b].endswith(_TRUNK) else sides[a]
