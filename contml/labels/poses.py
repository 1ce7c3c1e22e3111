"""The label space of poses."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.labels import pose_distance
from contml.labels.base import LabelSpace


class PoseLabels(LabelSpace):
    """Poses: joints in the plane or in space, some of them perhaps not visible.

    The label distance is the squared Euclidean distance summed over the joints visible in both items, rescaled to all
    joints; `squared=False` takes its square root. An item needs more than half of its joints visible, so that any two
    have one in common. `kept` are the rows of the input that are in the space.

    Args:
        joints: `[N, J, 2]` or `[N, J, 3]` coordinates, in pixels as a rule.
        visible: `[N, J]`, default all; coordinates of joints that are not visible are never read.
        squared: squared Euclidean label distance, else plain Euclidean; goes with the loss's option of that name.
        normalize: move each pose to the mean of its visible joints and divide by their root mean square distance from
            it, so that neither place nor size of the person counts; the unit is then a person's scale.
        hidden: what to do with an item of at most half its joints visible: "refuse" it, or "drop" it.
        unit: what a label distance of 1 is, in words.
    """

    joints: Tensor
    visible: Tensor
    kept: Tensor

    def __init__(
        self,
        joints: Tensor | np.ndarray[Any, Any],
        visible: Tensor | np.ndarray[Any, Any] | None = None,
        squared: bool = True,
        normalize: bool = False,
        hidden: Literal["refuse", "drop"] = "refuse",
        unit: str = "",
    ) -> None:
        if hidden not in ("refuse", "drop"):
            raise InputError(f"hidden is {hidden!r}; it must be refuse or drop")
        joints = torch.tensor(np.asarray(joints)).double()
        if joints.ndim != 3:
            raise InputError(f"joints are {list(joints.shape)}; give [items, joints, 2] or [items, joints, 3]")
        seen = torch.ones(joints.shape[:2]) if visible is None else torch.tensor(np.asarray(visible))
        seen = seen.bool()
        if seen.shape != joints.shape[:2]:
            raise InputError(
                f"visible is {list(seen.shape)}, but joints are {list(joints.shape)}; give [items, joints]"
            )
        enough = seen.sum(1) * 2 > joints.shape[1]
        if hidden == "refuse" and not bool(enough.all()):
            row = int((~enough).nonzero()[0, 0])
            raise InputError(
                f"item {row} has {int(seen[row].sum())} of {joints.shape[1]} joints visible "
                f"({int((~enough).sum())} such items); a pose needs more than half: leave these out, or set hidden=drop"
            )
        self.kept = enough.nonzero()[:, 0]
        if len(self.kept) == 0:
            raise InputError(f"no item has more than half of its {joints.shape[1]} joints visible")
        bad = (~joints.isfinite().all(2) & seen).any(1) & enough
        if bool(bad.any()):
            raise InputError(
                f"a visible joint of item {int(bad.nonzero()[0, 0])} is not finite; labels are finite numbers"
            )
        seen = seen[self.kept]
        joints = torch.where(seen[:, :, None], joints[self.kept], 0)
        if normalize:
            joints = torch.where(seen[:, :, None], _person_frame(joints, seen, self.kept), 0)
        super().__init__(joints=joints, visible=seen, kept=self.kept)
        self.squared = squared
        scale = "person scale" if normalize else "pixel"
        self.unit = unit or (
            f"squared {scale}s, summed over {joints.shape[1]} joints"
            if squared
            else f"{scale}s, over {joints.shape[1]} joints"
        )

    def distances(self, x: Self, y: Self) -> Tensor:
        """Pose distances `[X, Y]`."""
        return pose_distance(x.joints, y.joints, x.visible, y.visible, squared=self.squared)

    def _contents(self) -> str:
        return f"{self.joints.shape[1]} joints; unit: {self.unit}"


def _person_frame(joints: Tensor, visible: Tensor, names: Tensor) -> Tensor:
    seen = visible[:, :, None].double()
    count = seen.sum(1, keepdim=True)
    centred = joints - (joints * seen).sum(1, keepdim=True) / count
    scale = ((centred.square() * seen).sum((1, 2), keepdim=True) / count).sqrt()
    # Rounding leaves a little size to joints that are all in one place.
    size = 1e-9 * joints.abs().amax((1, 2), keepdim=True)
    if not bool((scale > size).all()):
        row = int(names[int((scale <= size)[:, 0, 0].nonzero()[0, 0])])
        raise InputError(f"all visible joints of item {row} are in one place; a pose without size cannot be normalised")
    return centred / scale
