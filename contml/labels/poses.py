"""The label space of poses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.text import number
from contml._support.validation import check_ranges
from contml.contracts import Measure, Part
from contml.distances.labels import keypoint_dissimilarity, pose_distance
from contml.labels.items import ItemLabels

#: Number of joints that `PoseLabels.parts` lists, farthest apart first.
_LISTED = 8


class PoseLabels(ItemLabels):
    """Poses: joints in 2D or 3D, some of which may not be visible.

    The label distance is the Euclidean distance of two poses: the root of the sum of squared distances of their common
    joints. Common joints are visible in both items. The sum is multiplied by (number of joints) / (number of common
    joints). With `saturation`, the label distance is 1 minus the mean of exp(-d^2 / (2 saturation^2)) over the common
    joints instead, as in the object keypoint similarity of COCO: joints that are far apart are as different as joints
    farther apart. An item needs more than half of its joints visible, so that any two items have one in common. `kept`
    are the rows of the input that are in the space.

    Args:
        joints: `[N, J, dim]` coordinates, usually in pixels.
        visible: `[N, J]`: 0, or a whole number above 0 for joints that are visible; default all are. Coordinates of
            joints that are not visible are not used.
        normalize: move each pose to the mean of its visible joints and divide by their root mean square distance from
            the mean. Position and size of the person then do not count, and the unit is a person's scale.
        hidden: what to do with an item with half of its joints or fewer visible: "refuse" it, or "drop" it.
        unit: the unit of the coordinates, in which pages print label distances, per joint; with `normalize` it is a
            person's scale.
        skeleton: pairs of joints that a limb connects, by which pages draw a pose.
        dim: 2 for places in an image, 3 for places in space.
        weights: the weight of each joint, above 0, or one number for all: a joint of weight 2 counts as two joints.
        saturation: a distance for each joint, above 0, or one number for all. It is in the unit of the coordinates, and
            in person scales with `normalize`.
        mirror: pairs of joints that change places in a mirror, such as both wrists. The label distance is then the
            smaller one of the distances to a pose and to its mirror image. It needs `normalize`.
    """

    title = "pose"
    item_arguments: ClassVar[Mapping[str, Any]] = {"joints": Tensor, "visible": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {
        "normalize": bool, "skeleton": list, "dim": int, "weights": list, "saturation": list | None, "mirror": list,
    }  # fmt: skip
    typed_as = "json"
    mirrored = False
    joints: Tensor
    visible: Tensor
    kept: Tensor

    @check_ranges
    def __init__(
        self,
        joints: Numbers,
        visible: Numbers | None = None,
        normalize: bool = False,
        hidden: Literal["refuse", "drop"] = "refuse",
        unit: str = "pixels",
        skeleton: Sequence[tuple[int, int]] = (),
        dim: Literal[2, 3] = 2,
        weights: float | Sequence[float] = 1.0,
        saturation: float | Sequence[float] | None = None,
        mirror: Sequence[tuple[int, int]] = (),
    ) -> None:
        allowed = f"[items, joints, {dim}]"
        joints = as_numbers("joints", joints, allowed).double()
        if joints.ndim != 3 or joints.shape[2] != dim or joints.numel() == 0:
            hint = "give the third number as visible=joints[..., 2], or set dim=3 for places in space"
            is_3d = joints.ndim == 3 and joints.shape[2] == 3
            raise InputError("joints", str(list(joints.shape)), f"must be {allowed}", hint if is_3d else "")
        allowed = f"[items, joints], {list(joints.shape[:2])}"
        flags = torch.ones(joints.shape[:2]) if visible is None else as_numbers("visible", visible, allowed)
        if flags.shape != joints.shape[:2]:
            raise InputError("visible", str(list(flags.shape)), f"must be {allowed}")
        flags = flags.to(joints.device)
        # Flags of COCO are 0, 1 and 2. Confidences of a network are not flags: nearly all confidences are above 0.
        if len(invalid := (~((flags >= 0) & (flags % 1 == 0))).nonzero()):
            item, joint = invalid[0].tolist()
            subject, got = f"visible of item {item}, joint {joint}", f"{flags[item, joint].item():g}"
            raise InputError(subject, got, "must be 0, or a whole number above 0", "compare confidences with a limit")
        mask = flags.bool()
        joint_count = joints.shape[1]
        enough = mask.sum(1) * 2 > joint_count
        if hidden == "refuse" and not bool(enough.all()):
            row, num_others = int((~enough).nonzero()[0, 0]), int((~enough).sum()) - 1
            got = f"{int(mask[row].sum())} of {joint_count} joints visible, and {num_others} more such items"
            raise InputError(f"item {row}", got, "must be more than half", "omit such items, or set hidden=drop")
        self.kept = enough.nonzero()[:, 0]
        if len(self.kept) == 0:
            raise InputError("visible", "no item with enough joints", f"must be more than half of {joint_count} joints")
        invalid = (~joints.isfinite().all(2) & mask).any(1) & enough
        if bool(invalid.any()):
            subject = f"item {int(invalid.nonzero()[0, 0])}"
            raise InputError(subject, "a visible joint is not finite", "must be finite numbers")
        mask = mask[self.kept]
        joints = torch.where(mask[:, :, None], joints[self.kept], 0)
        if normalize:
            joints = torch.where(mask[:, :, None], _normalized(joints, mask, self.kept), 0)
        super().__init__(joints=joints, visible=mask, kept=self.kept)
        self._form = {"normalize": normalize, "skeleton": _pairs("skeleton", skeleton, joint_count), "dim": dim}
        self.saturation = None if saturation is None else _of_joints("saturation", saturation, joint_count)
        self.weights, self.mirror = _of_joints("weights", weights, joint_count), _pairs("mirror", mirror, joint_count)
        self.mirrored = bool(self.mirror)
        self._check_mirror(normalize)
        self.unit = f"{'person scales' if normalize else unit}, over {joint_count} joints"
        joint_unit = f"{'scales' if normalize else 'px' if unit == 'pixels' else unit}/joint"  # short: under a picture
        self.measure = Measure(joint_unit, sum(self.weights) ** -0.5)
        if saturation is not None:
            self.unit, self.measure, self.largest = "1 - keypoint similarity", Measure(), 1.0

    def _check_mirror(self, normalize: bool) -> None:
        swapped = [joint for pair in self.mirror for joint in pair]
        differ = any(each and each[a] != each[b] for a, b in self.mirror for each in (self.weights, self.saturation))
        if differ or len(set(swapped)) < len(swapped):
            allowed = "must be pairs of joints of the same weight and saturation, and name each joint once"
            raise InputError("mirror", str(self.mirror), allowed)
        if self.mirror and not normalize:
            raise InputError("mirror", str(self.mirror), "needs normalize=True, since a mirror moves the person")

    @property
    def skeleton(self) -> Sequence[tuple[int, int]]:
        """Pairs of joints that a limb connects."""
        return [(a, b) for a, b in self._form["skeleton"]]

    @property
    def normalize(self) -> bool:
        """True if poses are moved to their mean and divided by their scale."""
        return bool(self._form["normalize"])

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute pose distances `[X, Y]`."""
        found = self._distances(x, y.joints, y.visible)
        return torch.minimum(found, self._distances(x, *y._in_mirror())) if self.mirror else found

    def _distances(self, x: Self, joints: Tensor, visible: Tensor) -> Tensor:
        weights = torch.tensor(self.weights, dtype=torch.float64, device=joints.device)
        if self.saturation is None:
            return pose_distance(x.joints, joints, x.visible, visible, weights)
        scale = torch.tensor(self.saturation, dtype=torch.float64, device=joints.device)[:, None]
        return keypoint_dissimilarity(x.joints / scale, joints / scale, x.visible, visible, weights)

    def _in_mirror(self) -> tuple[Tensor, Tensor]:
        """Return the joints `[N, J, dim]` and flags `[N, J]` of the mirror images."""
        order, pairs = torch.arange(self.joints.shape[1]), torch.tensor(self.mirror)
        order[pairs] = pairs.flip(1)
        joints = self.joints[:, order]  # a copy
        joints[..., 0] *= -1
        return joints, self.visible[:, order]

    def _item(self, label: Any) -> Self:
        """Return a space of one pose, in the coordinates of the data.

        Args:
            label: `[J, 2]` or `[J, 3]`, an unknown joint as None; or a mapping with "joints", and perhaps "visible"
                `[J]`; or a file of people, `{"people": [{"joints": ...}]}`, with one person.
        """
        people = label.get("people", [label]) if isinstance(label, Mapping) else [{"joints": label}]
        if not isinstance(people, Sequence) or len(people) != 1 or not isinstance(people[0], Mapping):
            raise InputError(self.title, "not one person", "must be {joints: [[x, y], ...]} of one person")
        joints, visible = people[0].get("joints"), people[0].get("visible")
        count, axes = self.joints.shape[1:]
        if isinstance(joints, list) and len(joints) == count:
            known = [joint is not None and joint != [None] * axes for joint in joints]
            joints = [joint if has else [0.0] * axes for joint, has in zip(joints, known, strict=True)]
            visible = known if visible is None else visible
        given = as_numbers(self.title, [] if joints is None else joints, f"numbers [{count}, {axes}]")
        if given.shape != (count, axes):
            raise InputError(self.title, f"joints {list(given.shape)}", f"must be [{count}, {axes}] as in training")
        flags = torch.ones(count) if visible is None else as_numbers("visible", visible, f"0 or 1 [{count}]")
        return self._made({"joints": given[None], "visible": flags[None], **self._options()})

    def plain(self, row: int) -> Any:
        """Return the joints of an item as they are compared. A joint that is not visible is None."""
        pairs = zip(self.joints[row].tolist(), self.visible[row].tolist(), strict=True)
        return [joint if is_visible else None for joint, is_visible in pairs]

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the joints that are visible in both items: their coordinates and distance, farthest apart first.

        The second item is its mirror image, if the mirror image is nearer.
        """
        first, second = self[[a]], self[[b]]
        joints, visible = second.joints, second.visible
        if self.mirror and bool(self.distances(first, second) < self._distances(first, joints, visible)):
            joints, visible = second._in_mirror()
        distances = (first.joints[0] - joints[0]).norm(dim=1)
        distances = torch.where(first.visible[0] & visible[0], distances, -1.0)
        unit, parts = self.measure.unit.removesuffix("/joint"), []
        for n in distances.argsort(descending=True, stable=True)[:_LISTED].tolist():
            if distances[n] >= 0:
                x, y = (", ".join(map(number, each[0, n].tolist())) for each in (first.joints, joints))
                name = self._part_name(n, f"joint {n + 1}").replace("_", " ")
                parts.append(Part(name, x, y, f"{number(float(distances[n]))} {unit}"))
        return parts

    def _contents(self) -> str:
        return f"{self.joints.shape[1]} joints in {self.joints.shape[2]}-D; unit: {self.unit}"


def _pairs(name: str, pairs: Sequence[tuple[int, int]], joint_count: int) -> list[list[int]]:
    """Return pairs of joints as lists."""
    allowed = f"must be pairs of joints from 0 to {joint_count - 1}"
    try:
        lists = [[index(joint) for joint in pair] for pair in pairs]
    except TypeError:
        raise InputError(name, f"{pairs!r:.60}", allowed) from None
    for pair in lists:
        if len(pair) != 2 or not all(0 <= joint < joint_count for joint in pair):
            raise InputError(name, f"joints {tuple(pair)}", allowed)
    return lists


def _of_joints(name: str, values: float | Sequence[float], joint_count: int) -> list[float]:
    """Return a number for each joint, from one number or from a list of them."""
    found = as_numbers(name, values, f"a number, or numbers [{joint_count}]").double()
    if found.shape not in ((), (joint_count,)) or not bool(((found > 0) & found.isfinite()).all()):
        raise InputError(name, f"{values}", f"must be a number, or {joint_count} numbers, above 0 and finite")
    return found.expand(joint_count).tolist()


def _normalized(joints: Tensor, visible: Tensor, rows: Tensor) -> Tensor:
    mask = visible[:, :, None].double()
    count = mask.sum(1, keepdim=True)
    centred = joints - (joints * mask).sum(1, keepdim=True) / count
    scale = ((centred.square() * mask).sum((1, 2), keepdim=True) / count).sqrt()
    # Rounding gives joints that are all in one place a scale slightly above 0.
    smallest_scale = 1e-9 * joints.abs().amax((1, 2), keepdim=True)
    if not bool((scale > smallest_scale).all()):
        row = int(rows[int((scale <= smallest_scale)[:, 0, 0].nonzero()[0, 0])])
        raise InputError(f"item {row}", "all visible joints are in one place", "must differ, to be normalized")
    return centred / scale
