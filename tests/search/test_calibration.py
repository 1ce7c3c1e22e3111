"""Calibration: the formulas as slow loops, coverage of drawn data by query, and the file."""

import json
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import ttest_1samp
from support.refusals import refuses
from support.retrieval import evaluate

from contml._support.text import number as number_of
from contml.contracts import Measure
from contml.data import Pixels, Split
from contml.labels import ClassLabels, NumberLabels
from contml.search import Calibration
from contml.search.calibration import Pairs, calibrate


def draw(queries, k=10, seed=0, spread=0.3, units=None):
    """Pairs whose label distance rises with the embedding distance; the pairs of a query share half of their error."""
    random = np.random.default_rng(seed)
    e = np.sort(random.gamma(4, 1, (queries, k)), 1)
    shared = random.normal(0, 1, (queries, 1)) if units is None else random.normal(0, 1, queries)[units][:, None]
    y = np.abs(e**1.5 + spread * e * (shared + random.normal(0, 1, e.shape)))
    return Pairs(e, y, np.arange(queries) if units is None else units)


def slow_curve(x, y, w, increasing=True):
    """Means of bins of equal size, then pooling of adjacent bins that are in the wrong order."""
    order = sorted(range(len(x)), key=lambda i: x[i])
    bins = min(50, max(1, len(x) // 50))
    blocks = []
    for number in range(bins):
        own = [i for place, i in enumerate(order) if place * bins // len(x) == number]
        total = sum(w[i] for i in own)
        mean_x, mean_y = (sum(values[i] * w[i] for i in own) / total for values in (x, y))
        blocks.append([[mean_x], mean_y, total])
        while len(blocks) > 1 and (blocks[-1][1] < blocks[-2][1]) == increasing and blocks[-1][1] != blocks[-2][1]:
            xs, value, weight = blocks.pop()
            before = blocks[-1]
            before[1] = (before[1] * before[2] + value * weight) / (before[2] + weight)
            before[0], before[2] = before[0] + xs, before[2] + weight
    points = [(x, value) for xs, value, _ in blocks for x in xs]
    return lambda at: float(np.interp(at, *zip(*points, strict=True)))


def slow_interval(pairs, level):
    """(estimate, margin) as functions of an embedding distance, from the docstring."""
    units = sorted(set(pairs.units.tolist()))
    m, k = len(units), pairs.embedding_distances.shape[1]
    rows = [
        (float(e), float(y), units.index(u), 1 / pairs.units.tolist().count(u))
        for es, ys, u in zip(pairs.embedding_distances, pairs.label_distances, pairs.units.tolist(), strict=True)
        for e, y in zip(es, ys, strict=True)
    ]

    def curves(rows):
        x, y, _, w = (list(column) for column in zip(*rows, strict=True))
        f = slow_curve(x, y, w)
        residuals = [abs(b - f(a)) for a, b in zip(x, y, strict=True)]
        mean_x = np.average(x, weights=w)
        slope = sum(c * (a - mean_x) * r for a, r, c in zip(x, residuals, w, strict=True))
        g = slow_curve(x, residuals, w, slope >= 0)
        least = 0.1 * np.average(residuals, weights=w)
        return f, lambda at: max(g(at), least)

    fold = (np.random.default_rng(0).permutation(m) % 5).tolist()
    scores = []
    for number in range(5):
        f, g = curves([row for row in rows if fold[row[2]] != number])
        scores += [(abs(y - f(e)) / g(e), u, w) for e, y, u, w in rows if fold[u] == number]
    for q in sorted(score for score, *_ in scores):
        share = sum(w / k for score, _, w in scores if score <= q) / (m + 1)
        if share >= level - 1e-9:
            f, g = curves(rows)
            return f, lambda at, q=q, g=g: q * g(at)
    return None


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("groups", [False, True])
def test_estimate_and_interval_are_those_of_the_definition(level, groups):
    units = np.repeat(np.arange(15), np.arange(1, 16))[:60] if groups else None
    pairs = draw(60, seed=1, units=units)
    found = calibrate(pairs, "graded", level)
    f, margin = slow_interval(pairs, level)
    # At the knots: between them, the larger of spread and least spread is bent.
    for e, low, high in zip(found.distances, *found.label_distance(found.distances)[1:], strict=True):
        assert found.label_distance(e).estimate == pytest.approx(f(e), rel=1e-9)
        assert high == pytest.approx(f(e) + margin(e), rel=1e-9)
        assert low == pytest.approx(max(0, f(e) - margin(e)), rel=1e-9)
    assert (found.nearest, found.queries, found.level, found.kind) == (10, 60, level, "interval")
    assert found.label_distance(torch.zeros(2, 0, 3)).low.shape == (2, 0, 3)


def test_the_interval_holds_for_the_promised_share_of_the_pairs_of_new_queries():
    """The mean over 60 calibrations, each of 80 queries; the error of a query is shared by its pairs."""
    shares = []
    for seed in range(60):
        shares.append(calibrate(draw(80, seed=seed), "graded").checked(draw(300, seed=1000 + seed)).check.observed)
    assert np.mean(shares) == pytest.approx(0.9, abs=0.02)


@settings(max_examples=60)
@given(st.integers(9, 40), st.integers(1, 12), st.integers(0, 10_000), st.sampled_from(["graded", "classes"]))
def test_invariants(queries, k, seed, kind):
    e, y = np.random.default_rng(seed).integers(0, 4, (2, queries, k)).astype(float)  # ties, zeros
    found = calibrate(Pairs(e, (y > 1).astype(float) if kind == "classes" else y, np.arange(queries)), kind)
    at = np.array([[0.0, 0.5], [3.0, 1e9]])
    if kind == "graded":
        at = np.minimum(at, e.max())
        assert np.isnan(found.label_distance(e.max() + 0.01)).all()
    if kind == "classes":
        p = found.same_class(at)
        assert p.shape == (2, 2)
        assert ((p >= 0) & (p <= 1)).all()
        assert (np.diff(p.ravel()) <= 1e-12).all()  # never rises
    else:
        estimate, low, high = found.label_distance(at)
        assert (np.diff(estimate.ravel()) >= -1e-12).all()
        assert ((low >= 0) & (low <= estimate) & (estimate <= high)).all()
        assert high.max() < math.inf
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_label_distances_without_error_have_intervals_of_width_0():
    e = np.tile(np.arange(10.0), (20, 1))
    found = calibrate(Pairs(e, np.zeros_like(e), np.arange(20)), "graded")
    assert found.label_distance(3) == (0, 0, 0)
    assert found.checked(Pairs(e, np.zeros_like(e), np.arange(20))).check.observed == 1


@pytest.mark.parametrize(("level", "least"), [(0.9, 9), (0.8, 4)])
def test_too_few_queries_give_no_interval(level, least):
    assert calibrate(draw(least - 1), "graded", level) is None  # 90 % of 8 + 1 queries are more than 8
    assert calibrate(draw(least), "graded", level) is not None
    assert calibrate(draw(30, units=np.repeat([0, 1, 2], 10)), "graded") is None  # three groups


def test_classes_have_the_probability_of_the_same_class():
    random = np.random.default_rng(0)
    e = random.uniform(0, 1, (400, 10))
    y = (random.uniform(0, 1, e.shape) < e).astype(float)  # another class with probability e
    found = calibrate(Pairs(e[:200], y[:200], np.arange(200)), "classes")
    assert found.same_class([0.1, 0.5, 0.9]) == pytest.approx([0.9, 0.5, 0.1], abs=0.06)
    check = found.checked(Pairs(e[200:], y[200:], np.arange(200))).check
    assert check.interval[0] < check.expected < check.interval[1]
    assert check.width is None
    with refuses("label_distance", got="classes", hint="same_class"):
        found.label_distance(0.5)
    with refuses("same_class", got="not classes", hint="label_distance"):
        calibrate(draw(20), "graded").same_class(0.5)


@pytest.mark.parametrize("classes", [False, True])
def test_the_pairs_of_a_ranking_are_its_first_places(classes):
    random = np.random.default_rng(4)
    labels = ClassLabels(list(range(10)) * 3) if classes else NumberLabels(random.normal(size=30))
    groups = None if classes else torch.arange(30) // 2
    split = Split([Pixels(np.zeros((1, 1, 3), np.uint8))] * 30, list(map(str, range(30))), labels, groups=groups)
    x = torch.from_numpy(random.normal(size=(30, 5))).float()
    _, ranking = evaluate(x, labels, groups=groups)
    pairs = Pairs.of(split, ranking, 4)
    for q in range(30):
        items = [i for i in range(30) if (i != q if classes else i // 2 != q // 2)]
        order = sorted(items, key=lambda i: float((x[q].double() - x[i].double()).norm()))[:4]
        for place, i in enumerate(order):
            assert pairs.embedding_distances[q, place] == pytest.approx(float((x[q].double() - x[i].double()).norm()))
            assert pairs.label_distances[q, place] == pytest.approx(float(labels.pairwise([q], [i])))
    assert pairs.units.tolist() == [q if classes else q // 2 for q in range(30)]
    assert torch.equal(pairs.items[:, 0], torch.arange(30) % 10 if classes else groups)
    assert Pairs.of(split, ranking).embedding_distances.shape[1] == (2 if len(ranking.model[0]) < 30 else 10)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, [0.1, -0.1], "far", [[1, 2], [3]]])
def test_what_is_no_embedding_distance_is_refused(bad):
    with refuses("distances"):
        calibrate(draw(20), "graded").label_distance(bad)


def test_the_interval_of_the_check_is_that_of_the_units():
    """All pairs of a unit are inside of their intervals, or none."""
    found = calibrate(draw(20), "graded")
    e = np.full((400, 5), 3.0)
    units = np.repeat(np.arange(40), 10)
    y = np.where(units[:, None] % 2, 1e9, found.label_distance(3.0).estimate) * np.ones_like(e)
    low, high = found.checked(Pairs(e, y, units)).check.interval
    assert (low, high) == pytest.approx(tuple(ttest_1samp(np.arange(40) % 2, 0).confidence_interval()))
    classes = torch.from_numpy(units)[:, None]  # what queries share, if it is not their group
    assert found.checked(Pairs(e, y, np.arange(400), classes)).check.interval == (low, high)
    one = found.checked(Pairs(e, y, 0 * units))
    assert one.check.interval is None
    assert "holds for 50.0 % of test pairs" in one.sentence()


def test_no_end_is_beyond_the_largest_label_distance():
    pairs, new = draw(40), draw(40, seed=1)
    largest = float(np.quantile(pairs.label_distances, 0.8))
    pairs, new = (each._replace(label_distances=each.label_distances.clip(max=largest)) for each in (pairs, new))
    for form in ("interval", "bound"):
        free, found = (calibrate(pairs, "graded", form=form, largest=most) for most in (math.inf, largest))
        x = np.linspace(0, pairs.embedding_distances.max(), 50)
        assert free.label_distance(x).high.max() > largest
        assert np.array_equal(found.label_distance(x).high, free.label_distance(x).high.clip(max=largest))
        assert found.checked(new).check.observed == free.checked(new).check.observed
        assert found.checked(new).check.width < free.checked(new).check.width


def test_sentences():
    assert calibrate(draw(20), "graded").sentence() == (
        "label distance of the 10 nearest: 90 % interval, from 20 validation queries; there is no test split to check "
        "it on"
    )
    one = calibrate(draw(20, k=1), "graded").checked(draw(30, k=1, seed=1)).sentence()
    assert one.startswith("label distance of the nearest item: 90 % interval holds for ")
    assert " % [" in one
    assert re.search(r" of test pairs, mean width \d+\.\d; 3\.3 % of test pairs are farther apart than all pairs", one)


@pytest.mark.parametrize(("measure", "width"), [
    (Measure("km", 3), lambda low, high: 3 * (high - low).mean()),
    (Measure("", 0.1, "ratio"), lambda low, high: np.exp(np.log(np.exp(0.1 * high) / np.exp(0.1 * low)).mean())),
])  # fmt: skip
def test_the_mean_width_is_in_the_unit_of_the_labels(measure, width):
    found, pairs = calibrate(draw(20), "graded"), draw(30, seed=1)
    _, low, high = found.label_distance(pairs.embedding_distances)
    checked = found.checked(pairs, measure)
    known = np.isfinite(high)
    assert not known.all()
    assert checked.check.width == pytest.approx(width(low[known], high[known]))
    words = f"{measure.before}{number_of(checked.check.width)}{measure.after}"
    beyond = 100 * (1 - known.mean())
    rest = f"; {beyond:.1f} % of test pairs are farther apart than all pairs of the validation split"
    assert checked.sentence(measure).endswith(f"mean width {words}{rest}")
    assert checked.check.known == known.mean()


def test_pairs_without_an_interval_are_left_out_of_the_check():
    """Each counted as a pair whose interval holds."""
    found = calibrate(draw(80, seed=1), "graded")
    near = Pairs(np.full((6, 2), 2.0), np.tile(found.label_distance(2.0).estimate, (6, 2)), np.arange(6))
    embedding_distances, label_distances = near.embedding_distances.copy(), near.label_distances.copy()
    label_distances[:3, 0] = 1e9  # a quarter of the pairs is wrong
    known = found.checked(Pairs(embedding_distances, label_distances, near.units)).check
    assert (known.known, known.observed) == (1, 0.75)
    embedding_distances[:, 1] = 2 * found.distances[-1]
    check = found.checked(Pairs(embedding_distances, label_distances, near.units)).check
    assert (check.known, check.observed) == (0.5, 0.5)
    assert check.interval[0] < 0.5 < check.interval[1]
    embedding_distances[:5] = 2 * found.distances[-1]  # one query has an interval
    check = found.checked(Pairs(embedding_distances, label_distances, near.units)).check
    assert (check.known, check.observed, check.interval) == (1 / 12, 1, None)


DAMAGE = {
    "distances": [[], [1], [2, 1, 0], [-1, 0, 1], [0, 0, 1], None, "a"], "estimates": [[], [1], [-1, 0, 1], None],
    "margins": [None, [], [1], [-1, 0, 1]], "level": [None, 0, 1, "0.9"], "kind": ["probability", "other", None],
    "nearest": [0, 1.5, None], "queries": [0, "20"], "check": [{}, 3, {"split": "val"}], "unknown": [1],
}  # fmt: skip


def test_a_damaged_file_is_one_error(tmp_path):
    path = tmp_path / "calibration.json"
    assert Calibration.read(path) is None
    good = {
        "kind": "interval", "nearest": 3, "level": 0.9, "queries": 20, "check": None, "distances": [0, 1, 2],
        "estimates": [1, 2, 3], "margins": [1, 1, 1],
    }  # fmt: skip
    path.write_text(json.dumps(good))
    assert Calibration.read(path).label_distance(1.5) == (2.5, 1.5, 3.5)
    forms = [{**good, key: value} for key, values in DAMAGE.items() for value in values]
    forms += [{name: value for name, value in good.items() if name != key} for key in good if key != "check"]
    for form in [*map(json.dumps, forms), "", "[", "3", "NaN", json.dumps({**good, "distances": [0, 1, math.nan]})]:
        path.write_text(form)
        with refuses(str(path), hint="contml evaluate"):
            Calibration.read(path)


def test_farther_than_all_pairs_nothing_is_known():
    """It was the interval of the farthest pairs: 0 to 7.58 for dials that differ by 12.8."""
    found = calibrate(draw(80, seed=1), "graded")
    farthest = found.distances[-1]
    assert farthest == draw(80, seed=1).embedding_distances.max()
    estimate, low, high = found.label_distance([farthest, farthest * 1.001])
    assert np.isfinite([estimate[0], low[0], high[0]]).all()
    assert np.isnan([estimate[1], low[1], high[1]]).all()
    assert np.isfinite(calibrate(draw(80, seed=1), "graded", form="bound").label_distance(2 * farthest).high)
    new = draw(50, seed=2)
    checked = found.checked(Pairs(new.embedding_distances + farthest, new.label_distances, new.units))
    assert checked.check.known == 0
    assert checked.check.observed is checked.check.interval is checked.check.width is None
    assert checked.sentence().endswith("all test pairs are farther apart than all pairs of the validation split")
