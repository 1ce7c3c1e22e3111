"""The published class data sets: official layouts, splits, counts and traps; what is wrong with a copy in one line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from class_layouts import (
    CARS_CLASSES,
    records,
    write_cars_new,
    write_cars_old,
    write_cub,
    write_inshop,
    write_sop,
)
from contml.tasks.classes import CUB, SOP, TASKS, Cars, InShop, cars, cub, inshop, sop
from contml.tasks.classes.reading import Published
from PIL import Image
from scipy.io import loadmat, savemat

from contml.contracts import InputError, Split, Task
from contml.experiment import load

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[3] / "shared" / "data"))

#: Of each data set: reader, module with the published counts, what writes it, and what the miniature has.
SETS = {
    "cub": (CUB, cub, write_cub, {"train": (40, 8, range(1, 9)), "test": (20, 4, range(101, 105))}),
    "cars_old": (Cars, cars, write_cars_old, {"train": (40, 8, range(1, 9)), "test": (20, 4)}),
    "cars_new": (Cars, cars, write_cars_new, {"train": (40, 8, range(1, 9)), "test": (20, 4)}),
    "sop": (SOP, sop, write_sop, {"train": (40, 8, range(1, 9)), "test": (20, 4, range(11319, 11323))}),
    "inshop": (InShop, inshop, write_inshop, {"train": (40, 8), "query": (8, 4), "gallery": (12, 4)}),
}


def published(monkeypatch, name, **changed):
    """The miniature's counts in the place of the official ones."""
    _, module, _, counts = SETS[name]
    monkeypatch.setattr(module, "PUBLISHED", {part: Published(*own) for part, own in (counts | changed).items()})


@pytest.fixture(params=SETS)
def whole(request, tmp_path, monkeypatch):
    """Each miniature with its counts: name, reader, folder."""
    SETS[request.param][2](tmp_path)
    published(monkeypatch, request.param)
    return request.param, SETS[request.param][0], tmp_path


def line_of(reader, root, **options):
    with pytest.raises(InputError) as error:
        reader(str(root), **options)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(f"{root}/", "")


def edit(path, change):
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in change(lines)))


def test_official_counts():
    assert [cub.PUBLISHED[part][:2] for part in ("train", "test")] == [(5864, 100), (5924, 100)]
    assert [cars.PUBLISHED[part][:2] for part in ("train", "test")] == [(8054, 98), (8131, 98)]
    assert [sop.PUBLISHED[part][:2] for part in ("train", "test")] == [(59551, 11318), (60502, 11316)]
    assert inshop.PUBLISHED == {
        "train": (25882, 3997, None),
        "query": (14218, 3985, None),
        "gallery": (12612, 3985, None),
    }
    for module, total in ((cub, 11788), (cars, 16185), (sop, 120053), (inshop, 52712)):
        assert sum(counts.images for counts in module.PUBLISHED.values()) == total
        for counts in module.PUBLISHED.values():
            assert counts.ids is None or len(counts.ids) == counts.classes


def test_a_complete_copy(whole):
    name, reader, root = whole
    task = reader(str(root))
    assert isinstance(task, Task)
    assert (len(task.train), len(task.test)) == (40, 20)
    for split in (task.train, task.test):
        assert isinstance(split, Split)
        assert split.missing == 0
        assert split.labels.classes.bincount().tolist() == [5] * (8 if split is task.train else 4)
        for row in (0, len(split) - 1):
            assert split.image(row).is_file()
            assert split.name(row) == str(split.image(row))
            assert split.draw(row, 32).size == (32, 32)
    # What is on the pictures says that class and file belong together: one colour a class.
    for split in (task.train, task.test):
        colours = torch.tensor(np.stack([np.asarray(Image.open(file)).mean((0, 1)) for file in split.images]))
        for number in split.labels.classes.unique():
            assert colours[split.labels.classes == number].std(0).max() < 5
    assert len(set(task.train.class_names) | set(task.test.class_names)) == 12
    assert (task.test.queries is None) == (name != "inshop")


def test_the_folder_around_does_as_well(tmp_path, monkeypatch):
    for name in ("cub", "sop"):
        root = SETS[name][2](tmp_path)
        published(monkeypatch, name)
        reader = SETS[name][0]
        assert reader(str(root)).train.names == reader(str(tmp_path)).train.names


