"""Rankings against brute force, metrics against the slow loops, the random column against many random rankings."""

import math
from dataclasses import replace
from operator import mul
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import ttest_1samp
from support import reference, reference_metrics
from support.fake_runs import read_again
from support.retrieval import evaluate
from support.strategies import label_matrices

from contml.distances import nearest
from contml.evaluation import query_gallery, retrieval
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.intervals import half_width
from contml.evaluation.metrics import spearman
from contml.evaluation.results import Curve
from contml.labels import ClassLabels, LabelSpace, NumberLabels, VectorLabels


class Matrix(LabelSpace):
    """Label distances from a matrix."""

    unit = "steps"

    def __init__(self, matrix):
        super().__init__(row=torch.arange(len(matrix)))
        self.matrix = matrix

    def distances(self, x, y):
        return self.matrix[x.row][:, y.row]


@st.composite
def splits(draw, max_items=14):
    """(embeddings `[N, d]`, label distances `[N, N]`, queries, gallery): ties and copies in queries and gallery.

    Embeddings are whole numbers or far apart: their distances are exact, so that ties are ties in any order of sums.
    """
    items = draw(st.integers(3, max_items))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        embeddings = torch.randint(0, draw(st.integers(1, 5)), (items, 2), generator=generator).double()
    else:
        embeddings = torch.randn(items, 3, generator=generator, dtype=torch.float64)
    order = draw(st.permutations(range(items)))
    cut = draw(st.integers(1, items - 2))
    return embeddings, draw(label_matrices(items)), torch.tensor(order[:cut]), torch.tensor(order[cut:])


def embedding_distances(embeddings, queries, gallery):
    return (embeddings[queries].double()[:, None] - embeddings[gallery].double()[None]).square().sum(2).sqrt()


def assert_curves_equal_the_loops(found, distances, labels):
    """Both `[Q, G]`, without the items that a query excludes."""
    size = distances.shape[1]
    curve, ndcg = found.curves["label_distance"], found.curves["ndcg"]
    for name in ("model", "random", "oracle"):
        assert len(getattr(curve, name)) == len(getattr(ndcg, name)) == size
    rows = list(zip(distances.tolist(), labels.tolist(), strict=True))
    at_place = [reference_metrics.shared_places(near, values) for near, values in rows]
    gain_at_place = [reference_metrics.shared_places(near, [1 / (1 + v) for v in values]) for near, values in rows]
    discount = [1 / math.log2(place + 2) for place in range(size)]
    for k in range(1, size + 1):
        expected = fmean(fmean(values[:k]) for values in at_place)
        assert curve.model[k - 1] == pytest.approx(expected, rel=1e-6, abs=1e-12)
        ndcg_of = [
            sum(map(mul, gain[:k], discount)) / sum(map(mul, [1 / (1 + v) for v in sorted(values)[:k]], discount))
            for gain, (_, values) in zip(gain_at_place, rows, strict=True)
        ]
        best = labels.sort(1).values[:, :k].mean().item()
        assert curve.oracle[k - 1] == pytest.approx(best, rel=1e-6, abs=1e-12)
        assert curve.random[k - 1] == pytest.approx(labels.mean().item(), rel=1e-6, abs=1e-12)
        assert ndcg.model[k - 1] == pytest.approx(fmean(ndcg_of), rel=1e-6)
        assert ndcg.oracle[k - 1] == 1
    expected = reference.spearman(distances.flatten(), labels.flatten())
    assert found.spearman == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(split=splits())
