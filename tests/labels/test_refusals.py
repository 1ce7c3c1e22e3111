"""What label spaces refuse, in one line each: the subject, what it has, what it must be, and a hint."""

import math
from datetime import UTC, date, datetime
from functools import partial

import numpy as np
import pytest
import torch
from support.label_spaces import judged
from support.refusals import refused

from contml.distances import segmentation_distance
from contml.labels import (
    CaptionLabels,
    CaptionVectorLabels,
    CircularLabels,
    ClassLabels,
    DateLabels,
    GeoLabels,
    MatrixLabels,
    MultiHotLabels,
    NearestLabels,
    NumberLabels,
    OrdinalLabels,
    PairLabels,
    PoseLabels,
    RankingLabels,
    SegmentationLabels,
    SequenceLabels,
    TagLabels,
    TeacherLabels,
    ThresholdLabels,
    TripletLabels,
    VectorLabels,
    WeightedLabels,
)

NAN = float("nan")
DAY = datetime(2024, 1, 31)
PLACES = [[0, 0], [0, 1]]
MAPS = np.zeros((3, 4, 6), dtype=int)
MAPS[2, 3, 1] = 7
JOINTS = np.arange(24.0).reshape(3, 4, 2) ** 1.5
NORMALIZED = partial(PoseLabels, JOINTS, normalize=True)
POSES = PoseLabels(np.random.default_rng(0).normal(size=(3, 5, 2)))
YEARS, SQUARE = NumberLabels([0.0, 1.0, 3.0], unit="years"), MatrixLabels(np.zeros((2, 2)))
WORDS = {"dog": [1.0, 0.0], "cat": [0.0, 1.0], "red": [1.0, 1.0]}
CAPTIONS = [["a dog runs", "Red dog"], ["cat"]]
#: Two anchors, 3 and 1, and four items.
OF_ANCHORS = torch.tensor([[1.0, 2, 3, 0], [4, 0, 5, 6]])

