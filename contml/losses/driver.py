"""The driver of all pair losses: a loss is its formula on a block of anchors, the driver does everything else.

    loss = sum_t (sum_a values[a, t] / sum_a counts[a, t]) + penalty

It computes the similarities or distances of x (anchors, or proxies) to y (the items) by matrix product, label distances
when they are needed, and walks over blocks of rows, so that time is O(A B) and memory O(block x B). Gradients are
computed block by block in forward, once; there is no double backward. Where one block holds all rows, plain autograd
does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.options import options_of
from contml.contracts import Requirement
from contml.distances.euclidean import Distance, add_gradient, block_values, lift, normalize, pairs, root
from contml.labels.base import LabelSpace
from contml.losses.inputs import as_anchors, as_labels, check_embeddings
from contml.mining import Candidates, Miner

#: Entries of a block: a few of its temporaries fit the cache of a processor, and keep a GPU busy.
_ENTRIES = {"cpu": 1 << 21}
_ENTRIES_DEVICE = 1 << 24

#: A slice of all rows.
ALL = slice(None)
NO_DOUBLE_BACKWARD = "this loss has no double backward: leave out create_graph=True"


@dataclass(frozen=True)
class Block:
    """Some anchors against all items: what the formula of a loss reads.

    Attributes:
        scores: similarities or distances `[A, B]`, as the loss declares in `distance`.
        label_distances: `[A, B]`; positives are at 0.
        weights: `[A, B]`: how much a pair counts; 0 for an anchor with itself, with the same image in a memory, and for
            pairs that a miner leaves out.
        self_index: the position of each anchor among the items `[A]`; None where anchors are no items (proxies).
        anchor_class: class ids `[A]`, where labels are classes.
        item_class: class ids `[B]`, where labels are classes.
        dim: the embedding dimension.
    """

    scores: Tensor
    label_distances: Tensor
    weights: Tensor
    self_index: range | Tensor | None
    anchor_class: Tensor | None
    item_class: Tensor | None
    dim: int

    @cached_property
    def positive(self) -> Tensor:
        """`[A, B]`: the weight where the label distance is 0, else 0."""
        return (self.label_distances == 0).to(self.weights.dtype).mul_(self.weights)

    @cached_property
    def negative(self) -> Tensor:
        """`[A, B]`: the weight where the label distance is not 0, else 0."""
        return self.weights - self.positive


@dataclass(frozen=True)
class Comparison:
    """What a loss compares in one call: x `[A, d]`, the anchors, with y `[B, d]`, the items.

    Attributes:
        x: embeddings of the anchors, or proxies.
        y: embeddings of the items, or proxies.
        label_distances: the label distances `[a, B]` of a slice of the anchors.
        self_index: the position of each anchor among the items `[A]`; None where anchors are no items.
        anchor_class: class ids `[A]`, where labels are classes.
        item_class: class ids `[B]`, where labels are classes.
        excluded: of a slice of the anchors, the pairs that do not count, bool `[a, B]`, beside an anchor with itself.
        rows: the position of each anchor in the batch `[A]`; None: as the call gave them, or no items.
        cols: the position of each item in the batch `[B]`; None: all of the batch in order, or no items.
    """

    x: Tensor
    y: Tensor
    label_distances: Callable[[slice], Tensor]
    self_index: range | Tensor | None
    anchor_class: Tensor | None = None
    item_class: Tensor | None = None
    excluded: Callable[[slice], Tensor] | None = None
    rows: Tensor | None = None
    cols: Tensor | None = None

    def weights(self, scores: Tensor, part: slice) -> Tensor:
        """1 for each pair of these anchors, 0 for an anchor with itself (by position, never by value): `[a, B]`."""
        if self.self_index is None and self.excluded is None:
            return scores.new_ones(()).expand_as(scores)
        weights = torch.ones_like(scores, requires_grad=False)
        if isinstance(self.self_index, range):
            weights.diagonal(self.self_index[part].start).zero_()
        elif self.self_index is not None:
            index = self.self_index[part]
            weights[torch.arange(len(index), device=weights.device), index] = 0
        return weights if self.excluded is None else weights.masked_fill_(self.excluded(part), 0)


class PairLoss(nn.Module):
    """Base of the pair losses: a subclass declares what it compares and writes its formula, `values`.

    Class attributes that a subclass sets:

    - `requires`: what it needs of labels: "any", "graded", "binary" or "classes";
    - `distance`: what `Block.scores` are: "cosine", "dot", "squared_euclidean" or "euclidean";
    - `normalize`: embeddings are put on the unit sphere first;
    - `whole`: the formula needs the rows of all anchors at once, so that there are no blocks;
    - `takes_memory`: it compares a batch with itself, so that a memory can add items of earlier batches.

    `block_rows` sets how many anchors make a block (None: as many as suit the device).

    Args:
        miner: weighs the pairs before the loss sees them; for losses that read `Block.positive`, `Block.negative` or
            `Block.weights`.
    """

    requires: Requirement = "binary"
    distance: Distance = "cosine"
    normalize: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    takes_memory: ClassVar[bool] = True
    block_rows: int | None = None

    def __init__(self, *, miner: Miner | None = None) -> None:
        super().__init__()
        self.miner = miner

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """The formula: values and counts of a block's anchors, `[A]` or `[A, T]` each."""
        raise NotImplementedError(f"{type(self).__name__} has no values(self, block)")

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return options_of(self)

    def penalty(self, comparison: Comparison) -> Tensor | None:  # noqa: ARG002
        """A term that does not come from pairs, or None."""
        return None

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar in float32 (float64 for float64 embeddings).

        Args:
            embeddings: `[B, d]`.
            labels: a label space of the B items, such as `labels[rows]` of a data set; or a tensor: integer classes
                `[B]`, numbers `[B]`, or label distances `[A, B]`, one row for each anchor.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: shapes that do not fit, labels of another kind than the loss requires, NaN in label distances.
        """
        return self.value(self.compare(embeddings, labels, anchors))

    def value(self, comparison: Comparison) -> Tensor:
        """The loss of a comparison."""
        values, counts = self.sums(comparison)
        # A sum of counts of 0 has values of 0: nothing to compare, a zero that still back-propagates.
        total = (values / torch.where(counts > 0, counts, 1)).sum()
        penalty = self.penalty(comparison)
        return total if penalty is None else total + penalty

    def compare(self, embeddings: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> Comparison:
        """What is compared in a batch, checked; a new batch for the miner, where there is one."""
        name = type(self).__name__
        if self.miner is not None:
            if self.miner.sphere and not self.on_sphere:
                raise InputError(
                    f"{type(self.miner).__name__} needs cosine similarities, but {name} does not normalize "
                    "embeddings; choose another miner, or a loss on the unit sphere"
                )
            self.miner.begin()
        check_embeddings(name, embeddings)
        positions = as_anchors(anchors, embeddings)
        squared = self.distance != "euclidean"
        space = as_labels(name, self.requires, labels, embeddings, positions, squared=squared)
        comparison = self.comparison(embeddings, space, positions)
        if not self.normalize:
            return comparison
        x = normalize(comparison.x)
        return replace(comparison, x=x, y=x if comparison.x is comparison.y else normalize(comparison.y))

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Anchors with the batch; a loss with proxies, or with pairs of its own choice, overrides it."""
        classes = None if labels.class_ids is None else labels.class_ids.to(embeddings.device)
        if anchors is None:
            return Comparison(
                embeddings,
                embeddings,
                # Where all are compared with all, a label space may do half the work.
                lambda part: labels.pairwise(None if part == ALL else part),
                range(len(embeddings)),
                classes,
                classes,
            )
        return Comparison(
            embeddings[anchors],
            embeddings,
            lambda part: labels.pairwise(anchors[part]),
            anchors,
            None if classes is None else classes[anchors],
            classes,
        )

    @property
    def on_sphere(self) -> bool:
        """Whether pairs are compared on the unit sphere."""
        return self.normalize or self.distance == "cosine"

    def rows_of_a_block(self, comparison: Comparison) -> int:
        """How many anchors make a block."""
        if self.whole:
            return max(1, len(comparison.x))
        device, items = comparison.y.device.type, len(comparison.y)
        return self.block_rows or max(1, _ENTRIES.get(device, _ENTRIES_DEVICE) // max(items, 1))

    def sums(self, comparison: Comparison) -> tuple[Tensor, Tensor]:
        """Sums of values and of counts over the anchors, `[T]` each; values carry the gradient."""
        x, y = comparison.x, comparison.y
        step = self.rows_of_a_block(comparison)
        if len(x) <= step:
            scores = pairs(self.distance, x, y)
            values, counts = _columns(self.values(self.block(comparison, scores, ALL)))
            return values.sum(0), counts.sum(0)
        lifted = lift(self.distance, x, y)
        parameters = [p for p in self.parameters() if p.requires_grad]
        needs_gradient = torch.is_grad_enabled()
        with torch.autocast(x.device.type, enabled=False):  # or the products of the blocks would be in half precision
            sums: tuple[Tensor, Tensor] = _Blocked.apply(self, comparison, step, needs_gradient, *lifted, *parameters)
        return sums

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """What `values` reads of these anchors, given their similarities or distances `[A, B]`."""
        self_index, anchor_class = comparison.self_index, comparison.anchor_class
        block = Block(
            scores=scores,
            label_distances=comparison.label_distances(part).to(scores.device, scores.dtype),
            weights=comparison.weights(scores, part),
            self_index=None if self_index is None else self_index[part],
            anchor_class=None if anchor_class is None else anchor_class[part],
            item_class=comparison.item_class,
            dim=comparison.y.shape[1],
        )
        return block if self.miner is None else replace(block, weights=block.weights * self._mined(block))

    def _mined(self, block: Block) -> Tensor:
        """The miner's weights `[A, B]`."""
        assert self.miner is not None
        s = block.scores.detach()
        if self.distance not in ("cosine", "dot"):
            squared = s if self.distance == "squared_euclidean" else s.square()
            s = 1 - squared / 2 if self.normalize else -s
        anchors = block.self_index
        if not isinstance(anchors, Tensor):
            anchors = torch.arange(len(s), device=s.device) + (0 if anchors is None else anchors.start)
        weights: Tensor = self.miner(Candidates(s, block.positive > 0, block.negative > 0, anchors, block.dim))
        return weights


class _Blocked(torch.autograd.Function):
    """`sums` over blocks of rows; the gradients of each block are taken at once and added up."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: PairLoss,
        comparison: Comparison,
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
            block = block_values(loss.distance, x[part], y)
            s = block.s.requires_grad_(of_items)
            with torch.set_grad_enabled(any(wanted)):
                scores = root(loss.distance, s)
                values, counts = _columns(loss.values(loss.block(comparison, scores, part)))
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


def _columns(found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    values, counts = found
    return (values[:, None], counts[:, None]) if values.ndim == 1 else (values, counts)
