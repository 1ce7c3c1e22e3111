"""Softmax losses against proxies: an item is classified by its similarities to the proxies of all classes.

    cross entropy        - log ( e^{w_y . x + b_y} / sum_c e^{w_c . x + b_c} )
    normalised softmax   - log ( e^{x . p_y / t} / sum_c e^{x . p_c / t} )
    SoftTriple           - log ( e^{la (S_y - margin)} / (e^{la (S_y - margin)} + sum_{c != y} e^{la S_c}) )
                         S_c = sum_k softmax_k(x . w_c^k / gamma) x . w_c^k

each as the mean over the anchors. Zhai, Wu: "Classification is a Strong Baseline for Deep Metric Learning", BMVC 2019.
Qian, Shang, Sun, Hu, Li, Jin: "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling", ICCV 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contml._support.validation import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    check_ranges,
)
from contml.distances.euclidean import Distance, no_autocast, normalize
from contml.losses.driver import Block, Comparison
from contml.losses.proxies import Ids, ProxyLoss, loss_dtype, new_proxies

#: Added before the square root in SoftTriple's regulariser, as in the authors' code: equal centers get a gradient.
EPSILON = 1e-5


class _SoftmaxLoss(ProxyLoss):
    """Base of the softmax losses: a subclass writes `logits`."""

    def logits(self, block: Block) -> Tensor:
        """The logits `[A, C]` of a block."""
        raise NotImplementedError

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Cross entropy of each anchor, and 1."""
        assert block.anchor_class is not None
        value = F.cross_entropy(self.logits(block), block.anchor_class, reduction="none")
        return value, torch.ones_like(value)


class CrossEntropyLoss(_SoftmaxLoss):
    """Cross entropy of a linear classifier on the embeddings: the baseline of metric learning.

    The rows of W in the classifier W x + b are the proxies; retrieval does not use it. Embeddings are not normalized.
    With unit vectors, logits are small until the weights have grown; normalized_softmax has a temperature instead.
    """

    distance: Distance = "dot"

    def __init__(self, *, num_classes: int, embedding_dim: int, class_ids: Ids = None) -> None:
        super().__init__(num_classes, class_ids)
        classifier = nn.Linear(embedding_dim, num_classes)
        self.proxies, self.bias = nn.Parameter(classifier.weight.detach()), classifier.bias

    def logits(self, block: Block) -> Tensor:
        """W x + b."""
        return block.scores + self.bias.to(block.scores.dtype)


class NormalizedSoftmaxLoss(_SoftmaxLoss):
    """Normalised softmax: cross entropy of the cosine similarities of an item and the proxies of all classes.

    Args:
        temperature: divides the similarities.
    """

    @check_ranges
    def __init__(
        self, temperature: PositiveFloat = 0.05, *, num_classes: int, embedding_dim: int, class_ids: Ids = None
    ) -> None:
        super().__init__(num_classes, class_ids, embedding_dim)
        self.temperature = temperature

    def logits(self, block: Block) -> Tensor:
        """Cosines over the temperature."""
        return block.scores / self.temperature


class SoftTripleLoss(_SoftmaxLoss):
    """SoftTriple: several centers per class; the similarity to a class is a softmax mean over its centers.

    Args:
        centers: centers of each class, K.
        la: scale of the similarities to classes.
        gamma: temperature of the softmax over the centers of a class.
        tau: weight of the regulariser, which merges the centers of a class.
        margin: subtracted from the similarity to the item's own class.
    """

    @check_ranges
    def __init__(
        self,
        centers: PositiveInt = 10,
        la: PositiveFloat = 20.0,
        gamma: PositiveFloat = 0.1,
        tau: NonNegativeFloat = 0.2,
        margin: NonNegativeFloat = 0.01,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Ids = None,
    ) -> None:
        super().__init__(num_classes, class_ids)
        self.la, self.gamma, self.tau, self.margin = la, gamma, tau, margin
        self.centers = new_proxies(num_classes, centers, embedding_dim)

    def vectors(self) -> Tensor:
        """The centers `[C, K, d]`."""
        return self.centers

    def logits(self, block: Block) -> Tensor:
        """Scaled similarities to the classes, with the margin at the item's own class."""
        num_classes, num_centers, _ = self.centers.shape
        s = block.scores.view(len(block.scores), num_classes, num_centers)  # [A,C,K]
        similarity = ((s / self.gamma).softmax(2) * s).sum(2)  # [A,C]
        own_class = (block.label_distances[:, ::num_centers] == 0).to(s.dtype)
        return self.la * (similarity - self.margin * own_class)

    def penalty(self, comparison: Comparison) -> Tensor | None:
        """The regulariser: tau sum_c sum_{s < t} sqrt(2 + 1e-5 - 2 w_c^s . w_c^t) / (C K (K - 1))."""
        num_classes, k, _ = self.centers.shape
        if self.tau == 0 or k == 1:
            return None
        y = comparison.y
        with no_autocast(y):  # in half precision 2 - 2 w . w may be below -1e-5
            unit_centers = normalize(self.centers.to(loss_dtype(y)))
            s, t = torch.triu_indices(k, k, 1, device=unit_centers.device)
            squared = 2 + EPSILON - 2 * (unit_centers @ unit_centers.mT)[:, s, t]  # [C, K (K-1) / 2]
            return self.tau * squared.sqrt().sum() / (num_classes * k * (k - 1))
