"""Captions: distances against gensim and POT in float64, pruning, nearest sets, files of word vectors, bad input."""

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from hypothesis import given, settings, strategies as st
from support.refusals import refused
from support.word_sets import WORDS, euclidean, gaussian, movers, random_caption, random_sets, sentences, set_distance

from contml.distances import Neighbours
from contml.labels import CaptionLabels
from contml.transport import (
    bags,
    caption_distance,
    caption_distances,
    set_distance_cpu as cpu,
    word_movers_distance,
    word_movers_plan,
)


def keyed(vectors, words=WORDS):
    model = KeyedVectors(vectors.shape[1])
    model.add_vectors(words[: len(vectors)], vectors.astype(np.float32))
    return model


def minima_of_all(packed, costs):
    """D from the float64 values of every W, added up in the order of the captions."""
    pairs = cpu.caption_pairs(packed, packed, costs)
    w = np.zeros((len(packed.totals), len(packed.totals)))
    cpu.word_movers_rows(pairs, cpu.make_workspace(bags.most_words(packed)), False, 0, 1, w)
    ranges = [range(first, last) for first, last in zip(packed.sets, packed.sets[1:], strict=False)]
    out = np.zeros((len(ranges), len(ranges)), np.float32)
    for i, a in enumerate(ranges):
        for j, b in enumerate(ranges[:i]):
            block = w[np.ix_(b, a)]
            out[i, j] = out[j, i] = sum(block.min(1).tolist()) + sum(block.min(0).tolist())
    return out


# ---------------------------------------------------------------------------------------------------------------------
# distances


@pytest.mark.parametrize("size", [1, 16, 17, 64, 65, 100])
def test_any_number_of_words_equals_gensim_and_pot(size):
    words = [f"w{number}" for number in range(3 * size)]
    vectors = keyed(gaussian(3 * size, seed=size), words)
    random = np.random.default_rng(size)
    long = [random.permutation(words)[:size].tolist() for _ in range(2)]
    repeated = [random.choice(words, 2 * size).tolist()]
    x, y = [*long, *repeated], [long[0][: size // 2 + 1], words[:1], *repeated, *long]
    ours = word_movers_distance(x, y, vectors).double()
    expected = torch.tensor([[movers(a, b, euclidean(vectors)) for b in y] for a in x], dtype=torch.float64)
    gensim = torch.tensor([[vectors.wmdistance(a, b, norm=False) for b in y] for a in x], dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours, gensim, rtol=1e-5, atol=1e-5)


def test_repeated_words_subsets_ties_and_identical_captions():
    grid = np.array([[i, j] for i in range(3) for j in range(3)], dtype=np.float64)  # many equal distances
    x = [[0, 0, 1], [0, 1], [0, 1, 2, 3], [4], [4, 4, 4], [8, 0, 8, 2, 6], list(range(9)), [0, 0, 1]]
    ours = word_movers_distance(x, x, grid)
    expected = torch.tensor([[movers(a, b, euclidean(grid)) for b in x] for a in x])
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(ours, ours.T)
    assert ours[0, 7] == ours[3, 4] == 0 < ours[0, 1]
    assert torch.equal(ours, word_movers_distance(x, list(x), grid))  # with and without the half that is the same


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), words=st.integers(1, 40), dim=st.integers(1, 3), grid=st.booleans())
def test_symmetry_identity_triangle_inequality_and_pruning(seed, words, dim, grid):
    random = np.random.default_rng(seed)
    vectors = random.integers(0, 3, (words, dim)).astype(float) if grid else random.normal(size=(words, dim))
    some = [random_caption(random, words) for _ in range(6)]
    w = word_movers_distance(some, some, vectors).double()
    assert torch.equal(w, w.T)
    assert (w.diagonal() == 0).all()
    assert (w[:, None, :] <= w[:, :, None] + w[None] + 1e-5).all()
    sets = random_sets(seed, 6, words)
    costs, packed = bags.WordCosts(vectors), bags.pack(sets)
    pruned = caption_distances.set_distances(packed, packed, costs)
    other = bags.take(packed, np.arange(len(sets)))
    assert np.array_equal(pruned, minima_of_all(packed, costs))
    assert np.array_equal(pruned, caption_distances.set_distances(packed, other, costs))
    assert np.array_equal(pruned, pruned.T)
    assert not pruned.diagonal().any()


