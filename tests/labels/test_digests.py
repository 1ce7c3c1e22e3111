"""A short hash of each label: it does not depend on order or on other items, and another label changes it."""

import numpy as np
import pytest
import torch
from support.label_spaces import SPACES

from contml.labels import (
    CaptionLabels,
    CaptionVectorLabels,
    CircularLabels,
    ClassLabels,
    GeoLabels,
    MultiHotLabels,
    NumberLabels,
    OrdinalLabels,
    PoseLabels,
    SegmentationLabels,
    SequenceLabels,
    TagLabels,
    ThresholdLabels,
    VectorLabels,
    WeightedLabels,
)

_WORDS = ["dog", "cat", "runs", "red"]
_VECTORS = dict(zip(_WORDS, np.random.default_rng(0).normal(size=(4, 3)), strict=True))
_JOINTS = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(0))
_MAPS = torch.arange(48).view(3, 4, 4) // 7 % 3

#: For each label space: the labels of three items, how a space is made of them, and another label of the last item.
CASES = {
    "classes": (ClassLabels, ["b", "c", "a"], "d"),
    "numbers of classes": (ClassLabels, [5, 7, 6], 8),
    "vectors": (lambda labels: VectorLabels(torch.tensor(labels)), [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [4.0, 5.5]),
    "poses": (lambda labels: PoseLabels(torch.stack(labels)), [*_JOINTS], _JOINTS[2] + 0.01),
    "hidden joints": (
        lambda labels: PoseLabels(torch.stack([a for a, _ in labels]), torch.tensor([b for _, b in labels])),
        [(joints, [True] * 5) for joints in _JOINTS],
        (_JOINTS[2], [True, False, True, True, True]),
    ),
    "segmentation": (lambda labels: SegmentationLabels(torch.stack(labels), 3, side=None), [*_MAPS], _MAPS[2].flip(0)),
    "captions": (
        lambda labels: CaptionLabels(labels, _VECTORS),
        [["a dog runs", "red dog"], ["a cat"], ["red cat"]],
        ["red red cat"],
    ),
    "caption_vectors": (CaptionVectorLabels, [["a dog runs", "red dog"], ["a cat"], ["red cat"]], ["red red cat"]),
    "number of captions": (lambda labels: CaptionLabels(labels, _VECTORS), [["dog"], ["cat"], ["red"]], ["red", "red"]),
    "tags": (TagLabels, [["b", "a"], ["c"], ["b", "c"]], ["b", "d"]),
    "multi_hot": (lambda labels: MultiHotLabels(torch.tensor(labels)), [[0, 1, 1], [1, 0, 0], [1, 1, 0]], [1, 1, 1]),
    "ordinal": (lambda labels: OrdinalLabels(labels, ["xs", "s", "m", "l"]), ["s", "l", "m"], "xs"),
    "ordinal numbers": (OrdinalLabels, [3, 9, 5], 4),
    "geo": (lambda labels: GeoLabels(torch.tensor(labels)), [[48.0, 7.0], [0.0, 180.0], [-9.0, 3.0]], [-9.0, 3.001]),
    "circular": (CircularLabels, [350.0, 10.0, 95.5], 10.001),
    "sequences": (SequenceLabels, ["ab", "bca", "c"], "cc"),
    "sequences of words": (SequenceLabels, [["x", "y"], ["y", "x"], ["z"]], ["x"]),
    "weighted": (
        lambda labels: WeightedLabels(
            {ClassLabels([a for a, _ in labels]): 1.0, NumberLabels(torch.tensor([b for _, b in labels])): 2.0}
        ),
        [("a", 1.0), ("b", 2.0), ("c", 3.0)],
        ("c", 3.5),
    ),
    "binarized": (lambda labels: ThresholdLabels(NumberLabels(torch.tensor(labels)), 1.0), [0.0, 1.0, 5.0], 6.0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_digest_depends_on_its_label_alone(name):
    make, labels, other = CASES[name]
    before = make(labels).digests()
    assert len(set(before)) == 3
    assert all(len(digest) == 12 for digest in before)
    changed = make([*labels[:2], other]).digests()
    assert changed[:2] == before[:2]
    assert changed[2] not in before
    assert make([labels[2], labels[0]]).digests() == [before[2], before[0]]
    assert make([*labels, other]).digests()[:3] == before


@pytest.mark.parametrize("name", SPACES)
def test_a_part_has_the_digests_of_its_items(name, tmp_path):
    space = SPACES[name](tmp_path)
    digests = space.digests()
    rows = [7, 2, 2, 11]
    assert len(digests) == len(space)
    assert space[rows].digests() == [digests[row] for row in rows]
    assert space[rows].as_root().digests() == [digests[row] for row in rows]
    assert space.to("cpu").digests() == digests


def test_the_order_of_captions_and_tags_is_no_content():
    assert TagLabels([["a", "b"], ["b", "a", "a"]]).digests()[0] == TagLabels([["b", "a"]]).digests()[0]
    assert len(set(TagLabels([["a", "b"], ["b", "a", "a"]]).digests())) == 1
    assert len(set(CaptionLabels([["a dog", "red"], ["red", "dog"]], _VECTORS).digests())) == 1
    assert len(set(SequenceLabels(["ab", "ba"]).digests())) == 2
