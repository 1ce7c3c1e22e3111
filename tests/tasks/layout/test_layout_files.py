import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.layouts import write_label_maps, write_table
from support.paths import DATA_ROOT
from support.refusals import refuses

from contml.data import draw_queries
from contml.data.carve import with_validation
from contml.data.renderers.label_maps import shrink
from contml.distances.segmentation import pack_maps
from contml.tasks._readers.label_maps import image_size, read_image_map
from contml.tasks.layout.files import files

DATA = DATA_ROOT
LISTS = {"train": [f"{k:03d}" for k in range(10)], "test": [f"{k:03d}" for k in range(10, 20)]}


@pytest.fixture
def folder(tmp_path):
    write_label_maps(tmp_path, items=20, classes=9)
    (tmp_path / "split.json").write_text(json.dumps(LISTS))
    return tmp_path


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


# Pairs and splits


def test_pairs_by_name_with_lists(folder):
    task = files(str(folder), split="split.json")
    assert (len(task.train), len(task.test)) == (10, 10)
    assert task.train.labels.masks.shape[1] == 9
    queries = [LISTS["test"][row] for row in draw_queries(2, [f"{name}.png" for name in LISTS["test"]], 0)]
    names = [Path(task.test.name(row)).stem for row in range(10)]
    assert names == [*queries, *(name for name in LISTS["test"] if name not in queries)]
    assert task.test.queries.tolist() == [0, 1]
    assert task.train.queries is None
    rows, columns = ((2 * np.arange(112) + 1) * n // 224 for n in (24, 32))
    for row in range(10):
        expected = labels_of(folder, LISTS["train"][row])[rows[:, None], columns]
        np.testing.assert_array_equal(task.train.view.renderer.map(row), expected)
    assert task.train.draw(0, 64).size == (64, 64)


def test_pairs_by_table_with_its_split(folder):
    task = files(str(folder), pairs="pairs.csv")
    assert (len(task.train), len(task.test)) == (13, 7)
    assert task.test.queries.tolist() == [0]
    by_lists = files(str(folder), pairs="pairs.csv", split="split.json")
    assert (len(by_lists.train), len(by_lists.test)) == (10, 10)


def test_named_queries_come_first(folder):
    named = {**LISTS, "queries": ["015", "012.png"]}
    (folder / "split.json").write_text(json.dumps(named))
    task = files(str(folder), split="split.json")
    assert [Path(task.test.name(row)).stem for row in range(3)] == ["015", "012", "010"]
    assert task.test.queries.tolist() == [0, 1]
    rows = [
        {"image": f"images/{k:03d}.png", "label": f"labels/{k:03d}.png", "split": part}
        for k, part in enumerate(["train"] * 5 + ["test"] * 4 + ["query", "", "query"])
    ]
    write_table(folder / "pairs.csv", rows)
    task = files(str(folder), pairs="pairs.csv")
    assert [Path(task.test.name(row)).stem for row in range(6)] == ["009", "011", "005", "006", "007", "008"]
    assert task.test.gallery.tolist() == [2, 3, 4, 5]


def test_lists_in_text_files_and_folders_of_other_names(folder):
    (folder / "images").rename(folder / "JPEGImages")
    (folder / "labels").rename(folder / "SegmentationClass")
    lists = folder / "ImageSets"
    lists.mkdir()
    for part in ("train", "test"):
        (lists / f"{part}.txt").write_text("\n".join(LISTS[part]) + "\n\n")
    task = files(str(folder), images="JPEGImages", labels="SegmentationClass", split="ImageSets")
    assert (len(task.train), len(task.test)) == (10, 10)


def test_nested_folders(folder):
    for kind in ("images", "labels"):
        for part in ("train", "test"):
            (folder / kind / part).mkdir()
            for name in LISTS[part]:
                (folder / kind / f"{name}.png").rename(folder / kind / part / f"{name}.png")
    named = {"train": [f"train/{name}.png" for name in LISTS["train"]], "test": LISTS["test"]}
    (folder / "split.json").write_text(json.dumps(named))
    task = files(str(folder), split="split.json")
    np.testing.assert_array_equal(
        task.train.view.renderer.map(4), shrink(np.asarray(Image.open(folder / "labels" / "train" / "004.png")), 112)
    )


def test_only_images_that_are_listed_need_a_map(folder):
    Image.new("RGB", (8, 8)).save(folder / "images" / "extra.png")
    (folder / "images" / ".DS_Store").write_bytes(b"")
    assert len(files(str(folder), split="split.json").train) == 10


@pytest.mark.parametrize(
    ("lists", "fields"),
    [
        ({"train": ["000"], "test": LISTS["test"]}, {"got": "1 train, 0 val, 2 query and 8 test"}),
        ({**LISTS, "train": ["000", "001", "010"]}, {"got": "010.png"}),
        ({**LISTS, "train": ["000", "001", "001"]}, {"got": "001.png appears twice in train"}),
        ({**LISTS, "train": ["000", "001", "001.png"]}, {"got": "001.png appears twice in train"}),
        ({"train": LISTS["train"]}, {"got": "'test'", "allowed": "train, test or val, and perhaps queries"}),
        ({"train": "000", "test": []}, {"got": "'train'"}),
        ({"train": [0, 1], "test": []}, {"got": "'train'"}),
    ],
)
def test_bad_lists(folder, lists, fields):
    (folder / "split.json").write_text(json.dumps(lists))
    with refuses("split.json", **fields):
        files(str(folder), split="split.json")


def test_a_name_that_no_image_has(folder):
    (folder / "split.json").write_text(json.dumps({**LISTS, "train": ["000", "001", "nobody"]}))
    with refuses("split.json", "'nobody' of train is no image"):
        files(str(folder), split="split.json")


def test_a_name_that_two_images_have(folder):
    (folder / "images" / "more").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images" / "more" / "000.png")
    (folder / "split.json").write_text(json.dumps({**LISTS, "train": ["000", "001", "002"]}))
    with refuses("split.json", "'000' of train is 000.png or more/000.png"):
        files(str(folder), split="split.json")
    (folder / "split.json").write_text(json.dumps({**LISTS, "train": ["000.png", "001", "002"]}))
    assert Path(files(str(folder), split="split.json").train.name(0)) == folder / "images" / "000.png"


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        (
            [{"image": "a.png", "label": "b.png", "split": "vla"}],
            {"subject": "pairs.csv: a.png: split", "got": "'vla'", "allowed": "train, val, test, query"},
        ),
        (
            [{"image": "a.png", "label": "b.png"}],
            {"subject": "pairs.csv", "got": "a.png has no 'split'", "hint": "train, val, test or query"},
        ),
        (
            [{"image": "a.png", "split": "train"}],
            {"subject": "pairs.csv: column label", "got": "no such column", "allowed": "image, split"},
        ),
        (
            [{"image": "a.png", "label": "b.png", "split": "train"}] * 2,
            {"subject": "pairs.csv:3", "got": "a.png appears twice, first in line 2"},
        ),
        (
            [{"image": "a.png", "label": "b.png", "split": "test"}],
            {"subject": "pairs.csv: split", "got": "only 'test'"},
        ),
    ],
)
def test_bad_tables(folder, rows, fields):
    write_table(folder / "pairs.csv", rows)
    with refuses(**fields):
        files(str(folder), pairs="pairs.csv")


