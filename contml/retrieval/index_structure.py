"""The search of an index: exact, or through a search structure of FAISS for its first rows.

    rows    0 ............ m ............ n
            | structure    | compared     |      m = n after `build`; flat: m = 0
              candidates     all of them

    candidates of both ---> distances by subtraction in float64 ---> the k nearest, ties by position

A search structure proposes candidates, and may miss some of the nearest. Rows that it does not cover yet are compared
exactly, and so is the whole index for a query for which the structure finds fewer than k items. How widely a structure
is searched is measured: `tuned` tries items as queries.

The codes of int8 and binary cover all rows, and are compared with every query: they take a quarter or a 32nd of the
memory of the vectors.

IVF-PQ is made in parts, which `index_shards` shares between processes. The quantizers are fitted once, to a sample;
each part of the rows is encoded by itself; the codes are merged by list, in the order of the rows:

    vectors ---> sample ---> centroids, codebooks
                                    |
    rows 0 ... PART ------------> sizes, rows, codes ---.
    rows PART ... 2 PART -------> sizes, rows, codes ---+---> the structure of all rows
    ...                                                 /

    int8      floor(255 (x - low) / (high - low)) of each number; low and high are those of all rows
    binary    x > mean over the rows, 8 numbers in a byte; compared by the number of bits that differ

The file of a structure holds arrays, which are checked: graph or codes may come from somebody else, and FAISS trusts
what it searches. The objects of FAISS are built from the arrays; no file is ever read by FAISS.

The exact search is certified, as `contml.distances.nearest_vectors` is: FAISS finds some more than k candidates by
matrix products in float32, whose rounding errors have a bound. If rounding could hide a nearer item (tight clusters,
ties), the query is compared with all rows by subtraction.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError, one_line
from contml._support.files import write
from contml.distances import squared_distances_of
from contml.retrieval.index_store import CodeKind, Flags, Floats, Kind, StructureFile

Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Squares: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"

#: Items up to which "auto" compares all: a query of 128 dimensions takes a millisecond, and nothing is missed.
FLAT_ITEMS = 100_000
#: Items up to which "auto" takes HNSW; beyond, IVF-PQ, whose memory per item is a tenth.
HNSW_ITEMS = 2_000_000
#: Rows below which no structure is built: IVF-PQ trains on 10,000 or more, and comparing them all is as fast.
FEWEST = 10_000
#: HNSW: neighbours per item, and candidates kept while it is built.
HNSW_NEIGHBOURS, HNSW_BUILD = 16, 100
#: IVF-PQ: numbers per byte of a code, values of a byte, least number of candidates that are compared exactly.
PQ_NUMBERS, PQ_VALUES, LEAST_RERANKED = 4, 256, 50
#: The share of the true nearest items that a search is to find, of how many, and the items that are tried as queries.
RECALL, RECALL_K, RECALL_QUERIES = 0.95, 10, 200
#: What is tried: candidates kept by a search in HNSW; lists of IVF-PQ, and candidates per result compared exactly.
EFFORTS = (64, 128, 256, 512)
PROBES, RERANKED = (16, 32, 64, 128, 256, 512, 1024), (5, 10, 20, 50)
#: Candidates per result of int8 and binary codes, which compare all codes anyway.
CODE_RERANKED = (5, 10, 20, 50, 100)
#: IVF-PQ: rows per list on which the quantizers are trained.
IVF_TRAINING = 64
#: Quantizers, and the means of binary codes, are fitted again when there are so many times as many rows.
GROWTH = 2
#: Where no structure finds enough, another one is built when there are so many times as many rows.
COMPARED_GROWTH = 2
#: Kinds that are codes of the vectors.
CODE_KINDS: tuple[CodeKind, ...] = ("int8", "binary")
#: Rows that are added to a structure at a time; after each part it is saved, so that a kill loses at most one.
PART = 1 << 17
#: Candidates beyond k of the exact search, and at most so many more for removed items.
_SPARE, _SPARE_REMOVED = 32, 1024
#: Queries at a time, and candidates of all of them.
_QUERIES, _CANDIDATES = 4096, 1 << 22
#: Rows that are compared with one query at a time by subtraction.
_SCANNED = 1 << 18


def _faiss() -> Any:
    """FAISS, imported on first use; its type stubs lack most of what is used here."""
    return importlib.import_module("faiss")


def kind_for(kind: Kind, items: int) -> Kind:
    """The kind of structure for so many items, never "auto"."""
    if kind == "auto":
        kind = "flat" if items <= FLAT_ITEMS else "hnsw" if items <= HNSW_ITEMS else "ivf_pq"
    return kind


class Structure(NamedTuple):
    """A search structure in memory."""

    file: StructureFile
    index: Any
    parts: Any  # vectors of HNSW and centroids of IVF-PQ, which FAISS does not keep alive; mean `[d]` of binary codes


# -- building ----------------------------------------------------------------------------------------------------------


def grow(
    kind: Kind, vectors: Floats, before: Structure | None, path: Callable[[int], Path], number: int
) -> Iterator[Structure]:
    """Extends a structure of any kind but IVF-PQ to all rows of vectors `[N, d]`, part by part.

    It yields the structure after each part, with a file of its own. With one thread, the files are the same to the last
    bit if it is stopped and called again.

    Args:
        kind: "hnsw", "int8" or "binary".
        vectors: the vectors.
        before: a structure of the first rows of these vectors, which is changed, or None.
        path: the file of a structure by its number.
        number: the number of the first file; each part has the next one.
    """
    faiss = _faiss()
    total = len(vectors)
    if before is not None and before.file.kind == kind and still_fits(before, vectors):
        index, trained, parts = before.index, before.file.trained, before.parts
    else:
        index, trained, parts = _NEW[kind](vectors)
    while index.ntotal < total:
        if kind == "hnsw":
            index.hnsw.rng = faiss.RandomGenerator(index.ntotal)  # its state is not in the file
        index.add(_as_input(kind, vectors[index.ntotal : index.ntotal + PART], parts))
        file = _written(path(number), kind, number, index.ntotal, trained, _ARRAYS[kind](index, parts))
        yield Structure(file, index, parts)
        number += 1


def _written(path: Path, kind: Kind, number: int, count: int, trained: int, arrays: Arrays) -> StructureFile:
    """Writes the file of a structure."""
    write(path, partial(_save, arrays))
    crc, size = _checksum(path)
    return StructureFile(number, kind, count, trained, size, crc)


def still_fits(structure: Structure, vectors: Floats) -> bool:
    """Whether a structure of the first rows is extended to all of them; else a new one is fitted to all."""
    file = structure.file
    if file.kind == "int8":  # a number outside the ranges would be cut off
        low, width = _faiss().vector_to_array(structure.index.sq.trained).reshape(2, -1)
        new = vectors[file.count :]
        return not len(new) or bool((new.min(0) >= low).all() and (new.max(0) <= low + width).all())
    return file.kind == "hnsw" or len(vectors) < GROWTH * file.trained


def tuned(structure: Structure, vectors: Floats, live: Flags, norm: float) -> StructureFile:
    """How widely the structure of all rows is to be searched, as its file says it.

    Of the settings, the one with the least work that finds `RECALL` of the true nearest of some items, which are tried
    as queries. If none does: the one that finds most, of those that take at most half the work of comparing all items.

    Args:
        structure: of all rows of the vectors.
        vectors: `[N, d]`.
        live: `[N]`, False for rows that are never returned; at least two are.
        norm: at least the largest norm of a vector.
    """
    rows = np.flatnonzero(live)
    query_rows = np.sort(np.random.default_rng(0).choice(rows, min(RECALL_QUERIES, len(rows)), replace=False))
    exact = true_nearest(Searcher(vectors, live, norm), query_rows, RECALL_K)
    best = structure.file
    for setting in _settings(structure, len(vectors), vectors.shape[1]):
        searcher = Searcher(vectors, live, norm, structure._replace(file=setting))
        share = share_found(searcher, query_rows, exact)
        if best.recall is None or share > best.recall:
            best = replace(setting, recall=share)
        if share >= RECALL:
            break
    return best


def _settings(structure: Structure, rows: int, dim: int) -> list[StructureFile]:
    """The settings to try, the one with the least work first."""
    file = structure.file
    if file.kind == "hnsw":
        return [replace(file, breadth=breadth) for breadth in EFFORTS]
    if file.kind != "ivf_pq":
        return [replace(file, candidates=candidates) for candidates in CODE_RERANKED]
    lists = structure.index.nlist

    def work(setting: StructureFile) -> float:
        """Multiplications of a query: with the centroids, tables and codes of its lists, exact distances."""
        codes = setting.breadth * (PQ_VALUES * dim / 8 + rows / lists * dim / PQ_NUMBERS)
        return float(lists * dim + codes + max(RECALL_K * setting.candidates, LEAST_RERANKED) * dim)

    settings = [replace(file, breadth=min(n, lists), candidates=c) for n in PROBES for c in RERANKED if n < 2 * lists]
    ordered = sorted(settings, key=work)
    return [setting for setting in ordered if work(setting) <= rows * dim / 2] or ordered[:1]


def true_nearest(searcher: Searcher, query_rows: Positions, k: int) -> Squares:
    """Squared distances `[Q]` of some items to their k-th nearest other item, or to their last."""
    k = min(k, int(searcher.live.sum()) - 1)
    nearest = searcher.nearest(np.array(searcher.vectors[query_rows]), k + 1)
    return np.array([squared.max() for squared in _others(nearest, query_rows, k)])


def share_found(searcher: Searcher, query_rows: Positions, limits: Squares, k: int = RECALL_K) -> float:
    """The share of the k nearest of some items that a search finds: those at most as far as the limits `[Q]`."""
    k = min(k, int(searcher.live.sum()) - 1)
    nearest = searcher.nearest(np.array(searcher.vectors[query_rows]), k + 1)
    found = [(squared <= limit).mean() for squared, limit in zip(_others(nearest, query_rows, k), limits, strict=True)]
    return float(np.mean(found))


def _others(nearest: NearestRows, query_rows: Positions, k: int) -> list[Squares]:
    """The squared distances of the first k results of each query that are not the query itself."""
    results = zip(nearest.squared, nearest.positions, query_rows, strict=True)
    return [squared[positions != row][:k] for squared, positions, row in results]


class _New(NamedTuple):
    """An empty structure, the number of rows that it was fitted to, and its parts (`Structure`)."""

    index: Any
    trained: int
    parts: Any


def _new_hnsw(dim: int) -> Any:
    index = _faiss().IndexHNSWFlat(dim, HNSW_NEIGHBOURS)
    index.hnsw.efConstruction = HNSW_BUILD
    return index


def _new_int8(vectors: Floats) -> _New:
    low, high = vectors.min(0), vectors.max(0)
    width = high - low
    # Rounded up where `low + width` is below the largest number: it would be outside.
    width = np.where(low + width < high, np.nextafter(width, np.float32(np.inf)), width)
    return _New(_int8_of(np.stack([low, width])), len(vectors), None)


def _int8_of(ranges: Floats) -> Any:
    """Empty int8 codes. ranges `[2, d]`: the least value of each number, and the width of its range."""
    faiss = _faiss()
    index = faiss.IndexScalarQuantizer(ranges.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2)
    faiss.copy_array_to_vector(np.ascontiguousarray(ranges, np.float32).reshape(-1), index.sq.trained)
    index.is_trained = True
    return index


def _new_binary(vectors: Floats) -> _New:
    mean = np.asarray(vectors.mean(0, dtype=np.float64), np.float32)  # numbers may all be positive
    return _New(_faiss().IndexBinaryFlat(8 * code_bytes("binary", len(mean))), len(vectors), mean)


def code_bytes(kind: CodeKind, dim: int) -> int:
    """The bytes of an int8 or binary code; the bits beyond the dimension are 0 in all of them."""
    return -(-dim // 8) if kind == "binary" else dim


def fit_quantizers(vectors: Floats) -> Arrays:
    """The quantizers of IVF-PQ, fitted to a sample of vectors `[N, d]`.

    Returns:
        centroids `[L, d]` of the lists; codebooks `[M, 256, d / M]`. Here d is a multiple of `PQ_NUMBERS`.
    """
    faiss = _faiss()
    num_rows = len(vectors)
    num_lists = ivf_lists(num_rows)
    training_rows = np.sort(
        np.random.default_rng(0).choice(num_rows, min(num_rows, max(IVF_TRAINING * num_lists, FEWEST)), replace=False)
    )
    sample = _as_input("ivf_pq", vectors[training_rows])
    dim = sample.shape[1]
    index = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, num_lists, dim // PQ_NUMBERS, 8)
    index.train(sample)
    return _quantizers_of(index)


def encode_rows(quantizers: Arrays, vectors: Floats) -> Arrays:
    """The codes of IVF-PQ of vectors `[n, d]`.

    Returns:
        sizes `[L]` of the lists; rows `[n]` and codes `[n, M]`, list after list.
    """
    index, _centroids = _empty_ivf_pq(quantizers)  # kept: FAISS does not keep it alive
    index.add(_as_input("ivf_pq", vectors))
    return _lists_of(index)


def merge_codes(
    quantizers: Arrays, parts: Sequence[tuple[int, Arrays]], path: Path, number: int, trained: int, vectors: Floats
) -> Structure:
    """Writes the structure of IVF-PQ of all rows of vectors `[N, d]`, in which each list is in the order of the rows.

    Args:
        quantizers: of `fit_quantizers`.
        parts: the first row of each part, and its codes by `encode_rows`, in the order of the rows.
        path: the file.
        number: its number.
        trained: the number of rows to which the quantizers were fitted.
        vectors: the vectors.
    """
    lists = np.arange(len(quantizers["centroids"]))
    order = np.argsort(np.concatenate([np.repeat(lists, part["sizes"]) for _, part in parts]), kind="stable")
    arrays = {
        **quantizers,
        "sizes": np.sum([part["sizes"] for _, part in parts], 0),
        "rows": np.concatenate([part["rows"] + start for start, part in parts])[order],
        "codes": np.concatenate([part["codes"] for _, part in parts])[order],
    }
    file = _written(path, "ivf_pq", number, len(vectors), trained, arrays)
    return Structure(file, *_ivf_pq(arrays, vectors))


def codes_of(structure: Structure) -> tuple[Arrays, Arrays]:
    """The quantizers of a structure of IVF-PQ, and the codes of its rows."""
    return _quantizers_of(structure.index), _lists_of(structure.index)


def ivf_lists(rows: int) -> int:
    """The number of lists of IVF-PQ for so many rows."""
    return max(1, min(int(4 * math.sqrt(rows)), rows // IVF_TRAINING))


def _as_input(kind: str, vectors: Floats, parts: Any = None) -> np.ndarray[Any, Any]:
    """What FAISS takes: binary codes, or the vectors.

    For IVF-PQ they have zeros, which change no distance, up to a dimension that `PQ_NUMBERS` divides.
    """
    if kind == "binary":
        return np.packbits(vectors > parts, axis=1)
    padding = -vectors.shape[1] % PQ_NUMBERS if kind == "ivf_pq" else 0
    return np.pad(vectors, ((0, 0), (0, padding))) if padding else np.ascontiguousarray(vectors)


def _int8_arrays(index: Any, _: Any) -> Arrays:
    """The arrays of int8 codes: ranges `[2, d]`, the least value and the width of each number; codes `[N, d]`."""
    faiss = _faiss()
    ranges = faiss.vector_to_array(index.sq.trained).reshape(2, -1)
    return {"ranges": ranges, "codes": faiss.vector_to_array(index.codes).reshape(-1, index.d)}


def _binary_arrays(index: Any, mean: Any) -> Arrays:
    """The arrays of binary codes: mean `[d]`; codes `[N, d / 8]`, rounded up."""
    return {"mean": mean, "codes": _faiss().vector_to_array(index.xb).reshape(-1, index.code_size)}


def _graph_of(index: Any, _: Any) -> Arrays:
    """The arrays of HNSW over N rows.

    levels `[N]`: the number of levels of each row. neighbors: on each level of each row, rows of that level, then -1;
    those of row n begin at the sum of the places of the rows before. entry `[1]`: the row where a search begins.
    """
    faiss, graph = _faiss(), index.hnsw
    return {
        "levels": faiss.vector_to_array(graph.levels),
        "neighbors": faiss.vector_to_array(graph.neighbors),
        "entry": np.array([graph.entry_point], np.int32),
    }


def _quantizers_of(index: Any) -> Arrays:
    codebooks = _faiss().vector_to_array(index.pq.centroids).reshape(index.pq.M, PQ_VALUES, -1)
    return {"centroids": index.quantizer.reconstruct_n(0, index.nlist), "codebooks": codebooks}


def _lists_of(index: Any) -> Arrays:
    faiss, lists = _faiss(), index.invlists
    sizes = np.array([lists.list_size(number) for number in range(lists.nlist)], np.int64)
    filled = np.flatnonzero(sizes).tolist()
    rows = [faiss.rev_swig_ptr(lists.get_ids(number), int(sizes[number])) for number in filled]
    codes = [faiss.rev_swig_ptr(lists.get_codes(number), int(sizes[number]) * lists.code_size) for number in filled]
    return {
        "sizes": sizes,
        "rows": np.concatenate(rows),
        "codes": np.concatenate(codes).reshape(-1, lists.code_size),
    }


#: By kind: an empty structure for vectors, and the arrays of a structure.
_NEW: Mapping[Kind, Callable[[Floats], _New]] = {
    "hnsw": lambda vectors: _New(_new_hnsw(vectors.shape[1]), 0, None),
    "int8": _new_int8,
    "binary": _new_binary,
}
_ARRAYS: Mapping[Kind, Callable[[Any, Any], Arrays]] = {
    "hnsw": _graph_of,
    "int8": _int8_arrays,
    "binary": _binary_arrays,
}


def encode(kind: CodeKind, vectors: Floats) -> Arrays:
    """The arrays of int8 or binary codes of vectors `[N, d]`: codes, and `ranges` or `mean` of all vectors."""
    index, parts = _filled(kind, vectors)
    return _ARRAYS[kind](index, parts)


def nearest_codes(kind: CodeKind, vectors: Floats, queries: Floats, count: int) -> Positions:
    """Positions `[Q, count]` of the vectors `[N, d]` whose int8 or binary codes are nearest to queries `[Q, d]`."""
    index, parts = _filled(kind, vectors)
    search = getattr(index, "search_numpy", index.search)  # as in `Searcher`
    positions: Positions = search(_as_input(kind, queries, parts), count)[1]
    return positions


def _filled(kind: CodeKind, vectors: Floats) -> tuple[Any, Any]:
    index, _, parts = _NEW[kind](vectors)
    index.add(_as_input(kind, vectors, parts))
    return index, parts


def _save(arrays: Arrays, path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def _checksum(path: Path) -> tuple[int, int]:
    """CRC-32 and size of a file."""
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return crc, size


def load(path: Path, file: StructureFile, vectors: Floats) -> Structure | None:
    """Reads a structure of the first rows of vectors `[N, d]`; None if the file is missing: all rows are then compared.

    Raises:
        InputError: it is damaged, or not a structure of these vectors.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    hint = "delete it, and build the index again; until then all items are compared"
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(str(path), "not a file", hint=hint)
        if path.stat().st_size != file.size:
            raise InputError(str(path), f"{path.stat().st_size:,} bytes", f"must be {file.size:,}", hint)
        content = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})", hint=hint) from None
    if zlib.crc32(content) != file.crc:
        raise InputError(str(path), "damaged: its checksum differs", hint=hint)
    try:
        arrays = parse(content)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise InputError(str(path), f"damaged ({one_line(error)})", hint=hint) from None
    del content
    problem = "more rows than the index" if file.count > len(vectors) else None
    if file.kind not in _PROBLEMS:
        raise InputError(str(path), f"a structure of kind {file.kind}", hint=hint)
    problem = problem or _PROBLEMS[file.kind](arrays, file.count, vectors.shape[1])
    if problem is not None:
        raise InputError(str(path), f"not a structure of these {len(vectors):,} items: {problem}", hint=hint)
    return Structure(file, *_BUILT[file.kind](arrays, vectors[: file.count]))


