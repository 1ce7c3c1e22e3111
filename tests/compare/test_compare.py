"""Runs side by side: what is averaged, what differs, what a paper reports; what is never mixed or dropped unsaid."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.fake_runs import TRIPLET, classes, other_test_set, poses, write_run
from support.miniature import TINY

from contml import InputError
from contml.evaluation.results import Score, measured
from contml.reporting.compare import compare
from contml.reporting.compare_figure import comparison_figure
from contml.reporting.compare_table import as_data, body, comma_separated, header, markdown, remarks
from contml.reporting.differences import distinct, flat, identity, short

PAPER = {"source": "Kim et al. 2020, Table 2", "recall@1": 0.697, "nmi": 0.5}


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr("contml.reporting.compare_figure.DPI", 60)


def sizes(root, seeds=(0, 1), dims=(16, 32, 64, 128)):
    """Two losses, four embedding sizes; the share falls by 0.1 a doubling, seeds are 0.02 apart."""
    for n, dim in enumerate(dims):
        for seed in seeds:
            good = poses(0.5 - 0.05 * n + 0.02 * seed)
            write_run(root / f"a/{dim}-{seed}", good, model__dim=dim, seed=seed)
            worse = poses(0.7 - 0.05 * n + 0.02 * seed)
            write_run(root / f"b/{dim}-{seed}", worse, model__dim=dim, seed=seed, loss=TRIPLET, config="pose/triplet")
    return root


def table(group):
    return [header(group), *([cell.text for cell in line] for line in body(group))]


def test_seeds_are_averaged_and_what_differs_has_a_column(tmp_path):
    found = compare([sizes(tmp_path)], ["label_distance@10/random", "ndcg@10"])
    (group,) = found.groups
    assert found.notes == found.left_out == ()
    assert group.title == "pose/synthetic: 200 queries, 800 in the gallery; label distance: squared pixels"
    assert table(group)[:3] == [
        ["loss", "dim", "runs", "mean label distance@10 / random", "nDCG@10"],
        ["log_ratio", "16", "2", "0.510 ± 0.014", "0.600 ± 0.000"],
        ["log_ratio", "32", "2", "0.460 ± 0.014", "0.600 ± 0.000"],
    ]
    assert [row.cells[1] for row in group.rows] == ["16", "32", "64", "128"] * 2  # by size, not as words
    best = [(i, j) for i, line in enumerate(body(group)) for j, cell in enumerate(line) if cell.best]
    assert best == [(3, 3)]  # the least share; nDCG is the same everywhere, so nothing is best
    assert group.rows[0].values("label_distance@10/random") == pytest.approx([0.5, 0.52])


def test_higher_is_better_for_recall_and_equal_figures_are_equally_good(tmp_path):
    for n, recall in enumerate((0.5, 0.70001, 0.70002)):
        write_run(tmp_path / f"{n}", classes(recall), model__dim=n)
    (group,) = compare([tmp_path], ["recall@1"]).groups
    assert [(cell.text, cell.best) for *_, cell in body(group)] == [("0.500", False), ("0.700", True), ("0.700", True)]


def test_usual_metrics_of_classes_and_of_degrees(tmp_path):
    write_run(tmp_path / "c/1", classes(0.5, k=5))
    write_run(tmp_path / "p/1", poses(0.5, k=7))
    (first,) = compare([tmp_path / "c"]).groups
    assert first.metrics == ("recall@1", "recall@2", "recall@4", "map_at_r")
    write_run(tmp_path / "s/1", replace(classes(0.5, k=50), recall_at=[1, 10, 20, 30, 40, 50]))
    (shop,) = compare([tmp_path / "s"]).groups
    assert shop.metrics[:4] == ("recall@1", "recall@10", "recall@20", "recall@30")
    (second,) = compare([tmp_path / "p"]).groups
    assert second.metrics == ("label_distance@7", "label_distance@7/random", "ndcg@7", "spearman")


def test_forms_of_a_metric():
    evaluation = poses(0.4, random=2000.0)  # the oracle has 400
    share, normalized = (measured(evaluation, f"label_distance@10/{form}") for form in ("random", "normalized"))
    assert (share.model, share.random, share.oracle, share.better) == (0.4, 1.0, 0.2, "lower")
    assert (normalized.model, normalized.better) == (pytest.approx(0.75), "higher")
    assert measured(evaluation, "spearman").model == 0.75
    for nothing in ("recall@1", "label_distance@0", "label_distance@21", "label_distance@x", "label_distance", "nmi"):
        assert measured(evaluation, nothing) is None
    zero = replace(evaluation, scores={"nmi": Score("NMI", "higher", 0.5, 0.0, 1.0)})
    assert math.isnan(measured(zero, "nmi/random").model)


def test_published_figures_stand_beside_ours(tmp_path):
    write_run(tmp_path / "1", classes(0.712), published=PAPER, loss={"name": "proxy_anchor"})
    write_run(tmp_path / "2", classes(0.650), loss={"name": "raw"}, published={"source": "Another", "recall@1": 0.6604})
    write_run(tmp_path / "3", classes(0.600), loss={"name": "contrastive"})
    found = compare([tmp_path], ["recall@1", "nmi", "recall@2"])
    (group,) = found.groups
    assert table(group) == [
        ["loss", "Recall@1", "published", "nmi", "published", "Recall@2"],
        ["proxy_anchor", "0.712", "0.697 (+0.015) [1]", "not measured", "0.500 [1]", "0.741"],
        ["raw", "0.650", "0.6604 (-0.010) [2]", "-", "-", "0.685"],
        ["contrastive", "0.600", "-", "-", "-", "0.640"],
    ]
    assert remarks(group)[:2] == ["[1] Kim et al. 2020, Table 2", "[2] Another"]
    assert compare([tmp_path]).groups[0].metrics[-1] == "nmi"  # what a paper reports is shown unasked
    assert "| **0.712** | 0.697 (+0.015) [1] | not measured |" in markdown(found)
    data = as_data(found)["tables"][0]
    figures = data["rows"][0]["figures"]
    assert figures["recall@1"] == {
        "mean": 0.712,
        "values": [0.712],
        "published": 0.697,
        "difference": pytest.approx(0.015),
    }
    assert figures["nmi"] == {"mean": None, "values": [], "published": 0.5, "difference": None}
    assert data["metrics"]["nmi"] is None
    assert data["metrics"]["recall@1"] == {"title": "Recall@1", "better": "higher", "random": 0.1, "oracle": 1.0}


def test_published_label_distances_keep_their_unit(tmp_path):
    write_run(tmp_path / "1", poses(0.5), published={"source": "A", "label_distance@10": 1234.5})
    (group,) = compare([tmp_path], ["label_distance@10"]).groups
    assert table(group)[1] == ["pose/synthetic", "1,000", "1,234 (-234) [1]"]


def test_figures_that_differ_within_a_row_are_said(tmp_path):
    write_run(tmp_path / "1", classes(0.5), published=PAPER)
    write_run(tmp_path / "2", classes(0.6), published={**PAPER, "recall@1": 0.7}, seed=1)
    write_run(tmp_path / "3", classes(0.7), seed=2)
    found = compare([tmp_path], ["recall@1"])
    assert found.notes == ("1 of 1 rows hold different published metrics; the first are shown",)
    assert table(found.groups[0])[1] == ["pose/synthetic", "3", "0.600 ± 0.100", "0.697 (-0.097) [1]"]


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ({"task__name": "pose/files"}, poses(0.4)),
        ({}, other_test_set(poses(0.4), 100)),
        ({}, replace(poses(0.4), unit="metres")),
        ({}, poses(0.4, random=2010.0)),
        ({"task__figures_seed": 1}, poses(0.4, random=1900.0)),
    ],
)
def test_runs_of_different_test_sets_are_never_in_one_table(tmp_path, change, of):
    write_run(tmp_path / "1", poses(0.5))
    write_run(tmp_path / "2", of, **change)
    found = compare([tmp_path], ["label_distance@10"])
    assert len(found.groups) == 2
    assert found.notes == ("2 different test sets, a table each: figures cannot be compared across them",)
    assert not any(cell.best for group in found.groups for line in body(group) for cell in line)
    if change:
        assert found.groups[0].title != found.groups[1].title


def test_other_training_data_of_one_test_set_share_a_table(tmp_path):
    write_run(tmp_path / "1", poses(0.5))
    write_run(tmp_path / "2", poses(0.4, random=2000.1), task__train=6000)  # rounding differs between machines
    (group,) = compare([tmp_path], ["ndcg@1"]).groups
    assert table(group) == [["train", "nDCG@1"], ["3000", "0.600"], ["6000", "0.600"]]


def test_runs_without_figures_are_listed_and_why(tmp_path):
    write_run(tmp_path / "good", poses(0.5))
    write_run(tmp_path / "half", epochs=1.25)
    write_run(tmp_path / "evaluated_half", poses(0.1), epochs=1.0)
    write_run(tmp_path / "young", epochs=0)
    write_run(tmp_path / "unevaluated")
    write_run(tmp_path / "torn", poses(0.3))
    (tmp_path / "torn/evaluation.json").write_text('{"unit": "m"')
    write_run(tmp_path / "old", poses(0.3))
    (tmp_path / "old/evaluation.json").write_text('{"unit": "m", "figures": []}')
    write_run(tmp_path / "log", poses(0.3))
    (tmp_path / "log/metrics.jsonl").write_text('what\n{"epoch": 2}\n')
    write_run(tmp_path / "config", poses(0.3))
    (tmp_path / "config/config.yaml").write_text("a: [1\n")
    write_run(tmp_path / "foreign", poses(0.3), training=None)
    found = compare([tmp_path, write_run(tmp_path / "result_only", poses(0.4), epochs=None, model__dim=3)])
    assert sum(len(row.runs) for row in found.groups[0].rows) == 2  # good, result_only
    left_out = {Path(line.partition(": ")[0]).name: line.partition(": ")[2] for line in found.left_out}
    assert left_out["half"] == f"not finished, 1.2 of 2 epochs; go on with: contml train --resume {tmp_path}/half"
    assert left_out["evaluated_half"].startswith("not finished, 1 of 2 epochs")
    assert left_out["young"].startswith("not finished, 0 of 2 epochs")
    assert left_out["unevaluated"] == f"finished, but not evaluated; run: contml evaluate {tmp_path}/unevaluated"
    for name in ("torn", "old"):
        assert left_out[name].startswith("its evaluation.json cannot be read; write it anew with: contml evaluate")
    assert re.match(r"cannot be read \(.*metrics.jsonl:1: not a line of JSON", left_out["log"])
    assert re.match(r"cannot be read \(.*config.yaml:.*not valid YAML", left_out["config"])
    assert left_out["foreign"] == "its config has no training.epochs; give a folder that 'contml train' made"
    assert len(left_out) == 9
    assert all("\n" not in line for line in found.left_out)
    for name in left_out:
        assert f"/{name}: " in markdown(found)


def test_a_run_counts_once(tmp_path):
    write_run(tmp_path / "2024-01-01_00-00-00", poses(0.5))
    late = write_run(tmp_path / "2024-01-02_00-00-00", poses(0.4), training__evaluate_every=5, images__workers=2)
    write_run(tmp_path / "2024-01-01_12-00-00", poses(0.3), seed=1)
    found = compare([late, tmp_path, late], ["label_distance@1/random"])
    (row,) = found.groups[0].rows
    assert sorted(row.values("label_distance@1/random")) == [0.3, 0.4]
    assert found.notes == (f"{tmp_path}/2024-01-01_00-00-00: left out, as {late} has the same config and seed",)


def test_best_weights_among_last_ones_are_said(tmp_path):
    write_run(tmp_path / "1", poses(0.5), checkpoint="best")
    write_run(tmp_path / "2", poses(0.4), seed=1)
    assert compare([tmp_path]).notes == (
        "1 of 2 runs were evaluated with their best weights, the others with their last",
    )


def test_chosen_groups_average_and_say_so(tmp_path):
    found = compare([sizes(tmp_path)], ["label_distance@10/random"], group=["loss"])
    assert table(found.groups[0]) == [
        ["loss", "runs", "mean label distance@10 / random"],
        ["log_ratio", "8", "0.435 ± 0.061"],
        ["dense_triplet", "8", "0.635 ± 0.061"],
    ]
    assert found.notes == ("2 of 2 rows average runs that differ in model.dim",)
    assert compare([tmp_path], group=["loss"], by="model.dim").notes == ()


def columns(*configs):
    return distinct([flat(config) for config in configs])


def test_columns_of_what_differs():
    base = {"config": "a", "loss": {"name": "raw", "beta": 10}, "model": {"dim": 8}, "seed": 0}
    assert columns(base) == {"config": ["a"]}
    assert columns(base, {**base, "seed": 1}) == {"config": ["a", "a"]}
    assert columns(base, {**base, "loss": {"name": "raw", "beta": 5}}) == {"loss.beta": ["10", "5"]}
    # Options stand with the part that they are of, where they differ among configs with this part.
    triplets = [{**base, "loss": {"name": "triplet", "margin": m, "distance": "cosine"}} for m in (0.1, 0.2)]
    assert columns(base, *triplets) == {"loss": ["raw", "triplet, margin 0.1", "triplet, margin 0.2"]}
    # A section that others leave out.
    memory = [{**base, "memory": {"size": size, "start": 0}} for size in (64, 128)]
    assert columns(base, *memory) == {"memory": ["-", "yes, size 64", "yes, size 128"]}
    # Names of configs where there is much to tell.
    other = {"config": "b", "loss": {"name": "x"}, "model": {"dim": 3}}
    assert list(columns(base, other)) == ["loss", "model.dim"]
    other |= {"miner": {"name": "m"}, "optimizer": {"lr": 1}}
    assert list(columns(base, other)) == ["config", "loss", "miner", "optimizer", "model.dim"]
    # A key that an older run lacks, and a newer has without a value.
    newer = {**base, "model": {"dim": 8, "levels": None}}
    assert columns(base, newer) == {"config": ["a", "a"]}
    assert identity(flat(base)) == identity(flat(newer))
    # Words before numbers.
    assert list(columns(base, {**base, "model": {"dim": 9, "weights": "x"}})) == ["model.weights", "model.dim"]
    assert identity(flat(base)) == identity(flat({**base, "seed": 3, "config": "b"})) != identity(flat(triplets[0]))


def test_titles_and_long_texts():
    assert short("model.dim") == "dim"
    assert short("loss.name") == short("loss") == "loss"
    assert short("a.margin", ["a.margin", "b.margin"]) == "a.margin"
    paths = [{"task": {"root": "/very/long/way/to/the/data/of/" + name}} for name in ("birds", "cars")]
    assert columns(*paths)["task.root"] == ["...long/way/to/the/data/of/birds", ".../long/way/to/the/data/of/cars"]
    alike = [{"task": {"root": name + "/a" * 20}} for name in ("x", "y")]
    assert columns(*alike)["task.root"] == [path["task"]["root"] for path in alike]


def test_values_of_all_kinds():
    values = [None, True, 0.0000001, 3, [1, 2], "two\nlines"]
    assert columns(*({"a": {"b": value}} for value in values))["a.b"] == [
        "-",
        "true",
        "1e-07",
        "3",
        "[1, 2]",
        "two lines",
    ]


def test_markdown_and_csv_hold_the_same_table(tmp_path):
    write_run(tmp_path / "left", epochs=1.0)
    found = compare([sizes(tmp_path)], ["label_distance@10/normalized"], by="model.dim")
    text = markdown(found)
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == ["loss", "dim", "runs", "mean label distance@10, normalized ↑"]
    assert lines[5] == ["log_ratio", "128", "2", "**80.0 ± 1.8 %**"]
    assert len(lines) == 2 + 8
    assert "- ±: the standard deviation over the runs of a row" in text
    assert "Not in the table:\n\n- " in text
    rows = list(csv.DictReader(io.StringIO(comma_separated(found))))
    assert len(rows) == 8
    assert rows[3]["model.dim"] == "128"
    assert rows[3]["seeds"] == "0 1"
    assert float(rows[3]["label_distance@10/normalized"]) == pytest.approx(0.8)
    assert float(rows[3]["label_distance@10/normalized least"]) == pytest.approx(0.7875)
    assert float(rows[3]["label_distance@10/normalized deviation"]) == pytest.approx(0.0125 * math.sqrt(2))
    assert len(rows[3]["folders"].split(" ")) == 2


def test_markdown_keeps_its_columns_whatever_a_config_says(tmp_path):
    write_run(tmp_path / "1", poses(0.5), model__backbone="x | y <i>")
    write_run(tmp_path / "2", poses(0.5), model__backbone="z")
    lines = [line for line in markdown(compare([tmp_path])).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}
    assert "&lt;i>" in lines[2]


def test_a_metric_without_a_number(tmp_path):
    write_run(tmp_path / "1", replace(poses(0.5), spearman=math.nan))
    write_run(tmp_path / "2", poses(0.5), model__dim=3)
    found = compare([tmp_path], ["spearman"], by="model.dim")
    assert [line[-1] for line in table(found.groups[0])] == ["Spearman", "0.750", "-"]
    json.loads(json.dumps(as_data(found), allow_nan=False))
    assert comparison_figure(found, ["spearman"])


# The plot


def drawn(figure, panel=0):
    """Lines of a panel by their label: x and y."""
    lines = figure.axes[panel].get_lines()
    return {line.get_label(): (list(line.get_xdata()), list(np.round(line.get_ydata(), 6))) for line in lines}


def test_a_line_for_each_group_against_numbers(tmp_path):
    found = compare([sizes(tmp_path)], by="model.dim")
    figure = comparison_figure(found)
    axes, lines = figure.axes[0], drawn(figure)
    assert lines["log_ratio"] == ([16, 32, 64, 128], [0.51, 0.46, 0.41, 0.36])
    assert lines["dense_triplet"] == ([16, 32, 64, 128], [0.71, 0.66, 0.61, 0.56])
    assert lines["random"][1] == [1.0, 1.0]
    assert lines["oracle"][1] == [0.2, 0.2]
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "32", "64", "128"]
    assert (axes.get_title(loc="left"), axes.get_ylabel()) == ("Mean label distance@10 / random", "lower is better")
    assert len(axes.collections) == 4  # a band and the seeds, for each line
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["log_ratio", "dense_triplet", "random", "oracle"]
    styles = {(line.get_color(), line.get_marker()) for line in axes.get_lines()[:2]}
    assert len(styles) == 2


def test_even_numbers_have_an_even_axis(tmp_path):
    for n in range(4):
        write_run(tmp_path / f"{n}", poses(0.5), loss={"name": "t", "margin": 0.1 * (n + 1)})
    figure = comparison_figure(compare([tmp_path], by="loss.margin"))
    assert figure.axes[0].get_xscale() == "linear"
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0.1", "0.2", "0.3", "0.4"]
    assert not figure.axes[0].collections  # one seed has no spread


def test_words_have_places_side_by_side(tmp_path):
    for name in ("raw", "margin", "triplet"):
        for seed in (0, 1):
            for dim in (8, 16):
                recall = 0.5 + 0.1 * seed + dim / 100
                write_run(
                    tmp_path / f"{name}{seed}{dim}", classes(recall), loss={"name": name}, seed=seed, model__dim=dim
                )
    figure = comparison_figure(compare([tmp_path], by="loss"))
    lines = drawn(figure)
    assert lines["dim 8"] == ([-0.15, 0.85, 1.85], [0.63] * 3)
    assert lines["dim 16"] == ([0.15, 1.15, 2.15], [0.71] * 3)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["margin", "raw", "triplet"]
    assert {line.get_linestyle() for line in figure.axes[0].get_lines()} == {"None"}
    assert "random" not in lines  # of Recall it would only press the rest together


def test_true_and_false_are_words_and_absent_is_one_too(tmp_path):
    for n, value in enumerate((True, False)):
        write_run(tmp_path / f"{n}", poses(0.5), loss={"name": "t", "squared": value})
    write_run(tmp_path / "x", poses(0.5), loss={"name": "u"})
    figure = comparison_figure(compare([tmp_path], by="loss.squared"))
    assert {tick.get_text() for tick in figure.axes[0].get_xticklabels()} == {"true", "false", "absent"}


def test_rows_off_an_axis_of_numbers_are_said(tmp_path):
    found = compare(
        [sizes(tmp_path, dims=(16,)), write_run(tmp_path / "c", poses(0.3), loss={**TRIPLET, "margin": 0.1})]
    )
    assert found.notes == ()
    found = compare([tmp_path], by="loss.margin")
    assert found.notes == ("1 of 3 rows have no loss.margin, and are not in the plot",)
    assert "log_ratio" not in drawn(comparison_figure(found))


def test_published_metrics_are_drawn_hollow(tmp_path):
    for dim in (8, 16):
        write_run(
            tmp_path / f"{dim}", poses(0.5), model__dim=dim, published={"source": "A", "label_distance@10": 900 + dim}
        )
    found = compare([tmp_path], by="model.dim")
    figure = comparison_figure(found, ["label_distance@10"])
    hollow = [
        line for line in figure.axes[0].get_lines() if line.get_markerfacecolor() == "white" and len(line.get_xdata())
    ]
    assert [list(line.get_ydata()) for line in hollow] == [[908, 916]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours", "published", "random", "oracle"]
    assert "published" not in drawn(comparison_figure(found))  # they are no shares


def test_test_sets_and_metrics_have_panels(tmp_path):
    write_run(tmp_path / "1", poses(0.5))
    write_run(tmp_path / "2", poses(0.4), model__dim=128)
    write_run(tmp_path / "3", classes(0.4), model__dim=128, task={"name": "classes/cub"})
    found = compare([tmp_path], by="model.dim")
    titles = [axes.get_title(loc="left") for axes in comparison_figure(found).axes]
    assert titles == ["pose/synthetic\nMean label distance@10 / random", "classes/cub\nRecall@1"]
    figure = comparison_figure(found, ["recall@1", "ndcg@1"])
    assert [axes.get_title(loc="left").split("\n") for axes in figure.axes] == [
        ["pose/synthetic", "recall@1"],
        ["pose/synthetic", "nDCG@1"],
        ["classes/cub", "Recall@1"],
        ["classes/cub", "ndcg@1"],
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == ["not measured"]


def test_names_of_configs_are_labels_where_they_tell_lines_apart(tmp_path):
    many = {"miner__name": "m", "optimizer__name": "sgd", "images__crop": 3}
    for dim in (8, 16):
        write_run(tmp_path / f"a{dim}", poses(0.5), model__dim=dim, config="a")
        write_run(tmp_path / f"b{dim}", poses(0.6), model__dim=dim, config="b", loss=TRIPLET, **many)
    (group,) = compare([tmp_path], by="model.dim").groups
    assert group.columns == ["config", "loss", "optimizer", "miner", "crop", "dim"]
    assert [group.label(row) for row in group.rows] == ["a", "a", "b", "b"]
    write_run(tmp_path / "c", poses(0.7), model__dim=8, config="b", loss=TRIPLET, **{**many, "images__crop": 4})
    (group,) = compare([tmp_path], by="model.dim").groups
    assert [group.label(row) for row in group.rows if row.cells[0] == "b"] == [
        "dense_triplet, sgd, m, crop 3",
        "dense_triplet, sgd, m, crop 3",
        "dense_triplet, sgd, m, crop 4",
    ]


def test_many_groups_have_styles_of_their_own(tmp_path):
    for n in range(30):
        for dim in (8, 16):
            write_run(tmp_path / f"{n}-{dim}", poses(0.5), model__dim=dim, optimizer__lr=0.001 * (n + 1))
    figure = comparison_figure(compare([tmp_path], by="model.dim"))
    lines = [line for line in figure.axes[0].get_lines() if line.get_label().startswith("lr ")]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 30
    assert figure.get_figheight() > 8  # the legend fits


# The command


def test_command_prints_and_saves(contml, tmp_path):
    sizes(tmp_path / "runs")
    write_run(tmp_path / "runs/late", epochs=1.0)
    status, out, err = contml("compare", "runs", "--by", "model.dim", "--save", "out")
    assert (status, err) == (0, "")
    assert "log_ratio       16 " in out
    assert "0.360 ± 0.014" in out
    assert "runs/late: not finished, 1 of 2 epochs; go on with: contml train --resume runs/late" in out
    assert out.splitlines()[-3:] == ["out/plot.png", "out/table.md", "out/table.csv"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["plot.png", "table.csv", "table.md"]
    with Image.open(tmp_path / "out/plot.png") as picture:
        assert min(picture.size) > 200
    # What was saved among the runs is in nobody's way.
    status, out, _ = contml("compare", "runs/a", "out", "out/table.md")
    assert status == 0
    assert "out: holds no run" in out
    assert "out/table.md: is no folder" in out


def test_command_draws_in_the_working_folder_and_prints_json(contml, tmp_path):
    sizes(tmp_path / "runs")
    status, out, err = contml("compare", "runs", "--by", "model.dim", "--metric", "ndcg@5", "--json")
    assert (status, err) == (0, "plot.png\n")
    assert (tmp_path / "plot.png").exists()
    (data,) = json.loads(out)["tables"]
    assert list(data["metrics"]) == ["ndcg@5"]
    assert len(data["rows"]) == 8
    assert data["rows"][0]["seeds"] == [0, 1]
    assert data["rows"][0]["config"] == {"loss": "log_ratio", "model.dim": "16"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such folder; give run folders, or a folder that holds some"),
        (["empty"], "empty: holds no run; give folders that 'contml train' made"),
        (["file"], "file: is no folder; give folders that 'contml train' made"),
        (["runs", "--metric", "recal@1"], "recal@1: unknown metric; did you mean 'recall@1'?"),
        (["runs", "--metric", "map@r"], "map@r: unknown metric; did you mean 'map_at_r'?"),
        (
            ["runs", "--metric", "recall@1"],
            "none of these runs has measured 'recall@1'; they have label_distance@1 to 20",
        ),
        (
            ["runs", "--metric", "ndcg@21"],
            "none of these runs has measured 'ndcg@21'; they have label_distance@1 to 20, ndcg",
        ),
        (["runs", "--metric", "ndcg"], "ndcg: a metric over K without its K; write one such as ndcg@10"),
        (
            ["runs", "--metric", "ndcg@1/x"],
            "must be ndcg@1 or ndcg@1/random or ndcg@1/normalized",
        ),
        (["runs", "--by", "dim"], "the configs of these runs have no key 'dim'; did you mean 'model.dim'?"),
        (["runs", "--by", "model.dmi"], "no key 'model.dmi'; did you mean 'model.dim'?"),
        (["runs", "--group", "los"], "no key 'los'; did you mean 'loss'?"),
        (
            ["runs", "--by", "model.nothing_like_it"],
            "no key 'model.nothing_like_it'; there are model.backbone, model.dim, model.normalize",
        ),
        (["runs", "--by", "x"], "no key 'x'; there are config, task, model, images, loss, optimizer, training, seed"),
        (
            ["runs", "--by", "model.backbone"],
            "'model.backbone' is small_cnn in all of these runs; choose a key that differs",
        ),
        (["runs/a/16-0", "--by", "model.dim"], "these runs differ in no key, so leave out --by"),
        (["late"], "nothing to compare yet: late: not finished, 1 of 2 epochs; go on with: contml train --resume late"),
        (["late", "later"], "--resume late (and 1 more such)"),
        (["wrong"], "config.yaml:22: published: recal@1: unknown metric; did you mean 'recall@1'?"),
    ],
)
def test_a_mistake_is_one_line(contml, tmp_path, arguments, message):
    sizes(tmp_path / "runs")
    (tmp_path / "empty/inner").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    write_run(tmp_path / "late", epochs=1.0)
    write_run(tmp_path / "later", epochs=0)
    write_run(tmp_path / "wrong", poses(0.5), published={"source": "A", "recal@1": 0.5})
    status, out, err = contml("compare", *arguments)
    (line,) = err.strip().splitlines()
    assert (status, out) == (2, "")
    assert message in line


def test_a_folder_that_cannot_be_written_to(contml, tmp_path):
    sizes(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    status, _, err = contml("compare", "runs", "--save", "file/in")
    assert status == 2
    assert err == "contml: file/in/table.md: cannot be written (Not a directory)\n"


def test_help_shows_a_loop(contml):
    status, out, _ = contml("compare", "--help")
    assert status == 0
    assert "for d in 16 32 64 128" in out
    assert "--by model.dim" in " ".join(out.split())


def test_two_real_runs(contml, tmp_path):
    for dim in (4, 8):
        status, _, err = contml("train", "pose/synthetic", *TINY, f"model.dim={dim}")
        assert status == 0, err
    runs = sorted((tmp_path / "runs/pose/synthetic").iterdir())
    (runs[1] / "evaluation.json").rename(tmp_path / "away.json")
    status, out, _ = contml("compare", *runs)
    assert f"not evaluated; run: contml evaluate {runs[1]}" in out
    (tmp_path / "away.json").rename(runs[1] / "evaluation.json")
    status, out, err = contml("compare", *runs, "--by", "model.dim", "--save", "out", "--json")
    assert status == 0, err
    (data,) = json.loads(out)["tables"]
    assert [row["config"] for row in data["rows"]] == [{"model.dim": "4"}, {"model.dim": "8"}]
    for row, run in zip(data["rows"], runs, strict=True):
        saved = json.loads((run / "evaluation.json").read_text())
        assert row["folders"] == [str(run)]
        assert row["figures"]["ndcg@10"]["mean"] == saved["curves"]["ndcg"]["model"][9]
        assert row["figures"]["spearman"]["mean"] == saved["spearman"]
    assert (tmp_path / "out/plot.png").exists()


def test_reading_needs_no_trust_and_imports_nothing(tmp_path):
    write_run(tmp_path / "1", poses(0.5), loss={"name": "evil_module:run"}, task__name="gone/task")
    (group,) = compare([tmp_path]).groups
    assert group.title.startswith("gone/task: 200 queries")
    assert "evil_module" not in sys.modules
    with pytest.raises(InputError, match=r"no such folder"):
        compare([tmp_path / "2"])
