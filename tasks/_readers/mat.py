"""MATLAB files, read by scipy once they are known to be complete and small enough.

On some damaged files scipy crashes the process, and it unpacks compressed data of any size. A variable is an element

    kind (uint32), bytes (uint32), data; or, if it has up to 4 bytes, bytes and kind in one uint32, data in the next

of kind 14, a matrix: flags, dimensions and name as elements, then numbers or characters as an element, or the matrices
of a cell array or of the fields of a struct array, one after another.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contml import InputError
from contml._support.errors import one_line
from contml.data.text_files import read_content

#: Bytes that the variables of a file may unpack to, and that they may take in memory. The largest published file, that
#: of MPII Human Pose, unpacks to about 130 MB, which take 320 MB.
MOST_BYTES, MOST_MEMORY = 512 << 20, 1 << 30
#: Bytes of memory that a matrix takes besides its numbers.
_PER_MATRIX = 128
#: Published files nest matrices eight deep; scipy reads them by recursion.
_MOST_LEVELS = 100
_HEAD, _MATRIX, _COMPRESSED = 128, 14, 15
_CELL, _STRUCT, _OBJECT, _CHARACTERS = 1, 2, 3, 4
#: Kinds of elements that hold numbers, and characters.
_NUMBERS, _TEXT = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13), (1, 2, 3, 4, 5, 6, 7, 16, 17, 18)
#: Classes of matrices of numbers.
_NUMERIC = range(6, 16)
_COMPLEX = 1 << 11


def unpacked(content: bytes) -> bytes:
    """Return the file without compression, and without sparse matrices, functions and objects.

    Raises:
        ValueError: it is damaged, too large, or too deeply nested.
    """
    order = "<" if content[126:128] == b"IM" else ">"
    chunks, total, memory = [content[:_HEAD]], 0, 0
    for variable in _variables(content, order):
        total += len(variable)
        if total > MOST_BYTES:
            raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20:,} MB")
        walk = _Walk(variable, order, memory)
        if walk.is_supported():
            chunks.append(variable)
        memory = walk.memory
    return b"".join(chunks)


def _variables(content: bytes, order: str) -> Iterator[bytes]:
    """Yield the elements of the file, unpacked one after another."""
    offset = _HEAD
    while offset < len(content):
        kind, size = _words(content, offset, order)
        end = offset + 8 + size
        if end > len(content):
            raise ValueError("it is cut short")
        if kind == _COMPRESSED:
            yield zlib.decompressobj().decompress(content[offset + 8 : end], MOST_BYTES + 1)
        else:
            yield content[offset:end]
        offset = end


def _words(content: bytes, place: int, order: str) -> tuple[int, int]:
    try:
        first, second = struct.unpack_from(f"{order}II", content, place)
    except struct.error:
        raise ValueError("it is cut short") from None
    return first, second


class _Walk:
    """Goes over the elements of a variable in the order in which scipy reads them."""

    def __init__(self, content: bytes, order: str, memory: int) -> None:
        self.content, self.order, self.offset, self.memory = content, order, 0, memory

    def is_supported(self) -> bool:
        """Check the variable; False if it is of a class that no reader uses."""
        remaining = [1]  # matrices to read at each level
        while remaining:
            if not remaining[-1]:
                remaining.pop()
                continue
            remaining[-1] -= 1
            num_inner = self._matrix()
            if num_inner is None:
                if len(remaining) == 1:
                    return False
                raise ValueError("it holds a sparse matrix, a function or an object")
            if self.memory > MOST_MEMORY:
                raise ValueError(f"it takes more than {MOST_MEMORY >> 20:,} MB of memory")
            if num_inner:
                remaining.append(num_inner)
            if len(remaining) > _MOST_LEVELS:
                raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
        return True

    def _matrix(self) -> int | None:
        """Go over a matrix up to its inner ones; their number, or None for a class that is not supported."""
        kind, size = _words(self.content, self.offset, self.order)
        self.offset += 8
        self.memory += _PER_MATRIX
        if kind != _MATRIX:
            raise ValueError(f"an element of kind {kind} in place of a matrix")
        if not size:
            return 0
        flags, _ = _words(self.content, self.offset + 8, self.order)
        self.offset += 16
        matrix_class = flags & 0xFF
        if matrix_class not in (_CELL, _STRUCT, _OBJECT, _CHARACTERS, *_NUMERIC):
            return None
        start, size = self._element((5, 6))
        if size % 4 or not 8 <= size <= 128:
            raise ValueError("wrong dimensions")
        dims: tuple[int, ...] = struct.unpack_from(f"{self.order}{size // 4}i", self.content, start)
        num_items = math.prod(dims)
        if min(dims) < 0:
            raise ValueError("wrong dimensions")
        self._element((1, 2, 16))  # the name
        if matrix_class in _NUMERIC:
            for _ in range(2 if flags & _COMPLEX else 1):
                self.memory += self._element(_NUMBERS)[1]
            return 0
        num_fields = 1
        if matrix_class == _CHARACTERS:
            self._element(_TEXT)
            self.memory += 4 * num_items
            return 0
        if matrix_class != _CELL:
            num_fields = self._fields(matrix_class)
        self.memory += 8 * num_items * num_fields
        return num_items * num_fields

    def _fields(self, matrix_class: int) -> int:
        """Return the number of fields of a struct array."""
        if matrix_class == _OBJECT:
            self._element((1, 2, 16))  # the name of the class
        start, size = self._element((5, 6))
        length = struct.unpack_from(f"{self.order}i", self.content, start)[0] if size == 4 else 0
        if length < 1:
            raise ValueError("wrong length of the names of fields")
        return self._element((1, 2, 16))[1] // length

    def _element(self, kinds: tuple[int, ...]) -> tuple[int, int]:
        """Where the data of the next element are, and how many bytes they have."""
        kind, size = _words(self.content, self.offset, self.order)
        start, end = self.offset + 8, self.offset + 8 + size + -size % 8
        if kind >> 16:  # a small element
            start, end, kind, size = self.offset + 4, self.offset + 8, kind & 0xFFFF, kind >> 16
            if size > 4:
                raise ValueError("a small element of more than 4 bytes")
        if kind not in kinds or start + size > len(self.content):
            raise ValueError(f"an element of kind {kind} and {size} bytes at byte {self.offset}")
        self.offset = end
        return start, size


def read_mat(path: Path, option: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Read the variables of a MATLAB file. `option` is the option of the task that names the file.

    Raises:
        InputError: no such file, damaged, or much larger than any published file.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import matfile_version

    content = read_content(path, option)
    try:
        version, _ = matfile_version(io.BytesIO(content))  # type: ignore[arg-type]
        if version == 2:
            raise InputError(str(path), "a MATLAB 7.3 (HDF5) file", hint="save it with '-v7'")
        stream = io.BytesIO(unpacked(content) if version == 1 else content)
        variables: dict[str, Any] = loadmat(stream)  # type: ignore[arg-type]
    except InputError:
        raise
    except Exception as error:  # scipy raises errors of many types on damaged files
        raise InputError(str(path), f"not a readable MATLAB file ({one_line(error)[:120]})") from None
    return {name: v for name, v in variables.items() if not name.startswith("__") and isinstance(v, np.ndarray)}


def read_variable(path: Path, name: str, option: str = "") -> Any:
    """One variable of a MATLAB file.

    Raises:
        InputError: the file cannot be read, or has no such variable.
    """
    variables = read_mat(path, option)
    if name not in variables:
        raise InputError(str(path), f"has no variable '{name}' (it has {', '.join(variables) or 'nothing'})")
    return variables[name]


def read_records(path: Path, variables: dict[str, Any], name: str, fields: Sequence[str], hint: str = "") -> list[Any]:
    """Return the records of a struct array. Use their fields by name: their order differs between copies.

    Raises:
        InputError: there is no such struct array, or its records lack a field.
    """
    table = variables.get(name)
    if table is None or table.dtype.names is None:
        raise InputError(str(path), f"has no struct array '{name}' (it has {', '.join(variables) or 'nothing'})")
    if missing_fields := [field for field in fields if field not in table.dtype.names]:
        problem = f"its records have no field '{missing_fields[0]}' (they have {', '.join(table.dtype.names)})"
        raise InputError(str(path), problem, hint=hint)
    return list(table.ravel())
