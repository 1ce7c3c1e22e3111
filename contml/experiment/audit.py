"""`contml audit`: the items of a run whose label is not what the features of their image predict, or its judgments.

The training split is divided into folds. For each fold a network is trained on the others, as the run was, so that the
features of every item come from a backbone that has not seen its label. The network of the run itself serves for
other splits, and where the backbone has no parameters, as with features that were computed before.

Of judgments, the judgments are divided into folds, and each is compared with the embeddings of the network that was
trained without its fold, and with the other judgments of the same items.

The folder of the run gets audit/folds_K/fold_F.safetensors, the features of the training split by the network of a
fold, or its embeddings. While it trains, audit/folds_K/fold_F/ holds its state.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import locked
from contml._support.progress import progress_bar
from contml._support.tensors import load_values, save_tensors
from contml._support.text import duration
from contml.data import Images
from contml.data.copies import find_copies, joined, same_images
from contml.data.draw import positions
from contml.data.identity import item_names
from contml.data.judged_split import with_judgments
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.embed import embed
from contml.evaluation.evaluated import is_untrained
from contml.evaluation.judgment_errors import ScoredJudgments, judgment_errors
from contml.evaluation.label_errors import LabelErrors, label_errors, neighbour_count
from contml.experiment.building import Experiment
from contml.experiment.loading import load_run
from contml.experiment.run_results import read_training
from contml.experiment.saved_run import check_config, read_evaluation, recorded_task, saved_numbers, trained_model
from contml.experiment.tags import TAGS, tags_file, tags_of_rows
from contml.labels.judged_items import JudgedItems
from contml.models import EmbeddingModel
from contml.runs import Run
from contml.training import load_weights


@dataclass(frozen=True)
class Audit:
    """The items of a split, and how far their labels or judgments are from what is predicted.

    Attributes:
        run: the run.
        split_name: "train", "val" or "test".
        split: the items.
        errors: their scores and neighbours, or the scores of their judgments.
        facts: how the items were scored, as (name, text).
        untrained: a sentence where networks with untrained weights made the features; else empty.
        tags: the tags of rows that a person has set; rows whose label is right have no score.
        tagged: a sentence about them; empty without a file of tags.
    """

    run: Run
    split_name: str
    split: Split
    errors: LabelErrors | ScoredJudgments
    facts: Sequence[tuple[str, str]]
    untrained: str = ""
    tags: Mapping[int, str] = field(default_factory=dict)
    tagged: str = ""


def audit_run(
    folder: Path,
    *,
    split: Literal["train", "val", "test"] = "train",
    folds: int = 5,
    k: int | None = None,
    tags: Path | None = None,
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
        tags: the file of tags of items; None: that of the run, if it has one.
        trust: allow the config of the run to name code to import.
        on_line: called with a line before and after each training.

    Raises:
        InputError: the folder is not a run, its training is not finished, its config or its data were changed, there is
            no such split, or there are too few items for so many folds or neighbours.
        KeyboardInterrupt: a signal stopped the training of a fold. Its state is saved.
    """
    experiment, run = load_run(folder, trust=trust)
    if experiment.is_captioning:
        raise InputError(str(folder), experiment.unranked, hint="give a run of embeddings")
    if experiment.is_judged and k is not None:
        raise InputError("--neighbours", str(k), hint="omit it: judgments are not compared with neighbours")
    if experiment.is_judged and tags is not None:
        raise InputError("--tags", str(tags), hint="omit it: tags are of items, and judgments are not tagged")
    evaluated = read_evaluation(run)
    path = run.checkpoints / f"{experiment.selected}.safetensors"
    weights, saved = load_weights(path)
    check_config(experiment, run, saved)
    task, _ = recorded_task(experiment, run, accept_changes=False)
    if split not in task.splits:
        split_names = ", ".join(task.splits)
        raise InputError("--split", split, f"must be one of {split_names}", "the data of the run have no other split")
    items = task.splits[split]
    groups, row_tags, names = None, _Tags({}, ""), item_names(items, experiment.root)
    if isinstance(items.labels, JudgedItems):
        keys: Sequence[str] = items.labels.judgment_names(names)
    else:
        tag_file = tags or tags_file(run.folder)
        if tags or tag_file.exists():
            row_tags = _Tags(*tags_of_rows(tag_file, names, SPLIT_TITLES[split]))
        if split == "train":
            keys = item_groups(task, names)
        else:
            keys = list(map(str, range(len(items)) if items.groups is None else items.groups.tolist()))
        keys = joined(keys, same_images(items.images))
        group_ids = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        groups = torch.tensor([group_ids[key] for key in keys])
    fold_of = draw_folds(keys, folds, "judgments" if groups is None else "items") if split == "train" else None
    if groups is not None:
        neighbour_count(k, groups)  # before anything is trained
    model = trained_model(experiment, run, task, weights, path)
    assert isinstance(model, EmbeddingModel)
    has_parameters = any(True for _ in model.backbone.parameters())
    # A fold's network is its embedding where it judges judgments, and else its backbone.
    trained_on_items = split == "train" and (groups is None or (has_parameters and not model.frozen))
    judged_by = "networks" if groups is None else "backbones"
    what = "judgment" if groups is None else "item"
    if not trained_on_items:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        features, missing = _outputs(model.to(device), items, experiment.build_images(model))
        network = f"the {judged_by[:-1]} of the run, which was not trained on these {what}s"
        untrained = evaluated.untrained if has_parameters or groups is None else ""
        scored = _scored(items, k, groups, missing, features)
        return _audited(run, task, split, network, scored, untrained, row_tags)
    assert fold_of is not None  # of the training split
    with locked(run.folder / "audit", "another process is auditing this run", "wait for it, or stop it"):
        fold_outputs = _Folds(experiment, run, task, fold_of, folds, on_line)
        missing = fold_outputs.train()
        network = f"{folds} {judged_by}, each {what} by the one that was not trained on it"
        count = fold_outputs.untrained
        untrained = f"{count} of the {folds} {judged_by} have untrained weights" if count else ""
        scored = _scored(items, k, groups, missing, fold_outputs, fold_of)
        return _audited(run, task, split, network, scored, untrained, row_tags)


