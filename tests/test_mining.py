"""The miners against slow loops, ties and empty sides; their draws; what their weights mean to a loss."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference_pairs
from support.losses import assert_same, value_and_gradients
from support.miners import FixedWeights
from support.refusals import refuses
from support.strategies import CLASS_CASES, class_batches, class_distances, seeds

from contml.contracts import Candidates
from contml.losses import Block, MarginLoss, TripletMarginLoss
from contml.mining import MINERS, VTHM, DistanceWeighted, Hardest, SemiHard


def candidates_of(embeddings, classes):
    """Candidates by cosine, all items as anchors."""
    unit = torch.nn.functional.normalize(embeddings)
    distances, other = class_distances(classes), ~torch.eye(len(classes), dtype=torch.bool)
    pairs = (distances == 0) & other, distances == 1
    return Candidates(unit @ unit.T, *pairs, torch.arange(len(classes)), embeddings.shape[1])


def rows_of(candidates, part):
    """The candidates of some anchors."""
    c = candidates
    return Candidates(c.similarity[part], c.positive[part], c.negative[part], c.anchors[part], c.dim)


def listed(candidates, anchor):
    """(positives, negatives, similarities) of an anchor, as lists."""
    places = (side[anchor].nonzero().flatten().tolist() for side in (candidates.positive, candidates.negative))
    return *places, candidates.similarity[anchor].tolist()


LOOPS = {
    "vthm": (VTHM, reference_pairs.vthm),
    "vthm, epsilon 0": (lambda: VTHM(0.0), lambda s, classes: reference_pairs.vthm(s, classes, epsilon=0.0)),
    "semi_hard": (SemiHard, reference_pairs.semi_hard),
    "hardest": (Hardest, reference_pairs.hardest),
}


def assert_mined_as_by_the_loop(name, candidates, classes):
    make, loop = LOOPS[name]
    expected = torch.zeros_like(candidates.similarity)
    for a, j in itertools.chain(*loop(candidates.similarity, classes)):
        expected[a, j] += 1
    assert torch.equal(make()(candidates) * (candidates.positive | candidates.negative), expected)


def probabilities(candidates, anchor, cutoff, upper):
    """Wu et al.'s distribution over the items, in exact logarithms."""
    n, logs = candidates.dim, {}
    _, negatives, s = listed(candidates, anchor)
    for item in negatives:
        d = math.sqrt(max(2 - 2 * s[item], 0))
        if d <= upper:
            d = max(d, cutoff)
            logs[item] = -((n - 2) * math.log(d) + (n - 3) / 2 * math.log(1 - d * d / 4))
    most = max(logs.values(), default=0)
    total = sum(math.exp(x - most) for x in logs.values())
    return [math.exp(logs[i] - most) / total if i in logs else 0.0 for i in range(len(s))]


# ---------------------------------------------------------------------------------------------------------------------
# loops


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_miner_equals_its_loop(case, name):
    assert_mined_as_by_the_loop(name, candidates_of(case.embeddings, case.classes), case.classes)


@settings(max_examples=40, deadline=None)
@given(batch=class_batches(), levels=st.sampled_from([None, 1, 2]))
def test_miners_on_drawn_batches(batch, levels):
    candidates = candidates_of(*batch)
    if levels is not None:  # ties
        rounded = (candidates.similarity * levels).round() / levels
        candidates = Candidates(rounded, candidates.positive, candidates.negative, candidates.anchors, candidates.dim)
    for name in LOOPS:
        assert_mined_as_by_the_loop(name, candidates, batch[1])


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_mined_one_by_one(name, dtype):
    torch.manual_seed(0)
    candidates = candidates_of(torch.randn(23, 5).to(dtype), torch.randint(0, 5, (23,)))
    miner = MINERS[name]().train()
    miner.begin()
    whole = miner(candidates)
    assert whole.dtype == dtype
    assert (whole >= 0).all()
    for size in (1, 7):
        parts = [miner(rows_of(candidates, part)) for part in torch.arange(23).split(size)]
        assert torch.equal(torch.cat(parts), whole)
    some = torch.tensor([20, 3, 3, 11])
    assert torch.equal(miner(rows_of(candidates, some)), whole[some])
    assert miner(rows_of(candidates, some[:0])).shape == (0, 23)


