"""Global pooling by mean, maximum or their sum; levels by the name of a module."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from support.choices import spread
from support.models import images
from support.refusals import refuses
from torch import Tensor, nn

from contml.models import EmbeddingModel

POOLINGS = {
    "average": lambda maps: maps.mean((2, 3)),
    "max": lambda maps: maps.amax((2, 3)),
    "average_max": lambda maps: maps.mean((2, 3)) + maps.amax((2, 3)),
    "average_2x2": lambda maps: parts(maps, 2),
    "average_4x4": lambda maps: parts(maps, 4),
}
#: Backbones, and the module before their global average pool.
BACKBONES = {
    "resnet18": "layer4",
    "bn_inception": "inception_5b_output",
    "squeezenet1_1": "classifier.2",
    "mobilenet_v2": "features.18",
}


def parts(maps, count):
    """Means of `count` x `count` parts of the image; a part begins before its share if it would cut a place."""
    edges = [(n * maps.shape[2] // count, -(-(n + 1) * maps.shape[2] // count)) for n in range(count)]
    means = [maps[:, :, top:bottom, left:right].mean((2, 3)) for top, bottom in edges for left, right in edges]
    return torch.stack(means, 2).flatten(1)


class Gated(nn.Module):
    """A network with a pool inside, as in squeeze-and-excitation blocks, and at its end `last`."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.last = last
        self.conv = nn.Conv2d(3, 6, 3, stride=4)
        self.gate = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)
        return self.last(maps * torch.sigmoid(self.gate(maps)))


class Branching(nn.Module):
    """A network that torch.fx cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)
        return (maps if maps.sum() > 0 else -maps).mean((2, 3))


class Permuted(nn.Module):
    """Maps `[B, H, W, C]` with the channels last, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.permute = Permute()

    def forward(self, x: Tensor) -> Tensor:
        return self.permute(x).mean((1, 2))


class Permute(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1)


@pytest.mark.parametrize(("name", "pooling"), spread(BACKBONES, POOLINGS))
def test_features_are_pooled_from_the_last_maps(name, pooling):
    model = EmbeddingModel(name, dim=4, pooling=pooling).eval()
    maps = []
    model.backbone.get_submodule(BACKBONES[name]).register_forward_hook(lambda _, given, output: maps.append(output))
    torch.testing.assert_close(model.features(images(size=128)), POOLINGS[pooling](maps[0]))
    assert model(images(size=128)).shape == (2, 4)


def test_parts_are_not_copies_of_each_other():
    with refuses("backbone", "cannot read images of 32 x 32 pixels (average_2x2 needs larger maps than [1, 1]"):
        EmbeddingModel("mobilenet_v2", pooling="average_2x2").check_size(32)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_levels_are_pooled_alike(pooling):
    levels = ["middle", "low"]
    model = EmbeddingModel("small_cnn", dim=4, levels=levels, pooling=pooling).eval()
    features = model.features(images())
    maps = model.backbone((images() / 255 - model.mean) / model.std)
    torch.testing.assert_close(features, torch.cat([POOLINGS[pooling](maps[level]) for level in levels], 1))


def test_the_last_pool_is_replaced_and_not_one_inside():
    network = Gated(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout()))
    model = EmbeddingModel(network, dim=4, pooling="max")
    assert isinstance(model.backbone.gate, nn.AdaptiveAvgPool2d)
    assert not isinstance(model.backbone.last[0], nn.AdaptiveAvgPool2d)


@pytest.mark.parametrize("name", ["small_cnn", "shufflenet_v2_x0_5", "vit_b_32", "convnext_tiny"])
def test_backbones_without_a_global_average_pool_at_their_end(name):
    with refuses("pooling", "max", f"average, since {name} does not end in", "model.levels"):
        EmbeddingModel(name, pooling="max")


def test_networks_of_the_user_without_a_global_average_pool_at_their_end():
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3))

    with refuses("pooling", "average_max", "a Gated"):
        EmbeddingModel(Gated(Mean()), pooling="average_max")
    with refuses("pooling", "max", "average, since features"):
        EmbeddingModel("features", pooling="max", feature_dim=6)


# -- levels by the name of a module ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet10t", "a module"])
def test_levels_by_the_name_of_a_module(tmp_path, name):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    network = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Sequential(nn.Conv2d(64, 128, 3)), nn.Conv2d(128, 5, 1))
    backbone = nn.Sequential(network, nn.AdaptiveAvgPool2d(1)) if name == "a module" else name
    levels = ["0.1.0", "0.0"] if name == "a module" else ["layer2.0.conv1", "layer1"]
    model = EmbeddingModel(backbone, dim=4, levels=levels).eval()
    maps = {}
    for level in levels:
        model.backbone.get_submodule(level).register_forward_hook(
            lambda _, given, output, level=level: maps.update({level: output.clone()})
        )
    features = model.features(images())
    if name == "a module":
        torch.testing.assert_close(features, torch.cat([maps[level].mean((2, 3)) for level in levels], 1))
    assert features.shape == (2, 128 + 64)
    assert {*model.head} == {level.replace(".", "_") for level in levels}
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    file = str(tmp_path / "model.safetensors")
    assert torch.equal(EmbeddingModel(backbone, dim=4, levels=levels, weights=file).eval()(images()), model(images()))


@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5", "convnext_tiny"])
def test_networks_without_named_levels_take_modules(name):
    level = "stage3" if name.startswith("shufflenet") else "features.3"
    assert EmbeddingModel(name, dim=4, levels=[level])(images()).shape == (2, 4)


def test_modules_that_are_no_levels():
    with refuses("levels", "layer9 of resnet18", "low, middle, high, or the name of a module", "'layer"):
        EmbeddingModel("resnet18", levels=["low", "layer9"])
    with refuses("levels", "['high', 'layer4']", "each once"):
        EmbeddingModel("resnet18", levels=["high", "layer4"])
    with refuses("levels", "['conv'] of a Branching cannot be extracted"):
        EmbeddingModel(Branching(), levels=["conv"])
    with refuses("levels", "permute is [1, 224, 224, 3]", "[B, width, H, W]"):
        EmbeddingModel(Permuted(), levels=["permute"])
    with refuses("levels", "encoder.layers.encoder_layer_0 is [1, 50, 768]", "[B, width, H, W]"):
        EmbeddingModel("vit_b_32", levels=["encoder.layers.encoder_layer_0"])
