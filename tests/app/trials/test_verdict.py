"""Which run is best: named only where the 95 % interval of its differences excludes 0; untrained weights."""

import math
import re
import shutil

import numpy as np
import pytest
import torch
from scipy import stats
from support.fake_runs import TRIPLET, poses, write_run
from support.refusals import refuses

from contml.app.trials.compare import compare
from contml.app.trials.verdict import SettingResult, difference, verdict
from contml.contracts import Measure
from contml.evaluation import paired_interval
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import QueryValues

RANDOM = np.random.default_rng(0)
A = RANDOM.random(200)
NOISE = RANDOM.normal(size=200) / 10
NOISE -= NOISE.mean()


def result(name, *runs, sets="q", items=None, **options):
    """A result of runs with the metric of each query `[Q]`, what names the queries, and their items."""
    tensors = {n: torch.tensor(list(values), dtype=torch.float64) for n, values in enumerate(runs)}
    found = {}
    for (key, values), name_of_set in zip(tensors.items(), sets * len(runs), strict=False):
        found[key] = QueryValues.of("recall@1", [f"{name_of_set} {n}" for n in range(len(values))], values, items)
    return SettingResult(name, {key: float(values.mean()) for key, values in tensors.items()}, found.get, **options)


def runs(name, *values, keys=None, **options):
    """A result of runs whose queries are not known."""
    return SettingResult(name, dict(zip(keys or range(len(values)), values, strict=True)), **options)


def test_the_interval_over_queries_is_that_of_paired_differences():
    found = difference(result("a", A), result("b", A + 0.02 + NOISE))
    mean, half = paired_interval(torch.from_numpy(A + 0.02 + NOISE), torch.from_numpy(A))
    assert (found.mean, found.interval) == (pytest.approx(mean), pytest.approx(half))
    unpaired = 1.96 * math.sqrt((np.var(A, ddof=1) + np.var(A + NOISE, ddof=1)) / 200)
    assert found.interval < 0.5 * unpaired


def test_the_interval_over_queries_of_groups_is_that_of_the_groups():
    shift = 0.02 + np.repeat(NOISE[:8], 25)
    items = torch.arange(200)[:, None] // 25
    found = difference(result("a", A, items=items), result("b", A + shift, items=items))
    expected = stats.ttest_1samp(NOISE[:8], 0).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.high - expected.low) / 2)
    assert found.interval > 4 * difference(result("a", A), result("b", A + shift)).interval
    one = [result(name, values, items=0 * items) for name, values in (("a", A), ("b", A + shift))]
    assert difference(*one).interval is None
    assert "has no interval: all queries are of one group or class" in verdict(one, "Recall@1", "higher").sentence


def test_the_interval_over_runs_is_that_of_a_t_test():
    a, b = [0.5, 0.52, 0.51], [0.55, 0.56, 0.58]
    found = difference(runs("a", *a), runs("b", *b))
    interval = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert found.mean == pytest.approx((interval.low + interval.high) / 2)
    assert found.interval == pytest.approx((interval.high - interval.low) / 2)
    # Both must exclude 0: the wider one counts.
    seeds = [result("a", A, A + 0.001), result("b", A + 0.02 + NOISE, A + 0.3 + NOISE)]
    t_interval = stats.ttest_rel(list(seeds[1].values.values()), list(seeds[0].values.values())).confidence_interval()
    assert difference(*seeds).interval == pytest.approx((t_interval.high - t_interval.low) / 2)


@pytest.mark.parametrize("keys", [(7, 8, 9), (0, 1, 3)])
def test_the_interval_over_runs_of_other_seeds_is_that_of_welch(keys):
    a, b = [0.5, 0.52, 0.51], [0.55, 0.56, 0.58]
    found = difference(runs("a", *a), runs("b", *b, keys=keys))
    interval = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert found.interval == pytest.approx((interval.high - interval.low) / 2)