# ---------------------------------------------------------------------------------------------------------------------
# draws


def sphere_row(dim, positives, negatives=12, anchors=1, dtype=torch.float64):
    """Anchors alike: negatives of spread distances, one beyond 1.4, one nearer than 0.5, and many positives."""
    d = torch.linspace(0.3, 1.5, negatives, dtype=dtype)
    similarity = torch.cat((1 - d * d / 2, torch.zeros(positives, dtype=dtype))).expand(anchors, -1)
    negative = (torch.arange(negatives + positives) < negatives).expand(anchors, -1)
    return Candidates(similarity, ~negative, negative, torch.arange(anchors), dim)


def assert_drawn_from(drawn, expected):
    """A chi-square test at about 1 in 10^5; items of probability 0 are never drawn."""
    expected = torch.tensor(expected, dtype=torch.float64) * drawn.sum()
    assert (drawn[expected == 0] == 0).all()
    often = expected >= 5
    seen = torch.cat((drawn[often], drawn[~often].sum()[None])).double()
    wanted = torch.cat((expected[often], expected[~often].sum()[None]))
    statistic = ((seen - wanted) ** 2 / wanted.clamp(min=1)).sum()
    freedom = max(int(often.sum()) - 1, 1)
    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 6


FORMS = [(2, torch.float64), (3, torch.float32), (16, torch.float64), (512, torch.float32)]


@pytest.mark.parametrize(("dim", "dtype"), FORMS)
def test_negatives_are_drawn_from_their_distribution(dim, dtype):
    candidates = sphere_row(dim, 20_000, dtype=dtype)
    weights = DistanceWeighted(seed=3)(candidates)
    assert (weights[candidates.positive] == 1).all()
    drawn = weights[0, :12]
    assert drawn.sum() == 20_000
    assert_drawn_from(drawn, probabilities(candidates, 0, 0.5, 1.4)[:12])


def test_anchors_and_calls_draw_independently():
    candidates = sphere_row(4, 1, anchors=3_000)
    miner = DistanceWeighted(cutoff=0.6, upper=1.3)
    expected = torch.tensor(probabilities(candidates, 0, 0.6, 1.3)[:12])
    rounds = []
    for _ in range(4):
        miner.begin()
        rounds.append(miner(candidates)[:, :12])
    drawn = torch.stack(rounds).double()  # [calls, anchors, negatives]: one draw each
    assert_drawn_from(drawn.sum((0, 1)), expected.tolist())
    # Of two draws that are independent, each pair of items comes up as often as the product of its chances says.
    both = torch.outer(expected, expected).flatten().tolist()
    for first, second in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        assert_drawn_from(torch.einsum("can,cam->nm", first, second).flatten(), both)


def test_draws_of_an_anchor_are_with_replacement():
    candidates = sphere_row(4, 2, anchors=5_000)
    twice = (DistanceWeighted()(candidates)[:, :12] == 2).sum(0)
    squares = [p * p for p in probabilities(candidates, 0, 0.5, 1.4)[:12]]
    assert_drawn_from(torch.cat((twice, 5_000 - twice.sum()[None])), [*squares, 1 - sum(squares)])


