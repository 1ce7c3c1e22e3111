"""Table files: delimiters, encodings, quotes, decimal commas, and errors with their line."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.paths import DATA_ROOT as DATA, needs
from support.refusals import refused, refuses
from support.tables import dials, suggested, write_table

from contml.data.tables import listed_texts, read_table
from contml.tasks.table.cells import decimal_comma, numbers
from contml.tasks.table.columns import guess_cells
from contml.tasks.table.file import file
from contml.tasks.table.kinds import label_parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    write_table(path / "items.csv", dials(path, 20))
    return path


@pytest.fixture
def write(folder):
    def save(text, name="own.csv", encoding="utf-8"):
        (folder / name).write_bytes(text.encode(encoding))
        return str(folder / name)

    return save


AGES = [20 + 7 * k % 23 for k in range(20)]


def lines(*cells, count=20, head="image,age"):
    """A table of `count` rows whose first have these ages."""
    ages = [*cells, *(str(AGES[k]) for k in range(len(cells), count))]
    return "\n".join([head, *(f"img/{k:03}.png,{age}" for k, age in enumerate(ages))]) + "\n"


def rejected(fields, path, labels=None, **options):
    """The table raises an `InputError` with these fields: subject, got, allowed, hint."""
    refused(lambda: file(path, labels, **options), *fields)


def ages(task):
    spaces = [split.labels for split in task.splits.values()]
    return sorted(round(float(value) * space.measure.factor, 6) for space in spaces for value in space.values)


PLAIN = sorted([30.5, *map(float, AGES[1:])])


@pytest.mark.parametrize(
    "text",
    [
        lines("30.5"),
        "\ufeff" + lines("30.5"),
        lines("30.5").replace("\n", "\r\n"),
        lines("30.5").replace("\n", "\r"),
        lines("30.5") + "\n\n,\n \n",
        lines("30.5").replace(",", ";"),
        lines("30.5").replace(",", "\t"),
        lines("30.5").replace(",", "|"),
        lines('"30.5"').replace("image,age", '"image","age"'),
        lines(" 30.5 ").replace("image,age", " image , age "),
        lines("3.05e1"),
    ],
)
def test_the_same_table_in_other_formats(write, text):
    assert ages(file(write(text), {"age": "number"})) == PLAIN


@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".CSV"])
def test_other_suffixes(write, suffix):
    assert ages(file(write(lines("30.5").replace(",", "\t"), "own" + suffix))) == PLAIN


def test_encodings(write):
    text = lines("30.5").replace("age", "größe")
    rejected(("own.csv:1", "utf-8 text (byte 0xf6)", "", "set table.encoding"), write(text, encoding="latin-1"))
    assert ages(file(write(text, encoding="latin-1"), {"größe": "number"}, table={"encoding": "latin-1"})) == PLAIN
    assert ages(file(write(text, encoding="utf-16"), {"größe": "number"}, table={"encoding": "utf-16"})) == PLAIN


def test_quoted_cells_hold_delimiters_and_line_breaks(folder, write):
    text = "image;age;note\n" + "".join(f'"img/{k:03}.png";{k};"a; b\n""c"" {k}"\n' for k in range(19))
    table = read_table(Path(write(text)))
    assert (table.texts("note", "")[3], table.where(3)) == ('a; b\n"c" 3', f"{folder / 'own.csv'}:8")
    rejected(("own.csv:40: age", "'x'", "decimal point"), write(text + "img/019.png;x;y\n"), {"age": "number"})


def test_decimal_commas(write):
    text = lines('"30,5"')
    assert ages(file(write(text), {"age": "number"}, table={"decimal": "comma"})) == PLAIN
    found = file(write(lines("30,5").replace("png,", "png;").replace("e,a", "e;a")))
    assert (ages(found), found.columns[1][2]) == (PLAIN, "semicolon-separated")
    assert "; decimal comma; " in found.columns[3][3]
    semicolons = text.replace('"', "").replace("png,", "png;").replace("e,a", "e;a")
    rejected(("own.csv:2: age", "'30,5'"), write(semicolons), {"age": "number"}, table={"decimal": "point"})
    grouped = lines('"30,5"', '"869.500,25"', '"-1.869.500,0"')
    assert {869500.25, -1869500.0} <= set(ages(file(write(grouped), {"age": "number"}, table={"decimal": "comma"})))
    semicolons = grouped.replace('"', "").replace("png,", "png;").replace("e,a", "e;a")
    assert 869500.25 in ages(file(write(semicolons), {"age": "number"}))
    either = lines('"30,5"', '"1.234"')
    rejected(
        ("own.csv:3: age", "'1.234'", "", "thousands"), write(either), {"age": "number"}, table={"decimal": "comma"}
    )
    thousands = lines(*[f"{k},234" for k in range(20)]).replace("png,", "png;").replace("e,a", "e;a")
    fields = ("own.csv:2: age", "'0,234'", "", "thousands")
    rejected(fields, write(thousands), {"age": "number"}, image="image")
    assert decimal_comma(["1,5", "2"], "auto", ";")
    assert not decimal_comma(["1,500", "2"], "auto", ";")  # a thousand?
    assert decimal_comma(["1.500,0", "2"], "auto", ";", one_number=True)
    assert not decimal_comma(["1.500,0", "2.5"], "auto", ";", one_number=True)
    assert not decimal_comma(["0.500,0", "2"], "auto", ";", one_number=True)
    assert not decimal_comma(["52.520,13", "48.137,11"], "auto", ";")  # coordinates?
    assert not decimal_comma(["1,5", "2.5"], "auto", ";")
    assert not decimal_comma(["1,5", "2"], "auto", ",")


THOUSANDS = "own.csv:3: age", "'1,234'", "decimal point", "omit thousands separators, or set table.decimal=comma"


@pytest.mark.parametrize(
    ("text", "options", "fields"),
    [
        (lines(count=5), {}, ("own.csv", "5 usable", "at least 6")),
        (lines(head="image,ages"), {}, ("own.csv: column age (labels)", "", "image, ages", "'ages'")),
        (lines(head="image,Age"), {}, ("own.csv: column age (labels)", "", "", "'Age'")),
        (lines().replace("img/000.png", ""), {}, ("own.csv:2", "'image' is empty (1 such of 20 rows)")),
        (lines("20", '"1,234"'), {"image": "image"}, THOUSANDS),
        (lines("20", '"3 kg'), {"image": "image"}, ("own.csv:3: age", "'\"3 kg'", "decimal point", "quotation mark")),
        (lines("20", '"3",4"'), {"image": "image"}, ("own.csv:3", "3 cells, but the header has 2")),
        (lines(), {"table": {"delimiter": "||"}}, ("table.delimiter", "||", "one character")),
        (lines(), {"table": {"encoding": "klingon"}}, ("table.encoding", "klingon", "utf-8, latin-1, utf-16")),
    ],
)
def test_tables_that_cannot_be_used(write, text, options, fields):
    rejected(fields, write(text), {"age": "number"}, **options)


EQUAL = {"class": "a", "number": "7", "number:log": "7", "date": "2020-01-02", "vector": '"[1, 2.1]"'}
EQUAL |= {"geo": '"48.1, 11.6"', "tags": "a|b", "captions": "a red house by the sea"}


@pytest.mark.parametrize(("kind", "cell"), EQUAL.items())
@pytest.mark.parametrize("labels", [1, 2])
def test_labels_that_are_all_equal(write, kind, cell, labels):
    table = lines(*[cell] * 20, head="image,own").splitlines()
    table = [f"{line},{age}" for line, age in zip(table, ["age", *AGES], strict=True)]
    with refuses("labels.own", got="in all of 15 training rows", hint="choose another label"):
        file(write("\n".join(table)), {"own": kind} | ({"age": "number"} if labels == 2 else {}))


def test_splits_that_cannot_be_used(write):
    def parts(*words):
        cells = [*words, *["train"] * (20 - len(words))]
        table = lines().splitlines()
        return write("\n".join([f"{table[0]},split", *(f"{a},{b}" for a, b in zip(table[1:], cells, strict=True))]))

    labels = {"age": "number"}
    for given in ("split", None):
        rejected(("own.csv: split", "only 'train'", "test or val", "rows"), parts(), labels, split=given)
    rejected(("own.csv", "19 training and 1 test rows", "at least 3"), parts("test"), labels)
    rejected(("queries", "3 of 4", "2 others"), parts("query", "query", "query", "test"), labels)
    rejected(("group", "all 20 rows have one split", "at least two"), parts(), labels, group="split")
    rejected(("own.csv: column person (group)",), parts(), labels, group="person")


@pytest.mark.parametrize(
    ("labels", "fields"),
    [
        ({"age": "class:heavy"}, ("labels.age", "'heavy'", "above 0, as in class:0.5")),
        ({"age": {"kind": "map", "scale": "std"}}, ("labels.age.scale", "", "classes", "kinds number, date, vector")),
        ({"age": {"kind": "number", "clases": 3}}, ("labels.age.clases", "", "scale", "'classes', of the kind map")),
        ({"age": {"kind": "date", "format": "%d"}}, ("labels.age.format", "'%d'", "with a year")),
        ({"image": "class"}, ("labels", "'image' is the column of images")),
        ({"age,old": "number"}, ("own.csv: column old (labels)",)),
        ({"age,size": "number"}, ("labels.age,size", "2 columns", "1 for the kind number")),
        ({"age,age": "vector"}, ("labels", "age,age")),
        ({"age, size": "number"}, ("labels.age, size", "2 columns")),
        ({}, ("labels", "{}")),
        ({"age": "map"}, ("own.csv:2", "/20, relative to root ")),
        ({"age": "geo"}, ("labels.age", "lists of 1 numbers", "two")),
    ],
)
def test_labels_that_cannot_be_read(write, labels, fields):
    text = "\n".join(f"{line},{'size' if not k else 3}" for k, line in enumerate(lines().splitlines()))
    rejected(fields, write(text), labels, image="image")


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("number", "number", {"weight": 1.0, "scale": "std"}),
        ("number:log", "number", {"weight": 1.0, "scale": "log"}),
        ("number:range:0.5", "number", {"weight": 0.5, "scale": "range"}),
        ("date:%H:%M %d.%m.%Y:2", "date", {"weight": 2.0, "format": "%H:%M %d.%m.%Y", "scale": "std"}),
        ("geo:3", "geo", {"weight": 3.0, "heading_weight": 0.625}),
        ("auto:0.5", "auto", {"weight": 0.5}),
        ("", "auto", {"weight": 1.0}),
    ],
)
def test_a_text_is_short_for_a_section(text, kind, options):
    (short,) = label_parts({"a": text}).values()
    assert (short.name, short.options) == (kind, options)
    assert label_parts({"a": {"kind": kind, **options}}) == {"a": short}
    further = {"kind": text, "weight": 7}  # what task.labels.a.weight=7 makes of a text
    assert label_parts({"a": further})["a"].options == options | {"weight": 7.0}


def test_two_maps_may_differ(write, folder):
    random = np.random.default_rng(0)
    for name, classes in (("a", 2), ("b", 4)):
        for k in range(20):
            ids = random.integers(0, classes, (32, 32)).astype(np.uint8)
            ids[:4] = 255 if name == "b" else 0
            Image.fromarray(ids).save(folder / f"img/{name}{k}.png")
    table = "image,a,b\n" + "".join(f"img/{k:03}.png,img/a{k}.png,img/b{k}.png\n" for k in range(20))
    sections = {"a": {"kind": "map", "side": 16}, "b": {"kind": "map", "classes": 5, "ignore": 255, "side": None}}
    task = file(write(table), sections, image="image")
    assert task.columns[3][3].startswith("2 classes, compared at 16 x 16 pixels")
    assert task.columns[4][3].startswith("5 classes, 255 ignored, compared at 32 x 32 pixels")
    for name, space in zip("ab", task.train.labels.spaces, strict=True):
        alone = file(write(table), {name: sections[name]}, image="image").train.labels
        assert torch.equal(space.pairwise(), alone.pairwise())
    assert task.test.draw(0, 420).size == (420, 420)
    with refuses("labels.b.ignore", "true", "whole number"):
        file(write(table), {"a": "map", "b": {"kind": "map", "ignore": True}}, image="image")
    with refuses("img/b", "class number 255", hint="set labels.b.ignore=255"):
        file(write(table), {"a": "map", "b": {"kind": "map", "classes": 4}}, image="image")


def test_latitude_and_longitude(write):
    text = "image,lat,lon\n" + "".join(f"img/{k:03}.png,{k}.5,{100 + k}.5\n" for k in range(20))
    assert file(write(text)).columns[3][:2] == ["lat,lon", "geo"]
    rejected(("labels.lon,lat", "", "latitude", "lat,lon"), write(text), {"lon,lat": "geo"})
    rejected(("own.csv:7: lat", "91", "-90 to 90"), write(text.replace("png,5.5,", "png,91,")))
    swapped = text.replace("lat,lon", "x,y").replace("png,0.5,", "png,120,")
    rejected(("own.csv:2: x", "120", "-90 to 90", "latitude comes first"), write(swapped), {"x,y": "geo"})


def test_latitude_longitude_and_heading(write):
    text = "image,lat,lon,view\n" + "".join(f"img/{k:03}.png,48.{k:03},11.5,{350 + k}\n" for k in range(20))
    task = file(write(text), {"lat,lon,view": {"kind": "geo", "heading_weight": 2.0}})
    name, kind, _, values = task.columns[3]
    assert (name, kind) == ("lat,lon,view", "geo")
    assert values.endswith("distance in metres, a degree of heading as 2 m")
    row = [int(path[-7:-4]) for path in map(task.train.name, range(2))]
    apart = abs(row[0] - row[1])
    expected = apart * math.radians(0.001) * 6371008.8 + 2 * apart
    assert task.train.labels.pairwise()[0, 1] == pytest.approx(expected, rel=1e-6)
    assert task.train.labels.unit == "m, a degree of heading as 2 m"
    lists = "image,place\n" + "".join(f"img/{k:03}.png,48.{k:03} 11.5 {350 + k}\n" for k in range(20))
    again = file(write(lists), {"place": {"kind": "geo", "heading_weight": 2.0}})
    assert torch.equal(again.train.labels.pairwise(), task.train.labels.pairwise())
    rejected(("labels.lon,lat,view", "", "latitude", "lat,lon,view=geo"), write(text), {"lon,lat,view": "geo"})
    flat = {"lat,lon,view": {"kind": "geo", "heading_weight": 0.0}}
    rejected(("labels.lat,lon,view.heading_weight", "0.0", "above 0"), write(text), flat)
    rejected(("own.csv:4: view", "'west'", "number"), write(text.replace(",352", ",west")), {"lat,lon,view": "geo"})


def test_lists_of_numbers(write):
    text = "image,v\n" + "".join(f'img/{k:03}.png,"[{k}, 1.5]"\n' for k in range(20))
    assert file(write(text)).columns[3][:2] == ["v", "vector"]
    cut = text.replace('"[3, 1.5]"', '"[3]"')
    rejected(("own.csv:5: v", "1 numbers", "must be 2 as in"), write(cut), {"v": "vector"})
    invalid = text.replace('"[3, 1.5]"', '"[3, a]"')
    rejected(("own.csv:5: v", "'[3, a]'", "JSON array"), write(invalid), {"v": "vector"})
    for cell in ("[1, 2.5]", "1 2.5", "1;2.5", " [1.  2.5] ", "(1, 2.5)", "1, 2.5"):
        assert numbers(cell, False) == [1.0, 2.5]
    assert numbers("1,5 2", True) == [1.5, 2.0]
    assert numbers("[1, ..., 2]", False) is None
    assert (listed_texts("['a', \"b's\"]"), listed_texts("[1, 2]")) == (["a", "b's"], ["1", "2"])
    assert listed_texts("a") is None
    assert listed_texts("[broken") is None
    assert listed_texts("[__import__('os')]") is None


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("age", ["1.5", "2", "3"], "number"),
        ("class_id", ["1", "2", "1", "2"], "class"),
        ("label", ["0", "1", "1", "0"], "class"),
        ("id", ["7", "3", "9", "1"], ""),
        ("x", ["4", "5", "6", "7"], ""),
        ("name", ["Ann", "Bob", "Cem", "Dee"], ""),
        ("species", ["owl", "owl", "emu", "emu"], "class"),
        ("place", ["48.1 11.5", "50.2 8.6", "1 2"], "geo"),
        ("emb", ["[1, 2]", "[3, 4]"], "vector"),
        ("tags", ["a;b", "b;c", "a;c", "c;a;b"], "tags"),
        ("tags", ["red, round", "red, square", "blue, round", "blue, square"], "tags"),
        ("tags", ["['a', 'b']", "['b']", "[]"], "tags"),
        ("text", ["a dog runs on grass", "two men at a bar", "the sea in the sun"], "captions"),
        ("text", ['["a dog runs on grass", "x y z w"]', '["two men at a bar, one old"]'], "captions"),
        ("text", ["Anna - Bern - 3a", "Beat - Genf - 7c", "Cleo - Chur - 2b"], ""),  # three words and two dashes
        ("code", ["1f0c-77ab-90cd-11aa", "2e1d-88bc-01de-22bb", "3d2e-99cd-12ef-33cc"], ""),
        ("day", ["2021-03-04", "2022-01-01T09:30", "2021-03-04"], "date"),
        ("id", ["20249931", "20231201", "20240101"], ""),
        ("far", ["12 km", "7 km", "12 km", "7 km"], ""),
        ("cost", ["$1,200", "$950", "-", "$1,200"], ""),
        ("nothing", [], ""),
        ("age", [*(str(k + 0.5) for k in range(30)), "old"], "number"),
    ],
)
def test_guesses(name, cells, kind):
    guess = guess_cells(name, cells, False)
    assert guess.kind == kind
    assert guess.reason


def test_paths_absolute_windows_and_in_another_folder(folder, write, tmp_path):
    for text in (lines().replace("img/", f"{folder}/img/"), lines().replace("img/", "img\\")):
        assert len(file(write(text)).train) == 15
    (tmp_path / "t.csv").write_text(lines())
    rejected(("t.csv:2", f"{tmp_path}/img/000.png"), str(tmp_path / "t.csv"), {"age": "number"})
    assert len(file(str(tmp_path / "t.csv"), root=str(folder)).train) == 15
    rejected(("root", "nowhere"), str(tmp_path / "t.csv"), root="nowhere")


def test_a_column_without_a_name_is_named_by_its_position(write):
    text = "\n".join(f"{k - 1 if k else ''},{line}" for k, line in enumerate(lines().splitlines()))
    assert ["(column 1)", "not used", "it only numbers the rows", ""] in file(write(text)).columns


@pytest.mark.slow
def test_a_large_table_is_read_in_seconds(tmp_path):
    import time

    random = np.random.default_rng(0)
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    for number in range(500):
        (tmp_path / f"{number}.png").hardlink_to(tmp_path / "a.png")
    with (tmp_path / "items.csv").open("w", newline="") as opened:
        out = csv.writer(opened)
        out.writerow(["image", "age", "city"])
        ages = random.uniform(0, 90, 50_000)
        out.writerows((f"{k % 500}.png", f"{age:.2f}", f"city {k % 40}") for k, age in enumerate(ages))
    start = time.process_time()
    task = file(str(tmp_path / "items.csv"), {"age": "number", "city": "class"})
    assert time.process_time() - start < 10
    assert (len(task.train) + len(task.test), len(task.test.queries)) == (50_000, 1_000)
    assert len(task.train.labels.spaces[1].names) == 40


@pytest.mark.slow
@needs("omniglot_small")
def test_the_table_of_a_real_pack():
    task = file(str(DATA / "omniglot_small/images.csv"), {"class_name": "auto"})
    found = {line[1]: line[0] for line in task.columns if line[1] != "not used"}
    assert (found["image"], found["split"], found["class"]) == ("file", "split", "class_name")
    assert (len(task.train), len(task.test), suggested(task)[0]) == (1000, 820, "table/classes")
    assert not set(task.train.labels.names) & set(task.test.labels.names)
