"""Sets of captions whose words are numbers, and distances between captions by POT in float64."""

import numpy as np
import ot

WORDS = [f"w{number}" for number in range(40)]


def gaussian(words=40, dim=5, seed=0):
    return np.random.default_rng(seed).normal(size=(words, dim)).astype(np.float32)


def random_caption(random, words=40, longest=9):
    return random.integers(0, words, random.integers(1, longest + 1)).tolist()


def random_sets(seed, items=12, words=40, longest=9):
    random = np.random.default_rng(seed)
    return [[random_caption(random, words, longest) for _ in range(random.integers(1, 6))] for _ in range(items)]


def sentences(sets):
    return [[" ".join(WORDS[w] for w in caption) for caption in image] for image in sets]


def euclidean(vectors):
    """Function of two lists of words: the distances between their vectors."""
    return lambda x, y: ot.dist(*(np.array([vectors[w] for w in words], float) for words in (x, y)), metric="euclidean")


def movers(a, b, costs, weight=lambda word: 1):
    """W of two captions: costs of two lists of words; the mass of a word is its count times its weight."""
    x, y = sorted(set(a)), sorted(set(b))
    p, q = (np.array([all_of.count(w) * weight(w) for w in words]) for all_of, words in ((a, x), (b, y)))
    return float(ot.emd2(p / p.sum(), q / q.sum(), costs(x, y)))


def set_distance(i, j, costs, weight=lambda word: 1):
    w = np.array([[movers(a, b, costs, weight) for b in j] for a in i])
    return w.min(1).sum() + w.min(0).sum()
