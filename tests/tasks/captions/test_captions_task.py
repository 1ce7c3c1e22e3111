"""The caption tasks: the synthetic data set, what a split holds, and the pictures it draws."""

import gzip
import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.refusals import refused, refuses

from contml.data import Pixels
from contml.data.renderers.text import READABLE, draw_words, load_font, wrapped
from contml.labels import CaptionLabels
from contml.labels.captions import tokens
from contml.tasks.captions.distance import CaptionDistance, DistanceOptions, word_vectors
from contml.tasks.captions.drawn_scenes import COLOURS, NOUNS, synthetic, write_captions
from contml.tasks.captions.painting import KINDS, PLACES, choose_scene, paint_scene
from contml.tasks.captions.split import make_split

VECTORS = {"cat": [0.0, 0.0], "dog": [0.0, 1.0], "red": [3.0, 0.0], "car": [3.0, 4.0], "road": [5.0, 4.0]}


def scene_of(index, seed=0):
    return choose_scene(np.random.default_rng([seed, index]))


@pytest.fixture(scope="module")
def task():
    return synthetic(train=120, test=40, queries=8, size=32)


def split_of(captions, normalize=False, **options):
    images = [Pixels(np.full((20, 30, 3), 40 * (row + 1) % 256, np.uint8)) for row in range(len(captions))]
    distance = CaptionDistance(DistanceOptions("wmd", "count"), captions, vectors=VECTORS, normalize=normalize)
    return make_split(images, [f"images/{row}.jpg" for row in range(len(captions))], captions, distance, **options)


# Scenes


def test_scenes_are_varied_and_things_are_in_the_picture():
    found = [scene_of(index) for index in range(300)]
    assert {scene.place for scene in found} == set(PLACES)
    assert {thing.kind for scene in found for thing in scene.things} == set(KINDS)
    words = {relation.word for scene in found for relation in scene.relations}
    assert words == {"on", "above", "under", "front", "behind", "left", "right", "beside", "between"}
    counts = np.bincount([len(scene.things) for scene in found])
    assert len(counts) == 5
    assert (counts[2:] > 30).all()
    for scene in found:
        assert len({thing.kind for thing in scene.things}) == len(scene.things)
        for thing in scene.things:
            assert 0 <= thing.x - thing.width / 2 < thing.x + thing.width / 2 <= 1
            assert 0 <= thing.base - thing.height < thing.base < 1


#: What a word says of the things a, b and c.
RELATIONS = {
    "left": lambda a, b, c: a.x < b.x,
    "right": lambda a, b, c: a.x > b.x,
    "between": lambda a, b, c: b.x < a.x < c.x,
    "on": lambda a, b, c: b.base - b.height < a.base < b.base and abs(a.x - b.x) < b.width / 2,
    "above": lambda a, b, c: a.flying and a.base < b.base - 0.4 * b.height,
    "front": lambda a, b, c: a.depth > b.depth and not a.large,
}


def test_relations_are_true():
    for index in range(300):
        scene = scene_of(index)
        for first, word, *others in scene.relations:
            if word in RELATIONS:
                assert RELATIONS[word](*(scene.things[number] for number in (first, *others))), word


def test_every_thing_is_visible():
    """Without a thing many pixels change: it is neither outside nor of the colour of the backdrop."""
    for index in range(40):
        scene = scene_of(index, seed=7)
        whole = paint_scene(np.random.default_rng(0), scene, 64).astype(int)
        for number in range(len(scene.things)):
            less = scene._replace(things=tuple(t for n, t in enumerate(scene.things) if n != number))
            changed = np.abs(whole - paint_scene(np.random.default_rng(0), less, 64).astype(int)).sum(axis=2)
            thing = scene.things[number]
            top, bottom = int((thing.base - thing.height) * 64), int(thing.base * 64)
            left, right = int((thing.x - thing.width / 2) * 64), int((thing.x + thing.width / 2) * 64)
            assert (changed[max(top, 0) : bottom, max(left, 0) : right] > 40).mean() > 0.1, (index, thing)


# Captions


def test_captions_differ_and_mention_only_what_is_there():
    of_noun = {word: kind for kind, words in NOUNS.items() for word in words}
    of_colour = {word: colour for colour, words in COLOURS.items() for word in words}
    for index in range(200):
        scene = scene_of(index)
        texts = write_captions(np.random.default_rng(index), scene)
        assert len(set(texts)) >= 4
        kinds = {thing.kind for thing in scene.things}
        for text in texts:
            mentioned = [of_noun[word] for word in tokens(text) if word in of_noun]
            assert mentioned, text
            assert set(mentioned) <= kinds, text
        # A colour directly before a noun is the colour of that thing.
        colours = {thing.kind: thing.colour for thing in scene.things}
        for text in texts:
            for first, second in pairwise(text.replace(",", "").split()):
                if first in of_colour and second in of_noun:
                    assert of_colour[first] == colours[of_noun[second]], text


