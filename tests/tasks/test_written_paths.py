"""Paths of images as Windows and macOS write them, in every file that names images."""

import json
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused, refuses

from contml.search.images import read_metadata
from contml.search.inputs import NamedImage, named_images
from contml.tasks.table.file import file as table

NAMES = [f"ä/{number}.png" for number in range(20)]
SPLIT = ["train"] * 10 + ["test"] * 10


@pytest.fixture(params=["windows", "nfd"])
def written(request, tmp_path):
    """The names of the images as the file has them."""
    (tmp_path / "images" / "ä").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        Image.new("L", (8, 8), number).save(tmp_path / "images" / name)
    return [name.replace("/", "\\") if request.param == "windows" else normalize("NFD", name) for name in NAMES]


def csv(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")


def read(kind, folder, written):
    """The images of a table whose file names them."""
    images = folder / "images"
    match kind:
        case "captions":
            texts = [f"a dog {number}" for number in range(20)]
            csv(images / "t.csv", "image,text,split", zip(written, texts, SPLIT, strict=True))
            return table(str(images / "t.csv"), {"text": {"kind": "captions", "dim": 2}})
        case "map":
            csv(images / "t.csv", "image,map,split", zip(written, written, SPLIT, strict=True))
            return table(str(images / "t.csv"), {"map": {"kind": "map", "side": 4}}, image="image")
        case "pose":
            joints = np.random.default_rng(0).uniform(1, 7, (20, 3, 2)).tolist()
            rows = zip(written, joints, SPLIT, strict=True)
            people = [{"name": name, "joints": pose, "split": part} for name, pose, part in rows]
            (images / "joints.json").write_text(json.dumps({"people": people}))
            return table(str(images / "joints.json"), {"joints": "pose"})
        case _:
            csv(images / "t.csv", "image,x,split", zip(written, range(20), SPLIT, strict=True))
            return table(str(images / "t.csv"), {"x": "number"})


KINDS = ("number", "captions", "map", "pose")


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_found_of_every_kind(tmp_path, written, kind):
    found = read(kind, tmp_path, written)
    images = [image.file for split in found.splits.values() for image in split.images]
    assert {*images} == {tmp_path / "images" / name for name in NAMES}


def test_images_of_a_column_and_metadata_are_found(tmp_path, written):
    csv(tmp_path / "images" / "t.csv", "image,x", zip(written, range(20), strict=True))
    items = named_images([f"@{tmp_path / 'images' / 't.csv'}:image"])
    assert [item.source.file for item in items] == [tmp_path / "images" / name for name in NAMES]
    images = [NamedImage(name, tmp_path / "images" / name) for name in NAMES]
    found = read_metadata(tmp_path / "images" / "t.csv", images)
    assert found == {name: {"x": number} for number, name in enumerate(NAMES)}
    csv(tmp_path / "t.csv", "image,x", zip([f".{Path('/')}images/{NAMES[0]}", NAMES[1]], "ab", strict=True))
    assert read_metadata(tmp_path / "t.csv", images) == {NAMES[0]: {"x": "a"}, NAMES[1]: {"x": "b"}}


@pytest.mark.parametrize("long", ["a/" * 3000 + "1.png", "a" * 300 + ".png"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path, long):
    (tmp_path / "images").mkdir()
    for kind in KINDS:
        with refuses(""):
            read(kind, tmp_path, [long, *NAMES[1:]])
    refused(lambda: named_images([long]), long[:50], "no such file")
    csv(tmp_path / "t.csv", "image,x", [(long, 1)])
    assert len(named_images([f"@{tmp_path / 't.csv'}:image"])) == 1  # listed as broken when it is embedded
