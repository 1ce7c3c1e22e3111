"""The folder of a data set, the folders of its images, and which files are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from contml import InputError

#: What happens where images or labels are missing.
Missing: TypeAlias = Literal["refuse", "drop"]

#: How names of images end, in lower case.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_PACKED = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.bz2", ".rar", ".7z")


def data_folder(root: str, what: str = "the data set") -> Path:
    """The folder that the option `root` names.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"root={root}: no such folder; give the folder of {what}")
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
    raise InputError(f"{folder}: has no {mark}{not_unpacked(folder)}; give the folder of {what}")


def image_folders(root: Path, images: str | list[str]) -> list[Path]:
    """The folders that an option `images` names in the folder of the data set: one, or several.

    Raises:
        InputError: the list is empty.
    """
    names = [images] if isinstance(images, str) else list(images)
    if not names:
        raise InputError("images=[]: names no folder; give the folder of the images, or a list of folders")
    return [root / name for name in names]


class Files:
    """Which files exist. Every folder is listed once: to ask for each of a million files is slow."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}

    def has(self, path: str | Path) -> bool:
        """Whether there is a file."""
        folder, name = os.path.split(path)
        return name in self.names(folder)

    def find(self, *places: Path) -> Path | None:
        """The first of these places that is a file, or None."""
        return next((place for place in places if self.has(place)), None)

    def locate(self, folders: Sequence[Path], name: str) -> Path:
        """Where a file is, in the first of the folders that has it, or else where it should be, in the first."""
        places = [folder / name for folder in folders]
        return self.find(*places) or places[0]

    def names(self, folder: str | Path) -> frozenset[str]:
        """The names of the files in a folder; none where there is no such folder."""
        folder = os.fspath(folder)
        found = self._listed.get(folder)
        if found is None:
            try:
                with os.scandir(folder or ".") as entries:
                    found = frozenset(entry.name for entry in entries if entry.is_file())
            except OSError:
                found = frozenset()
            self._listed[folder] = found
        return found

    def forget(self) -> None:
        """Let go of the lists of folders."""
        self._listed.clear()


def refuse_absent(
    absent: Sequence[Path], listed: int, what: str, *, kind: str = "image", can_drop: bool = True
) -> None:
    """Refuse missing files.

    Args:
        absent: where files should be, each once; none: nothing is refused.
        listed: how many the data set lists.
        what: these, in words: "training images of captions.csv".
        kind: what such a file is.
        can_drop: whether missing=drop would help.

    Raises:
        InputError: there are such files. It says why, as far as the folder shows it.
    """
    if absent:
        hint = ", or set missing=drop to leave them out" if can_drop else ""
        raise InputError(
            f"{absent[0]}: no such {kind} ({len(absent):,} of {listed:,} {what} are missing{_why_absent(absent[0])}); "
            f"check root and the folders of images{hint}"
        )


def no_such_file(path: Path, option: str = "") -> InputError:
    """The error of a file that is not there; `option` is the one that names it, if there is one."""
    hint = f"set {option} to the name of the file; " if option else ""
    return InputError(f"{path}: no such file; {hint}{_contents(path.parent)}{not_unpacked(path.parent)}")


def not_unpacked(folder: Path) -> str:
    """A hint where a folder holds an archive: "; images.zip is not unpacked"; else ""."""
    packed = sorted(n for n in Files().names(folder) if n.lower().endswith(_PACKED) and not n.startswith("."))
    return f"; {packed[0]} is not unpacked" if packed else ""


def _why_absent(path: Path) -> str:
    beside = Files().names(path.parent)
    if alike := sorted(name for name in beside if name.lower() == path.name.lower()):
        return f"; there is a {alike[0]}: upper and lower case differ"
    folder = path.parent
    if folder.is_dir():
        return ""
    while not folder.parent.is_dir():  # the highest folder that does not exist, and an archive beside it
        folder = folder.parent
    return f"; there is no folder {folder}{not_unpacked(folder.parent)}"


def _contents(folder: Path) -> str:
    """What a folder holds, in words."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return f"{folder} is no folder"
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{folder} holds {shown or 'nothing'}"