def test_a_row_without_a_label(folder):
    write_table(folder / "pairs.csv", [{"image": "a.png", "label": "", "split": "train"}])
    with refuses("pairs.csv:2", "no label"):
        files(str(folder), pairs="pairs.csv")


def test_broken_tables(folder):
    (folder / "pairs.csv").write_text("image,label,split\na.png,b.png\n")
    with refuses("pairs.csv:2", got="2 cells, but the header has 3"):
        files(str(folder), pairs="pairs.csv")
    (folder / "pairs.csv").write_bytes(b"image,label\n\xff\xfe")
    with refuses("pairs.csv:2", got="utf-8"):
        files(str(folder), pairs="pairs.csv")
    (folder / "pairs.csv").write_text("\ufeffimage,label,split\n" + "a.png,b.png,\n" * 1, encoding="utf-8")
    with refuses("pairs.csv: split", got="only empty cells"):
        files(str(folder), pairs="pairs.csv")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, ("split", "null")),
        ({"split": "split.json", "images": "pictures"}, ("pictures", "no such folder", "", "images and labels")),
        ({"split": "split.json", "images": "."}, ("split.json", "'000' of train is images/000.png or labels/000.png")),
        ({"split": "split.json", "names": "classes.csv"}, ("names, column and groups",)),
        ({"split": "split.json", "groups": ("a",)}, ("names, column and groups",)),
        (
            {"split": "split.json", "names": "classes.csv", "column": "name", "classes": 4},
            ("classes", "4", "null with names"),
        ),
    ],
)
def test_bad_options(folder, options, fields):
    with refuses(*fields):
        files(str(folder), **options)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"split": "nowhere"}, {"subject": "nowhere", "hint": "split"}),
        ({"split": "images"}, {"subject": "images", "got": "no list 'train'"}),
        ({"pairs": "none.csv"}, {"subject": "none.csv", "hint": "pairs"}),
        ({"split": "split.json", "side": 0}, {"subject": "side", "got": "0", "allowed": "1"}),
    ],
)
def test_bad_options_that_all_tasks_check(folder, options, fields):
    with refuses(**fields):
        files(str(folder), **options)


