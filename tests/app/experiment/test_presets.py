"""The preset of your own data: chosen once, by the weights that are given or in the cache, and recorded in the run."""

import csv
import hashlib
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision import models

from contml.app.experiment import OwnData, check, load_table
from contml.app.experiment.loading import choose
from contml.models import weights as module
from contml.models.weights import DEFAULT_BACKBONE, architecture_of, default_file
from contml.runs import Run

QUICK = [
    *("images.workers=0", "sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2"),
    *("sampler.batches=2", "training.epochs=0", "images.resize=64", "images.crop=64", "model.dim=4"),
]


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of 40 images, in a working directory with caches of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Path("items.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "light"))
        for number in range(40):
            Image.new("L", (40, 40), 6 * number).save(f"{number}.png")
            rows.writerow((f"{number}.png", 3 * number))
    return OwnData(Path("items.csv"), ["light=number"])


@pytest.fixture(scope="module", autouse=True)
def shapes_once():
    """The networks of torchvision, with which weights are compared, are built once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_shapes", cache(module._shapes))
        yield


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random weights of the default network."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "net.pth"
    torch.save(models.get_model(DEFAULT_BACKBONE).state_dict(), path)
    return path


def cached(weights, monkeypatch):
    """The weights in torch's cache, as if they were the published ones."""
    file, _ = default_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    content = weights.read_bytes()
    renamed = file.with_name(f"net-{hashlib.sha256(content).hexdigest()[:8]}.pth")
    renamed.write_bytes(content)
    monkeypatch.setattr("contml.models.weights.default_file", lambda: (renamed, "https://example.org/net.pth"))
    return renamed


def values(own, *changes):
    return load_table(own, None, [*QUICK, *changes]).values


def test_weights_make_a_head_on_frozen_features(table, weights):
    made = load_table(table._replace(weights=weights), None, [*QUICK[:-3]])
    model, images = made.values["model"], made.values["images"]
    assert made.preset.name == "features"
    assert (model["backbone"], model["weights"], model["frozen"]) == ("mobilenet_v2", str(weights), True)
    assert (images["resize"], images["crop"], images["flip"], model["pooling"]) == (224, 224, "none", "average_2x2")
    assert values(table._replace(weights=weights), "model.pooling=average")["model"]["pooling"] == "average"
    trainer = made.build_trainer(made.build_task(), quiet=True)
    assert trainer.images.extractor is not None  # each image passes the backbone once
    fine = load_table(table._replace(weights=weights, preset="finetune"), None, QUICK).values
    assert (fine["model"]["frozen"], fine["optimizer"]["head_lr"]) == (False, 1e-3)


def test_cached_weights_are_used_if_they_are_whole(table, weights, monkeypatch):
    made = load_table(table, None, QUICK)
    assert (made.preset.name, made.values["model"]["backbone"]) == ("quick", "small_cnn")
    file, address = default_file()
    assert f"--weights {file.name} (from {address})" in made.preset.reason
    file = cached(weights, monkeypatch)
    preset = choose(None, None, None, [])
    assert preset.name == "features"
    assert 'model.weights="IMAGENET1K_V1"' in preset.changes
    file.write_bytes(file.read_bytes()[:-1])
    preset = choose(None, None, None, [])
    assert preset.name == "quick"
    assert f"{file} is damaged" in preset.reason


@pytest.mark.parametrize(("config", "override"), [
    ("table/default", ""), (None, "model.backbone=resnet18"), (None, "model={backbone: small_cnn}"),
    (None, "backbone=run"), (None, "images.features=null"), (None, "model.weights=own.pth"),
])  # fmt: skip
def test_who_names_a_network_has_chosen(table, weights, monkeypatch, config, override):
    cached(weights, monkeypatch)
    assert choose(None, None, config, [override] if override else []) == ("", (), "")
    assert choose(None, None, None, ["images.features=f.npz"]).changes == ("model.backbone=features",)
    assert choose(None, None, None, ["images.features=f.npz", "backbone=run"]).changes == ()
    assert choose("features", None, config, []).name == "features"


def test_a_network_that_is_named_takes_the_file(weights):
    preset = choose(None, weights, None, ["model.backbone=timm:vit_tiny"])
    assert "model.backbone=timm:vit_tiny" in preset.changes
    assert not any(change.startswith("model.pooling") for change in preset.changes)
    assert preset.name == "features"


def test_a_run_keeps_its_preset(contml, accepted, table, weights, monkeypatch):
    """The same command continues it, also if a file has come into the cache, or is gone."""
    report = "contml.app.experiment.run_results.RetrievalResults.report"
    monkeypatch.setattr(report, lambda *_, **__: Path("report.html"))
    command = ["train", "--data", "items.csv", "--label", "light=number", *QUICK, "--name", "a"]
    _, err = accepted(*command)
    assert "preset: quick, a small network from scratch" in err
    run = Run(Path("runs/table/default/a"))
    assert (run.preset, run.command.split()[1]) == ("quick", "train")
    cached(weights, monkeypatch)
    status, _, err = contml(*command)
    assert (status, "is finished" in err) == (0, True), err
    assert load_table(table, None, QUICK).preset.name == "features"  # of a new run


def test_check_says_which_preset(table, weights, accepted):
    out, _ = accepted("check", "--data", "items.csv", "--label", "light=number", *QUICK, "--weights", weights)
    assert f"features, a head on mobilenet_v2, frozen, with {weights}" in out


def test_a_sweep_decides_once(table, weights, monkeypatch):
    from contml.app.trials.sweep import _Source

    own = table.decided(None, QUICK)
    assert own.preset == "quick"
    cached(weights, monkeypatch)
    assert _Source(None, QUICK, own, []).load([]).values["model"]["backbone"] == "small_cnn"
    assert table.decided(None, QUICK).preset == "features"
    assert table.decided(None, ["model.backbone=resnet18"]).preset is None


# ---------------------------------------------------------------------------------------------------------------------
# which network a file is of


def saved(path, state):
    torch.save(state, path)
    return path


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("vgg11", "regnet_x_400mf")]


