"""Losses that are tried: `loss=benchmarks.ideas:NAME` in a config. The suites `one_loss`, `regression_networks` and
`hard_items` of `benchmarks/suites` say why.

The first three compare logarithms of squared embedding distances, as the log-ratio loss does. Their differences are
the same at every scale of the embeddings, so embeddings may be normalized or not.

    SmoothRanksOfRatios     1 - AP of smooth ranks, rank_i = 1 + sum_j w_j / (w_j + w_i)
    RanksAndRatios          SmoothRanksOfRatios + weight * log-ratio loss
    ExpectedLabelDistance   sum_j p_j y_j / mean_j y_j,   p_j = w_j / sum_k w_k
    LabelRegression         mean_i ||x_i - c_i||^2 / mean_n ||c_n||^2

The last three change what the log-ratio loss compares:

    HardestLogRatio         only the items of an anchor whose |r_j - mean r| is largest, r_j = log D_j - log y_j^p
    FlooredLogRatio         y_j + c * median y in place of y_j
    LogRatioOfQuantiles     the share of label distances up to y_j in place of y_j

D_j is the squared Euclidean distance of anchor and item j, w_j = D_j^(-1/t), y_j their label distance. c_i are
coordinates of the label of item i, whose Euclidean distances are label distances, n are the training items: embeddings
are predictions of labels, and ranked by their distances.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, PositiveInt, Range, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance
from contml.evaluation.posterior import Coordinates
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, PairLoss
from contml.losses.log_ratio import EPSILON, LogRatioLoss
from contml.losses.log_sum_exp import softmax_of_members
from contml.losses.smooth_rank import SmoothRankLoss
from contml.sampling import UniformSampler


class SmoothRanksOfRatios(SmoothRankLoss):
    """One minus the smooth average precision of a ranking by distance ratios."""

    distance: Distance = "squared_euclidean"

    @check_ranges
    def __init__(self, temperature: PositiveFloat = 0.1, *, train_labels: LabelSpace | None = None) -> None:
        super().__init__("ap", temperature, train_labels=train_labels)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """One minus the metric of each anchor, and 1 where it has a relevant item."""
        return super().values(replace(block, scores=-(block.scores + EPSILON).log()))


class RanksAndRatios(SmoothRanksOfRatios):
    """The loss above plus a multiple of the log-ratio loss of plain distances."""

    @check_ranges
    def __init__(
        self, temperature: PositiveFloat = 0.1, weight: PositiveFloat = 0.2, *, train_labels: LabelSpace | None = None
    ) -> None:
        super().__init__(temperature, train_labels=train_labels)
        self.weight = weight

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """The terms of each anchor `[A, 2]`, and 1 where they are defined."""
        value, count = super().values(block)
        member = (block.label_distances > 0).to(block.weights.dtype) * block.weights  # [A,B]
        n = member.sum(1, keepdim=True)
        r = (block.scores + EPSILON).log() / 2 - (block.label_distances + EPSILON).log()
        c = (r - (r * member).sum(1, keepdim=True) / n.clamp(min=1)) * member
        has_pairs = (n > 1).squeeze(1)
        ratios = 2 * c.square().sum(1) / (n.squeeze(1) - 1).clamp(min=1) * has_pairs
        return torch.stack((value, self.weight * ratios), 1), torch.stack((count, has_pairs.to(count.dtype)), 1)


class ExpectedLabelDistance(PairLoss):
    """The expected label distance of a random neighbour, relative to that of a random item."""

    requires: Requirement = "any"
    distance: Distance = "squared_euclidean"

    @check_ranges
    def __init__(self, temperature: PositiveFloat = 0.3) -> None:
        super().__init__()
        self.temperature = temperature

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """The ratio of each anchor, and 1 where it is defined."""
        logits = -(block.scores + EPSILON).log() / self.temperature
        neighbour = softmax_of_members(logits, block.weights > 0)  # [A,B]
        mean = (block.weights * block.label_distances).sum(1) / block.weights.sum(1).clamp(min=1)
        defined = mean > 0
        value = (neighbour * block.label_distances).sum(1) / mean.where(defined, 1) * defined
        return value, defined.to(value.dtype)


class LabelRegression(torch.nn.Module):
    """Regression of labels: the squared error of embeddings as predictions of label coordinates.

    Classical scaling of the label distances to landmarks gives the coordinates, in order of their variance. They are
    divided by the root of their mean square. A number of an embedding predicts one coordinate. Numbers without a
    coordinate predict 0.

    Args:
        scale: the root of the mean square of the targets. A new network gives numbers of about 1; with larger targets,
            what it gives at first counts less.
        train_labels: the labels of the training items, a root.
    """

    requires: Requirement = "any"
    distance: Distance = "euclidean"
    normalize = False

    @check_ranges
    def __init__(self, scale: Annotated[float, Range(above=0)], *, train_labels: LabelSpace) -> None:
        super().__init__()
        coordinates = Coordinates.fit(train_labels)
        targets = coordinates.of(train_labels.filled(range(len(train_labels)), coordinates.landmarks)).flip(1)
        targets = targets - targets.mean(0)
        targets = scale * targets / targets.square().mean().sqrt()
        self.targets = torch.nn.Buffer(targets, persistent=False)  # [T, r], the largest first

    def forward(self, embeddings: Tensor, labels: LabelSpace, *, anchors: Tensor | None = None) -> Tensor:
        """The mean over the anchors of a batch, in units of the mean squared norm of the targets."""
        assert labels.rows is not None
        target = self.targets[labels.rows][:, : embeddings.shape[1]].to(embeddings.dtype)
        target = torch.nn.functional.pad(target, (0, embeddings.shape[1] - target.shape[1]))
        error = (embeddings - target).square().sum(1)
        return (error if anchors is None else error[anchors]).mean() / self.targets.square().sum(1).mean()


class HardestLogRatio(LogRatioLoss):
    """Log-ratio loss of the items with the largest discrepancy between embedding distance and label distance.

    Args:
        share: the share of the items of an anchor that is kept.
        squared: as in the log-ratio loss.
    """

    @check_ranges
    def __init__(self, share: Annotated[float, Range(above=0, most=1)] = 0.3, squared: bool = True) -> None:
        super().__init__(squared)
        self.share = share

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """As the log-ratio loss, with weight 0 for the other items."""
        with torch.no_grad():
            member = (block.label_distances > 0) & (block.weights > 0)  # [A,B]
            y = block.label_distances**2 if self.squared else block.label_distances
            r = (block.scores + EPSILON).log() - (y + EPSILON).log()
            n = member.sum(1, keepdim=True)
            discrepancy = (r - (r * member).sum(1, keepdim=True) / n.clamp(min=1)).abs().where(member, -1)
            kept = (self.share * n).ceil().long().clamp(min=1)
            limit = discrepancy.sort(1, descending=True).values.gather(1, kept - 1)  # [A,1]
        return super().values(replace(block, weights=block.weights * (discrepancy >= limit)))


class LogRatioOfQuantiles(LogRatioLoss):
    """Log-ratio loss whose label distances are their quantiles among the label distances of training items."""

    @check_ranges
    def __init__(self, squared: bool = True, *, train_labels: LabelSpace) -> None:
        super().__init__(squared)
        order = torch.randperm(len(train_labels), generator=torch.Generator().manual_seed(0))[:1000]
        distances = train_labels.filled(order, order)
        known = distances[torch.ones_like(distances, dtype=torch.bool).triu(1)].float()
        self.known = torch.nn.Buffer(known.sort().values, persistent=False)  # label distances of pairs, ascending

    def changed(self, y: Tensor) -> Tensor:
        """The quantiles of label distances."""
        return torch.searchsorted(self.known, y.float().contiguous(), right=True).clamp(min=1) / len(self.known)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """As the log-ratio loss. A label distance of 0 stays 0."""
        y = block.label_distances
        return super().values(replace(block, label_distances=self.changed(y).to(y.dtype).where(y > 0, 0)))


class FlooredLogRatio(LogRatioOfQuantiles):
    """Log-ratio loss whose label distances are raised by a multiple of their median: small ones are noise."""

    @check_ranges
    def __init__(self, floor: PositiveFloat = 0.1, squared: bool = True, *, train_labels: LabelSpace) -> None:
        super().__init__(squared, train_labels=train_labels)
        self.floor = floor

    def changed(self, y: Tensor) -> Tensor:
        """The label distances plus the noise floor."""
        return y + self.floor * self.known[len(self.known) // 2]


class UniformBatches(UniformSampler):
    """The uniform sampler. It accepts the options of the dense sampler, which a suite sets for all methods."""

    @check_ranges
    def __init__(
        self,
        batch_size: Annotated[int, Range(2, whole=True)] = 150,
        anchors_per_batch: PositiveInt = 30,
        neighbours: PositiveInt = 4,
        all_anchors: bool = True,
        batches: PositiveInt | None = None,
        *,
        labels: LabelSpace,
        seed: int = 0,
    ) -> None:
        del anchors_per_batch, neighbours, all_anchors
        super().__init__(batch_size, batches, labels=labels, seed=seed)
