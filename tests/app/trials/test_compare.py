"""Runs side by side: averages, differences; nothing is mixed, or omitted without a note."""

import json
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runs import TRIPLET, classes, other_test_set, poses, write_run
from support.refusals import refuses

from contml._support.text import flat
from contml.app.trials.compare import compare
from contml.app.trials.runs import distinct, identity
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import Score, measured

SEPARATE = "2 different test sets or splits, one table each: their metrics cannot be compared"


def sizes(root, seeds=(0, 1), dims=(16, 32, 64, 128)):
    """Two losses, four embedding sizes; the metric falls by 0.05 per doubling, seeds are 0.02 apart."""
    for n, dim in enumerate(dims):
        for seed in seeds:
            write_run(root / f"a/{dim}-{seed}", poses(0.5 - 0.05 * n + 0.02 * seed), model__dim=dim, seed=seed)
            worse = poses(0.7 - 0.05 * n + 0.02 * seed)
            write_run(root / f"b/{dim}-{seed}", worse, model__dim=dim, seed=seed, loss=TRIPLET, config="pose/triplet")
    return root


def texts(table, *, epoch=False):
    """The titles and the cells of a table; without the column of the epoch, unless it is asked for."""
    lines = [[cell.text for cell in line] for line in table.lines]
    column = lines[0].index("epoch")
    return lines if epoch else [line[:column] + line[column + 1 :] for line in lines]


def test_seeds_are_averaged_and_differing_keys_have_a_column(tmp_path):
    found = compare([sizes(tmp_path)], ["label_distance@10/random", "ndcg@10"])
    (table,) = found.tables
    assert found.notes == found.left_out == ()
    sizes_and_unit = "200 queries, 800 in the gallery; label distance: pixels"
    assert table.title == f"pose/synthetic, test split, last weights: {sizes_and_unit}"
    assert texts(table)[:3] == [
        ["loss", "model.dim", "runs", "mean label distance@10 / random", "nDCG@10"],
        ["log_ratio", "16", "2", "0.510 ± 0.014", "0.600 ± 0.000"],
        ["log_ratio", "32", "2", "0.460 ± 0.014", "0.600 ± 0.000"],
    ]
    assert [row.cells[1] for row in table.rows] == ["16", "32", "64", "128"] * 2  # by size, not as words
    best = [(i, j) for i, line in enumerate(table.lines[1:]) for j, cell in enumerate(line) if cell.best]
    assert best == [(3, 4)]  # the lowest by as much with both seeds; nDCG is the same in all rows, so none is best
    assert table.rows[0].values("label_distance@10/random") == pytest.approx([0.5, 0.52])


def test_higher_is_better_for_recall(tmp_path):
    for n, recall in enumerate((0.5, 0.7, 0.6)):
        for seed in (0, 1):
            write_run(tmp_path / f"{n}-{seed}", classes(recall + 0.002 * seed), model__dim=n, seed=seed)
    (table,) = compare([tmp_path], ["recall@1"]).tables
    cells = [(cell.text, cell.best) for *_, cell in table.lines[1:]]
    assert cells == [("0.501 ± 0.001", False), ("0.701 ± 0.001", True), ("0.601 ± 0.001", False)]


def test_default_metrics_of_classes_and_of_graded_labels(tmp_path):
    write_run(tmp_path / "c/1", classes(0.5, k=5))
    write_run(tmp_path / "p/1", poses(0.5, k=70))
    (first,) = compare([tmp_path / "c"]).tables
    assert first.metrics == ("recall@1", "recall@2", "recall@4", "map_at_r")
    write_run(tmp_path / "s/1", replace(classes(0.5, k=50), recall_at=[1, 10, 20, 30, 40, 50]))
    (shop,) = compare([tmp_path / "s"]).tables
    assert shop.metrics[:4] == ("recall@1", "recall@10", "recall@20", "recall@30")
    (second,) = compare([tmp_path / "p"]).tables
    assert second.metrics == ("label_distance@7", "label_distance@7/random", "ndcg@7", "spearman")


def test_forms_of_a_metric():
    evaluation = poses(0.4, random=2000.0)  # the oracle has 400
    share, normalized = (measured(evaluation, f"label_distance@10/{form}") for form in ("random", "normalized"))
    assert (share.model, share.random, share.oracle, share.better) == (0.4, 1.0, 0.2, "lower")
    assert (normalized.model, normalized.better) == (pytest.approx(0.75), "higher")
    assert measured(evaluation, "spearman").model == 0.75
    for nothing in ("recall@1", "label_distance@0", "label_distance@101", "label_distance@x", "label_distance", "nmi"):
        assert measured(evaluation, nothing) is None
    zero = replace(evaluation, scores={"nmi": Score("NMI", "higher", 0.5, 0.0, 1.0)})
    assert math.isnan(measured(zero, "nmi/random").model)


