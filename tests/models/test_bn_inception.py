"""BN-Inception: the names and shapes of the published file, features of another definition, its pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.models import images, same
from support.refusals import refuses
from torch import Tensor, nn

from contml.models import EmbeddingModel, PixelFormat
from contml.models.bn_inception import BNInception

ALL = ["low", "middle", "high"]
LAYERS = Path(__file__).with_name("bn_inception_layers.txt")
MEANS = torch.tensor([104, 117, 128]).view(3, 1, 1)


def published(leading: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """A random state dict with the names and shapes of the published file, whose batch norms are `[*leading, C]`."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, Tensor] = {}
    for line in LAYERS.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, *sizes = line.split()
        shape = [int(size) for size in sizes]
        fan_in = shape[1] * (shape[2] * shape[3] if shape[2:] else 1)
        state[f"{name}.weight"] = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5
        state[f"{name}.bias"] = 0.1 * torch.randn(shape[0], generator=generator)
        if name != "last_linear":
            for part in ("weight", "running_var"):
                state[f"{name}_bn.{part}"] = 0.5 + torch.rand(*leading, shape[0], generator=generator)
            for part in ("bias", "running_mean"):
                state[f"{name}_bn.{part}"] = 0.3 * torch.randn(*leading, shape[0], generator=generator)
    return state


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "bn_inception.pth"
    torch.save(published(), file)
    return str(file)


def test_names_and_shapes_are_those_of_the_published_file():
    expected = {key: value.shape for key, value in published().items() if not key.startswith("last_linear.")}
    own = {key: value.shape for key, value in BNInception().state_dict().items()}
    assert expected == {key: shape for key, shape in own.items() if not key.endswith("num_batches_tracked")}
    assert len(expected) == 69 * 6


@pytest.mark.parametrize("leading", [(), (1,)])
def test_the_published_file_loads(tmp_path, file, leading):
    state = published(leading)
    torch.save(state, tmp_path / "other.pth")
    model = EmbeddingModel("bn_inception", weights=str(tmp_path / "other.pth"))
    own = model.backbone.state_dict()
    for key in own:
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(own[key], state[key].reshape(own[key].shape)), key
    if leading:
        assert same(model.backbone, EmbeddingModel("bn_inception", weights=file).backbone)


def test_levels_recorded_from_pretrainedmodels(file):
    model = EmbeddingModel("bn_inception", dim=None, weights=file, levels=ALL).double().eval()
    recorded = {  # of the second image: the first, the middle and the last channel, which is of the branch of the pool
        "low": [158.2721113, 863.7237237, 682.7677073],
        "middle": [224.7267185, 608.8702139, 387.2113284],
        "high": [71.46820256, 105.7308951, 317.6528177],
    }
    with torch.inference_mode():
        features = model.features(images(2, 64))[1].split(model.parts)
    for level, values in zip(ALL, features, strict=True):
        assert values[[0, len(values) // 2, -1]].tolist() == pytest.approx(recorded[level], rel=1e-9), level


def test_pixels_are_bgr_from_0_to_255_without_the_mean(file):
    model = EmbeddingModel("bn_inception", dim=None, weights=file).eval()
    x = images()
    given = []
    model.backbone.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
    features = model(x)
    torch.testing.assert_close(given[0], x[:, [2, 1, 0]].float() - MEANS, rtol=0, atol=0)
    torch.testing.assert_close(model(x.float() / 255), features)
    levels = EmbeddingModel("bn_inception", dim=None, weights=file, levels=["high"]).eval()
    torch.testing.assert_close(levels(x), features)


def test_a_network_of_the_user_has_its_own_pixels():
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.pixel_format = PixelFormat(mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 4.0), maximum=255, order="BGR")
    red = torch.tensor([255, 0, 51], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    torch.testing.assert_close(EmbeddingModel(network).features(red), torch.tensor([[25.0, -1.0, 63.0]]))
    del network.pixel_format  # those of ImageNet
    expected = torch.tensor([(1.0 - 0.485) / 0.229, (0.0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225])
    torch.testing.assert_close(EmbeddingModel(network).features(red)[0], expected)
    assert not {"mean", "std"} & {*EmbeddingModel(network).state_dict()}


def test_widths_and_sizes():
    model = EmbeddingModel("bn_inception", dim=4, levels=ALL)
    assert model.feature_dim == 576 + 1056 + 1024
    assert model(images()).shape == (2, 12)
    with refuses("backbone", "48 x 48 pixels"):
        model.check_size(48)  # 3 x 3 before the block 4e, and halves of odd sizes differ


def test_the_error_of_an_absent_file_says_where_to_get_it(tmp_path):
    path = tmp_path / "bn_inception-52deb4733.pth"
    with refuses(f"weights {path}", got="no such file", hint="download it from http://data.lip6.fr/"):
        EmbeddingModel("bn_inception", weights=str(path))
