"""Mirrored images: refused where they would change the label distances that a loss reads."""

import pytest
import torch
from support.label_spaces import SPACES
from support.refusals import refuses

from contml.labels import NumberLabels, PoseLabels, SegmentationLabels, ThresholdLabels, WeightedLabels
from contml.losses import CrossBatchMemory, LogRatioLoss
from contml.training import EmbeddingStep
from contml.training.setup import check_flip

POSES = PoseLabels(torch.rand(6, 4, 2))
MAPS = SegmentationLabels(torch.arange(6 * 16).reshape(6, 4, 4) % 3, 3)
SUM = WeightedLabels({NumberLabels(torch.rand(6)): 1.0, MAPS: 1.0})
ALONE, MEMORY = EmbeddingStep(loss=LogRatioLoss()), EmbeddingStep(loss=CrossBatchMemory(LogRatioLoss(), 8))


@pytest.mark.parametrize("labels", [POSES, MAPS, SUM, ThresholdLabels(MAPS, 0.5), POSES[[1, 0]]], ids=repr)
def test_mirrored_images_have_other_label_distances(labels):
    for flip, step, allowed in (("image", ALONE, "batch or none"), ("image", MEMORY, "none where a memory compares"),
                                ("batch", MEMORY, "none where a memory compares")):  # fmt: skip
        with refuses("flip", f"{flip}, with {type(labels.root).__name__}", allowed):
            check_flip(flip, labels, step)
    for flip, step in (("batch", ALONE), ("none", MEMORY)):
        check_flip(flip, labels, step)
    check_flip("image", NumberLabels(torch.rand(6)), MEMORY)
    check_flip("batch", NumberLabels(torch.rand(6)), MEMORY)


def test_a_distance_that_mirroring_one_item_changes_says_so(tmp_path):
    assert {name for name, make in SPACES.items() if not make(tmp_path).mirrored} >= {"poses", "segmentation"}
    mirrored = POSES.joints * torch.tensor([-1.0, 1.0])
    one = PoseLabels(torch.stack([mirrored[0], POSES.joints[1]])).pairwise()[0, 1]
    both = PoseLabels(mirrored).pairwise()[0, 1]
    assert both == pytest.approx(float(POSES.pairwise()[0, 1])) != pytest.approx(float(one))
