"""Images in an index: add images that are not in it yet, with metadata from a table; say what a search found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from filecmp import cmp
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from unicodedata import normalize

import numpy as np

from contml._support.errors import InputError
from contml._support.text import number, percent
from contml.contracts import Measure
from contml.data.text_files import written_path
from contml.labels.dates import days_since_1970, parse_date
from contml.retrieval.index import ImageEmbedder, Index, SearchResult
from contml.retrieval.index_store import Floats

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: Images that are embedded and added at a time: an interrupted build loses at most so many.
CHUNK = 512
#: Images that `bind` embeds again, and the largest `Bound.difference` that it accepts. Convolutions of a GPU in TF32
#: change embeddings by about 0.002; another training changes them by far more.
_CHECKED, _TOLERANCE = 32, 0.005
#: The name under which the path of an image is kept in its metadata.
FILE = "file"


class NamedImage(NamedTuple):
    """An image file and its name, which is its id in the index."""

    name: str
    file: Path


class Model(ImageEmbedder, Protocol):
    """A trained model, as adding images needs it: a broken image is a row of NaN, and named in `left_out`."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Name and cause of each image that the last `embed(..., broken="skip")` could not read."""
        ...

    def embed(self, images: Any, *, broken: Any = "fail") -> Floats:
        """Returns the embeddings `[N, d]` in float32 of N images."""
        ...


@dataclass
class Added:
    """What `add_images` did.

    Args:
        added: number of images that were added.
        present: number of images that were in the index before.
        removed: number of images that are left out because they were removed from the index before.
        broken: name and cause of each image that could not be added.
    """

    added: int = 0
    present: int = 0
    removed: int = 0
    broken: dict[str, str] = field(default_factory=dict)


class Bound(NamedTuple):
    """How `bind` checked a model.

    Attributes:
        images: number of images that were embedded again.
        difference: the largest difference from a stored embedding, as a share of the mean distance of the stored
            embeddings from their mean.
    """

    images: int
    difference: float


