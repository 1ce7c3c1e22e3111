"""The inputs of the sets of a benchmark, and one training, which measures each query of a split.

Inputs are features of the images, and label distances that would take long to compute for each batch.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write
from contml.app.experiment import Experiment, extract_features, load
from contml.app.trials.plan import UNIT, TrainingItem, data_key
from contml.app.trials.record import Result, result_of
from contml.app.trials.suite import LABEL_DISTANCE, SCORES, THROUGH_LABELS, Suite, filled
from contml.config.document import COMMAND_LINE_NAME
from contml.data import Split, Task
from contml.data.carve import with_validation
from contml.data.copies import same_images
from contml.data.features import read_features, write_features
from contml.data.sources import Vector
from contml.evaluation.posterior import Coordinates, Posterior, as_query
from contml.evaluation.results import Evaluation, Ranking, Retrieval
from contml.evaluation.retrieval import evaluate
from contml.labels import LabelSpace, MatrixLabels, PoseLabels, VectorLabels
from contml.labels.items import growing


def experiment_of(suite: Suite, set_name: str, places: Mapping[str, str], changes: list[str]) -> Experiment:
    """Return the experiment of a set with changes to its config."""
    data = suite.sets[set_name]
    with errors_of(set_name):
        return load(data.config, [*filled(data.changes, places), *changes])


def check_methods(suite: Suite, pairs: Sequence[tuple[str, str]], places: Mapping[str, str]) -> None:
    """Load the config of each set, and of each method with each value of its grid.

    A mistyped name is then found at once.

    Args:
        suite: the suite.
        pairs: sets and methods.
        places: as in `TrainingItem`. A missing place keeps its name.

    Raises:
        InputError: the first error.
    """
    unfilled = {**{place: f"${place}" for place in suite.places}, **places}
    for set_name in dict.fromkeys(set_name for set_name, _ in pairs):
        experiment_of(suite, set_name, unfilled, filled(suite.inputs.changes if suite.inputs else (), unfilled))
    first_sets: dict[str, str] = {}
    for set_name, name in pairs:
        first_sets.setdefault(name, set_name)
    for name, set_name in first_sets.items():
        method = suite.methods[name]
        if method.baseline is not None:
            continue
        words = [axis.words for axis in method.axes]
        for n in range(max(map(len, words), default=1)):
            option = " ".join(each[n % len(each)] for each in words)
            changes = filled([*suite.train, *method.changes, *option.split()], unfilled)
            try:
                experiment_of(suite, set_name, unfilled, changes)
            except InputError as error:
                raise error.at(f"method {name}") from None


@contextmanager
def errors_of(set_name: str) -> Iterator[None]:
    """Add the name of the set to errors of changes to a config, since nobody has written them on the command line."""
    try:
        yield
    except InputError as error:
        origin = error.origin.replace(COMMAND_LINE_NAME, f"sets.{set_name} of the suite")
        raise type(error)(error.subject, error.got, error.allowed, error.hint, origin) from error


def folder_of(suite: Suite, set_name: str, places: Mapping[str, str]) -> Path:
    """Return the folder of the inputs of a set."""
    return Path(places["folder"]) / f"{set_name.replace(' ', '_')}-{data_key(suite, set_name)}"


def prepare(suite: Suite, set_name: str, places: Mapping[str, str], methods: Iterable[str]) -> None:
    """Write the inputs of a set that do not exist yet.

    Raises:
        InputError: an error of the data, or the loss of one of the methods needs other labels.
    """
    folder, inputs = folder_of(suite, set_name, places), suite.inputs
    experiment = experiment_of(suite, set_name, places, filled(inputs.changes if inputs else (), places))
    with errors_of(set_name):
        task = experiment.read_task()
        _check_copies(task, suite.sets[set_name].copies)
        for method in (suite.methods[name] for name in methods):
            if method.baseline is None:
                changes = filled([*suite.train, *method.changes, *method.options[0].split()], places)
                experiment_of(suite, set_name, places, changes).check_labels(task)
        if inputs is not None and not (out := folder / "features.npz").exists():
            bare = folder / ("maps.npz" if inputs.maps else "network.npz")
            extract_features(replace(experiment, task=task), bare, maps=bool(inputs.maps))
            write_components(bare, out, inputs.components, None if isinstance(inputs.maps, bool) else inputs.maps)
            bare.unlink()
    _write_matrices(task, folder)
    if suite.sets[set_name].draw:
        (folder / DRAWN).mkdir(exist_ok=True)
        _write_matrices(redrawn(suite, set_name, task), folder / DRAWN)


#: The folder of the label distances of another validation split, in the folder of the inputs.
DRAWN = "drawn"


def redrawn(suite: Suite, set_name: str, task: Task) -> Task:
    """Return the task with another validation split, drawn from its training and validation items by `DataSet.draw`."""
    train, val, share = task.train, task.val, suite.val_share
    if val is not None:
        share = len(val) / (len(train) + len(val))
        groups = None if train.groups is None or val.groups is None else torch.cat((train.groups, val.groups))
        labels, names = growing(train.labels).joined(val.labels), [*train.names, *val.names]
        train = Split([*train.images, *val.images], names, labels, groups=groups, exclude_group=train.exclude_group)
    val_groups = task.val_groups if val is None else None  # of the training items alone
    if val_groups is None and train.groups is not None:
        val_groups = list(map(str, train.groups.tolist()))
    elif val_groups is None and task.val_groups is not None:
        raise InputError(f"sets.{set_name}", "validation items without groups", hint="set task.exclude_group=true")
    task = replace(task, train=train, val=None, val_groups=val_groups)
    return with_validation(task, train.with_short_names().names, share=share, seed=suite.sets[set_name].draw)


def _write_matrices(task: Task, folder: Path) -> None:
    for name, split in task.splits.items():
        if is_slow(split.labels) and not (folder / f"{name}.npy").exists():
            write(folder / f"{name}.npy", partial(np.save, arr=split.labels.pairwise().numpy()))


def _check_copies(task: Task, declared: int) -> None:
    """Refuse a set whose training items have images of other splits, unless the suite gives their number."""
    others = [split for name, split in task.splits.items() if name != "train"]
    if (found := int(_in_others(task.train, others).sum())) != declared:
        got = f"{found:,} training items whose image is also in another split"
        raise InputError("copies", str(declared), f"must be {found}", f"'copies: {found}' leaves out {got}")


def _in_others(train: Split, others: Sequence[Split]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return whether the image of each training item is also in one of the other splits, bool `[N]`."""
    images = same_images(train.images, *(split.images for split in others))
    return np.isin(images[: len(train)], images[len(train) :])


