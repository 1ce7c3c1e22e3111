"""A table of items with vectors of another program, whose images are not there."""

import csv
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from support.refusals import refused, refuses
from support.tables import dials, write_table

from contml.app.experiment import OwnData, load_table
from contml.data.copies import find_copies
from contml.data.features import Made, read_features, with_features, write_features
from contml.data.renderers.text import name_picture
from contml.tasks.table.file import file

SMALL = ("model.dim=8", "sampler.batches=2", "training.epochs=1", "images.workers=0")
NOTHING_FOUND = "no image file found: 60 features are used, pictures are left out, and copies are found by name alone"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """items.csv, and F.npz with a vector for each row; no image is left."""
    monkeypatch.chdir(tmp_path)
    rows = dials(tmp_path, 60)
    write_table(tmp_path / "items.csv", rows)
    readings = np.array([float(row["reading"]) for row in rows])
    vectors = np.stack([np.cos(readings / 20), np.sin(readings / 20), np.sin(readings)], 1).astype(np.float32)
    np.savez(tmp_path / "F.npz", names=[row["image"] for row in rows], features=vectors)
    for image in (tmp_path / "img").iterdir():
        image.unlink()
    return tmp_path


def table_rows(folder):
    with (folder / "items.csv").open() as table:
        return list(csv.DictReader(table))


@pytest.mark.slow
def test_every_command_works_without_images(folder, accepted, refused):
    data = ("--data", "items.csv", "--label", "reading=number")
    assert "items.csv:2: no image img/000.png (60 such of 60 rows)" in refused("check", *data, *SMALL)
    features = (*data, "images.features=F.npz", *SMALL)
    out, _ = accepted("check", *features)
    assert NOTHING_FOUND in out
    _, err = accepted("train", *features, "--name", "a")
    assert NOTHING_FOUND in err
    run = "runs/table/default/a"
    assert "not drawn" not in Path(run, "report.html").read_text()
    commands = [("evaluate", run), ("audit", run, "--split", "test"), ("explore", run, "--export", "page")]
    commands += [("compare", run), ("export", run, "model"), ("sweep", *features, "--try", "optimizer.lr=1e-3,1e-2")]
    for command in commands:
        _, err = accepted(*command)
        assert "no such file" not in err
    Image.new("RGB", (8, 8)).save("img/new.png")
    line = refused("index", run, "img", "--out", "v.index")
    assert "embeds vectors of 3 features, not images; give a file of vectors" in line
    assert not Path("v.index").exists()
    assert "images.features: used with 'contml features'" in refused("features", *features)


def test_the_picture_of_an_item_is_its_name(folder):
    split = load_table(OwnData(folder / "items.csv", ["reading"]), None, ["images.features=F.npz"]).build_task().test
    pictures = [split.picture(row) for row in (0, 1)]
    assert [picture.tobytes() for picture in pictures] == [name_picture(split.name(row)).tobytes() for row in (0, 1)]
    assert pictures[0].tobytes() != pictures[1].tobytes()
    assert split.draw(0, 200).size == (200, 200)


def test_some_images_are_missing(folder):
    dials(folder, 57)
    task = file("items.csv", {"reading": "number"}, has_features=True)
    assert ["", "features", "as given"] in [line[:3] for line in task.columns]
    assert any("3 of 60 image files are missing: 60 features are used" in line[3] for line in task.columns)
    with refuses("items.csv:59", got="no image img/057.png (3 such of 60 rows)"):
        file("items.csv", {"reading": "number"})
    assert sum(map(len, file("items.csv", {"reading": "number"}, missing="drop").splits.values())) == 57
    kept = file("items.csv", {"reading": "number"}, missing="drop", has_features=True)
    assert sum(map(len, kept.splits.values())) == 60


def test_label_maps_are_compared_without_their_images(folder):
    task = file("items.csv", {"map": "map"}, has_features=True)
    assert with_features(task, folder / "F.npz").test.feature_dim == 3


def test_names_must_be_those_of_the_rows(folder):
    rows = table_rows(folder)
    vectors = np.load(folder / "F.npz")["features"]
    task = file("items.csv", {"reading": "number"}, has_features=True)
    np.savez(folder / "few.npz", names=[row["image"] for row in rows[:-1]], features=vectors[:-1])
    with refuses("few.npz", got="no features of img/059.png (1 of 60 items", hint="names such as img/000.png"):
        with_features(task, folder / "few.npz")
    # The same end of a name in another folder is another item where the whole names fit.
    names, more = ["000.png", *(row["image"] for row in rows)], np.concatenate((np.full((1, 3), 9), vectors))
    np.savez(folder / "more.npz", names=names, features=more)
    found = with_features(task, folder / "more.npz")
    for split in found.splits.values():
        for row in range(len(split)):
            assert np.array_equal(split.image(row), vectors[int(split.name(row)[4:7])])


