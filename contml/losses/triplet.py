"""Triplet losses: over all valid triplets of 0 / 1 labels, and over dense triplets of graded labels.

    [ D(a, i) - D(a, j) + margin ]_+    over  D_y(a, i) < D_y(a, j)

No list of triplets is needed. The hinges of an anchor sum to sum_i D(a, i) (p_i - n_i) + margin sum_i p_i. p_i is the
number of active triplets in which i is the nearer item by label. n_i is their number in which i is the farther item.
Sorting a row and searching in it gives the counts. The gradient by D(a, i) is p_i - n_i.

With triplets="batch" a row has one positive and one negative, which the sampler put into the batch for its anchor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from contml._support.validation import NonNegativeFloat, PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison, PairLoss
from contml.mining import Miner

#: Within runs of this length all pairs are compared; longer runs are merged as in a merge sort.
_RUN_LENGTH = 16


class TripletMarginLoss(PairLoss):
    """Triplet loss over all valid triplets of a batch, or over the triplets that the sampler drew.

    Args:
        margin: how much farther than a positive a negative must be.
        distance: "cosine" takes [s_an - s_ap + margin]_+; "euclidean" and "squared_euclidean" compare
            unnormalized embeddings.
        reduction: "mean" over all valid triplets, over the "nonzero" ones, or their "sum".
        triplets: "all" valid ones, or the triplets of the "batch". In a batch of the sampler `triplets`, the first
            third are the anchors, the second their positives, the last their negatives. If a broken image was left out
            of the batch, items move. An anchor whose two items are not a positive and a negative then adds nothing.
    """

    @check_ranges
    def __init__(
        self,
        margin: NonNegativeFloat = 0.1,
        distance: Literal["cosine", "euclidean", "squared_euclidean"] = "cosine",
        reduction: Literal["mean", "nonzero", "sum"] = "mean",
        triplets: Literal["all", "batch"] = "all",
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        self.margin, self.distance, self.reduction, self.triplets = margin, distance, reduction, triplets
        self.takes_memory = triplets == "all"

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare all pairs of the anchors, or each anchor with its own positive and negative."""
        if self.triplets == "all":
            return super().comparison(embeddings, labels, anchors)
        triplets = batch_triplets(len(embeddings), embeddings.device)  # [3,T]
        num_triplets = triplets.shape[1]
        rows = triplets[0] if anchors is None else anchors[anchors < num_triplets]
        cols = torch.arange(len(embeddings), device=embeddings.device)

        def excluded(part: slice) -> Tensor:
            offset = cols - rows[part, None]  # [a,B]
            return (offset != num_triplets) & (offset != 2 * num_triplets)

        return replace(super().comparison(embeddings, labels, rows), excluded=excluded, rows=rows, cols=cols)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum of the hinges of each anchor's valid triplets `[A]`, and the divisor of the reduction.

        The divisor is 0 for the reduction "sum".
        """
        d = -block.scores if self.distance == "cosine" else block.scores
        slope, active = _active_triplets(d.detach(), block.positive, block.negative, self.margin)
        value = (d * slope).sum(1) + self.margin * active
        valid = block.positive.sum(1) * block.negative.sum(1)
        return value, {"mean": valid, "nonzero": active, "sum": torch.zeros_like(valid)}[self.reduction]


def batch_triplets(items: int, device: torch.device | None = None) -> Tensor:
    """Return the triplets in a batch of the sampler `triplets`: anchors, positives and negatives, `[3, items // 3]`.

    Entries are positions in the batch. Triplet i is (i, i + T, i + 2 T), where T is `items // 3`. If broken images were
    left out of the batch, some rows may not be triplets by their labels.
    """
    return torch.arange(items // 3 * 3, device=device).view(3, -1)


class DenseTripletLoss(PairLoss):
    """Triplet loss over dense triplets: all (a, i, j) of a batch with D_y(a, i) < D_y(a, j).

    Distances are squared Euclidean distances of L2-normalised embeddings. The loss is the mean over the triplets of an
    anchor, then over the anchors that have any. The authors' code of "Deep Metric Learning Beyond Binary Supervision"
    orders ties of label distance by row. Here ties form no triplet.

    Args:
        margin: how much farther the item with the larger label distance must be, above 0.
    """

    requires: Requirement = "any"
    distance: Distance = "squared_euclidean"
    normalize = True

    @check_ranges
    def __init__(self, margin: PositiveFloat = 0.03) -> None:
        super().__init__()
        self.margin = margin

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the mean hinge over the dense triplets of each anchor `[A]`, and 1 where the anchor has any."""
        d = block.scores  # [A,B]
        member = block.weights > 0
        as_nearer, as_farther, triplets = _active_dense(d.detach(), block.label_distances, member, self.margin)
        value = (d * (as_nearer - as_farther)).sum(1) + self.margin * as_nearer.sum(1)
        return value / triplets.clamp(min=1), (triplets > 0).to(value.dtype)


