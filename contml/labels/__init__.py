"""Label spaces: packed labels and the label distances between any two of them, graded or binarized to 0 / 1.

A new label space is a subclass of `LabelSpace` with one method, `distances`.
"""

from contml.labels.base import LabelSpace
from contml.labels.binarized import NearestLabels, ThresholdLabels
from contml.labels.caption_vectors import CaptionVectorLabels
from contml.labels.captions import CaptionLabels, idf_weights
from contml.labels.classes import ClassLabels
from contml.labels.functions import FunctionLabels
from contml.labels.judged import JudgedItems, PairLabels, RankingLabels, TripletLabels
from contml.labels.matrices import MatrixLabels
from contml.labels.neighbours import nearest
from contml.labels.poses import PoseLabels
from contml.labels.scales import CircularLabels, DateLabels, GeoLabels, OrdinalLabels
from contml.labels.segmentation import SegmentationLabels
from contml.labels.sets import MultiHotLabels, SequenceLabels, TagLabels
from contml.labels.teachers import TeacherLabels
from contml.labels.vectors import NumberLabels, VectorLabels
from contml.labels.weighted import WeightedLabels
from contml.labels.word_vectors import load_word_vectors

#: Label spaces that a program builds from its data.
LABELS = {
    "classes": ClassLabels,
    "numbers": NumberLabels,
    "vectors": VectorLabels,
    "teacher": TeacherLabels,
    "dates": DateLabels,
    "poses": PoseLabels,
    "segmentation": SegmentationLabels,
    "captions": CaptionLabels,
    "caption_vectors": CaptionVectorLabels,
    "tags": TagLabels,
    "multi_hot": MultiHotLabels,
    "ordinal": OrdinalLabels,
    "geo": GeoLabels,
    "circular": CircularLabels,
    "sequences": SequenceLabels,
    "weighted": WeightedLabels,
    "matrix": MatrixLabels,
    "pairs": PairLabels,
    "function": FunctionLabels,
}

#: Label spaces binarized to 0 / 1, so that pair losses can train on graded labels. No other code thresholds labels.
BINARY_LABELS = {"threshold": ThresholdLabels, "nearest": NearestLabels}

__all__ = [
    "BINARY_LABELS", "LABELS", "CaptionLabels", "CaptionVectorLabels", "CircularLabels", "ClassLabels", "DateLabels",
    "FunctionLabels", "GeoLabels", "JudgedItems", "LabelSpace", "MatrixLabels", "MultiHotLabels", "NearestLabels",
    "NumberLabels", "OrdinalLabels", "PairLabels", "PoseLabels", "RankingLabels", "SegmentationLabels",
    "SequenceLabels", "TagLabels", "TeacherLabels", "ThresholdLabels", "TripletLabels", "VectorLabels",
    "WeightedLabels", "idf_weights", "load_word_vectors", "nearest",
]  # fmt: skip