@pytest.mark.parametrize("name", ["densenet121", "bn_inception", *SLOW])
def test_a_network_is_found_by_its_keys(tmp_path, name):
    """Also with a prefix, inside a training script's checkpoint, and with a classifier of another length."""
    from contml.models import BACKBONES

    network = BACKBONES[name]() if name in BACKBONES else models.get_model(name)
    state = network.state_dict()
    assert architecture_of(saved(tmp_path / "a.pth", state)) == (name, 224)
    classifier = {key: value[:7] if value.shape[:1] == (1000,) else value for key, value in state.items()}
    wrapped = {"state_dict": {f"module.{key}": value for key, value in classifier.items()}}
    assert architecture_of(saved(tmp_path / "b.pth", wrapped)).backbone == name


def test_check_estimates_a_training_whose_features_are_kept(table, weights):
    """The estimate is for the images that are new, or changed."""
    experiment = load_table(table._replace(weights=weights), None, QUICK)
    facts = dict(check(experiment))
    assert facts["batch"] == "10 images of 64 x 64 pixels"
    assert facts["time"].endswith("for the features of 40 images, which are kept; then seconds per epoch")
    assert not Path("cache").exists()  # no image passes the backbone but those of some batches
    task = experiment.build_task()
    trainer = experiment.build_trainer(task)
    for split in list(task.splits.values())[1:]:
        trainer.images.prepare(split)
    left = len(task.train)
    assert f"for the features of {left} images, " in dict(check(experiment))["time"]
    trainer.images.prepare(task.train)
    assert dict(check(experiment))["time"] == "the features of all images are in the cache: seconds per epoch"
    Image.new("L", (40, 40), 77).save("3.png")
    assert "for the features of 1 images, " in dict(check(experiment))["time"]
