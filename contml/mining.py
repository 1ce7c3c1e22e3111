"""Miners: which pairs of an anchor count, and how much. Any pair loss whose maths permits takes one.

A miner reads the similarities of some anchors to all items and gives a weight to each pair: 0 is mined away. Nothing
here is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.options import options_of

#: Of a random number and of a probability: their product fits 64 bits.
_BITS = 31


@dataclass(frozen=True)
class Candidates:
    """The pairs of some anchors that a miner chooses from.

    similarity `[A, B]`: larger is nearer; cosine where embeddings are on the unit sphere, else a dot product or a
    negated distance. positive, negative `[A, B]` bool: the valid pairs, an anchor with itself in neither. anchors
    `[A]`: the anchors' places in the batch. dim: the embedding dimension.
    """

    similarity: Tensor
    positive: Tensor
    negative: Tensor
    anchors: Tensor
    dim: int


class Miner(nn.Module):
    """Base of the miners: a subclass writes `weights`, row by row, so that blocks of anchors change nothing.

    `sphere`: it needs similarities that are cosines.
    """

    sphere: bool = False

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return options_of(self)

    def begin(self) -> None:
        """A new call of the loss begins, before its first block."""

    def weights(self, candidates: Candidates) -> Tensor:
        """Weights `[A, B]` >= 0; those of pairs that are neither positive nor negative are not read."""
        raise NotImplementedError(f"{type(self).__name__} has no weights(self, candidates)")

    @torch.no_grad()
    def forward(self, candidates: Candidates) -> Tensor:
        """Weights `[A, B]` in the dtype of the similarities."""
        return self.weights(candidates).to(candidates.similarity.dtype)


class All(Miner):
    """Every pair counts, with weight 1: the same as no miner."""

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for all."""
        return torch.ones_like(candidates.similarity)


class VTHM(Miner):
    """Violating triplet hard mining: pairs that a triplet would find too close to the other side, equal weights.

        negatives with s_an > min_P s - epsilon,   positives with s_ap < max_N s + epsilon

    An anchor without positives or without negatives keeps nothing: the least of no similarities is +inf, the largest
    -inf, and no pair passes.

    Args:
        epsilon: how far a pair may be from violating, at least 0.
    """

    def __init__(self, epsilon: float = 0.1) -> None:
        super().__init__()
        if not 0 <= epsilon < float("inf"):
            raise InputError(f"epsilon is {epsilon}; it must be at least 0")
        self.epsilon = epsilon

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for the pairs that are kept."""
        s, positive, negative = candidates.similarity, candidates.positive, candidates.negative
        least = s.masked_fill(~positive, torch.inf).amin(1, keepdim=True)  # [A,1]
        most = s.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        return ((s > least - self.epsilon) & negative) | ((s < most + self.epsilon) & positive)


class SemiHard(Miner):
    """A negative for each positive: the nearest of those that are farther from the anchor than the positive is.

        n(a, p) = argmax_n s_an   over   s_an < s_ap

    Schroff, Kalenichenko, Philbin: "FaceNet: A Unified Embedding for Face Recognition and Clustering", CVPR 2015,
    section 3.2. All positives have weight 1, as all of them are used there; the weight of a negative is the number of
    positives that chose it, so that a pair loss sees it as often as the paper's triplets list it. Of negatives that are
    equally near the first in the batch is chosen. A positive that is farther than every negative chooses none.
    """

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for positives, the number of choices for negatives."""
        distance, positive = -candidates.similarity.contiguous(), candidates.positive
        # In stable order, so that the first entry above a distance is the first of its equals in the batch.
        ordered, order = distance.masked_fill(~candidates.negative, torch.inf).sort(dim=1, stable=True)
        place = torch.searchsorted(ordered, distance, right=True)  # [A,B]
        found = positive & (place < candidates.negative.sum(1, keepdim=True))
        chosen = order.gather(1, place.clamp(max=place.shape[1] - 1))
        weights = positive.to(distance.dtype)
        return weights.scatter_add_(1, chosen, found.to(distance.dtype))


