"""Training steps: from a batch of images to a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn

from contml._support.validation import PositiveInt, check_ranges
from contml.contracts import Requirement
from contml.evaluation.evaluators import Evaluator, RetrievalEvaluator
from contml.labels.base import LabelSpace
from contml.losses.inputs import check_loss, check_requirement
from contml.processes import gather_rows
from contml.training.gradients import embed_in_chunks

#: A function. It takes a function of images, and returns its outputs for some training images.
Outputs: TypeAlias = "Callable[[Callable[[Tensor], Tensor]], Tensor]"


class TrainingStep(nn.Module):
    """Base class of training steps. It owns the loss and any other networks that are trained with the model.

    A subclass defines `forward`, and `parameter_groups` if it has networks of its own. In a config, it has a loss if
    its constructor has the argument `loss`. A checkpoint holds the state of the model, the step and the optimizer.

    Args:
        chunk_size: number of images that go through the network at a time, for batches that do not fit in memory. The
            loss compares the whole batch, so the gradients are the same, up to rounding. Accumulated gradients of small
            batches would compare only the images of each small batch. Chunks cost a second forward pass. Batch
            normalization in train mode uses the statistics of a chunk. Default: the whole batch.
        loss: a loss of `contml.losses`, or another `contml.losses.inputs.Loss`; None: the step computes its own.
    """

    loss: Any
    #: True if each step trains all parameters.
    every_parameter = True
    #: True if the step learns from judgments between items, and not from labels of items.
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
        return "any" if self.loss is None else self.loss.requires

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar.

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
        """Return the evaluator of the model during training. By default it evaluates embeddings by retrieval."""
        return RetrievalEvaluator()

    def before_epoch(self, done: int, model: Any, outputs: Outputs) -> None:
        """Prepare for an epoch. The trainer calls this method before each epoch, and after the last one.

        Args:
            done: number of finished steps.
            model: the model that is trained.
            outputs: `outputs(function)` returns the values of a function of the model for some training images
                `[N, ...]`.
        """

    def embed(self, model: nn.Module, images: Tensor, **options: Any) -> Any:
        """Return the output of the model for images, computed for `chunk_size` images at a time."""
        with embed_in_chunks(model, self.chunk_size):
            return model(images, **options)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups that are trained with the model: `name`, `params`, and options of the group.

        The group "loss" has the learning rate `loss_lr` of the optimizer. A group with its own `lr` is not clipped.
        """
        if self.loss is None:
            return []
        # No weight decay by default: proxies and boundaries should not shrink to 0.
        return [{"name": "loss", "params": list(self.loss.parameters()), "weight_decay": 0.0}]

    def logs(self) -> dict[str, float]:
        """Return values of the last step, for metrics.jsonl."""
        return {}


class EmbeddingStep(TrainingStep):
    """The default step: embed the images, gather the embeddings of all processes, compute the loss."""

    @check_ranges
    def __init__(self, chunk_size: PositiveInt | None = None, *, loss: nn.Module) -> None:
        check_loss(loss)
        super().__init__(chunk_size, loss=loss)

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch."""
        return self.loss(gather_rows(self.embed(model, images)), labels, anchors=anchors)
