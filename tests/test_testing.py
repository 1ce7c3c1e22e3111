"""The public conformance checks: every row of the tables passes them, and each rule fails where it should."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import nn

from contml.contracts import InputError
from contml.labels import (
    LABELS,
    VIEWS,
    CaptionLabels,
    ClassLabels,
    MultiLabels,
    NearestLabels,
    OrdinalLabels,
    PackedLabels,
    PlaceLabels,
    PoseLabels,
    PrecomputedLabels,
    RegionLabels,
    SequenceLabels,
    TagLabels,
    ThresholdLabels,
    VectorLabels,
    WeightedLabels,
)
from contml.losses import LOSSES, LogRatioLoss, MarginLoss, TripletMarginLoss
from contml.sampling import SAMPLERS, BatchSampler, UniformSampler
from contml.testing import check_label_space, check_loss, check_sampler


def vectors(items=20):
    return VectorLabels(torch.randn(items, 2, generator=torch.Generator().manual_seed(0)))


def poses(**options):
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(20, 6, generator=generator) > 0.15
    visible[visible.sum(1) <= 3] = True
    return PoseLabels(300 * torch.rand(20, 6, 2, generator=generator), visible, **options)


def matrix(folder):
    np.save(folder / "distances.npy", vectors().pairwise().numpy())
    return PrecomputedLabels(folder / "distances.npy")


def regions(**options):
    maps = np.random.default_rng(2).integers(0, 4, (20, 9, 7))
    maps[::3, 2:5, 2:5] = 9
    return RegionLabels(maps, 4, ignore=9, **options)


def captions():
    words = ["dog", "cat", "runs", "red", "grass"]
    vectors = dict(zip(words, np.random.default_rng(3).normal(size=(5, 4)), strict=True))
    return CaptionLabels([[f"a {words[i % 5]} {words[i % 3]}", f"{words[i % 4]} {i}"] for i in range(20)], vectors)


def tags():
    return TagLabels([[f"tag {t}" for t in range(9) if (i * 7 + t * t) % 4 == 0] for i in range(20)])


SPACES = {
    "classes": lambda folder: ClassLabels([f"class {i % 5}" for i in range(20)]),
    "vectors": lambda folder: vectors(),
    "vectors, plain": lambda folder: VectorLabels(torch.arange(20).flip(0), squared=False),
    "vectors, more than are looked at": lambda folder: vectors(200),
    "vectors, far from 0": lambda folder: VectorLabels(1e6 + torch.randn(20, 3)),
    "poses": lambda folder: poses(),
    "poses, plain": lambda folder: poses(squared=False, normalize=True),
    "regions": lambda folder: regions(),
    "regions, as they are": lambda folder: regions(side=None),
    "captions": lambda folder: captions(),
    "tags": lambda folder: tags(),
    "multi": lambda folder: MultiLabels(torch.arange(20)[:, None] >> torch.arange(5) & 1),
    "multi, hamming": lambda folder: MultiLabels(torch.arange(20)[:, None] >> torch.arange(5) & 1, "hamming"),
    "ordinal": lambda folder: OrdinalLabels(["low", "high", "middle", "low"] * 5, ["low", "middle", "high"]),
    "places": lambda folder: PlaceLabels(torch.tensor([90.0, 180.0]) * (2 * torch.rand(20, 2) - 1)),
    "sequences": lambda folder: SequenceLabels([f"{i**3:b}" for i in range(20)]),
    "weighted": lambda folder: WeightedLabels({vectors(): 0.5, tags(): 2.0, regions(): 1.0}),
    "precomputed": matrix,
    "threshold": lambda folder: ThresholdLabels(1.0, space=vectors()),
    "nearest": lambda folder: NearestLabels(4, space=vectors()),
    "a subset of nearest": lambda folder: NearestLabels(4, space=vectors()).subset(range(15, 3, -1)),
}


def test_every_row_of_the_tables_has_a_space_here():
    assert {*LABELS, *VIEWS} <= set(SPACES)


@pytest.mark.parametrize("name", SPACES)
def test_label_spaces(name, tmp_path):
    check_label_space(SPACES[name](tmp_path), symmetric="nearest" not in name)


def test_nearest_is_no_symmetric_relation():
    with pytest.raises(AssertionError, match=r"NearestLabels breaks the rule 'symmetric': D\(i, j\) and D\(j, i\)"):
        check_label_space(NearestLabels(4, space=vectors()))


def construct(name):
    """A loss of the table on what only the data can tell."""
    parameters = inspect.signature(LOSSES[name]).parameters
    data = {"num_classes": 4, "embedding_dim": 6, "num_items": 12, "items": 12}
    torch.manual_seed(0)
    return LOSSES[name](**{key: value for key, value in data.items() if key in parameters})


#: Rules that a loss leaves out by design, where it is not a loss with proxies.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "n_pairs": ("permutation",),
    "angular": ("permutation",),
    "ranked_list": ("gradcheck",),
    "instance_cross_entropy": ("gradcheck",),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    proxies = "embedding_dim" in inspect.signature(LOSSES[name]).parameters
    check_loss(construct(name), skip=LEFT_OUT.get(name, ("empty",) if proxies else ()))


@pytest.mark.parametrize("name", [name for name in LOSSES if construct(name).labels == "binary"])
def test_class_losses_on_continuous_labels_as_zero_and_one(name):
    check_loss(construct(name), ThresholdLabels(1.0, space=vectors(12)), skip=LEFT_OUT.get(name, ()))


def test_a_boundary_for_each_class():
    check_loss(MarginLoss(per_class=True, num_classes=4))


def test_a_continuous_loss_on_classes_as_distances():
    check_loss(LogRatioLoss(), ClassLabels([0, 0, 1, 1, 1, 2, 2, 0]), dim=3)


SAMPLER_OPTIONS = {
    "dense": {"batch_size": 8, "anchors_per_batch": 2, "neighbours": 2},
    "uniform": {"batch_size": 6},
    "classes": {"classes": 3, "instances": 2},
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batches", [None, 1, 2, 30])
def test_samplers(name, batches):
    labels = ClassLabels([i % 5 for i in range(20)])
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
# each rule fails where it should


class Broken(VectorLabels):
    """Vectors whose label distances went through `spoil`."""

    spoil = staticmethod(lambda d: d)

    def __init__(self):
        super().__init__(torch.arange(6.0))

    def distances(self, x, y):
        return self.spoil(super().distances(x, y))


def broken(**attributes):
    return type("Broken", (Broken,), attributes)()


def spoilt(spoil):
    return broken(spoil=staticmethod(spoil))


class Doubles(Broken):
    def pairwise(self, rows=None, cols=None):
        return super().pairwise(rows, cols).double()


class NotSquared(Broken):
    def pairwise(self, rows=None, cols=None):
        d = super().pairwise(rows, cols)
        return d if d.shape[0] == d.shape[1] else d + 1


class NoLists(Broken):
    def pairwise(self, rows=None, cols=None):
        return super().pairwise(None if isinstance(rows, list) and rows else rows, cols)


class OddSlices(Broken):
    def pairwise(self, rows=None, cols=None):
        return super().pairwise(slice(0, 2) if isinstance(rows, slice) else rows, cols)


class OddWhole(Broken):
    def pairwise(self, rows=None, cols=None):
        return super().pairwise(rows, cols) * (2 if rows is None else 1)


class NoEmpty(Broken):
    def pairwise(self, rows=None, cols=None):
        return super().pairwise(None if isinstance(rows, list) and not rows else rows, cols)


class SubsetOfAll(Broken):
    def subset(self, rows):
        return self


class SubsetInOrder(Broken):
    def subset(self, rows):
        return super().subset(torch.as_tensor(rows).sort().values)

    def pairwise(self, rows=None, cols=None):
        x, y = (PackedLabels.subset(self, range(len(self)) if r is None else r) for r in (rows, cols))
        return self.distances(x, y).float()


class View:
    classes = None

    def __init__(self, space, rows, kind="distances", extra=0.0, part=0.0):
        self.block, self.kind, self.extra, self.part = space.pairwise(rows, rows), kind, extra, part

    def __len__(self):
        return len(self.block)

    def distances(self, anchors=None):
        return self.block + self.extra if anchors is None else self.block[anchors] + self.part


class Elsewhere(Broken):
    def to(self, device):
        moved = super().to(device)
        moved.values = 2 * moved.values
        return moved


class Ids(ClassLabels):
    def __init__(self):
        super().__init__([0, 1, 0, 2, 1, 2])


class OtherDistances(Ids):
    def distances(self, x, y):
        return (x.classes[:, None] > 0).float() * (y.classes > 0) * super().distances(x, y)


class OtherView(Ids):
    def view(self, rows=None):
        view = View(self, rows, "classes")
        view.classes = self.classes[rows] + 1
        return view


def asymmetric(d):
    return d * (1 + torch.rand(d.shape))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (VectorLabels([0.0, 1.0]), "VectorLabels breaks the rule 'length': it has 2 items; the check needs at least 3"),
        (broken(unit=property(lambda s: " ", lambda s, v: None)), "'unit': unit is ' '; say in words what"),
        (broken(unit=property(lambda s: 3, lambda s, v: None)), "'unit': unit is 3"),
        (broken(kind="levels"), "'kind': kind is 'levels'; it must be one of distances, binary, classes"),
        (Doubles(), "Doubles breaks the rule 'float32': pairwise of 6 rows is torch.float64 [6, 6] on cpu"),
        (spoilt(lambda d: d[:, :1]), "'float32': pairwise of 6 rows is torch.float32 [6, 1] on cpu"),
        (spoilt(lambda d: d.where(d < 20, torch.nan)), "'numbers': a label distance is nan"),
        (
            spoilt(lambda d: d.where(d < 20, torch.inf)),
            "'numbers': a label distance is inf; label distances are finite",
        ),
        (spoilt(lambda d: -d), "'numbers': a label distance is -"),
        (spoilt(lambda d: d + 1e-6), "to itself is not 0"),
        (spoilt(asymmetric), "'symmetric': D(i, j) and D(j, i) differ"),
        (NotSquared(), "'blocks': pairwise(rows, cols) differs from the same block of a larger one"),
        (NoLists(), "'blocks': rows as a list and as a tensor"),
        (OddSlices(), "'blocks': rows as a slice and as a range"),
        (OddWhole(), "'blocks': pairwise() differs from pairwise(rows, cols) of all rows"),
        (NoEmpty(), "'blocks': pairwise([], cols) is not of shape [0, cols]"),
        (SubsetOfAll(), "breaks the rule 'blocks'"),
        (SubsetInOrder(), "'subset': label distances of subset(rows), or of a subset of it, differ"),
        (broken(view=lambda s, rows=None: s.pairwise(rows, rows)), "'view': view of 8 rows is no LabelView of 8 items"),
        (broken(view=lambda s, rows=None: View(s, rows, "binary")), "'view': view of 8 rows is no LabelView"),
        (broken(view=lambda s, rows=None: View(s, rows[:3])), "'view': view of 8 rows is no LabelView"),
        (broken(view=lambda s, rows=None: View(s, rows, extra=1)), "'view': view(rows).distances() differs"),
        (broken(view=lambda s, rows=None: View(s, rows, part=1)), "'view': view(rows).distances(anchors) differs"),
        (Elsewhere(), "'device': to(\"cpu\") is not on the CPU, or has other label distances"),
        (broken(kind="binary"), "'0 or 1': a label distance is"),
        (broken(classes=torch.arange(6)), "'classes': it has classes, but kind is 'distances'"),
        (
            broken(kind="classes", spoil=staticmethod(lambda d: (d > 0).float())),
            "'classes': kind is 'classes', but classes is no tensor of one whole number an item",
        ),
        (OtherView(), "'classes': view(rows).classes differs from classes[rows]"),
        (OtherDistances(), "'classes': label distances are not 0 within a class and 1 between classes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_broken_label_spaces(space, message):
    with pytest.raises(AssertionError) as error:
        check_label_space(space)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Sum(nn.Module):
    """Sum of label distance times squared embedding distance: a loss in all rules, to be spoilt."""

    labels = "distances"

    def __init__(self, spoil=None, **attributes):
        super().__init__()
        self.spoil = spoil or {}
        self.weight = nn.Parameter(torch.ones(()))
        self.__dict__.update(attributes)

    def forward(self, embeddings, labels, *, anchors=None):
        x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        rows = torch.arange(len(x)) if anchors is None else anchors
        if isinstance(labels, torch.Tensor):
            target = labels if labels.ndim == 2 else (labels[rows, None] != labels).float()
        else:
            target = labels.distances(rows)
        if self.labels != "distances" and bool(((target != 0) & (target != 1)).any()):
            raise InputError("needs 0 / 1; set a threshold")
        d = (x[rows, None] - x[None]).square().sum(2)
        value = (d * target.to(d.dtype)).sum() * self.weight
        return self.spoil["value"](value, x, labels, anchors) if self.spoil else value


class SwapGradient(torch.autograd.Function):
    """The value of half the sum of squares, and another gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() / 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]