def test_an_epoch_and_an_evaluation(whole, tmp_path):
    name, reader, root = whole
    task = next(task for task, constructor in TASKS.items() if constructor is reader)
    changes = [f"task=classes/{task}", f"task.root={root}", "images.resize=36", "images.crop=32", "model.dim=16"]
    changes += ["sampler.classes=6", "sampler.instances=4", "sampler.batches=3", "training.epochs=1"]
    experiment = load("classes/synthetic", changes)
    trainer = experiment.build_trainer(experiment.build_task(), quiet=True)
    trainer.fit()
    evaluation = trainer.result[0]
    assert (evaluation.queries, evaluation.gallery) == ((8, 12) if name == "inshop" else (20, 20))
    assert evaluation.curves["recall"].model[0] > 0.5  # colours alone tell them apart


# CUB-200-2011


def test_cub_is_split_by_species_and_joined_by_image(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    before = CUB(str(root))
    assert before.train.class_names[0] == "Black footed Bird 1"
    assert before.test.class_names[0] == "Black footed Bird 101"
    for file in ("image_class_labels.txt", "train_test_split.txt", "classes.txt", "bounding_boxes.txt"):
        edit(root / file, reversed)
    edit(root / "train_test_split.txt", lambda lines: [f"{line.split()[0]} 0" for line in lines])
    after = CUB(str(root))
    assert after.train.names == before.train.names
    assert torch.equal(after.test.labels.classes, before.test.labels.classes)


def test_files_that_a_mac_leaves_are_no_images(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    for path in list((root / "images").glob("*/*.jpg")):
        (path.parent / f"._{path.name}").write_bytes(b"\0\5\26\7 Mac OS X")
    (root / "._images.txt").write_bytes(b"\0\5\26\7")
    assert len(CUB(str(tmp_path)).train) == 40


def test_boxes_of_birds(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    task = CUB(str(root), crop_boxes=True)
    path = Path(task.train.name(0))
    picture = task.train.image(0)  # x y width height, not x2 y2: "3.0 3.0 16.0 12.0"
    assert picture.size == (16, 12)
    assert np.array_equal(np.asarray(picture), np.asarray(Image.open(path).crop((3, 3, 19, 15))))
    assert task.train.source(0) == (path, "box (3.0, 3.0, 19.0, 15.0)")
    assert CUB(str(root)).train.source(0) == (path, "")
    assert CUB(str(root)).train.image(0) == path
    assert task.train.draw(0, 40).size == (40, 40)
    edit(root / "bounding_boxes.txt", lambda lines: ["1 20.0 3.0 160.0 12.4", "2 90.0 3.0 9.0 9.0", *lines[2:]])
    task = CUB(str(root), crop_boxes=True)
    assert task.train.image(0).size == (8, 12)  # ends where the image does
    with pytest.raises(OSError, match=r"its box \(90, 3, 99, 12\) shows nothing of 28 x 22 pixels"):
        task.train.image(1)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "images.txt",
            lambda lines: lines[:-5],
            "image_class_labels.txt: has image 56, one of 5 that images.txt lacks; get images.txt again",
        ),
        (
            "image_class_labels.txt",
            lambda lines: lines[:-5],
            "image_class_labels.txt: has no image 56 (104.Black_footed_Bird_104/Black_Footed_Bird_104_0001_7.jpg), one "
            "of 5 that it lacks of the 60 in images.txt; get the list again",
        ),
        (
            "image_class_labels.txt",
            lambda lines: ["1 2", *lines[1:]],
            "images.txt: image 1 is 001.Black_footed_Bird_1/Black_Footed_Bird_1_0001_7.jpg, but of class 2, "
            "002.Black_footed_Bird_2, as image_class_labels.txt says; the lists are not of one copy",
        ),
        ("image_class_labels.txt", lambda lines: ["1 0", *lines[1:]], "image_class_labels.txt:1: class_id is '0'; it"),
        (
            "image_class_labels.txt",
            lambda lines: ["1 1", *lines],
            "image_class_labels.txt:2: image_id 1 stands in line 1",
        ),
        ("images.txt", lambda lines: ["1", *lines[1:]], "images.txt:1: is '1'; a row is image_id image_name"),
        (
            "images.txt",
            lambda lines: ["x y", *lines[1:]],
            "images.txt:1: image_id is 'x'; it must be a whole number from",
        ),
        ("classes.txt", lambda lines: lines[:100], "classes.txt: has no class 101, but image 41 is of it (101.Black"),
        (
            "bounding_boxes.txt",
            lambda lines: ["1 2.0 3.0 4.0", *lines[1:]],
            "bounding_boxes.txt:1: is '1 2.0 3.0 4.0'; a",
        ),
        ("bounding_boxes.txt", lambda lines: lines[1:], "bounding_boxes.txt: has no image 1 (001.Black_footed_Bird_1/"),
    ],
)
def test_damaged_lists_of_birds(tmp_path, monkeypatch, file, change, message):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    edit(root / file, change)
    assert message in line_of(CUB, root, crop_boxes=True)


