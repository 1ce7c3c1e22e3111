"""The label space of sequences of tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Self

from torch import Tensor

from contml._support.errors import InputError
from contml.distances.labels import edit_distance
from contml.labels.base import LabelSpace
from contml.labels.sets import padded

#: RapidFuzz reads tokens as characters, of which Unicode has this many.
_TOKENS = 0x110000


class SequenceLabels(LabelSpace):
    """Sequences of tokens, as words read, notes played, moves made; the label distance is a normalised edit distance.

    Levenshtein's distance over the length of the longer one, in [0, 1]; two empty sequences are at 0.

    Args:
        sequences: for each item a list of tokens (strings, numbers), or a string, whose tokens are its characters.
    """

    unit = "edits a token"
    ids: Tensor

    def __init__(self, sequences: Sequence[Sequence[Hashable]]) -> None:
        number: dict[Hashable, int] = {}
        packed = []
        for item, sequence in enumerate(sequences):
            if not isinstance(sequence, Sequence):
                raise InputError(f"item {item} is {sequence!r}; give a list of tokens or a string")
            try:
                packed.append([number.setdefault(token, len(number)) for token in sequence])
            except TypeError as error:
                raise InputError(f"a token of item {item} cannot be one ({error}); give strings or numbers") from None
        if len(number) > _TOKENS:
            raise InputError(f"there are {len(number):,} different tokens; at most {_TOKENS:,} can be told apart")
        super().__init__(ids=padded(packed))

    def distances(self, x: Self, y: Self) -> Tensor:
        """Normalised edit distances, `[X, Y]`."""
        return edit_distance(x.ids, y.ids)
