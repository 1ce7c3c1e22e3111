"""Softmax losses against proxies: an item is classified by its similarities to the proxies of all classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from contml.contracts import InputError, LabelKind, LabelView
from contml.distances.euclidean import normalize
from contml.losses.class_index import ClassIndex
from contml.losses.proxies import check_above_0, full_dtype, items_against, new_proxies
from contml.losses.rows import Block, RowLoss, Sides

#: Added under the root of SoftTriple's regulariser, as in the authors' code: two centers that meet have a gradient.
EPSILON = 1e-5


def normalized_softmax_rows(block: Block, temperature: float) -> tuple[Tensor, Tensor]:
    """Loss of each anchor `[A]`, and 1; block.s `[A, C]` are cosines of the anchors with all proxies.

        -log ( e^{x . p_y / t} / sum_c e^{x . p_c / t} )

    Zhai, Wu: "Classification is a Strong Baseline for Deep Metric Learning", BMVC 2019.
    """
    assert block.anchor_class is not None
    value = F.cross_entropy(block.s / temperature, block.anchor_class, reduction="none")
    return value, torch.ones_like(value)


def soft_triple_rows(block: Block, centers: int, la: float, gamma: float, margin: float) -> tuple[Tensor, Tensor]:
    """Loss of each anchor `[A]`, and 1; block.s `[A, C K]` are cosines of the anchors with K centers a class.

        S_c = sum_k softmax_k(x . w_c^k / gamma) x . w_c^k
        -log ( e^{la (S_y - margin)} / (e^{la (S_y - margin)} + sum_{c != y} e^{la S_c}) )

    Qian, Shang, Sun, Hu, Li, Jin: "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling", ICCV 2019.
    """
    assert block.anchor_class is not None
    s = block.s.view(len(block.s), block.s.shape[1] // centers, centers)  # [A,C,K]
    similarity = ((s / gamma).softmax(2) * s).sum(2)  # [A,C]
    own = (block.target[:, ::centers] == 0).to(s.dtype)
    value = F.cross_entropy(la * (similarity - margin * own), block.anchor_class, reduction="none")
    return value, torch.ones_like(value)


class NormalizedSoftmaxLoss(RowLoss):
    """Normalised softmax: cross entropy of an item's cosines with the proxies of all classes.

    Args:
        temperature: what cosines are divided by.
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"

    def __init__(
        self,
        temperature: float = 0.05,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        check_above_0(temperature=temperature)
        self.temperature = temperature
        self.index = ClassIndex(num_classes, class_ids)
        self.proxies = new_proxies(num_classes, embedding_dim)

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The loss of each anchor."""
        return normalized_softmax_rows(block, self.temperature)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """Items against proxies."""
        return items_against(self.proxies, self.index, embeddings, labels, anchors)


class SoftTripleLoss(RowLoss):
    """SoftTriple: several centers a class, of which an item softly takes its nearest; centers of a class may merge.

    Args:
        centers: centers of each class, K.
        la: scale of the similarities to classes.
        gamma: temperature of the softmax over the centers of a class.
        tau: weight of the regulariser, which merges the centers of a class.
        margin: by how much the similarity to the item's own class is lessened.
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"

    def __init__(
        self,
        centers: int = 10,
        la: float = 20.0,
        gamma: float = 0.1,
        tau: float = 0.2,
        margin: float = 0.01,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if centers < 1:
            raise InputError(f"centers is {centers}; a class needs at least 1")
        check_above_0(la=la, gamma=gamma)
        for name, value in (("tau", tau), ("margin", margin)):
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} is {value}; it must be at least 0")
        self.la, self.gamma, self.tau, self.margin = la, gamma, tau, margin
        self.index = ClassIndex(num_classes, class_ids)
        self.centers = new_proxies(num_classes, centers, embedding_dim)

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The loss of each anchor."""
        return soft_triple_rows(block, self.centers.shape[1], self.la, self.gamma, self.margin)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """Items against centers."""
        return items_against(self.centers, self.index, embeddings, labels, anchors)

    def penalty(self, sides: Sides) -> Tensor | None:
        """The regulariser: tau sum_c sum_{s < t} sqrt(2 + 1e-5 - 2 w_c^s . w_c^t) / (C K (K - 1))."""
        classes, k, _ = self.centers.shape
        if self.tau == 0 or k == 1:
            return None
        with torch.autocast(sides.y.device.type, enabled=False):  # in half precision 2 - 2 w . w may be below -1e-5
            unit = normalize(self.centers.to(full_dtype(sides.y)))
            s, t = torch.triu_indices(k, k, 1, device=unit.device)
            squared = 2 + EPSILON - 2 * (unit @ unit.mT)[:, s, t]  # [C, K (K-1) / 2]
            return self.tau * squared.sqrt().sum() / (classes * k * (k - 1))
