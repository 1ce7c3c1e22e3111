"""Cross-batch memory: a batch is compared with itself and with the embeddings of earlier batches.

    L = loss of the anchors of the batch against (batch, memory);   then the batch takes the place of the oldest

Wang, Zhang, Huang, Scott: "Cross-Batch Memory for Embedding Learning", CVPR 2020. Embeddings drift slowly, so those of
some steps ago are nearly what the model would give now. What is remembered beside them is where their labels stand in
the label space: a memory works with labels of any kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from contml.contracts import InputError, LabelKind, LabelSpace, LabelView
from contml.distances.euclidean import full_precision
from contml.losses.rows import RowLoss

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
#: In place of the length of a label space: what is remembered are class ids; nothing is remembered yet.
_CLASS_IDS, _NOTHING = 0, -1


class MemoryView:
    """A batch and the items remembered from earlier ones, against each other.

    Args:
        view: all these items, the batch first.
        rows: their rows of the label space `[B + M]`.
        anchors: the anchors' places in the batch `[A]`.
        batch: how many items the batch has, B.
    """

    def __init__(self, view: LabelView, rows: Tensor, anchors: Tensor, batch: int) -> None:
        self.kind: LabelKind = view.kind
        self._view, self._rows, self._anchors, self._batch = view, rows, anchors, batch

    def __len__(self) -> int:
        return len(self._view)

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        """Label distances `[A, B + M]` of these positions (default all) to every item."""
        return self._view.distances(anchors)

    @property
    def classes(self) -> Tensor | None:
        """Class ids `[B + M]`, or None where the labels are not classes."""
        return self._view.classes

    def twin(self, part: slice) -> Tensor:
        """Of a slice of the anchors, where a remembered item is the anchor's own: bool `[A, B + M]`."""
        twin = self._rows[self._anchors[part]][:, None] == self._rows
        twin[:, : self._batch] = False  # within the batch, an anchor is known by its place
        return twin


