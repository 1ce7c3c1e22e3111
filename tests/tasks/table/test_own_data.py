"""Your own data in every form: CSV, TSV, compressed, JSON lines, Parquet, folders of classes, labels in file names."""

import gzip
import json
import shutil

import pytest
import torch
from support.refusals import refuses
from support.tables import dials, write_table

from contml.tasks.table.file import file


@pytest.fixture
def rows(tmp_path):
    return dials(tmp_path)


def labels_of(path, **options):
    return file(str(path), {"reading": "number", "colour": "class"}, image="image", **options).train.labels


def test_every_format_gives_the_same_labels(tmp_path, rows):
    write_table(tmp_path / "items.csv", rows)
    expected = labels_of(tmp_path / "items.csv").pairwise()
    (tmp_path / "items.csv.gz").write_bytes(gzip.compress((tmp_path / "items.csv").read_bytes()))
    lines = "".join(json.dumps({**row, "reading": float(row["reading"])}) + "\n" for row in rows)
    (tmp_path / "items.jsonl").write_text(lines)
    (tmp_path / "items.ndjson.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines.encode()))
    for name in ("items.csv.gz", "items.jsonl", "items.ndjson.gz"):
        assert torch.equal(labels_of(tmp_path / name).pairwise(), expected), name


def test_json_lines_may_have_lists_nulls_and_missing_keys(tmp_path, rows):
    objects = [
        {"image": row["image"], "gaze": [n / 7, n % 5], "tags": ["a", f"t{n % 4}"]} for n, row in enumerate(rows)
    ]
    objects[3]["tags"] = None
    del objects[4]["tags"]
    (tmp_path / "own.jsonl").write_text("\n\n".join(map(json.dumps, objects)))
    task = file(str(tmp_path / "own.jsonl"), {"gaze": "vector", "tags": "tags"})
    assert "missing in 2 rows" in " ".join(cell for line in task.columns for cell in line)
    with refuses("own.jsonl:7", "no tags (2 such of 60 rows)"):  # blank lines count
        file(str(tmp_path / "own.jsonl"), {"tags": "tags"})


def folders(tmp_path, rows, name):
    """The images of a table in folders; `name` gives the new path of a row."""
    for row in rows:
        target = tmp_path / "photos" / name(row)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / row["image"], target)
    return tmp_path / "photos"


@pytest.mark.parametrize("place", ["", "images/", "images/all/of/them/"])
def test_a_folder_for_each_class_below_those_that_hold_all_images(tmp_path, rows, place):
    root = folders(tmp_path, rows, lambda row: f"{place}{row['colour']}/{row['image'][4:]}")
    (root / ".cache").mkdir()
    (root / "notes.txt").write_text("no image")
    task = file(str(root))
    assert task.columns[1][2:] == ["a folder for each class", "60 rows, 2 columns"]
    assert len(task.train) + len(task.test) == 60
    assert set(task.train.labels.names) == {row["colour"] for row in rows}
    assert task.train.name(0).startswith(place)


def test_folders_named_as_splits(tmp_path, rows):
    part = {row["image"]: ("Train", "val", "test")[n % 3] for n, row in enumerate(rows)}
    root = folders(tmp_path, rows, lambda row: f"{part[row['image']]}/{row['colour']}/x/{row['image'][4:]}")
    task = file(str(root))
    assert (len(task.train), len(task.val), len(task.test)) == (20, 20, 20)
    assert set(task.test.labels.names) <= {row["colour"] for row in rows}


def test_labels_in_the_names_of_images(tmp_path, rows):
    root = folders(tmp_path, rows, lambda row: f"{row['reading']}_{row['colour']}_{row['image'][4:]}")
    (root / "stray.png").write_bytes((root / sorted(p.name for p in root.iterdir())[0]).read_bytes())
    kinds = {"reading": "number", "colour": "class"}
    with refuses(f"{root}/stray.png", "no label (1 such of 61 rows)", hint="missing=drop"):
        file(str(root), kinds, pattern="{reading}_{colour}_*.png")
    task = file(str(root), kinds, pattern="{reading}_{colour}_*.png", missing="drop")
    by_name = {name.rpartition("/")[2]: row for row, name in enumerate(task.train.names)}
    colours = task.train.labels.spaces[1]
    assert {colours.names[colours.class_ids[row]] for row in by_name.values()} <= {row["colour"] for row in rows}
    assert all(colours.names[colours.class_ids[row]] == name.split("_")[1] for name, row in by_name.items())


def test_a_pattern_with_folders(tmp_path, rows):
    root = folders(tmp_path, rows, lambda row: f"deep/{row['colour']}/{row['reading']}.png")
    task = file(str(root), {"age": "number"}, pattern="{colour}/{age}.png")
    assert [line[0] for line in task.columns[2:] if line[0]] == ["image", "age", "colour"]
    for wrong in ("*.png", "{a}_{a}.png", "{image}.png", "{}.png", "{a}}.png", "{ split }_{b}.png"):
        with refuses("pattern", wrong, allowed="different names"):
            file(str(root), pattern=wrong)


def test_nanoseconds_of_parquet_are_cut(tmp_path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    times = pyarrow.array([86_400_000_000_000 * n + 1 for n in range(60)], pyarrow.timestamp("ns"))
    columns = {"image": [row["image"] for row in rows], "taken": times, "at": times.cast(pyarrow.time64("ns"))}
    parquet.write_table(pyarrow.table(columns), tmp_path / "own.parquet")
    task = file(str(tmp_path / "own.parquet"), {"taken": {"kind": "date", "scale": "none"}})
    days = task.train.labels.pairwise()
    assert torch.equal(days, days.round())
    assert days.max() > 30
    assert "all rows have the same value" in " ".join(cell for line in task.columns for cell in line)
