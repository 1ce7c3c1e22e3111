"""Losses for continuous labels: the scale of label distances, running means, special cases; loops in test_losses.py."""

from __future__ import annotations

import pytest
import torch
from support import reference_graded
from support.refusals import refuses
from support.strategies import CLASS_CASES
from torch.nn.functional import normalize

from contml.app.experiment import load
from contml.config import data_arguments
from contml.labels import ClassLabels, MatrixLabels, NumberLabels, ThresholdLabels, VectorLabels
from contml.losses import (
    LOSSES,
    ContrastiveLoss,
    CoSENTLoss,
    GeneralizedContrastiveLoss,
    GradedInstanceCrossEntropyLoss,
    InstanceCrossEntropyLoss,
    LogRatioLoss,
    RankNContrastLoss,
    RankSimLoss,
    RelaxedContrastiveLoss,
    SmoothRankLoss,
    SoftInfoNCELoss,
)
from contml.losses.graded_pairs import median_distance

SCALED = [name for name, loss in LOSSES.items() if "train_labels" in data_arguments(loss)]


def embeddings_of(size=8, seed=0):
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def vectors(size=40, factor=1.0):
    values = torch.randn(size, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return VectorLabels(factor * values)


# ---------------------------------------------------------------------------------------------------------------------
# the scale of label distances


def test_the_median_is_that_of_all_pairs_above_0_of_few_items():
    labels = NumberLabels([0.0, 0.0, 1.0, 3.0])
    assert median_distance(labels) == 2.0  # of 1, 1, 2, 3, 3
    assert median_distance(ClassLabels([0, 0, 0, 0, 1])) == 1.0
    assert median_distance(NumberLabels([2.0, 2.0])) == 1.0  # all at 0


def test_the_median_of_many_items_is_that_of_a_sample_which_is_always_the_same():
    labels = NumberLabels(torch.arange(5000.0))
    found = median_distance(labels)
    assert found == median_distance(labels)
    assert found == pytest.approx(5000 * (1 - 0.5**0.5), rel=0.05)  # |x - y| of uniform numbers
    before = torch.get_rng_state()
    median_distance(labels)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", SCALED)
def test_the_unit_of_labels_does_not_matter(name):
    """Squared pixels are 40,000: divided by the median, they are the same labels as numbers of about 1."""
    values = [
        LOSSES[name](train_labels=space)(embeddings_of(), space[range(8)]) for space in (vectors(), vectors(factor=200))
    ]
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-6)  # label distances are float32
    scale = median_distance(vectors())
    torch.testing.assert_close(LOSSES[name](label_scale=scale)(embeddings_of(), vectors()[range(8)]), values[0])
    assert not torch.equal(LOSSES[name](label_scale=2 * scale)(embeddings_of(), vectors()[range(8)]), values[0])


@pytest.mark.parametrize("name", SCALED)
def test_the_scale_is_in_checkpoints(name):
    space = vectors(factor=7.0)
    loss, restored = LOSSES[name](train_labels=space), LOSSES[name]()
    restored.load_state_dict(loss.state_dict())
    batch = space[range(8)]
    assert torch.equal(loss(embeddings_of(), batch), restored(embeddings_of(), batch))


@pytest.mark.parametrize("name", SCALED)
def test_without_training_labels_the_scale_is_known_for_0_and_1_alone(name):
    x, space = embeddings_of(), vectors()[range(8)]
    for labels in (space, space.pairwise(), torch.randn(8)):
        with refuses("label_scale", got="median", hint=f"{LOSSES[name].__name__}(train_labels=labels)"):
            LOSSES[name]()(x, labels)
    classes = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    for labels in (ClassLabels(classes), ClassLabels(classes), ThresholdLabels(space, 1.0)):
        assert torch.equal(LOSSES[name]()(x, labels), LOSSES[name](label_scale=1.0)(x, labels))


