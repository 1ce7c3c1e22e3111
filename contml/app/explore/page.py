"""The page, written as a folder that opens from disk: index.html, data.js, pictures.

The folder has labels.js if the page searches by label.
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
from torch import Tensor

from contml._support.files import write_folder
from contml._support.pages import page_template, page_text, picture_bytes
from contml.app.explore.items import Explored, ItemNeighbours, ModelView
from contml.app.explore.label_search import search_data
from contml.app.report.examples import drawn
from contml.contracts import Measure
from contml.search.results import SAME

#: Side of a picture in pixels, and its quality as JPEG.
SIDE, _QUALITY = 96, 82
#: Numbers that differ by this factor have colours by ratio; a column of more different texts has no colours.
_LOG_FROM, _MAX_CLASSES = 100, 200
PAGE, DATA, LABELS, PICTURES = "index.html", "data.js", "labels.js", "images"
FILES = (PAGE, DATA, LABELS, PICTURES)
#: The text of the page on the user's own images, if no server embeds them.
NOT_SERVED = "Own images need a model: run 'contml explore' without --export."


def write_page(
    folder: Path, explored: Explored, *, own_images: str = NOT_SERVED, progress: Callable[[int], None] = lambda _: None
) -> Path:
    """Write the page, and return the path of its index.html. A folder that holds this page stays as it is.

    Args:
        folder: where to write: a new or an empty folder.
        explored: the content.
        own_images: the reason why the user's own images cannot be searched with. "" if a server embeds them.
        progress: called with the number of pictures written.

    Raises:
        InputError: the folder is not empty, or cannot be written.
    """

    def build(temporary: Path) -> None:
        (temporary / PICTURES).mkdir()
        split = explored.split
        for row in range(len(split)):
            picture = drawn(split, row, SIDE, {}, label=split.view.renderer is not None)
            content = picture_bytes(picture, "JPEG", quality=_QUALITY, optimize=True)
            (temporary / PICTURES / f"{row}.jpg").write_bytes(content)
            progress(row + 1)
        if explored.labelled:
            embeddings = [view.embeddings for view in explored.views]
            searched = search_data(explored.labelled, split.labels, embeddings, explored.gallery)
            _write_script(temporary / LABELS, "const LABELS = ", searched)
        _write_script(temporary / DATA, "const DATA = ", _data(explored, own_images))
        (temporary / PAGE).write_text(_page(explored.title), encoding="utf-8")

    write_folder(folder, build, own=FILES, last=PAGE)
    return folder / PAGE


def _write_script(path: Path, before: str, data: Any) -> None:
    """Write a constant of a script."""
    # JSON in ASCII is a JavaScript expression, whatever the texts hold; the page shows them as text, never as HTML.
    path.write_text(f"{before}{json.dumps(data, allow_nan=False, separators=(',', ':'))};\n", encoding="ascii")


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


# -- data.js -----------------------------------------------------------------------------------------------------------


def _data(explored: Explored, own_images: str) -> dict[str, Any]:
    """Return the data that the page reads. Numbers have five digits: the page shows three.

    Label distances are in their unit.
    """
    colours, metadata, measure = explored.colours, explored.metadata, explored.measure
    pairs = [[[page_text(name), page_text(str(value))] for name, value in each.items()] for each in metadata or ()]
    values, classes = _numbers(colours.values), [_lines(name) for name in colours.classes]
    colour = {"title": page_text(colours.title), "values": values, "classes": classes or None, "scale": colours.scale}
    search = {"ownImages": own_images, "same": SAME, "searchesLabels": bool(explored.labelled)}
    return {
        "notes": [page_text(note) for note in explored.notes],
        "unit": page_text(explored.unit),
        "before": measure.before,  # what a label distance has before its number, and after it
        "after": measure.after,
        "errorK": explored.error_k,
        "names": [page_text(name) for name in explored.split.names],
        "texts": [_lines(text) for text in explored.texts],
        "metadata": None if metadata is None else pairs,
        "columns": [] if metadata is None else _columns(metadata, colours.title),
        "colour": colour,
        "views": [_view(view, measure) for view in explored.views],
        **search,
    }


def _columns(metadata: Sequence[Mapping[str, Any]], without: str) -> list[dict[str, Any]]:
    """Return the values of each metadata name, for colours and filters: numbers, classes, or texts.

    Missing ones are null. `without` is the name of the label, which has colours of its own.
    """
    names = dict.fromkeys(name for each in metadata for name in each)
    columns = [_column(name, [each.get(name) for each in metadata]) for name in names if name != without]
    return [column for column in columns if column is not None]


def _column(name: str, values: Sequence[Any]) -> dict[str, Any] | None:
    """Return a column of numbers, also written as text, or of texts. Texts with few different values are classes.

    Return None without two different values.
    """
    texts = [None if value is None or value == "" else page_text(str(value)) for value in values]
    counts = Counter(text for text in texts if text is not None)
    if len(counts) < 2:
        return None
    about: dict[str, Any] = {"name": page_text(name), "scale": "linear", "classes": None}
    numbers = [_as_number(value) for value in values]  # NaN for ""
    if sum(map(math.isfinite, numbers)) == counts.total():
        low, high = np.nanquantile(numbers, [0.01, 0.99]).tolist()
        about["scale"] = "log" if low > 0 and high >= _LOG_FROM * low else "linear"
        return {**about, "kind": "number", "values": _numbers(torch.tensor(numbers, dtype=torch.float64))}
    if len(counts) > min(_MAX_CLASSES, counts.total() / 2):
        return {**about, "kind": "text", "values": texts}
    classes = [text for text, _ in counts.most_common()]
    number_of = {text: number for number, text in enumerate(classes)}
    found = [None if text is None else number_of[text] for text in texts]
    return {**about, "kind": "class", "classes": classes, "values": found}


def _as_number(value: Any) -> float:
    """Return a value as a number. Return NaN for other values, such as a text, a bool or infinity."""
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
        "byLabel": _neighbours(view.by_label, measure),
        "means": _numbers(view.means, measure.of),
        "errors": _numbers(torch.tensor([measure.gap(*pair) for pair in view.means.tolist()])),
    }


def _neighbours(found: ItemNeighbours, measure: Measure) -> dict[str, Any]:
    numbers = {"distances": _numbers(found.distances), "labels": _numbers(found.label_distances, measure.of)}
    return {"rows": found.rows.tolist(), **numbers}


def _numbers(values: Tensor, convert: Callable[[float], float] = float) -> list[Any]:
    """Return nested lists of converted numbers rounded to five digits. A missing number is null."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(each) for each in value]
        number = convert(value)
        return float(f"{number:.5g}") if math.isfinite(number) else None

    return list(rounded(values.tolist()))


def _lines(text: str) -> str:
    return page_text(text, lines=True)
