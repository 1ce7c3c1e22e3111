"""The published class data sets: official counts, complete copies, copies without some files."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.class_copies import SETS, published, rejected
from support.class_layouts import write_cub

from contml.tasks.classes import cars, cub, inshop, sop


@pytest.fixture(params=SETS)
def whole(request, tmp_path, monkeypatch):
    """Each miniature with its counts: name, reader, folder."""
    SETS[request.param][2](tmp_path)
    published(monkeypatch, request.param)
    return request.param, SETS[request.param][0], tmp_path


def test_official_counts():
    assert [cub.PUBLISHED[part][:2] for part in ("train", "test")] == [(5864, 100), (5924, 100)]
    assert [cars.PUBLISHED[part][:2] for part in ("train", "test")] == [(8054, 98), (8131, 98)]
    assert [sop.PUBLISHED[part][:2] for part in ("train", "test")] == [(59551, 11318), (60502, 11316)]
    counts = {part: tuple(counts) for part, counts in inshop.PUBLISHED.items()}
    assert counts.pop("train") == (25882, 3997, None)
    assert counts == {"query": (14218, 3985, None), "gallery": (12612, 3985, None)}
    for module, total in ((cub, 11788), (cars, 16185), (sop, 120053), (inshop, 52712)):
        assert sum(counts.images for counts in module.PUBLISHED.values()) == total
        for counts in module.PUBLISHED.values():
            assert counts.ids is None or len(counts.ids) == counts.classes


def test_a_complete_copy(whole):
    name, reader, root = whole
    task = reader(str(root))
    for split, count in ((task.train, 8), (task.test, 4)):
        assert (split.excluded, split.labels.class_ids.unique(return_counts=True)[1].tolist()) == ({}, [5] * count)
        assert list(split.names) == [str(source.file) for source in split.images]
        # The colour of an image shows that class and file belong together: one colour per class.
        colours = torch.tensor(np.stack([np.asarray(Image.open(source.file)).mean((0, 1)) for source in split.images]))
        for number in split.labels.class_ids.unique():
            assert colours[split.labels.class_ids == number].std(0).max() < 5
    assert len(set(task.train.labels.colours().classes) | set(task.test.labels.colours().classes)) == 12
    assert (task.test.queries is None) == (name != "inshop")


# Files that are not there


@pytest.mark.parametrize(
    ("name", "folder", "archive", "got"),
    [
        ("cars_old", "car_ims", "car_ims.tgz", "car_ims, car_ims.tgz is not unpacked"),
        ("sop", "Stanford_Online_Products/fan_final", None, "(5 of 40 images of Ebay_train.txt are missing; "),
        ("inshop", "Img/img", "Img/img.zip", "Img/img, img.zip is not unpacked"),
    ],
)
def test_missing_folders(tmp_path, monkeypatch, name, folder, archive, got):
    reader, _, write, _ = SETS[name]
    write(tmp_path)
    published(monkeypatch, name)
    (tmp_path / folder).rename(tmp_path / "elsewhere")
    if archive:
        (tmp_path / archive).write_bytes(b"PK")
    rejected(("", "no such image ("), reader, tmp_path)
    rejected(("", got), reader, tmp_path)


@pytest.mark.parametrize(
    ("reader", "mark", "archive"),
    [
        (cub.cub, "images.txt", "CUB_200_2011.tgz"),
        (cars.cars, "devkit", "cars_train.tgz"),
        (sop.sop, "Ebay_train.txt", "Stanford_Online_Products.zip"),
        (inshop.inshop, "Eval/list_eval_partition.txt", "img.zip"),
    ],
)
def test_a_folder_without_a_data_set(tmp_path, reader, mark, archive):
    rejected(("root", f"{tmp_path}/none", "", "the folder of"), reader, tmp_path / "none")
    rejected((str(tmp_path), f"has no {mark}", "", "the folder of"), reader, tmp_path)
    (tmp_path / archive).write_bytes(b"PK")
    rejected((str(tmp_path), f"has no {mark}, {archive} is not unpacked"), reader, tmp_path)
    (tmp_path / archive).unlink()
    (tmp_path / mark).mkdir(parents=True)  # a folder of the name of a list
    fields = ("", "no such file") if reader is cars.cars else (mark, "a folder")
    rejected(fields, reader, tmp_path)


def test_a_copy_of_one_class(tmp_path):
    root = write_cub(tmp_path, classes=[3, 101, 102])
    rejected(("images.txt", "1 train classes", "at least 2"), cub.cub, root, missing="drop")
