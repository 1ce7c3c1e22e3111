"""The cache of decoded images gives the same batches as no cache, after crashes, changed files and full disks."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from random import Random

import numpy as np
import pytest
import torch
from fuzz.mutations import bytes_changed
from PIL import Image
from safetensors.torch import load_file
from support.images import AUGMENTED, Shuffled, assert_same, noise, split_of, spoil
from support.miniature import augmented
from support.paths import ROOT
from support.pose_sets import pose_files
from support.refusals import refused, refuses

from contml import InputError
from contml.app.experiment import check, load, resume, train
from contml.data import BoxCrop, Images, cache

SIDE = AUGMENTED["resize"]
BYTES = SIDE * SIDE * 3
ENTRY = 32
PIXELS, INDEX = f"resized-{SIDE}.pixels", f"resized-{SIDE}.entries"


@pytest.fixture
def files(tmp_path):
    """Files of every kind: wide, high, small, large enough for a JPEG to be decoded at a fraction, turned by EXIF."""
    pictures = [Image.fromarray(p) for p in noise(12, 50, 60)]
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = [
        ("a.jpg", pictures[0].resize((400, 300)), {}), ("b.jpg", pictures[1].resize((90, 200)), {"exif": exif}),
        ("c.jpg", pictures[2].convert("L"), {}), ("d.jpg", pictures[3].convert("CMYK"), {}),
        ("e.png", pictures[4].quantize(16), {"transparency": 3}), ("f.png", pictures[5].convert("LA"), {}),
        ("g.png", pictures[6].resize((SIDE, SIDE)), {}), ("h.webp", pictures[7], {}),
        ("i.png", pictures[8].resize((7, 5)), {}), ("j.gif", pictures[9], {}), ("k.bmp", pictures[10], {}),
        ("l.jpg", pictures[11].resize((90, 91)), {"exif": exif}),
    ]  # fmt: skip
    folder = tmp_path / "images"
    folder.mkdir()
    for name, picture, options in kinds:
        picture.save(folder / name, **options)
    return [folder / name for name, _, _ in kinds]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "cache"


def batches(files, folder=None, workers=0, broken="fail", epochs=2, **options):
    images = augmented(**{**AUGMENTED, **options}, workers=workers, broken=broken, cache=folder)
    split = split_of(files)
    found = [b for epoch in range(epochs) for b in images.train_batches(split, Shuffled(12, 4), epoch=epoch)]
    found += images.test_batches(split, None, 5)
    images.close()
    return found


def fill(files, folder, **options):
    return Images(SIDE, SIDE, cache=folder, **options).fill(split_of(files))


def no_decoding(monkeypatch):
    def fail(item, name, side):
        raise AssertionError(f"{name} is decoded")

    monkeypatch.setattr("contml.data.batch.resized", fail)


# -- the same batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "options"), [(0, {}), (0, {"scale_jitter": 0}), (2, {"scale_jitter": 0, "shift": 0, "flip": "none"})]
)
def test_batches_are_the_same_bit_for_bit(files, folder, workers, options, monkeypatch):
    plain = batches(files, **options)
    assert_same(batches(files, folder, workers, **options), plain)
    if not workers:  # a decoder replaced here is not replaced in processes that are spawned
        no_decoding(monkeypatch)
    assert_same(batches(files, folder, workers, **options), plain)


def reader_of(files, folder):
    return Images(SIDE, 32, cache=folder).prepare(split_of(files))


def test_cached_images_are_pickled_without_their_pixels(files, folder):
    fill(files, folder)
    reader = reader_of(files, folder)
    first = reader.get(3).copy()
    content = pickle.dumps(reader)
    assert len(content) < 1000
    np.testing.assert_array_equal(pickle.loads(content).get(3), first)
    reader.get(3)[:] = 0  # changes a copy
    np.testing.assert_array_equal(reader_of(files, folder).get(3), first)


# -- files that change -------------------------------------------------------------------------------------------------


def test_a_file_that_changed_is_decoded_again(files, folder):
    before = batches(files, folder)
    reader = reader_of(files, folder)
    old = reader.get(2).copy()
    Image.new("RGB", (30, 40), (200, 30, 30)).save(files[2])
    Image.fromarray(noise(1, 50, 60, seed=5)[0]).save(files[10])  # a bitmap: as many bytes as before
    report = fill(files, folder)
    assert (report.added, report.size) == (2, 14 * BYTES)
    after = batches(files, folder)
    assert_same(after, batches(files))
    assert not all(torch.equal(a.images, b.images) for a, b in zip(before, after, strict=True))
    np.testing.assert_array_equal(reader.get(2), old)  # an open reader still sees the old image
    assert fill(files, folder).added == 0


# -- broken images -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), [("truncated", 0), ("text", 2), ("missing", 0), ("folder", 0)])
def test_broken_images_are_left_out_as_without_a_cache(files, folder, kind, workers, monkeypatch):
    spoil(files[1], kind, monkeypatch)
    images = augmented(**AUGMENTED, broken="skip", workers=workers, cache=folder)
    for _ in range(2):
        found = batches(files, folder, workers, "skip")
        assert_same(found, batches(files, broken="skip"))
        assert sum(batch.skipped for batch in found) == 3
    list(images.test_batches(split_of(files), None, 5))
    assert list(images.left_out) == ["images/b.jpg"]
    images.close()
    assert [name for name, _ in fill(files, folder).broken] == ["images/b.jpg"]


@pytest.mark.parametrize("filled", [False, True])
def test_a_broken_image_fails_before_the_first_batch(files, folder, filled, monkeypatch):
    spoil(files[11], "truncated", monkeypatch)
    with pytest.raises(InputError) as expected:
        batches(files)
    assert str(expected.value).startswith("images/l.jpg: cannot be decoded (")
    if filled:
        report = fill(files, folder)
        assert [name for name, _ in report.broken] == ["images/l.jpg"]
        assert "truncated" in report.broken[0][1]
    images = augmented(**AUGMENTED, cache=folder)
    with pytest.raises(InputError) as error:
        next(images.train_batches(split_of(files), Shuffled(12, 4), epoch=0))
    assert str(error.value) == str(expected.value)


# -- crashes, several processes, full disks ----------------------------------------------------------------------------

SCRIPT = """
import resource, sys
from pathlib import Path
sys.path[:0] = {folders!r}
from support.images import split_of
import contml.data.cache as cache
from contml import InputError

