"""Label spaces: the packed labels of a data set, and views of one space as another.

A label space of one's own is a `PackedLabels` with one method, `distances`.
"""

from contml.labels.base import PackedLabels, SpaceView
from contml.labels.poses import PoseLabels
from contml.labels.spaces import ClassLabels, PrecomputedLabels, VectorLabels
from contml.labels.views import NearestLabels, ThresholdLabels

#: Label spaces that a program builds from its own data.
LABELS = {"classes": ClassLabels, "vectors": VectorLabels, "poses": PoseLabels, "precomputed": PrecomputedLabels}

#: Views of a space as another: how class losses train on continuous labels, and the only place of thresholds.
VIEWS = {"threshold": ThresholdLabels, "nearest": NearestLabels}

__all__ = [
    "LABELS",
    "VIEWS",
    "ClassLabels",
    "NearestLabels",
    "PackedLabels",
    "PoseLabels",
    "PrecomputedLabels",
    "SpaceView",
    "ThresholdLabels",
    "VectorLabels",
]
