from __future__ import annotations

import sys
from urllib.error import URLError

import pytest
import torch
from accelerate import init_empty_weights
from safetensors.torch import save_file
from support.models import images, same
from support.refusals import refuses
from torch import nn

from contml._support.errors import InputError
from contml._support.tensors import save_tensors
from contml.models import EmbeddingModel, PixelFormat
from contml.models.backbones import build
from contml.models.weights import read


@pytest.fixture(scope="module")
def torchvision_models():
    from torchvision import models  # here: it takes two seconds to import

    return models


class Tiny(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, stride=4)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


class Map(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


# -- backbones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_torchvision_models_give_features(torchvision_models, every):
    """Two models with auxiliary outputs and two without a pool at their end, or every model."""
    few = ["googlenet", "inception_v3", "mobilenet_v3_small", "vit_b_32"]
    for name in torchvision_models.list_models(module=torchvision_models) if every else few:
        with init_empty_weights():
            built = build(name, "none")
        for training in (True, False):  # auxiliary outputs appear in training only
            backbone = built.backbone.to("meta").train(training)
            size = 299 if name == "inception_v3" else 224
            assert backbone(torch.empty(2, 3, size, size, device="meta")).shape == (2, built.width), name


def test_default_options():
    model = EmbeddingModel()
    assert model(images()).shape == (2, 128)
    assert model.features(images()).shape == (2, 512)
    assert not model.head.bias.any()
    assert model.head.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)  # kaiming_normal, fan_out
    names = {name for name, _ in model.named_parameters()}
    assert all(name.startswith(("backbone.", "head.")) for name in [*names, *model.state_dict()])
    groups = [*model.backbone.parameters(), *model.head_parameters()]
    assert len({id(p) for p in groups}) == len(groups) == len(names)


def test_without_a_head_the_features_are_the_embedding():
    model = EmbeddingModel("small_cnn", dim=None).eval()
    x = images()
    assert torch.equal(model(x), model.features(x))
    assert model.embedding_dim == model.feature_dim == model(x).shape[1] == 1024
    assert not [*model.head_parameters()]
    assert all(key.startswith("backbone.") for key in model.state_dict())
    torch.testing.assert_close(EmbeddingModel("small_cnn", dim=None, normalize=True)(x).norm(dim=1), torch.ones(2))


def test_a_module_that_reads_one_size_only():
    class Fixed(nn.Sequential):
        pass

    model = EmbeddingModel(Fixed(nn.Flatten(), nn.Linear(3 * 64 * 64, 5)), dim=4)
    assert model(images()).shape == (2, 4)
    model.check_size(64)
    with refuses("backbone", got="65 x 65 pixels"):
        model.check_size(65)
    assert model.training


def test_a_vision_transformer_reports_its_image_size():
    model = EmbeddingModel("vit_b_32")
    with refuses("backbone", got="xpected 224"):
        model.check_size(64)