# The synthetic task


def test_both_splits_have_the_vectors_of_the_training_captions(task):
    """Vectors trained on the training captions alone, and the words of the test captions are known."""
    captions = task.train.labels.captions
    alone = CaptionLabels(captions, word_vectors(None, captions, [], dim=100, seed=0))
    backwards = word_vectors(None, captions[::-1], [], dim=100, seed=0)
    assert all((backwards[word] == vector).all() for word, vector in word_vectors(None, captions, [], 100, 0).items())
    torch.testing.assert_close(task.train.labels.pairwise([0], None), alone.pairwise([0], None), rtol=0, atol=0)
    unknown = task.test.labels.unknown
    assert sum(unknown.values()) < 0.01 * sum(
        len(tokens(text)) for texts in task.test.labels.captions for text in texts
    )
    assert not synthetic(train=600, test=40, queries=4, size=16).test.labels.unknown


# A split


def test_images_without_words_are_refused_by_name_or_dropped():
    captions = [["a cat"], ["the a of"], ["a red car", "xyz"], ["zzz"], ["dog"]]
    with refuses("images/1.jpg", got="no caption has a word that has a vector (2 such images)", hint="empty=drop"):
        split_of(captions)
    split = split_of(captions, empty="drop", queries=[2, 3], excluded={"without a caption": 4})
    assert split.names == ["images/0.jpg", "images/2.jpg", "images/4.jpg"]
    assert split.excluded == {"without a caption": 4, "without a word that has a vector": 2}
    assert split.labels.captions[1] == ["a red car", "xyz"]
    assert ((split.queries.tolist(), split.gallery.tolist()), split.image(1)[0, 0, 0]) == (([1], [0, 2]), 40 * 3)
    assert len(split) == len(split.labels) == 3


def test_queries_are_drawn_at_random_and_always_the_same():
    captions = [["cat"]] * 50
    rows = [split_of(captions, queries=10, seed=seed).queries.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0] != list(range(10))
    assert rows[0] == sorted(set(rows[0]))
    assert split_of(captions).queries is None
    refused(lambda: split_of(captions, queries=49), "queries")
    refused(lambda: split_of(captions, queries=[99]), "queries", got="0 of 50")


def test_vectors_of_another_language_are_refused(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("2 2\ncat 1.0 0.0\ncar 0.0 1.0\n")
    assert set(word_vectors(path, [["a cat"]], [["a car"]], 5, 0)) == {"cat", "car"}
    with refuses("vectors.txt", got="1 of the 5 words of the captions (none for 'ein')"):
        word_vectors(path, [["ein Hund und ein car"]], [["a"]], 5, 0)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("name", ["vectors.kv", "vectors.bin", "vectors.gz"])
def test_vectors_in_a_pickle_are_refused_and_not_read(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with gzip.open(name, "wb") if name.endswith(".gz") else open(name, "wb") as file:  # noqa: PTH123
        pickle.dump(Harmful(), file)
    with refuses(name, got="no word vectors", hint="save_word2vec_format"):
        word_vectors(Path(name), [["a cat"]], [["a car"]], 5, 0)
    assert not Path("executed").exists()


# Pictures


def test_captions_are_under_the_image(task):
    picture = task.test.draw(0, 200)
    assert (picture.size, picture.mode) == ((200, 200), "RGB")
    text = np.asarray(picture, int)[122:, 8:].min(axis=2)
    assert (text < 90).mean() > 0.03, "dark letters"
    assert (text > 220).mean() > 0.6, "on pale paper"
    assert task.test.draw(0, READABLE - 1).size == (READABLE - 1, READABLE - 1)


@pytest.mark.parametrize("size", [40, 120, 200, 420])
@pytest.mark.parametrize("shape", [(10, 400), (400, 10), (1, 1)])
def test_any_image_and_any_caption_is_drawn(size, shape):
    captions = ["", "x" * 300, "words " * 200, "漢字 \u2028 \U0001f600", "a\nb\tc"]
    assert draw_words(Image.new("RGB", shape), "\n".join(captions), size).size == (size, size)
    assert draw_words(Image.new("RGB", shape), "", size).size == (size, size)


def test_lines_are_as_wide_as_they_may_be():
    font = load_font(13)
    text = "a large striped cat sits in front of a very small brown box on the carpet"
    lines = wrapped(text, font, 120, 99)
    assert " ".join(lines) == text
    assert all(font.getlength(line) <= 120 for line in lines)
    cut = wrapped(text, font, 120, 2)
    assert cut[0] == lines[0]
    assert cut[1].endswith("…")
    assert font.getlength(cut[1]) <= 120


def test_equal_captions_are_explained():
    split = split_of([["a cat"], ["a cat"], ["polka-dot cat, CAT\u2019s cat"]], empty="drop")
    for pair in ((0, 1), (0, 2), (2, 2)):
        assert split.labels.parts(*pair)
