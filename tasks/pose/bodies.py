"""The joints of each data set: their names and what to draw a line between. Sides are the person's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .drawing import LSP_JOINTS, LSP_SKELETON


class Body(NamedTuple):
    """Names of joints ("left_" and "right_" tell the sides), and pairs of them that a limb connects."""

    names: Sequence[str]
    skeleton: Sequence[tuple[int, int]]


LSP = Body(LSP_JOINTS, LSP_SKELETON)

#: Joints of MPII by their ids, which begin at 0.
MPII = Body(
    (
        "right_ankle",
        "right_knee",
        "right_hip",
        "left_hip",
        "left_knee",
        "left_ankle",
        "pelvis",
        "thorax",
        "upper_neck",
        "head_top",
        "right_wrist",
        "right_elbow",
        "right_shoulder",
        "left_shoulder",
        "left_elbow",
        "left_wrist",
    ),
    ((0, 1), (1, 2), (2, 6), (3, 6), (3, 4), (4, 5), (6, 7), (7, 8), (8, 9), (10, 11), (11, 12), (12, 7), (13, 7),
     (13, 14), (14, 15)),
)  # fmt: skip