def test_draws_depend_on_seed_call_and_place_alone():
    torch.manual_seed(0)
    candidates = candidates_of(torch.randn(40, 6), torch.arange(40) % 8)
    state = torch.get_rng_state()
    miner, same_seed, other = DistanceWeighted(seed=5), DistanceWeighted(seed=5), DistanceWeighted(seed=-6)
    for each in (miner, same_seed, other):
        each.begin()
    first = miner(candidates)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(99)
    assert torch.equal(first, same_seed(candidates))
    assert not torch.equal(first, other(candidates))
    miner.begin()
    second = miner(candidates)
    assert not torch.equal(first, second)
    miner.eval().begin()
    assert torch.equal(miner(candidates), second)
    assert not torch.equal(miner(replace(candidates, anchors=candidates.anchors + 1)), second)


def test_draws_go_on_where_a_checkpoint_left_them():
    torch.manual_seed(0)
    embeddings, classes = torch.randn(20, 6), torch.arange(20) % 4
    loss = MarginLoss(miner=DistanceWeighted())
    for _ in range(3):
        loss(embeddings, classes)
    state = loss.state_dict()
    assert state["miner.calls"] == 3
    state = {name: value.clone() for name, value in state.items()}
    expected = [loss(embeddings, classes).item() for _ in range(3)]
    resumed = MarginLoss(miner=DistanceWeighted())
    resumed.load_state_dict(state)
    assert ([resumed(embeddings, classes).item() for _ in range(3)], len(set(expected))) == (expected, 3)


def test_no_negative_within_reach_is_drawn_from():
    unit = torch.eye(3)[[0, 0, 1, 1, 2]]  # all negatives at sqrt(2) > 1.4
    candidates = candidates_of(unit, torch.tensor([0, 0, 1, 1, 2]))
    assert torch.equal(DistanceWeighted()(candidates), candidates.positive.float())
    value = MarginLoss(miner=DistanceWeighted())(unit.requires_grad_(), torch.tensor([0, 0, 1, 1, 2]))
    value.backward()
    assert value == 0


def test_antipodes_and_copies_in_high_dimension():
    x = torch.zeros(6, 512)
    x[:, 0] = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    candidates = candidates_of(x, torch.tensor([0, 0, 1, 1, 1, 1]))
    # By the formula an antipode is infinitely unlikely on the sphere, so where it may be drawn, it always is.
    assert DistanceWeighted(upper=2.0)(candidates)[0, 2:].tolist() in ([0, 1, 0, 0], [0, 0, 1, 0])
    assert DistanceWeighted()(candidates)[0, 2:].tolist() in ([1, 0, 0, 0], [0, 0, 0, 1])


# ---------------------------------------------------------------------------------------------------------------------
# weights in a loss


def triplet_sums(d, positive, negative, margin):
    """Of each anchor, by the distances and weights of its pairs `[A, B]`: sum of hinges, valid and active triplets."""
    block = Block(d, (negative > 0).to(d.dtype), positive + negative, None, None, None, 2)
    losses = (TripletMarginLoss(margin, "squared_euclidean", reduction) for reduction in ("mean", "nonzero"))
    (values, valid), (again, active) = (loss.values(block) for loss in losses)
    assert torch.equal(values, again)
    return values, valid, active


