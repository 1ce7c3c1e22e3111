"""Splits by lists of names, and groups of frames that follow each other."""

import json

import pytest
from PIL import Image
from support.layouts import write_table
from support.refusals import refused

from contml.tasks.table.file import file

NUMBERS = [5, 3, 4, 9, 8, 20, 30, 31, 32, 50, 51, 60, 6, 7, 10, 11, 12, 13, 40, 2]
LISTS = {"train": [f"{k:02}" for k in range(12)], "test": [f"{k:02}" for k in range(12, 20)]}


@pytest.fixture
def folder(tmp_path):
    rows = []
    for k in range(20):
        Image.new("L", (8, 8), k).save(tmp_path / f"{k:02}.png")
        split = "test" if k >= 12 else "train"
        rows.append({"image": f"{k:02}.png", "age": k, "number": NUMBERS[k], "split": split})
    write_table(tmp_path / "own.csv", rows)
    return tmp_path


def ages(folder, **options):
    return file(str(folder / "own.csv"), {"age": "number"}, **options)


def test_a_file_of_lists(folder):
    lists = {"train": LISTS["train"][:9], "val": ["09.png", "10.png", "11"], "test": LISTS["test"], "queries": ["15"]}
    (folder / "lists.json").write_text(json.dumps({**lists, "note": "mine"}))
    task = ages(folder, split="lists.json")
    assert {part: len(split) for part, split in task.splits.items()} == {"train": 9, "val": 3, "test": 8}
    assert [task.test.name(row) for row in task.test.queries] == ["15.png"]
    assert ages(folder, split=str(folder / "lists.json"), image="image").test.names == task.test.names
    lists["train"] = LISTS["train"][:5]
    (folder / "lists.json").write_text(json.dumps(lists))
    assert len(ages(folder, split="lists.json").train) == 5  # rows in no list are not used


def test_a_folder_of_lists(folder):
    (folder / "lists").mkdir()
    for part, names in LISTS.items():
        (folder / f"lists/{part}.txt").write_text("\n".join(names))
    (folder / "lists/readme.txt").write_text("about")
    task = ages(folder, split="lists")
    assert (len(task.train), len(task.test), task.test.queries) == (12, 8, None)


WRONG = {
    "'77' of train is the name of 0 images": {**LISTS, "train": ["77"]},
    "in train and in test": {**LISTS, "test": ["00", "13", "14"]},
    "appears twice in test": {**LISTS, "test": ["13", "13", "14"]},
}


@pytest.mark.parametrize(("got", "lists"), WRONG.items())
def test_lists_that_are_refused(folder, got, lists):
    (folder / "lists.json").write_text(json.dumps(lists))
    refused(lambda: ages(folder, split="lists.json"), "lists.json", got)


def test_a_name_without_its_folder_may_be_that_of_two_images(folder):
    (folder / "a").mkdir()
    Image.new("L", (8, 8)).save(folder / "a/03.png")
    with (folder / "own.csv").open("a") as stream:
        stream.write("a/03.png,7,99,train\n")
    (folder / "lists.json").write_text(json.dumps(LISTS))
    refused(lambda: ages(folder, split="lists.json"), "lists.json", "'03' of train is the name of 2 images")
    LISTS_WHOLE = {**LISTS, "train": [f"{name}.png" for name in LISTS["train"]]}
    (folder / "lists.json").write_text(json.dumps(LISTS_WHOLE))
    assert len(ages(folder, split="lists.json").train) == 12


def test_frames_of_a_part_that_follow_each_other_are_a_group(folder):
    task = ages(folder, frame="number")
    groups = {}
    for name, group in zip(task.train.names, task.train.groups.tolist(), strict=True):
        groups.setdefault(group, set()).add(int(name[:2]))
    assert sorted(map(sorted, groups.values())) == [[0, 1, 2], [3, 4], [5], [6, 7, 8], [9, 10], [11]]
    assert (task.train.group_name, task.train.exclude_group, len(task.test.groups.unique())) == ("number", True, 4)
    assert len(set(task.val_groups)) == 6
    assert not ages(folder, frame="number", exclude_group=False).train.exclude_group


def test_frames_that_are_refused(folder):
    refused(lambda: ages(folder, frame="image"), "own.csv:2: image", "'00.png'", "a whole number")
    refused(lambda: ages(folder, frame="number", group="age"), "group and frame", "both")
    text = "\n".join(line.rpartition(",")[0] for line in (folder / "own.csv").read_text().splitlines())
    (folder / "own.csv").write_text(text)
    refused(lambda: ages(folder, frame="number"), "frame", "number", "needs a column of the split")
