"""One training of a benchmark: train, and measure each query of the split."""

from __future__ import annotations

import dataclasses
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.benchmark.inputs import errors_of, experiment_of, folder_of, with_matrices
from contml.benchmark.suite import SCORES, Suite, filled
from contml.benchmark.trials import UNIT, Item, Result
from contml.data import Split, Task
from contml.data.sources import Vector
from contml.evaluation.results import Evaluation, Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels import PoseLabels, VectorLabels


def measure(item: Item) -> Result:
    """The result of a training: the first score of the suite, and on the test split all scores of each query.

    Every item of the split is a query. It searches all other items, without its own group.

    Raises:
        InputError: the data cannot be read, or the scores are not of its labels. A training that diverged has an
            `error` in place of a score.
    """
    start = time.process_time()  # not the time on the clock: the machine may have other work
    try:
        with errors_of(item.set_name):
            embeddings = _baseline(item) if item.method.baseline else _trained(item)
    except InputError as error:
        if error.subject not in ("loss", "weights"):
            raise
        return {"error": str(error), "seconds": _since(start)}
    split = _task(*_task_key(item)).evaluated
    evaluation, ranking = evaluate(
        embeddings,
        split.labels,
        groups=split.groups,
        exclude_group=split.exclude_group,
        places=split.places,
        clusters=False,
    )
    with errors_of(item.set_name):
        scores = {name: query_scores(name, evaluation, ranking) for name in item.suite.scores}
    first, *others = scores
    result: dict[str, Any] = {"value": round(float(scores[first].mean()), 5)}
    if evaluation.kind == "graded":
        at = evaluation.curves["label_distance"].at(evaluation.k)
        result |= {"label_distance": at.model / at.random, "oracle": at.oracle / at.random}
    if item.split == "test":
        in_units = {name: (values * UNIT).round().long().tolist() for name, values in scores.items()}
        result["queries"] = in_units[first]
        if others:
            result["others"] = {name: in_units[name] for name in others}
        if evaluation.kind == "graded":
            result["spearman"], result["kendall"] = evaluation.spearman, evaluation.scores["kendall"].model
        if item.seed == item.suite.seeds[0]:
            result["groups"] = _groups(ranking)
    return {**result, "seconds": _since(start)}


def query_scores(name: str, evaluation: Evaluation, ranking: Ranking) -> Tensor:
    """A score of each query, `[Q]`: their mean is the metric of the evaluation.

    The normalized score of a query is (random - model) / (the mean of random - oracle over the queries), of its label
    distance@10.

    Args:
        name: a name of `contml.benchmark.suite.SCORES`.
        evaluation: of the embeddings.
        ranking: of the same evaluation.

    Raises:
        InputError: the score is of classes, and the labels are graded, or the other way round.
    """
    if SCORES[name].classes != (evaluation.kind == "classes"):
        kind = "classes" if evaluation.kind == "classes" else "graded"
        allowed = ", ".join(each for each, score in SCORES.items() if score.classes == (kind == "classes"))
        raise InputError("scores", f"{name} of {kind} labels", f"must be of {allowed}")
    if name == "recall@1":
        return ranking.values
    if name in ranking.scores:
        return ranking.scores[name]
    span = float((ranking.random_values - ranking.oracle_values).mean())
    return (ranking.random_values - ranking.values) / span


def _since(start: float) -> float:
    return round(time.process_time() - start, 2)


def _groups(ranking: Ranking) -> list[Any]:
    """What `contml.benchmark.statistics.estimate` takes as groups: the items of each query, or its number."""
    if ranking.items is None:
        return list(range(len(ranking.queries)))
    return (ranking.items[:, 0] if ranking.items.shape[1] == 1 else ranking.items).tolist()


def _task_key(item: Item) -> tuple[Any, ...]:
    return item.suite.model_dump_json(), item.set_name, tuple(sorted(item.places.items())), item.split


@lru_cache(maxsize=2)
def _task(suite_text: str, set_name: str, places: tuple[tuple[str, str], ...], split: str) -> Task:
    """What is trained on, and what is measured: the validation or the test split, each item of which is a query."""
    suite, values = Suite.model_validate_json(suite_text), dict(places)
    folder = folder_of(suite, set_name, values)
    changes = [f"training.val_share={suite.val_share}", f"training.select={'val' if split == 'val' else 'none'}"]
    changes += _read_from(suite, folder)
    experiment = experiment_of(suite, set_name, values, changes)
    task = dataclasses.replace(experiment, task=with_matrices(experiment.read_task(), folder)).build_task()
    measured = task.splits[split]
    # As the validation split, which nothing is chosen on: a trainer evaluates a test split again and again.
    return Task(task.train, None, dataclasses.replace(measured, queries=None, gallery=None))


def _read_from(suite: Suite, folder: Path) -> list[str]:
    """Changes to a config: train on the features of the folder, if the suite has any."""
    return [] if suite.inputs is None else [f"images.features={folder / 'features.npz'}"]


def _trained(item: Item) -> Tensor:
    """Train the head or the network, and embed the split with its last weights, `[N, d]`."""
    torch.set_num_threads(1)
    places = {**item.places, **item.data.values}
    changes = filled([*item.suite.train, *item.method.changes], places)
    last = [*_read_from(item.suite, folder_of(item.suite, item.set_name, item.places)), "training.select=none"]
    changes += [*item.options.split(), *last, f"seed={item.seed}"]
    experiment = experiment_of(item.suite, item.set_name, item.places, changes)
    task = _task(*_task_key(item))
    trainer = experiment.build_trainer(task, quiet=True)
    trainer.fit()
    return trainer.outputs(task.evaluated)[0]  # a broken image is an error


# Baselines


def _baseline(item: Item) -> Tensor:
    """Features as they are, or labels that are predicted from them, `[N, d]`."""
    task = _task(*_task_key(item))
    options = dict(word.split("=") for word in item.options.split())
    inputs = vectors_of(task.evaluated)
    if item.method.baseline == "features":
        return torch.nn.functional.normalize(inputs, dim=1) if options["normalize"] == "true" else inputs
    labels = label_vectors(task.train)
    if labels is None:
        raise InputError(item.method_name, f"the labels of {item.set_name} are no vectors", hint="set its sets")
    return ridge(vectors_of(task.train), *labels, inputs, float(options["strength"]))


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
