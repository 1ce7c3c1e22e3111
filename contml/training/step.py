"""What happens in a training step: a batch of images becomes a loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from contml.contracts import Requirement
from contml.labels.base import LabelSpace
from contml.losses.inputs import check_loss, check_requirement
from contml.training.gather import gather_rows


class TrainingStep(nn.Module):
    """Base of the training steps: it owns the loss, and whatever else learns beside the model.

    A subclass writes `forward`; one with networks of its own says in `parameter_groups` how they learn. A checkpoint
    holds the state of the model, the step and the optimizer.

    Args:
        loss: a loss of `contml.losses`, or one of the same contract.
    """

    loss: Any

    def __init__(self, *, loss: nn.Module) -> None:
        super().__init__()
        check_loss(loss)
        self.loss = loss

    @property
    def requires(self) -> Requirement:
        """What it needs of labels: what its loss needs."""
        requires: Requirement = self.loss.requires
        return requires

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            model: images to embeddings.
            images: this process's images `[b, 3, H, W]`.
            labels: the labels of the whole batch, of all processes.
            anchors: positions `[A]` of the anchors in the whole batch; None: all items.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, model, images, labels, anchors)")

    def check(self, model: nn.Module, labels: LabelSpace) -> None:  # noqa: ARG002
        """Refuse a model or labels that it cannot train on, before the first step.

        Raises:
            InputError: it cannot.
        """
        check_requirement(type(self.loss).__name__, self.requires, labels.kind)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What learns beside the model, for the optimizer: `name`, `params`, whatever else the group sets.

        The group "loss" learns at the optimizer's `loss_lr`. A group with an `lr` of its own is not clipped.
        """
        # A boundary or a proxy has no reason to shrink to 0.
        return [{"name": "loss", "params": list(self.loss.parameters()), "weight_decay": 0.0}]

    def logs(self) -> dict[str, float]:
        """Numbers of the last step, for the metrics."""
        return {}


class EmbeddingStep(TrainingStep):
    """The default step: embed the images, gather the embeddings of all processes, call the loss."""

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        loss: Tensor = self.loss(gather_rows(model(images)), labels, anchors=anchors)
        return loss