def _shape_problem(
    arrays: Arrays, expected: Mapping[str, tuple[type[np.generic], tuple[int | None, ...]]]
) -> str | None:
    """What is wrong with the names, types or shapes of arrays; None: any length."""
    if arrays.keys() != expected.keys():
        return f"arrays {', '.join(sorted(arrays))}"
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if array.dtype != dtype or not fits:
            return f"{name} is {array.dtype} {list(array.shape)}"
    return None


def _graph_problem(arrays: Arrays, rows: int, dim: int) -> str | None:
    """What is wrong with a graph of HNSW; FAISS follows its edges without a check."""
    if problem := _shape_problem(
        arrays, {"levels": (np.int32, (rows,)), "neighbors": (np.int32, (None,)), "entry": (np.int32, (1,))}
    ):
        return problem
    levels, neighbors, entry = arrays["levels"], arrays["neighbors"], int(arrays["entry"][0])
    empty = _new_hnsw(dim)  # kept: FAISS does not keep alive what its vectors belong to
    places = _faiss().vector_to_array(empty.hnsw.cum_nneighbor_per_level)  # before each level
    if not rows or levels.min() < 1 or levels.max() >= len(places):
        return "levels of rows"
    starts = np.concatenate(([0], np.cumsum(places[levels], dtype=np.int64)))
    if starts[-1] != len(neighbors) or neighbors.min() < -1 or neighbors.max() >= rows:
        return "neighbours beyond the rows"
    for level in range(1, int(levels.max())):
        at_level = np.flatnonzero(levels > level)
        found = neighbors[starts[at_level, None] + np.arange(places[level], places[level + 1])]
        if bool((levels[np.maximum(found, 0)][found >= 0] <= level).any()):
            return "neighbours that are not on the level"
    if not 0 <= entry < rows or levels[entry] != levels.max():
        return "the row where a search begins"
    return None


