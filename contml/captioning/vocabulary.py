"""The words of a captioner, and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import check_whole

_SPECIAL = 4  # the number of ids without a word
#: The most bytes of a vocabulary in a file.
_MAX_BYTES = 1 << 26


class Vocabulary:
    """The words of a captioner. Ids 0 to 3 are padding, begin, end and unknown; words have the ids from 4.

    Args:
        words: the words in the order of their ids, each once.
    """

    PAD, BEGIN, END, UNKNOWN = range(_SPECIAL)

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: number for number, word in enumerate(self.words, _SPECIAL)}
        if not self.words:
            raise InputError("vocabulary", "no words")
        if len(self._ids) < len(self.words):
            raise InputError("vocabulary", f"the word {Counter(self.words).most_common(1)[0][0]!r} appears twice")
        if invalid := [word for word in self.words if not word or "\n" in word]:
            raise InputError("vocabulary", repr(invalid[0]), "must be words, without line breaks")

    @classmethod
    def of(cls, captions: Iterable[Sequence[str]], threshold: int = 5) -> Self:
        """Return the vocabulary of the words that occur at least `threshold` times in captions.

        The most frequent words come first. Equally frequent words are in alphabetical order.

        Raises:
            InputError: no word occurs `threshold` times.
        """
        check_whole(1, threshold=threshold)
        counts = Counter(word for caption in captions for word in caption)
        words = sorted((word for word in counts if counts[word] >= threshold), key=lambda word: (-counts[word], word))
        if not words:
            max_count = max(counts.values(), default=0)
            allowed = f"must be at most {max_count}, the count of the most frequent word" if max_count else ""
            raise InputError("threshold", str(threshold) if max_count else "the captions have no words", allowed)
        return cls(words)

    def __len__(self) -> int:
        return _SPECIAL + len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the id of each word, without begin and end."""
        return [self._ids.get(word, self.UNKNOWN) for word in words]

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """Return the words up to the first END, joined by spaces. The other special ids are omitted."""
        numbers = [int(number) for number in (ids.tolist() if isinstance(ids, Tensor) else ids)]
        if self.END in numbers:
            numbers = numbers[: numbers.index(self.END)]
        return " ".join(self.words[number - _SPECIAL] for number in numbers if number >= _SPECIAL)

    def to_tensor(self) -> Tensor:
        """Return the words as uint8 `[n]`: UTF-8, joined by line breaks. A buffer of a model, kept in checkpoints."""
        # A caption file can hold half of a surrogate pair, which plain UTF-8 refuses.
        return torch.frombuffer(bytearray("\n".join(self.words).encode("utf-8", "surrogatepass")), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """Return the vocabulary that `to_tensor` wrote, from a file that anybody may have made.

        Raises:
            InputError: the tensor is not a vocabulary, or too large.
        """
        if tensor.dtype != torch.uint8 or tensor.ndim != 1:
            raise InputError("vocabulary", f"{tensor.dtype} {list(tensor.shape)}", "must be torch.uint8 [n]")
        if len(tensor) > _MAX_BYTES:
            raise InputError("vocabulary", f"{len(tensor):,} bytes", f"must be at most {_MAX_BYTES:,} bytes")
        try:
            words = tensor.cpu().numpy().tobytes().decode("utf-8", "surrogatepass").split("\n")
        except UnicodeDecodeError as error:
            raise InputError("vocabulary", "not UTF-8") from error
        return cls(words)

    @classmethod
    def from_weights(cls, weights: Mapping[str, Tensor], file: str) -> Self:
        """Return the vocabulary in the weights of a captioner. `file` is their file, for errors.

        Raises:
            InputError: the weights have no vocabulary.
        """
        if "words" not in weights:
            raise InputError(file, "not the weights of a captioner")
        try:
            return cls.from_tensor(weights["words"])
        except InputError as error:
            raise error.at(file) from None
