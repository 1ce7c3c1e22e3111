"""Images in an index: add images that are not in it yet, with metadata from a table; say what a search found."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from contml._support.errors import InputError, did_you_mean
from contml._support.files import read_bytes
from contml._support.text import number, percent
from contml.retrieval.index import ImageEmbedder, Index, SearchResult
from contml.retrieval.index_store import Floats

#: Images that are embedded and added at a time: an interrupted build loses at most so many.
CHUNK = 512
#: The name under which the path of an image is kept in its metadata.
FILE = "file"
#: The largest table in bytes.
_LIMIT = 1 << 30


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


def read_metadata(table: Path, images: Sequence[NamedImage], column: str = "image") -> dict[str, dict[str, str]]:
    """Reads the metadata of images from a CSV table; the cells of a row are the metadata of its image.

    Args:
        table: the file. Its paths of images are relative to its folder, or names of `images`.
        images: the images that are wanted; other rows are not used.
        column: the column of image paths.

    Raises:
        InputError: there is no such file or column, an image has two rows, or no row is of these images.
    """
    try:
        text = read_bytes(table, _LIMIT).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(str(table), "no such file") from None
    except UnicodeDecodeError:
        raise InputError(str(table), "not UTF-8 text", hint="save the table as UTF-8") from None
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        columns, rows = list(reader.fieldnames or []), list(reader)
    except csv.Error as error:
        raise InputError(str(table), f"cannot be read ({error})") from None
    if column not in columns:
        hint = did_you_mean(column, columns) or f"its columns are {', '.join(columns)}"
        raise InputError(str(table), f"no column '{column}'", hint=hint)
    if FILE in columns:
        raise InputError(str(table), f"a column '{FILE}'", hint="rename it: the path of the image has this name")
    names = {image.name: image.name for image in images}
    names |= {str(image.file.absolute()): image.name for image in images}
    metadata: dict[str, dict[str, str]] = {}
    for line, row in enumerate(rows, 2):
        path = row.pop(column) or ""
        name = names.get(str((table.parent / path).absolute()), names.get(path))
        if name is None:
            continue
        if name in metadata:
            raise InputError(f"{table}:{line}", f"{path} has two rows", hint="remove one")
        metadata[name] = {key: value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}
    if images and not metadata:
        example = f"such as {rows[0].get(column) or images[0].file}" if rows else ""
        raise InputError(str(table), "no row is of these images", f"must be their paths or names {example}".strip())
    return metadata


# -- what a search found -----------------------------------------------------------------------------------------------


class SearchHit(NamedTuple):
    """An item that was found for a query."""

    rank: int
    id: str
    distance: float
    #: By name, as text: the label distance and its interval, or the probability of the same class.
    meaning: dict[str, str]
    #: The same as numbers.
    numbers: dict[str, float]
    metadata: dict[str, Any]

    @property
    def file(self) -> Path:
        """The image."""
        return Path(self.metadata.get(FILE, self.id))

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"rank": self.rank, "id": self.id, "distance": self.distance, **self.numbers, "metadata": self.metadata}


def hits_of(result: SearchResult, model: Any) -> list[list[SearchHit]]:
    """What was found for each query, with the label distance where the model has a calibration.

    Args:
        result: the result of a search.
        model: what `contml.load` returns.
    """
    texts: list[Any] = [[{} for _ in row] for row in result.ids]
    numbers: list[Any] = [[{} for _ in row] for row in result.ids]
    calibration = model.bundle.calibration
    if calibration is not None and result.distances.size:
        interval = calibration.kind == "interval"
        values = model.label_distance(result.distances) if interval else [model.same_class(result.distances)]
        keys = ["label_distance", "low", "high"] if interval else ["same_class"]
        for index in np.ndindex(result.distances.shape):
            q, rank = index
            item_values = [float(value[index]) for value in values]
            numbers[q][rank] = dict(zip(keys, item_values, strict=True))
            texts[q][rank] = (
                {
                    "label distance": number(item_values[0]),
                    f"{percent(calibration.level)} interval": f"{number(item_values[1])} to {number(item_values[2])}",
                }
                if interval
                else {"same class": percent(item_values[0])}
            )
    metadata = result.metadata or [[{} for _ in row] for row in result.ids]
    return [
        [
            SearchHit(
                rank + 1, name, float(result.distances[q, rank]), texts[q][rank], numbers[q][rank], metadata[q][rank]
            )
            for rank, name in enumerate(row)
        ]
        for q, row in enumerate(result.ids)
    ]
