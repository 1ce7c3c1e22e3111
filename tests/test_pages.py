"""One run of a table of prices on all pages and in all commands: one unit, and nothing of the private folders."""

import csv
import html
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from contml._support.tensors import load_tensors
from contml.app.cli import main
from contml.evaluation import Evaluated

#: Folders that no page may show.
PRIVATE = ("anna", "bob", "My Photos")
SMALL = ["images.resize=32", "images.crop=32", "training.epochs=1", "model.dim=null", "sampler.batches=2"]


def called(*arguments):
    """Runs a command; it must succeed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["contml", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with everything that the commands wrote about a run, and the run."""
    root = tmp_path_factory.mktemp("made")
    photos, tables, work = root / "bob" / "My Photos", root / "anna" / "tables", root / "work"
    for folder in (photos / "a", photos / "b", tables, work):
        folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    rows = []
    for n in range(90):
        bright = random.random()
        pixels = np.clip(255 * bright + random.normal(0, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
        file = photos / ("a" if n % 2 else "b") / f"{n}.png"
        Image.fromarray(pixels).save(file)
        part = "train" if n < 50 else "val" if n < 70 else "test"
        rows.append([file, round(float(np.exp(11 + 2.5 * bright))), part])
    with (tables / "items.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "price_usd", "split"], *rows])
    before = Path.cwd()
    os.chdir(work)
    try:
        options = ["--label", "price_usd=number:log", "--runs", root / "anna" / "runs", "--name", "first"]
        called("train", "--data", tables / "items.csv", *options, *SMALL)
        run = root / "anna/runs/table/default/first"
        called("explore", run, "--export", "explored")
        called("export", run, "model")
        called("index", run, photos, "--out", root / "anna" / "photos.index", "--metadata", tables / "items.csv")
        called("search", root / "anna" / "photos.index", rows[0][0], "-k", 4, "--gallery", "found.html")
    finally:
        os.chdir(before)
    return work, run


def words(file):
    """The text of a page, without its pictures."""
    text = re.sub(r"data:[^\"']*", "", file.read_text(encoding="utf-8"))
    return html.unescape(re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)).replace("\N{NO-BREAK SPACE}", " ")


def pages(made):
    work, run = made
    names = ("found.html", "explored/data.js")
    return {name: words(work / name) for name in names} | {"report.html": words(run / "report.html")}


@pytest.mark.slow
def test_no_page_shows_the_private_folders(made):
    for name, text in pages(made).items():
        for folder in PRIVATE:
            assert folder not in text, (name, text[max(0, text.find(folder) - 80) :][:200])
        assert re.search(r"\b[ab]/\d+\.png", text), name  # images are not all alike


def test_no_page_says_none_or_has_a_power_of_ten(made):
    for name, text in pages(made).items():
        assert not re.search(r"\bNone\b|\bnan\b", text), name
        if not name.endswith(".js"):
            assert not re.search(r"\d(?:\.\d+)?e[-+]\d", text.partition("The resolved config")[0]), name
    dim = load_tensors(made[1] / "embeddings/test.safetensors")[0]["embeddings"].shape[1]
    assert f"small_cnn, {dim:,} dimensions" in pages(made)["report.html"]


def test_all_pages_have_the_unit_of_the_labels(made):
    evaluation = Evaluated.read(made[1] / "evaluation.json").evaluation
    score, measure = evaluation.main, evaluation.measure
    assert (measure.kind, measure.name) == ("ratio", "price_usd")
    text = pages(made)
    main, raw = measure.text(score.model), f"{score.model:.3f}"
    report = text["report.html"]
    assert f"The nearest item differs by {main} in price_usd; random: {measure.text(score.random)}; " in report
    assert f'<td class="model">{main}</td>' in report
    assert re.search(r"mean width x \d", report)
    assert len(re.findall(r"<b>x \d+\.\d\d</b>", report)) > 30
    assert re.search(r"label distance \(90 % interval\) x [\d.]+ \([\d.]+ to [\d.]+\)", text["found.html"])
    assert "the same image" in text["found.html"]
    interval = r"[\d,]+ \([\d,]+ to [\d,]+\)"
    predicted = rf"price_usd \(predicted\): {interval}"
    assert re.search(f"{predicted}; a training image, whose own label is left out", text["found.html"])
    assert len(re.findall(predicted, text["found.html"])) == 1 + 4  # of the query, and of each image found
    data = json.loads(text["explored/data.js"].removeprefix("const DATA = ").rstrip().rstrip(";"))
    assert data["before"] == "x "
    assert min(min(row) for view in data["views"] for row in view["byEmbedding"]["labels"]) >= 1
    for name, page in text.items():  # no second unit
        assert name.endswith(".js") or not re.search(rf"\b{raw}", page.partition("The resolved config")[0]), name
