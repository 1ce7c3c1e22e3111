"""`contml check`: facts about an experiment, without training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.text import duration, number
from contml.data import Batch, Images
from contml.data.copies import find_copies
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation import evaluate
from contml.experiment.building import Experiment, first_process
from contml.labels.base import LabelSpace
from contml.labels.captions import CaptionLabels
from contml.labels.judged_items import JudgedItems
from contml.labels.pairs import PairLabels
from contml.models import EmbeddingModel
from contml.retrieval.labelled_items import MAX_ITEMS
from contml.training import Trainer

_FEATURES = "no image, since the items are features"
#: The time of a training is estimated by so many steps, by fewer after so many seconds, but at least by these.
_STEPS, _TIMED, _LEAST_STEPS = 10, 3.0, 2
#: Seconds beside steps, images and rankings: of the checkpoint of an evaluation; of the start and the report.
_EVALUATION, _REST = 0.3, 10.0
#: The time of a ranking is estimated by so many queries of half as many items, first few to compile; not of fewer.
_QUERIES, _RANKED, _LEAST_RANKED = (128, 512), (200, 2_000, 80_000), 8
#: Rankings that take at least so many seconds are a fact of their own; so many queries are enough for most purposes.
_LONG, _FEW_QUERIES = 60.0, 1_000
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


def refuse_broken(broken: Sequence[tuple[str, str]], images: int, on_broken: Callable[[str, str], None]) -> None:
    """Refuse broken images: `on_broken` gets name and cause of each but the first, which the error names.

    Raises:
        InputError: an image is broken.
    """
    if broken:
        for name, cause in broken[1:]:
            on_broken(name, cause)
        name, cause = broken[0]
        got = f"cannot be decoded ({cause}), {len(broken):,} of {images:,} images"
        raise InputError(name, got, hint="repair or replace these files, or train with images.broken=skip")


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
    is_once = trainer.images.extractor is not None
    to_extract = sum(map(trainer.images.count_without_features, task.splits.values())) if is_once else 0
    has_cache = trainer.images.cache is not None
    trainer.images.cache = None  # what is in the cache says nothing about the files
    trainer.images.extractor = None
    decoded = _decode_all(task, trainer.images, on_broken) if images == "all" else ""
    batches = (b for n in count() for b in trainer.images.train_batches(trainer.split, trainer.sampler, epoch=n))
    batch = next(batches)
    initial_state = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(trainer.images.left_out.items()))
        got = f"cannot be decoded ({cause})"
        raise InputError(name, got, f"only {len(batch.rows)} images of the first batch can be read")
    loss = trainer.train_step(batch)
    times = _times(trainer, batches, has_cache) if trainer.total_steps else []
    rankings = _seconds_of_rankings(trainer, task) if times and experiment.evaluator().ranked else 0.0
    rest = _seconds_of_evaluations(experiment, trainer, task, batch) + rankings if times and not is_once else 0.0
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
            _time_of_features(times, len(batch.rows), to_extract, sum(map(len, task.splits.values())))
            if is_once
            else _time(times, trainer.total_steps, rest),
        ),
        *([("rankings", _rankings(experiment, task, rankings))] if rankings >= _LONG else []),
        ("parameters", f"{num_parameters:,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _times(trainer: Trainer, batches: Iterator[Batch], has_cache: bool) -> list[float]:
    """The seconds of some steps with their batches, sorted; with a cache of images without their batches.

    The first step is over: it compiled code and started processes. The second one is left out too.
    """
    times: list[float] = []
    first = time.monotonic()
    while len(times) <= _STEPS and (len(times) <= _LEAST_STEPS or time.monotonic() - first < _TIMED):
        start = time.monotonic()
        batch = next(batches)
        decoded = time.monotonic()
        trainer.train_step(batch).item()
        times.append(time.monotonic() - (decoded if has_cache else start))
    return sorted(times[1:])


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


def _times_evaluated(trainer: Trainer, task: Task) -> dict[str, int]:
    """How often a training evaluates each split: meanwhile, at the end, and validation with the best weights."""
    during = 1 + math.ceil(trainer.options.epochs / trainer.options.evaluate_every)
    return {name: during * (name in trainer.watched) + 1 for name in task.splits if name != "train"}


def _queries_and_items(split: Split) -> tuple[int, int]:
    """The number of queries of a split, and of the items that are ranked for each."""
    queries, items = (split if rows is None else rows for rows in (split.queries, split.gallery))
    return len(queries), len(items)


def _seconds_of_rankings(trainer: Trainer, task: Task) -> float:
    """The seconds of all rankings, by two rankings of random embeddings of some items of the largest split.

    The difference of the two is the time of more queries: some metrics are of 100 queries, however many there are.
    """
    sizes = {name: _queries_and_items(task.splits[name]) for name in _times_evaluated(trainer, task)}
    model = trainer.bare_model
    assert isinstance(model, EmbeddingModel)  # others rank nothing
    split, per_pair, per_item = task.splits[max(sizes, key=lambda name: math.prod(sizes[name]))], 0.0, 0.0
    if len(split) < _LEAST_RANKED:
        return 0.0
    for most in _RANKED:
        rows = torch.linspace(0, len(split) - 1, min(most, len(split))).long()
        labels, items = split.labels[rows].as_root().to(trainer.device), torch.arange(len(rows))
        vectors = torch.randn(len(rows), model.embedding_dim, generator=torch.Generator().manual_seed(0))
        gallery, seconds = items[len(rows) // 2 :], list[float]()
        queries = [min(limit, len(rows) // part) for limit, part in zip(_QUERIES, (4, 2), strict=True)]
        for query_count in queries:
            start = time.monotonic()
            evaluate(vectors, labels, items[:query_count], gallery, clusters=False)
            seconds.append((time.monotonic() - start) / len(gallery))
        per_pair = max(seconds[1] - seconds[0], 0.0) / (queries[1] - queries[0])
        per_item = max(seconds[0] - queries[0] * per_pair, 0.0)
        if most > _RANKED[0] and sum(seconds) * len(gallery) > _TIMED / 6:  # labels that are slow to compare
            break
    return sum(
        times * sizes[name][1] * (sizes[name][0] * per_pair + per_item)
        for name, times in _times_evaluated(trainer, task).items()
    )


def _rankings(experiment: Experiment, task: Task, seconds: float) -> str:
    """The time of the rankings, and the largest of them."""
    sizes = {name: _queries_and_items(split) for name, split in task.splits.items() if name != "train"}
    name = max(sizes, key=lambda each: math.prod(sizes[each]))
    queries, items = sizes[name]
    has_option = "queries" in experiment.config.parts["task"].options and queries > _FEW_QUERIES
    hint = f"; task.queries={_FEW_QUERIES} takes fewer queries" if has_option else ""
    title = SPLIT_TITLES[name]
    return f"about {duration(seconds)}, with {queries:,} queries x {items:,} items of the {title} split{hint}"


def _seconds_of_evaluations(experiment: Experiment, trainer: Trainer, task: Task, batch: Batch) -> float:
    """The seconds of all evaluations, of the start and of the report, by the time that the images of a batch take."""
    evaluator, outputs = experiment.evaluator(), trainer.evaluator.outputs
    items = trainer.split.subset(batch.rows)
    for _ in range(2):  # the first call is slower
        start = time.monotonic()
        outputs(trainer.bare_model, items, trainer.images, device=trainer.device)
    seconds_per_image = (time.monotonic() - start) / len(batch.rows)
    evaluations = 1 + math.ceil(trainer.options.epochs / trainer.options.evaluate_every)
    evaluated = evaluations * sum(len(split) for split in trainer.watched.values())
    # At the end: all other splits, validation again with the best weights, and training items that answer with labels.
    evaluated += sum(len(split) for name, split in task.splits.items() if name != "train")
    evaluated += min(len(task.train), MAX_ITEMS) if evaluator.ranked else 0
    return seconds_per_image * evaluated + _EVALUATION * evaluations + _REST


def _time(times: Sequence[float], steps: int, rest: float) -> str:
    """The time of a training as a range, by the quartiles of the seconds of some steps, and `rest` seconds more."""
    if not times:
        return "training.epochs=0: nothing will be trained"
    return f"about {_range(times, steps, rest)} with evaluations and report, by {len(times)} steps"


def _time_of_features(times: Sequence[float], batch: int, missing: int, images: int) -> str:
    """The time in which the images without features pass a frozen backbone, by steps with `batch` images.

    Args:
        times: seconds of steps, sorted.
        batch: images of a step.
        missing: the images whose features are not in the cache.
        images: all images.
    """
    if not missing:
        return f"the features of all {images:,} images are in the cache: seconds per epoch"
    if not times:
        return f"{missing:,} images pass the backbone once"
    about, rest = _range(times, missing / batch), f" of {images:,}" if missing < images else ""
    return f"about {about} for the features of {missing:,}{rest} images, which are kept; then seconds per epoch"


def _range(times: Sequence[float], steps: float, rest: float = 0.0) -> str:
    low, high = (duration(times[index] * steps + rest) for index in (len(times) // 4, 3 * len(times) // 4))
    return low if low == high else f"{low} to {high}"


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
        refuse_broken(broken, count, on_broken)
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