def is_slow(labels: LabelSpace) -> bool:
    """Return True if label distances are written to a file.

    Classes, vectors, and labels whose distances have a unit are kept, since a matrix has none of these.
    """
    return labels.class_ids is None and labels.vectors is None and labels.measure.is_plain


def with_matrices(task: Task, folder: Path) -> Task:
    """Return the task with the label distances that are in the folder."""

    def changed(name: str, split: Split) -> Split:
        file = folder / f"{name}.npy"
        return replace(split, labels=MatrixLabels(file)) if is_slow(split.labels) and file.exists() else split

    return task.with_splits({name: changed(name, split) for name, split in task.splits.items()})


def write_components(features: Path, out: Path, components: int | None, side: int | None = None) -> None:
    """Write the first principal components of features, or all. Mean and directions come from the training images.

    Args:
        features: the file of features `[N, F]`, or of maps `[N, P, F]` of P places in rows from the top.
        out: the file to write.
        components: number of components. Default: the features themselves.
        side: number of rows and of columns to which maps are averaged first. Default: all places.

    Raises:
        InputError: maps are not square, or have fewer rows.
    """
    found = read_features(features)
    with np.load(features) as file:
        splits = file["split"].tolist()
    values = found.values
    if side is not None:
        places, rows = values.shape[1], math.isqrt(values.shape[1])
        if rows**2 != places or rows < side:
            raise InputError("maps", str(side), f"must be true: the feature maps have {places} places")
        squares = torch.from_numpy(values).view(len(values), rows, rows, -1).movedim(-1, 1)
        values = torch.nn.functional.adaptive_avg_pool2d(squares, side).numpy()
    values = values.reshape(len(splits), -1)
    if components is not None:
        seen = values[[split == "train" for split in splits]].astype(np.float64)
        directions = np.linalg.svd(seen - seen.mean(0), full_matrices=False)[2][:components]
        values = ((values - seen.mean(0)) @ directions.T).astype(np.float32)
    assert found.names is not None
    write_features(out, found.names, splits, values)


