"""How run times grow with the number of items: neighbours, samplers, tables, the start of a training, evaluation.

    python -m benchmarks.growth [--items 100000 1000000 10000000] [--started 100000 1000000 10000000]
                                [--labels number class] [--measured 100000 1000000] [--cached 100000 1000000]
                                [--evaluated 10000 30000 100000] [--save FILE]

Neighbours are the 5 nearest by label distance of integer ages (many ties) and of real numbers. Samplers are built, and
make 20 batches of 150 items: 10 items per class for the class sampler. The table is a CSV file of image names and a
number; its images are not created, the list of names in the folder stands for them. The exponent of a row is the slope
of log time over log items, by least squares: 1 is linear growth.

The start of a training is that of a head on features: a table with labels and a column of the split is read, a
validation split is drawn, and 11 steps are done. Each table has a process of its own, whose memory is read 50 times a
second from `/proc/self/status`, which Linux has: all that is resident, the process's own part of it, and the pages of
mapped files, which the system can take back. Python and torch are a part of each.

Bytes per row are what the task of a table keeps, and the most that Python and Arrow allocate while the table is read.
The labels are a number, a class of 100 rows, or a caption of six words of a hundred. Boxes are of a list and of
the split that is made of it.

The index of the image cache is that of N image files, of one number each. Its memory is what a process keeps while it
reads images, and the most while it searches the index for all of them. The files are not created: their status is that
of this file.

Evaluation ranks all items for each item, with ages as labels and 512 dimensions, and is divided by the float32 product
of the embeddings with themselves, in blocks of 512 x 2,048. Times are processor seconds of one thread, the best of a
few calls if they are short, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import heading, table
from contml._support.packed_texts import Texts
from contml._support.validation import as_rows
from contml.app.experiment import OwnData, check, load_table
from contml.contracts import Rows
from contml.data import Batch, BoxCrop, Split, cache
from contml.data.identity import DataRecord
from contml.data.sources import ImageFiles
from contml.evaluation import evaluate
from contml.labels import ClassLabels, NumberLabels
from contml.sampling import BatchSampler, ClassSampler, DenseSampler, TripletSampler, UniformSampler
from contml.tasks._readers.folders import DiskFiles
from contml.tasks.table.file import file

DIM, BATCH, BATCHES = 512, 150, 20
#: Of the start of a training: numbers of a feature vector, and items of a sample that is evaluated.
FEATURES, SAMPLE = 16, 10_000
#: Different words of captions.
WORDS = 100
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


def neighbours(labels: Callable[[int], NumberLabels], items: int) -> float:
    space = labels(items)
    return seconds(lambda: space.nearest(5))


def ages(items: int) -> NumberLabels:
    return NumberLabels(torch.randint(0, 100, (items,), generator=torch.Generator().manual_seed(0)))


def reals(items: int) -> NumberLabels:
    return NumberLabels(torch.rand(items, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def sampled(sampler: Callable[[int], BatchSampler], items: int) -> float:
    """Building a sampler and making batches."""

    def run() -> None:
        made = sampler(items)
        for step in range(BATCHES):
            made.batch(0, step)

    return seconds(run)


def classes(items: int) -> ClassLabels:
    return ClassLabels(torch.arange(items) % (items // 10))


#: The cells of the labels of a table, by their kind, which is also the name of the column.
CELLS: dict[str, Callable[[int], str]] = {
    "number": lambda row: str(row * 7919 % 100),
    "class": lambda row: f"class {row // 100:06d}",
    "captions": lambda row: " ".join(f"word{row * factor % WORDS:02d}" for factor in (3, 7, 11, 13, 17, 19)),
}


@contextmanager
def written_table(items: int, kind: str = "number", split: bool = False) -> Iterator[str]:
    """The file of a table of image names and labels, with word vectors beside it.

    kind: of the labels. split: a column says whether a row is for training.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.csv"
        (Path(folder) / "words.txt").write_text("".join(f"word{n:02d} {n} 1 {n % 7}\n" for n in range(WORDS)))
        with path.open("w") as file:
            file.write(f"image,{kind},split\n" if split else f"image,{kind}\n")
            for row in range(items):
                part = (",train" if row < 0.8 * items else ",test") if split else ""
                file.write(f"{row:07d}.jpg,{CELLS[kind](row)}{part}\n")

        names = frozenset(f"{row:07d}.jpg" for row in range(items))
        with patch.object(DiskFiles, "names", lambda *_: names):
            yield str(path)


@contextmanager
def features_table(items: int, kind: str) -> Iterator[tuple[Path, Path]]:
    """The file of a table of image names and labels, and a file with a vector of features for each of its rows."""
    with written_table(items, kind, split=True) as path:
        features, random = Path(path).parent / "features.npy", np.random.default_rng(1)
        with features.open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (items, FEATURES)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, items, 10**5):
                count = min(10**5, items - start)
                file.write(random.standard_normal((count, FEATURES)).astype("<f4").tobytes())
        yield Path(path), features


