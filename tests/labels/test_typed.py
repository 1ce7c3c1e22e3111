"""Labels made again from their arguments, joined, and typed: what files of labels and label queries need."""

import json
import re

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.label_spaces import SPACES
from support.refusals import refused, refuses

from contml import InputError, labels as spaces
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import Measure
from contml.labels.saved import SavedLabels, from_saved, to_saved

#: Spaces of a data set: binarized ones are made of them.
OF_DATA = [name for name in SPACES if not name.startswith(("threshold", "nearest"))]


def close(x, y, scale):
    return torch.allclose(x.double(), y.double(), rtol=1e-5, atol=1e-5 * float(scale.max()))


@pytest.mark.parametrize("name", [name for name in OF_DATA if not name.startswith(("matrix", "pairs"))])
def test_two_parts_joined_are_the_whole(name, tmp_path):
    labels = SPACES[name](tmp_path)
    first, second = labels[:12].as_root(), labels[12:].as_root()
    whole = first.joined(second)
    assert close(whole.pairwise(), labels.pairwise(), labels.pairwise())
    assert [whole.text(row) for row in range(len(labels))] == [labels.text(row) for row in range(len(labels))]
    texts = [f"item {row}" for row in range(len(labels))]
    named = labels.with_texts(texts)
    joined = named[:5].as_root().joined(named[5:].as_root())
    assert [joined.text(row) for row in range(len(labels))] == texts


PRICES = spaces.NumberLabels(np.log([100.0, 1000.0]) / 0.5)
PRICES.measure, PRICES.title = Measure("", 0.5, "ratio", "price_usd"), "price_usd"
SCALED = spaces.VectorLabels(np.array([[1.0, 20.0], [3.0, 40.0]]) / [2, 10], scales=[2, 10])
VECTORS = dict(zip(["dog", "cat", "beach"], np.eye(3), strict=True))
SECOND = "2021-02-03T04:05:06"
TYPED = {
    "number": (spaces.NumberLabels([1.0, 2.5, 4.0], unit="years"), "2.5", 1),
    "number by ratio": (PRICES, "1000", 1),
    "vector": (spaces.VectorLabels([[1.0, 2.0], [3.0, 4.0]]), "3, 4", 1),
    "vector of units": (SCALED, "3,40", 1),
    "date": (spaces.DateLabels(["2020-01-01", f"{SECOND}.000007"], scale=365.25), f"{SECOND}.000007", 1),
    "class": (spaces.ClassLabels(["cat", "dog"]), "dog", 1),
    "class of an integer": (spaces.ClassLabels([3, 5]), "5", 1),
    "class by its text": (spaces.ClassLabels([3, 5]).with_texts(["three", "five"]), "five", 1),
    "ordinal": (spaces.OrdinalLabels(["low", "high"], ["low", "high"]), "high", 1),
    "geo": (spaces.GeoLabels([[48.1, 11.5], [52.5, 13.4]]), "52.5,13.4", 1),
    "geo with heading": (spaces.GeoLabels([[48.1, 11.5], [48.1, 11.5]], [0, 90], unit="m"), "48.1, 11.5, 90", 1),
    "angle": (spaces.CircularLabels([350.0, 10.0]), "370°", 1),
    "tags": (spaces.TagLabels([["a"], ["b", "c d"]]), "c d; b", 1),
    "multi_hot": (spaces.MultiHotLabels([[0, 0, 1], [1, 1, 0]]), "1,2", 1),
    "sequence of words": (spaces.SequenceLabels([["to", "be"], ["or", "not"]]), "or not", 1),
    "sequence of characters": (spaces.SequenceLabels(["acgt", "ttga"]), "ttga", 1),
    "captions": (spaces.CaptionLabels([["a cat"], ["a dog on a beach"]], VECTORS), "Dog, beach", 1),
    "caption_vectors": (spaces.CaptionVectorLabels([["a cat"], ["a dog on a beach"]]), "dog beach", 1),
}


@pytest.mark.parametrize("name", TYPED)
def test_a_typed_label_is_at_distance_0_from_its_item_alone(name):
    labels, text, row = TYPED[name]
    assert labels.typed_as == "text"
    whole = labels.joined(labels.item(text))
    distances = whole.pairwise([len(labels)], range(len(labels)))[0]
    scale = float(labels.pairwise().max())
    assert float(distances[row]) <= 1e-6 * scale
    assert all(float(d) > 1e-3 * scale for n, d in enumerate(distances) if n != row)
    assert close(whole.pairwise(range(len(labels)), range(len(labels))), labels.pairwise(), labels.pairwise())


