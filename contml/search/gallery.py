"""A gallery of search results: one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from contml._support.errors import InputError
from contml._support.files import GALLERIES, check_new_file, check_suffix, write_new
from contml._support.pages import page_template, page_text, picture_bytes
from contml._support.text import score_text
from contml.data.decode import contained, decode
from contml.data.renderers.labels import label_drawing, label_picture
from contml.data.renderers.text import name_picture
from contml.data.sources import ImageSource
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.search.answers import Answer
from contml.search.images import BOX, FILE, source_of
from contml.search.inputs import NamedImage
from contml.search.results import QueryResult, SearchHit, TypedLabel

#: Side of a picture in pixels.
_SIDE = 220
#: Side of a predicted pose or label map in the corner of a picture, and the width of its frame.
_INSET, _RIM = 84, 3


def check_gallery(path: Path) -> None:
    """Check that a gallery can be written.

    Raises:
        InputError: it has another suffix, or another file has its name.
    """
    check_suffix(path, GALLERIES)
    check_new_file(path)


def write_gallery(path: Path, title: str, note: str, results: Sequence[QueryResult]) -> None:
    """Write a gallery: each query with the items it found, nearest first.

    Args:
        path: the file, `.html`.
        title: the heading of the page.
        note: a line below the heading.
        results: the items found for each query. A picture that cannot be read is a crossed square.
    """
    check_gallery(path)
    drawings = {"query_picture": _query_picture, "hit_picture": _hit_picture}
    texts = {"shown": page_text, "searched_of": _searched, "texts_of": _texts, "others_of": _about}
    template = page_template(Path(__file__).with_name("gallery.html"))
    write_new(path, template.render(title=title, note=note, results=results, **drawings, **texts).encode())


def _texts(query: NamedImage | TypedLabel, hit: SearchHit) -> list[str]:
    """Return the texts of an item: the labels that its metadata have, its distance, and its predicted labels.

    A label that was searched for is left out.
    """
    known = [f"{title}: {_label_text(each, hit.metadata[title])}" for title, each in _known_labels(query, hit).items()]
    words = list(hit.meaning.values()) if hit.is_same else [f"{name} {text}" for name, text in hit.meaning.items()]
    first = _searched(query, hit)
    answers = [text for text in (f"{name}: {each}" for name, each in hit.answer_texts.items()) if text not in first]
    return [*known, f"distance {score_text(hit.distance)}", *words, *answers]


def _searched(query: NamedImage | TypedLabel, hit: SearchHit) -> list[str]:
    """Return texts on the label that was searched for.

    They have its value in the item's metadata, and the item's predicted label.
    """
    if not isinstance(query, TypedLabel):
        return []
    title = query.labels.title
    known = [f"{title}: {_label_text(query.labels, hit.metadata[title])}"] if title in hit.metadata else []
    return known + [f"{each.name}: {hit.answer_texts[each.name]}" for each in hit.answers if each.title == title]


def _label_text(labels: LabelSpace, value: Any) -> str:
    """Format a value of a table as the label space writes it. A value that is not a label stays as it is."""
    try:
        return growing(labels).item(str(value)).text(0)
    except InputError:
        return str(value)


def _known_labels(query: NamedImage | TypedLabel, hit: SearchHit) -> dict[str, LabelSpace]:
    searched = {query.labels.title} if isinstance(query, TypedLabel) else set()
    return {each.title: each.labels for each in hit.answers if each.title in hit.metadata.keys() - searched}


def _about(query: NamedImage | TypedLabel, hit: SearchHit) -> list[str]:
    """Return the other metadata of the item."""
    left_out = {FILE, BOX, *_known_labels(query, hit)}
    if isinstance(query, TypedLabel):
        left_out.add(query.labels.title)
    return [f"{name}: {value}" for name, value in hit.metadata.items() if name not in left_out]


def _query_picture(query: NamedImage | TypedLabel, answers: Sequence[Answer]) -> str:
    """Draw a query. A label is drawn, or written as text."""
    if isinstance(query, TypedLabel):
        return _jpeg(label_picture(query.labels, 0, _SIDE, query.name))
    return _jpeg(name_picture(query.name) if query.vector is not None else _drawing(query.source, answers))


def _hit_picture(hit: SearchHit) -> str:
    """Return the picture of an item. For a vector, draw its name."""
    if FILE not in hit.metadata:
        return _jpeg(name_picture(hit.id))
    return _jpeg(_drawing(source_of(hit.file, hit.metadata.get(BOX)), hit.answers))


def _drawing(source: ImageSource, answers: Sequence[Answer] = ()) -> Image.Image:
    """Return the picture of an image or a crop, its longer side `_SIDE`, with predicted poses and maps in its corner.

    If the image cannot be read, the picture is a cross.
    """
    try:
        picture = decode(source.read(), str(source.stamp), _SIDE)
        picture = contained(picture, (_SIDE, _SIDE), Image.Resampling.LANCZOS).convert("RGB")
    except OSError:
        picture = Image.new("RGB", (_SIDE, _SIDE), "#f1f1f1")
        for start, end in ((0.3, 0.7), (0.7, 0.3)):
            ends = (0.3 * _SIDE, start * _SIDE, 0.7 * _SIDE, end * _SIDE)
            ImageDraw.Draw(picture).line(ends, fill="#b0b0b0", width=3)
    left, top = picture.width - _INSET, picture.height - _INSET
    for answer in answers:
        drawing = label_drawing(answer.labels, 0, _INSET)
        if drawing is not None and left > 0:
            ImageDraw.Draw(picture).rectangle((left - _RIM, top - _RIM, left + _INSET, picture.height), fill="white")
            picture.paste(drawing, (left, top))
            left -= _INSET + _RIM
    return picture


def _jpeg(picture: Image.Image) -> str:
    return base64.b64encode(picture_bytes(picture, "JPEG", quality=88)).decode("ascii")
