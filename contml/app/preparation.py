"""`contml prepare`: check that a data set on disk is complete and that every image can be decoded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contml._support.errors import InputError, did_you_mean
from contml.app.experiment import config_names, load, task_table
from contml.config import Section, from_overrides, validate

if TYPE_CHECKING:
    from contml.data.split import Split, Task


@dataclass(frozen=True)
class Prepared:
    """Facts about a data set.

    Args:
        facts: a table with one row per fact: its name, and its value for each split.
        images: the number of images.
        broken: name and cause of each image that cannot be decoded.
        skip_broken: whether a training leaves them out (`images.broken` of the config).
        size: side of the resized images in pixels.
        cache: the folder of the resized images; None without one.
        cache_bytes: size of the cache, 0 without one.
        notes: remarks of the task on its files, each with a title: what was excluded, and why.
    """

    facts: list[list[str]]
    images: int
    broken: list[tuple[str, str]]
    skip_broken: bool
    size: int
    cache: str | None
    cache_bytes: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list)


def prepare(
    name: str,
    root: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    size: int | None = None,
    workers: int | None = None,
    cache: Path | None = None,
) -> Prepared:
    """Read the data of a config or of a task, which checks lists and counts, and decode every image.

    Args:
        name: a config, by name or file, or a task such as "classes/cub".
        root: the folder of the data set: `task.root`.
        overrides: changes to the config; for a task its options, such as `task.missing=drop`.
        size: side of the resized images in pixels. Default: `images.resize` of the config, 256 for a task.
        workers: processes that decode; 0 decodes in this one. Default: `images.workers` of the config, 0 for a task.
        cache: a folder for the resized images; images that it holds are not decoded again. Default: `images.cache` of
            the config, none for a task.

    Raises:
        InputError: there is no such config or task, it reads no files, or the data set is not complete.
    """
    task, options = _read(name, root, overrides)
    from contml.data import Images  # here: these import torch, which is not needed to report a mistyped name
    from contml.data.copies import find_copies

    splits = task.splits
    if all(image.stamp is None for split in splits.values() for image in split.images):
        raise InputError(name, "reads no files, so there is nothing to prepare")
    size, cache = size or options.get("resize", 256), cache or options.get("cache")
    workers = options.get("workers", 0) if workers is None else workers
    images = Images(resize=size, crop=size, workers=workers, cache=cache)
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
        options.get("broken") == "skip",
        size,
        None if cache is None else str(cache),
        max(report.size for report in reports),
        [*task.summary, *([("repeated images", copies)] if (copies := str(find_copies(splits))) else [])],
    )


def _read(name: str, root: Path | None, overrides: Sequence[str]) -> tuple[Task, Mapping[str, Any]]:
    """The data of a config or of a task, and the options of the section `images`, which a task does not have."""
    table, configs = task_table(), config_names()
    is_task = name in table and name not in configs
    if not (is_task or name in configs or name.endswith((".yaml", ".yml")) or Path(name).exists()):
        hint = did_you_mean(name, [*table, *configs], "see 'contml list configs' and 'contml list tasks'")
        raise InputError(name, "no such config or task", hint=hint)
    # Quoted: the name of a folder is text, even if it looks like a number in YAML.
    changes = [*overrides, *([] if root is None else [f"task.root={json.dumps(str(root))}"])]
    if invalid_override := next((each for each in overrides if is_task and not each.startswith("task.")), None):
        raise InputError(f"'{invalid_override}'", allowed="must be an option of the task: task.KEY=VALUE")
    try:
        if not is_task:
            experiment = load(name, changes)
            return experiment.read_task(), experiment.config.parts["images"].options
        part = validate(from_overrides([f"task={name}", *changes]), {"task": Section(table)}).parts["task"]
    except InputError as error:
        if root is not None and (error.subject, error.got) == ("task.root", "unknown key"):
            raise InputError(name, "its task has no option 'root'", hint=f"omit {root}") from None
        if (error.subject, error.got.partition(", ")[2]) == (name, "not a config"):  # a folder, a table, a run
            raise InputError(
                name, error.got, hint="of your own data: 'contml check --data PATH --images all'"
            ) from None
        raise
    task: Task = replace(part, origin="", origins={}).build()  # "command line" would not help
    return task, {}


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
