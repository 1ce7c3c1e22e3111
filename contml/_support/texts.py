"""Many texts in one array of bytes: a list of them needs 60 bytes more for each text, and a `Path` 700 more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload


class Texts(Sequence[str]):
    """Texts, such as names of files: their bytes and 8 bytes each. `texts[row]` is a new `str`.

    Args:
        texts: the texts; characters of names of files that are not Unicode are kept.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        content, ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode("utf-8", "surrogatepass")
            ends.append(len(content))
        self._content, self._ends = bytes(content), ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> Texts: ...

    def __getitem__(self, row: int | slice) -> str | Texts:
        if isinstance(row, slice):
            return Texts(self[each] for each in range(*row.indices(len(self))))
        number = range(len(self))[row]
        return self._content[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return (self._content, self._ends) == (other._content, other._ends)
        return isinstance(other, list | tuple) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])

    def taken(self, rows: Iterable[int]) -> Texts:
        """The texts of some rows, in this order."""
        return Texts(self[row] for row in rows)


def taken(texts: Sequence[str], rows: Iterable[int]) -> Sequence[str]:
    """The texts of some rows, in this order."""
    return texts.taken(rows) if isinstance(texts, Texts) else [texts[row] for row in rows]
