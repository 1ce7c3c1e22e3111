"""The public conformance checks: every row of the tables passes them, and each rule finds what breaks it."""

from __future__ import annotations

import copy
import inspect
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from support.label_spaces import SPACES, judged, vectors
from support.losses import made
from support.refusals import refuses
from torch import nn

from contml import InputError
from contml.contracts import Colours, Part
from contml.labels import ClassLabels, NearestLabels, NumberLabels, ThresholdLabels, VectorLabels
from contml.losses import LOSSES, DenseTripletLoss, LogRatioLoss, MarginLoss, TripletMarginLoss
from contml.sampling import SAMPLERS, BatchSampler, UniformSampler
from contml.testing import check_label_space, check_loss, check_sampler

SPACES = {**SPACES, "a subset of nearest": lambda folder: NearestLabels(vectors(), 4)[range(15, 3, -1)]}
# Labels of a bare tensor have no row numbers, which is a rule.
del SPACES["classes of ids"]


@contextmanager
def breaks(rule, *values):
    """The block raises an `AssertionError` of one line about this rule, with these values."""
    with pytest.raises(AssertionError) as caught:
        yield
    message = str(caught.value)
    assert f" breaks the rule '{rule}': " in message
    assert [value for value in values if value not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("name", SPACES)
def test_label_spaces(name, tmp_path):
    check_label_space(SPACES[name](tmp_path), symmetric="nearest" not in name)


def test_nearest_is_not_symmetric():
    with breaks("symmetric", "NearestLabels", "symmetric=False"):
        check_label_space(NearestLabels(vectors(), 4))


#: Rules that do not apply to a loss by design, besides "empty" for losses with proxies.
SKIPPED: dict[str, tuple[str, ...]] = {
    "n_pairs": ("permutation",), "angular": ("permutation",), "ranked_list": ("gradcheck",),
    "instance_cross_entropy": ("gradcheck",), "graded_instance_cross_entropy": ("gradcheck",),
    "rank_sim": ("gradcheck",),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    proxies = "embedding_dim" in inspect.signature(LOSSES[name]).parameters
    check_loss(made(name), skip=SKIPPED.get(name, ("empty",) if proxies else ()))


@pytest.mark.parametrize("name", [name for name in LOSSES if made(name).requires == "binary"])
def test_class_losses_on_continuous_labels_as_zero_and_one(name):
    check_loss(made(name), ThresholdLabels(vectors(12), 1.0), skip=SKIPPED.get(name, ()))


@pytest.mark.parametrize("distance", ["cosine", "squared_euclidean"])
def test_the_triplets_of_a_batch(distance):
    labels = ClassLabels([0, 1, 2, 3, 0, 1, 2, 3, 3, 2, 1, 0])
    check_loss(TripletMarginLoss(1.0, distance, triplets="batch"), labels, skip=("permutation",))


def test_a_boundary_per_class_any_labels_on_classes_and_graded_labels_that_come_again():
    check_loss(MarginLoss(per_class=True, num_classes=4))
    check_loss(DenseTripletLoss(), ClassLabels([0, 0, 1, 1, 1, 2, 2, 0]), dim=3)
    for options in ({}, {"squared": False}, {"strict": True}):
        check_loss(LogRatioLoss(**options), NumberLabels([0, 0, 1, 1, 1, 2, 2, 0]), dim=3)


SAMPLER_OPTIONS = {
    "dense": {"batch_size": 8, "anchors_per_batch": 2, "neighbours": 2}, "uniform": {"batch_size": 6},
    "classes": {"classes": 3, "instances": 2}, "triplets": {"triplets": 3}, "judged": {"batch_size": 6},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batches", [None, 1, 2, 30])
def test_samplers(name, batches):
    labels = judged(0.2) if name == "judged" else ClassLabels([i % 5 for i in range(20)])
    check_sampler(SAMPLERS[name](**SAMPLER_OPTIONS[name], batches=batches, labels=labels, seed=3), len(labels))


def test_a_sampler_with_the_contract_alone():
    class Minimal:
        anchors, seed = None, 0

        def __len__(self):
            return 7

        def batch(self, epoch, step):
            return np.random.default_rng([epoch, step]).permutation(10)[:4].tolist()

        def __iter__(self):
            self.epoch = getattr(self, "epoch", -1) + 1
            return (self.batch(self.epoch, step) for step in range(7))

    check_sampler(Minimal(), 10)


# ---------------------------------------------------------------------------------------------------------------------
# each rule finds what breaks it


class Broken(NumberLabels):
    """Vectors whose label distances `change` changes."""

    change = staticmethod(lambda d: d)

    def __init__(self):
        super().__init__(torch.arange(6.0))

    def distances(self, x, y):
        return self.change(super().distances(x, y))


def broken(**attributes):
    return type("Broken", (Broken,), attributes)()


def changed(change):
    return broken(change=staticmethod(change))


def asked(function):
    """A space whose `pairwise(rows, cols)` is `function(the correct pairwise, rows, cols)`."""

    class Asked(Broken):
        def pairwise(self, rows=None, cols=None, **options):
            return function(partial(super().pairwise, **options), rows, cols)

    return Asked()


def more_if(condition):
    """A space whose label distances are too large where `condition(space, rows)`."""
    return asked(lambda right, rows, cols: right(rows, cols) + float(condition(right.func.__self__, rows)))


def index_by(function, base=Broken):
    """A space whose `labels[rows]` is `function(whole, rows, the correct part)`."""

    def index(self, rows):
        return function(self, rows, base.__getitem__(self, rows))

    return type(base.__name__, (base,), {"__getitem__": index})()


def part_with(base=Broken, **changes):
    """A space whose parts have other attributes, each a function of the correct part and the index."""

    def part(whole, rows, right):
        right.__dict__.update({name: change(right, rows) for name, change in changes.items()})
        return right

    return index_by(part, base)


def with_another_root(part):
    """The same labels, with a root of other labels."""
    part._root = copy.copy(part.root)
    part._root.values = part._root.values.square()
    return part


class Ids(ClassLabels):
    def __init__(self):
        super().__init__([0, 1, 0, 2, 1, 2])


class OtherDistances(Ids):
    def pairwise(self, rows=None, cols=None, **options):
        r, c = (self.class_ids if index is None else self.class_ids[index] for index in (rows, cols))
        return (r[:, None] > 0).float() * (c > 0) * super().pairwise(rows, cols, **options)


def zero_or_one(**attributes):
    return broken(kind="classes", change=staticmethod(lambda d: (d > 0).float()), **attributes)


#: The names of rules, to which `ROWS` and the others below add what distinguishes the checks of one rule.
INDEX, OTHER_INDEX = ("index", "Broken of 5 items", "'graded'"), ("index", "labels[rows][rows]")
ROWS, OTHER_ROOT = ("rows", "labels[rows].rows"), ("rows", "labels[rows].root")
BATCH, ANCHORS = ("batch", "labels[rows].pairwise() "), ("batch", "pairwise(anchors)")
CLASS_IDS = ("classes", "'classes'", "integer")


@pytest.mark.parametrize(("space", "expected"), [
    (NumberLabels([0.0, 1.0]), ("length", "NumberLabels", "2 items", "at least 3")),
    (broken(unit=property(lambda s: " ", lambda s, v: None)), ("unit", "' '")),
    (broken(kind="levels"), ("kind", "'levels'", "graded, binary, classes")),
    (asked(lambda right, *part: right(*part).double()), ("float32", "Asked", "torch.float64")),
    (asked(lambda right, *part: right(*part)[:, :1]), ("shape", "[6, 1]", "[6, 6]")),
    (asked(lambda right, *part: right(*part).where(right(*part) < 4, torch.nan)), ("numbers", "nan")),
    (changed(lambda d: d + 1e-6), ("diagonal",)),
    (changed(lambda d: d * (1 + torch.rand(d.shape))), ("symmetric", "symmetric=False")),
    (asked(lambda right, *part: (d := right(*part)) + (len(d) != len(d.T))), ("blocks", "pairwise(rows, cols)")),
    (asked(lambda right, r, c: right(None if isinstance(r, list) and r else r, c)), ("blocks", "list")),
    (asked(lambda right, r, c: right(slice(0, 2) if isinstance(r, slice) else r, c)), ("blocks", "slice")),
    (asked(lambda right, r, c: right(r, c) * (2 if r is None else 1)), ("blocks", "pairwise()")),
    (asked(lambda right, r, c: right(None if r == [] else r, c)), ("blocks", "pairwise([], cols)")),
    (broken(_select=lambda self, index: copy.copy(self)), ("blocks",)),
    (index_by(lambda whole, rows, part: whole), INDEX),
    (index_by(lambda whole, rows, part: NumberLabels(part.values[:, 0])), INDEX),
    (index_by(lambda whole, rows, part: Broken._part(whole, torch.as_tensor(rows).sort().values)), OTHER_INDEX),
    (more_if(lambda space, rows: len(space) == 5), OTHER_INDEX),
    (broken(rows=property(lambda self: None, lambda self, rows: None)), ROWS),
    (part_with(rows=lambda part, index: torch.arange(len(part))), ROWS),
    (part_with(rows=lambda part, index: torch.as_tensor(index)), ("rows", "labels[rows][rows].rows")),
    (broken(root=property(lambda self: self)), OTHER_ROOT),
    (index_by(lambda whole, rows, part: with_another_root(part)), OTHER_ROOT),
    (broken(as_root=lambda self: self), ("rows", "as_root()")),
    (more_if(lambda space, rows: len(space.values.unique()) < len(space) and rows is None), BATCH),
    (index_by(lambda whole, rows, part: Broken._part(part, torch.arange(6)) if len(part) == 8 else part), BATCH),
    (more_if(lambda space, rows: len(space) == 8 and isinstance(rows, torch.Tensor)), ANCHORS),
    (more_if(lambda space, rows: len(space) == 8 and isinstance(rows, slice)), ANCHORS),
    (broken(to=lambda self, device: NumberLabels(2 * self.values[:, 0])), ("device", "cpu")),
    (broken(kind="binary"), ("0 or 1", "'binary'")),
    (broken(class_ids=torch.arange(6)), ("classes", "'graded'")),
    (part_with(class_ids=lambda part, index: torch.arange(len(part))), ("classes", "'graded'")),
    (zero_or_one(), CLASS_IDS), (zero_or_one(class_ids=torch.arange(5)), CLASS_IDS),
    (part_with(Ids, class_ids=lambda part, index: part.class_ids + 1), ("classes", "labels[rows].class_ids")),
    (OtherDistances(), ("classes", "within a class")), (broken(text=lambda self, row: row), ("text", "row 2 is 2")),
    (broken(text=lambda self, row: f"item {row}"), ("text", "'item 2'", "'item 0' in a subset")),
    (broken(parts=lambda self, a, b: [Part("age", "1", "2", 1)]), ("parts", "Part of strings")),
    (broken(colours=lambda self: Colours(torch.arange(3), "age")), ("colours", "[3]", "must be [6]")),
    (broken(colours=lambda self: Colours(torch.arange(6), "age", ["a"] * 5)), ("colours", "number of classes")),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_broken_label_spaces(space, expected):
    with breaks(*expected):
        check_label_space(space)


class Sum(nn.Module):
    """Sum of label distance times squared embedding distance: a correct loss, unless `change` changes its value."""

    requires = "any"

    def __init__(self, change=None, **attributes):
        super().__init__()
        self.change = change
        self.weight = nn.Parameter(torch.ones(()))
        self.__dict__.update(attributes)

    def forward(self, embeddings, labels, *, anchors=None):
        x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        rows = torch.arange(len(x)) if anchors is None else anchors
        if not isinstance(labels, torch.Tensor):
            target = labels.pairwise(rows)
        elif labels.ndim == 2:
            target = labels
        elif labels.is_floating_point():
            target = (labels[rows, None] - labels).abs()
        elif self.requires in ("any", "graded"):
            raise InputError("labels", "integers", "must be floats or a label space")
        else:
            target = (labels[rows, None] != labels).float()
        self.check_labels(labels, target)
        d = (x[rows, None] - x[None]).square().sum(2)
        value = (d * target.to(d.dtype)).sum() * self.weight
        return self.change(value, x, labels, anchors) if self.change else value

    def check_labels(self, labels, target):
        if self.requires in ("binary", "classes") and bool(((target != 0) & (target != 1)).any()):
            raise InputError("labels", "graded", "must be 0 / 1")
        if self.requires == "graded" and getattr(labels, "kind", "graded") != "graded":
            raise InputError("labels", "0 / 1", "must be graded")


class SwapGradient(torch.autograd.Function):
    """The value of half the sum of squares, and another gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() / 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]


class TakesIntegers(Sum):
    """A loss for graded labels that takes integers as numbers."""

    def forward(self, embeddings, labels, *, anchors=None):
        labels = labels.double() if is_tensor(labels, 1) else labels
        return super().forward(embeddings, labels, anchors=anchors)


def is_tensor(labels, ndim):
    return isinstance(labels, torch.Tensor) and labels.ndim == ndim


@pytest.mark.parametrize(("loss", "expected"), [
    (Sum(lambda v, x, t, a: v[None]), ("scalar",)),
    (Sum(lambda v, x, t, a: v.float()), ("dtype", "torch.float32 for embeddings in torch.float64")),
    (Sum(lambda v, x, t, a: v.double()), ("dtype", "torch.float64 for embeddings in torch.float32")),
    (Sum(lambda v, x, t, a: v * (x @ x.T).max().to(v.dtype) ** 4), ("dtype", "bfloat16", "autocast")),
    (Sum(lambda v, x, t, a: v + torch.cdist(x, x).sum() / x.norm(dim=1).min()), ("finite",)),
    (Sum(lambda v, x, t, a: v + (x[1] - x[2]).norm().log()), ("finite", "copies of an embedding")),
    (Sum(lambda v, x, t, a: v + x.exp().sum()), ("finite",)),
    (Sum(lambda v, x, t, a: v if a is None else v / len(a)), ("anchors",)),
    (Sum(lambda v, x, t, a: v * (2 if isinstance(t, torch.Tensor) else 1)), ("labels", "[B, B]")),
    (Sum(lambda v, x, t, a: v * (2 if is_tensor(t, 1) else 1), requires="binary"), ("labels", "class ids [B]")),
    (Sum(lambda v, x, t, a: v * (2 if is_tensor(t, 1) else 1)), ("labels", "numbers [B]")),
    (Sum(lambda v, x, t, a: v * (2 if is_tensor(t, 1) else 1), requires="graded"), ("labels", "numbers [B]")),
    (TakesIntegers(), ("integers", "InputError")),
    (Sum(lambda v, x, t, a: v * x[0].square().sum()), ("permutation",)),
    (Sum(lambda v, x, t, a: v + x.square().mean()), ("empty",)),
    (Sum(lambda v, x, t, a: v * SwapGradient.apply(x)), ("gradcheck",)),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_broken_losses(loss, expected):
    with breaks(*expected):
        check_loss(loss)


def checks_only(checked):
    """A loss that refuses labels of a wrong kind only if `checked(labels)`."""

    class ChecksOnly(Sum):
        def check_labels(self, labels, target):
            if checked(labels):
                super().check_labels(labels, target)

    return ChecksOnly


TakesAnything = checks_only(lambda labels: False)
ChecksSpaces = checks_only(lambda labels: not isinstance(labels, torch.Tensor))
NotNumbers = checks_only(lambda labels: not is_tensor(labels, 1))


@pytest.mark.parametrize(("loss", "values"), [
    (TakesAnything(requires="binary"), ("graded labels", "'binary'", "InputError")),
    (ChecksSpaces(requires="binary"), ("label distances of 0.5", "'binary'")),
    (NotNumbers(requires="binary"), ("numbers [B]", "'binary'")),
    (ChecksSpaces(requires="classes"), ("label distances of 0.5", "'classes'")),
    (Sum(requires="classes"), ("0 / 1 without class ids", "'classes'")),
    (TakesAnything(requires="graded"), ("takes classes", "'graded'", "InputError")),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_a_loss_that_takes_any_kind_of_labels(loss, values):
    with breaks("kind", *values):
        check_loss(loss)


def test_rules_can_be_skipped():
    check_loss(Sum(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["gradcheck"])
    check_loss(Sum(lambda v, x, t, a: v + x.square().mean()), skip=["empty"])
    with breaks("gradcheck"):
        check_loss(Sum(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["empty"])


def test_a_loss_does_not_change():
    class Counts(TripletMarginLoss):
        calls = 0

        def values(self, block):
            self.calls += 1
            return super().values(block)

    loss, margin = Counts(), MarginLoss()
    check_loss(loss)
    check_loss(margin)
    assert (loss.calls, margin.boundary.dtype) == (0, torch.float32)
    assert margin.boundary.grad is None


class BrokenSampler(BatchSampler):
    """A correct sampler, unless `change` changes its batches."""

    length = 7

    def __init__(self, **attributes):
        super().__init__(30, 4, seed=0)
        self.__dict__.update(attributes)

    def __len__(self):
        return self.length

    def batch(self, epoch, step):
        return self.change(np.random.default_rng([epoch, step]).permutation(30)[:4].tolist(), epoch, step)

    def change(self, rows, epoch, step):
        return rows


class Restarts(BrokenSampler):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "step": 0})


class StaysInEpoch(BrokenSampler):
    def __iter__(self):
        return (self.batch(0, step) for step in range(len(self)))


def sampler_of(change):
    return type("Changed", (BrokenSampler,), {"change": lambda self, *arguments: change(*arguments)})()


@pytest.mark.parametrize(("sampler", "expected"), [
    (BrokenSampler(length=0), ("length", "BrokenSampler", "0 batches", "at least 1")),
    (sampler_of(lambda rows, *_: rows[:1]), ("rows", "batch(0, 0)", "list of at least 2")),
    (sampler_of(lambda rows, *_: [*rows, 30]), ("rows", "to 30", "0 to 29")),
    (sampler_of(lambda rows, *_: [-1, *rows]), ("rows", "batch(0, 0)", "-1 to")),
    (sampler_of(lambda rows, *_: [*rows, rows[0]]), ("distinct", "batch(0, 0)", "duplicates=True")),
    (BrokenSampler(anchors=5), ("anchors", "5", "1 to 4", "batch(0, 0)")),
    (sampler_of(lambda rows, *_: np.random.permutation(30)[:4].tolist()), ("pure", "batch(")),  # noqa: NPY002
    (sampler_of(lambda rows, epoch, step: [step, step + 1]), ("epochs", "0 and 1")),
    (type("Fixed", (BrokenSampler,), {"__iter__": lambda self: iter([[1, 2]] * 9)})(), ("iteration",)),
    (StaysInEpoch(length=3), ("iteration", "epoch 1")),
    (Restarts(), ("resume", "1 batches")),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_broken_samplers(sampler, expected):
    with breaks(*expected):
        check_sampler(sampler, 30)


def test_duplicates_can_be_allowed_and_a_sampler_does_not_change():
    check_sampler(sampler_of(lambda rows, *_: [*rows, rows[0]]), 30, duplicates=True)
    sampler = UniformSampler(4, labels=vectors())
    check_sampler(sampler, 20)
    assert sampler.state_dict() == {"seed": 0, "epoch": 0, "step": 0}


def test_what_is_not_to_be_checked_is_refused():
    for wrong in ([1, 2], VectorLabels):
        with refuses("space", allowed="must be a label space"):
            check_label_space(wrong)
    with refuses("space", allowed="must be a label space"):
        check_loss(LogRatioLoss(), [1.0, 2.0])
    with refuses("loss", got="the class LogRatioLoss", hint="LogRatioLoss()"):
        check_loss(LogRatioLoss)
    with refuses("sampler", got="the class UniformSampler", allowed="must be a sampler"):
        check_sampler(UniformSampler, 10)
    with refuses("sampler", got="a list"):
        check_sampler([[1, 2]], 10)
