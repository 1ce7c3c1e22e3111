"""The type of a loss, and checks of its inputs: embeddings, labels as a label space, positions of anchors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor, nn

from contml._support.conversion import as_numbers
from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Requirement
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.labels.matrices import MatrixLabels, check_symmetry
from contml.labels.vectors import NumberLabels

_KINDS: dict[LabelKind, str] = {
    "graded": "graded labels",
    "binary": "labels of 0 and 1 without class ids",
    "classes": "classes",
    "triplets": "judgments of triplets",
    "rankings": "judged lists of queries",
}
#: The training steps for judgments.
_JUDGED_STEPS: dict[LabelKind, str] = {
    "triplets": "TripletStep, 'step=triplets'",
    "rankings": "RankingStep, 'step=rankings'",
}
_BINARIZE = "ThresholdLabels(space, threshold) or NearestLabels(space, k)"
#: The hint if a matrix cannot hold label distances.
_VECTORS = "vectors are labels of VectorLabels"


@runtime_checkable
class Loss(Protocol):
    """`loss(embeddings, labels, anchors=None) -> scalar`, a `torch.nn.Module`.

    `embeddings` are `[B, d]`. `labels` are a label space of the B items, or a tensor. Floats `[B]` are numbers. A
    matrix `[A, B]` holds the label distances of one anchor per row. Integers `[B]` are classes. A loss that takes
    graded labels refuses integers. `anchors` `[A]` are positions in the batch; by default all items are anchors.
    """

    requires: Requirement

    def __call__(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch."""


def check_loss(loss: object) -> None:
    """Refuse an object that is not a loss.

    Raises:
        InputError: the object is not a module, or its `requires` is not a kind of labels.
    """
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise InputError("loss", f"the class {loss.__name__}", "must be a loss", f"give {loss.__name__}()")
    name = type(loss).__name__
    if not isinstance(loss, nn.Module) or not isinstance(loss, Loss):
        allowed = "must be a torch.nn.Module with `requires`"
        raise InputError(name, "not a loss", allowed, "see contml.losses.inputs.Loss")
    if loss.requires not in (kinds := get_args(Requirement)):
        raise InputError(f"{name}.requires", repr(loss.requires), f"must be one of {', '.join(kinds)}")


def check_requirement(name: str, requires: Requirement, kind: LabelKind, binarize: str = _BINARIZE) -> None:
    """Refuse labels of a kind that the loss cannot train on.

    Args:
        name: the name of the loss, for the error.
        requires: the kind of labels that the loss needs.
        kind: the kind of the labels.
        binarize: the way to make graded labels 0 / 1, for the hint of the error.

    Raises:
        InputError: the loss does not fit the labels.
    """
    if kind in _JUDGED_STEPS and requires != kind:
        raise InputError(name, _KINDS[kind], "needs labels of items", f"train on judgments with {_JUDGED_STEPS[kind]}")
    if requires in _JUDGED_STEPS and requires != kind:
        labels = "TripletLabels" if requires == "triplets" else "RankingLabels"
        raise InputError(name, _KINDS[kind], f"needs {_KINDS[requires]}", f"use {labels}, or another step")
    if requires == "classes" and kind != "classes":
        raise InputError(name, _KINDS[kind], "needs classes", "use ClassLabels")
    if requires == "binary" and kind == "graded":
        raise InputError(name, _KINDS[kind], "needs label distances of 0 and 1", f"set a threshold with {binarize}")
    if requires == "graded" and kind != "graded":
        allowed = "needs graded labels, since pairs at label distance 0 get no gradient"
        hint = "choose another loss, such as MultiSimilarityLoss, or give numbers as floats"
        raise InputError(name, _KINDS[kind], allowed, hint)


def check_embeddings(embeddings: object) -> None:
    """Refuse embeddings that are not a tensor of floats `[B, d]` of at least 2 items.

    Raises:
        InputError: the embeddings have another type or shape.
    """
    if not isinstance(embeddings, Tensor):
        raise InputError("embeddings", type(embeddings).__name__, "must be a tensor of floats [items, dim]")
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(embeddings):
        hint = "call loss.backward() or torch.autograd.grad"
        raise InputError("embeddings", "transformed by torch.func", "a loss has gradients of its own", hint)
    if embeddings.ndim != 2 or not embeddings.is_floating_point() or embeddings.shape[1] == 0:
        raise InputError("embeddings", _describe(embeddings), "must be floats [items, dim]")
    if len(embeddings) < 2:
        raise InputError("embeddings", f"a batch of {len(embeddings)}", "must be at least 2", "a loss compares items")


def check_dim(embeddings: Tensor, dim: int, same_as: str) -> None:
    """Refuse embeddings `[B, d]` if d is not `dim`.

    `same_as` names the object that has `dim` dimensions, for the error.

    Raises:
        InputError: d is not `dim`.
    """
    if embeddings.shape[1] != dim:
        raise InputError("embeddings", f"{embeddings.shape[1]} dimensions", f"must have {dim}, as {same_as}")


def nan_unless_finite(tensors: Iterable[Tensor]) -> Tensor:
    """Return 0 if all entries are finite, else NaN, without a gradient.

    The function reads each tensor once and does not synchronize with the device.
    """
    ranges = [torch.aminmax(tensor.detach()) for tensor in tensors if tensor.numel()]
    return sum((low * 0 + high * 0 for low, high in ranges), torch.zeros(()))


