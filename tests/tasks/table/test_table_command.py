"""Your own table on the command line: training without a config, the report, and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from support.tables import dials, write_table

from contml._support.tensors import load_tensors
from contml.app import experiment

TINY = [
    *("images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "images.workers=0"),
    *("model.dim=8", "sampler.batches=3", "training.epochs=1"),
]


@pytest.fixture(autouse=True)
def own_table(tmp_path):
    """Commands run in a folder with a table."""
    write_table(tmp_path / "items.csv", dials(tmp_path))


@pytest.mark.slow
def test_a_sum_of_labels_trains_is_evaluated_and_reported(contml, tmp_path):
    status, out, err = contml(
        *("train", "--data", "items.csv", "--label", "reading=number", "--label", "colour=class:0.5"),
        *("--label", "lat,lon=geo", "--label", "map", "--label", "text=captions", "--image", "image", *TINY),
        "task.labels.text.dim=8",
    )
    assert status == 0, err
    assert "mean label distance" in out
    for line in (
        "number x 1",
        "class x 0.5",
        "geo x 1",
        "as given",
        "48 for training, 12 for testing, all of them queries",
    ):
        assert line in err
    (folder,) = (tmp_path / "runs/table/default").iterdir()
    values = yaml.safe_load((folder / "config.yaml").read_text())
    assert {name: section["kind"] for name, section in values["task"]["labels"].items()} == {
        "reading": "number",
        "colour": "class",
        "lat,lon": "geo",
        "map": "map",
        "text": "captions",
    }
    assert values["task"]["labels"]["colour"] == {"kind": "class", "weight": 0.5}
    assert values["task"]["labels"]["text"]["dim"] == 8
    for name in ("report.html", "map.png", "tsne.png"):
        assert (folder / name).exists()
    assert np.asarray(Image.open(folder / "map.png")).std() > 20
    status, out, err = contml("evaluate", folder, "--json")
    assert status == 0, err
    assert json.loads(out)["unit"].startswith("reading / ")
    assert "0.5 x colour / " in json.loads(out)["unit"]
    (tmp_path / "items.csv").rename(tmp_path / "moved.csv")
    status, _, err = contml("report", folder)
    assert (status, "items.csv: no such file" in err) == (2, True)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace(str(tmp_path / "items.csv"), "moved.csv"))
    status, _, err = contml("report", folder)
    assert status == 0, err
    status, _, err = contml("train", "--resume", folder)  # where the table is may change
    assert status == 0, err


def test_names_of_columns_in_any_alphabet(contml, tmp_path):
    rows = [{'Größe, m: "x" 😀': row["reading"], "image": row["image"]} for row in dials(tmp_path)]
    write_table(tmp_path / "items.csv", rows)
    status, out, err = contml("check", "--data", "items.csv", "--label", 'Größe, m: "x" 😀=number:2', *TINY)
    assert status == 0, err
    assert "Größe" in out


@pytest.mark.slow
def test_one_class_label_trains_by_the_config_of_classes(contml, tmp_path):
    status, out, err = contml("train", "--data", "items.csv", "--label", "colour", "task.group=maker", *TINY)
    assert status == 0, err
    assert "Recall" in out
    assert "MAP@R" in out
    (folder,) = (tmp_path / "runs/table/classes").iterdir()
    values = yaml.safe_load((folder / "config.yaml").read_text())
    assert values["task"]["labels"] == {"colour": {"kind": "class", "weight": 1.0}}
    assert values["task"]["group"] == "maker"
    assert values["sampler"]["classes"] == 4


def test_check_shows_the_columns(contml, tmp_path):
    status, out, err = contml("check", "--data", "items.csv", "--label", "reading", *TINY)
    assert status == 0, err
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "its cells are numbers" in lines["reading"]
    assert "a standard deviation" in lines["reading"]
    assert "could be geo" in lines["lat,lon"]
    assert "training" in lines
    assert not (tmp_path / "runs").exists()
    status, out, _ = contml("check", "--data", "items.csv", "--label", "reading", "--json", *TINY)
    facts = json.loads(out)
    train, val = (int(facts[f"{name} images"].split(",")[0]) for name in ("training", "validation"))
    assert train + val == 48
    assert {line["column"]: line["used as"] for line in facts["columns"]}["reading"] == "number"


def test_your_own_config_and_sampler(contml, tmp_path):
    status, _, err = contml("check", "table/classes", "task.data=items.csv", "task.labels={colour: class}",
                            "sampler.classes=4", *TINY)  # fmt: skip
    assert status == 0, err
    (tmp_path / "mine.yaml").write_text(
        experiment.config_text("table/default").replace("data: items.csv", "data: x.csv\n  labels: {reading: number:2}")
    )
    status, _, err = contml("check", "mine.yaml", "--data", "items.csv", "sampler.batch_size=20",
                            "sampler.anchors_per_batch=2", *TINY)  # fmt: skip
    assert status == 0, err
    status, out, err = contml("check", "--data", "items.csv", "--label", "reading", "sampler=uniform",
                              "sampler.batch_size=20", *TINY)  # fmt: skip
    assert status == 0, err
    assert "20 images" in out


@pytest.mark.slow
def test_the_saved_config_trains_the_same_run(contml, tmp_path):
    command = ["--data", "items.csv", "--label", "reading=number:log", "--label", "colour=class:0.5", *TINY]
    assert contml("check", *command, "--save-config", "mine.yaml")[0] == 0
    assert contml("train", *command, "--name", "a")[0] == 0
    assert contml("train", "mine.yaml", "--name", "a")[0] == 0
    first, second = tmp_path / "runs/table/default/a", tmp_path / "runs/mine/a"
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in (first, second)]
    assert configs[0] == configs[1] == yaml.safe_load((tmp_path / "mine.yaml").read_text())
    weights = [load_tensors(run / "checkpoints/last.safetensors")[0] for run in (first, second)]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


def test_labels_as_sections_of_a_config(contml, refused, tmp_path):
    config = experiment.config_text("table/default").replace("data: items.csv", "data: items.csv\n  labels:\n    LABEL")
    for label, expected in {
        "map: {kind: map, side: 16}": "compared at 16 x 16 pixels",
        "size: {kind: ordinal, levels: [small, medium, large]}": "3 levels: small < medium < large",
        "reading: {kind: number, scale: log, weight: 2}": "geometric mean",
        "reading: number:log:2": "geometric mean",
    }.items():
        (tmp_path / "mine.yaml").write_text(config.replace("LABEL", label))
        status, out, err = contml("check", "mine.yaml", "task.image=image", "sampler.batch_size=20",
                                  "sampler.anchors_per_batch=2", *TINY)  # fmt: skip
        assert status == 0, err
        assert expected in out
    line = config.splitlines().index("    LABEL") + 1
    for label, subject in {
        "map: {kind: map, sied: 16}": "task.labels.map.sied: unknown key; did you mean 'side'?",
        "map: {kind: mpa}": "task.labels.map.kind: unknown kind 'mpa'; ",
        "map: {kind: class, side: 16}": "task.labels.map.side: the kind class has no such option; ",
        "map: {kind: map, side: 0}": "task.labels.map.side: 0; ",
        "map: class": "task.labels.map: each of the 48 training rows has a class of its own; ",
    }.items():
        (tmp_path / "mine.yaml").write_text(config.replace("LABEL", label))
        assert f"mine.yaml:{line}: {subject}" in refused("check", "mine.yaml", "task.image=image", *TINY)
