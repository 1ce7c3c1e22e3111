"""HDML: its terms against explicit loops, which term trains which network, and a training that resumes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from support.miniature import Flat, assert_equal, augmented, fitted, squares
from support.refusals import refuses
from support.runs import assert_resumes, from_text, of_two_processes, whole_state
from support.strategies import class_ids
from torch import nn
from torch.nn import functional as F

from contml.data import Split
from contml.labels import ClassLabels
from contml.losses import NPairsLoss, TripletMarginLoss
from contml.mining import VTHM
from contml.models import EmbeddingModel
from contml.processes import world
from contml.runs import create
from contml.sampling import ClassSampler
from contml.training import HDML, OPTIMIZERS, Trainer, Training
from contml.training.hdml import n_pairs, triplets, tuple_loss


def triplet_margin(**options):
    return TripletMarginLoss(1.0, "squared_euclidean", "sum", **options)


LOSSES = {"triplet_margin": triplet_margin, "n_pairs": NPairsLoss}
FORMS = {"triplet_margin": triplets, "n_pairs": n_pairs}


def model_of(dim: int = 4) -> EmbeddingModel:
    """Features without batch norm or dropout: the mean colour of nine patches, mixed."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(27, 6), nn.Tanh())
    return EmbeddingModel(backbone, dim)


def hdml(loss, classes: int = 5, **options):
    torch.manual_seed(1)
    data = {"num_classes": classes, "embedding_dim": 4, "feature_dim": 6, "steps_per_epoch": 5}
    return HDML(**{"hidden": 8, **data, **options}, loss=loss)


# -- which items are compared ------------------------------------------------------------------------------------------


def test_without_unpaired_items_the_positives_of_other_pairs_are_negatives():
    found = triplets(torch.tensor([4, 4, 1, 1, 7, 7]))
    assert torch.cat((found.anchors[:, None], found.items), 1).tolist() == [[0, 1, 3], [2, 3, 5], [4, 5, 1]]
    few = triplets(torch.tensor([0, 0, 0, 1, 1]))  # the unpaired item is of the first pair's class
    assert torch.cat((few.anchors[:, None], few.items), 1).tolist() == [[0, 1, 4], [3, 4, 2]]