class CrossBatchMemory(nn.Module):
    """Any pair loss of a batch against itself and a memory of earlier embeddings, which get no gradient.

    The anchor's own image, remembered from an earlier batch, is left out. In eval mode the memory is read, not written.
    Labels are views of one label space, `space.view(rows)`; or integer classes, of which an anchor's own image
    cannot be told.

    Args:
        size: how many embeddings are remembered; the oldest are forgotten first.
        start: training steps before the memory is used, as a model that has hardly begun drifts fast; 1000 in the
            paper.
        loss: a pair loss, whose anchors are items of the batch.
        embedding_dim: the embedding dimension; default that of the first batch.
    """

    embeddings: Tensor
    places: Tensor

    def __init__(self, size: int = 8192, start: int = 0, *, loss: nn.Module, embedding_dim: int | None = None) -> None:
        super().__init__()
        for name, value, least in (("size", size, 1), ("start", start, 0)):
            if value < least:
                raise InputError(f"{name} is {value}; it must be at least {least}")
        _check_loss(loss)
        self.size, self.start, self.loss = size, start, loss
        self.register_buffer("embeddings", torch.zeros(size, embedding_dim or 0))
        self.register_buffer("places", torch.zeros(size, dtype=torch.int64))  # rows of the label space, or class ids
        self.steps, self.written = 0, 0
        self._of = _NOTHING  # the length of the label space that `places` are rows of

    @property
    def labels(self) -> LabelKind:
        """What the loss needs of labels."""
        kind: LabelKind = self.loss.labels  # type: ignore[assignment]
        return kind

    def __len__(self) -> int:
        """How many embeddings are remembered."""
        return min(self.written, self.size)

    def reset(self) -> None:
        """Forget all embeddings; the steps are counted on."""
        self.written, self._of = 0, _NOTHING

    def forward(self, embeddings: Tensor, labels: Tensor | LabelView, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: `[B, d]`.
            labels: a view of a label space, or integer classes `[B]`.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: labels that cannot be remembered, embeddings or labels of another kind than those remembered.
        """
        space, places = self._places(embeddings, labels)
        if len(self):
            value = self._with_memory(embeddings, space, places, anchors)
        else:
            value = self.loss(embeddings, labels, anchors=anchors)
        if self.training:
            if self.steps >= self.start:
                self._write(embeddings.detach(), places, _CLASS_IDS if space is None else len(space))
            self.steps += 1
        return value

    def _with_memory(
        self, embeddings: Tensor, space: LabelSpace | None, places: Tensor, anchors: Tensor | None
    ) -> Tensor:
        batch, device = len(embeddings), embeddings.device
        # A copy: what is written into the memory later changes nothing that a backward pass may still need.
        items = torch.cat((full_precision(embeddings), full_precision(self.embeddings[: len(self)].to(device))))
        places = torch.cat((places, self.places[: len(self)].to(device)))
        anchors = torch.arange(batch, device=device) if anchors is None else _in_batch(anchors, batch, device)
        labels: Tensor | LabelView = places
        if space is not None:
            labels = MemoryView(space.view(places.to(space.device)), places, anchors, batch)
        value: Tensor = self.loss(items, labels, anchors=anchors)
        return value

    def _places(self, embeddings: Tensor, labels: object) -> tuple[LabelSpace | None, Tensor]:
        """The label space, None of integer classes; and what of the labels is remembered `[B]`."""
        space: LabelSpace | None = getattr(labels, "space", None)
        places: Tensor | None = getattr(labels, "rows", None)
        if isinstance(labels, Tensor) and labels.ndim == 1 and labels.dtype in _WHOLE:
            places, of = labels, _CLASS_IDS
        else:
            if not isinstance(space, LabelSpace) or not isinstance(places, Tensor):
                form = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
                raise InputError(
                    f"CrossBatchMemory: labels are {form}, which cannot be compared with later batches; "
                    "give space.view(rows), or integer classes [B]"
                )
            of = len(space)
        if embeddings.ndim != 2 or not embeddings.is_floating_point() or len(places) != len(embeddings):
            raise InputError(
                f"CrossBatchMemory: embeddings are {embeddings.dtype} {list(embeddings.shape)} and the labels are of "
                f"{len(places)} items; give floats [items, dim], and one label an item"
            )
        if self._of not in (_NOTHING, of):
            raise InputError(
                f"CrossBatchMemory holds {_words(self._of)}, but these labels are {_words(of)}; "
                "keep to one label space, or call reset()"
            )
        known = self.embeddings.shape[1]
        if known not in (0, embeddings.shape[1]):
            raise InputError(
                f"CrossBatchMemory holds embeddings of {known} dimensions, but these have {embeddings.shape[1]}"
            )
        return space, places.to(embeddings.device, torch.int64)

    @torch.no_grad()
    def _write(self, embeddings: Tensor, places: Tensor, of: int) -> None:
        x = full_precision(embeddings)
        if self.written == 0:
            self.embeddings = x.new_zeros(self.size, x.shape[1])
        self.embeddings, self.places, self._of = self.embeddings.to(x.device), self.places.to(x.device), of
        kept = min(len(x), self.size)
        first = self.written + len(x) - kept
        at = torch.arange(first, first + kept, device=x.device) % self.size
        self.embeddings[at] = x[-kept:].to(self.embeddings.dtype)
        self.places[at] = places[-kept:]
        self.written += len(x)

    def get_extra_state(self) -> Tensor:
        """Steps, embeddings written so far, and what their labels are, `[3]`; for `state_dict`."""
        return torch.tensor([self.steps, self.written, self._of])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on from `get_extra_state`."""
        self.steps, self.written, self._of = (int(number) for number in state)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}embeddings")
        if saved is not None:  # an empty memory does not know the embedding dimension
            self.embeddings = self.embeddings.new_zeros((self.size, *saved.shape[1:]), dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _check_loss(loss: nn.Module) -> None:
    name = type(loss).__name__
    if not isinstance(loss, RowLoss):
        raise InputError(f"a memory takes a pair loss of contml, but {name} is none; leave the memory away")
    if type(loss).sides is not RowLoss.sides:
        raise InputError(
            f"{name} compares proxies, or pairs of its own choice within a batch, and has no use for a memory; "
            "leave the memory away, or choose another loss"
        )


def _in_batch(anchors: Tensor, batch: int, device: torch.device) -> Tensor:
    anchors = torch.as_tensor(anchors, device=device)
    if anchors.numel() and not 0 <= int(anchors.min()) <= int(anchors.max()) < batch:
        raise InputError(f"anchors are positions in a batch of {batch}: 0 to {batch - 1}")
    return anchors if anchors.numel() else anchors.reshape(0).long()


def _words(of: int) -> str:
    return "integer classes" if of == _CLASS_IDS else f"rows of a label space of {of} items"
