"""The driver of all pair losses: a loss says what happens in the rows of some anchors, the driver does the rest.

    loss = sum_t (sum_a values[a, t] / sum_a counts[a, t]) + penalty

It computes the similarities or distances of X (anchors, or proxies) to Y (the items) by matrix product, label distances
on demand, and walks over blocks of rows so that time is O(A B) and memory O(block x B). Gradients are computed block by
block in forward, once; there is no double backward. Where one block holds all rows, plain autograd does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contml.contracts import InputError, LabelKind, LabelSpace, LabelView
from contml.distances import class_distance
from contml.distances.euclidean import Similarity, add_gradient, block_values, lift, normalize, pairs, root
from contml.distances.search import checked
from contml.mining import Candidates, Miner

#: Entries of a block: a few of its temporaries fit the cache of a processor, and keep a GPU busy.
_ENTRIES = {"cpu": 1 << 21}
_ENTRIES_DEVICE = 1 << 24

NO_DOUBLE_BACKWARD = "this loss has no double backward: leave create_graph=True away"


@dataclass(frozen=True)
class Block:
    """Some anchors against all items: what a row function reads.

    s `[A, B]`: similarity or distance, as the loss declares. target `[A, B]`: label distances. itself: where each
    anchor stands among the items, `[A]`, or the place of the first where they stand in a row, or None where anchors are
    no items (proxies). anchor_class `[A]`, item_class `[B]`: class ids, where labels are classes. dim: the embedding
    dimension. twin `[A, B]`: True where an item is the anchor again, remembered from an earlier batch. mined `[A, B]`:
    a miner's weights.
    """

    s: Tensor
    target: Tensor
    itself: Tensor | int | None
    anchor_class: Tensor | None
    item_class: Tensor | None
    dim: int
    twin: Tensor | None = None
    mined: Tensor | None = None

    @cached_property
    def weights(self) -> Tensor:
        """`[A, B]`: 0 for an anchor with itself, else 1, or the miner's weight."""
        return self._weighed(torch.ones_like(self.s, requires_grad=False))

    @cached_property
    def positive(self) -> Tensor:
        """`[A, B]`: the weight where the label distance is 0, else 0."""
        return self._weighed((self.target == 0).to(self.s.dtype))

    @cached_property
    def negative(self) -> Tensor:
        """`[A, B]`: the weight where the label distance is not 0, else 0."""
        return self._weighed((self.target != 0).to(self.s.dtype))

    def without_self(self, mask: Tensor) -> Tensor:
        """`mask` `[A, B]`, set to 0 in place where an anchor meets itself: by position, never by value."""
        if isinstance(self.itself, int):
            mask.diagonal(self.itself).zero_()
        elif self.itself is not None:
            mask[torch.arange(len(self.itself), device=mask.device), self.itself] = 0
        return mask if self.twin is None else mask.masked_fill_(self.twin, 0)

    def _weighed(self, mask: Tensor) -> Tensor:
        mask = self.without_self(mask)
        return mask if self.mined is None else mask * self.mined


@dataclass(frozen=True)
class Sides:
    """X against Y: anchors x `[A, d]`, items y `[B, d]`, and the label distances of any slice of the anchors.

    twin: of any slice of the anchors, where an item is the anchor again (`Block.twin`).
    """

    x: Tensor
    y: Tensor
    target: Callable[[slice], Tensor]
    itself: Tensor | int | None
    anchor_class: Tensor | None = None
    item_class: Tensor | None = None
    twin: Callable[[slice], Tensor] | None = None


