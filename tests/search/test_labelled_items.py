"""Training items that answer with labels and are asked by labels: against loops, from files, by commands."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import math
import re
import shutil
from statistics import fmean

import numpy as np
import pytest
import torch
from PIL import Image
from support.label_spaces import SPACES, space_of
from support.miniature import TINY
from support.refusals import refuses

import contml as library
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import Measure
from contml.data import Pixels, Split
from contml.data.renderers.labels import label_picture
from contml.labels import (
    ClassLabels,
    MatrixLabels,
    NumberLabels,
    OrdinalLabels,
    TagLabels,
    VectorLabels,
    WeightedLabels,
)
from contml.labels.saved import to_saved
from contml.search import Index, SearchResult
from contml.search.answers import ANSWER_KS, LABEL_KS, Errors, Known, answer, choose_label_k, fit, label_query, nearest
from contml.search.labelled_items import MAX_ITEMS, AnswerRecord, LabelledItems, Record, sample
from contml.search.results import TypedLabel, label_results

OF_DATA = [name for name in SPACES if not name.startswith(("threshold", "nearest", "pairs"))]


def units(n, d, seed=0):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).double()
    return x / x.norm(dim=1, keepdim=True)


def lengths(n, seed=0):
    return 0.3 + 3 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)).double()


def of(labels, embeddings, k=3, label_k=3, calibration=None, distance="euclidean"):
    n = len(labels.terms)
    each = AnswerRecord(neighbours=k, distance=distance, calibration=calibration, left_out=Errors(), test=Errors())
    record = Record(
        identity="abc", total=len(labels), label_neighbours=label_k, labels=to_saved(labels)[0], answers=(each,) * n
    )
    return LabelledItems(embeddings.float(), labels, record)


# -- against loops -----------------------------------------------------------------------------------------------------


def loop_weights(x, query, k):
    """The rows of the k nearest items and their weights."""
    order = sorted(range(len(x)), key=lambda j: (round(float((x[j] - query).square().sum()), 12), j))
    limit = float((x[order[k]] - query).square().sum())
    return order[:k], [1 - float((x[j] - query).square().sum()) / limit for j in order[:k]]


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_mean_is_that_of_the_definition(k, normalized):
    x, queries, values = units(20, 4), units(5, 4, 1), torch.randn(20, 2).double()
    if not normalized:
        x, queries = lengths(20) * x, lengths(5, 1) * queries
    labels = space_of(values)
    found = answer(labels, *nearest(x, queries, k), k)
    for q, query in enumerate(queries):
        rows, weights = loop_weights(x, query, k)
        mean = sum(w * values[j] for w, j in zip(weights, rows, strict=True)) / sum(weights)
        spread = math.sqrt(
            sum(w * float((values[j] - mean).square().sum()) for w, j in zip(weights, rows, strict=True)) / sum(weights)
        )
        assert torch.allclose(found.labels.values[q], mean)
        assert float(found.spread[q]) == pytest.approx(spread)
    assert found.rows is None


@pytest.mark.parametrize("name", ["tags", "classes", "matrix", "poses", "segmentation"])
def test_a_medoid_is_that_of_the_definition(name, tmp_path):
    labels, k = SPACES[name](tmp_path), 6
    x, queries = units(20, 4), units(5, 4, 1)
    found = answer(labels, *nearest(x, queries, k), k)
    matrix = labels.pairwise()
    for q, query in enumerate(queries):
        rows, weights = loop_weights(x, query, k)
        costs = {
            a: sum(w * float(matrix[a, j]) for w, j in zip(weights, rows, strict=True)) / sum(weights) for a in rows
        }
        assert float(found.spread[q]) == pytest.approx(min(costs.values()), rel=1e-6)
        assert costs[int(found.rows[q])] == pytest.approx(min(costs.values()), rel=1e-6)
        assert found.labels.text(q) == labels.text(int(found.rows[q]))


@pytest.mark.parametrize("name", ["pairs", "pairs, all judged"])
def test_judged_pairs_are_no_labels_to_answer_with(name):
    with refuses("PairLabels", got="no label distance"):
        answer(SPACES[name](None), *nearest(units(20, 4), units(5, 4, 1), 6), 6)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
def test_the_scale_of_embeddings_changes_no_answer(scale, distance):
    """As the definition, in float64, and the same at each scale."""
    values = torch.randn(30, 1, generator=torch.Generator().manual_seed(2)).double()
    x, queries = (lengths(30) * units(30, 4)).float(), (lengths(6, 1) * units(6, 4, 1)).float()
    items = of(space_of(values), scale * x, k=4, distance=distance)
    found = [row[0] for row in items.answer(torch.cat((scale * queries, scale * x[[7]])))]
    compared = [each.double() for each in (x, torch.cat((queries, x[[7]])))]
    if distance == "cosine":
        compared = [each / each.norm(dim=1, keepdim=True) for each in compared]
    for q, query in enumerate(compared[1]):
        others = [j for j in range(30) if q < 6 or j != 7]
        rows, weights = loop_weights(compared[0][others], query, 4)
        mean = sum(w * float(values[others[j]]) for w, j in zip(weights, rows, strict=True)) / sum(weights)
        assert found[q].value == pytest.approx(mean, rel=1e-4)
        assert found[q].same == (q == 6)
    mean = items.query(0.5).embedding.double()
    assert float(mean.norm()) == pytest.approx(float(scale * label_norm(values, x, 0.5, 3)), rel=1e-5)


def label_norm(values, x, label, k):
    nearest_by_label = sorted(range(len(values)), key=lambda j: abs(float(values[j]) - label))[:k]
    return fmean(float(x[j].double().norm()) for j in nearest_by_label)


def test_copies_of_a_training_item_have_equal_weights():
    """Their distances by a matrix product would differ by rounding, and so would weights of 0."""
    row = (1e3 + units(1, 64)).float()
    x = torch.cat((row.expand(5, -1), -row))
    found = answer(NumberLabels([0.0, 1.0, 2.0, 3.0, 4.0, 9.0]), *nearest(x, (row + 0.3).float(), 3), 3)
    assert found.labels.values.tolist() == [[1.0]]


@pytest.mark.parametrize("better", ["euclidean", "cosine"])
@pytest.mark.parametrize("with_val", [True, False])
def test_the_distance_of_answers_is_the_one_with_the_least_error(better, with_val):
    """The label is the length of an embedding, or its angle."""
    generator = torch.Generator().manual_seed(0)
    length, angle = (torch.rand(90, 1, generator=generator).double() for _ in range(2))
    x = (1 + 4 * length) * torch.cat((angle.cos(), angle.sin()), 1)
    values = {"euclidean": length, "cosine": angle}[better]
    parts = [Known(x[part], space_of(values[part])) for part in (slice(60), slice(60, 90))]
    (fitted,) = fit(parts[0], parts[1] if with_val else None, None)
    assert fitted.distance == better
    (fitted,) = fit(*(each._replace(embeddings=each.by("cosine").embeddings) for each in parts), None)
    assert fitted.distance == "euclidean"  # of embeddings of length 1, both are the same


def test_items_at_the_same_distance_have_equal_weights():
    x = torch.eye(4, dtype=torch.float64)
    found = answer(NumberLabels([0.0, 2.0, 4.0, 90.0]), *nearest(x, torch.ones(1, 4).double() / 2, 3), 3)
    assert found.labels.values.tolist() == [[2.0]]


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("k", [1, 4])
def test_the_embedding_of_a_label_is_the_mean_of_the_nearest_by_label(k, normalized):
    labels, x = SPACES["poses"](None), units(20, 4) * (1 if normalized else lengths(20))
    matrix = labels.pairwise()
    found = label_query(x, matrix[:3], k)
    for q in range(3):
        order = sorted(range(20), key=lambda j: (float(matrix[q, j]), j))[:k]
        mean = sum(x[j] for j in order) / k
        assert torch.allclose(found[q], mean / mean.norm() * fmean(float(x[j].norm()) for j in order))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
def test_items_with_equal_label_distances_count_equally_in_the_embedding_of_a_label(k):
    x = units(6, 4).double()
    distances = torch.tensor([0.5, 2.0, 0.5, 0.5, 3.0, 2.0])
    lowest = distances.sort().values[:k].tolist()
    choices = [rows for rows in itertools.combinations(range(6), k) if sorted(distances[list(rows)].tolist()) == lowest]
    mean = torch.stack([x[list(rows)].mean(0) for rows in choices]).mean(0)
    found = label_query(x, distances[None], k)[0]
    assert torch.allclose(found, mean / mean.norm())
    order = [3, 5, 0, 4, 2, 1]
    assert torch.allclose(label_query(x[order], distances[None, order], k)[0], found)


def test_a_label_query_says_how_many_items_it_averages():
    values = NumberLabels([1.0, 5.0, 1.0, 1.0, 9.0], unit="years")
    labelled = of(values, units(5, 4), label_k=1)
    query = labelled.query(1.5)
    assert (query.items, query.away) == (3, values.measure.text(0.5))
    query = labelled.query(9)
    assert (query.items, query.away) == (1, values.measure.text(0.0))


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("groups", [None, torch.arange(40) // 3])
def test_k_of_a_label_query_is_chosen_by_leaving_out(groups, normalized):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(40, 2, generator=generator).double()
    noisy = torch.cat((values, torch.ones(40, 1)), 1) + 0.8 * torch.randn(40, 3, generator=generator).double()
    x = noisy / noisy.norm(dim=1, keepdim=True) if normalized else noisy
    labels = space_of(values)
    matrix = labels.pairwise().double()
    group = torch.arange(40) if groups is None else groups
    scores = {}
    for k in (each for each in LABEL_KS if each <= 40 - 3):
        means = []
        for i in range(40):
            others = [j for j in range(40) if group[j] != group[i]]
            near = sorted(others, key=lambda j: (float(matrix[i, j]), j))[:k]
            query = sum(x[j] for j in near) / len(near)
            query = query / query.norm() * fmean(float(x[j].norm()) for j in near)
            found = sorted(others, key=lambda j: float((x[j] - query).norm()))[:10]
            means.append(fmean(float(matrix[i, j]) for j in found))
        scores[k] = fmean(means)
    assert choose_label_k(Known(x, labels, groups)) == min(scores, key=scores.get)


def test_k_of_a_label_query_is_chosen_on_the_validation_split():
    generator = torch.Generator().manual_seed(4)
    values = torch.randn(70, 2, generator=generator).double()
    noisy = torch.cat((values, torch.ones(70, 1)), 1) + 0.8 * torch.randn(70, 3, generator=generator).double()
    x, matrix, scores = noisy / noisy.norm(dim=1, keepdim=True), space_of(values).pairwise().double(), {}
    for k in (each for each in LABEL_KS if each < 40):
        means = []
        for i in range(40, 70):
            query = sum(x[j] for j in sorted(range(40), key=lambda j: (float(matrix[i, j]), j))[:k])
            found = sorted((j for j in range(40, 70) if j != i), key=lambda j: -float(x[j] @ query))[:10]
            means.append(fmean(float(matrix[i, j]) for j in found))
        scores[k] = fmean(means)
    known, val = (Known(x[part], space_of(values[part])) for part in (slice(40), slice(40, 70)))
    assert choose_label_k(known, val) == min(scores, key=scores.get)


def test_most_predicted_labels_against_the_label_that_was_searched_for_are_said():
    from contml.search import Calibration

    numbers = {"distances": (0.0,), "estimates": (1.0,), "margins": (1.0,)}
    bound = Calibration(kind="bound", nearest=1, level=0.9, queries=20, **numbers)
    x = units(1, 5) + torch.arange(20)[:, None]
    ages = NumberLabels(torch.arange(20.0))
    for calibration, asked, expected in (
        (bound, 2, ""),
        (bound, 9, "the predicted labels of 3 of 4 images exclude age=9"),
        (None, 9, ""),
    ):
        items = of(ages, x, k=1, calibration=calibration)
        found = SearchResult(np.array([list("abcd")]), np.zeros((1, 4)), None)
        query = items.query(asked)
        typed = TypedLabel(f"age={asked}", query.labels, query.items, query.away)
        answers = items.answer(x[[1, 2, 3, 9]] + 0.1)
        assert label_results(typed, found, lambda _, answers=answers: answers).contradiction == expected
    share = Calibration(
        kind="probability", nearest=1, level=None, queries=20, distances=(0.0,), estimates=(0.8,), margins=None
    )
    items = of(ClassLabels(["cat", "dog"] * 10), x, k=1, calibration=share)
    for asked, expected in (("cat", ""), ("dog", "the predicted labels of 4 of 4 images exclude class=dog")):
        query, answers = items.query(asked), items.answer(x[[0, 2, 4, 6]] + 0.1)
        typed = TypedLabel(f"class={asked}", query.labels, query.items, query.away)
        assert label_results(typed, found, lambda _, answers=answers: answers).contradiction == expected


def test_k_of_answers_is_chosen_by_the_validation_queries():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(90, 1, generator=generator).double()
    x = torch.cat((values, torch.ones(90, 1), 0.7 * torch.randn(90, 1, generator=generator)), 1)
    x = x / x.norm(dim=1, keepdim=True)
    parts = [Known(x[start : start + 30], space_of(values[start : start + 30])) for start in (0, 30, 60)]
    (fitted,) = fit(*parts)
    errors = {}
    for k in (each for each in ANSWER_KS if each <= 28):
        found = answer(parts[0].labels, *nearest(parts[0].embeddings, parts[1].embeddings, k), k).labels.values
        errors[k] = float((found - values[30:60]).abs().mean())
    assert fitted.k == min(errors, key=errors.get)
    found = answer(
        parts[0].labels, *nearest(parts[0].embeddings, parts[2].embeddings, fitted.k), fitted.k
    ).labels.values
    assert fitted.test.neighbours == pytest.approx(float((found - values[60:]).abs().mean()), rel=1e-6)
    assert fitted.test.constant == pytest.approx(float((values[:30].mean() - values[60:]).abs().mean()), rel=1e-6)
    loo = []
    for i in range(30):
        others = [j for j in range(30) if j != i]
        squared, rows = nearest(x[others], x[[i]], fitted.k)
        loo.append(float((answer(space_of(values[others]), squared, rows, fitted.k).labels.values - values[i]).abs()))
    assert fitted.left_out.neighbours == pytest.approx(fmean(loo), rel=1e-6)
    assert 0 < fitted.test.regression < fitted.test.constant
    assert fitted.calibration.kind == "bound"
    bound = fitted.calibration.label_distance(fitted.calibration.distances[0]).high
    assert bound > 0


def test_a_bound_covers_what_it_promises():
    """On average over many draws, at least 90 %, and not much more."""
    from contml.search.calibration import Pairs, calibrate

    generator, observed = np.random.default_rng(0), []
    for _ in range(60):
        spread = generator.uniform(0, 1, (2, 120, 1))
        errors = np.abs(generator.normal(size=spread.shape)) * (0.2 + spread)
        val, test = (Pairs(spread[n], errors[n], np.arange(120)) for n in (0, 1))
        observed.append(calibrate(val, "graded", form="bound").checked(test).check.observed)
    assert 0.895 <= fmean(observed) <= 0.93


@pytest.mark.parametrize("name", OF_DATA)
def test_every_label_space_answers_and_comes_back_from_a_file(name, tmp_path):
    labels = SPACES[name](tmp_path)
    items = of(labels, units(len(labels), 6))
    queries = units(3, 6, 5)
    answers = items.answer(queries)
    assert [len(each) for each in answers] == [len(labels.terms)] * 3
    assert all(str(each) for row in answers for each in row)
    json.dumps([each.as_data() for row in answers for each in row])
    items.save(tmp_path / "labels.safetensors")
    again = LabelledItems.read(tmp_path / "labels.safetensors", "abc")
    assert torch.equal(again.embeddings, items.embeddings)
    assert [[str(each) for each in row] for row in again.answer(queries)] == [
        [str(each) for each in row] for row in answers
    ]
    if labels.typed_as == "text" and labels.title != "captions":
        text = next(filter(None, (labels.text(row) for row in range(len(labels)))))
        text = re.sub(r"(?<=\d),(?=\d{3})", "", text)  # thousands separators are not typed
        assert torch.allclose(again.query(text).embedding, items.query(text).embedding, atol=1e-5)


def test_a_training_image_is_answered_without_its_own_label():
    x, values = units(10, 5), torch.arange(10.0)
    items = of(space_of(values), x, k=1)
    (found,), (other,) = items.answer(x[[4]]), items.answer(units(1, 5, 9))
    assert found[0].same
    assert "a training image" in str(found[0])
    assert found[0].value != 4
    assert not other[0].same
    assert "training image" not in str(other[0])


def test_each_label_of_a_sum_is_answered_by_the_items_that_have_it():
    ages, tags = NumberLabels(torch.arange(12.0)), TagLabels([[f"t{n % 3}"] for n in range(12)])
    ages.title = "age"
    present = torch.ones(12, 2, dtype=torch.bool)
    present[:6, 0] = False
    items = of(WeightedLabels({ages: 1.0, tags: 1.0}, present=present), units(12, 5), k=2)
    for row in items.answer(units(20, 5, 3)):
        assert [each.title for each in row] == ["age", "tags"]
        assert 6 <= row[0].value <= 11


def test_what_is_unusual_about_a_label_is_said():
    ages = NumberLabels(torch.arange(20.0, 60.0), unit="years")
    ages.title = "age"
    items = of(ages, units(40, 5))
    assert items.query(30).remarks == []
    assert items.query("61").remarks == []
    assert items.query(900).remarks == [
        "900 years is far from all training labels: the nearest is 59 years, 841 years away"
    ]
    tagged = of(TagLabels([["a", "b"], ["b", "c"], ["a"], ["c"]] * 3), units(12, 5))
    assert tagged.query("a;zebra").remarks == ["tags: no training item has zebra"]
    with refuses("tags", "no training item has 'zebra'"):
        tagged.query("zebra")
    with refuses("label", "'x'"):
        of(MatrixLabels(torch.zeros(4, 4)), units(4, 5)).query("x")


def test_intervals_are_in_the_unit_of_the_labels():
    from contml.search import Calibration

    numbers = {"distances": (0.0,), "estimates": (0.5,), "margins": (0.5,)}
    bound = Calibration(kind="bound", nearest=1, level=0.9, queries=20, **numbers)
    prices = NumberLabels(np.log([100.0, 100.0, 100.0, 100.0]) / 0.5)
    prices.measure, prices.title = Measure("", 0.5, "ratio"), "price"
    (found,) = of(prices, units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert [found.value, found.low, found.high] == pytest.approx([100, 100 / math.exp(0.5), 100 * math.exp(0.5)])
    assert str(found) == "price (predicted): 100 (61 to 165)"
    squared = NumberLabels([4.0, 4.0, 4.0, 4.0])
    (found,) = of(squared, units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert (found.low, found.high) == (3, 5)
    levels = OrdinalLabels(["b"] * 4, ["a", "b", "c"])
    (found,) = of(levels, units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert str(found) == "level (predicted): b (a to c)"
    (found,) = of(VectorLabels([[1.0, 2.0]] * 4), units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert str(found) == "vector (predicted): 1 2 (within 1.00, 90 %)"
    share = Calibration(
        kind="probability", nearest=1, level=None, queries=20, distances=(0.0,), estimates=(0.8,), margins=None
    )
    (found,) = of(ClassLabels(["cat"] * 4), units(4, 5), k=2, calibration=share).answer(units(1, 5, 3))[0]
    assert str(found) == "class (predicted): cat (80 %)"


# -- files -------------------------------------------------------------------------------------------------------------


def test_many_items_are_a_sample_that_a_seed_draws():
    labels = NumberLabels(torch.arange(MAX_ITEMS + 5.0))
    rows = sample(labels, 128)
    assert len(rows) == len(set(rows.tolist())) == MAX_ITEMS
    assert torch.equal(rows, sample(labels, 128))
    assert torch.equal(sample(labels[:50].as_root(), 128), torch.arange(50))
    items = of(labels[rows].as_root(), torch.ones(len(rows), 1))
    whole = LabelledItems(items.embeddings, items.labels, items.record.model_copy(update={"total": MAX_ITEMS + 5}))
    assert whole.sample_words == "10,000 of 10,005 training items, drawn at random (seed 0)"


def test_the_file_has_a_largest_size(monkeypatch):
    from contml.search import labelled_items

    labels = TagLabels([[f"a long tag of item {n}"] for n in range(500)])
    monkeypatch.setattr(labelled_items, "MAX_BYTES", 6_000)
    size = len(to_saved(labels)[0].model_dump_json()) / 500
    for dim in (1, 30):
        rows = sample(labels, dim)
        assert 0.7 * 6_000 < len(rows) * (size + 4 * dim) < 1.1 * 6_000
        assert len(to_saved(labels[rows].as_root())[0].model_dump_json()) + 4 * dim * len(rows) <= 6_000


@pytest.fixture
def saved(tmp_path):
    items = of(NumberLabels(torch.arange(12.0)), units(12, 5))
    items.save(tmp_path / "labels.safetensors")
    return tmp_path / "labels.safetensors"


def changed(path, tensors=None, **record):
    old, values = load_tensors(path)
    save_tensors(path, {**old, **(tensors or {})}, record={**values["record"], **record})


DAMAGE = {
    "no record": {"format": None},
    "more neighbours than items": {"label_neighbours": 12},
    "no answers": {"answers": []},
    "labels of another kind": {"labels": {}},
    "embeddings of other items": {"tensors": {"embeddings": torch.zeros(11, 5)}},
    "embeddings in float16": {"tensors": {"embeddings": units(12, 5).half()}},
    "embeddings that are not numbers": {"tensors": {"embeddings": torch.full((12, 5), torch.nan)}},
    "embeddings that are not finite": {"tensors": {"embeddings": torch.full((12, 5), torch.inf)}},
    "labels that are not finite": {"tensors": {"labels.values": torch.full((12, 1), torch.nan).double()}},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_is_one_line(saved, case):
    changed(saved, **DAMAGE[case])
    with refuses(str(saved)):
        LabelledItems.read(saved, "abc")


@pytest.mark.parametrize("number", [1, 3])
def test_a_file_of_another_format_is_refused(saved, number):
    changed(saved, format=number)
    with refuses(str(saved), f"format {number}", "must be 2", "run 'contml evaluate' again"):
        LabelledItems.read(saved, "abc")


def test_a_file_of_another_model_is_refused(saved):
    assert len(LabelledItems.read(saved, "abc").labels) == 12
    with refuses(str(saved), "another model"):
        LabelledItems.read(saved, "other")
    saved.write_bytes(saved.read_bytes()[:-1])
    with refuses(str(saved), "damaged or cut short"):
        LabelledItems.read(saved, "abc")


# -- a run, a bundle, an index -----------------------------------------------------------------------------------------


def pose_file(trained, row=2):
    path = trained.images.parent / "pose.json"
    test = library.app.experiment.load("pose/synthetic", TINY).build_task().test
    path.write_text(json.dumps(test.labels.plain(row)))
    return path


def test_a_bundle_answers_as_its_run(trained, exported, tmp_path):
    run, bundle = library.load(trained.run), library.load(exported)
    files = sorted(trained.images.iterdir())[:4]
    first, second = run.predict(files), bundle.predict(files)
    assert first == second
    assert list(first[0]) == ["pose"]
    assert len(first[0]["pose"].value) == 14
    pose = json.loads(pose_file(trained).read_text())
    assert np.array_equal(run.embed_label(pose), bundle.embed_label({"joints": pose}))
    run.save(tmp_path / "private", labels=False)
    assert not (tmp_path / "private" / "labels.safetensors").exists()
    with refuses("pose/synthetic", "no labels of training items", hint="--no-labels"):
        library.load(tmp_path / "private").predict(files)
    run.save(tmp_path / "again")
    run.save(tmp_path / "again")  # the same bundle
    assert (tmp_path / "again" / "labels.safetensors").read_bytes() == (exported / "labels.safetensors").read_bytes()


def test_labels_of_another_model_are_refused_at_the_bundle(bundle, trained):
    changed(bundle / "labels.safetensors", identity="other")
    model = library.load(bundle)
    assert model.embed(next(trained.images.iterdir())).shape == (1, 8)
    with refuses("labels.safetensors", "another model"):
        model.predict(next(trained.images.iterdir()))


def test_embed_label_warns_of_an_unusual_label(trained):
    model = library.load(trained.run)
    pose = [[1000.0 * x, 1000.0 * y] for x, y in json.loads(pose_file(trained).read_text())]
    with pytest.warns(UserWarning, match="pose is far from all training labels"):
        model.embed_label(pose)


def test_predict_prints_and_writes(contml, trained, refused, tmp_path):
    status, out, err = contml("predict", trained.run, trained.images)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["image", "pose"]
    assert "(within " in lines[1]
    (tmp_path / "broken.png").write_text("no image")
    status, out, err = contml("predict", trained.run, trained.images, "broken.png", "--json")
    data = json.loads(out)
    assert [each["image"] for each in data["broken"]] == ["broken.png"]
    (first,) = data["predictions"][0]["answers"]
    assert (first["label"], len(first["value"]), first["level"]) == ("pose", 14, 0.9)
    assert contml("predict", trained.run, trained.images, "--out", "p.csv")[1] == "p.csv: 24 images\n"
    assert "complete already" in contml("predict", trained.run, trained.images, "--out", "p.csv")[1]
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows[0][:2] == ["image", "pose"]
    assert len(rows) == 25
    assert json.loads(rows[1][1]) == first["value"]
    contml("predict", trained.run, trained.images, "--out", "p.parquet")
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["image"] == [row[0] for row in rows[1:]]
    assert table["pose bound"][0] == pytest.approx(first["bound"])
    assert "must end in .csv or .parquet" in refused("predict", trained.run, trained.images, "--out", "p.txt")
    status, _, err = contml("predict", trained.run, "broken.png")
    assert (status, "nor can any other image" in err.splitlines()[-1]) == (2, True)


def test_search_by_a_label(contml, refused, trained, exported, tmp_path):
    assert contml("index", exported, trained.images, "--out", "i")[0] == 0
    path = pose_file(trained)
    status, out, err = contml("search", "i", "--label", f"pose={path}", "-k", "3", "--gallery", "found.html")
    assert (status, err) == (0, "")
    averaged, heading = out.splitlines()[1:3]
    count = library.load(exported).labelled.record.label_neighbours
    assert re.fullmatch(rf"the mean embedding of {count} training items, whose labels are at most .+ away", averaged)
    assert heading.split()[:3] == ["rank", "id", "distance"]
    assert "pose (predicted)" in heading
    assert "label distance" not in out
    page = (tmp_path / "found.html").read_text()
    assert path.name in page
    query, *hits = [Image.open(io.BytesIO(base64.b64decode(part))) for part in re.findall(r"base64,([^\"]+)", page)]
    expected = label_picture(library.load(exported).labelled.query(json.loads(path.read_text())).labels, 0, 220, "")
    assert np.abs(np.asarray(query, int) - np.asarray(expected, int)).mean() < 3  # the pose that was asked for
    for hit in hits:  # the predicted pose, in its corner: blue and orange limbs on grey
        corner = np.asarray(hit, int)[140:216, 140:216]
        assert (np.abs(corner - 241).max(2) < 12).mean() > 0.6
        assert (np.abs(corner - (48, 176, 255)).max(2) < 60).any()
    (data,) = json.loads(contml("search", "i", "--label", f"Poses={path}", "-k", "24", "--json")[1])
    assert data["training_items"] == count
    model = library.load(exported)
    query = model.embed_label(json.loads(path.read_text()))
    index = Index.open("i")
    found = index.embeddings(index.ids)
    distances = dict(zip(index.ids, np.linalg.norm(found - query, axis=1).tolist(), strict=True))
    ranked = sorted(distances, key=lambda name: distances[name])
    assert [hit["id"] for hit in data["found"]] == ranked
    assert data["found"][0]["distance"] == pytest.approx(distances[ranked[0]], abs=1e-5)
    assert data["found"][0]["answers"][0]["label"] == "pose"
    (image,) = json.loads(contml("search", "i", sorted(trained.images.iterdir())[0], "-k", "2", "--json")[1])
    assert image["answers"][0]["label"] == "pose"

    assert "--label: no label 'price'; must be NAME=VALUE, with the name pose" in refused(
        "search", "i", "--label", "price=3"
    )
    assert "--label: 'pose'; must be NAME=VALUE" in refused("search", "i", "--label", "pose")
    assert "--label: pose appears twice" in refused("search", "i", "--label", f"pose={path}", "--label", f"pose={path}")
    assert "no such file none.json" in refused("search", "i", "--label", "pose=none.json")
    assert "must be [14, 2] as in training" in refused("search", "i", "--label", "pose=[[1, 2], [3, 4]]")
    assert "not JSON" in refused("search", "i", "--label", "pose={1}")
    assert "QUERY: missing" in refused("search", "i")
    assert "--label: used with QUERY" in refused("search", "i", trained.images, "--label", f"pose={path}")
    library.load(exported).save(tmp_path / "private", labels=False)
    message = refused("search", "i", "--label", f"pose={path}", "--run", "private")
    assert "no labels of training items" in message
    assert "--no-labels" in message
    status, out, _ = contml("search", "i", sorted(trained.images.iterdir())[0], "--run", "private")
    assert status == 0
    assert "predicted" not in out


def test_export_says_that_labels_are_in_the_bundle(contml, trained, tmp_path):
    out = contml("export", trained.run, "public")[1]
    assert "public/labels.safetensors has the labels of 40 training items: before you publish them" in out
    out = contml("export", trained.run, "private", "--no-labels")[1]
    assert "labels.safetensors" not in out
    assert not (tmp_path / "private/labels.safetensors").exists()


def test_a_run_reports_its_answers(contml, trained, tmp_path):
    run = shutil.copytree(trained.run, tmp_path / "run")
    page = (run / "report.html").read_text()
    assert "Answers with labels" in page
    assert "nearest training items" in page
    before = (run / "labels.safetensors").read_bytes()
    (run / "labels.safetensors").unlink()
    contml("report", run)
    assert "Answers with labels" not in (run / "report.html").read_text()
    assert "answers of pose, by " in contml("evaluate", run)[1]
    assert (run / "labels.safetensors").read_bytes() == before
    contml("report", run)
    assert "Answers with labels" in (run / "report.html").read_text()


def test_a_split_with_fewer_than_three_readable_items_keeps_none(tmp_path):
    pixels = [Pixels(np.zeros((8, 8, 3), np.uint8))] * 2
    assert len(sample(Split(pixels, ["a", "b"], NumberLabels([1.0, 2.0])).labels, 2)) == 2
