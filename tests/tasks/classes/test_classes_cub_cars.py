"""CUB-200-2011 and Cars-196: layouts, special cases, damaged lists and records."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import loadmat, savemat
from support.class_copies import edit, published, rejected
from support.class_layouts import records, write_cars_new, write_cars_old, write_cub
from support.paths import DATA_ROOT as DATA, needs

from contml.data import ImageFile
from contml.tasks.classes.cars import cars
from contml.tasks.classes.cub import cub

# CUB-200-2011


def test_cub_is_split_by_species_and_joined_by_image(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    before = cub(str(root))
    assert before.train.labels.colours().classes[0] == "Black footed Bird 1"
    assert before.test.labels.colours().classes[0] == "Black footed Bird 101"
    for file in ("image_class_labels.txt", "train_test_split.txt", "classes.txt", "bounding_boxes.txt"):
        edit(root / file, reversed)
    edit(root / "train_test_split.txt", lambda lines: [f"{line.split()[0]} 0" for line in lines])
    after = cub(str(root))
    assert after.train.names == before.train.names
    assert torch.equal(after.test.labels.class_ids, before.test.labels.class_ids)


def test_boxes_of_birds(tmp_path, monkeypatch):
    root = write_cub(tmp_path)
    published(monkeypatch, "cub")
    task = cub(str(root), crop_boxes=True)
    path = Path(task.train.name(0))
    picture = task.train.image(0)  # x y width height, not x2 y2: "3.0 3.0 16.0 12.0"
    assert picture.size == (16, 12)
    assert np.array_equal(np.asarray(picture), np.asarray(Image.open(path).crop((3, 3, 19, 15))))
    assert (task.train.stamp(0), cub(str(root)).train.stamp(0)) == ((path, "box (3.0, 3.0, 19.0, 15.0)"), (path, ""))
    assert (cub(str(root)).train.image(0), task.train.draw(0, 40).size) == (path, (40, 40))
    edit(root / "bounding_boxes.txt", lambda lines: ["1 20.0 3.0 160.0 12.4", "2 90.0 3.0 9.0 9.0", *lines[2:]])
    task = cub(str(root), crop_boxes=True)
    assert task.train.image(0).size == (8, 12)  # ends where the image does
    with pytest.raises(OSError, match=r"its box \(90, 3, 99, 12\) shows nothing of 28 x 22 pixels"):
        task.train.image(1)


# Cars-196


def test_cars_in_both_layouts_are_the_same(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path)
    old = cars(str(tmp_path))
    assert {Path(name).parent.name for name in old.train.names} == {"car_ims"}
    write_cars_new(tmp_path)
    assert cars(str(tmp_path)).train.names == old.train.names  # the first layout where both exist
    (tmp_path / "cars_annos.mat").unlink()
    record = loadmat(tmp_path / "devkit/cars_train_annos.mat")["annotations"][0, 0]
    x, y = (int(record[f"bbox_{axis}1"][0, 0]) for axis in "xy")
    assert cars(str(tmp_path), crop_boxes=True).train.images[0].box[:2] == (x - 1, y - 1)  # 1 is the first pixel
    new = cars(str(tmp_path))
    assert new.train.labels.colours().classes == old.train.labels.colours().classes
    models = ["Model 99 Sedan 2012", "Model 100 Sedan 2012", "Ram C/V Cargo Van Minivan 2012", "Model 196 Sedan 2012"]
    assert new.test.labels.colours().classes == old.test.labels.colours().classes == models
    counts = [task.train.labels.class_ids.unique(return_counts=True)[1].tolist() for task in (new, old)]
    assert counts[0] == counts[1]
    # Both halves hold the same names; the split is by model, over both.
    for split in (new.train, new.test):
        assert {Path(name).parent.name for name in split.names} == {"cars_train", "cars_test"}
    assert len(set(new.train.names)) == 40 > len({Path(name).name for name in new.train.names})


def test_model_years_of_cars(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path)
    by_class, by_year = cars(str(tmp_path)), cars(str(tmp_path), labels="year")
    assert by_year.train.labels.values[:, 0].tolist() == [2012.0] * 40
    assert by_year.test.recall_at is None
    assert by_year.val_groups == [str(int(n)) for n in by_class.train.labels.class_ids]
    assert by_year.train.names == by_class.train.names


def test_boxes_of_cars_do_not_overflow(tmp_path, monkeypatch):
    published(monkeypatch, "cars_old")
    write_cars_old(tmp_path, wide=True)
    stored = loadmat(tmp_path / "cars_annos.mat")["annotations"][0, 1]
    assert (stored["bbox_x1"].dtype, stored["bbox_x2"].dtype) == (np.uint8, np.uint16)
    task = cars(str(tmp_path), crop_boxes=True)
    boxes = [source.box for source in task.train.images[:2]]
    assert boxes == [(3, 2, 298, 259), (0, 0, 300, 260)]  # 1 is the first pixel
    assert (task.train.image(1).size, task.train.image(0).size) == ((300, 260), (295, 257))
    assert all(isinstance(source, ImageFile) for source in cars(str(tmp_path)).train.images)


def test_nested_folders_of_cars(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path)
    names = cars(str(tmp_path)).train.names
    for half in ("cars_train", "cars_test"):
        (tmp_path / half).rename(tmp_path / "inner")
        (tmp_path / half).mkdir()
        (tmp_path / "inner").rename(tmp_path / half / half)
    assert [Path(n).name for n in cars(str(tmp_path)).train.names] == [Path(n).name for n in names]
    (tmp_path / "car_devkit").mkdir()
    (tmp_path / "devkit").rename(tmp_path / "car_devkit/devkit")
    assert len(cars(str(tmp_path)).train) == 40
    (tmp_path / "cars_test_annos_withlabels.mat").rename(tmp_path / "car_devkit/devkit/cars_test_annos_withlabels.mat")
    assert len(cars(str(tmp_path)).test) == 20


def test_cars_without_the_labels_of_the_test_half(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path, labelled=False)
    fields = ("cars_test_annos_withlabels.mat", "no such file", "", "missing=drop")
    rejected(fields, cars, tmp_path)
    task = cars(str(tmp_path), missing="drop")
    assert (len(task.train), len(task.test)) == (24, 12)
    assert {Path(name).parent.name for name in task.test.names} == {"cars_train"}


def test_damaged_files_of_cars(tmp_path, monkeypatch):
    published(monkeypatch, "cars_new")
    write_cars_new(tmp_path)
    path = tmp_path / "devkit/cars_train_annos.mat"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    rejected((str(path), "not a readable MATLAB file ("), cars, tmp_path)
    savemat(path, {"something": np.zeros(3)})
    rejected((str(path), "'annotations' (it has something)"), cars, tmp_path)
    savemat(path, {"annotations": records(("fname", "class"), [("00001.jpg", 1)])})
    rejected((str(path), "'bbox_x1' (they have fname, class)"), cars, tmp_path)
    path.unlink()
    rejected((str(path), "no such file (", "", ""), cars, tmp_path)
    rejected((str(path), "devkit holds cars_meta.mat"), cars, tmp_path)
    savemat(tmp_path / "devkit/cars_meta.mat", {"names": np.zeros(3)})
    rejected(("cars_meta.mat", "'class_names' (it has names)"), cars, tmp_path)


@pytest.mark.slow
@needs("cars196_small")
def test_the_published_devkit(tmp_path, monkeypatch):
    """The true files: 8,144 labelled records, of which the pack has some pictures under other names."""
    (tmp_path / "devkit").symlink_to(DATA / "cars196_small/devkit")
    (tmp_path / "cars_train").mkdir()
    for number in range(1, 8145):
        (tmp_path / f"cars_train/{number:05d}.jpg").touch()
    task = cars(str(tmp_path), missing="drop", crop_boxes=True)
    assert (len(task.train), len(task.test)) == (4052, 4092)
    assert (len(task.train.labels.colours().classes), len(task.test.labels.colours().classes)) == (98, 98)
    assert "Ram C/V Cargo Van Minivan 2012" in task.test.labels.colours().classes
    names = [Path(name).name for name in task.train.names]
    row = names.index("00001.jpg")  # the first record: x 39 to 569, class 14
    assert (task.train.images[row].box, task.train.labels.text(row)) == ((38, 115, 569, 375), "Audi TTS Coupe 2012")
    # The miniature's fields and types are those of the true file.
    (tmp_path / "mine").mkdir()
    write_cars_new(tmp_path / "mine")
    mine, true = (loadmat(p / "devkit/cars_train_annos.mat")["annotations"] for p in (tmp_path / "mine", tmp_path))
    assert mine.dtype.names == true.dtype.names
    for field in true.dtype.names:
        assert mine[0, 0][field].dtype.kind == true[0, 0][field].dtype.kind
        assert mine[0, 0][field].shape == true[0, 0][field].shape
