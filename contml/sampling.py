"""Batch samplers: pure functions of (seed, epoch, step), so that a run resumes with exactly the next batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.text import options_of
from contml._support.validation import PositiveInt, Range, check_ranges
from contml.contracts import Judgments
from contml.labels.base import LabelSpace
from contml.labels.neighbours import search_neighbours

__all__ = ["SAMPLERS", "BatchSampler", "ClassSampler", "DenseSampler", "JudgedSampler", "TripletSampler"]
__all__ += ["UniformSampler"]

#: Separate streams of random numbers for the order of an epoch, for filling a batch, and for dividing groups of items.
_ORDER, _FILL, _DIVIDE = 1, 2, 3

#: A batch compares items.
_BatchSize: TypeAlias = Annotated[int, Range(2, whole=True)]
#: One-dimensional.
_Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class BatchSampler:
    """Base of the samplers: iterating yields the remaining batches of the epoch, starting at `(epoch, step)`.

    A sampler fits `torch.utils.data.DataLoader(dataset, batch_sampler=sampler)`. Worker processes of a loader take
    batches in advance, so `state_dict` is then ahead of the training.
    """

    anchors: int | None = None

    def __init__(self, items: int, batch_size: int, seed: int, factors: str = "batch_size") -> None:
        # Errors name the options whose product is the batch size.
        if batch_size < 2:
            raise InputError(factors, str(batch_size), "must be at least 2", "a batch compares items")
        if batch_size > items:
            raise InputError(factors, str(batch_size), f"must be at most {items}, the number of items")
        self.items, self.batch_size, self.seed = items, batch_size, seed
        self.epoch, self.step = 0, 0
        self._permuted: tuple[tuple[int, ...], _Integers] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} batches per epoch, {self.items:,} items, {options_of(self)})"

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        is_last = False
        while not is_last:
            rows = self.batch(self.epoch, self.step)
            is_last = self.step + 1 == len(self)
            # The position changes before `yield`: Lightning takes `len` batches, and does not ask for another one.
            self.epoch, self.step = (self.epoch + 1, 0) if is_last else (self.epoch, self.step + 1)
            yield rows

    @property
    def sampler(self) -> Self:
        """The sampler itself, because Lightning calls `batch_sampler.sampler.set_epoch` of a loader."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Continue with the first batch of an epoch. Lightning and accelerate call it, also after a resume."""
        self.epoch, self.step = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and step of the next batch, and the seed."""
        return {"seed": self.seed, "epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the state of `state_dict`."""
        epochs, self.step = divmod(state["step"], len(self))  # after the last step of an epoch comes the next epoch
        self.seed, self.epoch = state["seed"], state["epoch"] + epochs

    def _random(self, stream: int, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream, *key])

    def _filled(self, rows: Collection[int], epoch: int, step: int) -> list[int]:
        """Return different rows, filled to a whole batch with random other rows."""
        # batch_size candidates are always enough, even if all rows of the batch are among them.
        candidates = self._random(_FILL, epoch, step).choice(self.items, self.batch_size, replace=False)
        used = set(rows)
        return [*rows, *[row for row in candidates.tolist() if row not in used][: self.batch_size - len(rows)]]

    def _order(self, epoch: int, pass_number: int, count: int) -> _Integers:
        """Return the numbers below `count` in the random order of a pass.

        The last order is kept: most batches share it.
        """
        key = (self.seed, epoch, pass_number, count)
        cached = self._permuted
        if cached is None or cached[0] != key:
            cached = self._permuted = key, self._random(_ORDER, epoch, pass_number).permutation(count)
        return cached[1]


