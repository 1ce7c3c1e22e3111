"""Hardness-aware deep metric learning: negatives pulled towards their anchor, as hard as the metric can bear.

    z^ = z + [d+ + (d(z, z-) - d+) e^{-alpha / J_avg}] (z- - z) / d(z, z-)   if d+ < d(z, z-),   else z-
    J_gen = sum ||y - y'||^2 + lambda sum CE(W y~ + b, label)
    J_metric = e^{-beta / J_gen} J_m + (1 - e^{-beta / J_gen}) J_syn

Zheng, Chen, Lu, Zhou: "Hardness-Aware Deep Metric Learning", CVPR 2019. z, z+, z-: embeddings of anchor, positive and
negative, d+ = d(z, z+) in plain Euclidean distance; a generator maps z and z^ back to features y', y~, the model's head
maps y~ to embeddings again, and J_syn is the metric loss J_m on those. The exponents' J_avg and J_gen are means over
the last epoch. Both terms of J_gen are sums over what they compare; the authors' code takes half the first, and 5,000
times the mean of the second.

One backward pass trains four things, each by its own term: backbone and head by J_metric, the generator by J_gen, the
softmax layer by its cross entropy on real features. What a term must not reach is detached from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from contml._support.errors import InputError
from contml._support.validation import check_at_least, check_positive
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision, normalize
from contml.labels.base import LabelSpace
from contml.losses.class_index import ClassIndex
from contml.losses.driver import Block, PairLoss
from contml.losses.inputs import check_requirement
from contml.losses.n_pairs import NPairsLoss, class_pairs
from contml.losses.triplet import TripletMarginLoss
from contml.training.gather import gather_rows
from contml.training.step import TrainingStep


class HDML(TrainingStep):
    """Hardness-aware deep metric learning: trains on generated negatives, harder as the metric gets better.

    The loss is `triplet_margin` or `n_pairs`; the paper's triplet loss has margin 1, distance squared_euclidean,
    reduction sum. It is taken over one triplet for each two items of a class, or over the N-pairs, of the batch.
    Generator and softmax layer are trained by the optimiser of all else, at rates of their own, without weight decay;
    the paper's is Adam, and its rates are Adam's. They follow the schedule. Nothing is synthetic in the first epoch.

    Args:
        alpha: a negative is pulled by 1 - e^(-alpha / J) of the way to the positive's distance, J the mean metric loss
            of the last epoch; default 7 for triplet_margin, 90 for n_pairs.
        beta: synthetic tuples have the share 1 - e^(-beta / J_gen) of the loss, J_gen the generator's mean loss in the
            last epoch.
        softmax_weight: lambda, what the classes of generated features weigh in the generator's loss, beside
            reconstruction.
        hidden: width of the generator between its two layers.
        generator_lr: learning rate of the generator.
        softmax_lr: learning rate of the softmax layer.
    """

    means: Tensor
    sums: Tensor
    count: Tensor

    def __init__(
        self,
        alpha: float | None = None,
        beta: float = 1e4,
        softmax_weight: float = 0.5,
        hidden: int = 512,
        generator_lr: float = 1e-2,
        softmax_lr: float = 1e-3,
        *,
        loss: PairLoss,
        num_classes: int,
        class_ids: Tensor | Sequence[int] | None = None,
        embedding_dim: int,
        feature_dim: int,
        steps_per_epoch: int,
    ) -> None:
        check_metric_loss(loss)
        super().__init__(loss=loss)
        if alpha is None:
            alpha = 90.0 if isinstance(loss, NPairsLoss) else 7.0
        check_positive(alpha=alpha, beta=beta)
        check_at_least(0, softmax_weight=softmax_weight, generator_lr=generator_lr, softmax_lr=softmax_lr)
        check_at_least(1, hidden=hidden)
        self.alpha, self.beta, self.softmax_weight = alpha, beta, softmax_weight
        self.rates = {"generator": generator_lr, "softmax": softmax_lr}
        self.steps_per_epoch = steps_per_epoch
        self.index = ClassIndex(num_classes, class_ids)
        self.generator = Generator(embedding_dim, hidden, feature_dim)
        self.softmax = nn.Linear(feature_dim, num_classes)
        # J_avg, J_gen: the means of the last epoch, and the sums of the present one.
        self.register_buffer("means", torch.full((2,), torch.inf))
        self.register_buffer("sums", torch.zeros(2))
        self.register_buffer("count", torch.zeros(()))
        self._last: dict[str, Tensor] = {}

    @property
    def requires(self) -> Requirement:
        """Classes: the softmax layer learns them."""
        return "classes"

    def check(self, model: nn.Module, labels: LabelSpace) -> None:
        """Refuse labels that are not classes, and a model that does not give its features.

        Raises:
            InputError: it has no `embed(features)`, or its call no `with_features`.
        """
        check_requirement("HDML", self.requires, labels.kind)
        if not hasattr(model, "embed") or "with_features" not in inspect.signature(model.forward).parameters:
            raise InputError(
                f"HDML needs features and head apart, and a {type(model).__name__} has not embed(features) and "
                "forward(images, with_features=True), as contml.models.EmbeddingModel has; take that, or add them"
            )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Generator and softmax layer, each at its own rate."""
        networks = {"generator": self.generator, "softmax": self.softmax}
        return [
            *super().parameter_groups(),
            *(
                {"params": list(network.parameters()), "name": name, "lr": self.rates[name], "weight_decay": 0.0}
                for name, network in networks.items()
            ),
        ]

    def logs(self) -> dict[str, float]:
        """The terms of the last step: J_m, J_syn, J_gen, and the share of synthetic tuples in the loss."""
        return {name: value.item() for name, value in self._last.items()}

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """The value of J_metric, with the gradients of J_metric, J_gen and the softmax layer's cross entropy."""
        embeddings, features = model(images, with_features=True)
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        # Every process has all rows and computes the whole: one gradient of generator and softmax layer for all.
        z, y = gather_rows(embeddings), gather_rows(features.detach())
        width = self.softmax.in_features
        if z.shape[1] != self.generator[0].in_features or y.shape[1] != width:
            raise InputError(
                f"HDML was made for embeddings of {self.generator[0].in_features} and features of {width} numbers; "
                f"the model has {z.shape[1]} and {y.shape[1]}"
            )
        check_requirement("HDML", self.requires, labels.kind)
        assert labels.class_ids is not None
        classes = labels.class_ids.to(z.device)
        found = tuples_of(self.loss, classes, anchors)
        a, items = found.anchors, found.items

        real = tuple_loss(self.loss, z[a], z[items], found.target)  # J_m
        pulled = pull(z[a][:, None], z[found.positives][:, None], z[items], self.alpha, self.means[0])  # [T,K,d]
        pulled = torch.where(found.target[..., None] == 0, z[items], pulled)
        rows = torch.cat((z, z[a], pulled.flatten(0, 1)))  # z, then z^
        synthetic = self._synthetic(rows, len(z), found.target, bare)
        ids = self.index(classes)
        generator, softmax = self._generator_losses(rows, y, ids, torch.cat((ids[a], ids[items].flatten())))

        share = torch.exp(-self.beta / self.means[1])
        metric = share * real + (1 - share) * synthetic
        self._remember(real, synthetic, generator, 1 - share)
        others = generator + softmax
        return metric + (others - others.detach())

    def _synthetic(self, rows: Tensor, real: int, target: Tensor, model: Any) -> Tensor:
        """J_syn: the metric loss of generated features, through a generator whose weights do not feel it."""
        weights = {name: weight.detach() for name, weight in self.generator.named_parameters()}
        generated = functional_call(self.generator, weights, (rows,))[real:]
        embeddings = model.embed(generated)
        anchors, items = embeddings[: len(target)], embeddings[len(target) :]
        return tuple_loss(self.loss, anchors, items.view(*target.shape, embeddings.shape[1]), target)

    def _generator_losses(self, rows: Tensor, y: Tensor, real: Tensor, synthetic: Tensor) -> tuple[Tensor, Tensor]:
        """J_gen, which only the generator feels, and the softmax layer's loss, which only that layer feels."""
        generated = self.generator(rows.detach())
        weight, bias = self.softmax.weight, self.softmax.bias
        logits = F.linear(generated[len(y) :], weight.detach(), bias.detach())
        kept = F.cross_entropy(logits, synthetic, reduction="sum")
        loss = (generated[: len(y)] - y).square().sum() + self.softmax_weight * kept
        return loss, F.cross_entropy(self.softmax(y), real)

    @torch.no_grad()
    def _remember(self, real: Tensor, synthetic: Tensor, generator: Tensor, share: Tensor) -> None:
        """Count this step in; a whole epoch gives new means."""
        self._last = {
            "metric_loss": real.detach(),
            "synthetic_loss": synthetic.detach(),
            "generator_loss": generator.detach(),
            "synthetic_share": share.detach(),
        }
        self.sums += torch.stack((real, generator))
        self.count += 1
        full = self.count >= self.steps_per_epoch
        self.means.copy_(torch.where(full, self.sums / self.count, self.means))
        self.sums.masked_fill_(full, 0)
        self.count.masked_fill_(full, 0)