@settings(max_examples=40, deadline=None)
@given(seed=seeds, levels=st.sampled_from([1, 3, 1000]), margin=st.sampled_from([0.0, 0.5, 1.0]))
def test_weighted_triplets_with_ties(seed, levels, margin):
    generator = torch.Generator().manual_seed(seed)
    # Eighths: sums are exact, so ties of a hinge with 0 fall on the same side here and there.
    d = torch.randint(0, levels + 1, (3, 9), generator=generator).double() / 8
    side = torch.randint(0, 3, (3, 9), generator=generator)
    weights = torch.randint(0, 4, (3, 9), generator=generator) * torch.rand(3, 1, generator=generator).double()
    positive, negative = weights * (side == 0), weights * (side == 1)
    hinge = d[:, :, None] - d[:, None, :] + margin
    product = positive[:, :, None] * negative[:, None, :]
    expected = ((hinge.relu() * product).sum((1, 2)), product.sum((1, 2)), ((hinge > 0) * product).sum((1, 2)))
    leaf = d.clone().requires_grad_()
    ours = triplet_sums(leaf, positive, negative, margin)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-12, atol=1e-12)
    slope = ((hinge > 0) * product).sum(2) - ((hinge > 0) * product).sum(1)
    torch.testing.assert_close(torch.autograd.grad(ours[0].sum(), leaf)[0], slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_margin_loss_with_distance_weighted_sampling(case):
    loss = MarginLoss(miner=DistanceWeighted(seed=1)).double().eval()
    weights = loss.miner(candidates_of(case.embeddings, case.classes))
    theirs, boundary = case.leaf(), loss.boundary.detach().clone().requires_grad_()
    unit = torch.nn.functional.normalize(theirs)
    terms, active = 0 * theirs.sum() + 0 * boundary, 0
    items = range(len(case.classes))
    for a in items:
        same = [p for p in items if p != a and case.classes[p] == case.classes[a]]
        drawn = [n for n in items if case.classes[n] != case.classes[a] for _ in range(int(weights[a, n]))]
        assert len(drawn) in (0, len(same))
        for p in same:
            for n in drawn:
                near = ((unit[a] - unit[p]).square().sum() + 1e-8).sqrt() - boundary + 0.2
                far = boundary - ((unit[a] - unit[n]).square().sum() + 1e-8).sqrt() + 0.2
                terms = terms + near.relu() + far.relu()
                active += int(near > 0) + int(far > 0)
    expected = value_and_gradients(terms / max(active, 1), theirs, boundary)
    if case.smooth:  # copies are at distances that differ by rounding, and so are their draws
        for loss.block_rows in (None, 1, 7, len(case.classes)):
            leaf = case.leaf()
            assert_same(value_and_gradients(loss(leaf, case.classes), leaf, loss.boundary), expected)


def test_a_miner_is_asked_for_cosines_where_embeddings_are_on_the_sphere():
    torch.manual_seed(0)
    embeddings, classes = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    unit = torch.nn.functional.normalize(embeddings)
    seen, asked = [], FixedWeights(torch.ones(6, 6))
    asked.register_forward_pre_hook(lambda _, given: seen.extend(given))
    MarginLoss(miner=asked)(embeddings, classes)
    TripletMarginLoss(miner=asked)(embeddings, classes)
    for candidates in seen:
        torch.testing.assert_close(candidates.similarity, unit @ unit.T)
        assert not candidates.similarity.requires_grad
    TripletMarginLoss(distance="euclidean", miner=asked)(embeddings, classes)
    torch.testing.assert_close(seen[-1].similarity, -torch.cdist(embeddings, embeddings), atol=1e-3, rtol=1e-3)
    one = torch.zeros(6, 6)  # a triplet (0, 1, 3) of weight 2 x 3
    one[0, 1], one[0, 3] = 2, 3
    hinge = (unit[0] @ unit[3] - unit[0] @ unit[1] + 5).item()
    assert TripletMarginLoss(5.0, reduction="sum", miner=FixedWeights(one))(embeddings, classes) == pytest.approx(
        6 * hinge
    )
    with refuses("DistanceWeighted", got="TripletMarginLoss", allowed="cosines"):
        TripletMarginLoss(distance="euclidean", miner=DistanceWeighted())(embeddings, classes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here")
@pytest.mark.parametrize("name", MINERS)
def test_on_a_gpu(name):
    torch.manual_seed(0)
    candidates = candidates_of(torch.randn(50, 8, dtype=torch.float64), torch.randint(0, 6, (50,)))
    c = candidates
    there = Candidates(*(t.cuda() for t in (c.similarity, c.positive, c.negative, c.anchors)), c.dim)
    miner = MINERS[name]()
    expected = miner(candidates)
    assert torch.equal(miner(there).cpu(), expected)
    assert torch.equal(miner.cuda()(there).cpu(), expected)
