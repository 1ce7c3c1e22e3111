"""Captions as vectors: tf-idf, mean vectors and encoders against slow loops in float64, edge cases, bad input."""

import math
import pickle

import numpy as np
import pytest
import torch
from support.choices import pairwise
from support.refusals import refuses

from contml.labels import CaptionVectorLabels, idf_weights
from contml.labels.captions import tokens
from contml.testing import check_label_space

WORDS = ["dog", "cat", "runs", "red", "grass", "ball", "sky", "two"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(8, 3)), strict=True))
CAPTIONS = [["a dog runs", "Red dog, red dog"], ["cat"], ["two red cats on grass", "a cat"]]
CAPTIONS += [["red dog red dog", "dog runs"], ["dog", "dog", "dog"], ["a ball in the sky", "unicorn"]]
CAPTIONS += [["two balls, two dogs, two cats", "grass", "grass sky"]]


def random_captions(seed, items=25):
    random = np.random.default_rng(seed)
    return [
        [" ".join(random.choice(WORDS, random.integers(1, 6))) for _ in range(random.integers(1, 5))]
        for _ in range(items)
    ]


def letters(captions):
    """An encoder: how often each of six letters occurs, and the length."""
    return np.array([[*(caption.lower().count(letter) for letter in "dogcat"), len(caption)] for caption in captions])


# The slow loop: vectors are dictionaries of numbers


def tfidf_vector(caption, weights):
    vector = {}
    for word in tokens(caption):
        vector[word] = vector.get(word, 0.0) + weights.get(word, 1.0)
    return vector


def mean_vector(caption, weights):
    vector = {}
    for word in tokens(caption):
        for place, value in enumerate(VECTORS.get(word, ())):
            vector[place] = vector.get(place, 0.0) + weights.get(word, 1.0) * float(value)
    return vector


def encoded_vector(caption, _):
    return dict(enumerate(letters([caption])[0].tolist()))


def unit(vector):
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {place: value / length for place, value in vector.items()} if length else {}


def cosine_distance(a, b):
    return sum((a.get(place, 0.0) - b.get(place, 0.0)) ** 2 for place in a.keys() | b.keys()) / 2


def slow(captions, vector_of, weights, sets):
    images = [[v for v in (unit(vector_of(caption, weights)) for caption in image) if v] for image in captions]
    out = np.zeros((len(images), len(images)))
    for i, first in enumerate(images):
        for j, second in enumerate(images):
            if sets == "mean":
                totals = []
                for image in (first, second):
                    total = {}
                    for vector in image:
                        for place, value in vector.items():
                            total[place] = total.get(place, 0.0) + value / len(image)
                    totals.append(unit(total))
                out[i, j] = cosine_distance(*totals)
            else:
                of_first = sum(min(cosine_distance(a, b) for b in second) for a in first)
                out[i, j] = of_first + sum(min(cosine_distance(a, b) for a in first) for b in second)
    return out


ENCODERS = {"tfidf": ("tfidf", tfidf_vector), "mean_vector": ("mean_vector", mean_vector)}
ENCODERS["f"] = letters, encoded_vector


#: Random captions, and those of each image in another order.
TURNED = [captions[::way] for way in (1, -1) for captions in random_captions(0, 13)]


OPTIONS = pairwise([CAPTIONS, TURNED], ["idf", "count", {"dog": 0.1, "grass": 40.0}], ENCODERS, ["mean", "minima"])


