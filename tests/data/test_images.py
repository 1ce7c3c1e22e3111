from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from support.images import AUGMENTED, Shuffled, assert_same, noise, split_of, spoil
from support.miniature import augmented
from support.processes import restore_ctrl_c, script_environment
from support.refusals import refuses

from contml import NumberLabels
from contml.data import Batch, Images, Pixels, Split, draw_queries
from contml.data.batch import BatchDecoder, CropTransform, Request, cut
from contml.data.decode import resized


@pytest.fixture
def files(tmp_path):
    paths = []
    for i, pixels in enumerate(noise(12, 50, 60)):
        paths.append(tmp_path / f"{i}.jpg")
        Image.fromarray(pixels).resize((120, 90)).save(paths[-1])
    return paths


# -- batches -----------------------------------------------------------------------------------------------------------


def test_fields_of_a_batch(files):
    batches = list(augmented(**AUGMENTED).train_batches(split_of(files), Shuffled(12, 4), epoch=0))
    assert [batch.step for batch in batches] == [0, 1, 2]
    assert isinstance(batches[0], Batch)
    assert batches[0].images.shape == (4, 3, 32, 32)
    assert batches[0].images.dtype == torch.uint8
    assert batches[0].images.is_contiguous()
    assert batches[0].rows.dtype == torch.int64
    assert batches[0].rows.tolist() == Shuffled(12, 4).batch(0, 0)
    assert batches[0].positions.tolist() == [0, 1, 2, 3]
    assert batches[0].skipped == 0


def test_workers_give_the_same_batches_and_stay_for_the_next_epoch(files):
    split, sampler = split_of(files), Shuffled(12, 4)
    here, there = augmented(**AUGMENTED), augmented(**AUGMENTED, workers=2)
    before = torch.get_rng_state()
    workers = []
    for epoch in range(2):
        assert_same(there.train_batches(split, sampler, epoch=epoch), here.train_batches(split, sampler, epoch=epoch))
        workers.append({process.pid for process in multiprocessing.active_children()})
    assert workers[0] == workers[1]
    assert len(workers[0]) == 2
    assert_same(there.test_batches(split, None, 5), here.test_batches(split, None, 5))
    assert torch.equal(torch.get_rng_state(), before)
    there.close()
    assert not multiprocessing.active_children()
    assert len(list(there.test_batches(split, [0, 1], 1))) == 2  # and again after close
    there.close()


def test_an_evaluation_inside_an_epoch_and_an_unfinished_epoch(files):
    split, sampler = split_of(files), Shuffled(12, 2)
    images, plain = augmented(**AUGMENTED, workers=1), augmented(**AUGMENTED)
    expected = list(plain.train_batches(split, sampler, epoch=0))
    got = []
    for batch in images.train_batches(split, sampler, epoch=0):
        got.append(batch)
        if batch.step in (1, 3):
            assert_same(images.test_batches(split, [3, 1], 2), plain.test_batches(split, [3, 1], 2))
            next(images.train_batches(split, sampler, epoch=1))
    assert_same(got, expected)
    images.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_can_start_at_any_step(files, workers):
    split, sampler = split_of(files), Shuffled(12, 2)
    images = augmented(**AUGMENTED, workers=workers)
    whole = list(images.train_batches(split, sampler, epoch=3))
    assert_same(images.train_batches(split, sampler, epoch=3, start=4), whole[4:])
    images.close()


def test_ranks_share_a_batch(files):
    split, sampler, images = split_of(files), Shuffled(12, 6), augmented(**AUGMENTED)
    whole = list(images.train_batches(split, sampler, epoch=0))
    parts = [list(images.train_batches(split, sampler, epoch=0, part=(rank, 3))) for rank in range(3)]
    for step, batch in enumerate(whole):
        for field in ("images", "rows", "positions"):
            assert torch.equal(torch.cat([getattr(part[step], field) for part in parts]), getattr(batch, field))


@pytest.mark.parametrize("workers", [0, 1])
def test_ranks_that_cannot_share_a_batch(files, workers):
    images = Images(workers=workers)
    with refuses("batch_size", got="6 images", allowed="4 processes"):
        next(images.train_batches(split_of(files), Shuffled(12, 6), epoch=0, part=(0, 4)))
    images.close()


@pytest.mark.parametrize("rows", [[2, 0, 1], torch.tensor([2, 0, 1]), range(2, 5), slice(1, 4), None])
def test_the_rows_of_test_batches(files, rows):
    got = torch.cat([batch.rows for batch in Images().test_batches(split_of(files), rows, 2)])
    expected = torch.arange(12) if rows is None else torch.arange(12)[list(rows) if isinstance(rows, range) else rows]
    assert torch.equal(got, expected)


