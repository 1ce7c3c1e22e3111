"""The caption tasks: the synthetic data set, what a split holds, and the pictures it draws."""

from __future__ import annotations

import gzip
import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.miniature import TINY
from support.refusals import refuses

from contml.app.cli import main
from contml.app.experiment import load, train
from contml.data import Pixels, Split, Task
from contml.data.renderers import labels as renderer
from contml.data.renderers.labels import CaptionExplainer
from contml.data.renderers.text import READABLE, draw_words, wrapped
from contml.labels import CaptionLabels
from contml.labels.captions import tokens
from contml.tasks.captions import TASKS
from contml.tasks.captions.distance import CaptionDistance, DistanceOptions, word_vectors
from contml.tasks.captions.drawn_scenes import COLOURS, NOUNS, draw_scene, synthetic, write_captions
from contml.tasks.captions.painting import KINDS, PLACES, choose_scene, paint_scene
from contml.tasks.captions.split import make_split
from contml.testing import check_label_space
from contml.transport import word_movers_distance

WORDS = {"cat": [0.0, 0.0], "dog": [0.0, 1.0], "red": [3.0, 0.0], "car": [3.0, 4.0], "road": [5.0, 4.0]}
VECTORS = {word: np.array(vector) for word, vector in WORDS.items()}


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


def test_a_scene_is_a_function_of_seed_and_index():
    pixels, texts = draw_scene(3, 5, 64)
    np.random.default_rng().random()
    again, texts_again = draw_scene(3, 5, 64)
    assert pixels.tobytes() == again.tobytes()
    assert texts == texts_again
    for other in ((3, 6), (4, 5), (5, 3)):
        assert draw_scene(*other)[1] != texts
    assert pixels.shape == (64, 64, 3)
    assert pixels.dtype == np.uint8
    assert len(np.unique(pixels)) > 50


def test_a_scene_is_the_same_at_every_size():
    for index in range(4):
        pixels, texts = draw_scene(1, index, 64)
        larger, texts_again = draw_scene(1, index, 128)
        assert texts == texts_again
        smaller = np.asarray(Image.fromarray(larger).resize((64, 64), Image.Resampling.BOX), np.float32)
        assert np.abs(smaller - pixels).mean() < 8


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


def test_relations_are_true():
    for index in range(300):
        scene = scene_of(index)
        for relation in scene.relations:
            a, b = scene.things[relation.first], scene.things[relation.second]
            if relation.word == "left":
                assert a.x < b.x
            elif relation.word == "right":
                assert a.x > b.x
            elif relation.word == "between":
                assert b.x < a.x < scene.things[relation.third].x
            elif relation.word == "on":
                assert b.base - b.height < a.base < b.base
                assert abs(a.x - b.x) < b.width / 2
            elif relation.word == "above":
                assert a.flying
                assert a.base < b.base - 0.4 * b.height
            elif relation.word == "front":
                assert a.depth > b.depth
                assert not a.large


def test_every_thing_is_visible():
    """Without a thing many pixels change: it is neither outside nor of the colour of the backdrop."""
    for index in range(40):
        scene = scene_of(index, seed=7)
        whole = paint_scene(np.random.default_rng(0), scene, 64).astype(int)
        for number in range(len(scene.things)):
            less = scene._replace(things=tuple(t for n, t in enumerate(scene.things) if n != number))
            gone = paint_scene(np.random.default_rng(0), less, 64).astype(int)
            changed = np.abs(whole - gone).sum(axis=2)
            thing = scene.things[number]
            top, bottom = int((thing.base - thing.height) * 64), int(thing.base * 64)
            left, right = int((thing.x - thing.width / 2) * 64), int((thing.x + thing.width / 2) * 64)
            inside = changed[max(top, 0) : bottom, max(left, 0) : right]
            assert (inside > 40).mean() > 0.1, (index, thing)


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


def test_captions_of_one_scene_mention_different_things():
    nouns = {word for words in NOUNS.values() for word in words}
    counts = [
        len({frozenset(set(tokens(text)) & nouns) for text in write_captions(np.random.default_rng(i), scene_of(i))})
        for i in range(100)
    ]
    assert np.mean(counts) > 3


def test_any_number_of_captions():
    for count in (1, 5, 12):
        assert len(write_captions(np.random.default_rng(0), scene_of(0), count)) == count


def test_word_vectors_learn_synonyms():
    captions = [draw_text(index) for index in range(1500)]
    vectors = word_vectors(None, captions, captions[:10], 50, 0)

    def cosine(a, b):
        return float(vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b]))

    tables = (NOUNS, COLOURS)
    same = [cosine(a, b) for t in tables for words in t.values() for a in set(words) for b in set(words) if a < b]
    other = [
        cosine(a, b)
        for t in tables
        for x, words in t.items()
        for y, rest in t.items()
        if x < y
        for a in set(words)
        for b in set(rest)
    ]
    assert np.mean(same) > np.mean(other) + 0.35
    assert np.mean(np.array(same) > np.quantile(other, 0.95)) > 0.9


