"""Label maps of a table: which files are read, the sizes of maps, classes, ignored pixels and groups of classes."""

import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from support.layouts import write_label_maps, write_table
from support.refusals import refused, refuses

from contml.data.renderers.labels import shrink
from contml.distances.segmentation import pack_maps
from contml.tasks._readers.label_maps import image_size, read_image_map
from contml.tasks.table.file import file

LISTS = {"train": [f"{k:03d}" for k in range(10)], "test": [f"{k:03d}" for k in range(10, 20)]}


@pytest.fixture
def folder(tmp_path):
    write_label_maps(tmp_path, items=20, classes=9)
    (tmp_path / "split.json").write_text(json.dumps(LISTS))
    return tmp_path


def maps(folder, missing="refuse", **options):
    labels = {"label": {"kind": "map", **options}}
    return file(str(folder / "pairs.csv"), labels, image="image", split="split.json", missing=missing)


def labels_of(folder, name):
    return np.asarray(Image.open(folder / "labels" / f"{name}.png"))


def replace(folder, name, labels, **options):
    picture = labels if isinstance(labels, Image.Image) else Image.fromarray(labels)
    picture.save(folder / "labels" / f"{name}.png", **options)


def grey_png(path, values, bits):
    """A grey PNG of 1, 2 or 4 bits, which Pillow reads and does not write."""
    height, width = values.shape
    rows = b""
    for row in values:
        text = "".join(f"{value:0{bits}b}" for value in row)
        text += "0" * (-len(text) % 8)
        rows += b"\0" + bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)))
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in (*chunks, (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    path.write_bytes(data)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_grey_of_few_bits_is_read_as_numbers(tmp_path, bits):
    values = np.random.default_rng(bits).integers(0, 1 << bits, (7, 13))
    grey_png(tmp_path / "a.png", values, bits)
    np.testing.assert_array_equal(read_image_map(tmp_path / "a.png"), values)


@pytest.mark.parametrize(
    ("saved", "got"),
    [
        (lambda path: Image.effect_noise((8, 8), 50).convert("L").save(path.with_suffix(".jpg")), "JPEG is lossy"),
        (lambda path: Image.effect_noise((8, 8), 50).save(path, "JPEG"), "JPEG is lossy"),
        (lambda path: Image.effect_noise((8, 8), 50).save(path, "WEBP"), "WEBP is lossy"),
        (
            lambda path: Image.effect_noise((8, 8), 50).save(path.with_suffix(".tif"), compression="jpeg"),
            "TIFF is lossy",
        ),
        (lambda path: Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(path), "RGB pixels"),
        (lambda path: path.write_bytes(b"PNG"), "not an image"),
        (lambda path: path.write_bytes(b""), "empty file"),
        (lambda path: None, "no such label map"),
    ],
)
def test_files_that_are_not_label_maps(tmp_path, saved, got):
    saved(tmp_path / "a.png")
    path = next(tmp_path.glob("a.*"), tmp_path / "a.png")
    refused(lambda: read_image_map(path), str(path), got)


def test_a_map_that_is_cut_short(folder):
    path = folder / "labels" / "002.png"
    path.write_bytes(path.read_bytes()[:60])
    refused(lambda: maps(folder), "002.png", "cannot be read")


def test_maps_may_have_another_size_than_their_images(folder):
    plain = maps(folder, side=24)
    for name in LISTS["train"]:
        replace(folder, name, labels_of(folder, name).repeat(3, 0).repeat(3, 1))
    assert (maps(folder, side=24).train.labels.masks == plain.train.labels.masks).all()
    refused(lambda: maps(folder, side=None), "labels/01", "[24, 32] pixels, but", hint="side")


def test_maps_of_another_shape_than_their_images_are_refused(folder):
    replace(folder, "002", labels_of(folder, "002").T.copy())
    refused(lambda: maps(folder), "002.png", "24 x 32", "002.png, 32 x 24")


def test_the_size_of_an_image_is_as_it_is_seen(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    assert image_size(tmp_path / "a.jpg") == (20, 40)
    (tmp_path / "b.jpg").write_bytes(b"broken")
    assert image_size(tmp_path / "b.jpg") is None


@pytest.mark.parametrize(("shape", "side"), [((24, 32), 112), ((37, 91), 20), ((5, 5), 5), ((4, 300), 7)])
def test_maps_shrink_as_the_label_space_shrinks_them(shape, side):
    labels = np.random.default_rng(0).integers(0, 6, shape)
    there = pack_maps(labels[None], 6, None, side)
    assert (there.masks == pack_maps(shrink(labels, side)[None], 6, None, None).masks).all()


# Classes


def test_the_number_of_classes_may_be_given(folder):
    assert maps(folder, classes=20).train.labels.masks.shape[1] == 20
    refused(lambda: maps(folder, classes=6), ".png", "class number 6", "0 to 5 with classes=6", "ignore=6")


@pytest.mark.parametrize("ignore", [0, 4, 8])
def test_ignored_pixels_do_not_count(folder, ignore):
    task = maps(folder, ignore=ignore)
    raw = shrink(labels_of(folder, "003"), 112).astype(int)
    np.testing.assert_array_equal(task.train.view.renderer.map(3), np.where(raw == ignore, -1, raw))


def test_maps_that_are_mostly_ignored_are_excluded(folder):
    labels = labels_of(folder, "012").copy()
    labels[:13] = 255
    replace(folder, "012", labels)
    refused(lambda: maps(folder, ignore=255), "pairs.csv:14", "'label' has at most half of its pixels labelled")
    task = maps(folder, ignore=255, missing="drop")
    assert (task.train.excluded, task.test.excluded) == ({}, {"without enough labelled pixels in 'label'": 1})
    assert len(task.test) == 9
    for name in LISTS["train"] + LISTS["test"]:
        replace(folder, name, np.full((24, 32), 255, np.uint8))
    refused(lambda: maps(folder, ignore=255), "ignore", "255")


def test_groups_by_a_column(folder):
    """c0 void, c1 wall, c2 floor, c3 object, c4 ceiling, c5 wall_mounted, c6 floor_cover, c7 and c8 object."""
    groups = ("wall+wall_mounted", "floor+floor_cover", "ceiling", "object")
    options = {"names": "classes.csv", "column": "surface"}
    task = maps(folder, **options, groups=groups)
    assert task.train.labels.masks.shape[1] == 4
    names = ["wall and wall_mounted", "floor and floor_cover", "ceiling", "object"]
    assert [name for _, name in task.train.view.legend] == names
    assert {part.label for part in task.train.labels.parts(0, 1)} <= set(names)
    table = np.array([-1, 0, 1, 3, 2, 0, 1, 3, 3])
    for row, name in enumerate(LISTS["train"]):
        np.testing.assert_array_equal(task.train.view.renderer.map(row), table[shrink(labels_of(folder, name), 112)])
    ignored = maps(folder, **options, groups=groups, ignore=3)
    raw = shrink(labels_of(folder, "000"), 112)
    np.testing.assert_array_equal(ignored.train.view.renderer.map(0), np.where(raw == 3, -1, table[raw]))
    every = maps(folder, **options)
    assert every.train.labels.masks.shape[1] == 7
    assert set(np.unique(every.train.view.renderer.map(0))) <= set(range(7))


def test_bad_groups(folder):
    def read(*groups):
        return maps(folder, names="classes.csv", column="surface", groups=groups)

    refused(lambda: read("wall", "walls"), "groups", "walls", "void, wall, ")
    refused(lambda: read("wall", "floor+wall"), "groups", "wall is in two groups", "one")


def test_class_numbers_that_are_not_in_the_table(folder):
    options = {"names": "classes.csv", "column": "surface"}
    replace(folder, "004", np.full((24, 32), 77, np.uint8))
    refused(lambda: maps(folder, **options), "004.png", "class number 77", "classes.csv", "ignore=77")
    assert maps(folder, **options, ignore=77, missing="drop").train.excluded == {
        "without enough labelled pixels in 'label'": 1
    }
    write_table(folder / "classes.csv", [{"id": "one", "surface": "wall"}])
    refused(lambda: maps(folder, **options), "classes.csv:2", "'one'")
    write_table(folder / "classes.csv", [{"id": 1, "surface": "wall"}] * 2)
    refused(lambda: maps(folder, **options), "classes.csv:3", "'1' appears twice")
    with refuses("classes.csv: column kind", "no such column", "id, surface", "column"):
        maps(folder, **{**options, "column": "kind"})