@pytest.mark.parametrize(("change", "of"), [
    ({"task__name": "table/file"}, poses(0.4)),
    ({}, other_test_set(poses(0.4), 100)),
    ({}, replace(poses(0.4), unit="metres")),
    ({}, poses(0.4, random=2010.0)),
    ({"task__seed": 1}, poses(0.4, random=1900.0)),
])  # fmt: skip
def test_runs_of_different_test_sets_are_never_in_one_table(tmp_path, change, of):
    write_run(tmp_path / "1", poses(0.5))
    write_run(tmp_path / "2", of, **change)
    found = compare([tmp_path], ["label_distance@10"])
    assert (len(found.tables), found.notes) == (2, (SEPARATE,))
    assert not any(cell.best for table in found.tables for line in table.lines[1:] for cell in line)
    if change:
        assert found.tables[0].title != found.tables[1].title


def test_other_training_data_of_one_test_set_share_a_table(tmp_path):
    write_run(tmp_path / "1", poses(0.5))
    write_run(tmp_path / "2", poses(0.4, random=2000.1), task__train=6000)  # rounding differs between machines
    (table,) = compare([tmp_path], ["ndcg@1"]).tables
    assert texts(table) == [["task.train", "nDCG@1"], ["3000", "0.600"], ["6000", "0.600"]]


def test_runs_without_an_evaluation_are_listed_with_the_reason(tmp_path):
    write_run(tmp_path / "good", poses(0.5))
    write_run(tmp_path / "half", epochs=1.25)
    write_run(tmp_path / "evaluated_half", poses(0.1), epochs=1.0)
    write_run(tmp_path / "young", epochs=0)
    write_run(tmp_path / "unevaluated")
    write_run(tmp_path / "torn", poses(0.3))
    (tmp_path / "torn/evaluation.json").write_text('{"unit": "m"')
    write_run(tmp_path / "unmarked", poses(0.3))  # as an older version wrote it
    (tmp_path / "unmarked/evaluation.json").write_text(json.dumps({"checkpoint": "last", **poses(0.3).to_dict()}))
    write_run(tmp_path / "pipe", poses(0.3))
    (tmp_path / "pipe/evaluation.json").unlink()
    os.mkfifo(tmp_path / "pipe/evaluation.json")  # reading it would wait for ever
    write_run(tmp_path / "half_read", poses(0.3), evaluated=[BEST], model__dim=3)
    (tmp_path / "half_read/evaluation-last.json").write_text("{}")
    write_run(tmp_path / "log", poses(0.3))
    (tmp_path / "log/metrics.jsonl").write_text('what\n{"epoch": 2}\n')
    write_run(tmp_path / "config", poses(0.3))
    (tmp_path / "config/config.yaml").write_text("a: [1\n")
    write_run(tmp_path / "foreign", poses(0.3), training=None)
    found = compare([tmp_path, write_run(tmp_path / "result_only", poses(0.4), epochs=None, model__dim=3)])
    assert sum(len(row.runs) for row in found.tables[0].rows) == 3  # good, result_only, the best weights of half_read
    left_out = {Path(line.partition(": ")[0]).name: line.partition(": ")[2] for line in found.left_out}
    assert left_out["half"] == f"not finished, 1.2 of 2 epochs; continue with: contml train --resume {tmp_path}/half"
    assert left_out["evaluated_half"].startswith("not finished, 1 of 2 epochs")
    assert left_out["young"].startswith("not finished, 0 of 2 epochs")
    assert left_out["unevaluated"] == f"finished, but not evaluated; run: contml evaluate {tmp_path}/unevaluated"
    for name in ("torn", "unmarked", "pipe"):
        reason = "its evaluation.json cannot be read, or does not name split and checkpoint; write it again with"
        assert left_out[name] == f"{reason}: contml evaluate {tmp_path}/{name}"
    assert left_out["half_read"].startswith("its evaluation-last.json cannot be read, or does not name split and")
    again = f"write it again with: contml evaluate {tmp_path}/half_read --checkpoint last"
    assert left_out["half_read"].endswith(again)
    assert re.match(r"cannot be read \(.*metrics.jsonl:1: not a row of metrics", left_out["log"])
    assert re.match(r"cannot be read \(.*config.yaml:.*YAML syntax", left_out["config"])
    assert left_out["foreign"] == "its config has no training.epochs; give a folder that 'contml train' made"
    assert len(left_out) == 11
    assert all("\n" not in line for line in found.left_out)
    for name in left_out:
        assert f"/{name}: " in "\n".join(found.left_out)


