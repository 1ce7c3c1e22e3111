"""Multi-level features: the maps they are made of, heads and losses of their own, checkpoints, what does not fit."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.models import images, same
from support.refusals import refused, refuses
from support.runs import from_text
from torch import nn

from contml import InputError, MatryoshkaLoss
from contml.app.experiment import check, evaluate_run, resume, train
from contml.losses import LOSSES, LogRatioLoss, ProxyAnchorLoss
from contml.losses.levels import LevelLosses
from contml.models import EmbeddingModel
from contml.testing import check_loss

ALL = ["low", "middle", "high"]
#: Backbones, after which modules their levels are taken, and how wide these are.
BACKBONES = {
    "googlenet": (["inception3b", "inception4e", "inception5b"], [480, 832, 1024]),
    "resnet18": (["layer2", "layer3", "layer4"], [128, 256, 512]),
    "mobilenet_v2": (["features.6", "features.13", "features.18"], [32, 96, 1280]),
    "small_cnn": (["layers.9", "layers.16", "layers.24"], [64, 128, 1024]),
}


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKBONES)
def test_features_are_the_means_of_the_maps(name):
    modules, widths = BACKBONES[name]
    torch.manual_seed(0)
    plain = EmbeddingModel(name, dim=4).eval()
    torch.manual_seed(0)
    model = EmbeddingModel(name, dim=4, levels=ALL).eval()
    assert plain.backbone.state_dict().keys() == model.backbone.state_dict().keys()
    model.backbone.load_state_dict(plain.backbone.state_dict())
    maps = {}
    for module in modules:
        plain.backbone.get_submodule(module).register_forward_hook(
            lambda module, given, out, key=module: maps.__setitem__(key, out)
        )
    x = images(2, 96)
    last = plain.features(x)
    expected = [maps[m].mean((2, 3)) if maps[m].ndim == 4 else maps[m] for m in modules]
    assert [part.shape[1] for part in expected] == widths
    torch.testing.assert_close(model.features(x), torch.cat(expected, 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.features(x)[:, -widths[-1] :], last, rtol=1e-4, atol=1e-5)  # high: what it was
    assert (model.feature_dim, model.embedding_dim, model.parts) == (sum(widths), 12, [4, 4, 4])


def test_each_level_has_a_head_and_a_length_of_its_own():
    model = EmbeddingModel("small_cnn", dim=5, levels=["high", "low"], normalize=True).eval()
    x = images()
    features, embeddings = model.features(x), model(x)
    assert features.shape == (2, 1024 + 64)
    high, low = model.head["high"](features[:, :1024]), model.head["low"](features[:, 1024:])
    expected = torch.cat([nn.functional.normalize(high), nn.functional.normalize(low)], 1)
    torch.testing.assert_close(embeddings, expected)
    free = EmbeddingModel("small_cnn", dim=5, levels=["high", "low"]).eval()
    free.load_state_dict(model.state_dict())
    torch.testing.assert_close(free(x), torch.cat([high, low], 1))
    assert model.head["low"].weight.std().item() == pytest.approx((2 / 5) ** 0.5, rel=0.2)
    assert {key.split(".")[0] for key in model.state_dict()} == {"backbone", "head"}
    assert len([*model.head_parameters()]) == 4


def test_training_mode_reaches_the_backbone():
    model = EmbeddingModel("small_cnn", dim=4, levels=ALL)
    x = images(4)
    before = model.backbone.get_submodule("layers.1").running_mean.clone()
    first = model(x)
    assert not torch.equal(model.backbone.get_submodule("layers.1").running_mean, before)
    model.eval()
    assert not torch.allclose(model(x), first)


def test_levels_below_need_no_layers_above():
    model = EmbeddingModel("resnet18", dim=4, levels=["low"])
    assert {key.split(".")[0] for key in model.backbone.state_dict()} == {"conv1", "bn1", "layer1", "layer2"}
    model(images()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_timm_resnets_have_levels():
    pytest.importorskip("timm")
    model = EmbeddingModel("timm:resnet10t", dim=4, levels=ALL).eval()
    assert (model.feature_dim, model(images()).shape) == (128 + 256 + 512, (2, 12))


@pytest.mark.parametrize("levels", [ALL, ["low"], ["middle", "low"]])
def test_weights_of_the_whole_backbone(tmp_path, levels):
    from torchvision.models import resnet18  # here: it takes two seconds to import

    whole = resnet18()
    save_file(whole.state_dict(), tmp_path / "whole.safetensors")
    model = EmbeddingModel("resnet18", weights=str(tmp_path / "whole.safetensors"), levels=levels)
    state = whole.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.backbone.state_dict().items())


@pytest.mark.parametrize("levels", [ALL, ["low"]])
def test_its_own_checkpoint(tmp_path, levels):
    source = EmbeddingModel("small_cnn", dim=8, levels=levels)
    file = tmp_path / "model.safetensors"
    save_file(source.state_dict(), file)
    assert same(EmbeddingModel("small_cnn", dim=8, levels=levels, weights=str(file)), source)
    for dim, other in ((9, levels), (8, None)):
        with refuses(f"weights {file}", "the head is", "must be", "set model.dim and model.levels"):
            EmbeddingModel("small_cnn", dim=dim, levels=other, weights=str(file))


def test_levels_that_are_not_there():
    refused(lambda: EmbeddingModel("vit_b_16", levels=["low"]), "levels", "low of vit_b_16", "the name of a module")
    own = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    refused(lambda: EmbeddingModel(own, levels=["low"]), "levels", "low of a Sequential")
    for levels in ([], ["low", "low"]):
        with refuses("levels", str(levels), "low, middle, high"):
            EmbeddingModel("resnet18", levels=levels)


# -- the loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["instance_cross_entropy", "log_ratio", "margin", "multi_similarity", "dense_triplet"])
def test_losses_of_levels_and_of_nested_lengths_keep_the_contract(name):
    for loss in (LevelLosses([LOSSES[name](), LOSSES[name]()], [4, 2]), MatryoshkaLoss(LOSSES[name](), [2, 6], True)):
        check_loss(loss, skip=["gradcheck"] if name == "instance_cross_entropy" else [])


def test_each_part_has_its_own_loss():
    torch.manual_seed(0)
    losses = [ProxyAnchorLoss(num_classes=3, embedding_dim=dim) for dim in (4, 2)]
    both = LevelLosses(losses, [4, 2])
    x, y = torch.randn(6, 6, requires_grad=True), torch.tensor([0, 0, 1, 1, 2, 2])
    value = both(x, y)
    torch.testing.assert_close(value, losses[0](x[:, :4], y) + losses[1](x[:, 4:], y))
    (gradient,) = torch.autograd.grad(value, x)
    (first,) = torch.autograd.grad(losses[0](x[:, :4], y), x)
    torch.testing.assert_close(gradient[:, :4], first[:, :4])
    assert (both.requires, len([*both.parameters()])) == ("classes", 2)
    nested = MatryoshkaLoss(losses[::-1], [2, 4])
    torch.testing.assert_close(nested(x[:, :4], y), (losses[1](x[:, :2], y) + losses[0](x[:, :4], y)) / 2)
    assert len([*nested.parameters()]) == 2


def test_embeddings_of_another_length():
    with refuses("embeddings", "5 dimensions", "must have 6, as the sum of the parts [4, 2]"):
        LevelLosses([LogRatioLoss(), LogRatioLoss()], [4, 2])(torch.randn(4, 5), torch.zeros(4, 4))
    refused(lambda: LevelLosses([LogRatioLoss()], [4, 2]), "losses", got="1 losses for 2 parts")


# -- in a config -------------------------------------------------------------------------------------------------------

LEVELS = "model.levels=[low, middle, high]"


@pytest.mark.slow
def test_trained_evaluated_and_resumed_on_the_concatenation(tmp_path):
    made = from_text(
        tmp_path, True, "loss: instance_cross_entropy", LEVELS, "model.normalize=true", "training.epochs=1"
    )
    run = train(made, tmp_path / "runs")
    embeddings = load_file(run.folder / "embeddings" / "test.safetensors")["embeddings"]
    assert embeddings.shape == (12, 12)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.full((12,), 3**0.5))
    first = (run.folder / "evaluation.json").read_text()
    evaluate_run(run.folder, trust=True)
    assert ((run.folder / "evaluation.json").read_text(), resume(run.folder, trust=True).folder) == (first, run.folder)


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        (["model.levels=[hihg]"], ["model.levels", "hihg", "low, middle, high"]),
        (["model.levels=low"], ["model.levels", "low", "list"]),
        (["model.levels=[low, low]"], ["levels", "['low', 'low']", "low, middle, high"]),
        ([LEVELS, "model.backbone=vgg11"], ["vgg11"]),
        ([LEVELS, "loss=n_pairs", "step=hdml"], ["command line", "model.levels", "step"]),
    ],
)
def test_levels_that_do_not_fit(tmp_path, changes, values):
    with pytest.raises(InputError) as error:
        check(from_text(tmp_path, True, "loss: raw", *changes))
    assert [value for value in values if value not in str(error.value)] == []
    assert "\n" not in str(error.value)
