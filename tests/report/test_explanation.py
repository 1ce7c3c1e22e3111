"""Explanations of a pair: the parts of the label distance, for every kind of label, against the labels themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from contml.data import Pixels, Split
from contml.data.renderers.label_maps import LabelMapExplainer, LabelMapRenderer
from contml.data.renderers.poses import PoseExplainer, PoseRenderer
from contml.data.split import Explanation
from contml.evaluation import evaluate
from contml.labels import (
    ClassLabels,
    GeoLabels,
    MultiHotLabels,
    OrdinalLabels,
    PoseLabels,
    SegmentationLabels,
    SequenceLabels,
    TagLabels,
    VectorLabels,
    WeightedLabels,
)
from contml.report.explanation import explain_pair, explanation_picture, pair_rows

GREY = Image.new("RGB", (30, 30), "#808080")
YEARS = VectorLabels([20.0, 24.1], squared=False, unit="years")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (YEARS, [["number", "20.0", "24.1", "4.10 years"], ["label distance", "", "", "4.10 years"]]),
        (ClassLabels(["cat", "dog"]), [["class", "cat", "dog", "different"], ["label distance", "", "", "1.00"]]),
        (ClassLabels(["cat", "cat"]), [["class", "cat", "cat", "same"], ["label distance", "", "", "0"]]),
        (
            OrdinalLabels(["low", "high"], ["low", "middle", "high"]),
            [["level", "low", "high", "2 levels"], ["label distance", "", "", "2.00 levels"]],
        ),
        (
            TagLabels([["a", "b"], ["b", "c"]]),
            [["tags", "a, b", "b, c", "1 of 3 shared"], ["label distance", "", "", "0.667"]],
        ),
        (
            MultiHotLabels([[1, 0, 1], [1, 1, 0]]),
            [["labels", "1, 3", "1, 2", "2 of 3 differ"], ["label distance", "", "", "0.667"]],
        ),
        (
            SequenceLabels([["do", "re"], ["do", "mi"]]),
            [["sequence", "do re", "do mi", "0.500"], ["label distance", "", "", "0.500"]],
        ),
        (
            GeoLabels([[0.0, 0.0], [0.0, 0.001]], headings=[350.0, 20.0], unit="m"),
            [
                ["place", "0.00000, 0.00000", "0.00000, 0.00100", "111 m"],
                ["heading", "350°", "20°", "30°"],
                ["label distance", "", "", "130 m"],
            ],
        ),
    ],
)
def test_the_parts_of_a_label_distance(labels, expected):
    assert pair_rows(labels, 0, 1) == expected


def test_the_largest_parts_of_a_vector_come_first():
    rows = pair_rows(VectorLabels(torch.tensor([[0.0] * 12, list(range(12))])), 0, 1)
    assert [row[0] for row in rows] == [*(f"number {n}" for n in range(12, 4, -1)), "label distance"]


def test_a_sum_lists_each_label_and_says_what_is_missing():
    present = torch.tensor([[True, True], [True, False]])
    labels = WeightedLabels({YEARS: 1.0, ClassLabels(["cat", "dog"]): 2.0}, present=present)
    rows = pair_rows(labels, 0, 1)
    assert rows[0] == ["number", "20.0", "24.1", "4.10 years"]
    assert rows[1][3] == "4.10 years"
    assert rows[2] == ["another class", "", "", "missing"]


def poses():
    joints = np.array([[[5, 5], [10, 5], [20, 25]], [[5, 5], [10, 9], [23, 29]]], float)
    labels, names = PoseLabels(joints, squared=True), ["head", "left_hand", "right_hand"]
    return labels, PoseExplainer(labels, PoseRenderer(joints, None, [(0, 1), (1, 2)], names))


def test_poses_list_the_joints_that_are_far_apart_and_draw_lines_between_them():
    _, explainer = poses()
    found = explainer((0, 1), (GREY, GREY), 900)
    rms = math.sqrt((16 + 25) / 3)
    assert found.rows == [
        ["right hand", "5.00"],
        ["left hand", "4.00"],
        ["head", "0"],
        ["all 3 joints, root mean square", f"{rms:.2f}"],
    ]
    assert found.header == ("joint", "distance, px")
    overlay = np.asarray(found.pictures[2][1], int)
    for colour in ((0, 114, 178), (224, 112, 0), (154, 154, 154)):
        assert (np.abs(overlay - colour).sum(2) < 12).sum() > 20, colour
    alone = np.asarray(explainer((0, 0), (GREY, GREY), 900).pictures[2][1], int)
    assert (np.abs(alone - (154, 154, 154)).sum(2) < 12).sum() == 0  # no joint has moved


def test_label_maps_show_where_they_differ_and_name_their_classes():
    maps = np.zeros((2, 8, 8), np.int64)
    maps[0, :, 4:] = 1
    maps[1, :, 6:] = 1
    maps[:, 0] = 9
    labels = SegmentationLabels(maps, 2, 9, side=None)
    found = LabelMapExplainer(LabelMapRenderer(labels, 8, 8), ("floor", "wall"))((0, 1), (GREY, GREY), 900)
    distance = float(labels.pairwise([0], [1]))
    assert found.rows[:2] == [["floor", "50 %", "75 %", "67 %"], ["wall", "50 %", "25 %", "50 %"]]
    assert found.rows[3] == ["label distance", "", "", f"{distance:.3f}"]
    assert distance == pytest.approx(1 - (2 / 3 + 1 / 2) / 2)
    difference = np.asarray(found.pictures[2][1])
    orange = (difference == (224, 112, 0)).all(2)
    assert orange.mean() == pytest.approx(2 / 8 * 7 / 8, abs=0.02)


def test_a_split_without_an_explainer_is_explained_by_its_labels(tmp_path):
    values = torch.arange(12.0)[:, None]
    split = Split([Pixels(GREY)] * 12, [f"写真{row}" for row in range(12)], VectorLabels(values, squared=False))
    _, ranking = evaluate(values, split.labels)
    names, found = explain_pair(split, ranking, {}, (0, 5))
    assert names == "query 写真0 and 写真5"
    assert found.rows[0] == ["number", "0", "5.00", "5.00"]
    assert explanation_picture(found).height > 400
    assert explanation_picture(Explanation([("", GREY)])).size[0] > GREY.width
