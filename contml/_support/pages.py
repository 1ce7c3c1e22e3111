"""Helpers of all pages: templates that escape, texts that are safe to share, content of files."""

from __future__ import annotations

import csv
import functools
import io
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contml._support.text import plain_text

if TYPE_CHECKING:
    import jinja2
    from PIL import Image


#: Folders of an absolute path: in quotes, alone on a line after a key, or between spaces. Not of a URL.
_FOLDERS = (
    re.compile(r"""(?<=['"])(?:/|[A-Za-z]:[\\/])(?:[^/\\'"\n]+[/\\])+(?=[^/\\'"\n]*['"])"""),
    re.compile(r"(?m)(?<=^)(\s*(?:[\w.-]+: |- )?)(?:/|[A-Za-z]:[\\/])(?:[^/\\\n]+[/\\])+(?=[^/\\\n:,;]*$)"),
    re.compile(r"""(?<![\w.:/\\~…-])(?:/|[A-Za-z]:[\\/])(?:[^\s/\\'"<>|:;,()\[\]{}]+[/\\])+"""),
)


def shareable(text: str) -> str:
    """Cut absolute paths in a text to their last part, so that the page can be given to others.

    Paths in the current folder are written relative to it.
    """
    text = text.replace("file:///", "/")
    with suppress(OSError):  # the current folder was removed
        here = Path.cwd()
        if here != Path(here.anchor):
            text = text.replace(f"{here}{os.sep}", "")
    for pattern in _FOLDERS:
        text = pattern.sub(lambda match: f"{match.group(1) if match.re.groups else ''}…/", text)
    return text


@functools.cache
def page_template(file: Path) -> jinja2.Template:
    """Return the template of a page. Everything is escaped: titles, file names and configs may hold HTML."""
    import jinja2

    loader, blocks = jinja2.FileSystemLoader(file.parent), dict[str, Any](trim_blocks=True, lstrip_blocks=True)
    strict = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, **blocks)
    return strict.get_template(file.name)


def picture_bytes(picture: Image.Image, form: str, **options: Any) -> bytes:
    """Return the picture as the bytes of a file, in a format such as "PNG". Options go to PIL's writer."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def page_text(text: str, *, lines: bool = False) -> str:
    """Prepare text from data for a page or a picture: make it `shareable`, then `plain_text`."""
    return plain_text(shareable(text), lines=lines)


def unbroken(text: str) -> str:
    """Replace spaces after a number, and between x and a factor, by spaces at which a line does not break."""
    return re.sub(r"(?<=\d) (?=\S)|(?<=\bx) (?=\d)", "\N{NO-BREAK SPACE}", text)


def csv_bytes(rows: Iterable[Iterable[str | float | None]]) -> bytes:
    """Return the content of a CSV file: the header, and rows of texts and numbers.

    Texts are passed through `plain_text`. A text that a spreadsheet program would run as a formula gets an apostrophe
    before it.
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerows([_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue().encode()


def _cell(text: str) -> str:
    text = plain_text(text)
    return f"'{text}" if text[:1] in tuple("=+-@") and not _NUMBER.fullmatch(text) else text


_NUMBER = re.compile(r"[-+][0-9.]+(?:[eE][-+]?[0-9]+)?")
