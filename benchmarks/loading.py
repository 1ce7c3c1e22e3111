"""Images per second of the loader, with and without its cache, beside another checkout and a bare decoder, in turn.

    git worktree add /tmp/parent HEAD~1
    python -m benchmarks.loading --before /tmp/parent [--images 192] [--sets photographs large cars] [--rounds 5]
    python -m benchmarks.loading --before /tmp/parent --folder FOLDER --resize 256 --crop 224
    python -m benchmarks.loading --before . --sets photographs --workers 1 2 --rounds 8    (two free cores)

The bare decoder is a plain loop: Pillow opens a file, converts it to RGB and resizes it. It makes no crops and no
batches. A pass of the loader yields what training needs: batches of 32 as tensors `[b, 3, crop, crop]`, of centre crops
("test") or augmented ("train": scale_jitter, shift, flip), and drops each before the next, as a training does. With and
without cache and workers, batches are equal to the bit; how far the two checkouts differ is printed.

Each checkout has a process with one thread. The two take turns, and the best of all rounds counts, since other programs
can only add to it: processor time of the process alone, and without workers; wall time with workers, which other
programs disturb, and the processor time of each of its processes, which they disturb less.

Files are synthetic (spectrum of photographs, quality 90), at the size of CUB-200-2011 photographs and larger; also real
ones if the data of CONTML_DATA, or of shared/data beside the checkout, are there. Files and cache are in memory (the
page cache) before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import heading, table
from contml.data import Batch, CropTransform, ImageFile, Images, Split
from contml.data.decode import IMAGE_SUFFIXES
from contml.labels import ClassLabels

BATCH = 32
SETS = ["photographs", "large", "cars"]
RESULTS = Path(__file__).parent / "results"


def split_of(files: list[Path]) -> Split:
    """Returns a split of files, all of one class."""
    labels = ClassLabels(torch.zeros(len(files), dtype=torch.int64))
    return Split([ImageFile(file) for file in files], [str(file) for file in files], labels)


class InOrder:
    """All files in order."""

    anchors: int | None = None
    seed = 0

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count // BATCH

    def batch(self, epoch: int, step: int) -> list[int]:  # noqa: ARG002
        return list(range(step * BATCH, (step + 1) * BATCH))

    def __iter__(self) -> Iterator[list[int]]:
        return (self.batch(0, step) for step in range(len(self)))


class Set(NamedTuple):
    """Files, and the image sizes of a training on them."""

    name: str
    files: list[Path]
    resize: int
    crop: int


def photograph(width: int, height: int, random: np.random.Generator) -> Image.Image:
    """Returns random colours with the spectrum of photographs: amplitude falls as 1 / frequency."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1
    phases = np.exp(2j * np.pi * random.random((3, *frequency.shape)))
    planes = np.fft.irfft2(phases / frequency, (height, width))
    planes = np.tensordot(np.array([[1, 0.2, 0.1], [1, 0, -0.1], [1, -0.2, 0.1]]), planes, 1)  # mostly grey
    planes = (planes - planes.mean()) / planes.std()
    return Image.fromarray((128 + 52 * planes).clip(0, 255).astype(np.uint8).transpose(1, 2, 0))


def drawn(folder: Path, width: int, height: int, count: int, resize: int, crop: int) -> Set:
    folder.mkdir()
    random = np.random.default_rng(0)
    files = [folder / f"{number}.jpg" for number in range(count)]
    for file in files:
        photograph(width, height, random).save(file, quality=90)
    return Set(f"drawn, {width} x {height}", files, resize, crop)


def found(folder: Path, count: int, resize: int, crop: int, name: str = "") -> Set | None:
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)[:count]
    files = files[: len(files) // BATCH * BATCH]
    return Set(name or str(folder), files, resize, crop) if files else None


def decoded(file: Path, side: int, draft: bool = False) -> Image.Image:
    with Image.open(file) as picture:
        if draft:
            picture.draft("RGB", (2 * side, 2 * side))
        return picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)


