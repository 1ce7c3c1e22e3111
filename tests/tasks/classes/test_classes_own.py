"""Your own class data: a folder of folders, and a CSV file."""

from __future__ import annotations

import pytest
from support.class_copies import rejected
from support.class_layouts import save, write_class_table, write_folders
from support.paths import DATA_ROOT

from contml.data import Task
from contml.labels import VectorLabels
from contml.tasks.classes.folder import folder
from contml.tasks.classes.table import csv

DATA = DATA_ROOT
TABLE = {"image": "file", "label": "class_name"}


def classes_of(split):
    return dict(zip(split.labels.colours().classes, split.labels.class_ids.bincount().tolist(), strict=True))


def write_flat(root, names=("b", "a", "d", "c"), items=2):
    for number, name in enumerate(names):
        for item in range(items):
            save(root / name / f"{item}.jpg", number, item)


# A folder of folders


def test_folders_train_and_test(tmp_path):
    write_folders(tmp_path)
    task = folder(str(tmp_path))
    assert isinstance(task, Task)
    assert classes_of(task.train) == {f"class {n:02d}": 5 for n in range(8)}
    assert classes_of(task.test) == {f"class {n:02d}": 5 for n in range(8, 12)}
    assert (task.test.queries, task.test.gallery) == (None, None)
    assert task.train.name(0) == str(tmp_path / "train/class 00/0.png")


def test_folders_query_and_gallery(tmp_path):
    write_folders(tmp_path)
    (tmp_path / "test").rename(tmp_path / "gallery")
    for number in (8, 10):
        save(tmp_path / f"query/class {number:02d}/q.JPEG", number, 9)
    task = folder(str(tmp_path))
    assert task.test.queries.tolist() == [0, 1]
    assert task.test.gallery.tolist() == list(range(2, 22))
    assert [task.test.labels.colours().classes[int(task.test.labels.class_ids[row])] for row in (0, 1)] == [
        "class 08",
        "class 10",
    ]


def test_half_of_the_classes(tmp_path):
    write_flat(tmp_path)
    task = folder(str(tmp_path), split="half")
    assert (classes_of(task.train), classes_of(task.test)) == ({"a": 2, "d": 2}, {"b": 2, "c": 2})
    assert task.summary == [("classes", "drawn by their names: 2 test, 2 train")]


def test_classes_that_are_spelled_alike_are_named(tmp_path):
    alike = ("names of classes", "counted as different classes, though spelled alike: 'B1' and 'b1'")
    write_flat(tmp_path, ("a", "B1", "b1", "c"))
    assert alike in folder(str(tmp_path), split="half").summary
    write_flat(tmp_path / "parts/train", ("a", "B1"))
    write_flat(tmp_path / "parts/test", ("c", "b1"))
    assert folder(str(tmp_path / "parts")).summary == [alike]
    parts = {"a": "train", "B1": "train", "b1": "test", "c": "test"}
    lines = [f"{name}/{n}.jpg,{name},{part}" for name, part in parts.items() for n in (0, 1)]
    (tmp_path / "list.csv").write_text("\n".join(["image,class,split", *lines]))
    assert alike in csv(str(tmp_path), "list.csv").summary


def test_a_list_of_classes(tmp_path):
    write_flat(tmp_path, "abcde")
    (tmp_path / "classes.csv").write_text("class,split\na,test\nb,train\nc,\nd,test\ne, train\n")
    task = folder(str(tmp_path), split="classes.csv")
    assert (list(classes_of(task.train)), list(classes_of(task.test))) == (["b", "e"], ["a", "d"])


def test_folders_inside_of_a_class_and_classes_two_deep(tmp_path):
    write_flat(tmp_path)
    save(tmp_path / "a/more/still/9.png", 1, 9)
    assert classes_of(folder(str(tmp_path), split="half").train) == {"a": 3, "d": 2}
    deep = tmp_path / "deep"
    for alphabet in ("Greek", "Latin"):
        write_flat(deep / alphabet, ("x", "y"))
    task = folder(str(deep), split="half", depth=2)
    assert list(classes_of(task.train)) == ["Greek/x", "Latin/x"]
    fields = (f"{deep}/Greek/x/0.jpg", "not in the folder of a class", f"3 folders below {deep}")
    rejected(fields, folder, deep, split="half", depth=3)