@given(class_ids(11))
def test_triplets_are_valid_and_as_many_as_the_batch_has_pairs(classes):
    found = triplets(classes)
    a, p, n = found.anchors, found.positives, found.items[:, 1]
    assert torch.equal(found.items[:, 0], p)
    assert torch.equal(found.target, torch.tensor([[0.0, 1.0]]).expand(len(a), 2))
    assert (classes[a] == classes[p]).all()
    assert (classes[a] != classes[n]).all()
    both = torch.cat((a, p))
    assert len(both.unique()) == len(both)
    pairs = sum(int(count) // 2 for count in classes.unique(return_counts=True)[1])
    assert len(a) == (pairs if len(classes.unique()) > 1 else 0)


@given(class_ids(11))
def test_n_pairs_are_the_first_two_of_each_class(classes):
    found = n_pairs(classes)
    ids = classes.tolist()
    expected = sorted((ids.index(c), ids.index(c, ids.index(c) + 1)) for c in set(ids) if ids.count(c) > 1)
    assert list(zip(found.anchors.tolist(), found.positives.tolist(), strict=True)) == expected
    assert torch.equal(found.items, found.positives.expand(len(expected), -1))
    assert torch.equal(found.target, 1 - torch.eye(len(expected)))


@pytest.mark.parametrize("reduction", ["sum", "mean", "nonzero"])
@pytest.mark.parametrize("distance", ["squared_euclidean", "euclidean", "cosine"])
def test_the_loss_of_triplets_equals_a_loop(distance, reduction):
    x = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = triplets(torch.tensor([0, 1, 1, 2, 0, 0, 0, 2, 2]))
    value = tuple_loss(TripletMarginLoss(0.5, distance, reduction), x[found.anchors], x[found.items], found.target)
    apart = {
        "squared_euclidean": lambda a, b: (a - b).square().sum(),
        "euclidean": lambda a, b: (a - b).norm(),
        "cosine": lambda a, b: -F.cosine_similarity(a, b, dim=0),
    }[distance]
    hinges = [
        max(0.0, float(apart(x[a], x[p]) - apart(x[a], x[n])) + 0.5)
        for a, (p, n) in zip(found.anchors.tolist(), found.items.tolist(), strict=True)
    ]
    divisor = {"sum": 1, "mean": len(hinges), "nonzero": sum(hinge > 0 for hinge in hinges)}[reduction]
    assert value.item() == pytest.approx(sum(hinges) / divisor, rel=1e-10)


# -- the step ----------------------------------------------------------------------------------------------------------


def generated_by_hand(generator, rows):
    """The generator by its formula: linear, ReLU, batch norm, linear."""
    first, norm, last = generator[0], generator[2], generator[3]
    h = (rows @ first.weight.T + first.bias).clamp(min=0)
    h = (h - h.mean(0)) / ((h - h.mean(0)).square().mean(0) + norm.eps).sqrt() * norm.weight + norm.bias
    return h @ last.weight.T + last.bias


def terms_by_loop(step, model, images, classes, form):
    """J_m, J_syn, J_gen and the softmax layer's loss, from the formulas, nothing detached."""
    y = model.features(images)
    z = model.embed(y)
    found = FORMS[form](classes)
    anchors, items = found.anchors.tolist(), found.items.tolist()
    pulled, positions = [], []
    for a, p, own in zip(anchors, found.positives.tolist(), items, strict=True):
        for item in own:
            near = (z[a] - z[p]).norm() if step.reference == "positive" else z.new_tensor(step.reference)
            far = (z[a] - z[item]).norm()
            length = near + (far - near) * torch.exp(-step.alpha / step.means[0])
            pulled.append(z[a] + length * (z[item] - z[a]) / far if item != p and near < far else z[item])
            positions.append(item)
    out = generated_by_hand(step.generator, torch.stack([*z, *z[anchors], *pulled]))
    rebuilt, made = out[: len(z)], out[len(z) :]
    embedded = model.embed(made)
    real = metric_by_loop(step.loss, form, z[anchors], z[found.items], found.target)
    t = len(anchors)
    synthetic = metric_by_loop(step.loss, form, embedded[:t], embedded[t:].view(t, -1, embedded.shape[1]), found.target)
    ids = torch.cat((classes[anchors], classes[positions]))
    entropies = [row.logsumexp(0) - row[label] for row, label in zip(step.softmax(made), ids, strict=True)]
    if step.softmax_reduction == "sum":
        cross_entropy = sum(entropies)
    elif form == "n_pairs":
        cross_entropy = sum(entropies[:t]) / t + sum(entropies[t:]) / len(entropies[t:])
    else:
        cross_entropy = sum(entropies) / len(entropies)
    generator = step.reconstruction_weight * (rebuilt - y).square().sum() + step.softmax_weight * cross_entropy
    softmax = torch.stack([row.logsumexp(0) - row[c] for row, c in zip(step.softmax(y), classes, strict=True)]).mean()
    return real, synthetic, generator, softmax


def metric_by_loop(loss, form, anchors, items, target):
    total = anchors.new_zeros(())
    for a, own, t in zip(anchors, items, target, strict=True):
        positive = own[t == 0][0]
        if form == "n_pairs":
            total = total + (1 + sum(torch.exp(a @ n - a @ positive) for n in own[t == 1])).log() / len(anchors)
        else:
            d = (a - positive).square().sum() - (a - own[t == 1][0]).square().sum()
            total = total + (d + loss.margin).clamp(min=0)
    if form == "n_pairs":
        norms = [sum(row @ row for row in rows) / len(rows) for rows in (anchors, items.flatten(0, 1))]
        total = total + loss.l2 * sum(norms) / 2
    return total


def batch_of(classes):
    images = torch.rand(len(classes), 3, 14, 14, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return images, ClassLabels(classes)


VARIANTS = {
    "j_avg 20": {"initial_loss": 20.0}, "j_avg 0.5": {}, "alpha 0": {"alpha": 0.0},
    "softmax weight 0": {"softmax_weight": 0.0}, "reconstruction weight 0": {"reconstruction_weight": 0.0},
    "reference 0": {"reference": 0.0}, "reference 0.3": {"reference": 0.3},
    "authors' J_gen": {"reconstruction_weight": 0.5, "softmax_weight": 5000.0, "softmax_reduction": "mean"},
}  # fmt: skip


@pytest.mark.parametrize("form", LOSSES)
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_each_term_trains_its_own_network(form, options):
    """Only J_metric trains backbone and head, only J_gen the generator, only its own loss the softmax layer."""
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 3, 3, 4, 0])
    images, labels = batch_of(classes)
    initial = {"initial_loss": 0.5, "initial_generator_loss": 10.0}
    model, step = model_of().double(), hdml(LOSSES[form](), beta=3.0, **{**initial, **options}).double()
    real, synthetic, generator, softmax = terms_by_loop(step, model, images, classes, form)
    share = math.exp(-3.0 / 10.0)
    metric = share * real + (1 - share) * synthetic
    wanted = {
        "model": (metric, [*model.parameters()]),
        "generator": (generator, [*step.generator.parameters()]),
        "softmax": (softmax, [*step.softmax.parameters()]),
    }
    expected = {name: torch.autograd.grad(*each, retain_graph=True) for name, each in wanted.items()}
    value = step(model, images, labels, None)
    value.backward()
    torch.testing.assert_close(value, metric, rtol=1e-10, atol=1e-12)
    terms = {"metric_loss": real, "synthetic_loss": synthetic, "generator_loss": generator}
    logs = {**{name: term.item() for name, term in terms.items()}, "synthetic_share": 1 - share}
    assert step.logs() == pytest.approx(logs, rel=1e-10)
    for name, (_, parameters) in wanted.items():
        for parameter, gradient in zip(parameters, expected[name], strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-10)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected["generator"])


