"""The inputs of a set: features of its images, and label distances that would take long to compute for each batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from contml._support.errors import InputError
from contml._support.files import locked, write
from contml.benchmark.suite import Inputs, Suite, filled
from contml.benchmark.trials import data_key
from contml.config.document import COMMAND_LINE_NAME
from contml.data import Split, Task
from contml.data.features import read_features, write_features
from contml.experiment import Experiment, extract_features, load
from contml.labels import LabelSpace, MatrixLabels


def experiment_of(suite: Suite, set_name: str, places: Mapping[str, str], changes: list[str]) -> Experiment:
    """The experiment of a set with changes to its config."""
    data = suite.sets[set_name]
    with errors_of(set_name):
        return load(data.config, [*filled(data.changes, places), *changes])


def check_methods(suite: Suite, pairs: Sequence[tuple[str, str]], places: Mapping[str, str]) -> None:
    """Load the config of each set, and of each method with each value of its grid: a mistyped name is found at once.

    Args:
        suite: the suite.
        pairs: sets and methods.
        places: as of `Item`; a place that is missing stands for itself.

    Raises:
        InputError: the first error.
    """
    first_sets: dict[str, str] = {}
    unfilled = {**{place: f"${place}" for place in suite.places}, **places}
    for set_name in dict.fromkeys(set_name for set_name, _ in pairs):
        experiment_of(suite, set_name, unfilled, filled(suite.inputs.changes if suite.inputs else (), unfilled))
    for set_name, name in pairs:
        first_sets.setdefault(name, set_name)
    for name, set_name in first_sets.items():
        method, data = suite.methods[name], suite.sets[set_name]
        if method.baseline is not None:
            continue
        texts = {**unfilled, **data.values}
        words = [axis.words for axis in method.axes]
        for n in range(max(map(len, words), default=1)):
            option = " ".join(each[n % len(each)] for each in words)
            try:
                experiment_of(suite, set_name, texts, filled([*suite.train, *method.changes, *option.split()], texts))
            except InputError as error:
                raise error.at(f"method {name}") from None


@contextmanager
def errors_of(set_name: str) -> Iterator[None]:
    """Errors of changes to a config name the set, since nobody has written them on the command line."""
    try:
        yield
    except InputError as error:
        origin = error.origin.replace(COMMAND_LINE_NAME, f"sets.{set_name} of the suite")
        raise InputError(error.subject, error.got, error.allowed, error.hint, origin) from None


def folder_of(suite: Suite, set_name: str, places: Mapping[str, str]) -> Path:
    """The folder of the inputs of a set."""
    return Path(places["folder"]) / f"{set_name.replace(' ', '_')}-{data_key(suite, set_name)}"


def prepare(suite: Suite, set_name: str, places: Mapping[str, str], methods: Iterable[str]) -> None:
    """Write the inputs of a set that are not there yet.

    Raises:
        InputError: an error of the data, or the loss of one of the methods needs other labels.
    """
    folder, inputs = folder_of(suite, set_name, places), suite.inputs
    experiment = experiment_of(suite, set_name, places, filled(inputs.changes if inputs else (), places))
    with errors_of(set_name):
        task = experiment.read_task()
        texts = {**places, **suite.sets[set_name].values}
        for method in (suite.methods[name] for name in methods):
            if method.baseline is None:
                changes = filled([*suite.train, *method.changes, *method.options[0].split()], texts)
                experiment_of(suite, set_name, places, changes).check_labels(task)
        if inputs is not None:
            _write_features(replace(experiment, task=task), folder, inputs)
    for name, split in task.splits.items():
        if _is_slow(split.labels) and not (folder / f"{name}.npy").exists():
            write(folder / f"{name}.npy", partial(np.save, arr=split.labels.pairwise().numpy()))


def _write_features(experiment: Experiment, folder: Path, inputs: Inputs) -> None:
    """Write the features of a set; of several commands, the first one does it."""
    out, bare = folder / "features.npz", folder / ("maps.npz" if inputs.maps else "network.npz")
    with locked(folder):
        if not out.exists():
            extract_features(experiment, bare, maps=inputs.maps)
            write_components(bare, out, inputs.components)
            bare.unlink()


def _is_slow(labels: LabelSpace) -> bool:
    """Whether label distances are written to a file.

    Classes and labels of a known exponent are compared by arithmetic: a matrix would not say which power it holds.
    """
    return labels.exponent is None and labels.class_ids is None


def with_matrices(task: Task, folder: Path) -> Task:
    """The task with the label distances that are in the folder."""

    def changed(name: str, split: Split) -> Split:
        file = folder / f"{name}.npy"
        return replace(split, labels=MatrixLabels(file)) if _is_slow(split.labels) and file.exists() else split

    return task.with_splits({name: changed(name, split) for name, split in task.splits.items()})


def write_components(features: Path, out: Path, components: int | None) -> None:
    """The first principal components of features, or all of them; mean and directions come from the training images."""
    found = read_features(features)
    with np.load(features) as file:
        splits = file["split"].tolist()
    values = found.values.reshape(len(splits), -1)
    if components is not None:
        seen = values[[split == "train" for split in splits]].astype(np.float64)
        directions = np.linalg.svd(seen - seen.mean(0), full_matrices=False)[2][:components]
        values = ((values - seen.mean(0)) @ directions.T).astype(np.float32)
    assert found.names is not None
    write_features(out, found.names, splits, values)
