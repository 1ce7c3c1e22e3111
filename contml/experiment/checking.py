"""`contml check`: facts about an experiment, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from contml._support.errors import InputError
from contml.data.split import Split, Task
from contml.experiment.building import Experiment, first_process
from contml.labels.captions import CaptionLabels


def report_columns(task: Task, on_columns: Callable[[Sequence[Sequence[str]]], None]) -> None:
    """Report how the columns of a table were read, in the main process only."""
    if task.columns and first_process():
        on_columns(task.columns)


def check(
    experiment: Experiment, *, on_columns: Callable[[Sequence[Sequence[str]]], None] = lambda _: None
) -> list[tuple[str, str]]:
    """Read the data, build everything, and run one batch forward and backward. Returns facts as (name, text).

    Args:
        experiment: the experiment; its weights are not changed.
        on_columns: as in `train`.
    """
    task = experiment.build_task()
    report_columns(task, on_columns)
    trainer = experiment.build_trainer(task)
    trainer.images.cache = None  # one batch needs no other image
    batch = next(iter(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)))
    before = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(trainer.images.left_out.items()))
        got = f"cannot be decoded ({cause})"
        raise InputError(name, got, f"only {len(batch.rows)} images of the first batch can be read")
    loss = trainer.train_step(batch)
    trainer.bare_model.load_state_dict(before)
    trainer.images.close()
    distances = trainer.labels[batch.rows].pairwise()
    pairs = distances[~torch.eye(len(batch.rows), dtype=torch.bool, device=distances.device)]
    queries = len(task.test) if task.test.queries is None else len(task.test.queries)
    trained = sum(p.numel() for p in trainer.parameters)
    return [
        *task.summary,
        ("training images", f"{len(task.train):,}{_excluded(task.train)}"),
        ("test images", f"{len(task.test):,}, of which {queries:,} query{_excluded(task.test)}"),
        ("label distance", task.test.labels.unit),
        *_unknown_words(task),
        (
            "in a batch",
            f"{pairs.min():.4g} to {pairs.max():.4g}, mean {pairs.mean():.4g} ({trainer.labels.unit})",
        ),
        ("batch", f"{len(batch.rows)} images of {batch.images.shape[2]} x {batch.images.shape[3]} pixels"),
        ("steps", f"{trainer.total:,} in {trainer.options.epochs} epochs"),
        ("parameters", f"{trained:,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _excluded(split: Split) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
    return f" (excluded: {reasons})" if reasons else ""


def _unknown_words(task: Task) -> list[tuple[str, str]]:
    """Words of captions without a word vector, and captions dropped because they had no other words."""
    facts = []
    for name, split in (("training", task.train), ("test", task.test)):
        labels = split.labels
        if isinstance(labels, CaptionLabels) and labels.unknown:
            words = labels.unknown
            dropped = f"; {labels.dropped:,} captions dropped" if labels.dropped else ""
            text = f"{sum(words.values()):,}, {len(words):,} different, most often '{next(iter(words))}'{dropped}"
            facts.append((f"{name} words without a vector", text))
    return facts