def test_missing_files_are_named(folder):
    with refuses("root", got=str(folder / "none")):
        files(str(folder / "none"))
    (folder / "labels" / "003.png").unlink()
    with refuses("labels/003.png", "no such label map"):
        files(str(folder), split="split.json")
    with refuses("labels/003.png", "no such label map", origin="pairs.csv:5"):
        files(str(folder), pairs="pairs.csv")
    (folder / "images" / "001.png").unlink()
    with refuses("images/001.png", "no such image", origin="pairs.csv:3"):
        files(str(folder), pairs="pairs.csv")


def test_images_in_several_folders(folder):
    whole = files(str(folder), split="split.json")
    (folder / "rest").mkdir()
    for path in sorted((folder / "images").iterdir())[::3]:
        path.rename(folder / "rest" / path.name)
    with refuses("split.json", "'000' of train is no image"):
        files(str(folder), split="split.json")
    Image.new("RGB", (32, 24)).save(folder / "rest" / "001.png")  # the first folder has one of this name
    task = files(str(folder), split="split.json", images=["images", "rest"])
    assert [Path(name).parent.name for name in task.train.names[:4]] == ["rest", "images", "images", "rest"]
    assert [Path(name).name for name in task.train.names] == [Path(name).name for name in whole.train.names]
    assert (task.train.labels.pairwise() == whole.train.labels.pairwise()).all()


def test_two_files_of_one_name(folder):
    Image.new("RGB", (8, 8)).save(folder / "images" / "004.jpg")
    with refuses("004.png", "004.jpg"):
        files(str(folder), split="split.json")


# Maps


def palette(labels):
    picture = Image.fromarray(labels)
    picture.putpalette(np.random.default_rng(0).integers(0, 255, 768).astype(np.uint8).tolist())
    return picture


@pytest.mark.parametrize(
    "saved",
    [
        palette,
        lambda labels: Image.fromarray(labels.astype(np.uint16) + 0),
        lambda labels: Image.merge("RGB", [Image.fromarray(labels)] * 3),
        lambda labels: Image.merge("RGBA", [Image.fromarray(labels)] * 4),
        lambda labels: Image.merge("LA", [Image.fromarray(labels)] * 2),
    ],
    ids=["palette", "16 bits", "RGB", "RGBA", "grey and alpha"],
)
def test_maps_of_other_pixels(folder, saved):
    plain = files(str(folder), split="split.json")
    for name in LISTS["train"]:
        replace(folder, name, saved(labels_of(folder, name)))
    task = files(str(folder), split="split.json")
    assert (task.train.labels.masks == plain.train.labels.masks).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_grey_of_few_bits_is_read_as_numbers(tmp_path, bits):
    values = np.random.default_rng(bits).integers(0, 1 << bits, (7, 13))
    grey_png(tmp_path / "a.png", values, bits)
    np.testing.assert_array_equal(read_image_map(tmp_path / "a.png"), values)


def test_palette_of_few_bits_is_read_as_numbers(tmp_path):
    values = np.random.default_rng(0).integers(0, 4, (7, 13)).astype(np.uint8)
    palette(values).save(tmp_path / "a.png", bits=2)
    np.testing.assert_array_equal(read_image_map(tmp_path / "a.png"), values)


def test_sixteen_bits_keep_large_numbers(tmp_path):
    values = np.array([[0, 300], [65535, 7]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
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
        (
            lambda path: Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(path),
            "RGB pixels",
        ),
        (lambda path: path.write_bytes(b"PNG"), "not an image"),
        (lambda path: path.write_bytes(b""), "empty file"),
        (lambda path: None, "no such label map"),
    ],
)
def test_files_that_are_not_label_maps(tmp_path, saved, got):
    saved(tmp_path / "a.png")
    path = next(tmp_path.glob("a.*"), tmp_path / "a.png")
    with refuses(str(path), got):
        read_image_map(path)