@torch.no_grad()
def _active_triplets(d: Tensor, positive: Tensor, negative: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return for each item the weight of active triplets with it as positive, minus as negative `[A, B]`.

    Also return the sum of all weights `[A]`. d `[A, B]` are distances, or negated similarities. positive and negative
    `[A, B]` are weights >= 0, at least one of them 0. A triplet counts with the product of its two weights.

    Only the positives, which are few, are sorted: O(B log P) per row.
    """
    row, column = positive.nonzero(as_tuple=True)
    positive_count = (positive != 0).sum(1)  # [A]
    rank = torch.arange(len(row), device=d.device) - (positive_count.cumsum(0) - positive_count)[row]
    limits = d.new_full((len(d), int(positive_count.max()) if len(d) else 0), torch.inf)  # [A,P]
    limits[row, rank] = d[row, column] + margin
    weight = torch.zeros_like(limits)
    weight[row, rank] = positive[row, column]
    limits, order = limits.sort(1)
    weight = weight.gather(1, order)

    inactive = torch.searchsorted(limits, d.contiguous(), right=True)  # [A,B] positives with limit <= d_an
    zeros = limits.new_zeros(len(d), limits.shape[1] + 1)
    # [A,P] weight of the negatives below each limit
    active_negatives = zeros.scatter_add(1, inactive, negative)[:, :-1].cumsum(1)
    active_positives = torch.nn.functional.pad(weight, (0, 1)).flip(1).cumsum(1).flip(1)  # [A,P+1]
    slope = active_positives.gather(1, inactive).mul_(negative).neg_()
    active_negatives *= weight
    slope[row, column] += torch.empty_like(active_negatives).scatter_(1, order, active_negatives)[row, rank]
    return slope, active_negatives.sum(1)


@torch.no_grad()
def _active_dense(d: Tensor, label_distances: Tensor, member: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Count the active dense triplets with each item as the nearer and as the farther `[A, B]`; and all triplets `[A]`.

    Items are sorted by label distance and counted as in a merge sort: O(B log^2 B) per row. Items at equal label
    distances are in descending order of d, so each of their pairs is counted as active. The number of these pairs is
    subtracted at the end.
    """
    order = d.masked_fill(~member, -torch.inf).argsort(dim=1, descending=True, stable=True)
    label_distances = label_distances.masked_fill(~member, torch.inf).gather(1, order)
    label_distances, label_order = label_distances.sort(dim=1, stable=True)
    order = order.gather(1, label_order)
    first = torch.searchsorted(label_distances, label_distances)  # of the run of equal label distances
    rank = torch.arange(first.shape[1], device=d.device) - first
    tie_size = torch.searchsorted(label_distances, label_distances, right=True) - first
    is_member = member.gather(1, order)
    x = d.gather(1, order).masked_fill(~is_member, torch.inf)

    if len(x) == 0:
        return d, d, d.sum(1)
    num_items = x.shape[1]
    length = _RUN_LENGTH
    while length < num_items:
        length *= 2
    x = torch.nn.functional.pad(x, (0, length - num_items), value=torch.inf)
    nearer, farther = _count_in_runs(x, margin)
    width = _RUN_LENGTH
    while width < length:
        _count_across_runs(x, margin, width, nearer, farther)
        width *= 2
    nearer = (nearer[:, :num_items] - (tie_size - 1 - rank)) * is_member
    farther = (farther[:, :num_items] - rank) * is_member

    n = is_member.sum(1)
    pairs = (n * (n - 1) - ((tie_size - 1) * is_member).sum(1)) / 2
    zeros = torch.zeros_like(d)
    return zeros.scatter(1, order, nearer.to(d.dtype)), zeros.scatter(1, order, farther.to(d.dtype)), pairs.to(d.dtype)


def _count_in_runs(x: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    runs = x.view(len(x), -1, _RUN_LENGTH)
    later = torch.ones(_RUN_LENGTH, _RUN_LENGTH, dtype=torch.bool, device=x.device).triu(1)
    active = (runs[..., None, :] < (runs + margin)[..., :, None]) & later  # [A,R,i,j]
    return active.sum(3).view_as(x), active.sum(2).view_as(x)


def _count_across_runs(x: Tensor, margin: float, width: int, nearer: Tensor, farther: Tensor) -> None:
    halves = x.view(len(x), -1, 2, width)
    left, right = (halves[:, :, 0] + margin).contiguous(), halves[:, :, 1].contiguous()
    nearer.view_as(halves)[:, :, 0] += torch.searchsorted(right.sort(2).values, left)
    farther.view_as(halves)[:, :, 1] += width - torch.searchsorted(left.sort(2).values, right, right=True)