def as_anchors(anchors: Any, embeddings: Tensor) -> Tensor | None:
    """Convert anchors to positions `[A]` in a batch, int64. A mask, bool `[B]`, selects its True entries.

    Return None if `anchors` is None: all items are anchors.

    Raises:
        InputError: the anchors are not positions in the batch.
    """
    if anchors is None:
        return None
    batch, allowed = len(embeddings), "positions [A] in the batch, or a mask [B]"
    positions = as_numbers("anchors", anchors, allowed).to(embeddings.device)
    if positions.dtype == torch.bool:
        if positions.shape != (batch,):
            raise InputError("anchors", _describe(positions), f"must be a mask [{batch}], one entry per item")
        return positions.nonzero()[:, 0]
    if positions.numel() and (positions.ndim != 1 or positions.is_floating_point()):
        raise InputError("anchors", _describe(positions), f"must be {allowed}")
    try:
        return as_rows(positions, batch, embeddings.device)
    except InputError:
        got = f"{min(positions.tolist())} to {max(positions.tolist())}"
        raise InputError("anchors", got, f"must be positions 0 to {batch - 1} in the batch") from None


def as_labels(name: str, requires: Requirement, labels: Any, embeddings: Tensor, anchors: Tensor | None) -> LabelSpace:
    """Return the labels of a batch as a label space of the kind that the loss requires.

    Besides a label space, a loss takes a tensor, an array, a list or a column of a data frame. Floats `[B]` become
    `NumberLabels`. A matrix `[A, B]` holds the label distances of the anchors. Integers, booleans or categories `[B]`
    are classes. A loss that takes graded labels refuses integers, which may be numbers or classes. Labels made from
    such inputs have no row numbers.

    Raises:
        InputError: shapes do not fit, labels are of another kind than the loss requires, or a label distance is
            negative, not finite, or not 0 between an anchor and itself.
    """
    space = labels if isinstance(labels, LabelSpace) else _as_space(name, requires, labels, embeddings, anchors)
    if len(space) != len(embeddings):
        got = f"{len(space)} labels for {len(embeddings)} embeddings"
        raise InputError("labels", got, hint="give one label per embedding")
    check_requirement(name, requires, space.kind)
    return space


def _as_space(name: str, requires: Requirement, labels: Any, embeddings: Tensor, anchors: Tensor | None) -> LabelSpace:
    batch = len(embeddings)
    rows = batch if anchors is None else len(anchors)
    takes_classes = requires in ("binary", "classes")
    of_items = f"integer classes [{batch}]" if takes_classes else f"numbers [{batch}] as floats"
    accepted = f"labels[rows] of a label space, {of_items}, or label distances [{rows}, {batch}]"
    categories = getattr(labels, "cat", labels)  # of a column of a data frame: the codes are the same in all batches
    if hasattr(categories, "categories") and hasattr(categories, "codes"):
        codes = as_numbers("labels", categories.codes, accepted)
        if bool((codes < 0).any()):
            raise InputError("labels", "a missing category", "must be a class for each item")
        return _without_rows(ClassLabels(codes.long().to(embeddings.device)))
    if isinstance(labels, Tensor) and labels.requires_grad:
        raise InputError("labels", "require a gradient", "get none from a loss", "give labels.detach()")
    try:
        tensor = as_numbers("labels", labels, accepted).to(embeddings.device)
    except InputError as error:
        if requires == "graded" or not isinstance(labels, Iterable) or not any(isinstance(v, str) for v in labels):
            raise
        raise InputError(error.subject, error.got, error.allowed, "ClassLabels(labels) are classes") from None
    if tensor.dtype == torch.bool and tensor.ndim != 1:
        hint = "give label distances, such as (~mask).float() where True is a positive" if tensor.ndim == 2 else ""
        raise InputError("labels", _describe(tensor), f"must be {accepted}", hint)
    if tensor.ndim == 1 and tensor.is_floating_point():
        return _without_rows(NumberLabels(tensor))
    if tensor.ndim == 1 and (takes_classes or tensor.dtype == torch.bool):  # of booleans, both meanings are the same
        return _without_rows(ClassLabels(tensor.long()))
    if tensor.ndim == 1:
        hint = "give labels.float() for numbers" + (", or ClassLabels(labels) for classes" if requires == "any" else "")
        got = f"integers [{len(tensor)}]"
        raise InputError("labels", got, f"{name} must know whether they are numbers or classes", hint)
    if tensor.shape != (rows, batch):
        hint = "give one number per item: labels[:, 0]" if tensor.shape == (batch, 1) else ""
        if not hint and tensor.ndim == 2 and len(tensor) == batch and not takes_classes:
            hint = _VECTORS
        raise InputError("labels", _describe(tensor), f"must be {accepted}", hint)
    # Checked only for losses that need 0 / 1, since it takes three passes over the matrix.
    binary = takes_classes and bool(((tensor == 0) | (tensor == 1)).all())
    try:
        matrix = MatrixLabels(tensor, anchors, kind="binary" if binary else "graded")
        if anchors is None and not takes_classes and tensor.device.type == "cpu":  # on a GPU, it would wait for it
            check_symmetry("label distances", tensor.numpy())
    except InputError as error:
        own = tensor.diagonal() if anchors is None else tensor.gather(1, anchors[:, None])
        is_one = torch.allclose(own.double(), torch.ones((), dtype=torch.float64), atol=1e-3)
        hint = "similarities? give 1 - similarity" if is_one else "; ".join(filter(None, (error.hint, _VECTORS)))
        raise InputError(error.subject, error.got, error.allowed, hint) from None
    return _without_rows(matrix)


def _without_rows(labels: LabelSpace) -> LabelSpace:
    """Remove the row numbers of labels that were made from a bare tensor, and return the labels."""
    labels.rows = None
    return labels


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
