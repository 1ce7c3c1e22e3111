"""What labels say: in words, as parts of a label distance, and as colours."""

import math

import numpy as np
import pytest
import torch
from support.refusals import refused

from contml import labels as spaces
from contml.contracts import Measure

YEARS = spaces.NumberLabels([20.0, 24.1], unit="years")
VECTORS = {"red": np.array([1.0, 0, 0]), "cat": np.array([0.0, 1, 0]), "dog": np.array([0.0, 0, 1])}


@pytest.mark.parametrize(
    ("labels", "texts", "parts"),
    [
        (YEARS, ["20 years", "24.1 years"], [("number", "20 years", "24.1 years", "4.10 years")]),
        (spaces.NumberLabels([1987, 2012]), ["1987", "2012"], [("number", "1987", "2012", "25.0")]),
        (spaces.NumberLabels([9999.6, 1e4]), ["10,000", "10,000"], [("number", "10,000", "10,000", "0.400")]),
        (
            spaces.NumberLabels([-12345.6, 869500], unit="USD"),
            ["-12,346 USD", "869,500 USD"],
            [("number", "-12,346 USD", "869,500 USD", "881,846 USD")],
        ),
        (
            spaces.DateLabels(["2024-01-31", "2024-02-01T12:00"], scale=7),
            ["2024-01-31", "2024-02-01 12:00"],
            [("date", "2024-01-31", "2024-02-01 12:00", "1.50 days")],
        ),
        (spaces.ClassLabels(["cat", "dog"]), ["cat", "dog"], [("class", "cat", "dog", "different")]),
        (spaces.ClassLabels(torch.tensor([7, 7])), ["7", "7"], [("class", "7", "7", "same")]),
        (spaces.OrdinalLabels(["A", "C"], ["A", "B", "C"]), ["A", "C"], [("level", "A", "C", "2.00 levels")]),
        (spaces.TagLabels([["a", "b"], ["b", "c"]]), ["a, b", "b, c"], [("tags", "a, b", "b, c", "1 of 3 shared")]),
        (spaces.TagLabels([["a"], []]), ["a", "none"], [("tags", "a", "none", "0 of 1 shared")]),
        (spaces.MultiHotLabels([[0, 1], [1, 1]]), ["2", "1, 2"], [("labels", "2", "1, 2", "1 of 2 differ")]),
        (spaces.SequenceLabels([["do"], ["do", "mi"]]), ["do", "do mi"], [("sequence", "do", "do mi", "0.500")]),
        (
            spaces.GeoLabels([[0.0, 0.0], [0.0, 0.001]], headings=[350.0, 20.0], unit="m"),
            ["0.00000, 0.00000, 350°", "0.00000, 0.00100, 20°"],
            [("place", "0.00000, 0.00000", "0.00000, 0.00100", "111 m"), ("heading", "350°", "20°", "30°")],
        ),
        (
            spaces.CaptionLabels([["red cat .", "red"], ["red dog"]], VECTORS),
            ["red cat.\nred", "red dog"],
            [("captions 1", "red cat .", "red dog", "0.707: cat to dog (50 %)")],
        ),
        (spaces.MatrixLabels([[0, 1], [1, 0]]), ["", ""], []),
    ],
)
def test_words(labels, texts, parts):
    assert ([labels.text(row) for row in range(2)], [part[:4] for part in labels.parts(0, 1)]) == (texts, parts)
    assert labels[[1]].as_root().text(0) == texts[1]


def test_a_vector_lists_its_largest_differences_by_name():
    labels = spaces.VectorLabels(torch.tensor([[0.0] * 12, list(range(12))]))
    assert labels.text(1) == "0 1 2 3 4 5 …"
    assert [part.label for part in labels.parts(0, 1)] == [f"number {n}" for n in range(12, 4, -1)]
    labels.part_names = [f"gene {n}" for n in range(12)]
    assert labels.parts(0, 1)[0].label == "gene 11"