def _codes_problem(arrays: Arrays, rows: int, dim: int) -> str | None:
    """What is wrong with the codes of IVF-PQ."""
    width = dim + -dim % PQ_NUMBERS
    bytes_per_row = width // PQ_NUMBERS
    lists = len(arrays["sizes"]) if "sizes" in arrays and arrays["sizes"].ndim == 1 else 0
    if problem := _shape_problem(
        arrays,
        {
            "centroids": (np.float32, (lists, width)),
            "codebooks": (np.float32, (bytes_per_row, PQ_VALUES, PQ_NUMBERS)),
            "sizes": (np.int64, (lists,)),
            "rows": (np.int64, (rows,)),
            "codes": (np.uint8, (rows, bytes_per_row)),
        },
    ):
        return problem
    sizes, positions = arrays["sizes"], arrays["rows"]
    if not rows or sizes.min() < 0 or sizes.max() > rows or int(sizes.sum()) != rows:
        return "sizes of lists"
    if positions.min() < 0 or positions.max() >= rows or not (np.bincount(positions, minlength=rows) == 1).all():
        return "rows that are missing or appear twice"
    if not np.isfinite(arrays["centroids"]).all() or not np.isfinite(arrays["codebooks"]).all():
        return "numbers that are not finite"
    return None


def _int8_problem(arrays: Arrays, rows: int, dim: int) -> str | None:
    """What is wrong with int8 codes."""
    problem = _shape_problem(arrays, {"ranges": (np.float32, (2, dim)), "codes": (np.uint8, (rows, dim))})
    if problem is None and not (np.isfinite(arrays["ranges"]).all() and (arrays["ranges"][1] >= 0).all()):
        problem = "ranges that are not finite, or have a width below 0"
    return problem


