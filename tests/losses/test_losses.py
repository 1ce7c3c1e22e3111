"""The losses against slow loops written from the papers, whole and in blocks, in every dtype, at every edge."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from support import reference, reference_graded
from support.choices import spread
from support.label_spaces import judged
from support.losses import assert_same, value_and_gradients
from support.refusals import refused, refuses
from support.strategies import CLASS_CASES, DISTANCE_CASES, batches, class_batches

from contml import labels as spaces
from contml.config import data_arguments
from contml.losses import (
    LOSSES,
    CrossBatchMemory,
    DenseTripletLoss,
    LogRatioLoss,
    MarginLoss,
    ProxyAnchorLoss,
    TripletMarginLoss,
    pair_weights,
)
from contml.mining import Hardest
from contml.sampling import TripletSampler

CONTINUOUS = {
    "log_ratio": (lambda: LogRatioLoss(), lambda e, d, a: reference.log_ratio(e, d, a)),
    "log_ratio strict": (lambda: LogRatioLoss(strict=True), lambda e, d, a: reference.log_ratio(e, d, a, strict=True)),
    "log_ratio plain": (
        lambda: LogRatioLoss(squared=False),
        lambda e, d, a: reference.log_ratio(e, d, a, squared=False),
    ),
    "dense_triplet": (lambda: DenseTripletLoss(), lambda e, d, a: reference.dense_triplet(e, d, a)),
    "dense_triplet wide": (lambda: DenseTripletLoss(1.5), lambda e, d, a: reference.dense_triplet(e, d, a, 1.5)),
}


def graded(name, loop_options=None, **options):
    """A loss of continuous labels and its loop; label distances are divided by 0.7 for both."""
    scale = {"label_scale": 0.7} if "label_scale" in inspect.signature(LOSSES[name]).parameters else {}
    loop = getattr(reference_graded, name)
    CONTINUOUS[" ".join((name, *(f"{key}={value}" for key, value in options.items())))] = (
        lambda: LOSSES[name](**options, **scale),
        lambda e, d, a: loop(e, d / scale.get("label_scale", 1), a, **(options | (loop_options or {}))),
    )


graded("rank_n_contrast")
graded("rank_n_contrast", temperature=0.3)
graded("soft_info_nce")
graded("soft_info_nce", kernel="exponential", loop_options={"sigma": 0.1})
graded("soft_info_nce", kernel="exponential", sigma=0.8, temperature=0.3, denominator="exp")
graded("soft_info_nce", sigma=0.6, denominator="exp")
graded("soft_info_nce", sigma=0.6, denominator="threshold")
graded("soft_info_nce", similarity="student_t", loop_options={"temperature": 1.0})
graded("soft_info_nce", similarity="student_t", temperature=0.2, denominator="threshold")
graded("cosent")
graded("cosent", scale=3.0)
graded("cosent", per_anchor=True)
graded("cosent", scale=3.0, per_anchor=True)
graded("generalized_contrastive")
graded("generalized_contrastive", margin=0.9, kernel="exponential", sigma=2.0)
graded("relaxed_contrastive")
graded("relaxed_contrastive", margin=1.3, sigma=0.4)
graded("graded_instance_cross_entropy")
graded("graded_instance_cross_entropy", scale=64.0, kernel="exponential", sigma=2.0)
graded("graded_instance_cross_entropy", scale=5.0, reweight=False, sigma=2.0)
graded("smooth_rank", temperature=0.1)
graded("smooth_rank", metric="recall", temperature=0.1, k=3)
graded("smooth_rank", metric="ndcg", temperature=0.1, sigma=3.0)
graded("smooth_rank", temperature=0.3, kernel="exponential", sigma=0.5)
graded("rank_sim")
graded("rank_sim", interpolation=0.3, weight=5.0)

#: Losses of 0 / 1 that need no class.
BINARY = [
    name for name, loss in LOSSES.items() if "num_classes" not in data_arguments(loss) and loss.requires == "binary"
]

TRIPLETS = [
    (distance, reduction)
    for distance in ("cosine", "euclidean", "squared_euclidean")
    for reduction in ("mean", "nonzero", "sum")
]


def in_blocks(loss, embeddings, target):
    """Value and gradients with respect to the embeddings and the parameters, whole and in blocks of 1, 7 and B rows."""
    for loss.block_rows in (None, 1, 7, len(embeddings)):
        leaf = embeddings.clone().requires_grad_()
        yield value_and_gradients(loss(leaf, target), leaf, *loss.parameters())


@pytest.mark.parametrize(("name", "case"), spread(CONTINUOUS, DISTANCE_CASES, times=7), ids=str)
def test_continuous_loss_equals_its_loop(case, name):
    make, loop = CONTINUOUS[name]
    if name.startswith("rank_sim") and case.name == "identical embeddings of norm 30":
        pytest.skip("cosines of 1, of which rounding makes some larger")
    theirs = case.leaf()
    expected = value_and_gradients(loop(theirs, case.distances, None), theirs)
    for ours in in_blocks(make(), case.embeddings, case.distances):
        assert_same(ours, expected, case.smooth)


def judged_batch(share, items=9, seed=0):
    """Labels of some judged pairs of 20 items, a batch of them with one item twice, and its matrix with NaN in gaps."""
    generator = torch.Generator().manual_seed(seed)
    space = judged(share)
    rows = [*torch.randperm(len(space), generator=generator)[: items - 1].tolist()]
    rows.append(rows[0])
    batch = space[rows]
    distances = batch.pairwise().double()
    return space, batch, torch.where(batch.known(), distances, torch.nan)


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_of_judged_pairs_a_continuous_loss_is_its_loop_over_the_known_ones(name, share):
    make, loop = CONTINUOUS[name]
    _, batch, distances = judged_batch(share)
    x = torch.randn(len(batch), 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for anchors in (None, torch.tensor([4, 0, 7])):
        theirs = x.clone().requires_grad_()
        rows = distances if anchors is None else distances[anchors]
        expected = value_and_gradients(loop(theirs, rows, anchors), theirs)
        loss = make()
        for loss.block_rows in (None, 1, 2):
            ours = x.clone().requires_grad_()
            assert_same(value_and_gradients(loss(ours, batch, anchors=anchors), ours), expected)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_where_all_pairs_are_known_a_loss_is_equal_to_the_bit(name):
    make, _ = CONTINUOUS[name]
    space = judged(1.0)
    known = spaces.MatrixLabels(space.pairwise())
    rows = [3, 1, 17, 5, 4, 19, 0, 12]
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(len(rows), 5, generator=torch.Generator().manual_seed(2), dtype=dtype)
        for anchors in (None, torch.tensor([4, 0, 7])):
            results = []
            for labels in (space, known):
                loss, leaf = make(), x.clone().requires_grad_()
                results.append(value_and_gradients(loss(leaf, labels[rows], anchors=anchors), leaf))
            assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", [*CONTINUOUS, *(f"{name} of 0 / 1" for name in BINARY)])
def test_of_judged_pairs_a_memory_holds_the_known_ones(name):
    make = CONTINUOUS[name][0] if name in CONTINUOUS else LOSSES[name.removesuffix(" of 0 / 1")]
    space = judged(0.4)
    space = space if name in CONTINUOUS else spaces.ThresholdLabels(space, 0.8)
    x = torch.randn(14, 5, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    earlier, now = [0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 0, 11, 12]
    memory = CrossBatchMemory(make(), 7)
    memory(x[:7], space[earlier])
    ours = x[7:].clone().requires_grad_()
    value = memory(ours, space[now])
    # The same batch with all items in place, in which the item that is in both does not meet itself.
    rows = torch.tensor([*now, *earlier])
    distances = space.pairwise(rows, rows)
    pairs = space.known(rows, rows) & (rows[:, None] != rows)
    if bool((pairs[:7].any(1)).all()) and name in CONTINUOUS:
        theirs = x[7:].clone().requires_grad_()
        d = torch.where(pairs, distances.double(), torch.nan)
        expected = CONTINUOUS[name][1](torch.cat((theirs, x[:7])), d[:7], torch.arange(7))
        assert_same(value_and_gradients(value, ours), value_and_gradients(expected, theirs))
    moved = x[:7] + torch.where(pairs[:7, 7:].any(0), 0.0, 5.0)[:, None]  # of items that no anchor was judged with
    again = CrossBatchMemory(make(), 7)
    again(moved, space[earlier])
    torch.testing.assert_close(again(x[7:], space[now]), value.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_of_judged_pairs_a_loss_of_0_and_1_reads_the_known_ones_alone(name):
    """Its value for an anchor is that of a batch of the items that the anchor was judged with."""
    space, batch, distances = judged_batch(0.4)
    binary = spaces.ThresholdLabels(space, 0.8)[batch.rows]
    x = torch.randn(len(batch), 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[-1] = x[0]
    if LOSSES[name]().needs_whole_batch:
        pytest.skip("its anchors are not independent")
    total, count = torch.zeros(()), 0.0
    for a in range(len(batch)):
        others = [j for j in range(len(batch)) if j != a and not distances[a, j].isnan()]
        if not others:
            continue
        loss, rows = LOSSES[name](), [a, *others]
        labels = (distances[a, rows] >= 0.8).double()[None]
        values, counts = loss.sums(loss.compare(x[rows], labels, torch.tensor([0])))
        total, count = total + values.sum(), count + counts.sum()
    expected = total / (count if count > 0 else 1)
    for block_rows in (None, 1, 2):
        loss = LOSSES[name]()
        loss.block_rows = block_rows
        torch.testing.assert_close(loss(x, binary), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [*CONTINUOUS, *BINARY])
def test_a_batch_without_a_judged_pair_has_loss_0(name):
    space = spaces.PairLabels([[0, 1]], [0.5], 6)
    space, make = (
        (space, CONTINUOUS[name][0]) if name in CONTINUOUS else (spaces.ThresholdLabels(space, 0.6), LOSSES[name])
    )
    x = torch.randn(4, 5, requires_grad=True)
    value, gradient = value_and_gradients(make()(x, space[[0, 2, 3, 4]]), x)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize(("case", "options"), spread(CLASS_CASES, TRIPLETS, times=3), ids=str)
def test_triplet_equals_its_loop(case, options):
    distance, reduction = options
    theirs = case.leaf()
    loop = reference.triplet_margin(theirs, case.distances, None, 0.1, distance, reduction)
    expected = value_and_gradients(loop, theirs)
    for ours in in_blocks(TripletMarginLoss(0.1, distance, reduction), case.embeddings, case.classes):
        assert_same(ours, expected, case.smooth)


def triplets_of_the_batch(embeddings, classes, anchors, margin, distance, reduction):
    """(i, i + T, i + 2 T) alone, of those with one positive and one negative."""
    size, losses = len(embeddings) // 3, []
    for a in range(len(embeddings)) if anchors is None else anchors:
        if a >= size:
            continue
        three = [a, a + size, a + 2 * size]
        target = (classes[three] != classes[a])[None].double()
        if target.sum() != 1:
            continue
        three = embeddings[three]
        losses.append(reference.triplet_margin(three, target, [0], margin, distance, "sum"))
    total = torch.stack([0.0 * embeddings.sum(), *losses]).sum()
    counts = {"mean": len(losses), "nonzero": sum(loss > 0 for loss in losses), "sum": 1}
    return total / max(1, int(counts[reduction]))


@pytest.mark.parametrize(("case", "options"), spread(CLASS_CASES, TRIPLETS, times=3), ids=str)
def test_triplets_of_a_batch_equal_their_loop(case, options):
    distance, reduction = options
    for classes in (case.classes, torch.tensor([0, 1, 2, 0, 1, 2, 2, 2, 0])[: len(case.classes)]):
        for anchors in (None, [2, 0, len(classes) // 3, 0] if len(classes) > 4 else [1]):
            theirs = case.leaf()
            expected = value_and_gradients(
                triplets_of_the_batch(theirs, classes, anchors, 0.3, distance, reduction), theirs
            )
            loss = TripletMarginLoss(0.3, distance, reduction, triplets="batch")
            given = None if anchors is None else torch.tensor(anchors)
            for loss.block_rows in (None, 1, 2):
                ours = case.leaf()
                assert_same(value_and_gradients(loss(ours, classes, anchors=given), ours), expected, case.smooth)


def test_triplets_of_a_sampled_batch_are_all_there_is_to_them():
    labels = spaces.ClassLabels([i % 7 for i in range(70)])
    rows = TripletSampler(10, labels=labels).batch(0, 0)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = TripletMarginLoss(0.2, "squared_euclidean", triplets="batch")
    a, p, n = x.view(3, 10, 4)
    expected = ((a - p).square().sum(1) - (a - n).square().sum(1) + 0.2).relu()
    for anchors in (None, torch.arange(10), torch.arange(30)):
        torch.testing.assert_close(loss(x, labels[rows], anchors=anchors), expected.mean())
    same = labels[rows].pairwise()
    torch.testing.assert_close(loss(x, same), expected.mean())
    torch.testing.assert_close(loss(x, same[:10], anchors=torch.arange(10)), expected.mean())
    weights = torch.zeros(30, 30, dtype=torch.float64)
    weights[torch.arange(10), torch.arange(10, 20)] = weights[torch.arange(10), torch.arange(20, 30)] = (
        expected > 0
    ).double()
    assert torch.equal(pair_weights(loss, x, labels[rows]), weights)
    assert torch.equal(pair_weights(loss, x, labels[rows], anchors=torch.tensor([3, 12])), weights[[3, 12]])
    mined = TripletMarginLoss(0.2, "squared_euclidean", "sum", triplets="batch", miner=Hardest())
    torch.testing.assert_close(mined(x, labels[rows]), expected.sum())


@settings(max_examples=8, deadline=None)
@given(batch=batches(max_size=7, smooth=True))
def test_continuous_losses_on_drawn_batches(batch):
    embeddings, distances = batch
    for make, loop in CONTINUOUS.values():
        # Hinges that are exactly at their kink make gradients ambiguous: values alone are compared here.
        ours = make()(embeddings.clone().requires_grad_(), distances)
        assert_same([ours.detach()], [loop(embeddings, distances, None)])


@settings(max_examples=25, deadline=None)
@given(batch=class_batches(max_size=7, smooth=True))
def test_class_losses_on_drawn_batches(batch):
    embeddings, classes = batch
    distances = spaces.ClassLabels(classes).pairwise().double()
    for distance, reduction in TRIPLETS:
        ours = TripletMarginLoss(0.2, distance, reduction)(embeddings, classes)
        theirs = reference.triplet_margin(embeddings, distances, None, 0.2, distance, reduction)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# numbers as labels


@pytest.mark.parametrize("norm", [1e19, 1e30])
def test_log_ratio_of_distances_that_overflow_is_nan_also_where_no_pair_counts(norm):
    embeddings = (norm * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    assert LogRatioLoss()(embeddings, torch.zeros(5, 5)).isnan()


def test_a_matrix_is_graded_to_log_ratio_whatever_its_numbers():
    torch.manual_seed(0)
    embeddings, matrix = torch.randn(5, 3, dtype=torch.float64), 1 - torch.eye(5, dtype=torch.float64)
    assert_same([LogRatioLoss()(embeddings, matrix)], [reference.log_ratio(embeddings, matrix)])


# ---------------------------------------------------------------------------------------------------------------------
# all losses


@pytest.mark.parametrize("name", ["dense_triplet", "triplet_margin"])
def test_counting_triplets_equals_listing_them_in_larger_rows(name):
    torch.manual_seed(0)
    # 70 items go through leaves and merges; values on a grid make ties of labels and of distances.
    embeddings = torch.randint(0, 3, (70, 3)).double() + 0.1
    labels = torch.randint(0, 5, (70,))
    target = (labels[:, None] - labels[None]).abs().double()
    unit = torch.nn.functional.normalize(embeddings)
    d = (unit[:, None] - unit[None]).square().sum(2)
    binary = name == "triplet_margin"
    target = (target > 0).double() if binary else target
    nearer = target[:, :, None] < target[:, None, :]
    eye = torch.eye(70, dtype=torch.bool)
    nearer &= ~eye[:, :, None] & ~eye[:, None, :]
    hinge = (d[:, :, None] - d[:, None, :] + 0.3).clamp(min=0) * nearer
    if binary:
        expected = hinge.sum() / nearer.sum()
        ours = TripletMarginLoss(0.3, "squared_euclidean")(unit, target)
    else:
        expected = (hinge.sum((1, 2)) / nearer.sum((1, 2))).mean()
        ours = DenseTripletLoss(0.3)(embeddings, target)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("name", "block_rows"), [("log_ratio", 2), *((n, None) for n in ("rank_n_contrast", "cosent", "raw"))]
)
def test_double_backward_is_refused_clearly(name, block_rows):
    """By the sums in blocks, and by the losses with a gradient of their own."""
    loss = LOSSES[name]()
    loss.block_rows = block_rows
    embeddings, classes = torch.randn(6, 3, requires_grad=True), torch.arange(6) % 2
    with pytest.raises(RuntimeError, match="no double backward"):
        torch.autograd.grad(
            loss(embeddings, classes if name == "raw" else torch.rand(6)), embeddings, create_graph=True
        )


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (lambda x: LogRatioLoss()(x[:, 0], torch.zeros(4, 4)), ("embeddings", "[4]", "floats [items, dim]")),
        (lambda x: LogRatioLoss()(x, torch.zeros(3, 4)), ("labels", "[3, 4]", "label distances [4, 4]")),
        (lambda x: LogRatioLoss()(x, torch.full((4, 4), torch.nan)), ("label distance",)),
        (lambda x: LogRatioLoss()(x, torch.full((4, 4), -1.0)), ("label distance",)),
        (lambda x: LogRatioLoss()(x, spaces.NumberLabels(torch.randn(5))), ("labels", "5 labels for 4 embeddings")),
        (lambda x: LogRatioLoss()(x, torch.tensor([0.0, torch.nan, 1.0, 2.0])), ("item 1", "not finite")),
        (lambda x: TripletMarginLoss()(x, (1 - torch.eye(4)) / 2), ("Triplet", "graded", "0 and 1", "ThresholdLabels")),
        (
            lambda x: ProxyAnchorLoss(num_classes=2, embedding_dim=3)(x, torch.tensor([0, 1, 2, 0])),
            ("class id", "2", "2 classes, 0 to 1"),
        ),
        (lambda x: MarginLoss(per_class=True), ("num_classes", "None", "per_class=True")),
        (lambda x: LogRatioLoss()(x, torch.zeros(1, 4), anchors=torch.tensor([4])), ("anchors", "4", "0 to 3")),
        *(
            (
                lambda x, a=a: LogRatioLoss()(x, torch.zeros(1, 4), anchors=a),
                ("anchors", got, "positions [A] in the batch"),
            )
            for a, got in ((2, "[]"), (torch.tensor(2), "[]"), ([0.5], "torch.float"), ("first", "'first'"))
        ),
    ],
)
def test_bad_input_is_refused(call, fields):
    refused(lambda: call(torch.randn(4, 3)), *fields)


@pytest.mark.parametrize(
    "anchors",
    [[2, 0], np.array([2, 0]), torch.tensor([2, 0], dtype=torch.uint8), torch.tensor([True, False, True, False])],
    ids=["list", "ndarray", "uint8", "mask"],
)
def test_anchors_as_lists_arrays_and_masks(anchors):
    embeddings, ages = torch.randn(4, 3, dtype=torch.float64), torch.tensor([20.0, 30.0, 45.0, 60.0])
    expected = LogRatioLoss()(embeddings, ages, anchors=torch.tensor([0, 2]))
    torch.testing.assert_close(LogRatioLoss()(embeddings, ages, anchors=anchors), expected)
    with refuses("anchors", got="torch.bool [3]", allowed="mask [4]"):
        LogRatioLoss()(embeddings, ages, anchors=torch.ones(3, dtype=torch.bool))
