"""What the pages have in common: templates that escape, and pictures as the content of files."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

if TYPE_CHECKING:
    from PIL import Image


@functools.cache
def page_template(file: Path) -> jinja2.Template:
    """The template of a page. Everything is escaped: titles, file names and configs may hold HTML."""
    loader = jinja2.FileSystemLoader(file.parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(file.name)


def picture_bytes(picture: Image.Image, form: str, **options: Any) -> bytes:
    """The picture as the bytes of a file, in a format such as "PNG"; options go to PIL's writer."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()
