"""Images in shards: tar archives as WebDataset writes them, Parquet files, and data sets of Hugging Face on disk.

A path leads into a shard as into a folder, so that an image in a shard is an image file for lists, tables and indexes:

    photos-000003.tar/cat/17.jpg      a member of an archive
    photos-000003.tar:jpg/cat/17.jpg  the same, where samples have several images: only those named `KEY.jpg`
    train.parquet/17                  a row: its number, or the path that its image has
    train.parquet:image:id/17         the same, with the column of the images and that of their names
    train/data-00000-of-00001.arrow/17

Only names and positions are kept of a shard that is open, in arrays; images are read one by one. A shard that has
changed is opened again.
"""

from __future__ import annotations

import json
import os
import re
import stat
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contml._support.errors import InputError
from contml._support.texts import Texts

#: Endings of shards, in lower case.
SHARD_SUFFIXES = (".tar", ".parquet", ".pq", ".arrow")
#: Files beside the Arrow files of a data set of Hugging Face.
DATASET_FILES = ("state.json", "dataset_info.json", "dataset_dict.json")
#: The end of the path of a shard, and what is chosen in it, before the name of an image.
_INSIDE = re.compile(r"\.(?:tar|parquet|pq|arrow)(:[^/]*)?/", re.IGNORECASE)
#: Compressed archives, and the command that unpacks each.
_COMPRESSED = {
    (".tar.gz", ".tgz"): "gunzip -k",
    (".tar.bz2", ".tbz", ".tbz2"): "bunzip2 -k",
    (".tar.xz", ".txz"): "unxz -k",
    (".tar.zst", ".tzst"): "unzstd",
}
#: The most bytes of a text or of JSON, or characters of a row, that are metadata of an image.
MOST_METADATA = 1 << 20


class Address(NamedTuple):
    """A shard, and what of it is read.

    Attributes:
        file: its path.
        part: as in a path: "", ":EXTENSION" of an archive, ":COLUMN" or ":COLUMN:COLUMN OF NAMES" of a table.
    """

    file: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.file}{self.part}"

    def path(self, name: str) -> str:
        """The path of an image."""
        return f"{self}/{name}"


