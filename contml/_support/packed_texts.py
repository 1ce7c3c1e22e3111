"""Many texts in one array of bytes. A list would need 60 bytes more for each text, and a list of `Path` 700 more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeAlias

import numpy as np

from contml._support.packed import Integers, Packed, row_numbers

_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

#: The number of texts that are converted to objects of Python at a time.
_CHUNK = 1 << 16


def _compute() -> Any:
    """Return the functions of Arrow, which are imported on first use."""
    from pyarrow import compute

    return compute


class Texts(Packed[str]):
    """Texts, such as names of files, in an array of Arrow with their bytes and 8 bytes more per text.

    `texts[row]` is a new `str`.

    Args:
        texts: the texts. Characters of names of files that are not Unicode are kept.

    Attributes:
        arrow: the bytes of each text, an array of Arrow of the type `large_binary`.
    """

    arrow: Any

    def __init__(self, texts: Iterable[str]) -> None:
        import pyarrow

        content, ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode("utf-8", "surrogatepass")
            ends.append(len(content))
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(content)]
        self.arrow = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(ends) - 1, buffers)

    @classmethod
    def of_arrow(cls, cells: Any) -> Self:
        """Return the texts of an array of Arrow, with "" for null. Bytes of an array with one chunk are not copied."""
        import pyarrow

        made = cls.__new__(cls)
        whole = cells.combine_chunks() if isinstance(cells, pyarrow.ChunkedArray) else cells
        if isinstance(whole, pyarrow.ChunkedArray):  # of no chunks
            whole = pyarrow.concat_arrays(whole.chunks) if whole.num_chunks else pyarrow.array([], whole.type)
        if not pyarrow.types.is_large_binary(whole.type):
            whole = whole.cast(pyarrow.large_string()).cast(pyarrow.large_binary())
        made.arrow = whole.fill_null(b"")
        return made

    @classmethod
    def concatenated(cls, parts: Sequence[Texts]) -> Texts:
        """Return the texts of all parts, one part after another."""
        import pyarrow

        return cls.of_arrow(pyarrow.chunked_array([part.arrow for part in parts], pyarrow.large_binary()))

    @classmethod
    def of_packed(cls, content: _Bytes, lengths: Integers) -> Self:
        """Return the texts that `packed` wrote.

        Raises:
            ValueError: the lengths do not fit, or the bytes are not texts.
        """
        import pyarrow

        ends = np.concatenate(([0], lengths.cumsum(dtype=np.int64)))
        if (len(lengths) and lengths.min() < 0) or ends[-1] != len(content):
            raise ValueError("the lengths of its texts do not fit")
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(content)]
        texts = cls.of_arrow(pyarrow.Array.from_buffers(pyarrow.large_binary(), len(lengths), buffers))
        try:
            texts.arrow.cast(pyarrow.large_string())
        except pyarrow.ArrowInvalid:
            for _ in texts:  # of names that are not Unicode; other bytes raise ValueError
                pass
        return texts

    def packed(self) -> tuple[_Bytes, np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the bytes of all texts, uint8, and the length of each text in bytes, int32 `[N]`."""
        lengths = np.array(_compute().binary_length(self.arrow), np.int32)
        if not lengths.any():
            return np.empty(0, np.uint8), lengths
        _, ends, content = self.arrow.buffers()
        first = int(np.frombuffer(ends, np.int64)[self.arrow.offset])
        return np.frombuffer(content, np.uint8)[first : first + int(lengths.sum(dtype=np.int64))].copy(), lengths

    def differs(self, other: Texts) -> _Mask:
        """Return which texts differ from the texts of the same rows of another, bool `[N]`."""
        return np.asarray(_compute().not_equal(self.arrow, other.arrow), bool)

    def __len__(self) -> int:
        return len(self.arrow)

    def _item(self, row: int) -> str:
        return self.arrow[row].as_py().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            for content in self.arrow[start : start + _CHUNK].to_pylist():
                yield content.decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return bool(self.arrow.equals(other.arrow))
        return isinstance(other, list | tuple) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def taken(self, rows: Iterable[int]) -> Self:
        """Return the texts of some rows, in this order."""
        import pyarrow

        return type(self).of_arrow(self.arrow.take(pyarrow.array(row_numbers(rows))))

    def replaced(self, pattern: str, text: str) -> Texts:
        """Replace all matches of a pattern of RE2 in the bytes of the texts by `text`."""
        return Texts.of_arrow(_compute().replace_substring_regex(self.arrow, pattern, text))

    def numbered(self) -> tuple[Texts, Integers]:
        """Return the different texts, in the order of the rows, and the number of each row's text `[N]`."""
        coded = self.arrow.dictionary_encode()
        return Texts.of_arrow(coded.dictionary), np.asarray(coded.indices, np.int64)

    def num_different(self) -> int:
        """Count the different texts."""
        return len(self.numbered()[0])

    @property
    def is_empty(self) -> _Mask:
        """True for each text without characters, bool `[N]`."""
        return np.asarray(_compute().binary_length(self.arrow)) == 0

    def positions(self, among: Texts) -> Integers:
        """Return the first row of each text in `among` `[N]`, or -1 if it is not there."""
        return np.asarray(_compute().index_in(self.arrow, value_set=among.arrow).fill_null(-1), np.int64)

    def order(self) -> Integers:
        """Return the rows in the order of their texts. Equal texts are in the order of the rows."""
        return np.asarray(_compute().array_sort_indices(self.arrow), np.int64)


