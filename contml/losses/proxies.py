"""Losses against proxies: learnable vectors that stand for the classes.

    Proxy-NCA      - log ( e^{-D(x, p+)} / sum_{p-} e^{-D(x, p-)} ),   the mean over the anchors
    Proxy Anchor   1/|P+| sum_{P+} log(1 + sum_{X_p+} e^{-alpha (s - delta)})
                 + 1/|P|  sum_P    log(1 + sum_{X_p-} e^{alpha (s + delta)})

Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: "No Fuss Distance Metric Learning using Proxies", ICCV 2017; p-: the
proxies of all other classes, whether they have an item in the batch or not. Kim, Kim, Cho, Kwak: "Proxy Anchor Loss for
Deep Metric Learning", CVPR 2020, Eq. 4; P+: the proxies with an item in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import check_positive
from contml.contracts import Requirement
from contml.distances.labels import class_distance
from contml.labels.base import LabelSpace
from contml.losses.class_index import ClassIndex
from contml.losses.driver import Block, Comparison, PairLoss
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp


class ProxyLoss(PairLoss):
    """Base of the losses against proxies: it compares the anchors of a batch with the proxies of all classes.

    A subclass sets `proxies` in its constructor.

    Args:
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    requires: Requirement = "classes"
    takes_memory: ClassVar[bool] = False
    proxies: nn.Parameter

    def __init__(self, num_classes: int, class_ids: Tensor | Sequence[int] | None) -> None:
        super().__init__()
        self.index = ClassIndex(num_classes, class_ids)

    def extra_repr(self) -> str:
        """The options and what there are proxies for, for `repr`."""
        held = f"{len(self.index)} classes, {self.vectors().shape[-1]} dimensions"
        return ", ".join(filter(None, (held, super().extra_repr())))

    def vectors(self) -> Tensor:
        """The proxies `[C, d]`, or `[C, K, d]` where a class has K."""
        return self.proxies

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """The anchors of a batch with the proxies of all classes."""
        classes = self.class_rows(labels, embeddings)
        x, anchor_class = (embeddings, classes) if anchors is None else (embeddings[anchors], classes[anchors])
        vectors = self.vectors()
        proxy_class = torch.arange(len(vectors), device=embeddings.device)
        if vectors.ndim == 3:
            proxy_class = proxy_class.repeat_interleave(vectors.shape[1])
        y = vectors.flatten(0, -2).to(loss_dtype(embeddings))
        return Comparison(
            x, y, lambda part: class_distance(anchor_class[part], proxy_class), None, anchor_class, proxy_class
        )

    def class_rows(self, labels: LabelSpace, embeddings: Tensor) -> Tensor:
        """The row of proxies that belongs to each item of a batch `[B]`."""
        assert labels.class_ids is not None
        rows: Tensor = self.index(labels.class_ids.to(embeddings.device))
        return rows


class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA: each item is nearer to the proxy of its class than to all other proxies, on the unit sphere.

    Smoothed, -log e^{-D(x, p+)} is the mean of D(x, p) by weights 1 - smoothing at p+ and smoothing / (C - 1) at each
    other. Proxy-NCA++ (Teh, DeVries, Taylor, ECCV 2020) is `temperature: 0.1111, positive_in_denominator: true`; the
    same as scale 3 in place of the temperature.

    Args:
        scale: the norm that embeddings and proxies are given; squared distances grow with its square.
        temperature: what squared distances are divided by.
        positive_in_denominator: sum over the proxies of all classes, the item's own among them, as in Proxy-NCA++.
        label_smoothing: how much of an item is shared out evenly among all other classes; 0.1 in published code.
    """

    def __init__(
        self,
        scale: float = 1.0,
        temperature: float = 1.0,
        positive_in_denominator: bool = False,
        label_smoothing: float = 0.0,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__(num_classes, class_ids)
        self.proxies = new_proxies(num_classes, embedding_dim)
        check_positive(scale=scale, temperature=temperature)
        if not 0 <= label_smoothing < 1:
            raise InputError(f"label_smoothing is {label_smoothing}; it must be at least 0 and below 1")
        self.scale, self.temperature = scale, temperature
        self.positive_in_denominator, self.label_smoothing = positive_in_denominator, label_smoothing

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Loss of each anchor, and 1."""
        # D = |scale x - scale p|^2 / temperature = 2 scale^2 (1 - s) / temperature: what all proxies share cancels.
        s = block.scores * (2 * self.scale**2 / self.temperature)  # [A,C]
        own = block.label_distances == 0
        others = max(s.shape[1] - 1, 1)
        share = torch.full_like(s, self.label_smoothing / others).masked_fill_(own, 1 - self.label_smoothing)
        denominator, compared = log_sum_exp(s, torch.ones_like(own) if self.positive_in_denominator else ~own)
        value = (denominator - (share * s).sum(1)).where(compared, 0)
        return value, torch.ones_like(value)


class ProxyAnchorLoss(ProxyLoss):
    """Proxy Anchor: each class's proxy is an anchor, pulled and pushed by all items of the batch.

    The anchors are the proxies: the argument `anchors` of a call says nothing here.

    Args:
        alpha: scale of the similarities.
        delta: margin.
    """

    def __init__(
        self,
        alpha: float = 32.0,
        delta: float = 0.1,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__(num_classes, class_ids)
        self.proxies = new_proxies(num_classes, embedding_dim)
        self.alpha, self.delta = alpha, delta

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Terms of each proxy `[P, 2]`: of its positives, of its negatives; and what counts in their means."""
        own = block.label_distances == 0  # [P,B]
        pull = log_one_plus_sum_exp(-self.alpha * (block.scores - self.delta), own)
        push = log_one_plus_sum_exp(self.alpha * (block.scores + self.delta), ~own)
        present = own.any(1)
        return torch.stack((pull, push), 1), torch.stack((present, torch.ones_like(present)), 1).to(pull.dtype)

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:  # noqa: ARG002
        """The proxies with the batch."""
        classes = self.class_rows(labels, embeddings)
        proxy_class = torch.arange(len(self.proxies), device=embeddings.device)
        x = self.proxies.to(loss_dtype(embeddings))
        return Comparison(
            x, embeddings, lambda part: class_distance(proxy_class[part], classes), None, proxy_class, classes
        )


def new_proxies(*shape: int) -> nn.Parameter:
    """Proxies `[C, d]` or `[C, K, d]` to begin with: normal, of variance 2 / (their number), as in Proxy Anchor."""
    proxies = nn.Parameter(torch.empty(shape))
    nn.init.kaiming_normal_(proxies.data.flatten(0, -2), mode="fan_out")
    return proxies


def loss_dtype(embeddings: Tensor) -> torch.dtype:
    """The dtype that losses compute in: float64 for float64 embeddings, else float32."""
    return torch.float64 if embeddings.dtype == torch.float64 else torch.float32
