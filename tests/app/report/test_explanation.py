"""Explanations of a pair: pictures, and the table of the parts of its label distance."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.retrieval import evaluate

from contml.app.report.examples import choose_queries, explain_first, pair_table
from contml.data import Pixels, Split
from contml.data.renderers.labels import LabelMapExplainer, LabelMapRenderer
from contml.data.renderers.poses import PoseExplainer, PoseRenderer
from contml.labels import ClassLabels, NumberLabels, PoseLabels, SegmentationLabels, WeightedLabels

GREY = Image.new("RGB", (30, 30), "#808080")
YEARS = NumberLabels([20.0, 24.1], unit="years")


def test_the_table_ends_with_the_label_distance():
    header = ["label", "query", "item", "difference"]
    rows = [["number", "20 years", "24.1 years", "4.10 years"], ["label distance", "", "", "4.10 years"]]
    assert pair_table(YEARS, 0, 1) == [header, *rows]
    present = torch.tensor([[True, True], [True, False]])
    labels = WeightedLabels({YEARS: 1.0, ClassLabels(["cat", "dog"]): 2.0}, present=present)
    assert pair_table(labels, 0, 1) == [
        [*header, "part of the sum"],
        ["number", "20 years", "24.1 years", "4.10 years", "12.3"],
        ["class", "cat", "missing", "-", "0"],
        ["label distance", "", "", "", "12.3"],
    ]


def poses():
    joints = np.array([[[5, 5], [10, 5], [20, 25]], [[5, 5], [10, 9], [23, 29]]], float)
    labels, names = PoseLabels(joints), ["head", "left_hand", "right_hand"]
    return PoseExplainer(labels, PoseRenderer(joints, None, [(0, 1), (1, 2)], names))


def test_poses_over_each_other_have_lines_between_their_joints():
    explainer = poses()
    overlay = np.asarray(explainer((0, 1), (GREY, GREY), 900)[2][1], int)
    for colour in ((0, 114, 178), (224, 112, 0), (154, 154, 154)):
        assert (np.abs(overlay - colour).sum(2) < 12).sum() > 20, colour
    alone = np.asarray(explainer((0, 0), (GREY, GREY), 900)[2][1], int)
    assert (np.abs(alone - (154, 154, 154)).sum(2) < 12).sum() == 0  # no joint has moved


def test_label_maps_show_where_they_differ():
    maps = np.zeros((2, 8, 8), np.int64)
    maps[0, :, 4:] = 1
    maps[1, :, 6:] = 1
    maps[:, 0] = 9
    labels = SegmentationLabels(maps, 2, 9, side=None)
    pictures = LabelMapExplainer(LabelMapRenderer(labels, 8, 8))((0, 1), (GREY, GREY), 900)
    assert (np.asarray(pictures[2][1]) == (224, 112, 0)).all(2).mean() == pytest.approx(2 / 8 * 7 / 8, abs=0.02)


def test_a_split_without_an_explainer_is_explained_by_its_labels(tmp_path):
    values = torch.arange(12.0)[:, None]
    split = Split([Pixels(GREY)] * 12, [f"写真{row}" for row in range(12)], NumberLabels(values[:, 0]))
    _, ranking = evaluate(values, split.labels)
    query = int(choose_queries(ranking.label_distances, 6)[0])
    nearest = int(ranking.model[query, 0])
    found = explain_first(split, ranking, {})
    assert found.names == f"query 写真{query} and 写真{nearest}"
    assert found.table[1] == ["number", f"{query}", f"{nearest}", "1.00"]
