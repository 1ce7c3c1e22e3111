"""Your own table on the command line: training without a config, the report, and mistakes."""

import json

import pytest
import torch
import yaml
from support.tables import dials, write_table

from contml._support.tensors import load_tensors
from contml.app import experiment

TINY = ["images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "images.workers=0"]
TINY += ["model.dim=8", "sampler.batches=3", "training.epochs=1"]


@pytest.fixture(autouse=True)
def own_table(tmp_path):
    """Commands run in a folder with a table."""
    write_table(tmp_path / "items.csv", dials(tmp_path))


def test_names_of_columns_in_any_alphabet(accepted, tmp_path):
    rows = [{'Größe, m: "x" 😀': row["reading"], "image": row["image"]} for row in dials(tmp_path)]
    write_table(tmp_path / "items.csv", rows)
    out, _ = accepted("check", "--data", "items.csv", "--label", 'Größe, m: "x" 😀=number:2', *TINY)
    assert "Größe" in out


def test_check_shows_the_columns(contml, accepted, tmp_path):
    out, _ = accepted("check", "--data", "items.csv", "--label", "reading", *TINY)
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "its cells are numbers" in lines["reading"]
    assert "a standard deviation" in lines["reading"]
    assert "could be geo" in lines["lat,lon"]
    assert "training" in lines
    assert not (tmp_path / "runs").exists()
    _, out, _ = contml("check", "--data", "items.csv", "--label", "reading", "--json", *TINY)
    facts = json.loads(out)
    train, val = (int(facts[f"{name} images"].split(",")[0]) for name in ("training", "validation"))
    assert (train + val, {line["column"]: line["used as"] for line in facts["columns"]}["reading"]) == (48, "number")


def test_your_own_config_and_sampler(accepted, tmp_path):
    accepted("check", "table/classes", "task.data=items.csv", "task.labels={colour: class}", "sampler.classes=4", *TINY)
    (tmp_path / "mine.yaml").write_text(
        experiment.config_text("table/default").replace("data: items.csv", "data: x.csv\n  labels: {reading: number:2}")
    )
    accepted("check", "mine.yaml", "--data", "items.csv", "sampler.batch_size=20", "sampler.anchors_per_batch=2", *TINY)
    out, _ = accepted(
        "check", "--data", "items.csv", "--label", "reading", "sampler=uniform", "sampler.batch_size=20", *TINY
    )
    assert "20 images" in out


@pytest.mark.slow
def test_the_saved_config_trains_the_same_run(contml, tmp_path):
    command = ["--data", "items.csv", "--label", "reading=number:log", "--label", "colour=class:0.5", *TINY]
    assert contml("check", *command, "--save-config", "mine.yaml")[0] == 0
    assert (contml("train", *command, "--name", "a")[0], contml("train", "mine.yaml", "--name", "a")[0]) == (0, 0)
    first, second = tmp_path / "runs/table/default/a", tmp_path / "runs/mine/a"
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in (first, second)]
    assert configs[0] == configs[1] == yaml.safe_load((tmp_path / "mine.yaml").read_text())
    weights = [load_tensors(run / "checkpoints/last.safetensors")[0] for run in (first, second)]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


def test_labels_as_sections_of_a_config(accepted, refused, tmp_path):
    config = experiment.config_text("table/default").replace("data: items.csv", "data: items.csv\n  labels:\n    LABEL")
    for label, expected in {
        "map: {kind: map, side: 16}": "compared at 16 x 16 pixels",
        "size: {kind: ordinal, levels: [small, medium, large]}": "3 levels: small < medium < large",
        "reading: {kind: number, scale: log, weight: 2}": "geometric mean",
        "reading: number:log:2": "geometric mean",
    }.items():
        (tmp_path / "mine.yaml").write_text(config.replace("LABEL", label))
        out, _ = accepted(
            "check", "mine.yaml", "task.image=image", "sampler.batch_size=20", "sampler.anchors_per_batch=2", *TINY
        )
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
