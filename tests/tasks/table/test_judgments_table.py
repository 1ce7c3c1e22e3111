"""A table of judgments as a task: forms found by columns, items by path or id, splits, and files that are wrong."""

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused, refuses

from contml.labels import RankingLabels, TripletLabels
from contml.tasks.table.file import file

TRIPLETS = "anchor,x,y,choice\n0.png,1.png,2.png,x\n3.png,4.png,5.png,y\n"
GRADES = "query,item,grade\n0.png,1.png,1\n0.png,2.png,2\n3.png,4.png,1\n3.png,5.png,3\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read a table of judgments of ten images, as text; returns the task."""
    monkeypatch.chdir(tmp_path)
    for n in range(10):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(f"{n}.png")
    (tmp_path / "items.csv").write_text("id,image\n" + "".join(f"i{n},{n}.png\n" for n in range(10)))

    def make(text, **options):
        (tmp_path / "table.csv").write_text(text)
        return file("table.csv", **options)

    return make


def counts_by_names(split):
    """The triplets of a split by names, with their counts."""
    labels = split.labels
    return {tuple(split.names[n] for n in t): c for t, c in zip(labels.triplets, labels.counts.tolist(), strict=True)}


def test_a_choice_is_a_column_or_an_item_and_repeats_are_counted(read):
    named = (
        "Anchor,X,Y,Choice,split\n0.png,1.png,2.png,X,train\n0.png,2.png,1.png,2.png,train\n0.png,1.png,2.png,y,train\n"
    )
    task = read(named + "3.png,4.png,5.png,5.png,test\n")
    assert counts_by_names(task.train) == {("0.png", "1.png", "2.png"): [1, 2]}
    assert (counts_by_names(task.test), task.train.labels.contradictions) == ({("3.png", "4.png", "5.png"): [0, 1]}, 1)
    assert isinstance(task.train.labels, TripletLabels)
    three = read(
        "a,b,c,odd,split\n0.png,1.png,2.png,c,train\n2.png,1.png,0.png,0.png,train\n3.png,4.png,5.png,a,test\n"
    )
    assert counts_by_names(three.train) == {("0.png", "1.png", "2.png"): [1, 0, 1]}
    assert counts_by_names(three.test) == {("3.png", "4.png", "5.png"): [1, 0, 0]}


def test_grades_or_distances_of_queries(read):
    task = read(
        "query;item;grade;split\n0.png;1.png;1,5;train\n0.png;2.png;2;train\n3.png;4.png;1;test\n3.png;5.png;0;test\n"
    )
    assert isinstance(task.train.labels, RankingLabels)
    assert (task.train.labels.values.tolist(), task.train.labels.of) == ([0, 1.5, 2], "grade")
    assert read(GRADES.replace("grade", "distance")).train.labels.of == "distance"


def test_a_drawn_split_shares_no_item_unless_it_is_by_judgment(read):
    random = np.random.default_rng(0)
    lines = [f"{a}.png,{b}.png,{c}.png,x" for a, b, c in (random.choice(10, 3, replace=False) for _ in range(60))]
    text = "anchor,x,y,choice\n" + "\n".join(lines)
    task = read(text, test=0.4)
    assert not set(task.train.names) & set(task.test.names)
    left_out = 60 - sum(split.labels.counts.sum() for split in (task.train, task.test))
    assert task.train.labels.left_out > 0
    assert left_out >= task.train.labels.left_out  # answers, of which a triplet may have several
    (line,) = [line for line in task.columns if line[1] == "split"]
    assert f"{task.train.labels.left_out} judgments left out" in line[2]
    shared = read(text, judgments={"by": "judgment"})
    assert set(shared.test.names) <= set(shared.train.names)
    assert sum(split.labels.counts.sum() for split in (shared.train, shared.test)) == 60
    assert [split.names for split in read(text, judgments={"by": "judgment"}).splits.values()] == [
        s.names for s in shared.splits.values()
    ]


def test_labels_are_recognized_by_the_judgments_of_an_item(read):
    before, after = read(TRIPLETS), read(TRIPLETS.replace("2.png,x", "2.png,y"))
    for name, split in before.splits.items():
        changed = "0.png" in split.names
        assert (split.labels.digests() != after.splits[name].labels.digests()) == changed
    lines = TRIPLETS.splitlines()
    turned = read("\n".join([lines[0], *lines[:0:-1]]))
    assert dict(zip(turned.train.names, turned.train.labels.digests(), strict=True)) == dict(
        zip(before.train.names, before.train.labels.digests(), strict=True)
    )


@pytest.mark.parametrize(
    ("line", "subject", "got", "hint"),
    [
        ("0.png,99.png,2.png,x", "table.csv:4: x", "99.png", "set root"),
        ("0.png,1.png,9.PNG,x", "table.csv:4: y", "9.PNG", "9.png"),
        ("0.png,2.png,2.png,x", "table.csv:4", "x and y are the same item, 2.png", ""),
        ("0.png,1.png,3.png,z", "table.csv:4: choice", "'z'", ""),
        ("0.png,,3.png,x", "table.csv:4: x", "empty", "missing=drop"),
        ("https://a/b.png,1.png,3.png,x", "table.csv:4: anchor", "URL", "save"),
    ],
)
def test_a_wrong_row_of_triplets_is_one_line(read, line, subject, got, hint):
    refused(lambda: read(TRIPLETS + line + "\n"), subject, got=got, hint=hint)


