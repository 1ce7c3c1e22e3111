"""`contml audit`: the items of a run whose label is not what the features of their image predict.

The training split is divided into folds. For each fold a network is trained on the other folds, in the same way as the
run. So the features of every item come from a backbone that has not seen its label. The network of the run itself is
used for other splits. It is also used if the backbone has no parameters, as with features that were computed before.

A fold is an item of work (`contml.work`). The folder of the run gets audit/folds_K/fold_F.safetensors, the features of
the training split by the network of the fold. While it trains, audit/folds_K/fold_F/ holds its state.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml import work
from contml._support.errors import InputError
from contml._support.progress import progress_bar
from contml._support.tensors import load_values, save_tensors
from contml._support.text import duration
from contml.app.experiment.building import Experiment
from contml.app.experiment.loading import load_embedding_run, load_run
from contml.app.experiment.run_results import read_training, title_of_page
from contml.app.experiment.saved_run import check_config, read_evaluation, recorded_task, saved_numbers, trained_model
from contml.data import Images
from contml.data.copies import find_copies, joined, same_images
from contml.data.draw import positions
from contml.data.identity import item_names
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.embed import embed
from contml.evaluation.evaluated import is_untrained
from contml.evaluation.label_errors import LabelErrors, label_errors, neighbour_count
from contml.models import EmbeddingModel
from contml.runs import Run
from contml.training import load_weights


@dataclass(frozen=True)
class Audit:
    """The items of a split, and the distance of each label from the label that is predicted.

    Attributes:
        title: the heading of a page.
        split_name: "train", "val" or "test".
        split: the items.
        errors: their scores and neighbours.
        facts: how the items were scored, as (name, text).
        untrained: a sentence if networks with untrained weights made the features. Otherwise it is empty.
        ranked: whether the scores are findings. It is False if the weights of all networks are untrained.
    """

    title: str
    split_name: str
    split: Split
    errors: LabelErrors
    facts: Sequence[tuple[str, str]]
    untrained: str = ""
    ranked: bool = True

    @property
    def caution(self) -> str:
        """The sentence to show first, on untrained weights. It is empty if all weights are trained."""
        if self.ranked:
            return f"{self.untrained[:1].upper()}{self.untrained[1:]}." if self.untrained else ""
        listed = "in the order of the data, not of their scores"
        return f"No findings: {self.untrained}. The scores say little about wrong labels, so the list is {listed}."


def audit_run(
    folder: Path,
    *,
    split: Literal["train", "val", "test"] = "train",
    folds: int = 5,
    k: int | None = None,
    processes: int | None = None,
    cluster: str = "",
    trust: bool = False,
    on_line: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Score the items of a split of a run by the distance of their label from the label that their features predict.

    A call that is interrupted continues with the same arguments. Finished folds are not trained again.

    Args:
        folder: the run folder.
        split: "train" trains networks out of fold, if the backbone has parameters. Other splits use the network of the
            run, which has not seen them.
        folds: number of folds of the training split.
        k: number of neighbours. Default: as in `contml.evaluation.label_errors`.
        processes: number of trainings at a time. Default: 1. With a cluster, it is the number of its processors (GPUs,
            if it has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`. Its machines need the data too.
        trust: allow the config of the run to name code to import.
        on_line: called with a line before and after each training.

    Raises:
        InputError: the folder is not a run, its training is not finished, its config or its data were changed, there is
            no such split, there are too few items for the number of folds or neighbours, another process audits the
            run, or there is nothing to train for several processes.
        KeyboardInterrupt: a signal stopped the training of a fold. Its state is saved.
    """
    experiment, run = load_embedding_run(folder, trust=trust)
    evaluated = read_evaluation(run)
    path = run.checkpoints / f"{experiment.selected}.safetensors"
    weights, saved = load_weights(path)
    check_config(experiment, run, saved)
    task, _ = recorded_task(experiment, run, accept_changes=False)
    subject = _subject(experiment, run, task, split)
    fold_of = draw_folds(subject.keys, folds) if split == "train" else None
    neighbour_count(k, subject.groups)  # before anything is trained
    model = trained_model(experiment, run, task, weights, path)
    assert isinstance(model, EmbeddingModel)
    is_trained = any(True for _ in model.backbone.parameters()) and not model.frozen
    if fold_of is not None and is_trained:
        found = _Folds(folder, trust, fold_of, folds)
        found.loaded = experiment, run, task
        return _audited(subject, *_out_of_fold(found, subject, k, on_line, processes=processes, cluster=cluster))
    for option, value in (("--processes", processes), ("--cluster", cluster)):
        if value:
            why = "the backbone is frozen" if split == "train" else f"the run has not seen the {split} split"
            raise InputError(option, str(value), hint=f"omit it: no network is trained, since {why}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    features, missing = _outputs(model.to(device), subject.split, experiment.build_images(model))
    network = "the backbone of the run, which was not trained on these items"
    untrained = evaluated.untrained if is_trained else ""  # else the features do not depend on the training
    return _audited(subject, _scored(subject, k, missing, features), network, untrained, not untrained)


class _Subject(NamedTuple):
    """The items of a split that are audited."""

    title: str  # of a page
    split_name: str
    split: Split
    keys: Sequence[str]  # items with equal keys are in one fold
    groups: Tensor  # the group of each item `[N]`, by its key


def _subject(experiment: Experiment, run: Run, task: Task, name: str) -> _Subject:
    """Return the items of a split.

    Raises:
        InputError: there is no such split.
    """
    if name not in task.splits:
        split_names = ", ".join(task.splits)
        raise InputError("--split", name, f"must be one of {split_names}", "the data of the run have no other split")
    split = task.splits[name]
    names, title = item_names(split, experiment.root), title_of_page(experiment, [run], split)
    if name == "train":
        own = item_groups(task, names)
    else:
        groups = split.excluded_groups
        own = list(map(str, range(len(split)) if groups is None else groups.tolist()))
    keys = joined(own, same_images(split.images))
    group_ids = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return _Subject(title, name, split, keys, torch.tensor([group_ids[key] for key in keys]))


def _out_of_fold(
    found: _Folds, subject: _Subject, k: int | None, on_line: Callable[[str], None], **options: Any
) -> tuple[LabelErrors, str, str, bool]:
    """Train a network without each fold, and score the items of the fold.

    Return the scores, a description, a sentence on untrained networks, and whether not all networks are untrained.
    """
    folds, sizes = found.count, found.fold_of.bincount().tolist()
    parts = [_Fold(number, folds) for number in range(folds)]
    with found.command(str(found.run)):
        if left := sum(part.key not in found for part in parts):
            training = read_training(found.loaded[1])
            time = "" if training is None or training.seconds is None else f"{duration(training.seconds)}, "
            each = f"each takes about {time}as long as the run did"
            on_line(
                f"training {left} of {folds} networks, each without one of {folds} parts of the training items: {each}"
            )
        options["on_done"] = lambda part: on_line(f"{part}: {sizes[part.number]:,} items")
        work.run(parts, found.train, found, log=found.log, **options)
    found.remove()
    unread, count, smaller = set[int](), 0, 0
    for part in parts:
        output = found[part.key]  # of all items
        unread.update(output.missing.tolist())
        count, smaller = count + output.untrained, smaller + output.smaller
    missing = torch.tensor(sorted(unread), dtype=torch.int64)
    outputs = (found[part.key].features for part in parts)  # read one after the other
    scored = _scored(subject, k, missing, outputs, found.fold_of)
    network = f"{folds} backbones, each item by the one that was not trained on it"
    if smaller:
        network += f"; {smaller} of them with smaller batches than the run, which has more items"
    untrained = f"{count} of the {folds} backbones have untrained weights" if count else ""
    return scored, network, untrained, count < folds


def _audited(subject: _Subject, errors: LabelErrors, network: str, untrained: str, ranked: bool) -> Audit:
    name, split = subject.split_name, subject.split
    facts = [
        ("Items", f"{len(errors.order):,} of the {SPLIT_TITLES[name]} split"),
        ("Features by", network),
        ("Neighbours", f"{errors.neighbours.shape[1]}"),
        ("Label distance", split.labels.unit),
    ]
    if copies := str(find_copies({name: split})):
        facts.append(("Repeated images", copies))
    return Audit(subject.title, name, split, errors, facts, untrained, ranked)


def item_groups(task: Task, names: Sequence[str]) -> list[str]:
    """Return the group of each training item. Items of one group are in one fold, and are not neighbours.

    If every group is a union of whole classes, the groups exist to test unseen classes. An audit then treats each item
    as its own group.

    Args:
        task: the data.
        names: the name of each training item.
    """
    groups, classes = task.val_groups, task.train.labels.class_ids
    ids = [] if classes is None else classes.tolist()
    if groups is None or (ids and len({*zip(groups, ids, strict=True)}) == len({*ids})):
        return list(names)
    return list(groups)


def _scored(
    subject: _Subject, k: int | None, missing: Tensor, outputs: Tensor | Iterable[Tensor], folds: Tensor | None = None
) -> LabelErrors:
    labels, groups = subject.split.labels, subject.groups
    with progress_bar(len(labels) - len(missing), "label distances") as progress:
        return label_errors(outputs, labels, k=k, folds=folds, missing=missing, groups=groups, progress=progress)


def draw_folds(keys: Sequence[str], folds: int) -> Tensor:
    """Draw the fold of each item `[N]` by its key. Items with equal keys are in one fold.

    Raises:
        InputError: there are fewer different keys than folds, or fewer than two folds.
    """
    unique_keys = list(dict.fromkeys(keys))
    if not 2 <= folds <= len(unique_keys):
        unit = "items" if len(unique_keys) == len(keys) else "groups of items that are not divided"
        raise InputError("--folds", str(folds), f"must be 2 to {len(unique_keys)}, the number of {unit}")
    order = np.argsort(positions(unique_keys, 0, "folds"), kind="stable")
    fold_of_key = {unique_keys[row]: index * folds // len(unique_keys) for index, row in enumerate(order)}
    return torch.tensor([fold_of_key[key] for key in keys])


def without(task: Task, rows: Tensor) -> Task:
    """Return the data without the training items of some rows."""
    kept, groups = np.delete(np.arange(len(task.train)), rows.numpy()), task.val_groups
    groups = None if groups is None else [groups[row] for row in kept.tolist()]
    return replace(task, train=task.train.subset(kept), val_groups=groups)


def train_part(experiment: Experiment, task: Task, run: Run | None = None, *, quiet: bool = False) -> EmbeddingModel:
    """Train an experiment on a part of its data.

    Args:
        experiment: the experiment.
        task: the part of the data.
        run: keeps the state, and the training continues from it. By default nothing is kept.
        quiet: show no progress.

    Returns:
        The model with the selected weights, on the device of the training.
    """
    resumed = run is not None and (run.checkpoints / "state.safetensors").exists()
    trainer = experiment.build_trainer(task, run, weights=not resumed, quiet=quiet)
    if trainer.best is None:
        trainer.watched.clear()  # the test split selects nothing
    if run is not None:
        trainer.resume()
    trainer.fit()
    trainer.take_best()
    assert isinstance(trainer.model, EmbeddingModel)
    return trainer.model


def _outputs(model: EmbeddingModel, split: Split, images: Images) -> tuple[Tensor, Tensor]:
    """Compute the backbone's features of a split, and the rows whose image could not be read."""
    return embed(model, split, images, device=model.mean.device, function=model.features)


@dataclass(frozen=True)
class _Fold:
    """A network to train without the items of a fold."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"fold {self.number + 1} of {self.count}"

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"fold_{self.number}"


class _FoldOutput(NamedTuple):
    """The outputs of the network of a fold for all training items."""

    features: Tensor  # [N,F]
    missing: Tensor  # rows whose image could not be read
    untrained: bool  # whether its weights are the initial ones
    smaller: bool  # whether it was trained with smaller batches than the run, which its items can fill


class _Folds(work.Files[_FoldOutput]):
    """The trainings of the networks of all folds. Their outputs are kept in the folder of the run.

    Another process reads the run itself, once.

    Args:
        folder: the run folder.
        trust: as in `audit_run`.
        fold_of: the fold of each training item `[N]`.
        count: number of folds.
    """

    suffix = ".safetensors"

    def __init__(self, folder: Path, trust: bool, fold_of: Tensor, count: int) -> None:
        place = folder / "audit" / f"folds_{count}"
        super().__init__(place.with_name(f".{place.name}"), place)
        self.run, self.trust, self.fold_of, self.count = folder, trust, fold_of, count

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "loaded"}

    @cached_property
    def loaded(self) -> tuple[Experiment, Run, Task]:
        """The run and the data of its training."""
        experiment, run = load_run(self.run, trust=self.trust)
        return experiment, run, recorded_task(experiment, run, accept_changes=False)[0]

    def load(self, key: str, path: Path) -> _FoldOutput | None:  # noqa: ARG002
        """Read the outputs of a fold. Return None if there are none.

        Raises:
            InputError: they are damaged, or of another run.
        """
        if not path.exists():
            return None
        tensors, saved = load_weights(path)
        experiment, run, task = self.loaded
        if len(tensors.get("features", ())) != len(task.train) or "missing" not in tensors:
            raise InputError(str(path), "not the features of this run", hint="remove it")
        check_config(experiment, run, saved)
        flags = (saved.get(name) is True for name in ("untrained", "smaller"))
        return _FoldOutput(tensors["features"], tensors["missing"], *flags)

    def save(self, value: _FoldOutput, path: Path) -> None:
        """Write the outputs of a fold, and remove the state of its training."""
        tensors = {"features": value.features, "missing": value.missing}
        flags = {"untrained": value.untrained, "smaller": value.smaller}
        save_tensors(path, tensors, config=self.loaded[0].recorded, **flags)
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        path.with_suffix(".log").unlink(missing_ok=True)

    def log(self, item: _Fold) -> Path:
        """Return the file for the output of another process while it trains."""
        return self._path(item.key).with_suffix(".log")

    def train(self, item: _Fold) -> _FoldOutput:
        """Train the network of a fold, and apply it to all training items."""
        experiment, _, task = self.loaded
        run = Run(self._path(item.key).with_suffix(""))
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        part = without(task, (self.fold_of == item.number).nonzero()[:, 0])
        fitted = experiment.fitted_to(part.train.labels)
        model = train_part(fitted, part, run)
        features, missing = _outputs(model, task.train, experiment.build_images())
        epoch = load_values(run.checkpoints / f"{experiment.selected}.safetensors")["epoch"]
        trained = saved_numbers(run.checkpoints / "state.safetensors")["trained"]
        return _FoldOutput(features, missing, is_untrained(epoch, trained), fitted is not experiment)
