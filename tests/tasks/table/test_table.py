"""Your own table: every kind of label, the guesses, the splits, and how rows are drawn."""

import csv
import json
import math
import pickle

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from support.refusals import refused, refuses
from support.tables import SIZES, dials, suggested, write_table

from contml._support.text import number as number_of
from contml.config import options as options_of
from contml.data import Split, Task
from contml.distances import haversine
from contml.labels import CaptionLabels, ClassLabels, DateLabels, WeightedLabels
from contml.tasks.table.file import file
from contml.tasks.table.kinds import TABLE_LABELS
from contml.tasks.table.number_labels import NumberLabel
from contml.tasks.table.text_labels import MapLabel

KINDS = {"colour": "class", "reading": "number", "needle": "vector", "lat,lon": "geo", "grade": "ordinal"}
KINDS |= {"tags": "tags", "text": "captions", "map": "map"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("table")
    write_table(path / "items.csv", dials(path))
    return path


@pytest.fixture(scope="module")
def rows(folder):
    with (folder / "items.csv").open(newline="") as opened:
        return list(csv.DictReader(opened))


def small(labels):
    """Labels with word vectors of eight dimensions."""
    return labels and {n: {"kind": k, "dim": 8} if k == "captions" else k for n, k in labels.items()}


def table(folder, labels=None, **options):
    return file(str(folder / "items.csv"), small(labels), **{"image": "image", **options})


def own(folder, rows, labels=None, **options):
    """A table of these rows in another file of the folder."""
    path = folder / "own.csv"
    write_table(path, rows)
    return file(str(path), small(labels), **options)


def column(task, name):
    """How a column was read: its use, the reason, and its values."""
    (line,) = (line[1:] for line in task.columns if line[0] == name)
    return line


def split_line(task):
    """How the rows were split: the column, "split", how, and the sizes."""
    (line,) = (line for line in task.columns if line[1] == "split")
    return line


def numbers_of(split):
    return [int(name[-7:-4]) for name in map(split.name, range(len(split)))]


def expected(kind, x, y):
    """The label distance of two rows, computed from their cells without the task."""
    if kind == "class":
        return float(x["colour"] != y["colour"])
    if kind == "vector":
        return np.linalg.norm(np.subtract(json.loads(x["needle"]), json.loads(y["needle"])))
    if kind == "geo":
        first, second = (torch.tensor([[float(r["lat"]), float(r["lon"])]], dtype=torch.float64) for r in (x, y))
        return float(haversine(first, second))
    if kind == "ordinal":
        return abs(int(x["grade"]) - int(y["grade"])) / 4
    if kind == "tags":
        a, b = set(x["tags"].split(";")), set(y["tags"].split(";"))
        return 1 - len(a & b) / len(a | b)
    return abs(float(x["reading"]) - float(y["reading"]))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in ("captions", "map")])
def test_label_distances_are_those_of_the_cells(folder, rows, name):
    scaled = {"scale": "none"} if KINDS[name] in ("number", "vector") else {}
    task = table(folder, {name: {"kind": KINDS[name], **scaled}})
    assert isinstance(task, Task)
    for split in (task.train, task.test):
        assert isinstance(split, Split)
        own_rows = [rows[number] for number in numbers_of(split)]
        want = [[expected(KINDS[name], x, y) for y in own_rows] for x in own_rows]
        torch.testing.assert_close(split.labels.pairwise().double(), torch.tensor(want).double(), rtol=1e-5, atol=1e-5)


def test_numbers_come_in_units_of_the_training_rows_spread(folder, rows):
    plain = table(folder, {"reading": "number:none"}).test.labels.pairwise()
    for scale, unit in (("std", np.std), ("range", lambda v: np.quantile(v, 0.95) - np.quantile(v, 0.05))):
        task = table(folder, {"reading": {"kind": "number", "scale": scale}})
        size = unit([float(rows[number]["reading"]) for number in numbers_of(task.train)])
        torch.testing.assert_close(task.test.labels.pairwise() * size, plain, rtol=1e-5, atol=1e-4)
        assert f"{size:.4g}" in task.test.labels.unit
        assert f"a label distance of 1 is {size:.4g}" in column(task, "reading")[2]


