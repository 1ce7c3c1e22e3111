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

In a small batch, the loss computes the B x B sigmoids of an anchor. In a larger one, `sigmoid_sums` computes the sums
without the sigmoids: O(B) per anchor, for ap O(B log B). It needs sums of sigmoids of all differences of numbers,

    sums_i = sum_j v_j sigmoid((s_j - s_i) / t)

and uses a fast multipole method in one dimension. The line is cut into boxes of width 2 t, and x in [-1, 1] is the
place of a number in its box. For boxes at an offset of r, the sigmoid is a smooth function of two variables,

    sigmoid(x_j - x_i + 2 r) = sum_kl C_r[k, l] T_k(x_j) T_l(x_i),    T: Chebyshev polynomials,

whose coefficients C_r do not depend on t. The nearest pole of the sigmoid is at i pi, so errors fall as 6.4^-n with the
number n of polynomials. Therefore

    values v   ->  moments of each box, sum_j v_j T_k(x_j)          scattered, O(B n)
               ->  coefficients of the sums in each box             a convolution over the boxes with C_r
               ->  sums at the numbers                              gathered, O(B n)

Beyond an offset of W, the sigmoid is 0 or 1 to the precision of the dtype. There the sum of the values of a box is
added without polynomials. Gradients are sums of the same form, with the derivative of the sigmoid in place of the
sigmoid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison, refuse_double_backward
from contml.losses.graded_pairs import GradedSimilarityLoss, Kernel, LabelScale

#: Items in the parts of a batch whose sigmoids are all computed, for ap.
_LEAF = 48


class SmoothRankLoss(GradedSimilarityLoss):
    """Smooth average precision, recall@K or nDCG: one minus the metric, the mean over anchors with a relevant item.

    The loss compares cosine similarities. Time grows with the square of the batch (ap: B^2 log B).

    Args:
        metric: "ap", average precision, which is hierarchical for graded labels; "recall" at `k`; or "ndcg".
        temperature: divides the differences of similarities in the sigmoids, above 0.
        k: the k of "recall".
        kernel: relevance of an item: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
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
        train_labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, train_labels)
        self.metric, self.temperature, self.k = metric, temperature, k

    def is_direct(self, items: int) -> bool:
        """Return True if computing all sigmoids of an anchor with this many items is faster."""
        return items <= max(10, math.sqrt(boxes(self.temperature))) * (16 if self.metric == "ap" else 10)

    def rows_of_a_block(self, comparison: Comparison) -> int:
        """Return the number of anchors in a block: each needs B x B entries, or the entries of the parts or boxes."""
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
        """Return one minus the metric of each anchor `[A]`, and 1 where the anchor has a relevant item."""
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


#: Number of polynomials, and the largest offset of boxes at which the sigmoid is neither 0 nor 1.
_POLYNOMIALS = {torch.float32: (9, 9), torch.float64: (13, 17)}


def boxes(temperature: float) -> int:
    """Return the number of boxes of width 2 t on [-1, 1]."""
    return math.ceil(1 / temperature)


class _Boxes(NamedTuple):
    """Numbers `[R, m]` by their boxes."""

    box: Tensor  # [R,m] which box
    x: Tensor  # [R,m] the place in it, in [-1, 1]
    num_boxes: int

    @classmethod
    def of(cls, s: Tensor, temperature: float) -> _Boxes:
        """Return the boxes of cosines."""
        count = boxes(temperature)
        place = (s.double() + 1) / (2 * temperature)
        box = place.long().clamp_(0, count - 1)  # NaN becomes any box: the loss is NaN by its embeddings
        return cls(box, (place - box).mul_(2).sub_(1).to(s.dtype), count)


def _polynomials(x: Tensor, n: int) -> Iterator[Tensor]:
    """Yield T_1(x), ..., T_(n-1)(x), one after another; T_0 is 1."""
    before, now, twice = torch.ones_like(x), x, 2 * x
    for _ in range(1, n):
        yield now
        before, now = now, torch.addcmul(-before, twice, now)


def _moments(places: _Boxes, values: Tensor, n: int) -> Tensor:
    """Compute sum_j v_j T_k(x_j) of each box: `[R, n, P]`."""
    moments = values.new_zeros(len(values), n, places.num_boxes)
    moments[:, 0].scatter_add_(1, places.box, values)
    for k, polynomial in enumerate(_polynomials(places.x, n), 1):
        moments[:, k].scatter_add_(1, places.box, values * polynomial)
    return moments


def _at(places: _Boxes, coefficients: Tensor) -> Tensor:
    """Evaluate the polynomials with the coefficients `[R, n, P]` of each box at the numbers: `[R, m]`."""
    total = coefficients[:, 0].gather(1, places.box)
    for k, polynomial in enumerate(_polynomials(places.x, coefficients.shape[1]), 1):
        total.addcmul_(polynomial, coefficients[:, k].gather(1, places.box))
    return total


def _sums(moments: Tensor) -> Tensor:
    """Compute the coefficients of the sums of sigmoids in each box from the moments: `[R, n, P]`."""
    count = moments.shape[2]
    kernel = _kernels(moments.dtype, moments.device)[0]
    coefficients = _convolved(moments, kernel)
    width = kernel.shape[2] // 2
    if count > width + 1:
        beyond = moments[:, 0].flip(1).cumsum(1).flip(1)  # [R,P] the values from this box on
        coefficients[:, 0, : count - width - 1] += beyond[:, width + 1 :]
    return coefficients


def _convolved(moments: Tensor, kernel: Tensor) -> Tensor:
    """Compute the coefficients in each box, from all boxes at an offset that the kernel has: `[R, n, P]`."""
    count, width = moments.shape[2], kernel.shape[2] // 2
    reach = min(width, count - 1)
    kernel = kernel[:, :, width - reach : width + reach + 1]
    # A convolution on a GPU would be rounded to TF32.
    with torch.backends.cudnn.flags(enabled=None, benchmark=None, deterministic=None, allow_tf32=False):
        return conv1d(moments, kernel, padding=reach)


@cache
def _kernels(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return C_r of the sigmoid and of its derivative: `[n of i, n of j, 2 W + 1]` each."""
    n, width = _POLYNOMIALS[dtype]
    angles = np.pi * (np.arange(n) + 0.5) / n
    nodes = np.cos(angles)
    transform = 2 / n * np.cos(np.arange(n)[:, None] * angles)  # [k, node]
    transform[0] /= 2
    offsets = 2 * np.arange(-width, width + 1)
    difference = nodes[:, None] - nodes[None, :]  # [node of j, node of i]
    sigmoid = 1 / (1 + np.exp(-(difference[..., None] + offsets)))
    found = []
    for values in (sigmoid, sigmoid * (1 - sigmoid)):
        kernel = np.einsum("kj,li,jir->lkr", transform, transform, values)
        found.append(torch.from_numpy(kernel).to(device, dtype))
    return found[0], found[1]


