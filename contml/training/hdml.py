"""Hardness-aware deep metric learning: negatives are moved towards their anchor as the metric improves.

    z^ = z + [d+ + (d(z, z-) - d+) e^{-alpha / J_avg}] (z- - z) / d(z, z-)   if d+ < d(z, z-),   else z-
    J_gen = sum ||y - y'||^2 + lambda sum CE(W y~ + b, label)
    J_metric = e^{-beta / J_gen} J_m + (1 - e^{-beta / J_gen}) J_syn

Zheng, Chen, Lu, Zhou: "Hardness-Aware Deep Metric Learning", CVPR 2019. z, z+, z-: embeddings of anchor, positive and
negative, d+ = d(z, z+) in Euclidean distance. A generator maps z and z^ back to features y', y~. The model's head maps
y~ to embeddings again, and J_syn is the metric loss J_m on these embeddings. J_avg and J_gen in the exponents are means
over the last epoch. Both terms of J_gen are sums. The authors' code has half the first and 5,000 times a mean of the
second: `reconstruction_weight: 0.5, softmax_weight: 5000, softmax_reduction: mean`.

One backward pass trains each network by its own term: backbone and head by J_metric, the generator by J_gen, the
softmax layer by its cross entropy on real features. `detach()` keeps a term from the networks that it does not train.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from contml._support.errors import InputError
from contml._support.validation import NonNegativeFloat, PositiveFloat, PositiveInt, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision, normalize
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, PairLoss
from contml.losses.inputs import check_requirement
from contml.losses.n_pairs import NPairsLoss, class_pairs
from contml.losses.proxies import ClassIndex
from contml.losses.triplet import TripletMarginLoss, batch_triplets
from contml.processes import gather_rows
from contml.training.step import TrainingStep

#: The distance that negatives are moved to: that of the positive, or a number.
Reference: TypeAlias = Literal["positive"] | float


class HDML(TrainingStep):
    """Hardness-aware deep metric learning: trains on generated negatives, which get harder as the metric improves.

    The loss is `triplet_margin` or `n_pairs`. The authors' code has the triplet loss with margin 1, distance
    squared_euclidean, reduction sum. The step computes the loss over triplets of the batch, one per two items of a
    class. If the loss has triplets="batch", it takes the triplets that the sampler "triplets" drew. For `n_pairs`, it
    takes the N-pairs of the batch. Generator and softmax layer share the optimizer and the schedule, with their own
    learning rates and without weight decay. The default learning rates, beta and softmax_weight are from the authors'
    code, for Adam: the paper does not print them. No synthetic tuples are used in the first epoch.

    Each part can be switched off, so that two trainings differ in one thing: `beta: 0` uses only the loss on HDML's own
    tuples, `alpha: 0` generates tuples whose negatives are not moved.

    Args:
        alpha: a negative is moved by the share 1 - e^(-alpha / J) towards the reference distance, where J is the mean
            metric loss of the last epoch; default 7 for triplet_margin, 90 for n_pairs. 0: it is not moved.
        beta: synthetic tuples have weight 1 - e^(-beta / J_gen) in the loss, where J_gen is the mean loss of the
            generator in the last epoch. 0: they have no weight, and the generator is not trained.
        softmax_weight: lambda, the weight of the cross entropy of generated features in the loss of the generator.
        hidden: width of the hidden layer of the generator.
        generator_lr: learning rate of the generator.
        softmax_lr: learning rate of the softmax layer.
        chunk_size: number of images that go through the network at a time; default: the whole batch. The features of
            generated images are not divided.
        reconstruction_weight: weight of the squared error of reconstructed features in the loss of the generator.
        softmax_reduction: the cross entropy of generated features is their "sum" or their "mean" (n_pairs: the mean
            of the anchors plus the mean of the other items).
        reference: the distance from the anchor that negatives are moved to: "positive" for the distance of the
            positive, or a number.
        initial_loss: J in the first epoch; default infinite, so that nothing is moved.
        initial_generator_loss: J_gen in the first epoch; default infinite, so that synthetic tuples have no weight.
    """

    means: Tensor
    sums: Tensor
    count: Tensor

    @check_ranges
    def __init__(
        self,
        alpha: NonNegativeFloat | None = None,
        beta: NonNegativeFloat = 1e4,
        softmax_weight: NonNegativeFloat = 0.5,
        hidden: PositiveInt = 512,
        generator_lr: NonNegativeFloat = 1e-2,
        softmax_lr: NonNegativeFloat = 1e-3,
        chunk_size: PositiveInt | None = None,
        reconstruction_weight: NonNegativeFloat = 1.0,
        softmax_reduction: Literal["sum", "mean"] = "sum",
        reference: Literal["positive"] | NonNegativeFloat = "positive",
        initial_loss: PositiveFloat | None = None,
        initial_generator_loss: PositiveFloat | None = None,
        *,
        loss: PairLoss,
        num_classes: int,
        class_ids: Tensor | Sequence[int] | None = None,
        embedding_dim: int,
        feature_dim: int,
        steps_per_epoch: int,
    ) -> None:
        if not isinstance(loss, TripletMarginLoss | NPairsLoss):
            raise InputError("loss", type(loss).__name__, "must be triplet_margin or n_pairs, for HDML")
        if loss.miner is not None:
            got = f"has the miner {type(loss.miner).__name__}"
            raise InputError("loss", got, hint="omit the miner, since HDML forms its own tuples")
        super().__init__(chunk_size, loss=loss)
        if alpha is None:
            alpha = 90.0 if isinstance(loss, NPairsLoss) else 7.0
        self.alpha, self.beta, self.reference = alpha, beta, reference
        self.softmax_weight, self.softmax_reduction = softmax_weight, softmax_reduction
        self.reconstruction_weight = reconstruction_weight
        self.rates = {"generator": generator_lr, "softmax": softmax_lr}
        self.embedding_dim, self.steps_per_epoch = embedding_dim, steps_per_epoch
        self.index = ClassIndex(num_classes, class_ids)
        self.generator = nn.Sequential(  # maps embeddings [N, embedding_dim] back to features [N, feature_dim]
            nn.Linear(embedding_dim, hidden),
            nn.ReLU(),
            # Only used in training, so running statistics are not needed.
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.Linear(hidden, feature_dim),
        )
        self.softmax = nn.Linear(feature_dim, num_classes)
        # J_avg, J_gen: means of the last epoch, and sums of the current one.
        means = [torch.inf if value is None else value for value in (initial_loss, initial_generator_loss)]
        self.register_buffer("means", torch.tensor(means))
        self.register_buffer("sums", torch.zeros(2))
        self.register_buffer("count", torch.zeros(()))
        self._last: dict[str, Tensor] = {}

    @property
    def requires(self) -> Requirement:
        """The kind of labels that the softmax layer needs: classes."""
        return "classes"

    def check(self, model: nn.Module, labels: LabelSpace) -> None:
        """Check that the labels are classes, and that the model gives access to its features.

        Raises:
            InputError: the model has no `embed(features)`, or no argument `with_features`.
        """
        check_requirement("HDML", self.requires, labels.kind)
        if not hasattr(model, "embed") or "with_features" not in inspect.signature(model.forward).parameters:
            got = f"{type(model).__name__} for HDML"
            allowed = "must have embed(features) and forward(images, with_features=True)"
            raise InputError("model", got, allowed, "use contml.models.EmbeddingModel, or add them")

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups of the loss, the generator and the softmax layer.

        The last two have their own learning rates.
        """
        networks = {"generator": self.generator, "softmax": self.softmax}
        own_groups = [
            {"params": list(network.parameters()), "name": name, "lr": self.rates[name], "weight_decay": 0.0}
            for name, network in networks.items()
        ]
        return super().parameter_groups() + own_groups

    def logs(self) -> dict[str, float]:
        """Return the terms of the last step: J_m, J_syn, J_gen, and the weight of synthetic tuples in the loss.

        Without synthetic tuples (`beta: 0`), return only J_m.
        """
        return {name: value.item() for name, value in self._last.items()}

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """Return the value of J_metric, with the gradients of J_metric, J_gen and the softmax layer's cross entropy."""
        embeddings, features = self.embed(model, images, with_features=True)
        bare_model = model.module if isinstance(model, DistributedDataParallel) else model
        # Every process computes the loss of all rows, so that generator and softmax layer have the same gradients.
        z, y = gather_rows(embeddings), gather_rows(features.detach())
        dims, expected = (z.shape[1], y.shape[1]), (self.embedding_dim, self.softmax.in_features)
        if dims != expected:
            raise InputError("model", f"(embedding_dim, feature_dim) = {dims}", f"must be {expected}, as in HDML")
        check_requirement("HDML", self.requires, labels.kind)
        assert labels.class_ids is not None
        self.index.recognize(labels)
        classes = labels.class_ids.to(z.device)
        a, positives, items, target = self.tuples(classes, anchors)

        real_loss = tuple_loss(self.loss, z[a], z[items], target)  # J_m
        if self.beta == 0:
            self._last = {"metric_loss": real_loss.detach()}
            return real_loss
        points = z[a][:, None], z[positives][:, None], z[items]
        pulled = pull(*points, self.alpha, self.means[0], self.reference)  # [T,K,d]
        pulled = torch.where(target[..., None] == 0, z[items], pulled)
        rows = torch.cat((z, z[a], pulled.flatten(0, 1)))  # z, then z^
        synthetic_loss = self._synthetic(rows, len(z), target, bare_model)
        ids = self.index(classes)
        generated_ids = torch.cat((ids[a], ids[items].flatten()))
        generator_loss, softmax_loss = self._generator_losses(rows, y, ids, generated_ids, len(a))

        real_weight = torch.exp(-self.beta / self.means[1])
        metric_loss = real_weight * real_loss + (1 - real_weight) * synthetic_loss
        self._update(real_loss, synthetic_loss, generator_loss, 1 - real_weight)
        auxiliary_loss = generator_loss + softmax_loss  # adds only their gradients, not their values
        return metric_loss + (auxiliary_loss - auxiliary_loss.detach())

    def tuples(self, classes: Tensor, anchors: Tensor | None = None) -> Tuples:
        """Return the tuples of a batch of classes `[B]`, for both real and synthetic terms.

        If `anchors` are given, return only their tuples.
        """
        if isinstance(self.loss, NPairsLoss):
            batch_tuples = n_pairs(classes)
        else:
            batch_tuples = drawn_triplets(classes) if self.loss.triplets == "batch" else triplets(classes)
        if anchors is None:
            return batch_tuples
        return Tuples(*(tensor[torch.isin(batch_tuples.anchors, anchors)] for tensor in batch_tuples))

    def _synthetic(self, rows: Tensor, real: int, target: Tensor, model: Any) -> Tensor:
        """Compute J_syn, the metric loss of generated features. It does not train the generator."""
        weights = {name: weight.detach() for name, weight in self.generator.named_parameters()}
        embeddings = model.embed(functional_call(self.generator, weights, (rows,))[real:])
        anchors, items = embeddings[: len(target)], embeddings[len(target) :]
        return tuple_loss(self.loss, anchors, items.view(*target.shape, embeddings.shape[1]), target)

    def _generator_losses(
        self, rows: Tensor, y: Tensor, real: Tensor, synthetic: Tensor, anchors: int
    ) -> tuple[Tensor, Tensor]:
        """Compute J_gen, which only trains the generator, and the loss that only trains the softmax layer."""
        generated = self.generator(rows.detach())
        logits = F.linear(generated[len(y) :], self.softmax.weight.detach(), self.softmax.bias.detach())
        error = (generated[: len(y)] - y).square().sum()
        loss = self.reconstruction_weight * error + self.softmax_weight * self._reduced(logits, synthetic, anchors)
        return loss, F.cross_entropy(self.softmax(y), real)

    def _reduced(self, logits: Tensor, classes: Tensor, anchors: int) -> Tensor:
        """Compute the cross entropy of generated features. The first features are of anchors."""
        if self.softmax_reduction == "sum":
            return F.cross_entropy(logits, classes, reduction="sum")
        slices = (slice(anchors), slice(anchors, None)) if isinstance(self.loss, NPairsLoss) else (slice(None),)
        totals = [F.cross_entropy(logits[part], classes[part], reduction="sum") for part in slices]
        counts = [max(len(logits[part]), 1) for part in slices]
        return sum((total / count for total, count in zip(totals, counts, strict=True)), start=logits.new_zeros(()))

    @torch.no_grad()
    def _update(self, real: Tensor, synthetic: Tensor, generator: Tensor, share: Tensor) -> None:
        """Add this step to the sums. After an epoch, the sums become the new means."""
        self._last = {"metric_loss": real.detach(), "synthetic_loss": synthetic.detach()}
        self._last |= {"generator_loss": generator.detach(), "synthetic_share": share.detach()}
        self.sums += torch.stack((real, generator))
        self.count += 1
        epoch_ended = self.count >= self.steps_per_epoch
        self.means.copy_(torch.where(epoch_ended, self.sums / self.count, self.means))
        self.sums.masked_fill_(epoch_ended, 0)
        self.count.masked_fill_(epoch_ended, 0)