def test_files_that_are_not_images_are_skipped(tmp_path):
    write_flat(tmp_path)
    for name in ("a/._0.jpg", "a/notes.txt", "a/Thumbs.db", ".hidden/x.jpg", "__MACOSX/a/0.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"no image")
    assert classes_of(folder(str(tmp_path), split="half").train) == {"a": 2, "d": 2}


def test_links_to_folders_are_followed(tmp_path):
    write_flat(tmp_path / "there", "ab")
    (tmp_path / "here").mkdir()
    for name in "ab":
        (tmp_path / f"here/{name}1").symlink_to(tmp_path / "there" / name)
        (tmp_path / f"here/{name}2").symlink_to(tmp_path / "there" / name)
    assert list(classes_of(folder(str(tmp_path / "here"), split="half").train)) == ["a2", "b2"]
    (tmp_path / "there/a/around").symlink_to(tmp_path / "there")
    for name in ("c", "d"):
        save(tmp_path / "there" / name / "0.jpg", 0, 0)
    assert classes_of(folder(str(tmp_path / "there"), split="half").train) == {"a": 2, "d": 1}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, ("", "no folder train (it has a, b, c, d)", "", "set split")),
        ({"split": "none.csv"}, ("none.csv", "no such file (", "", "set split")),
        ({"split": "half", "depth": 0}, ("depth",)),
        ({"split": "half", "depth": 2}, ("a/0.jpg", "", "2 folders below")),
    ],
)
def test_wrong_folders(tmp_path, options, fields):
    write_flat(tmp_path)
    rejected(fields, folder, tmp_path, **options)


def test_empty_folders(tmp_path):
    rejected(("root", f"no such folder {tmp_path}/none"), folder, tmp_path / "none")
    rejected((str(tmp_path), "no folder train (it has no folder)"), folder, tmp_path)
    rejected((str(tmp_path), "no folders of images, 1 deep"), folder, tmp_path, split="half")
    save(tmp_path / "a/0.jpg", 0, 0)
    rejected(("split", "1 classes", "at least 4"), folder, tmp_path, split="half")
    (tmp_path / "b").mkdir()
    rejected((f"{tmp_path}/b", "no image", "JPEG, "), folder, tmp_path, split="half")
    save(tmp_path / "0.jpg", 0, 0)
    rejected((f"{tmp_path}/0.jpg", "not in the folder of a class"), folder, tmp_path, split="half")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("name,split\na,train\n", ("classes.csv: column class", "no such column", "name, split")),
        ("", ("classes.csv", "is empty", "name the columns")),
        ("class,split\nx,train\n", ("classes.csv:2", "class x has no folder")),
        ("class,split\na,train\na,test\n", ("classes.csv:3", "a appears twice, first in line 2")),
        ("class,split\na,trian\n", ("classes.csv:2: split", "'trian'", "train, val, test, query, gallery or empty")),
        ("class,split\na,train\nb,\nc,test\n", ("classes.csv", "class d (1 such classes)")),
        ("class,split\na,train\nb\nc,test\n", ("classes.csv:3", "1 cells, but the header has 2")),
        ("class,split\na,train\nb,test\nc,test\nd,test\n", ("", "1 train classes", "at least 2")),
    ],
)
def test_wrong_lists_of_classes(tmp_path, text, fields):
    write_flat(tmp_path)
    (tmp_path / "classes.csv").write_text(text)
    rejected(fields, folder, tmp_path, split="classes.csv")


# A CSV file


def write_table(root, text, images=6):
    (root / "images.csv").write_text(text)
    for item in range(images):
        save(root / f"{item}.png", item, 0)


def test_a_table_with_a_split(tmp_path):
    write_class_table(tmp_path)
    task = csv(str(tmp_path), **TABLE)
    assert isinstance(task, Task)
    assert classes_of(task.train) == {f"kind {n}": 5 for n in range(8)}
    assert set(classes_of(task.test)) == {f"kind {n}" for n in range(8, 12)}
    assert task.test.queries is None


def test_how_a_table_is_read(tmp_path):
    write_table(tmp_path, "image;class\n0.png;None\n1.png;9\n2.png;1\n3.png;2\n")
    rejected(("images.csv:2: class", "one of 'None'", "", "set missing_words=[]"), csv, tmp_path)
    task = csv(str(tmp_path), missing_words=[])
    assert "None" in {*classes_of(task.train), *classes_of(task.test)}
    assert len(csv(str(tmp_path), missing_words=["na"], delimiter=";").train) == 2
    rejected(("images.csv", "more than 3 rows", "at most 3", "set max_rows="), csv, tmp_path, max_rows=3)
    (tmp_path / "images.csv").write_bytes("image,class\n0.png,ä\n1.png,9\n2.png,1\n3.png,2\n".encode("latin-1"))
    rejected(("images.csv:2", "not utf-8", "", "set encoding=latin-1"), csv, tmp_path)
    task = csv(str(tmp_path), encoding="latin-1")
    assert "ä" in {*classes_of(task.train), *classes_of(task.test)}