class RowLoss(nn.Module):
    """Base of the pair losses: a subclass declares its similarity and writes `rows`.

    `labels` is what the loss needs of labels; `unit` puts the embeddings on the unit sphere first; `whole`: the rows
    of all anchors are needed at once, so that there are no blocks. `block_rows` sets how many anchors make a block
    (None: as many as suit the device).

    Args:
        miner: weighs the pairs before the loss sees them; for losses that read `Block.positive`, `Block.negative` or
            `Block.weights`.
    """

    labels: LabelKind = "binary"
    similarity: Similarity = "cosine"
    unit: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    block_rows: int | None = None

    def __init__(self, *, miner: Miner | None = None) -> None:
        super().__init__()
        self.miner = miner

    @property
    def sphere(self) -> bool:
        """Whether pairs are compared on the unit sphere."""
        return self.unit or self.similarity == "cosine"

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Values and counts of a block's anchors, `[A]` or `[A, T]` each."""
        raise NotImplementedError(f"{type(self).__name__} has no rows(self, block)")

    def penalty(self, sides: Sides) -> Tensor | None:  # noqa: ARG002
        """A term that is no pair, or None."""
        return None

    def forward(self, embeddings: Tensor, labels: Tensor | LabelView, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar in float32 (float64 for float64 embeddings).

        Args:
            embeddings: `[B, d]`.
            labels: label distances `[A, B]`, integer classes `[B]`, or a view of a label space.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: shapes that do not fit, labels of another kind than the loss needs, NaN in label distances.
        """
        sides = self.sides_of(embeddings, labels, anchors)
        values, counts = self._sums(sides)
        # A sum of counts of 0 has values of 0: nothing to compare, a zero that still back-propagates.
        total = (values / torch.where(counts > 0, counts, 1)).sum()
        penalty = self.penalty(sides)
        return total if penalty is None else total + penalty

    def sums(
        self, embeddings: Tensor, labels: Tensor | LabelView, *, anchors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sums of values and of counts over the anchors, `[T]` each; values carry the gradient."""
        return self._sums(self.sides_of(embeddings, labels, anchors))

    def sides_of(self, embeddings: Tensor, labels: Tensor | LabelView, anchors: Tensor | None) -> Sides:
        """What is compared in a batch, checked; a new batch for the miner, where there is one."""
        if self.miner is not None:
            if self.miner.sphere and not self.sphere:
                raise InputError(
                    f"{type(self.miner).__name__} needs cosine similarities, but {type(self).__name__} takes "
                    "embeddings as they come; choose another miner, or a loss on the unit sphere"
                )
            self.miner.begin()
        positions = _positions(anchors, embeddings)
        sides = self.sides(embeddings, _view(self, embeddings, labels, positions), positions)
        if not self.unit:
            return sides
        x = normalize(sides.x)
        return replace(sides, x=x, y=x if sides.x is sides.y else normalize(sides.y))

    def _sums(self, sides: Sides) -> tuple[Tensor, Tensor]:
        x, y = sides.x, sides.y
        step = len(x) if self.whole else self.block_rows or _rows_of_a_block(len(y), y.device)
        if len(x) <= step:
            s = pairs(self.similarity, x, y)
            values, counts = _columns(self._rows_of(sides, s, slice(0, len(sides.x))))
            return values.sum(0), counts.sum(0)
        lifted = lift(self.similarity, x, y)
        parameters = [p for p in self.parameters() if p.requires_grad]
        needs_gradient = torch.is_grad_enabled()
        with torch.autocast(x.device.type, enabled=False):  # or the products of the blocks would be in half precision
            sums: tuple[Tensor, Tensor] = _Blocked.apply(self, sides, step, needs_gradient, *lifted, *parameters)
        return sums

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """Batch against batch; a loss with proxies puts them on a side."""
        classes = labels.classes

        def target(part: slice) -> Tensor:
            # A matrix has the anchors as its rows.
            return labels.distances(part if anchors is None or isinstance(labels, _MatrixView) else anchors[part])

        itself = 0 if anchors is None else anchors
        classes = classes if classes is None else classes.to(embeddings.device)
        anchor_class = classes if classes is None or anchors is None else classes[anchors]
        x = embeddings if anchors is None else embeddings[anchors]
        twin = getattr(labels, "twin", None)  # of a memory's view
        return Sides(x, embeddings, target, itself, anchor_class, classes, twin)

    def block(self, sides: Sides, s: Tensor, part: slice) -> Block:
        """What `rows` reads of these anchors, given their similarities or distances s `[A, B]`."""
        itself = sides.itself
        block = Block(
            s=s,
            target=sides.target(part).to(s.device, s.dtype),
            itself=itself + part.start if isinstance(itself, int) else None if itself is None else itself[part],
            anchor_class=None if sides.anchor_class is None else sides.anchor_class[part],
            item_class=sides.item_class,
            dim=sides.y.shape[1],
            twin=None if sides.twin is None else sides.twin(part),
        )
        return block if self.miner is None else replace(block, mined=self.miner(self._candidates(block)))

    def _candidates(self, block: Block) -> Candidates:
        s = block.s.detach()
        if self.similarity not in ("cosine", "dot"):
            squared = s if self.similarity == "squared_euclidean" else s.square()
            s = 1 - squared / 2 if self.unit else -s
        first = block.itself if isinstance(block.itself, int) else 0
        places = torch.arange(first, first + len(s), device=s.device)
        anchors = block.itself if isinstance(block.itself, Tensor) else places
        return Candidates(s, block.positive > 0, block.negative > 0, anchors, block.dim)

    def _rows_of(self, sides: Sides, s: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        return self.rows(self.block(sides, s, part))


class _Blocked(torch.autograd.Function):
    """`sums` over blocks of rows; the gradients of each block are taken at once and added up."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: RowLoss,
        sides: Sides,
        step: int,
        needs_gradient: bool,
        rows: Tensor,
        cols: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inputs = (rows, cols, *parameters)
        wanted = [needs_gradient and tensor.requires_grad for tensor in inputs]
        of_items = wanted[0] or wanted[1]
        x, y = rows.detach(), cols.detach()
        sums: tuple[Tensor, Tensor] | None = None
        gradients: list[list[Tensor]] = []  # [T][input]
        for start in range(0, len(rows), step):
            part = slice(start, min(start + step, len(rows)))
            block = block_values(loss.similarity, x[part], y)
            s = block.s.requires_grad_(of_items)
            with torch.set_grad_enabled(any(wanted)):
                values, counts = _columns(loss._rows_of(sides, root(loss.similarity, s), part))
            # Added up in place: a small tensor kept from each block would lie in the way of the large ones of the next,
            # and the heap would grow block by block.
            if sums is None:
                sums = (values.detach().sum(0), counts.detach().sum(0))
            else:
                sums[0].add_(values.detach().sum(0))
                sums[1].add_(counts.detach().sum(0))
            if not values.requires_grad:
                continue
            if not gradients:
                gradients = [[torch.zeros_like(t) for t in inputs] for _ in range(values.shape[1])]
            leaves = [s] * of_items + [p for p, want in zip(parameters, wanted[2:], strict=True) if want]
            for t, total in enumerate(gradients):
                last = t + 1 == len(gradients)
                with torch.enable_grad():
                    value = values[:, t].sum()
                found = list(torch.autograd.grad(value, leaves, retain_graph=not last, allow_unused=True))
                of_s = found.pop(0) if of_items else None
                if of_s is not None:
                    add_gradient(of_s, block, x[part], y, total[0][part], total[1])
                learning = [position for position, want in enumerate(wanted) if want and position > 1]
                for position, gradient in zip(learning, found, strict=True):
                    if gradient is not None:
                        total[position].add_(gradient)
        ctx.gradients, ctx.wanted = gradients, wanted
        assert sums is not None
        values, counts = sums
        ctx.mark_non_differentiable(counts)
        return values, counts

    @staticmethod
    def backward(ctx: Any, values: Tensor, _counts: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(NO_DOUBLE_BACKWARD)
        # Scaled copies: a second backward through the same graph needs the gradients again.
        gradients: list[Tensor | None] = []
        for position, want in enumerate(ctx.wanted):
            parts = (
                [value * total[position] for value, total in zip(values, ctx.gradients, strict=True)] if want else []
            )
            gradients.append(sum(parts[1:], parts[0]) if parts else None)
        return (None, None, None, None, *gradients)


class _MatrixView:
    """Label distances given as a matrix `[A, B]`: row a is anchor a."""

    classes = None

    def __init__(self, matrix: Tensor, kind: LabelKind) -> None:
        self.matrix, self.kind = matrix, kind

    def __len__(self) -> int:
        return self.matrix.shape[1]

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        return self.matrix if anchors is None else self.matrix[anchors]


class _ClassView:
    """Integer classes `[B]`, consecutive or not."""

    kind: LabelKind = "classes"

    def __init__(self, classes: Tensor) -> None:
        self.classes = classes

    def __len__(self) -> int:
        return len(self.classes)

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        return class_distance(self.classes if anchors is None else self.classes[anchors], self.classes)


def _view(loss: RowLoss, embeddings: Tensor, labels: object, anchors: Tensor | None) -> LabelView:
    name = type(loss).__name__
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(
            f"{name}: embeddings are {embeddings.dtype} {list(embeddings.shape)}; give floats [items, dim]"
        )
    batch = len(embeddings)
    if batch < 2:
        raise InputError(f"{name}: the batch has {batch} item; a loss compares items, so give at least 2")
    view: LabelView
    if isinstance(labels, Tensor):
        rows = batch if anchors is None else len(anchors)
        view = _matrix_or_classes(name, loss.labels, labels, batch, rows, embeddings.device)
    elif isinstance(labels, LabelView):
        view = labels
    else:
        hint = (
            "pass space.view(rows)" if isinstance(labels, LabelSpace) else "pass a tensor, or a view of a label space"
        )
        raise InputError(f"{name}: labels are a {type(labels).__name__}; {hint}")
    if len(view) != batch:
        raise InputError(f"{name}: {batch} embeddings, but the labels are of {len(view)} items; give one label an item")
    if loss.labels == "classes" and view.classes is None:
        raise InputError(
            f"{name} needs classes, but the labels are {_WORDS[view.kind]}; use ClassLabels or integer classes [B]"
        )
    if loss.labels == "binary" and view.kind == "distances":
        raise InputError(
            f"{name} needs label distances of 0 and 1, but the labels are {_WORDS[view.kind]}; "
            "set a threshold: ThresholdLabels(threshold, space=...) or NearestLabels(k, space=...)"
        )
    return view


_WORDS = {"distances": "a matter of degree", "binary": "0 / 1 without class ids", "classes": "classes"}


def _matrix_or_classes(
    name: str, needs: LabelKind, labels: Tensor, batch: int, anchors: int, device: torch.device
) -> LabelView:
    if labels.ndim == 1 and not labels.is_floating_point() and labels.dtype != torch.bool:
        return _ClassView(labels.to(device))
    if labels.ndim != 2 or labels.shape != (anchors, batch):
        raise InputError(
            f"{name}: labels are {labels.dtype} {list(labels.shape)}; give label distances [{anchors}, {batch}] "
            f"(anchors, items), or integer classes [{batch}]"
        )
    matrix = checked(labels if labels.dtype == torch.float64 else labels.float())
    # Whether all are 0 or 1 is looked up for a loss that needs it alone: it costs three passes.
    binary = needs != "distances" and bool(((matrix == 0) | (matrix == 1)).all())
    return _MatrixView(matrix, "binary" if binary else "distances")


def _positions(anchors: Tensor | None, embeddings: Tensor) -> Tensor | None:
    if anchors is None:
        return None
    positions = torch.as_tensor(anchors, device=embeddings.device)
    if positions.numel() == 0:
        return positions.reshape(0).long()
    if positions.ndim != 1 or positions.is_floating_point() or positions.dtype == torch.bool:
        raise InputError(f"anchors are {positions.dtype} {list(positions.shape)}; give positions [A] in the batch")
    if not 0 <= int(positions.min()) <= int(positions.max()) < len(embeddings):
        raise InputError(f"anchors are positions in a batch of {len(embeddings)}: 0 to {len(embeddings) - 1}")
    return positions


def _rows_of_a_block(items: int, device: torch.device) -> int:
    return max(1, _ENTRIES.get(device.type, _ENTRIES_DEVICE) // max(items, 1))


def _columns(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    values, counts = rows
    return (values[:, None], counts[:, None]) if values.ndim == 1 else (values, counts)