def test_the_triplets_of_the_sampler_are_those_of_the_batch():
    """A class may appear twice. The third is none by its classes, as where a broken image was left out."""
    images, labels = batch_of(torch.tensor([0, 0, 1, 0, 0, 2, 2, 3, 0]))
    model = model_of().double()
    step = hdml(triplet_margin(triplets="batch"), beta=0).double()
    value = step(model, images, labels)
    value.backward()
    assert set(step.logs()) == {"metric_loss"}  # without synthetic tuples, only the loss trains, and only the model
    assert all(p.grad is None for p in step.parameters())
    a, p, n = (part[:2] for part in model(images).chunk(3))
    torch.testing.assert_close(value, ((a - p).square().sum(1) - (a - n).square().sum(1) + 1).clamp(min=0).sum())


def test_the_means_are_those_of_the_last_epoch():
    images, labels = batch_of(torch.arange(4).repeat(3))
    model, step = model_of(), hdml(triplet_margin(), steps_per_epoch=3)
    terms = []
    for n in range(7):
        step(model, images.float() * (n + 1) / 7, labels, None)
        terms.append([step.logs()[name] for name in ("metric_loss", "generator_loss")])
        whole = (n + 1) // 3 * 3
        if whole:
            torch.testing.assert_close(step.means, torch.tensor(terms[whole - 3 : whole]).mean(0))
        else:
            assert step.means.tolist() == [math.inf, math.inf]


