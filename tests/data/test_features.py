"""Features in place of images: written, read, trained on; an interrupted extraction resumes."""

import dataclasses
import os
import sys
from random import Random

import numpy as np
import pytest
import torch
from fuzz.mutations import bytes_changed
from support.refusals import refused, refuses

from contml import InputError, NumberLabels
from contml.app.experiment import extract_features, load
from contml.data import ImageFile, Images, Pixels, Split, Task, Vector
from contml.data.features import read_features, with_features, write_features
from contml.evaluation.embed_parts import Parts

SMALL = ["task.train=40", "task.val=20", "task.test=210", "task.size=32", "images.resize=32", "images.crop=32"]
HEAD = [*SMALL, "model.dim=8", "sampler.batch_size=12", "sampler.anchors_per_batch=2", "sampler.batches=5"]


def a_split(names, first=0):
    labels = NumberLabels(torch.arange(first, first + len(names)))
    return Split([Pixels(np.zeros((8, 8, 3), np.uint8)) for _ in names], names, labels)


def a_task():
    return Task(a_split(["/data/a/1.jpg", "/data/a/2.jpg", "/data/b/1.jpg"]), a_split(["/data/b/2.jpg", "/data/c.jpg"]))


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_features_are_read_as_they_were_written(tmp_path, ending):
    values = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    task, path = a_task(), tmp_path / f"features{ending}"
    names = [*task.train.names, *task.test.names]
    order = range(5) if ending == ".npy" else [3, 1, 4, 0, 2]  # vectors are matched by name
    write_features(path, [names[i] for i in order], ["train"] * 5, values[list(order)])
    found = with_features(task, path)
    assert found.train.feature_dim == found.test.feature_dim == 7
    rows = [found.train.image(row) for row in range(3)] + [found.test.image(row) for row in range(2)]
    assert np.array_equal(np.stack(rows), values)
    assert task.train.feature_dim is None


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_a_damaged_file_is_one_error(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / f"f{ending}"
    write_features(path, list("abc"), ["train"] * 3, np.arange(12, dtype=np.float32).reshape(3, 4))
    whole, random = path.read_bytes(), Random(3)
    for _ in range(100):
        path.write_bytes(bytes_changed(whole, random))
        try:
            assert np.isfinite(read_features(path).values).all()
        except InputError as error:
            assert error.subject == str(path)  # noqa: PT017


def test_a_small_file_of_features_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "f.npz"
    np.savez_compressed(path, names=np.array(["a"]), features=np.zeros((1, 10_000_000)))
    refused(lambda: read_features(path), str(path), got="unpacks to 76 MB")
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000000), }"
    path = tmp_path / "f.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    refused(lambda: read_features(path), str(path), got="not a file of features")


def test_names_are_compared_below_their_shared_folder(tmp_path, capsys):
    task, values = a_task(), np.arange(10, dtype=np.float32).reshape(5, 2)
    elsewhere = [name.replace("/data", "/home/me/copy") for name in (*task.train.names, *task.test.names)]
    write_features(tmp_path / "f.npz", elsewhere, ["train"] * 5, values)
    assert with_features(task, tmp_path / "f.npz").test.image(1).tolist() == [8, 9]
    line = f"{tmp_path / 'f.npz'}: its names (below /home/me/copy) are the names of the items (below /data)\n"
    assert capsys.readouterr().err == line


def test_vectors_of_no_item_are_counted(tmp_path, capsys):
    task, values = a_task(), np.arange(14, dtype=np.float32).reshape(7, 2)
    write_features(tmp_path / "f.npz", ["x", *task.train.names, "y", *task.test.names], None, values)
    assert with_features(task, tmp_path / "f.npz").test.image(1).tolist() == [12, 13]
    assert capsys.readouterr().err == f"{tmp_path / 'f.npz'}: 2 of 7 vectors are of no item, and not used\n"


