"""Every config that comes with contml: it parses, gives its command and cost, and runs a step on a small data set."""

from __future__ import annotations

import re

import pytest
from support.caption_sets import write_coco, write_csv, write_flickr
from support.class_layouts import write_cars_old, write_class_table, write_cub, write_folders, write_inshop, write_sop
from support.layouts import write_label_maps, write_lsun
from support.paths import ROOT
from support.pose_sets import pose_files, write_keypoints, write_lsp, write_mpii
from support.tables import write_items

from contml.config import difference, dump, read, resolved, validate
from contml.experiment import check, config_names, config_text, load, schema, task_table

#: Overrides that make the data set of each task small, and its batches.
SMALL = {
    "pose/synthetic": ["task.train=40", "task.test=20", "task.queries=4"],
    "pose/files": ["task.root=own", "task.split=null"],
    "pose/mpii": ["task.root=own", "task.queries=4", "task.side=40"],
    "pose/coco": ["task.root=own", "task.min_size=20", "task.side=40"],
    "pose/lsp": ["task.root=own", "task.min_joints=9", "task.side=40"],
    "classes/synthetic": ["task.classes=8", "task.per_class=5", "task.test_classes=4", "task.test_per_class=5"],
    "classes/cub": ["task.root=own", "task.missing=drop"],
    "classes/cars": ["task.root=own", "task.missing=drop"],
    "classes/sop": ["task.root=own", "task.missing=drop"],
    "classes/inshop": ["task.root=own", "task.missing=drop"],
    "classes/folder": ["task.root=own"],
    "classes/csv": ["task.root=own", "task.image=file", "task.label=class_name"],
    "layout/synthetic": ["task.train=40", "task.test=20", "task.queries=4", "task.size=32"],
    "layout/lsun": ["task.root=own", "task.missing=drop"],
    "layout/files": ["task.root=own"],
    "captions/synthetic": ["task.train=40", "task.test=20", "task.queries=4", "task.size=32"],
    "captions/coco": ["task.root=own", "task.queries=4"],
    "captions/flickr": [
        "task.root=own",
    ],
    "captions/files": ["task.root=own"],
    "scalar/synthetic": ["task.train=40", "task.test=20", "task.queries=4", "task.size=32"],
    "table/file": ["task.data=own/items.csv"],
}
TRANSFORMS = {
    "crop": ["transform.scale_jitter=2", "transform.shift=1"],
    "torchvision:RandomCrop": ["transform.size=32"],
    "torchvision:RandomResizedCrop": ["transform.size=32"],
}
BATCHES = {
    "triplets": ["sampler.triplets=4"],
    "dense": ["sampler.batch_size=12", "sampler.anchors_per_batch=2"],
    "classes": ["sampler.classes=4", "sampler.instances=3"],
    "uniform": ["sampler.batch_size=12"],
}
#: Further overrides of one config.
OWN = {
    # With so few images the miner might keep no pair.
    "classes/cars196_small": ["loss.epsilon=2"],
    "classes/omniglot_small": ["loss.epsilon=2"],
    # Of so few images the batch might have no positive pair.
    "pose/synthetic_nearest": ["binarize.k=12"],
    "pose/synthetic_threshold": ["binarize.threshold=1000"],
    "captions/synthetic_threshold": ["binarize.threshold=1.0"],  # word vectors from so few captions are poor
    "captions/coco_threshold": ["binarize.threshold=0.6"],
    "pose/mpii_threshold": ["binarize.threshold=500.0"],  # squared pixels of a smaller crop
    # Without normalization no triplet of the small data set violates the margin.
    **{f"classes/hdml_triplet_{name}": ["model.normalize=true"] for name in ("cub", "cars", "sop")},
    "table/default": ["task.labels={reading: number}"],
    "table/classes": ["task.labels={colour: class}"],
}


#: Writers of the data sets that are read from files.
FILES = {
    "pose/files": lambda folder: pose_files(folder, items=50),
    "pose/mpii": lambda folder: write_mpii(folder, images=40, frames_a_video=3),
    "pose/coco": lambda folder: write_keypoints(folder, train=20),
    "pose/lsp": write_lsp,
    "classes/cub": write_cub,
    "classes/cars": write_cars_old,
    "classes/sop": write_sop,
    "classes/inshop": write_inshop,
    "classes/folder": write_folders,
    "classes/csv": lambda folder: write_class_table(folder, kind="kind {0} 20{0:02d}"),
    "layout/lsun": lambda folder: write_lsun(folder, 40, 20),
    "layout/files": write_label_maps,
    "captions/coco": write_coco,
    "captions/flickr": write_flickr,
    "captions/files": write_csv,
    "table/file": write_items,
}


@pytest.mark.parametrize("name", config_names())
def test_config_takes_a_step(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = load(name)
    parts = experiment.config.parts
    task = parts["task"].name
    if task in FILES:
        FILES[task](tmp_path / "own")
    changes = [*SMALL[task], *OWN.get(name, []), *BATCHES[parts["sampler"].name]]
    changes += ["model.backbone=small_cnn", "model.weights=none"]
    if "pooling" in parts["model"].options:
        changes += ["model.pooling=average"]
    changes += ["images.resize=36", "images.crop=32", "images.workers=0", *TRANSFORMS[parts["transform"].name]]
    facts = dict(check(load(name, changes)))
    train, val = (int(facts.get(f"{name} images", "0").split()[0].strip(",")) for name in ("training", "validation"))
    total = train + (val if "drawn" in facts.get("validation images", "") else 0)
    assert total == 40 or (task == "pose/mpii" and 40 < total < 80)  # of 80, drawn by video
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
    assert difference(values, resolved(validate(read(path), schema()))) == []


def test_every_task_has_a_config():
    used = {load(name).config.parts["task"].name for name in config_names()}
    assert used == set(task_table())


def test_configs_of_the_checkout_are_those_that_are_installed():
    folder = ROOT / "configs"
    assert config_names() == sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.yaml"))
