"""Which items a run was trained and evaluated on: their names, labels and splits, and what changed since.

An item is recognized by its name below the root folder, so a data set may move. Saved items hold a short hash of each
label; it is independent of the other items, so other rows of a table do not change it.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, one_line
from contml._support.files import read_bytes, write
from contml.data.split import SPLIT_TITLES, Split, Task

#: Largest record in bytes, as JSON and as the file, and how many times larger than the file the JSON may be.
_LIMIT, _RATIO = 1 << 30, 200


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
            {name: split.labels.digests() for name, split in splits.items()},
            {name: [] if split.queries is None else split.queries.tolist() for name, split in splits.items()},
        )

    def save(self, path: Path) -> None:
        """Write the record."""
        text = json.dumps(asdict(self), ensure_ascii=False)
        content = gzip.compress(text.encode("utf-8", errors="surrogateescape"), mtime=0)
        write(path, lambda temporary: temporary.write_bytes(content))

    @classmethod
    def load(cls, path: Path) -> DataRecord:
        """Read a record that `save` wrote.

        Raises:
            InputError: no such file, or it is damaged.
        """
        try:
            packed = read_bytes(path, _LIMIT)
            values = json.loads(_unpacked(packed).decode("utf-8", errors="surrogateescape"))
            return cls(*(_checked(values[name], kind) for name, kind in _KINDS.items()))._consistent()
        except FileNotFoundError:
            raise InputError(str(path), "no such file", hint="train again: the run does not record its data") from None
        except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
            got = f"cannot be read ({error.got if isinstance(error, InputError) else one_line(error)})"
            raise InputError(str(path), got, hint="copy it from a backup") from None

    def _consistent(self) -> DataRecord:
        if "train" not in self.names or self.names.keys() - SPLIT_TITLES.keys():
            raise ValueError("its splits are not train, val and test")
        counts = [{split: len(items) for split, items in lists.items()} for lists in (self.names, self.labels)]
        if counts[0] != counts[1] or self.queries.keys() - self.names.keys():
            raise ValueError("its splits differ")
        if any(not 0 <= row < counts[0][split] for split, rows in self.queries.items() for row in rows):
            raise ValueError("a query is not an item of its split")
        return self

    def changes(self, now: DataRecord) -> list[str]:
        """What differs, by split: how many items were added, removed, moved to another split, and changed."""

        def queries(record: DataRecord, split: str) -> set[str]:
            names = record.names.get(split, ())
            return {names[row] for row in record.queries.get(split, ())}

        changes = []
        old_items, new_items = ({(s, name) for s in record.names for name in record.names[s]} for record in (self, now))
        entered_names, left_names = (
            {name for _, name in changed_items} for changed_items in (new_items - old_items, old_items - new_items)
        )
        for split in dict.fromkeys([*self.names, *now.names]):
            before = dict(zip(self.names.get(split, ()), self.labels.get(split, ()), strict=True))
            after = dict(zip(now.names.get(split, ()), now.labels.get(split, ()), strict=True))
            added, removed = ([n for n in a if n not in b] for a, b in ((after, before), (before, after)))
            switched = queries(self, split) ^ queries(now, split)
            counts = {
                "added": [name for name in added if name not in left_names],
                "removed": [name for name in removed if name not in entered_names],
                "moved to another split": [name for name in removed if name in entered_names],
                "moved from another split": [name for name in added if name in left_names],
                "with another label": [name for name in after if before.get(name, after[name]) != after[name]],
                "moved between queries and gallery": [name for name in after if name in switched and name in before],
            }
            words = [f"{len(names):,} {change} ({names[0]})" for change, names in counts.items() if names]
            if words:
                changes.append(f"{SPLIT_TITLES.get(split, split)} items: {', '.join(words)}")
        return changes

    def rows(self, split: str, now: DataRecord) -> list[int]:
        """The rows of the current split that hold the saved items, in the saved order, without items that are gone."""
        row_of = {name: row for row, name in enumerate(now.names.get(split, ()))}
        return [row_of[name] for name in self.names.get(split, ()) if name in row_of]


#: What each part of a record lists, by split.
_KINDS = {"names": str, "labels": str, "queries": int}


def _checked(part: Any, kind: type) -> dict[str, list[Any]]:
    if not isinstance(part, dict) or not all(isinstance(items, list) for items in part.values()):
        raise ValueError("a part is not a mapping of lists")
    if not all(type(item) is kind for items in part.values() for item in items):
        raise ValueError(f"an item is not of type {kind.__name__}")
    return part


def _unpacked(packed: bytes) -> bytes:
    """The content of a gzip file; a small file that would fill the memory is refused."""
    limit = min(_LIMIT, _RATIO * len(packed) + (1 << 20))
    unpacker = zlib.decompressobj(wbits=31)  # 31: the format of gzip
    content = unpacker.decompress(packed, limit)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"more than {limit:,} bytes" if len(content) == limit else "cut short")
    return content


def item_names(split: Split, root: str = "") -> list[str]:
    """The name of each item below the root folder; items that share a name are numbered."""
    prefix = os.path.join(os.path.normpath(root), "")  # noqa: PTH118
    counts: Counter[str] = Counter()
    names = []
    for name in split.names:
        short = os.path.normpath(name).removeprefix(prefix) if root and name else name  # "./own/a.png" is "own/a.png"
        counts[short] += 1
        names.append(short if counts[short] == 1 else f"{short} ({counts[short]})")
    return names


def with_recorded_items(task: Task, record: DataRecord, root: str = "") -> Task:
    """The task with the items of the record that still exist, in the order of the record; without other splits.

    Raises:
        InputError: a split of the record has no item left, other than the validation split beside a test split.
    """
    now = DataRecord.of(task, root)
    rows = {name: record.rows(name, now) for name in record.names}
    if "test" in rows and not rows.get("val"):
        rows.pop("val", None)
    if empty_split := next((name for name in rows if not rows[name]), None):
        raise InputError(
            f"{SPLIT_TITLES[empty_split]} items", "none of the run's items is left", hint="restore the data"
        )
    groups = None if task.val_groups is None else [task.val_groups[row] for row in rows["train"]]
    splits = {name: task.splits[name].subset(rows[name]) for name in rows}
    return Task(splits["train"], splits.get("test"), splits.get("val"), groups)