@pytest.mark.parametrize("tile", [3, 8])
def test_tiles_and_large_vocabularies_give_the_same(monkeypatch, tile):
    vectors, sets = gaussian(), random_sets(5, 20)
    packed = bags.pack(sets)
    whole = caption_distances.set_distances(packed, packed, bags.WordCosts(vectors))
    monkeypatch.setattr(caption_distances, "_TILE", tile)
    monkeypatch.setattr(bags, "WHOLE", 10)
    monkeypatch.setattr(bags, "_BLOCK", 7)
    costs = bags.WordCosts(vectors)
    np.testing.assert_allclose(caption_distances.set_distances(packed, packed, costs), whole, rtol=1e-6)
    monkeypatch.setattr(bags, "WHOLE", 40)
    tiled = bags.WordCosts(vectors)
    assert np.array_equal(tiled.block(np.arange(40), np.arange(40)), tiled.block(np.arange(40), np.arange(40)).T)
    np.testing.assert_allclose(caption_distances.set_distances(packed, packed, tiled), whole, rtol=1e-6)


def test_a_plan_adds_up_to_the_distance():
    vectors = {"dog": [0.0, 0], "cat": [1, 0], "runs": [0, 5], "sleeps": [1, 5], "grass": [9, 9]}
    plan = word_movers_plan(["dog", "runs", "grass"], ["cat", "sleeps", "grass"], vectors)
    assert {(m.source, m.target) for m in plan} == {("dog", "cat"), ("runs", "sleeps"), ("grass", "grass")}
    assert plan[-1].source == "grass"
    random, vectors = np.random.default_rng(0), gaussian()
    for weights in [None] * 20 + [dict(enumerate(random.integers(1, 5, 40).tolist())) for _ in range(20)]:
        a, b = random_caption(random), random_caption(random)
        weight = (lambda word: 1) if weights is None else weights.get
        plan = word_movers_plan(a, b, vectors, weights)
        expected = movers(a, b, euclidean(vectors), weight)
        assert sum(m.share * m.distance for m in plan) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        for side, caption in (("source", a), ("target", b)):
            mass = {word: caption.count(word) * weight(word) for word in caption}
            for word in mass:
                share = sum(m.share for m in plan if getattr(m, side) == word)
                assert share == pytest.approx(mass[word] / sum(mass.values()))


# ---------------------------------------------------------------------------------------------------------------------
# the label space


@pytest.mark.parametrize("memory", [1, 64 * 30 * 7])
def test_blocks_of_a_few_images_give_the_same_bits_as_half_the_work(memory):
    space = CaptionLabels(sentences(random_sets(2, 30)), keyed(gaussian()))
    whole = space.pairwise()
    assert torch.equal(space.pairwise(memory=memory), whole)
    assert torch.equal(space.pairwise([3, 1, 1], [1, 3]), whole[[3, 1, 1]][:, [1, 3]])
    assert torch.equal(space[[9, 4, 9]].pairwise(memory=memory), whole[[9, 4, 9]][:, [9, 4, 9]])


def by_brute_force(space, k, rows=None, among=None):
    rows = torch.arange(len(space)) if rows is None else torch.tensor(rows)
    among = torch.arange(len(space)) if among is None else torch.tensor(among).unique()
    distances = space.pairwise(rows, among).masked_fill(rows[:, None] == among, torch.inf)
    values, at = distances.sort(dim=1, stable=True)
    return Neighbours(values[:, :k], among[at[:, :k]])


@pytest.mark.parametrize("dim", [1, 3, 50])
def test_nearest_images_equal_brute_force_with_ties_to_the_lower_row(dim):
    few = np.random.default_rng(dim).integers(0, 2, (12, dim)).astype(np.float32)  # many words at one place
    sets = random_sets(dim, 80, words=12, longest=3)
    for vectors, images in ((few, sets), (gaussian(40, dim), random_sets(dim, 60)), (gaussian(40, dim), sets[:3] * 20)):
        space = CaptionLabels(sentences(images), keyed(vectors))
        some = (4, [5, 3, 3], [40, 3, 9, 9, 20, 50])
        for k, rows, among in ((1, None, None), (7, None, None), (len(space) - 1, None, None), some):
            found, expected = space.nearest(k, rows, among=among), by_brute_force(space, k, rows, among)
            assert torch.equal(found.rows, expected.rows)
            assert torch.equal(found.distances, expected.distances)


def test_nearest_images_of_a_large_vocabulary_in_little_memory(monkeypatch):
    monkeypatch.setattr(bags, "WHOLE", 10)
    space, seen = CaptionLabels(sentences(random_sets(7, 70)), keyed(gaussian())), []
    found = space.nearest(5, memory=1, progress=seen.append)
    torch.testing.assert_close(found.distances, by_brute_force(space, 5).distances, rtol=1e-6, atol=0)
    assert (seen, seen[-1]) == (sorted(seen), 70)