def table_reading(items: int) -> float:
    with written_table(items) as path:
        return seconds(lambda: file(path))


class Phase(NamedTuple):
    """A part of the start of a training: processor seconds, and the most GB of the process so far.

    Attributes:
        resident: all memory.
        own: the process's own part of it.
        mapped: the pages of mapped files.
    """

    name: str
    seconds: float
    resident: float
    own: float
    mapped: float


def start_of_training(items: int, kind: str) -> list[Phase]:
    """What happens before and around the first step of a training on a table with a kind of labels."""
    phases: list[Phase] = []
    with (
        features_table(items, kind) as (path, features),
        tempfile.TemporaryDirectory() as folder,
        watched(_process_memory, 0.02) as most,
    ):
        start = time.process_time()

        def done(name: str) -> None:
            nonlocal start
            phases.append(Phase(name, time.process_time() - start, *most()))
            start = time.process_time()

        changes = ["model.backbone=features", f"images.features={features}"]
        if kind == "captions":
            changes.append("task.labels.captions.vectors=words.txt")
        experiment = load_table(OwnData(path, [f"{kind}={kind}"], preset="quick"), overrides=changes)
        task = experiment.build_task()
        done("reading, splits, queries")
        trainer = experiment.build_trainer(task)
        for split in task.splits.values():
            trainer.images.prepare(split)
        done("model, loss, sampler, images")
        record = Path(folder) / "data.safetensors"
        DataRecord.of(task, experiment.root).save(record)
        done(f"record of the run: {record.stat().st_size / items:.0f} bytes per row")
        batches = trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)
        trainer.train_step(next(batches))
        done("first step")
        for _ in range(10):
            trainer.train_step(next(batches))
        done("10 more steps")
        sample = task.evaluated.subset(np.arange(SAMPLE))
        sample = replace(sample, queries=None, gallery=None)
        outputs, missing = trainer.evaluator.outputs(trainer.bare_model, sample, trainer.images)
        trainer.evaluator.evaluate(outputs, missing, sample)
        done(f"evaluation of a sample of {SAMPLE:,}")
        DataRecord.load(record).changes(DataRecord.of(task, experiment.root))
        done("comparing the data with the record")
        check(experiment)
        done("contml check, after reading")
    return phases