def test_a_map_that_is_cut_short(folder):
    path = folder / "labels" / "002.png"
    path.write_bytes(path.read_bytes()[:60])
    with refuses("002.png", "cannot be read"):
        files(str(folder), split="split.json")


def test_maps_may_have_another_size_than_their_images(folder):
    plain = files(str(folder), split="split.json", side=24)
    for name in LISTS["train"]:
        replace(folder, name, labels_of(folder, name).repeat(3, 0).repeat(3, 1))
    task = files(str(folder), split="split.json", side=24)
    assert (task.train.labels.masks == plain.train.labels.masks).all()
    with refuses("labels/01", "[24, 32]", "000.png is [72, 96]", "set side"):
        files(str(folder), split="split.json", side=None)


def test_maps_of_another_shape_than_their_images_are_refused(folder):
    replace(folder, "002", labels_of(folder, "002").T.copy())
    with refuses("002.png", "24 x 32", "002.png, 32 x 24"):
        files(str(folder), split="split.json")


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
    here = pack_maps(shrink(labels, side)[None], 6, None, None)
    assert (there.masks == here.masks).all()


# Classes


def test_the_number_of_classes_may_be_given(folder):
    assert files(str(folder), split="split.json", classes=20).train.labels.masks.shape[1] == 20
    with refuses(".png", "class number 6", "0 to 5 with classes=6", "ignore=6"):
        files(str(folder), split="split.json", classes=6)


@pytest.mark.parametrize("ignore", [0, 4, 8])
def test_ignored_pixels_do_not_count(folder, ignore):
    task = files(str(folder), split="split.json", ignore=ignore)
    raw = shrink(labels_of(folder, "003"), 112).astype(int)
    np.testing.assert_array_equal(task.train.view.renderer.map(3), np.where(raw == ignore, -1, raw))


def test_a_usual_mark_of_no_class_must_be_ignored_or_counted(folder):
    labels = labels_of(folder, "005").copy()
    labels[:4] = 255
    replace(folder, "005", labels)
    with refuses("005.png", "class number 255", "classes=256", "ignore=255"):
        files(str(folder), split="split.json")
    task = files(str(folder), split="split.json", ignore=255)
    assert task.train.labels.masks.shape[1] == 9
    assert (task.train.view.renderer.map(5)[:16] == -1).all()
    assert files(str(folder), split="split.json", classes=256).train.labels.masks.shape[1] == 256


def test_maps_that_are_mostly_ignored_are_excluded(folder):
    labels = labels_of(folder, "012").copy()
    labels[:13] = 255
    replace(folder, "012", labels)
    task = files(str(folder), split="split.json", ignore=255)
    assert (task.train.excluded, task.test.excluded) == ({}, {"without enough labelled pixels": 1})
    assert len(task.test) == 9
    for name in LISTS["train"] + LISTS["test"]:
        replace(folder, name, np.full((24, 32), 255, np.uint8))
    with refuses("ignore", "255"):
        files(str(folder), split="split.json", ignore=255)


def test_groups_by_a_column(folder):
    """c0 void, c1 wall, c2 floor, c3 object, c4 ceiling, c5 wall_mounted, c6 floor_cover, c7 and c8 object."""
    groups = ("wall+wall_mounted", "floor+floor_cover", "ceiling", "object")
    options = {"split": "split.json", "names": "classes.csv", "column": "surface"}
    task = files(str(folder), **options, groups=groups)
    assert task.train.labels.masks.shape[1] == 4
    names = ["wall and wall_mounted", "floor and floor_cover", "ceiling", "object"]
    assert [name for _, name in task.train.view.legend] == names
    assert {part.label for part in task.train.labels.parts(0, 1)} <= set(names)
    table = np.array([-1, 0, 1, 3, 2, 0, 1, 3, 3])
    for row, name in enumerate(LISTS["train"]):
        np.testing.assert_array_equal(task.train.view.renderer.map(row), table[shrink(labels_of(folder, name), 112)])
    ignored = files(str(folder), **options, groups=groups, ignore=3)
    raw = shrink(labels_of(folder, "000"), 112)
    np.testing.assert_array_equal(ignored.train.view.renderer.map(0), np.where(raw == 3, -1, table[raw]))
    every = files(str(folder), **options)
    assert every.train.labels.masks.shape[1] == 7
    assert set(np.unique(every.train.view.renderer.map(0))) <= set(range(7))