def draw_text(index):
    random = np.random.default_rng([0, index])
    return write_captions(random, choose_scene(random))


# The synthetic task


def test_the_task_keeps_the_contracts(task):
    assert isinstance(task, Task)
    assert isinstance(task.train, Split)
    assert (len(task.train), len(task.test)) == (120, 40)
    assert task.train.queries is None
    assert task.train.gallery is None
    assert len(task.test.queries) == 8
    assert sorted([*task.test.queries.tolist(), *task.test.gallery.tolist()]) == list(range(40))
    assert task.train.name(3) == "scene 3"
    assert task.test.name(3) == "scene 10000003"
    assert task.train.image(0).shape == (32, 32, 3)
    assert task.train.excluded == {}
    check_label_space(task.test.labels)


def test_the_task_is_the_same_each_time(task):
    again = synthetic(train=120, test=40, queries=8, size=32)
    torch.testing.assert_close(again.test.labels.pairwise(), task.test.labels.pairwise(), rtol=0, atol=0)
    assert torch.equal(again.test.queries, task.test.queries)
    assert again.train.labels.captions == task.train.labels.captions
    other = synthetic(train=120, test=40, queries=8, size=32, seed=1)
    assert other.train.labels.captions != task.train.labels.captions


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


def test_near_scenes_share_words(task):
    labels = task.train.labels.pairwise()
    words = [{word for text in texts for word in tokens(text)} for texts in task.train.labels.captions]
    shared = torch.tensor([[len(a & b) / len(a | b) for b in words] for a in words])
    apart = ~torch.eye(120, dtype=torch.bool)
    assert torch.corrcoef(torch.stack((labels[apart], shared[apart])))[0, 1] < -0.5


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"train": 2}, "train"),
        ({"size": 4}, "size"),
        ({"captions": 0}, "captions"),
        ({"seed": -1}, "seed"),
        ({"train": 20, "test": 10, "queries": 9}, "queries"),
    ],
)
def test_bad_options_are_refused(options, subject):
    with refuses(subject):
        synthetic(**options)


def test_every_task_is_in_the_table():
    assert list(TASKS) == ["synthetic", "coco", "flickr"]
    assert TASKS["synthetic"] is synthetic


# A split


def test_images_without_words_are_refused_by_name_or_dropped():
    captions = [["a cat"], ["the a of"], ["a red car", "xyz"], ["zzz"], ["dog"]]
    with refuses("images/1.jpg", got="no caption has a word that has a vector (2 such images)", hint="empty=drop"):
        split_of(captions)
    split = split_of(captions, empty="drop", queries=[2, 3], excluded={"without a caption": 4})
    assert split.names == ["images/0.jpg", "images/2.jpg", "images/4.jpg"]
    assert split.excluded == {"without a caption": 4, "without a word that has a vector": 2}
    assert split.labels.captions[1] == ["a red car", "xyz"]
    assert (split.queries.tolist(), split.gallery.tolist()) == ([1], [0, 2])
    assert split.image(1)[0, 0, 0] == 40 * 3
    assert len(split) == len(split.labels) == 3


def test_queries_are_drawn_at_random_and_always_the_same():
    captions = [["cat"]] * 50
    rows = [split_of(captions, queries=10, seed=seed).queries.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0] != list(range(10))
    assert rows[0] == sorted(set(rows[0]))
    assert split_of(captions).queries is None
    with refuses("queries"):
        split_of(captions, queries=49)
    with refuses("queries", got="0 of 50"):
        split_of(captions, queries=[99])


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
    with refuses(name, got="pickle", hint="save_word2vec_format"):
        word_vectors(Path(name), [["a cat"]], [["a car"]], 5, 0)
    assert not Path("executed").exists()


# Pictures


def test_captions_are_under_the_image(task):
    picture = task.test.draw(0, 200)
    assert (picture.size, picture.mode) == ((200, 200), "RGB")
    pixels = np.asarray(picture, int)
    text = pixels[122:, 8:].min(axis=2)
    assert (text < 90).mean() > 0.03, "dark letters"
    assert (text > 220).mean() > 0.6, "on pale paper"
    small = task.test.draw(0, READABLE - 1)
    assert small.size == (READABLE - 1, READABLE - 1)


@pytest.mark.parametrize("size", [40, 120, 200, 420])
@pytest.mark.parametrize("shape", [(10, 400), (400, 10), (1, 1)])
def test_any_image_and_any_caption_is_drawn(size, shape):
    captions = ["", "x" * 300, "words " * 200, "漢字 \u2028 \U0001f600", "a\nb\tc"]
    assert draw_words(Image.new("RGB", shape), "\n".join(captions), size).size == (size, size)
    assert draw_words(Image.new("RGB", shape), "", size).size == (size, size)


