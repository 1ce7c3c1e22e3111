"""A model as ONNX: contml's embeddings of real images, from Pillow's pixels alone; and refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support.paths import DATA_ROOT
from support.refusals import refuses

from contml import InputError
from contml.models import EmbeddingModel
from contml.search import Embedder
from contml.search.bundle import Bundle, Transform
from contml.search.graph import KEY, write_graph

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'contml[onnx]'")

OLD = Path(__file__).parent / "format_1"
PACK = DATA_ROOT / "flickr8k_1500" / "images_true_aspect"  # JPEGs of many sizes, of which some are decoded at half size


def embedder(backbone, resize=72, crop=64, feature_dim=None, **options):
    """A model with random weights, whose batch norm has the statistics of random colours and edges."""
    torch.manual_seed(0)
    model = EmbeddingModel(backbone, dim=16, feature_dim=feature_dim, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    if feature_dim is None:
        with torch.no_grad():
            model(torch.nn.functional.interpolate(torch.rand(8, 3, 5, 5), crop))
    transform = Transform(resize=resize, crop=crop)
    facts = {"name": "random", "checkpoint": "last", "epoch": 0, "sha256": "", "feature_dim": feature_dim}
    bundle = Bundle(**facts, transform=transform, unit="years", calibration=None, versions={})
    return Embedder(model, bundle, {"model": {"backbone": backbone, **options}})


@cache
def session_of(file):
    """What a user without contml runs."""
    import onnxruntime

    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def runner(file):
    session = session_of(file)
    return lambda items: session.run(["embeddings"], {session.get_inputs()[0].name: items})[0]


def description(file):
    return json.loads(session_of(file).get_modelmeta().custom_metadata_map[KEY])


def pixels(path, about):
    """An image by the description in the file, step by step."""
    decode, resize, crop = about["preprocessing"]
    assert [step["do"] for step in about["preprocessing"]] == ["decode", "resize", "crop"]
    with Image.open(path) as image:
        image.draft(decode["channels"], (decode["jpeg_at_least"],) * 2)
        image = ImageOps.exif_transpose(image).convert(decode["channels"])
    image = image.resize((resize["width"], resize["height"]), Image.Resampling.BILINEAR)
    left, top = ((a - b) // 2 for a, b in ((image.width, crop["width"]), (image.height, crop["height"])))
    return np.asarray(image)[top : top + crop["height"], left : left + crop["width"]]


class Exported(NamedTuple):
    model: Embedder
    file: Path
    difference: float


#: Beside the small_cnn of a run, which a command exports below.
MODELS = {
    "levels": {"backbone": "small_cnn", "levels": ["low", "middle", "high"], "normalize": True, "pooling": "max"},
    "resnet18": {"backbone": "resnet18", "normalize": True},
    "mobilenet_v2": {
        "backbone": "mobilenet_v2",
        "resize": 101,
        "crop": 96,
        "pooling": "average_2x2",
        "normalize": True,
    },
    "bn_inception": {"backbone": "bn_inception", "resize": 101, "crop": 96, "normalize": True},
}


@pytest.fixture(scope="module", params=MODELS)
def graph(request, tmp_path_factory):
    model, file = embedder(**MODELS[request.param]), tmp_path_factory.mktemp("graph") / "model.onnx"
    return Exported(model, file, write_graph(model, file).difference)


@pytest.mark.slow
def test_embeddings_of_real_images(graph):
    """A batch of all, sevens and a rest, and single images."""
    if not PACK.is_dir():
        pytest.skip("no pack flickr8k_1500: set CONTML_DATA to its folder")
    paths, about = sorted(PACK.iterdir())[:100], description(graph.file)
    items = np.stack([pixels(path, about) for path in paths])
    expected = graph.model.embed(paths)
    assert expected.std(0).min() > 1e-3
    assert items.shape == (100, graph.model.bundle.transform.crop, graph.model.bundle.transform.crop, 3)
    for size, count in ((100, 100), (7, 100), (1, 10)):
        found = np.concatenate([runner(graph.file)(items[n : n + size]) for n in range(0, count, size)])
        assert found.dtype == np.float32
        assert np.abs(found - expected[:count]).max() <= 1e-4


@pytest.mark.slow
def test_the_file_says_what_it_takes_and_has_no_path_of_this_machine(graph):
    about, crop = description(graph.file), graph.model.bundle.transform.crop
    assert about["input"] == {"name": "images", "dtype": "uint8", "shape": ["N", crop, crop, 3]}
    assert about["output"] == {
        "name": "embeddings", "dtype": "float32", "shape": ["N", graph.model.embedding_dim]
    }  # fmt: skip
    assert about["bundle"] == graph.model.whole_bundle.model_dump(mode="json")
    assert about["bundle"]["transform"]["pixels"]["order"] == graph.model.model.pixel_format.order
    assert graph.difference <= 1e-4
    content = graph.file.read_bytes()
    for path in (Path(torch.__file__).parents[1], Path(__file__).parents[2], graph.file.parent):
        assert str(path).encode() not in content
    assert b".contml-" not in content


def test_a_model_of_features(tmp_path):
    model = embedder("features", feature_dim=10, normalize=True)
    items = np.random.default_rng(0).normal(size=(7, 10)).astype(np.float32)
    items[3] = 0
    file = tmp_path / "f.onnx"
    assert write_graph(model, file).input == "features float32 [N, 10]"
    assert np.abs(runner(file)(items) - model.embed(items)).max() <= 1e-6
    assert description(file)["preprocessing"] == []
    assert np.isfinite(model.embed(items)).all()


@pytest.mark.slow
def test_the_model_stays_as_it_is(tmp_path):
    model, item = embedder("small_cnn"), np.zeros((64, 64, 3), np.uint8)
    model.model.half().float()
    before, expected = {k: v.clone() for k, v in model.model.state_dict().items()}, model.embed(item)
    generator = torch.get_rng_state()
    model.export(tmp_path / "a.onnx")
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(before[name], value) for name, value in model.model.state_dict().items())
    assert np.array_equal(model.embed(item), expected)


PLAIN = """
import sys
import numpy as np
pixels = np.load("pixels.npy")
import onnxruntime
found = onnxruntime.InferenceSession(sys.argv[1]).run(None, {"images": pixels})[0]
np.save("found.npy", found)
assert "contml" not in sys.modules
"""


@pytest.mark.slow
def test_the_command_and_a_process_without_contml(contml, accepted, refused, trained, bundle, pictures, tmp_path):
    name, form = "model.onnx", "onnx"
    status, out, err = contml("export", trained.run, "graphs", "--format", form)
    assert (status, err) == (0, "")
    assert out.startswith(f"graphs/{name}: images uint8 [N, 32, 32, 3] to embeddings float32 [N, 8]; at most ")
    assert [path.name for path in Path("graphs").iterdir()] == [name]
    np.save("pixels.npy", np.stack(pictures))
    subprocess.run([sys.executable, "-c", PLAIN, f"graphs/{name}"], check=True)
    assert np.abs(np.load("found.npy") - trained.embeddings).max() <= 1e-4
    status, out, err = contml("export", trained.run, "graphs", "--format", form)
    assert (status, err) == (0, "")
    assert out.startswith(f"graphs/{name}: complete already: images uint8")
    shutil.copytree("graphs", "changed")
    Path("changed", name).write_bytes(Path("graphs", name).read_bytes() + b"1")
    assert f"changed/{name}: exists already" in refused("export", trained.run, "changed", "--format", form)
    assert accepted("export", bundle, bundle, "--format", form)[1] == ""
    ours, copied = description(Path("graphs", name))["bundle"], description(bundle / name)["bundle"]
    assert {**ours, "sha256": ""} == {**copied, "sha256": ""}  # of another file, of the same weights
    assert ours["calibration"]["queries"] == 16


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_wrong_suffix(tmp_path):
    with refuses(str(tmp_path / "model.pt2"), got="suffix", allowed=".onnx"):
        embedder("small_cnn").export(tmp_path / "model.pt2")
    assert not (tmp_path / "model.pt2").exists()


def test_a_package_that_is_missing(refused, trained, monkeypatch):
    monkeypatch.setattr("contml.search.graph.find_spec", lambda name: None if name == "onnxscript" else name)
    message = refused("export", trained.run, "model", "--format", "onnx")
    assert ".onnx needs onnxscript" in message
    assert 'pip install "contml[onnx]"' in message
    assert not Path("model").exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses(str(tmp_path / "file"), got="cannot be written"):
        embedder("features", feature_dim=3).export(tmp_path / "file" / "model.onnx")


class OnTheValues(torch.nn.Module):
    """A backbone that decides by the values of its input, which no graph holds."""

    def forward(self, x):
        return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))


class ByTheBatch(torch.nn.Module):
    """A backbone for one size of batch once it was traced."""

    def forward(self, x):
        return x.mean((2, 3)) + int(x.shape[0] == 2)


@pytest.mark.parametrize("backbone", [OnTheValues, ByTheBatch])
def test_a_network_that_cannot_be_exported_is_one_line(tmp_path, capfd, backbone):
    model = embedder("features", feature_dim=3)
    model.bundle = model.bundle.model_copy(update={"feature_dim": None})
    model.model = EmbeddingModel(backbone(), dim=4).eval().requires_grad_(False)
    with pytest.raises(InputError) as caught:
        write_graph(model, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert "cannot be exported to " in caught.value.got
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


def test_a_graph_with_other_embeddings_is_not_written(tmp_path, monkeypatch):
    """As if the library had translated a layer wrongly: noise on the check alone."""
    from contml.search import graph

    real = graph._onnx

    def wrong(*arguments):
        save, run = real(*arguments)
        return save, lambda path, given: run(path, given) + 0.01

    monkeypatch.setattr(graph, "_onnx", wrong)
    with refuses("random", got="would differ by 0.01"):
        write_graph(embedder("features", feature_dim=3, normalize=True), tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


def test_a_backbone_of_the_user_needs_trust(refused, tmp_path):
    assert "--trust" in refused("export", OLD / "images", "model", "--format", "onnx")
    assert not Path("model").exists()
