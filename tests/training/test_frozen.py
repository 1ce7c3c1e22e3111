"""A frozen backbone: its features are computed once, and compete with the head on the validation split."""

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.miniature import assert_equal, fitted, weights
from support.refusals import refuses
from support.retrieval import evaluate
from support.runs import assert_resumes, of_two_processes

import contml
from contml.app.experiment import OwnData, evaluate_run, load_table, read_evaluation, resume, train
from contml.data import Split
from contml.evaluation.embed import embed
from contml.evaluation.evaluated import FeatureComparison
from contml.labels import NumberLabels
from contml.models.backbones import SmallCNN
from contml.training.checkpoint import load_weights

SMALL = [
    *("model.backbone=small_cnn", "model.weights=net.pth", "model.frozen=true", "model.head_start=pca", "model.dim=4"),
    *("images.resize=32", "images.crop=32", "images.workers=0", "images.flip=none", "transform=null"),
    *("sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=3"),
    *("training.epochs=2", "training.evaluate_every=1"),
]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A table of images of a bar whose height is the label, not its background, a network, and caches of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    with (tmp_path / "items.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "height"))
        for number in range(60):
            light, height = int(random.integers(0, 120)), int(random.integers(2, 38))
            pixels = (light + random.integers(0, 60, (40, 40, 3))).astype(np.uint8)
            pixels[-height:, 10:30] = 250
            Image.fromarray(pixels).save(tmp_path / f"{number}.png")
            rows.writerow((f"{number}.png", height))
    torch.manual_seed(5)
    torch.save(SmallCNN().state_dict(), tmp_path / "net.pth")
    return tmp_path


def made(*changes):
    return load_table(OwnData(Path("items.csv"), ["height=number"]), None, [*SMALL, *changes])


def trainer_of(experiment, run=None):
    return experiment.build_trainer(experiment.build_task(), run, quiet=True)


@pytest.fixture
def passes(monkeypatch):
    """The number of images in each pass through the backbone."""
    found, forward = [], SmallCNN.forward

    def count(self, x):
        found.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(SmallCNN, "forward", count)
    return found


def test_each_image_passes_the_backbone_once(photos, passes):
    first = trainer_of(made())
    before = {name: value.clone() for name, value in first.bare_model.backbone.state_dict().items()}
    del passes[:]  # those of checks
    first.fit()
    assert_equal(before, first.bare_model.backbone.state_dict())  # also the statistics of batch norm
    watched = len(first.split) + len(first.watched["val"])
    assert sum(passes) == watched

    def passed(trainer):
        del passes[:]
        trainer.fit()
        return sum(passes)

    again = trainer_of(made("seed=0"))
    assert passed(again) == 0  # of another run too
    assert_equal(weights(first), weights(again))
    picture = next(source.file for source in first.split.images)
    Image.new("RGB", (40, 40), "red").save(picture)
    changed = trainer_of(made())
    assert passed(changed) == 1
    (file,) = (photos / "cache/contml/features").glob("*.vectors")
    content = bytearray(file.read_bytes())
    content[10 * 4096 + 5] ^= 255  # damage the features of the eleventh image
    file.write_bytes(content)
    damaged = trainer_of(made())
    assert passed(damaged) == 1
    assert_close(changed, damaged)
    assert passed(trainer_of(made("images.resize=36"))) == watched  # other pixels have other features


def test_features_give_the_training_that_images_give(photos):
    """One with features, and one whose every batch passes the backbone."""
    short, long = trainer_of(made()), trainer_of(made())
    long.images.extractor = None
    for trainer in (short, long):
        trainer.fit()
    assert_close(short, long)


def assert_close(a, b):
    """Asserts that two trainers have about the same weights: batches of other images round otherwise."""
    for name, value in weights(a).items():
        if name != "head.bias":  # which changes no distance: its gradient is rounding
            torch.testing.assert_close(value, weights(b)[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("change", ["images.flip=batch", "model.frozen=false"])
def test_images_that_change_are_not_kept(photos, change):
    trainer = trainer_of(made(*change.split()))
    assert trainer.images.extractor is None
    frozen = not change.startswith("model")
    before = {name: value.clone() for name, value in trainer.bare_model.backbone.state_dict().items()}
    trainer.fit()
    after = trainer.bare_model.backbone.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items()) == frozen
    assert not (photos / "cache").exists()


def test_a_cache_that_cannot_be_written_is_done_without(photos, capsys):
    (photos / "cache").write_text("a file")
    trainer_of(made()).fit()
    assert "features are not kept: " in capsys.readouterr().err
    with refuses("cache", allowed="", hint="name"):
        trainer_of(made("images.cache=cache")).fit()


def test_broken_images(photos):
    trainer = trainer_of(made())
    (photos / trainer.split.images[3].file).write_bytes(b"no image")
    with refuses(trainer.split.name(3), "cannot be decoded", hint="images.broken=skip"):
        trainer_of(made()).fit()
    skipping = fitted(trainer_of(made("images.broken=skip")))
    assert [*skipping.images.left_out] == [trainer.split.name(3)]


def test_a_killed_training_gives_the_same_weights(photos):
    assert_resumes(partial(trainer_of, made("training.checkpoint_minutes=0")), photos / "runs", (1, 1))


def weights_of_sgd():
    """Not of Adam, which divides by its size a gradient of rounding errors: the bias does not change distances."""
    trainer = fitted(trainer_of(made("training.precision=float32", "optimizer=sgd")))
    return weights(trainer)


@pytest.mark.slow
@pytest.mark.usefixtures("photos")
def test_two_processes_equal_one():
    expected = weights_of_sgd()
    for found in of_two_processes(weights_of_sgd):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_untrained_features_that_are_better_are_the_model(photos, no_reports, capsys, monkeypatch):
    """The run, the bundle, and a later evaluation embed images without the head, which gives all the same embedding."""
    monkeypatch.setattr("contml.models.heads.nn.init.kaiming_normal_", lambda weight, **_: torch.nn.init.zeros_(weight))
    run = train(made("model.head_start=random", "optimizer.lr=1e-12"), photos / "runs")
    printed = capsys.readouterr().err
    evaluated = read_evaluation(run)
    assert (evaluated.without_head, evaluated.epoch) == (True, 0)
    sentence = evaluated.comparison
    assert sentence.startswith("the untrained features are the model: their mean label distance@")
    assert sentence in printed
    assert evaluated.notes[0] == f"untrained: {sentence}"
    assert not any(key.startswith("head.") for key in load_weights(run.checkpoints / "best.safetensors")[0])
    model = contml.load(run.folder)
    assert model.embedding_dim == 1024
    embeddings = model.embed(["0.png", "1.png"])
    features = trainer_of(made()).bare_model.bare_backbone().eval()
    split = Split(["0.png", "1.png"], ["a", "b"], NumberLabels(torch.arange(2)))
    np.testing.assert_allclose(embeddings, embed(features, split, made().build_images())[0], rtol=1e-4, atol=1e-5)
    model.save(photos / "bundle")
    np.testing.assert_array_equal(contml.load(photos / "bundle").embed(["0.png", "1.png"]), embeddings)
    assert evaluate_run(run.folder) == evaluated
    assert read_evaluation(resume(run.folder)) == evaluated


def test_a_head_as_it_began_is_called_so():
    evaluation = evaluate(torch.randn(30, 2), NumberLabels(torch.arange(30.0)))[0]
    for epoch, start in ((0, "the head as it began is better than the untrained features: "), (1, "better than the ")):
        assert FeatureComparison(0.5, 0.4, epoch, False).sentence(evaluation, "label_distance@3").startswith(start)


@pytest.mark.slow
def test_a_head_that_is_better_is_the_model(photos, no_reports):
    longer = ["training.epochs=8", "sampler.batches=10", "optimizer.lr=0.01", "training.val_share=0.3"]
    run = train(made(*longer), photos / "runs")
    evaluated = read_evaluation(run)
    comparison = evaluated.selection.features
    assert not evaluated.without_head
    assert comparison.head < comparison.value
    assert evaluated.comparison.startswith("better than the untrained features: mean label distance@")
    assert evaluated.selection.best == comparison.head
    assert evaluated.to_dict()["selection"]["features"]["head"] == comparison.head
    assert contml.load(run.folder).embedding_dim == 4
    assert evaluate_run(run.folder) == evaluated


@pytest.mark.parametrize(
    "changes", [["model.weights=none"], ["model.dim=null", "training.epochs=0"], ["training.select=none"]]
)
def test_nothing_competes(photos, changes):
    """A random backbone, no head, or no validation split."""
    trainer = fitted(trainer_of(made(*changes)))
    assert trainer.best is None or trainer.best.features is None


def test_a_frozen_backbone_without_a_head_cannot_be_trained(photos):
    with refuses("model", "neither the model nor the loss has a trainable parameter"):
        trainer_of(made("model.dim=null")).fit()