class _Tags(NamedTuple):
    """The tags of rows, and a sentence about them."""

    rows: Mapping[int, str]
    words: str


def _audited(
    run: Run,
    task: Task,
    name: str,
    network: str,
    errors: LabelErrors | ScoredJudgments,
    untrained: str,
    tags: _Tags,
) -> Audit:
    split, title = task.splits[name], SPLIT_TITLES[name]
    if isinstance(errors, ScoredJudgments):
        several = int((errors.judgments > 1).sum())
        facts = [
            ("Judgments", f"{len(errors.order):,} of the {title} split"),
            ("Predicted by", network),
            (
                "Several judgments of the same items",
                f"{several:,}, of which {int((errors.others_differ > 0).sum()):,} differ",
            ),
            *(
                [("Implied otherwise", f"{n:,} by two other triplets")]
                if (n := int((errors.implied_otherwise > 0).sum()))
                else []
            ),
        ]
    else:
        right = [row for row, tag in tags.rows.items() if tag == TAGS[1]]
        errors.scores[torch.tensor(right, dtype=torch.int64)] = torch.nan
        facts = [
            ("Items", f"{len(errors.order):,} of the {title} split"),
            ("Features by", network),
            ("Neighbours", f"{errors.neighbours.shape[1]}"),
            ("Label distance", split.labels.unit),
        ]
    if untrained:
        facts.append(("Note", untrained))
    if tags.words:
        facts.append(("Tags", tags.words))
    if copies := str(find_copies({name: split})):
        facts.append(("Repeated images", copies))
    return Audit(run, name, split, errors, facts, untrained, tags.rows, tags.words)


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
    split: Split,
    k: int | None,
    groups: Tensor | None,
    missing: Tensor,
    outputs: Tensor | Iterable[Tensor],
    folds: Tensor | None = None,
) -> LabelErrors | ScoredJudgments:
    labels = split.labels
    if isinstance(labels, JudgedItems):
        return judgment_errors(outputs, labels, folds=folds, missing=missing)
    with progress_bar(len(split) - len(missing), "label distances") as progress:
        return label_errors(outputs, labels, k=k, folds=folds, missing=missing, groups=groups, progress=progress)


