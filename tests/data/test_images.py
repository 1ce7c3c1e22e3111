import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from support.choices import spread
from support.images import AUGMENTED, Shuffled, assert_same, noise, split_of, spoil
from support.miniature import augmented
from support.processes import restore_ctrl_c, start_group
from support.refusals import refused, refuses

from contml import NumberLabels
from contml.data import Images, Pixels, Split


@pytest.fixture
def files(tmp_path):
    paths = []
    for i, pixels in enumerate(noise(12, 50, 60)):
        paths.append(tmp_path / f"{i}.jpg")
        Image.fromarray(pixels).resize((120, 90)).save(paths[-1])
    return paths


# -- batches -----------------------------------------------------------------------------------------------------------


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


def test_ranks_that_cannot_share_a_batch(files):
    refused(lambda: Images(crop=300), "crop", "300", "1 to resize, 256")
    with refuses("batch_size", got="6 images", allowed="4 processes"):
        next(Images().train_batches(split_of(files), Shuffled(12, 6), epoch=0, part=(0, 4)))


@pytest.mark.parametrize("rows", [[2, 0, 1], torch.tensor([2, 0, 1]), range(2, 5), slice(1, 4), None])
def test_the_rows_of_test_batches(files, rows):
    got = torch.cat([batch.rows for batch in Images().test_batches(split_of(files), rows, 2)])
    expected = torch.arange(12) if rows is None else torch.arange(12)[list(rows) if isinstance(rows, range) else rows]
    assert torch.equal(got, expected)


def test_no_rows_give_no_batches(files):
    assert list(Images().test_batches(split_of(files), [], 2)) == []


# -- geometry ----------------------------------------------------------------------------------------------------------


def one(item, **options):
    return next(Images(**options).test_batches(split_of([item]), None, 1)).images[0].permute(1, 2, 0).numpy()


def test_a_picture_in_memory_is_not_changed():
    picture = Image.fromarray(noise(1, 20, 30)[0]).convert("L")
    picture.getexif()[0x0112] = 6
    one(picture, resize=20, crop=20)
    assert (picture.mode, picture.size) == ("L", (30, 20))


def test_a_large_jpeg_decoded_at_a_fraction_is_nearly_the_same(tmp_path):
    smooth = Image.fromarray(noise(1, 30, 40)[0]).resize((1600, 1200), Image.Resampling.BICUBIC)
    smooth.save(tmp_path / "large.jpg", quality=95)
    with Image.open(tmp_path / "large.jpg") as full:
        expected = one(full, resize=128, crop=112).astype(int)
    difference = np.abs(one(tmp_path / "large.jpg", resize=128, crop=112).astype(int) - expected)
    assert difference.max() <= 4
    assert difference.mean() < 0.5


# -- broken images -----------------------------------------------------------------------------------------------------

CAUSES = {
    "truncated": "truncated", "text": "not an image, damaged, or of a format that is not read",
    "missing": "no such file", "empty": "empty file", "folder": "a folder", "bomb": "decompression bomb",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "workers"), spread(CAUSES, [0, 0, 1]))
def test_a_broken_image_fails_in_one_line(files, kind, workers, monkeypatch):
    spoil(files[5], kind, monkeypatch)
    images = Images(workers=workers)
    with refuses("images/5.jpg", got=CAUSES[kind], hint='broken="skip"'):
        list(images.test_batches(split_of(files), None, 4))
    assert not multiprocessing.active_children()  # an error ends the workers


@pytest.mark.parametrize(("kind", "workers"), spread(CAUSES, [0, 0, 1]))
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


@pytest.mark.parametrize(("options", "got"), [
    ({"labels": NumberLabels(torch.arange(3))}, "2 images, 2 names and 3 labels"),
    ({"queries": torch.tensor([0])}, "queries without a gallery"),
    ({"gallery": torch.tensor([0])}, "a gallery without queries"),
])  # fmt: skip
def test_splits_whose_parts_do_not_fit(options, got):
    with refuses("split", got):
        Split(**{"images": [Pixels(image) for image in noise(2)], "names": ["a", "b"],
                 "labels": NumberLabels(torch.arange(2)), **options})  # fmt: skip


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
    process = start_group(script, preexec_fn=restore_ctrl_c)
    assert process.stdout.readline() == "started\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    out, err = process.communicate(timeout=60)
    assert out.endswith("interrupted\n")
    assert err == ""
