"""Many texts in one array of bytes: a list of them needs 60 bytes more for each text, and a `Path` 700 more."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeAlias

import numpy as np

from contml._support.packed import Packed, row_numbers

_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

#: Texts that are objects of Python at a time.
_CHUNK = 1 << 16
#: So many bytes at the end of a text are hashed, by an odd number: 2^64 divided by the golden ratio.
_HASHED, _FACTOR = 32, np.uint64(0x9E3779B97F4A7C15)
#: A pattern of RE2 repeats a part at most so often.
_MOST_REPEATS = 1000
#: Half a surrogate pair, which is not Unicode: bytes of a name of a file that are not UTF-8.
_SURROGATE = r"\xed[\xa0-\xbf]"
#: A path that `os.path.normpath` leaves as it is: no part is empty, "." or "..".
_PART = r"(?:[^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)"
_NORMAL_PATH = rf"^/?(?:{_PART}/)*{_PART}$"


class Texts(Packed[str]):
    """Texts, such as names of files: their bytes and 8 bytes each, in an array of Arrow. `texts[row]` is a new `str`.

    Args:
        texts: the texts; characters of names of files that are not Unicode are kept.
    """

    _all_differ = False  # known once they were counted: texts of some rows then differ too

    def __init__(self, texts: Iterable[str]) -> None:
        import pyarrow

        content, ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode("utf-8", "surrogatepass")
            ends.append(len(content))
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(content)]
        self._array = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(ends) - 1, buffers)

    @classmethod
    def of_arrow(cls, cells: Any) -> Self:
        """The texts of an array of Arrow, "" where one is null; its bytes are not copied if it has one chunk."""
        import pyarrow

        made = cls.__new__(cls)
        whole = cells.combine_chunks() if isinstance(cells, pyarrow.ChunkedArray) else cells
        if isinstance(whole, pyarrow.ChunkedArray):  # of no chunks
            whole = pyarrow.concat_arrays(whole.chunks) if whole.num_chunks else pyarrow.array([], whole.type)
        if not pyarrow.types.is_large_binary(whole.type):
            whole = whole.cast(pyarrow.large_string()).cast(pyarrow.large_binary())
        made._array = whole.fill_null(b"")
        return made

    @classmethod
    def concatenated(cls, parts: Sequence[Texts]) -> Texts:
        """The texts of all parts, one part after another."""
        import pyarrow

        return cls.of_arrow(pyarrow.chunked_array([part._array for part in parts], pyarrow.large_binary()))

    @classmethod
    def of_packed(cls, content: _Bytes, lengths: _Integers) -> Self:
        """The texts of `packed`.

        Raises:
            ValueError: the lengths do not fit, or the bytes are no texts.
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
        """The bytes of all texts, uint8, and the length of each in bytes, int32 `[N]`."""
        from pyarrow import compute

        lengths = np.array(compute.binary_length(self._array), np.int32)
        if not lengths.any():
            return np.empty(0, np.uint8), lengths
        _, ends, content = self._array.buffers()
        first = int(np.frombuffer(ends, np.int64)[self._array.offset])
        return np.frombuffer(content, np.uint8)[first : first + int(lengths.sum(dtype=np.int64))].copy(), lengths

    def differs(self, other: Texts) -> _Mask:
        """Which texts differ from the texts of the same rows of another, bool `[N]`."""
        from pyarrow import compute

        return np.asarray(compute.not_equal(self._array, other._array), bool)

    @property
    def arrow(self) -> Any:
        """The bytes of each text, an array of Arrow of the type `large_binary`."""
        return self._array

    def __len__(self) -> int:
        return len(self._array)

    def _item(self, row: int) -> str:
        content: bytes = self._array[row].as_py()
        return content.decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            for content in self._array[start : start + _CHUNK].to_pylist():
                yield content.decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return bool(self._array.equals(other._array))
        return isinstance(other, list | tuple) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def taken(self, rows: Iterable[int]) -> Self:
        """The texts of some rows, in this order."""
        import pyarrow

        index = row_numbers(rows)
        found = type(self).of_arrow(self._array.take(pyarrow.array(index)))
        found._all_differ = self._all_differ and bool((index[1:] > index[:-1]).all())
        return found

    def contents(self) -> Iterator[bytes]:
        """The bytes of each text, as names of files have them."""
        if self.matches(_SURROGATE).any():
            yield from (text.encode(errors="surrogateescape") for text in self)
            return
        for start in range(0, len(self), _CHUNK):
            yield from self._array[start : start + _CHUNK].to_pylist()

    def matches(self, pattern: str) -> _Mask:
        """Whether a pattern of RE2 is in the bytes of each text, bool `[N]`."""
        from pyarrow import compute

        return np.asarray(compute.match_substring_regex(self._array, pattern))

    def replaced(self, pattern: str, text: str) -> Texts:
        """The texts with `text` in place of what a pattern of RE2 finds in their bytes."""
        from pyarrow import compute

        return Texts.of_arrow(compute.replace_substring_regex(self._array, pattern, text))

    def without_prefix(self, prefix: str) -> Texts:
        """The texts without this beginning, where they have it."""
        from pyarrow import compute

        content = prefix.encode("utf-8", "surrogatepass")
        has_prefix = compute.starts_with(self._array, content)
        if not compute.any(has_prefix).as_py():
            return self
        if len(content) > _MOST_REPEATS:
            return self.mapped(~np.asarray(has_prefix), self, lambda text: text.removeprefix(prefix))
        cut = compute.replace_substring_regex(self._array, f"(?s)^.{{{len(content)}}}", "")
        return Texts.of_arrow(compute.if_else(has_prefix, cut, self._array))

    def mapped(self, is_plain: _Mask, plain: Texts, change: Callable[[str], str]) -> Texts:
        """The texts of `plain` where `is_plain` `[N]`, else `change` of each text: of the few that are unusual."""
        import pyarrow

        rows = np.flatnonzero(~is_plain)
        if not len(rows):
            return plain
        changed, index = Texts(map(change, self.taken(rows))), np.arange(len(self))
        index[rows] = len(self) + np.arange(len(rows))
        return Texts.of_arrow(pyarrow.concat_arrays([plain._array, changed._array]).take(pyarrow.array(index)))

    def normal_paths(self) -> Texts:
        """`os.path.normpath` of each text."""
        is_normal = self.matches(_NORMAL_PATH) if os.sep == "/" else np.zeros(len(self), bool)
        return self.mapped(is_normal, self, os.path.normpath)

    def numbered(self) -> tuple[Texts, _Integers]:
        """The different texts, in the order of the rows, and the number of each row's text `[N]`."""
        if self._all_differ:
            return self, np.arange(len(self))
        start = self._chunk(0)
        is_varied = 2 * len(np.unique(start._keys())) > len(start)  # of few texts, a table is small
        repeated = self._may_repeat() if is_varied else np.arange(0)
        self._all_differ = is_varied and not len(repeated)
        if self._all_differ:
            return self, np.arange(len(self))
        if not is_varied or 2 * len(repeated) > len(self):
            coded = self._array.dictionary_encode()
            self._all_differ = len(coded.dictionary) == len(self)
            return (self if self._all_differ else Texts.of_arrow(coded.dictionary)), np.asarray(coded.indices, np.int64)
        numbers = self.taken(repeated)._array.dictionary_encode().indices
        first = np.arange(len(self))  # the first row with the text of each row
        first[repeated] = repeated[np.unique(numbers, return_index=True)[1][numbers]]
        is_first = first == np.arange(len(self))
        self._all_differ = bool(is_first.all())
        return self.taken(np.flatnonzero(is_first)), (np.cumsum(is_first) - 1)[first]

    def _may_repeat(self) -> _Integers:
        """The rows whose text may be that of another row, ascending: others need no table of texts, which is large."""
        keys = self._keys()
        keys.sort()
        shared = np.unique(keys[1:][keys[1:] == keys[:-1]])
        del keys
        return np.flatnonzero(_among(self._keys(), shared)) if len(shared) else np.empty(0, np.int64)

    def _chunk(self, start: int) -> Self:
        """Some texts from a row on, whose bytes are not copied."""
        return type(self).of_arrow(self._array.slice(start, _CHUNK))

    def _keys(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """A hash of the length and the last 32 bytes of each text `[N]`."""
        keys = np.empty(len(self), np.uint64)
        for start in range(0, len(self), _CHUNK):
            content, lengths = self._chunk(start).packed()
            ends = lengths.cumsum(dtype=np.int64)
            padded = np.concatenate((np.zeros(_HASHED, np.uint8), content))
            words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # the 8 bytes from each place on
            chunk = lengths.astype(np.uint64) * _FACTOR
            for back in range(8, _HASHED + 1, 8):
                before = (back - lengths).clip(0, 8)  # bytes of the word that are before the text
                word = words[_HASHED + ends - back] >> (8 * before.clip(max=7)).astype(np.uint64)
                word[before == 8] = 0
                chunk = (chunk ^ word) * _FACTOR
                chunk ^= chunk >> np.uint64(32)
            keys[start : start + _CHUNK] = chunk
        return keys

    def num_different(self) -> int:
        """How many different texts there are."""
        return len(self.numbered()[0])

    @property
    def is_empty(self) -> _Mask:
        """Which texts have no character, bool `[N]`."""
        from pyarrow import compute

        empty: _Mask = np.asarray(compute.binary_length(self._array)) == 0
        return empty

    def positions(self, among: Texts) -> _Integers:
        """The row of each text in `among` `[N]`, the first one; -1 where it is not there."""
        import pyarrow
        from pyarrow import compute

        found = np.full(len(self), -1)
        if not len(among):
            return found
        keys = among._keys()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for start in range(0, len(self), _CHUNK):
            chunk = self._chunk(start)
            chunk_keys = chunk._keys()
            rows = np.argsort(chunk_keys)  # for the memory cache of the processor
            chunk_keys = chunk_keys[rows]
            places = np.searchsorted(keys, chunk_keys).clip(max=len(keys) - 1)
            is_equal = keys[places] == chunk_keys
            rows, candidates = rows[is_equal], order[places[is_equal]]
            differs = chunk.taken(rows).differs(among.taken(candidates))
            found[start + rows] = candidates
            if differs.any():  # another text has the same key
                rows = rows[differs]
                index = compute.index_in(chunk.taken(rows)._array, value_set=among._array).fill_null(-1)
                found[start + rows] = np.asarray(index.cast(pyarrow.int64()))
        return found

    def order(self) -> _Integers:
        """The rows in the order of their texts; equal texts in the order of the rows."""
        from pyarrow import compute

        return np.asarray(compute.array_sort_indices(self._array), np.int64)

    def folders(self) -> Iterator[tuple[str, _Integers, Texts]]:
        """Of paths: each folder with the slash after it, the rows of its files, and their names in it."""
        folders, numbers = self.replaced(f"[^{_SEPARATORS}]*$", "").numbered()
        names = self.replaced(f"(?s)^.*[{_SEPARATORS}]", "")
        if len(folders) < 2:
            yield from ((folder, np.arange(len(self)), names) for folder in folders)
            return
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(folders)))
        for folder, rows in zip(folders, np.split(order, ends[:-1]), strict=True):
            yield folder, rows, names.taken(rows)