@pytest.mark.parametrize(("names", "values", "got"), [
    (["/data/a/1.jpg"], np.ones((1, 2)), "/data/a/1.jpg (5 of 5 items are missing)"),
    (["/data/a/1.jpg", "a/1.jpg"], np.eye(2), "/data/a/2.jpg (4 of 5 items are missing)"),
    (["a", "b", "a"], np.eye(3), "features[0] and features[2] have the same name, a"),
    (["a", "b"], np.array([[1, np.nan], [1, 1]]), "features of a are not finite"),
    (["a", "b"], np.ones(2), "float64 [2]"),
])  # fmt: skip
def test_files_that_do_not_fit(tmp_path, names, values, got):
    np.savez(tmp_path / "f.npz", names=np.array(names), features=values)
    refused(lambda: with_features(a_task(), tmp_path / "f.npz"), "f.npz", got=got)


def test_files_that_are_no_features(tmp_path):
    refused(lambda: read_features(tmp_path / "none.npz"), "none.npz", got="no such file", hint="contml features")
    with refuses("f.txt", got="'.txt'", allowed=".npz, .npy, .parquet or .safetensors"):
        read_features(tmp_path / "f.txt")
    with refuses(str(tmp_path), "a folder", "must be a file that ends in .npz, .npy, .parquet or .safetensors"):
        read_features(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK not a file")
    refused(lambda: read_features(tmp_path / "broken.npz"), "broken.npz", got="not a readable file of arrays")
    np.save(tmp_path / "few.npy", np.eye(4))
    refused(lambda: with_features(a_task(), tmp_path / "few.npy"), "few.npy", got="4 vectors for 5 items")


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_items_may_share_a_name_if_the_file_has_the_items_in_order(tmp_path, ending):
    """Several items can be cut from one file, or a file can be in both splits."""
    task = Task(a_split(["/data/a.jpg", "/data/a.jpg", "/data/b.jpg"]), a_split(["/data/a.jpg", "/data/c.jpg"]))
    values, path = np.arange(10, dtype=np.float32).reshape(5, 2), tmp_path / f"f{ending}"
    names = [name.replace("/data", "/moved") for name in (*task.train.names, *task.test.names)]
    write_features(path, names, ["train"] * 3 + ["test"] * 2, values)
    found = with_features(task, path)
    rows = [found.train.image(row) for row in range(3)] + [found.test.image(row) for row in range(2)]
    assert np.array_equal(np.stack(rows), values)
    if ending != ".npy":
        part = Task(a_split(["/data/a.jpg", "/data/b.jpg"]), task.test)  # which vector is which is not known
        with refuses(path.name, got="features[0] and features[1] have the same name, /moved/a.jpg"):
            with_features(part, path)


def test_a_split_has_images_or_vectors_of_one_length():
    labels = NumberLabels(torch.arange(2))
    vector = Vector(np.ones(3, np.float32))
    for images, lengths in (([vector, Vector(np.ones(4, np.float32))], "[[3], [4]]"),
                            ([vector, Pixels(np.zeros((4, 4, 3), np.uint8))], "[[], [3]]")):  # fmt: skip
        with refuses("split", got=lengths, allowed="features of one shape"):
            Split(images, ["a", "b"], labels)


def test_pictures_of_features_are_those_of_their_images(tmp_path):
    pixels = np.full((8, 8, 3), 77, np.uint8)
    vectors = [Vector(np.ones(3, np.float32), Pixels(pixels)), Vector(np.ones(3, np.float32))]
    split = Split(vectors, ["a", "b"], NumberLabels(torch.arange(2)))
    assert np.array_equal(np.asarray(split.picture(0)), pixels)
    assert split.draw(1, 20).size == (20, 20)  # blank
    assert next(iter(Images(resize=8, crop=8, cache=tmp_path).test_batches(split, None, 2))).images.shape == (2, 3)
    assert not list(tmp_path.iterdir())  # nothing is cached


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    """A file of the features of a drawn data set."""
    out = tmp_path_factory.mktemp("features") / "features.npz"
    found = extract_features(load("pose/synthetic", SMALL), out)
    assert (found.items, found.dim, found.resumed) == (270, 1024, 0)
    return out


def test_a_head_on_features_equals_the_whole_model(extracted):
    """Features of the frozen backbone and its head, against the backbone with the same head: the same embeddings."""
    whole = load("pose/synthetic", SMALL)
    task = whole.build_task()
    model = whole.build_model(task).eval()
    on_features = load("pose/synthetic", [*SMALL, f"images.features={extracted}", "model.backbone=features"])
    vectors = on_features.build_task()
    head = on_features.build_model(vectors).eval()
    head.head.load_state_dict(model.head.state_dict())
    pixels = next(iter(whole.build_images().test_batches(task.test, range(10), 10))).images
    values = next(iter(on_features.build_images().test_batches(vectors.test, range(10), 10))).images
    torch.testing.assert_close(head(values), model(pixels), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("changes", "subject", "got"), [
    (["model.backbone=features"], "backbone", "features"), (["images.features=FILE"], "backbone", "small_cnn"),
    (["images.features=FILE", "model.backbone=features", "model.weights=DEFAULT"], "weights", "DEFAULT"),
])  # fmt: skip
def test_options_that_do_not_fit_the_data(extracted, changes, subject, got):
    changes = [change.replace("FILE", str(extracted)) for change in changes]
    experiment = load("pose/synthetic", [*HEAD, *changes])
    refused(lambda: experiment.build_trainer(experiment.build_task(), quiet=True), subject, got)


def test_an_interrupted_extraction_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr("contml.evaluation.embed_parts._PART", 64)
    experiment, out = load("pose/synthetic", SMALL), tmp_path / "f.npz"
    seen = []

    def stop(finished):
        seen.append(finished)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(experiment, out, stop)
    assert not out.exists()
    other = load("pose/synthetic", [*SMALL, "seed=1"])  # other weights: its parts are not reused
    assert extract_features(other, tmp_path / "g.npz").resumed == 0
    assert extract_features(experiment, out).resumed == seen[-1]
    whole = extract_features(experiment, tmp_path / "whole.npz")
    assert whole.resumed == 0
    assert np.array_equal(read_features(out).values, read_features(tmp_path / "whole.npz").values)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = out.read_bytes()
    assert extract_features(experiment, out)[:2] == whole[:2]  # it is complete
    refused(lambda: extract_features(other, out), str(out), "exists already")
    assert out.read_bytes() == before


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_file_says_what_it_was_made_from(tmp_path, monkeypatch, suffix):
    out = tmp_path / f"f{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", lambda _: sys.exit(9))  # stands for SIGKILL
        with pytest.raises(SystemExit):
            extract_features(load("pose/synthetic", SMALL), out)
    before, values = out.read_bytes(), read_features(out).values
    assert (tmp_path / f".{out.name}.parts").is_dir()
    assert extract_features(load("pose/synthetic", SMALL), out) == (*values.shape, 0)
    assert [*tmp_path.iterdir()] == [out]
    refused(lambda: extract_features(load("pose/synthetic", [*SMALL, "seed=1"]), out), str(out), "exists already")
    assert out.read_bytes() == before
    write_features(out, ["a"], ["train"], values[:1])  # by another program
    refused(lambda: extract_features(load("pose/synthetic", SMALL), out), str(out), "exists already")


def test_a_broken_image_is_named(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    experiment = load("pose/synthetic", SMALL)
    task = experiment.build_task()
    images = [*task.test.images[:3], ImageFile(tmp_path / "broken.png")]
    test = Split(images, [*task.test.names[:3], "broken.png"], task.test.labels[range(4)].as_root())
    with refuses("broken.png", got="cannot be decoded"):
        extract_features(dataclasses.replace(experiment, task=Task(task.train, test)), tmp_path / "f.npz")
