"""Losses on the order of label distances: CoSENT, Rank-N-Contrast and soft-target InfoNCE.

They need log-sum-exps over the items beyond each item of a row: O(B log B) per row, by sorting and cumulative sums.

    beyond(j) = { k : key_k >= key_j }     with ties;     { k : key_k > key_j }     strictly

A row is sorted by key, largest first. `logcumsumexp` then has the sums of all prefixes. With ties, the sum for a run of
equal keys is read at the last entry of the run. Strictly, it is read before its first entry.

CoSENT: of any two pairs of items, the one with the smaller label distance is the more similar.

    log ( 1 + sum_{p, q: D_p < D_q} e^{scale (s_q - s_p)} )      over all ordered pairs p, q of an anchor and an item

Su: "CoSENT", 2022. A pair p = (a, i) is compared with the pairs of all anchors, so label distances of different anchors
must be comparable. With `per_anchor`, p and q have the same anchor, and the loss is the mean of one logarithm per
anchor: the smooth form of the dense triplet loss.

Sorting the P pairs by label distance takes O(P log P); the matrix of P x P comparisons is never formed.

Rank-N-Contrast: each pair is contrasted with the pairs of its anchor that are at least as far apart by label.

    1 / (n (n - 1))  sum_i sum_{j != i}  - log ( e^{s_ij / t} / sum_{k: D_ik >= D_ij} e^{s_ik / t} )

Zha, Cao, Son, Yang, Katabi: "Rank-N-Contrast: Learning Continuous Representations for Regression", NeurIPS 2023; s
is minus the Euclidean distance of unnormalized embeddings, D the label distance. The authors' code takes O(n^3)
time and is NaN for embeddings of 64 numbers of standard deviation 30; sorting takes O(n^2 log n).

Soft-target InfoNCE: the softmax of similarities follows a softmax of label distances.

    - 1/n  sum_i sum_j  W_ij  log ( e^{x_ij} / sum_k e^{x_ik} )        W_ij = K_ij / sum_k K_ik

    kernel      gaussian      K = e^{-D^2 / (2 sigma^2)}     y-aware InfoNCE: Dufumier et al., MICCAI 2021
                exponential   K = e^{-D / sigma}             X-CLR: Sobal et al., 2024; the softmax of -D / sigma
    similarity  cosine        x = s / t
                student_t     e^x = 1 / (1 + d^2 / t)        supervised t-SNE, d the Euclidean distance
    denominator all           sum_k e^{x_ik}
                exp           sum_k e^{x_ik (1 - K_ik)}      Barbano et al., "Contrastive Learning for Regression in
                threshold     sum_{k: K_ik < K_ij} e^{x_ik}  Multi-Site Brain Age Prediction", ISBI 2023

D is the plain label distance divided by `label_scale`. The published code of y-aware InfoNCE divides K by the sums of
columns instead of rows. With "threshold" all W of a row still sum to 1, and a pair without a farther one adds nothing.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, PairLoss, refuse_double_backward
from contml.losses.graded_pairs import LabelScale, ScaledLabelLoss
from contml.losses.log_sum_exp import log_sum_exp, softmax_of_members


class SortedRows(NamedTuple):
    """The order of the rows of a matrix, largest key first.

    order `[A, B]` holds the columns in this order, non-members last. Each position is in a run of equal keys. first and
    last `[A, B]` hold the first position of the run, and the position after its last.
    """

    order: Tensor
    first: Tensor
    last: Tensor

    def before(self, x: Tensor, strict: bool) -> Tensor:
        """Compute `log sum e^x` over the entries with a larger key, `[A, B]` by position.

        If not `strict`, entries with an equal key count too. x `[A, B]` is by position, with -inf for non-members. The
        value is -inf where there is no entry.
        """
        sums = torch.cat((x.new_full((len(x), 1), -torch.inf), x.logcumsumexp(1)), 1)  # [A,B+1]
        return sums.gather(1, self.first if strict else self.last)

    def after(self, x: Tensor, strict: bool) -> Tensor:
        """Compute `log sum e^x` over the entries with a smaller key, `[A, B]` by position.

        If not `strict`, entries with an equal key count too.
        """
        sums = torch.cat((x.flip(1).logcumsumexp(1).flip(1), x.new_full((len(x), 1), -torch.inf)), 1)  # [A,B+1]
        return sums.gather(1, self.last if strict else self.first)

    def by_column(self, x: Tensor) -> Tensor:
        """Return entries that are given by position in the order of the columns, `[A, B]`."""
        return torch.empty_like(x).scatter_(1, self.order, x)


def sort_rows(key: Tensor, member: Tensor) -> SortedRows:
    """Sort the members (bool `[A, B]`) of each row by their finite keys `[A, B]`."""
    keys, order = (-key).masked_fill_(~member, torch.inf).sort(1)
    return SortedRows(order, torch.searchsorted(keys, keys), torch.searchsorted(keys, keys, right=True))


def ranked_cross_entropy(x: Tensor, key: Tensor, share: Tensor, member: Tensor, *, strict: bool) -> Tensor:
    """Compute `sum_j share_j ( log sum_{k beyond j} e^{x_k} - x_j )` over the members of each row, `[A]`.

    A member with nothing beyond it adds 0. x, key and share are `[A, B]`. share is >= 0 and gets no gradient. member is
    bool `[A, B]`.
    """
    return _RankedCrossEntropy.apply(x, key, share, member, strict)


class _RankedCrossEntropy(torch.autograd.Function):
    """Autograd of `ranked_cross_entropy`.

    The gradient `e^{x_k} sum_{j: k beyond j} share_j / sum_j` needs the same sums from the other end.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, share: Tensor, member: Tensor, strict: bool) -> Tensor:
        rows = sort_rows(key, member)
        sorted_x = x.masked_fill(~member, -torch.inf).gather(1, rows.order)
        sums = rows.before(sorted_x, strict)  # [A,B] log sum of each item's denominator
        counted = member.gather(1, rows.order)
        if strict:
            counted &= rows.first > 0
        share = share.gather(1, rows.order) * counted
        gradient = rows.after((share.log() - sums).masked_fill_(share == 0, -torch.inf), strict)
        gradient = gradient.add_(sorted_x).exp_().sub_(share)
        ctx.save_for_backward(rows.by_column(gradient))
        return (share * (sums - sorted_x).masked_fill_(~counted, 0)).sum(1)

    @staticmethod
    def backward(ctx: Any, value: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        (gradient,) = ctx.saved_tensors
        return gradient * value[:, None], None, None, None, None


class CoSENTLoss(PairLoss):
    """CoSENT: pairs with a smaller label distance have a larger cosine similarity, over all pairs of a batch.

    Only the order of label distances is used. A pair of two anchors counts in both directions.

    Args:
        scale: multiplies the differences of similarities, above 0.
        per_anchor: compare only pairs of the same anchor, and take the mean over the anchors.
    """

    requires: Requirement = "any"
    needs_whole_batch = True

    @check_ranges
    def __init__(self, scale: PositiveFloat = 20.0, per_anchor: bool = False) -> None:
        super().__init__()
        self.scale, self.per_anchor = scale, per_anchor
        self.needs_whole_batch = not per_anchor

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the logarithm of each anchor `[A]`, or of all pairs `[1]`, and counts of 1."""
        matrices = (self.scale * block.scores, block.label_distances, block.weights > 0)  # [A,B]
        rows = matrices if self.per_anchor else [matrix.reshape(1, -1) for matrix in matrices]
        value: Tensor = _CoSENT.apply(*rows)
        return value, torch.ones_like(value)


class _CoSENT(torch.autograd.Function):
    """`log(1 + sum_{D_p < D_q} e^{x_q - x_p})` over the members of each row, `[A]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, label_distances: Tensor, member: Tensor) -> Tensor:
        rows = sort_rows(label_distances, member)  # farthest first
        x, member = x.gather(1, rows.order), member.gather(1, rows.order)
        farther, nearer = x.masked_fill(~member, -torch.inf), (-x).masked_fill_(~member, -torch.inf)
        terms = rows.before(farther, strict=True).add_(nearer)  # [A,B] log sum_q e^{x_q - x_p} for each p
        total = terms.logsumexp(1).logaddexp(terms.new_zeros(()))
        as_nearer = (terms - total[:, None]).exp_()
        as_farther = rows.after(nearer - total[:, None], strict=True).add_(farther).exp_()
        ctx.save_for_backward(rows.by_column(as_farther - as_nearer))
        return total

    @staticmethod
    def backward(ctx: Any, value: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        (gradient,) = ctx.saved_tensors
        return gradient * value[:, None], None, None


class RankNContrastLoss(PairLoss):
    """Rank-N-Contrast: embedding distances are in the order of label distances; only their order is used.

    The loss is the mean over all pairs of an anchor with another item. Items at equal label distances are in each
    other's denominators.

    Args:
        temperature: divides the Euclidean distances of the embeddings, which are not normalized; above 0.
    """

    requires: Requirement = "any"
    distance: Distance = "euclidean"

    @check_ranges
    def __init__(self, temperature: PositiveFloat = 2.0) -> None:
        super().__init__()
        self.temperature = temperature

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum over the pairs of each anchor, and the number of pairs, `[A]` each."""
        x, member = block.scores / -self.temperature, block.weights > 0  # [A,B]
        value = ranked_cross_entropy(x, block.label_distances, torch.ones_like(x), member, strict=False)
        return value, block.weights.sum(1)


class SoftInfoNCELoss(ScaledLabelLoss):
    """Soft-target InfoNCE: each anchor's softmax of similarities follows a kernel of its label distances.

    X-CLR is `kernel: exponential`; supervised t-SNE is `similarity: student_t`, on unnormalized embeddings.

    Args:
        kernel: the target as a function of the plain label distance: "gaussian" or "exponential".
        sigma: width of the kernel in label distances, after `label_scale`; null is 1 for gaussian and 0.1 for
            exponential.
        similarity: "cosine" of embeddings, or "student_t" of their Euclidean distances.
        temperature: divides cosines, or squared distances; null is 0.1 for cosine and 1 for student_t.
        learn_temperature: learn the temperature, from this value on.
        denominator: the terms that a pair is contrasted with. "all" takes all terms of its anchor. "exp" takes all,
            each multiplied by 1 - K in the exponent. "threshold" takes the items at a larger label distance.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
    """

    @check_ranges
    def __init__(
        self,
        kernel: Literal["gaussian", "exponential"] = "gaussian",
        sigma: PositiveFloat | None = None,
        similarity: Literal["cosine", "student_t"] = "cosine",
        temperature: PositiveFloat | None = None,
        learn_temperature: bool = False,
        denominator: Literal["all", "exp", "threshold"] = "all",
        label_scale: LabelScale = "median",
        *,
        train_labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(label_scale, train_labels)
        sigma = {"gaussian": 1.0, "exponential": 0.1}[kernel] if sigma is None else sigma
        temperature = {"cosine": 0.1, "student_t": 1.0}[similarity] if temperature is None else temperature
        self.kernel, self.sigma, self.similarity, self.denominator = kernel, sigma, similarity, denominator
        self.distance = "cosine" if similarity == "cosine" else "squared_euclidean"
        self.temperature, self.learn_temperature = temperature, learn_temperature
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature))) if learn_temperature else None

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of each anchor `[A]`, and 1 where the anchor has another item."""
        s, d, member = block.scores, block.label_distances, block.weights > 0  # [A,B]
        temperature = self.temperature if self.log_temperature is None else self.log_temperature.exp().to(s.dtype)
        x = s / temperature if self.similarity == "cosine" else -(s / temperature).log1p()
        log_k = -(d / self.sigma).square() / 2 if self.kernel == "gaussian" else -d / self.sigma
        target = softmax_of_members(log_k, member)
        counts = member.any(1).to(x.dtype)
        if self.denominator == "threshold":
            return ranked_cross_entropy(x, d, target, member, strict=True), counts
        terms = x if self.denominator == "all" else x * (1 - log_k.exp())
        return log_sum_exp(terms, block.weights)[0] - (target * x).sum(1), counts
