"""`contml check`: facts about an experiment, without training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.text import duration, number
from contml.app.experiment.building import Experiment, first_process
from contml.data import Batch, Images
from contml.data.copies import find_copies
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.labels.base import LabelSpace
from contml.labels.captions import CaptionLabels
from contml.labels.judged import JudgedItems, PairLabels
from contml.training import Trainer

_FEATURES = "no image, since the items are features"
#: Fewer test judgments are few.
_FEW_JUDGMENTS = 30


def report_columns(task: Task, on_columns: Callable[[Sequence[Sequence[str]]], None]) -> None:
    """Report how the columns of a table were read, in the main process only."""
    if task.columns and first_process():
        on_columns(task.columns)


def judgments_kept(task: Task) -> tuple[str, bool]:
    """How many judgments the splits keep, in words, and whether these are few; "" if all are kept, or of labels.

    A split by item leaves out judgments whose items are in two parts. Few are less than half of all, or less than 30 of
    the test split: an accuracy near 0.8 then has a 95 % interval of more than 0.14 to each side.
    """
    labels = {name: split.labels for name, split in task.splits.items()}
    judged = {name: each for name, each in labels.items() if isinstance(each, JudgedItems)}
    if not (left_out := sum(each.left_out for each in judged.values())):
        return "", False
    kept = sum(each.judged for each in judged.values())
    evaluated = task.evaluated.labels
    assert isinstance(evaluated, JudgedItems)
    few = 2 * kept < kept + left_out or evaluated.judged < _FEW_JUDGMENTS
    parts = ", ".join(f"{each.judged:,} {SPLIT_TITLES[name]}" for name, each in judged.items())
    text = f"{kept:,} of {kept + left_out:,} are kept ({parts}); the items of the others are in two parts of the split"
    if few:
        text += ". These are few"
        if any(line[1] == "split" and line[2].startswith("drawn by item") for line in task.columns):
            text += ": task.by=judgment keeps all, with items that are in training and in test"
    return text, few


def check(
    experiment: Experiment,
    *,
    images: Literal["batch", "all"] = "batch",
    on_columns: Callable[[Sequence[Sequence[str]]], None] = lambda _: None,
    on_broken: Callable[[str, str], None] = lambda *_: None,
) -> list[tuple[str, str]]:
    """Read the data, build everything, and run one batch forward and backward. Returns facts as (name, text).

    Args:
        experiment: the experiment; its weights are not changed.
        images: "batch" decodes the images of one batch, "all" every image of every split.
        on_columns: as in `train`.
        on_broken: called with name and cause of broken images, but for the first, which the error names.

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
    loader.cache = None  # what is in the cache says nothing about the files
    loader.extractor = None
    decoded = _decode_all(task, loader, on_broken) if images == "all" else ""
    batches = (b for n in count() for b in trainer.images.train_batches(trainer.split, trainer.sampler, epoch=n))
    batch = next(batches)
    initial_state = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(trainer.images.left_out.items()))
        got = f"cannot be decoded ({cause})"
        raise InputError(name, got, f"only {len(batch.rows)} images of the first batch can be read")
    loss = trainer.train_step(batch)
    seconds = _seconds_of_a_step(trainer, batches, has_cache)
    batches.close()
    trainer.bare_model.load_state_dict(initial_state)
    trainer.images.close()
    num_parameters = sum(p.numel() for p in trainer.parameters)
    return [
        *task.summary,
        *((f"{SPLIT_TITLES[name]} images", _images(name, split, as_read)) for name, split in task.splits.items()),
        *([] if task.test is not None else [("evaluated", "the validation split, since the data have no test split")]),
        *([("repeated images", copies)] if (copies := str(find_copies(task.splits))) else []),
        *_labels(task),
        *([("judgments", kept)] if (kept := judgments_kept(task)[0]) else []),
        ("decoded", decoded or _decoded(len(batch.rows), task.train)),
        ("in a batch", _in_a_batch(trainer.labels[batch.rows])),
        ("batch", f"{len(batch.rows)} {_size(batch.images)}"),
        ("steps", f"{trainer.total_steps:,} in {trainer.options.epochs} epochs"),
        (
            "images per epoch",
            _images_per_epoch(trainer.total_steps * len(batch.rows), trainer.options.epochs, len(task.train)),
        ),
        (
            "time",
            _time_of_features(seconds / len(batch.rows), to_extract)
            if is_once
            else _time(seconds, trainer.total_steps),
        ),
        ("parameters", f"{num_parameters:,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _in_a_batch(labels: LabelSpace) -> str:
    """The label distances of the pairs of a batch, or the number of its judgments, in words."""
    if isinstance(labels, JudgedItems) and not isinstance(labels, PairLabels):
        return f"{len(labels.within()):,} judgments"
    distances, known = labels.pairwise(), labels.known()
    counted = ~torch.eye(len(labels), dtype=torch.bool, device=distances.device)
    counted = counted if known is None else counted & known
    pairs, measure = distances[counted], labels.measure
    share = "" if known is None else f"; {len(pairs):,} of {len(labels) * (len(labels) - 1):,} pairs are known"
    if not len(pairs):
        return f"none{share}"
    low, high, mean = (measure.text(float(each)) for each in (pairs.min(), pairs.max(), pairs.mean()))
    return f"{low} to {high}, mean {mean}{share}"


def _seconds_of_a_step(trainer: Trainer, batches: Iterator[Batch], has_cache: bool) -> float:
    """The seconds of a warm step with its batch, which is the third; with a cache of images without its batch."""
    for _ in range(2):
        start = time.monotonic()
        batch = next(batches)
        start = time.monotonic() if has_cache else start
        trainer.train_step(batch).item()
    return time.monotonic() - start


def _time(seconds: float, steps: int) -> str:
    """The time of the steps of a training, each of which takes `seconds`."""
    return f"about {duration(seconds * steps)} for {steps:,} steps, by one of them, without evaluations and report"


def _time_of_features(seconds: float, images: int) -> str:
    """The time in which `images` pass a frozen backbone, which takes `seconds` for each."""
    if not images:
        return "the features of all images are in the cache: seconds per epoch"
    about = duration(seconds * images)
    return f"about {about} for the features of {images:,} images, which are kept; then seconds per epoch"


def _size(images: Tensor) -> str:
    """The size of images `[B, 3, H, W]`, of feature vectors `[B, F]`, or of several for each item `[B, P, F]`."""
    if images.ndim < 4:
        places = f" at {images.shape[1]:,} places" if images.ndim == 3 else ""
        return f"vectors of {images.shape[-1]:,} numbers{places}"
    return f"images of {images.shape[2]} x {images.shape[3]} pixels"


def _images(name: str, split: Split, as_read: Task) -> str:
    """The number of images of a split, of queries, and of items left out; where a validation split is from."""
    queries = len(split) if split.queries is None else len(split.queries)
    judged = isinstance(split.labels, JudgedItems)
    query_text = "" if name == "train" or judged else f", of which {queries:,} query"
    source = "drawn from the training split" if as_read.val is None else "named by the data"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
    notes = ([source] if name == "val" else []) + ([f"excluded: {reasons}"] if reasons else [])
    return f"{len(split):,}{query_text}" + (f" ({'; '.join(notes)})" if notes else "")


def _images_per_epoch(images: int, epochs: int, rows: int) -> str:
    """The number of images of an epoch, and how often each of the training images is among them."""
    if not epochs:
        return "0"
    num_images = images / epochs
    return f"{num_images:,.0f}: each of the {rows:,} training images {number(num_images / rows)} times on average"


def _decode_all(task: Task, images: Images, on_broken: Callable[[str, str], None]) -> str:
    """Decode every image of every split, and say what was found."""
    if task.train.feature_dim is not None:
        return _FEATURES
    reports = [images.fill(split) for split in task.splits.values()]
    broken, count = [pair for report in reports for pair in report.broken], sum(report.images for report in reports)
    if images.broken == "fail":
        for name, cause in broken[1:]:
            on_broken(name, cause)
        for name, cause in broken[:1]:
            got = f"cannot be decoded ({cause}), {len(broken):,} of {count:,} images"
            raise InputError(name, got, hint="repair or replace these files, or train with images.broken=skip")
    skipped = f"; {len(broken):,} are broken, which training skips" if broken else ""
    return f"all {count:,} images{skipped}"


def _decoded(count: int, split: Split) -> str:
    if split.feature_dim is not None:
        return _FEATURES
    return f"one batch of {count:,} of {len(split):,} training images; --images all decodes every image"


def _labels(task: Task) -> list[tuple[str, str]]:
    """The unit of label distances, and words without a vector; or the judgments of each split."""
    labels = {SPLIT_TITLES[name]: split.labels for name, split in task.splits.items()}
    judged = [(f"{name} judgments", each.facts()) for name, each in labels.items() if isinstance(each, JudgedItems)]
    return judged or [("label distance", task.evaluated.labels.unit), *_unknown_words(task)]


def _unknown_words(task: Task) -> list[tuple[str, str]]:
    """Words of captions without a word vector, and captions dropped because they had no other words."""
    facts = []
    for name, split in task.splits.items():
        labels = split.labels
        if isinstance(labels, CaptionLabels) and labels.unknown:
            words = labels.unknown
            dropped = f"; {labels.dropped:,} captions dropped" if labels.dropped else ""
            text = f"{sum(words.values()):,}, {len(words):,} different, most often '{next(iter(words))}'{dropped}"
            facts.append((f"{SPLIT_TITLES[name]} words without a vector", text))
    return facts
