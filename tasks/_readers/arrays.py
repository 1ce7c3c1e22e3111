"""Files of numpy arrays, read without running code and within a limit of memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from contml import InputError
from contml._support.errors import one_line

from .folders import no_such_file

#: Bytes that the arrays of a file may unpack to: the joints of a million people take 300 MB.
MOST_BYTES = 1 << 29


def read_arrays(path: Path, option: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .npz file; `option` is the task's option that names the file.

    Raises:
        InputError: no such file, damaged, too large, or with Python objects, which only running code could read.
    """
    try:
        # Opened here: numpy leaves a file open that is cut short.
        with path.open("rb") as stream, zipfile.ZipFile(stream) as packed:
            size = sum(member.file_size for member in packed.infolist())
            if size > MOST_BYTES:
                got, allowed = f"unpacks to {size >> 20:,} MB", f"must be at most {MOST_BYTES >> 20:,} MB"
                raise InputError(str(path), got, allowed)
            return {member.filename.removesuffix(".npy"): _read(packed, member) for member in packed.infolist()}
    except (FileNotFoundError, NotADirectoryError):
        raise no_such_file(path, option) from None
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as error:  # zipfile and numpy raise errors of many types on damaged files
        raise InputError(str(path), f"not a readable file of arrays ({one_line(error)})") from None


def _read(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    with packed.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
        # numpy allocates what the header declares.
        if int(np.prod(shape, dtype=object)) * kind.itemsize > member.file_size:
            raise ValueError(f"{member.filename} declares {kind} {list(shape)}, more than it holds")
    with packed.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