def test_punctuation_of_token_files_follows_its_word():
    assert CaptionLabels([["a woman 's hat , red .", " "]], VECTORS).text(0) == "a woman's hat, red."


def test_lines_are_as_wide_as_they_may_be():
    font = renderer.load_font(13)
    text = "a large striped cat sits in front of a very small brown box on the carpet"
    lines = wrapped(text, font, 120, 99)
    assert " ".join(lines) == text
    assert all(font.getlength(line) <= 120 for line in lines)
    cut = wrapped(text, font, 120, 2)
    assert cut[0] == lines[0]
    assert cut[1].endswith("…")
    assert font.getlength(cut[1]) <= 120


def picture_of(split, query, row, size):
    """The picture of an explanation."""
    ((_, picture),) = split.explain(query, row, size)
    return picture


def test_an_explanation_shows_both_images_and_the_shared_words(task):
    distances = task.test.labels.pairwise([0])[0]
    nearest = int(distances[1:].argmin()) + 1
    picture = picture_of(task.test, 0, nearest, 900)
    assert (picture.width, picture.mode) == (900, "RGB")
    assert 300 < picture.height < 900
    pixels = np.asarray(picture, int)
    blue = (np.abs(pixels - (0, 114, 178)).sum(axis=2) < 30) & (np.arange(900) > 230)
    assert blue.sum() > 100, "words that both have"


def test_an_explanation_shows_the_label_distance(monkeypatch):
    written = []
    original = renderer.shorten
    monkeypatch.setattr(
        renderer,
        "shorten",
        lambda text, font, width: written.append(text) or original(text, font, width),
    )
    for normalize in (False, True):
        written.clear()
        split = split_of([["a red cat", "the"], ["a dog", "red car on a road"], ["cat"]], normalize=normalize)
        split.explain(0, 1, 600)
        distance = float(split.labels.pairwise([0], [1]))
        assert f"Label distance {distance:.3g}: sum over all captions" in " ".join(written)
        assert "0.jpg" in written


def test_lines_go_where_the_plan_says(monkeypatch):
    curves = []
    monkeypatch.setattr(
        renderer,
        "_draw_curve",
        lambda pen, ends, colour, width: curves.append((ends, colour, width)),
    )
    image = Image.new("RGB", (8, 8))
    labels = CaptionLabels([["red cat"], ["red dog"]], VECTORS)
    CaptionExplainer(labels, ["a", "b"])((0, 1), (image, image), 600)
    assert len(curves) == 2
    by_colour = {colour: ends for ends, colour, _ in curves}
    same, far = by_colour[(0, 114, 178)], by_colour[(213, 94, 0)]
    assert same[0] == same[2], "red stays"
    assert far[0] > same[0], "cat, the second word, moves to dog"
    assert len({width for *_, width in curves}) == 1, "equal shares"
    assert labels.parts(0, 1) == [("captions 1", "red cat", "red dog", "0.500: cat to dog (50 %)", "")]
    assert float(word_movers_distance([["red", "cat"]], [["red", "dog"]], VECTORS)) == 0.5


def test_equal_captions_are_explained():
    split = split_of([["a cat"], ["a cat"], ["polka-dot cat, CAT\u2019s cat"]], empty="drop")
    for pair in ((0, 1), (0, 2), (2, 2)):
        assert picture_of(split, *pair, 300).width == 300


# A run


@pytest.mark.slow
def test_a_run_explains_the_pair_that_is_chosen(tmp_path, monkeypatch, capsys):
    options = ["task.dim=20", "model.backbone=small_cnn", "model.weights=none"]
    run = train(load("captions/synthetic", [*TINY, *options]), tmp_path)

    def report(*arguments):
        monkeypatch.setattr("sys.argv", ["contml", "report", str(run.folder), *arguments])
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0, capsys.readouterr().err
        return 0, capsys.readouterr().err

    capsys.readouterr()
    assert "The first query and its nearest item" in (run.folder / "report.html").read_text()
    assert report("--pair", "3", "10000007") == (0, "")
    page = (run.folder / "report.html").read_text()
    assert "Two chosen items" in page
    assert "query scene 10000003 and scene 10000007, explained" in page
    assert "best retrieval" not in page
    assert report("--pair", "scene 10000003", "7")[0] == 0
    assert "query scene 10000003 and scene 10000007, explained" in (run.folder / "report.html").read_text()
    assert report() == (0, "")
    assert "The first query and its nearest item" in (run.folder / "report.html").read_text()
    status, err = report("--pair", "3", "24")
    assert (status, err.count("\n")) == (2, 1)
    assert "--pair: no test image '24'; give a name such as scene 10000000, or a row, 0 to 23" in err