def test_an_item_that_has_the_name_of_the_other_column_is_refused(read):
    Image.new("RGB", (8, 8)).save("x", format="PNG")
    refused(lambda: read(TRIPLETS + "0.png,1.png,x,x\n"), "table.csv:4: choice", got="'x'", hint="rename")


@pytest.mark.parametrize(
    ("text", "subject", "got"),
    [
        (TRIPLETS.replace("anchor", "reference"), "table.csv", "reference, x, y, choice"),
        (GRADES.replace("grade", "grade,distance").replace(".png,1\n", ".png,1,1\n"), "table.csv", ""),
        ("anchor,x,y,choice\n0.png,1.png,2.png,x\n", "table.csv", "1 judgment"),
        (
            "anchor,x,y,choice\n0.png,1.png,2.png,x\n0.png,1.png,3.png,x\n",
            "table.csv: test split by item",
            "2 judgments",
        ),
        (GRADES.replace(",2\n", ",-2\n"), "table.csv:3: grade", "-2"),
        (GRADES.replace("0.png,2", "0.png,0"), "table.csv:3", "query and item are the same item, 0.png"),
        ("query,item,grade\n0.png,1.png,2\n3.png,4.png,2\n", "table.csv", "2 such queries"),
        ("a,b,score\n1.png,2.png,5\n", "table.csv", "1 judgment"),
        ("a,b,score\n", "table.csv", ""),
        ("a,b,points\n1,2,3\n", "table.csv", "columns a, b, points"),
        ("a,b,score,distance\n1,2,3,4\n", "table.csv", "columns of scores of pairs and of distances of pairs"),
        ("a,b,distance\n1.png,2.png,5\n3.png,2.png,-1\n", "table.csv:3: distance", "-1"),
        ("a,b,score\ni1,i2,5\ni1,z,4\n", "table.csv:3: b", "no item 'z'"),
    ],
)
def test_a_wrong_table_is_one_line(read, text, subject, got):
    refused(lambda: read(text), subject, got=got)


def test_a_score_above_the_largest_is_refused(read):
    with refuses("table.csv:3: score", got="11"):
        read("a,b,score\n1.png,2.png,5\n3.png,2.png,11\n", judgments={"largest": 10.0})


@pytest.mark.parametrize("mark", ["&", " ", ":"])
def test_a_delimiter_that_is_not_found_is_named(read, mark):
    text = GRADES.replace(",", mark)
    refused(lambda: read(text), "table.csv", got=f"query{mark}item{mark}grade", hint="task.table.delimiter")
    assert len(read(text, table={"delimiter": mark}).train) == 3


def test_incomplete_judgments_are_dropped_and_counted(read):
    task = read(TRIPLETS + "0.png,,2.png,x\n0.png,99.png,2.png,x\n0.png,98.png,2.png,x\n", missing="drop")
    assert ["", "excluded", "missing=drop", "1 with an empty cell, 2 without an image file"] in task.columns
    assert sum(split.labels.count for split in task.splits.values()) == 2
    refused(lambda: read("anchor,x,y,choice\n,1.png,2.png,x\n", missing="drop"), "table.csv", got="no judgment")


def test_a_query_with_one_item_is_dropped_and_counted(read):
    task = read(GRADES + "6.png,7.png,1\n", test=0.5)
    assert task.train.labels.count + task.test.labels.count == 2
    (line,) = [line for line in task.columns if line[1] == "grades"]
    assert "1 queries dropped" in line[3]


@pytest.mark.parametrize(
    ("items", "subject", "got"),
    [
        ("id,image\ni0,0.png\ni0,1.png\n", "other.csv:3", "i0 appears twice"),
        ("id,image\ni0,0.png\ni1,\n", "other.csv:3: image", "empty"),
        ("key,image\ni0,0.png\n", "other.csv: column id", "no such column"),
        ("id,number\ni0,3\n", "other.csv", "no column of image files"),
        ("id,left,right\ni0,0.png,1.png\n", "other.csv", "2 columns of image files"),
    ],
)
def test_a_wrong_table_of_items_is_one_line(read, tmp_path, items, subject, got):
    (tmp_path / "other.csv").write_text(items)
    refused(lambda: read(TRIPLETS, judgments={"items": "other.csv"}), subject, got=got)


def test_split_columns_are_read_as_in_other_tables(read):
    text = TRIPLETS.replace("choice", "choice,split").replace(",x\n", ",x,train\n").replace(",y\n", ",y,{}\n")
    assert read(text.format("val")).test is None
    refused(lambda: read(text.format("foo")), "table.csv:3: split", got="'foo'")
    refused(lambda: read(text.format("test"), split="part"), "table.csv: column part", got="no such column")
