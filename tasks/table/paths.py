"""File paths in the cells of a table: absolute, or relative to a folder; and whether the files exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from .._readers.folders import IMAGE_SUFFIXES, Files

_SUFFIXES = (*IMAGE_SUFFIXES, ".ppm", ".pgm")
_MAP_MODES = ("1", "L", "P", "I", "I;16")
#: A photograph has more grey values than this, a label map seldom.
_FEW_VALUES = 64


class CellFiles(Files):
    """The files that cells name.

    Args:
        root: the folder that relative paths start from.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = str(root)
        self._start = "" if self.root == "." else self.root

    def place(self, cell: str) -> str:
        """The path of a cell's file."""
        cell = cell.strip()
        if "\\" in cell and "/" not in cell and os.sep == "/":  # written on Windows
            cell = cell.replace("\\", "/")
        return os.path.join(self._start, os.path.expanduser(cell) if cell.startswith("~") else cell)  # noqa: PTH111, PTH118


def looks_like_paths(cells: Sequence[str]) -> bool:
    """Whether at least nine in ten cells end like names of image files."""
    return sum(cell.lower().endswith(_SUFFIXES) for cell in cells) >= 0.9 * len(cells) > 0


def looks_like_maps(paths: Sequence[str]) -> bool:
    """Whether files may hold label maps: one channel, lossless, few values."""
    for path in paths:
        try:
            with Image.open(path) as picture:
                if picture.mode not in _MAP_MODES or picture.format in ("JPEG", "WEBP"):
                    return False
                if len(np.unique(np.asarray(picture))) > _FEW_VALUES:
                    return False
        except (OSError, SyntaxError, ValueError):
            return False
    return bool(paths)
