"""Tags of items, which a person sets on the page of `contml explore`: a CSV file that `contml audit` reads.

    item,tag
    images/7.jpg,wrong label

An item has the name that the record of the run has for it, and one tag of `TAGS`.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from contml._support.errors import InputError, did_you_mean
from contml._support.files import read_bytes, unreadable, write
from contml._support.text import csv_bytes, plain_text

#: What an item may be tagged as. Only the second one changes an audit: the item is left out.
TAGS = ("wrong label", "right label", "bad image")
_HEADER = ["item", "tag"]
#: Largest file in bytes.
_LIMIT = 64 << 20


def tags_file(run: Path) -> Path:
    """The file of the tags of a run."""
    return run / "audit" / "tags.csv"


def read_tags(path: Path) -> dict[str, str]:
    """The tag of each item by its name, as `plain_text`.

    Raises:
        InputError: no such file, or it is not a table of items and tags.
    """
    hint = "the page of 'contml explore' writes this file"
    try:
        content = read_bytes(path, _LIMIT).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    except FileNotFoundError:
        raise InputError(str(path), "no such file", hint=hint) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, error, hint) from None
    if not rows or rows[0] != _HEADER:
        got = f"the header {','.join(rows[0]) if rows else ''!r:.60}"
        raise InputError(str(path), got, f"must be {','.join(_HEADER)}", hint)
    tags: dict[str, str] = {}
    for line, row in enumerate(rows[1:], start=2):
        where = f"{path}:{line}"
        if len(row) != 2:
            raise InputError(where, f"{len(row)} cells", "must be an item and a tag")
        item, tag = row
        if tag not in TAGS:
            raise InputError(where, f"tag {tag!r:.60}", f"must be one of {', '.join(TAGS)}", did_you_mean(tag, TAGS))
        if tags.setdefault(item, tag) != tag:
            raise InputError(where, f"{item} is also tagged '{tags[item]}'", hint="keep one of the two lines")
    return tags


def write_tags(path: Path, tags: Mapping[str, str]) -> None:
    """Write the file, as a whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = csv_bytes([_HEADER, *sorted(tags.items())])
    write(path, lambda temporary: temporary.write_bytes(content))


def tags_of_rows(path: Path, names: Sequence[str], split: str) -> tuple[dict[int, str], str]:
    """The tags of the rows with these names, and a sentence about them; `split`: the split of the rows, in words.

    Raises:
        InputError: as `read_tags`.
    """
    tags = read_tags(path)
    found = {row: tags[name] for row, name in enumerate(map(plain_text, names)) if name in tags}
    if not found:
        return {}, f"none of the {len(tags):,} tagged items is in the {split} split" if tags else "no item is tagged"
    counts = Counter(found.values())
    words = ", ".join(f"{counts[tag]:,} '{tag}'" for tag in TAGS if counts[tag])
    others = f"; {len(tags) - len(found):,} tagged items are not in the {split} split" if len(found) < len(tags) else ""
    left_out = f"; items with '{TAGS[1]}' are left out" if counts[TAGS[1]] else ""
    return found, f"{words}{left_out}{others}"
