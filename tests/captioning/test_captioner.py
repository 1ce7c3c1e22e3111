import pytest
import torch
from support.captioning import described_squares, small_captioner
from support.models import images, same
from support.refusals import refuses
from torch import nn

from contml._support.tensors import save_tensors
from contml.captioning.vocabulary import Vocabulary
from contml.models import EmbeddingModel


def features(split):
    return torch.stack([torch.from_numpy(source.values) for source in split.images])


@pytest.mark.parametrize("backbone", ["mobilenet_v2", "resnet18"])
def test_the_mean_of_the_maps_is_the_features(backbone):
    model = EmbeddingModel(backbone, dim=None).eval()
    with torch.inference_mode():
        maps = model.maps(images(2, 96))
        assert maps.shape == (2, 9, model.feature_dim)
        torch.testing.assert_close(maps.mean(1), model.features(images(2, 96)), rtol=1e-4, atol=1e-5)
        assert torch.equal(model.features(maps), maps.mean(1))
        assert torch.equal(model.maps(maps), maps)


def test_maps_have_gradients_and_leave_the_network_as_it_was():
    model = EmbeddingModel("small_cnn", dim=4)
    before = model.training
    maps = model.maps(images(2, 64))
    assert maps.shape == (2, 16, 64)
    maps.sum().backward()
    assert model.training == before
    assert all(p.grad is not None for p in model.backbone.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_networks_without_maps_are_refused():
    flat = nn.Sequential(nn.Flatten(), nn.LazyLinear(4))
    flat(torch.zeros(1, 3, 64, 64))
    with refuses("backbone", got="Sequential has no feature maps"):
        EmbeddingModel(flat, dim=None).maps(images(1, 64))
    with refuses("images.features", hint="--maps"):
        EmbeddingModel("features", 4, feature_dim=8).maps(torch.zeros(2, 8))


@pytest.mark.parametrize("layer", ["features", "embedding"])
def test_the_layer_is_what_the_decoder_gets(layer):
    split = described_squares()
    captioner = small_captioner(split, layer=layer)
    expected = features(split) if layer == "features" else captioner.network(features(split))
    assert torch.equal(captioner.visual(features(split)), expected)


def test_weights_fit_only_the_same_words(tmp_path):
    split = described_squares()
    captioner = small_captioner(split)
    file = tmp_path / "captioner.safetensors"
    save_tensors(file, captioner.state_dict())
    assert not same(captioner, small_captioner(split, seed=1))
    assert same(small_captioner(split, seed=1, weights=str(file)), captioner)
    with refuses(f"weights {file}", got="its vocabulary has 16 words", allowed="the same 12 words"):
        small_captioner(split, threshold=20, weights=str(file))
    renamed = captioner.state_dict()
    renamed["words"] = Vocabulary([*captioner.vocabulary.words[:-1], "other"]).to_tensor()
    save_tensors(file, renamed)
    with refuses(f"weights {file}", got="its vocabulary has other words"):
        small_captioner(split, weights=str(file))
    for words in (torch.zeros(9), torch.full((9,), 255, dtype=torch.uint8)):
        save_tensors(file, {**captioner.state_dict(), "words": words})
        with refuses("vocabulary", origin=f"weights {file}"):
            small_captioner(split, weights=str(file))
    save_tensors(file, captioner.network.state_dict())
    with refuses(f"weights {file}", got="not the weights of a captioner"):
        small_captioner(split, weights=str(file))
    save_tensors(file, captioner.state_dict())
    with refuses(f"weights {file}", got="does not fit"):
        small_captioner(split, layer="features", weights=str(file))