class Tuples(NamedTuple):
    """Which items of a batch are compared: positions of T anchors, and of K items for each.

    anchors `[T]`; positives `[T]`; items `[T, K]`: the positive and its negatives; target `[T, K]`: 0 for the positive,
    1 for a negative.
    """

    anchors: Tensor
    positives: Tensor
    items: Tensor
    target: Tensor


def pull(anchor: Tensor, positive: Tensor, negative: Tensor, alpha: float, average: Tensor) -> Tensor:
    """z^ `[..., d]`: negatives moved towards their anchors, the nearer the lower the average loss.

    anchor, positive, negative `[..., d]`; average: the mean of the metric loss, a scalar from 0 (z^ is as near as the
    positive) to infinity (z^ is the negative).
    """
    near, far = _distance(anchor, positive), _distance(anchor, negative)  # [...,1]
    length = near + (far - near) * torch.exp(-alpha / average.to(far.dtype))
    pulled = anchor + length / torch.where(far > 0, far, 1) * (negative - anchor)
    return torch.where(near < far, pulled, negative)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    squared = (x - y).square().sum(-1, keepdim=True)
    # The root of 0 has an infinite slope.
    return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)


def triplets(classes: Tensor) -> Tuples:
    """A batch of classes `[B]` as triplets in which few items come twice: K = 2, the positive and one negative.

    The items of each class make pairs, anchor and positive, two by two in the order of the batch. A pair's negative is
    an item of another class that is in no pair, by turns; without such an item, the next pair's positive. The paper's
    batch of 120, 40 anchors, their 40 positives and 40 negatives of other classes, gives the paper's 40 triplets, and
    so does one of 40 classes of 3. A pair without an item of another class makes no triplet.
    """
    anchors, positives = _two_by_two(classes)
    pairs, items = len(anchors), len(classes)
    place = torch.arange(items, device=classes.device)
    free = torch.ones_like(classes, dtype=torch.bool)
    free[anchors] = free[positives] = False
    turn = torch.full_like(place, -1)  # [B] -1: an anchor, which is nobody's negative
    turn[positives], turn[free] = place[:pairs], place[: items - 2 * pairs]
    turns = torch.where(free, items - 2 * pairs, pairs)
    wait = (turn - place[:pairs, None]) % turns + items * ~free  # [T,B]
    wait = wait.masked_fill((turn < 0) | (classes == classes[anchors][:, None]), 3 * items)
    least, negatives = wait.min(1)
    found = least < 3 * items
    anchors, positives = anchors[found], positives[found]
    target = torch.tensor([0.0, 1.0], device=classes.device).expand(len(anchors), 2)
    return Tuples(anchors, positives, torch.stack((positives, negatives[found]), 1), target)


