"""Losses against proxies: learnable vectors that represent the classes.

    Proxy-NCA      - log ( e^{-D(x, p+)} / sum_{p-} e^{-D(x, p-)} ),   the mean over the anchors
    Proxy Anchor   1/|P+| sum_{P+} log(1 + sum_{X_p+} e^{-alpha (s - delta)})
                 + 1/|P|  sum_P    log(1 + sum_{X_p-} e^{alpha (s + delta)})

Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: "No Fuss Distance Metric Learning using Proxies", ICCV 2017; p-: the
proxies of all other classes, with or without an item in the batch. Kim, Kim, Cho, Kwak: "Proxy Anchor Loss for
Deep Metric Learning", CVPR 2020, Eq. 4; P+: the proxies with an item in the batch.

Softmax losses against proxies: an item is classified by its similarities to the proxies of all classes.

    cross entropy        - log ( e^{w_y . x + b_y} / sum_c e^{w_c . x + b_c} )
    normalised softmax   - log ( e^{x . p_y / t} / sum_c e^{x . p_c / t} )
    SoftTriple           - log ( e^{la (S_y - margin)} / (e^{la (S_y - margin)} + sum_{c != y} e^{la S_c}) )
                         S_c = sum_k softmax_k(x . w_c^k / gamma) x . w_c^k

each as the mean over the anchors. Zhai, Wu: "Classification is a Strong Baseline for Deep Metric Learning", BMVC 2019.
Qian, Shang, Sun, Hu, Li, Jin: "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling", ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.validation import FiniteFloat, NonNegativeFloat, PositiveFloat, PositiveInt, Range, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance, no_autocast, normalize
from contml.distances.labels import class_distance
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.losses.driver import Block, Comparison, PairLoss
from contml.losses.inputs import check_dim
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp

#: The ids of the classes `[num_classes]`; None: 0 to num_classes - 1.
Ids: TypeAlias = Tensor | Sequence[int] | None


class ProxyLoss(PairLoss):
    """Base of the losses against proxies: it compares the anchors of a batch with the proxies of all classes.

    Args:
        num_classes: the number of classes.
        class_ids: the ids of the classes `[num_classes]`; None: 0 to num_classes - 1.
        embedding_dim: dimension of the proxies, one per class; None: the subclass makes its own proxies.
    """

    requires: Requirement = "classes"
    takes_memory = False
    proxies: nn.Parameter

    def __init__(self, num_classes: int, class_ids: Ids, embedding_dim: int | None = None) -> None:
        super().__init__()
        self.index = ClassIndex(num_classes, class_ids)
        if embedding_dim is not None:
            self.proxies = new_proxies(num_classes, embedding_dim)

    def extra_repr(self) -> str:
        """Return the size of the proxies and the options, for `repr`."""
        size = f"{len(self.index)} classes, {self.vectors().shape[-1]} dimensions"
        return ", ".join(filter(None, (size, super().extra_repr())))

    def vectors(self) -> Tensor:
        """Return the proxies `[C, d]`, or `[C, K, d]` where a class has K."""
        return self.proxies

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare the anchors of a batch with the proxies of all classes."""
        x, classes, y, proxy_class = self.items_and_proxies(embeddings, labels)
        if anchors is not None:
            x, classes = x[anchors], classes[anchors]
        return Comparison(x, y, lambda part: class_distance(classes[part], proxy_class), None, classes, proxy_class)

    def items_and_proxies(self, embeddings: Tensor, labels: LabelSpace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return embeddings `[B, d]`, their classes `[B]`, proxies `[P, d]` and the classes of the proxies `[P]`.

        Classes are row numbers of the proxies.
        """
        assert labels.class_ids is not None
        vectors = self.vectors()
        check_dim(embeddings, vectors.shape[-1], f"the proxies of {type(self).__name__}")
        self.index.recognize(labels)
        classes = self.index(labels.class_ids.to(embeddings.device))
        proxy_class = torch.arange(len(vectors), device=embeddings.device)
        if vectors.ndim == 3:
            proxy_class = proxy_class.repeat_interleave(vectors.shape[1])
        return embeddings, classes, vectors.flatten(0, -2).to(loss_dtype(embeddings)), proxy_class


class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA: pulls each item to the proxy of its class and pushes it from all other proxies, on the unit sphere.

    With label smoothing, -log e^{-D(x, p+)} becomes the weighted mean of D(x, p), with weights 1 - smoothing for p+ and
    smoothing / (C - 1) for each other proxy. Proxy-NCA++ (Teh, DeVries, Taylor, ECCV 2020) is
    `temperature: 0.1111, positive_in_denominator: true`; norm 3 instead of the temperature gives the same.

    Args:
        norm: the norm of embeddings and proxies after normalization; squared distances grow with its square.
        temperature: divides the squared distances.
        positive_in_denominator: sum over the proxies of all classes, including the class of the item, as in
            Proxy-NCA++.
        label_smoothing: the part of an item's label that is spread evenly over all other classes; 0.1 in published
            code.
    """

    @check_ranges
    def __init__(
        self,
        norm: PositiveFloat = 1.0,
        temperature: PositiveFloat = 1.0,
        positive_in_denominator: bool = False,
        label_smoothing: Annotated[float, Range(0, below=1)] = 0.0,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Ids = None,
    ) -> None:
        super().__init__(num_classes, class_ids, embedding_dim)
        self.norm, self.temperature = norm, temperature
        self.positive_in_denominator, self.label_smoothing = positive_in_denominator, label_smoothing

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the loss of each anchor `[A]`, and counts of 1."""
        # D = |norm x - norm p|^2 / temperature = 2 norm^2 (1 - s) / temperature: terms common to all proxies cancel.
        s = block.scores * (2 * self.norm**2 / self.temperature)  # [A,C]
        positive = block.label_distances == 0
        num_others = max(s.shape[1] - 1, 1)
        target = torch.full_like(s, self.label_smoothing / num_others).masked_fill_(positive, 1 - self.label_smoothing)
        own = (target * s).sum(1)
        if self.positive_in_denominator:
            value = s.logsumexp(1) - own
        else:
            denominator, has_terms = log_sum_exp(s, ~positive)
            value = (denominator - own).where(has_terms, 0)
        return value, torch.ones_like(value)


class ProxyAnchorLoss(ProxyLoss):
    """Proxy Anchor: the proxy of each class is an anchor that is compared with all items of the batch.

    Since the anchors are the proxies, the argument `anchors` of a call is ignored.

    Args:
        alpha: scale of the similarities.
        delta: margin.
    """

    @check_ranges
    def __init__(
        self,
        alpha: PositiveFloat = 32.0,
        delta: FiniteFloat = 0.1,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Ids = None,
    ) -> None:
        super().__init__(num_classes, class_ids, embedding_dim)
        self.alpha, self.delta = alpha, delta

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the positive and the negative term of each proxy `[P, 2]`, and 1 where it counts in the mean."""
        positive = block.label_distances == 0  # [P,B]
        pull = log_one_plus_sum_exp(-self.alpha * (block.scores - self.delta), positive)
        push = log_one_plus_sum_exp(self.alpha * (block.scores + self.delta), ~positive)
        valid = positive.any(1)
        return torch.stack((pull, push), 1), torch.stack((valid, torch.ones_like(valid)), 1).to(pull.dtype)

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:  # noqa: ARG002
        """Compare the proxies with the batch."""
        y, classes, x, proxy_class = self.items_and_proxies(embeddings, labels)
        return Comparison(x, y, lambda part: class_distance(proxy_class[part], classes), None, proxy_class, classes)


def new_proxies(*shape: int) -> nn.Parameter:
    """Return initial proxies `[C, d]` or `[C, K, d]`, drawn as in Proxy Anchor.

    They are normal with variance 2 / (their number).
    """
    proxies = nn.Parameter(torch.empty(shape))
    nn.init.kaiming_normal_(proxies.data.flatten(0, -2), mode="fan_out")
    return proxies


def loss_dtype(embeddings: Tensor) -> torch.dtype:
    """Return the dtype in which a loss computes: float64 for float64 embeddings, else float32."""
    return torch.float64 if embeddings.dtype == torch.float64 else torch.float32


class ClassIndex(nn.Module):
    """A map from class ids `[B]` to the rows `[B]` that a loss keeps for them.

    Args:
        num_classes: the number of classes.
        class_ids: the ids of the classes `[num_classes]`, distinct, in any order: row r is for class_ids[r]; None: 0
            to num_classes - 1.

    Raises:
        InputError: the ids are not num_classes distinct whole numbers; in a call, an id is not among them.
    """

    ids: Tensor
    rows: Tensor
    names_hash: Tensor

    def __init__(self, num_classes: int, class_ids: Tensor | Sequence[int] | None = None) -> None:
        super().__init__()
        Range(1, whole=True).check("num_classes", num_classes)
        ids = torch.arange(num_classes) if class_ids is None else torch.as_tensor(class_ids)
        num_distinct = len(set(ids.flatten().tolist()))  # torch.unique does not support uint16, uint32 and uint64
        if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 1 or num_distinct != num_classes:
            got = f"{ids.dtype} {list(ids.shape)} with {num_distinct} different values"
            raise InputError("class_ids", got, f"must be {num_classes} distinct whole numbers, one per class")
        sorted_ids, rows = ids.long().sort()
        self.is_consecutive = torch.equal(ids.long(), torch.arange(num_classes))
        self.register_buffer("ids", sorted_ids, persistent=not self.is_consecutive)
        self.register_buffer("rows", rows, persistent=not self.is_consecutive)
        self.register_buffer("names_hash", torch.zeros((), dtype=torch.int64))  # 0: no names were seen
        self._names: list[Any] = []

    def __len__(self) -> int:
        return len(self.ids)

    def recognize(self, labels: LabelSpace) -> None:
        """Remember the names of classes at the first call, and refuse other names later: their ids mean other classes.

        Raises:
            InputError: the labels are classes of other names.
        """
        names = labels.names if isinstance(labels, ClassLabels) else []
        if not names or names is self._names:
            return
        names_hash = int(fingerprint(names)[:15], 16)
        if int(self.names_hash) not in (0, names_hash):
            allowed = "must have the classes of the earlier batches, whose ids the loss has learned"
            hint = "give labels[rows] of one ClassLabels of all items, or integers"
            raise InputError("labels", f"rows of {labels.root!r}", allowed, hint)
        self.names_hash.fill_(names_hash)
        self._names = names

    def forward(self, classes: Tensor) -> Tensor:
        """Return the rows `[B]` of class ids `[B]`."""
        if self.is_consecutive and classes.device.type == "cpu" and len(classes):
            least, largest = torch.aminmax(classes)
            if int(least) >= 0 and int(largest) < len(self):
                return classes.long()
        ids, rows = self.ids.to(classes.device), self.rows.to(classes.device)
        position = torch.searchsorted(ids, classes.long()).clamp(max=len(ids) - 1)
        unknown = ids[position] != classes
        if bool(unknown.any()):
            allowed = f"must be one of the loss's {len(ids)} classes, {int(ids[0])} to {int(ids[-1])}"
            hint = "give the loss class_ids, the ids of all classes"
            raise InputError("class id", str(int(classes[unknown][0])), allowed, hint)
        return rows[position]


#: Added before the square root in SoftTriple's regulariser, as in the authors' code: equal centers get a gradient.
EPSILON = 1e-5


class _SoftmaxLoss(ProxyLoss):
    """Base of the softmax losses: a subclass implements `logits`."""

    def logits(self, block: Block) -> Tensor:
        """Return the logits `[A, C]` of a block."""
        raise NotImplementedError

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of each anchor `[A]`, and counts of 1."""
        assert block.anchor_class is not None
        value = F.cross_entropy(self.logits(block), block.anchor_class, reduction="none")
        return value, torch.ones_like(value)


class CrossEntropyLoss(_SoftmaxLoss):
    """Cross entropy of a linear classifier on the embeddings: the baseline of metric learning.

    The rows of W in the classifier W x + b are the proxies. Retrieval does not use the classifier. Embeddings are not
    normalized. With unit vectors, logits are small until the weights have grown. `normalized_softmax` avoids this by a
    temperature.
    """

    distance: Distance = "dot"

    def __init__(self, *, num_classes: int, embedding_dim: int, class_ids: Ids = None) -> None:
        super().__init__(num_classes, class_ids)
        classifier = nn.Linear(embedding_dim, num_classes)
        self.proxies, self.bias = nn.Parameter(classifier.weight.detach()), classifier.bias

    def logits(self, block: Block) -> Tensor:
        """Return W x + b, `[A, C]`."""
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
        """Return the cosines divided by the temperature, `[A, C]`."""
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
        """Return the centers `[C, K, d]`."""
        return self.centers

    def logits(self, block: Block) -> Tensor:
        """Return scaled similarities to the classes `[A, C]`, with the margin at the item's own class."""
        num_classes, num_centers, _ = self.centers.shape
        s = block.scores.view(len(block.scores), num_classes, num_centers)  # [A,C,K]
        similarity = ((s / self.gamma).softmax(2) * s).sum(2)  # [A,C]
        own_class = (block.label_distances[:, ::num_centers] == 0).to(s.dtype)
        return self.la * (similarity - self.margin * own_class)

    def penalty(self, comparison: Comparison) -> Tensor | None:
        """Compute the regulariser: tau sum_c sum_{s < t} sqrt(2 + 1e-5 - 2 w_c^s . w_c^t) / (C K (K - 1))."""
        num_classes, k, _ = self.centers.shape
        if self.tau == 0 or k == 1:
            return None
        y = comparison.y
        with no_autocast(y):  # in half precision 2 - 2 w . w may be below -1e-5
            unit_centers = normalize(self.centers.to(loss_dtype(y)))
            s, t = torch.triu_indices(k, k, 1, device=unit_centers.device)
            squared = 2 + EPSILON - 2 * (unit_centers @ unit_centers.mT)[:, s, t]  # [C, K (K-1) / 2]
            return self.tau * squared.sqrt().sum() / (num_classes * k * (k - 1))
