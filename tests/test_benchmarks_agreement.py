"""Agreement of distances with people: correlations are Spearman's, differences are paired."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from benchmarks import caption_agreement, pose_agreement
from benchmarks.caption_agreement import Pairs, agreement, caption_pairs, image_pairs, read_captions
from contml import PoseLabels

DATA = caption_agreement.DATA / "cxc_val2017"


def test_the_correlation_is_that_of_scipy_and_its_interval_is_wider_where_pairs_share_items():
    random = np.random.default_rng(1)
    human, apart = random.integers(0, 6, 40) / 2, [*range(40)]  # with ties
    a, b = -human + random.normal(size=40), random.integers(0, 4, 40).astype(float)
    pairs = Pairs([], apart, [n + 40 for n in apart], human)
    for values in (a, b):
        assert agreement(values, pairs)[0] == pytest.approx(spearmanr(-values, human).statistic, abs=1e-12)
    mean, low, high = agreement(a, pairs, b)
    assert (mean, agreement(a, pairs, a)) == (pytest.approx(agreement(a, pairs)[0] - agreement(b, pairs)[0]), (0, 0, 0))
    shared = pairs._replace(first=[int(rank) // 10 for rank in (human - a).argsort().argsort()])
    for wide in (agreement(a, shared), agreement(a, shared, b)):
        assert wide[2] - wide[1] > 0
    assert agreement(a, shared, b)[2] - agreement(a, shared, b)[1] >= high - low


@pytest.mark.skipif(not DATA.is_dir(), reason="the pack cxc_val2017 is not here")
def test_the_pairs_of_the_pack():
    captions = read_captions()
    images, texts = image_pairs(captions), caption_pairs()
    assert ((len(images.human), len(texts.human)), images.sets[images.first[0]]) == ((1226, 6531), captions[6012])
    assert (images.sets[images.second[0]], images.human[0]) == (captions[346707], 1.84)
    assert texts.sets[texts.first[0]] == ["An orange train is on the track with many cars behind it."]
    assert all(len(sets) == 1 for sets in texts.sets)


def test_the_verb_is_that_of_most_captions():
    assert pose_agreement.verb_of(["a man sits", "he is sitting", "a man stands"]) == "sit"
    assert pose_agreement.verb_of(["a man sits", "he is sitting", "a man stands", "he stood"]) == "", "a tie"
    assert pose_agreement.verb_of(["a man sits", "a man"]) == "", "one caption"
    assert pose_agreement.verb_of(["two men sitting", "people sitting", "they sit"]) == "", "several people"


def test_agreement_is_the_share_of_the_nearest():
    places = torch.tensor([0.0, 1, 3, 7, 8])
    found = pose_agreement.agreement((places[:, None] - places).abs(), ["sit", "run", "sit", "run", "run"])
    assert found[0].tolist() == [0, 0, 0, 1, 1]
    assert found[1].tolist() == [1 / 4, 2 / 4, 1 / 4, 2 / 4, 2 / 4], "4 others at most"
    assert pose_agreement.chance(["sit", "run", "sit", "run", "run"]) == pytest.approx((2 + 6) / 20)


@pytest.mark.parametrize("name", pose_agreement.DISTANCES)
def test_the_label_distances_of_poses(name):
    kind, random = pose_agreement.DISTANCES[name], torch.Generator().manual_seed(0)
    joints, swapped = 40 + 20 * torch.rand(4, 17, 2, generator=random), [*range(17)]
    for a, b in pose_agreement._SWAPPED["COCO"]:
        swapped[a], swapped[b] = b, a
    joints[3] = (joints[0] * torch.tensor([-1.0, 1.0]))[swapped]  # its mirror image
    found = pose_agreement.People("COCO", joints, torch.ones(4, 17), torch.zeros(4, 1)).distances(kind)
    assert (found[0, 3] < 1e-3) == kind.mirrored
    assert (found.max() <= 1) == bool(kind.scale)
    poses = PoseLabels(joints, normalize=kind.normalize).pairwise().double()
    assert torch.equal(found, poses) == (name in ("pixels", "normalized"))
