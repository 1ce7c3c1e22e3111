"""Losses for continuous labels: the scale of label distances, running means, special cases; loops in test_losses.py."""

import pytest
import torch
from support.refusals import refused, refuses
from torch.nn.functional import normalize

from contml.app.experiment import load
from contml.config import data_arguments
from contml.labels import ClassLabels, MatrixLabels, NumberLabels, ThresholdLabels, VectorLabels
from contml.losses import LOSSES, SoftInfoNCELoss
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
    refused(lambda: loss(x, weeks), "label distances", got="in a batch", hint="squared")
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
    refused(lambda: LOSSES[name](train_labels=labels), "labels", allowed="label space")


def test_a_config_gives_the_loss_the_labels_it_trains_on():
    small = ("task.train=40", "task.test=20", "task.queries=4", "sampler=uniform", "sampler.batch_size=12")
    experiment = load("pose/synthetic", [*small, "loss=soft_info_nce"])
    task = experiment.build_task()
    loss = experiment.build_trainer(task, quiet=True).training_step.loss
    assert loss.label_unit.item() == median_distance(task.train.labels) > 1
    number = load("pose/synthetic", [*small, "loss=soft_info_nce", "loss.label_scale=3"])
    assert number.build_trainer(task, quiet=True).training_step.loss.label_unit.item() == 3


# ---------------------------------------------------------------------------------------------------------------------
# Rank-N-Contrast and soft targets


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
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(s, torch.tensor([1, 0, 1, 2])))


# ---------------------------------------------------------------------------------------------------------------------
# graded contrastive losses, ranks