class Shard(ABC):
    """A file of many images.

    Attributes:
        names: the name of each image in the shard.
        skipped: how many other files it has, by ending.
    """

    def __init__(self, address: Address, names: Texts, skipped: Mapping[str, int] | None = None) -> None:
        self.address, self.names, self.skipped = address, names, Counter(skipped)
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        self._rows = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._rows]
        for position in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]).tolist():
            name, other = (names[int(self._rows[position + n])] for n in (0, 1))
            if name == other:
                raise InputError(str(address), f"two images named {name}", hint="names must differ")

    def row(self, name: str) -> int | None:
        """The row of an image; None: there is none of this name."""
        position = int(np.searchsorted(self._hashes, hash(name)))
        while position < len(self._hashes) and self._hashes[position] == hash(name):
            row = int(self._rows[position])
            if self.names[row] == name:
                return row
            position += 1
        return None

    @abstractmethod
    def read(self, row: int) -> bytes:
        """The content of the image file of a row.

        Raises:
            OSError: it cannot be read.
        """

    @abstractmethod
    def sizes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The bytes of each image file `[N]`; 0 of one that cannot be read.

        Raises:
            InputError: the shard is damaged.
        """

    @abstractmethod
    def metadata(self, row: int) -> dict[str, str]:
        """What else the shard says about an image, as texts by name.

        Raises:
            OSError: it cannot be read.
        """


def is_shard(name: str) -> bool:
    """Whether a name ends as a shard does."""
    return name.lower().endswith(SHARD_SUFFIXES)


def refuse_compressed(path: Path) -> None:
    """Refuse a compressed archive: there is no random access to its images.

    Raises:
        InputError: it is one.
    """
    for suffixes, command in _COMPRESSED.items():
        if path.name.lower().endswith(suffixes):
            raise InputError(str(path), "a compressed archive", "must be a .tar", f"unpack it: {command} {path}")


def leads_into_shard(path: str) -> bool:
    """Whether a path is written as one into a shard, which may not exist."""
    return _INSIDE.search(path.replace("\\", "/")) is not None


def find(path: str | os.PathLike[str]) -> tuple[Address, str] | None:
    """The shard that a path leads into, and the name of the image in it; None for a path of another kind."""
    text = os.fspath(path) if os.sep == "/" else os.fspath(path).replace(os.sep, "/")
    for match in _INSIDE.finditer(text):
        part = match[1] or ""
        file = text[: match.end() - 1 - len(part)]
        if os.path.isfile(file):  # noqa: PTH113
            return Address(file, part), text[match.end() :]
    return None


def folder_in(path: str) -> tuple[Shard, str] | None:
    """The shard that the path of a folder leads into, and the folder in it; None for a path of another kind.

    Raises:
        InputError: the shard is damaged, or cannot be read.
    """
    found = find(os.path.join(path, ""))  # noqa: PTH118  # with a slash at the end
    if found is None:
        return None
    address, folder = found
    try:
        return opened(address), folder
    except OSError as error:
        raise InputError(address.file, f"cannot be read ({error.strerror or error})") from None


def file_of(path: str | os.PathLike[str]) -> str:
    """The file that holds an image: the shard, if the path leads into one, else the path itself."""
    found = find(path)
    return os.fspath(path) if found is None else found[0].file


def file_state(path: str | os.PathLike[str]) -> str:
    """Size and time of change of the file that holds an image: another state means that the file has changed.

    Raises:
        OSError: there is no such file.
    """
    status = os.stat(file_of(path))  # noqa: PTH116
    return f"{status.st_size} {status.st_mtime_ns}"


def exists(path: Path) -> bool:
    """Whether there is an image file, or an image in a shard.

    Raises:
        InputError: the shard is damaged.
    """
    found = find(path)
    if found is None:
        return os.path.isfile(path)  # noqa: PTH113  # False, and no error, for a path that no file can have
    return opened(found[0]).row(found[1]) is not None


def position(path: str) -> tuple[str, int]:
    """The shard of an image and its row there, in whose order images are read fastest; ("", 0) of no shard."""
    found = find(path)
    if found is None:
        return "", 0
    row = opened(found[0]).row(found[1])
    return str(found[0]), -1 if row is None else row


def read_image(path: Path) -> bytes | None:
    """The content of an image in a shard; None if the path leads into no shard.

    Raises:
        OSError: the image cannot be read.
    """
    found = find(path)
    if found is None:
        return None
    shard, row = _located(*found)
    return shard.read(row)


def metadata(path: Path) -> dict[str, str]:
    """What a shard says about an image; nothing if the path leads into no shard.

    Raises:
        OSError: it cannot be read.
    """
    found = find(path)
    if found is None:
        return {}
    shard, row = _located(*found)
    return shard.metadata(row)


def _located(address: Address, name: str) -> tuple[Shard, int]:
    try:
        shard = opened(address)
    except InputError as error:  # as of an image file that is damaged
        raise OSError(f"{address} is {error.got}") from None
    row = shard.row(name)
    if row is None:
        raise FileNotFoundError(f"no such image in {address}")
    return shard, row


#: Open shards, with size and time of change of their files.
_opened: dict[Address, tuple[tuple[int, int], Shard]] = {}


def opened(address: Address) -> Shard:
    """The shard at an address.

    Raises:
        InputError: it is damaged, has no images, or is not a regular file.
        OSError: there is no such file.
    """
    status = os.stat(address.file)  # noqa: PTH116
    if not stat.S_ISREG(status.st_mode):  # a pipe may never end
        raise InputError(address.file, "not a regular file", "must be a file")
    state = status.st_size, status.st_mtime_ns
    known = _opened.get(address)
    if known is None or known[0] != state:
        suffix = Path(address.file).suffix.lower()
        if suffix == ".tar":
            shard: Shard = TarShard(address)
        else:
            from contml.data.shard_tables import ArrowShard, ParquetShard  # here: it imports pyarrow

            shard = ArrowShard(address, state) if suffix == ".arrow" else ParquetShard(address, state)
        known = _opened[address] = state, shard
    return known[1]


def close(address: Address) -> None:
    """Free the memory of an open shard."""
    _opened.pop(address, None)


def shards_among(walked: Iterable[tuple[Path, list[str]]]) -> list[Path]:
    """The shards among the files of folders: archives; else data sets of Hugging Face; else Parquet files.

    The folder of a WebDataset may have Parquet files of metadata beside its archives.

    Args:
        walked: each folder with the names of its files.

    Raises:
        InputError: an archive is compressed, or a data set lacks a file.
    """
    archives, datasets, tables = list[Path](), list[Path](), list[Path]()
    for place, names in walked:
        compressed = tuple(suffix for suffixes in _COMPRESSED for suffix in suffixes)
        archives += [place / name for name in names if name.lower().endswith((".tar", *compressed))]
        tables += [place / name for name in names if name.lower().endswith((".parquet", ".pq"))]
        if {*DATASET_FILES[:2]} <= {*names}:
            datasets += _dataset_files(place)
    for path in archives:
        refuse_compressed(path)
    return archives or datasets or tables


def _dataset_files(folder: Path) -> list[Path]:
    """The files of a data set that `save_to_disk` wrote; there may be others, of an earlier one."""
    state = folder / "state.json"
    try:
        names = [each["filename"] for each in json.loads(state.read_bytes())["_data_files"]]
        if not all(isinstance(name, str) and name == os.path.basename(name) for name in names):  # noqa: PTH119
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise InputError(str(state), "does not name the files of a data set", hint="save it again") from None
    for name in names:
        if not (folder / name).is_file():
            raise InputError(str(folder / name), "no such file", hint=f"{state} names it: copy the whole folder")
    return [folder / name for name in names]


def plain_name(name: str) -> str:
    """The name of an image in a shard as a path has it: without `./`, and no slashes at its ends."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts; those that are missing are left out."""
    texts = {}
    for name, value in values.items():
        if value is not None and not (isinstance(value, float) and np.isnan(value)):
            is_nested = isinstance(value, dict | list)
            texts[str(name)] = json.dumps(value, ensure_ascii=False, default=str) if is_nested else str(value)
    return texts


