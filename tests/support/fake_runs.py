"""Run folders as `contml train` leaves them, with invented metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from contml.config import dump
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import Curve, Evaluation, QueryValues, Score, headline_k
from contml.runs import HEAD, Run

CONFIG: dict[str, Any] = {
    "task": {"name": "pose/synthetic", "train": 3000, "seed": 0},
    "model": {"backbone": "small_cnn", "dim": 64, "normalize": False},
    "images": {"workers": 0},
    "loss": {"name": "log_ratio", "squared": True},
    "optimizer": {"name": "adamw", "lr": 0.002},
    "training": {"epochs": 2, "evaluate_every": 1},
    "seed": 0,
}
TRIPLET = {"name": "dense_triplet", "margin": 0.03}


def poses(share: float, random: float = 2000.0, ndcg: float = 0.6, k: int = 100) -> Evaluation:
    """An evaluation by label distance, which is `share` times that of a random ranking."""
    curves = {
        "label_distance": Curve("mean label distance", "lower", [share * random] * k, [random] * k, [0.2 * random] * k),
        "ndcg": Curve("nDCG", "higher", [ndcg] * k, [0.3] * k, [1.0] * k),
    }
    return Evaluation("pixels", 200, 800, curves, 0.75, k=headline_k(k))


def classes(recall: float, k: int = 10, map_at_r: float = 0.4) -> Evaluation:
    """An evaluation by class."""
    curves = {
        "recall": Curve("Recall", "higher", [recall + (1 - recall) * n / k for n in range(k)], [0.1] * k, [1.0] * k),
        "label_distance": Curve("mean label distance", "lower", [1 - recall] * k, [0.9] * k, [0.0] * k),
    }
    scores = {"map_at_r": Score("MAP@R", "higher", map_at_r, 0.01, 1.0)}
    return Evaluation("another class", 800, 800, curves, 0.3, scores=scores, kind="classes", k=headline_k(k))


def write_run(
    folder: Path,
    evaluation: Evaluation | None = None,
    /,
    *,
    config: str = "pose/synthetic",
    epochs: float | None = 2.0,
    evaluated: Sequence[Evaluated] = (),
    watched: Sequence[float] = (),
    queries: Mapping[str, Sequence[float]] | None = None,
    **changes: Any,
) -> Path:
    """A run folder; `model__dim=16` sets a key, `loss={...}` a section.

    evaluation: that of the last weights on the test split. evaluated: those of other weights or splits, the selected
    weights first. epochs: epochs done; None: no metrics. queries: what names the queries, and the main metric of each.
    """
    values = deepcopy(CONFIG)
    for key, value in changes.items():
        section, _, option = key.partition("__")
        if option:
            values.setdefault(section, {})[option] = value
        elif value is None:
            del values[section]
        else:
            values[section] = value
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"{HEAD}{config}\n{dump(values)}", encoding="utf-8")
    if epochs is not None:
        rows = [{"event": "train", "epoch": epochs / 2, "step": 1}, {"event": "train", "epoch": epochs, "step": 2}]
        key = "label_distance@10"
        rows += [
            {"event": "evaluation", "split": "val", "metric": key, "epoch": float(n), "step": 0, key: value}
            for n, value in enumerate(watched, start=1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row["epoch"]))
    results = [*evaluated, *([] if evaluation is None else [Evaluated(evaluation, "test", "last", 2, 2)])]
    for result in results:
        name = "evaluation" if result is results[0] else f"evaluation-{result.checkpoint}"
        (folder / f"{name}.json").write_text(json.dumps(result.to_dict()), encoding="utf-8")
    for name, numbers in (queries or {}).items():
        names = [f"{name} {number}" for number in range(len(numbers))]
        values = QueryValues.of(results[0].evaluation.headline, names, torch.tensor(numbers, dtype=torch.float64))
        values.save(Run(folder).query_values(results[0].split))
    return folder


def read_again(evaluation: Evaluation) -> Evaluation:
    """An evaluation that was written as JSON."""
    values = Evaluated(evaluation, "test", "last", 2, 2).to_dict()
    return Evaluated.from_dict(json.loads(json.dumps(values))).evaluation


def other_test_set(evaluation: Evaluation, queries: int) -> Evaluation:
    """The same metrics on another number of queries."""
    return replace(evaluation, queries=queries)