def test_a_pose_is_typed_as_a_file_holds_it():
    joints = np.random.default_rng(0).normal(size=(3, 5, 2)) * 100
    for labels in (spaces.PoseLabels(joints), spaces.PoseLabels(joints, normalize=True)):
        person = {"name": "a.jpg", "joints": joints[1].tolist(), "visible": [1] * 5}
        for pose in (joints[1].tolist(), {"joints": joints[1].tolist()}, {"people": [person]}):
            distances = labels.joined(labels.item(json.loads(json.dumps(pose)))).pairwise([3], range(3))[0]
            assert distances.argmin() == 1
            assert float(distances[1]) <= 1e-9 * float(distances[0])
    partly = [*joints[1].tolist()[:3], None, [None, None]]
    assert spaces.PoseLabels(joints).item(partly).visible.tolist() == [[True, True, True, False, False]]
    moved = spaces.PoseLabels(joints, normalize=True).item((10 + 2 * joints[1]).tolist())
    assert float(spaces.PoseLabels(joints, normalize=True).joined(moved).pairwise([3], [1])) < 1e-9


def test_a_label_map_is_typed_as_a_picture_holds_it():
    maps = np.random.default_rng(0).integers(0, 3, (4, 12, 10))
    for options in ({"side": None}, {"ignore": 9, "side": 20}):
        labels = spaces.SegmentationLabels(maps, 3, **options)
        distances = labels.joined(labels.item(maps[2])).pairwise([4], range(4))[0]
        assert (distances[2], distances.argmin()) == (0, 2)
    ignored = maps.copy()
    ignored[:, :3] = 9
    labels = spaces.SegmentationLabels(ignored, 3, ignore=9, side=None)
    assert torch.equal(labels.arguments()["maps"].long(), torch.from_numpy(ignored))
    refused(lambda: labels.item(maps[0, :3]), "label map", "[3, 10]", "must be [12, 10] as in training")
    refused(lambda: labels.item(np.full((12, 10), 7)), "label map", "7")


def test_a_sum_takes_some_of_its_labels_by_name():
    ages, tags = spaces.NumberLabels([20.0, 30.0, 40.0]), spaces.TagLabels([["a"], ["b"], ["a", "b"]])
    ages.title = "age"
    labels = spaces.WeightedLabels({ages: 0.1, tags: 2.0})
    both = labels.joined(labels.item({"age": "30", "tags": "b"})).pairwise([3], range(3))[0]
    assert both.tolist() == pytest.approx([0.1 * 10 + 2, 0, 0.1 * 10 + 2 * 0.5])
    one = labels.joined(labels.item({"age": 40})).pairwise([3], range(3))[0]
    assert one.tolist() == pytest.approx([0.1 * distance * 2.1 / 0.1 for distance in (20, 10, 0)])  # of one weight
    refused(lambda: labels.item({"agee": 3}), "label", "no label 'agee'", "must be one of age, tags")
    refused(lambda: labels.item("30"), "label", "'30'", "must be labels by name")


