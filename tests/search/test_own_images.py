"""From a folder of photographs with a CSV to a search: check, train, index, search, embed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import contml as library
from contml.runs import find_runs


def photographs(folder, count=60):
    random = np.random.default_rng(0)
    photos = folder / "photos"
    photos.mkdir()
    lines = ["image,brightness"]
    for number in range(count):
        value = int(random.integers(20, 236))
        pixels = np.clip(random.normal(value, 8, (40, 50, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(photos / f"{number:02d}.png")
        lines.append(f"photos/{number:02d}.png,{value}")
    (folder / "items.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_five_commands(contml, tmp_path):
    photographs(tmp_path)

    def output(*arguments):
        status, out, err = contml(*arguments)
        assert status == 0, err
        return out

    data = ["--data", "items.csv", "--label", "brightness"]
    assert "brightness" in output("check", *data)
    small = ["images.resize=32", "images.crop=32", "training.epochs=4", "sampler.batches=8", "model.dim=8"]
    assert "report:" in output("train", *data, *small)
    (run,) = find_runs(tmp_path / "runs")
    assert "60 images added, 60 in all" in output("index", run, "photos", "--out", "photos.index")
    printed = output("search", "photos.index", "photos/07.png", "-k", "5", "--gallery", "found.html")
    assert "07.png" in printed
    assert (tmp_path / "found.html").exists()
    (found,) = json.loads(output("search", "photos.index", "photos/07.png", "-k", "5", "--json"))
    values = dict(line.split(",") for line in (tmp_path / "items.csv").read_text().splitlines()[1:])
    assert found["found"][0]["id"] == "07.png"
    assert found["found"][0]["distance"] < 1e-3  # batches of other sizes round differently
    nearest = [abs(float(values[f"photos/{each['id']}"]) - float(values["photos/07.png"])) for each in found["found"]]
    assert np.mean(nearest) < 40  # of random photographs: 72
    output("embed", run, "photos", "--out", "photos.npz")
    with np.load("photos.npz") as embedded:
        ids, distances, _ = library.Index.open("photos.index").search(embedded["features"][7:8], k=3)
        assert ids[0].tolist() == [each["id"] for each in found["found"][:3]]
        assert np.allclose(distances[0], [each["distance"] for each in found["found"][:3]], atol=1e-3)
    assert "1 images removed, 59 left" in output("index", "--out", "photos.index", "--remove", "07.png")
    (found,) = json.loads(output("search", "photos.index", "photos/07.png", "-k", "59", "--json"))
    assert "07.png" not in [each["id"] for each in found["found"]]
