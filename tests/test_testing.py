"""The public conformance checks: every row of the tables passes them, and each rule fails where it should."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from torch import nn

from contml import InputError
from contml.labels import (
    BINARY_LABELS,
    LABELS,
    CaptionLabels,
    ClassLabels,
    GeoLabels,
    MultiHotLabels,
    NearestLabels,
    OrdinalLabels,
    PoseLabels,
    PrecomputedLabels,
    SegmentationLabels,
    SequenceLabels,
    TagLabels,
    ThresholdLabels,
    VectorLabels,
    WeightedLabels,
)
from contml.losses import LOSSES, DenseTripletLoss, LogRatioLoss, MarginLoss, TripletMarginLoss
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
    return SegmentationLabels(maps, 4, ignore=9, **options)


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
    "segmentation": lambda folder: regions(),
    "regions, as they are": lambda folder: regions(side=None),
    "captions": lambda folder: captions(),
    "tags": lambda folder: tags(),
    "multi_hot": lambda folder: MultiHotLabels(torch.arange(20)[:, None] >> torch.arange(5) & 1),
    "multi, hamming": lambda folder: MultiHotLabels(torch.arange(20)[:, None] >> torch.arange(5) & 1, "hamming"),
    "ordinal": lambda folder: OrdinalLabels(["low", "high", "middle", "low"] * 5, ["low", "middle", "high"]),
    "geo": lambda folder: GeoLabels(torch.tensor([90.0, 180.0]) * (2 * torch.rand(20, 2) - 1)),
    "sequences": lambda folder: SequenceLabels([f"{i**3:b}" for i in range(20)]),
    "weighted": lambda folder: WeightedLabels({vectors(): 0.5, tags(): 2.0, regions(): 1.0}),
    "precomputed": matrix,
    "threshold": lambda folder: ThresholdLabels(1.0, space=vectors()),
    "nearest": lambda folder: NearestLabels(4, space=vectors()),
    "a subset of nearest": lambda folder: NearestLabels(4, space=vectors())[range(15, 3, -1)],
}


def test_every_row_of_the_tables_has_a_space_here():
    assert {*LABELS, *BINARY_LABELS} <= set(SPACES)


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


@pytest.mark.parametrize("name", [name for name in LOSSES if construct(name).requires == "binary"])
def test_class_losses_on_continuous_labels_as_zero_and_one(name):
    check_loss(construct(name), ThresholdLabels(1.0, space=vectors(12)), skip=LEFT_OUT.get(name, ()))


def test_a_boundary_for_each_class():
    check_loss(MarginLoss(per_class=True, num_classes=4))


def test_a_loss_for_any_labels_on_classes():
    check_loss(DenseTripletLoss(), ClassLabels([0, 0, 1, 1, 1, 2, 2, 0]), dim=3)


@pytest.mark.parametrize("loss", [LogRatioLoss(), LogRatioLoss(squared=False), LogRatioLoss(strict=True)], ids=repr)
def test_a_loss_for_graded_labels_on_labels_that_come_again(loss):
    check_loss(loss, VectorLabels([0, 0, 1, 1, 1, 2, 2, 0], squared=loss.squared), dim=3)


def test_a_loss_for_graded_labels_refuses_classes():
    with pytest.raises(InputError, match="LogRatioLoss needs graded label distances, but the labels are classes"):
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
    def pairwise(self, rows=None, cols=None, **options):
        return super().pairwise(rows, cols, **options).double()


class BadNumbers(Broken):
    """`pairwise` of its own, which checks no numbers."""

    def __init__(self, bad):
        super().__init__()
        self.bad = bad

    def pairwise(self, rows=None, cols=None, **options):
        d = super().pairwise(rows, cols, **options)
        return d.where(d < 20, self.bad)


class NotSquared(Broken):
    def pairwise(self, rows=None, cols=None, **options):
        d = super().pairwise(rows, cols, **options)
        return d if d.shape[0] == d.shape[1] else d + 1


class NoLists(Broken):
    def pairwise(self, rows=None, cols=None, **options):
        return super().pairwise(None if isinstance(rows, list) and rows else rows, cols, **options)


class OddSlices(Broken):
    def pairwise(self, rows=None, cols=None, **options):
        return super().pairwise(slice(0, 2) if isinstance(rows, slice) else rows, cols, **options)


class OddWhole(Broken):
    def pairwise(self, rows=None, cols=None, **options):
        return super().pairwise(rows, cols, **options) * (2 if rows is None else 1)


class NoEmpty(Broken):
    def pairwise(self, rows=None, cols=None, **options):
        return super().pairwise(None if isinstance(rows, list) and not rows else rows, cols, **options)


class PartOfAll(Broken):
    def _select(self, index):
        return copy.copy(self)


def index_by(function, base=Broken):
    """A space whose `labels[rows]` is `function(whole, rows, what it should be)`."""

    def index(self, rows):
        return function(self, rows, base.__getitem__(self, rows))

    return type(base.__name__, (base,), {"__getitem__": index})()


def with_attributes(part, **attributes):
    part.__dict__.update(attributes)
    return part


def as_others(part):
    """Says the same in itself, but its root has other labels."""
    part._root = copy.copy(part.root)
    part._root.values = part._root.values.square()
    return part


def more_if(condition):
    """A space whose label distances are too large where `condition(space, rows)`."""

    class More(Broken):
        def pairwise(self, rows=None, cols=None, **options):
            return super().pairwise(rows, cols, **options) + float(condition(self, rows))

    return More()


def has_copies(space):
    return len(space.values.unique()) < len(space)


class Unnumbered(Broken):
    """As made of a bare tensor: without row numbers."""

    def __init__(self):
        super().__init__()
        self.rows = None


class AnyNumbers(Broken):
    """Parts have the row numbers that `number(rows, their row numbers in the space)` says."""

    number = staticmethod(lambda rows, index: rows)

    def _part(self, index):
        part = super()._part(index)
        part.rows = self.number(part.rows, index)
        return part


def numbered(function):
    return type("AnyNumbers", (AnyNumbers,), {"number": staticmethod(function)})()


class OwnRoot(Broken):
    """A part says that it is a root, but keeps the row numbers of the whole."""

    @property
    def root(self):
        return self


class NeverARoot(Broken):
    def as_root(self):
        return self


class Elsewhere(Broken):
    def to(self, device):
        moved = super().to(device)
        moved.values = 2 * moved.values
        return moved


class Ids(ClassLabels):
    def __init__(self):
        super().__init__([0, 1, 0, 2, 1, 2])


class OtherDistances(Ids):
    def pairwise(self, rows=None, cols=None, **options):
        r, c = (self.class_ids if index is None else self.class_ids[index] for index in (rows, cols))
        return (r[:, None] > 0).float() * (c > 0) * super().pairwise(rows, cols, **options)


def asymmetric(d):
    return d * (1 + torch.rand(d.shape))


def zero_or_one(**attributes):
    return broken(kind="classes", spoil=staticmethod(lambda d: (d > 0).float()), **attributes)


NO_INDEX = "Broken breaks the rule 'index': labels[rows] of 5 rows is no Broken of as many items, of kind 'graded'"
OTHER_INDEX = "'index': label distances of labels[rows], or of an index of it, differ from pairwise(rows, rows)"
OTHER_ROOT = "'rows': labels[rows].root[labels[rows].rows] are other labels than labels[rows]"
NO_CLASSES = "'classes': kind is 'classes', but class_ids is no tensor of one whole number for each item"


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (VectorLabels([0.0, 1.0]), "VectorLabels breaks the rule 'length': it has 2 items; the check needs at least 3"),
        (broken(unit=property(lambda s: " ", lambda s, v: None)), "'unit': unit is ' '; say in words what"),
        (broken(unit=property(lambda s: 3, lambda s, v: None)), "'unit': unit is 3"),
        (broken(kind="levels"), "'kind': kind is 'levels'; it must be one of graded, binary, classes"),
        (broken(kind="distances"), "'kind': kind is 'distances'; it must be one of graded, binary, classes"),
        (Doubles(), "Doubles breaks the rule 'float32': pairwise of 6 rows is torch.float64 [6, 6] on cpu"),
        (spoilt(lambda d: d[:, :1]), "'float32': pairwise of 6 rows is torch.float32 [6, 1] on cpu"),
        (BadNumbers(torch.nan), "'numbers': a label distance is nan"),
        (BadNumbers(torch.inf), "'numbers': a label distance is inf; label distances are finite numbers >= 0"),
        (BadNumbers(-1), "'numbers': a label distance is -1"),
        (spoilt(lambda d: d + 1e-6), "to itself is not 0"),
        (spoilt(asymmetric), "'symmetric': D(i, j) and D(j, i) differ"),
        (NotSquared(), "'blocks': pairwise(rows, cols) differs from the same block of a larger one"),
        (NoLists(), "'blocks': rows as a list and as a tensor"),
        (OddSlices(), "'blocks': rows as a slice and as a range"),
        (OddWhole(), "'blocks': pairwise() differs from pairwise(rows, cols) of all rows"),
        (NoEmpty(), "'blocks': pairwise([], cols) is not of shape [0, cols]"),
        (PartOfAll(), "breaks the rule 'blocks'"),
        (index_by(lambda whole, rows, part: whole), NO_INDEX),
        (index_by(lambda whole, rows, part: part[[0, 1, 2]] if len(part) == 5 else part), NO_INDEX),
        (index_by(lambda whole, rows, part: whole.pairwise(rows, rows)), NO_INDEX),
        (index_by(lambda whole, rows, part: VectorLabels(part.values)), NO_INDEX),
        (index_by(lambda whole, rows, part: with_attributes(part, kind="binary")), NO_INDEX),
        (
            index_by(lambda whole, rows, part: Broken._part(whole, torch.as_tensor(rows).sort().values)),
            OTHER_INDEX,
        ),
        (
            index_by(lambda whole, rows, part: whole if len(part) == 2 else part),
            OTHER_INDEX,
        ),
        (more_if(lambda space, rows: len(space) == 5), OTHER_INDEX),
        (more_if(lambda space, rows: len(space) == 2), OTHER_INDEX),
        (Unnumbered(), "'rows': labels[rows].rows are not the row numbers in the root"),
        (numbered(lambda rows, index: None), "'rows': labels[rows].rows are not the row numbers in the root"),
        (
            numbered(lambda rows, index: torch.arange(len(rows))),
            "'rows': labels[rows].rows are not the row numbers in the root",
        ),
        (numbered(lambda rows, index: index), "'rows': labels[rows][some].rows are not the row numbers in the root"),
        (OwnRoot(), OTHER_ROOT),
        (index_by(lambda whole, rows, part: as_others(part)), OTHER_ROOT),
        (NeverARoot(), "'rows': as_root().rows do not start anew"),
        (
            more_if(lambda space, rows: has_copies(space) and rows is None),
            "'batch': labels[rows].pairwise() differs from pairwise(rows, rows)",
        ),
        (
            index_by(lambda whole, rows, part: Broken._part(part, torch.arange(6)) if len(part) == 8 else part),
            "'batch': labels[rows].pairwise() differs from pairwise(rows, rows)",
        ),
        (
            more_if(lambda space, rows: len(space) == 8 and isinstance(rows, torch.Tensor)),
            "'batch': labels[rows].pairwise(anchors) differs from these rows of labels[rows].pairwise()",
        ),
        (
            more_if(lambda space, rows: len(space) == 8 and isinstance(rows, slice)),
            "'batch': labels[rows].pairwise(anchors) differs from these rows of labels[rows].pairwise()",
        ),
        (Elsewhere(), "'device': to(\"cpu\") is not on the CPU, or has other label distances"),
        (broken(kind="binary"), "'0 or 1': a label distance is"),
        (broken(class_ids=torch.arange(6)), "'classes': it has class_ids, but kind is 'graded'"),
        (
            index_by(lambda whole, rows, part: with_attributes(part, class_ids=torch.arange(len(part)))),
            "'classes': it has class_ids, but kind is 'graded'",
        ),
        (zero_or_one(), NO_CLASSES),
        (zero_or_one(class_ids=[0, 1, 2, 3, 4, 5]), NO_CLASSES),
        (zero_or_one(class_ids=torch.arange(5)), NO_CLASSES),
        (zero_or_one(class_ids=torch.arange(6.0)), NO_CLASSES),
        (
            index_by(lambda whole, rows, part: with_attributes(part, class_ids=part.class_ids + 1), Ids),
            "'classes': labels[rows].class_ids differs from class_ids[rows]",
        ),
        (OtherDistances(), "'classes': label distances are not 0 within a class and 1 between classes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_broken_label_spaces(space, message):
    with pytest.raises(AssertionError) as error:
        check_label_space(space)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_space_to_be_spoilt_is_right():
    check_label_space(Broken())
    check_label_space(index_by(lambda whole, rows, part: part))
    check_label_space(more_if(lambda space, rows: False))
    check_label_space(numbered(lambda rows, index: rows))
    check_label_space(Ids())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -1.0])
def test_a_space_that_only_writes_distances_has_its_numbers_checked_by_pairwise(bad):
    with pytest.raises(InputError, match=f"label distance: {bad}"):
        check_label_space(spoilt(lambda d: d.where(d < 20, bad)))


class Sum(nn.Module):
    """Sum of label distance times squared embedding distance: a loss in all rules, to be spoilt."""

    requires = "any"

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
            target = labels.pairwise(rows)
        self.look_at(labels, target)
        d = (x[rows, None] - x[None]).square().sum(2)
        value = (d * target.to(d.dtype)).sum() * self.weight
        return self.spoil["value"](value, x, labels, anchors) if self.spoil else value

    def look_at(self, labels, target):
        if self.requires in ("binary", "classes") and bool(((target != 0) & (target != 1)).any()):
            raise InputError("needs 0 / 1; set a threshold")
        if self.requires == "graded" and getattr(labels, "kind", "graded") != "graded":
            raise InputError("needs graded labels")


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
    check_loss(Sum(requires="binary"))
    check_loss(Sum(requires="graded"))


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
            "'labels': of some anchors, label distances [A, B] and the label space of the same labels",
        ),
        (
            bend(lambda v, x, t, a: v * (2 if isinstance(t, torch.Tensor) and t.ndim == 1 else 1), requires="binary"),
            "'labels': class ids [B] and the label space of the same labels differ",
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


class TakesAnything(Sum):
    def look_at(self, labels, target):
        pass


def refuses(what):
    """A loss that refuses a matrix, or a label space, and takes the other whatever it holds."""

    class Refuses(Sum):
        def look_at(self, labels, target):
            if isinstance(labels, torch.Tensor) == (what == "matrices"):
                super().look_at(labels, target)

    return Refuses


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (TakesAnything(requires="binary"), "'kind': it requires 'binary', but takes graded labels; refuse it with"),
        (refuses("spaces")(requires="binary"), "'kind': it requires 'binary', but takes label distances of 0.5"),
        (refuses("matrices")(requires="binary"), "'kind': it requires 'binary', but takes graded labels"),
        (TakesAnything(requires="classes"), "'kind': it requires 'classes', but takes graded labels"),
        (refuses("spaces")(requires="classes"), "'kind': it requires 'classes', but takes label distances of 0.5"),
        (Sum(requires="classes"), "'kind': it requires 'classes', but takes 0 / 1 without class ids"),
        (TakesAnything(requires="graded"), "'kind': it requires 'graded', but takes classes; refuse it with an Input"),
    ],
    ids=lambda value: value[9:] if isinstance(value, str) else "",
)
def test_a_loss_that_takes_any_kind_of_labels(loss, message):
    with pytest.raises(AssertionError) as error:
        check_loss(loss)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_rules_can_be_skipped():
    check_loss(bend(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["gradcheck"])
    check_loss(bend(lambda v, x, t, a: v + x.square().mean()), skip=["empty"])
    with pytest.raises(AssertionError, match="'gradcheck'"):
        check_loss(bend(lambda v, x, t, a: v * SwapGradient.apply(x)), skip=["empty"])


def test_a_loss_stays_as_it_is():
    class Counts(TripletMarginLoss):
        calls = 0

        def values(self, block):
            self.calls += 1
            return super().values(block)

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
