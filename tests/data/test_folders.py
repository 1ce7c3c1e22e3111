"""Folders of images: one list of endings, and a count of what is skipped."""

from pathlib import Path

import pytest
from PIL import Image
from support.images import PHONE, phone, without_heif
from support.refusals import refuses

from contml._support import progress
from contml.data.decode import IMAGE_SUFFIXES, decode as decode_image
from contml.data.text_files import images_below, skipped_text
from contml.tasks.table.file import file

KINDS = {
    ".jfif": "JPEG", ".JPE": "JPEG", ".Png": "PNG", ".tiff": "TIFF", ".PGM": "PPM", ".avif": "AVIF", ".heic": "HEIF",
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    progress.note.cache_clear()


def photographs(root, suffix, classes="abcd", each=6):
    """A folder per class, where every second image, and every image of class a, has another ending."""
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(each):
            other = number % 2 or name == "a"
            picture = Image.new("RGB", (8, 8), (number, ord(name), 0))
            picture.save(root / name / f"{number}{suffix if other else '.jpg'}", KINDS[suffix] if other else "JPEG")
    return root


@pytest.mark.parametrize("suffix", [suffix for suffix in KINDS if suffix.lower() in IMAGE_SUFFIXES])
def test_readers_of_folders_read_the_same_endings(tmp_path, suffix, capsys):
    decode_image(*[photographs(tmp_path / "other", ".jfif") / "a/0.jfif", "registers HEIF"])
    root = photographs(tmp_path / "photos", suffix)
    assert images_below(root) == sorted(root.rglob("*.*"))
    task = file(str(root))
    assert len(task.train) + len(task.test) == 24
    for split in (task.train, task.test):
        for row in range(len(split)):
            assert split.picture(row).size == (8, 8)
    assert capsys.readouterr().err == ""


@pytest.fixture
def no_heif(monkeypatch):
    without_heif(monkeypatch)


def test_a_command_says_what_it_skips(tmp_path, accepted, no_heif):
    root = phone(tmp_path / "photos")
    for number in range(5, 30):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(root / "ab"[number % 2] / f"{number}.jpg")
    small = ["images.workers=0", "images.resize=32", "images.crop=32", "training.select=none", "training.epochs=1"]
    small += ["sampler.classes=2", "sampler.instances=2"]
    _, err = accepted("check", "table/classes", "--data", "photos", *small)
    assert [line for line in err.splitlines() if "skipped" in line] == [f"photos: {PHONE}"]


def test_a_folder_without_images_says_what_it_has(tmp_path, no_heif):
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / f"a/{number}.heic").write_bytes(b"")
    with refuses(str(tmp_path), got='3 .heic files (pip install "contml[heif]" reads them)', allowed="JPEG, PNG"):
        images_below(tmp_path)


def test_an_image_that_nothing_installed_reads(tmp_path, no_heif):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(20))
    with pytest.raises(OSError, match=r'HEIF; pip install "contml\[heif\]" reads it'):
        decode_image(tmp_path / "a.heic", "a")


@pytest.mark.parametrize(("names", "text"), [
    (["1.jpg", "2.JPG"], ""), (["1.txt", "2.csv", "3.csv"], "2 .csv files, 1 .txt"),
    (["a", "b.", "c. d", "x.\x1b[31m"], "4 others"),
    ([f"{n}.x{n}" for n in range(9)], "1 .x0 file, 1 .x1, 1 .x2, 1 .x3, 1 .x4, 1 .x5, 3 others"),
])  # fmt: skip
def test_counts_by_ending(names, text):
    assert skipped_text(names) == text


def test_it_is_said_once_and_by_one_of_several_processes(monkeypatch, capsys):
    for _ in range(2):
        progress.note("skipped")
    assert capsys.readouterr().err == "skipped\n"
    monkeypatch.setenv("RANK", "1")
    progress.note("another")
    assert capsys.readouterr().err == ""


def test_no_two_lists_of_endings():
    """A list of endings in another place would differ from what the decoder reads."""
    root = Path(__file__).parents[2]
    files = [file for folder in ("contml", "tasks") for file in (root / folder).rglob("*.py")]
    found = [file for file in files if '".jpeg"' in file.read_text(encoding="utf-8")]
    assert [file.name for file in found] == ["decode.py"]
