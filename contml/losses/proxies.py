"""Losses against proxies: learnable vectors that stand for the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contml.contracts import InputError, LabelKind, LabelView
from contml.distances import class_distance
from contml.losses.class_index import ClassIndex
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp
from contml.losses.rows import Block, RowLoss, Sides


@dataclass(frozen=True)
class ProxyNCA:
    """The options of Proxy-NCA, as `ProxyNCALoss` tells them."""

    scale: float = 1.0
    temperature: float = 1.0
    positive_in_denominator: bool = False
    label_smoothing: float = 0.0


def proxy_nca_rows(block: Block, options: ProxyNCA) -> tuple[Tensor, Tensor]:
    """Loss of each anchor `[A]`, and 1; block.s `[A, C]` are cosines of the anchors with all proxies.

        -log ( e^{-D(x, p+)} / sum_{p-} e^{-D(x, p-)} )

    Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: "No Fuss Distance Metric Learning using Proxies", ICCV 2017.
    p-: the proxies of all other classes, whether they have an item in the batch or not. Smoothed, -log e^{-D(x, p+)}
    is the mean of D(x, p) by weights 1 - smoothing at p+ and smoothing / (C - 1) at each other. With p+ in the
    denominator it is Proxy-NCA++ (Teh, DeVries, Taylor, ECCV 2020).
    """
    # D = |scale x - scale p|^2 / temperature = 2 scale^2 (1 - s) / temperature: what all proxies share cancels.
    s = block.s * (2 * options.scale**2 / options.temperature)  # [A,C]
    own = block.target == 0
    others = max(s.shape[1] - 1, 1)
    share = torch.full_like(s, options.label_smoothing / others).masked_fill_(own, 1 - options.label_smoothing)
    denominator, compared = log_sum_exp(s, torch.ones_like(own) if options.positive_in_denominator else ~own)
    value = (denominator - (share * s).sum(1)).where(compared, 0)
    return value, torch.ones_like(value)


def proxy_anchor_rows(block: Block, alpha: float, delta: float) -> tuple[Tensor, Tensor]:
    """Terms of each proxy `[P, 2]`: of its positives, of its negatives; and what counts in their means.

        1/|P+| sum_{P+} log(1 + sum_{X_p+} e^{-alpha (s - delta)})
      + 1/|P|  sum_P    log(1 + sum_{X_p-} e^{alpha (s + delta)})

    Kim, Kim, Cho, Kwak: "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020, Eq. 4. P+: the proxies with an item in
    the batch.
    """
    own = block.target == 0  # [P,B]
    pull = log_one_plus_sum_exp(-alpha * (block.s - delta), own)
    push = log_one_plus_sum_exp(alpha * (block.s + delta), ~own)
    present = own.any(1)
    return torch.stack((pull, push), 1), torch.stack((present, torch.ones_like(present)), 1).to(pull.dtype)


class ProxyNCALoss(RowLoss):
    """Proxy-NCA: each item is nearer to the proxy of its class than to all other proxies, on the unit sphere.

    Proxy-NCA++ is `temperature: 0.1111, positive_in_denominator: true`; the same as scale 3 in place of the
    temperature.

    Args:
        scale: the norm that embeddings and proxies are given; squared distances grow with its square.
        temperature: what squared distances are divided by.
        positive_in_denominator: sum over the proxies of all classes, the item's own among them, as in Proxy-NCA++.
        label_smoothing: how much of an item is shared out evenly among all other classes; 0.1 in published code.
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"

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
        super().__init__()
        check_above_0(scale=scale, temperature=temperature)
        if not 0 <= label_smoothing < 1:
            raise InputError(f"label_smoothing is {label_smoothing}; it must be at least 0 and below 1")
        self.options = ProxyNCA(scale, temperature, positive_in_denominator, label_smoothing)
        self.index = ClassIndex(num_classes, class_ids)
        self.proxies = new_proxies(num_classes, embedding_dim)

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The loss of each anchor."""
        return proxy_nca_rows(block, self.options)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """Items against proxies."""
        return items_against(self.proxies, self.index, embeddings, labels, anchors)


class ProxyAnchorLoss(RowLoss):
    """Proxy Anchor: each class's proxy is an anchor, pulled and pushed by all items of the batch.

    The anchors are the proxies: the argument `anchors` of a call says nothing here.

    Args:
        alpha: scale of the similarities.
        delta: margin.
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"

    def __init__(
        self,
        alpha: float = 32.0,
        delta: float = 0.1,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.index = ClassIndex(num_classes, class_ids)
        self.alpha, self.delta = alpha, delta
        self.proxies = new_proxies(num_classes, embedding_dim)

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The terms of each proxy."""
        return proxy_anchor_rows(block, self.alpha, self.delta)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:  # noqa: ARG002
        """Proxies against the batch."""
        assert labels.classes is not None
        classes = self.index(labels.classes.to(embeddings.device))
        proxy_class = torch.arange(len(self.proxies), device=embeddings.device)

        def target(part: slice) -> Tensor:
            return class_distance(proxy_class[part], classes)

        proxies = self.proxies.to(full_dtype(embeddings))
        return Sides(proxies, embeddings, target, None, proxy_class, classes)


def items_against(
    proxies: Tensor, index: ClassIndex, embeddings: Tensor, labels: LabelView, anchors: Tensor | None
) -> Sides:
    """The anchors of a batch against the proxies `[C, d]` of all classes, or `[C, K, d]`: K a class, in order."""
    assert labels.classes is not None
    classes = labels.classes.to(embeddings.device)
    anchor_class = index(classes if anchors is None else classes[anchors])
    proxy_class = torch.arange(len(proxies), device=embeddings.device)
    if proxies.ndim == 3:
        proxy_class = proxy_class.repeat_interleave(proxies.shape[1])

    def target(part: slice) -> Tensor:
        return class_distance(anchor_class[part], proxy_class)

    x = embeddings if anchors is None else embeddings[anchors]
    y = proxies.flatten(0, -2).to(full_dtype(embeddings))
    return Sides(x, y, target, None, anchor_class, proxy_class)


def new_proxies(*shape: int) -> nn.Parameter:
    """Proxies `[C, d]` or `[C, K, d]` to begin with: normal, of variance 2 / (their number), as in Proxy Anchor."""
    proxies = nn.Parameter(torch.empty(shape))
    nn.init.kaiming_normal_(proxies.data.flatten(0, -2), mode="fan_out")
    return proxies


def full_dtype(embeddings: Tensor) -> torch.dtype:
    """The dtype that losses compute in: float64 for float64 embeddings, else float32."""
    return torch.float64 if embeddings.dtype == torch.float64 else torch.float32


def check_above_0(**options: float) -> None:
    """Refuse an option that is not above 0, or no number."""
    for name, value in options.items():
        if not 0 < value < float("inf"):
            raise InputError(f"{name} is {value}; it must be above 0")
