"""Recall@K and MAP@R against explicit loops: ties, duplicates, singletons; how reports and training show them."""

import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference_metrics
from support.fake_runs import read_again
from support.miniature import small_trainer, squares
from support.retrieval import evaluate
from support.strategies import retrieval_cases

from contml.evaluation import query_gallery, retrieval
from contml.evaluation.class_retrieval import average_precision_at_r_by_chance, recall_by_chance
from contml.evaluation.evaluated import sentence, summary, unit_words
from contml.labels import ClassLabels, NumberLabels
from contml.losses import TripletMarginLoss
from contml.runs import create

missing_rows = st.sets(st.integers(0, 11), max_size=3)
limits = st.tuples(st.sampled_from([1, 20, 1 << 23]), st.sampled_from([1, 3, 100]))


@settings(max_examples=100, deadline=None)
@given(case=retrieval_cases(), exclude_singletons=st.booleans(), missing=missing_rows, limits=limits)
def test_metrics_equal_their_loops(case, exclude_singletons, missing, limits):
    """With ties, copies, singletons and missing rows; in parts; with classes that are larger than the curves."""
    embeddings, classes, queries, gallery = case
    kept, items = ([row for row in rows if row not in missing] for rows in (queries, gallery))
    if exclude_singletons:
        kept = [q for q in kept if any(classes[row] == classes[q] for row in items if row != q)]
    if not kept or len(items) < 2:
        return
    rows = {"queries": queries, "gallery": gallery, "missing": [row for row in missing if row < len(classes)]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_gallery, "_ENTRIES", limits[0])
        patch.setattr(retrieval, "LARGEST_K", limits[1])
        options = {"exclude_singletons": exclude_singletons, "clusters": False}
        found, ranked = evaluate(embeddings, ClassLabels(torch.tensor(classes)), **rows, **options)
    alone = [reference_metrics.recall_at_k(embeddings.tolist(), classes, [q], items, 1) for q in kept]
    assert ranked.values.dtype == torch.float64
    assert ranked.values.tolist() == pytest.approx(alone, abs=1e-12)
    assert float(ranked.values.mean()) == pytest.approx(found.curves["recall"].model[0], abs=1e-12)
    for name, loop in (("map_at_r", reference_metrics.map_at_r), ("r_precision", reference_metrics.r_precision)):
        expected = loop(embeddings.tolist(), classes, kept, items)
        best = loop([[float(each)] for each in classes], classes, kept, items)  # each class in one point
        score = found.scores[name]
        assert (score.model, score.oracle, score.better) == (pytest.approx(expected, abs=1e-12), best, "higher")
    assert (found.queries, found.gallery) == (len(kept), len(items))


@settings(max_examples=30, deadline=None)
@given(relevant=st.integers(0, 5), others=st.integers(0, 5))
def test_expectations_equal_the_mean_over_all_orders(relevant, others):
    n = relevant + others
    if n == 0:
        return
    order, shuffled = [True] * relevant + [False] * others, random.Random(0)
    orders = [shuffled.sample(order, n) for _ in range(1500)]
    counts = (torch.tensor([relevant]), torch.tensor([others]))
    found = recall_by_chance(*counts, n).tolist()
    for k in range(1, n + 1):
        assert found[k - 1] == pytest.approx(1 - math.comb(others, k) / math.comb(n, k))
    by_order = [sum(sum(o[:i]) / i for i in range(1, relevant + 1) if o[i - 1]) / max(relevant, 1) for o in orders]
    expected = sum(by_order) / len(orders)
    assert float(average_precision_at_r_by_chance(*counts)) == pytest.approx(expected, abs=0.04)


def test_all_in_one_point_is_no_better_than_chance():
    """Whatever the order of the items: the column of a random ranking is the mean over all orders."""
    uneven = torch.tensor([0, 1, 2, 0, 0, 1, 3, 0, 0, 1, 1, 0, 4, 0])
    for labels in (ClassLabels(uneven), NumberLabels(uneven.double().square())):
        for rows in ((None, None), (torch.arange(5), torch.arange(5, 14))):
            found, _ = evaluate(torch.ones(14, 3), labels, *rows, clusters=False)
            assert len(found.scores) == (2 if labels.kind == "classes" else 3)
            for metric in (*found.curves.values(), *found.scores.values()):
                assert metric.model == pytest.approx(metric.random)


# ---------------------------------------------------------------------------------------------------------------------
# where they are shown


def evaluation(items=60):
    torch.manual_seed(0)
    classes = torch.arange(items) % 6
    return evaluate(torch.eye(6)[classes] + 0.5 * torch.randn(items, 6), ClassLabels(classes))[0]


def test_table_and_sentence_begin_with_recall():
    found = evaluation()
    table = summary(found)
    assert [line[:2] for line in table[1:8]] == [["Recall", k] for k in ("1", "2", "4", "8", "10", "20", "50")]
    assert table[8][:2] == ["mean label distance", "1"]
    assert [line[0] for line in table[-5:-1]] == ["MAP@R", "R-precision", "NMI", "F1"]
    assert float(table[-5][2]) == pytest.approx(found.scores["map_at_r"].model, rel=0.01)
    assert found.curves["recall"].random[0] == pytest.approx(9 / 59)
    assert sentence(found) == f"Recall@1 is {table[1][2]}; random: {table[1][3]}; oracle: {table[1][4]}."
    assert unit_words(found) == "0 within a class, 1 between classes"


def class_squares(items=30, seed=0):
    """Squares whose label is the quarter that they are in."""
    split = squares(items, seed)
    return replace(split, labels=ClassLabels([f"{x // 6} {y // 6}" for x, y in split.labels.values.long().tolist()]))


def trainer(run, **options):
    options = {"val": class_squares(20, seed=1), **options}
    return small_trainer(run, loss=TripletMarginLoss(), split=class_squares(), batches=3, **options)


def test_training_logs_recall_at_the_k_of_the_data_and_keeps_the_best(tmp_path, capsys):
    run = create(tmp_path, "squares")
    options = {"epochs": 3, "val": replace(class_squares(150, seed=1), recall_at=(1, 10, 120))}
    made = trainer(run, **options)
    made.quiet = False
    made.fit()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("after epoch")]
    assert [line[:25] for line in lines] == [f"after epoch {epoch}: Recall@1 0" for epoch in range(4)]
    assert "random" not in "".join(lines)
    rows = [row for row in run.rows() if row["event"] == "evaluation"]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert [name for name in row if name.startswith("recall")] == ["recall@1", "recall@10", "recall@120"]
        assert {"map_at_r", "r_precision", "nmi", "f1", "label_distance@1"} <= set(row)
        assert row["label_distance@1"] == pytest.approx(1 - row["recall@1"])
    assert made.best.value == max(row["recall@1"] for row in rows)
    found = made.evaluate(made.watched["val"])[0]
    assert (len(found.curves["recall"].model), len(found.curves["ndcg"].model)) == (120, 100)
    assert [line[1] for line in summary(found) if line[0] == "Recall"] == ["1", "10", "120"]
    assert read_again(found) == found
    again = trainer(run, **options)
    again.resume()
    assert again.best.value == made.best.value
    assert (run.checkpoints / "best.safetensors").exists()