class Tuples(NamedTuple):
    """Positions in a batch of T anchors and of K items for each of them.

    anchors `[T]`; positives `[T]`; items `[T, K]`: the positive and its negatives; target `[T, K]`: 0 for the positive,
    1 for a negative.
    """

    anchors: Tensor
    positives: Tensor
    items: Tensor
    target: Tensor


def pull(
    anchor: Tensor, positive: Tensor, negative: Tensor, alpha: float, average: Tensor, reference: Reference = "positive"
) -> Tensor:
    """Move negatives towards their anchors, and return z^ `[..., d]`: the lower the average loss, the nearer they get.

    anchor, positive and negative are `[..., d]`. average is the mean metric loss, a scalar from 0 (z^ is at the
    reference distance) to infinity (z^ is the negative). reference is a distance, or "positive" for the distance of the
    positive.
    """
    if alpha == 0:
        return negative
    far = _distance(anchor, negative)  # [...,1]
    near = _distance(anchor, positive) if isinstance(reference, str) else far.new_tensor(reference)
    length = near + (far - near) * torch.exp(-alpha / average.to(far.dtype))
    pulled = anchor + length / torch.where(far > 0, far, 1) * (negative - anchor)
    return torch.where(near < far, pulled, negative)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    squared = (x - y).square().sum(-1, keepdim=True)
    # The square root has an infinite gradient at 0.
    return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)


