"""Tables as programs and people write them: read right, or refused with the true reason; within limits."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet
from support.refusals import refused, refuses

from contml.data.decode import IMAGE_SUFFIXES
from contml.data.table_columns import _joined
from contml.data.tables import TableOptions, read_table
from contml.data.text_files import similar_name, spelled_alike
from contml.tasks.table.cells import number_column


@pytest.fixture
def write(tmp_path):
    def save(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return save


def texts(path, **options):
    table = read_table(path, TableOptions(**options))
    return {name: column.texts() for name, column in table.columns.items()}


@pytest.mark.parametrize(("name", "content", "cells"), [
    ("a.tsv", '"Open the door|a dog|the sign says stop"|a cat', None), ("a.csv", '"Hi" he said to me|a "b" c|d', None),
    ("a.csv", '"one\ntwo, three"|b', ["one\ntwo, three", "b"]), ("a.csv", ' "a, b"| "c"', ["a, b", "c"]),
    ("a.csv", "1,|2,,", ["1", "2"]), ("a.csv", "NA|7", ["", "7"]),
])  # fmt: skip
def test_quotes_and_separators(write, name, content, cells):
    mark = "\t" if name.endswith("tsv") else ","
    rows = content.split("|")
    text = "\n".join([f"image{mark}x", *(f"{k}.jpg{mark}{row}" for k, row in enumerate(rows))])
    assert texts(write(name, text)) == {"image": [f"{k}.jpg" for k in range(len(rows))], "x": cells or rows}


def test_a_quotation_mark_that_swallows_rows_is_refused(write):
    swallowed = 'image,x\n1.jpg,"Open the door\n2.jpg,a dog, running\n3.jpg,says stop"\n4.jpg,a cat\n'
    refused(lambda: read_table(write("a.csv", swallowed)), "a.csv:2", "3 lines, which look like rows", hint="double it")


@pytest.mark.parametrize(("content", "lines"), [
    (b"sep=;\nimage;x\n1.jpg;1\n2.jpg;2\n", [3, 4]), (b"\xef\xbb\xbfimage,x\n\n1.jpg,1\n , \n2.jpg,2", [3, 5]),
    ("image\tx\n1.jpg\t1\n2.jpg\t2\n".encode("utf-16"), [2, 3]),
])  # fmt: skip
def test_line_ends_and_encodings(write, content, lines):
    table = read_table(write("a.csv", content))
    assert texts(table.path) == {"image": ["1.jpg", "2.jpg"], "x": ["1", "2"]}
    assert list(table.lines) == lines


@pytest.mark.parametrize(("name", "content", "fields"), [
    ("a.csv", "image,x\n1.jpg,a\0b\n", ("a.csv", "NUL")),
    ("a.csv", "image,x,y\n1.jpg,a\n", ("a.csv:2", "2 cells, but the header has 3")),
    ("a.csv", "image,x,x\n1.jpg,a,b\n", ("a.csv", "columns 2 and 3 are both named 'x'")),
    ("a.csv", "image,a b,a  b\n1.jpg,a,b\n", ("a.csv", "differ only by spaces")),
    ("a.jsonl", '{"image": "1.jpg", "x": 1, "x": 2}', ("a.jsonl:1", "'x' appears twice")),
    ("a.jsonl", '{"image": "\\ud800"}', ("a.jsonl:1: image", "not valid Unicode")),
    ("a.jsonl", '{"image": "1.png"}\n{"image": ', ("a.jsonl:2", "not JSON")),
    ("a.jsonl", "[1, 2]", ("a.jsonl:1", "a JSON list")), ("a.jsonl", "", ("a.jsonl", "is empty")),
    ("a.jsonl", "{}\n" * 3, ("a.jsonl", "is empty")), ("a.docx", "", ("a.docx", "ends in '.docx'", ".csv, .tsv")),
    ("a.tsv", "image\tage\n1\t0.png\t0\n2\t1.png\t1\n", ("a.tsv:2", "", "", "row names")),
    ("b.txt", '"image" "age"\n"1" "0.png" 0\n"2" "1.png" 1\n', ("b.txt:1", "", "", "spaces")),
    ("c.csv", "image,text\n1.png,a dog\n2.png,a dog, running\n", ("c.csv:3", "", "", "double quotes")),
])  # fmt: skip
def test_what_is_refused(write, name, content, fields):
    refused(lambda: read_table(write(name, content)), *fields)


def test_typed_missing_values(write, tmp_path):
    rows = [{"image": "1.jpg", "x": float("nan"), "tags": ["a", None]}, {"image": "2.jpg", "x": 1.0, "tags": None}]
    write("a.jsonl", "\n".join(json.dumps(row) for row in rows))
    write("a.json", json.dumps(rows))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.json", "a.parquet"):
        table = read_table(tmp_path / name)
        assert table.texts("x", "") == ["", "1"]
        assert table.column("tags", "").lists() == [["a", None], None]
        assert table.column("tags", "").missing == {"null in a list": 1}


def test_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")

    def save(sheets, merge=""):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
            if merge:
                sheet.merge_cells(merge)
        book.save(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    rows = [["image", "x"], ["1.jpg", 1], [], ["2.jpg", "#N/A"]]
    path = save({"one": rows, "empty": []})
    assert texts(path) == {"image": ["1.jpg", "2.jpg"], "x": ["1", ""]}
    assert read_table(path).where(1) == f"{path}:4"
    path = save({"one": rows, "two": rows[:2]})
    refused(lambda: read_table(path), "a.xlsx", "one, two", hint="sheet=one")
    assert texts(path, sheet="two") == {"image": ["1.jpg"], "x": ["1"]}
    refused(lambda: read_table(save({"one": rows}, merge="B2:B3")), "a.xlsx", "merged cells (B2:B3)")
    with refuses("a.xlsx: cell B2", "a formula without a value"):
        read_table(save({"one": [["image", "x"], ["1.jpg", "=1+1"]]}))


class SetByAnOption(TableOptions):
    set_by = "set "


def test_limits(write, tmp_path):
    packed = write("a.csv.gz", gzip.compress(b"image,x\n" + b"1.jpg,1\n" * 130_000))
    with refuses("a.csv.gz", "unpacks to more than 1,000,000 bytes", hint="max_bytes"):
        read_table(packed, SetByAnOption(max_bytes=1_000_000, max_rows=100))
    with refuses("a.csv.gz", "more than 1,000 rows", "1,000 rows", "max_rows"):
        read_table(packed, SetByAnOption(max_rows=1_000))
    with refuses("b.csv", "1,000,008 bytes", "1,000,000 bytes"):
        read_table(write("b.csv", b"image,x\n" + b"a" * 1_000_000), TableOptions(max_bytes=1_000_000))
    with refuses("b.csv:2", "field larger than field limit"):
        read_table(write("b.csv", b"image,x\n" + b"a" * 17_000_000))
    runs = pyarrow.array(["x" * 1000]).take(pyarrow.array([0] * 20_000))
    parquet.write_table(pyarrow.table({"image": runs}), tmp_path / "c.parquet")
    assert (tmp_path / "c.parquet").stat().st_size < 100_000
    with refuses("c.parquet", "column image unpacks to 20,000,000 bytes"):
        read_table(tmp_path / "c.parquet", TableOptions(max_bytes=10_000_000))
    refused(lambda: read_table(tmp_path / "c.parquet", TableOptions(max_rows=1000)), "c.parquet", "20,000 rows")


@pytest.mark.parametrize("content", [
    gzip.compress(b"image,x\n1.jpg,1\n" + bytes(100), mtime=0), "image,x\n1.jpg,1\n".encode("utf-16-le"),
    b"image,x\n1.jpg,\0\n",
])  # fmt: skip
def test_a_file_of_another_kind_under_the_name_of_a_text_is_refused(write, content):
    refused(lambda: read_table(write("a.csv", content), SetByAnOption()), "a.csv", "NUL bytes", hint="encoding=")


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_of_parquet_are_seconds_in_every_unit(tmp_path, unit):
    durations = pyarrow.array([90, None, -1], pyarrow.duration("s")).cast(pyarrow.duration(unit))
    parquet.write_table(pyarrow.table({"x": durations}), tmp_path / "a.parquet")
    assert [float(cell) if cell else None for cell in texts(tmp_path / "a.parquet")["x"]] == [90, None, -1]


def test_many_columns_are_read_and_too_many_refused(write):
    names = [f"c{number}" for number in range(5000)]
    assert len(read_table(write("a.csv", f"{','.join(names)}\n{'1,' * 4999}1\n")).columns) == 5000
    with refuses("b.csv", "20,001 columns", "at most 20,000"):
        read_table(write("b.csv", f"{','.join(map(str, range(20_001)))}\n{'1,' * 20_000}1\n"))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_whole_numbers_beyond_53_bits_are_numbers_and_lists(tmp_path, name):
    numbers = [2**63 - 1, 2**53 + 1, 5]
    rows = [{"image": f"{number}.png", "x": number, "y": [number, 1]} for number in numbers]
    if name.endswith("parquet"):
        columns = {key: [row[key] for row in rows] for key in ("image", "x", "y")}
        parquet.write_table(pyarrow.table(columns), tmp_path / name)
    else:
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    table = read_table(tmp_path / name)
    assert table.columns["x"].texts() == [str(number) for number in numbers]  # classes keep all digits
    values, wrong = number_column(table.columns["x"], comma=False)
    assert values.tolist() == [float(number) for number in numbers]
    assert not len(wrong)
    assert len(table.columns["y"]) == 3


def test_whole_numbers_beyond_53_bits_among_floats_stay_different():
    chunks = [pyarrow.array([2**53 + 1, 2**53]), pyarrow.array([0.5]), pyarrow.nulls(1, pyarrow.int64())]
    assert _joined(chunks).to_pylist() == [str(2**53 + 1), str(2**53), "0.5", None]
    assert _joined([pyarrow.array([1]), pyarrow.array([0.5])]).to_pylist() == [1.0, 0.5]


@pytest.mark.parametrize(("missing", "suggested"), [
    ("nothere.png", ""),  # "other" is a folder
    ("items.csv", ""),  # "semi.csv" is like it in its ending only
    ("items.json", "items.jsonl"), ("imgs", "img"), ("photo1.jpg", "Photo1.PNG"),
])  # fmt: skip
def test_a_suggested_file_is_of_the_same_kind_and_like_the_missing_one(tmp_path, missing, suggested):
    for folder in ("other", "img"):
        (tmp_path / folder).mkdir()
    for name in ("semi.csv", "items.jsonl", "Photo1.PNG", ".items.csv"):
        (tmp_path / name).touch()
    expected = f"did you mean '{suggested}'?" if suggested else ""
    assert similar_name(tmp_path / missing, IMAGE_SUFFIXES) == expected
    assert similar_name(tmp_path / "gone" / missing, IMAGE_SUFFIXES) == ""


@pytest.mark.parametrize(("names", "examples"), [
    (["007", "7", "07", "70"], "'007' and '7' and '07'"),
    (["New York", "new_york", "New-York", "Newyork"], "'New York' and 'new_york' and 'New-York'"),
    (["a", "A", "b", "B", "c", "C", "d", "D", "e", "E"], "'a' and 'A'; 'b' and 'B'; 'c' and 'C'; and 2 more"),
    (["-1", "1", "1.5", "1.05", "10", "1,05", "0", "00x", "-0.5", "0.5"], ""),
])  # fmt: skip
def test_names_that_are_spelled_alike(names, examples):
    text = f"counted as different groups, though spelled alike: {examples}" if examples else ""
    assert spelled_alike(names, "groups") == text
