"""Label spaces of sets, which are tags or multi-hot vectors, and of sequences of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar, Literal, Self
from unicodedata import normalize

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_items, as_numbers, is_missing
from contml._support.errors import InputError, did_you_mean
from contml._support.packed_texts import TextLists
from contml._support.validation import check_ranges
from contml.distances.labels import edit_distance, hamming_distance, jaccard_distance, tag_distance
from contml.labels.items import ItemLabels, typed_words


class TagLabels(ItemLabels):
    """Sets of tags. The label distance is Jaccard's: 1 - |A & B| / |A | B|, in [0, 1]. Items without tags are equal.

    Args:
        tags: the tags of each item, strings or other hashable values, in any order. A tag that appears twice counts
            once. Strings are compared in Unicode's form NFC.
    """

    unit = "Jaccard distance of tags"
    largest = 1.0
    title = "tags"
    item_arguments: ClassVar[Mapping[str, Any]] = {"tags": list}
    typed_as = "text"
    ids: Tensor

    def __init__(self, tags: Sequence[Iterable[Hashable]]) -> None:
        given: object = tags
        if isinstance(given, Tensor):
            given = given.to_dense().cpu().numpy()
        if isinstance(given, np.ndarray) and given.ndim == 2 and bool(((given == 0) | (given == 1)).all()):
            hint = "attributes are labels of MultiHotLabels"
            raise InputError("tags", "a matrix of 0 and 1", "must be the tags of each item", hint)
        ids, self._tokens = token_ids("tags", tags, Set)
        super().__init__(ids=ids)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute Jaccard distances, `[X, Y]`."""
        return tag_distance(x.ids, y.ids)

    def arguments(self) -> dict[str, Any]:
        """Return the tags of each item: integers or texts."""
        return {"tags": [[*map(as_token, self.tags(row))] for row in range(len(self))]}

    def plain(self, row: int) -> Any:
        """Return the tags of an item."""
        return self.arguments()["tags"][row]

    def parse(self, text: str) -> list[Hashable]:
        """Return the tags of a text, between semicolons, else between bars or commas.

        At least one must be a tag of an item.
        """
        return known_tokens(self.title, typed_words(text), self._tokens)

    def unknown_words(self, text: str) -> list[str]:
        """Return the tags of a text that no item has."""
        known = set(map(str, self._tokens))
        return [word for word in typed_words(text) if normalize("NFC", word) not in known]

    def _item_contents(self) -> list[bytes]:
        return [repr(sorted(map(repr, self.tags(row)))).encode() for row in range(len(self))]

    def text(self, row: int) -> str:
        """Return the tags of an item, as text."""
        return super().text(row) or ", ".join(map(str, self.tags(row))) or "none"

    def _difference(self, a: int, b: int) -> str:
        x, y = set(self.tags(a)), set(self.tags(b))
        return f"{len(x & y)} of {len(x | y)} shared"

    def tags(self, row: int) -> list[Hashable]:
        """Return the tags of an item."""
        return [self._tokens[n] for n in self.ids[row].tolist() if n >= 0]


