"""Drawn splits, for data that name no splits: a validation split of labelled items, and parts of judged items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from contml._support.errors import InputError
from contml._support.packed import taken
from contml._support.packed_texts import as_texts
from contml.data.copies import joined, same_images
from contml.data.draw import Array, draw, draw_queries, positions
from contml.data.split import Split, Task, query_split
from contml.labels.items import ItemLabels
from contml.labels.judged import JudgedItems

#: If a validation split of graded labels has more items than the first number, it gets the second number of queries.
_MANY, _QUERIES = 5_000, 1_000
#: The least number of items in each part. More groups are drawn if they are small.
_LEAST_ITEMS = 3


def with_validation(task: Task, names: Sequence[str], *, share: float, seed: int = 0) -> Task:
    """Return the task with a validation split drawn from its training items.

    A task with a validation split stays as it is. Items of one group are not divided. The groups are `task.val_groups`
    if they are given. Otherwise they are classes, if labels are classes and no class of the test split is in training.
    Otherwise every item is a group of its own. Groups that share an image are joined, if enough groups are left.

    Args:
        task: the task.
        names: the name of each training item, which determines its part.
        share: the share of the groups that is drawn, approximately.
        seed: another seed draws another part.

    Raises:
        InputError: there are too few training items.
    """
    if task.val is not None:
        return _with_one_k(task)
    if isinstance(task.train.labels, JudgedItems):
        return _with_judged_validation(task, task.train.labels, names, share, seed)
    classes = _unseen_classes(task) if task.val_groups is None else None
    whole = classes or task.val_groups or names
    # The split must not be one class, or one group, which its own queries do not search.
    least = 1 if classes is None and task.train.excluded_groups is None else 2
    groups = joined(whole, same_images(task.train.images))
    if as_texts(groups).num_different() < 2 * least:
        groups = whole
    try:
        val_mask = draw(groups, share, seed, "validation", least=least)
        while min(val_mask.sum(), (~val_mask).sum()) < _LEAST_ITEMS:
            least += 1
            val_mask = draw(groups, share, seed, "validation", least=least)
    except InputError as error:
        got = f"{as_texts(groups).num_different()} groups of {len(groups)} training items"
        hint = "set training.select=none to train on all items, without this split"
        raise InputError("validation split", got, error.allowed, hint) from None
    rows, val_rows = np.flatnonzero(~val_mask), np.flatnonzero(val_mask)
    train, val = task.train.subset(rows), task.train.subset(val_rows)
    if val.labels.class_ids is None and len(val) > _MANY:
        query_rows, gallery = query_split(draw_queries(_QUERIES, taken(names, val_rows), seed), len(val))
        val = replace(val, queries=query_rows, gallery=gallery)
    val = replace(val, recall_at=task.evaluated.recall_at, excluded={})
    train_groups = None if task.val_groups is None else taken(task.val_groups, rows)
    return _with_one_k(replace(task, train=train, val=val, val_groups=train_groups))


def _with_one_k(task: Task) -> Task:
    """Return the task with one K of the main metric, the largest K that its validation and test splits allow."""
    splits = {name: split for name, split in task.splits.items() if name != "train" and len(split)}
    least = min(split.available for split in splits.values())
    return task.with_splits({name: replace(split, places=least) for name, split in splits.items()})


def _with_judged_validation(task: Task, labels: JudgedItems, names: Sequence[str], share: float, seed: int) -> Task:
    """Return the task with some of its judgments as a validation split.

    The judgments are divided by item, unless test items are in training too.
    """
    shared = task.test is not None and bool(set(task.train.names) & set(task.test.names))
    try:
        kept, drawn = divide(labels, names, share, "judgment" if shared else "item", seed, "validation")
    except InputError as error:
        hint = "set training.val_share to a larger share, or training.select=none to train on all judgments"
        raise InputError(error.subject, error.got, error.allowed, hint) from None
    drawn.left_out = 0  # they are counted in training
    train = with_judgments(task.train, kept, labels.judged - kept.judged - drawn.judged)
    return replace(task, train=train, val=replace(with_judgments(task.train, drawn), excluded={}))


def _unseen_classes(task: Task) -> Sequence[str] | None:
    """Return the class of each training item.

    Return None if labels are not classes, or training has classes of the test split.
    """
    assert task.test is not None  # else the task has a validation split
    if task.train.labels.class_ids is None or task.test.labels.class_ids is None:
        return None
    train, test = task.train.labels.digests(), task.test.labels.digests()
    if not set(test).isdisjoint(train):
        return None
    labels = task.train.labels
    # By the names of the classes, whatever identifies the items.
    return type(labels)(**labels.arguments()).digests() if isinstance(labels, ItemLabels) else train


#: The unit that a split divides.
DivideBy: TypeAlias = Literal["item", "judgment"]

_J = TypeVar("_J", bound=JudgedItems)


def connected_items(labels: JudgedItems) -> Array:
    """Return the number of the connected set of each item `[N]`. Judgments connect their items."""
    from scipy.sparse.csgraph import connected_components  # here: it takes a while to import

    return connected_components(_graph(labels), directed=False)[1][: len(labels)]


def _graph(labels: JudgedItems) -> Any:
    """Return the sparse matrix of a graph whose nodes are the items, then the judgments.

    Each judgment is joined to its items.
    """
    from scipy.sparse import coo_array

    count, owner = len(labels), labels.judgment_of
    entries = (np.ones(len(owner), dtype=np.int8), (labels.members, count + owner))
    return coo_array(entries, shape=(count + labels.count,) * 2).tocsr()


def divide(labels: _J, names: Sequence[str], share: float, by: DivideBy, seed: int, purpose: str) -> tuple[_J, _J]:
    """Return the judgments of the part that is left and the judgments of the drawn part, both over all items.

    If judgments are divided by item, no judgment of one part has an item of the other part. Items that judgments
    connect are kept together. But if more than half of all items are connected, the drawn part is taken from these
    items. It consists of items that are near each other in the graph of judgments. Judgments between both parts are
    then left out.

    Args:
        labels: the judgments, a root.
        names: the name of each item.
        share: approximate share of the items, or of the judgments, that is drawn.
        by: "item": no item is in both parts; "judgment": an item may be.
        seed: another seed draws another part.
        purpose: the name of the drawn part: "test", "validation".

    Raises:
        InputError: a part has no judgment.
    """
    keys = labels.judgment_names(names) if by == "judgment" else ()
    if labels.count < 2 or (by == "judgment" and len(set(keys)) < 2):
        raise InputError(f"{purpose} split by {by}", "one judgment to divide", "needs at least 2")
    if by == "judgment":
        drawn = draw(keys, share, seed, purpose)
        return labels.keep(~drawn), labels.keep(drawn)
    drawn = _drawn_items(labels, names, share, seed, purpose)
    parts = labels.keep_items(~drawn), labels.keep_items(drawn)
    if not all(part.count for part in parts):
        counts = f"{parts[0].judged:,} and {parts[1].judged:,}"
        got = f"{counts} of {labels.judged:,} judgments are among the items of one part"
        hint = "draw a larger share, or divide by judgment: then an item may be in both parts"
        raise InputError(f"{purpose} split by item", got, "each part needs one", hint)
    return parts


def _drawn_items(labels: JudgedItems, names: Sequence[str], share: float, seed: int, purpose: str) -> Array:
    """Draw items, bool `[N]`."""
    numbers, used = connected_items(labels), labels.used
    drawn = np.zeros(len(labels), dtype=bool)
    sizes = np.bincount(numbers[used])
    largest = int(sizes.argmax())
    together = (numbers == largest) & used if 2 * sizes[largest] > used.sum() else np.zeros(len(labels), dtype=bool)
    rows = np.flatnonzero(used & ~together)
    first: dict[int, str] = {}
    for row in rows[np.argsort(np.asarray(names, dtype=object)[rows], kind="stable")].tolist():
        first.setdefault(int(numbers[row]), names[row])
    keys = [first[int(numbers[row])] for row in rows]
    if len(set(keys)) >= 2:
        drawn[rows] = draw(keys, share, seed, purpose)
    if together.any():
        near = _by_nearness(labels, np.flatnonzero(together), names, seed, purpose)
        drawn[near[: max(1, round(share * len(near)))]] = True
    return drawn


def _by_nearness(labels: JudgedItems, rows: Array, names: Sequence[str], seed: int, purpose: str) -> Array:
    """Order connected items breadth-first from a drawn one. Items that judgments connect are near each other."""
    from scipy.sparse.csgraph import breadth_first_order  # here: it takes a while to import

    start = int(rows[positions([names[row] for row in rows], seed, purpose).argmin()])
    order = breadth_first_order(_graph(labels), start, directed=False, return_predecessors=False)
    return order[order < len(labels)]


def with_judgments(split: Split, labels: JudgedItems, left_out: int = 0) -> Split:
    """Return the split with other judgments over its items. Items that are in no judgment are left out.

    Args:
        split: the split.
        labels: judgments of all items of the split.
        left_out: number of judgments that are in no part, since their items are divided between the parts.
    """
    part = replace(split, labels=labels).subset(labels.used)
    assert isinstance(part.labels, JudgedItems)
    part.labels.left_out += left_out
    return part
