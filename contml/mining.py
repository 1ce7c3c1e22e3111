"""Miners: they choose the pairs of an anchor that count, and weight them. Most pair losses take one.

A miner reads the similarities of some anchors to all items and gives each pair a weight. A weight of 0 leaves the pair
out. Weights have no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.text import options_of
from contml._support.validation import NonNegativeFloat, PositiveFloat, Range, check_ranges
from contml.contracts import Candidates

__all__ = ["MINERS", "VTHM", "DistanceWeighted", "Hardest", "Miner", "SemiHard"]

#: Bits of a random number and of a probability: their product fits 64 bits.
_BITS = 31


class Miner(nn.Module):
    """Base of the miners: a subclass implements `weights`, in which each row depends on no other row.

    `sphere` is True if the similarities must be cosines.
    """

    sphere: bool = False

    def extra_repr(self) -> str:
        """Return the options, for `repr`."""
        return options_of(self)

    def begin(self) -> None:
        """Prepare for a call of the loss, before its first block."""

    def weights(self, candidates: Candidates) -> Tensor:
        """Return weights `[A, B]` >= 0. A pair that is neither positive nor negative may have any weight."""
        raise NotImplementedError(f"{type(self).__name__} has no weights(self, candidates)")

    @torch.no_grad()
    def forward(self, candidates: Candidates) -> Tensor:
        """Return weights `[A, B]` in the dtype of the similarities."""
        return self.weights(candidates).to(candidates.similarity.dtype)


class VTHM(Miner):
    """Valid triplet based hard mining: keeps the pairs that violate a triplet, or nearly do, with weight 1.

        negatives with s_an > min_P s - epsilon,   positives with s_ap < max_N s + epsilon

    An anchor without positives or without negatives keeps no pair.

    Args:
        epsilon: keep pairs that miss violating a triplet by less than this similarity, at least 0.
    """

    @check_ranges
    def __init__(self, epsilon: NonNegativeFloat = 0.1) -> None:
        super().__init__()
        self.epsilon = epsilon

    def weights(self, candidates: Candidates) -> Tensor:
        """Return 1 for the pairs that are kept, else 0, `[A, B]`."""
        s, positive, negative = candidates.similarity, candidates.positive, candidates.negative
        # Without pairs the minimum is +inf and the maximum -inf, so that no pair passes.
        min_positive = s.masked_fill(~positive, torch.inf).amin(1, keepdim=True)  # [A,1]
        max_negative = s.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        return ((s > min_positive - self.epsilon) & negative) | ((s < max_negative + self.epsilon) & positive)


class SemiHard(Miner):
    """For each positive, the nearest of the negatives that are farther from the anchor than the positive.

        n(a, p) = argmax_n s_an   over   s_an < s_ap

    Schroff, Kalenichenko, Philbin: "FaceNet: A Unified Embedding for Face Recognition and Clustering", CVPR 2015,
    section 3.2. All positives have weight 1, as in the paper. The weight of a negative is the number of positives that
    choose it: the number of its triplets in the paper. Of equally near negatives the first in the batch
    is chosen. A positive that is farther than every negative chooses none.
    """

    def weights(self, candidates: Candidates) -> Tensor:
        """Return 1 for positives and the number of choices for negatives, `[A, B]`."""
        distance, positive = -candidates.similarity.contiguous(), candidates.positive
        # The sort is stable: the first entry above a distance is the first of equal entries in the batch.
        sorted_distances, order = distance.masked_fill(~candidates.negative, torch.inf).sort(dim=1, stable=True)
        position = torch.searchsorted(sorted_distances, distance, right=True)  # [A,B]
        has_choice = positive & (position < candidates.negative.sum(1, keepdim=True))
        chosen_negatives = order.gather(1, position.clamp(max=position.shape[1] - 1))
        return positive.to(distance.dtype).scatter_add_(1, chosen_negatives, has_choice.to(distance.dtype))


class Hardest(Miner):
    """The farthest positive and the nearest negative of each anchor.

    Hermans, Beyer, Leibe: "In Defense of the Triplet Loss for Person Re-Identification", 2017, Eq. 5 ("batch hard").
    An anchor without positives still keeps its nearest negative, and an anchor without negatives its farthest positive.
    Of equally near items the first in the batch is chosen.
    """

    def weights(self, candidates: Candidates) -> Tensor:
        """Return 1 for the farthest positive and the nearest negative of each anchor, else 0, `[A, B]`."""
        s, positive, negative = candidates.similarity, candidates.positive, candidates.negative
        farthest = s.masked_fill(~positive, torch.inf).argmin(1, keepdim=True)
        nearest = s.masked_fill(~negative, -torch.inf).argmax(1, keepdim=True)
        weights = torch.zeros_like(s).scatter_(1, farthest, 1) * positive
        return weights + torch.zeros_like(s).scatter_(1, nearest, 1) * negative


class DistanceWeighted(Miner):
    """Random negatives with weights that make all distances equally likely, if embeddings are uniform on the sphere.

        P(n | a) ~ min(lambda, 1 / q(d_an)),   log q(d) = (n - 2) log d + (n - 3) / 2 log(1 - d^2 / 4)

    Wu, Manmatha, Smola, Kraehenbuehl: "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq. 4-5; n is the
    embedding dimension, d a Euclidean distance of unit vectors. As in the authors' code, lambda is given as a distance
    (`cutoff`). Negatives beyond `upper` have a loss of 0 and are not drawn. An anchor draws as many negatives as it has
    positives, with replacement. Positives have weight 1. The weight of a negative is the number of times it was drawn.
    An anchor whose negatives are all beyond `upper` draws none (the authors' code draws any item then).

    A draw depends on the seed, the number of training calls so far (saved in the module's state) and the anchor's
    position in the batch. It does not depend on the block size or PyTorch's generators. In eval mode the last draw is
    repeated.

    Args:
        cutoff: smaller distances count as this distance.
        upper: negatives beyond this distance are not drawn; at most 2.
        seed: seed of the draws.
    """

    sphere = True
    calls: Tensor

    @check_ranges
    def __init__(
        self, cutoff: PositiveFloat = 0.5, upper: Annotated[float, Range(above=0, most=2)] = 1.4, *, seed: int = 0
    ) -> None:
        super().__init__()
        if cutoff >= upper:
            raise InputError("cutoff", str(cutoff), f"must be below upper, {upper}")
        self.cutoff, self.upper, self.seed = cutoff, upper, seed
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def begin(self) -> None:
        """Count the call in training mode, so that each call has a new draw."""
        if self.training:
            self.calls += 1

    def weights(self, candidates: Candidates) -> Tensor:
        """Return 1 for positives and the number of draws for negatives, `[A, B]`."""
        cumulative = self._integer_probabilities(candidates).cumsum(1)  # [A,B]
        total, draw_count = cumulative[:, -1:], candidates.positive.sum(1, keepdim=True)  # [A,1]
        draws = torch.arange(int(draw_count.max()) if len(draw_count) else 0, device=cumulative.device)
        thresholds = (self._random(candidates.anchors[:, None], draws) * total) >> _BITS  # [A,D] in [0, total)
        drawn_negatives = torch.searchsorted(cumulative, thresholds, right=True).clamp(max=cumulative.shape[1] - 1)
        weights = candidates.positive.to(candidates.similarity.dtype)
        return weights.scatter_add_(1, drawn_negatives, ((draws < draw_count) & (total > 0)).to(weights.dtype))

    def _integer_probabilities(self, candidates: Candidates) -> Tensor:
        """Return probabilities `[A, B]` as whole numbers, which sum to about 2^31 per anchor.

        Their cumulative sums are exact on every device, so an item of probability 0 is never drawn.
        """
        n = candidates.dim
        squared = (2 - 2 * candidates.similarity.contiguous()).clamp_(min=0)
        excluded = ~candidates.negative | (squared > self.upper**2)
        squared.clamp_(self.cutoff**2, self.upper**2)
        # Avoids log 0 at antipodes, if upper is 2.
        rest = (1 - squared / 4).clamp_(min=torch.finfo(squared.dtype).tiny)
        log_p = (-(n - 2) / 2 * squared.log() - (n - 3) / 2 * rest.log()).masked_fill_(excluded, -torch.inf)
        # The softmax of a row of -inf is NaN.
        p = log_p.softmax(1).masked_fill_(excluded, 0)
        return (p * (1 << _BITS)).round_().long()

    def _random(self, anchors: Tensor, draws: Tensor) -> Tensor:
        """Return whole numbers in [0, 2^31) for each anchor `[A, 1]` and draw `[D]`: `[A, D]`."""
        state = torch.full((), _as_int64(self.seed), device=anchors.device)
        for value in (self.calls.to(anchors.device), anchors, draws):
            state = _splitmix(state + (value + 1) * _as_int64(0x9E3779B97F4A7C15))
        return _unsigned_shift(state, 64 - _BITS)


def _as_int64(number: int) -> int:
    """Return the int64 with the same 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _unsigned_shift(x: Tensor, bits: int) -> Tensor:
    """Return `x >> bits` of an int64 as if it were unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix(x: Tensor) -> Tensor:
    """Apply the finaliser of splitmix64, modulo 2^64: every bit of the result depends on every bit of x."""
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ _unsigned_shift(x, bits)) * _as_int64(factor)
    return x ^ _unsigned_shift(x, 31)


#: Every miner by its name in a config.
MINERS: dict[str, Callable[..., Miner]]
MINERS = {"vthm": VTHM, "semi_hard": SemiHard, "hardest": Hardest, "distance_weighted": DistanceWeighted}
