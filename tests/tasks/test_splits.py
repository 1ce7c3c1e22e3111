"""The splits of users: which words are understood, in which files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from PIL import Image
from support.class_layouts import save, write_folders
from support.refusals import refuses

from contml.data.tables import refuse_object
from contml.tasks._readers.splits import (
    SplitItems,
    part_of,
    parts_of,
    queries_like,
    read_lists,
    split_by_lists,
    with_queries,
)
from contml.tasks.captions.files import files as caption_files
from contml.tasks.captions.synthetic import synthetic as scenes
from contml.tasks.classes.folder import folder as class_folder
from contml.tasks.classes.synthetic import synthetic as beetles
from contml.tasks.classes.table import csv as class_table
from contml.tasks.layout.files import files as layout_files
from contml.tasks.layout.synthetic import synthetic as rooms
from contml.tasks.pose.files import files as pose_files
from contml.tasks.pose.synthetic import synthetic as people

WORDS = {
    "train": ("train", "Training", " TRN "),
    "val": ("val", "Valid", "validation", "DEV"),
    "test": ("test", "testing", "Eval"),
    "query": ("query", "Queries", "probe"),
    "gallery": ("gallery", "GALLERY"),
}
FILES = "source.csv"


def read(cells, column="split"):
    return parts_of(cells, lambda row: f"{FILES}:{row + 2}", FILES, column)


# Words


@pytest.mark.parametrize(("part", "words"), WORDS.items())
def test_words_of_parts(part, words):
    assert {part_of(word) for word in words} == {part}
    assert part_of("trian") == part_of("") == part_of("0") == ""


def test_a_column_names_parts_and_rows_that_are_not_used():
    assert read(["Train", " dev", "", "probe", "gallery"]) == ["train", "val", "", "query", "gallery"]


@pytest.mark.parametrize(
    ("cells", "subject", "got", "hint"),
    [
        (["train", "holdout"], f"{FILES}:3: split", "'holdout'", "rename the column"),
        (["0", "1", "0"], f"{FILES}:2: split", "'0'", "train, val or test instead of 0 and 1"),
        (["1.0", "0.0"], f"{FILES}:2: split", "'1.0'", "instead of 0.0 and 1.0"),
        (["0", "1", "2", "4"], f"{FILES}:2: split", "'0'", "task.group=split"),
        (["fold_1", "fold_2", ""], f"{FILES}:2: split", "'fold_1'", "task.group=split"),
        (["train", "TRAIN", ""], f"{FILES}: split", "only 'train', 'TRAIN'", "val or test"),
        (["test", "val"], f"{FILES}: split", "only 'test', 'val'", "train"),
        (["", ""], f"{FILES}: split", "only empty cells", "train"),
    ],
)
def test_columns_that_are_refused(cells, subject, got, hint):
    with refuses(subject, got, "train", hint):
        read(cells)


# Lists


def test_lists_by_any_spelling(tmp_path):
    path = tmp_path / "lists.json"
    content = {"Training": ["a"], "dev": ["b"], "test": ["c", "d", "e"], "probe": ["d"], "about": "mine"}
    path.write_text(json.dumps(content))
    lists = read_lists(path, "split")
    assert lists == {"train": ["a"], "val": ["b"], "queries": ["d"], "test": ["c", "d", "e"]}
    assert split_by_lists(path, **lists) == SplitItems(["a"], ["b"], ["d"], ["c", "e"])


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ({"train": ["a"], "holdout": ["b"]}, "'holdout' names no part"),
        ({"train": ["a"], "val": ["b"], "dev": ["c"]}, "'dev' is a second list of val"),
        ({"train": ["a"], "validation": "b"}, "'validation' is not a list"),
        ({"train": ["a"]}, "'test' and no list 'val'"),
        ({"val": ["a"]}, "no list 'train'"),
        (["a"], "no list 'train'"),
    ],
)
def test_lists_that_are_refused(tmp_path, content, got):
    (tmp_path / "lists.json").write_text(json.dumps(content))
    with refuses("lists.json", got):
        read_lists(tmp_path / "lists.json", "split")


@pytest.mark.parametrize("pair", [("train", "val"), ("val", "test"), ("train", "queries"), ("val", "queries")])
def test_an_item_in_two_lists_is_refused(pair):
    lists = {part: [f"{part} {k}" for k in range(3)] for part in ("train", "val", "queries", "test")}
    lists[pair[1]].append(lists[pair[0]][0])
    with refuses("lists", f"{pair[0]} 0 is in {pair[0]} and in {'test' if pair[1] == 'queries' else pair[1]}"):
        split_by_lists(Path("lists"), **lists)


# Queries

names = st.lists(st.integers(0, 99).map(str), min_size=5, max_size=30, unique=True)


def drawn_queries(test):
    return set(with_queries(Path("own"), SplitItems(["x", "y", "z"], [], [], test)).queries)


@given(names, st.randoms())
def test_drawn_queries_do_not_depend_on_the_order(test, random):
    before = drawn_queries(test)
    random.shuffle(test)
    assert drawn_queries(test) == before
    assert len(before) == len(test) // 5


@given(names)
def test_another_item_changes_at_most_one_query(test):
    before, after = drawn_queries(test), drawn_queries([*test, "another"])
    assert len(before - after) <= 1


def test_the_share_of_queries_of_a_validation_split():
    assert queries_like(200, 1000, 500) == 100
    assert queries_like(0, 1000, 500) == 0
    assert queries_like(998, 1000, 3) == 1


# Every reader


def save_images(root, count, folder="images"):
    for number in range(count):
        save(root / folder / f"{number}.png", number, 0)


def read_captions(root, cells):
    save_images(root, len(cells))
    rows = [f"{number}.png,a cat and a dog {number},{cell}" for number, cell in enumerate(cells)]
    (root / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    return caption_files(str(root), dim=5, empty="drop")


def read_layouts(root, cells):
    save_images(root, len(cells))
    for number in range(len(cells)):
        with Image.open(root / f"images/{number}.png") as picture:
            Image.new("L", picture.size, number % 3).save(root / f"{number}.png")
    rows = [f"images/{number}.png,{number}.png,{cell}" for number, cell in enumerate(cells)]
    (root / "pairs.csv").write_text("\n".join(["image,label,split", *rows]))
    return layout_files(str(root), pairs="pairs.csv")


def read_poses(root, cells):
    save_images(root, len(cells))
    joints = [[[k + number, k * number % 20] for k in range(14)] for number in range(len(cells))]
    rows = [{"name": f"{number}.png", "joints": joints[number], "split": cell} for number, cell in enumerate(cells)]
    (root / "joints.json").write_text(json.dumps({"people": rows}))
    return pose_files(str(root), joints="joints.json")


def read_class_table(root, cells):
    save_images(root, len(cells))
    rows = [f"images/{number}.png,{number % 3},{cell}" for number, cell in enumerate(cells)]
    (root / "images.csv").write_text("\n".join(["image,class,split", *rows]))
    return class_table(str(root))


def read_class_folder(root, cells):
    for number, cell in enumerate(cells):
        save(root / f"{cell.strip()}/{number % 3}/{number}.png", number, 0)
    return class_folder(str(root))


def read_class_list(root, cells):
    for number in range(len(cells)):
        save(root / f"{number}/0.png", number, 0)
    (root / "own.csv").write_text(
        "\n".join(["class,split", *(f"{number},{cell}" for number, cell in enumerate(cells))])
    )
    return class_folder(str(root), split="own.csv")


READERS = [read_captions, read_layouts, read_poses, read_class_table, read_class_folder, read_class_list]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_validation_items_in_place_of_test_items(tmp_path, reader):
    task = reader(tmp_path, ["Training"] * 4 + ["Valid"] * 4)
    assert (len(task.train), len(task.val), task.test) == (4, 4, None)
    assert task.evaluated is task.val


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_keeps_validation_items_apart(tmp_path, reader):
    task = reader(tmp_path, ["train"] * 4 + ["dev"] * 3 + ["eval"] * 6)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 4, "val": 3, "test": 6}
    assert not {*task.val.names} & {*task.train.names, *task.test.names}


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader is not read_class_folder])
def test_every_reader_refuses_what_is_no_split(tmp_path, reader):
    with refuses(": split", "'0'", "train, val, test", "instead of 0 and 1"):
        reader(tmp_path, ["0"] * 4 + ["1"] * 6)
    with refuses(": split", "only 'train'", "test or val"):
        reader(tmp_path, ["train"] * 8)


def test_two_folders_of_one_part_are_refused(tmp_path):
    write_folders(tmp_path)
    save(tmp_path / "val/a/0.png", 0, 0)
    save(tmp_path / "Validation/a/0.png", 0, 0)
    with refuses(str(tmp_path), "Validation and val are both val"):
        class_folder(str(tmp_path))


# Drawn splits


def test_another_class_moves_no_class(tmp_path):
    def parts():
        task = class_folder(str(tmp_path), split="half")
        return {name: part for part, split in task.splits.items() for name in split.labels.colours().classes}

    for number in range(12):
        save(tmp_path / f"{number}/0.png", number, 0)
    before = parts()
    assert set(before.values()) == {"train", "test"}
    for number in (20, 21, 22):
        save(tmp_path / f"{number}/0.png", number, 0)
    after = parts()
    assert {name: after[name] for name in before} == before


# Synthetic data


@pytest.mark.parametrize(
    ("draw", "sizes"),
    [
        (people, {"train": 4, "val": 3, "test": 6, "queries": 2, "size": 16}),
        (rooms, {"train": 4, "val": 3, "test": 6, "queries": 2, "size": 16}),
        (scenes, {"train": 40, "val": 5, "test": 10, "queries": 2, "size": 16, "dim": 5}),
    ],
)
def test_synthetic_data_draw_a_validation_split_of_their_own(draw, sizes):
    task, other = draw(**sizes), draw(**{**sizes, "val": sizes["val"] + 1})
    assert [len(split) for split in task.splits.values()] == [sizes["train"], sizes["val"], sizes["test"]]
    assert len({name for split in task.splits.values() for name in split.names}) == sum(map(len, task.splits.values()))
    for part, split in task.splits.items():
        for row in range(len(split)):
            assert (split.image(row) == other.splits[part].image(row)).all()
        if part != "val":
            assert split.labels.fingerprint() == other.splits[part].labels.fingerprint()


def test_validation_beetles_are_of_other_genera():
    task = beetles(classes=8, per_class=2, val_classes=8, val_per_class=2, test_classes=8, test_per_class=2, size=12)
    genera = [{name.split()[0] for name in split.labels.colours().classes} for split in task.splits.values()]
    assert [len(split) for split in task.splits.values()] == [16, 16, 16]
    assert len(set.union(*genera)) == sum(map(len, genera)), "two genera each"


# Objects


@pytest.mark.parametrize("cell", ['{"a": 1}', "{'a': 1}", '[{"a": "b"}]', ' [1, {"a": 2}] '])
def test_objects_are_refused(cell):
    with refuses("own.csv:2: tags", "JSON object", "a text or a list of texts"):
        refuse_object(cell, "own.csv:2: tags", "the kind tags")


@pytest.mark.parametrize("cell", ["", "red", '["a", "b"]', "[1, 2]", "{a}", "a {b}", "[", "{'a', 'b'}"])
def test_other_texts_are_no_objects(cell):
    refuse_object(cell, "own.csv:2: tags", "the kind tags")