def bend(function, **attributes):
    return Sum({"value": function}, **attributes)


def test_the_loss_to_be_spoilt_is_right():
    check_loss(Sum())
    check_loss(Sum(labels="binary"))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (bend(lambda v, x, t, a: v[None]), "'scalar': it does not return a scalar tensor with a graph"),
        (bend(lambda v, x, t, a: v.detach()), "'scalar'"),
        (bend(lambda v, x, t, a: v.item()), "'scalar'"),
        (bend(lambda v, x, t, a: v.float()), "'dtype': embeddings in torch.float64 give a value in torch.float32"),
        (bend(lambda v, x, t, a: v.double()), "'dtype': embeddings in torch.float32 give a value in torch.float64"),
        (
            bend(lambda v, x, t, a: v * (x @ x.T).max().to(v.dtype) ** 4),
            "'dtype': of bfloat16 embeddings under autocast",
        ),
        (
            bend(lambda v, x, t, a: v + torch.cdist(x, x).sum() / x.norm(dim=1).min()),
            "the value or the gradient is not finite",
        ),
        (bend(lambda v, x, t, a: v + (x[1] - x[2]).norm().log()), "'finite': copies of an embedding"),
        (bend(lambda v, x, t, a: v + (x[0] - x[-1]).square().sum().sqrt()), "'finite': identical embeddings"),
        (bend(lambda v, x, t, a: v + 1 / (v + (v == 0) * 0.0)), "'finite'"),
        (bend(lambda v, x, t, a: v + x.exp().sum()), "'finite': "),
        (bend(lambda v, x, t, a: v if a is None else v / len(a)), "'anchors': anchors=all positions, in any order"),
        (bend(lambda v, x, t, a: v * (2 if isinstance(t, torch.Tensor) else 1)), "'labels': label distances [B, B]"),
        (
            bend(lambda v, x, t, a: v * (2 if isinstance(t, torch.Tensor) and len(t) == 2 else 1)),
            "'labels': of some anchors, label distances [A, B] and a view",
        ),
        (
            bend(lambda v, x, t, a: v * (2 if isinstance(t, torch.Tensor) and t.ndim == 1 else 1), labels="binary"),
            "'labels': class ids [B] and a view of the same labels differ",
        ),
        (bend(lambda v, x, t, a: v * x[0].square().sum()), "'permutation': permuting the batch changes the value"),
        (bend(lambda v, x, t, a: v + x.square().mean()), "'empty': without anchors there is nothing to compare"),
        (bend(lambda v, x, t, a: v + 0 * (SwapGradient.apply(x) - v)), None),
        (bend(lambda v, x, t, a: v * SwapGradient.apply(x)), "'gradcheck': the gradient differs"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_broken_losses(loss, message):
    if message is None:
        check_loss(loss)
        return
    with pytest.raises(AssertionError) as error:
        check_loss(loss)
    assert "Sum breaks the rule '" in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_loss_that_takes_any_kind_of_labels():
    class Any(Sum):
        def forward(self, embeddings, labels, *, anchors=None):
            self.labels, kind = "distances", self.labels
            value = super().forward(embeddings, labels, anchors=anchors)
            self.labels = kind
            return value

    with pytest.raises(AssertionError, match="'kind': it needs 'binary', but takes a view of vectors; refuse it with"):
        check_loss(Any(labels="binary"))
    with pytest.raises(AssertionError, match="'kind': it needs 'classes', but takes 0 / 1 without class ids"):
        check_loss(Sum(labels="classes"))


def test_rules_can_be_skipped():
    check_loss(bend(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["gradcheck"])
    check_loss(bend(lambda v, x, t, a: v + x.square().mean()), skip=["empty"])
    with pytest.raises(AssertionError, match="'gradcheck'"):
        check_loss(bend(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["empty"])


def test_a_loss_stays_as_it_is():
    class Counts(TripletMarginLoss):
        calls = 0

        def rows(self, block):
            self.calls += 1
            return super().rows(block)

    loss, margin = Counts(), MarginLoss()
    check_loss(loss)
    check_loss(margin)
    assert loss.calls == 0
    assert margin.boundary.dtype == torch.float32
    assert margin.boundary.grad is None


class Odd(BatchSampler):
    """A sampler in all rules, to be spoilt."""

    length = 7

    def __init__(self, **attributes):
        super().__init__(30, 4, seed=0)
        self.__dict__.update(attributes)

    def __len__(self):
        return self.length

    def batch(self, epoch, step):
        rows = np.random.default_rng([epoch, step]).permutation(30)[:4].tolist()
        return self.spoil(rows, epoch, step)

    def spoil(self, rows, epoch, step):
        return rows


class Restarts(Odd):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "step": 0})


class StaysInEpoch(Odd):
    def __iter__(self):
        return (self.batch(0, step) for step in range(len(self)))


def spoil(function, **attributes):
    return type("Odd", (Odd,), {"spoil": lambda self, *arguments: function(*arguments), **attributes})()


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Odd(length=0), "Odd breaks the rule 'length': an epoch has 0 batches; it needs at least 1"),
        (spoil(lambda rows, *_: rows[:1]), "'rows': batch(0, 0) is no list of at least 2 whole numbers"),
        (spoil(lambda rows, *_: tuple(rows)), "'rows': batch(0, 0) is no list"),
        (spoil(lambda rows, *_: list(np.array(rows))), "'rows': batch(0, 0) is no list"),
        (spoil(lambda rows, *_: [*rows, 30]), "to 30, but rows are 0 to 29"),
        (spoil(lambda rows, *_: [-1, *rows]), "'rows': batch(0, 0) has rows -1 to"),
        (spoil(lambda rows, *_: [*rows, rows[0]]), "'distinct': batch(0, 0) holds a row twice; duplicates=True if"),
        (Odd(anchors=5), "'anchors': anchors is 5, but batch(0, 0) has 4 rows; it must be 1 to that"),
        (Odd(anchors=0), "'anchors': anchors is 0"),
        (spoil(lambda rows, *_: np.random.permutation(30)[:4].tolist()), "'pure': batch("),  # noqa: NPY002
        (spoil(lambda rows, epoch, step: [step, step + 1]), "'epochs': epochs 0 and 1 have the same batches"),
        (type("Odd", (Odd,), {"__iter__": lambda self: iter([[1, 2]] * 9)})(), "'iteration': iterating does not give"),
        (StaysInEpoch(length=3), "'iteration': iterating does not give batch(0, 0), batch(0, 1), ..., and then epoch"),
        (Restarts(), "'resume': from the state after 1 batches it does not go on with the very next one"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_broken_samplers(sampler, message):
    with pytest.raises(AssertionError) as error:
        check_sampler(sampler, 30)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_duplicates_may_be_meant_and_a_sampler_stays_as_it_is():
    check_sampler(spoil(lambda rows, *_: [*rows, rows[0]]), 30, duplicates=True)
    sampler = UniformSampler(4, labels=vectors())
    check_sampler(sampler, 20)
    assert sampler.state_dict() == {"seed": 0, "epoch": 0, "step": 0}
