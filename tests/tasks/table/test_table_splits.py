"""The split of a table: drawn splits that do not move, splits of users, and labels that are refused."""

import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.refusals import refused, refuses
from support.tables import dials, write_table

from contml.tasks.table.file import file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("splits")


@pytest.fixture(scope="module")
def rows(folder):
    return dials(folder, 60)


def task_of(folder, rows, labels=None, **options):
    write_table(folder / "own.csv", rows)
    return file(str(folder / "own.csv"), labels or {"reading": "number"}, image="image", **options)


def parts(task):
    """The split of each image, and which are queries."""
    found = {name[-7:]: part for part, split in task.splits.items() for name in split.names}
    test = task.evaluated
    queries = set() if test.queries is None else {test.names[row][-7:] for row in test.queries.tolist()}
    return found, queries


def columns(task):
    return {line[0]: line[1:] for line in task.columns}


def with_column(rows, name, cells):
    return [{"image": r["image"], "reading": r["reading"], name: cell} for r, cell in zip(rows, cells, strict=True)]


# Drawn


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sets(st.integers(0, 59), max_size=20), st.randoms(), st.sampled_from([None, "maker"]))
def test_removed_and_reordered_rows_move_no_other_row(folder, rows, removed, random, group):
    before, queries = parts(task_of(folder, rows, group=group, queries=4))
    left = [row for number, row in enumerate(rows) if number not in removed]
    random.shuffle(left)
    after, queries_after = parts(task_of(folder, left, group=group, queries=4))
    assert after == {name: part for name, part in before.items() if name in after}
    gone = {name for name, part in before.items() if name not in after and part == "test"}
    assert len(queries - queries_after) <= len(gone)


def test_a_folder_that_moved_and_absolute_paths_move_no_row(folder, rows, tmp_path):
    before = parts(task_of(folder, rows, queries=4))
    shutil.copytree(folder / "img", tmp_path / "img")
    assert parts(task_of(tmp_path, rows, queries=4)) == before
    absolute = [{**row, "image": f"{tmp_path}/{row['image']}"} for row in rows]
    assert parts(task_of(tmp_path, absolute, queries=4)) == before
    assert parts(task_of(tmp_path, [{**row, "image": f"./{row['image']}"} for row in rows], queries=4)) == before


def test_rows_of_one_image_are_drawn_as_queries_in_any_order(folder, rows):
    twice = [{**row, "reading": str(float(row["reading"]) + shift)} for row in rows for shift in (0, 1)]

    def queries(table):
        task = task_of(folder, table, queries=5)
        return {(task.test.names[row], task.test.labels._identity[row]) for row in task.test.queries.tolist()}

    assert queries(twice) == queries(twice[::-1])


def test_a_class_without_a_test_item_is_named(folder, rows):
    few = [{**row, "colour": "pink"} if number < 2 else row for number, row in enumerate(rows)]
    split = ["train"] * 40 + ["test"] * 20
    table = [{**row, "split": part} for row, part in zip(few, split, strict=True)]
    assert "; no test item of class pink (1 such)" in columns(task_of(folder, table, {"colour": "class"}))["colour"][2]
    levels = {"colour": {"kind": "ordinal", "levels": sorted({row["colour"] for row in few})}}
    assert "; no test item of level pink (1 such)" in columns(task_of(folder, table, levels))["colour"][2]
    apart = task_of(folder, rows, {"maker": "class"}, group="maker")
    assert "no test item" not in columns(apart)["maker"][2], "test classes are never in training"


def test_validation_groups_and_texts_of_labels(folder, rows):
    assert task_of(folder, rows).val_groups is None
    task = task_of(folder, rows, group="maker", exclude_group=True)
    assert len(set(task.val_groups)) == len(task.train.groups.unique()) < 10
    assert task.train.labels._identity == [
        row["reading"] for row in rows if f"/{row['image'][4:]}" in str(task.train.names)
    ]
    twice = [row for row in rows for _ in range(2)]
    assert sorted(set(task_of(folder, twice).val_groups)) == sorted(
        {name.removeprefix(f"{folder}/") for name in task_of(folder, twice).train.names}
    )


# Named


@pytest.mark.parametrize("words", [("train", "val"), ("Training", "Valid"), ("trn", "dev")])
def test_validation_rows_are_evaluated_where_no_test_rows_are_named(folder, rows, words):
    task = task_of(folder, with_column(rows, "note", [words[number >= 40] for number in range(60)]), queries=5)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 40, "val": 20}
    assert len(task.val.queries) == 5
    assert columns(task)["note"][2] == "40 for training, 20 for validation, 5 of them queries"


def test_train_validation_and_test_rows(folder, rows):
    words = ["train"] * 30 + ["validation"] * 10 + ["eval"] * 20
    task = task_of(folder, with_column(rows, "anything", words), queries=10)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 30, "val": 10, "test": 20}
    assert ((len(task.test.queries), len(task.val.queries)), task.val.labels.unit) == ((10, 5), task.train.labels.unit)
    several = task_of(
        folder, with_column(rows, "anything", words), {"reading": "number", "anything": "class"}, test=0.5
    )
    assert "val" not in several.splits, "a label is not the split"


@pytest.mark.parametrize(
    ("name", "cells", "subject", "hint"),
    [
        ("split", ["0", "1"], "own.csv:2: split", "instead of 0 and 1"),
        ("anything", ["train", "train", ""], "own.csv: anything", "val or test"),
        ("anything", [*["train", "test"] * 14, "trian"], "own.csv:30: anything", "train, val or test"),
    ],
)
def test_columns_that_are_named_like_a_split_or_hold_one_are_refused(folder, rows, name, cells, subject, hint):
    table = with_column(rows, name, [cells[number % len(cells)] for number in range(60)])
    refused(lambda: task_of(folder, table), subject, allowed="train", hint=hint)
    if len(set(cells)) > 1 and all(cells):
        assert task_of(folder, table, {"reading": "number", name: "class"}), "a label may have any name"