class Passes:
    """Passes over the files by one checkout, by their names: "files, train, 2 workers"."""

    def __init__(self, given: Set, folder: Path) -> None:
        self.given, self.folder, self.split = given, folder, split_of(given.files)
        self.opened: dict[str, Images] = {}

    def batches(self, name: str) -> Iterator[Batch]:
        source, kind, workers = name.removesuffix(" workers").split(", ")
        options: dict[str, Any] = {"resize": self.given.resize, "crop": self.given.crop}
        if name not in self.opened:
            jitter = CropTransform(self.given.crop // 18, self.given.crop // 32, **options)
            augmented = {"transform": jitter, "flip": "batch"} if kind == "train" else {}
            cache = self.folder if source == "cache" else None
            self.opened[name] = Images(**options, **augmented, workers=int(workers), cache=cache)  # type: ignore[arg-type]
            self.opened[name].prepare(self.split)
        images = self.opened[name]
        if kind == "train":
            return images.train_batches(self.split, InOrder(len(self.split)), epoch=0)
        return images.test_batches(self.split, None, BATCH)

    def measure(self, name: str) -> dict[str, float]:
        """Seconds of one pass: wall time, processor time of this process and of its workers."""
        busy, own, start = busy_workers(), time.process_time(), time.perf_counter()
        if name.startswith("bare"):
            for file in self.given.files:
                decoded(file, self.given.resize, "fraction" in name)
        else:
            for _ in self.batches(name):
                pass
        wall, own = time.perf_counter() - start, time.process_time() - own
        return {"wall": wall, "own": own, "workers": busy_workers() - busy}

    def pixels(self, name: str, path: Path) -> list[int]:
        """Saves the pixels of a pass, or of the bare decoder; returns their shape."""
        if name.startswith("bare"):
            side, corner = self.given.crop, (self.given.resize - self.given.crop) // 2
            box = (corner, corner, corner + side, corner + side)
            crops = [np.asarray(decoded(file, self.given.resize).crop(box)) for file in self.given.files]
            pixels = np.stack(crops).transpose(0, 3, 1, 2)
        else:
            pixels = torch.cat([batch.images for batch in self.batches(name)]).numpy()
        np.save(path, pixels)
        return list(pixels.shape)


def busy_workers() -> float:
    """Processor seconds of the child processes so far (Linux)."""
    tasks = [
        task / "schedstat"
        for child in multiprocessing.active_children()
        for task in Path(f"/proc/{child.pid}/task").glob("*")
    ]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def serve(given: Set, folder: Path) -> None:
    """Answers each line of stdin with what `Passes` measures."""
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)
    passes = Passes(given, folder)
    for line in sys.stdin:
        name, _, path = line.rstrip("\n").partition(" > ")
        answer: Any = passes.pixels(name, Path(path)) if path else passes.measure(name)
        os.write(answers, json.dumps(answer).encode() + b"\n")
    for images in passes.opened.values():
        images.close()


BARE = ["bare decoder", "bare decoder, JPEGs at a fraction of their size"]
PASSES = [
    f"{source}, {kind}, {n} workers" for source in ("files", "cache") for kind in ("test", "train") for n in (0, 1, 2)
]


