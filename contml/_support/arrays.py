"""Files of numpy arrays, read without running code and within a limit of memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from contml._support.door import opened
from contml._support.errors import InputError, one_line


def read_arrays(path: Path, most_bytes: int) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of a .npz file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, unpacks to more than `most_bytes`, or holds Python objects, which only running code
            could read.
    """
    try:
        # Opened here: numpy leaves a file open that is cut short.
        with opened(path) as stream, zipfile.ZipFile(stream) as packed:
            size = sum(member.file_size for member in packed.infolist())
            if size > most_bytes:
                raise InputError(str(path), f"unpacks to {size >> 20:,} MB", f"must be at most {most_bytes >> 20:,} MB")
            return {member.filename.removesuffix(".npy"): _read(packed, member) for member in packed.infolist()}
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(str(path)) from None
    except InputError:
        raise
    except Exception as error:  # zipfile and numpy raise errors of many types on damaged files
        raise InputError(str(path), f"not a readable file of arrays ({one_line(error)})") from None


def _read(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    with packed.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            name = member.filename.removesuffix(".npy")
            raise ValueError(f"{name} are Python objects; save texts as numpy.array({name}, dtype=str)")
        # numpy allocates what the header declares.
        if int(np.prod(shape, dtype=object)) * dtype.itemsize > member.file_size:
            raise ValueError(f"{member.filename} declares {dtype} {list(shape)}, more than it holds")
    with packed.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
