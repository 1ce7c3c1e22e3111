"""The splits of users: which words are understood, in which files, and what is refused."""

import json
from pathlib import Path

import pytest
from support.refusals import refused, refuses

from contml.data.tables import refuse_object
from contml.tasks._readers.splits import SplitItems, parts_of, queries_like, read_lists, split_by_lists

FILES = "source.csv"


def read(cells, column="split"):
    return parts_of(cells, lambda row: f"{FILES}:{row + 2}", FILES, column)


# Words


def test_a_column_names_parts_and_rows_that_are_not_used():
    words = ["train", "Training", " TRN ", "val", "Valid", "validation", "DEV", "test", "testing", "Eval", ""]
    assert read(words) == ["train"] * 3 + ["val"] * 4 + ["test"] * 3 + [""]
    words = ["train", "query", "Queries", "probe", "gallery", "GALLERY"]
    assert read(words) == ["train", *["query"] * 3, *["gallery"] * 2]


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
    refused(lambda: read(cells), subject, got, "train", hint)


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
    refused(lambda: read_lists(tmp_path / "lists.json", "split"), "lists.json", got)


@pytest.mark.parametrize("pair", [("train", "val"), ("val", "test"), ("train", "queries"), ("val", "queries")])
def test_an_item_in_two_lists_is_refused(pair):
    lists = {part: [f"{part} {k}" for k in range(3)] for part in ("train", "val", "queries", "test")}
    lists[pair[1]].append(lists[pair[0]][0])
    with refuses("lists", f"{pair[0]} 0 is in {pair[0]} and in {'test' if pair[1] == 'queries' else pair[1]}"):
        split_by_lists(Path("lists"), **lists)


def test_the_share_of_queries_of_a_validation_split():
    assert (queries_like(200, 1000, 500), queries_like(0, 1000, 500), queries_like(998, 1000, 3)) == (100, 0, 1)


# Objects


@pytest.mark.parametrize("cell", ["", "red", '["a", "b"]', "[1, 2]", "{a}", "a {b}", "[", "{'a', 'b'}"])
def test_other_texts_are_no_objects(cell):
    refuse_object(cell, "own.csv:2: tags", "the kind tags")


def test_objects_between_spaces_are_refused():
    refused(lambda: refuse_object(' [1, {"a": 2}] ', "own.csv:2: tags", "the kind tags"), "own.csv:2", "JSON object")
