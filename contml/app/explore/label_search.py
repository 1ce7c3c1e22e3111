"""The search by label on the page: the label vectors of its items, and the data that give a label its vector.

A label gets coordinates from its label distances to landmarks (`contml.evaluation.posterior`). The page has the labels
of the landmarks. It ranks its items as `contml search --label` does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.pages import page_text
from contml.labels import DateLabels, NumberLabels, PoseLabels
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.search.labelled_items import LabelledItems

#: The largest size of the data in bytes.
LIMIT = 32 << 20
#: Training items of which the most central one is where a joint is put that its item does not show, and the shares of
#: coordinates that the frame leaves out at each end.
_DRAWN, _OUTSIDE = 500, 0.005


#: The label spaces that the page searches by: numbers and dates in float64, poses in float32.
_SEARCHED = (NumberLabels, DateLabels, PoseLabels)


def can_search(labels: LabelSpace) -> bool:
    """Return True if the page can search by labels of this space: poses, one number, or dates.

    The page computes only distances of poses without weights, saturation and mirror.
    """
    unlike = isinstance(labels, PoseLabels) and (labels.mirror or labels.saturation or set(labels.weights) != {1.0})
    return type(labels) in _SEARCHED and not unlike


def _about(labels: LabelSpace) -> dict[str, Any]:
    """Describe a label as data for the page."""
    measure = labels.measure
    if isinstance(labels, PoseLabels):
        points = labels.joints[..., :2][labels.visible]  # [P,2]
        ends = torch.tensor([_OUTSIDE, 1 - _OUTSIDE], dtype=torch.float64)
        low, high = (points.sort(0).values[(ends * (len(points) - 1)).round().long()]).tolist()
        count, axes = labels.joints.shape[1:]
        given = len(labels.part_names) == count
        names = [page_text(labels.part_names[n]) if given else f"joint {n + 1}" for n in range(count)]
        form: dict[str, Any] = {"normalize": labels.normalize, "skeleton": labels.skeleton}
        return {**form, "kind": "pose", "joints": names, "axes": axes, "low": low, "high": high}
    assert isinstance(labels, NumberLabels)  # or dates
    span = {"low": float(labels.values.min()), "high": float(labels.values.max())}
    printed = {"factor": measure.factor, "ratio": measure.kind == "ratio", "after": measure.after_label}
    form = {"normalize": False, "skeleton": [], "kind": "date" if measure.dates else "number", "axes": 1}
    return {**form, "joints": [page_text(labels.title)], **span, "printed": printed}


def _values(labels: LabelSpace) -> dict[str, Any]:
    """Return the labels, and which joints are visible. None means that all are visible."""
    if isinstance(labels, PoseLabels):
        visible = None if bool(labels.visible.all()) else _encoded(labels.visible.to(torch.uint8))
        return {"values": _encoded(labels.joints.float()), "visible": visible}
    assert isinstance(labels, NumberLabels)  # or dates
    return {"values": _encoded(labels.values.double()), "visible": None}


Reads: TypeAlias = Sequence[Callable[[], LabelledItems | None]]


def training_items(
    reads: Reads, labels: LabelSpace, embeddings: Sequence[Tensor], *, limit: int = LIMIT
) -> tuple[list[LabelledItems], list[str]]:
    """Return the training items of each view, with which the page searches.

    Without them, return a sentence with the reason.

    Args:
        reads: reads the labelled items of each view. It returns None for a view without items.
        labels: of the items of the page.
        embeddings: of the items of the page, `[N, d]`, in each view.
        limit: the largest size of the data in bytes.
    """
    if not can_search(labels):
        return [], []
    subject = labels.title
    try:
        labelled = [each for each in [read() for read in reads] if each is not None]
        if len(labelled) < len(reads):
            hint = "there are no labels of training items ('contml evaluate' adds them)"
            return [], [f"No search by {subject}: {hint}."]
        for other in [*(each.labels for each in labelled[1:]), labels]:
            growing(labelled[0].labels).joined(other)
    except InputError as error:
        return [], [f"No search by {subject}: {error}."]
    size = 4 * sum(_size(each, len(vectors)) for each, vectors in zip(labelled, embeddings, strict=True)) // 3
    if size > limit:
        return [], [f"No search by {subject}: its data have {size >> 20:,} MB, more than {limit >> 20} MB."]
    return labelled, [words for each in labelled if (words := each.sample_words)]


def search_data(
    labelled: Sequence[LabelledItems], labels: LabelSpace, embeddings: Sequence[Tensor], gallery: Tensor
) -> dict[str, Any]:
    """Return the data of the page.

    Args:
        labelled: the training items of each view.
        labels: as in `training_items`.
        embeddings: as in `training_items`.
        gallery: the rows that are searched.
    """
    views = []
    for each, vectors in zip(labelled, embeddings, strict=True):
        if (found := each.coordinates) is not None:
            coded = {"offsets": _encoded(found.offsets), "projection": _encoded(found.projection)}
            items = _encoded(each.posterior.label_vectors(vectors))
            views.append({**_values(each.landmarks), "far": each.far, **coded, "items": items})
    return {**_label(labelled[0].labels), "gallery": gallery.tolist(), "items": _values(labels), "views": views}


def _size(labelled: LabelledItems, items: int) -> int:
    """Return the most bytes of one view and its items."""
    assert labelled.coordinates is not None
    count, dim = labelled.coordinates.projection.shape
    labels = labelled.labels
    size = 5 * labels.joints[0].numel() if isinstance(labels, PoseLabels) else 8
    return count * (size + 8 * dim) + items * 4 * (dim + 1)


def _label(labels: LabelSpace) -> dict[str, Any]:
    """Describe a label, with the most central label of training."""
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:_DRAWN]
    central = int(rows[labels.pairwise(rows, rows).double().sum(1).argmin()])
    measure = {"factor": labels.measure.factor, "kind": labels.measure.kind}
    start = _values(labels[[central]].as_root())
    return {"title": page_text(labels.title), "measure": measure, "start": start, **_about(labels)}


def _encoded(values: Tensor) -> str:
    """Encode the bytes of a tensor, little endian, in base64."""
    return base64.b64encode(values.cpu().contiguous().numpy().tobytes()).decode("ascii")