@pytest.mark.parametrize("name", ["reading,grade", "needle"])
def test_columns_of_a_vector_have_a_unit_each_and_a_list_has_one(folder, rows, name):
    task, is_list = table(folder, {name: "vector"}), name == "needle"
    values = [json.loads(row[name]) if is_list else [float(row[key]) for key in name.split(",")] for row in rows]
    train, test = (np.array([values[n] for n in numbers_of(split)]) for split in (task.train, task.test))
    test = test / (np.sqrt(train.var(0).mean()) if is_list else train.std(0))
    want = torch.from_numpy(np.linalg.norm(test[:, None] - test, axis=2))
    torch.testing.assert_close(task.test.labels.pairwise().double(), want, rtol=1e-5, atol=1e-5)


def test_maps_and_captions_are_those_of_their_own_spaces(folder, rows):
    task = table(folder, {"map": {"kind": "map", "side": None}})
    maps = [np.asarray(Image.open(folder / rows[number]["map"])) for number in numbers_of(task.test)]
    for i, x in enumerate(maps[:4]):
        for j, y in enumerate(maps[:4]):
            ious = [((x == c) & (y == c)).sum() / ((x == c) | (y == c)).sum() for c in range(3)]
            assert float(task.test.labels.pairwise([i], [j])) == pytest.approx(1 - np.mean(ious), abs=1e-6)
    task = table(folder, {"text": "captions"})
    captions = [[rows[number]["text"]] for number in numbers_of(task.test)]
    assert isinstance(task.test.labels, CaptionLabels)
    assert task.test.labels.captions == captions  # a captioner learns them
    alone = CaptionLabels(captions, dict(zip(task.test.labels.words, task.test.labels._costs.vectors, strict=True)))
    torch.testing.assert_close(task.test.labels.pairwise(), alone.pairwise())


def test_several_labels_are_summed_on_one_scale(folder):
    labels = {"reading": "number:2", "colour": "class", "map": "map:0.5", "text": "captions", "lat,lon": "geo"}
    task = table(folder, labels)
    assert isinstance(task.train.labels, WeightedLabels)
    alone = {name: table(folder, {name: kind.split(":")[0]}) for name, kind in labels.items()}
    given = [float(kind.partition(":")[2] or 1) for kind in labels.values()]
    means = [weight / scaled for weight, scaled in zip(given, task.train.labels.weights, strict=True)]
    total = 0
    for (name, kind), mean in zip(labels.items(), means, strict=True):
        first = alone[name].train.labels.pairwise().double()
        apart = float(first.sum()) / (len(first) * (len(first) - 1))
        assert mean == pytest.approx(apart, rel=1e-6)  # 48 rows: all are in the sample
        total = total + float(kind.partition(":")[2] or 1) / apart * alone[name].test.labels.pairwise().double()
    torch.testing.assert_close(task.test.labels.pairwise().double(), total, rtol=1e-5, atol=1e-5)
    assert task.train.labels.unit.startswith("2 x reading / ")


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, k in KINDS.items() if n != "grade"])
def test_kinds_are_guessed(folder, name, kind):
    task = table(folder, {name: "auto:0.5"}, split=None)
    used_as, why, _ = column(task, name)
    assert used_as == kind
    assert why != "as given"
    changes = json.loads(suggested(task)[1][0].removeprefix("task.labels="))
    options = {option.name: option.default for option in options_of(TABLE_LABELS[kind])}
    assert changes == {name: {"kind": kind, **options, "weight": 0.5}}


