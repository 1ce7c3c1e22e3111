"""How run times grow with the number of items: neighbours, samplers, reading a table, evaluation.

    python -m benchmarks.growth [--items 10000 100000 1000000] [--evaluated 10000 30000 100000] [--save FILE]

Neighbours are the 5 nearest by label distance of integer ages (many ties) and of real numbers. Samplers are built, and
make 20 batches of 150 items: 10 items per class for the class sampler. The table is a CSV file of image names and a
number; its images are not created, the list of names in the folder stands for them. The exponent of a row is the slope
of log time over log items, by least squares: 1 is linear growth.

Memory is what the task of that table keeps, and the most that is allocated while the table is read.

Evaluation ranks all items for each item, with ages as labels and 512 dimensions, and is divided by the float32 product
of the embeddings with themselves, in blocks of 512 x 2,048. Times are processor seconds of one thread, the best of a
few calls if they are short, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import heading, table
from contml.evaluation import evaluate
from contml.labels import ClassLabels, VectorLabels
from contml.sampling import BatchSampler, ClassSampler, DenseSampler, TripletSampler, UniformSampler
from tasks._readers.folders import DiskFiles
from tasks.table.file import file

DIM, BATCH, BATCHES = 512, 150, 20
#: A measurement is repeated up to so many times, until all of them together take so many seconds.
_REPEATS, _SPAN = 3, 2.0


def seconds(function: Callable[[], object]) -> float:
    """Processor seconds of a call: the least of a few, if it is short."""
    times: list[float] = []
    while not times or (len(times) < _REPEATS and sum(times) < _SPAN):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def exponent(items: list[int], times: list[float]) -> float:
    """The slope of log time over log items, by least squares."""
    return float(np.polyfit(np.log(items), np.log(times), 1)[0])


def neighbours(labels: Callable[[int], VectorLabels], items: int) -> float:
    space = labels(items)
    return seconds(lambda: space.nearest(5))


def ages(items: int) -> VectorLabels:
    return VectorLabels(torch.randint(0, 100, (items,), generator=torch.Generator().manual_seed(0)))


def reals(items: int) -> VectorLabels:
    return VectorLabels(torch.rand(items, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def sampled(sampler: Callable[[int], BatchSampler], items: int) -> float:
    """Building a sampler and making batches."""

    def run() -> None:
        made = sampler(items)
        for step in range(BATCHES):
            made.batch(0, step)

    return seconds(run)


def classes(items: int) -> ClassLabels:
    return ClassLabels.from_ids(torch.arange(items) % (items // 10))


@contextmanager
def numbers_table(items: int) -> Iterator[str]:
    """The file of a table of image names and numbers."""
    names = [f"{row:07d}.jpg" for row in range(items)]
    numbers = np.random.default_rng(0).integers(0, 100, items).tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.csv"
        path.write_text("image,age\n" + "".join(f"{n},{age}\n" for n, age in zip(names, numbers, strict=True)))
        listed = frozenset(names)
        with patch.object(DiskFiles, "names", lambda _files, _folder: listed):
            yield str(path)


def table_reading(items: int) -> float:
    with numbers_table(items) as path:
        return seconds(lambda: file(path))


def table_memory(items: int) -> tuple[float, float]:
    """Bytes per row that the task of a table keeps, and the most while it is read."""
    with numbers_table(items) as path:
        file(path)  # what is computed once is no memory of the task
        gc.collect()
        tracemalloc.start()
        task = file(path)
        gc.collect()
        kept, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(task.train) + len(task.evaluated) == items
        return kept / items, most / items


#: What is measured for each number of items, in seconds.
GROWTH: dict[str, Callable[[int], float]] = {
    "5 neighbours, integer ages": lambda items: neighbours(ages, items),
    "5 neighbours, real numbers": lambda items: neighbours(reals, items),
    "DenseSampler": lambda items: sampled(lambda n: DenseSampler(BATCH, 25, 5, labels=ages(n)), items),
    "UniformSampler": lambda items: sampled(lambda n: UniformSampler(BATCH, labels=classes(n)), items),
    "ClassSampler": lambda items: sampled(lambda n: ClassSampler(30, 5, labels=classes(n)), items),
    "TripletSampler": lambda items: sampled(lambda n: TripletSampler(BATCH // 3, labels=classes(n)), items),
    "reading a table": table_reading,
}


def growth(items: list[int]) -> dict[str, list[float]]:
    """Seconds of everything that is measured, for each number of items."""
    return {name: [measure(count) for count in items] for name, measure in GROWTH.items()}


def evaluation_inputs(items: int) -> tuple[Tensor, VectorLabels]:
    """Unit vectors `[N, 512]` that follow the ages in part."""
    random = torch.Generator().manual_seed(0)
    labels = ages(items)
    direction = torch.randn(DIM, generator=random) / 50
    return normalize(torch.randn(items, DIM, generator=random) + labels.values.float() * direction), labels


def product(x: Tensor) -> None:
    """The matrix product of x `[N, d]` with itself, block after block."""
    buffer = torch.empty(512 * 2048)
    for rows in torch.split(x, 512):
        for columns in torch.split(x, 2048):
            torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))


def evaluation(items: int) -> tuple[float, float]:
    """Seconds of the product and of the evaluation."""
    x, labels = evaluation_inputs(items)
    return seconds(lambda: product(x)), seconds(lambda: evaluate(x, labels))


def growth_table(items: list[int]) -> str:
    head = ["processor seconds", *(f"{count:,} items" for count in items), "exponent"]
    rows = [
        [name, *(f"{spent:.3g}" for spent in times), f"{exponent(items, times):.2f}"]
        for name, times in growth(items).items()
    ]
    return table([head, *rows])


def evaluation_table(items: list[int]) -> str:
    rows = [["items", "matrix product", "evaluation", "ratio"]]
    for count in items:
        one, all_metrics = evaluation(count)
        rows.append([f"{count:,}", f"{one:.3g} s", f"{all_metrics:.3g} s", f"{all_metrics / one:.2f}"])
    return table(rows)


def memory_table(items: list[int]) -> str:
    rows = [["rows of a table", "bytes per row kept", "the most while it is read"]]
    rows += [[f"{count:,}", *(f"{each:,.0f}" for each in table_memory(count))] for count in items]
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="*", default=[10**4, 10**5, 10**6])
    parser.add_argument("--evaluated", type=int, nargs="*", default=[10**4, 3 * 10**4, 10**5])
    parser.add_argument("--measured", type=int, nargs="*", default=[10**4, 10**5], help="rows whose memory is measured")
    parser.add_argument("--save", type=Path, help="write the tables to this file too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    evaluate(*evaluation_inputs(300))  # compiles machine code, or loads it
    parts = [heading("Growth with the number of items")]
    if given.items:
        parts.append(growth_table(given.items) + "\n")
    if given.measured:
        parts.append(memory_table(given.measured) + "\n")
    if given.evaluated:
        parts.append(evaluation_table(given.evaluated) + "\n")
    text = "\n".join(parts)
    print(text)
    if given.save:
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
