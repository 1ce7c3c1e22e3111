"""What was found in a table: how every column was read, and which config suits the labels."""

from __future__ import annotations

import json
from collections.abc import Sequence

from contml._support.text import number
from contml.data import Split

from .chosen import Spec
from .guess import Roles, pair_up
from .items import Items
from .reading import Table

#: With more training rows than this, finding the nearest by label takes more than minutes, so batches are drawn
#: uniformly. Label distances of these kinds take longer: the limits of a label alone, and of one in a sum.
_NEAREST, _SLOWER = 50_000, {"captions": (20_000, 3_000), "map": (20_000, 10_000)}


def describe_columns(
    table: Table,
    roles: Roles,
    specs: Sequence[Spec],
    items: Items,
    test: Split,
    *,
    given_image: bool,
    group: str | None,
) -> list[list[str]]:
    """How every column was read, why, and what it holds: rows of texts, a header first.

    Args:
        table: the table.
        roles: which columns are the images and the split, and what each other could be.
        specs: which columns are the labels.
        items: the items of the table.
        test: the test split.
        given_image: whether the column of images was given, not found.
        group: the column of groups.
    """
    images = table.columns[str(roles.image)]
    why = "as given" if given_image else "its cells name image files"
    lines = [
        ["column", "used as", "because", "values"],
        ["", "table", table.form, f"{len(table):,} rows, {len(table.columns) + len(table.opaque)} columns"],
        [str(roles.image), "image", why, next(cell for cell in images if cell.strip())],
    ]
    for spec, label, mean in zip(specs, items.labels, items.means, strict=True):
        kind, scale = spec.kind, ""
        if len(specs) > 1:
            kind, scale = f"{spec.kind} x {label.weight:g}", f"; mean label distance {number(mean)}, taken as 1"
        lines.append([spec.name, kind, spec.why, label.describe() + scale])
    queries = "all" if test.queries is None else f"{len(test.queries):,}"
    sizes = f"{len(items.parts.train):,} for training, {len(test):,} for testing, {queries} of them queries"
    lines.append([roles.split or group or "", "split", items.parts.how, sizes])
    used = {group, *(column for spec in specs for column in spec.columns)}
    for name, guess in pair_up(roles.guesses).items():
        if not {name, *name.split(",")} & used:
            lines.append([name, "not used", guess.why, f"could be {guess.kind}" if guess.kind else ""])
    if items.left_out:
        lines.append(["", "left out", "missing=drop", items.left_out])
    return lines


def suggest_config(roles: Roles, items: Items, train: Split) -> tuple[str, list[str]]:
    """The config that suits the labels, and changes to it: the columns found, and batches that fit the rows."""
    kinds = {
        label.name: label.kind if label.weight == 1 else f"{label.kind}:{label.weight!r}" for label in items.labels
    }
    changes = [f"task.labels={json.dumps(kinds, ensure_ascii=False)}"]
    for option, column in (("image", roles.image), ("split", roles.split)):
        if column is not None:
            changes.append(f"task.{option}={json.dumps(column, ensure_ascii=False)}")
    rows, class_ids = len(train), train.labels.class_ids
    if class_ids is not None:
        classes = min(16, int(class_ids.max()) + 1, rows // 2)
        sizes = {"classes": classes, "instances": min(6, rows // classes)}
        return "table/classes", [*changes, *(f"sampler.{name}={size}" for name, size in sizes.items())]
    batch, neighbours = min(100, rows), min(5, rows - 1)
    limits = [_SLOWER.get(label.kind, (_NEAREST, _NEAREST))[len(items.labels) > 1] for label in items.labels]
    if rows > min(limits):
        return "table/default", [*changes, f"sampler={{name: uniform, batch_size: {batch}, batches: 25}}"]
    sizes = {
        "batch_size": batch,
        "anchors_per_batch": max(1, min(16, batch // (1 + neighbours))),
        "neighbours": neighbours,
    }
    return "table/default", [*changes, *(f"sampler.{name}={size}" for name, size in sizes.items())]