class TextLists(Packed[list[str]]):
    """Lists of texts, such as the captions of images: `Texts` of all lists, and the start of each list.

    Args:
        lists: the texts of each item.

    Attributes:
        texts: the texts of all lists, one list after another.
        starts: the position of the first text of each list, and the end of the last list, int64 `[N+1]`.
    """

    def __init__(self, lists: Iterable[Iterable[str]]) -> None:
        starts, count = array("q", [0]), 0

        def flat() -> Iterator[str]:
            nonlocal count
            for texts in lists:
                for text in texts:
                    count += 1
                    yield text
                starts.append(count)

        self.texts = Texts(flat())
        self.starts: Integers = np.frombuffer(starts, np.int64)

    @classmethod
    def of_lengths(cls, texts: Texts, lengths: Integers) -> Self:
        """Make the lists of texts that follow each other. `lengths` `[N]` are the lengths of the lists."""
        made = cls.__new__(cls)
        made.texts, made.starts = texts, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        return made

    @property
    def lengths(self) -> Integers:
        """The number of texts of each list `[N]`."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _item(self, row: int) -> list[str]:
        start, end = self.starts[row : row + 2].tolist()
        return [self.texts[position] for position in range(start, end)]

    def __iter__(self) -> Iterator[list[str]]:
        texts = iter(self.texts)
        return ([*islice(texts, length)] for length in map(int, self.lengths))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TextLists):
            return self.texts == other.texts and bool(np.array_equal(self.starts, other.starts))
        return isinstance(other, list | tuple) and len(self) == len(other) and all(map(list.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def taken(self, rows: Iterable[int]) -> Self:
        """Return the lists of some rows, in this order."""
        index = row_numbers(rows)
        lengths = self.lengths[index]
        positions = np.repeat(self.starts[index] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return self.of_lengths(self.texts.taken(positions), lengths)

    def kept(self, is_kept: _Mask) -> Self:
        """Return the lists without some of their texts. `is_kept` is a mask of all texts, one list after another."""
        counts = np.concatenate(([0], np.cumsum(is_kept)))[self.starts]
        return self.of_lengths(self.texts.taken(np.flatnonzero(is_kept)), np.diff(counts))


def as_texts(texts: Iterable[str]) -> Texts:
    """Convert texts to `Texts`, which holds them in one array."""
    return texts if isinstance(texts, Texts) else Texts(texts)


def joined(columns: Sequence[Texts], separator: str) -> Texts:
    """Join the texts of each row `[N]` of several columns, with a separator between."""
    import pyarrow

    if len(columns) == 1:
        return columns[0]
    between = pyarrow.scalar(separator.encode(), pyarrow.large_binary())
    return Texts.of_arrow(_compute().binary_join_element_wise(*(each.arrow for each in columns), between))
