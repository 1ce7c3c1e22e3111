"""Tables as they come: delimiters, encodings, quotes, decimal commas, and what is wrong told with its line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from contml.tasks.table.cells import decimal_comma, numbers, texts
from contml.tasks.table.file import file
from contml.tasks.table.guess import guess_cells
from contml.tasks.table.reading import read_table
from support.paths import DATA_ROOT
from support.tables import dials, write_table

from contml import InputError

DATA = DATA_ROOT


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


def rejected(message, path, labels=None, **options):
    with pytest.raises(InputError, match=message) as caught:
        file(path, labels, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ages(task):
    return sorted(float(value) for value in task.train.renderer.labels[0].values[:, 0])


PLAIN = sorted([30.5, *map(float, AGES[1:])])


@pytest.mark.parametrize(
    "text",
    [
        lines("30.5"),
        "\ufeff" + lines("30.5"),
        lines("30.5").replace("\n", "\r\n"),
        lines("30.5").replace("\n", "\r"),
        lines("30.5") + "\n\n,\n \n",
        "\n\n" + lines("30.5"),
        lines("30.5").replace(",", ";"),
        lines("30.5").replace(",", "\t"),
        lines("30.5").replace(",", "|"),
        lines("30.5").replace(",", ";").replace("30.5", "30,5"),
        lines('"30.5"').replace("image,age", '"image","age"'),
        lines(" 30.5 ").replace("image,age", " image , age "),
        lines("3.05e1"),
        lines("+30.50").rstrip("\n"),
    ],
)
def test_the_same_table_in_other_clothes(write, text):
    assert ages(file(write(text), {"age": "number"})) == PLAIN


@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".CSV"])
def test_other_suffixes(write, suffix):
    assert ages(file(write(lines("30.5").replace(",", "\t"), "own" + suffix))) == PLAIN


def test_encodings(write):
    text = lines("30.5").replace("age", "größe")
    message = rejected(r"own.csv:1: not utf-8 text \(byte 0xf6\)", write(text, encoding="latin-1"))
    assert "set encoding to" in message
    assert ages(file(write(text, encoding="latin-1"), {"größe": "number"}, encoding="latin-1")) == PLAIN
    assert ages(file(write(text, encoding="utf-16"), {"größe": "number"}, encoding="utf-16")) == PLAIN


def test_quoted_cells_hold_delimiters_and_line_breaks(folder, write):
    text = "image;age;note\n" + "".join(f'"img/{k:03}.png";{k};"a; b\n""c"" {k}"\n' for k in range(19))
    table = read_table(Path(write(text)))
    assert table.columns["note"][3] == 'a; b\n"c" 3'
    assert table.where(3) == f"{folder / 'own.csv'}:8"
    message = rejected(r"own.csv:40: age is 'x', no number", write(text + "img/019.png;x;y\n"), {"age": "number"})
    assert "decimal point" in message or "decimal comma" in message


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("old", r"own.csv:3: age is 'old', no number; it must be digits with a decimal point, without a unit"),
        ("12 kg", r"own.csv:3: age is '12 kg', no number"),
        ('"1,234"', r"own.csv:3: age is '1,234', no number: leave out thousands separators; for a decimal comma"),
        ('"30,5"', r"own.csv:3: age is '30,5', no number: for a decimal comma set decimal=comma"),
        ("inf", r"own.csv:3: age is 'inf', no number"),
        ("1e999", r"own.csv:3: age is '1e999', no number"),
        ("", r"own.csv:3: no age \(1 such of 20 rows\)"),
        ("NaN", r"own.csv:3: no age \(1 such of 20 rows\)"),
        ("3,4", r"own.csv:3: 3 cells, but the header has 2; the delimiter is ',': put cells"),
        ('"3', r"own.csv:3: not readable as CSV \(unexpected end of data\); is a double quote not closed\?"),
    ],
)
def test_a_bad_cell_is_told_with_its_line(write, cell, message):
    rejected(message, write(lines("20", cell)), {"age": "number"}, image="image")


def test_a_row_cut_short(write):
    rejected(r"own.csv:4: 1 cells, but the header has 2", write(lines().replace("img/002.png,34", "img/002.png")))


def test_decimal_commas(write):
    text = lines('"30,5"')
    assert ages(file(write(text), {"age": "number"}, decimal="comma")) == PLAIN
    found = file(write(lines("30,5").replace("png,", "png;").replace("e,a", "e;a")))
    assert ages(found) == PLAIN
    assert found.columns[1][2] == "semicolon-separated"
    assert "; decimal comma; " in found.columns[3][3]
    rejected(r"age is '30,5', no number", write(text.replace('"', "").replace("png,", "png;").replace("e,a", "e;a")),
            {"age": "number"}, decimal="point")  # fmt: skip
    thousands = lines(*[f"{k},234" for k in range(20)]).replace("png,", "png;").replace("e,a", "e;a")
    rejected(r"age is '0,234', no number: leave out thousands", write(thousands), {"age": "number"}, image="image")
    assert decimal_comma(["1,5", "2"], "auto", ";")
    assert not decimal_comma(["1,500", "2"], "auto", ";")  # a thousand?
    assert not decimal_comma(["1,5", "2.5"], "auto", ";")
    assert not decimal_comma(["1,5", "2"], "auto", ",")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.csv: is empty; the first line names the columns"),
        ("\n\n", "own.csv: is empty"),
        ("image,age\n", r"own.csv: has a header \(image, age\), but no rows"),
        ("image,age,age\na,1,2\n", "columns 2 and 3 are both called 'age'; rename one"),
        (lines(count=1), r"own.csv: has 1 rows that can be used; a split needs 6 or more, 3 of them for testing"),
        (lines(count=5), r"own.csv: has 5 rows that can be used; a split needs 6 or more"),
        ("a,age\n1,2\n3,4\n", r"no column holds paths of images \(it has a, age\); name it by image \(--image\)"),
        (lines(head="image,ages"), r"no column 'age' \(labels\); did you mean 'ages'\? \(it has image, ages\)"),
        (lines(head="image,Age"), r"no column 'age' \(labels\); did you mean 'Age'\?"),
        (
            lines().replace("img/", "pics/"),
            r"own.csv:2: there is no image .*pics/000.png \(20 such of 20 rows\); paths",
        ),
        (lines().replace("img/000.png", ""), r"own.csv:2: the cell of 'image' is empty \(1 such of 20 rows\)"),
        (lines().replace("img/", "https://x.org/"), r"own.csv:2: the image is an address; nothing is downloaded"),
        (lines(*["7"] * 20), r"labels: age is 7 in all of 16 training rows; leave it out"),
    ],
)
def test_tables_that_cannot_be_used(write, text, message):
    rejected(message, write(text), {"age": "number"})


def test_splits_that_cannot_be_used(write):
    def parts(*words):
        told = [*words, *["train"] * (20 - len(words))]
        table = lines().splitlines()
        return write("\n".join([f"{table[0]},split", *(f"{a},{b}" for a, b in zip(table[1:], told, strict=True))]))

    rejected(
        r"20 rows to train on and 0 to test, split by the column 'split'", parts(), {"age": "number"}, split="split"
    )
    rejected(r"19 rows to train on and 1 to test", parts("test"), {"age": "number"})
    message = r"3 of 4 test rows are queries; at least 2 others must be left to find: mark fewer"
    rejected(message, parts("query", "query", "query", "test"), {"age": "number"})
    rejected(r"all 20 rows have one split; a split needs at least two", parts(), {"age": "number"}, group="split")
    rejected(r"no column 'person' \(group\)", parts(), {"age": "number"}, group="person")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            {"age": "numbr"},
            r"labels: age=numbr: there is no kind 'numbr'; did you mean 'number'\? Kinds: class, num",
        ),
        ({"age": "number:heavy"}, r"age=number:heavy: the weight is 'heavy'; it must be a number above 0"),
        ({"age": "number:lgo"}, r"it must be a number above 0, as in number:0.5; did you mean 'number:log'\?"),
        ({"age": "number:0"}, r"the weight is '0'; it must be a number above 0, as in number:0.5"),
        ({"age": "number:-1"}, r"the weight is '-1'"),
        ({"image": "class"}, r"'image' is the column of images"),
        ({"age,old": "number"}, r"there is no column 'old' \(labels\)"),
        ({"age,size": "number"}, r"age,size=number names 2 columns; a number takes 1"),
        ({"age,age": "vector"}, r"age,age names a column twice"),
        ({}, r"labels is empty"),
        (
            {"age": "map"},
            r"own.csv:2: age: no such file .*/20; paths are relative to .*, root \(20 such",
        ),
        ({"age": "place"}, r"own.csv: age holds lists of 1 numbers; a place is two"),
    ],
)
def test_labels_that_cannot_be_read(write, labels, message):
    text = "\n".join(f"{line},{'size' if not k else 3}" for k, line in enumerate(lines().splitlines()))
    rejected(message, write(text), labels, image="image")


def test_places(write):
    text = "image,lat,lon\n" + "".join(f"img/{k:03}.png,{k}.5,{100 + k}.5\n" for k in range(20))
    assert file(write(text)).columns[3][:2] == ["lat,lon", "place"]
    rejected(r"lon,lat=place: latitude comes first; write lat,lon", write(text), {"lon,lat": "place"})
    rejected(r"own.csv:7: lat is 91, no latitude: it must be -90 to 90", write(text.replace("png,5.5,", "png,91,")))
    swapped = text.replace("lat,lon", "x,y").replace("png,0.5,", "png,120,")
    rejected(r"own.csv:2: x is 120, no latitude: .*latitude comes first", write(swapped), {"x,y": "place"})


def test_lists_of_numbers(write):
    text = "image,v\n" + "".join(f'img/{k:03}.png,"[{k}, 1.5]"\n' for k in range(20))
    assert file(write(text)).columns[3][:2] == ["v", "vector"]
    cut = text.replace('"[3, 1.5]"', '"[3]"')
    rejected(r"own.csv:5: v has 1 numbers, but 2 in 2; all need as many", write(cut), {"v": "vector"})
    odd = text.replace('"[3, 1.5]"', '"[3, a]"')
    rejected(r"own.csv:5: v is '\[3, a\]', no list of numbers; it must be a JSON array", write(odd), {"v": "vector"})
    for cell in ("[1, 2.5]", "1 2.5", "1;2.5", " [1.  2.5] ", "(1, 2.5)", "1, 2.5"):
        assert numbers(cell, False) == [1.0, 2.5]
    assert numbers("1,5 2", True) == [1.5, 2.0]
    assert numbers("[1, ..., 2]", False) is None
    assert texts("['a', \"b's\"]") == ["a", "b's"]
    assert texts("[1, 2]") == ["1", "2"]
    assert texts("a") is None
    assert texts("[broken") is None
    assert texts("[__import__('os')]") is None


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("age", ["1.5", "2", "3"], "number"),
        ("stars", ["1", "2", "5", "5", "1", "3"], "number"),
        ("class_id", ["1", "2", "1", "2"], "class"),
        ("label", ["0", "1", "1", "0"], "class"),
        ("id", ["7", "3", "9", "1"], ""),
        ("x", ["4", "5", "6", "7"], ""),
        ("name", ["Ann", "Bob", "Cem", "Dee"], ""),
        ("species", ["owl", "owl", "emu", "emu"], "class"),
        ("place", ["48.1 11.5", "50.2 8.6", "1 2"], "place"),
        ("xyz", ["1 2 3", "4 5 6", "7 8 9"], "vector"),
        ("emb", ["[1, 2]", "[3, 4]"], "vector"),
        ("tags", ["a;b", "b;c", "a;c", "c;a;b"], "tags"),
        ("tags", ["red, round", "red, square", "blue, round", "blue, square"], "tags"),
        ("tags", ["['a', 'b']", "['b']", "[]"], "tags"),
        ("text", ["a dog runs on grass", "two men at a bar", "the sea in the sun"], "captions"),
        ("text", ['["a dog runs on grass", "x y z w"]', '["two men at a bar, one old"]'], "captions"),
        ("day", ["2021-03-04", "2022-01-01T09:30", "2021-03-04"], "date"),
        ("day", ["04.03.2021", "01.01.2022", "04.03.2021"], ""),
        ("same", ["x", "x", "x"], ""),
        ("nothing", [], ""),
        ("age", [*(str(k + 0.5) for k in range(30)), "old"], "number"),
    ],
)
def test_guesses(name, cells, kind):
    guess = guess_cells(name, cells, False)
    assert guess.kind == kind
    assert guess.why


def test_a_kind_that_cannot_be_guessed_is_asked_for(write):
    text = "image,name,day\n" + "".join(f"img/{k:03}.png,N{k},0{k % 9 + 1}.01.2021\n" for k in range(20))
    message = rejected(
        r"no column can be guessed to be a label \(name: nearly every row has a text of its own; day: its dates",
        write(text),
    )
    assert "--label NAME=KIND" in message
    message = r"the kind of 'name' cannot be guessed \(nearly every row.*\); give it as name=KIND, with one of class"
    rejected(message, write(text), {"name": "auto"})


def test_paths_absolute_windows_and_in_another_folder(folder, write, tmp_path):
    for text in (lines().replace("img/", f"{folder}/img/"), lines().replace("img/", "img\\")):
        assert len(file(write(text)).train) == 16
    (tmp_path / "t.csv").write_text(lines())
    rejected(r"there is no image", str(tmp_path / "t.csv"), {"age": "number"})
    assert len(file(str(tmp_path / "t.csv"), root=str(folder)).train) == 16
    rejected(r"root=nowhere: no such folder", str(tmp_path / "t.csv"), root="nowhere")


def test_an_index_that_was_saved_along_has_a_name(write):
    text = "\n".join(f"{k - 1 if k else ''},{line}" for k, line in enumerate(lines().splitlines()))
    task = file(write(text))
    assert ["(column 1)", "not used", "it only counts the rows", ""] in task.columns


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", r"none.csv: no such file; set data to the name of the file; .* holds"),
        ("items.xlsx", r"items.xlsx: a table is read from .csv, .tsv, .txt, .parquet, .pq; save it as one of these"),
        ("img", r"img: is a folder; data is one file, .csv or .parquet"),
    ],
)
def test_what_is_no_table(folder, name, message):
    rejected(message, str(folder / name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 1.0}, r"test=1.0: it is a share of the rows, between 0 and 1"),
        ({"seed": -1}, r"seed is -1; it must be at least 0"),
        ({"delimiter": "||"}, r"delimiter='\|\|': it must be one character"),
        ({"encoding": "klingon"}, r"encoding is 'klingon', which is unknown; give utf-8, latin-1 or utf-16"),
        ({"image": "imag"}, r"no column 'imag' \(image\); did you mean 'image'"),
        ({"split": "splt"}, r"no column 'splt' \(split\)"),
    ],
)
def test_options_that_cannot_be(write, options, message):
    rejected(message, write(lines()), {"age": "number"}, **options)


def test_a_large_table_is_read_in_seconds(tmp_path):
    import time

    from PIL import Image

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
    assert len(task.train) + len(task.test) == 50_000
    assert len(task.test.queries) == 1_000
    cities = task.train.renderer.labels[1].values
    assert cities[0] is cities[40]


@pytest.mark.skipif(
    not (DATA / "omniglot_small").is_dir(), reason="no pack omniglot_small: set CONTML_DATA to its folder"
)
def test_the_table_of_a_real_pack():
    task = file(str(DATA / "omniglot_small/images.csv"), {"class_name": "auto"})
    found = {line[1]: line[0] for line in task.columns if line[1] != "not used"}
    assert (found["image"], found["split"], found["class"]) == ("file", "split", "class_name")
    assert (len(task.train), len(task.test), task.suggested[0]) == (1000, 820, "table/classes")
    assert not set(task.train.labels.names) & set(task.test.labels.names)
