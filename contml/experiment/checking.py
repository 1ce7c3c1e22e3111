"""What `contml check` tells of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from contml._support.errors import InputError
from contml.data.split import Split, Task
from contml.experiment.building import Experiment, first_process
from contml.labels.captions import CaptionLabels


def describe(task: Task, described: Callable[[Sequence[Sequence[str]]], None]) -> None:
    """How the columns of a table were read, where the data are one; of several processes one says so."""
    if task.columns and first_process():
        described(task.columns)


def check(
    experiment: Experiment, *, described: Callable[[Sequence[Sequence[str]]], None] = lambda _: None
) -> list[tuple[str, str]]:
    """Read the data, build everything, take one batch forward and backward, train nothing: the facts, in words.

    `described` as in `train`.
    """
    task = experiment.build_task()
    describe(task, described)
    trainer = experiment.build_trainer(task)
    trainer.images.cache = None  # one batch needs no other image
    batch = next(iter(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)))
    before = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(trainer.images.left_out.items()))
        raise InputError(
            f"{len(batch.rows)} images of the first batch could be read; the first that could not: {name} ({cause})"
        )
    loss = trainer.train_step(batch)
    trainer.bare_model.load_state_dict(before)
    trainer.images.close()
    distances = trainer.labels[batch.rows].pairwise()
    apart = distances[~torch.eye(len(batch.rows), dtype=torch.bool, device=distances.device)]
    queries = len(task.test) if task.test.queries is None else len(task.test.queries)
    learning = sum(p.numel() for p in trainer.parameters)
    return [
        *task.summary,
        ("training images", f"{len(task.train):,}{_excluded(task.train)}"),
        ("test images", f"{len(task.test):,}, of which {queries:,} query{_excluded(task.test)}"),
        ("label distance", task.test.labels.unit),
        *_unknown_words(task),
        ("in a batch", f"{apart.min():.4g} to {apart.max():.4g}, mean {apart.mean():.4g} ({trainer.labels.unit})"),
        ("batch", f"{len(batch.rows)} images of {batch.images.shape[2]} x {batch.images.shape[3]} pixels"),
        ("steps", f"{trainer.total:,} in {trainer.options.epochs} epochs"),
        ("parameters", f"{learning:,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _excluded(split: Split) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
    return f" (left out: {reasons})" if reasons else ""


def _unknown_words(task: Task) -> list[tuple[str, str]]:
    """What caption labels could not use: words without a vector, and captions that had no other."""
    facts = []
    for name, split in (("training", task.train), ("test", task.test)):
        labels = split.labels
        if isinstance(labels, CaptionLabels) and labels.unknown:
            words = labels.unknown
            most, dropped = next(iter(words)), f"; {labels.dropped:,} captions dropped" if labels.dropped else ""
            text = f"{sum(words.values()):,}, {len(words):,} different, most often '{most}'{dropped}"
            facts.append((f"{name} words without a vector", text))
    return facts
