"""The labels that a loss takes: every way to give them gives one value, that of the slow loop, or one line."""

import random
from decimal import Decimal
from functools import partial

import numpy as np
import pytest
import torch
from support import reference, reference_graded
from support.choices import spread
from support.label_spaces import space_of
from support.losses import made
from support.refusals import refused, refuses

from contml import InputError
from contml.labels import ClassLabels, MatrixLabels, NumberLabels, ThresholdLabels
from contml.losses import LOSSES, LogRatioLoss, RankSimLoss, RegularizedLoss, SoftInfoNCELoss
from contml.losses.graded_pairs import ScaledLabelLoss

#: The slow loops of the losses that take numbers, as functions of embeddings, label distances and anchors.
LOOPS = {
    name: getattr(reference_graded, name, None) for name, loss in LOSSES.items() if loss.requires in ("any", "graded")
} | {"log_ratio": reference.log_ratio, "dense_triplet": lambda e, d, a: reference.dense_triplet(e, d, a, 0.03)}
SCALED = [name for name, loss in LOSSES.items() if issubclass(loss, ScaledLabelLoss)]
CLASS_LOSSES = [name for name, loss in LOSSES.items() if loss.requires in ("binary", "classes")]


def series(values, dtype=None):
    return pytest.importorskip("pandas").Series(values, index=range(len(values), 0, -1), dtype=dtype)


def column(values):
    return values[:, None] if values.ndim == 1 else values


def plain(values):
    return torch.cdist(column(values), column(values), compute_mode="donot_use_mm_for_euclid_dist")


def spaced(values):
    """The numbers without the rounding of a matrix product, at even positions of an array of twice the length."""
    return np.repeat(values.numpy(), 2)[::2]


#: Ways to give numbers `[B]`.
NUMBERS = {
    "float64 tensor": lambda v: v,
    "float32 tensor": lambda v: v.float(),
    "array": lambda v: v.numpy(),
    "array with strides": spaced,
    "reversed array": lambda v: v.flip(0).numpy()[::-1],
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(v.tolist()),
    "column": lambda v: series(v.tolist()),
    "column that may have missing values": lambda v: series(v.tolist(), "Float64"),
}


#: Ways to give numbers or vectors `[B]` or `[B, D]`.
VECTORS = {
    "space": lambda v: space_of(v),
    "batch of a space": lambda v: space_of(torch.cat((v[:1] + 7, v)))[range(1, len(v) + 1)],
    "matrix": plain,
    "matrix as an array": lambda v: plain(v).numpy(),
    "matrix labels": lambda v: MatrixLabels(plain(v)),
}
KINDS = {
    "distinct numbers": lambda g: torch.randperm(40, generator=g)[:7].double() / 8,
    "numbers with ties": lambda g: torch.randint(4, (7,), generator=g).double() / 2,
    "equal numbers": lambda _: torch.full((7,), 30.0, dtype=torch.float64),
    "vectors": lambda g: torch.randint(-16, 17, (7, 2), generator=g).double() / 8,
    "a batch of 2": lambda g: torch.rand(2, generator=g).double(),
}


def pairings():
    """200 random pairings of a loss, a kind of numbers and a way to give them; every loss with every way."""
    draw = random.Random(0)
    ways = [*NUMBERS, *VECTORS]
    found = [(loss, way) for loss in LOOPS for way in ways]
    found += [(draw.choice([*LOOPS]), draw.choice(ways)) for _ in range(200 - len(found))]
    kinds = [draw.choice([kind for kind in KINDS if way in VECTORS or kind != "vectors"]) for _, way in found]
    return [(loss, kind, way, seed) for seed, ((loss, way), kind) in enumerate(zip(found, kinds, strict=True))]


@pytest.mark.parametrize(("name", "kind", "way", "seed"), pairings())
def test_one_batch_has_one_value_however_its_numbers_are_given(name, kind, way, seed):
    generator = torch.Generator().manual_seed(seed)
    values = KINDS[kind](generator)
    embeddings = torch.randn(len(values), 5, generator=generator, dtype=torch.float64)
    anchors = torch.randperm(len(values), generator=generator)[:2] if seed % 3 == 0 else None
    options = {"label_scale": 1.0} if name in SCALED else {}
    labels, distances = {**NUMBERS, **VECTORS}[way](values), plain(values)
    if anchors is not None and way.startswith("matrix"):
        labels = MatrixLabels(distances[anchors], anchors) if way == "matrix labels" else labels[anchors.numpy()]
    distances = distances if anchors is None else distances[anchors]
    value = LOSSES[name](**options)(embeddings, labels, anchors=anchors)
    torch.testing.assert_close(value, LOOPS[name](embeddings, distances, anchors), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-15, 1e15])