def n_pairs(classes: Tensor) -> Tuples:
    """A batch of classes `[B]` as the N-pair loss has it: K = T, the positives of all pairs.

    The first two items of each class are a pair; classes of one are left out.
    """
    partners = class_pairs(classes)
    anchors = (partners > torch.arange(len(classes), device=classes.device)).nonzero()[:, 0]
    positives, pairs = partners[anchors], len(anchors)
    return Tuples(anchors, positives, positives.expand(pairs, pairs), 1 - torch.eye(pairs, device=classes.device))


def tuple_loss(loss: PairLoss, anchors: Tensor, items: Tensor, target: Tensor) -> Tensor:
    """A pair loss of anchors `[T, d]`, each against K items of its own `[T, K, d]`; target `[T, K]`: 0 or 1."""
    if len(anchors) == 0:
        return 0 * (full_precision(anchors).sum() + full_precision(items).sum())
    x, y = full_precision(anchors), full_precision(items)
    if loss.on_sphere:
        x, y = normalize(x), normalize(y)
    if loss.distance in ("cosine", "dot"):
        s = torch.einsum("td,tkd->tk", x, y)
    elif loss.distance == "squared_euclidean":
        s = (x[:, None] - y).square().sum(2)
    else:
        s = _distance(x[:, None], y)[..., 0]
    weights = s.new_ones(()).expand_as(s)
    block = Block(s, target.to(s.dtype), weights, self_index=None, anchor_class=None, item_class=None, dim=x.shape[1])
    values, counts = (part.sum(0) for part in loss.values(block))
    total = (values / torch.where(counts > 0, counts, 1)).sum()
    if isinstance(loss, NPairsLoss):
        total = total + loss.l2 * (x.square().sum(1).mean() + y.square().sum(2).mean()) / 2
    return total