def test_an_import_string(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def net():\n    return nn.Sequential(nn.Conv2d(3, 7, 3), nn.AdaptiveAvgPool2d(1))\n"
        "def wrong():\n    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = EmbeddingModel("my_nets:net", dim=3)
    assert model.head.in_features == 7  # [B, 7, 1, 1] counts as [B, 7]
    assert model(images()).shape == (2, 3)
    with refuses("backbone", got="my_nets:wrong", allowed="torch.nn.Module"):
        EmbeddingModel("my_nets:wrong")
    causes = {"my_nets:nett": "AttributeError", ":net": "ValueError"}
    causes["no_such.thing:net"] = "ModuleNotFoundError: No module named 'no_such'"
    for name, cause in causes.items():
        with refuses("backbone", got=f"{name} cannot be imported ({cause}"):
            EmbeddingModel(name)


def test_backbones_of_features_and_of_images():
    assert EmbeddingModel("features", dim=4, feature_dim=6).head.in_features == 6
    for backbone, got in (("small_cnn", "small_cnn"), ("resnet18", "resnet18"), (Tiny(), "Tiny")):
        with refuses("backbone", got, "must be features"):
            EmbeddingModel(backbone, feature_dim=6)
    with refuses("weights", "DEFAULT", "none"):
        EmbeddingModel("features", weights="DEFAULT", feature_dim=6)
    with refuses("backbone", "[1, 3, 224, 224]", "[B, width]"):
        EmbeddingModel(Map())


# -- forward -----------------------------------------------------------------------------------------------------------


def test_a_torchvision_model_with_other_statistics():
    with init_empty_weights():
        assert build("efficientnet_v2_l", "none").pixel_format.mean == (0.5, 0.5, 0.5)
        assert build("efficientnet_v2_s", "none").pixel_format.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("norm", [1e-30, 1e-13, 1e25])
def test_normalized_embeddings_have_length_1_at_every_norm(norm):
    model = EmbeddingModel("features", dim=None, normalize=True, feature_dim=4)
    embeddings = model(norm * torch.tensor([[3.0, 0.0, 4.0, 0.0]]))
    torch.testing.assert_close(embeddings, torch.tensor([[0.6, 0.0, 0.8, 0.0]]))


def test_frozen_batch_norm():
    model = EmbeddingModel(Tiny(), dim=4, freeze_batch_norm=True)
    assert model.training
    assert not model.backbone.norm.training
    before = model.backbone.norm.running_mean.clone()
    model.train()(images()).sum().backward()
    torch.testing.assert_close(model.backbone.norm.running_mean, before, rtol=0, atol=0)
    assert model.backbone.norm.weight.grad is not None
    free = EmbeddingModel(Tiny(), dim=4)
    assert not free.backbone.norm.running_mean.any()  # the model was built with images of its own
    free(images())
    assert free.backbone.norm.running_mean.any()


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "prefix"),
    [(".safetensors", ""), (".pth", "module."), (".pt", "backbone."), (".safetensors", "module.encoder.")],
)
def test_a_state_dict_from_a_file(tmp_path, suffix, prefix):
    source = Tiny()
    nn.init.normal_(source.norm.running_mean)
    state = {prefix + key: value for key, value in source.state_dict().items()}
    others = ("fc.weight", "fc.bias", "classifier.1.bias", "aux1.fc.bias", "AuxLogits.fc.bias")
    state |= {prefix + name: torch.zeros(5) for name in others}
    file = tmp_path / f"net{suffix}"
    save_file(state, file) if suffix == ".safetensors" else torch.save({"state_dict": state, "epoch": 3}, file)
    assert same(EmbeddingModel(Tiny(), weights=str(file)).backbone, source)


def test_the_old_names_of_densenet(tmp_path, torchvision_models):
    whole = torchvision_models.densenet121().state_dict()
    old = {key: value for key, value in whole.items() if not key.endswith("num_batches_tracked")}
    for kind in ("norm", "conv"):
        for digit in "12":
            old = {key.replace(f".{kind}{digit}.", f".{kind}.{digit}."): value for key, value in old.items()}
    assert len(old.keys() - whole.keys()) > 100
    torch.save(old, tmp_path / "old.pth")
    model = EmbeddingModel("densenet121", weights=str(tmp_path / "old.pth"))
    assert all(torch.equal(value, whole[key]) for key, value in model.backbone.state_dict().items())


def trained(path, model, **options):
    """Weights as a run saves them; `options` of the section `model` of its config."""
    save_tensors(path, model.state_dict(), config={"model": {"backbone": "small_cnn", **options}}, epoch=1)
    return str(path)


@pytest.mark.parametrize(("before", "now", "option"), [
    ({"dim": None}, {"dim": 8}, "dim=null"), ({"dim": 8}, {"dim": 8, "levels": ["low", "high"]}, "levels=null"),
    ({"dim": 8, "levels": ["low", "high"]}, {"dim": 8, "levels": ["high", "low"]}, "levels=[low, high]"),
    ({"dim": 8}, {"dim": 8, "normalize": True}, "normalize=false"),
    ({"dim": 8, "levels": ["high"], "pooling": "max"}, {"dim": 8, "levels": ["high"]}, "pooling=max"),
])  # fmt: skip
def test_weights_of_a_run_know_the_options_of_their_model(tmp_path, before, now, option):
    before = {"levels": None, "normalize": False, "pooling": "average", **before}
    source = EmbeddingModel("small_cnn", **before)
    file = trained(tmp_path / "last.safetensors", source, **before)
    assert same(EmbeddingModel("small_cnn", **before, weights=file), source)
    with refuses(f"weights {file}", got=f"trained with {option}, but ", hint=f"set model.{option}"):
        EmbeddingModel("small_cnn", **now, weights=file)


