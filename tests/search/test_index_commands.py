"""`contml index` and `contml search`, with a model that needs no training: its embedding is the mean colour."""

import base64
import io
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from contml import InputError
from contml.contracts import PLAIN, Measure
from contml.data import Images
from contml.evaluation import embed_parts
from contml.labels import NumberLabels
from contml.search import Index, images as images_module
from contml.search.answers import Answer
from contml.search.gallery import write_gallery
from contml.search.images import add_images, read_metadata
from contml.search.inputs import NamedImage
from contml.search.results import QueryResult, SearchHit, TypedLabel


class MeanColour(torch.nn.Module):
    """Embeds an image as its mean colour, and counts images."""

    def __init__(self, brightness):
        super().__init__()
        self.brightness, self.embedded, self.interrupt = brightness, 0, None

    def forward(self, images):
        if self.interrupt is not None:
            self.interrupt()
        self.embedded += len(images)
        return images.float().mean((2, 3)) / 255 * self.brightness


class Colours:
    """Embeds an image as its mean colour. Label distances are 100 times embedding distances, within 10 %."""

    embedding_dim, unit, captioner = 3, "shades of colour", None
    has_labels, label_dim, norm = False, None, None

    def __init__(self, identity="abc", kind="interval", measure=PLAIN, brightness=1.0):
        self.measure = measure
        calibration = kind and SimpleNamespace(
            kind=kind, level=0.9, label_distance=lambda d: (100 * d, 90 * d, 110 * d), same_class=lambda d: np.exp(-d)
        )
        self.bundle = SimpleNamespace(calibration=calibration, epoch=1.0, feature_dim=None)
        self.identity, self.device, self.model = identity, "cpu", MeanColour(brightness)

    def images(self, broken):
        return Images(8, 8, broken=broken)

    def embed(self, images):
        rows = []
        for path in (image.file for image in images):
            try:
                with Image.open(path) as picture:
                    rows.append(np.asarray(picture.convert("RGB")).reshape(-1, 3).mean(0) / 255)
            except OSError as error:
                raise InputError(str(path), "cannot be decoded") from error
        return np.array(rows, np.float32).reshape(-1, 3)

    def fitted_to(self, dim):
        return self


@pytest.fixture
def model(monkeypatch):
    made = Colours()
    monkeypatch.setattr("contml.search.load", lambda run, trust: made)
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
    assert out == "i: 12 images added, 12 in all\n"
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
        "rank": 2, "id": "sub/03.png", "distance": pytest.approx(14 / 255), "label_distance": pytest.approx(1400 / 255),
        "low": pytest.approx(1260 / 255), "high": pytest.approx(1540 / 255), "text": "5.49 (4.94 to 6.04)",
        "metadata": {"file": str(photos / "sub/03.png")},
    }  # fmt: skip


def test_index_and_search_say_that_weights_are_untrained(contml, model, photos):
    note = "note: run has its initial weights: no training changed or improved them"
    assert contml("index", "run", "photos", "--out", "i")[2] == ""
    model.bundle.epoch = 0.0
    assert note in contml("index", "run", "photos", "--out", "j")[2]
    status, _, err = contml("search", "j", "photos/04.png", "--run", "run")
    assert (status, err.strip()) == (0, note)


def test_what_is_in_the_index_is_not_embedded_again(contml, model, photos):
    contml("index", "run", "photos", "--out", "i")
    assert model.model.embedded == 12
    Image.new("RGB", (8, 8), "blue").save(photos / "new.png")
    (photos / "broken.png").write_text("<html>")
    contml("index", "--out", "i", "--remove", "04.png")
    status, out, err = contml("index", "run", "photos", "--out", "i")
    assert (status, model.model.embedded) == (0, 13)
    assert out.splitlines() == [
        "i: 1 images added, 12 in all",
        "11 images were in the index already",
        "1 images were removed from the index earlier and stay out of it",
        "1 image could not be read, and left out",
    ]
    assert re.fullmatch(r"broken.png: cannot be decoded \((not an image, .*)\)\n", err)
    data = json.loads(contml("index", "run", "photos", "--out", "i", "--json")[1])
    broken = [{"image": "broken.png", "cause": err.partition("(")[2].removesuffix(")\n")}]
    assert data == {"index": "i", "added": 0, "resumed": 0, "present": 12, "removed": 1, "items": 12, "broken": broken}