def _binary_problem(arrays: Arrays, rows: int, dim: int) -> str | None:
    """What is wrong with binary codes."""
    problem = _shape_problem(
        arrays, {"mean": (np.float32, (dim,)), "codes": (np.uint8, (rows, code_bytes("binary", dim)))}
    )
    return "a mean that is not finite" if problem is None and not np.isfinite(arrays["mean"]).all() else problem


def _int8(arrays: Arrays, _: Floats) -> tuple[Any, Any]:
    """The object of FAISS for these codes."""
    index = _int8_of(arrays["ranges"])
    index.add_sa_codes(np.ascontiguousarray(arrays["codes"]))
    return index, None


def _binary(arrays: Arrays, _: Floats) -> tuple[Any, Any]:
    """The object of FAISS for these codes, and their mean."""
    index = _faiss().IndexBinaryFlat(8 * arrays["codes"].shape[1])
    index.add(np.ascontiguousarray(arrays["codes"]))
    return index, arrays["mean"]


def _hnsw(arrays: Arrays, vectors: Floats) -> tuple[Any, Any]:
    """The object of FAISS for a graph over these vectors, and its storage."""
    faiss = _faiss()
    index, storage = _new_hnsw(vectors.shape[1]), faiss.IndexFlatL2(vectors.shape[1])
    storage.add(np.ascontiguousarray(vectors))
    graph, levels = index.hnsw, arrays["levels"]
    places = faiss.vector_to_array(graph.cum_nneighbor_per_level)
    starts = np.concatenate(([0], np.cumsum(places[levels], dtype=np.int64))).astype(np.uint64)
    faiss.copy_array_to_vector(levels, graph.levels)
    faiss.copy_array_to_vector(starts, graph.offsets)
    faiss.copy_array_to_vector(arrays["neighbors"], graph.neighbors)
    graph.entry_point, graph.max_level = int(arrays["entry"][0]), int(levels.max()) - 1
    index.storage, index.own_fields, index.ntotal = storage, False, len(vectors)
    return index, storage