def draw_folds(keys: Sequence[str], folds: int, what: str = "items") -> Tensor:
    """The fold of each item, or judgment, `[N]`, drawn by its key; those with equal keys are in one fold.

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


def train_without(
    experiment: Experiment, task: Task, rows: Tensor, run: Run | None = None, *, quiet: bool = False
) -> EmbeddingModel:
    """Train as the experiment says, without some of the training items, or without some of the judgments.

    Args:
        experiment: how to train.
        task: the data.
        rows: the training items that are left out; of judgments, the numbers of these.
        run: keeps the state, and continues from it; None: nothing is kept.
        quiet: show no progress.

    Returns:
        The model with the selected weights, on the device of the training.
    """
    labels = task.train.labels
    train_mask = torch.ones(labels.count if isinstance(labels, JudgedItems) else len(labels), dtype=torch.bool)
    train_mask[rows] = False
    groups = task.val_groups
    if isinstance(labels, JudgedItems):
        train = with_judgments(task.train, labels.keep(train_mask.numpy()))
    else:
        train = task.train.subset(train_mask.nonzero()[:, 0])
        groups = None if groups is None else [groups[row] for row in train_mask.nonzero()[:, 0].tolist()]
    reduced_task = replace(task, train=train, val_groups=groups)
    resumed = run is not None and (run.checkpoints / "state.safetensors").exists()
    trainer = experiment.build_trainer(reduced_task, run, weights=not resumed, quiet=quiet)
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


class _Folds:
    """The outputs of each fold's network, read one after the other.

    Args:
        experiment: how to train.
        run: its folder keeps the folds.
        task: the data.
        fold_of: the fold of each training item `[N]`, or of each judgment.
        count: number of folds.
        on_line: called with a line before and after each training.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: Run,
        task: Task,
        fold_of: Tensor,
        count: int,
        on_line: Callable[[str], None],
    ) -> None:
        self.experiment, self.run, self.task, self.fold_of, self.on_line = experiment, run, task, fold_of, on_line
        self.what = "judgments" if isinstance(task.train.labels, JudgedItems) else "items"
        folder = run.folder / "audit" / f"folds_{count}"
        self.files = [folder / f"fold_{number}.safetensors" for number in range(count)]

    def train(self) -> Tensor:
        """Train what is not finished; returns the rows that could not be read under any of the networks."""
        unfinished = [number for number, file in enumerate(self.files) if not file.exists()]
        if unfinished:
            self.on_line(self._plan(len(unfinished)))
        for number in unfinished:
            run = Run(self.files[number].with_suffix(""))
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            rows = (self.fold_of == number).nonzero()[:, 0]
            model = train_without(self.experiment, self.task, rows, run)
            features, missing = _outputs(model, self.task.train, self.experiment.build_images())
            tensors = {"features": features, "missing": missing}
            epoch = load_values(run.checkpoints / f"{self.experiment.selected}.safetensors")["epoch"]
            untrained = is_untrained(epoch, saved_numbers(run.checkpoints / "state.safetensors")["trained"])
            save_tensors(self.files[number], tensors, config=self.experiment.recorded, untrained=untrained)
            shutil.rmtree(run.folder)
            self.on_line(f"fold {number + 1} of {len(self.files)}: {len(rows):,} {self.what}")
        unread = {row for file in self.files for row in self._read(file)["missing"].tolist()}
        return torch.tensor(sorted(unread), dtype=torch.int64)

    @property
    def untrained(self) -> int:
        """The number of networks with untrained weights."""
        return sum(load_values(file).get("untrained") is True for file in self.files)

    def __iter__(self) -> Iterator[Tensor]:
        return (self._read(file)["features"] for file in self.files)

    def _read(self, file: Path) -> dict[str, Tensor]:
        tensors, saved = load_weights(file)
        if len(tensors.get("features", ())) != len(self.task.train) or "missing" not in tensors:
            raise InputError(str(file), "not the features of this run", hint="remove it")
        check_config(self.experiment, self.run, saved)
        return tensors

    def _plan(self, left: int) -> str:
        """What will be trained, and how long it takes, from the time that the run took."""
        training, count = read_training(self.run), len(self.files)
        text = f"training {left} of {count} networks, each without one of {count} parts of the training {self.what}"
        if training is None or training.seconds is None:
            return f"{text}; each takes about as long as the run did"
        return f"{text}: about {duration(left * training.seconds)}, as long as the run took {left} times"
