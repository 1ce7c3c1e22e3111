"""The folder of a data set, the folders of its images, and which files exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml._support.packed_texts import Texts
from contml.data.text_files import not_unpacked, spellings, written_path

#: What to do with missing images or labels: raise an error, or omit and count them.
Missing: TypeAlias = Literal["refuse", "drop"]

#: The largest width or height of an image that annotations may declare.
MOST_PIXELS = 1_000_000


def data_folder(root: str, what: str = "the data set") -> Path:
    """The folder that the option `root` names.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError("root", f"no such folder {root}", hint=f"give the folder of {what}")
    return folder


def folder_with(root: str, mark: str, inside: Sequence[str], what: str) -> Path:
    """The folder that holds the file or folder `mark`: the root, or one of the folders `inside` it.

    Raises:
        InputError: there is no such folder, or it has no `mark`; the error names an archive that is not unpacked.
    """
    folder = data_folder(root, what)
    for candidate in (folder, *(folder / name for name in inside)):
        if (candidate / mark).exists():
            return candidate
    raise InputError(str(folder), f"has no {mark}{not_unpacked(folder)}", hint=f"give the folder of {what}")


def image_folders(root: Path, images: str | list[str]) -> list[Path]:
    """The folders that an option `images` names in the folder of the data set: one, or several.

    Raises:
        InputError: the list is empty.
    """
    names = [images] if isinstance(images, str) else list(images)
    if not names:
        raise InputError("images", "[]", "must be the folder of the images, or a list of folders")
    return [root / name for name in names]


class DiskFiles:
    """Which files exist. Each folder is listed once: asking for each of a million files is slow."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}

    def has(self, path: str | Path) -> bool:
        """Whether the file exists."""
        folder, name = os.path.split(path)
        return name in self.names(folder)

    def has_each(self, paths: Texts) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each file exists, bool `[N]`; the names of one folder at a time are in memory."""
        found = np.zeros(len(paths), bool)
        for folder, rows, names in paths.folders():
            found[rows] = names.positions(self.listed(folder)) >= 0
        return found

    def find(self, *places: Path) -> Path | None:
        """The first of these places that is a file, or None."""
        return next((path for path in places if self.has(path)), None)

    def locate(self, folders: Sequence[Path], name: str) -> Path:
        """The path of the file in the first folder that has it; if none has it, its path in the first folder."""
        paths = [folder / spelling for folder in folders for spelling in spellings(written_path(name))]
        return self.find(*paths) or paths[0]

    def names(self, folder: str | Path) -> frozenset[str]:
        """The names of the files in a folder; none where there is no such folder."""
        folder = os.fspath(folder)
        if folder not in self._listed:
            self._listed[folder] = frozenset(self.listed(folder))
        return self._listed[folder]

    def listed(self, folder: str) -> Texts:
        """The names of the files in a folder, which are read from the disk."""
        try:
            with os.scandir(folder or ".") as entries:
                return Texts(entry.name for entry in entries if entry.is_file())
        except (OSError, ValueError):  # a name with a NUL character, or that the file system cannot encode
            return Texts(())

    def forget(self) -> None:
        """Free the memory of the lists."""
        self._listed.clear()


def refuse_absent(
    absent: Sequence[Path], listed: int, what: str, *, kind: str = "image", can_drop: bool = True
) -> None:
    """Refuse missing files.

    Args:
        absent: the missing files, each once; empty: nothing is refused.
        listed: how many files the data set lists.
        what: the listed files in words: "training images of captions.csv".
        kind: the word for one such file.
        can_drop: whether missing=drop would help.

    Raises:
        InputError: there are missing files. The message gives the reason, if the folder shows it.
    """
    if absent:
        counts = f"{len(absent):,} of {listed:,} {what} are missing"
        hint = "check root and the folders of images" + (", or set missing=drop to omit them" if can_drop else "")
        reason = why_absent(absent[0])
        raise InputError(str(absent[0]), f"no such {kind} ({counts}{f'; {reason}' if reason else ''})", hint=hint)


def why_absent(path: Path) -> str:
    """Why there is no such file, as far as the folder shows it; else ""."""
    folder, names_there = path.parent, DiskFiles().names(path.parent)
    if similar_names := sorted(name for name in names_there if name.lower() == path.name.lower()):
        return f"there is {similar_names[0]}: upper and lower case differ"
    if os.path.isdir(folder):  # noqa: PTH112  # False for a name that is too long
        return ""
    while not os.path.isdir(folder.parent):  # noqa: PTH112  # the highest folder that does not exist, and an archive beside it
        folder = folder.parent
    return f"there is no folder {folder}{not_unpacked(folder.parent)}"