def test_a_short_copy_of_birds(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    assert line_of(CUB, root) == (
        "images.txt: lists 40 train images of 8 classes (no 9, 10, 11, ...), published are 5,864 of 100; "
        "get the list again, or set task.complete=false to take what it has"
    )
    published(monkeypatch, "cub")
    for file in ("images.txt", "image_class_labels.txt"):
        edit(root / file, lambda lines: lines[:-1])
    assert line_of(CUB, root).startswith("images.txt: lists 19 test images of 4 classes, published are 20 of 4; get")
    assert len(CUB(str(root), complete=False).test) == 19


# Cars-196


def test_cars_in_both_layouts_are_the_same(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path)
    old = Cars(str(tmp_path))
    assert {Path(name).parent.name for name in old.train.names} == {"car_ims"}
    write_cars_new(tmp_path)
    assert Cars(str(tmp_path)).train.names == old.train.names  # the older layout where both are there
    new = Cars(str(tmp_path), layout="devkit")
    assert new.train.class_names == old.train.class_names
    assert (
        new.test.class_names
        == old.test.class_names
        == [
            "Model 99 Sedan 2012",
            "Model 100 Sedan 2012",
            "Ram C/V Cargo Van Minivan 2012",
            "Model 196 Sedan 2012",
        ]
    )
    assert new.train.labels.classes.bincount().tolist() == old.train.labels.classes.bincount().tolist()
    # Both halves hold the same names; the split is by model, over both.
    for split in (new.train, new.test):
        assert {Path(name).parent.name for name in split.names} == {"cars_train", "cars_test"}
    assert len(set(new.train.names)) == 40 > len({Path(name).name for name in new.train.names})


def test_the_closed_set_split_of_cars_is_not_used(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path)
    before = Cars(str(tmp_path))
    found = loadmat(tmp_path / "cars_annos.mat")
    for record in found["annotations"].ravel():
        record["test"] = np.array([[1]], np.uint8)
    savemat(tmp_path / "cars_annos.mat", {name: found[name] for name in ("annotations", "class_names")})
    after = Cars(str(tmp_path))
    assert (after.train.names, after.test.names) == (before.train.names, before.test.names)


def test_boxes_of_cars_do_not_wrap_round(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path, wide=True)
    stored = loadmat(tmp_path / "cars_annos.mat")["annotations"][0, 1]
    assert (stored["bbox_x1"].dtype, stored["bbox_x2"].dtype) == (np.uint8, np.uint16)
    task = Cars(str(tmp_path), crop_boxes=True)
    assert task.train.boxes[:2] == [(3, 2, 298, 259), (0, 0, 300, 260)]  # 1-based: 1 is the first pixel
    assert task.train.image(1).size == (300, 260)
    assert task.train.image(0).size == (295, 257)
    assert Cars(str(tmp_path)).train.boxes is None


def test_nested_folders_of_cars(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path)
    names = Cars(str(tmp_path)).train.names
    for half in ("cars_train", "cars_test"):
        (tmp_path / half).rename(tmp_path / "inner")
        (tmp_path / half).mkdir()
        (tmp_path / "inner").rename(tmp_path / half / half)
    assert [Path(n).name for n in Cars(str(tmp_path)).train.names] == [Path(n).name for n in names]
    (tmp_path / "car_devkit").mkdir()
    (tmp_path / "devkit").rename(tmp_path / "car_devkit/devkit")
    assert len(Cars(str(tmp_path)).train) == 40
    (tmp_path / "cars_test_annos_withlabels.mat").rename(tmp_path / "car_devkit/devkit/cars_test_annos_withlabels.mat")
    assert len(Cars(str(tmp_path)).test) == 20


def test_cars_without_the_labels_of_the_test_half(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path, labelled=False)
    assert line_of(Cars, tmp_path) == (
        "cars_test_annos_withlabels.mat: no such file; it has the models of cars_test, which "
        "devkit/cars_test_annos.mat has not; get it, or set task.complete=false to take cars_train alone"
    )
    task = Cars(str(tmp_path), complete=False)
    assert (len(task.train), len(task.test)) == (24, 12)
    assert {Path(name).parent.name for name in task.test.names} == {"cars_train"}


def change_records(path, fields=None, **values):
    found = loadmat(path)
    table = found["annotations"]
    if fields is not None:
        kept = np.zeros(table.shape, dtype=[(field, object) for field in fields])
        for field in fields:
            kept[field] = table[field]
        table = kept
    for field, value in values.items():
        table[0, 2][field] = value
    savemat(path, {"annotations": table, "class_names": found["class_names"]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"fields": ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "test")},
            "cars_annos.mat: its records have no field 'class' (they have relative_im_path, bbox_x1, bbox_y1, bbox_x2, "
            "bbox_y2, test)",
        ),
        (
            {"class": np.array([[197]])},
            "cars_annos.mat: record 3 (car_ims/000003.jpg): class is 197; there are 1 to 196",
        ),
        ({"class": np.array([[2.5]])}, "cars_annos.mat: record 3: 'class' is no whole number ([2.5])"),
        ({"bbox_x1": np.zeros((0, 0))}, "cars_annos.mat: record 3: 'bbox_x1' is no whole number ([])"),
        ({"relative_im_path": np.zeros((0, 0))}, "cars_annos.mat: record 3: 'relative_im_path' is no name ([])"),
        ({"relative_im_path": "car_ims/000001.jpg"}, "record 3: car_ims/000001.jpg stands in record 1 as well"),
    ],
)
def test_damaged_records_of_cars(tmp_path, monkeypatch, change, message):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path)
    change_records(tmp_path / "cars_annos.mat", **change)
    assert message in line_of(Cars, tmp_path)


