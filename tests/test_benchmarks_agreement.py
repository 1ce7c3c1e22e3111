"""Agreement of distances with people: correlations are Spearman's, differences are paired."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import caption_agreement
from benchmarks.caption_agreement import Pairs, agreement, caption_pairs, image_pairs, read_captions

DATA = caption_agreement.DATA / "cxc_val2017"


def test_the_correlation_is_that_of_scipy_and_its_interval_is_wider_where_pairs_share_items():
    random = np.random.default_rng(1)
    human, apart = random.integers(0, 6, 40) / 2, [*range(40)]  # with ties
    a, b = -human + random.normal(size=40), random.integers(0, 4, 40).astype(float)
    pairs = Pairs([], apart, [n + 40 for n in apart], human)
    for values in (a, b):
        assert agreement(values, pairs)[0] == pytest.approx(spearmanr(-values, human).statistic, abs=1e-12)
    mean, low, high = agreement(a, pairs, b)
    assert mean == pytest.approx(agreement(a, pairs)[0] - agreement(b, pairs)[0])
    assert agreement(a, pairs, a) == (0, 0, 0)
    shared = pairs._replace(first=[int(rank) // 10 for rank in (human - a).argsort().argsort()])
    for wide in (agreement(a, shared), agreement(a, shared, b)):
        assert wide[2] - wide[1] > 0
    assert agreement(a, shared, b)[2] - agreement(a, shared, b)[1] >= high - low


@pytest.mark.skipif(not DATA.is_dir(), reason="the pack cxc_val2017 is not here")
def test_the_pairs_of_the_pack():
    captions = read_captions()
    images, texts = image_pairs(captions), caption_pairs()
    assert (len(images.human), len(texts.human)) == (1226, 6531)
    assert images.sets[images.first[0]] == captions[6012]
    assert images.sets[images.second[0]] == captions[346707]
    assert images.human[0] == 1.84
    assert texts.sets[texts.first[0]] == ["An orange train is on the track with many cars behind it."]
    assert all(len(sets) == 1 for sets in texts.sets)
