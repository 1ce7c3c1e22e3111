"""The label space of sequences of tokens."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor

from contml._support.errors import InputError
from contml.distances.labels import edit_distance
from contml.labels.base import LabelSpace
from contml.labels.sets import as_token, known_tokens, token_ids

#: RapidFuzz reads tokens as characters; this is the number of Unicode characters.
_MAX_TOKENS = 0x110000


class SequenceLabels(LabelSpace):
    """Sequences of tokens, such as words, notes or moves; the label distance is a normalised edit distance.

    The Levenshtein distance divided by the length of the longer sequence, in [0, 1]; 0 for two empty sequences.

    Args:
        sequences: for each item a list of tokens (strings, numbers), or a string, whose tokens are its characters in
            Unicode's form NFC.
    """

    unit = "edits a token"
    title = "sequence"
    item_arguments: ClassVar[Mapping[str, Any]] = {"sequences": list}
    typed_as = "text"
    ids: Tensor

    def __init__(self, sequences: Sequence[Sequence[Hashable]]) -> None:
        ids, self._tokens = token_ids("tokens", sequences, str)
        if (num_tokens := int(ids.max()) + 1 if ids.numel() else 0) > _MAX_TOKENS:
            raise InputError("tokens", f"{num_tokens:,} different tokens", f"must be at most {_MAX_TOKENS:,}")
        super().__init__(ids=ids)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Normalised edit distances, `[X, Y]`."""
        return edit_distance(x.ids, y.ids)

    def arguments(self) -> dict[str, Any]:
        """The tokens of each item: integers or texts."""
        return {"sequences": [[*map(as_token, self.tokens(row))] for row in range(len(self))]}

    def parse(self, text: str) -> list[Hashable]:
        """The tokens of a text: its words; its characters, where each token of the items is a character."""
        characters = all(isinstance(token, str) and len(token) == 1 for token in self._tokens)
        words = list(text.strip()) if characters and " " not in text.strip() else text.split()
        return known_tokens(self.title, words, self._tokens)

    def _item_contents(self) -> list[bytes]:
        return [repr(self.tokens(row)).encode() for row in range(len(self))]

    def text(self, row: int) -> str:
        """The tokens of an item."""
        return super().text(row) or " ".join(map(str, self.tokens(row))) or "none"

    def tokens(self, row: int) -> list[Hashable]:
        """The tokens of an item."""
        return [self._tokens[n] for n in self.ids[row].tolist() if n >= 0]
