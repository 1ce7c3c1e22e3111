"""Resizing and cropping equal a loop over the formula, and Pillow and torch where they compute the same."""

import multiprocessing
import os
import signal
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from support.images import AUGMENTED, Shuffled, assert_same, noise, split_of
from support.miniature import augmented
from support.refusals import refused, refuses

from contml.data import Images, loader
from contml.data.batch import cut
from contml.data.decode import resized

BITS = 22


def weights_of(length, size, short):
    """For each new pixel its old ones and their weights, whole numbers of 22 bits."""
    scale = length / size
    support = max(scale, 1.0)
    rows = []
    for n in range(size):
        centre = scale * (n + 0.5)
        old = range(max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), length))
        shares = [max(0.0, 1 - abs((k - centre + 0.5) * (1 / support))) for k in old]
        rows.append((old, [share / sum(shares) for share in shares]))
    bits = BITS
    if short:
        largest = max(max(shares) for _, shares in rows)
        bits = max(b for b in range(BITS) if b == 0 or int(0.5 + largest * 2**b) < 2**15)
    return [(old, [int(0.5 + share * 2**bits) << (BITS - bits) for share in shares]) for old, shares in rows]


def resize_rows(pixels, size, short):
    """Each row of pixels `[H, W, 3]`, resized to `size` pixels; a row that has this size is not changed."""
    if pixels.shape[1] == size:
        return pixels
    new = np.empty((len(pixels), size, 3), np.uint8)
    for x, (old, weights) in enumerate(weights_of(pixels.shape[1], size, short)):
        total = sum(weight * pixels[:, k].astype(np.int64) for k, weight in zip(old, weights, strict=True))
        new[:, x] = (total + (1 << (BITS - 1))) >> BITS
    return new


def resize_slowly(pixels, size, short):
    rows = resize_rows(pixels, size, short)
    return resize_rows(rows.transpose(1, 0, 2), size, short).transpose(1, 0, 2)


def cut_slowly(pixels, box, size):
    left, top, side = box
    x = np.clip(np.arange(left, left + side), 0, pixels.shape[1] - 1)
    y = np.clip(np.arange(top, top + side), 0, pixels.shape[0] - 1)
    return resize_slowly(pixels[y][:, x], size, short=True)


SIZES = [(1, 1), (2, 3), (3, 70), (70, 3), (16, 16), (17, 33), (31, 32), (33, 31), (40, 64), (64, 40), (100, 48),
         (90, 200), (200, 90)]  # fmt: skip


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("side", [1, 5, 32, 64])
def test_an_image_is_resized_by_the_formula(height, width, side):
    pixels = noise(1, height, width, seed=side)[0]
    if is_tall(height, width, side):
        expected = resize_slowly(pixels.transpose(1, 0, 2), side, short=False).transpose(1, 0, 2)
    else:
        expected = resize_slowly(pixels, side, short=False)
    np.testing.assert_array_equal(resized(pixels, "image", side), expected)


def is_tall(height, width, side):
    """Columns are resized first."""
    return width != side and height - side > 2 * max(width - side, 0)


@pytest.mark.parametrize("size", [1, 24, 32])
def test_crops_of_any_side_and_place(size):
    random = np.random.default_rng(size)
    for side in range(1, 72):
        pixels = noise(1, 40, 50, seed=side)[0]
        box = int(random.integers(-30, 60)), int(random.integers(-30, 50)), side
        np.testing.assert_array_equal(cut(pixels, box, size), cut_slowly(pixels, box, size))


@pytest.mark.parametrize("flip", ["none", "batch", "image"])
@pytest.mark.parametrize("cached", [False, True])
def test_batches_equal_a_loop_over_images(tmp_path, flip, cached):
    files = []
    for number, pixels in enumerate(noise(12, 50, 60)):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(files[-1])
    split, sampler = split_of(files), Shuffled(12, 6, seed=4, steps=2)
    images = augmented(**{**AUGMENTED, "flip": flip}, cache=tmp_path / "cache" if cached else None)
    flipped = set()
    for epoch in range(4):
        for batch in images.train_batches(split, sampler, epoch=epoch):
            seed = (4, epoch, batch.step)
            for row, got in zip(batch.rows.tolist(), batch.images, strict=True):
                small = resize_slowly(np.asarray(Image.open(files[row])), 40, short=False)
                random = np.random.default_rng([2, *seed, row])
                side = 32 + int(random.integers(-6, 6, endpoint=True))
                right, down = (int(d) for d in random.integers(-5, 5, size=2, endpoint=True))
                corner = (40 - side) // 2
                expected = cut_slowly(small, (corner + right, corner + down, side), 32)
                key = {"none": None, "batch": [1, *seed], "image": [1, *seed, row]}[flip]
                if key is not None and np.random.default_rng(key).random() < 0.5:
                    expected = expected[:, ::-1]
                    flipped.add(row)
                np.testing.assert_array_equal(got.permute(1, 2, 0).numpy(), expected)
    assert bool(flipped) == (flip != "none")


