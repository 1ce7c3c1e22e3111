"""A trained model in use: the embeddings of the run in a fresh process, from every form of image; and misuse."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.miniature import TINY
from support.refusals import refuses
from support.runs import from_text

import contml
from contml import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import evaluate_run, load as load_config, read_evaluation, train
from contml.data import ImageFile
from contml.models.network import PixelFormat
from contml.runs import Run
from contml.search import Calibration

OLD = Path(__file__).parent / "format_1"

FRESH = """
import sys
import numpy as np, contml
images, *folders = sys.argv[1:]
for folder in folders:
    np.save(folder + ".npy", contml.load(folder, device="cpu").embed(images))
assert "contml.app.experiment" not in sys.modules and not any(name.startswith("contml.tasks") for name in sys.modules)
"""


@pytest.mark.slow
def test_a_fresh_process_without_the_data_has_the_embeddings_of_the_run(trained, exported, tmp_path):
    run, bundle = (shutil.copytree(folder, tmp_path / folder.name) for folder in (trained.run, exported))
    for name in ("data.safetensors", "metrics.jsonl", "embeddings"):  # not needed
        (run / name).rename(tmp_path / name)
    subprocess.run([sys.executable, "-c", FRESH, trained.images, run, bundle], check=True, cwd=tmp_path)
    for folder in (run, bundle):
        found = np.load(f"{folder}.npy")
        assert found.dtype == np.float32
        assert np.abs(found - trained.embeddings).max() <= 1e-6


@pytest.fixture(scope="module")
def model(exported):
    return contml.load(exported, device="cpu")


def frames(pictures):
    """A generator that changes what it gave, as a reader of a video does."""
    buffer = np.empty_like(pictures[0])
    for pixels in pictures:
        buffer[:] = pixels
        yield buffer


def inputs(folder, pictures):
    paths = sorted(folder.iterdir())
    return {
        "folder": folder, "paths": paths, "texts": np.array([str(path) for path in paths]),
        "pictures": [Image.fromarray(pixels) for pixels in pictures], "arrays": pictures,
        "one array": np.stack(pictures), "generator": frames(pictures),
        "sources": [ImageFile(path) for path in paths],
        "mix": [paths[0], pictures[1], Image.fromarray(pictures[2]), ImageFile(paths[3]), str(paths[4]), *paths[5:]],
    }  # fmt: skip


FORMS = ["folder", "paths", "texts", "pictures", "arrays", "one array", "generator", "sources", "mix"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_images(model, trained, pictures, form, workers):
    found = model.embed(inputs(trained.images, pictures)[form], workers=workers)
    assert np.abs(found - trained.embeddings).max() <= 1e-6


def test_one_image_and_none(model, trained, pictures):
    path = min(trained.images.iterdir())
    for one in (path, str(path), pictures[0], Image.fromarray(pictures[0]), ImageFile(path), [path], iter([path])):
        found = model.embed(one)
        assert found.shape == (1, model.embedding_dim)
        assert np.allclose(found, trained.embeddings[:1], atol=1e-5)
    for none in ([], (), iter([]), np.empty((0, 8, 8, 3), np.uint8)):
        assert model.embed(none).shape == (0, model.embedding_dim)
        assert model.embed(none).dtype == np.float32


# -- broken images and misuse ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_an_error_or_a_row_of_nan(model, trained, tmp_path, lazy, workers):
    (tmp_path / "text.png").write_text("no image")
    paths = [*sorted(trained.images.iterdir())[:3], tmp_path / "text.png", tmp_path / "gone.png"]

    def given():
        return (path for path in paths) if lazy else paths

    with refuses(str(tmp_path / "text.png"), got="cannot be decoded", hint='set broken="skip" to leave out broken'):
        model.embed(given(), workers=workers)
    found = model.embed(given(), broken="skip", batch_size=2, workers=workers)
    assert np.allclose(found[:3], trained.embeddings[:3], atol=1e-5)
    assert np.isnan(found[3:]).all()
    assert [*model.left_out] == [str(path) for path in paths[3:]]
    model.embed(paths[:3])
    assert not model.left_out
    assert np.isnan(model.embed([tmp_path / "gone.png"], broken="skip")).all()


MISUSE = {
    "a typo in the path": (lambda _: "phtos", "phtos", "no such file"),
    "an array of int": (lambda p: p[0].astype(int), "image 0", "int64"),
    "a tensor": (lambda p: torch.from_numpy(p[0].copy()), "image 0", "a Tensor torch.uint8"),
    "bytes": (lambda _: b"\x89PNG", "image 0", "a bytes"),
    "None": (lambda _: None, "image 0", "a NoneType"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_what_is_no_image_is_one_line(model, pictures, name):
    given, subject, got = MISUSE[name]
    with refuses(subject, got=got):
        model.embed(given(pictures))


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"workers": -1}, {"broken": "ignore"}])
def test_wrong_options(model, options):
    with refuses(*options):
        model.embed([], **options)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_neither_run_nor_bundle(tmp_path, trained):
    with refuses(str(tmp_path / "modle"), got="no such folder"):
        contml.load(tmp_path / "modle")
    with refuses(str(tmp_path), got="neither a run folder nor a bundle", hint="contml export"):
        contml.load(tmp_path)
    run = shutil.copytree(trained.run, tmp_path / "run")
    (run / "evaluation.json").unlink()
    with refuses(str(run), got="not evaluated", hint=f"contml evaluate {run}"):
        contml.load(run)


def changed(**values):
    def change(folder):
        path = folder / "bundle.json"
        record = json.loads(path.read_text())
        for key, value in values.items():
            *outer, last = key.split("__")
            place = reduce(getitem, outer, record)
            place[last] = value
            if value is ...:
                del place[last]
        path.write_text(json.dumps(record))

    return change


DAMAGE = {
    **{f"no {key}": changed(**{key: ...}) for key in ("format", "name", "sha256", "feature_dim", "transform", "unit")},
    **{f"format {value}": changed(format=value) for value in (0, -1, 2, 99, "1", None, 1.5, True)},
    "sha256": changed(sha256="0" * 64), "unknown key": changed(surplus=1), "features": changed(feature_dim=4),
    "crop": changed(transform__crop=33), "resize": changed(transform__resize=10**9),
    "order": changed(transform__pixels__order="GBR"), "std": changed(transform__pixels__std=[1, 1, 0]),
    "calibration": changed(calibration__distances=[3, 2, 1]),
    "falling calibration": changed(
        calibration__distances=[1.0, 2.0], calibration__estimates=[9.0, 2.0], calibration__margins=[1.0, 1.0]
    ),
    "a list": lambda folder: (folder / "bundle.json").write_text("[1]"),
    "nested": lambda folder: (folder / "bundle.json").write_text("[" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_bundle_is_one_line(bundle, name):
    DAMAGE[name](bundle)
    with refuses(str(bundle) if name != "features" else "backbone"):
        contml.load(bundle)


def test_a_later_format_names_the_version_to_install(bundle):
    changed(format=2, versions={"contml": "7.1"})(bundle)
    with refuses(str(bundle), got="format 2", hint="install contml 7.1"):
        contml.load(bundle)


def test_weights_that_are_not_those_of_the_bundle(bundle, trained, tmp_path):
    weights = bundle / "model.safetensors"
    tensors, values = load_tensors(weights)
    save_tensors(weights, {name: tensor + 1 for name, tensor in tensors.items()}, **values)  # of another training
    with refuses(str(weights), got="not the weights of"):
        contml.load(bundle)
    shutil.copy(OLD / "features" / "model.safetensors", weights)  # of another model
    with refuses(str(weights), got="not the weights of"):
        contml.load(bundle)
    content = bytearray((trained.run / "checkpoints" / "best.safetensors").read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with refuses(str(weights), got="damaged"):
        contml.load(bundle)
    weights.unlink()
    with refuses(str(weights), got="no such file"):
        contml.load(bundle)


def with_options(bundle, change):
    """The bundle with changed options of the model, and the hash of the new file."""
    from contml.search.bundle import _sha256

    weights = bundle / "model.safetensors"
    tensors, values = load_tensors(weights)
    change(tensors, values)
    save_tensors(weights, tensors, **values)
    changed(sha256=_sha256(weights))(bundle)


OPTIONS = {
    "no config": (lambda _, values: values.pop("config"), "no options"),
    "unknown backbone": (lambda _, values: values["config"]["model"].update(backbone="small_cn"), "small_cn"),
    "unknown option": (lambda _, values: values["config"]["model"].update(dims=3), "unknown key"),
    "type": (lambda _, values: values["config"]["model"].update(dim="8"), '8'),
    "another dim": (lambda _, values: values["config"]["model"].update(dim=9), "does not fit"),
    "no head": (lambda tensors, _: tensors.pop("head.weight"), "does not fit"),
    "huge": (lambda _, values: values["config"]["model"].update(dim=10**15), ""),
    "integers": (lambda tensors, _: tensors.update({"head.bias": tensors["head.bias"].long()}), "head.bias is int64"),
    "NaN": (lambda tensors, _: tensors["head.bias"].fill_(float("nan")), "head.bias has numbers that are not finite"),
}  # fmt: skip


def test_embeddings_that_are_not_finite_are_refused_or_left_out(bundle, pictures):
    with_options(bundle, lambda tensors, _: tensors["head.weight"].fill_(3e38))
    model = contml.load(bundle)
    with refuses("image 0", got="its embedding is not finite", hint="train the model again"):
        model.embed(pictures[:2])
    model.embed(pictures[:2], broken="skip")
    assert model.left_out == dict.fromkeys(("image 0", "image 1"), "its embedding is not finite")


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_do_not_fit_the_weights_are_one_line(bundle, name):
    change, got = OPTIONS[name]
    with_options(bundle, change)
    with pytest.raises(InputError) as caught:
        contml.load(bundle)
    assert got in caught.value.got
    assert "\n" not in str(caught.value)


def test_the_error_says_with_which_versions_the_model_was_trained(bundle):
    with_options(bundle, OPTIONS["another dim"][0])
    changed(versions={"contml": "0.0.1", "torchvision": "0.1"})(bundle)
    with refuses(str(bundle), got="does not fit", hint="contml 0.0.1, torchvision 0.1"):
        contml.load(bundle)


# -- the code of a user ------------------------------------------------------------------------------------------------


def test_a_backbone_of_the_user_is_imported_only_with_trust(tmp_path, monkeypatch):
    folder = shutil.copytree(OLD / "images", tmp_path / "model")
    with_options(folder, lambda _, values: values["config"]["model"].update(backbone="own_network:network"))
    (tmp_path / "own_network.py").write_text(
        "open('imported', 'w').close()\n"
        "from torch import nn\n"
        "def network() -> nn.Module:\n    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with refuses(str(folder), got="own_network:network", hint="trust=True"):
        contml.load(folder)
    assert "own_network" not in sys.modules
    assert not (tmp_path / "imported").exists()
    found = contml.load(folder, trust=True).embed(np.zeros((9, 9, 3), np.uint8))
    assert (tmp_path / "imported").exists()
    assert found.shape == (1, 4)
    monkeypatch.delitem(sys.modules, "own_network")


@pytest.mark.parametrize("backbone", ["os:system", "support.models:images", "nowhere:network"])
def test_code_that_is_no_backbone_is_not_called(tmp_path, backbone):
    folder = shutil.copytree(OLD / "images", tmp_path / "model")
    with_options(folder, lambda _, values: values["config"]["model"].update(backbone=backbone))
    with refuses("model.backbone", got=backbone):
        contml.load(folder, trust=True)


# -- models of every kind ----------------------------------------------------------------------------------------------

MODELS = {
    "levels": ["model.levels=[low,middle,high]", "model.normalize=true"],
    "pooling": ["model.backbone=mobilenet_v2", "model.levels=[high]", "model.pooling=average_max"],
    "no head": ["model.dim=null"], "last weights": ["training.select=none"],
    "bfloat16": ["training.precision=bfloat16"], "untrained": ["training.epochs=0"], "classes": ["CLASSES"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("no_reports")
def test_models_of_every_kind_embed_as_their_runs_did(tmp_path, name):
    changes = MODELS[name]
    if changes == ["CLASSES"]:
        loss = "loss: {name: triplet_margin, distance: squared_euclidean}"
        run = train(from_text(tmp_path, True, loss), tmp_path / "runs")
        task = load_config(str(tmp_path / "own.yaml")).build_task()
    else:
        experiment = load_config("pose/synthetic", [*TINY, "training.epochs=1", *changes])
        run, task = train(experiment, tmp_path / "runs"), experiment.build_task()
    pictures = [np.asarray(task.test.image(row)) for row in range(len(task.test))]
    contml.load(run.folder).save(tmp_path / "model")
    saved = load_tensors(run.embeddings("test"))[0]["embeddings"].numpy()
    for folder in (run.folder, tmp_path / "model"):
        model = contml.load(folder)
        assert np.abs(model.embed(pictures) - saved).max() <= 1e-6
        assert model.unit == task.test.labels.unit
        assert model.embedding_dim == saved.shape[1]
        evaluated = read_evaluation(run)
        assert (model.bundle.checkpoint, model.bundle.epoch) == (evaluated.checkpoint, evaluated.epoch)


def test_a_model_of_features_takes_vectors():
    model, vectors = contml.load(OLD / "features"), np.arange(40, dtype=np.float32).reshape(5, 8) / 10
    expected = model.embed(vectors)
    for given in (list(vectors), iter(vectors), vectors.astype(np.float64)):
        assert np.abs(model.embed(given) - expected).max() <= 1e-6
    assert model.embed(vectors[0]).shape == (1, expected.shape[1])
    for wrong, got in (
        ("photo.jpg", "a str"), (np.zeros((8, 8, 3), np.uint8), "uint8 [8, 3]"),
        (vectors[:, :5], "[5]"), (np.full_like(vectors, np.nan), "not finite"), ([3], "a int"),
    ):  # fmt: skip
        with refuses("item 0", got=got):
            model.embed(wrong)


# -- older files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["features", "images"])
def test_a_bundle_of_format_1_is_read_forever(name):
    """These files stay as they are. If this test fails, read the older format, or say in one line what to do."""
    model = contml.load(OLD / name, trust=True)
    if name == "features":
        given = np.arange(40, dtype=np.float32).reshape(5, 8) / 10
        estimate, low, high = model.label_distance([2.0, 4.0])
        assert estimate == pytest.approx([2.062708, 4.070933], abs=1e-6)
        assert (low < estimate).all()
        assert (estimate < high).all()
    else:
        given = (np.arange(2 * 20 * 15 * 3) % 251).astype(np.uint8).reshape(2, 20, 15, 3)
        with refuses("old/images", got="no calibration"):
            model.label_distance(1.0)
    expected = json.loads((OLD / name / "expected.json").read_text())
    assert np.abs(model.embed(given) - np.array(expected)).max() <= 1e-6
    assert (model.unit, model.bundle.epoch) == ("years", 3)


def older(run):
    """The run as an older version wrote it: without an option, versions, calibration and identity."""
    values = json.loads(Run(run).evaluation().read_text())
    del values["identity"]
    Run(run).evaluation().write_text(json.dumps(values))
    for path in [*run.glob("checkpoints/*.safetensors"), *run.glob("embeddings/*.safetensors")]:
        tensors, values = load_tensors(path)
        values.pop("versions", None)
        for config in (values.get("config"), values.get("numbers", {}).get("config")):
            if config is not None:
                del config["model"]["pooling"]
                del config["transform"]
        save_tensors(path, tensors, **values)
    (run / "calibration.json").unlink()
    lines = (run / "config.yaml").read_text().splitlines()
    start = lines.index("transform:")
    end = next(n for n in range(start + 1, len(lines)) if not lines[n].startswith(" "))
    (run / "config.yaml").write_text("\n".join(line for line in lines[:start] + lines[end:] if "pooling" not in line))
    return run


def test_a_run_without_newer_options_loads_and_is_calibrated_when_evaluated(trained, pictures, tmp_path):
    run = older(shutil.copytree(trained.run, tmp_path / "run"))
    model = contml.load(run)
    assert model.bundle.versions == {}
    assert np.abs(model.embed(pictures) - trained.embeddings).max() <= 1e-6
    assert model.identity == contml.load(trained.run).identity
    before = read_evaluation(Run(run))
    assert before.identity == ""
    assert evaluate_run(run) == replace(before, identity=model.identity)
    assert contml.load(run).bundle.calibration == Calibration.read(Run(run).calibration)
    assert contml.load(run).bundle.calibration is not None
    text = (run / "config.yaml").read_text()
    frozen = "  freeze_batch_norm: false"
    # A newer option with another value, and a changed one.
    changes = {"model.pooling": f"{frozen}\n  pooling: max", "model.freeze_batch_norm": "  freeze_batch_norm: true"}
    for key, new in changes.items():
        (run / "config.yaml").write_text(text.replace(frozen, new))
        with refuses(str(run), got=key):
            evaluate_run(run)


def test_pixels_are_those_of_the_bundle_not_of_the_installed_backbone(bundle, pictures):
    expected = contml.load(bundle).embed(pictures[:4])
    changed(transform__pixels={"mean": [0, 0, 0], "std": [1, 1, 1], "maximum": 255, "order": "BGR"})(bundle)
    model = contml.load(bundle)
    assert model.model.pixel_format == PixelFormat((0, 0, 0), (1, 1, 1), 255, "BGR")
    assert not np.allclose(model.embed(pictures[:4]), expected, atol=0.1)
    given = torch.from_numpy(np.stack(pictures[:4])).permute(0, 3, 1, 2)
    size = model.bundle.transform.crop
    assert given.shape[2:] == (size, size)  # neither resized nor cropped
    with torch.no_grad():
        slow = model.model.head(model.model.backbone(given.float().flip(1)))
    assert np.allclose(model.embed(pictures[:4]), slow.numpy(), rtol=1e-4, atol=1e-4)


# -- the bundle --------------------------------------------------------------------------------------------------------


def test_a_bundle_says_what_the_run_knows_and_hides_its_paths(trained, exported):
    drawn = torch.get_rng_state()
    run, model = contml.load(trained.run), contml.load(exported)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.bundle.calibration == run.bundle.calibration == Calibration.read(Run(trained.run).calibration)
    assert model.bundle.calibration.check.queries == 6
    assert model.bundle.versions["contml"] == contml.__version__
    assert {"torch", "torchvision", "pillow"} <= model.bundle.versions.keys()
    assert repr(model) == repr(run)
    assert "32 x 32 pixels to 8 numbers; label distance: pixels" in repr(model)
    estimate, low, high = model.label_distance([[3.0, 4.0]])
    assert estimate.shape == low.shape == high.shape == (1, 2)
    files = ["bundle.json", "labels.safetensors", "model.safetensors"]
    assert sorted(path.name for path in exported.iterdir()) == files
    for path in exported.iterdir():
        assert str(trained.run.parent).encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_bundle_is_not_written_over_another_or_a_run(bundle, trained):
    model = contml.load(trained.run)
    for tensor in model.model.parameters():
        tensor.data += 1
    with refuses("labels.safetensors", got="another model", hint="labels=False"):
        model.save(bundle)
    for folder in (bundle, trained.run):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with refuses(str(folder), got="already", hint="another folder"):
            model.save(folder, labels=False)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_does_not_exist(exported):
    with refuses("device", got="cuda"):
        contml.load(exported, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here")
def test_on_a_gpu(exported, trained):
    model = contml.load(exported, device="cuda")
    assert np.allclose(model.embed(trained.images), trained.embeddings, rtol=1e-3, atol=1e-3)
    assert np.abs(model.to("cpu").embed(trained.images) - trained.embeddings).max() <= 1e-6
