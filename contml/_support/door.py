"""Opening of a file that a user or a stranger names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from contml._support.errors import InputError


def opened(path: Path, *, links: bool = True) -> BinaryIO:
    """Open a regular file for reading. The open file is checked, so that nobody can replace it meanwhile.

    Args:
        path: the file.
        links: whether it may be a link to a file.

    Raises:
        OSError: there is no such file, or it cannot be opened.
        InputError: it is a folder, a pipe or a device, which may never end.
    """
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    mode = stat.S_IFSOCK
    try:
        descriptor = os.open(path, flags if links else flags | getattr(os, "O_NOFOLLOW", 0))
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket
            raise
    raise InputError(str(path), "a folder" if stat.S_ISDIR(mode) else "not a regular file", "must be a file")