def test_poses_list_the_joints_that_are_far_apart():
    joints = torch.tensor([[[5, 5], [10, 5], [20, 25]], [[5, 5], [10, 9], [23, 29]]])
    labels = spaces.PoseLabels(joints)
    labels.part_names = ["head", "left_hand", "right_hand"]
    expected = [("right hand", "5.00 px"), ("left hand", "4.00 px"), ("head", "0 px")]
    assert [(part.label, part.difference) for part in labels.parts(0, 1)] == expected
    assert labels.text(0) == ""
    hidden = spaces.PoseLabels(joints, torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert [part.label for part in hidden.parts(0, 1)] == ["joint 2", "joint 1"]


def test_label_maps_list_the_overlap_of_each_class():
    maps = np.zeros((2, 8, 8), np.int64)
    maps[0, :, 4:] = 1
    maps[1, :, 6:] = 1
    maps[:, 0] = 9
    labels = spaces.SegmentationLabels(maps, 2, 9, side=None)
    labels.part_names = ["floor", "wall"]
    expected = [("floor", "50 %", "75 %", "67 % IoU"), ("wall", "50 %", "25 %", "50 % IoU")]
    assert [part[:4] for part in labels.parts(0, 1)] == expected
    assert float(labels.pairwise([0], [1])) == pytest.approx(1 - (2 / 3 + 1 / 2) / 2)


def test_captions_are_those_of_the_rows_that_are_kept():
    labels = spaces.CaptionLabels([["red cat"], ["the"], ["dog", " ", "xyz"], ["red"]], VECTORS, empty="drop")
    assert labels.captions == [["red cat"], ["dog", "xyz"], ["red"]]
    assert labels[[2, 1]].as_root().captions == [["red"], ["dog", "xyz"]]
    assert spaces.WeightedLabels({spaces.ClassLabels([0, 1, 2]): 1, labels: 1})[[1]].captions == [["dog", "xyz"]]
    assert YEARS.captions is None


def test_a_sum_says_what_each_label_adds_and_what_is_missing():
    places = spaces.GeoLabels([[0.0, 0.0], [0.0, 0.001], [1, 1]], headings=[350.0, 20.0, 0.0], unit="m")
    kinds = spaces.ClassLabels(["cat", "dog", "cat"])
    kinds.title = "kind"
    labels = spaces.WeightedLabels({places: 0.5, kinds: 2.0}, present=[[True, True], [True, True], [True, False]])
    parts = labels.parts(0, 1)
    assert [part.label for part in parts] == ["place", "heading", "place", "kind"]
    assert [part.contribution for part in parts] == ["", "", "65.0", "2.00"]
    assert float(labels.pairwise([0], [1])) == pytest.approx(67.0, abs=0.05)
    assert labels.text(0) == "place: 0.00000, 0.00000, 350°\nkind: cat"
    assert labels.text(2) == "place: 1.00000, 1.00000, 0°"
    assert labels.parts(0, 2)[-1] == ("kind", "cat", "missing", "-", "0")
    assert sum(float(part.contribution.replace(",", "") or 0) for part in labels.parts(0, 2)) == pytest.approx(
        float(labels.pairwise([0], [2])), rel=0.01
    )


def test_binarized_labels_say_what_they_are_made_of():
    labels = spaces.NumberLabels([1.0, 2.0, 4.0])
    for binary in (spaces.ThresholdLabels(labels, 1.5), spaces.NearestLabels(labels, 1)):
        subset = binary[[2, 0]]
        assert ([subset.text(row) for row in range(2)], subset.parts(0, 1)) == (["4", "1"], labels.parts(2, 0))
        assert subset.colours().values.tolist() == [4, 1]


def test_colours():
    found = spaces.ClassLabels(["cat", "ape", "cat"])[[2, 0, 1]].colours()
    assert [found.classes[each] for each in found.values] == ["cat", "cat", "ape"]
    assert spaces.NumberLabels([1.5, 2000.0]).colours().values.tolist() == [1.5, 2000.0]
    assert spaces.VectorLabels(np.zeros((2, 5))).colours() is None
    assert spaces.OrdinalLabels([30, 1, 2]).colours().values.tolist() == [2.0, 0.0, 1.0]
    days = spaces.DateLabels(["1970-01-04", "1970-01-05"], scale=2).colours()
    assert (days.scale, days.values.tolist()) == ("date", [3.0, 4.0])
    prices = spaces.NumberLabels([1.5, 2.0])
    prices.measure = Measure("", 2.0, "ratio", "price")
    assert prices.colours().scale == "log"
    assert prices.colours().values.tolist() == pytest.approx([math.exp(3), math.exp(4)])


def test_texts_and_names_are_kept_and_change_neither_fingerprint_nor_distances():
    plain = spaces.VectorLabels([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    named = plain.with_texts(["one", "two", "three"], identity=["a", "b", "c"])
    named.title, named.part_names = "pair", ["x", "y"]
    assert named.fingerprint() == plain.fingerprint()
    assert torch.equal(named.pairwise(), plain.pairwise())
    assert named.parts(0, 2)[0][:3] == ("pair", "one", "three")
    subset = named[[2, 0]]
    for labels in (subset, subset.as_root(), subset.as_root()[[0, 1]]):
        assert [labels.text(row) for row in range(2)] == ["three", "one"]
        assert labels.digests() == [named.digests()[2], named.digests()[0]]
    assert named.digests() != plain.digests()
    assert spaces.NumberLabels([7.0, 8.0, 9.0]).with_texts(identity=["a", "b", "c"]).digests() == named.digests()
    assert plain.with_texts(["one", "two", "three"]).digests() == plain.digests()
    refused(lambda: plain.with_texts(["one", "two"]), "texts", got="2 for 3 items", allowed="one for each item")