def test_a_table_without_a_split_is_halved_by_class(tmp_path):
    write_table(tmp_path, "image,class\n0.png,10\n1.png,9\n2.png,1\n3.png,2\n")
    task = csv(str(tmp_path))
    assert (sorted(classes_of(task.train)), sorted(classes_of(task.test))) == (["1", "10"], ["2", "9"])
    assert task.summary == [("classes", "drawn by their names: 2 train, 2 test")]


def test_other_columns_other_splits_and_tabs(tmp_path):
    rows = ["path\tkind\tfold\tnote", "0.png\ta\ttrain\t,", "1.png\tb\ttrain\t", "2.png\tc\tval\t", "3.png\td\tval\t"]
    (tmp_path / "my.tsv").write_text("\ufeff" + "\n".join([*rows, "4.png\te\ttest\t", "5.png\tf\t\t"]) + "\n")
    write_table(tmp_path, "")
    options = {"table": "my.tsv", "image": "path", "label": "kind", "split": "fold"}
    rejected(("my.tsv", "1 rows of 1 classes are test", "at least 2"), csv, tmp_path, **options)
    (tmp_path / "my.tsv").write_text("\n".join(rows).replace("\tval", "\tValid") + "\n")
    task = csv(str(tmp_path), **options)
    assert (classes_of(task.train), classes_of(task.val), task.test) == ({"a": 1, "b": 1}, {"c": 1, "d": 1}, None)
    rejected(("my.tsv: fold", "not used", "", "set split=fold"), csv, tmp_path, **{**options, "split": "split"})


@pytest.mark.parametrize(
    "text",
    [
        "image,class,split,role\n0.png,a,train,\n1.png,b,train,\n2.png,c,test,query\n3.png,c,test,gallery\n4.png,d,test,gallery\n",
        "image,class,split\n0.png,a,train\n1.png,b,train\n2.png,c,query\n3.png,c,gallery\n4.png,d,gallery\n",
    ],
)
def test_queries_and_gallery_of_a_table(tmp_path, text):
    write_table(tmp_path, text)
    task = csv(str(tmp_path))
    assert (task.test.queries.tolist(), task.test.gallery.tolist()) == ([0], [1, 2])


def test_a_gallery_without_image_files_is_refused(tmp_path):
    """Without this check every remaining test image would become a query."""
    rows = ["0.png,a,train", "1.png,b,train", "2.png,c,query", "3.png,d,query", "gone.png,d,gallery"]
    write_table(tmp_path, "\n".join(["image,class,split", *rows]) + "\n")
    rejected(("images.csv", "no test image is 'gallery'"), csv, tmp_path, missing="drop")


def test_a_slash_in_the_name_of_a_class(tmp_path):
    write_table(
        tmp_path, 'image,class,split\n0.png," Ram C/V, 2012 ",train\n1.png,b,train\n2.png,c,test\n3.png,d,test\n'
    )
    assert "Ram C/V, 2012" in csv(str(tmp_path)).train.labels.colours().classes


def test_missing_images_of_a_table(tmp_path):
    write_class_table(tmp_path)
    (tmp_path / "images/000_1.png").unlink()
    fields = ("images/000_1.png", "no such image (1 of 40 images of images.csv are missing)", "", "missing=drop")
    rejected(fields, csv, tmp_path, **TABLE)
    task = csv(str(tmp_path), **TABLE, missing="drop")
    assert (len(task.train), task.train.excluded) == (39, {"without an image file": 1})
    (tmp_path / "images").rename(tmp_path / "pictures")
    found = f"(40 of 40 images of images.csv are missing; there is no folder {tmp_path}/images)"
    rejected(("images/000_0.png", found), csv, tmp_path, **TABLE, missing="drop")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("file,class\n0.png,a\n", (": column image", "no such column", "file, class", "set image")),
        ("image,kind\n0.png,a\n", (": column class", "no such column", "image, kind", "set label")),
        ("", ("", "is empty")),
        ("image,class\n", ("", "no rows")),
        ("image,class\n0.png,a\n1.png,\n", (":3: class", "empty", "an image and a class")),
        ("image,class\n0.png,a\n1.png,NA\n", (":3: class", "'NA'", "an image and a class")),
        ("image,class\n0.png,a\n1.png\n", (":3", "1 cells, but the header has 2")),
        ("image,class\n,a\n", (":2: image", "empty", "an image and a class")),
        ("image,class\n0.png,a\n0.png,b\n", (":3", "0.png appears twice, first in line 2")),
        ("image,class,split\n0.png,a,trian\n", (":2: split", "'trian'", "train, val, test, query, gallery")),
        ("image,class,role\n0.png,a,querry\n", (":2: role", "'querry'", "query, gallery")),
        ("image,class,split\n0.png,a,train\n1.png,b,test\n", ("", "1 rows of 1 classes are train")),
        (
            "image,class,split\n0.png,a,train\n1.png,b,train\n2.png,c,query\n3.png,d,test\n",
            (":5", "without a role", "", "all test images a role, or none"),
        ),
        (
            "image,class,split\n0.png,a,train\n1.png,b,train\n2.png,c,query\n3.png,d,query\n",
            ("", "no test image is 'gallery'", "", "both queries and a gallery"),
        ),
    ],
)
def test_wrong_tables(tmp_path, text, fields):
    write_table(tmp_path, text)
    rejected((f"images.csv{fields[0]}", *fields[1:]), csv, tmp_path)