# -- parts of batches in worker processes ------------------------------------------------------------------------------


@pytest.fixture
def parts_of_three(monkeypatch):
    monkeypatch.setattr(loader, "_PART_ROWS", 3)


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize(("workers", "size"), [(1, 5), (2, 3), (2, 12)])
def test_parts_make_the_same_batches(workers, size):
    split, sampler = split_of(noise(12)), Shuffled(12, size, seed=1)
    there, here = augmented(**AUGMENTED, workers=workers), augmented(**AUGMENTED)
    for epoch in range(2):
        assert_same(there.train_batches(split, sampler, epoch=epoch), here.train_batches(split, sampler, epoch=epoch))
    assert_same(there.train_batches(split, sampler, epoch=5, start=len(sampler) // 2),
                here.train_batches(split, sampler, epoch=5, start=len(sampler) // 2))  # fmt: skip
    there.close()


@pytest.mark.usefixtures("parts_of_three")
def test_two_workers_share_each_batch_equally(tmp_path, monkeypatch):
    log, write = tmp_path / "log", loader.BatchDecoder.decode

    def logged(self, rows, *arguments):
        with log.open("a") as file:
            print(os.getpid(), len(rows), file=file)
        return write(self, rows, *arguments)

    monkeypatch.setattr(loader.BatchDecoder, "decode", logged)
    images = augmented(**AUGMENTED, workers=2)
    list(images.train_batches(split_of(noise(12)), Shuffled(12, 4, seed=1), epoch=0))
    images.close()
    decoded = Counter()
    for line in log.read_text().splitlines():
        process, rows = line.split()
        decoded[process] += int(rows)
    assert sorted(decoded.values()) == [6, 6]  # parts of 3 and 1 would make 3 and 9


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("rows", [[1, 4, 5, 6], range(12)])
def test_broken_images_in_several_parts(tmp_path, rows):
    items = noise(12)
    for row in rows:
        items[row] = tmp_path / f"{row}.jpg"
    split, found = split_of(items), []
    for workers in (0, 2):
        images = augmented(**AUGMENTED, broken="skip", workers=workers)
        found.append([*images.train_batches(split, Shuffled(12, 12, seed=2), epoch=0), {**images.left_out}])
        images.close()
        strict = augmented(**AUGMENTED, workers=workers)
        order = Shuffled(12, 12, seed=2).batch(0, 0)
        with refuses(f"images/{next(row for row in order if row in rows)}.jpg", got="no such file"):
            list(strict.train_batches(split, Shuffled(12, 12, seed=2), epoch=0))
    assert_same(found[0][:-1], found[1][:-1])
    assert found[0][-1] == found[1][-1]
    assert len(found[0][-1]) == len(rows)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_worker_that_is_killed_is_one_line():
    split = split_of(noise(400))
    images = augmented(**AUGMENTED, workers=1)
    read = images.train_batches(split, Shuffled(400, 4), epoch=0)
    next(read)
    (process,) = multiprocessing.active_children()
    os.kill(process.pid, signal.SIGKILL)
    refused(lambda: list(read), "a worker process", got="ended", hint="fewer workers")


@pytest.mark.parametrize(("shape", "dtype"), [([31, 32, 3], "uint8"), ([32, 32, 3], "float64")])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_transform_returns_is_checked(shape, dtype, workers):
    images = Images(40, 32, workers=workers, transform=lambda image, generator: np.zeros(shape, dtype))
    with refuses("transform", got=f"returned {dtype} {shape}", allowed="uint8 [32, 32, 3]"):
        next(images.train_batches(split_of(noise(12)), Shuffled(12, 4), epoch=0))
    images.close()