def test_items_without_paths(folder):
    rows = table_rows(folder)
    vectors = np.load(folder / "F.npz")["features"]
    for name, keys in (("ids", [*range(60)]), ("urls", [f"https://example.org//a/{n}?x=1" for n in range(60)])):
        lines = [f"{key},{row['reading']}" for key, row in zip(keys, rows, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["key,reading", *lines]))
        np.savez(f"{name}.npz", names=keys[::-1], features=vectors[::-1])
        with refuses(f"{name}.csv", got="no column of image paths", hint="the names of the features: image=COLUMN"):
            file(f"{name}.csv", has_features=True)
        task = with_features(file(f"{name}.csv", {"reading": "number"}, "key", has_features=True), Path(f"{name}.npz"))
        values = np.stack([task.train.image(row) for row in range(len(task.train))])
        angles = np.arctan2(values[:, 1], values[:, 0])
        readings = task.train.labels.values.ravel().numpy() * task.train.labels.measure.factor
        np.testing.assert_allclose((readings / 20 - angles + np.pi) % (2 * np.pi), np.pi, atol=1e-3)


def test_rows_of_one_missing_image_are_copies(folder):
    with (folder / "items.csv").open("a", newline="") as table:
        csv.writer(table).writerow(["img/000.png", "99.5", *["x"] * 10])
    task = file("items.csv", {"reading": "number"}, has_features=True)
    copies = find_copies(with_features(task, folder / "F.npz").splits)
    assert (copies.items, dict(copies.divided), copies.contradictions) == (1, {}, 1)


def test_judgments(folder, accepted, refused):
    pairs = [(a, b) for a in range(0, 60, 3) for b in range(1, 60, 7) if a != b]
    lines = [f"img/{a:03}.png,img/{b:03}.png,{(a + b) % 5}" for a, b in pairs]
    Path("pairs.csv").write_text("\n".join(["a,b,score", *lines]))
    out, _ = accepted("check", "--data", "pairs.csv", "images.features=F.npz")
    assert "no image file found" in out
    refused("check", "--data", "pairs.csv")


def test_vectors_without_names_are_in_the_order_of_the_splits(folder, accepted, refused):
    """The order is not that of the table: it is printed, with the first item. Other files have no such order."""
    vectors = np.load(folder / "F.npz")["features"]
    data = ("--data", "items.csv", "--label", "reading=number", "images.features=F.npy", *SMALL)
    np.save(folder / "F.npy", vectors)
    assert "F.npy: has no names, and the split is drawn" in refused("check", *data)
    (folder / "F.npy").unlink()
    made = Made("key", len(vectors), vectors.shape[1], {})
    write_features(folder / "F.npy", [""] * len(vectors), None, vectors, made)
    out, err = accepted("check", *data)
    task = load_table(OwnData(Path("items.csv"), ["reading=number"]), None, list(data[4:])).read_task()
    sizes = f"{len(task.train):,} training, then "
    assert f"F.npy has no names: its vectors are taken for {sizes}" in out + err
    assert f"items in turn, the first one for {task.train.name(0)}" in out + err


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_names_in_another_unicode_form_are_found(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    names = [unicodedata.normalize("NFC", f"ä {n}.jpg") for n in range(30)]
    rows = [{"image": name, "reading": n} for n, name in enumerate(names)]
    write_table(tmp_path / "items.csv", rows)
    vectors, other = np.arange(90.0).reshape(30, 3), [unicodedata.normalize("NFD", name) for name in names]
    if form == "npz":
        np.savez("F.npz", names=other[::-1], features=vectors[::-1])
    else:
        parquet.write_table(pyarrow.table({"name": other[::-1], "features": vectors[::-1].tolist()}), "F.parquet")
    task = with_features(file(data="items.csv", labels={"reading": "number"}, has_features=True), Path(f"F.{form}"))
    for split in (task.train, task.test):
        found = np.stack([image.values for image in split.images])
        assert found[:, 0].tolist() == [3 * int(name.split()[1].partition(".")[0]) for name in split.names]


def test_tables_that_are_no_features(tmp_path):
    for second, got in (([[1.0, 2], [3.0], [4.0, 5]], "the vector of b has 1"), ([[1.0], None], "b has no numbers")):
        columns = {"name": list("abc")[: len(second)], "features": second}
        parquet.write_table(pyarrow.table(columns), tmp_path / "F.parquet")
        refused(lambda: read_features(tmp_path / "F.parquet"), "F.parquet", got)


def test_vectors_that_are_all_equal_are_refused(folder, refused):
    packed = np.load(folder / "F.npz")
    np.savez(folder / "E.npz", names=packed["names"], features=np.zeros_like(packed["features"]))
    line = refused("check", "--data", "items.csv", "--label", "reading=number", "images.features=E.npz", *SMALL)
    assert "E.npz: all 60 vectors are equal; must differ" in line


def test_check_describes_maps_of_features(folder, accepted):
    packed = np.load(folder / "F.npz")
    np.savez(folder / "M.npz", names=packed["names"], features=packed["features"][:, None])
    data = ("--data", "items.csv", "--label", "reading=number", "images.features=M.npz", *SMALL)
    out, _ = accepted("check", *data)
    assert "vectors of 3 numbers at 1 places" in out
