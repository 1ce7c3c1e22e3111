"""The identity of a model: the same wherever it is, another if its embeddings are others. No paths travel with it."""

import getpass
import inspect
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.captioning import described_squares, small_captioner
from support.miniature import TINY
from support.refusals import refuses
from support.runs import without_reports
from support.tables import dials, write_table

import contml
from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import OwnData, evaluate_run, extract_features, load, load_table, read_evaluation, train
from contml.models import EmbeddingModel
from contml.models.identity import identity
from contml.models.network import PixelFormat
from contml.runs import Run, without_paths

FRESH = "import sys, contml; print(contml.load(sys.argv[1], device='cpu').identity)"


# -- the same model ----------------------------------------------------------------------------------------------------


def test_run_bundle_and_copies_are_one_model(trained, exported, tmp_path):
    expected = contml.load(trained.run).identity
    assert len(expected) == 64
    contml.load(exported).save(tmp_path / "bundle of a bundle")
    shutil.copytree(trained.run, tmp_path / "moved")
    for folder in (exported, tmp_path / "bundle of a bundle", tmp_path / "moved"):
        assert contml.load(folder).identity == expected, folder
    assert read_evaluation(Run(trained.run)).identity == expected
    command = [sys.executable, "-c", FRESH, exported]
    assert subprocess.run(command, check=True, stdout=-1, text=True, cwd=tmp_path).stdout.strip() == expected


def model_of(**options):
    torch.manual_seed(0)
    options = {"backbone": "small_cnn", "dim": 4, **options}
    return EmbeddingModel(**options)


@pytest.mark.parametrize("change", [
    lambda model: model.load_state_dict(dict(reversed(model.state_dict().items()))),
    lambda model: model.eval().requires_grad_(False), lambda model: model.to(memory_format=torch.channels_last),
    lambda model: next(model.buffers()).mul_(1), lambda model: model.backbone.layers[1].num_batches_tracked.add_(3),
    lambda model: setattr(model, "freeze_batch_norm", True),
], ids=["order", "mode", "layout of memory", "nothing", "counters of batch norm", "frozen batch norm"])  # fmt: skip
def test_what_changes_no_embedding_is_no_part_of_it(change):
    model = model_of()
    before, images = identity(model, 32, 32), torch.rand(2, 3, 32, 32)
    expected = model.eval()(images)
    change(model)
    assert torch.allclose(model.eval()(images), expected, atol=1e-6)
    assert identity(model, 32, 32) == before


def test_a_captioner_is_its_visual_network_with_words():
    captioner = small_captioner(described_squares())
    network = EmbeddingModel("features", 5, feature_dim=8)
    network.load_state_dict(captioner.network.state_dict())
    assert identity(captioner.network, 1, 1) == identity(network, 2, 2)  # features have no size


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here")
def test_it_is_the_same_on_a_gpu(exported):
    assert contml.load(exported, device="cuda").identity == contml.load(exported, device="cpu").identity


# -- another model -----------------------------------------------------------------------------------------------------


def every_tensor_once(model):
    """Changes one number of one tensor after another."""
    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            flat = tensor.view(-1)
            before = flat[-1].item()
            flat[-1] += 1e-3
            yield name
            flat[-1] = before


def test_each_weight_is_part_of_it():
    model = model_of()
    before = identity(model, 32, 32)
    found = {identity(model, 32, 32) for _ in every_tensor_once(model)}
    assert len(found) == len([name for name in model.state_dict() if not name.endswith("num_batches_tracked")])
    assert before not in found
    assert identity(model, 32, 32) == before


#: Options with which the weights fit, but not the embeddings.
OPTIONS = {"normalize": True, "backbone": "mobilenet_v2", "dim": None, "levels": ["high"], "pooling": "max"}
#: Nested lengths are lengths of other models.
WITHOUT_EFFECT = {"weights", "freeze_batch_norm", "feature_dim", "pretrained", "frozen", "head_start", "nested_dims"}


def test_each_option_that_changes_embeddings_is_part_of_it():
    base = {"backbone": "mobilenet_v2", "levels": ["middle"]}
    expected = identity(model_of(**base), 32, 32)
    for name, value in OPTIONS.items():
        assert identity(model_of(**{**base, name: "small_cnn" if name == "backbone" else value}), 32, 32) != expected
    parameters = inspect.signature(EmbeddingModel).parameters
    assert OPTIONS.keys() | WITHOUT_EFFECT == parameters.keys()  # a new option: which is it?


def test_levels_in_another_order_are_another_model():
    swapped = [model_of(levels=levels) for levels in (["low", "high"], ["high", "low"])]
    assert identity(swapped[0], 32, 32) != identity(swapped[1], 32, 32)


def test_size_and_format_of_pixels_are_part_of_it():
    model = model_of()
    found = [identity(model, 32, 32), identity(model, 36, 32), identity(model, 36, 36)]
    model.mean = model.mean + 0.01
    found.append(identity(model, 32, 32))
    model.std = model.std * 2
    found.append(identity(model, 32, 32))
    for name, value in {"order": "BGR", "maximum": 255}.items():
        model.pixel_format = PixelFormat()._replace(**{name: value})
        found.append(identity(model, 32, 32))
    found += [identity(EmbeddingModel("features", None, feature_dim=length), 8, 8) for length in (8, 9)]
    assert len(set(found)) == len(found)