def _process_memory() -> tuple[float, ...]:
    """Of this process in GB: resident memory, its own part, and the pages of mapped files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(1024 * int(status[name].split()[0]) / 1e9 for name in ("VmRSS", "RssAnon", "RssFile"))


@contextmanager
def watched(look: Callable[[], tuple[float, ...]], pause: float) -> Iterator[Callable[[], tuple[float, ...]]]:
    """Yields a function that returns the most of each number that `look` returned, which is called all the time.

    pause: seconds between two calls.
    """
    most, stopped = look(), threading.Event()

    def now() -> tuple[float, ...]:
        nonlocal most
        most = tuple(map(max, most, look()))
        return most

    def watch() -> None:
        while not stopped.wait(pause):
            now()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield now
    finally:
        stopped.set()
        watcher.join()


def table_memory(items: int, kind: str) -> tuple[float, float, float]:
    """Bytes per row that the task of a table keeps, bytes in tensors besides, and the most while it is read."""
    labels = {kind: {"kind": kind, **({"vectors": "words.txt"} if kind == "captions" else {})}}
    with written_table(items, kind) as path:
        file(path, labels)  # what is computed once is no memory of the task
        with traced_memory() as memory:
            task = file(path, labels)
            gc.collect()
            kept, most = memory()
        assert len(task.train) + len(task.evaluated) == items
        spaces = [split.labels for split in task.splits.values()]
        tensors = sum(part.nbytes for space in spaces for part in vars(space).values() if isinstance(part, Tensor))
        return kept / items, tensors / items, most / items


def boxes_memory(items: int) -> tuple[float, float]:
    """Bytes per row of a list of boxes of image files, and of a split that was made of it."""
    labels, names = NumberLabels(torch.zeros(items)), Texts(f"{row:07d}.jpg" for row in range(items))
    pathlib_keeps = [Path(f"/data/photographs/{row:07d}.jpg") for row in range(items)]  # a table of all names
    del pathlib_keeps
    with traced_memory() as memory:
        boxes = [BoxCrop(Path(f"/data/photographs/{row:07d}.jpg"), (0.5, row + 1.5, 2.5, 3.5)) for row in range(items)]
        _ = [str(box.file) for box in boxes]  # a path keeps its text
        listed = memory()[0]
        split = Split(boxes, names, labels)
        del boxes, _
        gc.collect()
        kept = memory()[0]
    assert len(split) == items
    return listed / items, kept / items


@contextmanager
def traced_memory() -> Iterator[Callable[[], tuple[int, int]]]:
    """Yields a function that returns the bytes allocated since then by Python and Arrow: now, and the most so far."""
    gc.collect()
    tracemalloc.start()
    pool = pyarrow.default_memory_pool()
    before = pool.bytes_allocated()

    def allocated() -> int:
        return int(tracemalloc.get_traced_memory()[0] + pool.bytes_allocated() - before)

    try:
        with watched(lambda: (allocated(),), 0.01) as most:
            yield lambda: (allocated(), int(most()[0]))
    finally:
        tracemalloc.stop()


def cache_index(items: int) -> tuple[float, float, float, float]:
    """Bytes per image of the index on disk, kept, and the most while it is searched; microseconds of the search."""
    names = Texts(f"/data/photographs/{row:08d}.jpg" for row in range(items))
    split = Split(ImageFiles(names), names, NumberLabels(torch.zeros(items)))

    def make(rows: Rows) -> Iterator[Batch]:
        for chunk in torch.split(as_rows(rows, items), cache.CHUNK):
            yield Batch(chunk[:, None].float(), chunk, 0, 0, chunk)

    stat = os.stat

    def found(path: Any, **options: Any) -> os.stat_result:
        """Each photograph is there."""
        return stat(__file__ if str(path).startswith("/data/photographs/") else path, **options)

    with tempfile.TemporaryDirectory() as folder, patch.object(os, "stat", found):
        made = cache.ImageCache(Path(folder), cache.CacheKind.features("index", 1))
        made.fill(split, make, {})
        start = time.process_time()
        made.fill(split, make, {})
        spent = time.process_time() - start
        with traced_memory() as memory:
            cached, report = made.fill(split, make, {})
            kept, most = memory()
        assert report.added == 0
        assert cached.get(items - 1) == items - 1
        return made.index.stat().st_size / items, kept / items, most / items, 1e6 * spent / items


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


def evaluation_inputs(items: int) -> tuple[Tensor, NumberLabels]:
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


def start_table(items: list[int], kinds: list[str]) -> str:
    """The start of a training: each table in a process of its own, whose memory is measured."""
    context, parts = multiprocessing.get_context("spawn"), []
    for kind, count in itertools.product(kinds, items):
        with context.Pool(1) as pool:
            phases = pool.apply(start_of_training, (count, kind))
        title = f"start of a training, labels: {kind}, {count:,} rows"
        rows = [[title, "processor seconds", "resident", "own", "mapped files"]]
        rows += [[name, f"{spent:.2f}", *(f"{each:.2f} GB" for each in memory)] for name, spent, *memory in phases]
        parts.append(table(rows))
    return "\n\n".join(parts)


def memory_table(items: list[int]) -> str:
    rows = [["bytes per row of a table", "rows", "kept by Python and Arrow", "in tensors", "the most while it is read"]]
    for kind in CELLS:
        rows += [[kind, f"{count:,}", *(f"{each:,.0f}" for each in table_memory(count, kind))] for count in items]
    boxes = [["bytes per box of an image file", "rows", "in a list", "in a split"]]
    boxes += [["box", f"{count:,}", *(f"{each:,.0f}" for each in boxes_memory(count))] for count in items]
    return f"{table(rows)}\n\n{table(boxes)}"


def cache_table(items: list[int]) -> str:
    rows = [["images in a cache", "index on disk, bytes", "kept", "the most while it is searched", "us"]]
    rows += [[f"{count:,}", *(f"{each:.3g}" for each in cache_index(count))] for count in items]
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--evaluated", type=int, nargs="*", default=[10**4, 3 * 10**4, 10**5])
    parser.add_argument("--measured", type=int, nargs="*", default=[10**5, 10**6], help="rows whose memory is measured")
    parser.add_argument("--started", type=int, nargs="*", default=[10**5, 10**6, 10**7], help="rows of a training")
    parser.add_argument("--labels", nargs="*", choices=CELLS, default=["number", "class"], help="labels of a training")
    parser.add_argument("--cached", type=int, nargs="*", default=[10**5, 10**6], help="images of a cache")
    parser.add_argument("--save", type=Path, help="write the tables to this file too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    evaluate(*evaluation_inputs(300))  # compiles machine code, or loads it
    parts = [heading("Growth with the number of items")]
    if given.items:
        parts.append(growth_table(given.items) + "\n")
    if given.measured:
        parts.append(memory_table(given.measured) + "\n")
    if given.cached:
        parts.append(cache_table(given.cached) + "\n")
    if given.started:
        parts.append(start_table(given.started, given.labels) + "\n")
    if given.evaluated:
        parts.append(evaluation_table(given.evaluated) + "\n")
    text = "\n".join(parts)
    print(text)
    if given.save:
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
