"""Label spaces: the packed labels of a data set, and views of one space as another.

A label space of one's own is a `PackedLabels` with one method, `distances`.
"""

from contml.labels.base import PackedLabels, SpaceView
from contml.labels.captions import CaptionLabels
from contml.labels.poses import PoseLabels
from contml.labels.regions import RegionLabels
from contml.labels.scales import OrdinalLabels, PlaceLabels
from contml.labels.sequences import SequenceLabels
from contml.labels.sets import MultiLabels, TagLabels
from contml.labels.spaces import ClassLabels, PrecomputedLabels, VectorLabels
from contml.labels.views import NearestLabels, ThresholdLabels
from contml.labels.weighted import WeightedLabels

#: Label spaces that a program builds from its own data.
LABELS = {
    "classes": ClassLabels,
    "vectors": VectorLabels,
    "poses": PoseLabels,
    "regions": RegionLabels,
    "captions": CaptionLabels,
    "tags": TagLabels,
    "multi": MultiLabels,
    "ordinal": OrdinalLabels,
    "places": PlaceLabels,
    "sequences": SequenceLabels,
    "weighted": WeightedLabels,
    "precomputed": PrecomputedLabels,
}

#: Views of a space as another: how class losses train on continuous labels, and the only place of thresholds.
VIEWS = {"threshold": ThresholdLabels, "nearest": NearestLabels}

__all__ = [
    "LABELS",
    "VIEWS",
    "CaptionLabels",
    "ClassLabels",
    "MultiLabels",
    "NearestLabels",
    "OrdinalLabels",
    "PackedLabels",
    "PlaceLabels",
    "PoseLabels",
    "PrecomputedLabels",
    "RegionLabels",
    "SequenceLabels",
    "SpaceView",
    "TagLabels",
    "ThresholdLabels",
    "VectorLabels",
    "WeightedLabels",
]