@pytest.mark.parametrize("ends", [(50, 90), (90, 110)])
def test_runs_with_queries_of_their_own(ends):
    folds, shift = np.split(A, ends), np.split(NOISE, ends)
    other = [x + y for x, y in zip(folds, shift, strict=True)]
    found = difference(result("a", *folds, sets="pqr"), result("b", *other, sets="pqr"))
    parts = [(np.var(y, ddof=1) / len(y), len(y) - 1) for y in shift]
    variance = sum(part for part, _ in parts)
    degrees = variance**2 / sum(part**2 / count for part, count in parts)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(variance) / 3
    t_interval = stats.ttest_1samp([y.mean() for y in shift], 0).confidence_interval()
    assert found.interval == pytest.approx(max(half, (t_interval.high - t_interval.low) / 2))


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_best_is_named_with_its_interval(better):
    sign = 1 if better == "lower" else -1
    found = verdict([result("b", A + 0.05 * sign + NOISE), result("a", A)], "Recall@1", better)
    assert (found.best, found.tied) == (1, (1,))
    low, high = (abs(found.second.mean) + half for half in (-found.second.interval, found.second.interval))
    expected = f"{abs(found.second.mean):.4f} (95 % interval {low:.4f} to {high:.4f})"
    assert found.sentence == f"a is best: its Recall@1 is {better} than that of b by {expected}"
    three = verdict([result("b", A + 0.05 * sign), result("a", A), result("c", A + sign)], "Recall@1", better)
    assert "than that of b, the second best, by 0.0500 (95 % interval 0.0500 to 0.0500)" in three.sentence


def test_a_difference_in_the_unit_of_the_labels():
    pixels = Measure("pixels", 2.0)
    found = verdict([result("a", 100 * A), result("b", 121 * A)], "mean label distance@10", "lower", pixels)
    assert f"by {2 * 21 * A.mean():.1f} pixels (95 % interval " in found.sentence
    ratio = Measure("", 1.0, "ratio")
    found = verdict([result("a", A), result("b", A + math.log(2))], "mean label distance@10", "lower", ratio)
    assert "by x 2.00 (95 % interval 2.00 to 2.00)" in found.sentence


def test_no_best_where_the_interval_includes_0():
    other = A + 0.001 + NOISE
    found = verdict([result("a", A), result("b", other)], "Recall@1", "lower")
    assert found.best is None
    assert found.tied == (0, 1)
    assert found.sentence.startswith("no best: the difference between a and b is within its interval: ")
    found = verdict([result("a", A), *(result(n, other) for n in "bcdef"), result("g", A + 1)], "Recall@1", "lower")
    assert found.tied == (0, 1, 2, 3, 4, 5)
    start = "no best: the differences between a and 5 others are within their intervals; b: 0."
    assert re.fullmatch(f"{start}.*; and 2 more", found.sentence)


def test_equal_results_are_equal():
    found = verdict([result("a", A), result("b", A), result("c", A + 1)], "Recall@1", "lower")
    assert ((found.best, found.tied), found.sentence) == ((None, (0, 1)), "no best: a and b are equal in Recall@1")
    found = verdict([result(name, A) for name in "abcdef"], "Recall@1", "lower")
    assert found.sentence == "no best: a, b, c and 3 others are equal in Recall@1"
    assert verdict([runs("a", 0.5), runs("b", 0.5)], "NMI", "higher").sentence == "no best: a and b are equal in NMI"
    # The same mean of other values is not equal.
    found = verdict([result("a", A), result("b", A[::-1])], "Recall@1", "lower")
    assert "is within its interval: 0 (95 % interval -" in found.sentence


@pytest.mark.parametrize(("others", "reason"), [
    ([runs("a", 0.5), runs("b", 0.6)], "the metric of each query is not known"),
    ([result("a", A), runs("b", 0.9)], "the metric of each query is not known"),
    ([result("a", A), result("b", A + 1, sets="p")], "their queries differ"),
    ([result("a", A[:1]), result("b", A[:1] + 1)], "there is only one query"),
])  # fmt: skip
def test_no_best_without_an_interval(others, reason):
    found = verdict(others, "Recall@1", "lower")
    assert found.best is None
    assert "no best: the difference between a and b, " in found.sentence
    assert f" has no interval: {reason}" in found.sentence.replace("they have ", "")


def test_untrained_weights_are_never_the_best():
    better = result("a", A, untrained=1)
    for results, expected in (
        ([better, result("b", A + 1)], "a, with the lowest Recall@1, has untrained weights"),
        ([result("b", A + 1, untrained=1), better], "all have untrained weights"),
        ([result("b", A, untrained=1), better], "b and a are equal in Recall@1, with untrained weights"),
    ):
        assert verdict(results, "Recall@1", "lower").sentence == f"no best: {expected}"
    assert verdict([result("b", A + 1, untrained=1), result("c", A)], "Recall@1", "lower").best == 1
    # One of several seeds.
    assert verdict([result("a", A, A, untrained=1), result("b", A + 1, A + 1)], "Recall@1", "lower").best == 0


