"""Splits of random images, broken image files, and comparison of batches."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from contml._support import progress
from contml.data import ImageFile, ImageSource, Pixels, Split, decode, text_files
from contml.labels import NumberLabels


def split_of(items):
    """Returns a split of files, pixel arrays or image sources."""
    images = [
        ImageFile(item) if isinstance(item, Path) else item if isinstance(item, ImageSource) else Pixels(item)
        for item in items
    ]
    names = [f"images/{item.name}" if isinstance(item, Path) else f"row {row}" for row, item in enumerate(items)]
    return Split(images, names, NumberLabels(torch.zeros(len(items))))


class Shuffled:
    anchors = None

    def __init__(self, items, size, seed=0, steps=None):
        self.items, self.size, self.seed, self.steps = items, size, seed, steps or items // size

    def __len__(self):
        return self.steps

    def batch(self, epoch, step):
        if self.steps * self.size > self.items:
            return list(range(self.size))
        order = np.random.default_rng([self.seed, epoch]).permutation(self.items)
        return order[step * self.size : (step + 1) * self.size].tolist()

    def __iter__(self):
        return (self.batch(0, step) for step in range(len(self)))


def noise(count, height=40, width=40, seed=0):
    return [*np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)]


AUGMENTED = {"resize": 40, "crop": 32, "scale_jitter": 6, "shift": 5, "flip": "batch"}


def assert_same(left, right):
    left, right = list(left), list(right)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.rows, b.rows)
        assert torch.equal(a.positions, b.positions)
        assert (a.step, a.skipped) == (b.step, b.skipped)


def spoil(path, kind, monkeypatch):
    """Replaces an image file by a broken one."""
    content = path.read_bytes()
    path.unlink()
    if kind == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "text":
        path.write_text("<html>404</html>")
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "bomb":
        Image.new("L", (200, 100)).save(path)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 15_000)  # the other images have 10,800; here Pillow only warns


#: What is said about the folder of `phone` where nothing reads HEIF.
PHONE = 'skipped 40 .heic files (pip install "contml[heif]" reads them), 3 .txt, 1 other'


def phone(root):
    """A phone's folder: five JPEGs in two folders, and more that is not read."""
    for number in range(5):
        (root / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(root / "ab"[number % 2] / f"{number}.jpg")
    for number in range(40):
        (root / "ab"[number % 2] / f"IMG_{number}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    for name in ("a/1.txt", "a/2.TXT", "b/3.txt", "a/.hidden.jpg", "a/Thumbs.db", "b/desktop.ini", "b/README"):
        (root / name).write_text("no image")
    for name in (".cache/1.jpg", "__MACOSX/a/1.jpg", "a/@eaDir/1.jpg"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("no image")
    return root


def without_heif(monkeypatch):
    """As where pillow-heif is not installed; and nothing was said yet."""
    progress.note.cache_clear()
    suffixes = decode._ENDINGS["HEIF"]
    for module in (decode, text_files):
        monkeypatch.setattr(module, "IMAGE_SUFFIXES", tuple(s for s in decode.IMAGE_SUFFIXES if s not in suffixes))
        monkeypatch.setattr(module, "READ_BY", {**decode.READ_BY, **dict.fromkeys(suffixes, '"contml[heif]"')})
    monkeypatch.setattr(decode, "_MISSING", {**decode._MISSING, "HEIF": '"contml[heif]"'})
    formats = tuple(name for name in decode._FORMATS if name != "HEIF")
    monkeypatch.setattr(decode, "_formats", lambda: formats)
