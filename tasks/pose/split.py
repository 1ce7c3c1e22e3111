"""Images of people with their poses: what every source of pose data hands out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from contml import InputError
from contml.contracts import ImageItem
from contml.labels import PoseLabels

from .crops import Crop
from .drawing import draw_pose


class PoseSplit:
    """One split of a pose data set; items without enough visible joints are refused, or dropped and counted.

    Args:
        images: one an item: files, pixels, or people to be cut out of their images.
        names: one an item.
        joints: `[N, J, 2]` in pixels of the images.
        visible: `[N, J]`.
        queries: how many of the first items query the others; 0: every item queries all others.
        joint_names: names of the joints; "right_..." and "left_..." are drawn in colours of their own.
        skeleton: pairs of joints that a limb connects.
        squared: as in `PoseLabels`.
        normalize: as in `PoseLabels`.
        hidden: as in `PoseLabels`.
        unit: as in `PoseLabels`.
    """

    def __init__(
        self,
        images: Sequence[ImageItem | Crop],
        names: Sequence[str],
        joints: np.ndarray[Any, Any],
        visible: np.ndarray[Any, Any] | None,
        queries: int,
        *,
        joint_names: Sequence[str],
        skeleton: Sequence[tuple[int, int]],
        squared: bool,
        normalize: bool,
        hidden: Literal["refuse", "drop"],
        unit: str = "",
    ) -> None:
        if hidden == "refuse" and visible is not None:
            _refuse_hidden(np.asarray(visible, dtype=bool), names)
        self.labels = PoseLabels(joints, visible, squared=squared, normalize=normalize, hidden=hidden, unit=unit)
        kept: list[int] = self.labels.kept.tolist()
        self.dropped = len(names) - len(kept)
        self.images, self.names = [images[row] for row in kept], [names[row] for row in kept]
        self.joints = np.asarray(joints)[kept]
        self.visible = None if visible is None else np.asarray(visible, dtype=bool)[kept]
        self.joint_names, self.skeleton = joint_names, skeleton
        querying = sum(row < queries for row in kept)
        self.queries: Tensor | None = torch.arange(querying) if queries else None
        self.gallery: Tensor | None = torch.arange(querying, len(kept)) if queries else None

    def __len__(self) -> int:
        return len(self.names)

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        item = self.images[row]
        return item.cut() if isinstance(item, Crop) else item

    def source(self, row: int) -> tuple[ImageItem, str]:
        """What a row is cut from and how, "" the whole: an image is told from others by it, and nothing is decoded."""
        item = self.images[row]
        return (item.file, item.how) if isinstance(item, Crop) else (item, "")

    def name(self, row: int) -> str:
        """The file of a row, or its number in the synthetic data."""
        return self.names[row]

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, with its skeleton drawn on it."""
        visible = None if self.visible is None else self.visible[row]
        picture = _picture(self.image(row))
        return draw_pose(picture, self.joints[row], visible, size, self.skeleton, self.joint_names)


def _picture(item: ImageItem) -> Image.Image:
    if isinstance(item, Path):
        with Image.open(item) as file:
            return ImageOps.exif_transpose(file).convert("RGB")
    return (Image.fromarray(item) if isinstance(item, np.ndarray) else item).convert("RGB")


def _refuse_hidden(visible: np.ndarray[Any, np.dtype[np.bool_]], names: Sequence[str]) -> None:
    few = visible.sum(1) * 2 <= visible.shape[1]
    if few.any():
        row = int(few.argmax())
        raise InputError(
            f"{names[row]}: {int(visible[row].sum())} of {visible.shape[1]} joints are visible "
            f"({int(few.sum())} such items); a pose needs more than half: leave these out, or set task.hidden=drop"
        )
