"""The vectors of an index, or of a file of embeddings, in a Parquet file or a collection of Qdrant: `contml export`.

    Parquet    a row per item: name, features [d], metadata (JSON), as `contml embed` writes it, and metadata
    Qdrant     a point per item: its vector, and the payload {"id": ..., "metadata": {...}}; Euclidean distance

The number of a point in Qdrant is a UUID that its id decides, so that a command that was killed is called again.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contml._support.errors import InputError, one_line
from contml._support.files import check_new_folder
from contml.data.features import Floats, Made, finished_file, read_features, write_parquet
from contml.retrieval.index import Index
from contml.retrieval.index_store import FILE

#: Items that are read at a time.
_READ = 8192
#: Points that are sent at a time, and numbers: a request may have 32 MB, and a number takes up to 20 bytes.
_SENT, _SENT_NUMBERS = 512, 1 << 20
#: What a local folder of Qdrant holds.
_QDRANT_FILES = ("meta.json", "collection", ".lock")
#: The key of the metadata of a collection that says what it was made from.
_MADE = "contml"
#: The environment variable with the key of a Qdrant server.
API_KEY = "QDRANT_API_KEY"


class Block(NamedTuple):
    """Some items."""

    ids: list[str]  # [n]
    vectors: Floats  # [n,d]
    metadata: list[dict[str, Any]]  # [n], {} for items without


@dataclass(frozen=True)
class Items:
    """Items with vectors.

    Args:
        source: where they are.
        key: a hash of ids, vectors and metadata.
        count: their number.
        dim: the length of the vectors.
        blocks: reads them.
        note: that an index has not all images yet.
    """

    source: Path
    key: str
    count: int
    dim: int
    blocks: Callable[[], Iterator[Block]]
    note: str = ""


@contextmanager
def opened(source: Path) -> Iterator[Items]:
    """The items of an index, or of a file of embeddings with names.

    Raises:
        InputError: it cannot be read, has no items or no names, or two vectors of the file have the same name.
    """
    if (source / FILE).is_file():
        with Index.open(source) as index:
            yield _of_index(index)
    else:
        yield _of_file(source)


def _of_index(index: Index) -> Items:
    ids = index.ids
    if not ids:
        raise InputError(str(index.path), "has no items", hint=f"contml index RUN IMAGES... --out {index.path}")

    def blocks() -> Iterator[Block]:
        for start in range(0, len(ids), _READ):
            names = ids[start : start + _READ]
            yield Block(names, index.embeddings(names), index.metadata(names))

    return Items(index.path, index.fingerprint(), len(ids), index.dim, blocks, index.pending_text)


def _of_file(file: Path) -> Items:
    names, values = read_features(file)
    if names is None:
        raise InputError(str(file), "has no names", "must be .parquet or .npz", "'contml embed' writes them")
    if values.ndim != 2:
        raise InputError(str(file), f"maps {list(values.shape)}", "must be one vector per item")
    rows: dict[str, int] = {}
    for row, name in enumerate(names):
        if rows.setdefault(name, row) != row:
            hint = "each item needs a name of its own"
            raise InputError(str(file), f"vectors {rows[name]} and {row} have the same name, {name}", hint=hint)
    content = hashlib.sha256("\n".join(names).encode(errors="surrogateescape"))
    content.update(np.ascontiguousarray(values).data)

    def blocks() -> Iterator[Block]:
        for start in range(0, len(names), _READ):
            part = [*names[start : start + _READ]]
            yield Block(part, values[start : start + _READ], [{} for _ in part])

    return Items(file, content.hexdigest(), len(names), values.shape[1], blocks)


def to_parquet(items: Items, file: Path, progress: Callable[[int], None] = lambda _: None) -> None:
    """Write a Parquet file; one that is complete, with these items, stays as it is.

    Raises:
        InputError: another file has its name, or it cannot be written.
    """
    if finished_file(file, lambda: items.key) is not None:
        return

    def columns() -> Iterator[dict[str, Any]]:
        done = 0
        for ids, vectors, metadata in items.blocks():
            texts = [json.dumps(each, ensure_ascii=False) for each in metadata]
            yield {"name": ids, "features": list(vectors), "metadata": texts}
            progress(done := done + len(ids))

    write_parquet(file, columns(), Made(items.key, items.count, items.dim, {}, {}))


def to_qdrant(items: Items, place: str, collection: str, progress: Callable[[int], None] = lambda _: None) -> None:
    """Write a new collection of Qdrant; the same call continues one that was interrupted.

    Args:
        items: what is written.
        place: the URL of a server, whose key is in the environment variable `QDRANT_API_KEY`, or a folder for Qdrant's
            local mode.
        collection: its name.
        progress: called with the number of items written.

    Raises:
        InputError: Qdrant is not installed or does not answer, or has another collection with this name.
    """
    step = max(1, min(_SENT, _SENT_NUMBERS // items.dim))
    with _client(place) as client:
        from qdrant_client import models

        if not client.collection_exists(collection):
            vectors = models.VectorParams(size=items.dim, distance=models.Distance.EUCLID)
            client.create_collection(collection, vectors_config=vectors, metadata={_MADE: items.key})
        else:
            config = client.get_collection(collection).config
            if (config.metadata or {}).get(_MADE) != items.key:
                size = getattr(config.params.vectors, "size", None)
                other = f", with vectors of {size} numbers" if size not in (None, items.dim) else ""
                hint = "choose another --collection, or delete it in Qdrant"
                raise InputError(f"collection {collection}", f"exists already{other}", hint=hint)
        done = 0
        for ids, embeddings, metadata in items.blocks():
            for start in range(0, len(ids), step):
                part = slice(start, start + step)
                payloads = [{"id": i, "metadata": m} for i, m in zip(ids[part], metadata[part], strict=True)]
                numbers: list[Any] = [str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in ids[part]]
                points = models.Batch(ids=numbers, vectors=embeddings[part].tolist(), payloads=payloads)
                client.upsert(collection, points=points, wait=True)
                progress(done := done + len(payloads))


@contextmanager
def _client(place: str) -> Iterator[Any]:
    """A connection to Qdrant."""
    if find_spec("qdrant_client") is None:
        raise InputError("--format qdrant", "qdrant-client is not installed", hint='pip install "contml[qdrant]"')
    is_url = place.startswith(("http://", "https://"))
    if not is_url:
        check_new_folder(Path(place), _QDRANT_FILES)
    from qdrant_client import QdrantClient

    with warnings.catch_warnings(), _refused(place):
        warnings.simplefilter("ignore")  # such as that a local folder is slow with many points
        options: dict[str, Any] = {"url": place, "api_key": os.environ.get(API_KEY), "check_compatibility": False}
        client = QdrantClient(**(options if is_url else {"path": place}))
        try:
            yield client
        finally:
            client.close()


@contextmanager
def _refused(place: str) -> Iterator[None]:
    """Errors of Qdrant and of the network, as one line."""
    from qdrant_client.http.exceptions import ApiException

    try:
        yield
    except InputError:
        raise
    except (ApiException, OSError, RuntimeError, ValueError) as error:
        text = f"{one_line(error)} {getattr(error, 'status_code', '')}"
        hint = "check the URL, and that the server runs; a folder needs no server"
        if getattr(error, "status_code", None) in (401, 403):
            hint = f"set the environment variable {API_KEY}"
        elif not place.startswith(("http://", "https://")):
            hint = "choose another folder, or end the process that uses it"
        raise InputError(place, f"Qdrant does not accept it ({text.strip():.120})", hint=hint) from None