def test_a_run_counts_once(tmp_path):
    write_run(tmp_path / "2024-01-01_00-00-00", poses(0.5))
    late = write_run(tmp_path / "2024-01-02_00-00-00", poses(0.4), training__checkpoint_minutes=5, images__workers=2)
    write_run(tmp_path / "2024-01-01_12-00-00", poses(0.3), seed=1)
    found = compare([late, tmp_path, late], ["label_distance@1/random"])
    (row,) = found.tables[0].rows
    assert sorted(row.values("label_distance@1/random")) == [0.3, 0.4]
    assert found.notes == (f"{tmp_path}/2024-01-01_00-00-00: left out, as {late} has the same config and seed",)


def best(share, split="test"):
    """The evaluation of weights that a validation split chose."""
    return Evaluated(poses(share), split, "best", epoch=1, epochs=2)


BEST = best(0.2)


def test_a_repeated_run_is_left_out_with_all_its_weights(tmp_path):
    for name in ("1", "2"):
        write_run(tmp_path / name, poses(0.4), evaluated=[best(0.2)])
    found = compare([tmp_path])
    assert [[run.folder.name for run in row.runs] for row in found.tables[0].rows] == [["2"], ["2"]]
    assert found.notes == (f"{tmp_path}/1: left out, as {tmp_path}/2 has the same config and seed",)


def test_splits_have_tables_of_their_own(tmp_path):
    for n, margin in enumerate((0.1, 0.2)):  # as a sweep leaves them
        write_run(tmp_path / f"sweep/{n}", evaluated=[best(0.2 + margin, "val")], loss={"name": "t", "margin": margin})
    write_run(tmp_path / "chosen", evaluated=[best(0.5)], loss={"name": "t", "margin": 0.1})
    last = Evaluated(poses(0.6), "val", "last", 2, 2)
    write_run(tmp_path / "untouched", evaluated=[last], loss={"name": "t", "margin": 0.3})
    first, second = compare([tmp_path / "sweep"]), compare([tmp_path])
    (table,) = first.tables
    assert table.title.startswith("pose/synthetic, validation split, best weights: ")
    assert [line[0] for line in texts(table)] == ["loss.margin", "0.1", "0.2"]
    shown = "were chosen on the validation split whose metrics are shown: these metrics are optimistic"
    assert first.notes == (f"the weights of 2 of 2 runs {shown}",)
    titles = ["pose/synthetic, test split, best weights", "pose/synthetic, validation split"]
    assert [table.title.partition(":")[0] for table in second.tables] == titles
    assert [line[:2] for line in texts(second.tables[1])[1:]] == [["best", "0.1"], ["best", "0.2"], ["last", "0.3"]]
    assert second.notes == (SEPARATE, f"the weights of 2 of 3 runs {shown}")
    assert second.tables[1].title.startswith("pose/synthetic, validation split: 200")
    rows = second.as_data()["tables"][1]["rows"]
    assert [(row["split"], row["checkpoint"]) for row in rows] == [("val", "best"), ("val", "best"), ("val", "last")]


@pytest.mark.parametrize("epochs", [1.0, 1.5])
def test_a_run_that_stopped_early_is_finished(tmp_path, epochs):
    folder = write_run(tmp_path / "1", poses(0.4), epochs=epochs, training__patience=1)
    assert "not finished" in compare([write_run(tmp_path / "2", poses(0.4)), folder]).left_out[0]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "stop", "epoch": epochs, "step": 2}) + "\n")
    found = compare([tmp_path])
    assert (found.left_out, [row.cells for row in found.tables[0].rows]) == ((), [("1",), ("-",)])


def test_when_the_weights_may_be_chosen_is_part_of_a_config(tmp_path):
    for every in (1, 5):
        write_run(tmp_path / f"{every}", evaluated=[BEST], training__evaluate_every=every)
    assert [row.cells for row in compare([tmp_path]).tables[0].rows] == [("1",), ("5",)]


def columns(*configs):
    return distinct([flat(config) for config in configs])