@pytest.mark.parametrize(("captions", "weights", "name", "sets"), OPTIONS)
def test_equals_the_slow_loop(captions, weights, name, sets):
    encoder, vector_of = ENCODERS[name]
    space = CaptionVectorLabels(captions, encoder, VECTORS, weights=weights, sets=sets)
    by_word = idf_weights(captions) if weights == "idf" else {} if weights == "count" else weights
    expected = slow(captions, vector_of, by_word, sets)
    found = space.distances(space, space)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(found, found.T)
    assert not found.numpy()[expected < 1e-12].any()  # equal captions in any order: 0 to the last bit
    x, y = space[[4, 0, 4]], space[[3, 4]]
    np.testing.assert_allclose(x.distances(x, y), expected[[4, 0, 4]][:, [3, 4]], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sets", ["mean", "minima"])
@pytest.mark.parametrize("name", ENCODERS)
def test_keeps_the_contract_and_finds_the_nearest(name, sets):
    space = CaptionVectorLabels(random_captions(1, 60), ENCODERS[name][0], VECTORS, sets=sets)
    check_label_space(space)
    distances = space.pairwise()
    found = space.nearest(7)
    expected = distances.clone().fill_diagonal_(torch.inf).sort(dim=1).values[:, :7]
    torch.testing.assert_close(found.distances, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(distances.gather(1, found.rows), expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(pickle.loads(pickle.dumps(space)).pairwise(), distances)


def test_an_encoder_sees_each_caption_once_and_may_return_a_tensor():
    seen = []

    def encoder(captions):
        seen.append(captions)
        return torch.from_numpy(letters(captions)).float().requires_grad_()

    space = CaptionVectorLabels([["dog", "cat"], ["dog", "  "], ["cat", "dog"], ["a ", "a"]], encoder)
    assert (seen, space.dropped, space.pairwise()[0, 2]) == ([["cat", "dog", "a", "a "]], 1, 0)


def test_what_has_no_vector_is_dropped_or_refused():
    given_ = [["dog", "the", ""], ["unicorn"], ["", "a"], [], ["cat unicorn"]]
    words = CaptionVectorLabels(given_, "tfidf", empty="drop")
    assert (words.kept.tolist(), words.dropped) == ([0, 1, 4], 4)
    vectors = CaptionVectorLabels(given_, "mean_vector", VECTORS, empty="drop")
    assert (vectors.kept.tolist(), vectors.dropped) == ([0, 4], 5)
    assert CaptionVectorLabels(given_, letters, empty="drop").kept.tolist() == [0, 1, 2, 4]
    with refuses("image 1", got="no caption with a vector (3 such images)"):
        CaptionVectorLabels(given_, "mean_vector", VECTORS)
    with refuses("captions", got="none has a vector, of 2 images"):
        CaptionVectorLabels([["the"], [""]], "tfidf", empty="drop")
    with refuses("captions", got="none has a vector, of 1 images"):
        CaptionVectorLabels([[" "]], letters, empty="drop")
    opposite = {"dog": [1.0, 0.0], "cat": [-1.0, 0.0], "sky": [0.0, 0.0]}
    found = CaptionVectorLabels(
        [["dog", "cat"], ["dog sky"], ["sky"], ["dog cat"]], "mean_vector", opposite, weights="count", empty="drop"
    )
    assert found.kept.tolist() == [1]


def test_digests_depend_on_the_captions_alone_and_fingerprints_on_the_vectors():
    whole, part = CaptionVectorLabels(CAPTIONS), CaptionVectorLabels(CAPTIONS[:3])
    assert (whole.digests()[:3], len(set(whole.digests()))) == (part.digests(), len(CAPTIONS))
    given_options = ({}, {}, {"weights": "count"}, {"sets": "minima"})
    marks = {CaptionVectorLabels(CAPTIONS, **options).fingerprint() for options in given_options}
    assert len(marks) == 3
    dense = {CaptionVectorLabels(CAPTIONS, "mean_vector", VECTORS, normalize=n).fingerprint() for n in (False, True)}
    assert len(dense | marks) == 5


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_vectors_of_any_length(size):
    space = CaptionVectorLabels(CAPTIONS, lambda captions: size * letters(captions))
    torch.testing.assert_close(space.pairwise(), CaptionVectorLabels(CAPTIONS, letters).pairwise())
    weights = {word: size * weight for word, weight in idf_weights(CAPTIONS).items()}
    torch.testing.assert_close(
        CaptionVectorLabels(CAPTIONS, weights=weights).pairwise(), CaptionVectorLabels(CAPTIONS).pairwise()
    )
