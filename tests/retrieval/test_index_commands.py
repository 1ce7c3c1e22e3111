"""`contml index` and `contml search`, with a model that needs no training: its embedding is the mean colour."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.paths import ROOT
from support.refusals import refuses

import contml.cli.index as command
from contml import InputError
from contml.cli.commands import app
from contml.contracts import PLAIN, Measure
from contml.data.tables import TableOptions
from contml.evaluation import embed_parts
from contml.labels import VectorLabels
from contml.retrieval import Index, index as index_module, index_images, index_structure
from contml.retrieval.images import NamedImage
from contml.retrieval.index import IndexModel
from contml.retrieval.index_gallery import write_gallery
from contml.retrieval.index_images import QueryResult, SearchHit, TypedLabel, add_images, read_metadata
from contml.retrieval.index_store import Store
from contml.retrieval.labelled_items import Answer


class Colours:
    """Embeds an image as its mean colour. Label distances are 100 times embedding distances, within 10 %."""

    embedding_dim, unit, captioner = 3, "shades of colour", None
    has_labels, norm = False, None

    def __init__(self, identity="abc", kind="interval", measure=PLAIN, brightness=1.0):
        self.measure = measure
        calibration = kind and SimpleNamespace(kind=kind, level=0.9)
        self.bundle = SimpleNamespace(calibration=calibration, epoch=1.0, feature_dim=None)
        self.identity, self.brightness = identity, brightness
        self.left_out, self.embedded = {}, 0

    def embed(self, images, *, broken="fail"):
        self.left_out, rows = {}, []
        for path in (image.file for image in images):
            try:
                with Image.open(path) as picture:
                    rows.append(np.asarray(picture.convert("RGB")).reshape(-1, 3).mean(0) / 255 * self.brightness)
            except OSError as error:
                if broken == "fail":
                    raise InputError(str(path), "cannot be decoded") from error
                self.left_out[str(path)] = "not an image"
                rows.append(np.full(3, np.nan))
        self.embedded += len(rows)
        return np.array(rows, np.float32).reshape(-1, 3)

    def fitted_to(self, dim):
        return self

    def label_distance(self, d):
        return 100 * d, 90 * d, 110 * d

    def same_class(self, d):
        return np.exp(-d)


@pytest.fixture
def model(monkeypatch):
    made = Colours()
    monkeypatch.setattr(command, "_load", lambda run, trust: made)
    return made


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for n in range(12):
        Image.new("RGB", (20, 10), (2 * n * n, 0, 0)).save(folder / (f"sub/{n:02d}.png" if n % 2 else f"{n:02d}.png"))
    return folder


def test_index_and_search(contml, model, photos, tmp_path):
    status, out, err = contml("index", "run", "photos", "--out", "i")
    assert (status, err) == (0, "")
    assert out == "i: 12 images added, 12 in all\nsearch: exact, compares all items\n"
    status, out, err = contml("search", "i", "photos/04.png", "photos/sub/09.png", "-k", "3")
    assert (status, err) == (0, "")
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert lines[0] == ["photos/04.png"]
    assert lines[1] == ["rank", "id", "distance", "label distance (90 % interval)"]
    assert lines[2:5] == [
        ["1", "04.png", "0", "the same image"],
        ["2", "sub/03.png", "0.0549", "5.49 (4.94 to 6.04)"],
        ["3", "sub/05.png", "0.0706", "7.06 (6.35 to 7.76)"],
    ]
    assert lines[-1] == ["label distance: shades of colour"]
    (found,) = json.loads(contml("search", "i", "photos/04.png", "-k", "2", "--json")[1])
    assert found["query"] == "photos/04.png"
    assert found["unit"] == "shades of colour"
    assert found["measure"] == {"unit": "", "factor": 1.0, "kind": "linear", "name": "", "dates": False}
    own = {"rank": 1, "id": "04.png", "distance": 0.0, "same_image": True, "text": "the same image"}
    assert found["found"][0] == {**own, "metadata": {"file": str(photos / "04.png")}}
    assert found["found"][1] == {
        "rank": 2,
        "id": "sub/03.png",
        "distance": pytest.approx(14 / 255),
        "label_distance": pytest.approx(1400 / 255),
        "low": pytest.approx(1260 / 255),
        "high": pytest.approx(1540 / 255),
        "text": "5.49 (4.94 to 6.04)",
        "metadata": {"file": str(photos / "sub/03.png")},
    }


def test_index_and_search_say_that_weights_are_untrained(contml, model, photos):
    note = "note: run has its initial weights: no training changed or improved them"
    assert contml("index", "run", "photos", "--out", "i")[2] == ""
    model.bundle.epoch = 0.0
    assert note in contml("index", "run", "photos", "--out", "j")[2]
    status, _, err = contml("search", "j", "photos/04.png", "--run", "run")
    assert (status, err.strip()) == (0, note)


def test_what_is_in_the_index_is_not_embedded_again(contml, model, photos):
    contml("index", "run", "photos", "--out", "i")
    assert model.embedded == 12
    Image.new("RGB", (8, 8), "blue").save(photos / "new.png")
    (photos / "broken.png").write_text("<html>")
    contml("index", "--out", "i", "--remove", "04.png")
    status, out, err = contml("index", "run", "photos", "--out", "i")
    assert (status, model.embedded) == (0, 14)
    assert out.splitlines() == [
        "i: 1 images added, 12 in all",
        "11 images were in the index already",
        "1 images were removed from the index earlier and stay out of it",
        "1 image could not be read, and left out",
        "search: exact, compares all items",
    ]
    assert err == "broken.png: cannot be decoded (not an image)\n"
    data = json.loads(contml("index", "run", "photos", "--out", "i", "--json")[1])
    broken = [{"image": "broken.png", "cause": "not an image"}]
    assert data == {
        "index": "i",
        "added": 0,
        "resumed": 0,
        "present": 12,
        "removed": 1,
        "items": 12,
        "structure": "flat",
        "recall@10": 1.0,
        "bytes_per_item": 12.0,
        "broken": broken,
    }


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_interrupted_build_continues(contml, model, photos, monkeypatch, stop):
    monkeypatch.setattr(embed_parts, "_PART", 4)
    embed, calls = model.embed, []

    def interrupted(images, **options):
        calls.append(len(images))
        if len(calls) == stop + 1:
            raise KeyboardInterrupt
        return embed(images, **options)

    model.embed = interrupted
    status, out, err = contml("index", "run", "photos", "--out", "i")
    assert (status, out, err) == (130, "", "contml: stopped; the same command continues\n")
    status, out, _ = contml("index", "run", "photos", "--out", "i")
    assert calls == [4] * (4)
    assert out.startswith(f"i: {12 - 4 * stop} images added, 12 in all\n")
    contml("index", "run", "photos", "--out", "whole")
    assert Index.open("i").ids == Index.open("whole").ids
    vectors = [Store(Path(name)).content().vectors for name in ("i", "whole")]
    assert np.array_equal(*vectors)


def test_structures_print_their_recall(contml, model, photos, monkeypatch):
    for module in (index_module, index_structure):
        monkeypatch.setattr(module, "FEWEST", 10)
    status, out, _ = contml("index", "run", "photos", "--out", "i", "--kind", "hnsw")
    assert status == 0
    assert re.search(
        r"^search: hnsw, \d+ candidates, \d+ bytes per item in memory; finds 100\.0% of the true 10 nearest$",
        out,
        re.MULTILINE,
    )
    Index.open("i").add(["x"], [[0, 0, 0]])
    status, out, err = contml("search", "i", "photos/00.png", "-k", "2")
    assert err == "1 of 13 items are not in the search structure yet: 'contml index' adds them\n"
    assert "x" in out


def test_remove_and_compact(contml, refused, model, photos, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    (vectors,) = (tmp_path / "i").glob("vectors-*")
    out = contml("index", "--out", "i", "--remove", "04.png", "--remove", "sub/05.png", "--compact")[1]
    assert out == "i: 2 images removed, 10 left, compacted\n"
    assert not vectors.exists()
    found = json.loads(contml("search", "i", "photos/04.png", "-k", "99", "--json")[1])
    ids = [line["id"] for line in found[0]["found"]]
    assert len(ids) == 10
    assert "04.png" not in ids
    data = json.loads(contml("index", "--out", "i", "--remove", "00.png", "--json")[1])
    assert data == {"index": "i", "removed": 1, "items": 9}
    assert "'04.png' is not in the index" in refused("index", "--out", "i", "--remove", "04.png")


def test_a_changed_image_is_refused_and_embedded_again_after_its_removal(contml, refused, model, photos):
    contml("index", "run", "photos", "--out", "i")
    old = Index.open("i").embeddings(["04.png", "06.png"])
    for name in ("04.png", "sub/05.png"):
        Image.new("RGB", (8, 8), "blue").save(photos / name)
    line = refused("index", "run", "photos", "--out", "i")
    assert line.startswith("contml: photos/04.png: changed since it was embedded in i (as have 1 other files); remove")
    assert "contml index --out i --remove 04.png --remove sub/05.png; the same command then embeds them" in line
    contml("index", "--out", "i", "--remove", "04.png", "--remove", "sub/05.png", "--remove", "06.png")
    out = contml("index", "run", "photos", "--out", "i")[1].splitlines()
    assert out[0] == "i: 2 images added, 11 in all"
    assert out[2] == "1 images were removed from the index earlier and stay out of it"
    new = Index.open("i").embeddings(["04.png"])
    assert new[0].tolist() == [0, 0, 1] != old[0].tolist()
    (photos / "00.png").unlink()  # what is gone stays
    assert "1 image of the index is not among these images" in contml("index", "run", "photos", "--out", "i")[1]
    contml("index", "--out", "i", "--compact")
    Image.new("RGB", (9, 9), "red").save(photos / "04.png")
    assert "photos/04.png: changed since" in refused("index", "run", "photos", "--out", "i")


def test_a_copy_of_an_image_is_unchanged(contml, refused, model, photos):
    """A file of another time and the same content, of an image in the index and of a removed one."""
    contml("index", "run", "photos", "--out", "i")
    contml("index", "--out", "i", "--remove", "06.png")
    for path in photos.rglob("*.png"):
        os.utime(path, ns=(1, 1))
    out = contml("index", "run", "photos", "--out", "i")[1].splitlines()
    assert out[0] == "i: 0 images added, 11 in all"
    assert out[2] == "1 images were removed from the index earlier and stay out of it"
    content = bytearray((photos / "04.png").read_bytes())
    content[-1] ^= 1
    (photos / "04.png").write_bytes(content)
    assert "photos/04.png: changed since" in refused("index", "run", "photos", "--out", "i")


def test_an_index_without_digests_takes_another_time_for_a_change(contml, refused, model, photos):
    """As indexes of 0.1."""
    contml("index", "run", "photos", "--out", "i")
    with Index.open("i") as index:
        states = zip(index.ids, index.states(index.ids), strict=True)
        index.set_states({name: str(state).rpartition(" ")[0] for name, state in states})
    assert contml("index", "run", "photos", "--out", "i")[1].startswith("i: 0 images added, 12 in all")
    os.utime(photos / "04.png", ns=(1, 1))
    assert "photos/04.png: changed since" in refused("index", "run", "photos", "--out", "i")


def test_unreadable_images_are_recorded(contml, model, photos, tmp_path):
    """They are tried again when their files have changed, or when they were forgotten."""
    for name in ("bad.png", "other.png"):
        (photos / name).write_text("<html>")
    for number in range(3):
        status, out, err = contml("index", "run", "photos", "--out", "i")
        assert (status, model.embedded) == (0, 14)
        assert err == "bad.png: cannot be decoded (not an image)\nother.png: cannot be decoded (not an image)\n"
        assert "2 images could not be read, and left out" in out
        assert out.startswith(f"i: {0 if number else 12} images added, 12 in all\n")
    Image.new("RGB", (8, 8), "blue").save(photos / "bad.png")
    assert contml("index", "--out", "i", "--remove", "other.png")[1] == "i: 1 images removed, 12 left\n"
    out = contml("index", "run", "photos", "--out", "i")[1]
    assert (out.splitlines()[0], model.embedded) == ("i: 1 images added, 13 in all", 16)


def test_an_interrupted_index_says_how_much_of_it_is_there(contml, model, photos, monkeypatch):
    """Whatever reads it: the images of another command do not hide those that are still to come."""
    monkeypatch.setattr(embed_parts, "_PART", 4)
    embed, calls = model.embed, []

    def interrupted(images, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return embed(images, **options)

    model.embed = interrupted
    contml("index", "run", "photos", "--out", "i")
    model.embed = embed
    says = (
        "note: 4 of 12 images are in i: 'contml index' was interrupted, or is at work; the same command adds the others"
    )
    assert contml("search", "i", "photos/00.png")[2].strip() == says
    assert contml("export", "i", "v.parquet")[2].strip() == says
    assert Index.open("i").pending_text in contml("explore", "i", "--export", "page")[1] + Path(
        "page/data.js"
    ).read_text(encoding="utf-8")
    Path("more").mkdir()
    Image.new("RGB", (8, 8), "blue").save("more/new.png")
    assert "note: 5 of 13 images are in i" in contml("index", "run", "more", "--out", "i")[2]
    contml("index", "--out", "i", "--remove", "sub")  # what is not embedded yet is given up
    found = Index.open("i")
    assert "note: 5 of 7 images" in contml("search", "i", "photos/00.png")[2], (found.ids, found.pending_text)
    out, err = contml("index", "run", "photos", "--out", "i")[1:]
    assert (out.splitlines()[0], err) == ("i: 8 images added, 13 in all", "")
    assert contml("search", "i", "photos/00.png")[2] == ""


def test_an_index_of_0_1_gets_its_new_tables(contml, refused, model, photos):
    """It is searched as it is; the first change adds what is missing. The states of its files are not known."""
    contml("index", "run", "photos", "--out", "i")
    with sqlite3.connect("i/index.sqlite", isolation_level=None) as connection:
        connection.execute("DROP TABLE left_out")
        connection.execute("ALTER TABLE items DROP COLUMN state")
    connection.close()
    assert contml("search", "i", "photos/00.png")[0] == 0
    contml("index", "--out", "i", "--remove", "04.png")
    for name in ("04.png", "06.png"):
        Image.new("RGB", (8, 8), "blue").save(photos / name)
    out = contml("index", "run", "photos", "--out", "i")[1]
    assert out.splitlines()[:3] == [
        "i: 0 images added, 11 in all",
        "11 images were in the index already",
        "1 images were removed from the index earlier and stay out of it",
    ]
    Image.new("RGB", (8, 8), "blue").save(photos / "new.png")
    contml("index", "run", "photos", "--out", "i")
    Image.new("RGB", (8, 8), "red").save(photos / "new.png")
    assert "photos/new.png: changed since" in refused("index", "run", "photos", "--out", "i")


TABLE = "image,place,year\n04.png,garden,2024\nsub/05.png,kitchen,\nelse.png,attic,1\n"


def test_metadata_of_a_table(contml, model, photos):
    (photos / "table.csv").write_text(TABLE)
    out = contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")[1]
    assert "photos/table.csv: no row for 10 of 12 images" in out
    out = contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")[1]
    assert "12 images were in the index already; their metadata stay as they were" in out
    with Index.open("i") as index:
        assert index.metadata(["04.png", "sub/05.png", "06.png"]) == [
            {"place": "garden", "year": "2024", "file": str(photos / "04.png")},
            {"place": "kitchen", "year": "", "file": str(photos / "sub/05.png")},
            {"file": str(photos / "06.png")},
        ]
    out = contml("search", "i", "photos/04.png", "-k", "2")[1].splitlines()
    assert out[1].split()[-2:] == ["place", "year"]
    assert out[2].split()[-2:] == ["garden", "2024"]


@pytest.mark.parametrize(
    ("text", "subject", "got"),
    [
        ("file,place\n04.png,a\n", "table.csv: column image", "no such column"),
        ("image,file\n04.png,a\n", "table.csv", "a column 'file'"),
        ("image,place\n04.png,a\nphotos/../04.png,b\n", "table.csv", ""),
        ("image,place\n04.png,a\n04.png,b\n", "table.csv:3", "two rows"),
        ("image,place\nnone.png,a\n", "table.csv", "no row is of these images"),
        ("", "table.csv", "is empty"),
        ("image\n", "table.csv", "no row"),
    ],
)
def test_bad_tables(photos, text, subject, got):
    (photos / "table.csv").write_text(text)
    images = [NamedImage(f"{n:02d}.png", photos / f"{n:02d}.png") for n in (0, 4)]
    if "../" in text:
        assert read_metadata(photos / "table.csv", images) == {"04.png": {"place": "a"}}
        return
    with refuses(subject, got):
        read_metadata(photos / "table.csv", images)


def test_tables_that_cannot_be_read(photos):
    with refuses("none.csv", "no such file"):
        read_metadata(photos / "none.csv", [])
    (photos / "latin.csv").write_bytes(b"image\n\xff\n")
    with refuses("latin.csv:2", "not utf-8"):
        read_metadata(photos / "latin.csv", [])
    (photos / "large.csv").write_text(f'image\n"{"a" * 200_000}"\n')
    with refuses("large.csv", "field larger"):
        read_metadata(photos / "large.csv", [])


def test_one_name_of_two_files_is_refused(refused, contml, model, photos, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    shutil.copytree(photos, tmp_path / "others")
    assert "00.png: the name of" in refused("index", "run", "others", "--out", "i")


def test_a_name_that_is_not_unicode_is_listed(tmp_path, model):
    name = "a\udcff.png"
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    try:
        (tmp_path / "a.png").rename(tmp_path / name)
    except OSError:
        pytest.skip("the file system takes no such name")
    with Index.create(tmp_path / "i", 3) as index:
        done = add_images(index, model, [NamedImage(name, tmp_path / name)])
        assert (done.added, done.broken) == (0, {name: "its name is not valid Unicode: rename it"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "--out", "i"], "RUN IMAGES: missing"),
        (["index", "run", "--out", "i"], "RUN IMAGES: missing"),
        (["index", "run", "photos"], "Missing option '--out'"),
        (["index", "run", "photos", "--out", "j", "--kind", "tree"], "--kind: 'tree'; must be one of auto, flat"),
        (["index", "run", "photos", "--out", "i", "--kind", "hnsw"], "--kind: hnsw; must be auto"),
        (["index", "run", "none", "--out", "i"], "none: no such file or folder"),
        (["index", "run", "photos", "--out", "i", "--remove", "a"], "--remove: used with RUN"),
        (["index", "run", "photos", "--out", "i", "--compact"], "--compact: used with RUN"),
        (["index", "run", "photos", "--out", "j", "--metadata", "none.csv"], "none.csv: no such file"),
        (["index", "--out", "i", "--bind"], "--bind: takes RUN and --out alone; contml index RUN --out i --bind"),
        (["index", "run", "photos", "--out", "i", "--bind"], "--bind: takes RUN"),
        (["index", "--out", "i", "--bind", "--compact"], "--bind: takes RUN"),
        (["index", "run", "--out", "none", "--bind"], "none: no such index"),
        (["index", "--out", "none", "--compact"], "none: no such index"),
        (["index", "--out", "i", "--remove", "none"], "'none' is not in the index"),
        (["index", "run", "bad.png", "--out", "j"], "j: none of the images could be read"),
        (["search", "none", "photos/00.png"], "none: no such index"),
        (["search", "photos", "photos/00.png"], "photos: not an index"),
        (["search", "i", "none.png"], "none.png: no such file"),
        (["search", "i", "bad.png"], "bad.png: cannot be decoded"),
        (["search", "i", "photos/00.png", "-k", "0"], "-k: 0"),
        (["search", "i", "photos/00.png", "--gallery", "a.jpg"], "a.jpg: suffix '.jpg'; must end in .html or .png"),
        (["search", "i", "photos/00.png", "--gallery", "i/index.sqlite/a.png"], "cannot be written"),
        (["search", "i", "photos/00.png", "photos/02.png", "--run", "other", "-k", "x"], "-k: 'x'"),
    ],
)
def test_wrong_arguments_are_one_line(contml, model, photos, tmp_path, arguments, message):
    contml("index", "run", "photos", "--out", "i")
    (tmp_path / "bad.png").write_text("<html>")
    before = Index.open(tmp_path / "i").ids
    status, out, err = contml(*arguments)
    assert (status, out) == (2, "")
    line = err.strip().splitlines()[-1]
    assert line.startswith("contml: ")
    assert message in line
    assert Index.open(tmp_path / "i").ids == before


def test_the_model_of_an_index_is_that_of_its_queries(contml, refused, model, photos, monkeypatch):
    contml("index", "run", "photos", "--out", "i")
    monkeypatch.setattr(command, "_load", lambda run, trust: Colours("def"))
    for arguments in (["search", "i", "photos/00.png", "--run", "other"], ["index", "other", "photos", "--out", "i"]):
        line = refused(*arguments)
        assert f"other: not the model of i; the index was made with {Path.cwd() / 'run'}: use it, or make a new" in line
    for arguments in (["search", "i", "photos/00.png"], ["index", "run", "photos", "--out", "i"]):
        assert "run: not the model of i; it changed since; make a new index" in refused(*arguments)
    Index.create("bare", 3).add(["a"], [[0, 0, 0]])
    assert "bare: made without a run" in refused("search", "bare", "photos/00.png")
    assert "bare: made without a model; record it once: contml index run --out bare --bind" in refused(
        "search", "bare", "photos/00.png", "--run", "run"
    )


def test_the_run_is_found_from_another_folder(contml, model, photos, monkeypatch, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    loaded = []
    monkeypatch.setattr(command, "_load", lambda run, trust: loaded.append(run) or model)
    contml("search", "i", "photos/00.png")
    contml("search", "i", "photos/00.png", "--run", "moved")
    assert loaded == [tmp_path / "run", Path("moved")]


# -- indexes of older versions -----------------------------------------------------------------------------------------


@pytest.fixture
def old(contml, model, photos):
    """An index as an older version made it: with the hash of a file in place of the identity of the model."""
    contml("index", "run", "photos", "--out", "i")
    store = Store(Path("i"))
    facts = {"weights": "0" * 64, "transform": {"resize": 8}, "unit": "shades", "run": str(Path("run").absolute())}
    with store.lock():
        store.commit_model(facts)
    store.close()
    return Path("i")


def test_an_older_index_is_bound_once(contml, refused, old, model, tmp_path):
    line = "i: made with an older version of contml, which did not record its model; record it once: contml index "
    run = tmp_path / "run"
    assert f"{line}{run} --out i --bind" in refused("search", "i", "photos/00.png")
    assert f"{line}run --out i --bind" in refused("index", "run", "photos", "--out", "i")
    with refuses("i", "older version"):
        Index.open("i", model)
    assert contml("index", "run", "--out", "i", "--bind") == (
        0, "i: its model is run; 12 images embedded again, largest difference 0\n", ""
    )  # fmt: skip
    assert contml("search", "i", "photos/00.png")[0] == 0
    assert contml("index", "run", "photos", "--out", "i")[1].startswith("i: 0 images added")
    assert Index.open("i", model).model == IndexModel(old, "abc", str(run), older=False)


def test_an_index_is_bound_to_where_its_model_was_moved(contml, old, model, monkeypatch, tmp_path):
    data = json.loads(contml("index", "moved", "--out", "i", "--bind", "--json")[1])
    assert data == {"index": "i", "run": str(tmp_path / "moved"), "images": 12, "difference": 0}
    loaded = []
    monkeypatch.setattr(command, "_load", lambda run, trust: loaded.append(run) or model)
    contml("search", "i", "photos/00.png")
    assert loaded == [tmp_path / "moved"]


@pytest.mark.parametrize("brightness", [1.1, 1.02, 0.0, math.nan])
def test_another_model_is_not_bound(contml, refused, old, monkeypatch, brightness):
    before = Index.open("i").model
    monkeypatch.setattr(command, "_load", lambda run, trust: Colours(brightness=brightness))
    line = refused("index", "run", "--out", "i", "--bind")
    if math.isnan(brightness):
        assert "i: none of its images can be read, so no model can be checked" in line
    else:
        assert re.search("run: not the model of i: it embeds (9|1.) of 12 images differently, such as", line)
    assert Index.open("i").model == before


def test_a_model_of_another_dimension_is_not_bound(refused, old, model):
    model.embedding_dim = 4
    assert "run: embeddings of 4 numbers; must be 3, as in i" in refused("index", "run", "--out", "i", "--bind")


def test_it_is_bound_by_the_images_that_are_left(contml, refused, old, model, photos):
    paths = sorted(photos.rglob("*.png"))
    for path in paths[1:]:
        path.unlink()
    paths[1].write_text("<html>")
    out = contml("index", "run", "--out", "i", "--bind")[1]
    assert out == "i: its model is run; 1 image embedded again, largest difference 0\n"
    Image.new("RGB", (8, 8), (0, 0, 9)).save(paths[0])  # changed since
    assert "differently, such as 00.png; use the model that the index was made with; an image that changed" in refused(
        "index", "run", "--out", "i", "--bind"
    )
    paths[0].unlink()
    assert "i: none of its images can be read" in refused("index", "run", "--out", "i", "--bind")


def test_of_a_large_index_a_sample_is_embedded(contml, old, model, monkeypatch):
    monkeypatch.setattr(index_images, "_CHECKED", 5)
    model.embedded = 0
    assert "5 images embedded again" in contml("index", "run", "--out", "i", "--bind")[1]
    assert model.embedded == 5


@pytest.mark.parametrize("kind", ["probability", None])
def test_models_of_classes_and_without_calibration(contml, photos, model, monkeypatch, kind):
    contml("index", "run", "photos", "--out", "i")
    monkeypatch.setattr(command, "_load", lambda run, trust: Colours(kind=kind))
    out = contml("search", "i", "photos/04.png", "-k", "2")[1].splitlines()
    data = json.loads(contml("search", "i", "photos/04.png", "-k", "2", "--json")[1])[0]["found"][1]
    if kind is None:
        assert re.split(r"  +", out[1].strip()) == ["rank", "id", "distance", "note"]
        assert re.split(r"  +", out[2].strip()) == ["1", "04.png", "0", "the same image"]
        assert set(data) == {"rank", "id", "distance", "metadata"}
    else:
        assert re.split(r"  +", out[1].strip()) == ["rank", "id", "distance", "same class"]
        assert out[3].endswith("95 %")
        assert data["same_class"] == pytest.approx(np.exp(-14 / 255))


# -- the unit of the labels, the value of the query, and its own image ------------------------------------------------

PRICES = "image,price_usd,built\n04.png,100,2001-01-01\nsub/03.png,200,2002-01-01\nsub/05.png,800,2004-01-01\n"


def searched(contml, monkeypatch, photos, measure, *options, table=PRICES):
    """The lines that a search with 04.png prints; its nearest are itself, 03, 05."""
    (photos / "table.csv").write_text(table)
    monkeypatch.setattr(command, "_load", lambda run, trust: Colours(measure=measure))
    contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")
    status, out, err = contml("search", "i", "photos/04.png", "-k", "3", *options)
    assert (status, err) == (0, "")
    return out


def test_a_search_is_in_the_unit_of_the_labels(contml, monkeypatch, photos, tmp_path):
    measure = Measure("", 0.1, "ratio", "price_usd")
    out = searched(contml, monkeypatch, photos, measure, "--gallery", "found.html").splitlines()
    assert re.split(r"  +", out[3].strip())[3] == "x 1.73 (1.64 to 1.83)"  # exp(0.1 * 5.49)
    assert out[-2] == (
        "label distance: the factor between the item and the query in price_usd (of several items: the geometric mean)"
    )
    page = (tmp_path / "found.html").read_text()
    assert "label distance (90 % interval) x 1.73 (1.64 to 1.83)" in page
    assert "shades of colour" not in page + "".join(out)
    (data,) = json.loads(searched(contml, monkeypatch, photos, measure, "--json"))
    assert data["measure"]["kind"] == "ratio"
    assert data["found"][1]["text"] == "x 1.73 (1.64 to 1.83)"
    assert data["found"][1]["label_distance"] == pytest.approx(1400 / 255)


def test_the_same_image_is_a_copy_but_not_a_namesake(contml, model, photos, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    shutil.copy(photos / "04.png", tmp_path / "copy.png")
    Image.new("RGB", (20, 10), (31, 0, 0)).save(tmp_path / "04.png")  # another image of the name of an item

    def marked(query):
        (found,) = json.loads(contml("search", "i", query, "-k", "3", "--json")[1])
        return [hit["id"] for hit in found["found"] if "same_image" in hit]

    assert marked("copy.png") == ["04.png"]
    assert marked("04.png") == []
    (photos / "04.png").unlink()  # the index still has it
    assert marked("copy.png") == marked("04.png") == []
    shutil.copy("copy.png", "04.png")
    assert marked("04.png") == ["04.png"]


# -- galleries ---------------------------------------------------------------------------------------------------------


def test_a_gallery_shows_queries_and_results(contml, model, photos, tmp_path):
    (photos / "table.csv").write_text("image,note\n04.png,<b>&\n")
    contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")
    (photos / "sub/05.png").unlink()
    out = contml("search", "i", "photos/04.png", "photos/00.png", "-k", "3", "--gallery", "found.html")[1]
    assert out.splitlines()[-1] == "found.html"
    page = (tmp_path / "found.html").read_text()
    pictures = [Image.open(io.BytesIO(base64.b64decode(part))) for part in re.findall(r"base64,([^\"]+)", page)]
    assert len(pictures) == 8
    assert pictures[0].width == 220 > pictures[0].height  # its own shape: a page in dark colours has no light rim
    assert pictures[0].getpixel((110, 60))[0] == pytest.approx(32, abs=4)
    assert "1. 04.png" in page
    assert "label distance (90 % interval) 5.49 (4.94 to 6.04)" in page
    assert page.count("the same image") == 2
    assert "note: &lt;b&gt;&amp;" in page
    assert "src=" not in page.replace('src="data:', "")
    contml("search", "i", "photos/04.png", "photos/00.png", "-k", "3", "--gallery", "found.png", "--json")
    picture = Image.open(tmp_path / "found.png").convert("RGB")
    assert picture.getpixel((16 + 110, 88 + 110))[0] == pytest.approx(32, abs=4)


@pytest.mark.parametrize("suffix", ["html", "png"])
def test_a_gallery_of_hostile_names(tmp_path, suffix):
    name = "<script>\n\udcff" + "long " * 300
    line = SearchHit(1, name, 0.5, {"label distance": "1"}, {}, {"<i>": "\x00"})
    labels = VectorLabels([1.0]).with_texts([name])
    value = Answer(name, name, name, None, None, 1.0, name, 0.9, 3, None, True, labels)
    line = line._replace(answers=[value])
    queries = (NamedImage(name, tmp_path / "none"), TypedLabel(name, labels, 1, ""))
    results = [QueryResult(query, [line], [value]) for query in queries]
    write_gallery(tmp_path / f"a.{suffix}", name, name, results)
    write_gallery(tmp_path / f"b.{suffix}", "", "", [])
    content = (tmp_path / f"a.{suffix}").read_bytes()
    if suffix == "html":
        assert b"<script>" not in content
        assert b"<i>" not in content
    else:
        assert Image.open(io.BytesIO(content)).width == 600


def test_a_gallery_has_the_labels_first_and_folds_other_metadata(tmp_path):
    labels = VectorLabels([12_000.0], unit="USD")
    labels.title = "price"
    predicted = Answer("price", "11,500 USD", 11_500.0, None, None, None, "", None, 3, None, True, labels)
    hit = SearchHit(1, "a.jpg", 0.5, {}, {}, {"room": "kitchen", "price": 12_500, "zip": "<b>"}, answers=[predicted])
    queries = (TypedLabel("price 12,000 USD", labels, 4, "1 USD"), NamedImage("q.jpg", tmp_path / "none"))
    write_gallery(tmp_path / "a.html", "t", "n", [QueryResult(query, [hit], []) for query in queries])
    by_label, by_image = re.findall(r"<figcaption>(.*?)</figcaption>", (tmp_path / "a.html").read_text())
    first, folded = by_label.split("<details>")
    assert re.findall(r">([^<>]+)<", first) == [
        "price: 12,500 USD", "price (predicted): 11,500 USD", "1. a.jpg", "distance 0.500"
    ]  # fmt: skip
    assert re.findall(r"<b>(.*?)</b>", first) == ["price: 12,500 USD"]
    assert re.findall(r">([^<>]+)<", folded) == ["2 other values", "room: kitchen", "zip: &lt;b&gt;"]
    first, folded = by_image.split("<details>")
    assert re.findall(r">([^<>]+)<", first) == [
        "1. a.jpg", "price: 12,500 USD", "distance 0.500", "price (predicted): 11,500 USD"
    ]  # fmt: skip
    assert re.findall(r">([^<>]+)<", folded) == ["2 other values", "room: kitchen", "zip: &lt;b&gt;"]


def test_every_option_is_on_the_page():
    page = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    for registered in app.registered_commands:
        if registered.callback in (command.index, command.search):
            names = registered.callback.__annotations__
            assert f"contml {registered.callback.__name__}" in page
            for name in ("out", "kind", "metadata", "remove", "compact", "bind", "k", "gallery", "label", "run"):
                if name in names and name != "run":
                    assert f"`{'-' if name == 'k' else '--'}{name}" in page, name
    assert "`--run" in page


def test_metadata_of_every_format(photos):
    import pyarrow
    from pyarrow import parquet

    images = [NamedImage(f"{n:02d}.png", photos / f"{n:02d}.png") for n in (0, 4)]
    rows = [{"image": "00.png", "place": "NA", "year": "2024"}, {"image": "04.png", "place": "hall; left", "year": ""}]
    expected = {row["image"]: {"place": row["place"], "year": row["year"]} for row in rows}
    for name, mark in (("a.csv", ","), ("b.csv", ";"), ("c.tsv", "\t"), ("d.txt", "|")):
        lines = [mark.join(f'"{cell}"' for cell in cells) for cells in (rows[0], *(row.values() for row in rows))]
        (photos / name).write_text("\n".join(lines))
        assert read_metadata(photos / name, images) == expected, name
    (photos / "e.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (photos / "f.json").write_text(json.dumps(rows))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    parquet.write_table(pyarrow.table(columns), photos / "g.parquet")
    for name in ("e.jsonl", "f.json", "g.parquet"):
        assert read_metadata(photos / name, images) == expected, name
    table = photos / "a.csv"
    assert read_metadata(table, images, options=TableOptions())["00.png"] == {"place": "", "year": "2024"}
    with refuses("a.csv", "more than 1 rows"):
        read_metadata(table, images, options=TableOptions(max_rows=1))