def triplets(classes: Tensor) -> Tuples:
    """Return the triplets of a batch of classes `[B]`, K = 2: the positive and one negative. Few items are used twice.

    The items of each class form pairs of anchor and positive, in the order of the batch. The negative of a pair is an
    unpaired item of another class, in turn. If there is no such item, it is the positive of the next pair. The paper's
    batch of 120 (40 anchors, 40 positives, 40 negatives of other classes) gives the paper's 40 triplets. A batch of 40
    classes of 3 items gives 40 triplets too. A pair without an item of another class is omitted.
    """
    anchors, positives = _pairs(classes)
    pairs, items = len(anchors), len(classes)
    positions = torch.arange(items, device=classes.device)
    unpaired = torch.ones_like(classes, dtype=torch.bool)
    unpaired[anchors] = unpaired[positives] = False
    turn = torch.full_like(positions, -1)  # [B] -1: an anchor, which is never a negative
    turn[positives], turn[unpaired] = positions[:pairs], positions[: items - 2 * pairs]
    turns = torch.where(unpaired, items - 2 * pairs, pairs)
    priority = (turn - positions[:pairs, None]) % turns + items * ~unpaired  # [T,B] the lowest becomes the negative
    priority = priority.masked_fill((turn < 0) | (classes == classes[anchors][:, None]), 3 * items)
    lowest, negatives = priority.min(1)
    valid = lowest < 3 * items
    return _triplets(anchors[valid], positives[valid], negatives[valid])


