"""`contml prepare`: is a data set on disk what it is said to be, and can every image of it be decoded?"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from contml.config import Section, from_overrides, options, validate
from contml.contracts import InputError, Split, Task
from contml.distances import progress_bar
from contml.experiment import config_names, load, task_table
from contml.images import Images

#: Images are decoded this many at a time.
_BATCH = 64


@dataclass(frozen=True)
class Prepared:
    """What was found of a data set.

    Args:
        facts: a row a fact: its name, and what it is of each split.
        images: how many images were looked at.
        broken: name and cause of those that cannot be decoded.
    """

    facts: list[list[str]]
    images: int
    broken: list[tuple[str, str]]


def prepare(name: str, root: Path, overrides: Sequence[str] = (), *, size: int = 256, workers: int = 0) -> Prepared:
    """Build a task on a folder, which holds its lists and counts to what was published, and decode every image.

    Args:
        name: of the task, such as "classes/cub".
        root: the folder of the data set.
        overrides: further options of the task, `task.complete=false`.
        size: images are brought to this many pixels square, as a training with images.resize of this size does.
        workers: processes that decode; 0 decodes in this one.

    Raises:
        InputError: there is no such task, it reads no files, or the data set is not what it should be.
    """
    task = _build(name, root, overrides)
    images = Images(resize=size, crop=size, broken="skip", workers=workers)
    splits = {"train": task.train, "test": task.test}
    broken = {part: _broken(split, images, part) for part, split in splits.items()}
    images.close()
    found = {part: _facts(split) | {"cannot be decoded": f"{len(broken[part]):,}"} for part, split in splits.items()}
    names = dict.fromkeys(name for facts in found.values() for name in facts)
    rows = [[name, *(facts.get(name, "") for facts in found.values())] for name in names]
    return Prepared(
        [["", *splits], *rows], sum(map(len, splits.values())), [pair for b in broken.values() for pair in b]
    )


def _build(name: str, root: Path, overrides: Sequence[str]) -> Task:
    table = task_table()
    if name not in table:
        if name in config_names():
            raise InputError(f"'{name}' is a config; its task is {load(name).config.parts['task'].name}")
        near = difflib.get_close_matches(name, table, 1)
        raise InputError(
            f"unknown task '{name}'; " + (f"did you mean '{near[0]}'?" if near else "see 'contml list tasks'")
        )
    if "root" not in {option.name for option in options(table[name])}:
        raise InputError(f"{name} reads no files: there is nothing to prepare")
    if other := next((text for text in overrides if not text.startswith("task.")), None):
        raise InputError(f"'{other}' is no option of the task; options are given as task.KEY=VALUE")
    # Quoted: a folder's name is text, whatever YAML would take it for.
    document = from_overrides([f"task={name}", *overrides, f"task.root={json.dumps(str(root))}"])
    part = validate(document, {"task": Section(table)}).parts["task"]
    built: Task = replace(part, origin="").build()  # nobody wonders which task is meant
    return built


def _broken(split: Split, images: Images, part: str) -> list[tuple[str, str]]:
    images.left_out.clear()
    with progress_bar(len(split), f"decoding {part} images") as progress:
        for batch in images.test_batches(split, None, _BATCH):
            progress(min(len(split), (batch.step + 1) * _BATCH))
    return [*images.left_out.items()]


def _facts(split: Split) -> dict[str, str]:
    """What there is to say of a split."""
    facts = {"images": f"{len(split):,}"}
    classes = getattr(split.labels, "classes", None)
    if isinstance(classes, Tensor):
        counts = classes.bincount()
        facts |= {"classes": f"{len(counts):,}", "images a class": f"{counts.min()} to {counts.max()}"}
    if split.queries is not None and split.gallery is not None:
        facts |= {"queries": f"{len(split.queries):,}", "gallery": f"{len(split.gallery):,}"}
    facts["label distance"] = split.labels.unit
    for name, attribute in (("no file, left out", "missing"), ("dropped for their labels", "dropped")):
        if left_out := getattr(split, attribute, 0):
            facts[name] = f"{left_out:,}"
    return facts
