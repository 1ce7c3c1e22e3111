"""Images per second of the loader, with and without its cache, and of a bare decoder on the same files.

    python -m benchmarks.loading [--images 192] [--sets photographs large cars] [--rounds 5] [--save]
    python -m benchmarks.loading --folder FOLDER --resize 256 --crop 224

The bare decoder is a plain loop in one process: Pillow opens a file, converts it to RGB and resizes it. It makes no
crops and no batches. A pass of the loader yields what training needs: batches of 32 as tensors `[b, 3, crop, crop]`, of
centre crops ("test") or augmented ("train": scale_jitter, shift, flip). Pixels are checked: with and without the
cache they are equal, bit for bit; without it they equal the bare decoder's, unless the file is large enough for a
JPEG to be decoded at a fraction of its size.

Files are synthetic (spectrum of photographs, quality 90), at the size of CUB-200-2011 photographs and larger; also real
ones if the data of CONTML_DATA, or of shared/data beside the checkout, are there. Files and cache are in memory (the
page cache) before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import alternate, heading, table
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


def bare(files: list[Path], side: int, draft: bool) -> Callable[[], None]:
    def run() -> None:
        for file in files:
            decoded(file, side, draft)

    return run


def decoded(file: Path, side: int, draft: bool = False) -> Image.Image:
    with Image.open(file) as picture:
        if draft:
            picture.draft("RGB", (2 * side, 2 * side))
        return picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)


def loader(images: Images, split: Split, train: bool) -> Callable[[], list[Batch]]:
    def run() -> list[Batch]:
        if train:
            return list(images.train_batches(split, InOrder(len(split)), epoch=0))
        return list(images.test_batches(split, None, BATCH))

    return run


def measure(given: Set, folder: Path, workers: int, rounds: int) -> tuple[list[list[str]], str]:
    """Returns rows of the table, and a note about filling the cache."""
    split, count = split_of(given.files), len(given.files)
    options = {"resize": given.resize, "crop": given.crop}
    jitter = CropTransform(given.crop // 18, given.crop // 32, **options)
    augmented = {**options, "transform": jitter, "flip": "batch"}
    start = time.perf_counter()
    report = Images(**options, cache=folder).fill(split)  # type: ignore[arg-type]
    filled = count / (time.perf_counter() - start)
    assert report.added == count
    functions: dict[str, Callable[[], object]] = {
        "bare decoder": bare(given.files, given.resize, draft=False),
        "bare decoder, JPEGs at a fraction of their size": bare(given.files, given.resize, draft=True),
    }
    opened, batches = [], {}
    for cache in (None, folder):
        for number in (0, workers):
            for kind in ("test", "train"):
                images = Images(**(augmented if kind == "train" else options), workers=number, cache=cache)
                images.prepare(split)
                opened.append(images)
                name = f"{'cache' if cache else 'loader'}, {kind}, {number} workers"
                functions[name] = batches[name] = loader(images, split, kind == "train")
    largest = check(given, batches)
    seconds = alternate(functions, rounds)
    # Processor time, the best of three: the most reliable measure on a shared machine.
    alone = {
        name: min(processor(run) for _ in range(3))
        for name, run in functions.items()
        if name.endswith((" 0 workers", "decoder", "size"))
    }
    for images in opened:
        images.close()
    base, own = seconds["bare decoder"], alone["bare decoder"]
    rows = [
        [given.name, f"{given.resize} / {given.crop}", name, f"{count / spent:,.0f}", f"{base / spent:.2f}"]
        + ([f"{count / alone[name]:,.0f}", f"{own / alone[name]:.2f}"] if name in alone else ["", ""])
        for name, spent in seconds.items()
    ]
    kilobytes = statistics.mean(file.stat().st_size for file in given.files) / 1000
    return rows, (
        f"{given.name}: {count} files of {kilobytes:.0f} kB; filling the cache {filled:,.0f} images per second, "
        f"{given.resize * given.resize * 3 / 1000:.0f} kB each; the largest difference of a test crop from the bare "
        f"decoder's is {largest} of 255."
    )


def processor(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def check(given: Set, batches: dict[str, Callable[[], list[Batch]]]) -> int:
    """Checks that cache and workers change nothing; returns the largest difference from the bare decoder's crop."""
    images = {name: torch.cat([batch.images for batch in run()]) for name, run in batches.items()}
    for name, value in images.items():
        plain = images[f"loader, {name.split(', ')[1]}, 0 workers"]
        if not torch.equal(value, plain):
            raise AssertionError(f"{name} differs from the loader")
    corner, largest = (given.resize - given.crop) // 2, 0
    for file, value in zip(given.files, images["loader, test, 0 workers"], strict=True):
        expected = np.asarray(decoded(file, given.resize))[corner : corner + given.crop, corner : corner + given.crop]
        largest = max(largest, int(np.abs(value.permute(1, 2, 0).numpy().astype(int) - expected).max()))
        with Image.open(file) as picture:
            if max(picture.size) < 4 * given.resize and largest:
                raise AssertionError(f"{file}: differs from the bare decoder's pixels")
    return largest


def make(name: str, folder: Path, count: int) -> Set | None:
    if name == "photographs":
        return drawn(folder, 500, 375, count, 256, 224)
    if name == "large":
        return drawn(folder, 1600, 1200, BATCH, 256, 224)
    data = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return found(data / "cars196_small" / "images", count, 128, 112, "cars196_small, 112 x 112")


def main() -> None:
    parser = argparse.ArgumentParser(description="Images per second of the loader and of a bare decoder.")
    parser.add_argument("--images", type=int, default=192, help="files of each set; rounded down to whole batches")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="measure the images in this folder instead")
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/loading.md")
    options = parser.parse_args()
    count = max(BATCH, options.images // BATCH * BATCH)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.folder:
            given = found(options.folder, count, options.resize, options.crop)
            if given is None:
                parser.error(f"{options.folder} holds fewer than {BATCH} images")
            sets = [given]
        else:
            sets = [given for name in options.sets if (given := make(name, folder / name, count))]
        columns = "files, resize / crop, method, images/s, of the bare decoder, per CPU second, of the bare decoder"
        rows, notes = [columns.split(", ")], []
        for number, given in enumerate(sets):
            more, note = measure(given, folder / f"cache{number}", options.workers, options.rounds)
            rows += more
            notes.append(note)
    sets_named = f"--folder {options.folder}" if options.folder else f"--sets {' '.join(options.sets)}"
    command = f"`python -m benchmarks.loading --images {count} {sets_named} --rounds {options.rounds}`"
    text = "\n".join([heading("Loading images"), table(rows), "", *notes, "", f"{command}: medians, in turn."])
    print(text)
    if options.save:
        (RESULTS / "loading.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
