"""`contml prepare`: is a data set on disk what it is said to be, and can every image of it be decoded?"""

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
    """What was found of a data set.

    Args:
        facts: a row a fact: its name, and what it is of each split.
        images: how many images were looked at.
        broken: name and cause of those that cannot be decoded.
        kept: bytes of the cache, 0 where there is none.
        notes: remarks of the task on its files, a title and a text each: who was left out, and why.
    """

    facts: list[list[str]]
    images: int
    broken: list[tuple[str, str]]
    kept: int = 0
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
    """Build a task on a folder, which holds its lists and counts to what was published, and decode every image.

    Args:
        name: of the task, such as "classes/cub".
        root: the folder of the data set.
        overrides: further options of the task, `task.missing=drop`.
        size: images are brought to this many pixels square, as a training with images.resize of this size does.
        workers: processes that decode; 0 decodes in this one.
        cache: a folder that keeps the resized images, for `images.cache`; what it holds already is not decoded again.

    Raises:
        InputError: there is no such task, it reads no files, or the data set is not what it should be.
    """
    task = _build(name, root, overrides)
    from contml.data import Images  # here: it imports torch, which a mistyped name does not need

    images = Images(resize=size, crop=size, workers=workers, cache=cache)
    splits = {"train": task.train, "test": task.test}
    reports = {part: images.fill(split) for part, split in splits.items()}
    found = {part: _facts(split) for part, split in splits.items()}
    for part, report in reports.items():
        found[part]["cannot be decoded"] = f"{len(report.broken):,}"
    names = dict.fromkeys(name for facts in found.values() for name in facts)
    return Prepared(
        [["", *splits], *([name, *(facts.get(name, "") for facts in found.values())] for name in names)],
        sum(report.images for report in reports.values()),
        [pair for report in reports.values() for pair in report.broken],
        max(report.size for report in reports.values()),
        list(task.summary),
    )


def _build(name: str, root: Path, overrides: Sequence[str]) -> Task:
    table = task_table()
    if name not in table:
        if name in config_names():
            raise InputError(f"'{name}' is a config; its task is {load(name).config.parts['task'].name}")
        raise InputError(f"unknown task '{name}'; " + did_you_mean(name, table, "see 'contml list tasks'"))
    if "root" not in {option.name for option in options(table[name])}:
        raise InputError(f"{name} reads no files: there is nothing to prepare")
    if other := next((text for text in overrides if not text.startswith("task.")), None):
        raise InputError(f"'{other}' is no option of the task; options are given as task.KEY=VALUE")
    # Quoted: a folder's name is text, whatever YAML would take it for.
    document = from_overrides([f"task={name}", *overrides, f"task.root={json.dumps(str(root))}"])
    part = validate(document, {"task": Section(table)}).parts["task"]
    built: Task = replace(part, origin="").build()  # nobody wonders which task is meant
    return built


def _facts(split: Split) -> dict[str, str]:
    """What there is to say of a split."""
    facts = {"images": f"{len(split):,}"}
    if split.labels.class_ids is not None:
        counts = split.labels.class_ids.bincount()
        facts |= {"classes": f"{len(counts):,}", "images per class": f"{counts.min()} to {counts.max()}"}
    if split.queries is not None and split.gallery is not None:
        facts |= {"queries": f"{len(split.queries):,}", "gallery": f"{len(split.gallery):,}"}
    facts["label distance"] = split.labels.unit
    facts |= {f"left out: {reason}": f"{count:,}" for reason, count in split.excluded.items()}
    return facts