if __name__ == "__main__":
    folder, limit, gate, *files = sys.argv[1:]
    if int(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    cache.CHUNK, cache._INDEX_INTERVAL = 1, 0.0
    import contml.data.loader as loader
    loader.CHUNK = 1
    save_entries = cache.ImageCache._save_entries
    def save_and_wait(self, *arguments):
        save_entries(self, *arguments)
        print("saved", flush=True)
        gate and sys.stdin.readline()
    cache.ImageCache._save_entries = save_and_wait
    try:
        print(loader.Images(40, 40, cache=Path(folder)).fill(split_of([Path(file) for file in files])).added)
    except InputError as error:
        print(error)
"""


def other_process(tmp_path, files, folder, limit=0, gate=""):
    """Starts a process that fills a folder image by image; with a gate, it waits for a line after each image."""
    script = tmp_path / "fill.py"
    script.write_text(SCRIPT.format(folders=[str(ROOT), str(ROOT / "tests")]))
    command = [sys.executable, script, folder, str(limit), gate, *files]
    return subprocess.Popen(command, **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), text=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_filling_resumes_after_a_kill(files, folder, tmp_path):
    process = other_process(tmp_path, files, folder, gate="closed")
    for _ in range(4):
        assert process.stdout.readline() == "saved\n"
        process.stdin.write("on\n")
        process.stdin.flush()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with (folder / INDEX).open("ab") as index, (folder / PIXELS).open("ab") as pixels:
        index.write(b"half an entry")
        pixels.write(bytes(BYTES // 3))
    done = (folder / INDEX).stat().st_size // ENTRY
    assert 4 <= done < 12
    assert fill(files, folder).added == 12 - done
    assert (folder / PIXELS).stat().st_size == 12 * BYTES
    assert_same(batches(files, folder), batches(files))


@pytest.mark.slow
def test_two_processes_fill_one_folder(files, folder, tmp_path):
    plain = batches(files)
    first = other_process(tmp_path, files, folder, gate="closed")
    assert first.stdout.readline() == "saved\n"
    second = other_process(tmp_path, files, folder)
    assert second.stderr.readline() == f"waiting for another process that adds images to {folder}\n"
    out, err = first.communicate("on\n" * 20, timeout=60)
    assert out.splitlines()[-1] == "12"
    assert second.communicate(timeout=60)[0].splitlines()[-1] == "0"
    assert f"decoding 12 images of {SIDE} x {SIDE} pixels into {folder}" in err
    assert (folder / PIXELS).stat().st_size == 12 * BYTES
    assert_same(batches(files, folder), plain)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of processes")
@pytest.mark.parametrize("limit", [BYTES * 5 // 2, 200])
def test_a_disk_that_fills_up(files, folder, tmp_path, limit):
    """The kernel refuses to write more, in the middle of an image, or of a line of the index."""
    out, err = other_process(tmp_path, files, folder, limit=limit).communicate(timeout=60)
    assert out.splitlines()[-1].startswith(f"cache {folder}: cannot be written (File too large);")
    assert "Traceback" not in err
    done = (folder / INDEX).stat().st_size // ENTRY if (folder / INDEX).exists() else 0
    assert done == (2 if limit > BYTES else 0)
    assert fill(files, folder).added == 12 - done
    assert_same(batches(files, folder), batches(files))


def test_a_full_disk_is_reported_before_decoding(files, folder, monkeypatch):
    no_decoding(monkeypatch)
    usage = shutil.disk_usage("/")._replace(free=12 * BYTES - 1)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: usage)
    with refuses(f"cache {folder}", got="12 images of 40 x 40 pixels need 0.1 MB, and 0.1 MB are free"):
        fill(files, folder)


def test_an_interrupt_keeps_the_decoded_images(files, folder, monkeypatch):
    monkeypatch.setattr(cache, "CHUNK", 4)
    monkeypatch.setattr("contml.data.loader.CHUNK", 4)
    write, calls = cache._write, []

    def interrupted(file, content):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(file, content)

    monkeypatch.setattr(cache, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(files, folder)
    monkeypatch.setattr(cache, "_write", write)
    assert fill(files, folder).added == 4


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_a_file(files, tmp_path):
    (tmp_path / "file").touch()
    refused(lambda: fill(files, tmp_path / "file"), f"cache {tmp_path}/file", got="is a file")
    refused(lambda: fill(files, tmp_path / "file" / "in it"), f"cache {tmp_path}/file/in it", got="Not a directory")
    refused(lambda: fill(files, tmp_path / "images"), f"{tmp_path}/images", got="exists already and is not empty")


@pytest.mark.parametrize("name", [INDEX, PIXELS])
def test_damaged_images_are_decoded_again(files, folder, name):
    fill(files, folder)
    plain, whole = batches(files), {each: (folder / each).read_bytes() for each in (INDEX, PIXELS)}
    random = Random(3)
    for _ in range(40):
        for each, content in whole.items():
            (folder / each).write_bytes(bytes_changed(content, random) if each == name else content)
        assert_same(batches(files, folder), plain)


def test_each_process_checks_an_image_at_its_first_read(files, folder, monkeypatch):
    images, split = Images(SIDE, SIDE, cache=folder), split_of(files)
    images.prepare(split)
    checked, crc32 = [], cache.zlib.crc32

    def counted(values, start=0):
        checked.append(memoryview(values).nbytes)
        return crc32(values, start)

    monkeypatch.setattr(cache.zlib, "crc32", counted)
    for _ in range(3):
        list(images.test_batches(split, None, 5))
    assert checked.count(BYTES) == len(files)
    images.close()


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_broken_images_are_tried_again(files, folder, block, monkeypatch):
    monkeypatch.setattr(cache, "_BLOCK", block)
    for number in (1, 2, 9):
        files[number].write_text(f"text {number}")
    expected = fill(files, folder).broken
    assert [name for name, _ in expected] == ["images/b.jpg", "images/c.jpg", "images/j.gif"]
    report = fill([*files, *files], folder)
    assert (report.added, sorted(report.broken)) == (3, sorted([*expected, *expected]))
    assert_same(batches(files, folder, broken="skip"), batches(files, broken="skip"))


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
@pytest.mark.parametrize("name", [INDEX, PIXELS])
def test_a_pipe_in_place_of_a_file(files, folder, name):
    fill(files, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(lambda: fill(files, folder), str(folder / name), got="not a file")


def test_images_that_come_from_no_file(folder):
    with refuses("cache", got="row 0 comes from no file", hint="omit the cache"):
        next(augmented(**AUGMENTED, cache=folder).test_batches(split_of(noise(3)), None, 2))


# -- splits that cut images from files ---------------------------------------------------------------------------------


def test_images_cut_from_files(files, folder):
    first, last = BoxCrop(files[7], (0, 0, 30, 30)), BoxCrop(files[8], (0, 0, 5, 5))
    split = split_of([first, BoxCrop(files[7], (5, 9, 40, 40)), last])
    expected = list(Images(SIDE, 32).test_batches(split, None, 2))
    images = Images(SIDE, 32, cache=folder)
    assert images.fill(split).added == 3
    assert_same(images.test_batches(split, None, 2), expected)
    split = split_of([first, BoxCrop(files[7], (6, 9, 40, 40)), last])
    assert Images(SIDE, 32, cache=folder).fill(split).added == 1
    assert fill(files, folder).added == 12  # and whole


# -- in a config -------------------------------------------------------------------------------------------------------

CONFIG = """
task: {name: table/file, data: own/joints.npz, labels: {joints: pose}}
model: {backbone: small_cnn, dim: 4}
images: {resize: 24, crop: 20, flip: batch}
transform: {scale_jitter: 2, shift: 2}
sampler: {name: dense, batch_size: 8, anchors_per_batch: 2, neighbours: 2, batches: 3}
loss: log_ratio
training: {epochs: 1}
"""


@pytest.mark.slow
def test_a_training_with_a_cache_is_the_same_and_resumes_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pose_files(tmp_path / "own")
    (tmp_path / "config.yaml").write_text(CONFIG)
    plain = train(load("config.yaml"), tmp_path / "runs")
    check(load("config.yaml", ["images.cache=kept", "task.split=null"]))
    assert not (tmp_path / "kept").exists()  # one batch needs no cache
    run = train(load("config.yaml", ["images.cache=kept"]), tmp_path / "runs")
    last = [load_file(each.checkpoints / "last.safetensors") for each in (plain, run)]
    assert all(torch.equal(last[1][name], value) for name, value in last[0].items())
    assert (tmp_path / "kept" / "resized-24.pixels").stat().st_size == 30 * 24 * 24 * 3
    text = run.config.read_text()
    assert f"cache: {tmp_path}/kept" in text
    run.config.write_text(text.replace(f"cache: {tmp_path}/kept", "cache: null", 1))
    assert resume(run.folder).folder == run.folder
    with refuses("cache config.yaml", got="is a file"):
        train(load("config.yaml", ["images.cache=config.yaml"]), tmp_path / "other")
    assert not (tmp_path / "other").exists()  # no run is begun
