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

#: A file may have so many bytes, unpacked, where no option says otherwise.
MAX_BYTES = 1 << 30
_ARCHIVES = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.bz2", ".rar", ".7z")
_BLOCK = 1 << 24
#: Names that programs write into folders of images, in lower case.
_FOREIGN_FILES, _FOREIGN_FOLDERS = ("thumbs.db", "desktop.ini"), ("__macosx", "@eadir")
#: How many endings a line names.
_MOST_ENDINGS = 6
#: What does not count in `spelled_alike`: which character is between words, and zeros before a number.
_BETWEEN_WORDS, _LEADING_ZEROS = re.compile(r"[\s_]+|(?<=\w)-+(?=\w)"), re.compile(r"(?<![\d.,])0+(?=\d)")
_VARIATIONS = "\ufe0e\ufe0f"
#: Apostrophes and hyphens that look the same.
_PUNCTUATION = {
    **dict.fromkeys((*range(0x2018, 0x201C), 0x2BB, 0x2BC, 0xB4, 0x60), "'"),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
}
#: The most names that `spelled_alike` compares.
_MOST_COMPARED = 1_000_000
#: The marks at the beginning of a file that say its encoding. That of UTF-16 is the beginning of that of UTF-32.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: How other files begin: what they are, and what to do with a table that they may hold.
_FILES_OF_BYTES = {
    b"\x1f\x8b": ("a gzip file", "add .gz to its name"),
    b"PAR1": ("a Parquet file", "let its name end in .parquet"),
    b"PK\x03\x04": ("an Excel file or another archive", "let the name of an Excel file end in .xlsx; unpack others"),
    b"\xd0\xcf\x11\xe0": ("an Excel file of the form before 2007", "save the sheet as CSV or .xlsx"),
}


def _too_large(path: Path, got: str) -> InputError:
    return InputError(str(path), got, f"must be at most {MAX_BYTES:,} bytes")


def read_content(
    path: Path,
    option: str = "",
    limit: int = MAX_BYTES,
    too_large: Callable[[Path, str], InputError] = _too_large,
) -> bytes:
    """Returns the content of a file, unpacked where its name ends in .gz.

    Args:
        path: the file.
        option: the task's option that names the file, for errors.
        limit: the most bytes that it may have, unpacked. No more than these are read.
        too_large: makes the error of a file that has more, of its path and its size in words.

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
    """Returns the text of a file's content, without its byte-order mark, which says the encoding.

    Args:
        path: the file, for errors.
        content: its bytes.
        encoding: of a file without a mark.
        hint: how to set the encoding, for errors.

    Raises:
        InputError: it is not text of this encoding, or has NUL characters.
    """
    codec = next((codec for mark, codec in _MARKS if content.startswith(mark)), encoding)
    if codec in ("utf-8", "utf-8-sig") and b"\0" in content[:1000]:
        problem, remedy = next(
            (found for start, found in _FILES_OF_BYTES.items() if content.startswith(start)), _utf_16(content, hint)
        )
        raise InputError(str(path), problem, hint=remedy)
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


def _utf_16(content: bytes, hint: str) -> tuple[str, str]:
    """What a file with NUL bytes is, and what to do: perhaps UTF-16 without a mark, where every second byte is 0."""
    for place, codec in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(content) % 2 == 0 and content[place:200:2].count(0) == len(content[place:200:2]):
            how = f"{hint.partition('encoding=')[0]}encoding={codec}" if hint else ""
            return "UTF-16 text without a byte-order mark", f"save it as UTF-8{how}"
    return "not text (it has NUL bytes)", "save it as text in UTF-8"


def read_text(path: Path, option: str = "", encoding: str | None = None) -> str:
    """Returns the text of a file; `encoding` is the value of the task's option of that name, if it has one."""
    hint = ", or set encoding=latin-1 or another" if encoding else ""
    return decoded(path, read_content(path, option), encoding or "utf-8", hint)


def read_lines(path: Path, option: str = "", encoding: str | None = None) -> list[tuple[int, str]]:
    """Returns the lines of a file that are not blank, with their numbers from 1.

    Only line feeds end a line: `str.splitlines` also cuts at U+2028, U+0085 and control characters, and captions have
    these.
    """
    lines = enumerate(read_text(path, option, encoding).split("\n"), start=1)
    return [(number, line.removesuffix("\r")) for number, line in lines if line.strip()]


def read_names(path: Path, option: str = "") -> list[str]:
    """Returns a list of at least one name, one per line, without repetitions."""
    line_by_name: dict[str, int] = {}
    for number, line in read_lines(path, option):
        add_once(line_by_name, line.strip(), path, number)
    if not line_by_name:
        raise InputError(str(path), "names no images", hint="give one name per line")
    return list(line_by_name)


def add_once(lines: dict[str, int], name: str, path: Path, line: int) -> None:
    """Records the line of a name; refuses a name that appears on an earlier line."""
    if name in lines:
        raise InputError(f"{path}:{line}", f"{name} appears twice, first in line {lines[name]}")
    lines[name] = line


def read_json(path: Path, option: str = "") -> Any:
    """Returns the content of a JSON file.

    Raises:
        InputError: no such file, not JSON, or an object names a key twice.
    """
    return parsed_json(str(path), read_text(path, option))


