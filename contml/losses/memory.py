"""Cross-batch memory: a batch is compared with itself and with the embeddings of earlier batches.

    L = loss of the anchors of the batch against (batch, memory);   then the batch replaces the oldest embeddings

Wang, Zhang, Huang, Scott: "Cross-Batch Memory for Embedding Learning", CVPR 2020. Embeddings drift slowly, so the
embeddings of a few steps ago are close to the current model's. With each embedding the memory keeps the row of its
label in the label space of the data set. So the memory works with labels of any kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.losses.driver import PairLoss
from contml.losses.inputs import Loss, as_anchors, as_labels, check_dim, check_embeddings

#: Values of `_identity` if the memory holds class ids, or is empty; otherwise it is the identity of the label space.
_CLASS_IDS, _EMPTY = 0, -1


class CrossBatchMemory(nn.Module):
    """A pair loss of a batch against itself and a memory of earlier embeddings, which get no gradient.

    Pairs of an anchor with its own image from an earlier batch are left out. In eval mode the memory is only read.
    Labels are batches of one label space, `labels[rows]`. Labels of another space are refused. Integer classes `[B]`
    work too, with a warning. They have no row numbers, so an anchor's own image from an earlier batch counts as another
    item of its class.

    Args:
        loss: a pair loss, whose anchors are items of the batch.
        size: the number of embeddings in the memory; new ones replace the oldest.
        start: the number of training steps before the memory is used, since embeddings drift fast at first; 1000 in
            the paper.
        embedding_dim: the embedding dimension; default the dimension of the first batch.
    """

    embeddings: Tensor
    rows: Tensor

    #: The loss compares images of several batches. Each batch is mirrored separately.
    compares_batches = True

    @check_ranges
    def __init__(
        self, loss: Loss, size: PositiveInt = 8192, start: NonNegativeInt = 0, *, embedding_dim: int | None = None
    ) -> None:
        super().__init__()
        self.size, self.start, self.loss = size, start, _check_loss(loss)
        self.register_buffer("embeddings", torch.zeros(size, embedding_dim or 0))
        self.register_buffer("rows", torch.zeros(size, dtype=torch.int64))  # of the label space, or class ids
        self.steps, self.written = 0, 0
        self._identity = _EMPTY  # of the label space that `rows` belong to
        self._warned = False  # True if the warning about integer classes was given

    def extra_repr(self) -> str:
        """Return the options and the number of embeddings, for `repr`."""
        return f"{len(self):,} of {self.size:,} embeddings remembered, start={self.start}"

    @property
    def requires(self) -> Requirement:
        """The kind of labels that the loss needs."""
        return self.loss.requires

    def __len__(self) -> int:
        """Return the number of embeddings in the memory."""
        return min(self.written, self.size)

    def reset(self) -> None:
        """Remove all embeddings, but keep the number of steps."""
        self.written, self._identity = 0, _EMPTY

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            embeddings: `[B, d]`.
            labels: a batch of a label space, `labels[rows]`, or integer classes `[B]`.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: labels without row numbers, or embeddings or labels of another kind than the memory holds.
        """
        check_embeddings(embeddings)
        positions = as_anchors(anchors, embeddings)
        batch = as_labels("CrossBatchMemory", self.requires, labels, embeddings, positions)
        rows, identity = self._rows_of(batch)
        self._check(embeddings, batch, identity)
        rows = rows.to(embeddings.device, torch.int64)
        if len(self):
            value = self._with_memory(embeddings, batch, rows, positions)
        else:
            value = self.loss(embeddings, batch, anchors=positions)
        if self.training:
            if self.steps >= self.start:
                self._write(embeddings.detach(), rows, identity)
            self.steps += 1
        return value

    def _with_memory(self, embeddings: Tensor, batch: LabelSpace, rows: Tensor, anchors: Tensor | None) -> Tensor:
        batch_size, device = len(embeddings), embeddings.device
        # A copy, since later writes to the memory must not change what a backward pass may still need.
        items = torch.cat((full_precision(embeddings), full_precision(self.embeddings[: len(self)].to(device))))
        rows = torch.cat((rows, self.rows[: len(self)].to(device)))
        anchors = torch.arange(batch_size, device=device) if anchors is None else anchors
        if batch.rows is None:
            return self.loss.value(self.loss.compare(items, ClassLabels(rows), anchors))

        def same_image(part: slice) -> Tensor:
            """Return True where an item of the memory is the anchor's own image, bool `[A, B + M]`."""
            same = rows[anchors[part], None] == rows
            same[:, :batch_size] = False  # within the batch, an anchor is excluded by its position
            return same

        labels = batch.root[rows.to(batch.device)]
        return self.loss.value(replace(self.loss.compare(items, labels, anchors), excluded=same_image))

    def _rows_of(self, batch: LabelSpace) -> tuple[Tensor, int]:
        """Return the row numbers or class ids to store `[B]`, and the identity of their label space."""
        if batch.rows is not None:
            return batch.rows, batch.identity
        if batch.class_ids is None:
            hint = "give labels[rows] of a label space of the data set, or integer classes [B]"
            raise InputError("labels", repr(batch), "must have row numbers, to be compared with later batches", hint)
        if not self._warned:
            self._warned = True
            message = "CrossBatchMemory: integer classes have no row numbers, so an anchor's own image from an earlier "
            message += "batch counts as another item of its class; give labels[rows] of a ClassLabels to leave it out"
            warnings.warn(message, stacklevel=5)  # the caller of the module, above two calls of torch
        return batch.class_ids, _CLASS_IDS

    def _check(self, embeddings: Tensor, batch: LabelSpace, identity: int) -> None:
        if self._identity not in (_EMPTY, identity):
            got = "integer classes" if identity == _CLASS_IDS else f"rows of {batch.root!r}"
            allowed = f"must be {'integer classes' if self._identity == _CLASS_IDS else 'rows of one label space'}, as "
            hint = "give labels[rows] of one label space of all training items, or call reset()"
            raise InputError("labels", got, f"{allowed}in the memory", hint)
        dim = self.embeddings.shape[1]
        if dim:
            check_dim(embeddings, dim, "the embeddings in the memory")

    @torch.no_grad()
    def _write(self, embeddings: Tensor, rows: Tensor, identity: int) -> None:
        x = full_precision(embeddings)
        if self.written == 0:
            self.embeddings = x.new_zeros(self.size, x.shape[1])
        self.embeddings, self.rows = self.embeddings.to(x.device), self.rows.to(x.device)
        self._identity = identity
        num_kept = min(len(x), self.size)
        start = self.written + len(x) - num_kept
        positions = torch.arange(start, start + num_kept, device=x.device) % self.size
        self.embeddings[positions] = x[-num_kept:].to(self.embeddings.dtype)
        self.rows[positions] = rows[-num_kept:]
        self.written += len(x)

    def get_extra_state(self) -> Tensor:
        """Return the numbers of steps and of embeddings written so far, and the identity of the label space, `[3]`."""
        return torch.tensor([self.steps, self.written, self._identity])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the numbers of `get_extra_state`."""
        self.steps, self.written, self._identity = (int(number) for number in state)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}embeddings")
        if saved is not None:  # a new memory does not know the embedding dimension
            self.embeddings = self.embeddings.new_zeros((self.size, *saved.shape[1:]), dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _check_loss(loss: Loss) -> PairLoss:
    name = type(loss).__name__
    if not isinstance(loss, PairLoss):
        raise InputError(name, "not a pair loss of contml", hint="omit the memory")
    if not loss.takes_memory:
        got = "compares proxies, or pairs that it chooses within a batch: it cannot use a memory"
        raise InputError(name, got, hint="omit the memory, or choose another loss")
    return loss
