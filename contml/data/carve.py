"""Drawn splits for data that name none: a validation split of labelled items, and parts of judged items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from contml._support.errors import InputError
from contml._support.packed import taken
from contml._support.packed_texts import as_texts
from contml.data.copies import joined, same_images
from contml.data.draw import Array, draw, draw_queries, folds, positions
from contml.data.split import Split, Task, query_split
from contml.labels.items import ItemLabels
from contml.labels.judged import JudgedItems

#: With more validation items than the first number, the second is the number of queries, where labels are graded.
_MANY, _QUERIES = 5_000, 1_000
#: Both parts have at least so many items: more groups are drawn if they are small.
_LEAST_ITEMS = 3


def with_validation(task: Task, names: Sequence[str], *, share: float, fold: int | None = None, seed: int = 0) -> Task:
    """The task with a validation split drawn from its training items; unchanged if it has one.

    Items of one group are not divided: `task.val_groups` if given; else classes, if labels are classes and no class of
    the test split is in training; else every item is a group of its own. Groups that share an image are one,
    if enough are left.

    Args:
        task: the task.
        names: the name of each training item, which draws its part.
        share: the share of the groups that is drawn, approximately.
        fold: which of the 1 / share parts is drawn, for cross-validation: the main metric has the K of the smallest
            part. None: the first part.
        seed: another seed draws another part.

    Raises:
        InputError: there are too few training items.
    """
    if task.val is not None:
        return _with_one_k(task)
    if isinstance(task.train.labels, JudgedItems):
        return _with_judged_validation(task, task.train.labels, names, share, fold or 0, seed)
    classes = _unseen_classes(task) if task.val_groups is None else None
    whole = classes or task.val_groups or names
    # The split must not be one class, or one group, which its own queries do not search.
    least = 1 if classes is None and task.train.excluded_groups is None else 2
    groups = joined(whole, same_images(task.train.images))
    if as_texts(groups).num_different() < 2 * least:
        groups = whole
    try:
        val_mask = _drawn(groups, share, fold or 0, seed, least)
        masks = [] if fold is None else [_drawn(groups, share, number, seed, least) for number in range(folds(share))]
    except InputError as error:
        got = f"{as_texts(groups).num_different()} groups of {len(groups)} training items"
        hint = "set training.select=none to train on all items, without this split"
        raise InputError("validation split", got, error.allowed, hint) from None
    places = [_places(task.train, np.flatnonzero(mask)) for mask in masks]
    rows, val_rows = np.flatnonzero(~val_mask), np.flatnonzero(val_mask)
    train, val = task.train.subset(rows), task.train.subset(val_rows)
    if val.labels.class_ids is None and len(val) > _MANY:
        queries = draw_queries(_QUERIES, taken(names, val_rows), seed)
        query_rows, gallery = query_split(queries, len(val))
        val = replace(val, queries=query_rows, gallery=gallery)
    val = replace(val, recall_at=task.evaluated.recall_at, excluded={})
    train_groups = None if task.val_groups is None else taken(task.val_groups, rows)
    return _with_one_k(replace(task, train=train, val=val, val_groups=train_groups), places)


def _with_one_k(task: Task, places: Sequence[int] = ()) -> Task:
    """The task with one K of the main metric, the largest that its validation and test splits and `places` carry."""
    splits = {name: split for name, split in task.splits.items() if name != "train" and len(split)}
    least = min([*places, *(split.available for split in splits.values())])
    return task.with_splits({name: replace(split, places=least) for name, split in splits.items()})


def _with_judged_validation(
    task: Task, labels: JudgedItems, names: Sequence[str], share: float, fold: int, seed: int
) -> Task:
    """The task with some of its judgments as a validation split: by item, unless test items are in training too."""
    shared = task.test is not None and bool(set(task.train.names) & set(task.test.names))
    try:
        kept, drawn = divide(labels, names, share, "judgment" if shared else "item", seed, "validation", fold=fold)
    except InputError as error:
        hint = "set training.val_share to a larger share, or training.select=none to train on all judgments"
        raise InputError(error.subject, error.got, error.allowed, hint) from None
    drawn.left_out = 0  # they are counted in training
    train = with_judgments(task.train, kept, labels.judged - kept.judged - drawn.judged)
    return replace(task, train=train, val=replace(with_judgments(task.train, drawn), excluded={}))


def _drawn(groups: Sequence[str], share: float, fold: int, seed: int, least: int) -> Array:
    """The items of a fold, bool `[N]`: at least `least` groups, and enough items in it and beside it."""
    mask = draw(groups, share, seed, "validation", fold=fold, least=least)
    while min(mask.sum(), (~mask).sum()) < _LEAST_ITEMS:
        least += 1
        mask = draw(groups, share, seed, "validation", fold=fold, least=least)
    return mask


def _places(train: Split, rows: Array) -> int:
    """The number of items that every query of a validation split of these rows can find, or a little less."""
    groups = train.excluded_groups
    group_size = 1 if groups is None else int(np.unique(groups[rows].numpy(), return_counts=True)[1].max())
    return max(1, len(rows) - group_size - (_QUERIES if len(rows) > _MANY else 0))


def _unseen_classes(task: Task) -> Sequence[str] | None:
    """The class of each training item, if labels are classes and no class of the test split is among them."""
    assert task.test is not None  # else the task has a validation split
    if task.train.labels.class_ids is None or task.test.labels.class_ids is None:
        return None
    train, test = task.train.labels.digests(), task.test.labels.digests()
    if not set(test).isdisjoint(train):
        return None
    labels = task.train.labels
    # By the names of the classes, whatever identifies the items.
    return type(labels)(**labels.arguments()).digests() if isinstance(labels, ItemLabels) else train


#: What a split divides.
DivideBy: TypeAlias = Literal["item", "judgment"]

_J = TypeVar("_J", bound=JudgedItems)


def connected_items(labels: JudgedItems) -> Array:
    """The number of the connected set of each item `[N]`: judgments connect their items."""
    from scipy.sparse import coo_array  # here: it takes a while to import
    from scipy.sparse.csgraph import connected_components

    count, owner = len(labels), labels.judgment_of
    entries = (np.ones(len(owner), dtype=np.int8), (labels.members, count + owner))
    graph = coo_array(entries, shape=(count + labels.count,) * 2)
    numbers: Array = connected_components(graph, directed=False)[1][:count]
    return numbers


def divide(
    labels: _J, names: Sequence[str], share: float, by: DivideBy, seed: int, purpose: str, *, fold: int = 0
) -> tuple[_J, _J]:
    """Return the judgments of the part that is left and the judgments of the drawn part, both over all items.

    By item, no judgment of one part has an item of the other. Items that judgments connect are kept together. If more
    than half of all items are connected, the drawn part is taken from them: items that are near each other in the graph
    of judgments. Judgments between both parts are then left out.

    Args:
        labels: the judgments, a root.
        names: the name of each item.
        share: approximate share of the items, or of the judgments, that is drawn.
        by: "item": no item is in both parts; "judgment": an item may be.
        seed: another seed draws another part.
        purpose: what is drawn: "test", "validation".
        fold: as in `contml.data.draw.draw`.

    Raises:
        InputError: a part has no judgment.
    """
    keys = labels.judgment_names(names) if by == "judgment" else ()
    if labels.count < 2 or (by == "judgment" and len(set(keys)) < 2):
        raise InputError(f"{purpose} split by {by}", "one judgment to divide", "needs at least 2")
    if by == "judgment":
        drawn = draw(keys, share, seed, purpose, fold=fold)
        return labels.keep(~drawn), labels.keep(drawn)
    drawn = _drawn_items(labels, names, share, seed, purpose, fold)
    parts = labels.keep_items(~drawn), labels.keep_items(drawn)
    if not all(part.count for part in parts):
        counts = f"{parts[0].judged:,} and {parts[1].judged:,}"
        got = f"{counts} of {labels.judged:,} judgments are among the items of one part"
        hint = "draw a larger share, or divide by judgment: then an item may be in both parts"
        raise InputError(f"{purpose} split by item", got, "each part needs one", hint)
    return parts


def _drawn_items(labels: JudgedItems, names: Sequence[str], share: float, seed: int, purpose: str, fold: int) -> Array:
    """The items that are drawn, bool `[N]`."""
    numbers, used = connected_items(labels), labels.used
    drawn = np.zeros(len(labels), dtype=bool)
    sizes = np.bincount(numbers[used])
    largest = int(sizes.argmax())
    together = (numbers == largest) & used if 2 * sizes[largest] > used.sum() else np.zeros(len(labels), dtype=bool)
    rows = np.flatnonzero(used & ~together)
    order = np.argsort(np.asarray(names, dtype=object)[rows], kind="stable")
    first: dict[int, str] = {}
    for row in rows[order].tolist():
        first.setdefault(int(numbers[row]), names[row])
    keys = [first[int(numbers[row])] for row in rows]
    if len(set(keys)) >= 2:
        drawn[rows] = draw(keys, share, seed, purpose, fold=fold)
    if together.any():
        near = _by_nearness(labels, np.flatnonzero(together), names, seed, purpose)
        start, stop = (round((fold + n) * share * len(near)) for n in (0, 1))
        drawn[near[start : max(stop, start + 1)]] = True
    return drawn


def _by_nearness(labels: JudgedItems, rows: Array, names: Sequence[str], seed: int, purpose: str) -> Array:
    """Connected items in breadth-first order from a drawn one: items that judgments connect are near each other."""
    from scipy.sparse import coo_array  # here: it takes a while to import
    from scipy.sparse.csgraph import breadth_first_order

    count, owner = len(labels), labels.judgment_of
    entries = (np.ones(len(owner), dtype=np.int8), (labels.members, count + owner))
    graph = coo_array(entries, shape=(count + labels.count,) * 2).tocsr()
    start = int(rows[positions([names[row] for row in rows], seed, purpose).argmin()])
    order = breadth_first_order(graph, start, directed=False, return_predecessors=False)
    found: Array = order[order < count]
    return found


def with_judgments(split: Split, labels: JudgedItems, left_out: int = 0) -> Split:
    """The split with other judgments over its items, of the items in one of them.

    Args:
        split: the split.
        labels: judgments of all items of the split.
        left_out: number of judgments that are in no part, since their items are divided between the parts.
    """
    part = replace(split, labels=labels).subset(labels.used)
    assert isinstance(part.labels, JudgedItems)
    part.labels.left_out += left_out
    return part
