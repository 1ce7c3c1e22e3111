"""Training steps: from a batch of images to a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from contml._support.errors import InputError
from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import euclidean
from contml.evaluation.evaluators import Evaluator, RetrievalEvaluator
from contml.labels.base import LabelSpace
from contml.losses.inputs import check_loss, check_requirement
from contml.processes import gather_rows
from contml.training.gradients import embed_in_chunks

#: From a function of images to its outputs for some training images.
Outputs: TypeAlias = "Callable[[Callable[[Tensor], Tensor]], Tensor]"


class TrainingStep(nn.Module):
    """Base class of training steps. It owns the loss and any other networks that are trained with the model.

    A subclass defines `forward`, and `parameter_groups` if it has networks of its own. In a config, it has a loss if
    its constructor has the argument `loss`. A checkpoint holds the state of the model, the step and the optimizer.

    Args:
        chunk_size: number of images that go through the network at a time, for batches that do not fit in memory. The
            loss compares the whole batch, so the gradients are the same, up to rounding; accumulated gradients of small
            batches would compare the images of each small batch only. Costs a second forward pass. Batch normalization
            in train mode uses the statistics of a chunk. Default: the whole batch.
        loss: a loss of `contml.losses`, or another `contml.losses.inputs.Loss`; None: the step computes its own.
    """

    loss: Any
    #: Whether each step trains all parameters.
    every_parameter = True
    #: Whether it learns from judgments between items, and not from labels of items.
    judged = False

    @check_ranges
    def __init__(self, chunk_size: PositiveInt | None = None, *, loss: nn.Module | None) -> None:
        super().__init__()
        if loss is not None:
            check_loss(loss)
        self.chunk_size, self.loss = chunk_size, loss

    @property
    def requires(self) -> Requirement:
        """The kind of labels that the step needs: the same as its loss."""
        requires: Requirement = "any" if self.loss is None else self.loss.requires
        return requires

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            model: maps images to embeddings.
            images: this process's images `[b, 3, H, W]`.
            labels: the labels of the whole batch, over all processes.
            anchors: positions `[A]` of the anchors in the whole batch; default all items.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, model, images, labels, anchors)")

    def check(self, model: nn.Module, labels: LabelSpace) -> None:  # noqa: ARG002
        """Check, before the first step, that the step can train this model on these labels.

        Raises:
            InputError: the labels or the model do not fit.
        """
        check_requirement(type(self.loss or self).__name__, self.requires, labels.kind)

    def evaluator(self, model: Any) -> Evaluator:  # noqa: ARG002
        """What evaluates the model during training: as an embedding, by retrieval."""
        return RetrievalEvaluator()

    def use_average(self, average: AveragedModel | None) -> None:
        """Called by the trainer before the first step: the moving average of the weights, or None."""

    def before_epoch(self, done: int, models: Sequence[Any], outputs: Outputs) -> None:
        """Called by the trainer before each epoch, and after the last one.

        Args:
            done: number of finished steps.
            models: the model, and the moving average of its weights if there is one.
            outputs: returns what a function of the first model gives for some training images `[N, ...]`.
        """

    def embed(self, model: nn.Module, images: Tensor, **options: Any) -> Any:
        """What the model returns for images, `chunk_size` of them at a time."""
        with embed_in_chunks(model, self.chunk_size):
            return model(images, **options)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The parameter groups that are trained with the model: `name`, `params`, and options of the group.

        The group "loss" has the learning rate `loss_lr` of the optimizer. A group with its own `lr` is not clipped.
        """
        if self.loss is None:
            return []
        # No weight decay by default: proxies and boundaries should not shrink to 0.
        return [{"name": "loss", "params": list(self.loss.parameters()), "weight_decay": 0.0}]

    def logs(self) -> dict[str, float]:
        """Values of the last step, for metrics.jsonl."""
        return {}


class EmbeddingStep(TrainingStep):
    """The default step: embed the images, gather the embeddings of all processes, compute the loss.

        loss(embeddings, labels) + ema_weight mean_{i != j} ((d_ij - d'_ij) / mean d')^2

    The second term is self-distillation. d are the Euclidean distances in the batch by the model, d' by the moving
    average of the weights, which is the teacher from the second step on.

    Args:
        ema_weight: weight of the second term; it needs a moving average of the weights (training.ema). null: no term.
    """

    @check_ranges
    def __init__(
        self, chunk_size: PositiveInt | None = None, ema_weight: PositiveFloat | None = None, *, loss: nn.Module
    ) -> None:
        check_loss(loss)
        super().__init__(chunk_size, loss=loss)
        self.ema_weight = ema_weight
        self._teacher: tuple[AveragedModel | None] = (None,)  # in a tuple: it is not a module of the step

    def use_average(self, average: AveragedModel | None) -> None:
        """Take the teacher of the second term.

        Raises:
            InputError: there is none, but the term has a weight.
        """
        if self.ema_weight is not None and average is None:
            got = f"{self.ema_weight:g}, without a moving average of the weights"
            raise InputError("ema_weight", got, hint="set training.ema=0.99")
        self._teacher = (average,)

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        embeddings = gather_rows(self.embed(model, images))
        loss: Tensor = self.loss(embeddings, labels, anchors=anchors)
        (teacher,) = self._teacher
        if self.ema_weight is None or teacher is None or not int(teacher.n_averaged):
            return loss
        teacher.eval()
        with torch.no_grad():
            parts = [teacher(part) for part in torch.split(images, self.chunk_size or len(images))]
            target = gather_rows(torch.cat(parts))
            target_distances = euclidean(target, target)
        pairs = ~torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)
        differences = (euclidean(embeddings, embeddings) - target_distances)[pairs]
        scale = target_distances[pairs].mean().clamp(min=torch.finfo(target_distances.dtype).tiny)
        return loss + self.ema_weight * (differences / scale).square().mean()
