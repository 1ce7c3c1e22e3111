"""`contml audit`: the items of a run whose label is not what the features of their image predict, or its judgments.

The training split is divided into folds. For each fold a network is trained on the others, as the run was, so that the
features of every item come from a backbone that has not seen its label. The network of the run itself serves for
other splits, and where the backbone has no parameters, as with features that were computed before.

Of judgments, the judgments are divided into folds, and each is compared with the embeddings of the network that was
trained without its fold, and with the other judgments of the same items.

A fold is an item of work (`contml.work`). The folder of the run gets audit/folds_K/fold_F.safetensors, the features of
the training split by the network of the fold, or its embeddings. While it trains, audit/folds_K/fold_F/ holds its
state.
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
from contml.app.experiment.loading import load_run
from contml.app.experiment.run_results import read_training, title_of_page
from contml.app.experiment.saved_run import check_config, read_evaluation, recorded_task, saved_numbers, trained_model
from contml.data import Images
from contml.data.carve import with_judgments
from contml.data.copies import find_copies, joined, same_images
from contml.data.draw import positions
from contml.data.identity import item_names
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.embed import embed
from contml.evaluation.evaluated import is_untrained
from contml.evaluation.judgment_errors import ScoredJudgments, judgment_errors
from contml.evaluation.label_errors import LabelErrors, label_errors, neighbour_count
from contml.labels.judged import JudgedItems
from contml.models import EmbeddingModel
from contml.runs import Run
from contml.training import load_weights


@dataclass(frozen=True)
class Audit:
    """The items of a split, and how far their labels or judgments are from what is predicted.

    Attributes:
        title: the heading of a page.
        split_name: "train", "val" or "test".
        split: the items.
        errors: their scores and neighbours, or the scores of their judgments.
        facts: how the items were scored, as (name, text).
        untrained: a sentence where networks with untrained weights made the features; else empty.
        ranked: whether the scores are findings; not if the weights of all networks are untrained.
    """

    title: str
    split_name: str
    split: Split
    errors: LabelErrors | ScoredJudgments
    facts: Sequence[tuple[str, str]]
    untrained: str = ""
    ranked: bool = True

    @property
    def caution(self) -> str:
        """What is said first: a sentence on untrained weights; else empty."""
        if self.ranked:
            return f"{self.untrained[:1].upper()}{self.untrained[1:]}." if self.untrained else ""
        what = "judgments" if isinstance(self.errors, ScoredJudgments) else "labels"
        listed = "in the order of the data, not of their scores"
        return f"No findings: {self.untrained}. The scores say little about wrong {what}, so the list is {listed}."


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
    """Score the items of a split of a run by how far their label is from what their features predict, or its judgments.

    A call that is interrupted continues with the same arguments; finished folds are not trained again.

    Args:
        folder: the run folder.
        split: "train": networks are trained out of fold, if the backbone has parameters; other splits: the network of
            the run has not seen them.
        folds: number of folds of the training split.
        k: number of neighbours; None: that of `contml.evaluation.label_errors`.
        processes: number of trainings at a time; None: 1, or with a cluster as many as it has processors (GPUs, if it
            has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`: its machines share the data too.
        trust: allow the config of the run to name code to import.
        on_line: called with a line before and after each training.

    Raises:
        InputError: the folder is not a run, its training is not finished, its config or its data were changed, there is
            no such split, there are too few items for so many folds or neighbours, another process audits the run, or
            there is nothing to train for several processes.
        KeyboardInterrupt: a signal stopped the training of a fold. Its state is saved.
    """
    experiment, run = load_run(folder, trust=trust)
    if not experiment.results.embeds:
        raise InputError(str(folder), experiment.results.unranked, hint="give a run of embeddings")
    if k is not None and not experiment.results.ranked:
        raise InputError("--neighbours", str(k), hint="omit it: judgments are not compared with neighbours")
    evaluated = read_evaluation(run)
    path = run.checkpoints / f"{experiment.selected}.safetensors"
    weights, saved = load_weights(path)
    check_config(experiment, run, saved)
    task, _ = recorded_task(experiment, run, accept_changes=False)
    subject = _subject(experiment, run, task, split)
    fold_of = draw_folds(subject.keys, folds, f"{subject.what}s") if split == "train" else None
    if subject.groups is not None:
        neighbour_count(k, subject.groups)  # before anything is trained
    model = trained_model(experiment, run, task, weights, path)
    assert isinstance(model, EmbeddingModel)
    has_parameters = any(True for _ in model.backbone.parameters())
    # A fold's network is its embedding where it judges judgments, and else its backbone.
    if fold_of is not None and (subject.is_judged or (has_parameters and not model.frozen)):
        found = _Folds(folder, trust, fold_of, folds)
        found.loaded = _Loaded(experiment, run, task)
        scored = _out_of_fold(found, subject, folds, k, on_line, processes=processes, cluster=cluster)
        return _audited(subject, *scored)
    for option, value in (("--processes", processes), ("--cluster", cluster)):
        if value:
            hint = "omit it: no network is trained, since "
            hint += "the backbone is frozen" if split == "train" else f"the run has not seen the {split} split"
            raise InputError(option, str(value), hint=hint)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    features, missing = _outputs(model.to(device), subject.split, experiment.build_images(model))
    network = f"the {subject.judged_by[:-1]} of the run, which was not trained on these {subject.what}s"
    # The features of a frozen backbone do not depend on the training.
    untrained = evaluated.untrained if subject.is_judged or (has_parameters and not model.frozen) else ""
    return _audited(subject, _scored(subject, k, missing, features), network, untrained, not untrained)


class _Subject(NamedTuple):
    """What is audited: the items of a split, or its judgments."""

    title: str  # of a page
    split_name: str
    split: Split
    keys: Sequence[str]  # items, or judgments, with equal keys are in one fold
    groups: Tensor | None  # the group of each item `[N]`, by its key; None: judgments

    @property
    def is_judged(self) -> bool:
        """Whether it is judgments."""
        return self.groups is None

    @property
    def what(self) -> str:
        """The word for one of them."""
        return "judgment" if self.is_judged else "item"

    @property
    def judged_by(self) -> str:
        """What of a network predicts them, for sentences."""
        return "networks" if self.is_judged else "backbones"


def _subject(experiment: Experiment, run: Run, task: Task, name: str) -> _Subject:
    """The items of a split, or its judgments.

    Raises:
        InputError: there is no such split.
    """
    if name not in task.splits:
        split_names = ", ".join(task.splits)
        raise InputError("--split", name, f"must be one of {split_names}", "the data of the run have no other split")
    split = task.splits[name]
    names, title = item_names(split, experiment.root), title_of_page(experiment, [run], split)
    if isinstance(split.labels, JudgedItems):
        return _Subject(title, name, split, split.labels.judgment_names(names), None)
    if name == "train":
        own = item_groups(task, names)
    else:
        groups = split.excluded_groups
        own = list(map(str, range(len(split)) if groups is None else groups.tolist()))
    keys = joined(own, same_images(split.images))
    group_ids = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return _Subject(title, name, split, keys, torch.tensor([group_ids[key] for key in keys]))


def _out_of_fold(
    found: _Folds, subject: _Subject, folds: int, k: int | None, on_line: Callable[[str], None], **options: Any
) -> tuple[LabelErrors | ScoredJudgments, str, str, bool]:
    """The scores by networks that are trained without a fold; what these are; which are untrained; whether not all."""
    what, judged_by, fold_of = subject.what, subject.judged_by, found.fold_of
    parts = [_Fold(number, folds) for number in range(folds)]

    def on_done(part: _Fold) -> None:
        on_line(f"{part}: {int((fold_of == part.number).sum()):,} {what}s")

    with found.command(str(found.run)):
        if left := sum(part.key not in found for part in parts):
            on_line(_plan(found.loaded.run, left, folds, what))
        work.run(parts, found.train, found, on_done=on_done, log=found.log, **options)
    found.remove()
    unread, count, smaller = set[int](), 0, 0
    for part in parts:
        output = found[part.key]
        unread.update(output.missing.tolist())
        count += output.untrained
        smaller += output.smaller
    missing = torch.tensor(sorted(unread), dtype=torch.int64)
    outputs = (found[part.key].features for part in parts)  # read one after the other
    scored = _scored(subject, k, missing, outputs, fold_of)
    network = f"{folds} {judged_by}, each {what} by the one that was not trained on it"
    if smaller:
        network += f"; {smaller} of them with smaller batches than the run, which has more items"
    untrained = f"{count} of the {folds} {judged_by} have untrained weights" if count else ""
    return scored, network, untrained, count < folds


def _audited(
    subject: _Subject, errors: LabelErrors | ScoredJudgments, network: str, untrained: str, ranked: bool
) -> Audit:
    name, split = subject.split_name, subject.split
    part = SPLIT_TITLES[name]
    if isinstance(errors, ScoredJudgments):
        several, differ = int((errors.judgments > 1).sum()), int((errors.others_differ > 0).sum())
        facts = [
            ("Judgments", f"{len(errors.order):,} of the {part} split"),
            ("Predicted by", network),
            ("Several judgments of the same items", f"{several:,}, of which {differ:,} differ"),
        ]
        if n := int((errors.implied_otherwise > 0).sum()):
            facts.append(("Implied otherwise", f"{n:,} by two other triplets"))
    else:
        facts = [
            ("Items", f"{len(errors.order):,} of the {part} split"),
            ("Features by", network),
            ("Neighbours", f"{errors.neighbours.shape[1]}"),
            ("Label distance", split.labels.unit),
        ]
    if copies := str(find_copies({name: split})):
        facts.append(("Repeated images", copies))
    return Audit(subject.title, name, split, errors, facts, untrained, ranked)


def item_groups(task: Task, names: Sequence[str]) -> list[str]:
    """The group of each training item: items of one group are in one fold, and are not neighbours.

    If every group is a union of whole classes, the groups exist to test unseen classes: an audit then treats each item
    as its own group.

    Args:
        task: the data.
        names: the name of each training item.
    """
    groups, classes = task.val_groups, task.train.labels.class_ids
    if groups is None:
        return list(names)
    if classes is not None and len(set(zip(groups, classes.tolist(), strict=True))) == len(set(classes.tolist())):
        return list(names)
    return list(groups)


def _scored(
    subject: _Subject,
    k: int | None,
    missing: Tensor,
    outputs: Tensor | Iterable[Tensor],
    folds: Tensor | None = None,
) -> LabelErrors | ScoredJudgments:
    labels = subject.split.labels
    if isinstance(labels, JudgedItems):
        return judgment_errors(outputs, labels, folds=folds, missing=missing)
    with progress_bar(len(labels) - len(missing), "label distances") as progress:
        groups = subject.groups
        return label_errors(outputs, labels, k=k, folds=folds, missing=missing, groups=groups, progress=progress)


def draw_folds(keys: Sequence[str], folds: int, what: str = "items") -> Tensor:
    """The fold of each item, or judgment, `[N]`, drawn by its key; items with equal keys are in one fold.

    Raises:
        InputError: there are fewer different keys than folds, or fewer than two folds.
    """
    unique_keys = list(dict.fromkeys(keys))
    if not 2 <= folds <= len(unique_keys):
        unit = what if len(unique_keys) == len(keys) else f"groups of {what} that are not divided"
        raise InputError("--folds", str(folds), f"must be 2 to {len(unique_keys)}, the number of {unit}")
    order = np.argsort(positions(unique_keys, 0, "folds"), kind="stable")
    fold_of_key = {unique_keys[row]: index * folds // len(unique_keys) for index, row in enumerate(order)}
    return torch.tensor([fold_of_key[key] for key in keys])


def without(task: Task, rows: Tensor) -> Task:
    """The data without the training items of some rows; of judgments, without the judgments of these numbers."""
    labels = task.train.labels
    kept = torch.ones(labels.count if isinstance(labels, JudgedItems) else len(labels), dtype=torch.bool)
    kept[rows] = False
    if isinstance(labels, JudgedItems):
        return replace(task, train=with_judgments(task.train, labels.keep(kept.numpy())))
    kept_rows, groups = kept.nonzero()[:, 0], task.val_groups
    groups = None if groups is None else [groups[row] for row in kept_rows.tolist()]
    return replace(task, train=task.train.subset(kept_rows), val_groups=groups)


def train_part(experiment: Experiment, task: Task, run: Run | None = None, *, quiet: bool = False) -> EmbeddingModel:
    """Train as the experiment says, on a part of its data.

    Args:
        experiment: how to train.
        task: the part of the data.
        run: keeps the state, and continues from it; None: nothing is kept.
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
    """The backbone's features of a split, of judgments the embeddings, and the rows whose image could not be read."""
    function = None if isinstance(split.labels, JudgedItems) else model.features
    return embed(model, split, images, device=model.mean.device, function=function)


class _Loaded(NamedTuple):
    """A run, and its data."""

    experiment: Experiment
    run: Run
    task: Task


@dataclass(frozen=True)
class _Fold:
    """A network to train: without the items of a fold."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"fold {self.number + 1} of {self.count}"

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"fold_{self.number}"


class _FoldOutput(NamedTuple):
    """What the network of a fold makes of all training items."""

    features: Tensor  # [N,F]; of judgments the embeddings
    missing: Tensor  # rows whose image could not be read
    untrained: bool  # whether its weights are the initial ones
    smaller: bool  # whether it was trained with smaller batches than the run, which its items can fill


class _Folds(work.Files[_FoldOutput]):
    """Trains the network of a fold, and keeps its outputs in the folder of the run.

    Another process reads the run itself, once.

    Args:
        folder: the run folder.
        trust: as in `audit_run`.
        fold_of: the fold of each training item `[N]`, or of each judgment.
        count: number of folds.
    """

    suffix = ".safetensors"

    def __init__(self, folder: Path, trust: bool, fold_of: Tensor, count: int) -> None:
        place = folder / "audit" / f"folds_{count}"
        super().__init__(place.with_name(f".{place.name}"), place)
        self.run, self.trust, self.fold_of = folder, trust, fold_of

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "loaded"}

    @cached_property
    def loaded(self) -> _Loaded:
        """The run and the data of its training."""
        experiment, run = load_run(self.run, trust=self.trust)
        return _Loaded(experiment, run, recorded_task(experiment, run, accept_changes=False)[0])

    def load(self, key: str, path: Path) -> _FoldOutput | None:  # noqa: ARG002
        """The outputs of a fold; None if there are none.

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
        """Write the outputs of a fold; the state of its training is not needed any more."""
        tensors = {"features": value.features, "missing": value.missing}
        flags = {"untrained": value.untrained, "smaller": value.smaller}
        save_tensors(path, tensors, config=self.loaded.experiment.recorded, **flags)
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        path.with_suffix(".log").unlink(missing_ok=True)

    def log(self, item: _Fold) -> Path:
        """The file for what another process prints while it trains."""
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


def _plan(run: Run, left: int, count: int, what: str) -> str:
    """What will be trained, and how long it takes, from the time that the run took."""
    training = read_training(run)
    seconds = None if training is None else training.seconds
    each = "as long as the run did" if seconds is None else f"{duration(seconds)}, as long as the run did"
    text = f"training {left} of {count} networks, each without one of {count} parts of the training {what}s"
    return f"{text}: each takes about {each}"
