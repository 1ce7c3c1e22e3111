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

In a small batch, the B x B sigmoids of an anchor are computed. In a larger one, `sigmoid_sums` computes the sums
without them: O(B) per anchor, for ap O(B log B).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.graded_contrastive import GradedSimilarityLoss, Kernel
from contml.losses.label_scale import LabelScale
from contml.losses.sigmoid_sums import boxes, shared_sums, sigmoid_sums

#: Items in the parts of a batch whose sigmoids are all computed, for ap.
_LEAF = 48


class SmoothRankLoss(GradedSimilarityLoss):
    """Smooth average precision, recall@K or nDCG: one minus the metric, the mean over anchors with a relevant item.

    Cosine similarities. Time grows with the square of the batch (ap: B^2 log B).

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

    def is_direct(self, items: int) -> bool:
        """Whether all sigmoids of an anchor with this many items are computed, because it is faster."""
        return items <= max(10, math.sqrt(boxes(self.temperature))) * (16 if self.metric == "ap" else 10)

    def rows_of_a_block(self, comparison: Comparison) -> int:
        """The number of anchors in a block: each needs B x B entries, or those of the parts or of the boxes."""
        items = len(comparison.y)
        if self.is_direct(items):
            entries_of_an_item = items
        else:
            of_parts = self.leaf if self.metric == "ap" else 4
            entries_of_an_item = of_parts + 20 * boxes(self.temperature) // items
        return self.block_rows or max(1, super().rows_of_a_block(comparison) // max(entries_of_an_item, 1))

    @property
    def leaf(self) -> int:
        """The size of the parts whose sigmoids are all computed."""
        return max(_LEAF, boxes(self.temperature))

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """One minus the metric of each anchor, and 1 where it has a relevant item."""
        s, relevance = block.scores, block.weights * self.similarity(block.label_distances)  # [A,B]
        # 1/2 of each rank, and of its shared relevance, is the sigmoid of the item with itself.
        if self.is_direct(s.shape[1]):
            before = ((s[:, None] - s[:, :, None]) / self.temperature).sigmoid()  # item j before item i, [A,i,j]
            rank = 0.5 + torch.einsum("aij,aj->ai", before, block.weights)
        else:
            before = None
            rank = 0.5 + sigmoid_sums(s, s, block.weights, self.temperature)
        ideal = relevance.sort(dim=1, descending=True).values
        if self.metric == "ap":
            if before is None:
                shared = shared_sums(s, relevance, self.temperature, self.leaf)
            else:
                shared = (before * torch.minimum(relevance[:, None], relevance[:, :, None])).sum(2)
            shared = 0.5 * relevance + shared
            total, ideal_total = (shared / rank).sum(1), relevance.sum(1)
        elif self.metric == "recall":
            total, ideal_total = (relevance * (self.k - rank).sigmoid()).sum(1), ideal[:, : self.k].sum(1)
        else:
            discount = torch.arange(2, relevance.shape[1] + 2, device=s.device, dtype=s.dtype).log2()
            total, ideal_total = (relevance / (1 + rank).log2()).sum(1), (ideal / discount).sum(1)
        relevant = ideal_total > 0
        return (1 - total / ideal_total.where(relevant, 1)) * relevant, relevant.to(s.dtype)
