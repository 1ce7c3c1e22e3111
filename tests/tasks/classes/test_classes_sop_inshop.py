"""Stanford Online Products and In-Shop: layouts, traps, damaged lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from contml.tasks.classes.inshop import inshop
from contml.tasks.classes.sop import sop
from support.class_copies import edit, line_of, published
from support.class_layouts import write_inshop, write_sop

# Stanford Online Products


def test_products(tmp_path, monkeypatch):
    root = write_sop(tmp_path)
    published(monkeypatch, "sop")
    task = sop(str(root))
    assert all(name.endswith(".JPG") for name in task.train.names)
    assert task.train.renderer.class_names[:2] == ["cabinet 1", "chair 2"]
    assert task.train.renderer.class_names[2] == "coffee maker 3"
    assert task.test.recall_at == (1, 10, 100, 1000)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "Ebay_train.txt",
            lambda lines: lines[1:],
            "Ebay_train.txt:1: is '1 1 2 cabinet_final/111085122872_0.JPG'; line 1 must be "
            "image_id class_id super_class_id path",
        ),
        (
            "Ebay_train.txt",
            lambda lines: [],
            "Ebay_train.txt:1: is ''; line 1 must be image_id class_id",
        ),
        (
            "Ebay_train.txt",
            lambda lines: lines[:-5],
            "Ebay_train.txt: lists 35 train images of 7 classes (without 8); the published data set has 40 of 8; "
            "get the list",
        ),
        (
            "Ebay_test.txt",
            lambda lines: lines[:-1],
            "Ebay_test.txt: lists 19 test images of 4 classes; the published data set has 20 of",
        ),
        ("Ebay_test.txt", lambda lines: [*lines[:-1], lines[-1][:9]], "Ebay_test.txt:21: is '60 11322 '"),
        (
            "Ebay_test.txt",
            lambda lines: [*lines, lines[-1]],
            "Ebay_test.txt:22: lamp_final/111085134193_4.JPG appears twice, first in line 21",
        ),
        (
            "Ebay_test.txt",
            lambda lines: [*lines, "61 5 6 kettle_final/x.JPG"],
            "Ebay_test.txt: product 5 is in train and in test (1 such products)",
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
    assert message.rstrip("' ") in line_of(sop, root)


# In-Shop


def test_garments(tmp_path, monkeypatch):
    write_inshop(tmp_path)
    published(monkeypatch, "inshop")
    text = (tmp_path / "Eval/list_eval_partition.txt").read_text()
    assert "   " in text  # runs of spaces between the columns
    assert " \n" in text  # and at the end of lines
    task = inshop(str(tmp_path))
    assert task.test.queries.tolist() == list(range(8))
    assert task.test.gallery.tolist() == list(range(8, 20))
    assert not set(task.train.renderer.class_names) & set(task.test.renderer.class_names)
    assert task.test.recall_at == (1, 10, 20, 30, 40, 50)
    assert task.train.renderer.class_names[:2] == ["women dresses 1", "men jackets vests 2"]
    # Both colours of a garment are one class.
    assert (
        len({Path(n).name[:2] for n, c in zip(task.train.names, task.train.labels.class_ids, strict=True) if c == 0})
        == 2
    )


def test_trees_of_garments(tmp_path, monkeypatch):
    published(monkeypatch, "inshop")
    write_inshop(tmp_path, tree="img_highres")
    assert inshop(str(tmp_path), images="img_highres").train.names[0].startswith(f"{tmp_path}/Img/img_highres/WOMEN/")
    assert "Img/img/WOMEN/Dresses/id_00000001/01_0_front.jpg: no such image (60 of 60 images of" in line_of(
        inshop, tmp_path
    )
    (tmp_path / "Img/img_highres").rename(tmp_path / "img")
    (tmp_path / "Eval/list_eval_partition.txt").rename(tmp_path / "list_eval_partition.txt")
    assert inshop(str(tmp_path)).train.names[0].startswith(f"{tmp_path}/img/WOMEN/")


def test_a_garment_of_one_image_takes_part(tmp_path):
    write_inshop(tmp_path)
    path = tmp_path / "Eval/list_eval_partition.txt"
    edit(path, lambda lines: [str(len(lines) - 6), lines[1], lines[2], *lines[7:]])
    task = inshop(str(tmp_path), missing="drop")
    assert task.train.labels.class_ids.bincount().tolist() == [1, *[5] * 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: lines[2:],
            "is 'img/WOMEN/Dresses/id_00000001/01_0_front.jpg id_00000001 train'; line 1 must be a number",
        ),
        (
            lambda lines: lines[1:],
            ":1: is 'image_name item_id evaluation_status'; line 1 must be a number",
        ),
        (lambda lines: lines[:-4], "its first line says 60 images, but it lists 56; get the list again"),
        (
            lambda lines: ["56", *lines[1:-4]],
            "lists 7 query images of 4 classes; the published data set has 8 of 4; get the list again, or set",
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
            ":63: img/MEN/Jackets_Vests/id_00000012/01_4_front.jpg appears twice, first in line 62",
        ),
        (
            lambda lines: [*lines[:-1], lines[-1].replace("gallery", "train")],
            "garment 12 is in train and in test (1 such garments)",
        ),
    ],
)
def test_damaged_lists_of_garments(tmp_path, monkeypatch, change, message):
    write_inshop(tmp_path)
    published(monkeypatch, "inshop")
    edit(tmp_path / "Eval/list_eval_partition.txt", change)
    line = line_of(inshop, tmp_path)
    assert line.startswith("Eval/list_eval_partition.txt")
    assert message in line
