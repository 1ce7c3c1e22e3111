"""An index beside plain FAISS: build time, memory, queries per second, recall.

    python -m benchmarks.search [--items 1000000] [--dim 128] [--rounds 5] [--only KIND ...] [--save FILE]
    python -m benchmarks.search --shards [--items 1000000] [--dim 128] [--save FILE]

Vectors are drawn around centers, one per 50 vectors, and have length 1; so do the 1,000 queries. Plain FAISS has the
same vectors and parameters, keeps its index in one file, and looks ids up in an array: flat is `IndexFlatL2`, hnsw is
`IndexHNSWFlat`, ivf_pq is `IndexIVFPQ` in `IndexRefine`. Both build; then both search in turn, plain FAISS with the
graph and the codes of our index, so that the results are the same. A ratio is the median over the rounds. Time of the
build is processor time, which other programs on the machine change little. Memory is that of a new process that opens
the index and searches it: what it holds, and what it maps from files, which other processes share.

With --shards: an IVF-PQ index whose parts are made in a process each, one after another, and merged, beside the index
of FAISS that one process builds; one thread.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import heading, peak_memory, table
from contml.retrieval import Index
from contml.retrieval.index_shards import Codes
from contml.retrieval.index_store import Floats, Kind, Store
from contml.retrieval.index_structure import (
    HNSW_BUILD,
    HNSW_NEIGHBOURS,
    IVF_TRAINING,
    PART,
    PQ_NUMBERS,
    Structure,
    codes_of,
    ivf_lists,
)

KINDS: tuple[Kind, ...] = ("flat", "hnsw", "ivf_pq")
QUERIES, K, THREADS = 1000, 10, 2
faiss: Any = importlib.import_module("faiss")  # its type stubs lack most of what is used here


def inputs(items: int, dim: int) -> tuple[Floats, Floats]:
    """Vectors `[N, d]` and queries `[1000, d]` around the same centers."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((max(1, items // 50), dim), np.float32)

    def draw(count: int) -> Floats:
        x = centers[rng.integers(len(centers), size=count)] + np.float32(0.7) * rng.standard_normal(
            (count, dim), np.float32
        )
        return x / np.linalg.norm(x, axis=1, keepdims=True)  # type: ignore[no-any-return]

    return draw(items), draw(QUERIES)


def build(kind: Kind, vectors: Floats, ids: list[str], path: Path) -> Index:
    """Our index."""
    index = Index.create(path, vectors.shape[1], kind)
    index.add(ids, vectors)
    index.build()
    return index


def build_plain(kind: Kind, vectors: Floats, path: Path) -> Any:
    """The index of FAISS, saved."""
    rows, dim = vectors.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, HNSW_NEIGHBOURS)
        index.hnsw.efConstruction = HNSW_BUILD
    elif kind == "ivf_pq":
        lists = ivf_lists(rows)
        index = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, lists, dim // PQ_NUMBERS, 8)
        sample = np.random.default_rng(0).choice(rows, min(rows, IVF_TRAINING * lists), replace=False)
        index.train(vectors[np.sort(sample)])
    else:
        index = faiss.IndexFlatL2(dim)
    for start in range(0, rows, PART):
        index.add(vectors[start : start + PART])
    faiss.write_index(index, str(path))
    return index


def plain_search(vectors: Floats, structure: Structure | None, ids: list[str]) -> Callable[[Floats], tuple[Any, Any]]:
    """A search by plain FAISS, with the structure of our index and as wide."""
    names, codes = np.array(ids, object), None
    flat = faiss.IndexFlatL2(vectors.shape[1])
    flat.add(vectors)
    index = flat
    if structure is not None and structure.file.kind == "hnsw":
        index = structure.index
        index.hnsw.efSearch = structure.file.breadth
    elif structure is not None:
        codes = structure.index
        index = faiss.IndexRefine(codes, flat)
        index.k_factor = structure.file.candidates
        codes.nprobe = structure.file.breadth

    def search(queries: Floats) -> tuple[Any, Any]:
        squared, positions = index.search(queries, K)
        return names[positions], np.sqrt(np.maximum(squared, 0))

    search.parts = flat, codes  # type: ignore[attr-defined]  # FAISS does not keep them alive
    return search