def test_every_metric_at_every_k_equals_its_loop(split):
    embeddings, matrix, queries, gallery = split
    found, ranked = evaluate(embeddings, Matrix(matrix), queries, gallery)
    distances, labels = embedding_distances(embeddings, queries, gallery), matrix[queries][:, gallery]
    assert_curves_equal_the_loops(found, distances, labels)
    assert (found.unit, found.queries, found.gallery, found.skipped) == ("steps", len(queries), len(gallery), 0)
    # The rankings themselves, ties to the lower position in the gallery.
    for q in range(len(queries)):
        assert ranked.model[q].tolist() == gallery[reference.ranking(distances[q])].tolist()
        assert ranked.oracle[q].tolist() == gallery[reference.ranking(labels[q])].tolist()
    assert torch.equal(ranked.queries, queries)
    assert torch.equal(ranked.label_distances.double(), matrix[queries[:, None], ranked.model])
    assert torch.equal(ranked.oracle_label_distances.double(), labels.sort(1).values)
    assert torch.equal(ranked.pairs[:, 0], labels.flatten())
    torch.testing.assert_close(ranked.pairs[:, 1], distances.flatten(), rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(split=splits(max_items=20), missing=st.sets(st.integers(0, 19), max_size=2), seed=st.integers(0, 2**16))
def test_the_main_metric_of_each_query_equals_its_loop(split, missing, seed):
    """With ties and copies, rows that are missing, and groups."""
    embeddings, matrix, queries, gallery = split
    items = len(matrix)
    rows = torch.tensor(sorted(row for row in missing if row < items), dtype=torch.int64)
    groups = torch.randint(0, 5, (items,), generator=torch.Generator().manual_seed(seed))
    kept, others = (given[~torch.isin(given, rows)] for given in (queries, gallery))
    galleries = [others[groups[others] != groups[query]] for query in kept]
    if not galleries or len(others) < 2 or not min(map(len, galleries)):
        return
    found, ranked = evaluate(embeddings, Matrix(matrix), queries, gallery, missing=rows, groups=groups)
    name, _, places = found.headline.partition("@")
    k = int(places)
    for value, query, seen in zip(ranked.values.tolist(), kept, galleries, strict=True):
        near = embedding_distances(embeddings, query[None], seen)[0].tolist()
        at_place = reference_metrics.shared_places(near, matrix[query, seen].tolist())
        assert value == pytest.approx(fmean(at_place[:k]), rel=1e-6, abs=1e-12)
    assert ranked.values.dtype == torch.float64
    assert float(ranked.values.mean()) == pytest.approx(found.curves[name].model[k - 1], rel=1e-12, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(split=splits(max_items=9))
def test_leaving_one_out_is_a_gallery_of_all_the_others(split):
    embeddings, matrix, _, _ = split
    n = len(matrix)
    others = torch.stack([torch.tensor([j for j in range(n) if j != i]) for i in range(n)])  # [N,N-1]
    found, ranked = evaluate(embeddings, Matrix(matrix))
    distances = embedding_distances(embeddings, torch.arange(n), torch.arange(n)).gather(1, others)
    labels = matrix.gather(1, others)
    assert_curves_equal_the_loops(found, distances, labels)
    assert (found.queries, found.gallery) == (n, n)
    for row in range(n):
        assert row not in ranked.model[row]
        assert row not in ranked.oracle[row]
        assert ranked.model[row].tolist() == others[row][reference.ranking(distances[row])].tolist()
        assert ranked.oracle[row].tolist() == others[row][reference.ranking(labels[row])].tolist()
    assert torch.equal(ranked.pairs[:, 0], labels.flatten())


@settings(max_examples=15, deadline=None)
@given(split=splits(), entries=st.sampled_from([1, 30]))
def test_parts_change_nothing(split, entries):
    embeddings, matrix, queries, gallery = split
    for rows in ((queries, gallery), (None, None)):
        whole, ranked = evaluate(embeddings, Matrix(matrix), *rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(query_gallery, "_ENTRIES", entries)
            patch.setattr(nearest, "_QUERIES", 2)
            parts, ranked_in_parts = evaluate(embeddings, Matrix(matrix), *rows)
        assert repr(parts) == repr(whole)
        assert torch.equal(ranked_in_parts.model, ranked.model)
        assert torch.equal(ranked_in_parts.pairs, ranked.pairs)


def test_normalized_scores():
    curve = Curve("t", "lower", model=[3.0, 5.0, 6.0, 1.0], random=[5.0, 5.0, 5.0, 1.0], oracle=[1.0, 1.0, 1.0, 1.0])
    assert [curve.at(k).normalized() for k in (1, 2, 3)] == [0.5, 0.0, -0.25]
    assert math.isnan(curve.at(4).normalized())


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_missing_rows_neither_query_nor_are_ranked(leave_one_out):
    torch.manual_seed(0)
    labels, embeddings = VectorLabels(torch.randn(20, 2)), torch.randn(20, 4)
    missing = torch.tensor([17, 3])
    embeddings[missing] = torch.nan
    queries, gallery = (None, None) if leave_one_out else (torch.arange(6), torch.arange(6, 20))
    found, ranked = evaluate(embeddings, labels, queries, gallery, missing=missing)
    kept = torch.tensor([row for row in range(20) if row not in (3, 17)])
    if leave_one_out:
        expected, _ = evaluate(embeddings[kept], labels[kept])
    else:
        expected, _ = evaluate(embeddings, labels, kept[kept < 6], kept[kept >= 6])
    assert (found.skipped, found.curves, found.spearman) == (2, expected.curves, expected.spearman)
    assert (found.queries, found.gallery) == ((18, 18) if leave_one_out else (5, 13))
    for shown in (ranked.queries, ranked.model, ranked.oracle):
        assert not torch.isin(shown, missing).any()
    nothing, _ = evaluate(embeddings[kept], labels[kept], missing=torch.tensor([], dtype=torch.int64))
    assert nothing.skipped == 0


def test_pairs_are_a_sample_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(retrieval, "_PAIRS", 500)
    torch.manual_seed(0)
    values = torch.randn(60, 2)
    embeddings = values + 0.3 * torch.randn(60, 2)
    found, ranked = evaluate(embeddings, VectorLabels(values))
    again, _ = evaluate(embeddings, VectorLabels(values))
    assert found == again
    assert 400 < len(ranked.pairs) <= 500
    assert (ranked.pairs > 0).all()  # no item with itself
    monkeypatch.setattr(retrieval, "_PAIRS", 1 << 20)
    whole, _ = evaluate(embeddings, VectorLabels(values))
    assert found.spearman == pytest.approx(whole.spearman, abs=0.05)


def test_spearman_of_a_constant_is_not_a_number():
    x = torch.tensor([1.0, 2.0, 2.0, 3.0])
    assert math.isnan(spearman(x, torch.ones(4)))
    assert math.isnan(spearman(torch.ones(4), x))
    assert math.isnan(spearman(x[:1], x[:1]))
    assert spearman(x, -x) == pytest.approx(-1)


# ---------------------------------------------------------------------------------------------------------------------
# bad input, and JSON


def test_an_evaluation_goes_through_json():
    torch.manual_seed(0)
    found, _ = evaluate(torch.randn(12, 2), NumberLabels(torch.randn(12)), missing=torch.tensor([2]))
    assert read_again(found) == found
    constant, _ = evaluate(torch.randn(6, 2), NumberLabels(torch.zeros(6)))
    assert math.isnan(constant.spearman)
    assert repr(read_again(constant)) == repr(constant)


# -- groups ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(splits(), st.integers(2, 5), st.booleans(), st.integers(0, 2**16))
def test_a_querys_own_group_is_excluded_from_its_gallery(case, number, separate, seed):
    """The same as evaluating each query alone, in a gallery without its group; with ties and copies."""
    embeddings, distances, queries, gallery = case
    items = len(embeddings)
    groups = torch.randint(0, number, (items,), generator=torch.Generator().manual_seed(seed))
    if not separate:
        queries = gallery = None
    query_rows, others = (torch.arange(items),) * 2 if queries is None else (queries, gallery)
    galleries = [others[groups[others] != groups[query]] for query in query_rows]
    if min(map(len, galleries)) < 2:
        return
    found, ranking = evaluate(embeddings, Matrix(distances), queries, gallery, groups=groups)
    alone = [
        evaluate(embeddings, Matrix(distances), query[None], rest)[0]
        for query, rest in zip(query_rows, galleries, strict=True)
    ]
    for name, curve in found.curves.items():
        assert len(curve.model) == min(map(len, galleries))
        for ranked in ("model", "oracle"):
            for k, value in enumerate(getattr(curve, ranked)):
                expected = fmean(getattr(one.curves[name], ranked)[k] for one in alone)
                assert value == pytest.approx(expected, rel=1e-6, abs=1e-9), (name, ranked, k)
    expected = fmean(one.curves["label_distance"].random[0] for one in alone)
    assert found.curves["label_distance"].random[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert bool((groups[ranking.model] != groups[ranking.queries][:, None]).all())
    assert bool((groups[ranking.oracle] != groups[ranking.queries][:, None]).all())


@pytest.mark.parametrize("size", [10, 20])
def test_as_many_neighbours_remain_where_the_nearest_are_of_the_own_group(size):
    gallery = torch.arange(30.0)[:, None]  # row 0 and the first of its group, then the others
    groups = (torch.arange(30) >= size).long()
    found = query_gallery.QueryGallery(gallery[:1], gallery, torch.tensor([0]), groups=(groups[:1], groups))
    assert found.nearest(4).positions.tolist() == [[size, size + 1, size + 2, size + 3]]


def test_groups_that_a_query_searches_change_the_interval_alone():
    torch.manual_seed(0)
    embeddings, groups = torch.randn(40, 2), torch.arange(40) // 4
    labels = VectorLabels(embeddings[:, :1] + torch.randn(10, 1)[groups])
    plain, ranked = evaluate(embeddings, labels)
    grouped, same = evaluate(embeddings, labels, groups=groups, exclude_group=False)
    assert torch.equal(ranked.values, same.values)
    assert grouped.random_margin == half_width(same.values - same.random_values, groups[:, None]) > plain.random_margin
    assert replace(plain, random_margin=grouped.random_margin).to_dict() == grouped.to_dict()


def test_queries_of_a_class_are_not_independent():
    torch.manual_seed(0)
    classes = torch.arange(40) // 4
    embeddings = torch.randn(10, 3)[classes] + torch.rand(10, 1)[classes] * torch.randn(40, 3)
    found, ranking = evaluate(embeddings, ClassLabels(classes))
    assert torch.equal(ranking.items, classes[:, None])
    assert found.random_margin == half_width(ranking.values - ranking.random_values, classes[:, None])
    groups = torch.arange(40) % 4  # each is in all classes, and each class in all groups
    _, both = evaluate(embeddings, ClassLabels(classes), groups=groups, exclude_group=False)
    assert both.items.shape == (40, 2)
    assert not torch.isin(both.items[:, 0], both.items[:, 1]).any()


# the result of chance


def shown(evaluation):
    return Evaluated(evaluation, "test", "last", 1, 1).by_chance


def test_a_result_that_may_be_chance_says_so():
    generator = torch.Generator().manual_seed(0)
    labels = NumberLabels(torch.rand(120, generator=generator))
    noise, signal = torch.randn(120, 4, generator=generator), labels.values
    by_chance, learned = (evaluate(embeddings, labels)[0] for embeddings in (noise, signal))
    assert shown(by_chance).startswith("not distinguishable from a random ranking: mean label distance@10 differs by ")
    assert " ± " in shown(by_chance)
    assert shown(by_chance) in Evaluated(by_chance, "test", "last", 1, 1).notes
    assert (shown(learned), shown(read_again(by_chance))) == ("", shown(by_chance))
    assert shown(evaluate(noise, ClassLabels(torch.arange(120) % 6), clusters=False)[0])
    assert not shown(evaluate(torch.eye(6)[torch.arange(120) % 6], ClassLabels(torch.arange(120) % 6))[0])
    one = evaluate(noise, labels, queries=[0], gallery=range(1, 120))[0]
    assert math.isnan(one.random_margin)
    assert shown(one) == ""  # another note says that it is a single query


def test_queries_of_one_group_have_no_interval_and_say_so():
    generator = torch.Generator().manual_seed(0)
    labels, groups = NumberLabels(torch.rand(60, generator=generator)), torch.arange(60) // 5
    embeddings = torch.randn(60, 4, generator=generator)
    for queries, groups_of_queries in ((range(5), 1), (range(10), 2)):
        found = evaluate(embeddings, labels, queries=queries, gallery=range(60), groups=groups)[0]
        assert math.isnan(found.random_margin) == (groups_of_queries == 1)
        says = "not known whether a random ranking has the same result: all queries are of one group or class"
        assert (shown(found) == says, shown(read_again(found))) == (groups_of_queries == 1, shown(found))


def test_the_margin_to_a_random_ranking_is_that_of_the_groups():
    """Ten copies of an item are one case: ten times the queries say nothing more."""
    generator = torch.Generator().manual_seed(0)
    few = torch.rand(40, generator=generator)
    labels, embeddings = NumberLabels(few.repeat_interleave(10)), torch.randn(40, 4, generator=generator)
    evaluation, ranking = evaluate(embeddings.repeat_interleave(10, 0), labels, groups=torch.arange(400) // 10)
    of_groups = (ranking.values - ranking.random_values).view(40, 10).mean(1)
    interval = ttest_1samp(of_groups, 0).confidence_interval()
    assert evaluation.random_margin == pytest.approx((interval.high - interval.low) / 2)
    assert torch.equal(ranking.items, torch.arange(400)[:, None] // 10)  # of the choice of weights, and of compare
    assert evaluation.random_margin > 3 * 1.96 * float((ranking.values - ranking.random_values).std()) / 20 / 1.1