def measure(item: TrainingItem) -> Result:
    """Train, and return the first score of the suite. On the test split, also return all scores of each query.

    Every item of the split is a query. It searches all other items, without its own group.

    Raises:
        InputError: the data cannot be read, an option is refused, the scores are not of its labels, or as in
            `result_of`.
    """
    split = _task_of(item).evaluated
    return result_of(lambda: _measured(item, split), refusals=False)


def _measured(item: TrainingItem, split: Split) -> Result:
    first, *others = item.suite.scores if item.split == "test" else item.suite.scores[:1]
    with errors_of(item.set_name):
        outputs = _baseline(item) if item.method.baseline else _trained(item)
    embeddings = outputs(split)
    found = _retrieval(embeddings, split)
    evaluation, ranking = found.evaluation, found.ranking
    with errors_of(item.set_name):
        values = query_scores(first, evaluation, ranking)
    result: dict[str, Any] = {"value": round(float(values.mean()), 5)}
    if evaluation.kind == "graded":
        at = evaluation.curves["label_distance"].at(evaluation.k)
        result |= {"label_distance": at.model / at.random, "oracle": at.oracle / at.random}
    if item.split == "test":
        result["queries"] = _in_units(values)
        names = "\0".join(Path(name).name for name in split.names)  # wherever the folder is
        result["items"] = zlib.crc32(names.encode(errors="surrogateescape"))
        if others:
            result["others"] = {}
        for name in others:
            by = ranking
            if name == THROUGH_LABELS:
                train = _task_of(item).train
                vectors = label_vectors_of(embeddings, outputs(train), train)
                by = _retrieval(vectors, split, as_query(vectors)).ranking
            with errors_of(item.set_name):
                result["others"][name] = _in_units(query_scores(name, evaluation, by))
        if evaluation.kind == "graded":
            result["spearman"], result["kendall"] = evaluation.spearman, evaluation.scores["kendall"].model
        if item.seed == item.suite.seeds[0]:
            result["groups"] = _groups(ranking)
    return result


def _retrieval(embeddings: Tensor, split: Split, as_queries: Tensor | None = None) -> Retrieval:
    options: Any = {"groups": split.groups, "exclude_group": split.exclude_group, "places": split.places}
    return evaluate(embeddings, split.labels, **options, as_queries=as_queries, clusters=False)


def _in_units(values: Tensor) -> list[int]:
    units: list[int] = (values * UNIT).round().long().tolist()
    return units


def label_vectors_of(embeddings: Tensor, of_train: Tensor, train: Split) -> Tensor:
    """Compute the label vectors `[N, r + 1]` of embeddings `[N, d]`, by a posterior over the training items.

    The options of the posterior are chosen on training items, each left out with its group. The validation split is not
    used again, because it chose the options of the method.

    Args:
        embeddings: of the items.
        of_train: of the training items `[T, d]`.
        train: the training items.
    """
    coordinates = Coordinates.fit(train.labels)
    labels = coordinates.of(train.labels.filled(range(len(train)), coordinates.landmarks))
    return Posterior.fit(of_train, labels, None, train.excluded_groups).label_vectors(embeddings)


def query_scores(name: str, evaluation: Evaluation, ranking: Ranking) -> Tensor:
    """Return a score of each query, `[Q]`. The mean is the metric of the evaluation.

    The normalized score of a query is (random - model) / (the mean of random - oracle over the queries), for its label
    distance@10.

    Args:
        name: a name of `contml.app.trials.suite.SCORES`.
        evaluation: of the embeddings.
        ranking: of the same evaluation, or through labels.

    Raises:
        InputError: the score is of classes, and the labels are graded, or the other way round.
    """
    if SCORES[name].classes != (evaluation.kind == "classes"):
        kind = "classes" if evaluation.kind == "classes" else "graded"
        allowed = ", ".join(each for each, score in SCORES.items() if score.classes == (kind == "classes"))
        raise InputError("scores", f"{name} of {kind} labels", f"must be of {allowed}")
    if name == "recall@1":
        return ranking.values
    if name not in (LABEL_DISTANCE, THROUGH_LABELS):
        return ranking.scores[name]
    span = float((ranking.random_values - ranking.oracle_values).mean())
    return (ranking.random_values - ranking.values) / span


def _groups(ranking: Ranking) -> list[Any]:
    """Return the groups for `contml.app.trials.statistics.estimate`: the items of each query, or its number."""
    if ranking.items is None:
        return list(range(len(ranking.queries)))
    return (ranking.items[:, 0] if ranking.items.shape[1] == 1 else ranking.items).tolist()