def parsed_json(where: str, text: str) -> Any:
    """Returns the value of a JSON text; `where` is its place, for errors."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _RepeatedKeyError as error:
        raise InputError(where, str(error), hint="give each key once") from None
    except ValueError as error:  # also a number of more than 4,300 digits
        raise InputError(where, f"incomplete, or not JSON ({error})") from None
    except RecursionError:
        raise InputError(where, "lists or objects nested too deeply") from None


class _RepeatedKeyError(Exception):
    """An object names a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values: `json` would keep the last value of a key that is repeated."""
    if problem := alike(tuple([key for key, _ in pairs])):
        raise _RepeatedKeyError(f"in an object, {problem}")
    return dict(pairs)


@lru_cache(maxsize=64)
def alike(names: tuple[str, ...]) -> str:
    """Returns what is wrong with names (of columns, of keys) that are equal, or look equal; "" for different names."""
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
    """A name without characters that nobody sees, its letters and accents in one form."""
    if name.isascii():
        return name
    return "".join(c for c in normalize(form, name) if category(c) != "Cf" and c not in _VARIATIONS)


def spelled_alike(names: Iterable[str], what: str) -> str:
    """A sentence on names that may mean the same; "" for none.

    They differ only in case, in leading zeros, in spaces, hyphens and underscores between words, in the form of
    apostrophes, in full width, in invisible characters, or in how accents are written.

    Args:
        names: different names, as of classes.
        what: what they name, in the plural.
    """
    named: dict[str, list[str]] = {}
    for name in islice(names, _MOST_COMPARED):
        seen = visible(name, "NFKC").translate(_PUNCTUATION).casefold()
        key = _LEADING_ZEROS.sub("", _BETWEEN_WORDS.sub(" ", seen).strip())
        named.setdefault(key, []).append(name)
    similar = [each for each in named.values() if len(each) > 1]
    if not similar:
        return ""
    examples = "; ".join(" and ".join(f"'{_escaped(name):.40}'" for name in each[:3]) for each in similar[:3])
    more = f"; and {len(similar) - 3:,} more" if len(similar) > 3 else ""
    return f"counted as different {what}, though spelled alike: {examples}{more}"


def _escaped(name: str) -> str:
    """A name whose invisible characters and combining accents can be seen."""
    return "".join(f"\\u{ord(c):04x}" if category(c) in ("Cf", "Mn") else c for c in name)


def is_missing(value: object) -> bool:
    """Returns whether a value of JSON is null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


# Files that a table, a list or an annotation file names


def written_path(text: str) -> str:
    """Returns the path that a text names: a path of Windows may have backslashes, `~` is the user's folder."""
    text = text.strip()
    if "\\" in text and "/" not in text and os.sep == "/":
        text = text.replace("\\", "/")
    return os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111


def spellings(path: str) -> list[str]:
    """Returns a path, and how else Unicode writes it: ä as one character or as two."""
    return [path] if path.isascii() else list(dict.fromkeys((path, normalize("NFC", path), normalize("NFD", path))))


# Images in folders


def images_below(folder: Path) -> list[Path]:
    """Returns the images in a folder and in the folders inside it, sorted. How many others there are is printed.

    Hidden files and folders are omitted, and what programs write, such as `Thumbs.db` and `__MACOSX`.

    Raises:
        InputError: there are none.
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
    """Yields a folder and the folders inside it, each once, with the names of its files; without what is hidden.

    Links to folders are followed last, so that an image has the path of its own folder. In the folder of a link, links
    are not followed: those in /proc lead to all files of the machine.
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
    """Returns how many of these files are not read, by ending: "40 .heic files (pip install X reads them), 3 .txt"."""
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
    """Returns the error of a missing file; `option` is the task's option that names it, if there is one."""
    hint = f"set {option} to the name of the file" if option else similar_name(path)
    folder, contents = path.parent, f"{path.parent} is not a folder"
    if os.path.isdir(folder):  # noqa: PTH112
        names = _names_in(folder)
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        title = "this folder" if folder == Path() else str(folder)
        contents = f"{title} holds {', '.join(names[:6]) or 'nothing'}{more}"
    return InputError(str(path), f"no such file ({contents}{not_unpacked(folder)})", hint=hint)


def similar_name(path: Path, images: Collection[str] = ()) -> str:
    """Returns a question that suggests a name like that of a missing file, in its folder; "" if there is none.

    Its ending must be the same, or mistyped; `images`: endings that stand for each other, and may be left out.
    """
    ending, stem = table_suffix(path), _stem(path.name)
    names: dict[str, str] = {}  # without their endings, which would make all names similar
    for name in _names_in(path.parent):
        other = table_suffix(Path(name))
        is_image = other in images and (ending in images or not ending)
        if is_image or other == ending or (ending and closest(ending, [other])):
            names.setdefault(_stem(name), name)
    suggestion = closest(stem, names)
    # The name itself is that of a link to nothing.
    return f"did you mean '{names[suggestion]}'?" if suggestion and names[suggestion] != path.name else ""


def _stem(name: str) -> str:
    """A name in lower case without its ending, and without .gz."""
    return Path(name.lower().removesuffix(".gz")).stem


def not_unpacked(folder: Path) -> str:
    """Returns a remark for an error if a folder holds an archive: ", images.zip is not unpacked"; else ""."""
    archive = next((name for name in _names_in(folder) if name.lower().endswith(_ARCHIVES)), None)
    return f", {archive} is not unpacked" if archive else ""


def _names_in(folder: Path) -> list[str]:
    """The names in a folder that are not hidden, sorted; none where there is no such folder."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
    except (OSError, ValueError):
        return []
