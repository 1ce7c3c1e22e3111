"""Smooth ranking metrics: the rank of an item as a sum of sigmoids, and a metric of these ranks.

    rank_i = 1 + sum_{j != i} sigmoid((s_j - s_i) / t)

    ap      1 - sum_i H_i / rank_i / sum_i rel_i
            H_i = rel_i + sum_{j != i} min(rel_i, rel_j) sigmoid((s_j - s_i) / t)
    recall  1 - sum_i rel_i sigmoid(k - rank_i) / (sum of the k largest rel)
    ndcg    1 - sum_i rel_i / log2(1 + rank_i) / (the same of the best ranking)

rel_i in [0, 1] is the similarity of the labels of anchor and item. With graded rel, ap is the hierarchical AP of Ramzi,
Audebert, Thome, Rambour, Bitot: "Hierarchical Average Precision Training for Pertinent Image Retrieval", ECCV 2022; on
0 and 1 it is Smooth-AP: Brown, Xie, Kalogeiton, Zisserman, ECCV 2020. recall: Patel, Tolias, Matas: "Recall@k Surrogate
Loss with Large Batches and Similarity Mixup", CVPR 2022, whose rel is 0 or 1.

The B x B sigmoids of an anchor are needed at a time, in as many blocks of anchors as memory asks for: O(B^3) time.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.graded_contrastive import GradedSimilarityLoss, Kernel
from contml.losses.label_scale import LabelScale


class SmoothRankLoss(GradedSimilarityLoss):
    """Smooth average precision, recall@K or nDCG: one minus the metric, the mean over anchors with a relevant item.

    Cosine similarities. Time grows with the third power of the batch, memory does not.

    Args:
        metric: "ap", average precision, which is hierarchical for graded labels; "recall" at `k`; or "ndcg".
        temperature: divides the differences of similarities in the sigmoids, above 0.
        k: of recall.
        kernel: relevance of an item: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    @check_ranges
    def __init__(
        self,
        metric: Literal["ap", "recall", "ndcg"] = "ap",
        temperature: PositiveFloat = 0.01,
        k: PositiveInt = 10,
        kernel: Kernel = "linear",
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, labels)
        self.metric, self.temperature, self.k = metric, temperature, k

    def rows_of_a_block(self, comparison: Comparison) -> int:
        """The number of anchors in a block: each needs B x B entries."""
        return self.block_rows or max(1, super().rows_of_a_block(comparison) // max(len(comparison.y), 1))

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """One minus the metric of each anchor, and 1 where it has a relevant item."""
        s, relevance = block.scores, block.weights * self.similarity(block.label_distances)  # [A,B]
        # Item j before item i, [A,i,j]; sigmoid(0) = 1/2 of an item with itself is subtracted.
        before = ((s[:, None] - s[:, :, None]) / self.temperature).sigmoid()
        rank = 0.5 + torch.einsum("aij,aj->ai", before, block.weights)
        ideal = relevance.sort(dim=1, descending=True).values
        if self.metric == "ap":
            shared = 0.5 * relevance + (before * torch.minimum(relevance[:, None], relevance[:, :, None])).sum(2)
            total, ideal_total = (shared / rank).sum(1), relevance.sum(1)
        elif self.metric == "recall":
            total, ideal_total = (relevance * (self.k - rank).sigmoid()).sum(1), ideal[:, : self.k].sum(1)
        else:
            discount = torch.arange(2, relevance.shape[1] + 2, device=s.device, dtype=s.dtype).log2()
            total, ideal_total = (relevance / (1 + rank).log2()).sum(1), (ideal / discount).sum(1)
        relevant = ideal_total > 0
        return (1 - total / ideal_total.where(relevant, 1)) * relevant, relevant.to(s.dtype)
