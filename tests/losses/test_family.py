"""The losses on class labels as one family: each against its slow loop, and what all of them owe."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from support import reference, reference_classes, reference_pairs
from support.choices import pairwise
from support.losses import assert_same, made, value_and_gradients
from support.miners import FixedWeights
from support.strategies import CLASS_CASES, ClassCase, class_batches
from torch import Tensor

from contml.losses import LOSSES, PairLoss
from contml.losses.pair_weights import pair_weights
from contml.mining import MINERS
from contml.training.hdml import pull

CASES = {case.name: case for case in CLASS_CASES}


def instance_cross_entropy(embeddings, classes, anchors=None, scale=64.0, reweight=True, kept=None):
    """The value is Eq. 5 over m, the gradient that of the surrogate."""
    value = reference_classes.instance_cross_entropy(embeddings, classes, anchors, scale, kept)
    if not reweight:
        return value
    surrogate = reference_classes.instance_cross_entropy_surrogate(embeddings, classes, anchors, scale, kept)
    return value.detach() + surrogate - surrogate.detach()


@dataclass(frozen=True)
class Member:
    """A loss with options, and its loop.

    at_copies: identical embeddings are no kink of it, so that gradients are compared there too.
    """

    name: str
    loop: Callable[..., Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    at_copies: bool = True

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    def make(self, num_classes: int = 4, dim: int = 4, **keywords: Any) -> PairLoss:
        return make(self.name, num_classes, dim, **keywords, **self.options)

    def value(self, embeddings: Tensor, classes: Tensor, *parameters: Tensor, **keywords: Any) -> Tensor:
        # A loop sees these by the parameter.
        seen = ("centers", "per_class", "boundary" if self.name == "margin" else "")
        options = {key: value for key, value in self.options.items() if key not in seen}
        return self.loop(embeddings, classes, *parameters, **keywords, **options)


def make(name, num_classes=4, dim=4, class_ids=None, **options):
    """The loss in float64, built with what it needs from the data."""
    return made(name, num_classes=num_classes, embedding_dim=dim, class_ids=class_ids, **options).double()


def robust(**options):
    return Member("dro", reference_classes.dro, options, at_copies=options.get("uncertainty") in ("kl", "kl_grouped"))


DEFAULTS = [
    Member("contrastive", reference_pairs.contrastive),
    Member("n_pairs", reference_pairs.n_pairs),
    Member("angular", reference_pairs.angular),
    Member("lifted_structure", reference_pairs.lifted_structure),
    Member("binomial_deviance", reference_pairs.binomial_deviance),
    Member("raw", reference_pairs.raw),
    Member("multi_similarity", reference_pairs.multi_similarity),
    Member("ranked_list", reference_pairs.ranked_list, at_copies=False),
    Member("cross_entropy", reference_classes.cross_entropy),
    Member("normalized_softmax", reference_classes.normalized_softmax),
    Member("instance_cross_entropy", instance_cross_entropy),
    robust(),
    Member("proxy_nca", reference_classes.proxy_nca),
    Member("soft_triple", reference_classes.soft_triple, {"centers": 2}),
    Member("proxy_anchor", reference.proxy_anchor),
    Member("margin", reference.margin_loss, at_copies=False),
    Member("margin", reference.margin_loss, {"per_class": True}, at_copies=False),
]
VARIANTS = [
    Member("contrastive", reference_pairs.contrastive, {"margin": 0.1}),
    Member("contrastive", reference_pairs.contrastive, {"distance": "euclidean"}, at_copies=False),
    Member("contrastive", reference_pairs.contrastive, {"distance": "euclidean", "margin": 2.5}, at_copies=False),
    Member("n_pairs", reference_pairs.n_pairs, {"l2": 0.0}),
    Member("n_pairs", reference_pairs.n_pairs, {"l2": 0.5}),
    Member("n_pairs", reference_pairs.n_pairs, {"l2": 0.0, "distance": "squared_euclidean"}),
    Member("n_pairs", reference_pairs.n_pairs, {"l2": 0.5, "distance": "squared_euclidean"}),
    Member("angular", reference_pairs.angular, {"alpha": 25.0}),
    Member("lifted_structure", reference_pairs.lifted_structure, {"margin": 0.1}),
    Member("binomial_deviance", reference_pairs.binomial_deviance, {"alpha": 3.0, "beta": 20.0, "base": 0.2}),
    Member("binomial_deviance", reference_pairs.binomial_deviance, {"scaled": True}),
    Member("binomial_deviance", reference_pairs.binomial_deviance, {"alpha": 3.0, "beta": 20.0, "scaled": True}),
    Member("raw", reference_pairs.raw, {"alpha": 3.0, "beta": 20.0, "base": 0.2}),
    Member(
        "multi_similarity", reference_pairs.multi_similarity, {"alpha": 3.0, "beta": 40.0, "base": 0.9, "epsilon": 0.5}
    ),
    Member("ranked_list", reference_pairs.ranked_list, {"boundary": 1.4, "margin": 0.6, "scale": 3.0}, at_copies=False),
    Member("normalized_softmax", reference_classes.normalized_softmax, {"temperature": 0.5}),
    Member("instance_cross_entropy", instance_cross_entropy, {"scale": 16.0}),
    Member("instance_cross_entropy", instance_cross_entropy, {"reweight": False}),
    robust(k=1),
    robust(k=6),
    robust(uncertainty="topk_pn", k=2),
    robust(pair="similarity", k=9),
    robust(pair="binomial", k=1000),
    robust(pair="binomial", alpha=3.0, beta=20.0, base=0.2, k=8),
    robust(uncertainty="topk_pn", k=10),
    robust(uncertainty="topk_pn", pair="binomial", k=1000),
    robust(uncertainty="kl"),
    robust(uncertainty="kl", gamma=1e-3, margin=0.5, base=0.1),
    robust(uncertainty="kl", pair="binomial", gamma=1.0),
    robust(uncertainty="kl", pair="similarity"),
    robust(uncertainty="kl_grouped", pair="similarity", gamma=1.0),
    robust(uncertainty="kl_grouped", pair="similarity", gamma=1e-3),
    robust(uncertainty="kl_grouped", pair="binomial"),
    robust(uncertainty="kl_grouped", margin=0.5, base=0.1),
    Member("proxy_nca", reference_classes.proxy_nca, {"norm": 3.0}),
    Member("proxy_nca", reference_classes.proxy_nca, {"norm": 3.0, "positive_in_denominator": True}),
    Member("proxy_nca", reference_classes.proxy_nca, {"label_smoothing": 0.2}),
    Member(
        "proxy_nca", reference_classes.proxy_nca, {"norm": 3.0, "positive_in_denominator": True, "label_smoothing": 0.1}
    ),
    Member("proxy_nca", reference_classes.proxy_nca, {"norm": 2.0, "temperature": 0.5, "label_smoothing": 0.1}),
    Member("soft_triple", reference_classes.soft_triple, {"centers": 2, "tau": 0.0}),
    Member("soft_triple", reference_classes.soft_triple, {"centers": 10}),
    Member("soft_triple", reference_classes.soft_triple, {"centers": 1}),
    Member(
        "soft_triple",
        reference_classes.soft_triple,
        {"centers": 3, "la": 10.0, "gamma": 0.3, "tau": 0.5, "margin": 0.1},
    ),
    Member("proxy_anchor", reference.proxy_anchor, {"alpha": 5.0, "delta": 0.3}),
    Member("margin", reference.margin_loss, {"margin": 0.5, "boundary": 0.8}, at_copies=False),
]
#: What options change, they change in these.
FEW_CASES = [CASES[name] for name in ("unequal class sizes", "norms from 1e-3 to 30", "copy in another class")]
#: Every loss of classes, with default options; those without a loop here have one in test_losses.py.
NAMES = [name for name, loss in LOSSES.items() if loss.requires not in ("any", "graded")]


def copies_of(tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def parameters_of(loss):
    return [parameter for parameter in loss.parameters() if parameter.requires_grad]


@pytest.mark.parametrize(("member", "case"), [*product(DEFAULTS, CLASS_CASES), *product(VARIANTS, FEW_CASES)], ids=str)
def test_equals_its_loop_with_gradients_whole_and_in_blocks(member: Member, case: ClassCase) -> None:
    loss = member.make(case.num_classes + 1, case.embeddings.shape[1])
    theirs, *parameters = copies_of([case.embeddings, *parameters_of(loss)])
    expected = value_and_gradients(member.value(theirs, case.classes, *parameters), theirs, *parameters)
    gradients = case.smooth or (member.at_copies and case.name != "an embedding of zeros")
    for loss.block_rows in (None, 1, 7, len(case.embeddings)):
        ours = case.leaf()
        found = value_and_gradients(loss(ours, case.classes), ours, *parameters_of(loss))
        assert_same(found, expected, gradients)


@pytest.mark.parametrize("member", DEFAULTS + VARIANTS, ids=str)
def test_some_rows_as_anchors(member):
    case = CASES["unequal class sizes"]
    loss = member.make(case.num_classes)
    for places in ([4, 0, 3], [5]):
        anchors = torch.tensor(places)
        theirs, *parameters = copies_of([case.embeddings, *parameters_of(loss)])
        loop = member.value(theirs, case.classes, *parameters, anchors=places)
        expected = value_and_gradients(loop, theirs, *parameters)
        for loss.block_rows in (None, 2):
            ours = case.leaf()
            value = loss(ours, case.classes, anchors=anchors)
            assert_same(value_and_gradients(value, ours, *parameters_of(loss)), expected)


@pytest.mark.parametrize("member", DEFAULTS, ids=str)
@settings(max_examples=12, deadline=None)
@given(batch=class_batches(max_size=7, smooth=True))
def test_equals_its_loop_on_drawn_batches(member, batch):
    embeddings, classes = batch
    loss = member.make(int(classes.max()) + 2, embeddings.shape[1])
    theirs = member.value(embeddings, classes, *parameters_of(loss))
    torch.testing.assert_close(loss(embeddings, classes), theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("member", DEFAULTS, ids=str)
def test_class_ids_of_any_numbering(member):
    ids = [70_000_000_000, 3, 5, 12]
    embeddings = CASES["unequal class sizes"].embeddings
    classes = torch.tensor(ids)[torch.tensor([0, 1, 1, 2, 0, 0, 0, 2, 2])]
    loss = member.make(4, class_ids=ids)
    theirs, *parameters = copies_of([embeddings, *parameters_of(loss)])
    known = {"class_ids": ids} if parameters else {}
    expected = value_and_gradients(member.value(theirs, classes, *parameters, **known), theirs, *parameters)
    for loss.block_rows in (None, 2):
        ours = embeddings.clone().requires_grad_()
        assert_same(value_and_gradients(loss(ours, classes), ours, *parameters_of(loss)), expected)


def test_every_class_loss_and_each_of_its_options_has_a_loop():
    tested = {member.name for member in DEFAULTS}
    assert tested | {"triplet_margin"} == set(NAMES)  # that is in test_losses.py
    for name in tested:
        signature = inspect.signature(LOSSES[name]).parameters.values()
        options = {option.name for option in signature if option.kind is not option.KEYWORD_ONLY}
        assert {key for member in DEFAULTS + VARIANTS if member.name == name for key in member.options} == options


# ---------------------------------------------------------------------------------------------------------------------
# precision


@pytest.mark.parametrize(
    ("member", "norm", "dtype", "block_rows"),
    pairwise(DEFAULTS, [1.0, 30.0], [torch.float32, torch.bfloat16], [None, 3]),
    ids=str,
)
def test_lower_precision_of_the_input_costs_no_more_than_its_rounding(member, norm, dtype, block_rows):
    case = CASES["unequal class sizes"]
    embeddings = (norm * torch.nn.functional.normalize(case.embeddings)).to(dtype)
    loss = member.make(case.num_classes).float()
    theirs, *parameters = copies_of([embeddings.double(), *[p.double() for p in parameters_of(loss)]])
    expected = value_and_gradients(member.value(theirs, case.classes, *parameters), theirs, *parameters)
    loss.block_rows = block_rows
    ours = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(ours, case.classes)
    assert value.dtype == torch.float32
    found = value_and_gradients(value, ours, *parameters_of(loss))
    assert found[1].dtype == dtype
    for position, (a, b) in enumerate(zip(found, expected, strict=True)):
        rounding = 1e-2 if a.dtype == torch.bfloat16 else 1e-3  # of the gradient; the value is in float32
        tolerance = 2e-4 if position == 0 else rounding
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance * max(1e-2, float(b.abs().max())))


# ---------------------------------------------------------------------------------------------------------------------
# mining


MINED = [
    Member("raw", reference_pairs.raw),
    Member("binomial_deviance", reference_pairs.binomial_deviance),
    Member("binomial_deviance", reference_pairs.binomial_deviance, {"scaled": True}),
]


@pytest.mark.parametrize("member", MINED, ids=str)
@pytest.mark.parametrize("name", ["vthm", "semi_hard", "hardest"])
@pytest.mark.parametrize("case", [case for case in CLASS_CASES if case.smooth], ids=str)
def test_mined_pairs_equal_the_loop_over_their_list(case, name, member):
    loss = member.make(miner=MINERS[name]())
    theirs = case.leaf()
    kept = getattr(reference_pairs, name)(reference_pairs.cosines(case.embeddings), case.classes)
    expected = value_and_gradients(member.value(theirs, case.classes, kept=kept), theirs)
    for loss.block_rows in (None, 1, 7):
        ours = case.leaf()
        assert_same(value_and_gradients(loss(ours, case.classes), ours), expected)


#: Those whose sums over pairs a miner may weigh, as a list in which pairs come several times.
#: Their weights are constants, so their gradients are not the derivatives of their values, as in the loops above.
SURROGATES = {"instance_cross_entropy", "ranked_list"}


@pytest.mark.parametrize(
    "member",
    [m for m in DEFAULTS + VARIANTS if m.name not in SURROGATES or m.options.get("reweight") is False],
    ids=str,
)
def test_gradcheck(member):
    case = CASES["classes of one"]
    loss = member.make(case.num_classes)
    parameters = parameters_of(loss)
    leaf = case.leaf()
    assert torch.autograd.gradcheck(lambda e, *_: loss(e, case.classes), (leaf, *parameters), fast_mode=True)


LISTED = {"contrastive", "lifted_structure", "binomial_deviance", "raw", "ranked_list", "instance_cross_entropy", "dro"}


@pytest.mark.parametrize("member", [m for m in DEFAULTS + VARIANTS if m.name in LISTED], ids=str)
def test_a_pair_of_weight_three_is_a_pair_listed_three_times(member):
    case = CASES["unequal class sizes"]
    size = len(case.classes)
    for seed in range(3):
        times = torch.randint(0, 4, (size, size), generator=torch.Generator().manual_seed(seed))
        times[seed] = 0  # an anchor of which nothing is left
        listed = [[], []]
        for i in range(size):
            for side, partners in zip(listed, reference_pairs.partners(case.classes, i), strict=True):
                side += [(i, j) for j in partners for _ in range(int(times[i, j]))]
        loss = member.make(miner=FixedWeights(times))
        theirs = case.leaf()
        expected = value_and_gradients(member.value(theirs, case.classes, kept=listed), theirs)
        for loss.block_rows in (None, 2):
            ours = case.leaf()
            assert_same(value_and_gradients(loss(ours, case.classes), ours), expected)


# ---------------------------------------------------------------------------------------------------------------------
# the unified view: the weights of pairs in closed form


def instance_cross_entropy_weights(embeddings, classes):
    """Eq. 11-15 before the 1/m."""
    w = torch.zeros(len(classes), len(classes), dtype=torch.float64)
    for side in reference_classes.instance_cross_entropy_weights(embeddings, classes):
        for i, j, w_ij in side:
            w[i, j] = len(classes) * w_ij
    return w


WEIGHTS = {
    "contrastive": (reference_pairs.contrastive_weights, [{}, {"margin": 0.1}]),
    "triplet_margin": (reference_pairs.triplet_weights, [{}, {"margin": 0.6}]),
    "lifted_structure": (reference_pairs.lifted_structure_weights, [{}, {"margin": 0.1}]),
    "binomial_deviance": (
        reference_pairs.binomial_deviance_weights,
        [{}, {"alpha": 3.0, "beta": 20.0, "base": 0.2}, {"alpha": 3.0, "scaled": True}],
    ),
    "raw": (reference_pairs.raw_weights, [{}, {"alpha": 3.0, "beta": 20.0, "base": 0.2}]),
    "instance_cross_entropy": (instance_cross_entropy_weights, [{}]),
}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_weights_of_pairs_are_those_of_the_paper(case, name):
    closed_form, options = WEIGHTS[name]
    for choice in options:
        found = pair_weights(make(name, **choice), case.embeddings, case.classes)
        assert_same([found], [closed_form(case.embeddings, case.classes, **choice)])


# ---------------------------------------------------------------------------------------------------------------------
# HDML


@pytest.mark.parametrize(("alpha", "average"), [(7.0, 0.5), (7.0, 20.0), (90.0, 1e6), (90.0, 3.0)])
def test_the_augmentor_pulls_negatives_as_the_paper_says(alpha, average):
    x = torch.randn(3, 12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[2, 0] = x[0, 0]  # the negative lies on its anchor,
    x[1, 1] = x[0, 1]  # the positive does,
    x[1:, 2] = x[0, 2]  # both do;
    x[2, 3] = x[1, 3]  # or the negative on the positive
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found = pull(*ours, alpha, torch.tensor(average, dtype=torch.float64))
    rows = [reference_classes.augmented(*theirs[:, i], alpha, average) for i in range(x.shape[1])]
    sign = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = value_and_gradients((torch.stack(rows) * sign).sum(), theirs)
    assert_same([found], [torch.stack(rows)])
    assert_same(value_and_gradients((found * sign).sum(), ours), expected)
