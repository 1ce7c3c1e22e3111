"""Checks of an experiment: facts about it, without training (`contml check`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

from torch import Tensor

from contml._support.errors import InputError
from contml._support.text import duration
from contml.app.experiment.building import Experiment, first_process
from contml.data import Batch, Images
from contml.data.copies import find_copies
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.training import Trainer

_FEATURES = "no image, since the items are features"


def report_columns(task: Task, on_columns: Callable[[Sequence[Sequence[str]]], None]) -> None:
    """Report how the columns of a table were read, in the main process only."""
    if task.columns and first_process():
        on_columns(task.columns)


def check(
    experiment: Experiment,
    *,
    images: Literal["batch", "all"] = "batch",
    on_columns: Callable[[Sequence[Sequence[str]]], None] = lambda _: None,
    on_broken: Callable[[str, str], None] = lambda *_: None,
) -> list[tuple[str, str]]:
    """Read the data, build everything, and run one batch forward and backward. Return facts as (name, text).

    Args:
        experiment: the experiment. Its weights are not changed.
        images: "batch" decodes the images of one batch, "all" every image of every split.
        on_columns: as in `train`.
        on_broken: called with name and cause of broken images, except the first, which the error names.

    Raises:
        InputError: an error in the data or the config; an image is broken and `images.broken` is "fail".
    """
    experiment.check_packages()
    as_read = experiment.read_task()
    report_columns(as_read, on_columns)
    task = replace(experiment, task=as_read).build_task()
    trainer = experiment.build_trainer(task)
    loader = trainer.images
    assert isinstance(loader, Images)  # of an experiment
    is_once = loader.extractor is not None
    to_extract = sum(map(loader.count_without_features, task.splits.values())) if is_once else 0
    has_cache = loader.cache is not None
    loader.cache = loader.extractor = None  # what is in the cache says nothing about the files
    decoded = _decode_all(task, loader, on_broken) if images == "all" else ""
    batches = (b for n in count() for b in loader.train_batches(trainer.split, trainer.sampler, epoch=n))
    batch = next(batches)
    initial_state = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(loader.left_out.items()))
        got = f"cannot be decoded ({cause})"
        raise InputError(name, got, f"only {len(batch.rows)} images of the first batch can be read")
    loss = trainer.train_step(batch)
    seconds = _seconds_of_a_step(trainer, batches, has_cache)
    batches.close()
    trainer.bare_model.load_state_dict(initial_state)
    loader.close()
    results, steps = experiment.results, trainer.total_steps
    facts = list(task.summary)
    for name, split in task.splits.items():
        facts.append((f"{SPLIT_TITLES[name]} images", _images(name, split, as_read, results.counts_queries)))
    if task.test is None:
        facts.append(("evaluated", "the validation split, since the data have no test split"))
    if copies := str(find_copies(task.splits)):
        facts.append(("repeated images", copies))
    about = f"about {duration(seconds * steps)} for {steps:,} steps, estimated from one step"
    time_words = f"{about}, without evaluations and report"
    return [
        *facts,
        *results.facts(task),
        ("decoded", decoded or _decoded(len(batch.rows), task.train)),
        ("in a batch", results.in_a_batch(trainer.labels[batch.rows])),
        ("batch", f"{len(batch.rows)} {_size(batch.images)}"),
        ("steps", f"{steps:,} in {trainer.options.epochs} epochs"),
        ("time", _time_of_features(seconds / len(batch.rows), to_extract) if is_once else time_words),
        ("parameters", f"{sum(p.numel() for p in trainer.parameters):,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _seconds_of_a_step(trainer: Trainer, batches: Iterator[Batch], has_cache: bool) -> float:
    """Return the seconds of the third step, which is warm, with its batch.

    With a cache of images, the batch is not counted.
    """
    for _ in range(2):
        start = time.monotonic()
        batch = next(batches)
        start = time.monotonic() if has_cache else start
        trainer.train_step(batch).item()
    return time.monotonic() - start


def _time_of_features(seconds: float, images: int) -> str:
    """Estimate the time in which `images` pass a frozen backbone, from the `seconds` of one image."""
    if not images:
        return "the features of all images are in the cache: seconds per epoch"
    about = duration(seconds * images)
    return f"about {about} for the features of {images:,} images, which are kept; then seconds per epoch"


def _size(images: Tensor) -> str:
    """Describe the size of images `[B, 3, H, W]`, of feature vectors `[B, F]`, or of feature maps `[B, P, F]`."""
    if images.ndim < 4:
        places = f" at {images.shape[1]:,} places" if images.ndim == 3 else ""
        return f"vectors of {images.shape[-1]:,} numbers{places}"
    return f"images of {images.shape[2]} x {images.shape[3]} pixels"


def _images(name: str, split: Split, as_read: Task, counts_queries: bool) -> str:
    """Describe a split: the number of its images, queries, and items left out, and the source of a validation split."""
    queries = len(split) if split.queries is None else len(split.queries)
    number = "all" if queries == len(split) else f"{queries:,}"
    query_text = f", {number} of them queries" if counts_queries and name != "train" else ""
    source = "drawn from the training split" if as_read.val is None else "named by the data"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
    notes = ([source] if name == "val" else []) + ([f"excluded: {reasons}"] if reasons else [])
    return f"{len(split):,}{query_text}" + (f" ({'; '.join(notes)})" if notes else "")


def _decode_all(task: Task, images: Images, on_broken: Callable[[str, str], None]) -> str:
    """Decode every image of every split, and describe the result."""
    if task.train.feature_dim is not None:
        return _FEATURES
    reports = [images.fill(split) for split in task.splits.values()]
    broken, count = [pair for report in reports for pair in report.broken], sum(report.images for report in reports)
    if broken and images.broken == "fail":
        (first, cause), *others = broken
        for other in others:
            on_broken(*other)
        got = f"cannot be decoded ({cause}), {len(broken):,} of {count:,} images"
        raise InputError(first, got, hint="repair or replace these files, or train with images.broken=skip")
    skipped = f"; {len(broken):,} are broken, which training skips" if broken else ""
    return f"all {count:,} images{skipped}"


def _decoded(count: int, split: Split) -> str:
    if split.feature_dim is not None:
        return _FEATURES
    return f"one batch of {count:,} of {len(split):,} training images; --images all decodes every image"
