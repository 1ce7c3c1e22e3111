"""Options of a table of judgments: none is ignored, through `--data` as through a config; items may be vectors."""

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused, refuses

from contml import InputError
from contml.app.experiment import OwnData, load_table
from contml.tasks.table.file import file

ROWS = [(a, b, abs(a - b)) for a in range(8) for b in range(a)]
FORMS = {
    "pairs": "a,b,score\n" + "".join(f"{a}.png,{b}.png,{9 - d}\n" for a, b, d in ROWS),
    "distances": "a,b,distance\n" + "".join(f"{a}.png,{b}.png,{d}\n" for a, b, d in ROWS),
    "triplets": "anchor,x,y,choice\n" + "".join(f"{n}.png,{n + 1}.png,{n + 2}.png,x\n" for n in range(6)),
    "rankings": "query,item,grade\n" + "".join(f"{a}.png,{b}.png,{9 - d}\n" for a, b, d in ROWS),
    "labels": "image,age\n" + "".join(f"{n}.png,{n}\n" for n in range(8)),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n in range(8):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(f"{n}.png")
    (tmp_path / "list.csv").write_text("key,file\n" + "".join(f"i{n},{n}.png\n" for n in range(8)))
    for name, text in FORMS.items():
        (tmp_path / f"{name}.csv").write_text(text)
    np.savez(tmp_path / "vectors.npz", names=[f"i{n}" for n in range(8)], features=np.eye(8, 3, dtype=np.float32))
    return tmp_path


def test_options_reach_judgments_that_data_finds(folder):
    own = OwnData(folder / "pairs.csv", preset="quick")
    found = load_table(
        own, None, ["task.judgments.by=judgment", "task.judgments.unit=points", "task.judgments.largest=10"]
    ).task.train.labels
    assert found.measure.unit == "points"
    assert float(found.judged_pairs.distances.min()) == 2  # 10 minus the highest score, 8
    (folder / "ids.csv").write_text("a,b,score\n" + "".join(f"i{a},i{b},{9 - d}\n" for a, b, d in ROWS))
    options = ["task.judgments.items=list.csv", "task.judgments.id_column=key", "task.judgments.by=judgment"]
    train = load_table(OwnData(folder / "ids.csv", preset="quick"), None, options).task.train
    assert set(train.names) <= {f"{n}.png" for n in range(8)}
    listed = load_table(OwnData(folder / "ids.csv", image="file", preset="quick"), None, options).task.train
    assert listed.names == train.names


@pytest.mark.parametrize(
    ("form", "option", "value", "got"),
    [
        ("pairs", "group", "a", "the table has judgments"),
        ("triplets", "queries", 3, "the table has judgments"),
        ("distances", "judgments.largest", 10.0, "distances of pairs"),
        ("triplets", "judgments.unit", "points", "triplets"),
        ("pairs", "judgments.id_column", "key", "'key'"),
        ("pairs", "image", "a", "'a'"),
        ("labels", "judgments.by", "judgment", "the table has labels"),
        ("labels", "judgments.items", "list.csv", "the table has labels"),
    ],
)
def test_an_option_that_the_data_do_not_use_is_refused(folder, form, option, value, got):
    section, _, name = option.rpartition(".")
    with refuses(option, got=got, hint="omit it"):
        file(f"{form}.csv", **({section: {name: value}} if section else {name: value}))


def test_by_is_refused_where_a_column_names_the_split(folder):
    lines = FORMS["pairs"].splitlines()
    named = [f"{line},{'split' if n == 0 else 'train' if n % 2 else 'test'}" for n, line in enumerate(lines)]
    (folder / "named.csv").write_text("\n".join(named))
    refused(lambda: file("named.csv", judgments={"by": "item"}), "judgments.by", got="'split' names the split")


def test_items_are_vectors(folder):
    text = "a,b,score\n" + "".join(f"i{a},i{b},{9 - d}\n" for a, b, d in ROWS)
    (folder / "ids.csv").write_text(text)
    task = file("ids.csv", judgments={"items": "vectors.npz", "by": "judgment"})
    assert task.train.feature_dim == 3
    assert task.train.image(task.train.names.index("i2")).tolist() == [0, 0, 1]
    assert "model.backbone=features" in task.suggested(task.train)[1]
    (folder / "ids.csv").write_text(text + "i1,i99,3\n")
    with refuses("ids.csv:30: b", got="no vector of 'i99' in vectors.npz"):
        file("ids.csv", judgments={"items": "vectors.npz"})
    np.savez(folder / "twice.npz", names=["i1", "i1"], features=np.eye(2, 3, dtype=np.float32))
    refused(lambda: file("ids.csv", judgments={"items": "twice.npz"}), "twice.npz", got="two vectors of 'i1'")
    refused(lambda: file("ids.csv", judgments={"items": "vectors.npz"}, root="."), "root", got="'.'")


def test_two_names_of_one_image_are_one_item(folder):
    (folder / "twice.csv").write_text(FORMS["pairs"] + "./0.png,7.png,3\n")
    task = file("twice.csv", judgments={"by": "judgment"})
    assert {name for split in task.splits.values() for name in split.names} == {f"{n}.png" for n in range(8)}
    assert sum(int(split.labels.judged_pairs.counts.sum()) for split in task.splits.values()) == len(ROWS) + 1
    (folder / "twice.csv").write_text(FORMS["pairs"] + "./0.png,0.png,3\n")
    refused(lambda: file("twice.csv"), "twice.csv:30", got="a and b are the same item, ./0.png and 0.png")
    (folder / "items.csv").write_text("id,image\n" + "".join(f"i{n},{n // 2}.png\n" for n in range(8)))
    (folder / "ids.csv").write_text("a,b,score\n" + "".join(f"i{a},i{b},{9 - d}\n" for a, b, d in ROWS))
    refused(lambda: file("ids.csv"), "ids.csv:2", got="a and b are the same item, i1 and i0")


@pytest.mark.parametrize(
    ("cell", "hint"), [("inf", ""), ("1e999", ""), ("high", ""), ("7 points", "omit units"), ('"7,5"', "decimal=comma")]
)
def test_the_hint_about_a_number_fits_the_cell(folder, cell, hint):
    (folder / "wrong.csv").write_text(FORMS["pairs"] + f"0.png,7.png,{cell}\n")
    with pytest.raises(InputError) as caught:
        file("wrong.csv")
    assert caught.value.allowed == "must be a finite number"
    assert hint in caught.value.hint
    assert bool(caught.value.hint) == bool(hint)


@pytest.mark.parametrize(
    ("before", "after"), [("score", "points"), ("anchor", "reference"), ("choice", "answer"), ("grade", "mark")]
)
def test_a_table_that_lacks_one_column_of_judgments_names_the_forms(folder, before, after):
    form = next(name for name, text in FORMS.items() if before in text.partition("\n")[0])
    (folder / "near.csv").write_text(FORMS[form].replace(before, after))
    refused(lambda: file("near.csv"), "near.csv", got=after, allowed="anchor, x, y, choice")


@pytest.mark.parametrize(
    ("form", "header", "direction"),
    [
        ("pairs", "image_a,image_b,score", "higher is more alike"),
        ("pairs", "Left,Right,Rating", "higher is more alike"),
        ("distances", "image1,image2,dissimilarity", "lower is more alike"),
        ("rankings", "query,candidate,relevance", "higher is more alike"),
    ],
)
def test_columns_have_the_names_that_people_give_them(folder, form, header, direction):
    """The judgments are those of the names in the docs, and a line says what a higher number means."""
    options = {"judgments": {"by": "judgment"}}
    expected = file(f"{form}.csv", **options)
    (folder / "own.csv").write_text(FORMS[form].replace(FORMS[form].partition("\n")[0], header))
    found = file("own.csv", **options)
    assert found.train.labels.fingerprint() == expected.train.labels.fingerprint()
    line = next(line for line in found.columns if line[0] == header.split(",")[-1])
    assert line[2] == f"by name: {direction}"


def test_positive_and_negative_need_no_choice(folder):
    options = {"judgments": {"by": "judgment"}, "test": 0.5}
    expected = file("triplets.csv", **options)
    rows = [row.rpartition(",")[0] for row in FORMS["triplets"].splitlines()[1:]]
    (folder / "own.csv").write_text("\n".join(["anchor,positive,negative", *rows]))
    found = file("own.csv", **options)
    assert found.train.labels.fingerprint() == expected.train.labels.fingerprint()
    assert any("the positive is nearer to the anchor" in line[2] for line in found.columns)


def test_two_columns_that_may_be_the_judgment_are_refused(folder):
    (folder / "own.csv").write_text("image_a,image_b,score,distance\n0.png,1.png,1,2\n2.png,1.png,1,2\n")
    with refuses("own.csv", got="image_a, image_b, score; image_a, image_b, distance", hint="remove or rename"):
        file("own.csv")


def test_two_columns_of_images_without_a_judgment_name_the_forms(folder):
    (folder / "own.csv").write_text("image_a,image_b,age\n0.png,1.png,1\n2.png,1.png,2\n3.png,4.png,2\n")
    refused(lambda: file("own.csv"), "own.csv", got="image_a, image_b, age", allowed="a, b, score")