class _SigmoidSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, targets: Tensor, sources: Tensor, values: Tensor, temperature: float) -> Tensor:
        n = _POLYNOMIALS[sources.dtype][0]
        at_sources = _Boxes.of(sources, temperature)
        at_targets = at_sources if targets is sources else _Boxes.of(targets, temperature)
        moments = _moments(at_sources, values, n)
        ctx.save_for_backward(targets, sources, values, moments)
        ctx.temperature = temperature
        return _at(at_targets, _sums(moments))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        refuse_double_backward()
        targets, sources, values, moments = ctx.saved_tensors
        at_sources = _Boxes.of(sources, ctx.temperature)
        at_targets = at_sources if targets is sources else _Boxes.of(targets, ctx.temperature)
        kernel = _kernels(moments.dtype, moments.device)[1]  # even: one for both directions
        gradient = gradient / ctx.temperature
        of_targets = _at(at_targets, _convolved(moments, kernel)).mul_(gradient).neg_()
        of_sources = _at(at_sources, _convolved(_moments(at_targets, gradient, moments.shape[1]), kernel)).mul_(values)
        return of_targets, of_sources, None, None


def sigmoid_sums(targets: Tensor, sources: Tensor, values: Tensor, temperature: float) -> Tensor:
    """Compute sum_j v_j sigmoid((s_j - s_i) / t) for the targets s_i of each row, over its sources s_j: `[R, m]`.

    Args:
        targets: cosines `[R, m]`.
        sources: cosines `[R, M]`; may be `targets`.
        values: v `[R, M]`; they get no gradient.
        temperature: t, above 0.
    """
    return _SigmoidSums.apply(targets, sources, values, temperature)


def shared_sums(s: Tensor, values: Tensor, temperature: float, leaf: int) -> Tensor:
    """Compute sum_j min(v_i, v_j) sigmoid((s_j - s_i) / t) of each row, also over j = i: `[R, m]`.

    The items are sorted by value and divided into halves. Where i is in the upper half and j in the lower one, min(v_i,
    v_j) is v_j; in the opposite case it is v_i. Parts of at most `leaf` items are compared item by item: O(m log m) per
    row.

    Args:
        s: cosines `[R, m]`.
        values: v `[R, m]`, at least 0; they get no gradient.
        temperature: t, above 0.
        leaf: the largest part that is compared item by item.
    """
    rows, items = s.shape
    levels = max(0, math.ceil(math.log2(items / leaf)))
    size = math.ceil(items / 2**levels)
    v, order = values.sort(dim=1)
    padding = size * 2**levels - items
    v, sorted_s = pad(v, (padding, 0)), pad(s.gather(1, order), (padding, 0))
    v_leaf, s_leaf = v.view(-1, size), sorted_s.reshape(-1, size)
    before = ((s_leaf[:, None] - s_leaf[:, :, None]) / temperature).sigmoid()
    sums = (before * torch.minimum(v_leaf[:, None], v_leaf[:, :, None])).sum(2).view(rows, -1)
    for level in range(levels):
        (lower, upper), (v_lower, _) = (each.reshape(-1, 2, size * 2**level).unbind(1) for each in (sorted_s, v))
        of_lower = v_lower * sigmoid_sums(lower, upper, torch.ones_like(upper), temperature)
        of_upper = sigmoid_sums(upper, lower, v_lower, temperature)
        sums = sums + torch.stack((of_lower, of_upper), 1).view(rows, -1)
    return torch.zeros_like(s).scatter(1, order, sums[:, padding:])
