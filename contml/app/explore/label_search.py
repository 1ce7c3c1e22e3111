"""What the page searches by label with: the label vectors of its items, and what gives a label its vector.

A label has coordinates by its label distances to landmarks (`contml.evaluation.posterior`): the page has their labels.
It ranks its items as `contml search --label` does.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

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
#: Training items of which the most central one is the first label of a page without labels, and the shares of
#: coordinates that the frame leaves out at each end.
_DRAWN, _OUTSIDE = 500, 0.005


class _Searched(ABC):
    """Labels of a kind that the page searches by."""

    #: Largest size of a label in bytes.
    size = 8

    def __init__(self, labels: Any) -> None:
        self.labels = labels

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return what a label is."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """Return the labels, and which joints are visible; None for all."""


class _Numbers(_Searched):
    """Numbers or dates, in float64."""

    labels: NumberLabels

    def about(self) -> dict[str, Any]:
        labels, measure = self.labels, self.labels.measure
        return {
            "normalize": False,
            "skeleton": [],
            "kind": "date" if measure.dates else "number",
            "joints": [page_text(labels.title)],
            "axes": 1,
            "low": float(labels.values.min()),
            "high": float(labels.values.max()),
            "printed": {"factor": measure.factor, "ratio": measure.kind == "ratio", "after": measure.after_label},
        }

    def values(self) -> dict[str, Any]:
        return {"values": _encoded(self.labels.values.double()), "visible": None}


class _Poses(_Searched):
    """Poses, in float32."""

    labels: PoseLabels

    @property
    def size(self) -> int:  # type: ignore[override]
        return 5 * self.labels.joints[0].numel()

    def about(self) -> dict[str, Any]:
        labels = self.labels
        points = labels.joints[..., :2][labels.visible]  # [P,2]
        ends = torch.tensor([_OUTSIDE, 1 - _OUTSIDE], dtype=torch.float64)
        low, high = (points.sort(0).values[(ends * (len(points) - 1)).round().long()]).tolist()
        count, axes = labels.joints.shape[1:]
        given = len(labels.part_names) == count
        names = [page_text(labels.part_names[n]) if given else f"joint {n + 1}" for n in range(count)]
        form = {"normalize": labels.normalize, "skeleton": labels.skeleton}
        return {**form, "kind": "pose", "joints": names, "axes": axes, "low": low, "high": high}

    def values(self) -> dict[str, Any]:
        visible = None if bool(self.labels.visible.all()) else _encoded(self.labels.visible.to(torch.uint8))
        return {"values": _encoded(self.labels.joints.float()), "visible": visible}


#: The labels that the page searches by, by their label space.
_SEARCHED: dict[type[LabelSpace], type[_Searched]] = {
    NumberLabels: _Numbers,
    DateLabels: _Numbers,
    PoseLabels: _Poses,
}


def can_search(labels: LabelSpace) -> bool:
    """Whether the page can search by labels of this space: poses, one number, or dates."""
    return type(labels) in _SEARCHED


def _searched(labels: LabelSpace) -> _Searched:
    return _SEARCHED[type(labels)](labels)


def training_items(
    reads: Sequence[Callable[[], LabelledItems | None]],
    labels: LabelSpace | None,
    embeddings: Sequence[Tensor],
    *,
    limit: int = LIMIT,
) -> tuple[list[LabelledItems], list[str]]:
    """The training items of each view, by which the page searches; none, and a sentence on why.

    Args:
        reads: reads the labelled items of each view; None: it has none.
        labels: of the items of the page; None without labels.
        embeddings: of the items of the page, `[N, d]`, in each view.
        limit: the largest size of the data in bytes.
    """
    if labels is not None and not can_search(labels):
        return [], []
    subject = "a label" if labels is None else labels.title
    try:
        found = [read() for read in reads]
        labelled = [each for each in found if each is not None]
        if len(labelled) < len(reads):
            hint = "No search by {}: there are no labels of training items ('contml evaluate' adds them)."
            return [], [] if labels is None else [hint.format(subject)]
        if not can_search(labelled[0].labels):
            return [], []
        for other in [*(each.labels for each in labelled[1:]), *([] if labels is None else [labels])]:
            growing(labelled[0].labels).joined(other)
    except InputError as error:
        return [], [f"No search by {subject}: {error}."]
    size = 4 * sum(_size(each, len(vectors)) for each, vectors in zip(labelled, embeddings, strict=True)) // 3
    if size > limit:
        return [], [f"No search by {subject}: its data have {size >> 20:,} MB, more than {limit >> 20} MB."]
    return labelled, [words for each in labelled if (words := each.sample_words)]


def search_data(
    labelled: Sequence[LabelledItems], labels: LabelSpace | None, embeddings: Sequence[Tensor], gallery: Tensor
) -> dict[str, Any]:
    """The data of the page.

    Args:
        labelled: the training items of each view.
        labels: as in `training_items`.
        embeddings: as in `training_items`.
        gallery: the rows that are searched.
    """
    views = [
        {
            **_searched(each.landmarks).values(),
            "far": each.far,
            "offsets": _encoded(each.coordinates.offsets),
            "projection": _encoded(each.coordinates.projection),
            "items": _encoded(each.posterior.label_vectors(vectors)),
        }
        for each, vectors in zip(labelled, embeddings, strict=True)
        if each.coordinates is not None
    ]
    items = None if labels is None else _searched(labels).values()
    return {**_label(labelled[0].labels), "gallery": gallery.tolist(), "items": items, "views": views}


def _size(labelled: LabelledItems, items: int) -> int:
    """Bytes of one view and its items, at most."""
    assert labelled.coordinates is not None
    count, dim = labelled.coordinates.projection.shape
    return count * (_searched(labelled.labels).size + 8 * dim) + items * 4 * (dim + 1)


def _label(labels: LabelSpace) -> dict[str, Any]:
    """What a label is, and the first one: the most central of training."""
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:_DRAWN]
    central = int(rows[labels.pairwise(rows, rows).double().sum(1).argmin()])
    return {
        "title": page_text(labels.title),
        "measure": {"factor": labels.measure.factor, "kind": labels.measure.kind},
        "start": _searched(labels[[central]].as_root()).values(),
        **_searched(labels).about(),
    }


def _encoded(values: Tensor) -> str:
    """The bytes of a tensor, little endian, in base64."""
    return base64.b64encode(values.cpu().contiguous().numpy().tobytes()).decode("ascii")