BAD = {
    "words for a number": ("number", "three", "'three'", "must be a number, with a decimal point"),
    "two numbers": ("number", "1 2", "'1 2'", "must be a number"),
    "a price of 0": ("number by ratio", "0", "0", "must be above 0"),
    "one of two": ("vector", "3", "'3'", "must be 2 numbers"),
    "no date": ("date", "tomorrow", "'tomorrow'", "must be a date"),
    "another class": ("class", "doog", "no class 'doog'", "must be one of cat, dog"),
    "no place": ("geo", "95,11", "95", "must be -90 to 90 degrees"),
    "unknown tags": ("tags", "x;y", "no training item has 'x', 'y'", ""),
    "no attribute": ("multi_hot", "4", "no label '4'", "must be of 1, 2, 3"),
    "unknown tokens": ("sequence of words", "the question", "no training item has 'the', 'question'", ""),
    "unknown words": ("captions", "an umbrella", "no known word in 'an umbrella'", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_labels_that_are_none_are_refused(case):
    name, text, got, allowed = BAD[case]
    labels = TYPED[name][0]
    with pytest.raises(InputError) as caught:
        labels.item(text)
    assert caught.value.subject == labels.title
    assert got in caught.value.got
    assert caught.value.allowed.startswith(allowed)


def test_labels_of_vectors():
    means = SCALED.of_vectors(torch.tensor([[1.0, 3.0]]))
    assert means.text(0) == "2 30"
    assert float(SCALED.joined(means).pairwise([0], [2])) == pytest.approx(np.hypot(0.5, 1))
    dates = spaces.DateLabels(["2020-01-01", "2020-01-03"], scale=7)
    assert dates.of_vectors(dates.vectors.mean(0, keepdim=True)).text(0) == "2020-01-02"
    levels = spaces.OrdinalLabels(["low", "high", "middle"], ["low", "middle", "high"])
    assert [levels.of_vectors(torch.tensor([[x]])).text(0) for x in (0.2, 0.3, 0.8)] == ["low", "middle", "high"]
    for measure in (Measure("km", 3.0), Measure("", 0.5, "ratio"), Measure("years", 4.0, "root")):
        assert measure.inverse(measure.of(1.7)) == pytest.approx(1.7)


@pytest.mark.parametrize("name", OF_DATA)
def test_labels_come_back_from_a_file(name, tmp_path):
    labels = SPACES[name](tmp_path)
    labels.title, labels.part_names = "what they are", ["first"]
    saved, tensors = to_saved(labels)
    save_tensors(tmp_path / "f.safetensors", tensors, labels=saved.model_dump(mode="json"))
    tensors, values = load_tensors(tmp_path / "f.safetensors")
    again = from_saved(SavedLabels.model_validate_json(json.dumps(values["labels"])), tensors, "f")
    is_kept = name != "function"
    assert (type(again) is type(labels)) == is_kept
    assert close(again.pairwise(), labels.pairwise(), labels.pairwise())
    assert [again.text(row) for row in range(len(labels))] == [labels.text(row) for row in range(len(labels))]
    assert (again.title, again.unit, again.measure) == ("what they are", labels.unit, labels.measure)
    assert list(again.part_names) == ["first"]
    part = labels[[7, 0, 3]].as_root()
    assert close(part._made(part.arguments()).pairwise(), labels.pairwise([7, 0, 3], [7, 0, 3]), labels.pairwise())
    if labels.typed_as == "text" and labels.title != "captions":
        text = next(filter(None, (labels.text(row) for row in range(len(labels)))))
        text = re.sub(r"(?<=\d),(?=\d{3})", "", text)  # thousands separators are not typed
        distances = [each.joined(each.item(text)).pairwise([len(each)])[0] for each in (labels, again)]
        assert close(*distances, labels.pairwise())


CHANGES = {
    "another kind": {"kind": "function"},
    "a path in place of a matrix": {"kind": "matrix", "tensors": {}, "values": {"matrix": "/etc/passwd"}},
    "an argument too many": {"values": {"unit": "km"}},
    "no such tensor": {"tensors": {"values": "other"}},
    "texts of other items": {"texts": ["a"]},
    "an unknown key": {"module": "os"},
    "a factor of 0": {"measure": {"unit": "", "factor": 0.0, "kind": "linear", "name": "", "dates": False}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_labels_are_one_line(change):
    saved, tensors = to_saved(spaces.NumberLabels([1.0, 2.0]))
    text = json.dumps({**saved.model_dump(mode="json"), **CHANGES[change]})
    with pytest.raises((InputError, ValueError)) as caught:
        from_saved(SavedLabels.model_validate_json(text), tensors, "f")
    assert isinstance(caught.value, ValidationError) or caught.value.subject == "f"


def test_labels_that_would_take_all_memory_are_refused():
    maps = spaces.SegmentationLabels(np.zeros((2, 4, 4), int), 2)
    for values in ({"classes": 1 << 40, "ignore": None, "side": 4}, {"classes": 2, "ignore": None, "side": 1 << 20}):
        saved, tensors = to_saved(maps)
        with refuses("f", "would take"):
            from_saved(saved.model_copy(update={"values": values}), tensors, "f")
    saved, tensors = to_saved(spaces.TagLabels([["a"]]))
    tags = [["a"]] * 200_000 + [["a"] * 100_000]
    refused(lambda: from_saved(saved.model_copy(update={"values": {"tags": tags}}), tensors, "f"), "f", "would take")
