"""Another model's embeddings as labels: a slow loop, and training towards them."""

import math

import torch

from contml import TeacherLabels
from contml.labels import LABELS


def vectors(items=12, seed=0):
    return 3 * torch.randn(items, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_distance_of_unit_vectors():
    x = vectors()
    labels = LABELS["teacher"](x)
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