def test_a_file_of_values_is_checked(tmp_path):
    QueryValues.of("recall@1", ["a", "b"], torch.tensor([0.0, 1.0])).save(tmp_path / "v.json")
    assert QueryValues.read(tmp_path / "v.json") is None, "the classes of the queries are not known"
    values = QueryValues.of("recall@1", ["a", "b"], torch.tensor([0.0, 1.0]), torch.tensor([[7], [8]]))
    values.save(tmp_path / "v.json")
    found = QueryValues.read(tmp_path / "v.json")
    assert (found.metric, found.queries, found.values.tolist()) == ("recall@1", values.queries, [0.0, 1.0])
    assert QueryValues.of("recall@1", ["b", "a"], torch.zeros(2)).queries != values.queries
    assert QueryValues.read(tmp_path / "none.json") is None
    text = (tmp_path / "v.json").read_text()
    without = text.replace("recall@1", "x").replace("metric", "m")
    for damaged in (text[:-9], text.replace("1.0", '"1.0"'), without, "[]", ""):
        (tmp_path / "v.json").write_text(damaged)
        with refuses(str(tmp_path / "v.json"), got="cannot be read"):
            QueryValues.read(tmp_path / "v.json")


# In `contml compare`


def texts(table):
    return [[cell.text for cell in line] for line in table.lines]


def best_cells(table):
    head, *lines = table.lines
    return [(i, head[j].text) for i, line in enumerate(lines) for j, cell in enumerate(line) if cell.best]


def test_one_run_each_is_compared_by_its_queries(tmp_path):
    def write(name, shift, **changes):
        values = 400 + 1000 * (A - A.mean()) + shift
        write_run(tmp_path / name, poses(values.mean() / 2000), queries={"q": values.tolist()}, **changes)

    write("a", 0 * NOISE)
    write("b", 20 + 100 * NOISE, loss=TRIPLET)
    write("c", 1 + 100 * NOISE, model__dim=8)
    (table,) = compare([tmp_path / "a", tmp_path / "b"]).tables
    assert best_cells(table) == [(0, "mean label distance@10"), (0, "mean label distance@10 / random")]
    expected = "log_ratio is best: its mean label distance@10 is lower than that of dense_triplet by"
    assert table.remarks[0].startswith(expected)
    found = compare([tmp_path])
    (table,) = found.tables
    assert best_cells(table) == []
    names = ["log_ratio, model.dim 64", "log_ratio, model.dim 8"]
    expected = f"no best: the difference between '{names[0]}' and '{names[1]}' is within its interval"
    assert table.remarks[0].startswith(expected)
    data = found.as_data()["tables"][0]["verdict"]
    assert data["best"] is None
    assert (data["tied"], data["difference_to_second"]) == (names, pytest.approx(1.0))
    assert data["interval"] > 1
    # Another metric has no interval over queries.
    (table,) = compare([tmp_path], ["ndcg@10"]).tables
    assert table.remarks[0].endswith(" are equal in nDCG@10")
    write_run(tmp_path / "d", poses(0.1, ndcg=0.9), model__dim=4)
    (table,) = compare([tmp_path], ["ndcg@10"]).tables
    assert table.remarks[0].endswith("has no interval: of single runs, only mean label distance@10 has one")
    # A file that is damaged is as none.
    (tmp_path / "b/queries/test.json").write_bytes(b"damaged")
    (table,) = compare([tmp_path / "a", tmp_path / "b"]).tables
    assert "has no interval: the metric of each query is not known; 'contml evaluate RUN' writes it" in table.remarks[0]


def test_the_column_of_the_epoch(tmp_path):
    def write(name, epoch, **changes):
        write_run(tmp_path / name, evaluated=[Evaluated(poses(0.4), "test", "best", epoch, 12)], **changes)

    for seed, epoch in enumerate((3, 0, 9)):
        write(f"a{seed}", epoch, seed=seed)
    write("b", 7, model__dim=8)
    write("c", 2.5, model__dim=16)
    for seed in range(6):
        write(f"d{seed}", 0, model__dim=32, seed=seed)
    write("e", 0, model__dim=64)
    (table,) = compare([tmp_path / "d0", tmp_path / "e"]).tables
    assert table.remarks[0].endswith("are equal in mean label distance@10, with untrained weights")
    shutil.rmtree(tmp_path / "e")
    found = compare([tmp_path], ["spearman"])
    column = ["epoch", "7", "2.5", "0, 6 untrained", "0 to 9, 1 untrained"]
    assert [line[2] for line in texts(found.tables[0])] == column
    assert found.notes == ("7 of 11 runs have untrained weights, see the column epoch",)
    untrained = [(row["epochs"], row["untrained"]) for row in found.as_data()["tables"][0]["rows"]]
    assert untrained[3] == ([3, 0, 9], [False, True, False])
