"""The options `distance` and `word_weights` of the captions tasks: from a config, fitted to training, and refused."""

import sys

import numpy as np
import pytest
import torch
import yaml
from support.refusals import refused, refuses

from contml._support.text import number
from contml.app.experiment import load
from contml.app.experiment.loading import load_run
from contml.labels import CaptionLabels, CaptionVectorLabels, WeightedLabels, idf_weights
from contml.runs import create
from contml.tasks.captions.distance import CaptionDistance, DistanceOptions
from contml.tasks.captions.drawn_scenes import synthetic

SMALL = {"train": 40, "val": 6, "test": 20, "queries": 4, "size": 16}
ENCODER = """
import numpy as np

def lengths(captions: list[str]) -> np.ndarray:
    return np.array([[len(caption), 1.0, caption.count("a")] for caption in captions])

def no_cats(captions: list[str]) -> np.ndarray:
    return np.array([["cat" not in caption] for caption in captions])

def untold(captions):
    return lengths(captions)
"""


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "caption_encoder.py").write_text(ENCODER)
    yield "caption_encoder:lengths"
    sys.modules.pop("caption_encoder", None)


def vectors_of(split):
    return dict(zip(split.labels.words, split.labels._costs.vectors, strict=True))


def test_idf_is_that_of_the_training_captions_in_every_split():
    task = synthetic(**SMALL, word_weights="idf")
    weights = idf_weights(task.train.labels.captions, [*task.val.labels.captions, *task.test.labels.captions])
    for split in (task.train, task.val, task.test):
        expected = CaptionLabels(split.labels.captions, vectors_of(split), weights=weights)
        assert torch.equal(split.labels.pairwise(), expected.pairwise())
    plain = synthetic(**SMALL)
    assert not torch.equal(task.test.labels.pairwise(), plain.test.labels.pairwise())
    assert task.test.labels.digests() == plain.test.labels.digests()
    assert task.test.explain(0, 1, 200) is None


def test_tfidf_needs_no_word_vectors():
    task = synthetic(**SMALL, distance="tfidf")
    weights = idf_weights(task.train.labels.captions, [*task.val.labels.captions, *task.test.labels.captions])
    expected = CaptionVectorLabels(task.test.labels.captions, "tfidf", weights=weights)
    assert torch.equal(task.test.labels.pairwise(), expected.pairwise())
    assert task.test.explain(0, 1, 300) is None
    assert task.test.labels.parts(0, 1) == [
        ("captions", task.test.labels.text(0), task.test.labels.text(1), number(float(expected.pairwise([0], [1]))), "")
    ]


@pytest.mark.parametrize("weights", ["count", "idf"])
def test_mean_vectors(weights):
    vectors = vectors_of(synthetic(**SMALL).test)
    task = synthetic(**SMALL, distance="mean_vector", word_weights=weights)
    idf = idf_weights(task.train.labels.captions, [*task.val.labels.captions, *task.test.labels.captions])
    given = idf if weights == "idf" else "count"
    expected = CaptionVectorLabels(task.test.labels.captions, "mean_vector", vectors, weights=given)
    assert torch.equal(task.test.labels.pairwise(), expected.pairwise())


def test_a_sum_counts_each_distance_by_its_share_of_the_mean_in_training():
    task = synthetic(**SMALL, distance={"wmd": 0.25, "tfidf": 1})
    parts = {name: synthetic(**SMALL, distance=name) for name in ("wmd", "tfidf")}
    means = {name: part.train.labels.pairwise().double().sum() / (40 * 39) for name, part in parts.items()}
    scaled = {name: part.test.labels.pairwise().double() / means[name] for name, part in parts.items()}
    expected = 0.25 * scaled["wmd"] + scaled["tfidf"]
    assert isinstance(task.test.labels, WeightedLabels)
    torch.testing.assert_close(task.test.labels.pairwise().double(), expected, rtol=1e-6, atol=1e-7)


