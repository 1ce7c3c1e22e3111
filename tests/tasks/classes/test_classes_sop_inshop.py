"""Stanford Online Products and In-Shop: layouts, special cases, damaged lists."""

from pathlib import Path

from support.class_copies import edit, published, rejected
from support.class_layouts import write_inshop, write_sop

from contml.tasks.classes.inshop import inshop
from contml.tasks.classes.sop import sop

# Stanford Online Products


def test_products(tmp_path, monkeypatch):
    root = write_sop(tmp_path)
    published(monkeypatch, "sop")
    task = sop(str(root))
    assert all(name.endswith(".JPG") for name in task.train.names)
    assert task.train.labels.colours().classes[:2] == ["cabinet 1", "chair 2"]
    assert (task.train.labels.colours().classes[2], task.test.recall_at) == ("coffee maker 3", (1, 10, 100, 1000))


# In-Shop


def test_garments(tmp_path, monkeypatch):
    write_inshop(tmp_path)
    published(monkeypatch, "inshop")
    text = (tmp_path / "Eval/list_eval_partition.txt").read_text()
    assert "   " in text  # runs of spaces between the columns
    assert " \n" in text  # and at the end of lines
    task = inshop(str(tmp_path))
    assert (task.test.queries.tolist(), task.test.gallery.tolist()) == (list(range(8)), list(range(8, 20)))
    assert not set(task.train.labels.colours().classes) & set(task.test.labels.colours().classes)
    assert task.test.recall_at == (1, 10, 20, 30, 40, 50)
    assert task.train.labels.colours().classes[:2] == ["women dresses 1", "men jackets vests 2"]
    # Both colours of a garment are one class.
    first = [name for name, c in zip(task.train.names, task.train.labels.class_ids, strict=True) if c == 1]
    assert {Path(name).name[:2] for name in first} == {"01", "02"}


def test_trees_of_garments(tmp_path, monkeypatch):
    published(monkeypatch, "inshop")
    write_inshop(tmp_path, tree="img_highres")
    assert inshop(str(tmp_path), images="img_highres").train.names[0].startswith(f"{tmp_path}/Img/img_highres/WOMEN/")
    fields = ("Img/img/WOMEN/Dresses/id_00000001/01_0_front.jpg", "no such image (60 of 60 images of")
    rejected(fields, inshop, tmp_path)
    (tmp_path / "Img/img_highres").rename(tmp_path / "img")
    (tmp_path / "Eval/list_eval_partition.txt").rename(tmp_path / "list_eval_partition.txt")
    assert inshop(str(tmp_path)).train.names[0].startswith(f"{tmp_path}/img/WOMEN/")


def test_a_garment_with_one_image_is_used(tmp_path):
    write_inshop(tmp_path)
    path = tmp_path / "Eval/list_eval_partition.txt"
    edit(path, lambda lines: [str(len(lines) - 6), lines[1], lines[2], *lines[7:]])
    task = inshop(str(tmp_path), missing="drop")
    assert task.train.labels.class_ids.unique(return_counts=True)[1].tolist() == [1, *[5] * 7]
