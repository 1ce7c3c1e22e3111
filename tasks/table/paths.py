"""Paths in the cells of a table: beside the file, absolute, or in another folder; and whether the files are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from .._readers.folders import IMAGE_SUFFIXES, Files

#: How files of images end.
SUFFIXES = (*IMAGE_SUFFIXES, ".ppm", ".pgm")
_MAP_MODES = ("1", "L", "P", "I", "I;16")
#: A picture has more grey values than that, a label map seldom.
_FEW_VALUES = 64


class CellFiles(Files):
    """Files by what cells say.

    Args:
        root: the folder that relative paths start from.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = str(root)
        self._start = "" if self.root == "." else self.root

    def place(self, cell: str) -> str:
        """Where a cell's file is or should be."""
        cell = cell.strip()
        if "\\" in cell and "/" not in cell and os.sep == "/":  # written on Windows
            cell = cell.replace("\\", "/")
        return os.path.join(self._start, os.path.expanduser(cell) if cell.startswith("~") else cell)  # noqa: PTH111, PTH118


def looks_like_paths(cells: Sequence[str]) -> bool:
    """Whether nearly all cells end as image files do."""
    return sum(cell.lower().endswith(SUFFIXES) for cell in cells) >= 0.9 * len(cells) > 0


def looks_like_maps(paths: Sequence[str]) -> bool:
    """Whether files could hold label maps: of one channel, without loss, few values."""
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