def test_items_that_one_distance_of_a_sum_cannot_compare_are_left_out():
    captions = [["a cat"], ["unicorn"], ["the"], ["cat dog"], ["dog"]]
    vectors = {"cat": np.ones(2), "dog": np.array([0.0, 1.0])}
    both = CaptionDistance(DistanceOptions({"tfidf": 1, "wmd": 2}, "count"), captions, vectors=vectors)
    labels, kept = both.labels(captions)
    assert (kept, len(labels)) == ([0, 3, 4], 3)
    assert CaptionDistance(DistanceOptions("tfidf", "count"), captions).labels(captions)[1] == [0, 1, 3, 4]
    refused(lambda: both.labels([["unicorn"]]), "captions", got="no word has a vector in any of 1 images")
    same = [["cat"], ["cat"]]
    with refuses("distance: tfidf", got="0 between all training images"):
        CaptionDistance(DistanceOptions({"tfidf": 1, "wmd": 2}, "count"), same, vectors=vectors).labels(same)


def with_distance(*overrides):
    sizes = [f"task.{name}={value}" for name, value in SMALL.items()]
    return load("captions/synthetic", [*sizes, *overrides])


def test_an_encoder_of_a_config(own_code):
    task = with_distance(f"task.distance={own_code}").read_task()
    codes = np.array([[len(t), 1.0, t.count("a")] for image in task.test.labels.captions for t in image])
    means = (codes / np.linalg.norm(codes, axis=1, keepdims=True)).reshape(20, 5, 3).sum(1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(task.test.labels.pairwise(), 1 - means @ means.T, atol=1e-6)
    both = with_distance(f"task.distance={{wmd: 0.5, {own_code}: 0.5}}").read_task()
    assert isinstance(both.train.labels, WeightedLabels)


@pytest.mark.usefixtures("own_code")
def test_no_item_that_both_distances_of_a_sum_can_compare():
    both = CaptionDistance(
        DistanceOptions({"wmd": 1, "caption_encoder:no_cats": 1}, "count"), [], vectors={"cat": np.ones(2)}
    )
    with refuses("captions", got="none of 2 images has a word that has a vector"):
        both.labels([["cat"], ["unicorn"]])


def test_an_encoder_needs_trust(own_code, tmp_path):
    made = with_distance(f"task.distance={own_code}")
    run = create(tmp_path, "run")
    run.config.write_text(yaml.safe_dump(made.values))
    with refuses("task.distance", got=f"names code to import ({own_code})", hint="--trust"):
        load_run(run.folder)[0].read_task()
    assert load_run(run.folder, trust=True)[0].read_task().train.labels.pairwise().shape == (40, 40)
    run.config.write_text(yaml.safe_dump(with_distance(f"task.distance={{wmd: 1, {own_code}: 1}}").values))
    with refuses("task.distance", got=f"names code to import ({own_code})", hint="--trust"):
        load_run(run.folder)[0].read_task()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("caption_encoder:untold", {"got": "of type function", "allowed": "annotated '-> ndarray'"}),
        ("caption_encoder:absent", {"got": "caption_encoder:absent cannot be imported (AttributeError"}),
        ("no_such_module_here:f", {"got": "cannot be imported (ModuleNotFoundError"}),
    ],
)
@pytest.mark.usefixtures("own_code")
def test_bad_encoders_of_a_config_are_refused(name, fields):
    refused(with_distance(f"task.distance={name}").read_task, "task.distance", **fields)


@pytest.mark.parametrize(
    ("options", "subject", "fields"),
    [
        ({"distance": "tfdif"}, "distance", {"got": "'tfdif'", "hint": "tfidf"}),
        ({"distance": ":f"}, "distance", {"got": "':f'", "allowed": "wmd, tfidf, mean_vector"}),
        ({"distance": {}}, "distance", {"got": "{}"}),
        ({"distance": {"wmd": 0.5, "bleu": 0.5}}, "distance", {"got": "'bleu'"}),
        ({"distance": {"wmd": 0.0}}, "distance: wmd", {"got": "weight 0", "allowed": "above 0"}),
        ({"distance": {"wmd": float("nan")}}, "distance: wmd", {"got": "weight nan"}),
        ({"distance": "a:f", "word_weights": "idf"}, "word_weights", {"got": "an encoder takes no word weights"}),
    ],
)
def test_bad_options_are_refused(options, subject, fields):
    refused(lambda: synthetic(**SMALL, **options), subject, **fields)


def test_the_type_of_the_option_is_checked_in_its_line():
    refused(lambda: with_distance("task.distance=3"), "task.distance", got="3", allowed="text or a mapping")
