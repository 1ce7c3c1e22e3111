"""What a loss is given, checked: embeddings, labels as a label space, positions of anchors."""

from __future__ import annotations

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

_WORDS: dict[LabelKind, str] = {"graded": "graded", "binary": "0 / 1 without class ids", "classes": "classes"}


def check_loss(loss: object) -> None:
    """Refuse what is no loss.

    Raises:
        InputError: it is not a module, or does not say in `requires` what labels it needs.
    """
    if not isinstance(loss, nn.Module) or not isinstance(loss, Loss):
        raise InputError(
            f"{type(loss).__name__} is no loss: a loss is a torch.nn.Module that says in `requires` what labels it "
            "needs; see contml.contracts.Loss"
        )
    if loss.requires not in (kinds := get_args(Requirement)):
        raise InputError(f"{type(loss).__name__}: requires is {loss.requires!r}; it must be one of {', '.join(kinds)}")


def check_requirement(
    name: str,
    requires: Requirement,
    kind: LabelKind,
    binarize: str = "ThresholdLabels(threshold, space=...) or NearestLabels(k, space=...)",
) -> None:
    """Refuse labels of a kind that a loss of this name cannot train on; `binarize` says how graded labels become 0 / 1.

    Raises:
        InputError: the pairing is wrong.
    """
    if requires == "classes" and kind != "classes":
        raise InputError(f"{name} needs classes, but the labels are {_WORDS[kind]}; use ClassLabels")
    if requires == "binary" and kind == "graded":
        raise InputError(
            f"{name} needs label distances of 0 and 1, but the labels are graded; set a threshold with {binarize}"
        )
    if requires == "graded" and kind != "graded":
        raise InputError(
            f"{name} needs graded label distances, but the labels are {_WORDS[kind]}: pairs at label distance 0 would "
            "get no gradient; choose another loss, such as MultiSimilarityLoss, or give numbers as floats, since "
            "integers are class ids"
        )


def check_embeddings(name: str, embeddings: Tensor) -> None:
    """Refuse embeddings that are not floats `[B, d]` of at least 2 items.

    Raises:
        InputError: they are not.
    """
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(
            f"{name}: embeddings are {embeddings.dtype} {list(embeddings.shape)}; give floats [items, dim]"
        )
    if len(embeddings) < 2:
        raise InputError(f"{name}: the batch has {len(embeddings)} item; a loss compares items, so give at least 2")


def as_anchors(anchors: Tensor | None, embeddings: Tensor) -> Tensor | None:
    """Positions `[A]` of anchors in a batch in int64, or None for all.

    Raises:
        InputError: they are no positions in the batch.
    """
    if anchors is None:
        return None
    positions = torch.as_tensor(anchors, device=embeddings.device)
    if positions.numel() and (positions.ndim != 1 or positions.is_floating_point() or positions.dtype == torch.bool):
        raise InputError(f"anchors are {positions.dtype} {list(positions.shape)}; give positions [A] in the batch")
    try:
        return as_rows(positions, len(embeddings), embeddings.device)
    except InputError:
        raise InputError(f"anchors are positions in a batch of {len(embeddings)}: 0 to {len(embeddings) - 1}") from None


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
    matrix `[A, B]` has the label distances of the anchors. None of these has row numbers.

    Raises:
        InputError: shapes that do not fit, labels of another kind than the loss requires, NaN in label distances.
    """
    space = labels if isinstance(labels, LabelSpace) else None
    if space is None:
        space = _from_tensor(name, requires, labels, embeddings, anchors, squared)
    if len(space) != len(embeddings):
        raise InputError(
            f"{name}: {len(embeddings)} embeddings, but the labels are of {len(space)} items; give one label an item"
        )
    check_requirement(name, requires, space.kind)
    return space


def _from_tensor(
    name: str, requires: Requirement, labels: object, embeddings: Tensor, anchors: Tensor | None, squared: bool
) -> LabelSpace:
    batch = len(embeddings)
    rows = batch if anchors is None else len(anchors)
    forms = f"integer classes [{batch}], numbers [{batch}], or label distances [{rows}, {batch}] (anchors, items)"
    if not isinstance(labels, Tensor):
        raise InputError(
            f"{name}: labels are a {type(labels).__name__}; give labels[rows] of a label space, or {forms}"
        )
    labels = labels.to(embeddings.device)
    if labels.ndim == 1 and labels.is_floating_point():
        values = VectorLabels(labels, squared=squared)
        values.rows = None
        return values
    if labels.ndim == 1 and labels.dtype != torch.bool and not labels.is_complex():
        return ClassLabels.from_ids(labels)
    if labels.ndim != 2 or labels.shape != (rows, batch):
        raise InputError(f"{name}: labels are {labels.dtype} {list(labels.shape)}; give {forms}")
    # Whether all are 0 or 1 is looked up only for a loss that needs it: it costs three passes.
    binary = requires in ("binary", "classes") and bool(((labels == 0) | (labels == 1)).all())
    return MatrixLabels(labels, anchors, kind="binary" if binary else "graded")
