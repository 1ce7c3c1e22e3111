"""Writes the page as a folder that opens from disk: index.html, data.js, pictures.

labels.js is there if the page searches by label.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write_folder
from contml._support.pages import page_template, page_text, picture_bytes
from contml.app.explore.items import Explored, ItemNeighbours, ModelView
from contml.app.explore.label_search import search_data
from contml.app.report.examples import drawn
from contml.contracts import Measure
from contml.data.decode import contained
from contml.search.results import SAME

#: Side of a picture in pixels, and its quality as JPEG.
SIDE, _QUALITY = 96, 82
#: Numbers that differ by this factor have colours by ratio; a column of more different texts has no colours.
_LOG_FROM, _MAX_CLASSES = 100, 200
PAGE, DATA, LABELS, PICTURES = "index.html", "data.js", "labels.js", "images"
FILES = (PAGE, DATA, LABELS, PICTURES)
_BEFORE = "const DATA = "
#: What the page says of own images where no server embeds them.
NOT_SERVED = "Own images need a model: run 'contml explore' without --export."


def write_page(
    folder: Path,
    explored: Explored,
    *,
    own_images: str = NOT_SERVED,
    progress: Callable[[int], None] = lambda _: None,
) -> Path:
    """Writes the page; returns the path of its index.html. A folder that holds this page stays as it is.

    Args:
        folder: where to write: a new or an empty folder.
        explored: what it shows.
        own_images: why own images cannot be searched with; "" where a server embeds them.
        progress: called with the number of pictures written.

    Raises:
        InputError: the folder is not empty, or cannot be written.
    """

    def build(temporary: Path) -> None:
        (temporary / PICTURES).mkdir()
        for row in range(len(explored.split)):
            picture = picture_bytes(_picture(explored, row), "JPEG", quality=_QUALITY, optimize=True)
            (temporary / PICTURES / f"{row}.jpg").write_bytes(picture)
            progress(row + 1)
        if explored.labelled:
            labels = explored.split.labels if explored.has_labels else None
            embeddings = [view.embeddings for view in explored.views]
            searched = search_data(explored.labelled, labels, embeddings, explored.gallery)
            _write_script(temporary / LABELS, "const LABELS = ", searched)
        _write_script(temporary / DATA, _BEFORE, _data(explored, own_images))
        (temporary / PAGE).write_text(_page(explored.title), encoding="utf-8")

    write_folder(folder, build, own=FILES, last=PAGE, same=_is_same)
    return folder / PAGE


def _write_script(path: Path, before: str, data: Any) -> None:
    """A constant of a script."""
    # JSON in ASCII is a JavaScript expression, whatever the texts hold; the page shows them as text, never as HTML.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    path.write_text(f"{before}{text};\n", encoding="ascii")


def _is_same(found: Path, made: Path) -> bool:
    """Whether two files of a page are equal but for the map: t-SNE depends on the number of threads."""
    if found.stat().st_size > 2 * made.stat().st_size:
        return False
    contents = found.read_bytes(), made.read_bytes()
    if contents[0] == contents[1] or made.name != DATA:
        return contents[0] == contents[1]
    try:
        return bool(_without_map(found) == _without_map(made))
    except Exception:  # of any content
        return False


def _without_map(path: Path) -> Any:
    data = json.loads(path.read_text(encoding="ascii").removeprefix(_BEFORE).removesuffix(";\n"))
    return {**data, "views": [{**view, "points": None} for view in data["views"]]}


def _page(title: str) -> str:
    page = page_template(Path(__file__).with_name("page.html")).render(title=page_text(title), policy="POLICY")
    # Only this script runs: the policy names its hash. From disk, `file:` is what 'self' is on a server.
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'self' file: 'sha256-{digest}'; img-src 'self' file: data: blob:; "
        "style-src 'unsafe-inline'; connect-src 'self'"
    )
    return page.replace("POLICY", policy, 1)


def _picture(explored: Explored, row: int) -> Image.Image:
    """The picture of an item: with what the renderer of the split draws, and crossed out where it is broken."""
    split = explored.split
    if split.view.renderer is not None:
        return drawn(split, row, SIDE, {})
    try:
        return contained(split.picture(row, 2 * SIDE), (SIDE, SIDE), Image.Resampling.LANCZOS)
    except (InputError, OSError):
        blank = Image.new("RGB", (SIDE, SIDE), "#e4e4e0")
        for start, end in ((0.3, 0.7), (0.7, 0.3)):
            ImageDraw.Draw(blank).line((0.3 * SIDE, start * SIDE, 0.7 * SIDE, end * SIDE), fill="#a0a0a0", width=2)
        return blank


# -- data.js -----------------------------------------------------------------------------------------------------------


def _data(explored: Explored, own_images: str) -> dict[str, Any]:
    """What the page reads. Numbers have five digits: the page shows three. Label distances are in their unit."""
    split, colours, metadata = explored.split, explored.colours, explored.metadata
    return {
        "notes": [page_text(note) for note in explored.notes],
        "unit": page_text(explored.unit),
        "before": explored.measure.before,  # what a label distance has before its number, and after it
        "after": explored.measure.after,
        "errorK": explored.error_k,
        "names": [page_text(name) for name in split.names],
        "texts": [_lines(text) for text in explored.texts],
        "metadata": None
        if metadata is None
        else [[[page_text(name), page_text(str(value))] for name, value in each.items()] for each in metadata],
        "columns": [] if metadata is None else _columns(metadata, "" if colours is None else colours.title),
        "colour": None
        if colours is None
        else {
            "title": page_text(colours.title),
            "values": _numbers(colours.values),
            "classes": [_lines(name) for name in colours.classes] or None,
            "scale": colours.scale,
        },
        "views": [_view(view, explored.measure) for view in explored.views],
        "ownImages": own_images,
        "same": SAME,
        "searchesLabels": bool(explored.labelled),
    }


def _columns(metadata: Sequence[Mapping[str, Any]], without: str) -> list[dict[str, Any]]:
    """The values of each name, for colours and filters: numbers, classes, or texts, null where an item has none.

    `without`: the name of the label, which has colours of its own.
    """
    names = dict.fromkeys(name for each in metadata for name in each)
    columns = [_column(name, [each.get(name) for each in metadata]) for name in names if name != without]
    return [column for column in columns if column is not None]


def _column(name: str, values: Sequence[Any]) -> dict[str, Any] | None:
    """Numbers, also written ones; texts of which there are few are classes. None without two different values."""
    known = [value for value in values if value is not None and value != ""]
    texts = [None if value is None or value == "" else page_text(str(value)) for value in values]
    if len(set(texts) - {None}) < 2:
        return None
    about: dict[str, Any] = {"name": page_text(name), "scale": "linear", "classes": None}
    numbers = [math.nan if value is None or value == "" else _as_number(value) for value in values]
    if sum(map(math.isfinite, numbers)) == len(known):
        low, high = np.nanquantile(numbers, [0.01, 0.99]).tolist()
        scale = "log" if low > 0 and high >= _LOG_FROM * low else "linear"
        return {
            **about,
            "kind": "number",
            "scale": scale,
            "values": _numbers(torch.tensor(numbers, dtype=torch.float64)),
        }
    counts = Counter(text for text in texts if text is not None)
    if len(counts) > _MAX_CLASSES or len(counts) > len(known) / 2:
        return {**about, "kind": "text", "values": texts}
    classes = [text for text, _ in counts.most_common()]
    number_of = {text: number for number, text in enumerate(classes)}
    found = [None if text is None else number_of[text] for text in texts]
    return {**about, "kind": "class", "classes": classes, "values": found}


def _as_number(value: Any) -> float:
    """A value as a number; NaN for what is none, such as a text, a truth value or infinity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _view(view: ModelView, measure: Measure) -> dict[str, Any]:
    low, high = view.points.min(0), view.points.max(0)
    points = (view.points - (low + high) / 2) / (float((high - low).max()) or 1.0) + 0.5  # in the unit square
    return {
        "title": page_text(view.title),
        "points": _numbers(torch.from_numpy(points)),
        "byEmbedding": _neighbours(view.by_embedding, measure),
        "byLabel": view.by_label and _neighbours(view.by_label, measure),
        "means": None if view.means is None else _numbers(view.means, measure.of),
        "errors": None
        if view.means is None
        else _numbers(torch.tensor([measure.gap(*pair) for pair in view.means.tolist()])),
    }


def _neighbours(found: ItemNeighbours, measure: Measure) -> dict[str, Any]:
    labels = found.label_distances
    return {
        "rows": found.rows.tolist(),
        "distances": _numbers(found.distances),
        "labels": None if labels is None else _numbers(labels, measure.of),
    }


def _numbers(values: Tensor, convert: Callable[[float], float] = float) -> list[Any]:
    """Nested lists of converted numbers rounded to five digits, null where there is none."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(each) for each in value]
        number = convert(value)
        return float(f"{number:.5g}") if math.isfinite(number) else None

    return list(rounded(values.tolist()))


def _lines(text: str) -> str:
    return page_text(text, lines=True)