def test_unreadable_tables(tmp_path):
    rejected(("root", f"no such folder {tmp_path}/x"), csv, tmp_path / "x")
    rejected(("images.csv", f"no such file ({tmp_path} holds", "", "set table"), csv, tmp_path)
    (tmp_path / "images.csv").write_bytes(b"image,class\n\xff\xfe,a\n")
    rejected(("images.csv:2", "utf-8 text (byte 0xff)", "", "UTF-8"), csv, tmp_path)
    (tmp_path / "images.csv").unlink()
    (tmp_path / "images.csv").mkdir()
    rejected(("images.csv", "a folder", "must be a file"), csv, tmp_path)


@pytest.mark.parametrize(
    ("pack", "label", "train", "test"),
    [("omniglot_small", "class_name", (1000, 50), (820, 41)), ("cars196_small", "class_id", (1176, 98), (1176, 98))],
)
def test_the_packs(pack, label, train, test):
    if not (DATA / pack).is_dir():
        pytest.skip(f"no pack {pack}: set CONTML_DATA to its folder")
    task = csv(str(DATA / pack), image="file", label=label)
    assert [(len(s), len(s.labels.colours().classes)) for s in (task.train, task.test)] == [train, test]
    if pack == "omniglot_small":
        task = folder(str(DATA / pack / "images"), split="half", depth=2)
        assert len(task.train) + len(task.test) == 2260


def test_years_that_end_the_names_of_classes(tmp_path):
    names = ["Audi S4 Sedan 2012", "Audi S4 Sedan 2007", "Ram C/V Van 2012", "AM Hummer 2000"]
    rows = [
        f"{number}{item}.png,{name},{('train', 'test')[item > 2]}"
        for number, name in enumerate(names)
        for item in range(6)
    ]
    (tmp_path / "images.csv").write_text("file,class_name,split\n" + "\n".join(rows) + "\n")
    for number in range(len(names)):
        for item in range(6):
            save(tmp_path / f"{number}{item}.png", number, item)
    task = csv(str(tmp_path), **TABLE, labels="year")
    assert isinstance(task.train.labels, VectorLabels)
    years = [2012] * 3 + [2007] * 3 + [2012] * 3 + [2000] * 3
    assert task.test.labels.values[:, 0].tolist() == years
    assert task.test.labels.unit == "years"
    expected = [[abs(a - b) for b in years] for a in years]
    assert task.test.labels.pairwise().tolist() == expected
    assert task.test.labels.text(3) == "Audi S4 Sedan 2007"
    assert task.test.labels.parts(3, 0)[0][1:] == ("Audi S4 Sedan 2007", task.test.labels.text(0), "5.00 years", "")
    assert task.val_groups == [name for name in names for _ in range(3)]
    assert csv(str(tmp_path), **TABLE).val_groups is None
    (tmp_path / "images.csv").write_text("file,class_name,split\n" + "\n".join(rows).replace("2007", "") + "\n")
    rejected(
        ("class 'Audi S4 Sedan'", "does not end with a year", "", "labels=class"), csv, tmp_path, **TABLE, labels="year"
    )


def test_years_of_the_pack_of_cars():
    if not (DATA / "cars196_small").is_dir():
        pytest.skip("no pack cars196_small: set CONTML_DATA to its folder")
    task = csv(str(DATA / "cars196_small"), **TABLE, labels="year")
    years = [split.labels.values[:, 0] for split in (task.train, task.test)]
    assert [(len(found), int(found.min()), int(found.max())) for found in years] == [
        (1176, 1994, 2012),
        (1176, 1991, 2012),
    ]
    assert all(f"{int(year)}" == task.train.labels.text(row)[-4:] for row, year in enumerate(years[0]))
    assert len(set(task.val_groups)) == 98
