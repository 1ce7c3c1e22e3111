"""Files of text, also compressed as `.gz`: lines, lists of names, JSON; and the files in a folder of images.

An error names the file and the line.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from unicodedata import category, normalize

from contml._support.door import opened
from contml._support.errors import InputError, closest, one_line
from contml._support.files import most_unpacked, read_bytes, table_suffix
from contml._support.progress import note
from contml.data.decode import FORMAT_NAMES, IMAGE_SUFFIXES, READ_BY

#: The most bytes of a file, unpacked, by default.
MAX_BYTES = 1 << 30
_ARCHIVES = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.bz2", ".rar", ".7z")
_BLOCK = 1 << 24
#: Names that programs write into folders of images, in lower case.
_FOREIGN_FILES, _FOREIGN_FOLDERS = ("thumbs.db", "desktop.ini"), ("__macosx", "@eadir")
#: The most endings that a line lists.
_MOST_ENDINGS = 6
#: `spelled_alike` ignores the character between words, and zeros before a number.
_BETWEEN_WORDS, _LEADING_ZEROS = re.compile(r"[\s_]+|(?<=\w)-+(?=\w)"), re.compile(r"(?<![\d.,])0+(?=\d)")
#: Apostrophes and hyphens that look the same.
_PUNCTUATION = {
    **dict.fromkeys((*range(0x2018, 0x201C), 0x2BB, 0x2BC, 0xB4, 0x60), "'"),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
}
#: The most names that `spelled_alike` compares.
_MOST_COMPARED = 1_000_000
#: The marks at the beginning of a file that define its encoding. The UTF-32 mark begins with the UTF-16 mark.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _too_large(path: Path, got: str) -> InputError:
    return InputError(str(path), got, f"must be at most {MAX_BYTES:,} bytes")


def read_content(
    path: Path, option: str = "", limit: int = MAX_BYTES, too_large: Callable[[Path, str], InputError] = _too_large
) -> bytes:
    """Read the content of a file, and unpack it if its name ends in .gz.

    Args:
        path: the file.
        option: the task's option that names the file, for errors.
        limit: the most bytes that the content may have, unpacked. No more bytes are read.
        too_large: makes the error for a larger file, from its path and a text with its size.

    Raises:
        InputError: no such file, not a regular file (a pipe may never end), too large, or damaged.
    """
    try:
        if path.suffix.lower() != ".gz":
            return read_bytes(path, limit, too_large)
        content = bytearray()
        with opened(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
            plausible = most_unpacked(os.fstat(file.fileno()).st_size)
            while block := unpacked.read(_BLOCK):
                content += block
                if len(content) > limit:
                    raise too_large(path, f"unpacks to more than {limit:,} bytes")
                if len(content) > plausible:
                    raise InputError(str(path), f"unpacks to more than {plausible:,} bytes", hint="unpack it first")
        return bytes(content)
    except InputError:
        raise
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name that no file can have
        raise no_such_file(path, option) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), f"not readable as gzip ({error})") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None


def decoded(path: Path, content: bytes, encoding: str = "utf-8", hint: str = "") -> str:
    """Return the text of a file's content, without its byte-order mark. The mark defines the encoding.

    Args:
        path: the file, for errors.
        content: the bytes of the file.
        encoding: the encoding of a file without a mark.
        hint: how to set the encoding, for errors.

    Raises:
        InputError: it is not text of this encoding, or has NUL characters.
    """
    codec = next((codec for mark, codec in _MARKS if content.startswith(mark)), encoding)
    if codec in ("utf-8", "utf-8-sig") and b"\0" in content[:1000]:
        remedy = f"save it as text in UTF-8{hint}, or let its name end as its format does"
        raise InputError(str(path), "not text (it has NUL bytes)", hint=remedy)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not {codec.removesuffix('-sig')} text (byte 0x{content[error.start]:02x})"
        raise InputError(f"{path}:{line}", problem, hint=f"save it as UTF-8{hint}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}:{line}", "not text (it has NUL bytes)", hint=f"save it as text in UTF-8{hint}")
    return text


def read_text(path: Path, option: str = "", encoding: str | None = None) -> str:
    """Read the text of a file. `encoding` is the value of the task's option of this name, if it has one."""
    hint = ", or set encoding=latin-1 or another" if encoding else ""
    return decoded(path, read_content(path, option), encoding or "utf-8", hint)


def read_lines(path: Path, option: str = "", encoding: str | None = None) -> list[tuple[int, str]]:
    """Read the lines of a file that are not blank, with their numbers from 1.

    Only line feeds end a line. `str.splitlines` also cuts at U+2028, U+0085 and control characters, which captions
    contain.
    """
    lines = enumerate(read_text(path, option, encoding).split("\n"), start=1)
    return [(number, line.removesuffix("\r")) for number, line in lines if line.strip()]