class TextLists(Packed[list[str]]):
    """Lists of texts, such as the captions of images: `Texts` of all lists, and where each list begins.

    Args:
        lists: the texts of each item.

    Attributes:
        texts: the texts of all lists, one list after another.
        starts: where each list begins in them, and where the last one ends, int64 `[N+1]`.
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
        self.starts: _Integers = np.frombuffer(starts, np.int64)

    @classmethod
    def of_lengths(cls, texts: Texts, lengths: _Integers) -> Self:
        """The lists of texts that follow each other; `lengths` `[N]`: of each list."""
        made = cls.__new__(cls)
        made.texts, made.starts = texts, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        return made

    @property
    def lengths(self) -> _Integers:
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
        """The lists of some rows, in this order."""
        index = row_numbers(rows)
        lengths = self.lengths[index]
        ends = np.cumsum(lengths)
        positions = np.repeat(self.starts[index] - (ends - lengths), lengths) + np.arange(lengths.sum())
        return self.of_lengths(self.texts.taken(positions), lengths)

    def kept(self, is_kept: _Mask) -> Self:
        """The lists without some of their texts; `is_kept`: of all texts, one list after another."""
        counts = np.concatenate(([0], np.cumsum(is_kept)))[self.starts]
        return self.of_lengths(self.texts.taken(np.flatnonzero(is_kept)), np.diff(counts))


def _among(values: np.ndarray[Any, Any], sorted_values: np.ndarray[Any, Any]) -> _Mask:
    """Whether each value is among the sorted values, of which there is at least one."""
    places = np.searchsorted(sorted_values, values).clip(max=len(sorted_values) - 1)
    found: _Mask = sorted_values[places] == values
    return found


#: The characters that end the name of a folder in a path, as a class of a pattern.
_SEPARATORS = "/" if os.sep == "/" else r"/\\"


def as_texts(texts: Iterable[str]) -> Texts:
    """The texts in one array."""
    return texts if isinstance(texts, Texts) else Texts(texts)


def joined(columns: Sequence[Texts], separator: str) -> Texts:
    """The texts of each row `[N]` of several columns with a separator between."""
    import pyarrow
    from pyarrow import compute

    if len(columns) == 1:
        return columns[0]
    between = pyarrow.scalar(separator.encode(), pyarrow.large_binary())
    return Texts.of_arrow(compute.binary_join_element_wise(*(each.arrow for each in columns), between))