def test_levels_in_words_need_their_order(folder, rows):
    hint = "set labels.size.levels=[LOWEST, ..., HIGHEST], all of them in order, of large, medium, small"
    refused(lambda: table(folder, {"size": "ordinal"}), "items.csv:2: size", "levels in words", hint=hint)
    task = table(folder, {"size": {"kind": "ordinal", "levels": list(SIZES)}})
    places = [SIZES.index(rows[number]["size"]) for number in numbers_of(task.test)]
    want = torch.tensor([[abs(a - b) / 2 for b in places] for a in places])
    torch.testing.assert_close(task.test.labels.pairwise(), want)
    with refuses("items.csv:2: size", "not a level", "small, tall"):
        table(folder, {"size": {"kind": "ordinal", "levels": ["small", "tall"]}})


def test_the_column_of_images_and_the_one_label_are_found(folder, rows):
    few = [{"photo": row["image"], "age": row["reading"], "id": k} for k, row in enumerate(rows)]
    task = own(folder, few)
    assert suggested(task)[0] == "table/default"
    assert [line[0] for line in task.columns] == ["column", "", "photo", "age", "", "id"]
    assert (column(task, "photo")[:2], column(task, "age")[0]) == (["image", "its cells name image files"], "number")
    assert column(task, "id")[:2] == ["not used", "it only numbers the rows"]
    both = [{"mask": row["map"], "picture": row["image"]} for row in rows]
    task = own(folder, both)
    assert (column(task, "picture")[0], column(task, "mask")[0]) == ("image", "map")


def test_one_class_label_suggests_the_config_of_classes(folder):
    task = table(folder, {"colour": "class"})
    assert isinstance(task.test.labels, ClassLabels)
    config, changes = suggested(task)
    assert config == "table/classes"
    assert "sampler.classes=4" in changes
    assert 'task.labels={"colour": {"kind": "class", "weight": 1.0}}' in changes


def test_batches_fit_the_rows_and_above_a_number_of_rows_are_drawn_uniformly(folder, monkeypatch):
    config, changes = suggested(table(folder, {"reading": "number"}))
    assert config == "table/default"
    assert changes[-3:] == ["sampler.batch_size=48", "sampler.anchors_per_batch=8", "sampler.neighbours=5"]
    monkeypatch.setattr(NumberLabel, "most_rows", (47, 47))
    last = suggested(table(folder, {"reading": "number"}))[1][-1]
    assert last == "sampler={name: uniform, batch_size: 48, batches: 25}"
    assert suggested(table(folder, {"map": "map"}))[1][-1] == "sampler.neighbours=5"
    monkeypatch.setattr(MapLabel, "most_rows", (48, 47))
    assert suggested(table(folder, {"map": "map"}))[1][-1] == "sampler.neighbours=5"
    assert "uniform" in suggested(table(folder, {"map": "map", "colour": "class"}))[1][-1]


# Splits


def test_a_drawn_split_is_reproducible_and_keeps_groups_apart(folder, rows):
    first, again, other = (numbers_of(table(folder, {"reading": "number"}, seed=s).test) for s in (0, 0, 1))
    assert first == again != other
    assert 6 <= len(first) <= 18, "about a fifth of 60"
    task = table(folder, {"reading": "number"}, group="maker", test=0.3)
    makers = [{rows[number]["maker"] for number in numbers_of(split)} for split in (task.train, task.test)]
    assert not makers[0] & makers[1]
    assert 2 <= len(makers[1]) <= 5
    assert task.val_groups == [rows[number]["maker"] for number in numbers_of(task.train)]
    assert "no maker in both" in split_line(task)[2]


def test_rows_of_one_image_stay_together(folder, rows):
    twice = [{**row, "reading": str(float(row["reading"]) + shift)} for row in rows for shift in (0, 1)]
    task = own(folder, twice, labels={"reading": "number"}, image="image")
    assert len(task.train) + len(task.test) == 120
    assert not set(numbers_of(task.train)) & set(numbers_of(task.test))


