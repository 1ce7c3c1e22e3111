"""Networks of timm: sizes of images, pooling of tokens, names, and short trainings of tiny random ones."""

from functools import partial

import pytest
import torch
from support.models import images
from support.refusals import refuses
from support.runs import assert_resumes

from contml.app.experiment import load
from contml.app.experiment.loading import choose
from contml.models import EmbeddingModel

timm = pytest.importorskip("timm")
DRAWN = [
    *("task.train=30", "task.val=12", "task.test=12", "task.queries=4", "task.size=32", "images.resize=64"),
    *("images.crop=64", "images.workers=0", "transform=null", "model.dim=4", "sampler.batch_size=6"),
    *("sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=2", "training.epochs=2"),
    *("training.checkpoint_minutes=0", "optimizer.lr=1e-4"),
]


def test_pixels_are_those_of_its_data_config():
    model = EmbeddingModel("timm:test_vit", dim=4)
    expected = timm.data.resolve_model_data_config(model.backbone)
    assert (model.pixel_format.mean, model.pixel_format.std) == (expected["mean"], expected["std"])
    assert model.pixel_format.mean == (0.5, 0.5, 0.5)


def test_a_transformer_takes_images_of_other_sizes():
    model = EmbeddingModel("timm:test_vit", dim=4).eval()
    for side in (64, 96, 160):
        model.check_size(side)
        assert model(images(1, side)).shape == (1, 4)
    with refuses("backbone", "100 x 100 pixels (Input height (100) should be divisible by patch size (16)"):
        model.check_size(100)
    published = timm.create_model("test_vit", num_classes=0).eval()
    published.load_state_dict(model.backbone.state_dict())
    x = model._normalized(images(2, 160))
    assert torch.equal(published(x), model.backbone(x))


def test_names():
    with refuses("backbone", "timm:test_vitt", "no such model", "'timm:test_vit"):
        EmbeddingModel("timm:test_vitt")
    with refuses("weights", got="IMAGENET1K_V1", allowed="none, DEFAULT or a local file"):
        EmbeddingModel("timm:test_vit", weights="IMAGENET1K_V1")
    with refuses("backbone", "timm:test_vit.r160_in1", "test_vit has no weights r160_in1", "'r160_in1k'"):
        EmbeddingModel("timm:test_vit.r160_in1")


def test_presets_know_the_size_of_its_images():
    preset = choose("features", None, None, ["model.backbone=timm:test_vit"])
    assert {"images.resize=160", "images.crop=160", 'model.weights="DEFAULT"'} <= {*preset.changes}
    assert "model.backbone=timm:test_vit" in preset.changes


def trainer_of(changes, run=None, **options):
    experiment = load("pose/synthetic", [*DRAWN, *changes])
    return experiment.build_trainer(experiment.build_task(), run, quiet=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [
    ["model.backbone=timm:test_vit", "model.frozen=2"], ["model.backbone=timm:test_convnext"],
    ["model.backbone=timm:test_resnet", "model.pooling=max", "training.precision=bfloat16"],
], ids=["vit", "convnext", "resnet"])  # fmt: skip
def test_a_killed_training_gives_the_same_weights(tmp_path, changes):
    assert_resumes(partial(trainer_of, changes), tmp_path, (1, 0))
