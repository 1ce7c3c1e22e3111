"""An index of this checkout beside that of another one, such as the parent of a commit, in turn.

    git worktree add /tmp/parent COMMIT
    python -m benchmarks.search --before /tmp/parent [--items 100000 1000000] [--dim 128] [--rounds 5] [--save FILE]

Vectors are drawn around centers, one per 50 vectors, and have length 1; so do the 1,000 queries. Each checkout makes an
index of them as it does by default. Then the two take turns: a new process opens the index and searches one query, with
all packages imported and compiled before; a process that stays searches all queries at once, and 100 of them one by
one. Figures are medians over the rounds. Recall is that of the 10 nearest, which faiss.knn finds exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import heading, table

ROOT = Path(__file__).parents[1]
K, QUERIES, SINGLE, THREADS = 10, 1000, 100, 2

#: Draws the vectors, and makes, opens or searches an index, for each line of its input; works in both checkouts.
WORKER = """
import json, resource, sys, time
from pathlib import Path
import faiss, numpy as np, torch
items, dim, k, queries_count, single, threads = map(int, sys.argv[2:8])
folder = Path(sys.argv[1])
try:
    from contml.search import Index
except ImportError:
    from contml.search import Index
faiss.omp_set_num_threads(threads), torch.set_num_threads(threads)
rng = np.random.default_rng(0)
centers = rng.standard_normal((max(1, items // 50), dim), np.float32)
def draw(count):
    noise = np.float32(0.7) * rng.standard_normal((count, dim), np.float32)
    x = centers[rng.integers(len(centers), size=count)] + noise
    return x / np.linalg.norm(x, axis=1, keepdims=True)
def make(path, x):
    index = Index.create(path, dim)
    index.add([f"{row:08d}.jpg" for row in range(len(x))], x)
    return index
small = folder / f"small-{time.time_ns()}"
make(small, draw(100)).search(draw(3), k)  # compiles
Index.open(small).search(draw(3), k)
path, kept = folder / "index", None
for line in sys.stdin:
    rng = np.random.default_rng(1)
    centers = rng.standard_normal((max(1, items // 50), dim), np.float32)
    command, start, found = line.strip(), time.perf_counter(), {}
    if command == "open":
        queries = rng.standard_normal((1, dim), np.float32)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        Index.open(path).search(queries, k)
        found["open"] = time.perf_counter() - start
        found["memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    elif command == "make":
        vectors = draw(items)
        start, processor = time.perf_counter(), time.process_time()
        kept = make(path, vectors)
        found["make"], found["make cpu"] = time.perf_counter() - start, time.process_time() - processor
        queries = draw(queries_count)
        exact = faiss.knn(queries, vectors, k)[1]
        del vectors
        ids = kept.search(queries, k).ids
        true = [{f"{row:08d}.jpg" for row in each} for each in exact.tolist()]
        found["recall"] = float(np.mean([len({*a} & b) / k for a, b in zip(ids, true)]))
        found["disk"] = sum(file.stat().st_size for file in path.iterdir()) / 1e6
    else:
        start = time.perf_counter()
        kept.search(queries, k)
        found["all"] = (time.perf_counter() - start) / queries_count
        start = time.perf_counter()
        for query in queries[:single]:
            kept.search(query[None], k)
        found["one"] = (time.perf_counter() - start) / single
    print(json.dumps(found), flush=True)
"""
FIGURES = {
    "make": ("make, s", 1),
    "make cpu": ("make, s of processor", 1),
    "open": ("open and first search, s", 1),
    "memory": ("memory of that, MB", 1),
    "disk": ("on disk, MB", 1),
    "all": ("a query of 1,000, ms", 1000),
    "one": ("a query by itself, ms", 1000),
    "recall": ("recall@10", 1),
}


class Worker:
    """A process of a checkout."""

    def __init__(self, checkout: Path, folder: Path, items: int, dim: int) -> None:
        folder.mkdir(exist_ok=True)
        sizes = map(str, (items, dim, K, QUERIES, SINGLE, THREADS))
        variables = {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(folder / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), *sizes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
            cwd=folder,  # `-c` imports from it first
        )

    def ask(self, command: str) -> dict[str, float]:
        """Return the figures of a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


def measure(checkouts: list[Path], items: int, dim: int, rounds: int) -> list[dict[str, float]]:
    """Return the figures of each checkout."""
    found: list[dict[str, list[float]]] = [{name: [] for name in FIGURES} for _ in checkouts]

    def note(number: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            found[number][name].append(value)

    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) for number in range(len(checkouts))]
        workers = [Worker(*each, items, dim) for each in zip(checkouts, places, strict=True)]
        for number, worker in enumerate(workers):
            note(number, worker.ask("make"))
        for _ in range(rounds):
            for number, worker in enumerate(workers):
                opening = Worker(checkouts[number], places[number], items, dim)
                note(number, opening.ask("open"))
                opening.end()
                note(number, worker.ask("search"))
        for worker in workers:
            worker.end()
    return [{name: statistics.median(values) for name, values in each.items()} for each in found]


def main() -> None:
    """Print a table for each number of items."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--items", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, help="also write the tables to this file")
    given = parser.parse_args()
    words = f"An index now and before: vectors of {given.dim} dimensions, {QUERIES:,} queries, {THREADS} threads"
    text = f"{heading(words)}\n"
    for items in given.items:
        before, now = measure([given.before.absolute(), ROOT], items, given.dim, given.rounds)
        rows: list[list[Any]] = [[f"{items:,} items", "before", "now", "now / before"]]
        for name, (title, factor) in FIGURES.items():
            values = [f"{each[name] * factor:.4g}" for each in (before, now)]
            rows.append([title, *values, f"{now[name] / before[name]:.2f}"])
        text += f"\n{table(rows)}\n"
        print(text, flush=True)
    if given.save is not None:
        given.save.write_text(text)


if __name__ == "__main__":
    main()