def test_the_fingerprint_changes_with_a_word_or_a_vector():
    given, vectors = sentences(random_sets(0)), gaussian()
    marks = {CaptionLabels(given, keyed(vectors)).fingerprint() for _ in range(2)}
    changed = vectors.copy()
    changed[0, 0] += 1e-6
    marks.add(CaptionLabels(given, keyed(changed)).fingerprint())
    marks.add(CaptionLabels(given, keyed(vectors), normalize=True).fingerprint())
    marks.add(CaptionLabels([[*given[0], "w0 w1"], *given[1:]], keyed(vectors)).fingerprint())
    marks.add(CaptionLabels(given, keyed(vectors))[[1, 0]].fingerprint())
    assert len(marks) == 5


def test_what_is_dropped_is_counted_and_kept_tells_the_rest():
    given = [["W0 w1 zebra", "zebra!"], ["", "the"], ["w2 zebra quagga"], []]
    space = CaptionLabels(given, keyed(gaussian()), empty="drop")
    assert (space.kept.tolist(), space.unknown) == ([0, 2], {"zebra": 3, "quagga": 1})
    assert ((space.dropped, space.words), space[[1]].kept.tolist()) == ((3, ["w0", "w1", "w2"]), [2])
    expected = set_distance([[0, 1]], [[2]], euclidean(gaussian()))
    assert space.pairwise()[0, 1].item() == pytest.approx(expected, rel=1e-6)


def test_normalised_vectors_equal_gensim_at_its_default():
    vectors = keyed(gaussian())
    space = CaptionLabels([["w0 w1 w2"], ["w3 w4"]], vectors, normalize=True)
    expected = 2 * vectors.wmdistance(["w0", "w1", "w2"], ["w3", "w4"])
    assert space.pairwise()[0, 1].item() == pytest.approx(expected, rel=1e-5)


def test_vectors_trained_on_the_captions_are_reproducible():
    given = sentences(random_sets(0, 20))
    a, b, c = (CaptionLabels(given, dim=8, seed=seed).pairwise() for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


# ---------------------------------------------------------------------------------------------------------------------
# bad input


TWO = {"w0": [1.0], "w1": [1.0, 2.0]}
REFUSED = [
    (lambda: CaptionLabels([["w0"], ["the", "zebra"], []], keyed(gaussian())), "image 1", "2 such", "", "empty=drop"),
    (lambda: CaptionLabels([["w0"]], 5), "vectors", "int", "", "KeyedVectors"),
    (lambda: CaptionLabels([["w0 w1"]], {"w0": np.ones(5), "w1": np.full(5, 1e30)}), "word 'w1'", "too long"),
    (lambda: CaptionLabels([["w0 w1"]], TWO), "word vectors", "'w1' has 2 numbers", "must be 1"),
    (lambda: caption_distance([[["w0"]]], [[["w1"], []]], keyed(gaussian())), "item 0", "empty", "at least one word"),
    (lambda: word_movers_distance([["w0"]], [["zebra"]], keyed(gaussian())), "word 'zebra'", "no vector"),
]


@pytest.mark.parametrize(("make", "fields"), [(make, fields) for make, *fields in REFUSED])
def test_bad_input(make, fields):
    refused(make, *fields)


def test_the_same_words_in_other_numbers_from_either_side_to_the_last_bit_of_float64():
    random = np.random.default_rng(0)
    far = [8113.361497197013, 4666.67683656592, -6582.488973045075]
    near = [-0.002570981347471453, -0.0015370926631804005, 0.0002502402581717437]
    last = [-0.0002554229040093671, 2.1428092424200125e-05, -0.0002693181011734392]
    costs = bags.WordCosts(np.array([far, near, last]))  # of the first two sets, one side differed
    numbers = [(25, 2, 17), (5, 28, 20), *random.integers(1, 30, (58, 3))]
    sets = [[[0] * a + [1] * b + [2] * c] for a, b, c in numbers]
    x, y = bags.pack(sets), bags.pack(sets)
    forth, back = np.zeros((60, 60)), np.zeros((60, 60))
    cpu.word_movers_rows(cpu.caption_pairs(x, y, costs), cpu.make_workspace(3), False, 0, 1, forth)
    cpu.word_movers_rows(cpu.caption_pairs(y, x, costs), cpu.make_workspace(3), False, 0, 1, back)
    assert np.count_nonzero(forth) > 3_000
    np.testing.assert_array_equal(forth, forth.T)
    np.testing.assert_array_equal(forth, back)