@pytest.mark.parametrize("name", SCALED)
def test_a_bad_scale(name):
    for bad in (0.0, -1.0):
        with refuses("label_scale", got=str(bad), allowed="above 0"):
            LOSSES[name](label_scale=bad)
    with refuses("label_scale", got="mean", allowed="median"):
        LOSSES[name](label_scale="mean")


@pytest.mark.parametrize("name", SCALED)
def test_label_distances_far_above_the_scale_are_refused(name):
    """The loss was 0, and so was its gradient: squared distances of poses are 250 times their median.

    Also of a later batch, and in days where the training labels are in weeks.
    """
    labels, x = VectorLabels(100 * torch.rand(40, 2)), embeddings_of(40)
    loss = LOSSES[name](train_labels=labels)
    weeks = 7 * labels.pairwise()
    for other in (weeks, MatrixLabels(weeks), VectorLabels(7 * labels.values), labels.pairwise().square()):
        with refuses("label distances", got="in a batch", allowed="training labels", hint="squared"):
            loss(x, other)
    assert torch.equal(loss(x, labels), LOSSES[name](train_labels=labels)(x, labels))
    loss(x, labels.pairwise())
    with refuses("label distances", got="in a batch", hint="squared"):
        loss(x, weeks)
    for _ in range(5):  # each batch of tensors is checked, also if its labels are where earlier ones were in memory
        loss(x, labels.pairwise())
        with refuses("label distances", got="in a batch", hint="squared"):
            loss(x, labels.pairwise() * 7)
    with pytest.warns(UserWarning, match="another unit, or a batch of near items"):
        loss(x, labels.pairwise() / 7)
    LOSSES[name](train_labels=labels)(x[:3], labels[range(3)].pairwise())  # a median of three pairs says nothing
    LOSSES[name](label_scale=0.01)(x, labels.pairwise())  # the user's own scale


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("labels", [torch.rand(4), 20.0, torch.rand(4, 4)])
def test_labels_that_are_no_label_space_are_refused(name, labels):
    with refuses("labels", allowed="label space"):
        LOSSES[name](train_labels=labels)


def test_a_config_gives_the_loss_the_labels_it_trains_on():
    small = ("task.train=40", "task.test=20", "task.queries=4", "sampler=uniform", "sampler.batch_size=12")
    experiment = load("pose/synthetic", [*small, "loss=soft_info_nce"])
    task = experiment.build_task()
    loss = experiment.build_trainer(task, quiet=True).training_step.loss
    assert loss.label_unit.item() == median_distance(task.train.labels) > 1
    number = load("pose/synthetic", [*small, "loss=soft_info_nce", "loss.label_scale=3"])
    assert number.build_trainer(task, quiet=True).training_step.loss.label_unit.item() == 3


# ---------------------------------------------------------------------------------------------------------------------
# every loss

#: log_ratio, which needs label distances above 0, is tested elsewhere.
GRADED = [name for name, loss in LOSSES.items() if loss.requires == "any"]


@pytest.mark.parametrize("name", GRADED)
@pytest.mark.parametrize("labels", ["equal", "zero", "graded"])
def test_finite_at_norm_30_and_at_equal_label_distances(name, labels):
    loss = LOSSES[name](**({"label_scale": 1.0} if name in SCALED else {}))
    x = (30 * normalize(embeddings_of(64).float())).requires_grad_()
    distances = {"equal": torch.ones(64, 64).fill_diagonal_(0), "zero": torch.zeros(64, 64)}
    value = loss(x, distances.get(labels, vectors(64).pairwise()))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["rank_n_contrast", "cosent", "rank_sim"])
def test_some_losses_read_the_order_of_label_distances_alone(name):
    x, distances = embeddings_of(), vectors(8).pairwise().double()
    values = [LOSSES[name]()(x, d) for d in (distances, distances**3, 1e-3 * distances)]
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], values[2])