def test_the_transform_of_a_bundle_is_part_of_it(bundle):
    before = contml.load(bundle).identity
    record = json.loads((bundle / "bundle.json").read_text())
    record["transform"]["resize"] += 4
    (bundle / "bundle.json").write_text(json.dumps(record))
    assert contml.load(bundle).identity != before


# -- where models are compared -----------------------------------------------------------------------------------------


def test_weights_that_the_run_did_not_evaluate_are_refused_until_it_does(trained, tmp_path):
    run = Run(shutil.copytree(trained.run, tmp_path / "run"))
    file = run.checkpoints / "best.safetensors"
    tensors, values = load_tensors(file)
    save_tensors(file, {**tensors, "head.weight": tensors["head.weight"] * 2}, **values)
    with refuses(str(file), got="not the model that the run evaluated", hint=f"contml evaluate {run.folder}"):
        contml.load(run.folder)
    evaluate_run(run.folder)
    model = contml.load(run.folder)
    assert read_evaluation(run).identity == model.identity != contml.load(trained.run).identity


def test_features_are_not_mixed_with_those_of_other_weights_in_the_same_file(tmp_path, monkeypatch):
    from contml.evaluation import embed_parts

    monkeypatch.setattr(embed_parts, "_PART", 10)
    file, out = tmp_path / "weights.safetensors", tmp_path / "features.npz"
    experiment = load("pose/synthetic", [*TINY, f"model.weights={file}"])

    def stop(count):
        if count >= 20:
            raise KeyboardInterrupt

    def weights(seed):
        torch.manual_seed(seed)
        save_tensors(file, EmbeddingModel("small_cnn", 8).state_dict())

    weights(0)
    with pytest.raises(KeyboardInterrupt):
        extract_features(experiment, out, stop)
    weights(1)
    assert extract_features(experiment, out).resumed == 0
    out.rename(tmp_path / "first.npz")
    with pytest.raises(KeyboardInterrupt):
        extract_features(experiment, out, stop)
    file.rename(tmp_path / "moved.safetensors")
    moved = load("pose/synthetic", [*TINY, f"model.weights={tmp_path / 'moved.safetensors'}"])
    assert extract_features(moved, out).resumed == 20  # the same weights elsewhere
    assert np.array_equal(np.load(out)["features"], np.load(tmp_path / "first.npz")["features"])


# -- no paths ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def from_a_home(tmp_path_factory):
    """A run on data, weights, caches and features below a folder of a user."""
    home = tmp_path_factory.mktemp("home") / "alice.secret"
    table = write_table(home / "private" / "dials.csv", dials(home / "private"))
    torch.manual_seed(0)
    save_tensors(home / "start.safetensors", EmbeddingModel("small_cnn", 4).state_dict())
    size = ["images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "model.dim=4"]
    rest = ["sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=2"]
    rest += [f"images.cache={home / 'cache'}", f"sampler.cache={home / 'neighbours'}"]
    rest += ["training.epochs=1", f"model.weights={home / 'start.safetensors'}"]
    experiment = load_table(OwnData(table, ("reading=number",)), None, [*size, *rest])
    with without_reports():
        return home, train(experiment, home / "runs")


def everything(path):
    """The content of a file, of a zip archive also that of its members."""
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def has_no_path(*files):
    secrets = ("alice.secret", "private", str(Path(contml.__file__).parents[1]), f"/home/{getpass.getuser()}")
    for path in files:
        for content in everything(path):
            for secret in secrets:
                assert secret.encode() not in content, (path, secret)


@pytest.mark.slow
def test_no_path_travels(from_a_home, tmp_path):
    home, run = from_a_home
    contml.load(run.folder).save(tmp_path / "model")
    files = [*(tmp_path / "model").iterdir(), *run.folder.rglob("*.safetensors"), run.evaluation()]
    names = {path.name for path in files}
    assert {"best.safetensors", "state.safetensors", "test.safetensors", "model.safetensors"} <= names
    has_no_path(*files)
    assert str(home) in run.config.read_text()  # which stays here


def test_a_config_without_paths():
    config = {
        "task": {"name": "birds:wingspans", "root": "/home/alice/birds", "data": "birds/items.csv", "separator": "/"},
        "model": {"backbone": "timm:hf-hub:timm/resnet18", "weights": "~/weights/a.pth", "dim": None},
        "images": {"features": "/data/alice/f.npz", "cache": "cache", "workers": 4, "crop": 64},
        "loss": {"name": "log_ratio", "files": ["/a/b.npz", "C:\\alice\\c.npz", "../alice/d.npz"]},
        "binarize": {"cache": "../cache"},
        "training": {"tracker": "wandb"},
        "published": {"source": "table 1/2"},
        "seed": 3,
    }
    assert without_paths(config) == {
        "task": {"name": "birds:wingspans", "root": None, "data": None, "separator": "/"},
        "model": {"backbone": "timm:hf-hub:timm/resnet18", "weights": None, "dim": None},
        "images": {"features": "f.npz", "cache": "cache", "workers": 4, "crop": 64},
        "loss": {"name": "log_ratio", "files": ["b.npz", "c.npz", "d.npz"]}, "binarize": {"cache": None},
        "training": {"tracker": "wandb"}, "published": {"source": "table 1/2"}, "seed": 3,
    }  # fmt: skip
    assert without_paths(without_paths(config)) == without_paths(config)
