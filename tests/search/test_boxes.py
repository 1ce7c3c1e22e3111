"""Boxes in images, in `index`, `search`, `predict` and `embed`: each crop is an image of its own."""

import json

import numpy as np
import pytest
from PIL import Image

from contml.data.features import read_features
from contml.data.sources import BoxCrop
from contml.search import Index, load

BOXES = [(0, 0, 20, 20), (20, 0, 20, 20), (40, 10, 25, 25)]  # the last one is cut at the edge


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random, rows = np.random.default_rng(0), ["image,x,y,w,h,price"]
    for number in range(4):
        Image.fromarray(random.integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(f"{number}.png")
        rows += [f"{number}.png,{x},{y},{w},{h},{10 * number + n}" for n, (x, y, w, h) in enumerate(BOXES)]
    (tmp_path / "items.csv").write_text("\n".join(rows))
    return "@items.csv:image"


def test_each_box_is_an_item(trained, table, contml, tmp_path):
    options = (table, "--box", "x,y,w,h")
    contml("index", trained.run, *options, "--metadata", "items.csv", "--out", "i")
    index, model = Index.open("i"), load(trained.run)
    crops = [BoxCrop(tmp_path / f"{n}.png", (x, y, x + w, y + h)) for n in range(4) for x, y, w, h in BOXES]
    names = [f"{n}.png#{place}" for n in range(4) for place in (1, 2, 3)]
    np.testing.assert_allclose(index.embeddings(names), model.embed(crops), atol=1e-5)
    assert [entry["price"] for entry in index.metadata(names)] == [
        10 * n + place for n in range(4) for place in range(3)
    ]
    found = json.loads(
        contml("search", "i", *options, "-k", 2, "--by", "embedding", "--gallery", "g.html", "--json")[1]
    )
    assert [each["query"] for each in found] == names
    for each in found:
        same = [hit["id"] for hit in each["found"] if hit.get("same_image")]
        assert same == [each["query"]]  # the other boxes of its image are other images
    contml("embed", trained.run, *options, "--out", "e.npz")
    assert [*read_features(tmp_path / "e.npz").names] == names
    predicted = json.loads(contml("predict", trained.run, *options, "--where", "price < 2", "--json")[1])
    assert [each["image"] for each in predicted["predictions"]] == names[:2]
    lines = (tmp_path / "items.csv").read_text().replace("1.png,20,0,20,20", "1.png,21,0,20,20")
    (tmp_path / "items.csv").write_text(lines)
    assert "--remove '1.png#2'; the same" in contml("index", trained.run, *options, "--out", "i")[2]


def test_a_box_outside_its_image_is_left_out_alone(trained, table, contml, tmp_path):
    (tmp_path / "items.csv").write_text((tmp_path / "items.csv").read_text().replace("2.png,20,0", "2.png,80,0"))
    status, out, _ = contml("index", trained.run, table, "--box", "x,y,w,h", "--out", "i", "--json")
    assert (status, json.loads(out)["added"]) == (0, 11)
    assert "2.png#2" not in Index.open("i")
    predicted = json.loads(contml("predict", trained.run, table, "--box", "x,y,w,h", "--json")[1])
    assert len(predicted["predictions"]) == 11