@pytest.mark.parametrize("form", LOSSES)
@pytest.mark.parametrize(
    "classes",
    [[0] * 6, list(range(5)), [0, 0], [3, 3, 3, 1], [0, 1]],
    ids=["one class", "all different", "one pair", "one other", "two classes"],
)
def test_batches_with_nothing_to_compare_are_finite_with_a_graph(form, classes):
    classes = torch.tensor(classes)
    images, labels = batch_of(classes)
    for same in (False, True):
        model, step = model_of(), hdml(LOSSES[form]())
        step.means.fill_(1.0)
        x = images[:1].expand_as(images).float() if same else images.float()
        value = step(model, x, labels, None)
        value.backward()
        assert value.isfinite()
        if len(triplets(classes).anchors) == 0 and form == "triplet_margin":
            assert value.item() == 0
        for parameter in [*model.parameters(), *step.parameters()]:
            assert parameter.grad is None or parameter.grad.isfinite().all()
        assert step.generator[0].weight.grad is not None  # it is still trained to reconstruct


def test_only_the_samplers_anchors_are_anchors():
    classes = torch.arange(4).repeat(3)
    images, labels = batch_of(classes)
    model, step = model_of().double(), hdml(triplet_margin()).double()
    anchors = torch.tensor([1, 2])
    found = triplets(classes)
    kept = torch.isin(found.anchors, anchors)
    z = model(images)
    value = step(model, images, labels, anchors)
    expected = tuple_loss(step.loss, z[found.anchors[kept]], z[found.items[kept]], found.target[kept])
    torch.testing.assert_close(value, expected)


def test_class_ids_need_not_be_consecutive():
    classes = torch.tensor([5, 5, 9, 9, 5, 9])
    images, _ = batch_of(classes)
    model, labels = model_of().double(), ClassLabels(classes)
    expected = hdml(triplet_margin(), 2).double()(model, images, ClassLabels((classes > 5).long()), None)
    found = hdml(triplet_margin(), 2, class_ids=[5, 9]).double()(model, images, labels, None)
    torch.testing.assert_close(found, expected)


# -- training ----------------------------------------------------------------------------------------------------------


def class_squares(items: int = 40, seed: int = 0) -> Split:
    """Squares of one of five colours; the colour is the class."""
    split = squares(items, seed)
    classes = torch.arange(items) % 5
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 255, 255]])
    for image, (x, y), c in zip(split.images, split.labels.values.long().tolist(), classes, strict=True):
        image.pixels[y : y + 4, x : x + 4] = colours[c].numpy()
    return replace(split, labels=ClassLabels(classes))


def trainer_of(run=None, *, loss=None, form="triplet_margin", epochs=4, model=None, **options):
    split = class_squares()
    sampler = ClassSampler(5, 3, batches=5, labels=split.labels, seed=3)
    step = hdml(loss or LOSSES[form](), beta=30.0, alpha=5.0)
    given = (model or model_of(), step, split, sampler, augmented(resize=16, crop=14, scale_jitter=1, shift=1))
    others = {"optimizer": lambda groups: OPTIMIZERS["adam"](lr=1e-3, weight_decay=0.1, groups=groups), "run": run}
    return Trainer(*given, Training(epochs=epochs, **options), **others, quiet=True)


def test_the_generator_learns(tmp_path):
    trainer = fitted(trainer_of(create(tmp_path, "run")))
    rows = [row for row in trainer.run.rows() if row["event"] == "train"]
    assert len(rows) == 20
    generator = [row["generator_loss"] for row in rows]
    assert sum(generator[-5:]) < 0.7 * sum(generator[:5])
    assert [row["synthetic_share"] > 0 for row in rows] == [False] * 5 + [True] * 15


@pytest.mark.parametrize("form", LOSSES)
def test_it_resumes_bit_for_bit(form, tmp_path):
    assert_resumes(lambda run: trainer_of(run, form=form, epochs=2, checkpoint_minutes=0.0), tmp_path, (0, 3), (1, 2))