def read_names(path: Path, option: str = "") -> list[str]:
    """Read a list of at least one name, one per line, without repetitions."""
    line_by_name: dict[str, int] = {}
    for number, line in read_lines(path, option):
        add_once(line_by_name, line.strip(), path, number)
    if not line_by_name:
        raise InputError(str(path), "names no images", hint="give one name per line")
    return list(line_by_name)


def add_once(lines: dict[str, int], name: str, path: Path, line: int) -> None:
    """Record the line of a name. Refuse a name that appears on an earlier line."""
    if name in lines:
        raise InputError(f"{path}:{line}", f"{name} appears twice, first in line {lines[name]}")
    lines[name] = line


def read_json(path: Path, option: str = "") -> Any:
    """Read the content of a JSON file.

    Raises:
        InputError: no such file, not JSON, or an object names a key twice.
    """
    return parsed_json(str(path), read_text(path, option))


def parsed_json(where: str, text: str) -> Any:
    """Return the value of a JSON text. `where` is its place, for errors."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _RepeatedKeyError as error:
        raise InputError(where, str(error), hint="give each key once") from None
    except ValueError as error:  # also a number of more than 4,300 digits
        raise InputError(where, f"incomplete, or not JSON ({error})") from None
    except RecursionError:
        raise InputError(where, "lists or objects nested too deeply") from None


class _RepeatedKeyError(Exception):
    """The error for an object that names a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of these keys and values, and refuse a repeated key. `json` itself would keep its last value."""
    if problem := alike(tuple([key for key, _ in pairs])):
        raise _RepeatedKeyError(f"in an object, {problem}")
    return dict(pairs)


@lru_cache(maxsize=64)
def alike(names: tuple[str, ...]) -> str:
    """Return the problem with names (of columns, of keys) that are equal or look equal.

    Return "" for different names.
    """
    keys: dict[str, str] = {}
    for name in names:
        key = " ".join(visible(name).split())
        if key in keys:
            if keys[key] == name:
                return f"'{name:.60}' appears twice"
            return f"'{keys[key]:.60}' and '{name:.60}' differ only by spaces or the form of characters"
        keys[key] = name
    return ""


def visible(name: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """Return a name without invisible characters, with its letters and accents in one Unicode form."""
    if name.isascii():
        return name
    return "".join(c for c in normalize(form, name) if category(c) != "Cf" and c not in "\ufe0e\ufe0f")


def spelled_alike(names: Iterable[str], what: str) -> str:
    """Return a sentence on names that may mean the same. Return "" if there are none.

    Such names differ only in case, in leading zeros, in spaces, hyphens and underscores between words, in the form of
    apostrophes, in full width, in invisible characters, or in how accents are written.

    Args:
        names: different names, such as names of classes.
        what: what they name, in the plural.
    """
    named: dict[str, list[str]] = {}
    for name in islice(names, _MOST_COMPARED):
        seen = visible(name, "NFKC").translate(_PUNCTUATION).casefold()
        named.setdefault(_LEADING_ZEROS.sub("", _BETWEEN_WORDS.sub(" ", seen).strip()), []).append(name)
    similar = [each for each in named.values() if len(each) > 1]
    if not similar:
        return ""
    examples = "; ".join(" and ".join(f"'{escaped(name):.40}'" for name in each[:3]) for each in similar[:3])
    more = f"; and {len(similar) - 3:,} more" if len(similar) > 3 else ""
    return f"counted as different {what}, though spelled alike: {examples}{more}"


def escaped(name: str) -> str:
    """Return a name whose invisible characters and combining accents can be seen."""
    return "".join(f"\\u{ord(c):04x}" if category(c) in ("Cf", "Mn") else c for c in name)


def is_missing(value: object) -> bool:
    """Return True if a value of JSON is null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


# Files that a table, a list or an annotation file names


def written_path(text: str) -> str:
    """Return the path in a text. A path of Windows may have backslashes, and `~` is the user's folder."""
    text = text.strip()
    if "\\" in text and "/" not in text and os.sep == "/":
        text = text.replace("\\", "/")
    return os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111


def spellings(path: str) -> list[str]:
    """Return a path, and its other spellings in Unicode: ä is one character or two."""
    return [path] if path.isascii() else list(dict.fromkeys((path, normalize("NFC", path), normalize("NFD", path))))


# Images in folders


