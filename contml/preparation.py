"""`contml prepare`: check that a data set on disk is complete and that every image can be decoded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contml._support.errors import InputError, did_you_mean
from contml.config import Section, from_overrides, options, validate
from contml.experiment import config_names, load, task_table

if TYPE_CHECKING:
    from contml.data.split import Split, Task


@dataclass(frozen=True)
class Prepared:
    """Facts about a data set.

    Args:
        facts: a table with one row per fact: its name, and its value for each split.
        images: the number of images.
        broken: name and cause of each image that cannot be decoded.
        cache_bytes: size of the cache, 0 without one.
        notes: remarks of the task on its files, each with a title: what was excluded, and why.
    """

    facts: list[list[str]]
    images: int
    broken: list[tuple[str, str]]
    cache_bytes: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list)


def prepare(
    name: str,
    root: Path,
    overrides: Sequence[str] = (),
    *,
    size: int = 256,
    workers: int = 0,
    cache: Path | None = None,
) -> Prepared:
    """Build a task from a folder, which checks its lists and counts, and decode every image.

    Args:
        name: the name of the task, such as "classes/cub".
        root: the folder of the data set.
        overrides: options of the task, such as `task.missing=drop`.
        size: side of the resized images in pixels, as `images.resize` of a training.
        workers: processes that decode; 0 decodes in this one.
        cache: a folder for the resized images, for `images.cache`; images that it holds are not decoded again.

    Raises:
        InputError: there is no such task, it reads no files, or the data set is not complete.
    """
    task = _build(name, root, overrides)
    from contml.data import Images  # here: it imports torch, which is not needed to report a mistyped name

    images = Images(resize=size, crop=size, workers=workers, cache=cache)
    splits = task.splits
    reports = [images.fill(split) for split in splits.values()]
    columns = [
        _facts(split) | {"cannot be decoded": f"{len(report.broken):,}"}
        for split, report in zip(splits.values(), reports, strict=True)
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    return Prepared(
        [["", *splits], *([name, *(column.get(name, "") for column in columns)] for name in names)],
        sum(report.images for report in reports),
        [pair for report in reports for pair in report.broken],
        max(report.size for report in reports),
        list(task.summary),
    )


def _build(name: str, root: Path, overrides: Sequence[str]) -> Task:
    table = task_table()
    if name not in table:
        if name in config_names():
            raise InputError(name, "a config", hint=f"give its task: {load(name).config.parts['task'].name}")
        raise InputError(name, "no such task", hint=did_you_mean(name, table, "see 'contml list tasks'"))
    if "root" not in {option.name for option in options(table[name])}:
        raise InputError(name, "reads no files, so there is nothing to prepare")
    if invalid_override := next((override for override in overrides if not override.startswith("task.")), None):
        raise InputError(f"'{invalid_override}'", allowed="must be an option of the task: task.KEY=VALUE")
    # Quoted: the name of a folder is text, even if it looks like a number in YAML.
    document = from_overrides([f"task={name}", *overrides, f"task.root={json.dumps(str(root))}"])
    part = validate(document, {"task": Section(table)}).parts["task"]
    task: Task = replace(part, origin="", origins={}).build()  # "command line" would not help
    return task


def _facts(split: Split) -> dict[str, str]:
    """Facts about a split, by name."""
    facts = {"images": f"{len(split):,}"}
    if split.labels.class_ids is not None:
        counts = split.labels.class_ids.bincount()
        facts |= {"classes": f"{len(counts):,}", "images per class": f"{counts.min()} to {counts.max()}"}
    if split.queries is not None and split.gallery is not None:
        facts |= {"queries": f"{len(split.queries):,}", "gallery": f"{len(split.gallery):,}"}
    facts["label distance"] = split.labels.unit
    facts |= {f"excluded: {reason}": f"{count:,}" for reason, count in split.excluded.items()}
    return facts
