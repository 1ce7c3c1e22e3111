"""Which items a run was trained and evaluated on: their names, labels and splits, and what changed since.

An item is recognized by its name below the root folder, so a data set may move. Saved items hold a short hash of each
label; it is independent of the other items, so other rows of a table do not change it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.packed import taken
from contml._support.packed_texts import Texts, as_texts
from contml._support.tensors import load_tensors, save_tensors
from contml.data.draw import Array
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
        queries: the rows of the queries, by split; empty if every item is a query.
    """

    names: Mapping[str, Sequence[str]]
    labels: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, task: Task, root: str = "") -> DataRecord:
        """The record of a task; `root`: the folder that names of items may start with."""
        splits = task.splits
        return cls(
            {name: item_names(split, root) for name, split in splits.items()},
            {name: _hashes(split.labels) for name, split in splits.items()},
            {name: [] if split.queries is None else split.queries.tolist() for name, split in splits.items()},
        )

    def save(self, path: Path) -> None:
        """Write the record: of each split the bytes and the lengths of all texts, and the queries."""
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
        names, labels = (
            {
                split: Texts.of_packed(tensors[f"{split}.{kind}"].numpy(), tensors[f"{split}.{kind}.lengths"].numpy())
                for split in splits
            }
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
        """What differs, by split: how many items were added, removed, moved to another split, and changed."""
        if self == now:
            return []
        splits, nothing = dict.fromkeys([*self.names, *now.names]), Texts(())
        all_names = [as_texts(record.names.get(split, nothing)) for record in (self, now) for split in splits]
        different, numbers = Texts.concatenated(all_names).numbered()
        # The number of the name of each item, by split: before, and now.
        parts = iter(np.split(numbers, np.cumsum([*map(len, all_names)])[:-1]))
        before, after = ({split: next(parts) for split in splits} for _ in (self, now))
        count = len(different)
        is_before, is_after = ({split: _mask(count, items[split]) for split in splits} for items in (before, after))
        entered, left = (
            np.any([a[split] & ~b[split] for split in splits], axis=0)
            for a, b in ((is_after, is_before), (is_before, is_after))
        )
        changes = []
        for split in splits:
            added = after[split][~is_before[split][after[split]]]
            removed = before[split][~is_after[split][before[split]]]
            is_query_before, is_query = (
                _mask(count, items[split][np.array(record.queries.get(split, ()), np.int64)])
                for record, items in ((self, before), (now, after))
            )
            kept_rows = np.flatnonzero(is_before[split][after[split]])
            row_before = np.zeros(count, np.int64)
            row_before[before[split]] = np.arange(len(before[split]))
            kept = after[split][kept_rows]
            labels = [as_texts(record.labels.get(split, nothing)) for record in (self, now)]
            differs = labels[0].taken(row_before[kept]).differs(labels[1].taken(kept_rows))
            counts = {
                "added": added[~left[added]],
                "removed": removed[~entered[removed]],
                "moved to another split": removed[entered[removed]],
                "moved from another split": added[left[added]],
                "with another label": kept[differs],
                "moved between queries and gallery": kept[is_query_before[kept] != is_query[kept]],
            }
            found = {change: items for change, items in counts.items() if len(items)}
            words = [f"{len(items):,} {change} ({different[int(items[0])]})" for change, items in found.items()]
            if words:
                changes.append(f"{SPLIT_TITLES.get(split, split)} items: {', '.join(words)}")
        return changes

    def rows(self, split: str, now: DataRecord) -> Array:
        """The rows of the current split that hold the saved items, in the saved order, without items that are gone."""
        saved, current = (as_texts(record.names.get(split, ())) for record in (self, now))
        rows = saved.positions(current)
        return rows[rows >= 0]

    def same_items(self, other: DataRecord, split: str) -> bool:
        """Whether another record has the same items with the same labels in a split, in any order."""
        (names, other_names), (labels, other_labels) = (
            [as_texts(each.get(split, ())) for each in pair]
            for pair in ((self.names, other.names), (self.labels, other.labels))
        )
        rows = names.positions(other_names)
        return len(names) == len(other_names) and bool((rows >= 0).all()) and labels == other_labels.taken(rows)


#: What a record holds of each split, and its type.
_PARTS = {
    "names": torch.uint8,
    "names.lengths": torch.int32,
    "labels": torch.uint8,
    "labels.lengths": torch.int32,
    "queries": torch.int64,
}


def _mask(count: int, numbers: Array) -> Array:
    """Whether each number below `count` is among these."""
    mask = np.zeros(count, bool)
    mask[numbers] = True
    return mask


def item_names(split: Split, root: str = "") -> Texts:
    """The name of each item below the root folder; items that share a name are numbered."""
    names = as_texts(split.names)
    if root:  # "./own/a.png" is "own/a.png"
        normal = names.normal_paths().without_prefix(os.path.join(os.path.normpath(root), ""))  # noqa: PTH118
        names = names.mapped(~names.is_empty, normal, str)
    if names.num_different() == len(names):
        return names
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return Texts(numbered)


def with_recorded_items(task: Task, record: DataRecord, root: str = "") -> Task:
    """The task with the items of the record that still exist, in the order of the record; without other splits.

    Raises:
        InputError: a split of the record has no item left, other than the validation split beside a test split.
    """
    now = DataRecord.of(task, root)
    rows = {name: record.rows(name, now) for name in record.names}
    if "test" in rows and not len(rows.get("val", ())):
        rows.pop("val", None)
    if empty_split := next((name for name in rows if not len(rows[name])), None):
        raise InputError(
            f"{SPLIT_TITLES[empty_split]} items", "none of the run's items is left", hint="restore the data"
        )
    groups = None if task.val_groups is None else taken(task.val_groups, rows["train"])
    splits = {name: task.splits[name].subset(rows[name]) for name in rows}
    return Task(splits["train"], splits.get("test"), splits.get("val"), groups)


def _hashes(labels: LabelSpace) -> Texts:
    """Return the hash of each label."""
    if len(labels) <= _HASHED:
        return Texts(labels.digests())
    parts = (labels[start : start + _HASHED] for start in range(0, len(labels), _HASHED))
    return Texts(digest for part in parts for digest in part.digests())
