"""Checks of the inputs of a loss: embeddings, labels as a label space, positions of anchors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Loss, Requirement
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.labels.matrices import MatrixLabels
from contml.labels.vectors import VectorLabels

_KINDS: dict[LabelKind, str] = {
    "graded": "graded labels",
    "binary": "labels of 0 and 1 without class ids",
    "classes": "classes",
}


def check_loss(loss: object) -> None:
    """Refuse an object that is not a loss.

    Raises:
        InputError: it is not a module, or its `requires` is not a kind of labels.
    """
    name = type(loss).__name__
    if not isinstance(loss, nn.Module) or not isinstance(loss, Loss):
        raise InputError(name, "not a loss", "must be a torch.nn.Module with `requires`", "see contml.contracts.Loss")
    if loss.requires not in (kinds := get_args(Requirement)):
        raise InputError(f"{name}.requires", repr(loss.requires), f"must be one of {', '.join(kinds)}")


def check_requirement(
    name: str,
    requires: Requirement,
    kind: LabelKind,
    binarize: str = "ThresholdLabels(threshold, space=...) or NearestLabels(k, space=...)",
) -> None:
    """Refuse labels of a kind that a loss of this name cannot train on; `binarize`: how to make graded labels 0 / 1.

    Raises:
        InputError: the loss does not fit the labels.
    """
    if requires == "classes" and kind != "classes":
        raise InputError(name, _KINDS[kind], "needs classes", "use ClassLabels")
    if requires == "binary" and kind == "graded":
        raise InputError(name, _KINDS[kind], "needs label distances of 0 and 1", f"set a threshold with {binarize}")
    if requires == "graded" and kind != "graded":
        raise InputError(
            name,
            _KINDS[kind],
            "needs graded labels, since pairs at label distance 0 get no gradient",
            "choose another loss, such as MultiSimilarityLoss, or give numbers as floats (integers are class ids)",
        )


def check_embeddings(embeddings: object) -> None:
    """Refuse embeddings that are not a tensor of floats `[B, d]` of at least 2 items.

    Raises:
        InputError: they are not.
    """
    if not isinstance(embeddings, Tensor):
        raise InputError("embeddings", type(embeddings).__name__, "must be a tensor of floats [items, dim]")
    if embeddings.ndim != 2 or not embeddings.is_floating_point() or embeddings.shape[1] == 0:
        raise InputError("embeddings", _describe(embeddings), "must be floats [items, dim]")
    if len(embeddings) < 2:
        raise InputError("embeddings", f"a batch of {len(embeddings)}", "must be at least 2", "a loss compares items")


def check_dim(embeddings: Tensor, dim: int, same_as: str) -> None:
    """Refuse embeddings `[B, d]` of another dimension. `same_as` says in words what has `dim` dimensions.

    Raises:
        InputError: d is not dim.
    """
    if embeddings.shape[1] != dim:
        raise InputError("embeddings", f"{embeddings.shape[1]} dimensions", f"must have {dim}, as {same_as}")


def nan_unless_finite(tensors: Iterable[Tensor]) -> Tensor:
    """0 if all entries are finite, else NaN; without a gradient. It reads each tensor once and does not synchronize."""
    ranges = [torch.aminmax(tensor.detach()) for tensor in tensors if tensor.numel()]
    return sum((low * 0 + high * 0 for low, high in ranges), torch.zeros(()))


def as_anchors(anchors: Tensor | None, embeddings: Tensor) -> Tensor | None:
    """Positions `[A]` of anchors in a batch in int64, or None for all.

    Raises:
        InputError: they are not positions in the batch.
    """
    if anchors is None:
        return None
    positions = torch.as_tensor(anchors, device=embeddings.device)
    if positions.numel() and (positions.ndim != 1 or positions.is_floating_point() or positions.dtype == torch.bool):
        raise InputError("anchors", _describe(positions), "must be positions [A] in the batch")
    try:
        return as_rows(positions, len(embeddings), embeddings.device)
    except InputError:
        got = f"{min(positions.tolist())} to {max(positions.tolist())}"
        raise InputError("anchors", got, f"must be positions 0 to {len(embeddings) - 1} in the batch") from None


def as_labels(
    name: str,
    requires: Requirement,
    labels: LabelSpace | Tensor,
    embeddings: Tensor,
    anchors: Tensor | None,
    *,
    squared: bool = True,
) -> LabelSpace:
    """The labels of a batch as a label space of the kind that a loss of this name requires.

    Integers `[B]` are classes; floats `[B]` are `VectorLabels`, squared as the embedding distance of the loss is; a
    matrix `[A, B]` holds the label distances of the anchors. None of these has row numbers.

    Raises:
        InputError: shapes that do not fit, labels of another kind than the loss requires, NaN in label distances.
    """
    space = labels if isinstance(labels, LabelSpace) else _from_tensor(requires, labels, embeddings, anchors, squared)
    if len(space) != len(embeddings):
        got = f"{len(space)} labels for {len(embeddings)} embeddings"
        raise InputError("labels", got, hint="give one label per embedding")
    check_requirement(name, requires, space.kind)
    return space


def _from_tensor(
    requires: Requirement, labels: object, embeddings: Tensor, anchors: Tensor | None, squared: bool
) -> LabelSpace:
    batch = len(embeddings)
    rows = batch if anchors is None else len(anchors)
    accepted = f"integer classes [{batch}], numbers [{batch}], or label distances [{rows}, {batch}] (anchors, items)"
    if not isinstance(labels, Tensor):
        raise InputError(
            "labels", type(labels).__name__, f"must be labels[rows] of a label space, or a tensor: {accepted}"
        )
    labels = labels.to(embeddings.device)
    if labels.ndim == 1 and labels.is_floating_point():
        vector_labels = VectorLabels(labels, squared=squared)
        vector_labels.rows = None
        return vector_labels
    if labels.ndim == 1 and labels.dtype != torch.bool and not labels.is_complex():
        return ClassLabels.from_ids(labels)
    if labels.shape != (rows, batch):
        raise InputError("labels", _describe(labels), f"must be {accepted}")
    # Checked only for losses that need 0 / 1, since it takes three passes over the matrix.
    binary = requires in ("binary", "classes") and bool(((labels == 0) | (labels == 1)).all())
    return MatrixLabels(labels, anchors, kind="binary" if binary else "graded")


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
