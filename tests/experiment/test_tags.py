"""Tags of items: the file that the page of `contml explore` writes and `contml audit` reads."""

from __future__ import annotations

import pytest
from support.refusals import refuses

from contml.experiment.tags import TAGS, read_tags, tags_of_rows, write_tags

NAMES = ["a.jpg", 'b, "c".jpg', "line\nbreak \udcff.jpg", "=1+1"]


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "tags.csv"
    write_tags(path, {NAMES[1]: "wrong label", NAMES[2]: "right label", "elsewhere.jpg": "bad image"})
    found, words = tags_of_rows(path, NAMES, "test")
    assert found == {1: "wrong label", 2: "right label"}
    assert words == (
        "1 'wrong label', 1 'right label'; items with 'right label' are left out; "
        "1 tagged items are not in the test split"
    )
    assert tags_of_rows(path, ["other"], "training") == ({}, "none of the 3 tagged items is in the training split")
    write_tags(path, {})
    assert tags_of_rows(path, NAMES, "test") == ({}, "no item is tagged")


def test_a_file_of_a_spreadsheet_is_read(tmp_path):
    (tmp_path / "tags.csv").write_bytes(b'\xef\xbb\xbfitem,tag\r\n"a, b",bad image\r\n')
    assert read_tags(tmp_path / "tags.csv") == {"a, b": "bad image"}


@pytest.mark.parametrize(
    ("content", "place", "got"),
    [
        (b"", "", "the header"),
        (b"name,tag\na,wrong label\n", "", "the header 'name,tag'"),
        (b"item,tag\na,wrong\n", ":2", "tag 'wrong'"),
        (b"item,tag\na\n", ":2", "1 cells"),
        (b"item,tag\na,wrong label\na,bad image\n", ":3", "a is also tagged 'wrong label'"),
        (b"item,tag\n\xff,wrong label\n", "", "cannot be read"),
        (b'item,tag\n"a,wrong label\n', "", "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path, content, place, got):
    path = tmp_path / "tags.csv"
    path.write_bytes(content)
    with refuses(f"{path}{place}", got):
        read_tags(path)


def test_a_missing_file_is_refused(tmp_path):
    with refuses(str(tmp_path / "tags.csv"), "no such file", hint="contml explore"):
        read_tags(tmp_path / "tags.csv")
    assert len(set(TAGS)) == 3