REFUSED = [
    # classes
    (lambda: ClassLabels([1.0, NAN]), "class of item 1", "nan"),
    (lambda: ClassLabels([]), "classes", "no labels"),
    (lambda: ClassLabels("aabb"), "classes", "'aabb'"),
    (lambda: ClassLabels([[0, 1, 0]]), "class of item 0", "[0, 1, 0]", "", "MultiHotLabels"),
    # numbers and vectors
    (lambda: NumberLabels([date(2024, 1, 31)]), "values", "a date (2024-01-31)", "", "DateLabels"),
    (lambda: NumberLabels(torch.zeros(3, 1)), "values", "[3, 1]", "numbers [items]", "values[:, 0]"),
    (lambda: VectorLabels([0, 3, 5]), "values", "[3]", "numbers [items, D]", "NumberLabels"),
    (lambda: VectorLabels([[1.0, 2.0], [3.0]]), "values of item 1", "a list of 1", "a list of 2"),
    (lambda: VectorLabels([[1.0, 2.0], [3.0, "x"]]), "values", "text (x)"),
    (lambda: VectorLabels([[1.0]], scales=[0.0]), "scales", "[0.0]"),
    (lambda: TeacherLabels([1.0, 2.0]), "values", "[2]", "must be embeddings [items, D]"),
    (lambda: TeacherLabels([[1.0, 2.0], [0.0, 0.0]]), "values", "the embedding of item 1 is 0"),
    # poses and label maps
    (lambda: PoseLabels(np.zeros((2, 3, 4))), "joints", "[2, 3, 4]", "[items, joints, 2]"),
    (lambda: PoseLabels(np.zeros((6, 10))), "joints", "[6, 10]", "[items, joints, 2]"),
    (lambda: PoseLabels(np.zeros((6, 5, 2)), np.ones((5, 6))), "visible", "[5, 6]", "[6, 5]"),
    (lambda: PoseLabels(JOINTS, [[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4]), "item 1", "2 of 4", "half", "hidden=drop"),
    (lambda: PoseLabels(JOINTS, skeleton=[(0, 1), (0, 4)]), "skeleton", "joints (0, 4)", "pairs of joints from 0 to 3"),
    (lambda: PoseLabels(JOINTS, skeleton=[(0, 1), (-1, 2)]), "skeleton", "joints (-1, 2)", "pairs of joints from 0"),
    (lambda: PoseLabels(JOINTS, skeleton=[(0, 1), (1, 2, 3)]), "skeleton", "joints (1, 2, 3)", "pairs of joints"),
    (lambda: NORMALIZED(mirror=[(0, 4)]), "mirror", "joints (0, 4)", "pairs of joints from 0 to 3"),
    (lambda: NORMALIZED(mirror=[(0, 1), (1, 2)]), "mirror", "[[0, 1], [1, 2]]", "each joint once"),
    (lambda: NORMALIZED(mirror=[("left", "right")]), "mirror", "[('left', 'right')]", "pairs of joints from 0 to 3"),
    (lambda: NORMALIZED(skeleton=5), "skeleton", "5", "pairs of joints from 0 to 3"),
    (lambda: NORMALIZED(mirror=[(1, 1)]), "mirror", "[[1, 1]]", "each joint once"),
    (lambda: NORMALIZED(mirror=[(0, 1)], weights=[1, 2, 1, 1]), "mirror", "[[0, 1]]", "same weight and saturation"),
    (lambda: PoseLabels(JOINTS, mirror=[(0, 1)]), "mirror", "[[0, 1]]", "needs normalize=True"),
    (lambda: PoseLabels(JOINTS, weights=[1, 2, 3]), "weights", "[1, 2, 3]", "or 4 numbers, above 0 and finite"),
    (lambda: PoseLabels(JOINTS, weights=[1, 2, 3, 0]), "weights", "[1, 2, 3, 0]", "above 0 and finite"),
    (lambda: PoseLabels(JOINTS, saturation=float("inf")), "saturation", "inf", "above 0 and finite"),
    (lambda: PoseLabels(JOINTS, np.full((3, 4), 0.3)), "visible of item 0, joint 0", "0.3", "", "compare confidences"),
    (lambda: PoseLabels(np.ones((4, 17, 3))), "joints", "[4, 17, 3]", "[items, joints, 2]", "visible=joints[..., 2]"),
    (lambda: PoseLabels(np.ones((4, 17, 2)), dim=3), "joints", "[4, 17, 2]", "[items, joints, 3]"),
    (lambda: SegmentationLabels([[[0]], [["a"]]], 2), "label map 1", "text (a)"),
    (lambda: SegmentationLabels([[[0]]], 2.5), "classes", "2.5", "whole number"),
    (lambda: SegmentationLabels(MAPS[:0], 2), "maps", "no label maps"),
    (lambda: SegmentationLabels([MAPS[0], np.zeros((5, 6), int)], 2), "label map 1", "[5, 6]", "[4, 6]"),
    (lambda: SegmentationLabels(MAPS / 2, 2), "label map 0", "float64", "integers"),
    (lambda: SegmentationLabels(MAPS[0], 2), "label map 0", "[6], packed at 0 x 0", "16777216 pixels"),
    (lambda: SegmentationLabels(MAPS, 2, ignore=255), "label map 2", "7 at row 3, column 1", "0 to 1, or 255"),
    (lambda: SegmentationLabels(0 * MAPS + [[[0]], [[255]], [[255]]], 2, ignore=255), "label map 1"),  # and 2
    (lambda: segmentation_distance(0 * MAPS, 0 * MAPS[:, :, 1:], 2), "y", "[4, 5]", "[4, 6]"),
    # captions
    (lambda: CaptionLabels([["a dog"], ["red", None]], WORDS), "captions of image 1", "None", "strings"),
    (lambda: CaptionVectorLabels(CAPTIONS, "wmd"), "encoder", "wmd", "tfidf, mean_vector"),
    (lambda: CaptionVectorLabels(CAPTIONS, lambda c: np.eye(3)[1:]), "encoder", "returned [2, 3]", "[3, d]"),
    (lambda: CaptionVectorLabels(CAPTIONS, lambda c: np.eye(3) * np.nan), "encoder", "not finite"),
    *(
        (lambda w=w: CaptionVectorLabels(CAPTIONS, weights={"dog": w}), "weight of the word 'dog'", "", "above 0")
        for w in (0, NAN, True, "2")
    ),
    (lambda: CaptionVectorLabels(CAPTIONS, sets="max"), "sets", "max", "mean, minima"),
    (lambda: CaptionVectorLabels(CAPTIONS, "mean_vector", 5), "vectors", "", "", "KeyedVectors"),
    # sets and sequences
    (lambda: TagLabels([["dog"], "dog"]), "tags of item 1", "'dog'"),
    (lambda: TagLabels([3]), "tags of item 0", "3"),
    (lambda: TagLabels([[["dog"]]]), "tags of item 0", "unhashable"),
    (lambda: TagLabels([["a"], ["b", NAN]]), "tags of item 1", "nan", "", "omit"),
    (lambda: MultiHotLabels([[0, 1], [0, 0], [1, 2]]), "label 1 of item 2", "2", "0 or 1"),
    (lambda: MultiHotLabels([[NAN, 1]]), "label 0 of item 0", "nan", "0 or 1"),
    (lambda: MultiHotLabels([0, 1]), "labels", "[2]", "[items, labels]"),
    (lambda: MultiHotLabels([[0, 1]], "cosine"), "distance", "cosine", "jaccard, hamming"),
    (lambda: MultiHotLabels([[0, 1], [0]]), "labels of item 1", "a list of 1", "a list of 2"),
    (lambda: SequenceLabels(["abc", 7]), "tokens of item 1", "7"),
    (lambda: SequenceLabels([[["do"]]]), "tokens of item 0", "unhashable"),
    (lambda: SequenceLabels([["a"], {"b"}]), "tokens of item 1", "a set"),
    # levels
    (lambda: OrdinalLabels(["ok", "bad"], ["ok", "good"]), "item 1", "'bad'", "['ok', 'good']"),
    (lambda: OrdinalLabels([3, 3]), "levels", "[3]", "at least 2"),
    (lambda: OrdinalLabels([1, 2], [1, 2, 1]), "levels", "[1, 2, 1]", "at least 2"),
    (lambda: OrdinalLabels([1.0, NAN, 2.0]), "label of item 1", "nan", "level"),
    (lambda: OrdinalLabels([1.0, NAN, 2.0], [1.0, 2.0]), "label of item 1", "nan", "level"),
    # sorted, "large" would be the lowest level
    (lambda: OrdinalLabels(["small", "large", "medium"]), "labels", "'small' has no order", "", "levels"),
    (lambda: OrdinalLabels([1, "a"]), "labels", "'a' has no order", "", "levels"),
    # places, circles and dates
    (lambda: GeoLabels([[0, 0], [91, 0]]), "latitude of item 1", "91", "-90 to 90"),
    (lambda: GeoLabels([[0, -181]]), "longitude of item 0", "-181", "-180 to 180"),
    (lambda: GeoLabels([[10.0, 190.0]]), "longitude of item 0", "190", "", "subtract 360"),
    (lambda: GeoLabels([[0, 0, 0]]), "places", "[1, 3]", "[items, 2]"),
    (lambda: GeoLabels([[10.0, 20.0, 0.0], [10.0, 20.0, 350.0]]), "places", "[2, 3]", "", "headings"),
    (lambda: GeoLabels(PLACES, [0, 0, 0]), "headings", "[3]", "[2], one per place"),
    (lambda: GeoLabels(PLACES, [0, math.inf]), "headings of item 1", "not finite"),
    (lambda: GeoLabels(PLACES, [0, 1], 0), "heading_weight", "0", "above 0"),
    (lambda: GeoLabels(PLACES, [0, 1], 1, "miles"), "unit", "miles", "km, m"),
    (lambda: CircularLabels([[1.0, 2.0]]), "values", "[1, 2]"),
    (lambda: CircularLabels([]), "values", "no numbers"),
    (lambda: CircularLabels([1.0], 0.0), "period", "0"),
    (lambda: CircularLabels([1.0], 24, "hours", -1.0), "scale", "-1"),
    (lambda: DateLabels([[DAY]]), "date of item 0", "[datetime.date"),
    (lambda: DateLabels(["2024-01-31", None]), "date of item 1", "missing (None)"),
    (lambda: DateLabels(np.array(["2024-01-31", "NaT"], "M8[D]")), "date of item 1", "missing (NaT)"),
    (lambda: DateLabels(["31.01.2024"]), "date of item 0", "31.01.2024", "year first", "to_datetime"),
    (lambda: DateLabels(["2024-02-30"]), "date of item 0", "2024-02-30"),
    (lambda: DateLabels([20240131]), "date of item 0", "20240131", "", "NumberLabels"),
    (lambda: DateLabels(np.array([2**40], "M8[D]")), "date of item 0", "year", "1 to 9999"),
    (lambda: DateLabels([DAY.replace(tzinfo=UTC), DAY]), "date of item 1", "without a time zone", "", "or none"),
    *((lambda s=s: DateLabels([DAY], scale=s), "scale", str(s), "above 0") for s in (0, -1, NAN, "years", None)),
    # one space as another, and sums
    *((lambda t=t: ThresholdLabels(YEARS, t), "threshold", str(t), "above 0") for t in (0, -1.0, NAN)),
    (lambda: NearestLabels(YEARS, 3), "k", "3", "1 to 2"),
    (lambda: NearestLabels(YEARS, 0), "k", "0", "at least 1"),
    (lambda: NearestLabels(YEARS), "k", "30", "1 to 2"),
    (lambda: YEARS.nearest(1.5), "k", "1.5"),
    (lambda: WeightedLabels({}), "spaces", "no label spaces"),
    (lambda: WeightedLabels([YEARS]), "spaces", "a list", "{space: weight}"),
    (lambda: WeightedLabels({YEARS: 1, OrdinalLabels([1, 2, 3, 4]): 1}), "spaces", "[3, 4] items"),
    (lambda: WeightedLabels({YEARS: None}), "weight of NumberLabels", "None"),
    *((lambda w=w: WeightedLabels({YEARS: w}), "weight of Number", str(w), "above 0") for w in (0, -1.0, NAN)),
    (lambda: WeightedLabels({YEARS: math.inf}), "weight of NumberLabels", "inf", "above 0"),
    # matrices
    (lambda: MatrixLabels(np.zeros((3, 4))), "label distances", "[3, 4]", "give anchors"),
    (lambda: MatrixLabels(torch.eye(3).to_sparse()), "label distances", "a sparse tensor"),
    (lambda: MatrixLabels([[0, 1], [1]]), "label distances of item 1", "a list of 1"),
    (lambda: MatrixLabels([[0, None], [1, 0]]), "label distances of item 0", "missing (None)"),
    (lambda: MatrixLabels(None), "label distances", "None"),
    (lambda: MatrixLabels(np.ones((3, 3))), "label distances", "1 in row 0", "0", "1 - similarity"),
    (lambda: MatrixLabels(torch.tensor([[1.0, -0.3], [-0.3, 1]])), "label distance", "-0.3", ">= 0", "1 - similarity"),
    (lambda: MatrixLabels(torch.tensor([[0.0, NAN], [0, 0]])), "label distance", "nan in row 0, column 1", "", "NaN"),
    (
        lambda: MatrixLabels(torch.ones(2, 2) - torch.eye(2) / 2),
        "label distances",
        "0.5 in row 0",
        "0",
        "row a is that of",
    ),
    (lambda: MatrixLabels(OF_ANCHORS, [2, 1]), "label distances", "3 in row 0", "0", "anchors[a]"),
    (lambda: MatrixLabels(OF_ANCHORS, [3, 4]), "row", "4", "0 to 3"),
    (lambda: MatrixLabels(OF_ANCHORS, [1]), "label distances", "[2, 4]", "1 anchors"),
    (lambda: MatrixLabels(np.array([[0, 2], [2, 0]]), kind="binary"), "label distances", "up to 2", "0 or 1"),
    (lambda: MatrixLabels([[0, 0.5, 1], [0.5, 0, 0], [1, 0, 0]], kind="binary"), "label distances", "up to 1"),
    (lambda: MatrixLabels(np.zeros((2, 2)), kind="classes"), "kind", "classes", "graded, binary"),
    # judgments
    (lambda: PairLabels([], [], 3), "pairs", "[0]"),
    (lambda: PairLabels([[0, 1, 2]], [1.0], 3), "pairs", "[1, 3]"),
    (lambda: PairLabels([[0, 1]], [1.0, 2.0], 3), "distances", "[2]"),
    (lambda: PairLabels([[0, 1], [0, 3]], [1.0, 2.0], 3), "pairs, row 1", "[0, 3]"),
    (lambda: PairLabels([[0, 1], [2, 2]], [1.0, 2.0], 3), "pairs, row 1", "[2, 2]"),
    (lambda: PairLabels([[0, 1], [1, 2]], [1.0, -2.0], 3), "distances, row 1", "-2"),
    (lambda: PairLabels.from_similarities([[0, 1]], [10], 3, largest=9), "similarities", "10", "at most 9"),
    (lambda: judged().joined(judged()), "labels", "two sets of judged pairs"),
    (lambda: judged().item("0.5"), "judged distance", "'0.5'", "cannot be typed"),
    (lambda: judged().filled(), "PairLabels", "most pairs"),
    (lambda: TripletLabels([[0, 1, 9]], [0], 4), "triplets, row 0", "9"),
    (lambda: TripletLabels([[0, 1, 2], [0, 3, 3]], [0, 0], 4), "triplets, row 1", "3, 3"),
    (lambda: TripletLabels([[0, 1, 2]], [2], 4), "answers, row 0", "2"),
    (lambda: TripletLabels([[0, 1, 2]], [[1, -1]], 4), "answers, row 0", "-1"),
    (lambda: TripletLabels([[0, 1, 2]], [0, 1], 4), "answers", "2"),
    (lambda: TripletLabels([[0, 1, 2]], [0], 4).pairwise(), "TripletLabels", "no label distances", "", "step"),
    (lambda: TripletLabels([[0, 1, 2]], [0], 4).nearest(1), "TripletLabels", "no label distances"),
    (lambda: RankingLabels([[0, 0], [0, 1]], [1, 2], 4), "pairs, row 0", "0, 0"),
    (lambda: RankingLabels([[0, 2], [0, 1]], [1, -2], 4), "values, row 1", "-2"),
    (lambda: RankingLabels([[0, 2], [0, 1], [1, 2]], [1, 2, 3], 4), "query 1", "one item"),
    (lambda: RankingLabels([[0, 2], [0, 1]], [3, 3], 4), "query 0", "one value"),
    # labels that are joined, or typed
    (lambda: YEARS.joined(ClassLabels(["a", "b"])), "labels", "a ClassLabels", "must be a NumberLabels"),
    (lambda: POSES.joined(PoseLabels(POSES.joints, saturation=2)), "labels: saturation", "[2.0, 2.0,", "must be None"),
    (lambda: POSES.joined(PoseLabels(JOINTS, normalize=True)), "labels: normalize", "True", "must be False in both"),
    (lambda: DateLabels([DAY]).joined(DateLabels([DAY], scale=2)), "labels: scale", "2.0"),
    (lambda: SQUARE.joined(SQUARE), "labels", "two matrices"),
    (lambda: CaptionVectorLabels([["a"]], lambda c: np.eye(1)).arguments(), "captions", "vectors of a function"),
    (lambda: YEARS.item("869,500"), "number", "'869,500'", "must be a number", "omit thousands separators"),
    (lambda: SQUARE.item("3"), "label", "'3'", "a label in a matrix of label distances cannot be typed"),
    (lambda: POSES.item([[0, 0], [1, 1]]), "pose", "joints [2, 2]", "must be [5, 2]"),
    (lambda: POSES.item([[0, 0], [1, 1], None, None, None]), "pose", "2 of 5 joints visible"),
]


@pytest.mark.parametrize(
    ("call", "fields"), [(call, fields) for call, *fields in REFUSED], ids=lambda x: x[0] if isinstance(x, list) else ""
)
def test_what_is_refused(call, fields):
    refused(call, *fields)