def test_no_rows_give_no_batches(files):
    assert list(Images().test_batches(split_of(files), [], 2)) == []


# -- augmentation ------------------------------------------------------------------------------------------------------


def test_half_of_the_batches_are_flipped_each_as_a_whole():
    pixels = noise(3, 8, 8)
    images = Images(resize=8, crop=8, flip="batch")
    straight = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
    flips = 0
    for batch in images.train_batches(split_of(pixels), Shuffled(3, 3, steps=400), epoch=0):
        flipped = torch.equal(batch.images, straight.flip(3))
        assert flipped or torch.equal(batch.images, straight)
        flips += flipped
    assert 160 < flips < 240  # 4 standard deviations
    assert all(
        torch.equal(batch.images, straight[batch.rows]) for batch in images.test_batches(split_of(pixels), None, 2)
    )


def test_draws_depend_on_seed_epoch_step_and_row(files):
    same = split_of([files[0]] * 12)

    def first(seed=0, epoch=0, start=0):
        options = {**AUGMENTED, "flip": "none"}
        return next(augmented(**options).train_batches(same, Shuffled(12, 6, seed), epoch=epoch, start=start)).images

    draws = [first(), first(seed=1), first(epoch=1), first(start=1)]
    assert torch.equal(first(), draws[0])
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    assert len({image.numpy().tobytes() for image in draws[0]}) > 4  # each row its own


def test_boxes_cover_the_whole_range():
    ramp = np.zeros((100, 100, 3), np.uint8)
    ramp[..., 0] = np.arange(100)[None, :] * 2  # red is x, green is y
    ramp[..., 1] = np.arange(100)[:, None] * 2
    images = augmented(resize=100, crop=50, scale_jitter=10, shift=7, flip="none")
    x, y, side = [], [], []
    for batch in images.train_batches(split_of([ramp] * 10), Shuffled(10, 10, steps=100), epoch=0):
        ends = batch.images.double() / 2 + 0.5
        x.append((ends[:, 0, 25, 0] + ends[:, 0, 25, -1]) / 2 - 50)
        y.append((ends[:, 1, 0, 25] + ends[:, 1, -1, 25]) / 2 - 50)
        side.append((ends[:, 0, 25, -1] - ends[:, 0, 25, 0]) * 50 / 49)
    x, y, side = torch.cat(x), torch.cat(y), torch.cat(side)
    for centre in (x, y):
        assert centre.min() == pytest.approx(-7, abs=1)
        assert centre.max() == pytest.approx(7, abs=1)
        assert centre.mean().item() == pytest.approx(0, abs=0.8)
    assert side.min().item() == pytest.approx(40, abs=1)
    assert side.max().item() == pytest.approx(60, abs=1)
    assert side.mean().item() == pytest.approx(50, abs=0.8)
    assert abs(np.corrcoef(torch.stack([x, y, side]).numpy())[np.triu_indices(3, 1)]).max() < 0.12


# -- geometry ----------------------------------------------------------------------------------------------------------


def one(item, **options):
    return next(Images(**options).test_batches(split_of([item]), None, 1)).images[0].permute(1, 2, 0).numpy()


def test_images_of_the_right_size_are_not_changed():
    pixels = noise(1, 32, 32)[0]
    for item in (pixels, Image.fromarray(pixels)):
        np.testing.assert_array_equal(one(item, resize=32, crop=32), pixels)
        np.testing.assert_array_equal(one(item, resize=32, crop=20), pixels[6:26, 6:26])
        np.testing.assert_array_equal(one(item, resize=32, crop=21), pixels[5:26, 5:26])


def test_a_picture_in_memory_is_not_changed():
    picture = Image.fromarray(noise(1, 20, 30)[0]).convert("L")
    picture.getexif()[0x0112] = 6
    one(picture, resize=20, crop=20)
    assert (picture.mode, picture.size) == ("L", (30, 20))


def test_shifted_crops_of_equal_size_are_copies():
    pixels = noise(1, 32, 32)[0]
    got = cut(pixels, (3, 9, 20), 20)
    np.testing.assert_array_equal(got, pixels[9:29, 3:23])


def test_outside_the_image_its_edge_is_repeated():
    pixels = noise(1, 32, 32)[0]
    wide = np.pad(pixels, ((8, 8), (8, 8), (0, 0)), mode="edge")
    for left, top in [(-5, -8), (-5, 4), (17, 20), (0, 20)]:
        got = cut(pixels, (left, top, 20), 20)
        np.testing.assert_array_equal(got, wide[top + 8 : top + 28, left + 8 : left + 28])
    assert cut(pixels, (-20, 30, 40), 24).shape == (24, 24, 3)