def tuples_of(loss: PairLoss, classes: Tensor, anchors: Tensor | None = None) -> Tuples:
    """How a metric loss compares a batch of classes `[B]`; anchors `[A]`: the only positions that may be anchors."""
    found = n_pairs(classes) if isinstance(loss, NPairsLoss) else triplets(classes)
    if anchors is None:
        return found
    kept = torch.isin(found.anchors, anchors)
    return Tuples(*(part[kept] for part in found))


def check_metric_loss(loss: object) -> None:
    """Refuse a metric loss whose tuples the paper does not say how to make harder."""
    if not isinstance(loss, TripletMarginLoss | NPairsLoss):
        name = type(loss).__name__
        raise InputError(f"HDML makes harder triplets and N-pairs, not those of {name}; take triplet_margin or n_pairs")
    if loss.miner is not None:
        raise InputError(f"HDML forms its own tuples; remove the miner {type(loss.miner).__name__} from the loss")


class Generator(nn.Sequential):
    """Embeddings `[N, embedding_dim]` back to features `[N, feature_dim]`, by the statistics of the batch at hand.

    Args:
        embedding_dim: what goes in.
        hidden: width in between.
        feature_dim: what comes out.
    """

    def __init__(self, embedding_dim: int, hidden: int, feature_dim: int) -> None:
        super().__init__(
            nn.Linear(embedding_dim, hidden),
            nn.ReLU(),
            # It only ever generates in training: there is no use for running statistics.
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.Linear(hidden, feature_dim),
        )


def _two_by_two(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Positions `[P]`, `[P]` of pairs of one class: the items of each class two by two, in order of the first."""
    ordered, order = classes.sort(stable=True)
    first = torch.searchsorted(ordered, ordered)
    place = torch.arange(len(ordered), device=classes.device) - first  # within its class
    left = torch.searchsorted(ordered, ordered, right=True) - first - place
    at = ((place % 2 == 0) & (left > 1)).nonzero()[:, 0]
    anchors, positives = order[at], order[at + 1]
    by_anchor = anchors.argsort()
    return anchors[by_anchor], positives[by_anchor]
