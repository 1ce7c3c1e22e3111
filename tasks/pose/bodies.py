"""The joints of the data sets and the limbs between them. "Left" and "right" are the left and right of the person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Body(NamedTuple):
    """Names of joints, and the pairs of joints that limbs connect.

    Paired joints have the prefix "left_" or "right_".
    """

    names: Sequence[str]
    skeleton: Sequence[tuple[int, int]]


#: Limbs: legs, arms, shoulders to neck, torso, head.
LSP = Body(
    ("right_ankle", "right_knee", "right_hip", "left_hip", "left_knee", "left_ankle",
     "right_wrist", "right_elbow", "right_shoulder", "left_shoulder", "left_elbow", "left_wrist", "neck", "head_top"),
    ((0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (9, 10), (10, 11), (8, 12), (9, 12), (2, 8), (3, 9), (2, 3),
     (12, 13)),
)  # fmt: skip
#: Joints of MPII in the order of their ids, which begin at 0. Legs and arms are in the order of LSP.
MPII = Body(
    (*LSP.names[:6], "pelvis", "thorax", "upper_neck", "head_top", *LSP.names[6:12]),
    ((0, 1), (1, 2), (2, 6), (3, 6), (3, 4), (4, 5), (6, 7), (7, 8), (8, 9), (10, 11), (11, 12), (12, 7), (13, 7),
     (13, 14), (14, 15)),
)  # fmt: skip