def test_the_position_of_a_dot():
    pixels = np.zeros((300, 600, 3), np.uint8)
    pixels[96:105, 396:405] = 255  # centre (400.5, 100.5)
    got = cut(resized(pixels, "dot", 100), (40, 10, 50), 80)[..., 0].astype(float)
    # 600 x 300 to 100 x 100 is 1/6 and 1/3; then the box' corner goes to 0 and its side 50 to 80
    grid = np.arange(80) + 0.5
    assert (got.sum(0) @ grid) / got.sum() == pytest.approx((400.5 / 6 - 40) * 1.6, abs=0.1)
    assert (got.sum(1) @ grid) / got.sum() == pytest.approx((100.5 / 3 - 10) * 1.6, abs=0.1)


def test_crops_are_cut_from_the_resized_image():
    picture = Image.fromarray(noise(1, 300, 400)[0])
    small = picture.resize((64, 64), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(one(picture, resize=64, crop=48), np.asarray(small.crop((8, 8, 56, 56))))
    for side in (40, 50, 60):
        expected = np.asarray(small.crop((3, 4, 3 + side, 4 + side)).resize((48, 48), Image.Resampling.BILINEAR))
        got = cut(np.array(small), (3, 4, side), 48)
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 2


def test_a_large_jpeg_decoded_at_a_fraction_is_nearly_the_same(tmp_path):
    smooth = Image.fromarray(noise(1, 30, 40)[0]).resize((1600, 1200), Image.Resampling.BICUBIC)
    smooth.save(tmp_path / "large.jpg", quality=95)
    with Image.open(tmp_path / "large.jpg") as full:
        expected = one(full, resize=128, crop=112).astype(int)
    difference = np.abs(one(tmp_path / "large.jpg", resize=128, crop=112).astype(int) - expected)
    assert difference.max() <= 4
    assert difference.mean() < 0.5


@pytest.mark.parametrize("workers", [1])
def test_an_input_error_of_a_worker_keeps_its_fields(workers):
    images = Images(workers=workers)
    with refuses("row 0", got="int64 [4, 4]", allowed="uint8"):
        list(images.test_batches(split_of([np.zeros((4, 4), np.int64)]), None, 1))


# -- broken images -----------------------------------------------------------------------------------------------------

CAUSES = {
    "truncated": "truncated",
    "text": "not an image, or of a format that is not read",
    "missing": "no such file",
    "empty": "empty file",
    "folder": "a folder",
    "bomb": "decompression bomb",
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", CAUSES)
def test_a_broken_image_fails_in_one_line(files, kind, workers, monkeypatch):
    spoil(files[5], kind, monkeypatch)
    images = Images(workers=workers)
    with refuses("images/5.jpg", got=CAUSES[kind], hint='broken="skip"'):
        list(images.test_batches(split_of(files), None, 4))
    assert not multiprocessing.active_children()  # an error ends the workers


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", CAUSES)
def test_a_broken_image_is_left_out(files, kind, workers, monkeypatch):
    clean = list(augmented(**AUGMENTED).train_batches(split_of(files), Shuffled(12, 6), epoch=0))
    spoil(files[5], kind, monkeypatch)
    images = augmented(**AUGMENTED, broken="skip", workers=workers)
    batches = list(images.train_batches(split_of(files), Shuffled(12, 6), epoch=0))
    assert sum(batch.skipped for batch in batches) == 1
    for batch, before in zip(batches, clean, strict=True):
        kept = before.rows != 5
        assert torch.equal(batch.rows, before.rows[kept])
        assert torch.equal(batch.images, before.images[kept])  # the others' draws and order are as before
        assert torch.equal(batch.positions, before.positions[kept])
    assert list(images.left_out) == ["images/5.jpg"]
    assert CAUSES[kind] in images.left_out["images/5.jpg"]
    images.close()


def test_a_batch_of_broken_images_only(tmp_path):
    (batch,) = Images(broken="skip").test_batches(split_of([tmp_path / "a.jpg", tmp_path / "b.jpg"]), None, 2)
    assert batch.images.shape == (0, 3, 224, 224)
    assert batch.rows.shape == batch.positions.shape == (0,)
    assert batch.skipped == 2


def test_a_file_with_changed_bytes_is_decoded_or_broken(files):
    random = np.random.default_rng(0)
    for path in files:
        for suffix in (".jpg", ".png", ".gif", ".tif", ".webp", ".bmp"):
            spoilt = path.with_name(f"spoilt{suffix}")
            with Image.open(path) as picture:
                picture.resize((24, 18)).save(spoilt)
            content = bytearray(spoilt.read_bytes())
            for at in random.integers(0, len(content), 8):
                content[at] = random.integers(256)
            spoilt.write_bytes(content)
            (batch,) = Images(broken="skip").test_batches(split_of([spoilt]), None, 1)
            assert len(batch.rows) + batch.skipped == 1


# -- options, interrupts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("crop", 300, "1 to resize, 256"),
        ("crop", 0, "at least 1"),
        ("flip", "yes", "batch, image, none"),
        ("workers", -2, "at least 0"),
        ("broken", "ignore", "fail, skip"),
    ],
)
def test_invalid_options(name, value, allowed):
    with refuses(name, str(value), allowed):
        Images(**{name: value})


