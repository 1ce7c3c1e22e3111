"""Files that contml writes itself: run folders, and the trials of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from support.fake_runs import poses, write_run

from contml.app.experiment import saved_run
from contml.app.report.plots import metrics_plot, training_plot
from contml.app.trials.compare import compare
from contml.app.trials.space import parse_space
from contml.app.trials.sweep import _SweepRecord
from contml.app.trials.sweep_result import Sweep, Trial, ranked
from contml.config import read
from contml.data.identity import DataRecord
from contml.evaluation.evaluated import Evaluated, Selection, summary
from contml.runs import open_run

from .base import Kind


def build_runs(folder: Path) -> None:
    """Two run folders with metrics; data, embeddings."""
    chosen = Selection("label_distance@10", 40, 0.3, 0.4, -0.1, 0.05)
    for name, share, lr in (("one", 0.5, 0.002), ("two", 0.4, 0.01)):
        results = [
            Evaluated(poses(share, k=20), "test", "best", 2, 2, chosen),
            Evaluated(poses(0.6, k=20), "test", "last", 2, 2),
        ]
        write_run(
            folder / name,
            evaluated=results,
            optimizer={"name": "adamw", "lr": lr},
            published={"source": "a paper", "recall@1": 0.5},
        )
    rows = [{"event": "train", "epoch": 1, "step": 1, "loss": 0.5, "learning_rate": 0.1}]
    rows += [
        {
            "event": "evaluation",
            "epoch": 2,
            "step": 2,
            "split": "val",
            "metric": "label_distance@10",
            "label_distance@10": 5.0,
        }
    ]
    rows += [{"event": "train", "epoch": 2, "step": 2, "loss": 0.5, "learning_rate": 0.1}]
    (folder / "one" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record()[0].save(folder / "one" / "data.safetensors")


def record() -> tuple[DataRecord, DataRecord]:
    """The record of some data, and that of other data."""
    names = {"train": ["a", "b", "c"], "test": ["d", "e"]}
    labels = {split: [f"{name}0" for name in items] for split, items in names.items()}
    return DataRecord(names, labels, {"train": [], "test": [0]}), DataRecord(
        {**names, "test": ["d"]}, {**labels, "test": ["d1"]}, {"train": [], "test": []}
    )


def read_runs(folder: Path, random: Random) -> None:
    """Compares both runs, and reads what a report of the first reads."""
    options: Any = random.choice(({}, {"metrics": ["ndcg@10"]}))
    json.dumps(compare([folder], **options).as_data())


def read_report(folder: Path, random: Random) -> None:
    """Reads what a report reads: the config, the data, the evaluation and the metrics."""
    read(folder / "one" / "config.yaml", trusted=False)
    before, now = DataRecord.load(folder / "one" / "data.safetensors"), record()[1]
    before.changes(now)
    for split in before.names:
        before.rows(split, now)
    run = open_run(folder / "one")
    evaluated = saved_run.read_evaluation(run)
    rows = run.rows()
    evaluated.description, evaluated.doubt, summary(evaluated.evaluation)
    training_plot(rows, evaluated)
    metrics_plot(evaluated.evaluation)
    run.rewind(1)


SPEC = {"config": {"loss": {"margin": 0.1}}, "space": {"loss.margin": "0.1,0.2"}, "sampler": "grid", "seeds": 1}


def build_trials(folder: Path) -> None:
    """The file of a sweep."""
    record = _SweepRecord(folder / "trials.jsonl", SPEC, SPEC)
    about = {"metric": "label_distance@10", "queries": 20, "epoch": 1, "untrained": False, "run": "run"}
    for n in range(4):
        record.add(f"trial {n}", {**({"value": 0.5, **about} if n else {"error": "diverged"}), "seconds": 3.0})


def read_trials(folder: Path, random: Random) -> None:
    """Goes on with the sweep, and ranks its trials."""
    record = _SweepRecord(folder / "trials.jsonl", SPEC, SPEC)
    trials = [Trial.of(n, {"loss.margin": 0.1}, {0: each}, folder) for n, each in enumerate(record.values())]
    if trials and not (found := ranked(trials))[0].error:
        sweep = Sweep(folder, parse_space(["loss.margin=0.1,0.2"]), tuple(found), ())
        sweep.table(), sweep.sentences(), json.dumps(sweep.as_data())


KINDS = {
    "runs": Kind(build_runs, read_runs, ("*/config.yaml", "*/metrics.jsonl", "*/evaluation*.json")),
    "report": Kind(build_runs, read_report, ("one/*",), restore=True),
    "trials": Kind(build_trials, read_trials, ("trials.jsonl",), restore=True),
}
