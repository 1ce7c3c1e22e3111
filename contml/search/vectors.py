"""Vectors of a file in an index: as they are, or embedded by a model that was trained on such vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias

import numpy as np

from contml._support.errors import InputError
from contml.data.features import Floats
from contml.search.embedder import Embedder
from contml.search.images import Added
from contml.search.index import Index
from contml.search.inputs import NamedImage, changed, named_vectors
from contml.search.segments import Metadata

#: The distance of vectors that no model of contml made.
Metric: TypeAlias = Literal["cosine", "euclidean"]
#: The key of this distance among the texts of an index.
_METRIC = "metric"


def vectors_of(items: Sequence[NamedImage]) -> Floats:
    """Return the vectors `[N, F]` of items that all come from files of vectors.

    Raises:
        InputError: some are images, or the vectors have several lengths.
    """
    vectors = [item.vector for item in items]
    first = vectors[0]
    for item, vector in zip(items, vectors, strict=True):
        if vector is None or first is None:
            name = items[0].name if first is None else item.name
            raise InputError(name, "an image", "must be a vector, as the other items or the index")
        if vector.shape != first.shape:
            got = f"{vector.shape[-1]} numbers in {item.file}"
            raise InputError(item.name, got, f"must be {first.shape[-1]}, as in {items[0].file}")
    return np.stack([vector for vector in vectors if vector is not None])


def metric_of(index: Index) -> Metric | None:
    """Return how an index compares vectors that no model made. Return None for an index of another kind."""
    metric = index.model.get(_METRIC)
    return "cosine" if metric == "cosine" else "euclidean" if metric == "euclidean" else None


def create_of_vectors(path: Path, dim: int, metric: Metric) -> Index:
    """Make an empty index of vectors that no model of contml made."""
    return Index.create(path, dim, {_METRIC: metric})


def compared(items: Sequence[NamedImage], metric: Metric | None) -> Floats:
    """Return the vectors of items as the index holds them. For cosines, they have length 1.

    Raises:
        InputError: a vector is 0 and has no direction.
    """
    vectors = vectors_of(items)
    if metric != "cosine":
        return vectors
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if len(zeros := np.flatnonzero(norms == 0)):
        item, hint = items[int(zeros[0])], "remove it, or use --metric euclidean"
        raise InputError(f"{item.file}: {item.name}", "all its numbers are 0", "has no cosine", hint)
    return (vectors / norms).astype(np.float32)


def add_vectors(
    index: Index, items: Sequence[NamedImage], model: Embedder | None, metadata: Metadata | None = None
) -> Added:
    """Add vectors that are not in the index: all of them, or none.

    Vectors that were removed from the index stay out of it, unless they changed.

    Args:
        index: the index, whose lock is held.
        items: vectors with names.
        model: embeds the vectors. If it is None, the index holds them as they are.
        metadata: of items by name.

    Raises:
        InputError: a vector has changed since it was added, or its length differs.
    """
    vectors, result = vectors_of(items), Added()
    sources = [hashlib.blake2b(vector.tobytes(), digest_size=16).hexdigest() for vector in vectors]
    present = [item.name for item in items if item.name in index]
    stored = dict(zip(present, index.sources(present), strict=True))
    new, different, removed = list[int](), dict[str, str](), index.removed
    for row, (item, source) in enumerate(zip(items, sources, strict=True)):
        if item.name in stored:
            result.present += 1
            if stored[item.name] != source:
                different[item.name] = f"--remove {quote(item.name)}"
        elif removed.get(item.name) == source:
            result.removed += 1
        else:
            new.append(row)
    if different:
        raise changed(different, index.path, f"remove them: contml index --out {quote(str(index.path))}")
    if new:
        added = [items[row] for row in new]
        embeddings = compared(added, metric_of(index)) if model is None else model.embed(vectors[new])
        label_vectors = None if model is None or index.label_dim is None else model.label_vectors(embeddings)
        names = [item.name for item in added]
        entries = None if metadata is None else [metadata.get(name, {}) for name in names]
        index.add(names, embeddings, entries, [sources[row] for row in new], label_vectors=label_vectors)
    result.added = len(new)
    return result


def queries_of(index: Index, queries: Sequence[str]) -> tuple[list[NamedImage], Floats]:
    """Return the queries of an index of vectors by name, and their vectors `[Q, d]`.

    Args:
        index: the index.
        queries: ids of the index, and files of vectors.

    Raises:
        InputError: a query is neither, or its vectors have another length.
    """
    named, parts = list[NamedImage](), list[Floats]()
    for query in queries:
        if query in index:
            named.append(NamedImage(query, Path(query)))
            parts.append(index.embeddings([query]))
            continue
        path = Path(query)
        if not path.is_file():
            raise InputError(query, f"no id of {index.path}, and no file of vectors")
        items = named_vectors(path)
        vectors = compared(items, metric_of(index))
        if (dim := vectors.shape[1]) != index.dim:
            raise InputError(query, f"vectors of {dim} numbers", f"must have {index.dim}, as in {index.path}")
        named += items
        parts.append(vectors)
    return named, np.concatenate(parts)