def test_remove_and_compact(contml, refused, model, photos, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    (segment,) = (tmp_path / "i").glob("segment-*")
    out = contml("index", "--out", "i", "--remove", "04.png", "--remove", "sub/05.png", "--compact")[1]
    assert out == "i: 2 images removed, 10 left, compacted\n"
    assert not segment.exists()
    found = json.loads(contml("search", "i", "photos/04.png", "-k", "99", "--json")[1])
    ids = [line["id"] for line in found[0]["found"]]
    assert len(ids) == 10
    assert "04.png" not in ids
    data = json.loads(contml("index", "--out", "i", "--remove", "00.png", "--json")[1])
    assert data == {"index": "i", "removed": 1, "removed_before": 0, "items": 9}
    for _ in range(2):  # as after a kill
        assert contml("index", "--out", "i", "--remove", "04.png") == (0, "i: 1 removed already, 9 left\n", "")
    out = contml("index", "--out", "i", "--remove", "04.png", "--remove", "sub")[1]
    assert out == "i: 5 images removed, 2 removed already, 4 left\n"
    assert "'none' is not in the index" in refused("index", "--out", "i", "--remove", "none")
    out = contml("index", "run", "photos", "--out", "i")[1].splitlines()
    assert out[0] == "i: 0 images added, 4 in all"
    assert out[2] == "8 images were removed from the index earlier and stay out of it"


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
    assert Index.open("i").embeddings(["04.png"])[0].tolist() == [0, 0, 1] != old[0].tolist()
    (photos / "00.png").unlink()  # what is gone stays
    assert "1 image of the index is not among these images" in contml("index", "run", "photos", "--out", "i")[1]
    contml("index", "--out", "i", "--compact")
    Image.new("RGB", (9, 9), "red").save(photos / "04.png")
    assert "photos/04.png: changed since" in refused("index", "run", "photos", "--out", "i")


def test_a_copy_of_an_image_is_unchanged(contml, refused, model, photos):
    """A file of another time and the same content, of an image in the index and of a removed one, until it changes."""
    contml("index", "run", "photos", "--out", "i")
    contml("index", "--out", "i", "--remove", "06.png")
    for path in photos.rglob("*.png"):
        os.utime(path, ns=(1, 1))
    out = contml("index", "run", "photos", "--out", "i")[1].splitlines()
    assert out[0] == "i: 0 images added, 11 in all"
    assert out[2] == "1 images were removed from the index earlier and stay out of it"
    Image.new("RGB", (8, 8), "blue").save(photos / "06.png")
    assert contml("index", "run", "photos", "--out", "i")[1].startswith("i: 1 images added, 12 in all\n")
    (photos / "04.png").write_bytes((photos / "04.png").read_bytes()[:-1] + b"x")
    assert "photos/04.png: changed since" in refused("index", "run", "photos", "--out", "i")


TABLE = "image,place,year\n04.png,garden,2024\nsub/05.png,kitchen,\nelse.png,attic,1\n"


def test_metadata_of_a_table(contml, model, photos):
    (photos / "table.csv").write_text(TABLE)
    out = contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")[1]
    assert "photos/table.csv: no row for 10 of 12 images" in out
    out = contml("index", "run", "photos", "--out", "i", "--metadata", "photos/table.csv")[1]
    assert "12 images were in the index already; their metadata stay as they were" in out
    assert Index.open("i").metadata(["04.png", "sub/05.png", "06.png"]) == [
        {"place": "garden", "year": 2024, "file": str(photos / "04.png")},
        {"place": "kitchen", "file": str(photos / "sub/05.png")},
        {"file": str(photos / "06.png")},
    ]
    out = contml("search", "i", "photos/04.png", "-k", "2")[1].splitlines()
    assert out[1].split()[-2:] == ["place", "year"]
    (found,) = json.loads(contml("search", "i", "photos/04.png", "--where", "place = 'kitchen'", "--json")[1])
    assert [hit["id"] for hit in found["found"]] == ["sub/05.png"]
    assert out[2].split()[-2:] == ["garden", "2024"]


def test_a_row_of_another_folder_is_none_of_these_images(photos):
    (photos / "table.csv").write_text("image,place\n04.png,a\nphotos/../04.png,b\n")
    images = [NamedImage(f"{n:02d}.png", photos / f"{n:02d}.png") for n in (0, 4)]
    assert read_metadata(photos / "table.csv", images) == {"04.png": {"place": "a"}}


def test_a_name_that_is_not_unicode_is_listed(tmp_path, model):
    name = "a\udcff.png"
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    try:
        (tmp_path / "a.png").rename(tmp_path / name)
    except OSError:
        pytest.skip("the file system takes no such name")
    done = add_images(Index.create(tmp_path / "i", 3), model, [NamedImage(name, tmp_path / name)])
    assert (done.added, done.broken) == (0, {name: "its name is not valid Unicode: rename it"})


def test_the_model_of_an_index_is_that_of_its_queries(contml, refused, model, photos, monkeypatch):
    contml("index", "run", "photos", "--out", "i")
    monkeypatch.setattr("contml.search.load", lambda run, trust: Colours("def"))
    for arguments in (["search", "i", "photos/00.png", "--run", "other"], ["index", "other", "photos", "--out", "i"]):
        line = refused(*arguments)
        assert f"other: not the model of i; the index was made with {Path.cwd() / 'run'}: use it, or make a new" in line
    for arguments in (["search", "i", "photos/00.png"], ["index", "run", "photos", "--out", "i"]):
        assert "run: not the model of i; it changed since; make a new index" in refused(*arguments)
    Index.create("bare", 3).add(["a"], [[0, 0, 0]])
    assert "bare: made without a run" in refused("search", "bare", "photos/00.png")
    assert "bare: made without a model of contml" in refused("search", "bare", "photos/00.png", "--run", "run")


def test_what_is_refused(contml, refused, model, photos, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    shutil.copytree(photos, tmp_path / "others")
    assert "00.png: the name of" in refused("index", "run", "others", "--out", "i")
    with Index.open("i").lock():
        for arguments in (["run", "photos"], ["--remove", "04.png"], ["--compact"]):
            line = refused("index", *arguments, "--out", "i")
            assert line == "contml: i: another process is changing this index; wait for it, or stop it"
        assert contml("search", "i", "photos/00.png")[0] == 0
    message = "--by: labels, but i has no label vectors; make a new"
    assert message in refused("search", "i", "photos/00.png", "--by", "labels")
    (tmp_path / "bad.png").write_text("<html>")
    status, out, err = contml("index", "run", "bad.png", "--out", "j")
    assert (status, out) == (2, "")
    assert "j: none of the images could be read" in err.splitlines()[-1]
    assert not Path("j").exists()


def test_the_run_is_found_from_another_folder(contml, model, photos, monkeypatch, tmp_path):
    contml("index", "run", "photos", "--out", "i")
    loaded = []
    monkeypatch.setattr("contml.search.load", lambda run, trust: loaded.append(run) or model)
    contml("search", "i", "photos/00.png")
    contml("search", "i", "photos/00.png", "--run", "moved")
    assert loaded == [tmp_path / "run", Path("moved")]


@pytest.mark.parametrize("kind", ["probability", None])
def test_models_of_classes_and_without_calibration(contml, photos, model, monkeypatch, kind):
    contml("index", "run", "photos", "--out", "i")
    monkeypatch.setattr("contml.search.load", lambda run, trust: Colours(kind=kind))
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


def test_a_search_is_in_the_unit_of_the_labels(contml, monkeypatch, photos, tmp_path):
    model = Colours(measure=Measure("", 0.1, "ratio", "price_usd"))
    monkeypatch.setattr("contml.search.load", lambda run, trust: model)
    contml("index", "run", "photos", "--out", "i")
    out = contml("search", "i", "photos/04.png", "-k", "3", "--gallery", "found.html")[1].splitlines()
    assert re.split(r"  +", out[3].strip())[3] == "x 1.73 (1.64 to 1.83)"  # exp(0.1 * 5.49)
    assert out[-2] == (
        "label distance: the factor between the item and the query in price_usd (of several items: the geometric mean)"
    )
    page = (tmp_path / "found.html").read_text()
    assert "label distance (90 % interval) x 1.73 (1.64 to 1.83)" in page
    assert "shades of colour" not in page + "".join(out)
    (data,) = json.loads(contml("search", "i", "photos/04.png", "-k", "3", "--json")[1])
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


def test_a_gallery_of_hostile_names(tmp_path):
    name = "<script>\n\udcff" + "long " * 300
    line = SearchHit(1, name, 0.5, {"label distance": "1"}, {}, {"<i>": "\x00"})
    labels = NumberLabels([1.0]).with_texts([name])
    value = Answer(name, name, name, None, None, 1.0, name, 0.9, 3, None, True, labels)
    line = line._replace(answers=[value])
    queries = (NamedImage(name, tmp_path / "none"), TypedLabel(name, labels))
    write_gallery(tmp_path / "a.html", name, name, [QueryResult(query, [line], [value]) for query in queries])
    write_gallery(tmp_path / "b.html", "", "", [])
    content = (tmp_path / "a.html").read_bytes()
    assert b"<script>" not in content
    assert b"<i>" not in content


def test_a_gallery_has_the_labels_first_and_folds_other_metadata(tmp_path):
    labels = NumberLabels([12_000.0], unit="USD")
    labels.title = "price"
    predicted = Answer("price", "11,500 USD", 11_500.0, None, None, None, "", None, 3, None, True, labels)
    hit = SearchHit(1, "a.jpg", 0.5, {}, {}, {"room": "kitchen", "price": 12_500, "zip": "<b>"}, answers=[predicted])
    queries = (TypedLabel("price 12,000 USD", labels), NamedImage("q.jpg", tmp_path / "none"))
    write_gallery(tmp_path / "a.html", "t", "n", [QueryResult(query, [hit], []) for query in queries])
    by_label, by_image = re.findall(r"<figcaption>(.*?)</figcaption>", (tmp_path / "a.html").read_text())
    first, folded = by_label.split("<details>")
    assert re.findall(r">([^<>]+)<", first) == [
        "price: 12,500 USD", "price (predicted): 11,500 USD *", "1. a.jpg", "distance 0.500"
    ]  # fmt: skip
    assert re.findall(r"<b>(.*?)</b>", first) == ["price: 12,500 USD"]
    assert re.findall(r">([^<>]+)<", folded) == ["2 other values", "room: kitchen", "zip: &lt;b&gt;"]
    first, folded = by_image.split("<details>")
    assert re.findall(r">([^<>]+)<", first) == [
        "1. a.jpg", "price: 12,500 USD", "distance 0.500", "price (predicted): 11,500 USD *"
    ]  # fmt: skip
    assert re.findall(r">([^<>]+)<", folded) == ["2 other values", "room: kitchen", "zip: &lt;b&gt;"]


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_interrupted_command_continues(contml, model, photos, monkeypatch, stop):
    monkeypatch.setattr(embed_parts, "_PART", 4)
    monkeypatch.setattr(images_module, "ROWS", 3)
    contml("index", "run", "photos", "--out", "whole")
    calls = []

    def interrupt():
        calls.append(1)
        if len(calls) == stop + 1:
            raise KeyboardInterrupt

    model.model.interrupt = interrupt
    status, out, err = contml("index", "run", "photos", "--out", "i")
    assert (status, out, err) == (130, "", "contml: stopped; the same command continues\n")
    assert len(Index.open("i")) == 0
    out = contml("index", "run", "photos", "--out", "i")[1]
    assert len(calls) == 4
    resumed = f" ({4 * stop:,} from an earlier run)" if stop else ""
    assert out.startswith(f"i: 12 images added{resumed}, 12 in all\n")
    for file in Path("whole").glob("*.*"):
        assert (Path("i") / file.name).read_bytes() == file.read_bytes()
    assert not list(Path().glob(".i.parts*"))