def test_batch_size(files):
    with refuses("batch_size", "0", "at least 1"):
        Images().test_batches(split_of(files), None, 0)


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"names": ["a"]}, "2 images, 1 names and 2 labels"),
        ({"labels": NumberLabels(torch.arange(3))}, "2 images, 2 names and 3 labels"),
        ({"queries": torch.tensor([0])}, "queries without a gallery"),
        ({"gallery": torch.tensor([0])}, "a gallery without queries"),
    ],
)
def test_splits_whose_parts_do_not_fit(options, got):
    with refuses("split", got):
        Split(**{"images": [Pixels(image) for image in noise(2)], "names": ["a", "b"],
                 "labels": NumberLabels(torch.arange(2)), **options})  # fmt: skip


def test_random_queries():
    assert draw_queries(0, "abcde", seed=0) == []
    rows = draw_queries(3, "abcde", seed=1)
    assert len({*rows}) == 3
    assert rows == draw_queries(3, "abcde", seed=1) != draw_queries(3, "abcde", seed=2)
    for count, names, most in ((4, "abcde", 3), (-1, "abcde", 3), (1, "a", 0)):
        with refuses("queries", str(count), f"0 to {most}"):
            draw_queries(count, names, seed=0)


SCRIPT = """
import time
from contml.data import Images
from support.images import noise, split_of
if __name__ == "__main__":
    images = Images(workers=2)
    try:
        for batch in images.test_batches(split_of(noise(2) * 5000), None, 4):
            print("started", flush=True)
            time.sleep(0.05)
    except KeyboardInterrupt:
        images.close()
        print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals to a process group")
def test_ctrl_c_prints_no_tracebacks(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=restore_ctrl_c,
        env=script_environment(),
    )
    assert process.stdout
    assert process.stdout.readline() == "started\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    out, err = process.communicate(timeout=60)
    assert out.endswith("interrupted\n")
    assert err == ""


def test_a_tiff_of_a_kind_that_is_not_read_is_not_called_no_image(tmp_path):
    header = struct.pack("<2sHI", b"II", 42, 8)
    tags = {256: 2, 257: 2, 258: 64, 259: 1, 262: 1, 273: 200, 277: 1, 278: 2, 279: 32, 339: 3}  # float64
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    path = tmp_path / "float64.tif"
    path.write_bytes((header + directory).ljust(200, b"\0") + np.full(4, 0.5).tobytes())
    with refuses("float64.tif", got="a TIFF file that is damaged, or of a kind that Pillow does not read"):
        list(Images().test_batches(split_of([path]), None, 1))


@pytest.mark.parametrize("flip", ["image", "batch"])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_flipped(flip, seed):
    picture = np.zeros((32, 32, 3), np.uint8)
    picture[:, :16] = 255
    split, options = split_of([picture] * 12), {"resize": 32, "crop": 32, "flip": flip}
    decoder = BatchDecoder(split, transform=CropTransform(0, 0, resize=32, crop=32), **options)
    flips = [
        decoder.batch(Request(step, [*range(12)], 0, (seed, 0, step))).batch.images[:, 0, 0, 0] for step in range(9)
    ]
    shares = {float((flipped == 0).float().mean()) for flipped in flips}
    assert (shares == {0, 1}) if flip == "batch" else all(0 < share < 1 for share in shares)


@pytest.mark.parametrize("offset", [3, 4])
def test_positions_of_a_part_of_a_batch(offset):
    batch = Request(5, [7, 8, 9], offset, None).batch(torch.zeros(2), [0, 2])
    assert (batch.positions.tolist(), batch.rows.tolist()) == ([offset, offset + 2], [7, 9])
    assert (batch.step, batch.skipped) == (5, 1)