@pytest.mark.parametrize("name", ["rank_n_contrast", "cosent"])
def test_a_loss_with_its_own_gradient_refuses_a_second(name):
    x = embeddings_of().requires_grad_()
    with pytest.raises(RuntimeError, match="no double backward"):
        torch.autograd.grad(LOSSES[name]()(x, vectors(8)), x, create_graph=True)


# ---------------------------------------------------------------------------------------------------------------------
# Rank-N-Contrast and soft targets


def test_rank_n_contrast_where_the_authors_code_is_nan():
    torch.manual_seed(0)
    x, values = 30 * torch.randn(32, 64), torch.randn(32)
    exact = reference_graded.rank_n_contrast(x.double(), (values[:, None] - values).abs())
    torch.testing.assert_close(RankNContrastLoss()(x, values).double(), exact, rtol=1e-5, atol=0)


def test_rank_n_contrast_of_classes_is_each_class_against_all():
    x, classes = embeddings_of(6), torch.tensor([0, 0, 0, 1, 1, 1])
    s = -torch.cdist(x, x) / 2
    terms = []
    for i in range(6):
        for j in range(6):
            if i != j:
                beyond = [k for k in range(6) if k != i and (classes[i] == classes[j] or classes[k] != classes[i])]
                terms.append(torch.logsumexp(s[i, beyond], 0) - s[i, j])
    torch.testing.assert_close(RankNContrastLoss()(x, ClassLabels(classes)), torch.stack(terms).mean())


def test_a_temperature_that_learns():
    for similarity, start in (("cosine", 0.1), ("student_t", 1.0)):
        loss = SoftInfoNCELoss(similarity=similarity, learn_temperature=True, label_scale=1.0).double()
        (parameter,) = loss.parameters()
        assert parameter.exp().item() == pytest.approx(start)
        x, labels = embeddings_of(), vectors(8)
        torch.testing.assert_close(
            loss(x, labels), SoftInfoNCELoss(similarity=similarity, label_scale=1.0)(x, labels), rtol=1e-6, atol=0
        )
        for loss.block_rows in (None, 3):
            assert gradcheck(loss, x.requires_grad_(), labels, parameter)


def gradcheck(loss, x, labels, parameter):
    return torch.autograd.gradcheck(lambda x, _: loss(x, labels), (x, parameter))


def test_items_far_from_all_others_have_a_target():
    """e^(-D^2 / 2) of 1,000 label units is 0: the nearest item is still the target."""
    x, labels = embeddings_of(4), torch.tensor([0.0, 1000.0, 3000.0, 7000.0])
    value = SoftInfoNCELoss(label_scale=1.0)(x, NumberLabels(labels))
    s = normalize(x) @ normalize(x).T / 0.1
    s.fill_diagonal_(-torch.inf)
    nearest = torch.tensor([1, 0, 1, 2])
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(s, nearest))


def test_x_clr_is_a_softmax_of_label_distances():
    x, d = embeddings_of(), vectors(8).pairwise().double()
    s = (normalize(x) @ normalize(x).T / 0.1).fill_diagonal_(-torch.inf)
    target = (-d / 2 / 0.1).fill_diagonal_(-torch.inf).softmax(1)
    expected = -(target * s.log_softmax(1).fill_diagonal_(0)).sum(1).mean()
    torch.testing.assert_close(SoftInfoNCELoss("exponential", label_scale=2.0)(x, d), expected)


def test_cosent_of_classes_is_per_anchor_the_smooth_triplet_loss():
    x, classes = CLASS_CASES[1].embeddings, CLASS_CASES[1].classes
    s = normalize(x) @ normalize(x).T
    values = []
    for a in range(9):
        p = [i for i in range(9) if i != a and classes[i] == classes[a]]
        n = [i for i in range(9) if classes[i] != classes[a]]
        values.append((1 + sum((5 * (s[a, j] - s[a, i])).exp() for i in p for j in n)).log())
    value = CoSENTLoss(5.0, per_anchor=True)(x, ClassLabels(classes))
    torch.testing.assert_close(value, torch.stack(values).mean())