class UniformSampler(BatchSampler):
    """Every item once per epoch, in random order; an incomplete last batch is omitted.

    Args:
        batch_size: items per batch.
        batches: batches per epoch; default every item once.
    """

    @check_ranges
    def __init__(
        self, batch_size: _BatchSize = 150, batches: PositiveInt | None = None, *, labels: LabelSpace, seed: int = 0
    ) -> None:
        super().__init__(len(labels), batch_size, seed)
        self.batches = batches

    def __len__(self) -> int:
        return self.batches or self.items // self.batch_size

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch."""
        # If `batches` exceeds one pass over the items, the next pass has a new order.
        pass_number, batch_number = divmod(step, self.items // self.batch_size)
        order = self._order(epoch, pass_number, self.items)
        return order[batch_number * self.batch_size : (batch_number + 1) * self.batch_size].tolist()


class DenseSampler(BatchSampler):
    """Anchors, the k nearest items of each by label distance, and random other items without replacement.

    The paper has one anchor per batch and 5 neighbours. Every item is the anchor once per epoch, so the number of
    images in an epoch is the batch size times the number of items. A batch of 150 can hold 25 anchors with 5 neighbours
    each. Neighbours are the exact k nearest in the whole data set, computed once. If some pairs have no label distance,
    an item may have fewer neighbours. For judged pairs, use the sampler "judged": few random items of a batch are
    judged.

    Args:
        batch_size: items per batch.
        anchors_per_batch: the number of anchors, which are the first items of the batch.
        neighbours: the number of nearest items by label distance that are added for each anchor.
        all_anchors: use every item of the batch as an anchor of the loss, not only the first ones.
        batches: batches per epoch; default every item is an anchor once.
        cache: a folder that keeps the neighbours for later runs on these labels; None: they are computed in each run.
    """

    @check_ranges
    def __init__(
        self,
        batch_size: _BatchSize = 150,
        anchors_per_batch: PositiveInt = 1,
        neighbours: PositiveInt = 5,
        all_anchors: bool = False,
        batches: PositiveInt | None = None,
        cache: Path | None = None,
        *,
        labels: LabelSpace,
        seed: int = 0,
        quiet: bool = True,
    ) -> None:
        super().__init__(len(labels), batch_size, seed)
        min_size = anchors_per_batch * (1 + neighbours)
        if min_size > batch_size:
            allowed = f"must be at least {min_size}, for {anchors_per_batch} anchors with {neighbours} neighbours each"
            raise InputError("batch_size", str(batch_size), allowed)
        self.anchors = None if all_anchors else anchors_per_batch
        self.anchors_per_batch = anchors_per_batch
        self.batches = batches
        self.neighbours = search_neighbours(labels, neighbours, cache, quiet).cpu().numpy()  # [N,k]

    def __len__(self) -> int:
        return self.batches or -(-self.items // self.anchors_per_batch)

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch: anchors first, then their neighbours, then the rest."""
        count = self.anchors_per_batch
        pass_number, batch_number = divmod(step, -(-self.items // count))
        order = self._order(epoch, pass_number, self.items)
        anchors = order[batch_number * count : (batch_number + 1) * count]
        if len(anchors) < count:  # the last batch of a pass is filled from its start
            anchors = np.concatenate((anchors, order[: count - len(anchors)]))
        # A dict keeps each row once, in order: a neighbour may be an anchor, or a neighbour of two.
        rows = dict.fromkeys(anchors.tolist())
        nearest = self.neighbours[anchors].ravel()
        rows.update(dict.fromkeys(nearest[nearest >= 0].tolist()))
        return self._filled(rows, epoch, step)


class JudgedSampler(BatchSampler):
    """Items that were judged together, in pairs, triplets or rankings: each with the items it was judged with.

    Two random items usually have no judged distance. So a batch holds random items, each with all items that it was
    judged with, if they fit. Each judged pair is then in a batch about equally often. The rest of a batch is random
    other items, judged or not. Triplets that share an item are drawn together, up to a quarter of a batch. A batch then
    holds more triplets than if they were drawn one by one, and not all of its triplets share one item.

    Args:
        batch_size: items per batch.
        batches: batches per epoch; default as many as hold each judgment about once or twice.
    """

    @check_ranges
    def __init__(
        self, batch_size: _BatchSize = 150, batches: PositiveInt | None = None, *, labels: Any, seed: int = 0
    ) -> None:
        if not isinstance(labels, Judgments):
            hint = "use the dense or the uniform sampler"
            raise InputError("JudgedSampler", f"a {type(labels).__name__}", "needs judged pairs or triplets", hint)
        super().__init__(len(labels), batch_size, seed)
        groups = labels.judged_together()
        if len(groups.starts) < 2:
            raise InputError("JudgedSampler", f"no judgment of {len(labels):,} items", "needs at least one")
        self.rows, self.starts = groups.rows.cpu().numpy(), groups.starts.cpu().numpy()
        self.whole, self.batches = groups.whole, batches
        self.judged_items = len(np.unique(self.rows))
        sizes = np.diff(self.starts)
        if self.whole and len(sizes) and batch_size < (largest := int(sizes.max())):
            raise InputError("batch_size", str(batch_size), f"must be at least {largest}, the items judged together")
        # For each group, the item that is in the most groups.
        often, owner = np.bincount(self.rows)[self.rows], np.repeat(np.arange(len(sizes)), sizes)
        self.shared = self.rows[np.lexsort((-often, owner))[self.starts[:-1]]]  # [G]
        self._planned: tuple[tuple[int, int], list[list[int]], Iterator[list[int]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_planned": None}  # a copy, as in a worker process, plans again

    def __len__(self) -> int:
        one_pass = -(-len(self.rows) // self.batch_size)
        if self.batches is not None or self.whole:
            return self.batches or one_pass
        # Where most pairs were judged, a batch of random items holds many of them.
        return min(one_pass, math.ceil((self.judged_items / self.batch_size) ** 2))

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch: groups one after another, then other items."""
        key = (self.seed, epoch)
        if self._planned is None or self._planned[0] != key:  # kept: all batches of an epoch share it
            self._planned = key, [], self._plan(epoch)
        _, planned, plan = self._planned
        planned.extend(islice(plan, max(0, step + 1 - len(planned))))
        return self._filled(planned[step], epoch, step)

    def _plan(self, epoch: int) -> Iterator[list[int]]:
        """Yield the judged rows of each batch of an epoch, without end: the groups in random order, as many as fit."""
        for pass_number in count():
            rows: dict[int, None] = {}  # of the current batch, in order
            random = self._random(_DIVIDE, epoch, pass_number)
            for group in self._group_order(epoch, pass_number).tolist():
                head, *others = self.rows[self.starts[group] : self.starts[group + 1]].tolist()
                if not self.whole:
                    random.shuffle(others)
                while others:
                    fitting = self._fitting(rows, head, others)
                    rows.update(dict.fromkeys([head, *others[:fitting]] if fitting else []))
                    others = others[fitting:]
                    if others:
                        yield list(rows)
                        rows = {}
            if rows:
                yield list(rows)

    def _group_order(self, epoch: int, pass_number: int) -> _Integers:
        """Return the groups in random order.

        Whole groups that share an item follow each other, up to a limit.
        """
        order = self._order(epoch, pass_number, len(self.starts) - 1)
        if not self.whole:
            return order
        order = order[np.argsort(self.shared[order], kind="stable")]
        shared = self.shared[order]
        is_first = np.concatenate(([True], shared[1:] != shared[:-1]))
        # The place of each among the judgments of its item.
        place = np.arange(len(order)) - np.flatnonzero(is_first)[is_first.cumsum() - 1]
        size = max(1, self.batch_size // 4 // max(1, int(np.diff(self.starts).max()) - 1))  # groups of a run
        run = (is_first | (place % size == 0)).cumsum() - 1
        runs = self._random(_DIVIDE, epoch, pass_number).permutation(run[-1] + 1)
        return order[np.argsort(runs[run], kind="stable")]

    def _fitting(self, rows: Collection[int], head: int, others: list[int]) -> int:
        """Return the number of `others` that fit, with `head`, into a batch that has these rows.

        For whole groups, the result is all or none. Otherwise it is the number of first `others` that fit.
        """
        room = self.batch_size - len(rows) - (head not in rows)
        if self.whole:
            return len(others) * (sum(row not in rows for row in others) <= room)
        is_new = np.cumsum([row not in rows for row in others[: self.batch_size + 1]])  # more cannot fit
        count = int(np.searchsorted(is_new, room, side="right")) if room >= 0 else 0
        # A part of a group has at least three items, so that two of them can be compared with the head.
        fits = count == len(others) or count >= 2 or not rows
        return count if fits else 0


class ClassSampler(BatchSampler):
    """Classes x instances: a batch has `instances` random items of each of `classes` random classes.

    Classes are in random order. Each is used once before any is used again, except for the last ones, which may not
    fill a batch. If a class has fewer than `instances` items, items appear twice.

    Args:
        classes: classes per batch.
        instances: items per class.
        batches: batches per epoch; default as many as the data set fills.
    """

    @check_ranges
    def __init__(
        self,
        classes: PositiveInt = 30,
        instances: PositiveInt = 5,
        batches: PositiveInt | None = None,
        *,
        labels: LabelSpace,
        seed: int = 0,
    ) -> None:
        by_class, starts = _rows_by_class("ClassSampler", labels)
        self.members = np.split(by_class, starts[1:-1])  # the rows of each class, ascending
        if classes > len(self.members):
            raise InputError("classes", str(classes), f"must be at most {len(self.members)}, the number of classes")
        super().__init__(len(labels), classes * instances, seed, "classes x instances")
        self.classes, self.instances = classes, instances
        self.batches = batches

    def __len__(self) -> int:
        return self.batches or self.items // self.batch_size

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch, class by class."""
        pass_number, batch_number = divmod(step, len(self.members) // self.classes)
        order = self._order(epoch, pass_number, len(self.members))
        generator = self._random(_FILL, epoch, step)
        rows: list[int] = []
        for c in order[batch_number * self.classes : (batch_number + 1) * self.classes]:
            members = self.members[c]
            rows += generator.choice(members, self.instances, replace=len(members) < self.instances).tolist()
        return rows


class TripletSampler(BatchSampler):
    """Triplets of an anchor, another item of its class as the positive, and an item of another class as the negative.

    A batch of T triplets has 3 T items: the T anchors, then their positives, then their negatives, in the same order.
    The loss triplet_margin with triplets="batch" compares these T triplets and no others. The classes of the anchors
    are chosen as in the sampler "classes": each class is used once before any is used again, except for the last ones.
    If there are fewer than T classes, each has several triplets in a batch. Negatives are drawn from all items of other
    classes. An item appears twice, or a class has two negatives of one class, only if too few are left.

    Args:
        triplets: triplets per batch; 40 in HDML.
        batches: batches per epoch; default as many as the data set fills.
    """

    @check_ranges
    def __init__(
        self, triplets: PositiveInt = 40, batches: PositiveInt | None = None, *, labels: LabelSpace, seed: int = 0
    ) -> None:
        super().__init__(len(labels), 3 * triplets, seed, "3 x triplets")
        self.by_class, self.starts = _rows_by_class("TripletSampler", labels)
        sizes = np.diff(self.starts)
        self.paired = np.flatnonzero(sizes >= 2)  # the classes that can have anchors
        if len(sizes) < 2 or not len(self.paired):
            got = f"classes: {len(sizes)}, with two items: {len(self.paired)}"
            raise InputError("TripletSampler", got, "needs two classes, one of them with two items")
        self.class_of = np.empty(self.items, dtype=np.int64)
        self.class_of[self.by_class] = np.repeat(np.arange(len(sizes)), sizes)
        self.anchors = self.triplets = triplets
        self.batches = batches

    def __len__(self) -> int:
        return self.batches or self.items // self.batch_size

    def batch(self, epoch: int, step: int) -> list[int]:
        """Return the rows of one batch: anchors, positives, negatives."""
        pass_number, batch_number = divmod(step, max(1, len(self.paired) // self.triplets))
        order = self._order(epoch, pass_number, len(self.paired))[batch_number * self.triplets :][: self.triplets]
        classes = self.paired[np.resize(order, self.triplets)].tolist()  # repeats them if there are fewer
        generator = self._random(_FILL, epoch, step)
        pairs = {c: iter(self._pairs(generator, c, count)) for c, count in Counter(classes).items()}
        anchors, positives = zip(*(next(pairs[c]) for c in classes), strict=True)
        rows: list[int] = [*anchors, *positives]
        return rows + self._negatives(generator, classes, set(rows))

    def _pairs(self, generator: np.random.Generator, c: int, count: int) -> list[list[int]]:
        """Draw random pairs of items of a class. No item is in two pairs while there are others."""
        start, end = self.starts[c], self.starts[c + 1]
        members = generator.choice(self.by_class[start:end], min(end - start, 2 * count), replace=False)
        return np.resize(members, (count, 2)).tolist()

    def _negatives(self, generator: np.random.Generator, classes: list[int], used: set[int]) -> list[int]:
        """Draw a random item of another class for each class.

        Rows in `used` are not drawn. A class gets no two negatives of one class.
        """
        rows: list[int] = []
        class_pairs: set[tuple[int, int]] = set()  # classes of anchor and negative
        for c in classes:
            # Numbers of the items of other classes, without a list of them. As many as the batch has items include an
            # unused one, if there is any.
            start, size = self.starts[c], self.starts[c + 1] - self.starts[c]
            other_items = generator.choice(self.items - size, min(self.items - size, self.batch_size), replace=False)
            candidates: list[int] = self.by_class[other_items + size * (other_items >= start)].tolist()
            unused = [row for row in candidates if row not in used] or candidates
            row = next((row for row in unused if (c, self.class_of[row]) not in class_pairs), unused[0])
            rows.append(row)
            used.add(row)
            class_pairs.add((c, self.class_of[row]))
        return rows


def _rows_by_class(sampler: str, labels: LabelSpace) -> tuple[_Integers, _Integers]:
    """Return the rows of the classes, one class after the other, each ascending `[N]`.

    Also return the start of each class, and N at the end, `[C + 1]`.
    """
    ids = labels.class_ids
    if ids is None:
        hint = "use ClassLabels, or the dense or the uniform sampler"
        raise InputError(sampler, f"{labels.kind} labels", "needs classes", hint)
    ids = ids.long()  # torch cannot sort uint16, uint32 and uint64
    sizes = torch.unique(ids, return_counts=True)[1].cpu().numpy()
    return ids.argsort(stable=True).cpu().numpy(), np.concatenate(([0], sizes.cumsum()))


def fitting_options(options: Mapping[str, Any], labels: LabelSpace) -> dict[str, Any]:
    """Return the options of a sampler, with batches that these items can fill.

    Args:
        options: the options of a sampler of this module, by name.
        labels: the labels of the items.
    """
    items, fitting = len(labels), dict(options)
    if "batch_size" in options:
        fitting["batch_size"] = min(options["batch_size"], items)
    if "anchors_per_batch" in options:
        fitting["neighbours"] = max(1, min(options["neighbours"], items - 1))
        with_neighbours = 1 + fitting["neighbours"]
        fitting["anchors_per_batch"] = max(
            1, min(options["anchors_per_batch"], fitting["batch_size"] // with_neighbours)
        )
    if "classes" in options and labels.class_ids is not None:
        fitting["classes"] = min(options["classes"], len(torch.unique(labels.class_ids.long())))
        fitting["instances"] = max(1, min(options["instances"], items // fitting["classes"]))
    if "triplets" in options:
        fitting["triplets"] = max(1, min(options["triplets"], items // 3))
    return fitting


#: Every sampler by its name in a config.
SAMPLERS = {
    "dense": DenseSampler,
    "uniform": UniformSampler,
    "classes": ClassSampler,
    "triplets": TripletSampler,
    "judged": JudgedSampler,
}
