"""The Triton kernel in Triton's interpreter: test_solver_gpu.py runs this file with TRITON_INTERPRET=1."""

import inspect
from functools import cache

import numpy as np
import ot
import pytest
import torch

from contml.labels import CaptionLabels
from contml.transport import bags, caption_distance, caption_distances, set_distance_gpu as gpu, word_movers_distance
from support.transport_problems import transport

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def quicker():
    """The interpreter lists the members of Triton's modules anew at every call of a function: half of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "getmembers", cache(inspect.getmembers))
        yield


def some_captions(random, number, most, words):
    """Captions of 1 to `most` distinct words, some of them repeated; one is part of another, two are the same."""
    found = []
    for _ in range(number - 2):
        distinct = random.permutation(words)[: random.integers(1, most + 1)]
        found.append(np.concatenate((distinct, random.choice(distinct, random.integers(0, 4)))).tolist())
    found.append(found[0][: len(found[0]) // 2 + 1])
    return [*found, found[1][::-1]]


def word_vectors(random, kind, words):
    if kind == "tied":  # on a small grid, several words at one place
        return random.integers(0, 3, (words, 2)).astype(float)
    return random.normal(size=(words, 3)) * (100 if kind == "offset" else 1) + (1000 if kind == "offset" else 0)


def by_numba(x, y, costs):
    block = costs.block(np.arange(len(costs.vectors)), np.arange(len(costs.vectors))).astype(float)
    out = []
    for a in x:
        supply = np.stack([np.bincount(a, minlength=len(block)) * len(b) for b in y])
        demand = np.stack([np.bincount(b, minlength=len(block)) * len(a) for b in y])
        out.append(transport(np.broadcast_to(block, (len(y), *block.shape)), supply, demand) / supply.sum(1))
    return np.array(out)


def by_pot(a, b, costs):
    (i, p), (j, q) = (np.unique(caption, return_counts=True) for caption in (a, b))
    return float(ot.emd2(p / p.sum(), q / q.sum(), costs.block(i, j).astype(float)))


def check(random, kind, rows, cols, most, device):
    """All captions against all, by the kernel and by numba, and some of them by POT."""
    words = 2 * most
    costs = bags.WordCosts(word_vectors(random, kind, words))
    x, y = some_captions(random, rows, most, words), some_captions(random, cols, most, words)
    y[-1] = x[0]
    packed = bags.pack([c] for c in x), bags.pack([c] for c in y)
    found = gpu.word_movers_distances(*packed, costs, device).cpu().numpy()
    assert gpu._tiles(packed[0]).all()  # none went to the CPU
    np.testing.assert_allclose(found, by_numba(x, y, costs), rtol=1e-9, atol=1e-12)
    assert found[0, -1] == 0
    for i, j in zip(random.integers(0, rows, 10), random.integers(0, cols, 10), strict=True):
        assert found[i, j] == pytest.approx(by_pot(x[i], y[j], costs), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("kind", "most", "rows", "cols"),
    [
        *(("tied", 8, 9, 9), ("metric", 8, 8, 8), ("offset", 8, 5, 5)),
        *(("tied", 16, 5, 6), ("metric", 16, 4, 5), ("tied", 17, 4, 4), ("metric", 17, 4, 3)),
    ],
)
def test_random_captions(kind, most, rows, cols):
    check(np.random.default_rng(most), kind, rows, cols, most, CPU)


def test_turning_a_pair_changes_no_bit():
    random = np.random.default_rng(0)
    costs = bags.WordCosts(word_vectors(random, "metric", 12))
    x = bags.pack([c] for c in some_captions(random, 5, 6, 12))
    other = bags.take(x, np.arange(5))
    found = gpu.word_movers_distances(x, x, costs, CPU)
    assert torch.equal(found, found.T)
    assert not found.diagonal().any()
    assert torch.equal(found, gpu.word_movers_distances(x, other, costs, CPU))
    assert gpu.word_movers_distances(bags.pack([]), x, costs, CPU).shape == (0, 5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_it_ends_even_where_a_cost_is_not_finite(bad):
    x, y = bags.pack([[[0, 1, 2]]]), bags.pack([[[3, 4, 5]]])
    costs = bags.WordCosts(np.arange(6.0)[:, None])
    costs.on(CPU)[0, 3:5] = bad
    assert gpu.word_movers_distances(x, y, costs, CPU).tolist() == [[3]]  # the best plan goes round those


@pytest.fixture
def on_gpu(monkeypatch):
    """Caption distances as on a GPU."""
    monkeypatch.setattr(caption_distances, "_solver", lambda device: gpu)


def sets(random, items=5, most=6):
    return [some_captions(random, random.integers(3, 5), most, 24) for _ in range(items)]


def test_functions(on_gpu, monkeypatch):
    random = np.random.default_rng(1)
    x, y, vectors = sets(random, 2), sets(random, 1), word_vectors(random, "metric", 24)
    found = caption_distance(x, y, vectors), word_movers_distance(x[0], y[0], vectors)
    monkeypatch.undo()
    expected = caption_distance(x, y, vectors), word_movers_distance(x[0], y[0], vectors)
    torch.testing.assert_close(found, expected, rtol=2e-7, atol=1e-6)


def test_label_space_with_captions_of_every_length(on_gpu, monkeypatch):
    random = np.random.default_rng(2)
    images = sets(random, 2)
    images += [[random.permutation(60)[:number].tolist() for number in (40, 3)], [random.permutation(60)[:12].tolist()]]
    images[0].append([5] * (1 << 15) + [6])  # more words than the kernel counts
    text = [[" ".join(f"w{word}" for word in caption) for caption in image] for image in images]
    vectors = {f"w{word}": vector for word, vector in enumerate(word_vectors(random, "metric", 60))}
    monkeypatch.setattr(caption_distances, "_TILE", 8)
    space = CaptionLabels(text, vectors)
    found, part = space.pairwise(), space.pairwise([0, 2, 3], [1, 2])
    monkeypatch.setattr(bags, "WHOLE", 10)
    large = CaptionLabels(text, vectors).pairwise()
    monkeypatch.undo()
    expected = space.pairwise()
    torch.testing.assert_close(found, expected, rtol=2e-7, atol=0)
    torch.testing.assert_close(large, expected, rtol=1e-6, atol=0)
    assert torch.equal(found, found.T)
    assert torch.equal(part, found[[0, 2, 3]][:, [1, 2]])


def test_the_known_problem():
    assert gpu.works(CPU)