def images_below(folder: Path) -> list[Path]:
    """Return the images in a folder and in the folders inside it, sorted. The number of other files is printed.

    Hidden files and folders are omitted. Files that programs write, such as `Thumbs.db` and `__MACOSX`, are omitted
    too.

    Raises:
        InputError: there are no images.
    """
    walked = list(walk(folder))
    paths = [place / name for place, names in walked for name in names if name.lower().endswith(IMAGE_SUFFIXES)]
    skipped = skipped_text([name for _, names in walked for name in names])
    if not paths:
        got = f"a folder without images{f' ({skipped})' if skipped else ''}"
        raise InputError(str(folder), got + not_unpacked(folder), f"must hold some ({FORMAT_NAMES})")
    if skipped:
        note(f"{folder}: skipped {skipped}")
    return sorted(paths, key=lambda file: file.relative_to(folder).as_posix())


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and the folders inside it, each once, with the names of its files. Hidden files are omitted.

    Links to folders are followed last, so that an image has the path of its own folder. Links in a linked folder are
    not followed: the links in /proc lead to all files of the machine.
    """
    done, starts, left = set[tuple[int, int]](), [folder], 0
    for start in starts:
        for directory, folders, files in os.walk(start):
            place = Path(directory)
            status = place.stat()
            if (status.st_dev, status.st_ino) in done:
                folders.clear()
                continue
            done.add((status.st_dev, status.st_ino))
            folders[:] = sorted(name for name in folders if name[0] != "." and name.lower() not in _FOREIGN_FOLDERS)
            links = [place / name for name in folders if (place / name).is_symlink()]
            if start == folder:
                starts += links
            else:
                left += len(links)
            yield place, sorted(name for name in files if name[0] != "." and name.lower() not in _FOREIGN_FILES)
    if left:
        note(f"{folder}: {left:,} links in folders of links were not followed")


def skipped_text(names: Sequence[str]) -> str:
    """Count the files that are not read, by ending: "40 .heic files (pip install X reads them), 3 .txt"."""
    suffixes = Counter(Path(name).suffix.lower() for name in names if not name.lower().endswith(IMAGE_SUFFIXES))
    known = {suffix: count for suffix, count in suffixes.most_common() if re.fullmatch(r"\.\w{1,10}", suffix)}
    counts = [(suffix, known[suffix]) for suffix in sorted(known, key=lambda suffix: suffix not in READ_BY)]
    texts: list[str] = []
    for suffix, count in counts[:_MOST_ENDINGS]:
        noun = "" if texts else " files" if count > 1 else " file"
        reader = f" (pip install {READ_BY[suffix]} reads them)" if suffix in READ_BY else ""
        texts.append(f"{count:,} {suffix}{noun}{reader}")
    if rest := suffixes.total() - sum(count for _, count in counts[:_MOST_ENDINGS]):
        texts.append(f"{rest:,} other{'s' if rest > 1 else ''}")
    return ", ".join(texts)


# Files that do not exist


def no_such_file(path: Path, option: str = "") -> InputError:
    """Return the error for a missing file. `option` is the task's option that names the file, if there is one."""
    hint = f"set {option} to the name of the file" if option else similar_name(path)
    folder, contents = path.parent, f"{path.parent} is not a folder"
    if os.path.isdir(folder):  # noqa: PTH112
        names = _names_in(folder)
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        title = "this folder" if folder == Path() else str(folder)
        contents = f"{title} holds {', '.join(names[:6]) or 'nothing'}{more}"
    return InputError(str(path), f"no such file ({contents}{not_unpacked(folder)})", hint=hint)


def similar_name(path: Path, images: Collection[str] = ()) -> str:
    """Return a question that suggests a similar name in the folder of a missing file. Return "" if there is none.

    The ending must be the same, or mistyped. All endings in `images` count as the same ending, and may be missing.
    """
    ending, stem = table_suffix(path), _stem(path.name)
    names: dict[str, str] = {}  # without their endings, which would make all names similar
    for name in _names_in(path.parent):
        other = table_suffix(Path(name))
        is_image = other in images and (ending in images or not ending)
        if is_image or other == ending or (ending and closest(ending, [other])):
            names.setdefault(_stem(name), name)
    suggestion = closest(stem, names)
    # The same name may be in the folder: it is a link to nothing.
    return f"did you mean '{names[suggestion]}'?" if suggestion and names[suggestion] != path.name else ""


def _stem(name: str) -> str:
    """Return a name in lower case without its ending, and without .gz."""
    return Path(name.lower().removesuffix(".gz")).stem


def not_unpacked(folder: Path) -> str:
    """Return a remark for an error if a folder holds an archive: ", images.zip is not unpacked".

    Otherwise return "".
    """
    archive = next((name for name in _names_in(folder) if name.lower().endswith(_ARCHIVES)), None)
    return f", {archive} is not unpacked" if archive else ""


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder that are not hidden, sorted. Return none if there is no such folder."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
    except (OSError, ValueError):
        return []
