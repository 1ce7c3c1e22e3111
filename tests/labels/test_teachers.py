"""Another model's embeddings as labels: a slow loop, and training towards them."""

from __future__ import annotations

import math

import torch
from support.miniature import small_trainer, squares
from support.refusals import refuses

from contml import TeacherLabels, WeightedLabels
from contml.data import Split
from contml.labels import LABELS, NumberLabels
from contml.losses import LogRatioLoss
from contml.testing import check_label_space


def vectors(items=12, seed=0):
    return 3 * torch.randn(items, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_distance_of_unit_vectors():
    x = vectors()
    labels = LABELS["teacher"](x)
    check_label_space(labels)
    found = labels.pairwise()
    for a, left in enumerate(x.tolist()):
        for b, right in enumerate(x.tolist()):
            norms = math.hypot(*left), math.hypot(*right)
            gaps = [p / norms[0] - q / norms[1] for p, q in zip(left, right, strict=True)]
            assert math.isclose(found[a, b], math.fsum(gap**2 for gap in gaps) ** 0.5, rel_tol=1e-6, abs_tol=1e-7)
    assert labels.text(0) == ""


def test_labels_made_again_are_the_same_bits():
    labels = TeacherLabels(vectors(500))
    again = TeacherLabels(**labels.arguments())
    assert torch.equal(again.values, labels.values)
    assert again.fingerprint() == labels.fingerprint()


def test_a_part_of_a_sum():
    numbers, teacher = NumberLabels(torch.arange(12.0)), TeacherLabels(vectors())
    both = WeightedLabels({numbers: 0.5, teacher: 2.0})
    torch.testing.assert_close(both.pairwise(), 0.5 * numbers.pairwise() + 2 * teacher.pairwise())


def test_what_is_no_embedding():
    with refuses("values", "[4]", "must be embeddings [items, D]"):
        TeacherLabels([1.0, 2.0, 3.0, 4.0])
    with refuses("values", "the embedding of item 1 is 0"):
        TeacherLabels([[1.0, 2.0], [0.0, 0.0]])


def test_a_student_learns_the_distances_without_labels():
    """The teacher knows the place of the square; the student sees the picture and the teacher's distances."""

    def taught(items, seed):
        split = squares(items, seed)
        place = split.labels.values / 12 - 0.5
        return Split(split.images, split.names, TeacherLabels(torch.cat((place, torch.ones(items, 1)), 1)))

    trainer = small_trainer(split=taught(60, 0), loss=LogRatioLoss(squared=False), epochs=12)
    test = taught(30, 1)
    before = trainer.evaluate(test)[0].spearman
    trainer.fit()
    assert trainer.evaluate(test)[0].spearman > before + 0.1
