"""Losses on a pair of items of each class: N-pair and angular.

The first two items of a class in the batch are its pair (a, p); a class with a single item has none.

    N-pair   mean_i log(1 + sum_{j != i} e^{a_i . p_j - a_i . p_i})  +  l2 mean |f|^2
             mean_i log(1 + sum_{j != i} e^{D(a_i, p_i) - D(a_i, p_j)})  +  l2 mean |f|^2    for squared_euclidean
    angular  mean_{(a,p)} log(1 + sum_n e^{4 tan^2(alpha) (a + p) . n - 2 (1 + tan^2(alpha)) a . p})

Sohn: "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016. Wang, Zhou, Wen, Liu, Lin:
"Deep Metric Learning with Angular Loss", ICCV 2017, Eq. 8, over both orders of each pair; n are the items of all other
pairs, f the items of all pairs. Embeddings are not normalized.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from contml._support.validation import NonNegativeFloat, Range, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance, full_precision
from contml.distances.labels import class_distance
from contml.labels.base import LabelSpace
from contml.losses.driver import ALL, Block, Comparison, PairLoss
from contml.losses.log_sum_exp import log_one_plus_sum_exp


class NPairsLoss(PairLoss):
    """N-pair loss: the first two items of a class in the batch are its anchor and positive; unnormalized embeddings.

    Negatives are the positives of the other classes. Anchors that are not the first of their class add nothing.

    Args:
        l2: weight of the mean squared norm of the items of all pairs. The published weight is 0.003. It equals 0.0015
            here, since the losses of TensorFlow and of the authors of HDML take half the mean.
        distance: "dot" compares by dot products, as Sohn does; "squared_euclidean" by squared Euclidean distances, as
            "Hardness-Aware Deep Metric Learning" prints it.
    """

    requires: Requirement = "classes"
    takes_memory = False

    @check_ranges
    def __init__(self, l2: NonNegativeFloat = 0.0015, distance: Literal["dot", "squared_euclidean"] = "dot") -> None:
        super().__init__()
        self.l2, self.distance = l2, distance

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the value of each pair `[A]`, and counts of 1.

        An anchor has one positive. Its negatives are the positives of the other pairs.
        """
        similarity = block.scores if self.distance == "dot" else -block.scores
        own_similarity = similarity.gather(1, block.label_distances.argmin(1, keepdim=True))  # [A,1]
        value = log_one_plus_sum_exp(similarity - own_similarity, block.negative)
        return value, torch.ones_like(value)

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare the anchors of the pairs with the positives of all pairs."""
        classes = _classes(labels, embeddings)
        rows, positives = first_pairs(classes)
        if not len(positives):
            positives = torch.arange(len(classes), device=classes.device)  # reductions need at least one column
        if anchors is not None:
            rows = anchors[torch.isin(anchors, rows)]
        both = embeddings.index_select(0, torch.cat((rows, positives)))
        chosen = _chosen(both[: len(rows)], both[len(rows) :], classes, rows, positives)
        # Rows are pairs, so `penalty` need not look for the positive of an anchor.
        return chosen if anchors is not None or not len(rows) else replace(chosen, item_class=chosen.anchor_class)

    def penalty(self, comparison: Comparison) -> Tensor | None:
        """Return the L2 term of the items of the pairs. Return None if its weight is 0."""
        if self.l2 == 0:
            return None
        a, y = full_precision(comparison.x), full_precision(comparison.y)
        if comparison.item_class is not comparison.anchor_class:
            y = y.index_select(0, comparison.label_distances(ALL).argmin(1))
        return (a.square().sum() + y.square().sum()) * (self.l2 / (2 * max(len(a), 1)))


class AngularLoss(PairLoss):
    """Angular loss: limits the angle at the negative in the triangle of anchor, positive and negative.

    The first two items of a class in the batch are its pair, in both orders; negatives are the items of all other
    pairs. Anchors without a pair add nothing.

    Args:
        alpha: the angle in degrees, above 0 and below 90.
    """

    requires: Requirement = "classes"
    distance: Distance = "dot"
    needs_whole_batch = True  # it reads the row of the anchor's partner too
    takes_memory = False

    @check_ranges
    def __init__(self, alpha: Annotated[float, Range(above=0, below=90)] = 40.0) -> None:
        super().__init__()
        self.alpha = alpha

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the value of each ordered pair `[A]`, and counts of 1.

        Items that are no anchors have weights of 0.
        """
        tan2 = math.tan(math.radians(self.alpha)) ** 2
        counts, partner = block.positive.max(1)  # an anchor has one positive, which is a row of the block too
        own_score = block.scores.gather(1, partner[:, None])  # [A,1]
        exponent = 4 * tan2 * (block.scores + block.scores[partner]) - 2 * (1 + tan2) * own_score
        return counts * log_one_plus_sum_exp(exponent, block.negative), counts

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare the items of all pairs with each other."""
        classes = _classes(labels, embeddings)
        paired = (class_pairs(classes) >= 0).nonzero()[:, 0]
        cols = paired if len(paired) else torch.arange(len(classes), device=classes.device)  # reductions need columns
        index, not_anchor = torch.arange(len(paired), device=classes.device), None
        if anchors is not None:
            anchor_counts = torch.bincount(anchors, minlength=len(classes))[paired]
            # An anchor that appears twice has a second row, after the rows of all items.
            index = torch.cat((index, index.repeat_interleave((anchor_counts - 1).clamp(min=0))))
            not_anchor = (anchor_counts == 0)[index]
        rows, y = paired[index], embeddings[cols]
        x = y if len(rows) == len(cols) else embeddings[rows]
        excluded = None if not_anchor is None else lambda part: not_anchor[part, None].expand(-1, len(cols))
        return replace(_chosen(x, y, classes, rows, cols), self_index=index, excluded=excluded)


def _chosen(x: Tensor, y: Tensor, classes: Tensor, rows: Tensor, cols: Tensor) -> Comparison:
    """Compare x, the items at `rows` of a batch, with y, the items at `cols`."""
    anchor_class, item_class = classes[rows], classes[cols]

    def label_distances(part: slice) -> Tensor:
        return class_distance(anchor_class[part], item_class)

    return Comparison(x, y, label_distances, None, anchor_class, item_class, rows=rows, cols=cols)


def first_pairs(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of the first and of the second item `[P]` of each class that has two.

    Classes are in the order of their first items.
    """
    sorted_classes, order = classes.sort(stable=True)
    same_class = sorted_classes[1:] == sorted_classes[:-1]
    is_first = same_class.clone()  # the first item of each class that has two or more
    is_first[1:] &= ~same_class[:-1]
    a, positions = order[:-1][is_first].sort()
    return a, order[1:][is_first][positions]


def class_pairs(classes: Tensor) -> Tensor:
    """Return the position of each item's partner `[B]`, for the first two items of a class.

    All other items have -1.
    """
    a, p = first_pairs(classes)
    partner = torch.full_like(classes, -1)
    partner[a], partner[p] = p, a
    return partner


def _classes(labels: LabelSpace, embeddings: Tensor) -> Tensor:
    assert labels.class_ids is not None
    return labels.class_ids.to(embeddings.device)