@pytest.mark.parametrize(
    ("groups", "got", "allowed"),
    [
        (("wall", "walls"), "walls", "'surface'"),
        (("wall", "walls"), "walls", "void, wall, "),
        (("wall", "floor+wall"), "wall is in two groups", "one"),
    ],
)
def test_bad_groups(folder, groups, got, allowed):
    with refuses("groups", got, allowed):
        files(str(folder), split="split.json", names="classes.csv", column="surface", groups=groups)


def test_class_numbers_that_are_not_in_the_table(folder):
    options = {"split": "split.json", "names": "classes.csv", "column": "surface"}
    replace(folder, "004", np.full((24, 32), 77, np.uint8))
    with refuses("004.png", "class number 77", "classes.csv", "ignore=77"):
        files(str(folder), **options)
    assert files(str(folder), **options, ignore=77).train.excluded == {"without enough labelled pixels": 1}
    write_table(folder / "classes.csv", [{"id": "one", "surface": "wall"}])
    with refuses("classes.csv:2", "'one'"):
        files(str(folder), **options)
    write_table(folder / "classes.csv", [{"id": 1, "surface": "wall"}] * 2)
    with refuses("classes.csv:3", "'1' appears twice"):
        files(str(folder), **options)
    with refuses("classes.csv: column kind", "no such column", "id, surface", "set column"):
        files(str(folder), **{**options, "column": "kind"})


# Real data


@pytest.mark.skipif(not (DATA / "rooms_nyuv2").is_dir(), reason="no pack rooms_nyuv2; name its folder in CONTML_DATA")
def test_real_rooms_by_surface():
    groups = ("wall+wall_mounted", "floor+floor_cover", "ceiling", "object")
    task = files(
        str(DATA / "rooms_nyuv2"), "pairs.csv", ignore=0, names="classes.csv", column="surface", groups=groups, side=60
    )
    excluded = [sum(split.excluded.values()) for split in (task.train, task.test)]
    assert len(task.train) + excluded[0] == 795
    assert len(task.test) + excluded[1] == 654
    assert sum(excluded) < 40
    assert task.train.labels.masks.shape[1] == 4
    mean = task.train.labels.pairwise().mean()
    assert 0.68 < mean < 0.75, "its README gives 1 - 0.288"


@pytest.mark.skipif(
    not (DATA / "labelmaps_camvid").is_dir(), reason="no pack labelmaps_camvid; name its folder in CONTML_DATA"
)
def test_real_streets():
    task = files(str(DATA / "labelmaps_camvid"), "pairs.csv", ignore=11, side=60)
    assert (len(task.train), len(task.test)) == (367, 233)
    assert task.train.labels.masks.shape[1] == 11
    distances = task.train.labels.pairwise()
    assert 0.8 < distances.mean() < 0.86, "its README gives 1 - 0.17"
    neighbours = distances.diagonal(1)
    assert neighbours.mean() < 0.65, "frames beside each other are near copies"


# Groups


def grouped(folder, **options):
    """Twelve training and eight test images in two videos each; frames 3 and 4 follow each other in training."""
    rows = [
        {
            "image": f"images/{k:03d}.png",
            "label": f"labels/{k:03d}.png",
            "split": "test" if k >= 12 else "train",
            "video": "ab"[k % 2] if k < 12 else "bc"[k % 2],
            "number": [5, 3, 4, 9, 8, 20, 30, 31, 32, 50, 51, 60, 6, 7, 10, 11, 12, 13, 40, 2][k],
        }
        for k in range(20)
    ]
    write_table(folder / "pairs.csv", rows)
    return files(str(folder), pairs="pairs.csv", **options)


def test_validation_does_not_divide_a_group(folder):
    task = grouped(folder, group="video")
    assert task.val_groups == ["a", "b"] * 6
    assert not task.test.exclude_group
    drawn = with_validation(task, task.train.names, share=0.5)
    videos = [{int(Path(name).stem) % 2 for name in split.names} for split in (drawn.train, drawn.val)]
    assert sorted(videos, key=str) == [{0}, {1}]
    assert grouped(folder).val_groups is None


