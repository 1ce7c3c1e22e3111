"""A description of how every column of a table was read, and the config that suits the labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from contml._support.packed_texts import as_texts
from contml._support.text import number
from contml.data import Split
from contml.data.tables import Table
from contml.data.text_files import spelled_alike

from .boxes import describe_boxes
from .columns import Roles, Spec, pair_up
from .items import Items, SplitRows, closed_set, different
from .label import FittedLabel, Reading
from .text_labels import ClassLabel, OrdinalLabel, TagsLabel

#: A column of texts with this many different values may name groups, such as persons. Fewer are rather classes.
_MANY_VALUES = 20


def describe_columns(
    table: Table, roles: Roles, specs: list[Spec], items: Items, splits: Mapping[str, Split], reading: Reading
) -> list[list[str]]:
    """Describe how every column was read, with the reason and its values, as rows of texts after a header.

    Args:
        table: the table.
        roles: the columns of images and of the split, and the guess for every other column.
        specs: the labels.
        items: the items of the table.
        splits: the splits by name.
        reading: the options of the task.
    """
    image, group = str(roles.image), reading.group or reading.frame
    reason = "as given" if reading.image is not None else "its cells name image files"
    size = f"{len(table):,} rows, {len(table.columns) + len(table.opaque)} columns"
    size += "".join(f"; {count:,} {what}" for what, count in table.left_out.items())
    (example,) = table.columns[image].texts([int(table.columns[image].filled.argmax())])
    lines = [
        ["column", "used as", "because", "values"],
        ["", "table", table.form, size],
        [image, "image", reason, example + _repeated(items)],
    ]
    if items.boxes is not None:
        used = np.concatenate([*items.parts.used.values()])
        lines.append([str(reading.table.box), "box", "as given", describe_boxes(items.boxes[used])])
    for spec, label, mean in zip(specs, items.labels, items.means, strict=True):
        kind, scale = spec.part.name + ":log" * (spec.part.options.get("scale") == "log"), ""
        if len(specs) > 1:
            kind, scale = f"{kind} x {label.kind.weight:g}", f"; mean label distance {number(mean)}, scaled to 1"
        alike = spelled_alike(*_names(label))
        values = label.summary + scale + (f"; {alike}" if alike else "")
        values += _missing(label, items.parts) + _without_items(label, items.parts)
        lines.append([label.name, kind, spec.reason, values])
    sizes = [f"{len(items.parts.train):,} for training"]
    for part, use in (("val", "validation"), ("test", "testing")):
        if part in splits:
            queries = splits[part].queries
            count = "all" if queries is None else f"{len(queries):,}"
            sizes.append(f"{len(splits[part]):,} for {use}, {count} of them queries")
    if items.without_file:
        lines.append(["", "features", "as given", without_files(items.without_file, sum(map(len, splits.values())))])
    lines.append([roles.split or group or "", "split", items.parts.description, ", ".join(sizes)])
    if group is not None:
        alike = spelled_alike(items.groups.numbered()[0], "groups")
        lines.append([group, "group", "as given", _gallery(splits["train"], group) + (f"; {alike}" if alike else "")])
    used_columns = {group, *(column for spec in specs for column in spec.columns)}
    for name, guess in pair_up(roles.guesses).items():
        if not {name, *name.split(",")} & used_columns:
            use = f"could be {guess.kind}" if guess.kind else ""
            if group is None and name in table.columns and _may_group(table, name, guess.kind, specs):
                use += f"; if rows with the same {name} belong together: task.group={name}"
            lines.append([name, "not used", guess.reason, use])
    return [*lines, ["", "excluded", "missing=drop", items.omitted]] if items.omitted else lines


def _may_group(table: Table, name: str, kind: str, specs: list[Spec]) -> bool:
    """Return True if a column has many values, and they are texts, or all rows of a value have the same labels."""
    different, values = table.columns[name].distinct()
    labels = (table.columns[column].distinct()[1] for spec in specs for column in spec.columns)
    repeats = _MANY_VALUES <= len(different) <= (len(table) if kind == "class" else len(table) / 2)
    return repeats and (kind == "class" or len({*zip(values, *labels, strict=True)}) == len(different))


def _names(label: FittedLabel) -> tuple[Iterable[str], str]:
    """Return the different names of a label, and the plural of their kind, such as "classes"."""
    if isinstance(label.kind, ClassLabel):
        return as_texts(label.values).numbered()[0], "classes"
    if isinstance(label.kind, TagsLabel):
        return as_texts(label.values.texts).numbered()[0], "tags"
    return (label.values[1], "levels") if isinstance(label.kind, OrdinalLabel) else ((), "")


def without_files(count: int, items: int) -> str:
    """Describe what a report omits if `count` of the items have features and no image file."""
    found = "no image file found" if count == items else f"{count:,} of {items:,} image files are missing"
    their = "pictures are left out, and copies" if count == items else "their pictures are left out, and copies of them"
    return f"{found}: {items:,} features are used, {their} are found by name alone"


def _gallery(split: Split, group: str) -> str:
    """Describe whether a query searches its own group, and the option that changes this."""
    if split.exclude_group:
        return f"a query does not search its own {group} (task.exclude_group=false: it does)"
    kept = "also of other rows" if split.labels.class_ids is not None else "task.exclude_group=true: it does not"
    return f"a query searches its own {group} too ({kept})"


def _repeated(items: Items) -> str:
    """Describe the number of rows that repeat the image of an earlier row. Return "" if no rows do."""
    image_names = items.names.taken(np.concatenate([*items.parts.used.values()]))
    num_repeated = len(image_names) - image_names.num_different()
    return f"; {num_repeated:,} rows repeat the image of another row" if num_repeated else ""


def _missing(label: FittedLabel, parts: SplitRows) -> str:
    """Describe the words that mean a missing value, and the number of rows without this label.

    Rows without this label count by their other labels. Return "" if there are no such words and rows.
    """
    num_missing = sum(int((~label.present[rows]).sum()) for rows in parts.used.values())
    words = f"; read as missing: {words}" if (words := label.missing_words) else ""
    return words + (f"; missing in {num_missing:,} rows, which count by their other labels" if num_missing else "")


def _without_items(label: FittedLabel, parts: SplitRows) -> str:
    """Describe the levels or classes of training rows that no row to evaluate has. Return "" if there are none.

    Classes are described only if training and evaluation share classes.
    """
    if isinstance(label.kind, OrdinalLabel):
        word, cells = "level", label.values[0]
    elif isinstance(label.kind, ClassLabel) and closed_set(label, parts):
        word, cells = "class", label.values
    else:
        return ""
    part = "test" if len(parts.test) else "val"
    train, evaluated = (different(cells, rows) for rows in (parts.train, getattr(parts, part)))
    missing = sorted(train - evaluated - {""})
    names = ", ".join([*missing[:5], *(["…"] if len(missing) > 5 else [])])
    return f"; no {part} item of {word} {names} ({len(missing):,} such)" if missing else ""


def suggestion(roles: Roles, items: Items) -> Callable[[Split], tuple[str, list[str]]]:
    """Return a function that suggests a config and changes to it, given a training split.

    The changes set the columns that were found, and batches that fit the rows. The function does not keep the items.
    """
    labels = {label.name: {"kind": label.cells.part.name, **label.cells.part.options} for label in items.labels}
    task_options = {"labels": labels, "image": roles.image, "split": roles.split}
    most_rows = min(label.kind.most_rows[len(items.labels) > 1] for label in items.labels)
    return partial(_suggest, task_options, items.labels[0].kind.loss if len(items.labels) == 1 else "", most_rows)


def _suggest(task_options: Mapping[str, Any], loss: str, most_rows: int, train: Split) -> tuple[str, list[str]]:
    """Return the config and all changes.

    The sampler draws neighbours by label distance only up to `most_rows` training rows.
    """
    texts = {name: json.dumps(value, ensure_ascii=False, default=os.fspath) for name, value in task_options.items()}
    changes = [f"task.{name}={texts[name]}" for name, value in task_options.items() if value]
    num_rows, class_ids = len(train), train.labels.class_ids  # without a drawn validation split
    if class_ids is not None:
        classes = min(16, len(np.unique(class_ids.cpu())), num_rows // 2)
        changes += [f"sampler.classes={classes}", f"sampler.instances={min(6, num_rows // classes)}"]
        return "table/classes", changes
    if loss:
        changes.append(f"loss={loss}")
    batch_size, neighbours = min(100, num_rows), min(5, num_rows - 1)
    if num_rows > most_rows:
        return "table/default", [*changes, f"sampler={{name: uniform, batch_size: {batch_size}, batches: 25}}"]
    anchors = max(1, min(16, batch_size // (1 + neighbours)))
    sizes = {"batch_size": batch_size, "anchors_per_batch": anchors, "neighbours": neighbours}
    return "table/default", [*changes, *(f"sampler.{name}={size}" for name, size in sizes.items())]
