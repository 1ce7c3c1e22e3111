"""Label spaces of sets: tags, and multi-hot vectors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import check_choice
from contml.distances.labels import hamming_distance, jaccard_distance, tag_distance
from contml.labels.base import LabelSpace, as_numbers


class TagLabels(LabelSpace):
    """Sets of tags; the label distance is Jaccard's, 1 - |A & B| / |A | B|, in [0, 1]; 0 for two items without tags.

    Args:
        tags: the tags of each item, strings or other hashable values, in any order; a tag that appears twice counts
            once.
    """

    unit = "Jaccard distance of tags"
    ids: Tensor

    def __init__(self, tags: Sequence[Iterable[Hashable]]) -> None:
        for item, item_tags in enumerate(tags):
            if isinstance(item_tags, str | bytes) or not isinstance(item_tags, Iterable):
                raise InputError(f"tags of item {item}", repr(item_tags), "must be a list or a set of tags")
        ids, self._tokens = token_ids("tags", tags, unique=True)
        super().__init__(ids=ids)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Jaccard distances, `[X, Y]`."""
        return tag_distance(x.ids, y.ids)

    def _item_contents(self) -> list[bytes]:
        return [repr(sorted(map(repr, self.tags(row)))).encode() for row in range(len(self))]

    def tags(self, row: int) -> list[Hashable]:
        """The tags of an item."""
        return [self._tokens[n] for n in self.ids[row].tolist() if n >= 0]


class MultiHotLabels(LabelSpace):
    """Multi-hot labels: 0 or 1 for each attribute that an item may have.

    Args:
        labels: `[N, L]` of 0 and 1.
        distance: "jaccard", 1 - |A & B| / |A | B|, of the attributes that items have (0 if both have none); or
            "hamming", the share of the L entries that differ.
    """

    labels: Tensor

    def __init__(
        self,
        labels: Tensor | np.ndarray[Any, Any] | Sequence[Any],
        distance: Literal["jaccard", "hamming"] = "jaccard",
    ) -> None:
        check_choice(("jaccard", "hamming"), distance=distance)
        values = as_numbers("labels", labels, "0 and 1 of [items, labels]")
        if values.ndim != 2 or values.size == 0:
            raise InputError("labels", str(list(values.shape)), "must be 0 and 1 of [items, labels]")
        invalid = np.argwhere((values != 0) & (values != 1))
        if len(invalid):
            item, label = invalid[0]
            raise InputError(f"label {label} of item {item}", f"{values[item, label]:g}", "must be 0 or 1")
        super().__init__(labels=torch.from_numpy(values.astype(np.uint8)))
        self.distance = distance
        self.unit = "Jaccard distance of labels" if distance == "jaccard" else "share of labels that differ"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Jaccard distances or Hamming shares, `[X, Y]`."""
        return (jaccard_distance if self.distance == "jaccard" else hamming_distance)(x.labels, y.labels)


def token_ids(name: str, items: Sequence[Iterable[Hashable]], unique: bool = False) -> tuple[Tensor, list[Any]]:
    """The tokens of each item as numbers `[N, L]`, padded with -1 at the ends, and the tokens that they number.

    `unique`: without repeated tokens.

    Raises:
        InputError: a token is not hashable.
    """
    id_of: dict[Hashable, int] = {}
    sequences = []
    for item, tokens in enumerate(items):
        try:
            tokens = dict.fromkeys(tokens) if unique else tokens
            sequences.append([id_of.setdefault(token, len(id_of)) for token in tokens])
        except TypeError as error:
            raise InputError(f"{name} of item {item}", str(error), "must be strings or numbers") from None
    ids = np.full((len(sequences), max(map(len, sequences), default=0)), -1, dtype=np.int32)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids), [*id_of]
