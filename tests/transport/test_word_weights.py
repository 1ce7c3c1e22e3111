"""Word weights in the transport: masses against POT in float64, bounds and nearest sets, rounding, bad input."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from support.word_sets import WORDS, gaussian, movers, random_sets, sentences, set_distance

from contml.distances import Neighbours
from contml.labels import CaptionLabels, idf_weights
from contml.testing import check_label_space
from contml.transport import bags, caption_distance, set_distance_cpu as cpu
from contml.transport.bags import WordCosts


def random_weights(seed, words=40):
    return dict(enumerate(np.random.default_rng(seed).uniform(0.05, 9.0, words).tolist()))


def rounded(weights, word):
    """The weight as documented: a multiple of 1/1024 of the largest one, or of 1."""
    step = max(1.0, max(weights.values())) / 1024
    return max(1, round(weights.get(word, 1.0) / step)) * step


def block_of(costs):
    """Costs of two lists of words, from the rounded ones."""
    block = costs.block(np.arange(40), np.arange(40)).astype(np.float64)
    return lambda x, y: np.ascontiguousarray(block[np.ix_(x, y)])


def by_word(values):
    return {
        WORDS[number]: value for number, value in (values.items() if isinstance(values, dict) else enumerate(values))
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_w_equals_pot_in_float64(seed):
    sets, weights = random_sets(seed), random_weights(seed)
    packed, costs = bags.pack(sets, bags.whole_weights(weights, range(40))), WordCosts(gaussian())
    count = len(packed.totals)
    out = np.zeros((count, count))
    cpu.word_movers_rows(
        cpu.caption_pairs(packed, packed, costs), cpu.make_workspace(bags.most_words(packed)), False, 0, 1, out
    )
    block = block_of(costs)
    captions = [caption for image in sets for caption in image]
    expected = [[movers(a, b, block, lambda word: rounded(weights, word)) for b in captions] for a in captions]
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


def test_sets_equal_the_slow_loop_with_one_word_and_duplicates():
    sets, weights = [*random_sets(1), [[3]], [[3], [3], [3, 3]], [[4, 3, 4]]], random_weights(1)
    block = block_of(WordCosts(gaussian()))
    expected = [[set_distance(i, j, block, lambda word: rounded(weights, word)) for j in sets] for i in sets]
    found = caption_distance(sets, sets, gaussian(), weights=weights)
    torch.testing.assert_close(found.double(), torch.tensor(expected), rtol=1e-6, atol=1e-6)
    assert torch.equal(found, found.T)
    assert found[-2, -3] == 0  # one word, however often


def test_equal_weights_are_counts_to_the_last_bit():
    sets = sentences(random_sets(2, 20))
    vectors = by_word(gaussian())
    counts, sevens = (CaptionLabels(sets, vectors, weights=w) for w in ("count", dict.fromkeys(WORDS, 7.0)))
    assert torch.equal(counts.pairwise(), CaptionLabels(sets, vectors).pairwise())
    assert torch.equal(counts.pairwise(), sevens.pairwise())
    assert counts.fingerprint() == sevens.fingerprint()


def test_nearest_sets_are_those_of_all_distances():
    space = CaptionLabels(sentences(random_sets(3, 60, longest=4)), by_word(gaussian()), weights="idf")
    check_label_space(space)
    values, rows = space.pairwise().fill_diagonal_(torch.inf).sort(dim=1, stable=True)
    assert torch.equal(space.nearest(5).rows, rows[:, :5])
    assert torch.equal(space.nearest(5).distances, Neighbours(values[:, :5], rows).distances)


def test_idf_counts_images_and_equals_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    captions = [["A red dog", "red red ball"], ["a dog runs", ""], ["the cat"]]
    found = idf_weights(captions, [["a blue dog"]])
    assert (found["dog"], found["blue"]) == (math.log(4 / 3) + 1, math.log(4) + 1)
    assert list(found) == sorted(found) == ["ball", "blue", "cat", "dog", "red", "runs"]
    documents = [" ".join(image) for image in captions]
    model = TfidfVectorizer(vocabulary=["ball", "cat", "dog", "red", "runs"]).fit(documents)
    expected = dict(zip(model.get_feature_names_out(), model.idf_, strict=True))
    assert {word: found[word] for word in expected} == pytest.approx(expected, rel=1e-12)
    assert idf_weights([]) == {}


def test_idf_of_the_corpus_and_given_as_a_mapping_agree_and_unknown_words_do_not_count():
    sets, vectors = [*sentences(random_sets(5)), ["w0 unicorn", "unicorn"]], by_word(gaussian())
    of_corpus = CaptionLabels(sets, vectors, weights="idf")
    given_ = CaptionLabels(sets[:4], vectors, weights=idf_weights(sets))
    torch.testing.assert_close(given_.pairwise(), of_corpus[[0, 1, 2, 3]].pairwise(), rtol=1e-6, atol=0)
    assert (of_corpus.dropped, of_corpus.digests()) == (1, CaptionLabels(sets, vectors).digests())
    assert of_corpus.fingerprint() != CaptionLabels(sets, vectors).fingerprint()


def test_whole_weights_are_rounded_to_steps_of_the_largest():
    assert bags.whole_weights({"a": 2.0, "b": 1.0}, ["a", "b", "c"]).tolist() == [2, 1, 1]
    assert bags.whole_weights({"a": 1e6, "b": 1e-6}, ["a", "b"]).tolist() == [1024, 1]
    assert (bags.whole_weights({}, ["a"]).tolist(), bags.whole_weights({"a": 1.0}, []).tolist()) == ([1], [])
    found = bags.whole_weights({"a": 3.0, "b": 0.7}, ["a", "b"])
    assert Fraction(int(found[1]), int(found[0])) == Fraction(round(0.7 / 3 * 1024), 1024)