def test_folds_are_groups_and_a_split_beside_them_is_used(folder, rows):
    folds = with_column(rows, "fold", [str(number % 5) for number in range(60)])
    assert set(task_of(folder, folds, group="fold").val_groups) < {"0", "1", "2", "3", "4"}
    both = [{**row, "part": ["train", "test"][number % 2]} for number, row in enumerate(folds)]
    assert columns(task_of(folder, both))["part"][0] == "split"


def test_two_columns_that_name_different_splits_are_refused(folder, rows):
    first = [["train", "test"][number % 2] for number in range(60)]
    table = [{**row, "b": cell} for row, cell in zip(with_column(rows, "a", first), first, strict=True)]
    assert columns(task_of(folder, table))["a"][0] == "split", "they agree"
    table[0]["b"] = "test"
    refused(lambda: task_of(folder, table), "own.csv", "both 'a' and 'b'", hint="split=a")
    assert len(task_of(folder, table, split="b").train) == 29


# Labels


@pytest.mark.parametrize(
    ("cells", "got"),
    [
        ([f"{number / 7:.3f}" for number in range(60)], "'0.143', one of 60 different numbers in 60 rows"),
        ([f"{number % 25 + 0.5}" for number in range(60)], "'0.5', one of 25"),
        ([str(1000 + 3 * number) for number in range(60)], "'1000', one of 60"),
    ],
)
def test_measured_numbers_are_not_ordinal(folder, rows, cells, got):
    table = with_column(rows, "price", cells)
    refused(lambda: task_of(folder, table, {"price": "ordinal"}), ": price", got, "at most 20 levels", "price=number")
    assert task_of(folder, table, {"price": {"kind": "ordinal", "levels": sorted(set(cells), key=float)}})


@pytest.mark.parametrize("cells", [["1", "1.5", "2"], [str(number) for number in range(30)], ["-1", "0", "1"]])
def test_levels_that_repeat_are_ordinal(folder, rows, cells):
    table = with_column(rows, "grade", [cells[number % len(cells)] for number in range(60)])
    assert task_of(folder, table, {"grade": "ordinal"})


def test_words_without_an_order_name_their_line(folder, rows):
    table = with_column(rows, "grade", ["1", "2", "good"] * 20)
    with refuses("own.csv:4: grade", "the level 'good'", "numbers", "set labels.grade.levels=["):
        task_of(folder, table, {"grade": "ordinal"})


def test_a_column_that_may_name_groups_is_shown_as_such(folder, rows):
    patients = with_column(rows, "patient", [f"P{number // 2}" for number in range(60)])
    hint = "could be class; if rows with the same patient belong together: task.group=patient"
    assert columns(task_of(folder, patients, {"reading": "number"}))["patient"][2] == hint
    houses = [{**row, "house": n // 2, "price": n // 2} for n, row in enumerate(rows)]
    for label, hinted in (("price", True), ("reading", False)):  # a house has one price and two readings
        assert ("task.group=house" in columns(task_of(folder, houses, {label: "number"}))["house"][2]) == hinted
    few = with_column(rows, "room", ["kitchen", "bath"] * 30)
    assert columns(task_of(folder, few, {"reading": "number"}))["room"][2] == "could be class"


def test_equal_numbers_are_one_level(folder, rows):
    """4 and 4.0 were two levels, one step apart."""
    table = with_column(rows, "grade", ["1", "2", "2.0", "3", "3.00", "4.0"] * 10)
    labels = task_of(folder, table, {"grade": "ordinal"}).test.labels
    assert labels.levels == ["1", "2", "3", "4.0"]
    assert set((3 * labels.pairwise()).round(decimals=4).flatten().tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["tags", "captions", "class"])
def test_objects_of_json_are_no_texts(folder, rows, kind):
    good = [json.dumps(["red", "old"][: 1 + number % 2]) for number in range(60)]
    for bad in ('{"tag": "red"}', "{'tag': 'red'}", '[{"tag": "red"}]', ' [1, {"tag": 2}] '):
        with refuses("own.csv:6: about", "JSON object", f"the kind {kind} must be"):
            task_of(folder, with_column(rows, "about", [*good[:4], bad, *good[5:]]), {"about": kind})
    numbers = with_column(rows, "about", [json.dumps([number % 3, 7]) for number in range(60)])
    assert task_of(folder, numbers, {"about": "tags"})


def test_the_split_that_a_page_shows_has_the_columns_of_its_rows(tmp_path):
    rows = [{**row, "note": f"note {number}", "floor": number} for number, row in enumerate(dials(tmp_path))]
    write_table(tmp_path / "items.csv", rows)
    task = file(str(tmp_path / "items.csv"), {"reading": "number"}, image="image")
    assert task.train.metadata == {}  # worker processes receive it
    metadata = task.test.metadata
    assert {"note", "floor", "reading"} <= set(metadata) <= {*rows[0]} - {"image"}
    note_of = {row["image"]: (row["note"], str(row["floor"])) for row in rows}
    found = zip(metadata["note"], metadata["floor"], strict=True)
    for name, values in zip(task.test.names, found, strict=True):
        assert next(note for image, note in note_of.items() if name.endswith(image)) == values
    some = task.test.subset([2, 0])
    assert some.metadata["note"] == [metadata["note"][2], metadata["note"][0]]
    refused(lambda: replace(some, metadata={"note": ["one"]}), "split: metadata note", "1 values", "must be 2")
