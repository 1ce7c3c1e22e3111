"""Batch samplers: pure functions of (seed, epoch, step), so that a run resumes on the very next batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from contml._support.errors import InputError
from contml._support.options import options_of
from contml._support.progress import progress_bar
from contml._support.validation import check_at_least
from contml.labels.base import LabelSpace

#: Streams of random numbers, so that an epoch's order and a batch's fill never share one.
_ORDER, _FILL = 1, 2


class BatchSampler:
    """Base of the samplers: iterating yields the batches from the state `(epoch, step)` on, one epoch at most."""

    anchors: int | None = None

    def __init__(self, items: int, batch_size: int, seed: int) -> None:
        if batch_size < 2:
            raise InputError(f"batch_size is {batch_size}; a batch compares items, so it needs at least 2")
        if batch_size > items:
            raise InputError(f"batch_size is {batch_size}, but the data set has {items} items; it can be at most that")
        self.items, self.batch_size, self.seed = items, batch_size, seed
        self.epoch, self.step = 0, 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} batches per epoch, {self.items:,} items, {options_of(self)})"

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        while self.step < len(self):
            rows = self.batch(self.epoch, self.step)
            self.step += 1
            yield rows
        self.epoch, self.step = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Where it stands: the next batch's epoch and step, and the seed."""
        return {"seed": self.seed, "epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from `state_dict`."""
        self.seed, self.epoch, self.step = state["seed"], state["epoch"], state["step"]

    def _random(self, stream: int, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream, *key])


class UniformSampler(BatchSampler):
    """Every item once an epoch, in random order; an incomplete last batch is left out.

    Args:
        batch_size: items a batch.
        batches: batches an epoch; default every item once.
    """

    def __init__(self, batch_size: int = 150, batches: int | None = None, *, labels: LabelSpace, seed: int = 0) -> None:
        super().__init__(len(labels), batch_size, seed)
        self.batches = _optional(batches)

    def __len__(self) -> int:
        return self.batches or self.items // self.batch_size

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch."""
        # Further batches than the items fill go on with another order.
        turn, part = divmod(step, self.items // self.batch_size)
        order = self._random(_ORDER, epoch, turn).permutation(self.items)
        rows: list[int] = order[part * self.batch_size : (part + 1) * self.batch_size].tolist()
        return rows


class DenseSampler(BatchSampler):
    """Anchors, the k nearest of each by label distance, and a uniform rest without replacement.

    The paper has one anchor a batch and 5 neighbours: every item is the anchor once an epoch, so that an epoch is as
    many images as the batch size times the data set. 25 anchors fill a batch of 150 with groups of 6. Neighbours come
    from the exact k nearest of the whole data set, found once.

    Args:
        batch_size: items a batch.
        anchors_per_batch: how many anchors, at the head of the batch.
        neighbours: how many nearest by label distance each anchor brings along.
        all_anchors: let every row of the batch be an anchor for the loss, not only those that brought neighbours.
        batches: batches an epoch; default every item once an anchor.
        cache: a folder that keeps the neighbours, for the next run on these labels; none: found anew.
    """

    def __init__(
        self,
        batch_size: int = 150,
        anchors_per_batch: int = 1,
        neighbours: int = 5,
        all_anchors: bool = False,
        batches: int | None = None,
        cache: Path | None = None,
        *,
        labels: LabelSpace,
        seed: int = 0,
        quiet: bool = True,
    ) -> None:
        super().__init__(len(labels), batch_size, seed)
        check_at_least(1, anchors_per_batch=anchors_per_batch, neighbours=neighbours)
        grouped = anchors_per_batch * (1 + neighbours)
        if grouped > batch_size:
            raise InputError(
                f"{anchors_per_batch} anchors with {neighbours} neighbours each are {grouped} items, "
                f"more than batch_size {batch_size}; take fewer or a larger batch"
            )
        self.anchors = None if all_anchors else anchors_per_batch
        self.anchors_per_batch = anchors_per_batch
        self.batches = _optional(batches)
        with nullcontext() if quiet else progress_bar(len(labels)) as progress:
            found = labels.nearest(neighbours, progress=progress, cache=cache)
        self.neighbours = found.rows.cpu().numpy()  # [N,k]

    def __len__(self) -> int:
        return self.batches or -(-self.items // self.anchors_per_batch)

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch: anchors first, then their neighbours, then the rest."""
        a = self.anchors_per_batch
        turn, part = divmod(step, -(-self.items // a))
        order = self._random(_ORDER, epoch, turn).permutation(self.items)
        anchors = order[part * a : (part + 1) * a]
        if len(anchors) < a:  # the last batch of a turn is filled from its start
            anchors = np.concatenate((anchors, order[: a - len(anchors)]))
        # dict keeps the first of each row in order: a neighbour may be an anchor, or be shared by two.
        rows = dict.fromkeys(anchors.tolist())
        rows.update(dict.fromkeys(self.neighbours[anchors].ravel().tolist()))
        missing = self.batch_size - len(rows)
        # As many again as are in the batch already are enough, whatever is drawn twice.
        candidates = self._random(_FILL, epoch, step).choice(self.items, self.batch_size, replace=False)
        rest = [row for row in candidates.tolist() if row not in rows][:missing]
        return [*rows, *rest]


class ClassSampler(BatchSampler):
    """Classes x instances: a batch is `instances` random items of each of several random classes.

    Classes come in random order, each once before any comes again (save for those that do not fill a batch). A class
    with fewer items than `instances` gives some of them twice.

    Args:
        classes: classes a batch.
        instances: items a class.
        batches: batches an epoch; default as many as the data set fills.
    """

    def __init__(
        self, classes: int = 30, instances: int = 5, batches: int | None = None, *, labels: LabelSpace, seed: int = 0
    ) -> None:
        check_at_least(1, classes=classes, instances=instances)
        super().__init__(len(labels), classes * instances, seed)
        ids = labels.class_ids
        if ids is None:
            raise InputError(
                "the sampler takes classes x instances, but the labels are no classes; "
                "use ClassLabels, or the dense or the uniform sampler"
            )
        self.members = [np.flatnonzero(ids.cpu().numpy() == c) for c in range(int(ids.max()) + 1)]
        self.members = [rows for rows in self.members if len(rows)]
        if classes > len(self.members):
            raise InputError(f"classes is {classes}, but the data set has {len(self.members)} classes")
        self.classes, self.instances = classes, instances
        self.batches = _optional(batches)

    def __len__(self) -> int:
        return self.batches or self.items // self.batch_size

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch, class by class."""
        turn, part = divmod(step, len(self.members) // self.classes)
        order = self._random(_ORDER, epoch, turn).permutation(len(self.members))
        random = self._random(_FILL, epoch, step)
        rows: list[int] = []
        for c in order[part * self.classes : (part + 1) * self.classes]:
            members = self.members[c]
            rows += random.choice(members, self.instances, replace=len(members) < self.instances).tolist()
        return rows


def _optional(batches: int | None) -> int | None:
    if batches is not None:
        check_at_least(1, batches=batches)
    return batches


#: Every sampler by its name in a config.
SAMPLERS = {"dense": DenseSampler, "uniform": UniformSampler, "classes": ClassSampler}
