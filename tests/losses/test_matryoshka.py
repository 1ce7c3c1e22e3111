"""Matryoshka: any loss for the first numbers of an embedding, in Python, in a config, and in the commands."""

import json

import numpy as np
import pytest
import torch
from support import reference, reference_pairs
from support.choices import pairwise
from support.losses import value_and_gradients
from support.miniature import TINY
from support.refusals import refused, refuses
from support.runs import assert_resumes, from_text

import contml as library
from contml import MatryoshkaLoss
from contml.app.experiment import load, train
from contml.data.features import read_features
from contml.labels import ClassLabels, VectorLabels
from contml.losses import LOSSES, CrossBatchMemory, LogRatioLoss
from contml.losses.levels import LevelLosses
from contml.models import EmbeddingModel
from contml.models.identity import identity
from contml.search import Index

DIMS = (2, 3, 5)


def items(count=9, seed=0):
    x = torch.randn(count, DIMS[-1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def unit(x):
    return torch.stack([row / torch.sqrt(sum(number**2 for number in row)) for row in x])


# -- the loss ----------------------------------------------------------------------------------------------------------

POINTS = torch.rand(9, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
DISTANCES = torch.cdist(POINTS, POINTS).float().double()
CLASSES = ClassLabels([0, 0, 1, 1, 2, 2, 0, 1, 2])
LOOPS = {
    "log_ratio": reference.log_ratio,
    "dense_triplet": reference.dense_triplet,
    "multi_similarity": lambda e, _, a: reference_pairs.multi_similarity(e, CLASSES.class_ids, a),
}


@pytest.mark.parametrize(("name", "anchors", "normalize"), pairwise(LOOPS, [None, [4, 0, 7]], [False, True]))
def test_it_is_the_mean_over_prefixes(name, anchors, normalize):
    positions = None if anchors is None else torch.tensor(anchors)
    distances = DISTANCES if anchors is None else DISTANCES[positions]
    theirs = items().requires_grad_()
    parts = [theirs[:, :dim] for dim in DIMS]
    parts = [unit(part) if normalize and part.shape[1] < DIMS[-1] else part for part in parts]
    expected = value_and_gradients(sum(LOOPS[name](part, distances, positions) for part in parts) / len(DIMS), theirs)
    for block_rows in (None, 1, 2):
        ours, losses = items().requires_grad_(), [LOSSES[name]() for _ in DIMS]
        for loss in losses:
            loss.block_rows = block_rows
        labels = CLASSES if name == "multi_similarity" else distances
        found = MatryoshkaLoss(losses, DIMS, normalize)(ours, labels, anchors=positions)
        for a, b in zip(value_and_gradients(found, ours), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_each_length_has_its_own_memory():
    labels = VectorLabels(torch.rand(18, 2, generator=torch.Generator().manual_seed(1)))
    both = MatryoshkaLoss(CrossBatchMemory(LogRatioLoss(), 9), DIMS, normalize=True)
    alone = [CrossBatchMemory(LogRatioLoss(), 9) for _ in DIMS]
    for step in range(2):
        x, batch = items(seed=step), labels[torch.arange(9) + 9 * step]
        expected = [loss(unit(x[:, :d]) if d < DIMS[-1] else x, batch) for loss, d in zip(alone, DIMS, strict=True)]
        torch.testing.assert_close(both(x, batch), sum(expected) / 3)
    assert [memory.embeddings.shape[1] for memory in both.losses] == [*DIMS]


def test_what_does_not_fit():
    with refuses("losses", "1 losses for 2 dims", hint="give one loss per length"):
        MatryoshkaLoss([LogRatioLoss()], [2, 4])
    for dims in ([4, 2], [2, 2], [0, 2]):
        with refuses("dims", str(dims), "shortest first"):
            MatryoshkaLoss(LogRatioLoss(), dims)
    with refuses("embeddings", "5 dimensions", "must have 4, as the last of the lengths [2, 4]"):
        MatryoshkaLoss(LogRatioLoss(), [2, 4])(items(), DISTANCES)
    memory = CrossBatchMemory(LogRatioLoss(), 4)
    refused(lambda: MatryoshkaLoss([memory, memory], [2, 4]), "losses", "appears twice", hint="make one per length")


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [False, True])
def test_a_shorter_model_has_the_first_numbers(normalize):
    torch.manual_seed(0)
    model = EmbeddingModel("features", dim=8, normalize=normalize, nested_dims=[2, 5], feature_dim=11).eval()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(6, 11)
    whole = model(x)
    for dim in (2, 5, 8):
        short = model.with_dim(dim)
        expected = torch.nn.functional.normalize(whole[:, :dim]) if normalize else whole[:, :dim]
        torch.testing.assert_close(short(x), expected)
        assert (short.embedding_dim, short.nested_dims) == (dim, [d for d in (2, 5, 8) if d <= dim])
    assert (model.embedding_dim, len({identity(model.with_dim(dim), 64, 64) for dim in (2, 5, 8)})) == (8, 3)
    plain = EmbeddingModel("features", dim=8, normalize=normalize, feature_dim=11)
    plain.load_state_dict(model.state_dict())
    assert identity(plain, 64, 64) == identity(model, 64, 64)  # how it was trained is not part of it


def test_lengths_that_do_not_fit_a_model():
    for dims in ([], [4, 2], [2, 2], [8], [2, 9]):
        with refuses("nested_dims", str(dims), "below 8"):
            EmbeddingModel("small_cnn", dim=8, nested_dims=dims)
    refused(lambda: EmbeddingModel("small_cnn", dim=8, nested_dims=[0, 2]), "nested_dims", "[0, 2]", "below 8")
    refused(lambda: EmbeddingModel("small_cnn", dim=None, nested_dims=[2]), "nested_dims", "without a head")
    refused(lambda: EmbeddingModel("small_cnn", dim=8, levels=["low"], nested_dims=[2]), "nested_dims", "with levels")
    model = EmbeddingModel("small_cnn", dim=8, nested_dims=[2, 4])
    refused(lambda: model.with_dim(3), "dim", "3", "must be one of 2, 4, 8, which the model was trained for")
    with refuses("dim", "2, but the model was trained for 8 numbers alone", hint="model.nested_dims"):
        EmbeddingModel("small_cnn", dim=8).with_dim(2)
    assert model.without_head().nested_dims == []  # of features that beat the head


# -- in a config -------------------------------------------------------------------------------------------------------

NESTED = "model.nested_dims=[2, 3]"
PARTS = {
    "proxies": "loss: proxy_anchor",
    "memory and a loss that learns": "loss: {name: margin, per_class: true}\nmemory: {size: 20, start: 0}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("parts", [NESTED, "model.levels=[low, middle, high]"])
def test_training_resumes_bit_for_bit(tmp_path, name, parts):
    made = from_text(tmp_path, True, PARTS[name], parts, "model.normalize=true")
    whole = assert_resumes(lambda run: made.build_trainer(made.build_task(), run, quiet=True), tmp_path, (1, 1))
    loss = whole.training_step.loss
    if parts == NESTED:
        assert isinstance(loss, MatryoshkaLoss)
        assert (loss.dims, loss.normalize) == ([2, 3, 4], True)
    else:
        assert isinstance(loss, LevelLosses)
        trained = {name.split(".")[1] for name, _ in whole.bare_model.head.named_parameters(prefix="head")}
        assert trained == {"low", "middle", "high"}


def test_steps_with_one_loss_are_refused(tmp_path):
    got = "one loss per length, but step hdml takes one loss for the whole embedding"
    with refuses("model.nested_dims", got, hint="omit one of them"):
        from_text(tmp_path, True, "loss: n_pairs\nstep: hdml", NESTED)
    with refuses("model.nested_dims", "step triplets takes one loss", hint="omit one of them"):
        load("table/triplets", ["task.data=triplets.csv", NESTED])


# -- in use ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from support.runs import without_reports

    changes = [*TINY, "model.nested_dims=[2, 4]", "model.normalize=true"]
    with without_reports():
        return train(load("pose/synthetic", changes), tmp_path_factory.mktemp("nested")).folder


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    folder = tmp_path / "photos"
    folder.mkdir()
    test = load("pose/synthetic", TINY).build_task().test
    for row in range(12):
        Image.fromarray(np.asarray(test.image(row))).save(folder / f"{row:04d}.png")
    return folder


def test_a_shorter_embedder(run, photos, tmp_path):
    model = library.load(run)
    files = sorted(photos.iterdir())
    whole = model.embed(files)
    assert whole.shape == (12, 8)
    short = model.with_dim(4)
    expected = whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(short.embed(files), expected, atol=1e-6)
    # What was measured for whole embeddings does not hold for shorter ones.
    assert model.bundle.calibration is not None
    assert short.bundle.calibration is None
    assert model.has_labels
    assert not short.has_labels
    short.save(tmp_path / "short")
    again = library.load(tmp_path / "short")
    assert again.identity == short.identity != model.identity
    np.testing.assert_array_equal(again.embed(files), short.embed(files))
    assert again.with_dim(2).identity == model.with_dim(2).identity
    assert model.with_dim(8) is model


def test_commands_with_shorter_embeddings(contml, accepted, refused, run, photos, tmp_path):
    status, out, _ = contml("embed", run, "photos", "--out", "f.npz", "--dim", 4)
    assert (status, out) == (0, "f.npz: 12 embeddings of 4 numbers\n")
    expected = library.load(run).with_dim(4).embed(sorted(photos.iterdir()))
    np.testing.assert_allclose(read_features(tmp_path / "f.npz").values, expected, atol=1e-6)
    line = refused("embed", run, "photos", "--out", "g.npz", "--dim", 3)
    assert "--dim: 3; must be one of 2, 4, 8, which the model was trained for" in line
    # Whole embeddings under the name of the shorter ones are another file.
    assert "f.npz" in refused("embed", run, "photos", "--out", "f.npz")
    assert (contml("index", run, "photos", "--out", "i", "--dim", 4)[0], Index.open(tmp_path / "i").dim) == (0, 4)
    assert "12 images were in the index already" in contml("index", run, "photos", "--out", "i")[1]
    assert "must be 4, as in i" in refused("index", run, "photos", "--out", "i", "--dim", 2)
    out, _ = accepted("search", "i", "photos/0003.png", "-k", 3, "--json")
    (found,) = json.loads(out)
    assert found["found"][0]["id"] == "0003.png"
    assert "label_distance" not in found["found"][1]
    # Labels of training items are those of the whole embedding.
    assert "no labels of training items" in refused("search", "i", "--label", "pose=pose.json")
    with refuses(library.load(run).bundle.name, "no labels of training items", hint="shortened embeddings"):
        library.load(run).with_dim(4).predict(photos)


def test_a_model_without_nested_lengths_refuses_them(refused, tiny_run, photos):
    line = refused("embed", tiny_run, "photos", "--out", "f.npz", "--dim", 4)
    assert "--dim: 4, but the model was trained for 8 numbers alone; 'contml train ... model.nested_dims" in line