def test_its_own_learning_rates_in_one_optimizer():
    groups = {group["name"]: group for group in trainer_of().optimizer.param_groups}
    assert {name: (group["initial_lr"], group["weight_decay"]) for name, group in groups.items()} == {
        "backbone": (1e-3, 0.1), "head": (1e-3, 0.1), "generator": (1e-2, 0.0), "softmax": (1e-3, 0.0),
    }  # fmt: skip


def test_bfloat16():
    trainer = fitted(trainer_of(epochs=1, precision="bfloat16"))
    assert all(value.dtype == torch.float32 for value in whole_state(trainer).values() if value.is_floating_point())
    assert trainer.training_step.means.isfinite().all()


def shared_training(chunk_size=None):
    """Gradients of the first step on a batch that two processes can share, and all weights after 15 steps.

    In float64: the hinges of the loss magnify how float32 rounds a product of six rows or of twelve. After 15 steps in
    float32 the losses of one process and two differ in the third digit.
    """
    split = class_squares()
    step = hdml(triplet_margin(), beta=30.0, alpha=5.0, generator_lr=1e-3, chunk_size=chunk_size).double()
    sampler = ClassSampler(4, 3, batches=5, labels=split.labels, seed=3)
    images = augmented(resize=16, crop=14, scale_jitter=1, shift=1)
    trainer = Trainer(model_of().double(), step, split, sampler, images, Training(epochs=3), quiet=True)
    trainer.training_step.means.copy_(torch.tensor([5.0, 20.0]))
    trainer.train_step(next(iter(trainer.images.train_batches(split, trainer.sampler, epoch=0, part=world()))))
    parts = {"model": trainer.bare_model, "step": trainer.training_step}
    gradients = {f"{name}.{key}": p.grad.clone() for name, part in parts.items() for key, p in part.named_parameters()}
    trainer.fit()
    return gradients, whole_state(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_two_processes_equal_one(chunk_size):
    gradients, expected = shared_training()
    (found, first), (found_by_second, second) = of_two_processes(shared_training, chunk_size)
    for each in (found, found_by_second):
        torch.testing.assert_close(each, gradients, rtol=1e-9, atol=1e-9)
    assert_equal(first, second)
    torch.testing.assert_close(first, expected, rtol=1e-7, atol=1e-9)


def test_options_of_the_step_in_a_config(tmp_path):
    loaded = from_text(tmp_path, True, "loss: n_pairs\nstep: {name: hdml, hidden: 16, generator_lr: 0.5, reference: 2}")
    trainer = loaded.build_trainer(loaded.build_task(), quiet=True)
    assert trainer.training_step.generator[0].out_features == 16
    assert trainer.training_step.alpha == 90
    assert trainer.training_step.reference == 2
    assert trainer.training_step.steps_per_epoch == 3
    assert [g["initial_lr"] for g in trainer.optimizer.param_groups if g["name"] == "generator"] == [0.5]


def test_labels_without_classes_are_refused():
    trainer = trainer_of()
    split = squares(40)
    with refuses("HDML", "graded", "classes"):
        Trainer(model_of(), hdml(triplet_margin()), split, trainer.sampler, trainer.images, quiet=True)
    images, _ = batch_of(torch.arange(12))
    with refuses("HDML", "graded", "classes"):
        hdml(triplet_margin()).double()(model_of().double(), images, split.labels[range(12)])


def test_a_model_without_features_and_head_is_refused():
    with refuses("model", got="Flat", allowed="embed(features)"):
        trainer_of(model=Flat())


def test_a_model_of_other_dimensions_is_refused():
    with refuses("model", got="(3, 6)", allowed="(4, 6)"):
        trainer_of(model=model_of(3)).fit()


def test_a_loss_with_a_miner_is_refused():
    with refuses("loss", got="VTHM", hint="omit the miner"):
        hdml(TripletMarginLoss(miner=VTHM()))