def test_damaged_files_of_cars(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path)
    path = tmp_path / "devkit/cars_train_annos.mat"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "devkit/cars_train_annos.mat: not a readable MATLAB file (" in line_of(Cars, tmp_path)
    savemat(path, {"something": np.zeros(3)})
    assert "cars_train_annos.mat: has no struct array 'annotations' (it has something)" in line_of(Cars, tmp_path)
    savemat(path, {"annotations": records(("fname", "class"), [("00001.jpg", 1)])})
    assert "its records have no field 'bbox_x1' (they have fname, class)" in line_of(Cars, tmp_path)
    path.unlink()
    assert "cars_train_annos.mat: no such file; the folder of Cars-196 needs it" in line_of(Cars, tmp_path)
    savemat(tmp_path / "devkit/cars_meta.mat", {"names": np.zeros(3)})
    assert "cars_meta.mat: has no cell array 'class_names' (it has names)" in line_of(Cars, tmp_path)


def test_a_short_list_of_cars(tmp_path, monkeypatch):
    write_cars_old(tmp_path, classes=[*CARS_CLASSES[:7], *CARS_CLASSES[8:]])
    published(monkeypatch, "cars_old")
    assert line_of(Cars, tmp_path) == (
        "cars_annos.mat: lists 35 train images of 7 classes (no 8), published are 40 of 8; get the list "
        "again, or set task.complete=false to take what it has"
    )
    assert len(Cars(str(tmp_path), complete=False).train) == 35


