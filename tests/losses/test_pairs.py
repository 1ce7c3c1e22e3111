"""Pair losses, losses on pairs of a class, and ranked list: options, weights, edges. Their loops: test_family.py."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.miners import FixedWeights
from support.refusals import refuses
from support.strategies import collapsed_classes, separated_classes

from contml.config import data_arguments, options
from contml.distances.euclidean import normalize
from contml.losses import (
    LOSSES,
    AngularLoss,
    BinomialDevianceLoss,
    ContrastiveLoss,
    CrossBatchMemory,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NPairsLoss,
    RankedListLoss,
    RAWLoss,
)
from contml.losses.log_sum_exp import log_one_plus_sum_exp
from contml.losses.n_pairs import class_pairs
from contml.losses.pair_weights import pair_weights
from contml.mining import VTHM

#: Losses that read every pair of an anchor.
PAIRS = {
    "contrastive": ContrastiveLoss,
    "contrastive, euclidean": lambda **data: ContrastiveLoss(distance="euclidean", **data),
    "lifted_structure": LiftedStructureLoss,
    "binomial_deviance": BinomialDevianceLoss,
    "raw": RAWLoss,
    "ranked_list": RankedListLoss,
}
PAIRS_OF_A_CLASS = {"n_pairs": NPairsLoss, "angular": AngularLoss}
#: Classes 3 and 0 have pairs, (0, 2) and (3, 4); 5 is a third of class 0; 7 and 8 are alone.
CLASSES = torch.tensor([3, 7, 3, 0, 0, 0, 8])


def batch(items, dim=5, seed=0, scale=0.6):
    return scale * torch.randn(items, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def value_and_gradient(loss, x, labels, **arguments):
    leaf = x.clone().requires_grad_()
    value = loss(leaf, labels, **arguments)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


# ---------------------------------------------------------------------------------------------------------------------
# options


@pytest.mark.parametrize(
    ("make", "options", "fields"),
    [
        (ContrastiveLoss, {"margin": -0.1, "distance": "euclidean"}, ("margin", "-0.1", "at least 0")),
        (ContrastiveLoss, {"margin": math.nan}, ("margin", "nan", "a finite number")),
        (ContrastiveLoss, {"distance": "dot"}, ("distance", "dot", "cosine, euclidean")),
        (LiftedStructureLoss, {"margin": math.inf}, ("margin", "inf", "at least 0")),
        (BinomialDevianceLoss, {"alpha": 0}, ("alpha", "0", "above 0")),
        (BinomialDevianceLoss, {"base": math.inf}, ("base", "inf", "finite")),
        (RAWLoss, {"alpha": -2.0}, ("alpha", "-2.0", "above 0")),
        (RAWLoss, {"beta": math.inf}, ("beta", "inf", "above 0")),
        (MultiSimilarityLoss, {"beta": 0.0}, ("beta", "0.0", "above 0")),
        (MultiSimilarityLoss, {"epsilon": -1}, ("epsilon", "-1", "at least 0")),
        (RankedListLoss, {"boundary": 0}, ("boundary", "0", "above 0")),
        (RankedListLoss, {"margin": -1}, ("margin", "-1", "at least 0")),
        (RankedListLoss, {"scale": math.nan}, ("scale", "nan", "at least 0")),
        (NPairsLoss, {"l2": -0.5}, ("l2", "-0.5", "at least 0")),
        (NPairsLoss, {"distance": "cosine"}, ("distance", "cosine", "dot, squared_euclidean")),
        (AngularLoss, {"alpha": 90}, ("alpha", "90", "above 0 and below 90")),
        (AngularLoss, {"alpha": 0.0}, ("alpha", "0.0", "above 0 and below 90")),
    ],
)
def test_bad_options_are_refused(make, options, fields):
    with refuses(*fields):
        make(**options)


def test_names_and_defaults_of_the_options():
    found = {name: {o.name: o.default for o in options(LOSSES[name])} for name in LOSSES}
    scales = {"alpha": 2.0, "beta": 50.0, "base": 0.5}
    assert found["contrastive"] == {"margin": None, "distance": "cosine"}
    assert found["lifted_structure"] == {"margin": 1.0}
    assert found["raw"] == scales
    assert found["binomial_deviance"] == {**scales, "scaled": False}
    assert found["multi_similarity"] == {**scales, "epsilon": 0.1}
    assert found["ranked_list"] == {"boundary": 1.2, "margin": 0.4, "scale": 10.0}
    assert found["n_pairs"] == {"l2": 0.0015, "distance": "dot"}
    assert found["angular"] == {"alpha": 40.0}
    assert all(o.help for name in {*found} & {"contrastive", *PAIRS, *PAIRS_OF_A_CLASS} for o in options(LOSSES[name]))


def test_the_contrastive_margin_is_that_of_its_distance():
    x, classes = batch(7, scale=0.3), CLASSES
    for distance, margin in (("cosine", 0.5), ("euclidean", 1.0)):
        assert ContrastiveLoss(distance=distance).margin == margin
        given = ContrastiveLoss(margin, distance)(x, classes)
        assert torch.equal(ContrastiveLoss(distance=distance)(x, classes), given)
        assert not torch.equal(ContrastiveLoss(0.2, distance)(x, classes), given)


def test_losses_on_pairs_of_a_class_take_no_miner_and_no_memory():
    for make in PAIRS_OF_A_CLASS.values():
        assert "miner" not in data_arguments(make)
        with pytest.raises(TypeError, match="miner"):
            make(miner=VTHM())
        with refuses(make.__name__, got="memory"):
            CrossBatchMemory(make())


def test_a_miner_of_cosines_needs_embeddings_on_the_sphere():
    miner = type("OnSphere", (FixedWeights,), {"sphere": True})(None)
    with refuses("OnSphere", got="ContrastiveLoss", allowed="cosines"):
        ContrastiveLoss(distance="euclidean", miner=miner)(batch(3), torch.tensor([0, 0, 1]))


# ---------------------------------------------------------------------------------------------------------------------
# the weights that the unified view gives in closed form


def test_binomial_deviance_divides_by_the_pairs_that_a_miner_keeps():
    x, classes = batch(8, seed=2), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    kept = torch.zeros(8, 8)
    kept[0, [1, 3]] = kept[0, 4] = kept[5, 2] = 1  # two positives and a negative of item 0, a negative of item 5
    s = normalize(x) @ normalize(x).T
    pull = torch.nn.functional.softplus(3 * (0.2 - s[0, [1, 3]])).sum() / 2  # not / 3
    push = torch.nn.functional.softplus(20 * (torch.stack((s[0, 4], s[5, 2])) - 0.2)).sum()
    for scaled, factors in ((False, (1, 1)), (True, (2 / 3, 2 / 20))):
        loss = BinomialDevianceLoss(3.0, 20.0, 0.2, scaled, miner=FixedWeights(kept))
        torch.testing.assert_close(loss(x, classes), (factors[0] * pull + factors[1] * push) / 8)


def test_the_gradient_of_ranked_list_takes_its_weights_as_given():
    d = torch.tensor([[0.0, 0.9, 0.5, 1.1, 1.0, 0.3, 1.3]], dtype=torch.float64)
    target = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    x = torch.eye(7, dtype=torch.float64)  # its distances are not read
    loss = RankedListLoss()
    comparison = loss.compare(x, torch.ones(7, 7).fill_diagonal_(0))
    block = replace(loss.block(comparison, d.requires_grad_(), slice(0, 1)), label_distances=target)
    value, _ = loss.values(block)
    w = [math.exp(10 * 0.2), math.exp(10 * 0.9)]
    far = (w[0] * 0.2 + w[1] * 0.9) / sum(w)
    assert value.item() == pytest.approx((0.1 + 0.3) / 2 / 2 + far / 2)
    (gradient,) = torch.autograd.grad(value.sum(), d)
    expected = [0, 1 / 4, 0, 1 / 4, -w[0] / sum(w) / 2, -w[1] / sum(w) / 2, 0]
    assert gradient[0].tolist() == pytest.approx(expected)


# ---------------------------------------------------------------------------------------------------------------------
# a miner's weights


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("block_rows", [None, 1, 2])
def test_pairs_that_a_comparison_excludes_are_not_there(name, block_rows):
    # As with a memory: seven items of a batch and three remembered ones, of which item 8 is item 3 again, and 9 item 1.
    # A memory's embeddings have drifted.
    x, classes = batch(10, seed=11), torch.tensor([3, 7, 3, 0, 4, 5, 8, 4, 0, 7])
    again = torch.zeros(10, 10, dtype=torch.bool)
    again[3, 8] = again[1, 9] = True
    for anchors in (torch.arange(7), torch.tensor([5, 3, 4, 0, 1])):
        loss, mined = PAIRS[name](), PAIRS[name](miner=FixedWeights((~again).double()))
        loss.block_rows = mined.block_rows = block_rows
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        comparison = loss.compare(ours, classes, anchors)
        excluding = replace(comparison, excluded=lambda part, anchors=anchors: again[anchors[part]])
        value, expected = loss.value(excluding), mined(theirs, classes, anchors=anchors)
        assert torch.equal(value, expected)
        assert torch.equal(torch.autograd.grad(value, ours)[0], torch.autograd.grad(expected, theirs)[0])
        assert not torch.equal(value, loss.value(comparison))


# ---------------------------------------------------------------------------------------------------------------------
# edges


def test_classes_apart_and_together():
    # 3 + 2 + 1 items; s = 1 inside and 0 across, d = sqrt(2) across.
    x, classes = separated_classes((3, 2, 1))
    assert ContrastiveLoss()(x, classes).item() == pytest.approx(-(3 * 2 + 2 * 1) / 6)
    assert ContrastiveLoss(distance="euclidean")(x, classes).item() == 0
    assert ContrastiveLoss(1.5, "euclidean")(x, classes).item() == pytest.approx(22 * (1.5 - math.sqrt(2)) ** 2 / 6)
    assert RankedListLoss()(x, classes).item() == 0
    near, far = math.log(1 + 2 * math.exp(-1)) / 2, math.log(1 + math.exp(-1)) / 2
    push = [math.log1p(n * math.exp(-25)) / 50 for n in (3, 4, 5)]
    assert RAWLoss()(x, classes).item() == pytest.approx((3 * (near + push[0]) + 2 * (far + push[1]) + push[2]) / 6)
    # All the same: s = 1 everywhere, and the six items have 3 + 2 positives' sides and 6 negatives' sides.
    x, classes, _ = collapsed_classes((3, 2, 1))
    pull, push = math.log(1 + math.exp(-1)), math.log(1 + math.exp(25))
    assert BinomialDevianceLoss()(x, classes).item() == pytest.approx((5 * pull + 6 * push) / 6)
    lifted = 3 * math.log(2 * 3) + 2 * math.log(1 * 4) + 5
    assert LiftedStructureLoss()(x, classes).item() == pytest.approx(lifted / 6)
    assert RankedListLoss()(x, classes).item() == pytest.approx(1.2 / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scales_are_the_hardest_pair(dtype):
    x, classes = batch(10, seed=5).to(dtype), torch.arange(10) % 4
    s = normalize(x) @ normalize(x).T
    own = classes[:, None] == classes
    least = s.masked_fill(~own, torch.inf).masked_fill(torch.eye(10) == 1, torch.inf).amin(1)
    most = s.masked_fill(own, -torch.inf).amax(1)
    hard = ((0.1 - least).relu() + (most - 0.1).relu()).mean()
    value, gradient = value_and_gradient(RAWLoss(1e4, 1e4, 0.1), x, classes)
    torch.testing.assert_close(value, hard, rtol=1e-3, atol=0)
    assert gradient.isfinite().all()
    value, gradient = value_and_gradient(RankedListLoss(margin=1.2, scale=1e5), x, classes)
    torch.testing.assert_close(
        value,
        ((2 - 2 * s).clamp(min=0).sqrt() * (own & (torch.eye(10) == 0))).sum(1).div(own.sum(1) - 1).mean() / 2
        + (1.2 - (2 - 2 * most).sqrt()).relu().mean() / 2,
        rtol=1e-3,
        atol=0,
    )
    assert gradient.isfinite().all()
    value, gradient = value_and_gradient(BinomialDevianceLoss(1e4, 1e4, 0.1), x, classes)
    assert value.isfinite()
    assert gradient.isfinite().all()


# ---------------------------------------------------------------------------------------------------------------------
# pairs of a class


def test_class_pairs_are_the_first_two_of_a_class():
    assert class_pairs(CLASSES).tolist() == [2, -1, 0, 4, 3, -1, -1]
    assert class_pairs(torch.tensor([5, 5, 5, 5])).tolist() == [1, 0, -1, -1]
    assert class_pairs(torch.tensor([2, 1, 0])).tolist() == [-1, -1, -1]
    assert class_pairs(torch.tensor([9, 9])).tolist() == [1, 0]


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_items_in_no_pair_are_not_read(name):
    x = batch(7, seed=6)
    value, gradient = value_and_gradient(PAIRS_OF_A_CLASS[name](), x, CLASSES)
    paired = [0, 2, 3, 4]
    alone, of_alone = value_and_gradient(PAIRS_OF_A_CLASS[name](), x[paired], CLASSES[paired])
    torch.testing.assert_close(value, alone)
    torch.testing.assert_close(gradient[paired], of_alone)
    assert not gradient[[1, 5, 6]].any()


@pytest.mark.parametrize("block_rows", [None, 1])
def test_n_pairs_without_negatives_or_pairs_is_its_l2(block_rows):
    x = batch(4, seed=7)
    loss = NPairsLoss(0.5)
    loss.block_rows = block_rows
    value, gradient = value_and_gradient(loss, x, torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(value, 0.5 * x[:2].square().sum(1).mean())
    torch.testing.assert_close(gradient[:2], 0.5 * x[:2])
    assert not gradient[2:].any()
    for loss in (NPairsLoss(0.5), AngularLoss()):
        value, gradient = value_and_gradient(loss, x, torch.arange(4))
        assert value.item() == 0
        assert not gradient.any()
    assert AngularLoss()(x, torch.zeros(4, dtype=torch.int64)).item() == 0


def test_l2_of_bfloat16_under_autocast_is_float32():
    x = batch(4).bfloat16()
    classes = torch.tensor([0, 1, 0, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = NPairsLoss(10.0)(x, classes)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), NPairsLoss(10.0)(x.double(), classes), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_given_anchors_are_those_pairs(name):
    x, make = batch(7, seed=8), PAIRS_OF_A_CLASS[name]
    everyone = value_and_gradient(make(), x, CLASSES)
    for anchors in (torch.arange(7).flip(0), torch.tensor([4, 2, 0, 3, 6, 1])):
        torch.testing.assert_close(value_and_gradient(make(), x, CLASSES, anchors=anchors), everyone)
    loss = make()
    values, counts = loss.sums(loss.compare(x, CLASSES))
    parts = [loss.sums(loss.compare(x, CLASSES, torch.tensor(part))) for part in ([3, 0, 1], [2], [5, 4, 6])]
    torch.testing.assert_close(sum(part[0] for part in parts), values)
    assert sum(part[1] for part in parts).item() == counts.item() == {"n_pairs": 2, "angular": 4}[name]


def test_which_anchors_are_in_a_pair():
    x = batch(7, seed=8)
    s = x @ x.T
    first = NPairsLoss(0.5)(x, CLASSES, anchors=torch.tensor([0, 2, 5]))
    expected = (1 + (s[0, 4] - s[0, 2]).exp()).log() + 0.5 * (s[0, 0] + s[2, 2]) / 2
    torch.testing.assert_close(first, expected)
    # Angular: the order of a pair says nothing, and its other item need not be an anchor.
    one, other, both = (AngularLoss()(x, CLASSES, anchors=torch.tensor(a)) for a in ([0], [5, 2], [2, 0, 1]))
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one, both)
    for make in PAIRS_OF_A_CLASS.values():
        assert make()(x, CLASSES, anchors=torch.tensor([5, 6])).item() == 0


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_an_anchor_given_twice_counts_twice(name):
    x = batch(7, seed=9)
    loss = PAIRS_OF_A_CLASS[name](**{"l2": 0.0} if name == "n_pairs" else {})
    of_0, of_3 = (loss(x, CLASSES, anchors=torch.tensor([a])) for a in (0, 3))
    torch.testing.assert_close(loss(x, CLASSES, anchors=torch.tensor([0, 3, 0])), (2 * of_0 + of_3) / 3)


def test_pair_weights_are_at_the_positions_of_the_batch():
    x = batch(7, seed=10)
    s = x @ x.T
    weights = pair_weights(NPairsLoss(), x, CLASSES)
    expected = torch.zeros(7, 7, dtype=torch.float64)
    expected[0, 4] = expected[0, 2] = (s[0, 4] - s[0, 2]).sigmoid()
    expected[3, 2] = expected[3, 4] = (s[3, 2] - s[3, 4]).sigmoid()
    torch.testing.assert_close(weights, expected)
    weights = pair_weights(AngularLoss(), x, CLASSES)
    seen = torch.zeros(7, 7, dtype=torch.bool)
    seen[torch.tensor([[0], [2], [3], [4]]), torch.tensor([0, 2, 3, 4])] = True
    assert torch.equal(weights != 0, seen & (torch.eye(7) == 0))


def test_pair_weights_of_n_pairs_by_distance():
    x = batch(7, seed=10)
    d = (x[:, None] - x[None]).square().sum(2)
    weights = pair_weights(NPairsLoss(distance="squared_euclidean"), x, CLASSES)
    expected = torch.zeros(7, 7, dtype=torch.float64)
    expected[0, 4] = expected[0, 2] = (d[0, 2] - d[0, 4]).sigmoid()
    expected[3, 2] = expected[3, 4] = (d[3, 4] - d[3, 2]).sigmoid()
    torch.testing.assert_close(weights, expected)


def test_n_pairs_of_vectors_of_one_norm_by_distance_and_by_dot_product():
    x = normalize(batch(7, seed=4))  # D = 2 - 2 s
    by_distance = NPairsLoss(0.0, "squared_euclidean")(x, CLASSES)
    torch.testing.assert_close(by_distance, NPairsLoss(0.0)(math.sqrt(2) * x, CLASSES))


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_a_comparison_says_where_its_pairs_are_in_the_batch(name):
    x, loss = batch(7, seed=11), PAIRS_OF_A_CLASS[name]()
    rows, cols = {"n_pairs": ([0, 3], [2, 4]), "angular": ([0, 2, 3, 4], [0, 2, 3, 4])}[name]
    for anchors in (None, torch.arange(7).flip(0)):
        found = loss.compare(x, CLASSES, anchors)
        assert sorted(found.rows.tolist()) == rows
        assert found.cols.tolist() == cols
        assert torch.equal(found.x, x[found.rows])
        assert torch.equal(found.y, x[found.cols])
        assert torch.equal(found.anchor_class, CLASSES[found.rows])
        assert torch.equal(found.item_class, CLASSES[found.cols])
        apart = (CLASSES[found.rows][:, None] != CLASSES[found.cols]).float()
        assert torch.equal(found.label_distances(slice(None)), apart)
    if name == "n_pairs":
        assert loss.compare(x, CLASSES, torch.tensor([4, 3, 5, 2])).rows.tolist() == [3]
        assert loss.compare(x, CLASSES).self_index is None
    # Angular reads the row of the partner too: an item that is no anchor has a row that does not count.
    else:
        idle = loss.compare(x, CLASSES, torch.tensor([4, 5, 2]))
        assert idle.rows.tolist() == rows
        assert idle.excluded(slice(None)).all(1).tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_pair_weights_of_an_anchor_given_twice(name):
    x, loss = batch(7, seed=12), PAIRS_OF_A_CLASS[name]()
    once, twice = (pair_weights(loss, x, CLASSES, anchors=torch.tensor(a)) for a in ([3, 0, 6], [3, 0, 3, 6]))
    assert torch.equal(twice, once[[0, 1, 0, 2]])
    assert once[0].any()
    with_partner = pair_weights(loss, x, CLASSES, anchors=torch.tensor([3, 4, 3]))
    assert torch.equal(with_partner[[0, 2]], pair_weights(loss, x, CLASSES)[[3, 3]])


# ---------------------------------------------------------------------------------------------------------------------
# log-sum-exp


def test_log_sum_exp_refuses_a_second_derivative():
    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no double backward"):
        torch.autograd.grad(log_one_plus_sum_exp(x, torch.ones(2, 3)).sum(), x, create_graph=True)