def test_a_head_of_another_shape_is_refused_without_options_too(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file(EmbeddingModel("small_cnn", dim=8).state_dict(), file)
    for options in ({"dim": 9}, {"dim": 8, "levels": ["low", "high"]}):
        with refuses(f"weights {file}", got="'head.weight': [8, ", allowed="head.", hint="model.dim"):
            EmbeddingModel("small_cnn", weights=str(file), **options)


def test_weights_of_others_get_a_new_head(tmp_path):
    source = EmbeddingModel("small_cnn", dim=8)
    for number, extra in enumerate(({}, {"head.weight": torch.zeros(5, 1024), "head.bias": torch.zeros(5)})):
        file = tmp_path / f"{number}.safetensors"
        # Keys without "backbone.", perhaps with a classifier.
        save_file({**source.backbone.state_dict(), **extra}, file)
        model = EmbeddingModel("small_cnn", dim=8, weights=str(file))
        assert same(model.backbone, source.backbone)
        assert model.head.weight.any()
    # Metadata of another program, or of other values of ours, are no options.
    for number, metadata in enumerate(({"format": "pt"}, {"contml": "no JSON"}, {"contml": "[1]"}, {"contml": "{}"})):
        file = tmp_path / f"metadata {number}.safetensors"
        save_file(source.state_dict(), file, metadata=metadata)
        assert same(EmbeddingModel("small_cnn", dim=8, weights=str(file)), source)
        assert same(EmbeddingModel("small_cnn", dim=None, weights=str(file)).backbone, source.backbone)


def test_a_file_that_does_not_fit(tmp_path):
    file = tmp_path / "net.safetensors"
    save_file(Tiny(7).state_dict(), file)
    with refuses(str(file), "of another shape (conv.weight [7, 3, 3, 3] for [6, 3, 3, 3], ", "Tiny"):
        EmbeddingModel(Tiny(), weights=str(file))


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"not weights at all")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "net.bin").touch()
    texts = {"bad.safetensors": "cannot be read as weights", "list.pt": "no state dict", "net.bin": "'.bin'"}
    for name, got in texts.items():
        with refuses(f"weights {tmp_path / name}", got):
            EmbeddingModel(weights=str(tmp_path / name))


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_published_weights_with_auxiliary_classifiers(monkeypatch, torchvision_models, name):
    whole = torchvision_models.get_model(name, weights=None, init_weights=False, aux_logits=True)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: whole.state_dict())
    model = EmbeddingModel(name, dim=4, weights="IMAGENET1K_V1").eval()
    state = whole.state_dict()
    assert model.backbone.transform_input
    for key, value in model.backbone.state_dict().items():
        assert not key.lower().startswith("aux")
        assert torch.equal(value, state[key])
    assert model.train()(torch.zeros(2, 3, 96, 96)).shape == (2, 4)


@pytest.mark.slow
def test_pixels_are_those_of_the_published_weights_even_if_others_are_loaded(monkeypatch, torchvision_models):
    """A run that began with these weights is evaluated and used with their pixels, and downloads nothing."""
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: pytest.fail("a download"))
    name = "IMAGENET1K_FEATURES"  # of Caffe: other pixels than those of all other weights
    preset = torchvision_models.VGG16_Weights[name].transforms()
    for weights, expected in ((name, preset.std), ("none", [0.229, 0.224, 0.225])):
        model = EmbeddingModel("vgg16", dim=2, weights=weights, pretrained=False)
        assert model.pixel_format.std == tuple(expected)
        assert torch.allclose(model.std.flatten(), torch.tensor(expected))
    assert EmbeddingModel("small_cnn", weights="nowhere.pt", pretrained=False).pixel_format == PixelFormat()


@pytest.mark.parametrize("error", [URLError("no route to host"), RuntimeError("invalid hash")])
def test_no_network(monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fail)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    address = "DEFAULT of resnet18 from https://download.pytorch.org/models/resnet"
    for got, hint in ((address, str(torch.hub.get_dir())), (str(error), "local file")):
        with refuses("weights", got, hint=hint):
            EmbeddingModel("resnet18", weights="DEFAULT")


def test_no_network_for_timm_and_no_timm(monkeypatch):
    timm = pytest.importorskip("timm")

    def fail(*_: object, **__: object) -> None:
        raise ValueError("offline")

    monkeypatch.setattr(timm, "create_model", fail)
    with refuses("weights", "DEFAULT of timm:resnet18 (offline)", hint="local file"):
        EmbeddingModel("timm:resnet18", weights="DEFAULT")
    monkeypatch.setitem(sys.modules, "timm", None)
    with refuses("backbone", got="timm:resnet18", hint='pip install "contml[timm]"'):
        EmbeddingModel("timm:resnet18")


class NoTensor:
    """An object that code would have to make."""


@pytest.mark.parametrize("content", [b"\xff\xd8\xff\xe0 a photograph", NoTensor()])
def test_other_files_than_weights_are_refused_without_advice_to_run_their_code(tmp_path, content):
    """The text of torch advised `weights_only=False`, with which a file runs its code."""
    file = tmp_path / "w.pth"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save({"a": content}, file)
    with pytest.raises(InputError, match="download the file again") as caught:
        read(file)
    assert "weights_only" not in str(caught.value)
