"""Text, lists and folders of caption data sets; an error names the file and the line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from contml import InputError


def read_text(path: Path, option: str, encoding: str = "utf-8") -> str:
    """The text of a file; a byte-order mark is left out. `option` is the config's option that names the file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; set {option} to the name of the file; {_contents(path.parent)}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return content.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: not {encoding} text (byte 0x{content[error.start]:02x}); "
            "save it as UTF-8, or set encoding to what it is (latin-1, utf-16)"
        ) from None
    except LookupError:
        raise InputError(f"encoding is {encoding!r}, which is unknown; give utf-8, latin-1 or utf-16") from None


def read_lines(path: Path, option: str, encoding: str = "utf-8") -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1.

    Only line feeds end a line: `str.splitlines` also cuts at U+2028, U+0085 and control characters, and captions have
    these.
    """
    lines = read_text(path, option, encoding).split("\n")
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1) if line.strip()]


def read_names(path: Path, option: str) -> list[str]:
    """A list of image names, one per line, each once."""
    first: dict[str, int] = {}
    for number, line in read_lines(path, option):
        name = line.strip()
        if name in first:
            raise InputError(f"{path}:{number}: {name} appears twice, first in line {first[name]}")
        first[name] = number
    if not first:
        raise InputError(f"{path}: names no images; give one name per line")
    return list(first)


def read_json(path: Path, option: str, encoding: str = "utf-8") -> Any:
    """The content of a JSON file."""
    text = read_text(path, option, encoding)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON, or cut short ({error})") from None


def data_folder(root: str) -> Path:
    """The folder of a data set.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"root={root}: no such folder; give the folder of the data set")
    return folder


class Folders:
    """Which files exist. Every folder is listed once: for a hundred thousand files, looking up each is slow."""

    def __init__(self) -> None:
        self._files: dict[Path, frozenset[str]] = {}

    def find(self, *places: Path) -> Path | None:
        """The first of these places that is a file, or None."""
        return next((place for place in places if place.name in self._listed(place.parent)), None)

    def _listed(self, folder: Path) -> frozenset[str]:
        if folder not in self._files:
            try:
                with os.scandir(folder) as entries:
                    self._files[folder] = frozenset(entry.name for entry in entries if entry.is_file())
            except OSError:
                self._files[folder] = frozenset()
        return self._files[folder]


def _contents(folder: Path) -> str:
    """What a folder holds, in words."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return f"{folder} is no folder"
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{folder} holds {shown or 'nothing'}"