# -- archives ----------------------------------------------------------------------------------------------------------

#: The file of a sample that holds values by name, and those that hold a text, by extension.
_JSON, _TEXTS = ("json",), ("txt", "text", "cls", "caption")
_BLOCK = 512
#: In place of an extension: all images of a sample.
ALL = "*"


class TarShard(Shard):
    """An uncompressed tar archive. Members with the same name up to the first dot, the key, are one sample.

    An image is a member with the ending of an image; a sample has one at most, unless the part is `:*`. `.json`, `.txt`
    and `.cls` of a sample are metadata of its image.

    Raises:
        InputError: it is not an archive, cut short or damaged, has no images, or two in a sample.
    """

    def __init__(self, address: Address) -> None:
        extension, subject = address.part[1:].lower(), str(address)
        self._offsets, self._sizes = array("q"), array("q")
        keys, skipped = array("q"), Counter[str]()
        texts = {name: (array("q"), array("q"), array("q")) for name in (*_JSON, *_TEXTS)}  # key, offset, size

        def names() -> Iterator[str]:
            from contml.data.decode import IMAGE_SUFFIXES  # here: `decode` reads images in shards

            for member in _members(address.file):
                name = plain_name(member.name)
                key, _, own = name.rpartition("/")[2].partition(".")
                if member.isdir() or not key or any(part[0] == "." for part in name.split("/") if part != ".."):
                    continue  # hidden files, such as those of macOS
                own, key_hash = own.lower(), hash(name[: len(name) - len(own)])
                is_file = member.isreg() and not member.issparse()
                if own in texts:
                    for numbers, number in zip(texts[own], (key_hash, member.offset_data, member.size), strict=True):
                        numbers.append(number)
                elif name.lower().endswith(IMAGE_SUFFIXES) if extension in ("", ALL) else own == extension:
                    keys.append(key_hash)
                    self._offsets.append(member.offset_data)
                    self._sizes.append(member.size if is_file else _NOT_A_FILE)
                    yield name
                else:
                    skipped[f".{own.rpartition('.')[2]}" if own else "other"] += 1

        super().__init__(address, Texts(names()), skipped)
        if not len(self.names):
            got = f"no images{f' named KEY.{extension}' if extension else ''}"
            found = ", ".join(f"{count:,} {suffix}" for suffix, count in skipped.most_common(6))
            raise InputError(subject, got, hint=f"it has {found}" if found else "is it empty?")
        if extension != ALL:
            self._refuse_several(np.asarray(keys))
        self._texts = {name: _joined(keys, *each) for name, each in texts.items() if len(each[0])}

    def _refuse_several(self, keys: np.ndarray[Any, Any]) -> None:
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(same):
            position = min(same, key=order.__getitem__)
            first, second = (self.names[int(order[position + n])] for n in (0, 1))
            kind = first.rpartition("/")[2].partition(".")[2]
            each, every = f"'{self.address.file}:{kind}'", f"'{self.address.file}:{ALL}'"
            hint = f"{each} reads those named KEY.{kind}, and {every} all images; a key ends at the first dot"
            raise InputError(str(self.address), f"two images in a sample, {first} and {second}", hint=hint)

    def read(self, row: int) -> bytes:
        """The bytes of a member."""
        size = self._sizes[row]
        if size == _NOT_A_FILE:
            raise OSError("a link or a special file of the archive, which is not read")
        if not size:
            raise OSError("empty file")
        return self._bytes(self._offsets[row], size)

    def sizes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The sizes of the members."""
        return np.array(self._sizes, np.int64).clip(min=0)

    def metadata(self, row: int) -> dict[str, str]:
        """The values of the `.json` of the sample, and its texts by their extensions."""
        found: dict[str, str] = {}
        for name, (offsets, sizes) in self._texts.items():
            if offsets[row] < 0:
                continue
            if sizes[row] > MOST_METADATA:
                raise OSError(f".{name} of {sizes[row]:,} bytes; must be at most {MOST_METADATA:,}")
            try:
                text = self._bytes(int(offsets[row]), int(sizes[row])).decode()
                if name in _JSON:
                    values = json.loads(text)
                    if not isinstance(values, dict):
                        raise ValueError(f"a {type(values).__name__}, not values by name")
                    found |= texts_of(values)
                else:
                    found[name] = text.strip()
            except (ValueError, RecursionError) as error:
                raise OSError(f"its .{name}: {str(error)[:100]}") from None
        return found

    def _bytes(self, offset: int, size: int) -> bytes:
        with open(self.address.file, "rb") as file:  # noqa: PTH123  # once per image, as of files
            file.seek(offset)
            found = file.read(size)
        if len(found) < size:
            raise OSError("the archive is cut short")
        return found


#: The size of a member that is a link, or a special file.
_NOT_A_FILE = -1


def _members(path: str) -> Iterator[Any]:
    """The members of an archive, whose end is checked; `tarfile` alone takes a damaged header for the end."""
    import tarfile

    hint = "copy it again, or make it again"
    try:
        with tarfile.open(path, "r:") as archive:
            size, end = os.path.getsize(path), -1  # noqa: PTH202
            while (member := archive.next()) is not None:
                if archive.offset <= end or member.size < 0:  # a hostile size: it would go round in circles
                    raise InputError(path, f"damaged near byte {end:,}", hint=hint)
                end = archive.offset
                archive.members.clear()  # type: ignore[attr-defined]  # else it keeps an object for each
                if member.isreg() and not member.issparse() and member.offset_data + member.size > size:
                    stop = member.offset_data + member.size
                    got = f"cut short: its member {member.name} ends at byte {stop:,} of {size:,}"
                    raise InputError(path, got, hint=hint)
                yield member
            end = archive.offset
    except (InputError, FileNotFoundError):
        raise
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        head = _head(path)
        for begin, command in _COMPRESSIONS.items():
            if head.startswith(begin):
                hint = f"rename it, then unpack it: {command} {path}.{_ENDINGS_OF[command]}"
                raise InputError(path, "a compressed archive", "must be uncompressed", hint) from None
        got = "cut short" if "unexpected end" in str(error) else f"not a tar archive ({str(error)[:80]})"
        raise InputError(path, got, hint=hint) from None
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(end)
        block = file.read(_BLOCK)
        if not block:
            raise InputError(path, "cut short: it has no end-of-archive marker", hint=hint)
        if block.strip(b"\0") or len(block) < _BLOCK:
            raise InputError(path, f"damaged or cut short at byte {end:,}", hint=hint)
        while block:
            end += len(block)
            block = file.read(1 << 20)
            if block.strip(b"\0"):
                got = f"continues after its end, near byte {end:,}: several archives in one file?"
                raise InputError(path, got, hint="give the archives apart, or join them with 'tar --concatenate'")


#: How compressed files begin, what unpacks them, and the ending that this needs.
_COMPRESSIONS = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
_ENDINGS_OF = {"gunzip": "gz", "bunzip2": "bz2", "unxz": "xz", "unzstd": "zst"}


def _head(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(8)


def _joined(keys: array[int], other: array[int], offsets: array[int], sizes: array[int]) -> tuple[Any, Any]:
    """Offset and size of the file of each key `[N]`; an offset of -1 where there is none.

    Args:
        keys: hashes of the keys `[N]`.
        other: those of the files `[M]`.
        offsets: of the files.
        sizes: of the files.
    """
    wanted, known = np.asarray(keys), np.asarray(other)
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    rows = order[places]
    is_found = known[rows] == wanted
    return np.where(is_found, np.asarray(offsets)[rows], -1), np.asarray(sizes)[rows]
