"""Label spaces of sets: tags, and several labels at once as 0 / 1."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.labels import hamming_distance, jaccard_distance, tag_distance
from contml.labels.base import LabelSpace


class TagLabels(LabelSpace):
    """Sets of tags; the label distance is Jaccard's, 1 - |A & B| / |A | B|, in [0, 1]; two items without tags are at 0.

    Args:
        tags: for each item its tags, strings or other hashable things, in any order; one named twice counts once.
    """

    unit = "Jaccard distance of tags"
    ids: Tensor

    def __init__(self, tags: Sequence[Iterable[Hashable]]) -> None:
        number: dict[Hashable, int] = {}
        packed = []
        for item, some in enumerate(tags):
            if isinstance(some, str | bytes) or not isinstance(some, Iterable):
                raise InputError(f"the tags of item {item} are {some!r}; give a list or a set of tags")
            try:
                packed.append([number.setdefault(tag, len(number)) for tag in dict.fromkeys(some)])
            except TypeError as error:
                raise InputError(f"a tag of item {item} cannot be one ({error}); give strings or numbers") from None
        super().__init__(ids=padded(packed))

    def distances(self, x: Self, y: Self) -> Tensor:
        """Jaccard distances, `[X, Y]`."""
        return tag_distance(x.ids, y.ids)


class MultiHotLabels(LabelSpace):
    """Several labels at once as 0 / 1: attributes that an item has or has not.

    Args:
        labels: `[N, L]` of 0 and 1.
        distance: "jaccard", 1 - |A & B| / |A | B|, which only looks at what items have (two that have nothing are at
            0); or "hamming", the share of the L entries that differ.
    """

    labels: Tensor

    def __init__(
        self,
        labels: Tensor | np.ndarray[Any, Any] | Sequence[Any],
        distance: Literal["jaccard", "hamming"] = "jaccard",
    ) -> None:
        if distance not in ("jaccard", "hamming"):
            raise InputError(f"distance is {distance!r}; it must be jaccard or hamming")
        try:
            given = np.asarray(labels, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise InputError(f"labels are no numbers [items, labels] ({error})") from None
        if given.ndim != 2 or given.size == 0:
            raise InputError(f"labels are {list(given.shape)}; give 0 and 1 of [items, labels]")
        bad = np.argwhere((given != 0) & (given != 1))
        if len(bad):
            item, label = bad[0]
            raise InputError(f"label {label} of item {item} is {given[item, label]:g}; it must be 0 or 1")
        super().__init__(labels=torch.from_numpy(given.astype(np.uint8)))
        self.distance = distance
        self.unit = "Jaccard distance of labels" if distance == "jaccard" else "share of labels that differ"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Jaccard distances or Hamming shares, `[X, Y]`."""
        return (jaccard_distance if self.distance == "jaccard" else hamming_distance)(x.labels, y.labels)


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Ids `[N, L]` of sequences of different lengths, filled up with -1 at their ends."""
    out = np.full((len(sequences), max(map(len, sequences), default=0)), -1, dtype=np.int32)
    for row, ids in zip(out, sequences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(out)