def test_a_split_column_is_found_and_names_queries(folder, rows):
    words = ["Train"] * 40 + ["query"] * 3 + ["test"] * 10 + ["val"] * 4 + [""] * 3
    split = [{"image": r["image"], "reading": r["reading"], "subset": w} for r, w in zip(rows, words, strict=True)]
    task = own(folder, split)
    assert (split_line(task)[0], len(task.train), len(task.test)) == ("subset", 40, 13)
    assert (task.test.queries.tolist(), task.test.gallery.tolist(), len(task.val)) == ([0, 1, 2], list(range(3, 13)), 4)
    assert "3 rows in no part" in split_line(task)[2]
    refused(lambda: own(folder, split, queries=4), "queries", "4", hint="3 queries")
    split[5]["subset"] = "trial"
    with refuses("own.csv:7: subset", "'trial'", "train, val, test, query"):
        own(folder, split, split="subset", labels={"reading": "number"})
    split[5] = {**split[50], "subset": "train"}
    refused(lambda: own(folder, split), "own.csv:52", f"050.png' is in test here, in train in {folder / 'own.csv'}:7")


def test_captions_in_rows_columns_and_lists(folder, rows):
    """One row per caption, one column per caption, a list of captions: the same label."""
    several = [[row["text"], f"the {row['colour']} one"] for row in rows]
    by_row = [{"image": r["image"], "text": text} for r, both in zip(rows, several, strict=True) for text in both]
    by_column = [{"image": r["image"], "a": s[0], "b": s[1]} for r, s in zip(rows, several, strict=True)]
    by_list = [{"image": r["image"], "text": json.dumps(s)} for r, s in zip(rows, several, strict=True)]
    as_python = [{"image": r["image"], "text": str(s)} for r, s in zip(rows, several, strict=True)]
    tables = (by_row, "text"), (by_column, "a,b"), (by_list, "text"), (as_python, "text")
    tasks = [own(folder, written, labels={name: "captions"}) for written, name in tables]
    for task in tasks:
        assert (len(task.train), task.test.draw(0, 200).size) == (48, (200, 200))
        assert sorted(numbers_of(task.test)) == sorted(numbers_of(tasks[0].test))
        torch.testing.assert_close(task.test.labels.pairwise(), tasks[0].test.labels.pairwise())
    by_row[1]["image"], by_row[1]["text"] = by_row[0]["image"], "another"
    for number, row in enumerate(by_row):
        row["colour"] = rows[number // 2]["colour"]
    by_row[3]["colour"] = "violet"
    with refuses("own.csv:5: colour", f"in {folder / 'own.csv'}:4"):
        own(folder, by_row, labels={"text": "captions", "colour": "class"})


def test_captions_by_image_and_other_distances(folder, rows):
    several = [[row["text"], f"the {row['colour']} one"] for row in rows]
    (folder / "own.json").write_text(json.dumps({row["image"]: s for row, s in zip(rows, several, strict=True)}))

    def distances(**options):
        return file(str(folder / "own.json"), {"caption": {"kind": "captions", "dim": 8, **options}}).test

    by_list = [{"image": r["image"], "caption": json.dumps(s)} for r, s in zip(rows, several, strict=True)]
    split, expected = distances(), own(folder, by_list, labels={"caption": "captions"}).test
    assert split.names == expected.names
    torch.testing.assert_close(split.labels.pairwise(), expected.labels.pairwise())
    tfidf = distances(distance="tfidf")
    torch.testing.assert_close(tfidf.labels.pairwise(), distances(distance={"tfidf": 1.0}).labels.pairwise())
    mixed = distances(distance={"tfidf": 0.5, "wmd": 0.5}, word_weights="idf").labels.pairwise()
    assert not torch.equal(mixed, tfidf.labels.pairwise())
    assert tfidf.draw(0, 200).size == (200, 200)


def test_captions_alone_have_their_own_loss(folder):
    assert "loss={name: smooth_rank, temperature: 0.03}" in suggested(table(folder, {"text": "captions"}))[1]
    for labels in ({"map": "map"}, {"text": "captions", "reading": "number"}):
        assert not [change for change in suggested(table(folder, labels))[1] if change.startswith("loss")]


# What is missing


def test_rows_that_lack_something_are_refused_or_dropped(folder, rows):
    some = [dict(row) for row in rows]
    some[3]["reading"], some[5]["reading"], some[8]["image"] = "", "n/a", "img/none.png"
    options = {"labels": {"reading": "number"}, "image": "image"}
    refused(lambda: own(folder, some, **options), "own.csv:10", "none.png (1 such of 60 rows)", hint="root")
    task = own(folder, some, missing="drop", **options)
    assert len(task.train) + len(task.test) == 57
    assert task.train.excluded == {"without an image file": 1, "without a value in 'reading'": 2}
    assert task.test.excluded == {}  # the split was drawn afterwards
    words = "1 without an image file, 2 without a value in 'reading'"
    assert task.columns[-1] == ["", "excluded", "missing=drop", words]
    some[8]["image"] = rows[8]["image"]
    refused(lambda: own(folder, some, **options), "own.csv:5", "no reading (2 such of 60 rows)", hint="missing=drop")


def test_in_a_sum_a_row_counts_by_the_labels_that_it_has(folder, rows):
    some = [dict(row) for row in rows]
    for row in some[::3]:
        row["reading"] = ""
    some[1]["colour"] = some[1]["text"] = some[2]["map"] = ""
    kinds = {"reading": "number", "colour": "class:0.5", "map": "map", "text": "captions"}
    task = own(folder, some, labels=kinds, image="image")
    assert len(task.train) + len(task.test) == 60
    assert "missing in 20 rows, which count by their other labels" in column(task, "reading")[2]
    assert "missing in 1 rows" in column(task, "map")[2]
    labels = task.train.labels
    distances, present, weights = labels.pairwise(), labels.present, labels.weights
    parts = [space.pairwise().double() for space in labels.spaces]
    for a, b in [(0, 1), (0, 2), (3, 4), (1, 7)]:
        shared = [k for k in range(4) if present[a, k] and present[b, k]]
        expected = sum(weights[k] * parts[k][a, b] for k in shared) * sum(weights) / sum(weights[k] for k in shared)
        assert float(distances[a, b]) == pytest.approx(float(expected), rel=1e-6)
    assert task.train.labels.digests() == own(folder, some, labels=kinds, image="image").train.labels.digests()
    some[5].update(dict.fromkeys(("reading", "colour", "map", "text"), ""))
    with refuses("own.csv:7", "no label (1 such of 60 rows)", hint="missing=drop"):
        own(folder, some, labels=kinds, image="image")
    task = own(folder, some, labels=kinds, image="image", missing="drop")
    assert task.columns[-1][-1] == "1 without any label"
    for column_name in ("reading", "map"):
        with refuses(f"labels.{column_name}", "0 of ", "must be at least 3"):
            own(folder, [{**row, column_name: ""} for row in rows], labels=kinds, image="image")


def test_captions_without_a_known_word_and_empty_maps(folder, rows):
    some = [dict(row) for row in rows]
    some[4]["text"] = "of the"
    with refuses("own.csv:6", "'text' has no word that has a vector (1 such"):
        own(folder, some, labels={"text": "captions"}, image="image")
    task = own(folder, some, labels={"text": "captions"}, image="image", missing="drop")
    assert len(task.train) + len(task.test) == 59
    some[7]["map"], some[8]["map"] = "maps/gone.png", ""
    with refuses("own.csv:9", f"map: no such file {folder}/maps/gone.png, relative to root {folder} (2 such of"):
        own(folder, some, labels={"map": "map"}, image="image")
    task = own(folder, some, labels={"map": "map"}, image="image", missing="drop")
    assert task.train.excluded == {"without a label map in 'map'": 2}
    some[7], some[8] = rows[7], rows[8]
    empty = np.full((32, 32), 255, np.uint8)
    empty[:3] = 1
    Image.fromarray(empty).save(folder / "maps/empty.png")
    some[9]["map"] = "maps/empty.png"
    refused(lambda: own(folder, some, labels={"map": "map"}, image="image"), "", hint="ignore=255")
    with refuses("own.csv:11", "'map' has at most half of its pixels labelled (1 such"):
        own(folder, some, labels={"map": {"kind": "map", "ignore": 255}}, image="image")
    task = own(folder, some, labels={"map": {"kind": "map", "ignore": 255}}, image="image", missing="drop")
    assert len(task.train) + len(task.test) == 59
    excluded = {"without enough labelled pixels in 'map'": 1}
    assert sorted((dict(task.train.excluded), dict(task.test.excluded)), key=len) == [{}, excluded]


def test_omitted_rows_count_for_the_part_that_the_split_names(folder, rows):
    """A test row without an image does not count as a training row."""
    parts = ["train"] * 40 + ["query"] * 3 + ["test"] * 10 + ["val"] * 7
    some = [{"image": r["image"], "text": r["text"], "split": p} for r, p in zip(rows, parts, strict=True)]
    for number, key, cell in ((3, "image", "img/a.png"), (41, "text", ""), (44, "image", ""), (58, "image", "")):
        some[number][key] = cell
    some[5]["text"] = some[45]["text"] = some[46]["text"] = "of the"
    task = own(folder, some, labels={"text": "captions"}, missing="drop")
    assert (len(task.train), len(task.test), len(task.test.queries)) == (38, 9, 2)
    word = "without a word that has a vector in 'text'"
    assert task.train.excluded == {"without an image file": 1, word: 1}
    assert task.test.excluded == {"without an image file": 1, "without a caption in 'text'": 1, word: 2}
    total = f"3 without an image file, 1 without a caption in 'text', 3 {word}"
    assert task.columns[-1] == ["", "excluded", "missing=drop", total]


# Pictures, and worker processes


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", [40, 200, 420])
def test_every_kind_is_drawn(folder, name, size):
    task = table(folder, {name: KINDS[name]})
    picture = task.test.draw(1, size)
    assert picture.size == (size, size)
    copy = pickle.loads(pickle.dumps(task.test))  # as a worker process gets it
    assert copy.draw(1, size).tobytes() == picture.tobytes()
    if task.test.view.explainer is not None:
        assert copy.explain(0, 1, size) == task.test.explain(0, 1, size)
    plain = Image.open(task.test.image(1)).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    if size >= 200:
        assert np.abs(np.asarray(picture, float) - np.asarray(plain, float)).mean() > 1  # something is drawn on it


def test_a_sum_is_drawn_and_explained(folder):
    task = table(folder, dict(KINDS.items()))
    picture, copy = task.test.draw(0, 420), pickle.loads(pickle.dumps(task.test))
    assert (picture.size, picture.tobytes()) == ((420, 420), copy.draw(0, 420).tobytes())
    assert sum(bool(part.contribution) for part in task.test.labels.parts(0, 1)) == len(KINDS)
    (part,) = table(folder, {"reading": "number"}).test.labels.parts(0, 1)
    assert part.label == "reading"
    assert float(part.difference) == pytest.approx(abs(float(part.a) - float(part.b)), rel=0.01)


def test_parquet_is_the_same_as_csv(folder, rows):
    columns = {
        "image": [row["image"] for row in rows],
        "reading": [float(row["reading"]) for row in rows],
        "grade": pyarrow.array([int(row["grade"]) for row in rows], pyarrow.int8()),
        "colour": pyarrow.array([row["colour"] for row in rows]).dictionary_encode(),
        "needle": [json.loads(row["needle"]) for row in rows],
        "tags": [row["tags"].split(";") for row in rows],
        "bytes": [{"bytes": b"123", "path": None}] * len(rows),
    }
    parquet.write_table(pyarrow.table(columns), folder / "items.parquet")
    for name in ("reading", "grade", "colour", "needle", "tags"):
        kind = KINDS[name]
        one = file(str(folder / "items.parquet"), {name: kind})
        two = table(folder, {name: kind})
        assert one.test.names == two.test.names
        torch.testing.assert_close(one.test.labels.pairwise(), two.test.labels.pairwise())
    with refuses("items.parquet: column bytes (labels)", "bytes or structures"):
        file(str(folder / "items.parquet"), {"bytes": "class"})
    columns["reading"][7] = None
    parquet.write_table(pyarrow.table(columns), folder / "gap.parquet")
    refused(lambda: file(str(folder / "gap.parquet"), {"reading": "number"}), "gap.parquet: row 8", "no reading")
    (folder / "cut.parquet").write_bytes((folder / "gap.parquet").read_bytes()[:300])
    refused(lambda: file(str(folder / "cut.parquet")), "cut.parquet", "Parquet")


@pytest.mark.parametrize(("kind", "value"), [("timestamp[ms]", 2**62), ("timestamp[us]", -(2**60)), ("date32", 2**30)])
def test_values_beyond_python_are_refused_only_where_they_are_used(folder, rows, kind, value):
    columns = {name: [row[name] for row in rows] for name in ("image", "reading")}
    columns["far"] = pyarrow.array([value] * len(rows), pyarrow.type_for_alias(kind))
    parquet.write_table(pyarrow.table(columns), folder / "far.parquet")
    file(str(folder / "far.parquet"), {"reading": "number"})
    with refuses("far.parquet: column far (labels)", "beyond the year 9999"):
        file(str(folder / "far.parquet"), {"far": "class"})


@pytest.mark.parametrize(("text", "reason"), [("cell", "UTF8"), ("far", "not readable as Parquet")])
def test_parquet_text_that_is_not_utf8_is_refused(folder, rows, text, reason):
    columns = {"image": [row["image"] for row in rows], "reading": ["cell"] * len(rows), "far": [1] * len(rows)}
    parquet.write_table(pyarrow.table(columns), folder / "odd.parquet", compression="none")
    content = (folder / "odd.parquet").read_bytes()
    assert text.encode() in content
    (folder / "odd.parquet").write_bytes(content.replace(text.encode(), b"\xff" * len(text)))
    refused(lambda: file(str(folder / "odd.parquet"), {"reading": "class"}), "odd.parquet", reason)


def test_number_log_compares_logarithms(folder, rows):
    prices = [f"{10 ** (1 + float(row['reading']) / 40):.2f}" for row in rows]
    priced = [{**row, "price": price} for row, price in zip(rows, prices, strict=True)]
    task = own(folder, priced, labels={"price": {"kind": "number", "scale": "log"}}, image="image")
    by_image = {row["image"]: math.log(float(price)) for row, price in zip(rows, prices, strict=True)}

    def logs(split):
        return np.array([by_image[name] for name in split.names])

    unit = logs(task.train).std()
    expected_distances = np.abs(logs(task.test)[:, None] - logs(task.test)) / unit
    np.testing.assert_allclose(task.test.labels.pairwise().double(), expected_distances, atol=1e-5)
    factor = f"a factor of {np.exp(unit):.4g} in price"
    assert task.test.labels.unit == factor + ", a standard deviation of the logarithms"
    a, b = np.exp(logs(task.test)[:2])
    distance = float(task.test.labels.pairwise([0], [1]))
    assert task.test.labels.measure.text(distance) == f"x {number_of(max(a / b, b / a))}"
    used_as, _, values = column(task, "price")
    assert used_as == "number:log"
    assert "a label distance of 1 is a factor of" in values
    short = own(folder, priced, labels={"price": "number:log"}, image="image")
    assert (short.columns, short.test.labels.digests()) == (task.columns, task.test.labels.digests())


def test_dates_are_days(folder, rows):
    taken = [f"2026-01-{1 + number % 28:02}" + ("T12:00" if number % 2 else "") for number in range(len(rows))]
    dated = [{**row, "taken": day} for row, day in zip(rows, taken, strict=True)]
    by_image = {row["image"]: int(day[8:10]) + 0.5 * ("T" in day) for row, day in zip(rows, taken, strict=True)}
    for kind in ({"kind": "date", "scale": "none"}, "auto"):
        task = own(folder, dated, labels={"taken": kind}, image="image")
        days = np.array([by_image[name] for name in task.test.names])
        scale = 1 if kind != "auto" else float(np.std([by_image[name] for name in task.train.names]))
        distances = np.abs(days[:, None] - days) / scale
        np.testing.assert_allclose(task.test.labels.pairwise(), distances, atol=1e-6)
        assert task.test.labels.unit.startswith("difference of taken " + ("in days" if scale == 1 else "by "))
        assert isinstance(task.test.labels, DateLabels)
        assert task.test.labels.date(0).isoformat().startswith(f"2026-01-{int(days[0]):02}")
        assert "2026-01-" in column(task, "taken")[2]


def test_dates_with_and_without_a_time_zone_are_not_mixed(folder, rows):
    zoned = [{**row, "taken": f"2026-01-{1 + n % 28:02}T01:00+01:00"} for n, row in enumerate(rows)]
    plain = [{**row, "taken": f"2026-01-{1 + n % 28:02}"} for n, row in enumerate(rows)]
    of_zoned, of_plain = (own(folder, dated, labels={"taken": "date"}, image="image") for dated in (zoned, plain))
    assert torch.equal(of_zoned.test.labels.pairwise(), of_plain.test.labels.pairwise())
    zoned[4]["taken"] = "2026-01-05"
    with refuses("own.csv:6: taken", got="'2026-01-05' without a time zone", hint="or none"):
        own(folder, zoned, labels={"taken": "date"}, image="image")


@pytest.mark.parametrize("names", ["cab", "bca"])
def test_groups_are_numbered_in_the_order_of_their_names(folder, rows, names):
    rows = [{**row, "maker": f"{names[n % 3]} {n % 9}"} for n, row in enumerate(rows)]
    task = own(folder, rows, {"reading": "number"}, image="image", group="maker")
    for split in (task.train, task.test):
        makers = [rows[number]["maker"] for number in numbers_of(split)]
        assert split.groups.tolist() == [sorted({*makers}).index(maker) for maker in makers]
    assert task.train.groups.max() > 5


def test_a_group_can_be_excluded_from_the_gallery(folder, rows):
    task = table(folder, {"reading": "number"}, group="maker", exclude_group=True)
    maker = {row["image"]: row["maker"] for row in rows}
    makers = [maker[name] for name in task.test.names]
    groups = task.test.groups.tolist()
    assert [[a == b for a in makers] for b in makers] == [[a == b for a in groups] for b in groups]
    default = table(folder, {"reading": "number"}, group="maker")
    assert (default.test.groups.tolist(), default.columns) == (task.test.groups.tolist(), task.columns)
    kept = table(folder, {"reading": "number"}, group="maker", exclude_group=False)
    assert (task.test.exclude_group, kept.test.exclude_group) == (True, False)
    assert kept.test.groups.tolist() == task.test.groups.tolist()
    for shown, text in ((default, "does not search its own maker"), (kept, "searches its own maker too")):
        assert text in next(line for line in shown.columns if line[1] == "group")[3]
    assert table(folder, {"reading": "number"}).test.groups is None
    of_classes = table(folder, {"colour": "class"}, group="maker").test
    assert (of_classes.groups is None, of_classes.exclude_group) == (False, False)
    few = [{**row, "maker": f"maker {number % 3}"} for number, row in enumerate(rows)]
    lone = own(folder, few, group="maker", labels={"reading": "number"}).test
    assert not lone.exclude_group, "a query has no other group to search"
    refused(lambda: table(folder, {"reading": "number"}, exclude_group=True), "exclude_group", hint="group")
    with refuses("exclude_group", "colour is a class"):
        table(folder, {"colour": "class"}, group="maker", exclude_group=True)