@pytest.mark.skipif(
    not (DATA / "cars196_small").is_dir(), reason="no pack cars196_small: set CONTML_DATA to its folder"
)
def test_the_published_devkit(tmp_path, monkeypatch):
    """The true files: 8,144 labelled records, of which the pack has some pictures under other names."""
    (tmp_path / "devkit").symlink_to(DATA / "cars196_small/devkit")
    (tmp_path / "cars_train").mkdir()
    for number in range(1, 8145):
        (tmp_path / f"cars_train/{number:05d}.jpg").touch()
    task = Cars(str(tmp_path), complete=False, crop_boxes=True)
    assert (len(task.train), len(task.test)) == (4052, 4092)
    assert (len(task.train.class_names), len(task.test.class_names)) == (98, 98)
    assert "Ram C/V Cargo Van Minivan 2012" in task.test.class_names
    names = [Path(name).name for name in task.train.names]
    row = names.index("00001.jpg")  # the first record: x 39 to 569, class 14
    assert task.train.boxes[row] == (38, 115, 569, 375)
    assert task.train.class_names[int(task.train.labels.classes[row])] == "Audi TTS Coupe 2012"
    # The miniature's fields and types are those of the true file.
    (tmp_path / "mine").mkdir()
    write_cars_new(tmp_path / "mine")
    mine, true = (loadmat(p / "devkit/cars_train_annos.mat")["annotations"] for p in (tmp_path / "mine", tmp_path))
    assert mine.dtype.names == true.dtype.names
    for field in true.dtype.names:
        assert mine[0, 0][field].dtype.kind == true[0, 0][field].dtype.kind
        assert mine[0, 0][field].shape == true[0, 0][field].shape


# Stanford Online Products


def test_products(tmp_path, monkeypatch):
    root = write_sop(tmp_path)
    published(monkeypatch, "sop")
    task = SOP(str(root))
    assert all(name.endswith(".JPG") for name in task.train.names)
    assert task.train.class_names[:2] == ["cabinet 1", "chair 2"]
    assert task.train.class_names[2] == "coffee maker 3"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "Ebay_train.txt",
            lambda lines: lines[1:],
            "Ebay_train.txt:1: is '1 1 2 cabinet_final/111085122872_0.JPG'; the line begins the file with "
            "'image_id class_id super_class_id path'",
        ),
        (
            "Ebay_train.txt",
            lambda lines: [],
            "Ebay_train.txt:1: is ''; the line begins the file with 'image_id class_id",
        ),
        (
            "Ebay_train.txt",
            lambda lines: lines[:-5],
            "Ebay_train.txt: lists 35 train images of 7 classes (no 8), published are 40 of 8; get the list",
        ),
        (
            "Ebay_test.txt",
            lambda lines: lines[:-1],
            "Ebay_test.txt: lists 19 test images of 4 classes, published are 20 of",
        ),
        ("Ebay_test.txt", lambda lines: [*lines[:-1], lines[-1][:9]], "Ebay_test.txt:21: is '60 11322 '"),
        (
            "Ebay_test.txt",
            lambda lines: [*lines, lines[-1]],
            "Ebay_test.txt:22: lamp_final/111085134193_4.JPG stands in",
        ),
        (
            "Ebay_test.txt",
            lambda lines: [*lines, "61 5 6 kettle_final/x.JPG"],
            "Ebay_test.txt: 1 products stand in Ebay_train.txt as well, class_id 5 first; the two lists",
        ),
        (
            "Ebay_test.txt",
            lambda lines: [*lines[:-1], "60 a 6 f/x.JPG"],
            "Ebay_test.txt:21: class_id is 'a'; it must be a",
        ),
    ],
)
def test_damaged_lists_of_products(tmp_path, monkeypatch, file, change, message):
    root = write_sop(tmp_path)
    published(monkeypatch, "sop")
    edit(root / file, change)
    assert message.rstrip("' ") in line_of(SOP, root)


# In-Shop


def test_garments(tmp_path, monkeypatch):
    write_inshop(tmp_path)
    published(monkeypatch, "inshop")
    text = (tmp_path / "Eval/list_eval_partition.txt").read_text()
    assert "   " in text  # runs of spaces between the columns
    assert " \n" in text  # and at the end of lines
    task = InShop(str(tmp_path))
    assert task.test.queries.tolist() == list(range(8))
    assert task.test.gallery.tolist() == list(range(8, 20))
    assert not set(task.train.class_names) & set(task.test.class_names)
    assert task.train.class_names[:2] == ["women dresses 1", "men jackets vests 2"]
    # Both colours of a garment are one class.
    assert (
        len({Path(n).name[:2] for n, c in zip(task.train.names, task.train.labels.classes, strict=True) if c == 0}) == 2
    )