def drawn_triplets(classes: Tensor) -> Tuples:
    """Return the triplets that the sampler drew into a batch of classes `[B]`.

    Triplets that lost an item because of a broken image are omitted.
    """
    a, p, n = batch_triplets(len(classes), classes.device)
    valid = (classes[a] == classes[p]) & (classes[a] != classes[n])
    return _triplets(a[valid], p[valid], n[valid])


def _triplets(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tuples:
    target = torch.tensor([0.0, 1.0], device=anchors.device).expand(len(anchors), 2)
    return Tuples(anchors, positives, torch.stack((positives, negatives), 1), target)


def n_pairs(classes: Tensor) -> Tuples:
    """Return the N-pairs of a batch of classes `[B]`, K = T: the positives of all pairs.

    The first two items of each class are a pair; classes with one item are omitted.
    """
    partners = class_pairs(classes)
    anchors = (partners > torch.arange(len(classes), device=classes.device)).nonzero()[:, 0]
    positives, pairs = partners[anchors], len(anchors)
    return Tuples(anchors, positives, positives.expand(pairs, pairs), 1 - torch.eye(pairs, device=classes.device))


def tuple_loss(loss: PairLoss, anchors: Tensor, items: Tensor, target: Tensor) -> Tensor:
    """Compute a pair loss of anchors `[T, d]`, each compared with its own K items `[T, K, d]`.

    target `[T, K]` is 0 or 1.
    """
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
    values, counts = (tensor.sum(0) for tensor in loss.values(block))
    total = (values / torch.where(counts > 0, counts, 1)).sum()
    if isinstance(loss, NPairsLoss):
        total = total + loss.l2 * (x.square().sum(1).mean() + y.square().sum(2).mean()) / 2
    return total


def _pairs(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions `[P]`, `[P]` of pairs of items of one class, in the order of the first item.

    No item is in two pairs.
    """
    sorted_classes, order = classes.sort(stable=True)
    class_start = torch.searchsorted(sorted_classes, sorted_classes)
    rank = torch.arange(len(sorted_classes), device=classes.device) - class_start  # within its class
    remaining = torch.searchsorted(sorted_classes, sorted_classes, right=True) - class_start - rank
    anchor_positions = ((rank % 2 == 0) & (remaining > 1)).nonzero()[:, 0]
    anchors, positives = order[anchor_positions], order[anchor_positions + 1]
    by_anchor = anchors.argsort()
    return anchors[by_anchor], positives[by_anchor]
