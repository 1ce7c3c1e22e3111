"""Every config that comes with contml: it parses, gives its command and cost, and runs a step on a small data set."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from support.choices import mostly_slow
from support.commands import (
    commands,
    experiment_of,
    parsed,
    protocol_rows,
    short,
    use_counts_of_miniatures,
    write_files,
)
from support.paths import ROOT
from support.tables import write_items, write_judgments

from contml.app.experiment import check, config_names, config_text, load, schema, task_table
from contml.config import difference, dump, fields_of, named_parts, options, read, resolved, validate

#: Further overrides of one config.
OWN = {
    # With so few images the miner might keep no pair.
    "classes/cars196_small": ["loss.epsilon=2"],
    "classes/omniglot_small": ["loss.epsilon=2"],
    # Of so few images the batch might have no positive pair.
    "pose/synthetic_nearest": ["binarize.k=12"],
    "pose/synthetic_threshold": ["binarize.threshold=32"],
    "captions/synthetic_threshold": ["binarize.threshold=1.0"],  # word vectors from so few captions are poor
    "pose/mpii_threshold": ["binarize.threshold=22.0"],  # pixels of a smaller crop
    # Without normalization no triplet of the small data set violates the margin.
    "classes/hdml_triplet": ["model.normalize=true"],
    "table/default": ["task.labels={reading: number}"],
    "table/classes": ["task.labels={colour: class}"],
}


def typed(name):
    """The words of the command in the head of a config."""
    return next(words for words, _ in commands(f"configs/{name}.yaml") if words[1:3] == ["train", name])


#: The words of each config, and of the rows of docs/classes.md that begin with one and change it.
TYPED = [typed(name) for name in config_names()]
TYPED += [["contml", "train", *row] for row in protocol_rows() if len(row) > 2]


STEPS = mostly_slow([(words,) for words in TYPED], 6)


@pytest.mark.parametrize("words", STEPS, ids=lambda words: " ".join(words[2:])[:90])
def test_config_takes_a_step(words, tmp_path, monkeypatch):
    """As its head or the page says: on a miniature of the official files in FOLDER."""
    monkeypatch.chdir(tmp_path)
    use_counts_of_miniatures(monkeypatch)
    name = words[2]
    if name.startswith("table/"):
        write_items(tmp_path)
        write_judgments(tmp_path)
    words = [word for word in words if word != "backbone=RUN"]
    params = parsed(words)[1]
    experiment = experiment_of(params)
    write_files(experiment, weights=False)
    facts = dict(check(experiment_of(params, [*short(experiment, words[:3], small=True), *OWN.get(name, [])])))
    train, val = (int(facts.get(f"{part} images", "0").split()[0].strip(",")) for part in ("training", "validation"))
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


def path_options(constructor):
    """The options of a part that are paths, and those of the parts that it holds by name."""
    for option in options(constructor):
        named, fields = named_parts(option), fields_of(option)
        for name, _, _ in path_options(fields) if fields is not None else ():
            yield option.name, f"={{{name}: here/f.npz}}", (name,)
        if Path in (option.type, *get_args(option.type)):
            yield option.name, "=here/f.npz", ()
        for kind, part in named.parts.items() if named is not None else ():
            for name, _, _ in path_options(part):
                yield option.name, f"={{a: {{kind: {kind}, {name}: here/f.npz}}}}", ("a", name)


def test_paths_are_absolute_in_a_run(tmp_path, monkeypatch):
    """Of every part that has any: a run is resumed from another folder."""
    monkeypatch.chdir(tmp_path)
    found = set()
    for section, entry in schema().items():
        table = getattr(entry, "parts", {})
        for name, constructor in (table if isinstance(table, Mapping) else {"": table}).items():
            for option, value, inner in path_options(constructor):
                choice = [f"{section}={name}"] if name else []
                if section == "task" and name == "table/file":
                    choice.append("task.data=items.csv")
                text = load("table/default", [*choice, f"{section}.{option}{value}"]).values[section][option]
                for key in inner:
                    text = text[key]
                assert text == str(tmp_path / "here/f.npz"), (section, name, option)
                found.add(".".join((section, option, *inner)))
    assert {"images.features", "images.cache", "sampler.cache", "task.judgments.items", "task.labels.a.model"} <= found


def test_a_teacher_in_short_and_word_vectors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = load("table/default", ["task.labels={id: 'teacher:runs/t.npz:0.5'}"]).values
    assert values["task"]["labels"]["id"] == {"kind": "teacher", "weight": 0.5, "model": str(tmp_path / "runs/t.npz")}

    def vectors():
        return load("captions/flickr8k", ["task.root=data", "task.vectors=v.bin"]).values["task"]["vectors"]

    assert vectors() == "v.bin"  # no such file
    (tmp_path / "v.bin").touch()
    assert vectors() == str(tmp_path / "v.bin")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "v.bin").touch()
    assert vectors() == "v.bin"  # that of the data set


def test_every_task_has_a_config():
    used = {load(name).config.parts["task"].name for name in config_names()}
    used |= {load(row[0], row[1:]).config.parts["task"].name for row in protocol_rows()}
    assert used == set(task_table())


def test_configs_of_the_checkout_are_those_that_are_installed():
    folder = ROOT / "configs"
    assert config_names() == sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.yaml"))
