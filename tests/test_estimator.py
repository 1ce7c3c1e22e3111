"""The scikit-learn estimator: conformance, what y means, the score and the neighbours from their definitions."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.refusals import refuses

import contml
from contml import ContinuousMetric
from contml.config import data_arguments
from contml.losses import LOSSES

#: Checks of scikit-learn that do not apply, with the reason: there are none.
DOES_NOT_APPLY: Mapping[str, str] = {}
QUICK = {"dim": 3, "hidden": (8,), "epochs": 2, "random_state": 0}
CLASSES = {"loss": "multi_similarity", "labels": "classes"}


def quick(**options):
    return ContinuousMetric(**{**QUICK, **options})


def spiral(items, seed=0):
    """Features [items, 15] that hide a number non-linearly, and the number."""
    random = np.random.default_rng(seed)
    y = random.uniform(0, 4, items)
    return np.stack([np.cos(2 * y), np.sin(2 * y), np.cos(y), *random.standard_normal((12, items))], 1), y


X, Y = spiral(120)
STRINGS = np.array(["low", "middle", "high"])[(Y > 1).astype(int) + (Y > 3)]


ESTIMATORS = [quick(), quick(**CLASSES), quick(hidden=(), loss="rank_sim")]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: DOES_NOT_APPLY)
def test_conformance_with_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("loss", ["log_ratio", "dense_triplet", contml.SoftInfoNCELoss(sigma=0.5, label_scale=1.2)])
def test_embedding_distances_follow_label_distances(loss):
    held_out, labels = spiral(150, seed=1)
    found = make_pipeline(StandardScaler(), ContinuousMetric(loss=loss, epochs=60, random_state=0))
    raw_features, space = StandardScaler().fit(X).transform(held_out), contml.NumberLabels(labels)
    raw = contml.evaluate(raw_features, space).score
    assert raw < 0.6
    score = found.fit(X, Y).score(held_out, labels)
    assert score > raw + 0.25
    assert score == pytest.approx(contml.evaluate(found.transform(held_out), space).score, abs=1e-5)


# -- what y means ------------------------------------------------------------------------------------------------------


def same_metric(y, other, **options):
    """Whether two forms of y give the same embedding, bit for bit."""
    return np.array_equal(*(quick(**options).fit(X, labels).embedding_ for labels in (y, other)))


@pytest.mark.parametrize("loss", [contml.LogRatioLoss(), "log_ratio", "dense_triplet"])
def test_numbers_and_their_label_space_are_the_same(loss):
    y = np.stack([Y, np.sin(Y)], 1)
    assert same_metric(y, contml.VectorLabels(y), loss=loss)
    estimator = quick(loss=loss).fit(X, y)
    assert estimator.score(X, y) == estimator.score(X, contml.VectorLabels(y))


def test_integers_are_numbers_unless_classes_are_asked_for():
    whole = np.round(10 * Y).astype(int)
    for form in (whole.astype(float), whole.tolist(), whole[:, None], whole.astype(object), whole.astype(np.uint8)):
        assert same_metric(whole, form)
    for form in ((whole % 3).astype(float), (whole % 3).astype(str), contml.ClassLabels((whole % 3).tolist())):
        assert same_metric(whole % 3, form, **CLASSES)


def test_strings_and_booleans_are_classes():
    forms = STRINGS, STRINGS.tolist(), STRINGS.astype(object), STRINGS[:, None], contml.ClassLabels(STRINGS.tolist())
    assert all(same_metric(STRINGS, form, loss="multi_similarity") for form in forms)
    assert same_metric(Y > 2, np.where(Y > 2, "yes", "no"), loss="multi_similarity")


def test_any_label_space_whole_in_part_or_as_a_list_of_its_parts():
    degrees = np.stack([Y * 20, Y * 40], 1)
    every = contml.GeoLabels(np.concatenate([degrees, -degrees]))
    space = contml.GeoLabels(degrees)
    assert same_metric(space, every[range(len(Y))])
    assert same_metric(space, [every[[row]] for row in range(len(Y))])
    with refuses("y", "parts of several label spaces"):
        quick().fit(X[:2], [space[[0]], every[[1]]])
    with refuses("y", "119 labels for 120 items"):
        quick().fit(X, space[range(119)])


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_by_its_name(name):
    y = Y if LOSSES[name].requires in ("graded", "any") else STRINGS
    trained = quick(loss=name, epochs=1).fit(X, y)
    untrained = quick(loss=name, epochs=0).fit(X, y)
    assert trained.embedding_.shape == (120, 3)
    assert not np.array_equal(trained.embedding_, untrained.embedding_)
    lengths = np.linalg.norm(trained.embedding_, axis=1)
    loss = LOSSES[name](**{each: 3 for each, required in data_arguments(LOSSES[name]).items() if required})
    assert (LOSSES[name].distance == "euclidean") == (loss.distance == "euclidean")  # of the class, before it is built
    assert np.allclose(lengths, 1, atol=1e-5) == loss.on_sphere


def test_a_training_that_changed_nothing_is_said():
    """No triplet has items at different label distances. Without epochs, the initial weights are what was asked for."""
    with pytest.warns(UserWarning, match="initial weights, since no step of the training changed it"):
        quick(loss="dense_triplet", epochs=1).fit(X, np.zeros(len(X)))
    quick(epochs=0).fit(X, Y)  # warnings are errors


# -- results from their definitions ------------------------------------------------------------------------------------


def test_transform_keeps_the_precision_and_gives_a_row_alone_the_same_embedding():
    estimator = quick().fit(X, Y)
    assert estimator.transform(X.astype(np.float32)).dtype == np.float32
    whole = estimator.transform(X)
    assert whole.dtype == np.float64
    np.testing.assert_allclose(np.concatenate([estimator.transform(row[None]) for row in X]), whole, rtol=1e-12)
    np.testing.assert_allclose(estimator.embedding_, whole, rtol=1e-4, atol=1e-5)


# -- scikit-learn around it --------------------------------------------------------------------------------------------


def test_the_seed_decides_and_no_global_generator_changes():
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.mtrand._rand.get_state()[1].copy()
    first, again = (quick().fit(X, Y).embedding_ for _ in range(2))
    assert np.array_equal(first, again)
    assert np.array_equal(first, clone(quick()).fit(X, Y).embedding_)
    assert not np.array_equal(first, quick(random_state=1).fit(X, Y).embedding_)
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert np.array_equal(np.random.mtrand._rand.get_state()[1], numpy_state)
    assert not np.array_equal(*[quick(random_state=None).fit(X, Y).embedding_ for _ in range(2)])


def test_a_loss_is_copied_and_its_parameters_train():
    class Scaled(contml.LogRatioLoss):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, embeddings, labels, *, anchors=None):
            return super().forward(embeddings, labels, anchors=anchors) + (self.scale - 3) ** 2

    loss = Scaled()
    quick(loss=loss).fit(X, Y)
    assert loss.scale.item() == 1
    memory = contml.CrossBatchMemory(contml.RAWLoss(), 64, embedding_dim=3)
    np.testing.assert_allclose(np.linalg.norm(quick(loss=memory).fit(X, STRINGS).embedding_, axis=1), 1, atol=1e-5)
    assert memory.steps == 0


def test_grid_search_in_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), quick())
    grid = {"continuousmetric__loss": ["log_ratio", contml.RankNContrastLoss()], "continuousmetric__dim": [2, 4]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.transform(X).shape == (120, search.best_params_["continuousmetric__dim"])
    assert search.best_estimator_[:-1].transform(X).shape == X.shape
    names = search.best_estimator_.get_feature_names_out()
    assert names.tolist() == [f"continuousmetric{k}" for k in range(search.best_params_["continuousmetric__dim"])]


def test_cross_validation_on_a_label_space():
    space = contml.GeoLabels(np.stack([Y * 20, Y * 40], 1))
    parts = [space[[row]] for row in range(len(space))]
    scores = cross_val_score(quick(), X, parts, cv=3, error_score="raise")
    for fold, found in zip(np.array_split(np.arange(len(X)), 3), scores, strict=True):
        kept = np.setdiff1d(np.arange(len(X)), fold)
        assert quick().fit(X[kept], space[kept.tolist()]).score(X[fold], space[fold.tolist()]) == found


def test_fits_in_a_thread():
    found = {}
    thread = threading.Thread(target=lambda: found.update(embedding=quick().fit(X, Y).embedding_))
    thread.start()
    thread.join()
    assert np.array_equal(found["embedding"], quick().fit(X, Y).embedding_)


# -- bad input ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ({"loss": "log_ration"}, Y, ("loss", "'log_ration'")),
    ({"loss": contml.LogRatioLoss}, Y, ("loss", "the class LogRatioLoss")), ({"loss": 3}, Y, ("int", "not a loss")),
    ({}, STRINGS, ("loss log_ratio", "classes")),
    ({"loss": contml.LogRatioLoss()}, STRINGS, ("LogRatioLoss", "classes")),
    ({"loss": "proxy_anchor"}, Y, ("loss proxy_anchor", "graded labels")),
    ({"loss": "raw"}, Y, ("loss raw", "graded labels")), ({"labels": "numbers"}, STRINGS, ("y", "not numbers")),
    ({}, np.array(["a", 2, None] * 40, dtype=object), ("y", "not numbers")),
    ({}, np.arange(120).astype("datetime64[D]"), ("y", "datetime64[D]")),
    ({}, sparse.csr_array(np.stack([Y, Y], 1)), ("y", "sparse")), ({"labels": "class"}, Y, ("labels", "'class'")),
    ({"dim": 0}, Y, ("dim", "0")), ({"hidden": 128}, Y, ("hidden", "128")), ({"hidden": (16, 0)}, Y, ("hidden", "0")),
    ({"batch_size": 1}, Y, ("batch_size", "1")), ({"epochs": 1.5}, Y, ("epochs", "1.5")),
    ({"learning_rate": 0}, Y, ("learning_rate", "0")), ({"device": "gpu"}, Y, ("device", "'gpu'")),
]  # fmt: skip


@pytest.mark.parametrize(("options", "y", "message"), REFUSED)
def test_refused_in_one_line(options, y, message):
    with refuses(*message):
        quick(**options).fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused():
    with refuses("device", "cuda"):
        quick(device="cuda").fit(X, Y)


def test_diverged_training_is_refused():
    with refuses("loss", "not finite", hint="StandardScaler"):
        quick(epochs=5).fit(X * 1e30, Y)


@pytest.mark.filterwarnings("ignore:the network has its initial weights")  # without a positive there is no gradient
@pytest.mark.parametrize("many", [2, 3, 5])
def test_few_items_of_many_classes(many):
    assert quick(**CLASSES).fit(X[:many], list(range(many))).embedding_.shape == (many, 3)