def test_trees_of_garments(tmp_path, monkeypatch):
    published(monkeypatch, "inshop")
    write_inshop(tmp_path, tree="img_highres")
    assert InShop(str(tmp_path), images="img_highres").train.names[0].startswith(f"{tmp_path}/Img/img_highres/WOMEN/")
    assert "Img/img/WOMEN/Dresses/id_00000001/01_0_front.jpg: no such image (60 of the 60 in" in line_of(
        InShop, tmp_path
    )
    (tmp_path / "Img/img_highres").rename(tmp_path / "img")
    (tmp_path / "Eval/list_eval_partition.txt").rename(tmp_path / "list_eval_partition.txt")
    assert InShop(str(tmp_path)).train.names[0].startswith(f"{tmp_path}/img/WOMEN/")


def test_a_garment_of_one_image_takes_part(tmp_path):
    write_inshop(tmp_path)
    path = tmp_path / "Eval/list_eval_partition.txt"
    edit(path, lambda lines: [str(len(lines) - 6), lines[1], lines[2], *lines[7:]])
    task = InShop(str(tmp_path), complete=False)
    assert task.train.labels.classes.bincount().tolist() == [1, *[5] * 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: lines[2:],
            "is 'img/WOMEN/Dresses/id_00000001/01_0_front.jpg id_00000001 train'; the line begins the",
        ),
        (
            lambda lines: lines[1:],
            ":1: is 'image_name item_id evaluation_status'; the line begins the file with 'a number'",
        ),
        (lambda lines: lines[:-4], "announces 60 images in its first line and lists 56; get it again"),
        (
            lambda lines: ["56", *lines[1:-4]],
            "lists 7 query images of 4 classes, published are 8 of 4; get the list again, or set",
        ),
        (
            lambda lines: [*lines[:-1], lines[-1].replace("gallery", "galery")],
            ":62: evaluation_status is 'galery'; allowed",
        ),
        (
            lambda lines: [*lines[:-1], lines[-1].replace("id_00000012 ", "12 ")],
            ":62: item_id is '12'; it must be id_ and",
        ),
        (lambda lines: [*lines[:-1], lines[-1].replace("img/", "", 1)], "it must begin with img/"),
        (
            lambda lines: [*lines, lines[-1]],
            ":63: img/MEN/Jackets_Vests/id_00000012/01_4_front.jpg stands in line 62 as",
        ),
        (
            lambda lines: [*lines[:-1], lines[-1].replace("gallery", "train")],
            "1 garments are to train on and to test on, id_00000012 first; as it was published there are none",
        ),
    ],
)
def test_damaged_lists_of_garments(tmp_path, monkeypatch, change, message):
    write_inshop(tmp_path)
    published(monkeypatch, "inshop")
    edit(tmp_path / "Eval/list_eval_partition.txt", change)
    line = line_of(InShop, tmp_path)
    assert line.startswith("Eval/list_eval_partition.txt")
    assert message in line


# Files that are not there


def test_missing_images(whole):
    _, reader, root = whole
    task = reader(str(root))
    for split in (task.train, task.test):
        Path(split.name(1)).unlink()
    gone = Path(task.train.name(1)).relative_to(root)
    line = line_of(reader, root)
    assert line.startswith(f"{gone}: no such image (")
    assert "are missing); complete the copy, or set task.complete=false to leave them out" in line
    part = reader(str(root), complete=False)
    assert [(len(s), s.missing) for s in (part.train, part.test)] == [(39, 1), (19, 1)]
    assert task.train.name(1) not in part.train.names


@pytest.mark.parametrize(
    ("name", "folder", "archive", "message"),
    [
        ("cub", "CUB_200_2011/images", None, "(60 of the 60 in images.txt are missing; there is no folder "),
        ("cars_old", "car_ims", "car_ims.tgz", "car_ims, but car_ims.tgz, which is not unpacked); complete the copy"),
        ("cars_new", "cars_test", "cars_test.tgz", "(24 of the 60 in devkit are missing; there is no folder "),
        (
            "sop",
            "Stanford_Online_Products/fan_final",
            None,
            "(5 of the 40 in Ebay_train.txt are missing; there is no folder",
        ),
        ("inshop", "Img/img", "Img/img.zip", "Img/img, but img.zip, which is not unpacked); complete the copy"),
    ],
)
def test_folders_that_are_not_there(tmp_path, monkeypatch, name, folder, archive, message):
    reader, _, write, _ = SETS[name]
    write(tmp_path)
    published(monkeypatch, name)
    (tmp_path / folder).rename(tmp_path / "elsewhere")
    if archive:
        (tmp_path / archive).write_bytes(b"PK")
    line = line_of(reader, tmp_path)
    assert ": no such image (" in line
    assert message in line


