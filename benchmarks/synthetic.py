"""Trains the configs of a synthetic data set with continuous labels; `benchmarks/NAME_synthetic.py` share this module.

All methods share the data, the backbone, the sampler and the number of epochs of their configs, and have four options
to choose from: the learning rate of the log-ratio loss, the margin of triplets. `benchmarks/trials.py` chooses them on
the validation split. A training ends with the weights that have the best result on the validation split.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import torch

from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml.app.experiment import load
from contml.app.trials.record import FinishedTrainings
from contml.data import Task

#: The K of all metrics.
_K = 10
COLUMNS = {
    "normalized score": ("normalized_score", ".1%"),
    f"nDCG@{_K}": ("ndcg", ".3f"),
    "Spearman": ("spearman", ".3f"),
}
MARGINS = tuple(f"loss.margin={margin}" for margin in (0.05, 0.1, 0.2, 0.4))
_tasks: dict[str, Task] = {}


def rates(middle: float) -> tuple[str, ...]:
    """Four learning rates around that of the config."""
    return tuple(f"optimizer.lr={middle * factor:g}" for factor in (0.25, 0.5, 1, 2))


def log_ratio_and_triplets(config: str, rate: float) -> list[Method]:
    """Log-ratio loss with dense sampling, and triplets of a thresholded label distance."""
    return [
        Method("log-ratio, dense", config, rates(rate)),
        Method("triplet, threshold", f"{config}_threshold", MARGINS),
    ]


def train(job: Job) -> Metrics:
    """Train, and measure the best weights on the split of the job: "value" is mean label distance@10 over random."""
    torch.set_num_threads(1)
    experiment = load(job.method.config, job.overrides)
    data = json.dumps([experiment.values["task"], experiment.values["training"]["val_share"]], sort_keys=True)
    if data not in _tasks:
        _tasks.clear()
        _tasks[data] = experiment.build_task()
    task = _tasks[data]
    trainer = experiment.build_trainer(task, quiet=True)
    split = task.splits[job.split]
    metrics: Metrics = {}
    if job.split == "test":
        before = trainer.evaluate(split)[0].curves["label_distance"]
        metrics["untrained"] = before.model[_K - 1] / before.random[_K - 1]
    start = time.perf_counter()
    trainer.fit()
    fit_seconds = time.perf_counter() - start
    assert trainer.best is not None
    assert trainer.best.weights is not None
    trainer.bare_model.load_state_dict(trainer.best.weights)
    evaluation = trainer.evaluate(split)[0]
    curve, last = evaluation.curves["label_distance"], _K - 1
    return metrics | {
        "value": curve.model[last] / curve.random[last],
        "oracle": curve.oracle[last] / curve.random[last],
        "normalized_score": curve.at(_K).normalized(),
        "ndcg": evaluation.curves["ndcg"].model[last],
        "spearman": evaluation.spearman,
        "epoch": trainer.best.epoch,
        "fit_seconds": round(fit_seconds, 1),
    }


def _remark(trials: Trials) -> str:
    found = [metrics for method in trials.methods for metrics in trials.tests(method)]
    untrained = sum(metrics["untrained"] for metrics in found) / len(found)
    return (
        f"Mean label distance@{_K}, relative to the value of a random ranking: lower is better. The oracle has "
        f"{found[0]['oracle']:.3f}, untrained weights {untrained:.3f}."
    )


def main(name: str, title: str, methods: Sequence[Method], seconds: float, description: str | None) -> None:
    """The command line of a program.

    Args:
        name: of the file of finished trainings.
        title: of the table.
        methods: its rows.
        seconds: of one training, on one thread.
        description: the help of the command.
    """
    parser = arguments(description)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes to every config")
    given = parser.parse_args()
    changes = tuple(given.changes)
    trials = Trials(methods, train, FinishedTrainings(given.raw / f"{name}.jsonl"), "lower", changes, changes)
    print_tables(title, {"": (trials, seconds)}, COLUMNS, given, _remark)