def test_columns_show_differing_keys():
    base = {"config": "a", "loss": {"name": "raw", "beta": 10}, "model": {"dim": 8}, "seed": 0}
    assert (columns(base), columns(base, {**base, "seed": 1})) == ({"config": ["a"]}, {"config": ["a", "a"]})
    assert columns(base, {**base, "loss": {"name": "raw", "beta": 5}}) == {"loss.beta": ["10", "5"]}
    # Options have a column where they differ between configs with the same part.
    triplets = [{**base, "loss": {"name": "triplet", "margin": m, "distance": "cosine"}} for m in (0.1, 0.2)]
    assert columns(base, *triplets) == {"loss": ["raw", "triplet", "triplet"], "loss.margin": ["-", "0.1", "0.2"]}
    # A section that other configs omit.
    memory = [{**base, "memory": {"size": size, "start": 0}} for size in (64, 128)]
    assert columns(base, *memory) == {"memory": ["-", "yes", "yes"], "memory.size": ["-", "64", "128"]}
    # Names of configs where there are many columns.
    other = {"config": "b", "loss": {"name": "x"}, "model": {"dim": 3}}
    assert list(columns(base, other)) == ["loss", "model.dim"]
    other |= {"miner": {"name": "m"}, "optimizer": {"lr": 1}}
    assert list(columns(base, other)) == ["config", "loss", "miner", "optimizer", "model.dim"]
    # A key that an older run lacks, and a newer has without a value.
    newer = {**base, "model": {"dim": 8, "levels": None}}
    assert (columns(base, newer), identity(flat(base))) == ({"config": ["a", "a"]}, identity(flat(newer)))
    # Keys that change no result.
    binarized = {**base, "binarize": {"name": "threshold", "cache": "a"}}
    elsewhere = {**binarized, "binarize": {"name": "threshold", "cache": "b"}}
    assert identity(flat(binarized)) == identity(flat(elsewhere)) != identity(flat(base))
    assert columns(binarized, elsewhere) == {"config": ["a", "a"]}
    # Words before numbers.
    assert list(columns(base, {**base, "model": {"dim": 9, "weights": "x"}})) == ["model.weights", "model.dim"]
    assert identity(flat(base)) == identity(flat({**base, "seed": 3, "config": "b"})) != identity(flat(triplets[0]))


def test_values_of_all_kinds():
    values = [None, True, 0.0000001, 3, [1, 2], "two\nlines"]
    texts_of_values = ["-", "true", "1e-07", "3", "[1, 2]", "two lines"]
    assert columns(*({"a": {"b": value}} for value in values))["a.b"] == texts_of_values


def test_a_metric_without_a_number(tmp_path):
    write_run(tmp_path / "1", replace(poses(0.5), spearman=math.nan))
    write_run(tmp_path / "2", poses(0.5), model__dim=3)
    found = compare([tmp_path], ["spearman"])
    assert [line[-1] for line in texts(found.tables[0])] == ["Spearman", "0.750", "-"]
    json.loads(json.dumps(found.as_data(), allow_nan=False))


# The command


def test_command_prints(contml, accepted, tmp_path):
    sizes(tmp_path / "runs")
    write_run(tmp_path / "runs/late", epochs=1.0)
    status, out, err = contml("compare", "runs")
    assert (status, err) == (0, "")
    assert "log_ratio       16 " in out
    assert "0.360 ± 0.014" in out
    assert "runs/late: not finished, 1 of 2 epochs; continue with: contml train --resume runs/late" in out
    # Other folders and files among the runs do no harm.
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.md").write_text("")
    out, _ = accepted("compare", "runs/a", "out", "out/notes.md")
    assert "out: holds no run" in out
    assert "out/notes.md: not a folder" in out
    out, _ = accepted("compare", "runs", "--metric", "label_distance@10/normalized", "--json")
    (data,) = json.loads(out)["tables"]
    assert (list(data["metrics"]), len(data["rows"])) == (["label_distance@10/normalized"], 8)
    row = data["rows"][3]
    assert (row["config"], row["seeds"]) == ({"loss": "log_ratio", "model.dim": "128"}, [0, 1])
    assert len(row["folders"]) == 2
    values = row["metrics"]["label_distance@10/normalized"]
    assert (values["mean"], values["values"]) == (pytest.approx(0.8), pytest.approx([0.8125, 0.7875]))


def test_reading_needs_no_trust_and_imports_nothing(tmp_path):
    write_run(tmp_path / "1", poses(0.5), loss={"name": "evil_module:run"}, task__name="gone.module:task")
    found = compare([tmp_path])
    title = "gone.module:task, test split, last weights"
    assert found.tables[0].title.startswith(f"{title}: 200 queries")
    assert "evil_module" not in sys.modules
    with refuses(str(tmp_path / "2"), got="no such folder"):
        compare([tmp_path / "2"])


def test_what_a_paper_reports_is_below_the_table(tmp_path):
    write_run(tmp_path / "a", classes(0.5), published={"source": "Kim et al. 2020, Table 2", "recall@1": 0.697})
    (table,) = compare([tmp_path]).tables
    assert table.remarks == ["published: Kim et al. 2020, Table 2: recall@1 0.697"]
    assert "published" not in " ".join(table.keys)