def add_images(
    index: Index,
    model: Model,
    images: Sequence[NamedImage],
    metadata: Mapping[str, Mapping[str, str]] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Added:
    """Adds images that are not in the index. If it is interrupted, the next call continues.

    Images that were removed from the index stay out of it: `Index.add` adds them again.

    Args:
        index: the index.
        model: embeds the images.
        images: files, each with a name of its own.
        metadata: of images by name, as `read_metadata` returns it; the path of the file is added to it.
        progress: called with the number of images done.

    Raises:
        InputError: an image has the name of another file in the index.
    """
    result, metadata = Added(), metadata or {}
    present, removed_ids = [image for image in images if image.name in index], index.removed_ids
    for image, stored in zip(present, index.metadata([image.name for image in present]), strict=True):
        if (stored_path := stored.get(FILE)) != str(image.file.absolute()):
            problem = f"the name of {image.file.absolute()}, and of {stored_path}, which is in {index.path}"
            raise InputError(image.name, problem, hint="remove that one first, or give a folder that holds both")
    present_names = {image.name for image in present}
    new_images = [image for image in images if image.name not in present_names and image.name not in removed_ids]
    result.present, result.removed = len(present), len(images) - len(present) - len(new_images)
    for start in range(0, len(new_images), CHUNK):
        chunk = new_images[start : start + CHUNK]
        embeddings = model.embed([image.file for image in chunk], broken="skip")
        rows, new_metadata = [], []
        for row, (name, file) in enumerate(chunk):
            path = str(file.absolute())
            if not np.isfinite(embeddings[row]).all():
                result.broken[name] = model.left_out.get(str(file), "its embedding is not finite")
            elif path != path.encode(errors="replace").decode():
                result.broken[name] = "its name is not valid Unicode: rename it"
            else:
                rows.append(row)
                new_metadata.append({**metadata.get(name, {}), FILE: path})
        index.add([chunk[row].name for row in rows], embeddings[rows], new_metadata)
        result.added += len(rows)
        progress(min(start + CHUNK, len(new_images)))
    return result


def bind(index: Index, model: Model, run: str) -> Bound:
    """Records the model of an index, after a check: it must embed images of the index as they were embedded.

    Up to 32 of its images that can be read are embedded again, drawn at random with a fixed seed.

    Args:
        index: the index, which may be of an older version, or of another model.
        model: the model.
        run: where it is.

    Raises:
        InputError: it embeds an image differently, or no image can be read.
    """
    if model.embedding_dim != index.dim:
        got, allowed = f"embeddings of {model.embedding_dim} numbers", f"must be {index.dim}, as in {index.path}"
        raise InputError(run, got, allowed, "use the model that the index was made with")
    with index.lock():
        ids = np.random.default_rng(0).permutation(index.ids).tolist()
        checked: list[str] = []
        embeddings = [np.empty((0, index.dim), np.float32)]
        for start in range(0, len(ids), _CHECKED):
            chunk = ids[start : start + _CHECKED]
            files = [Path(entry.get(FILE, name)) for name, entry in zip(chunk, index.metadata(chunk), strict=True)]
            found = [(name, file) for name, file in zip(chunk, files, strict=True) if file.is_file()]
            if not found:
                continue
            vectors = model.embed([file for _, file in found], broken="skip")
            rows = np.flatnonzero(np.isfinite(vectors).all(1))[: _CHECKED - len(checked)]
            checked += [found[row][0] for row in rows]
            embeddings.append(vectors[rows])
            if len(checked) == _CHECKED:
                break
        if not checked:
            problem, hint = "none of its images can be read, so no model can be checked", "make a new index"
            raise InputError(str(index.path), problem, hint=f"bind it where its images are, or {hint}")
        stored = index.embeddings(checked)
        differences = np.linalg.norm(np.concatenate(embeddings) - stored, axis=1)
        scale = np.linalg.norm(stored - stored.mean(0), axis=1).mean() or np.linalg.norm(stored, axis=1).mean()
        shares = differences / (scale or 1.0)
        if len(others := np.flatnonzero(~(shares <= _TOLERANCE))):
            problem = f"not the model of {index.path}: it embeds {len(others)} of {len(checked)} images differently"
            hint = (
                "use the model that the index was made with; an image that changed since can be removed from the index"
            )
            raise InputError(run, f"{problem}, such as {checked[others[0]]}", hint=hint)
        index.bind(model, run)
    return Bound(len(checked), float(shares.max()))


def read_metadata(
    table: Path, images: Sequence[NamedImage], column: str = "image", options: TableOptions | None = None
) -> dict[str, dict[str, str]]:
    """Reads the metadata of images from a table; the cells of a row are the metadata of its image.

    Args:
        table: the file: CSV, TSV, JSON, Parquet or Excel. Its paths of images are relative to its folder, or names of
            `images`.
        images: the images that are wanted; other rows are not used.
        column: the column of image paths.
        options: how the table is read; None: every cell that is not empty has a value.

    Raises:
        InputError: there is no such file or column, an image has two rows, or no row is of these images.
    """
    from contml.data.tables import TableOptions, read_table  # here: it imports pyarrow

    rows = read_table(table, options or TableOptions(missing_words=[]))
    paths = rows.texts(column, "images")
    if FILE in rows:
        raise InputError(str(table), f"a column '{FILE}'", hint="rename it: the path of the image has this name")
    names = {normalize("NFC", image.name): image.name for image in images}
    names |= {normalize("NFC", str(image.file.absolute())): image.name for image in images}
    row_by_name: dict[str, int] = {}
    for row, path in enumerate(paths):
        path = normalize("NFC", written_path(path))
        name = names.get(str((table.parent / path).absolute()), names.get(path))
        if name is not None and row_by_name.setdefault(name, row) != row:
            raise InputError(rows.where(row), f"{path} has two rows", hint="remove one")
    if images and not row_by_name:
        example = f"such as {paths[0] or images[0].file}"
        raise InputError(str(table), "no row is of these images", f"must be their paths or names {example}")
    wanted = [*row_by_name.values()]
    cells = {name: values.texts(wanted) for name, values in rows.columns.items() if name != column}
    return {name: {key: texts[position] for key, texts in cells.items()} for position, name in enumerate(row_by_name)}


# -- what a search found -----------------------------------------------------------------------------------------------

#: What a result says of the query's own image.
SAME = "the same image"


class SearchHit(NamedTuple):
    """An item that was found for a query."""

    rank: int
    id: str
    distance: float
    #: By title, as text: the label distance and its interval, or the probability of the same class.
    meaning: dict[str, str]
    #: The same as numbers.
    numbers: dict[str, float]
    metadata: dict[str, Any]
    #: Whether it is the query's own image.
    is_same: bool = False

    @property
    def file(self) -> Path:
        """The image."""
        return Path(self.metadata.get(FILE, self.id))

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        numbers: dict[str, Any] = {"same_image": True} if self.is_same else self.numbers
        text = {"text": next(iter(self.meaning.values()))} if self.meaning else {}
        return {
            "rank": self.rank,
            "id": self.id,
            "distance": self.distance,
            **numbers,
            **text,
            "metadata": self.metadata,
        }


class Estimate(NamedTuple):
    """A query's own value, by those of its neighbours: their mean, of factors the geometric mean.

    Attributes:
        name: what the value is: the label, a column of the metadata.
        value: the mean; of dates, in days from 1970-01-01.
        low: the lowest value of the neighbours.
        high: the highest.
        neighbours: number of neighbours with a value.
        unreadable: a value of a neighbour that could not be read; "" if there is none.
        measure: how label distances are printed.
    """

    name: str
    value: float
    low: float
    high: float
    neighbours: int
    unreadable: str
    measure: Measure

    def __str__(self) -> str:
        """The estimate in a line."""
        value, low, high = (_value_text(x, self.measure) for x in (self.value, self.low, self.high))
        mean = "geometric mean" if self.measure.kind == "ratio" else "mean"
        words = f"{self.name}: about {value}{'' if self.measure.dates else self.measure.after}"
        words += f", {mean} of {self.neighbours} neighbours" if self.neighbours > 1 else ", as its neighbour"
        words += f" ({low} to {high})" if self.neighbours > 1 else ""
        return words + (f"; '{self.unreadable}' is not a {_kind(self.measure)}" if self.unreadable else "")

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        value, low, high = (
            _date(x).isoformat() if self.measure.dates else x for x in (self.value, self.low, self.high)
        )
        return {"name": self.name, "value": value, "low": low, "high": high, "neighbours": self.neighbours}


class QueryResult(NamedTuple):
    """What was found for a query, nearest first, and the estimate of its own value; None without values."""

    query: NamedImage
    hits: list[SearchHit]
    estimate: Estimate | None

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found = {"query": self.query.name, "found": [hit.as_data() for hit in self.hits]}
        return found if self.estimate is None else {**found, "estimate": self.estimate.as_data()}


def results_of(queries: Sequence[NamedImage], result: SearchResult, model: Any) -> list[QueryResult]:
    """What was found for each query, with label distances where the model has a calibration.

    The query's own image is marked: it has no label distance, and its value is no part of the estimate.

    Args:
        queries: the images that were searched with.
        result: the result of the search.
        model: what `contml.load` returns.
    """
    calibration, distances = model.bundle.calibration, result.distances
    title, numbers = "", np.empty((*distances.shape, 0))
    keys: list[str] = []
    if calibration is not None and distances.size:
        if calibration.kind == "interval":
            title, keys = f"label distance ({percent(calibration.level)} interval)", ["label_distance", "low", "high"]
            numbers = np.stack(model.label_distance(distances), -1)  # [Q,k,3]
        else:
            title, keys = "same class", ["same_class"]
            numbers = np.asarray(model.same_class(distances))[..., None]
    results = []
    for q, query in enumerate(queries):
        hits = []
        for rank, name in enumerate(result.ids[q]):
            metadata = result.metadata[q][rank] if result.metadata else {}
            values = numbers[q, rank].tolist()
            hit = SearchHit(
                rank + 1, name, float(distances[q, rank]), {}, dict(zip(keys, values, strict=True)), metadata
            )
            if is_same_image(query, hit, float(distances[q].max())):
                hit = hit._replace(meaning={title or "note": SAME}, numbers={}, is_same=True)
            elif keys:
                text = model.measure.text(*values) if len(values) == 3 else percent(values[0])
                hit = hit._replace(meaning={title: text})
            hits.append(hit)
        results.append(QueryResult(query, hits, estimate(hits, model.measure)))
    return results


def is_same_image(query: NamedImage, hit: SearchHit, farthest: float) -> bool:
    """Whether an item is the query itself: the same file or a copy of it.

    Where the file of the item is gone, the name decides, if the embeddings are equal up to rounding. `farthest` is the
    largest distance that was found.
    """
    try:
        if not hit.file.is_file():
            return hit.id == query.name and hit.distance <= max(1e-5, 1e-4 * farthest)
        if hit.file.samefile(query.file):
            return True
        return query.file.is_file() and cmp(query.file, hit.file, shallow=False)
    except OSError:
        return False


def estimate(hits: Sequence[SearchHit], measure: Measure) -> Estimate | None:
    """The estimate of a query's value by the metadata of the items that were found; None without such values."""
    cells = [
        str(hit.metadata[measure.name]).strip() for hit in hits if measure.name in hit.metadata and not hit.is_same
    ]
    cells = [cell for cell in cells if cell] if measure.name else []
    values = {cell: _value(cell, measure) for cell in cells}
    found = [value for cell in cells if (value := values[cell]) is not None]
    if not found:
        return None
    mean = math.exp(fmean(map(math.log, found))) if measure.kind == "ratio" else fmean(found)
    unreadable = next((cell for cell in cells if values[cell] is None), "")
    return Estimate(measure.name, mean, min(found), max(found), len(found), unreadable, measure)


def _value(cell: str, measure: Measure) -> float | None:
    """The value of a label in a cell of the metadata; None if it is none."""
    if measure.dates:
        date = parse_date(cell)
        return None if date is None else days_since_1970(date)
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and (value > 0 or measure.kind != "ratio") else None


def _date(days: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days)


def _value_text(value: float, measure: Measure) -> str:
    return f"{_date(value):%Y-%m-%d}" if measure.dates else number(value)


def _kind(measure: Measure) -> str:
    return "date" if measure.dates else "number above 0" if measure.kind == "ratio" else "number"
