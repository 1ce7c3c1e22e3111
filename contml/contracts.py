"""The contracts between the rooms of contml: read this first.

A *label space* holds the packed labels of a whole data set and answers label distances between any of its rows.
A *loss* reads embeddings and label distances. A *sampler* says which rows make a batch. A *split* is images,
their label space and who queries whom; a *task* is two splits. Class labels are the special case of label
distances 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

#: Row numbers of a label space: a tensor, a list, a slice or a range; `None` means all of them.
Rows: TypeAlias = "Tensor | list[int] | range | slice | None"

#: What a loss needs of labels, and what a label space offers. "distances": numbers >= 0; "binary": only 0 and 1;
#: "classes": 0 and 1 that come from a class id for each item.
LabelKind: TypeAlias = Literal["distances", "binary", "classes"]


class InputError(ValueError):
    """A bad input, told in one line: what was given, what is allowed, what to do."""


def as_rows(rows: Rows, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Row numbers `[R]` in int64 on `device`, checked against the length of what they index.

    Raises:
        InputError: a row is not a whole number in [0, length).
    """
    if rows is None:
        return torch.arange(length, device=device)
    if isinstance(rows, slice):
        return torch.arange(length, device=device)[rows]
    if isinstance(rows, range):
        rows = list(rows)
    index = torch.as_tensor(rows, device=device)
    if index.numel() == 0:
        return index.reshape(0).long()
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError(f"rows are {index.dtype} of shape {list(index.shape)}; give a list of whole numbers")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError(f"row {low if low < 0 else high} does not exist; rows are 0 to {length - 1}")
    return index.long()


@runtime_checkable
class LabelView(Protocol):
    """Some rows of a label space against each other: any block of their label distances, when it is asked for."""

    kind: LabelKind

    def __len__(self) -> int: ...

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        """Label distances `[A, B]` of these positions of the view (default all) to every item of it."""
        ...

    @property
    def classes(self) -> Tensor | None:
        """Class ids `[B]`, or None where the labels are not classes."""
        ...


@runtime_checkable
class LabelSpace(Protocol):
    """The packed labels of a data set: `D(i, j) >= 0`, 0 on the diagonal, symmetric unless the space says otherwise.

    `unit` says in words what a label distance of 1 is, for tables and plots.
    """

    kind: LabelKind
    unit: str

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        ...

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """Label distances `[R, C]` of rows to columns, computed exactly, returned as float32."""
        ...

    def subset(self, rows: Rows) -> LabelSpace:
        """These rows as a label space of their own."""
        ...

    def view(self, rows: Rows = None) -> LabelView:
        """These rows against each other: what a loss reads."""
        ...


@runtime_checkable
class Loss(Protocol):
    """`loss(embeddings, labels, anchors=None) -> scalar`.

    embeddings `[B, d]`. labels: label distances `[A, B]` (row a: anchor a to every item), integer classes `[B]`, or a
    `LabelView` of the B items. anchors `[A]`: the anchors' own positions in the batch; default all items.
    """

    labels: LabelKind

    def __call__(self, embeddings: Tensor, labels: Tensor | LabelView, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Batches as lists of rows, a pure function of `(seed, epoch, step)`: a run resumes on the very next batch.

    The first `anchors` rows of a batch are its anchors; None means that every row is one.
    """

    anchors: int | None
    seed: int

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def batch(self, epoch: int, step: int) -> list[int]:
        """The rows of one batch."""
        ...

    def __iter__(self) -> Iterator[list[int]]: ...


#: One image as a split hands it out: a file to decode, a decoded picture, or its pixels `[H, W, 3]` in uint8.
ImageItem: TypeAlias = "Path | Image.Image | np.ndarray[Any, np.dtype[np.uint8]]"


@runtime_checkable
class Split(Protocol):
    """Images, their labels, and who queries whom.

    `queries` and `gallery` are rows of the split, disjoint; both None: every row queries all the others. A split of
    classes may have `recall_at`, the K at which papers on its data tell Recall@K: `(1, 10, 100, 1000)`. One that cuts
    its images from files may have `source(row) -> (file, how)`, by which a cache tells images apart without the work.
    """

    labels: LabelSpace
    queries: Tensor | None
    gallery: Tensor | None

    def __len__(self) -> int: ...

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        ...

    def name(self, row: int) -> str:
        """What to call a row in an error or a caption: a file's path where there is one."""
        ...

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, with its label drawn on it."""
        ...


@runtime_checkable
class Task(Protocol):
    """A training split and a test split with one kind of label.

    A task may have `facts`, pairs of words that `contml check` and `contml prepare` print: what was found, what was
    left out and why.
    """

    train: Split
    test: Split


class Step(Protocol):
    """What happens in a training step: `step(model, images, labels, anchors) -> loss`.

    The default embeds the images and calls the loss; a step with networks or optimisers of its own is another.
    """

    def __call__(self, model: torch.nn.Module, images: Tensor, labels: LabelView, anchors: Tensor | None) -> Tensor:
        """The loss of a batch."""
        ...


@runtime_checkable
class LearningStep(Step, Protocol):
    """A step with networks of its own: a `torch.nn.Module` whose state is kept with the checkpoint.

    `labels` is what it needs of labels, as of a loss.
    """

    labels: LabelKind

    def check(self, model: torch.nn.Module) -> None:
        """Refuse a model that it cannot train, before the first step."""
        ...

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimiser beside those of model and loss: `params`, `name`, `lr`, whatever else they set."""
        ...

    def figures(self) -> dict[str, float]:
        """Numbers of the last step, for the metrics."""
        ...

    def to(self, device: torch.device) -> Self:
        """Itself, moved to the device."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed training needs, tensors by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Go on from `state_dict`."""
        ...