@pytest.mark.parametrize(
    ("reader", "mark", "archive"),
    [
        (CUB, "images.txt", "CUB_200_2011.tgz"),
        (Cars, "devkit", "cars_train.tgz"),
        (SOP, "Ebay_train.txt", "Stanford_Online_Products.zip"),
        (InShop, "Eval/list_eval_partition.txt", "img.zip"),
    ],
)
def test_a_folder_without_a_data_set(tmp_path, reader, mark, archive):
    assert line_of(reader, tmp_path / "none").startswith(
        f"task.root={tmp_path}/none: no such folder; give the folder of"
    )
    assert line_of(reader, tmp_path).startswith(f"{tmp_path}: has no {mark}; give the folder of ")
    (tmp_path / archive).write_bytes(b"PK")
    assert f"has no {mark}, but {archive}, which is not unpacked; give the folder" in line_of(reader, tmp_path)
    (tmp_path / archive).unlink()
    (tmp_path / mark).mkdir(parents=True)  # a folder of the name of a list
    wanted = "no such file" if reader is Cars else f"{mark}: cannot be read (Is a directory)"
    assert wanted in line_of(reader, tmp_path)


def test_upper_and_lower_case(tmp_path, monkeypatch):
    root = write_sop(tmp_path)
    published(monkeypatch, "sop")
    for path in list(root.glob("*/*.JPG")):
        path.rename(path.with_suffix(".jpg"))
    assert "_0.JPG: no such image (40 of the 40 in Ebay_train.txt are missing; there is a " in line_of(SOP, root)
    assert "_0.jpg, and upper and lower case differ); complete the copy" in line_of(SOP, root)


def test_lists_that_are_no_text(tmp_path, monkeypatch):
    root = write_sop(tmp_path)
    (root / "Ebay_test.txt").write_bytes(b"\xff\xfe\x00\x01")
    assert line_of(SOP, root) == "Ebay_test.txt: not a text file; get it again"
    (root / "Ebay_test.txt").unlink()
    assert line_of(SOP, root) == "Ebay_test.txt: no such file"


def test_an_image_that_is_broken_is_left_to_the_policy_of_images(tmp_path):
    root = write_cub(tmp_path)
    task = CUB(str(root), crop_boxes=True, complete=False)
    for row in (2, 3):
        Path(task.train.name(row)).write_bytes(Path(task.train.name(row)).read_bytes()[:300])
    Path(task.train.name(4)).write_bytes(b"")
    changes = ["task=classes/cub", f"task.root={root}", "task.complete=false", "images.resize=36", "images.crop=32"]
    images = load("classes/synthetic", [*changes, "images.broken=skip"]).build_images()
    for split in (task.train, CUB(str(root), complete=False).train):
        images.left_out.clear()
        assert sum(len(batch.rows) for batch in images.test_batches(split, None, 16)) == 37
        assert list(images.left_out) == [split.name(row) for row in (2, 3, 4)]
    images = load("classes/synthetic", changes).build_images()
    with pytest.raises(InputError, match=r"_0003_21.jpg: cannot be decoded \(.*set images.broken=skip"):
        list(images.test_batches(task.train, None, 16))


def test_grey_images_become_rgb(tmp_path):
    root = write_cub(tmp_path)
    task = CUB(str(root), crop_boxes=True, complete=False)
    Image.open(task.train.name(0)).convert("L").save(task.train.name(0))
    batch = next(iter(load("classes/synthetic").build_images().test_batches(task.train, [0], 1)))
    assert batch.images.shape[1] == 3
    assert torch.equal(batch.images[:, 0], batch.images[:, 1])


def test_a_copy_of_one_class(tmp_path):
    root = write_cub(tmp_path, classes=[3, 101, 102])
    assert line_of(CUB, root, complete=False) == "images.txt: lists 1 train classes; a split needs at least 2"
