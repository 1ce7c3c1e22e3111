"""Every config that comes with contml: it parses, gives its command and cost, and runs a step on a small data set."""

from __future__ import annotations

import re

import pytest
from support.commands import commands, experiment_of, parsed, short, use_counts_of_miniatures, write_files
from support.paths import ROOT
from support.tables import write_items, write_judgments

from contml.config import difference, dump, read, resolved, validate
from contml.experiment import check, config_names, config_text, load, schema, task_table

#: Further overrides of one config.
OWN = {
    # With so few images the miner might keep no pair.
    "classes/cars196_small": ["loss.epsilon=2"],
    "classes/omniglot_small": ["loss.epsilon=2"],
    # Of so few images the batch might have no positive pair.
    "pose/synthetic_nearest": ["binarize.k=12"],
    "pose/synthetic_threshold": ["binarize.threshold=1000"],
    "captions/synthetic_threshold": ["binarize.threshold=1.0"],  # word vectors from so few captions are poor
    "pose/mpii_threshold": ["binarize.threshold=500.0"],  # squared pixels of a smaller crop
    # Without normalization no triplet of the small data set violates the margin.
    **{f"classes/hdml_triplet_{name}": ["model.normalize=true"] for name in ("cub", "cars", "sop")},
    "table/default": ["task.labels={reading: number}"],
    "table/classes": ["task.labels={colour: class}"],
}


@pytest.mark.parametrize("name", config_names())
def test_config_takes_a_step(name, tmp_path, monkeypatch):
    """As its head says: on a miniature of the official files in FOLDER."""
    monkeypatch.chdir(tmp_path)
    use_counts_of_miniatures(monkeypatch)
    monkeypatch.setattr("contml.experiment.checking._STEPS", 1)
    if name.startswith("table/"):
        write_items(tmp_path)
        write_judgments(tmp_path)
    typed = next(words for words, _ in commands(f"configs/{name}.yaml") if words[1:3] == ["train", name])
    words = [word for word in typed if word != "backbone=RUN"]
    params = parsed(words)[1]
    experiment = experiment_of(params)
    write_files(experiment, weights=False)
    changes = [*short(experiment, words, small=True), *OWN.get(name, [])]
    facts = dict(check(experiment_of(params, changes)))
    train, val = (int(facts.get(f"{name} images", "0").split()[0].strip(",")) for name in ("training", "validation"))
    total = train + (val if "drawn" in facts.get("validation images", "") else 0)
    assert total == 40 or (experiment.config.parts["task"].name == "pose/mpii" and 40 < total < 80)  # of 80, by video
    assert float(facts["loss of a batch"]) != 0  # that of similarities may be below 0


@pytest.mark.parametrize("name", config_names())
def test_configs_of_published_protocols_train_on_everything_and_keep_the_last_weights(name):
    text, parts = config_text(name), load(name).config.parts
    protocol = "published" in parts or re.search("(CVPR|ECCV) 20|Instance Cross Entropy|HDML", text, re.IGNORECASE)
    drawn = parts["task"].name.endswith("/synthetic")
    assert parts["training"].options["select"] == ("none" if protocol and not drawn else "val")


@pytest.mark.parametrize("name", config_names())
def test_config_gives_its_command_cost_and_expectation(name):
    head = [line for line in config_text(name).splitlines() if line.startswith("#")]
    assert any(f"contml train {name}" in line for line in head)
    (cost,) = (line for line in head if line.startswith("# Cost: "))
    times = r"second|minute|hour|half|GPU|time not measured|(that of|as) \w+/\w+"
    assert re.search(times, cost + head[head.index(cost) + 1])
    assert any(line.startswith("# Expect: ") for line in head)


@pytest.mark.parametrize("name", config_names())
def test_resolved_config_reads_back_the_same(name, tmp_path):
    values = load(name).values
    path = tmp_path / "config.yaml"
    path.write_text(dump(values))
    again = resolved(validate(read(path), schema()))
    assert difference(values, again, again) == []


def test_every_task_has_a_config():
    used = {load(name).config.parts["task"].name for name in config_names()}
    assert used == set(task_table())


def test_configs_of_the_checkout_are_those_that_are_installed():
    folder = ROOT / "configs"
    assert config_names() == sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.yaml"))