def _task_of(item: TrainingItem) -> Task:
    return _task(item.suite.model_dump_json(), item.set_name, tuple(sorted(item.places.items())), item.split)


@lru_cache(maxsize=2)
def _task(suite_text: str, set_name: str, places: tuple[tuple[str, str], ...], split: str) -> Task:
    """Return the data to train on and to measure: the validation or the test split, where each item is a query."""
    suite, values = Suite.model_validate_json(suite_text), dict(places)
    folder = folder_of(suite, set_name, values)
    changes = [f"training.val_share={suite.val_share}", f"training.select={'val' if split == 'val' else 'none'}"]
    changes += _read_from(suite, folder)
    experiment = experiment_of(suite, set_name, values, changes)
    task = experiment.read_task()
    if split == "val" and suite.sets[set_name].draw:
        task, folder = redrawn(suite, set_name, task), folder / DRAWN
    task = replace(experiment, task=with_matrices(task, folder)).build_task()
    measured, train = task.splits[split], task.train
    if suite.sets[set_name].copies:
        train = train.subset(np.flatnonzero(~_in_others(train, [measured])))
    # As the validation split, which nothing is chosen on: a trainer evaluates a test split again and again.
    return Task(train, None, replace(measured, queries=None, gallery=None))


def _read_from(suite: Suite, folder: Path) -> list[str]:
    """Return changes to a config that train on the features of the folder, if the suite has features."""
    return [] if suite.inputs is None else [f"images.features={folder / 'features.npz'}"]


def _trained(item: TrainingItem) -> Callable[[Split], Tensor]:
    """Train the head or the network. Return a function that embeds a split with its last weights, `[N, d]`."""
    torch.set_num_threads(1)
    changes = filled([*item.suite.train, *item.method.changes], item.places)
    last = [*_read_from(item.suite, folder_of(item.suite, item.set_name, item.places)), "training.select=none"]
    changes += [*item.options.split(), *last, f"seed={item.seed}"]
    experiment = experiment_of(item.suite, item.set_name, item.places, changes)
    try:
        trainer = experiment.build_trainer(_task_of(item), quiet=True)
    except InputError as error:
        raise error.at(f"method {item.method_name}") from error
    trainer.fit()
    return lambda split: trainer.outputs(split)[0]  # a broken image is an error


# Baselines


def _baseline(item: TrainingItem) -> Callable[[Split], Tensor]:
    """Return a function that gives the features of a split, or labels predicted from them, `[N, d]`."""
    train = _task_of(item).train
    options = dict(word.split("=") for word in item.options.split())
    if item.method.baseline == "features":
        if options["normalize"] == "true":
            return lambda split: torch.nn.functional.normalize(vectors_of(split), dim=1)
        return vectors_of
    labels = label_numbers(train)
    if labels is None:
        raise InputError(item.method_name, f"the labels of {item.set_name} are no vectors", hint="set its sets")
    return lambda split: ridge(vectors_of(train), *labels, vectors_of(split), float(options["strength"]))


def vectors_of(split: Split) -> Tensor:
    """Return the features of a split `[N, F]`, float64."""
    values = [source.values for source in split.images if isinstance(source, Vector)]
    return torch.stack([torch.as_tensor(value) for value in values]).double()


def label_numbers(split: Split) -> tuple[Tensor, Tensor] | None:
    """Return the labels of a split as vectors `[N, D]`, and which of their numbers are known.

    Return None if the labels are not vectors.
    """
    labels = split.labels
    if isinstance(labels, PoseLabels):
        return labels.joints.flatten(1), labels.visible.repeat_interleave(labels.joints.shape[2], 1)
    if isinstance(labels, VectorLabels):
        return labels.values, torch.ones_like(labels.values, dtype=torch.bool)
    return None


def ridge(x: Tensor, y: Tensor, known: Tensor, queries: Tensor, strength: float) -> Tensor:
    """Predict labels `[Q, D]` of `queries` `[Q, F]`: least squares of standardized labels with an L2 penalty.

    The weights w and the bias b of each number of the label minimize

        mean over its known items of (w x + b - (y - mean) / std)^2  +  strength * v |w|^2

    with v the mean variance of the features. The prediction is in units of the label.

    Args:
        x: features of the training items `[N, F]`.
        y: their labels `[N, D]`.
        known: which numbers of the labels are known, bool `[N, D]`.
        queries: the features for which labels are predicted.
        strength: the strength of the penalty.
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
