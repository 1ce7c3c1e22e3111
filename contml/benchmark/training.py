"""One training of a benchmark: train, and measure each query of the split."""

from __future__ import annotations

import dataclasses
import time
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.benchmark.inputs import errors_of, experiment_of, folder_of, with_matrices
from contml.benchmark.suite import filled
from contml.benchmark.trials import UNIT, Item, Result
from contml.data import Split, Task
from contml.data.sources import Vector
from contml.evaluation.results import Evaluation, Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels import PoseLabels, VectorLabels


def measure(item: Item) -> Result:
    """The result of a training: the normalized score, and on the test split that of each query.

    Every item of the split is a query. It searches all other items, without its own group. The score of a query is
    (random - model) / (the mean of random - oracle over the queries), of its label distance@10: their mean is the
    normalized score.

    Raises:
        InputError: the data cannot be read. A training that diverged has an `error` in place of a score.
    """
    start = time.process_time()  # not the time on the clock: the machine may have other work
    try:
        with errors_of(item.set_name):
            evaluation, ranking = _baseline(item) if item.method.baseline else _trained(item)
    except InputError as error:
        if error.subject not in ("loss", "weights"):
            raise
        return {"error": str(error), "seconds": _since(start)}
    at = evaluation.curves["label_distance"].at(evaluation.k)
    result: dict[str, Any] = {
        "value": round(at.normalized(), 5),
        "label_distance": at.model / at.random,
        "oracle": at.oracle / at.random,
    }
    if item.split == "test":
        span = float((ranking.random_values - ranking.oracle_values).mean())
        scores = (ranking.random_values - ranking.values) / span
        result["queries"] = (scores * UNIT).round().long().tolist()
        result["spearman"], result["kendall"] = evaluation.spearman, evaluation.scores["kendall"].model
        if item.seed == item.suite.seeds[0]:
            result["groups"] = _groups(_task(*_task_key(item)).evaluated)
    return {**result, "seconds": _since(start)}


def _since(start: float) -> float:
    return round(time.process_time() - start, 2)


def _groups(split: Split) -> list[int]:
    """The group of each query, which are not independent within one."""
    return list(range(len(split))) if split.groups is None else split.groups.tolist()


def _task_key(item: Item) -> tuple[Any, ...]:
    return item.suite.model_dump_json(), item.set_name, tuple(sorted(item.places.items())), item.split


@lru_cache(maxsize=2)
def _task(suite_text: str, set_name: str, places: tuple[tuple[str, str], ...], split: str) -> Task:
    """What is trained on, and what is measured: the validation or the test split, each item of which is a query."""
    from contml.benchmark.suite import Suite

    suite, values = Suite.model_validate_json(suite_text), dict(places)
    folder = folder_of(suite, set_name, values)
    changes = [f"images.features={folder / 'features.npz'}", f"training.val_share={suite.val_share}"]
    changes.append(f"training.select={'val' if split == 'val' else 'none'}")
    experiment = experiment_of(suite, set_name, values, changes)
    task = dataclasses.replace(experiment, task=with_matrices(experiment.read_task(), folder)).build_task()
    measured = task.splits[split]
    # As the validation split, which nothing is chosen on: a trainer evaluates a test split again and again.
    return Task(task.train, None, dataclasses.replace(measured, queries=None, gallery=None))


def _trained(item: Item) -> tuple[Evaluation, Ranking]:
    """Train the head, and evaluate its last weights."""
    torch.set_num_threads(1)
    places = {**item.places, **item.data.values}
    changes = filled([*item.suite.train, *item.method.changes], places)
    features = folder_of(item.suite, item.set_name, item.places) / "features.npz"
    last = [f"images.features={features}", "training.select=none", f"seed={item.seed}"]
    experiment = experiment_of(item.suite, item.set_name, item.places, [*changes, *item.options.split(), *last])
    task = _task(*_task_key(item))
    trainer = experiment.build_trainer(task, quiet=True)
    trainer.fit()
    evaluation, ranking, _ = trainer.evaluate(task.evaluated)
    assert isinstance(ranking, Ranking)
    return evaluation, ranking


# Baselines


def _baseline(item: Item) -> tuple[Evaluation, Ranking]:
    """Features as they are, or labels that are predicted from them."""
    task = _task(*_task_key(item))
    options = dict(word.split("=") for word in item.options.split())
    inputs = vectors_of(task.evaluated)
    if item.method.baseline == "features":
        found = torch.nn.functional.normalize(inputs, dim=1) if options["normalize"] == "true" else inputs
    else:
        labels = label_vectors(task.train)
        if labels is None:
            raise InputError(item.method_name, f"the labels of {item.set_name} are no vectors", hint="set its sets")
        found = ridge(vectors_of(task.train), *labels, inputs, float(options["strength"]))
    split = task.evaluated
    return evaluate(found, split.labels, groups=split.groups)


def vectors_of(split: Split) -> Tensor:
    """The features of a split `[N, F]`, float64."""
    values = [source.values for source in split.images if isinstance(source, Vector)]
    return torch.stack([torch.as_tensor(value) for value in values]).double()


def label_vectors(split: Split) -> tuple[Tensor, Tensor] | None:
    """The labels of a split as vectors `[N, D]`, and which of their numbers are known; None where they are none."""
    labels = split.labels
    if isinstance(labels, PoseLabels):
        return labels.joints.flatten(1), labels.visible.repeat_interleave(labels.joints.shape[2], 1)
    if isinstance(labels, VectorLabels):
        return labels.values, torch.ones_like(labels.values, dtype=torch.bool)
    return None


def ridge(x: Tensor, y: Tensor, known: Tensor, queries: Tensor, strength: float) -> Tensor:
    """Predicted labels `[Q, D]` of `queries` `[Q, F]`: least squares of standardized labels with an L2 penalty.

    The weights w and the bias b of each number of the label minimize

        mean over its known items of (w x + b - (y - mean) / std)^2  +  strength * v |w|^2

    with v the mean variance of the features. The prediction is in units of the label.

    Args:
        x: features of the training items `[N, F]`.
        y: their labels `[N, D]`.
        known: which numbers of the labels are known, bool `[N, D]`.
        queries: the features for which labels are predicted.
        strength: of the penalty.
    """
    predicted = queries.new_empty(len(queries), y.shape[1])
    patterns, column_of = torch.unique(known, dim=1, return_inverse=True)
    for n in range(patterns.shape[1]):
        rows, columns = patterns[:, n], column_of == n
        a, b = x[rows], y[rows][:, columns]
        centre, mean, std = a.mean(0), b.mean(0), b.std(0, correction=0).clamp(min=1e-12)
        a, b = a - centre, (b - mean) / std
        penalty = strength * float(a.square().mean()) * torch.eye(a.shape[1], dtype=a.dtype)
        weights = torch.linalg.solve(a.T @ a / len(a) + penalty, a.T @ b / len(a))
        predicted[:, columns] = ((queries - centre) @ weights) * std + mean
    return predicted
