"""Word weights in the transport: masses against POT in float64, bounds and nearest sets, rounding, bad input."""

import math
from fractions import Fraction

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.refusals import refuses

from contml.distances import Neighbours
from contml.labels import CaptionLabels, idf_weights
from contml.testing import check_label_space
from contml.transport import bags, caption_distance, set_distance_cpu as cpu, word_movers_distance, word_movers_plan
from contml.transport.bags import WordCosts

WORDS = [f"w{number}" for number in range(30)]


def gaussian(words=30, dim=4, seed=0):
    return np.random.default_rng(seed).normal(size=(words, dim))


def random_sets(seed, items=10, words=30, longest=7):
    random = np.random.default_rng(seed)
    return [
        [random.integers(0, words, random.integers(1, longest + 1)).tolist() for _ in range(random.integers(1, 5))]
        for _ in range(items)
    ]


def random_weights(seed, words=30):
    return dict(enumerate(np.random.default_rng(seed).uniform(0.05, 9.0, words).tolist()))


def rounded(weights, word):
    """The weight as documented: a multiple of 1/1024 of the largest one, or of 1."""
    step = max(1.0, max(weights.values())) / 1024
    return max(1, round(weights.get(word, 1.0) / step)) * step


def masses(caption, weights):
    words = sorted(set(caption))
    mass = [caption.count(word) * weights(word) for word in words]
    return words, [part / sum(mass) for part in mass]


def movers(a, b, costs, weights):
    (x, p), (y, q) = masses(a, weights), masses(b, weights)
    return float(ot.emd2(p, q, np.ascontiguousarray(costs[np.ix_(x, y)])))


def set_distance(i, j, costs, weights):
    w = np.array([[movers(a, b, costs, weights) for b in j] for a in i])
    return w.min(1).sum() + w.min(0).sum()


def sentences(sets):
    return [[" ".join(WORDS[w] for w in caption) for caption in image] for image in sets]


def by_word(values):
    return {
        WORDS[number]: value for number, value in (values.items() if isinstance(values, dict) else enumerate(values))
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_w_equals_pot_in_float64(seed):
    sets, weights = random_sets(seed), random_weights(seed)
    packed, costs = bags.pack(sets, bags.whole_weights(weights, range(30))), WordCosts(gaussian())
    count = len(packed.totals)
    out = np.zeros((count, count))
    cpu.word_movers_rows(
        cpu.caption_pairs(packed, packed, costs), cpu.make_workspace(bags.most_words(packed)), False, 0, 1, out
    )
    block = costs.block(np.arange(30), np.arange(30)).astype(np.float64)
    captions = [caption for image in sets for caption in image]
    expected = [[movers(a, b, block, lambda word: rounded(weights, word)) for b in captions] for a in captions]
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


def test_sets_equal_the_slow_loop_with_one_word_and_duplicates():
    sets, weights = [*random_sets(1), [[3]], [[3], [3], [3, 3]], [[4, 3, 4]]], random_weights(1)
    block = WordCosts(gaussian()).block(np.arange(30), np.arange(30)).astype(np.float64)
    expected = [[set_distance(i, j, block, lambda word: rounded(weights, word)) for j in sets] for i in sets]
    found = caption_distance(sets, sets, gaussian(), weights=weights)
    torch.testing.assert_close(found.double(), torch.tensor(expected), rtol=1e-6, atol=1e-6)
    assert torch.equal(found, found.T)
    assert found[-2, -3] == 0  # one word, however often


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), min_size=2, max_size=6),
    st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=6),
)
def test_symmetric_and_0_for_equal_captions_at_any_weights(captions, weights):
    w = word_movers_distance(captions, captions, gaussian(6), weights=dict(enumerate(weights)))
    assert torch.equal(w, w.T)
    assert float(w.diagonal().abs().max()) == 0
    again = word_movers_distance(
        captions, [list(reversed(c)) for c in captions], gaussian(6), weights=dict(enumerate(weights))
    )
    assert torch.equal(w, again)


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
    distances = space.pairwise().fill_diagonal_(torch.inf)
    values, rows = distances.sort(dim=1, stable=True)
    assert torch.equal(space.nearest(5).rows, rows[:, :5])
    assert torch.equal(space.nearest(5).distances, Neighbours(values[:, :5], rows).distances)


def test_the_plan_moves_what_the_distance_pays_for():
    weights = {0: 1.0, 1: 4.0, 2: 1.0}
    plan = word_movers_plan([0, 1], [1, 2], gaussian(), weights)
    assert {(match.source, match.target): match.share for match in plan} == {(1, 1): 0.8, (0, 2): 0.2}
    total = sum(match.share * match.distance for match in plan)
    assert total == pytest.approx(
        float(word_movers_distance([[0, 1]], [[1, 2]], gaussian(), weights=weights)), rel=1e-6
    )


def test_idf_counts_images_and_equals_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    captions = [["A red dog", "red red ball"], ["a dog runs", ""], ["the cat"]]
    found = idf_weights(captions, [["a blue dog"]])
    assert found["dog"] == math.log(4 / 3) + 1
    assert found["blue"] == math.log(4) + 1
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
    assert of_corpus.dropped == 1
    assert of_corpus.digests() == CaptionLabels(sets, vectors).digests()
    assert of_corpus.fingerprint() != CaptionLabels(sets, vectors).fingerprint()


def test_whole_weights_are_rounded_to_steps_of_the_largest():
    assert bags.whole_weights({"a": 2.0, "b": 1.0}, ["a", "b", "c"]).tolist() == [2, 1, 1]
    assert bags.whole_weights({"a": 1e6, "b": 1e-6}, ["a", "b"]).tolist() == [1024, 1]
    assert bags.whole_weights({}, ["a"]).tolist() == [1]
    assert bags.whole_weights({"a": 1.0}, []).tolist() == []
    found = bags.whole_weights({"a": 3.0, "b": 0.7}, ["a", "b"])
    assert Fraction(int(found[1]), int(found[0])) == Fraction(round(0.7 / 3 * 1024), 1024)


@pytest.mark.parametrize("weight", [0, math.nan, True, "2"])
def test_weights_that_are_not_above_0_are_refused(weight):
    with refuses("weight of the word 'w1'", allowed="above 0"):
        CaptionLabels([["w0 w1"]], by_word(gaussian()), weights={"w0": 1.0, "w1": weight})
