"""The items that a run was trained and evaluated on: their names, labels and splits, and the changes since.

An item is recognized by its name below the root folder, so a data set may move. Saved items hold a short hash of each
label. The hash does not depend on other items, so other rows of a table do not change it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.packed import taken
from contml._support.packed_texts import Texts, as_texts
from contml._support.tensors import load_tensors, save_tensors
from contml.data.draw import Array
from contml.data.sources import counted
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.labels.base import LabelSpace

#: Labels that are hashed at a time: a list of many millions of hashes would take most of the memory.
_HASHED = 1 << 18


@dataclass(frozen=True)
class DataRecord:
    """The items of each split in order.

    Attributes:
        names: the names of the items, by split.
        labels: a short hash of the label of each item, by split.
        queries: the rows of the queries, by split. It is empty if every item is a query.
    """

    names: Mapping[str, Sequence[str]]
    labels: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, task: Task, root: str = "") -> DataRecord:
        """Return the record of a task. `root` is the folder that names of items may start with."""
        splits = task.splits.items()
        queries = {name: [] if split.queries is None else split.queries.tolist() for name, split in splits}
        labels = {name: _hashes(split.labels) for name, split in splits}
        return cls({name: item_names(split, root) for name, split in splits}, labels, queries)

    def save(self, path: Path) -> None:
        """Write the record: for each split the bytes and the lengths of all texts, and the queries."""
        tensors: dict[str, Tensor] = {}
        for split in self.names:
            tensors[f"{split}.queries"] = torch.tensor(self.queries[split], dtype=torch.int64)
            for kind, texts in (("names", self.names[split]), ("labels", self.labels[split])):
                content, lengths = as_texts(texts).packed()
                tensors[f"{split}.{kind}"] = torch.from_numpy(content)
                tensors[f"{split}.{kind}.lengths"] = torch.from_numpy(lengths)
        save_tensors(path, tensors)

    @classmethod
    def load(cls, path: Path) -> DataRecord:
        """Read a record that `save` wrote.

        Raises:
            InputError: no such file, or it is damaged.
        """
        try:
            tensors, _ = load_tensors(path)
            return cls._of_tensors(tensors)
        except FileNotFoundError:
            raise InputError(str(path), "no such file", hint="train again: the run does not record its data") from None
        except (InputError, ValueError, KeyError) as error:
            got = f"cannot be read ({error.got if isinstance(error, InputError) else error})"
            raise InputError(str(path), got, hint="copy it from a backup") from None

    @classmethod
    def _of_tensors(cls, tensors: Mapping[str, Tensor]) -> DataRecord:
        splits = [split for split in SPLIT_TITLES if f"{split}.names" in tensors]
        if "train" not in splits or len(tensors) != len(_PARTS) * len(splits):
            raise ValueError("its splits are not train, val and test")
        for split in splits:
            for part, dtype in _PARTS.items():
                if tensors[f"{split}.{part}"].dtype != dtype or tensors[f"{split}.{part}"].ndim != 1:
                    raise ValueError(f"{split}.{part} has another type")
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        names, labels = (
            {split: Texts.of_packed(arrays[f"{split}.{kind}"], arrays[f"{split}.{kind}.lengths"]) for split in splits}
            for kind in ("names", "labels")
        )
        queries = {split: tensors[f"{split}.queries"] for split in splits}
        for split, rows in queries.items():
            if len(names[split]) != len(labels[split]):
                raise ValueError("its splits differ")
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(names[split]):
                raise ValueError("a query is not an item of its split")
        return cls(names, labels, {split: rows.tolist() for split, rows in queries.items()})

    def changes(self, now: DataRecord) -> list[str]:
        """Return the differences by split: how many items were added, removed, moved to another split, and changed."""
        if self == now:
            return []
        splits = dict.fromkeys([*self.names, *now.names])
        before, after = (
            {part: dict(zip(each.names.get(part, ()), each.labels.get(part, ()), strict=True)) for part in splits}
            for each in (self, now)
        )
        entered = {name for part in splits for name in after[part].keys() - before[part].keys()}
        left = {name for part in splits for name in before[part].keys() - after[part].keys()}
        changes = []
        for split in splits:
            old, new = before[split], after[split]
            added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
            kept = [name for name in new if name in old]
            was_query, is_query = ({r.names[split][row] for row in r.queries.get(split, ())} for r in (self, now))
            moved = was_query ^ is_query
            counts = {
                "added": [name for name in added if name not in left],
                "removed": [name for name in removed if name not in entered],
                "moved to another split": [name for name in removed if name in entered],
                "moved from another split": [name for name in added if name in left],
                "with another label": [name for name in kept if old[name] != new[name]],
                "moved between queries and gallery": [name for name in kept if name in moved],
            }
            if words := [f"{len(items):,} {change} ({items[0]})" for change, items in counts.items() if items]:
                changes.append(f"{SPLIT_TITLES.get(split, split)} items: {', '.join(words)}")
        return changes

    def rows(self, split: str, now: DataRecord) -> Array:
        """Return the rows of the current split that hold the saved items, in the saved order.

        Items that are gone are left out.
        """
        saved, current = (as_texts(record.names.get(split, ())) for record in (self, now))
        rows = saved.positions(current)
        return rows[rows >= 0]

    def same_items(self, other: DataRecord, split: str) -> bool:
        """Return True if another record has the same items with the same labels in a split, in any order."""
        names, other_names = as_texts(self.names.get(split, ())), as_texts(other.names.get(split, ()))
        labels, other_labels = as_texts(self.labels.get(split, ())), as_texts(other.labels.get(split, ()))
        rows = names.positions(other_names)
        return len(names) == len(other_names) and bool((rows >= 0).all()) and labels == other_labels.taken(rows)


#: The parts of a record for each split, and their types.
_PARTS = {
    "names": torch.uint8,
    "names.lengths": torch.int32,
    "labels": torch.uint8,
    "labels.lengths": torch.int32,
    "queries": torch.int64,
}


def item_names(split: Split, root: str = "") -> Texts:
    """Return the name of each item below the root folder. Items that share a name are numbered."""
    names = as_texts(split.names)
    if root:  # "./own/a.png" is "own/a.png"
        folder = os.path.join(os.path.normpath(root), "")  # noqa: PTH118
        names = Texts(os.path.normpath(name).removeprefix(folder) if name else name for name in names)
    if names.num_different() == len(names):
        return names
    return Texts(name if number == 1 else f"{name} ({number})" for name, number in counted(names))


def with_recorded_items(task: Task, record: DataRecord, root: str = "") -> Task:
    """Return the task with the items of the record that still exist, in the order of the record, without other splits.

    Raises:
        InputError: a split of the record has no item left. A validation split beside a test split may be empty.
    """
    now = DataRecord.of(task, root)
    rows = {name: record.rows(name, now) for name in record.names}
    if "test" in rows and not len(rows.get("val", ())):
        rows.pop("val", None)
    if empty := next((name for name in rows if not len(rows[name])), None):
        raise InputError(f"{SPLIT_TITLES[empty]} items", "none of the run's items is left", hint="restore the data")
    groups = None if task.val_groups is None else taken(task.val_groups, rows["train"])
    splits = {name: task.splits[name].subset(rows[name]) for name in rows}
    return Task(splits["train"], splits.get("test"), splits.get("val"), groups)


def _hashes(labels: LabelSpace) -> Texts:
    """Return the hash of each label."""
    if len(labels) <= _HASHED:
        return Texts(labels.digests())
    parts = (labels[start : start + _HASHED] for start in range(0, len(labels), _HASHED))
    return Texts(digest for part in parts for digest in part.digests())