class MultiHotLabels(ItemLabels):
    """Multi-hot labels: 0 or 1 for each attribute that an item may have.

    Args:
        labels: `[N, L]` of 0 and 1.
        distance: "jaccard", 1 - |A & B| / |A | B|, of the attributes that items have (0 if both have none); or
            "hamming", the share of the L entries that differ.
    """

    largest = 1.0
    title = "labels"
    item_arguments: ClassVar[Mapping[str, Any]] = {"labels": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"distance": str}
    typed_as = "text"
    labels: Tensor

    @check_ranges
    def __init__(self, labels: Numbers, distance: Literal["jaccard", "hamming"] = "jaccard") -> None:
        allowed = "0 and 1 of [items, labels]"
        values = as_numbers("labels", labels, allowed)
        if values.ndim != 2 or values.numel() == 0:
            raise InputError("labels", str(list(values.shape)), f"must be {allowed}")
        invalid = ((values != 0) & (values != 1)).nonzero()
        if len(invalid):
            item, label = invalid[0].tolist()
            raise InputError(f"label {label} of item {item}", f"{values[item, label].item():g}", "must be 0 or 1")
        super().__init__(labels=values.to(torch.uint8, copy=True))
        self.distance = distance
        self.unit = "Jaccard distance of labels" if distance == "jaccard" else "share of labels that differ"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute Jaccard or Hamming distances, `[X, Y]`."""
        return (jaccard_distance if self.distance == "jaccard" else hamming_distance)(x.labels, y.labels)

    def parse(self, text: str) -> list[int]:
        """Return 0 and 1 for a text with the names of the attributes, or their numbers from 1, as in `text`."""
        names = [self._part_name(n, str(n + 1)) for n in range(self.labels.shape[1])]
        words = [] if text.strip() == "none" else typed_words(text)
        if unknown := [word for word in words if word not in names]:
            allowed = f"must be of {', '.join(names[:8])}{'' if len(names) <= 8 else ', ...'}"
            raise InputError(self.title, f"no label {unknown[0]!r:.60}", allowed, did_you_mean(unknown[0], names))
        return [int(name in words) for name in names]

    def text(self, row: int) -> str:
        """Return the names or numbers of the attributes that an item has."""
        held = [self._part_name(n, str(n + 1)) for n in self.labels[row].nonzero()[:, 0].tolist()]
        return super().text(row) or ", ".join(held) or "none"

    def _difference(self, a: int, b: int) -> str:
        return f"{int((self.labels[a] != self.labels[b]).sum())} of {self.labels.shape[1]} differ"


def as_token(token: Hashable) -> Any:
    """Return a token as a file holds it: an integer or a text."""
    return token if isinstance(token, str) or type(token) is int else str(token)


def known_tokens(title: str, words: Sequence[str], tokens: Iterable[Hashable]) -> list[Hashable]:
    """Return the tokens with these words. A word that no item has becomes a new token.

    Raises:
        InputError: no item has one of the words.
    """
    token_of = {str(token): token for token in tokens}
    words = [normalize("NFC", word) for word in words]
    if words and not any(word in token_of for word in words):
        got = f"no training item has {', '.join(map(repr, words))}"
        raise InputError(title, got[:120], hint=did_you_mean(words[0], token_of))
    return [token_of.get(word, word) for word in words]


def token_ids(name: str, items: object, also: type[Set[Any]] | type[str]) -> tuple[Tensor, list[Any]]:
    """Convert the tokens of each item to numbers `[N, L]`, padded with -1 at the ends.

    Also return the tokens, whose positions are the numbers. Strings are in Unicode's form NFC: é is one token, whether
    it was one character or e and a combining accent.

    Args:
        name: the plural noun for the tokens, the subject of errors.
        items: the tokens of each item, in a list or an array.
        also: another type that may hold the tokens of an item: a `Set`, whose tokens count once, or a `str`, of
            characters.

    Raises:
        InputError: a token is not hashable, or missing.
    """
    id_of: dict[Hashable, int] = {}
    numbers, lengths = array("i"), array("q")  # of all items, one after another: lists of each would be much larger
    listed = items if isinstance(items, TextLists) else as_items(name, items, f"the {name} of each item")
    for item, given in enumerate(listed):
        subject = f"{name} of item {item}"
        if isinstance(given, str):
            given = normalize("NFC", given)
        tokens = [*given] if isinstance(given, also) else as_items(subject, given, f"a list or a {also.__name__}")
        tokens = [normalize("NFC", token) if isinstance(token, str) else token for token in tokens]
        if any(is_missing(token) and (also is Set or token is not None) for token in tokens):
            raise InputError(subject, f"one is missing, of {tokens!r:.60}", hint="omit it")
        try:
            tokens = list(dict.fromkeys(tokens)) if also is Set else tokens
            numbers.extend([id_of.setdefault(token, len(id_of)) for token in tokens])
        except TypeError as error:
            raise InputError(subject, str(error), "must be strings or numbers") from None
        lengths.append(len(tokens))
    if not lengths:
        raise InputError(name, "no items", f"must be the {name} of each item")
    ids = np.full((len(lengths), max(lengths)), -1, dtype=np.int32)
    ids[np.arange(ids.shape[1]) < np.array(lengths)[:, None]] = numbers
    return torch.from_numpy(ids), [*id_of]


#: RapidFuzz reads tokens as characters; this is the number of Unicode characters.
_MAX_TOKENS = 0x110000


class SequenceLabels(ItemLabels):
    """Sequences of tokens, such as words, notes or moves; the label distance is a normalised edit distance.

    The distance is the Levenshtein distance divided by the length of the longer sequence, in [0, 1]. Two empty
    sequences have distance 0.

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
        """Compute normalised edit distances, `[X, Y]`."""
        return edit_distance(x.ids, y.ids)

    def arguments(self) -> dict[str, Any]:
        """Return the tokens of each item: integers or texts."""
        return {"sequences": [[*map(as_token, self.tokens(row))] for row in range(len(self))]}

    def parse(self, text: str) -> list[Hashable]:
        """Return the tokens of a text: its words. If each token of the items is a character, return its characters."""
        characters = all(isinstance(token, str) and len(token) == 1 for token in self._tokens)
        words = list(text.strip()) if characters and " " not in text.strip() else text.split()
        return known_tokens(self.title, words, self._tokens)

    def _item_contents(self) -> list[bytes]:
        return [repr(self.tokens(row)).encode() for row in range(len(self))]

    def text(self, row: int) -> str:
        """Return the tokens of an item, as text."""
        return super().text(row) or " ".join(map(str, self.tokens(row))) or "none"

    def tokens(self, row: int) -> list[Hashable]:
        """Return the tokens of an item."""
        return [self._tokens[n] for n in self.ids[row].tolist() if n >= 0]