def compare(
    given: Set, folder: Path, before: Path, rounds: int, workers: list[int]
) -> tuple[list[list[str]], list[list[str]], str]:
    """Returns rows of the tables of processor time and of workers, and a line about pixels."""
    passes = [name for name in PASSES if int(name.split()[2]) in workers]
    processes: list[Any] = []
    for number, checkout in enumerate((before.resolve(), Path(__file__).parents[1])):
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        arguments = json.dumps([given.name, [str(file) for file in given.files], given.resize, given.crop])
        call = [sys.executable, str(Path(__file__).resolve()), "--serve", arguments, str(folder / f"cache{number}")]
        processes.append(subprocess.Popen(call, cwd=checkout, env=environment, text=True, **pipes))

    def ask(process: Any, line: str) -> Any:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def pixels(number: int, name: str) -> Any:
        ask(processes[number], f"{name} > {folder / 'pixels.npy'}")
        return np.load(folder / "pixels.npy").astype(int)

    differences = {}
    for kind in ("test", "train"):
        first = pixels(1, f"files, {kind}, 0 workers")
        for name in passes:
            if f", {kind}, " in name and not np.array_equal(pixels(1, name), first):
                raise AssertionError(f"{name} differs from files without workers")
        differences[kind] = np.abs(first - pixels(0, f"files, {kind}, 0 workers")).max()
        if kind == "test":
            differences["bare"] = np.abs(first - pixels(1, BARE[0])).max()
    names = [*BARE, *passes]
    for name in names:  # to warm up
        for process in processes:
            ask(process, name)
    spent: dict[tuple[str, int], list[dict[str, float]]] = {}
    for turn in range(rounds):
        print(f"{given.name}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in names:
            for number, process in enumerate(processes):
                spent.setdefault((name, number), []).append(ask(process, name))
    for process in processes:
        process.stdin.close()
        process.wait()
    count = len(given.files)

    def least(name: str, number: int, clock: str) -> float:
        return min(each[clock] for each in spent[name, number]) / count

    # The bare decoder is the same in both.
    base = min(least(BARE[0], number, "own") for number in (0, 1))
    sizes = [given.name, f"{given.resize} / {given.crop}"]
    alone, shared = [], []
    for name in names:
        old, new = (least(name, number, "own") for number in (0, 1))
        if name in BARE:
            old = new = min(old, new)
        if name in BARE or name.endswith(" 0 workers"):
            ratios = [f"{old / new:.2f}", f"{base / old:.2f}", f"{base / new:.2f}"]
            alone.append([*sizes, name.removesuffix(", 0 workers"), f"{1 / old:,.0f}", f"{1 / new:,.0f}", *ratios])
        else:
            row = [*sizes, name]
            for number in (0, 1):
                wall, one = least(name, number, "wall"), least(name.replace("2 w", "1 w"), number, "wall")
                times = [1e6 * least(name, number, clock) for clock in ("own", "workers")]
                row += [f"{1 / wall:,.0f}", f"{one / wall:.2f}", f"{times[0]:.0f} + {times[1]:.0f}"]
            shared.append(row)
    kilobytes = statistics.mean(file.stat().st_size for file in given.files) / 1000
    note = (
        f"{given.name}: {count} files of {kilobytes:.0f} kB. The largest difference between the two checkouts is "
        f"{differences['test']} of 255 (test) and {differences['train']} (train); from the bare decoder, "
        f"{differences['bare']} (test)."
    )
    return alone, shared, note


def make(name: str, folder: Path, count: int) -> Set | None:
    if name == "photographs":
        return drawn(folder, 500, 375, count, 256, 224)
    if name == "large":
        return drawn(folder, 1600, 1200, BATCH, 256, 224)
    data = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return found(data / "cars196_small" / "images", count, 128, 112, "cars196_small, 112 x 112")


def main() -> None:
    parser = argparse.ArgumentParser(description="Images per second of the loader and of a bare decoder.")
    parser.add_argument("--before", type=Path, help="the other checkout")
    parser.add_argument("--images", type=int, default=192, help="files of each set; rounded down to whole batches")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", choices=(0, 1, 2), default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, help="measure the images in this folder instead")
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/loading.md")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, files, resize, crop = json.loads(options.serve[0])
        serve(Set(name, [Path(file) for file in files], resize, crop), Path(options.serve[1]))
        return
    if options.before is None:
        parser.error("--before names the other checkout")
    count = max(BATCH, options.images // BATCH * BATCH)
    torch.set_num_threads(1)
    load = os.getloadavg()[1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.folder:
            given = found(options.folder, count, options.resize, options.crop)
            if given is None:
                parser.error(f"{options.folder} holds fewer than {BATCH} images")
            sets = [given]
        else:
            sets = [given for name in options.sets if (given := make(name, folder / name, count))]
        columns = "files, resize / crop, method, before, after, after / before, of the decoder before, after"
        alone, notes = [columns.split(", ")], []
        columns = "files, resize / crop, method, before, to 1 worker, us, after, to 1 worker, us"
        shared = [columns.split(", ")]
        for number, given in enumerate(sets):
            (folder / str(number)).mkdir()
            more, others, note = compare(given, folder / str(number), options.before, options.rounds, options.workers)
            alone += more
            shared += others
            notes.append(note)
    sets_named = f"--folder {options.folder}" if options.folder else f"--sets {' '.join(options.sets)}"
    command = f"python -m benchmarks.loading --before PARENT --images {count} {sets_named} --rounds {options.rounds}"
    if options.workers != [0, 1, 2]:
        command += f" --workers {' '.join(map(str, options.workers))}"
    text = "\n".join(
        [
            heading("Loading images"),
            f"`{command}`: the best of {options.rounds} rounds in turn, on {os.cpu_count()} cores that other programs "
            f"shared (load average {load:.0f} to {os.getloadavg()[1]:.0f}).",
            "",
            "Images per second of processor time, in one process with one thread:",
            "",
            table(alone),
            "",
            "With worker processes: images per second of wall time, relative to one worker, and microseconds of "
            "processor time per image of the training process + its workers:",
            "",
            table(shared),
            "",
            *notes,
        ]
    )
    print(text)
    if options.save:
        (RESULTS / "loading.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
