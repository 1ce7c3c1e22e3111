"""Drawings of poses on their images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml.data.split import TitledPictures
from contml.labels.poses import PoseLabels

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
#: Pairs of joints that a limb connects.
Limbs: TypeAlias = Sequence[tuple[int, int]]

_SUPERSAMPLING = 4
_OUTLINE = (16, 16, 22, 210)
_COLOURS = {"right": (255, 122, 36, 255), "left": (48, 176, 255, 255), "": (244, 240, 226, 255)}  # warm, cool, neutral
#: The legend of a split whose joints have names.
LEGEND = tuple(
    (f"#{red:02x}{green:02x}{blue:02x}", f"the person's {side} side" if side else "middle")
    for side, (red, green, blue, _) in _COLOURS.items()
)
_TRUNK = ("shoulder", "hip")
#: Colours of two poses over each other, and of the lines between them.
_TWO, _JOINED = ("#0072b2", "#e07000"), "#9a9a9a"


@dataclass(frozen=True, eq=False)
class PoseRenderer:
    """A renderer that draws the skeleton of a row on its picture. `PoseLabels` checks its arguments.

    Args:
        joints: x, y in pixels of the images `[N, J, 2]`, centres at integers.
        visible: which joints are visible `[N, J]`. Default: all. Joints that are hidden or not finite, and limbs that
            end at such joints, are not drawn.
        skeleton: pairs of joints that a limb connects.
        joint_names: names of the joints. "right_..." and "left_..." are drawn in different colours. Without one name
            per joint, everything is drawn in one colour.
    """

    joints: Array
    visible: Array | None
    skeleton: Sequence[tuple[int, int]]
    joint_names: Sequence[str]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """Return the picture in RGB, `size` pixels square, with the skeleton drawn on it."""
        joints = np.asarray(self.joints[row], np.float64)
        joint_mask = np.asarray(np.isfinite(joints).all(axis=1))
        if self.visible is not None:
            joint_mask &= np.asarray(self.visible[row], bool)
        canvas = picture.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        if not joint_mask.any():
            return canvas
        # Pixel centres are integers, so x + 0.5 is scaled. Pillow truncates coordinates, so they are rounded first.
        points = (joints + 0.5) * (size / picture.width, size / picture.height) * _SUPERSAMPLING - 0.5
        points = np.rint(np.where(joint_mask[:, None], points, 0.0))
        overlay = _skeleton_layer(points, joint_mask, size * _SUPERSAMPLING, self.skeleton, self.joint_names)
        canvas.paste(overlay.convert("RGB"), mask=overlay.getchannel("A"))
        return canvas


@dataclass(frozen=True, eq=False)
class PoseExplainer:
    """An explainer that draws two poses, alone and over each other.

    A line connects each joint of one pose to the same joint of the other.

    Args:
        labels: the poses as they are compared. If they have three dimensions, the first two are drawn.
        renderer: draws a pose on its picture.
    """

    labels: PoseLabels
    renderer: PoseRenderer

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
        """Return both pictures, and the poses over each other."""
        side, both = size // 3, list(rows)
        poses = self.labels.joints[both].cpu().numpy()
        visible = self.labels.visible[both].all(0).cpu().numpy()
        first, second = (self.renderer(picture, row, side) for picture, row in zip(pictures, rows, strict=True))
        overlay = draw_difference(poses[:, :, :2], visible, self.renderer.skeleton, side)
        return [("query", first), ("item", second), ("query blue, item orange; a line joins the same joint", overlay)]


def draw_difference(poses: Array, shown: Array, skeleton: Sequence[tuple[int, int]], size: int) -> Image.Image:
    """Draw two poses `[2, J, 2]` in one square.

    A line connects each `shown [J]` joint of one pose to the same joint of the other.
    """
    canvas = Image.new("RGB", (size * _SUPERSAMPLING,) * 2, "white")
    pen, side = ImageDraw.Draw(canvas), size * _SUPERSAMPLING
    points = poses[:, shown].reshape(-1, 2)
    low, high = points.min(0), points.max(0)
    scale = 0.84 * side / (float((high - low).max()) or 1.0)
    scaled_poses = np.rint((poses - (low + high) / 2) * scale + side / 2)
    limb, joints = round(side / 70), np.flatnonzero(shown).tolist()
    for joint in joints:
        pen.line([tuple(pose[joint]) for pose in scaled_poses], fill=_JOINED, width=max(2, limb // 2))
    for pose, colour in zip(scaled_poses, _TWO, strict=True):
        for a, b in skeleton:
            if shown[a] and shown[b]:
                pen.line((*pose[a], *pose[b]), fill=colour, width=limb)
        for joint in joints:
            x, y = pose[joint]
            pen.ellipse((x - limb, y - limb, x + limb, y + limb), fill=colour)
    return canvas.reduce(_SUPERSAMPLING)


def draw_skeleton(
    joints: Array, shown: Array, skeleton: Limbs, names: Sequence[str], size: int, background: str
) -> Image.Image:
    """Draw a pose alone, `joints [J, 2]` as large as fits in a square of `size` pixels.

    Only joints `shown [J]` are drawn.
    """
    canvas, side = Image.new("RGB", (size, size), background), size * _SUPERSAMPLING
    low, high = joints[shown].min(0), joints[shown].max(0)
    scale = 0.84 * side / (float((high - low).max()) or 1.0)
    points = np.rint(np.where(shown[:, None], (joints - (low + high) / 2) * scale + side / 2, 0.0))
    layer = _skeleton_layer(points, shown, side, skeleton, names)
    canvas.paste(layer.convert("RGB"), mask=layer.getchannel("A"))
    return canvas


def _skeleton_layer(points: Array, shown: Array, size: int, skeleton: Limbs, names: Sequence[str]) -> Image.Image:
    """Draw the skeleton alone on a transparent square. `points [J, 2]` are in pixels of the supersampled square."""
    names = names if len(names) == len(points) else [""] * len(points)
    limb = max(1.4 * _SUPERSAMPLING, size / 64)  # widths in supersampled pixels
    rim = max(0.55 * _SUPERSAMPLING, size / 220)
    limbs = [(a, b) for a, b in skeleton if shown[a] and shown[b]]
    lines = [(_limb_colour(names[a], names[b]), tuple(points[[a, b]].ravel().tolist())) for a, b in limbs]
    dots = [(_COLOURS[_side(names[int(joint)])], points[joint].tolist()) for joint in np.flatnonzero(shown)]
    layer = Image.new("RGBA", (size, size))
    draw = ImageDraw.Draw(layer)
    # All outlines first, so that no outline covers another limb.
    for grow, outline in ((rim, _OUTLINE), (0.0, None)):
        for colour, line in lines:
            draw.line(line, fill=outline or colour, width=round(limb + 2 * grow))
        for colour, (x, y) in dots:
            radius = round(0.85 * limb + grow)
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=outline or colour)
    return layer.reduce(_SUPERSAMPLING)


def _side(name: str) -> str:
    """Return the side of a joint by its name: right, left, or empty for the middle of the body."""
    prefix = name.split("_")[0]
    return prefix if prefix in ("right", "left") else ""


def _limb_colour(a: str, b: str) -> tuple[int, int, int, int]:
    """Return the colour of the side. A limb across the middle, and the trunk from shoulder to hip, are neutral."""
    trunk = a.endswith(_TRUNK) and b.endswith(_TRUNK)
    return _COLOURS[_side(a) if _side(a) == _side(b) and not trunk else ""]
