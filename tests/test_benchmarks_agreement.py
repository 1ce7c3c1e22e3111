"""Agreement of distances with people: correlations on resamples are Spearman's, differences are paired."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import caption_agreement
from benchmarks.caption_agreement import agreement, caption_pairs, image_pairs, read_captions

DATA = caption_agreement.DATA / "cxc_val2017"


def test_correlations_on_resamples_are_those_of_scipy(monkeypatch):
    monkeypatch.setattr(caption_agreement, "RESAMPLES", 7)
    monkeypatch.setattr(caption_agreement, "_CHUNK", 3)
    random = np.random.default_rng(1)
    human = random.integers(0, 6, 40) / 2  # with ties
    found = {"a": -human + random.normal(size=40), "b": random.integers(0, 4, 40).astype(float)}
    results = agreement(found, human)
    draws = np.random.default_rng(0).integers(0, 40, (7, 40))
    for name, values in found.items():
        assert results[name][0] == pytest.approx(spearmanr(-values, human).statistic, abs=1e-12)
        expected = [spearmanr(-values[rows], human[rows]).statistic for rows in draws]  # the same resamples for all
        np.testing.assert_allclose(results[name][1], expected, rtol=0, atol=1e-10)


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
