"""Memory per item and recall@10 of int8 and binary codes, without and with exact distances of candidates.

    python -m benchmarks.short_codes [data=FOLDER weights=FILE] [--items 100000]

Drawn: vectors of 128 numbers around centers, of length 1 (`benchmarks/search.py`), and 200 other ones as queries.
Photographs: features of MobileNetV2 (1,280 numbers, none below 0) of the training images of two packs; 200 of them are
queries, without themselves. Recall is the share of the true 10 nearest by exact float32 vectors. Bytes are those that
a search holds in memory: the file of the structure divided by the items. Table: `benchmarks/results/search.md`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import heading, table
from benchmarks.presets import every_query, experiment_of
from benchmarks.search import inputs
from contml.evaluation.results import Ranking
from contml.models import EmbeddingModel
from contml.retrieval.index_store import Floats, Kind
from contml.retrieval.index_structure import Searcher, Structure, _as_input, grow

K, QUERIES, CANDIDATES = 10, 200, (5, 20, 100)


def features_of(name: str, places: dict[str, str]) -> Floats:
    """The features `[N, 1280]` of the training images of a pack."""
    experiment = experiment_of(name, places["data"], places["weights"], 0)
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    assert isinstance(trainer.bare_model, EmbeddingModel)
    found = trainer.evaluate(every_query(task.train), trainer.bare_model.bare_backbone())[1]
    assert isinstance(found, Ranking)
    return np.ascontiguousarray(found.embeddings.cpu().numpy(), np.float32)


def shares(kind: Kind, vectors: Floats, queries: Floats, rows: Any) -> Iterator[str]:
    """Bytes per item, recall by codes alone and with candidates, and seconds of processor time of 1,000 queries."""
    live, norm = np.ones(len(vectors), np.bool_), float(np.linalg.norm(vectors, axis=1).max())
    more = 0 if rows is None else 1  # a query finds itself

    def recall(found: Any, exact: Any) -> float:
        both = zip(found, exact, range(len(queries)), strict=True)
        return float(np.mean([len({*f} & {*e} - {-1 if rows is None else rows[q]}) / K for f, e, q in both]))

    exact = Searcher(vectors, live, norm).nearest(queries, K + more).positions
    with tempfile.TemporaryDirectory() as folder:
        *_, structure = grow(kind, vectors, None, lambda number: Path(folder) / str(number), 1)
    yield f"{structure.file.size / len(vectors):,.0f}"
    codes = structure.index.search(_as_input(kind, queries, structure.parts), K + more)[1]
    yield f"{recall(codes, exact):.3f}"
    for count in CANDIDATES:
        wider = Structure(replace(structure.file, candidates=count), structure.index, structure.parts)
        searcher, start = Searcher(vectors, live, norm, wider), time.process_time()
        found = searcher.nearest(queries, K + more).positions
        seconds = 1000 * (time.process_time() - start) / len(queries)
        yield f"{recall(found, exact):.3f} ({seconds:.1f} s)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    parser.add_argument("--items", type=int, default=100_000)
    given = parser.parse_args()
    places = dict(word.split("=", 1) for word in given.places)
    drawn, queries = inputs(given.items, 128)
    sets: dict[str, tuple[Floats, Floats, Any]] = {f"{given.items:,} drawn": (drawn, queries[:QUERIES], None)}
    for name in ("poses", "rooms") if places else ():
        vectors = features_of(name, places)
        rows = np.sort(np.random.default_rng(0).choice(len(vectors), QUERIES, replace=False))
        sets[f"{len(vectors):,} {name}"] = vectors, vectors[rows], rows
    heads = ["vectors", "numbers", "codes", "bytes per item", "codes alone"]
    lines = [[*heads, *(f"{count} candidates per result" for count in CANDIDATES)]]
    for name, (vectors, asked, rows) in sets.items():
        dim = vectors.shape[1]
        lines.append([name, str(dim), "float32", f"{4 * dim:,}", "1.000", *("" for _ in CANDIDATES)])
        for kind in ("int8", "binary"):
            lines.append([name, str(dim), kind, *shares(kind, vectors, asked, rows)])
            sys.stderr.write(" | ".join(lines[-1]) + "\n")
    title = f"Short codes: recall@{K} of {QUERIES} queries (seconds of processor time of 1,000 queries)"
    sys.stdout.write(f"{heading(title)}\n{table(lines)}\n")


if __name__ == "__main__":
    main()