def opened(path: Path, queries: Floats) -> Callable[[], None]:
    """Opens an index and searches it."""
    faiss.omp_set_num_threads(THREADS)

    def call() -> None:
        Index.open(path).search(queries, K)

    return call


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, seconds of processor time, and the result."""
    start, processor = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - start, time.process_time() - processor, result


def measure(kind: Kind, vectors: Floats, queries: Floats, exact: Any, rounds: int, folder: Path) -> dict[str, float]:
    """The numbers of one kind. `exact`: ids `[Q, k]` of the true nearest; None for the first kind, which is flat."""
    ids = [f"{row:08d}.jpg" for row in range(len(vectors))]
    path = folder / kind
    _, ours, index = timed(lambda: build(kind, vectors, ids, path))
    _, plain, built = timed(lambda: build_plain(kind, vectors, folder / "plain.faiss"))
    del built
    search = plain_search(vectors, index._current().searcher.structure, ids)
    found, reference = index.search(queries, K), search(queries)
    same = float(np.mean(np.sort(found.ids, 1) == np.sort(reference[0], 1)))
    gap = float(np.abs(np.sort(found.distances, 1) - np.sort(reference[1], 1)).max())
    spent: list[tuple[float, float]] = []
    for _ in range(rounds):
        for function in (lambda: index.search(queries, K), lambda: search(queries)):
            function()  # so that the caches hold its own data
            spent.append(timed(function)[:2])
    mine, theirs = spent[::2], spent[1::2]
    exact = found.ids if exact is None else exact
    recall = np.mean([len({*a} & {*b}) / K for a, b in zip(found.ids, exact, strict=True)])
    sizes = {file.suffix: file.stat().st_size for file in path.iterdir()}
    opening, _, again = timed(lambda: Index.open(path))
    again.close()
    index.close()
    return {
        "build": ours,
        "plain build": plain,
        "open": opening,
        "memory": peak_memory(opened, path, queries[:100]),
        "disk": sum(sizes.values()),
        "queries": QUERIES / statistics.median(seconds for seconds, _ in mine),
        "plain queries": QUERIES / statistics.median(seconds for seconds, _ in theirs),
        "overhead": statistics.median(a / b for (a, _), (b, _) in zip(mine, theirs, strict=True)) - 1,
        "processor overhead": statistics.median(a / b for (_, a), (_, b) in zip(mine, theirs, strict=True)) - 1,
        "recall": float(recall),
        "same": same,
        "gap": gap,
    }


def make_part(path: Path, number: int) -> tuple[float, int]:
    """Makes the quantizers of an index (-1) or a part of its codes: seconds of processor time, and rows."""
    faiss.omp_set_num_threads(1)
    store = Store(path)
    codes = Codes(store)
    if number >= 0:
        codes.steps = codes.steps[number : number + 1]
    _, seconds, _ = timed(codes.fit if number < 0 else lambda: codes.make(None, ""))
    store.close()
    return seconds, 0 if number < 0 else len(codes.steps[0].rows)


def shards(items: int, dim: int, folder: Path) -> str:
    """The table of an index in shards, beside FAISS in one piece."""
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    vectors, queries = inputs(items, dim)
    ids = [f"{row:08d}.jpg" for row in range(items)]
    _, whole, plain = timed(lambda: build_plain("ivf_pq", vectors, folder / "plain.faiss"))
    exact = faiss.knn(queries, vectors, K)[1]
    path = folder / "shards"
    index = Index.create(path, dim, "ivf_pq")
    index.add(ids, vectors)
    parts = -(-items // PART)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        (fitting, _), *encoding = pool.map(make_part, [path] * (parts + 1), range(-1, parts))
    _, merging, _ = timed(index.build)
    structure = index._current().searcher.structure
    assert structure is not None
    plain_codes = Structure(structure.file, plain, None)
    ours, theirs = ({**a, **b} for a, b in (codes_of(structure), codes_of(plain_codes)))
    equal = {name: bool(np.array_equal(array, theirs[name])) for name, array in ours.items()}
    found = index.search(queries, K).ids
    reference = plain_search(vectors, plain_codes, ids)(queries)[0]
    names = np.array(ids, object)[exact]
    recall = [np.mean([len({*a} & {*b}) / K for a, b in zip(x, names, strict=True)]) for x in (found, reference)]
    same = float(np.mean(np.sort(found, 1) == np.sort(reference, 1)))
    index.close()
    codes = [seconds for seconds, _ in encoding]
    ours_row = [f"{seconds:.1f}" for seconds in (fitting, sum(codes), max(codes), merging)]
    rows = [
        ["index", "quantizers, s", "codes, s", "longest shard, s", "merge and measure, s", "recall@10"],
        [f"{len(codes)} shards", *ours_row, f"{recall[0]:.4f}"],
        ["FAISS, in one piece", f"{whole:.1f} in all", "", "", "", f"{recall[1]:.4f}"],
    ]
    return f"{table(rows)}\n\nEqual ids: {same:.2%}. Equal to the bit: {_words(equal)}.\n"


def _words(equal: Mapping[str, bool]) -> str:
    return ", ".join(name if same else f"not {name}" for name, same in equal.items())


def run(items: int, dim: int, rounds: int, kinds: list[Kind]) -> dict[str, dict[str, float]]:
    """The numbers of some kinds, flat first: it finds the true nearest."""
    faiss.omp_set_num_threads(THREADS)
    torch.set_num_threads(THREADS)
    vectors, queries = inputs(items, dim)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        exact = None
        for kind in kinds:
            found[kind] = measure(kind, vectors, queries, exact, rounds, Path(folder))
            if exact is None:
                with Index.open(Path(folder) / kind) as index:
                    exact = index.search(queries, K).ids
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="*", default=list(KINDS[1:]), choices=KINDS[1:], help="these kinds beside flat")
    parser.add_argument("--shards", action="store_true", help="IVF-PQ in shards instead")
    given = parser.parse_args()
    if given.shards:
        with tempfile.TemporaryDirectory() as folder:
            words = (
                f"IVF-PQ in shards: {given.items:,} vectors of {given.dim} dimensions, {QUERIES:,} queries, 1 thread"
            )
            text = f"{heading(words)}\nfaiss {faiss.__version__}\n\n{shards(given.items, given.dim, Path(folder))}"
        print(text)
        if given.save is not None:
            given.save.write_text(text)
        return
    found = run(given.items, given.dim, given.rounds, [KINDS[0], *given.only])
    builds = [["index", "build, s of processor", "FAISS", "overhead", "open, s", "memory, MB", "on disk, MB"]]
    rows = [["index", "queries/s", "FAISS", "overhead", "of processor time", "recall@10", "same ids", "distances"]]
    for kind, n in found.items():
        overhead = f"{n['build'] / n['plain build'] - 1:+.0%}"
        megabytes = [f"{n[name] / 1e6:,.0f}" for name in ("memory", "disk")]
        builds.append([kind, f"{n['build']:.0f}", f"{n['plain build']:.0f}", overhead, f"{n['open']:.1f}", *megabytes])
        speed = [f"{n['queries']:,.0f}", f"{n['plain queries']:,.0f}", f"{n['overhead']:+.1%}"]
        result = [f"{n['recall']:.4f}", f"{n['same']:.2%}", f"± {n['gap']:.1g}"]
        rows.append([kind, *speed, f"{n['processor overhead']:+.1%}", *result])
    text = heading(
        f"{given.items:,} vectors of {given.dim} dimensions, {QUERIES:,} queries, k = {K}, {THREADS} threads"
    )
    text += f"\nfaiss {faiss.__version__}\n\n{table(builds)}\n\n{table(rows)}\n"
    print(text)
    if given.save is not None:
        given.save.write_text(text)


if __name__ == "__main__":
    main()