class Hardest(Miner):
    """The farthest positive and the nearest negative of each anchor.

    Hermans, Beyer, Leibe: "In Defense of the Triplet Loss for Person Re-Identification", 2017, Eq. 5 ("batch hard").
    Each is chosen for itself: an anchor without positives keeps its nearest negative, and the other way round. Of items
    that are equally near the first in the batch is chosen.
    """

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for the two pairs."""
        s, positive, negative = candidates.similarity, candidates.positive, candidates.negative
        farthest = s.masked_fill(~positive, torch.inf).argmin(1, keepdim=True)
        nearest = s.masked_fill(~negative, -torch.inf).argmax(1, keepdim=True)
        weights = torch.zeros_like(s).scatter_(1, farthest, 1) * positive
        return weights + torch.zeros_like(s).scatter_(1, nearest, 1) * negative


class DistanceWeighted(Miner):
    """Negatives drawn so that all distances are as likely, where they would otherwise be those of a random sphere.

        P(n | a) ~ min(lambda, 1 / q(d_an)),   log q(d) = (n - 2) log d + (n - 3) / 2 log(1 - d^2 / 4)

    Wu, Manmatha, Smola, Kraehenbuehl: "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq. 4-5; n is the
    embedding dimension, d a Euclidean distance of unit vectors. As in the authors' code, lambda is said as a distance
    below which all are alike, and none is drawn that is so far that no loss is left. An anchor draws as often as it has
    positives, with replacement: positives have weight 1, negatives the number of times they were drawn. An anchor
    whose negatives are all beyond `upper` draws none (the authors' code draws any item then).

    A draw depends on the seed, on the number of training calls so far, which is in the state of the module, and on the
    anchor's place in the batch; not on blocks, nor on PyTorch's generators. In eval mode the last draw is repeated.

    Args:
        cutoff: distances below it are taken as this distance.
        upper: negatives beyond this distance are not drawn; at most 2.
        seed: of the draws.
    """

    sphere = True
    calls: Tensor

    def __init__(self, cutoff: float = 0.5, upper: float = 1.4, *, seed: int = 0) -> None:
        super().__init__()
        if not 0 < cutoff < upper <= 2:
            raise InputError(
                f"cutoff is {cutoff} and upper {upper}; they are distances of unit vectors: 0 < cutoff < upper <= 2"
            )
        self.cutoff, self.upper, self.seed = cutoff, upper, seed
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def begin(self) -> None:
        """Draw anew, if training."""
        if self.training:
            self.calls += 1

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for positives, the number of draws for negatives."""
        share = self._shares(candidates).cumsum(1)  # [A,B]
        total, wanted = share[:, -1:], candidates.positive.sum(1, keepdim=True)  # [A,1]
        draws = torch.arange(int(wanted.max()) if len(wanted) else 0, device=share.device)
        ticket = (self._random(candidates.anchors[:, None], draws) * total) >> _BITS  # [A,D] in [0, total)
        drawn = torch.searchsorted(share, ticket, right=True).clamp(max=share.shape[1] - 1)
        weights = candidates.positive.to(candidates.similarity.dtype)
        return weights.scatter_add_(1, drawn, ((draws < wanted) & (total > 0)).to(weights.dtype))

    def _shares(self, candidates: Candidates) -> Tensor:
        """Probabilities `[A, B]` as whole numbers, which sum to about 2^31 an anchor.

        Their running sums are exact on every device, so that no item of probability 0 is ever drawn.
        """
        n = candidates.dim
        squared = (2 - 2 * candidates.similarity.contiguous()).clamp_(min=0)
        beyond = ~candidates.negative | (squared > self.upper**2)
        squared.clamp_(self.cutoff**2, self.upper**2)
        # Antipodes, if upper is 2, would have log 0.
        rest = (1 - squared / 4).clamp_(min=torch.finfo(squared.dtype).tiny)
        log_share = (-(n - 2) / 2 * squared.log() - (n - 3) / 2 * rest.log()).masked_fill_(beyond, -torch.inf)
        # Softmax of nothing is NaN.
        share = log_share.softmax(1).masked_fill_(beyond, 0)
        return (share * (1 << _BITS)).round_().long()

    def _random(self, anchors: Tensor, draws: Tensor) -> Tensor:
        """Whole numbers in [0, 2^31) for each anchor `[A, 1]` and draw `[D]`: `[A, D]`."""
        state = torch.full((), _signed(self.seed), device=anchors.device)
        for part in (self.calls.to(anchors.device), anchors, draws):
            state = _mixed(state + (part + 1) * _signed(0x9E3779B97F4A7C15))
        return _shifted(state, 64 - _BITS)


def _signed(number: int) -> int:
    """The int64 with the same 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """`x >> bits` of an int64 read without a sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Tensor) -> Tensor:
    """Every bit of an int64 made to depend on every other: the finaliser of splitmix64, products modulo 2^64."""
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ _shifted(x, bits)) * _signed(factor)
    return x ^ _shifted(x, 31)


#: Every miner by its name in a config.
MINERS: dict[str, Callable[..., Miner]] = {
    "all": All,
    "vthm": VTHM,
    "semi_hard": SemiHard,
    "hardest": Hardest,
    "distance_weighted": DistanceWeighted,
}