@pytest.mark.parametrize("power", [None, 1, 1.5])
def test_tiny_and_huge_label_distances_have_their_value(factor, power):
    """The log-ratio loss of ages in another unit is the same, but for the epsilon inside its logarithms."""
    generator = torch.Generator().manual_seed(0)
    embeddings, ages = torch.randn(6, 4, generator=generator), 1 + torch.rand(6, generator=generator)
    found = LogRatioLoss(label_power=power)(embeddings, factor * ages)
    if factor > 1:
        expected = reference.log_ratio(embeddings, factor * plain(ages.double()), label_power=power)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
    else:  # all powers are below epsilon: the loss is that of equal label distances
        expected = LogRatioLoss(label_power=power)(embeddings, 1e-9 * (1 - torch.eye(6)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_power_that_float32_cannot_hold_is_no_finite_value():
    distances = 1e25 * plain(torch.arange(5.0)).float()
    assert not LogRatioLoss()(torch.randn(5, 3), distances).isfinite()
    assert LogRatioLoss(squared=False)(torch.randn(5, 3), distances).isfinite()


@pytest.mark.parametrize(("squared", "power"), [(True, None), (True, 1), (False, None), (False, 2), (True, 0.5)])
def test_the_power_is_of_the_loss_whatever_the_labels_are_given_as(squared, power):
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    ages = 20 + 60 * torch.rand(7, generator=generator, dtype=torch.float64)
    loss = LogRatioLoss(squared, label_power=power)
    expected = reference.log_ratio(embeddings, plain(ages), squared=squared, label_power=power)
    for labels in (ages, NumberLabels(ages), plain(ages), MatrixLabels(plain(ages))):
        torch.testing.assert_close(loss(embeddings, labels), expected, rtol=1e-6, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# integers, booleans, categories


class_loss = partial(made, num_classes=3, embedding_dim=4)


INTEGERS = {
    "int64": lambda ids: torch.tensor(ids),
    "uint8": lambda ids: torch.tensor(ids, dtype=torch.uint8),
    "array": np.array,
    "list": list,
    "column": series,
    "column that may have missing values": lambda ids: series(ids, "Int64"),
}


def test_numbers_are_converted_as_everywhere():
    """By the function that reads the numbers of label spaces: a mask was ignored, and Decimal and sets were not."""
    loss, embeddings = LogRatioLoss(), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = loss(embeddings, torch.tensor([1.5, 2.0, 4.0]))
    assert torch.equal(loss(embeddings, [Decimal("1.5"), Decimal(2), Decimal(4)]), expected)
    with refuses("labels", "masked values", hint="omit"):
        loss(embeddings, np.ma.masked_array([1.5, 2.0, 4.0], [False, True, False]))
    refused(lambda: loss(embeddings, [1.5, None, 4.0]), "labels of item 1", "missing (None)")
    with refuses("anchors", "text (a)", "positions [A]"):
        loss(embeddings, torch.tensor([1.5, 2.0, 4.0]), anchors=["a"])


@pytest.mark.parametrize("name", [*CLASS_LOSSES, *LOOPS])
def test_booleans_and_categories_are_classes_and_so_are_integers_to_losses_on_classes(name):
    embeddings = torch.randn(6, 4, dtype=torch.float64)
    ids, categories = torch.tensor([1, 0, 0, 1, 1, 0]), series(list("baabba"), "category")
    options = {"label_scale": 1.0} if name in SCALED else {}
    loss = (class_loss(name) if name in CLASS_LOSSES else LOSSES[name](**options)).eval()
    ways = [ids.bool(), ids.bool().tolist(), categories, categories.array]
    if name == "log_ratio":
        for labels in ways:
            with refuses("LogRatioLoss", got="classes", allowed="graded"):
                loss(embeddings, labels)
        binary = ThresholdLabels(NumberLabels(torch.arange(6.0)), 1.0)
        refused(lambda: loss(embeddings, binary), "LogRatioLoss", "0 and 1", "graded", "MultiSimilarityLoss")
        return
    expected = loss(embeddings, ClassLabels(ids))
    ways += [way(ids.tolist()) for way in INTEGERS.values()] if name in CLASS_LOSSES else []
    for labels in ways:
        torch.testing.assert_close(loss(embeddings, labels), expected)
    with refuses("labels", got="a missing category", allowed="a class for each item"):
        loss(embeddings, series(["b", None, "a", "b", "b", "a"], "category"))


UNCLEAR = [
    (list("abcabc"), "text (a)"),
    (np.array(list("abcabc")), "text (a)"),
    ({"a": 1}, "dict"),
    (None, "None"),
    ("abcabc", "'abcabc'"),
    (np.array(["2026-11-25"] * 6, "datetime64[D]"), "datetime64"),
    (torch.zeros(6, dtype=torch.complex64), "torch.complex64"),
    (torch.zeros(6, 6, dtype=torch.complex64), "torch.complex64"),
    (torch.ones(6, 6, dtype=torch.bool), "bool [6, 6]"),
    (torch.rand(6, 1), "float32 [6, 1]"),
    (torch.rand(5, 6), "float32 [5, 6]"),
    (torch.rand(()), "float32 []"),
]


@pytest.mark.parametrize(("name", "unclear"), spread([*CLASS_LOSSES, *LOOPS], UNCLEAR, times=2))
def test_labels_that_may_mean_several_things_are_refused(name, unclear):
    labels, got = unclear
    options = {"label_scale": 1.0} if name in SCALED else {}
    loss = class_loss(name) if name in CLASS_LOSSES else LOSSES[name](**options)
    numbers = "integer classes [6]" if name in CLASS_LOSSES else "numbers [6] as floats"
    with refuses("labels", got=got, allowed=f"labels[rows] of a label space, {numbers}, or label distances [6, 6]"):
        loss(torch.randn(6, 4, dtype=torch.float64), labels)


@pytest.mark.parametrize("regularizer", [RankSimLoss(), SoftInfoNCELoss(label_scale=1.0)])
def test_a_regularizer_of_a_loss_on_classes_takes_its_integers(regularizer):
    embeddings, ids, loss = torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 2, 2]), class_loss("multi_similarity")
    labels = ClassLabels(ids)
    expected = loss(embeddings, labels) + regularizer(embeddings, labels)
    torch.testing.assert_close(RegularizedLoss(loss, regularizer)(embeddings, ids), expected)
    with refuses("labels", got="integers [6]", hint="labels.float()"):
        RegularizedLoss(LogRatioLoss(), regularizer)(embeddings, ids)


@pytest.mark.parametrize("as_labels", [torch.as_tensor, np.asarray])
@pytest.mark.parametrize("name", ["log_ratio", "cosent"])
def test_similarities_are_recognized_by_their_diagonal(name, as_labels):
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(x)
    similarities = (unit @ unit.T + 1) / 2  # rounded: some diagonal is not the largest number
    assert similarities.diagonal().min() < similarities.max()
    with refuses("label distances", hint="similarities? give 1 - similarity"):
        LOSSES[name]()(x, as_labels(similarities))
    with refuses("label distances", hint="similarities? give 1 - similarity"):
        LOSSES[name]()(x, as_labels(similarities[[3, 1]]), anchors=[3, 1])


@pytest.mark.parametrize("dims", [3, 8])
def test_vectors_are_not_label_distances(dims):
    x, vectors = torch.randn(8, 4), torch.randn(8, dims)
    refused(lambda: LogRatioLoss()(x, vectors), "label", hint="VectorLabels")


@pytest.mark.parametrize("way", [list, np.array, lambda words: np.array(words, object), series])
def test_texts_are_classes(way):
    x, words = torch.randn(4, 3), ["cat", "dog", "cat", "dog"]
    refused(lambda: LOSSES["multi_similarity"]()(x, way(words)), "labels", hint="ClassLabels(labels)")
    with pytest.raises(InputError) as caught:
        LogRatioLoss()(x, way(words))
    assert caught.value.hint == ""


def test_labels_that_a_loss_would_not_use_are_refused():
    x, ages = torch.randn(4, 3), torch.arange(4.0)
    for make in (lambda: ages.clone().requires_grad_(), lambda: torch.cdist(x, x).requires_grad_()):
        with refuses("labels", "require a gradient", hint="labels.detach()"):
            LogRatioLoss()(x, make())
    directed = (ages[:, None] - ages).abs() + torch.eye(4).roll(1, 0)
    refused(lambda: LogRatioLoss()(x, directed), "label distances", "entries [", "symmetric", "(matrix + matrix.T) / 2")
    LogRatioLoss()(x, directed[:3], anchors=torch.arange(3))  # row a is of anchor a
