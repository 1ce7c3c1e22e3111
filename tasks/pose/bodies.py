"""The joints of each data set and the limbs between them. Left and right are those of the person in the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


class Body(NamedTuple):
    """Names of joints, with "left_" or "right_" before those of one side, and pairs of joints that a limb connects."""

    names: Sequence[str]
    skeleton: Sequence[tuple[int, int]]


LSP = Body(LSP_JOINTS, LSP_SKELETON)

#: Joints of MPII in the order of their ids, which begin at 0.
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
