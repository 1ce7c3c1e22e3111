"""Rankings against brute force, metrics against the slow loops, the random column against many random rankings."""

import math
from dataclasses import replace
from operator import mul
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference, reference_metrics
from support.fake_runs import read_again
from support.label_spaces import Matrix
from support.retrieval import evaluate
from support.strategies import label_matrices

from contml.distances import nearest
from contml.evaluation import query_gallery, retrieval
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.intervals import half_width
from contml.evaluation.results import Curve
from contml.labels import ClassLabels, NumberLabels, VectorLabels


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


def evaluate_in_parts(entries, *arguments, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_gallery, "_ENTRIES", entries)
        patch.setattr(nearest, "_QUERIES", min(entries, 512))
        return evaluate(*arguments, **options)


missing_rows, part_sizes = st.sets(st.integers(0, 6), max_size=2), st.sampled_from([1, 2, 30, 1 << 23])


@settings(max_examples=100, deadline=None)
@given(split=splits(), missing=missing_rows, entries=part_sizes)
def test_every_metric_at_every_k_equals_its_loop(split, missing, entries):
    """With rows that are missing, and in parts."""
    embeddings, matrix, queries, gallery = split
    rows = torch.tensor(sorted(row for row in missing if row < len(matrix)), dtype=torch.int64)
    kept, others = (given[~torch.isin(given, rows)] for given in (queries, gallery))
    if not len(kept) or len(others) < 2:
        return
    embeddings = embeddings.index_fill(0, rows, torch.nan)
    named = torch.cat((rows, rows[:1]))  # one appears twice
    found, ranked = evaluate_in_parts(entries, embeddings, Matrix(matrix), queries, gallery, missing=named)
    queries, gallery = kept, others
    distances, labels = embedding_distances(embeddings, queries, gallery), matrix[queries][:, gallery]
    assert_curves_equal_the_loops(found, distances, labels)
    assert (found.unit, found.queries, found.gallery, found.skipped) == ("steps", len(queries), len(gallery), len(rows))
    # The rankings themselves, ties to the lower position in the gallery.
    for q in range(len(queries)):
        assert ranked.model[q].tolist() == gallery[reference.ranking(distances[q])].tolist()
        assert ranked.oracle[q].tolist() == gallery[reference.ranking(labels[q])].tolist()
    assert torch.equal(ranked.queries, queries)
    assert torch.equal(ranked.label_distances.double(), matrix[queries[:, None], ranked.model])
    assert torch.equal(ranked.oracle_label_distances.double(), labels.sort(1).values)
    assert torch.equal(ranked.pairs[:, 0], labels.flatten())
    torch.testing.assert_close(ranked.pairs[:, 1], distances.flatten(), rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(split=splits(max_items=9), missing=missing_rows, entries=part_sizes)
def test_leaving_one_out_is_a_gallery_of_all_the_others(split, missing, entries):
    embeddings, matrix, _, _ = split
    n = len(matrix)
    others = torch.stack([torch.tensor([j for j in range(n) if j != i]) for i in range(n)])  # [N,N-1]
    found, ranked = evaluate_in_parts(entries, embeddings, Matrix(matrix))
    distances = embedding_distances(embeddings, torch.arange(n), torch.arange(n)).gather(1, others)
    labels = matrix.gather(1, others)
    assert_curves_equal_the_loops(found, distances, labels)
    assert (found.queries, found.gallery) == (n, n)
    kept = [row for row in range(n) if row not in missing]
    if len(kept) > 2:
        without = evaluate(embeddings, Matrix(matrix), missing=[row for row in missing if row < n])[0]
        assert without.curves == evaluate(embeddings[kept], Matrix(matrix[kept][:, kept]))[0].curves
    for row in range(n):
        assert row not in ranked.model[row]
        assert row not in ranked.oracle[row]
        assert ranked.model[row].tolist() == others[row][reference.ranking(distances[row])].tolist()
        assert ranked.oracle[row].tolist() == others[row][reference.ranking(labels[row])].tolist()
    assert torch.equal(ranked.pairs[:, 0], labels.flatten())


def test_normalized_scores():
    curve = Curve("t", "lower", model=[3.0, 5.0, 6.0, 1.0], random=[5.0, 5.0, 5.0, 1.0], oracle=[1.0, 1.0, 1.0, 1.0])
    assert [curve.at(k).normalized() for k in (1, 2, 3)] == [0.5, 0.0, -0.25]
    assert math.isnan(curve.at(4).normalized())


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
    by_query = [one.curves["label_distance"].model[found.k - 1] for one in alone]
    assert ranking.values.tolist() == pytest.approx(by_query, rel=1e-6, abs=1e-9)
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
    excluded, other = evaluate(embeddings, labels, groups=groups)  # its items are those of the choice of weights
    assert torch.equal(other.items, groups[:, None])
    assert excluded.random_margin == half_width(other.values - other.random_values, groups[:, None])


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