def _ivf_pq(arrays: Arrays, _: Floats) -> tuple[Any, Any]:
    """The object of FAISS for these codes, and its centroids."""
    faiss, sizes = _faiss(), arrays["sizes"]
    index, centroids = _empty_ivf_pq(arrays)
    ends = np.cumsum(sizes)
    for number in np.flatnonzero(sizes).tolist():
        part = slice(int(ends[number] - sizes[number]), int(ends[number]))
        rows, codes = np.ascontiguousarray(arrays["rows"][part]), np.ascontiguousarray(arrays["codes"][part])
        index.invlists.add_entries(number, len(rows), faiss.swig_ptr(rows), faiss.swig_ptr(codes))
    index.ntotal = len(arrays["rows"])
    index.precompute_table()
    return index, centroids


def _empty_ivf_pq(quantizers: Arrays) -> tuple[Any, Any]:
    """The object of FAISS without rows, and its centroids."""
    faiss = _faiss()
    lists, dim = quantizers["centroids"].shape
    centroids = faiss.IndexFlatL2(dim)
    centroids.add(np.ascontiguousarray(quantizers["centroids"]))
    index = faiss.IndexIVFPQ(centroids, dim, lists, dim // PQ_NUMBERS, 8)
    faiss.copy_array_to_vector(np.ascontiguousarray(quantizers["codebooks"]).reshape(-1), index.pq.centroids)
    index.is_trained = True
    return index, centroids


#: By kind: what is wrong with the arrays of a file; the object of FAISS, and its parts.
_PROBLEMS: Mapping[Kind, Callable[[Arrays, int, int], str | None]] = {
    "hnsw": _graph_problem,
    "ivf_pq": _codes_problem,
    "int8": _int8_problem,
    "binary": _binary_problem,
}
_BUILT: Mapping[Kind, Callable[[Arrays, Floats], tuple[Any, Any]]] = {
    "hnsw": _hnsw,
    "ivf_pq": _ivf_pq,
    "int8": _int8,
    "binary": _binary,
}


# -- searching ---------------------------------------------------------------------------------------------------------


class NearestRows(NamedTuple):
    """The k nearest items of each query, nearest first, ties by position."""

    squared: Squares  # [Q,k] squared Euclidean distances
    positions: Positions  # [Q,k]


class Searcher:
    """Searches the live rows of vectors `[N, d]`.

    Args:
        vectors: finite numbers.
        live: `[N]`, False for rows that are never returned.
        norm: at least the largest norm of a vector.
        structure: proposes candidates among the first rows; None compares all rows.
    """

    def __init__(self, vectors: Floats, live: Flags, norm: float, structure: Structure | None = None) -> None:
        self.vectors, self.live, self.norm, self.structure = vectors, live, norm, structure
        self._covered = 0 if structure is None else structure.file.count
        rest = live[self._covered :]
        self._rest_live = int(rest.sum())
        self._rest_removed = len(rest) - self._rest_live
        self._selector = None
        if not live[: self._covered].all():
            faiss = _faiss()
            self._selector = faiss.IDSelectorBitmap(np.packbits(live[: self._covered], bitorder="little"))

    def nearest(self, queries: Floats, k: int) -> NearestRows:
        """The k nearest rows to each query `[Q, d]`; at least k are live."""
        out = NearestRows(np.empty((len(queries), k)), np.empty((len(queries), k), np.int64))
        candidates = 1 if self.structure is None else self.structure.file.candidates
        step = max(1, min(_QUERIES, _CANDIDATES // (k * candidates + _SPARE + _SPARE_REMOVED)))
        for start in range(0, len(queries), step):
            q = queries[start : start + step]
            nearest = self._compare_rest(q, min(k, self._rest_live))
            if self.structure is not None:
                nearest = self._join(q, k, self._propose(self.structure, q, k), nearest)
            out.squared[start : start + step], out.positions[start : start + step] = nearest
        return out

    def _propose(self, structure: Structure, queries: Floats, k: int) -> Positions:
        """Positions of candidates `[Q, at least k]`, -1 where there are fewer."""
        faiss = _faiss()
        file, kind, options = structure.file, structure.file.kind, {"sel": self._selector}
        if kind == "hnsw":
            parameters: Any = faiss.SearchParametersHNSW(**options, efSearch=max(file.breadth, k))
        else:
            k = max(k * file.candidates, LEAST_RERANKED)
            if kind == "ivf_pq":
                parameters = faiss.SearchParametersIVF(**options, nprobe=min(file.breadth, structure.index.nlist))
            else:
                k, parameters = min(k, file.count), faiss.SearchParameters(**options)
        # faiss.contrib.torch_utils, which pytorch-metric-learning imports, has a search without parameters.
        search = getattr(structure.index, "search_numpy", structure.index.search)
        candidates: Positions = search(_as_input(kind, queries, structure.parts), k, params=parameters)[1]
        return candidates

    def _join(self, queries: Floats, k: int, proposed: Positions, rest: NearestRows) -> NearestRows:
        """The k nearest of the proposed rows and those of the rest."""
        squared = self._distances(queries, np.maximum(proposed, 0))
        squared[proposed < 0] = np.inf
        if rest.positions.size:
            squared, proposed = np.hstack((squared, rest.squared)), np.hstack((proposed, rest.positions))
        nearest = _first(squared, proposed, k)
        for row in np.flatnonzero(np.isinf(nearest.squared[:, -1])):
            nearest.squared[row], nearest.positions[row] = self._scan(queries[row], 0, k)
        return nearest

    def _compare_rest(self, queries: Floats, k: int) -> NearestRows:
        """The k nearest of the rows that the structure does not cover, exactly."""
        if not k:
            return NearestRows(np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64))
        faiss = _faiss()
        vectors = self.vectors[self._covered :]
        count = min(len(vectors), k + _SPARE + min(self._rest_removed, _SPARE_REMOVED))
        approximate, positions = faiss.knn(queries, vectors, count)
        positions += self._covered
        squared = self._distances(queries, positions)
        if self._rest_removed:
            squared[~self.live[positions]] = np.inf
        nearest = _first(squared, positions, k)
        if count < len(vectors):
            # A product of float32 vectors x, y has an error of at most (d + 8) eps (|x| + |y|)^2, and may underflow.
            norm_sum = np.linalg.norm(queries.astype(np.float64), axis=1) + self.norm
            slack = queries.shape[1] * 2.0**-120 + (queries.shape[1] + 8) * 2.0**-23 * norm_sum**2
            for row in np.flatnonzero(~(nearest.squared[:, -1] < approximate[:, -1] - slack)):
                nearest.squared[row], nearest.positions[row] = self._scan(queries[row], self._covered, k)
        return nearest

    def _scan(self, query: Floats, first: int, k: int) -> NearestRows:
        """The k nearest of the rows from `first` on to one query `[d]`, by subtraction: `[k]` and `[k]`."""
        rows = np.arange(first, len(self.vectors))
        chunks = [rows[None, start : start + _SCANNED] for start in range(0, len(rows), _SCANNED)]
        squared = np.concatenate([self._distances(query[None], chunk)[0] for chunk in chunks])
        squared[~self.live[first:]] = np.inf
        nearest = np.flatnonzero(squared <= np.partition(squared, k - 1)[k - 1])
        nearest = nearest[np.argsort(squared[nearest], kind="stable")[:k]]
        return NearestRows(squared[nearest], rows[nearest])

    def _distances(self, queries: Floats, positions: Positions) -> Squares:
        """Squared distances `[Q, C]` in float64 of each query `[Q, d]` to the rows at positions `[Q, C]`."""
        rows = np.repeat(np.arange(len(queries)), positions.shape[1])
        x, y, i, j = map(torch.from_numpy, (queries, self.vectors, rows, positions.reshape(-1)))
        return squared_distances_of(x, y, i, j).numpy().reshape(positions.shape)


def _first(squared: Squares, positions: Positions, k: int) -> NearestRows:
    """The k nearest of candidates `[Q, C]`, ties by position."""
    order = np.argsort(squared, axis=1)  # in any order at ties: far faster than numpy's stable sorts
    values = np.take_along_axis(squared, order, 1)
    tied = (values[:, 1 : k + 1] == values[:, :-1][:, :k]).any(axis=1)
    order[tied] = np.lexsort((positions[tied], squared[tied]))
    order = order[:, :k]
    return NearestRows(np.take_along_axis(squared, order, 1), np.take_along_axis(positions, order, 1))
