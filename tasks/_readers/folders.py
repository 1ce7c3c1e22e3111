"""The folder of a data set, the folders of its images, and the search for files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from contml import InputError
from contml.data.text_files import not_unpacked, spellings, written_path

#: What to do with missing images or labels: raise an error, or omit and count them.
Missing: TypeAlias = Literal["refuse", "drop"]

#: The largest width or height of an image that annotations may declare.
MOST_PIXELS = 1_000_000


def data_folder(root: str, what: str = "the data set") -> Path:
    """Return the folder that the option `root` names.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError("root", f"no such folder {root}", hint=f"give the folder of {what}")
    return folder


def folder_with(root: str, mark: str, inside: Sequence[str], what: str) -> Path:
    """Return the folder that holds the file or folder `mark`: the root, or one of the folders `inside` the root.

    Raises:
        InputError: the root does not exist, or no folder has `mark`. The error names an archive that is not unpacked.
    """
    folder = data_folder(root, what)
    for candidate in (folder, *(folder / name for name in inside)):
        if (candidate / mark).exists():
            return candidate
    raise InputError(str(folder), f"has no {mark}{not_unpacked(folder)}", hint=f"give the folder of {what}")


def image_folders(root: Path, images: str | list[str]) -> list[Path]:
    """Return the folders of images, one or several, that an option `images` names in the folder of the data set.

    Raises:
        InputError: the list is empty.
    """
    names = [images] if isinstance(images, str) else list(images)
    if not names:
        raise InputError("images", "[]", "must be the folder of the images, or a list of folders")
    return [root / name for name in names]


class DiskFiles:
    """The files that exist on disk. Each folder is listed once, as checks of a million single files are slow."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}

    def has(self, path: str | Path) -> bool:
        """Return True if the file exists."""
        folder, name = os.path.split(path)
        return name in self.names(folder)

    def find(self, *places: Path) -> Path | None:
        """Return the first of these places that is a file. Return None if no place is a file."""
        return next((path for path in places if self.has(path)), None)

    def locate(self, folders: Sequence[Path], name: str) -> Path:
        """Return the path of the file in the first folder that has it.

        If no folder has the file, return its path in the first folder.
        """
        paths = [folder / spelling for folder in folders for spelling in spellings(written_path(name))]
        return self.find(*paths) or paths[0]

    def names(self, folder: str | Path) -> frozenset[str]:
        """Return the names of the files in a folder. Return an empty set if the folder does not exist."""
        folder = os.fspath(folder)
        if folder not in self._listed:
            try:
                with os.scandir(folder or ".") as entries:
                    self._listed[folder] = frozenset(entry.name for entry in entries if entry.is_file())
            except (OSError, ValueError):  # the name has a NUL character, or the file system cannot encode it
                self._listed[folder] = frozenset()
        return self._listed[folder]

    def forget(self) -> None:
        """Free the memory of the lists."""
        self._listed.clear()


def refuse_absent(
    absent: Sequence[Path], listed: int, what: str, *, kind: str = "image", can_drop: bool = True
) -> None:
    """Refuse missing files.

    Args:
        absent: the missing files, each once. If empty, no error is raised.
        listed: number of files that the data set lists.
        what: a description of the listed files, for example "training images of captions.csv".
        kind: the word for one such file.
        can_drop: True if the option missing=drop can omit the files.

    Raises:
        InputError: there are missing files. The message gives the reason, if the folder shows it.
    """
    if absent:
        counts = f"{len(absent):,} of {listed:,} {what} are missing"
        hint = "check root and the folders of images" + (", or set missing=drop to omit them" if can_drop else "")
        reason = why_absent(absent[0])
        raise InputError(str(absent[0]), f"no such {kind} ({counts}{f'; {reason}' if reason else ''})", hint=hint)


def why_absent(path: Path) -> str:
    """Return the reason why a file is missing, as far as the folder shows it. Return "" if there is no known reason."""
    folder, names_there = path.parent, DiskFiles().names(path.parent)
    if similar_names := sorted(name for name in names_there if name.lower() == path.name.lower()):
        return f"there is {similar_names[0]}: upper and lower case differ"
    if os.path.isdir(folder):  # noqa: PTH112  # False for a name that is too long
        return ""
    while not os.path.isdir(folder.parent):  # noqa: PTH112  # stop at the highest missing folder
        folder = folder.parent
    return f"there is no folder {folder}{not_unpacked(folder.parent)}"