def test_frames_of_a_split_that_follow_each_other_are_a_group(folder):
    """Frame 6 and 7 are test images between the training images 5 and 8: these are two groups."""
    task = grouped(folder, frame="number")
    frame = {name: [5, 3, 4, 9, 8, 20, 30, 31, 32, 50, 51, 60][int(Path(name).stem)] for name in task.train.names}
    groups = {}
    for name, group in zip(task.train.names, task.val_groups, strict=True):
        groups.setdefault(group, set()).add(frame[name])
    assert sorted(map(sorted, groups.values())) == [[3, 4, 5], [8, 9], [20], [30, 31, 32], [50, 51], [60]]


def test_a_query_does_not_find_its_own_group(folder):
    task = grouped(folder, group="video", exclude_group=True)
    for split in (task.train, task.test):
        videos = [int(Path(name).stem) % 2 for name in split.names]
        same = split.groups[:, None] == split.groups
        assert same.tolist() == [[a == b for b in videos] for a in videos]
        assert split.exclude_group
    kept = grouped(folder, group="video")
    assert kept.test.groups.tolist() == task.test.groups.tolist()
    assert not kept.test.exclude_group


def test_chunks_of_a_video(folder):
    """Of six training images of video a, with numbers in their names that are not in the order of the table."""
    numbers = [10, 2, 9, 1, 30, 12]
    names = [f"images/{'ab'[k >= 6]}{(numbers * 2)[k % 12]}.png" for k in range(12)]
    rows = [{"split": "train", "video": "ab"[k >= 6], "image": names[k]} for k in range(12)]
    rows += [
        {"split": "query" if k == 13 else "test", "video": "c", "image": f"images/{k:03d}.png"} for k in range(12, 20)
    ]
    for k, row in enumerate(rows):
        row["label"] = f"labels/{k:03d}.png"
        if k < 12:
            (folder / "images" / f"{k:03d}.png").rename(folder / row["image"])
    write_table(folder / "pairs.csv", rows)
    task = files(str(folder), pairs="pairs.csv", group="video", chunk=2, gap=1, exclude_group=True)
    chunks = {}
    for name, group in zip(task.train.names, task.train.groups.tolist(), strict=True):
        chunks.setdefault(group, []).append(Path(name).stem)
    assert sorted(map(sorted, chunks.values())) == [["a1", "a2"], ["a10", "a12"], ["b1", "b2"], ["b10", "b12"]]
    assert len(set(task.val_groups)) == 4
    assert task.train.excluded == {"between chunks": 4}, "a9, a30, b9, b30"
    assert [Path(name).stem for name in task.test.names] == ["013", "012", "015", "016", "018", "019"]
    assert task.test.groups.tolist() == [0, 0, 1, 1, 2, 2], "the query is in the chunk of 012"
    assert task.test.excluded == {"between chunks": 2}
    whole = files(str(folder), pairs="pairs.csv", group="video", chunk=2)
    assert (len(whole.train), whole.train.excluded, len(set(whole.val_groups))) == (12, {}, 6)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"group": "video", "frame": "number"}, {"subject": "group and frame"}),
        ({"exclude_group": True}, {"subject": "exclude_group", "hint": "frame"}),
        ({"frame": "number", "chunk": 2}, {"subject": "chunk", "got": "2", "hint": "group"}),
        ({"group": "video", "gap": 2}, {"subject": "gap", "got": "2", "hint": "chunk"}),
        ({"group": "video", "chunk": 1, "gap": 20}, {"subject": "pairs.csv", "got": "0 query"}),
        ({"group": "vide"}, {"subject": "column vide", "allowed": "video"}),
        ({"frame": "video"}, {"subject": "frame", "got": "'a'", "origin": "pairs.csv:2"}),
    ],
)
def test_wrong_groups(folder, options, fields):
    with refuses(**fields):
        grouped(folder, **options)


def test_a_group_needs_the_csv_file_and_a_cell_in_each_row(folder):
    with refuses(subject="frame", got="no pairs", hint="CSV"):
        files(str(folder), split="split.json", frame="number")
    write_table(
        folder / "pairs.csv", [{"image": "images/000.png", "label": "labels/000.png", "split": "train", "v": ""}]
    )
    with refuses(subject="pairs.csv:2: v", got="empty"):
        files(str(folder), pairs="pairs.csv", group="v")