# ---------------------------------------------------------------------------------------------------------------------
# graded contrastive losses, ranks


def test_generalized_contrastive_of_classes_is_half_the_contrastive_loss():
    case = CLASS_CASES[1]
    x = normalize(case.embeddings)
    contrastive = ContrastiveLoss(0.8, "euclidean")(x, case.classes)  # the sum over pairs of an anchor
    value = GeneralizedContrastiveLoss(0.8)(x, ClassLabels(case.classes))
    torch.testing.assert_close(value, contrastive / 2 / (len(x) - 1))


@pytest.mark.parametrize("case", CLASS_CASES, ids=str)
def test_graded_instance_cross_entropy_of_classes_is_that_of_classes(case):
    a, b = case.leaf(), case.leaf()
    of_classes, graded = InstanceCrossEntropyLoss(16.0), GradedInstanceCrossEntropyLoss(16.0)
    values = [of_classes(a, case.classes), graded(b, ClassLabels(case.classes))]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(value, x)[0] for value, x in zip(values, (a, b), strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 30.0, 1e15, 1e30])
def test_relaxed_contrastive_reads_ratios_of_distances_alone(factor):
    labels, loss = vectors(8), RelaxedContrastiveLoss(label_scale=1.0)
    a, b = embeddings_of().float().requires_grad_(), (factor * embeddings_of()).float().requires_grad_()
    first, second = loss(a, labels), loss(b, labels)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=0)
    first.backward()
    second.backward()
    torch.testing.assert_close(factor * b.grad.double(), a.grad.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["ap", "recall", "ndcg"])
def test_a_smooth_metric_is_the_metric_where_the_sigmoids_are_steps(metric):
    x, classes = CLASS_CASES[0].embeddings, CLASS_CASES[0].classes
    s, values = normalize(x) @ normalize(x).T, []
    for a in range(8):
        order = sorted((j for j in range(8) if j != a), key=lambda j, a=a: -float(s[a, j]))
        ranks = [place for place, j in enumerate(order, 1) if classes[j] == classes[a]]  # one positive
        if metric == "ap":
            values.append(1 / ranks[0])
        elif metric == "ndcg":
            values.append(1 / torch.tensor(1.0 + ranks[0]).log2().item())
        else:
            values.append(torch.tensor(3.0 - ranks[0]).sigmoid().item())
    found = SmoothRankLoss(metric, temperature=1e-6, k=3)(x, ClassLabels(classes)).item()
    assert found == pytest.approx(1 - sum(values) / 8)


def test_smooth_rank_of_a_perfect_order_is_0():
    labels = NumberLabels(torch.arange(8.0) ** 3)  # no two at one distance from a third
    angles = torch.arange(8.0).double() ** 3 / 200
    x = torch.stack((angles.cos(), angles.sin()), 1)
    for metric in ("ap", "ndcg"):
        assert SmoothRankLoss(metric, 1e-6, sigma=400.0, label_scale=1.0)(x, labels).item() == pytest.approx(
            0, abs=1e-9
        )


def test_rank_sim_is_0_without_a_gradient_in_the_right_order():
    angles = torch.tensor([0.0, 0.3, 0.7, 1.2, 1.8], dtype=torch.float64)
    x = torch.stack((angles.cos(), angles.sin()), 1).requires_grad_()
    value = RankSimLoss()(x, angles)
    value.backward()
    assert value.item() == 0
    assert not x.grad.any()


def test_rank_sim_is_added_to_another_loss():
    x, labels = embeddings_of().requires_grad_(), vectors(8)
    both = LogRatioLoss(squared=False)(x, labels) + RankSimLoss()(x, labels)
    both.backward()
    assert x.grad.isfinite().all()


def test_labels_of_a_matrix_have_no_rows_to_take_a_median_of():
    with refuses("label_scale", got="median"):
        SoftInfoNCELoss()(embeddings_of(), MatrixLabels(vectors(8).pairwise()))
