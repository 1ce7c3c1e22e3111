"""The step of hardness-aware deep metric learning; its formulas are in `contml.losses.hdml`.

One backward pass trains four things, each by its own term: backbone and head by J_metric, the generator by J_gen, the
softmax layer by its cross entropy on real features. What a term must not reach is detached from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from contml.contracts import InputError, LabelKind, LabelView
from contml.losses.class_index import ClassIndex
from contml.losses.hdml import Generator, check_metric_loss, pull, tuple_loss, tuples_of
from contml.losses.n_pairs import NPairsLoss
from contml.losses.rows import RowLoss
from contml.training.gather import gather_rows


class HDML(nn.Module):
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

    labels: LabelKind = "classes"
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
        loss: RowLoss,
        num_classes: int,
        class_ids: Tensor | Sequence[int] | None = None,
        embedding_dim: int,
        feature_dim: int,
        steps_per_epoch: int,
    ) -> None:
        super().__init__()
        check_metric_loss(loss)
        if alpha is None:
            alpha = 90.0 if isinstance(loss, NPairsLoss) else 7.0
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not 0 < value < float("inf"):
                raise InputError(f"{name} is {value}; it must be above 0")
        for name, value in {
            "softmax_weight": softmax_weight,
            "generator_lr": generator_lr,
            "softmax_lr": softmax_lr,
        }.items():
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} is {value}; it must be at least 0")
        if hidden < 1:
            raise InputError(f"hidden is {hidden}; it must be at least 1")
        self.alpha, self.beta, self.softmax_weight = alpha, beta, softmax_weight
        self.rates = {"generator": generator_lr, "softmax": softmax_lr}
        self.steps_per_epoch = steps_per_epoch
        self.loss = loss
        self.index = ClassIndex(num_classes, class_ids)
        self.generator = Generator(embedding_dim, hidden, feature_dim)
        self.softmax = nn.Linear(feature_dim, num_classes)
        # J_avg, J_gen: the means of the last epoch, and the sums of the present one.
        self.register_buffer("means", torch.full((2,), torch.inf))
        self.register_buffer("sums", torch.zeros(2))
        self.register_buffer("count", torch.zeros(()))
        self._last: dict[str, Tensor] = {}

    def check(self, model: nn.Module) -> None:
        """Refuse a model that does not tell its features.

        Raises:
            InputError: it has no `embed(features)`, or its call no `with_features`.
        """
        if not hasattr(model, "embed") or "with_features" not in inspect.signature(model.forward).parameters:
            raise InputError(
                f"HDML needs features and head apart, and a {type(model).__name__} has not embed(features) and "
                "forward(images, with_features=True), as contml.models.EmbeddingModel has; take that, or add them"
            )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Generator and softmax layer, each at its own rate."""
        return [
            {"params": list(getattr(self, name).parameters()), "name": name, "lr": lr, "weight_decay": 0.0}
            for name, lr in self.rates.items()
        ]

    def figures(self) -> dict[str, float]:
        """The terms of the last step: J_m, J_syn, J_gen, and the share of synthetic tuples in the loss."""
        return {name: value.item() for name, value in self._last.items()}

    def forward(self, model: nn.Module, images: Tensor, labels: LabelView, anchors: Tensor | None = None) -> Tensor:
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
        if labels.classes is None:
            raise InputError(f"HDML needs classes, but the labels are of the kind '{labels.kind}'")
        classes = labels.classes.to(z.device)
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
