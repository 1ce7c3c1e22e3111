"""The driver of all pair losses: a loss defines its formula on a block of anchors, and the driver does the rest.

    loss = sum_t (sum_a values[a, t] / sum_a counts[a, t]) + penalty

The driver computes the similarities or distances of x (anchors, or proxies) to y (the items) by matrix product. It also
computes their label distances. It works in blocks of rows: time is O(A B), memory O(block x B). It computes the
gradient of each block once, in the forward pass. There is no double backward. If one block holds all rows, plain
autograd computes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.text import options_of
from contml.contracts import Candidates, PairMiner, Requirement
from contml.distances.euclidean import Distance, add_gradient, block_values, lift, no_autocast, normalize, pairs, root
from contml.labels.base import LabelSpace
from contml.losses.inputs import as_anchors, as_labels, check_embeddings, nan_unless_finite

#: Entries in a block: on a CPU a few temporaries of this size fit the cache; on a GPU they keep it busy.
_ENTRIES_CPU, _ENTRIES_GPU = 1 << 21, 1 << 24

#: A slice of all rows.
ALL = slice(None)


@dataclass(frozen=True)
class Block:
    """Some anchors compared with all items: the input of a loss's formula.

    Attributes:
        scores: similarities or distances `[A, B]`, as the loss declares in `distance`.
        label_distances: label distances `[A, B]`. They are 0 for positives, and for pairs without a label distance.
        weights: the weight of each pair `[A, B]`. It is 0 for an anchor with itself, and with its own image in a
            memory. It is also 0 for pairs without a label distance, and for pairs that a miner leaves out.
        self_index: the position of each anchor among the items `[A]`; None where anchors are not items (proxies).
        anchor_class: class ids `[A]`, where labels are classes.
        item_class: class ids `[B]`, where labels are classes.
        dim: the embedding dimension.
        similarity: degree to which a pair is positive `[A, B]`, in [0, 1]. None means 1 at label distance 0, else 0.
        compared: True for an anchor that has a pair with a label distance, bool `[A]`. None means that all anchors have
            one. Other anchors do not count when a sum is divided by the number of anchors.
    """

    scores: Tensor
    label_distances: Tensor
    weights: Tensor
    self_index: range | Tensor | None
    anchor_class: Tensor | None
    item_class: Tensor | None
    dim: int
    similarity: Tensor | None = None
    compared: Tensor | None = None

    @cached_property
    def positive(self) -> Tensor:
        """Weights of the positives `[A, B]`: the weight at label distance 0, else 0.

        With `similarity`, they are the weight times the similarity.
        """
        if self.similarity is not None:
            return self.weights * self.similarity
        return (self.label_distances == 0).to(self.weights.dtype).mul_(self.weights)

    @cached_property
    def negative(self) -> Tensor:
        """Weights of the negatives `[A, B]`: `weights` minus `positive`."""
        return self.weights - self.positive


@dataclass(frozen=True)
class Comparison:
    """The inputs of one call: the anchors x `[A, d]` are compared with the items y `[B, d]`.

    Attributes:
        x: embeddings of the anchors, or proxies; of length 1 if the loss compares unit vectors.
        y: embeddings of the items, or proxies; of length 1 if the loss compares unit vectors.
        label_distances: a function that returns the label distances `[a, B]` of a slice of the anchors.
        self_index: the position of each anchor among the items `[A]`; None where anchors are not items.
        anchor_class: class ids `[A]`, where labels are classes.
        item_class: class ids `[B]`, where labels are classes.
        excluded: a function that returns the pairs of a slice of the anchors that do not count, bool `[a, B]`. An
            anchor with itself never counts.
        known: a function that returns the pairs of a slice of the anchors that have a label distance, bool `[a, B]`.
            None means that all pairs have one.
        rows: the position of each anchor in the batch `[A]`; None: as in the call, or anchors are proxies.
        cols: the position of each item in the batch `[B]`; None: the whole batch in order, or items are proxies.
        batch: all embeddings of the call, compared or not; `PairLoss.compare` sets it.
    """

    x: Tensor
    y: Tensor
    label_distances: Callable[[slice], Tensor]
    self_index: range | Tensor | None
    anchor_class: Tensor | None = None
    item_class: Tensor | None = None
    excluded: Callable[[slice], Tensor] | None = None
    known: Callable[[slice], Tensor] | None = None
    rows: Tensor | None = None
    cols: Tensor | None = None
    batch: Tensor | None = None

    def weights(self, scores: Tensor, part: slice) -> Tensor:
        """Return 1 for each pair of these anchors that counts, else 0, `[a, B]`.

        An anchor with itself does not count: it is recognized by its position, never by its value. Pairs that are
        excluded, or that have no label distance, do not count either.
        """
        if self.self_index is None and self.excluded is None and self.known is None:
            return scores.new_ones(()).expand_as(scores)
        weights = torch.ones_like(scores, requires_grad=False)
        if isinstance(self.self_index, range):
            weights.diagonal(self.self_index[part].start).zero_()
        elif self.self_index is not None:
            index = self.self_index[part]
            weights[torch.arange(len(index), device=weights.device), index] = 0
        if self.excluded is not None:
            weights.masked_fill_(self.excluded(part), 0)
        return weights if self.known is None else weights.masked_fill_(~self.known(part).to(weights.device), 0)


class PairLoss(nn.Module):
    """Base of the pair losses: a subclass declares what it compares and implements its formula, `values`.

    Class attributes that a subclass sets:

    - `requires`: the kind of labels that it needs: "any", "graded", "binary" or "classes";
    - `distance`: the kind of `Block.scores`: "cosine", "dot", "squared_euclidean" or "euclidean";
    - `normalize`: True if embeddings are normalized first;
    - `needs_whole_batch`: True if the formula needs all anchors in one block;
    - `takes_memory`: True if the loss compares a batch with itself, so that a memory can add items of earlier batches.

    `block_rows` is the number of anchors in a block. None means that the driver chooses it for the device.

    Args:
        miner: weights the pairs before the loss; for losses that read `Block.positive`, `Block.negative` or
            `Block.weights`.
    """

    requires: Requirement = "binary"
    distance: Distance = "cosine"
    normalize: ClassVar[bool] = False
    needs_whole_batch: bool = False
    takes_memory: bool = True
    block_rows: int | None = None

    def __init__(self, *, miner: PairMiner | None = None) -> None:
        super().__init__()
        self.miner = miner

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Compute the formula: return values and counts of the anchors of a block, `[A]` or `[A, T]` each."""
        raise NotImplementedError(f"{type(self).__name__} has no values(self, block)")

    def extra_repr(self) -> str:
        """Return the options, for `repr`."""
        return options_of(self)

    def penalty(self, comparison: Comparison) -> Tensor | None:  # noqa: ARG002
        """Return a term of the loss that is not a sum over pairs. Return None if the loss has no such term."""
        return None

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar in float32 (float64 for float64 embeddings).

        `labels` are a label space, or a tensor or an array. Floats `[B]` are numbers. A matrix `[A, B]` holds label
        distances with one row per anchor. Integers `[B]` are classes, for losses on classes and on labels of 0 and 1.
        Other losses refuse integers.

        Args:
            embeddings: `[B, d]`.
            labels: the labels of the B items, such as `labels[rows]` of a data set.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: shapes do not fit, labels are of another kind than the loss requires, or a label distance is
                NaN.
        """
        return self.value(self.compare(embeddings, labels, anchors))

    def value(self, comparison: Comparison) -> Tensor:
        """Compute the loss of a comparison. Return NaN if an embedding of the batch or a parameter is not finite."""
        values, counts = self.sums(comparison)
        # If the counts sum to 0, the values are not divided: the loss is a sum, or it is 0 since nothing is compared.
        total = (values / torch.where(counts > 0, counts, 1)).sum()
        penalty = self.penalty(comparison)
        total = total if penalty is None else total + penalty
        # Pairs that do not count would hide their NaN.
        tensors = list(self.parameters()) if comparison.batch is None else [comparison.batch, *self.parameters()]
        return total + nan_unless_finite(tensors).to(total)

    def compare(self, embeddings: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> Comparison:
        """Check a batch and return its comparison. Also start a new batch of the miner."""
        name = type(self).__name__
        if self.miner is not None:
            if self.miner.sphere and not self.on_sphere:
                hint = "choose another miner, or a loss that normalizes embeddings"
                raise InputError(type(self.miner).__name__, f"unnormalized embeddings of {name}", "needs cosines", hint)
            self.miner.begin()
        check_embeddings(embeddings)
        positions = as_anchors(anchors, embeddings)
        space = as_labels(name, self.requires, labels, embeddings, positions)
        comparison = self.comparison(embeddings, space, positions)
        x, y = comparison.x, comparison.y
        if self.on_sphere:
            same = x is y
            x = normalize(x)
            y = x if same else normalize(y)
        return replace(comparison, x=x, y=y, batch=embeddings)

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare the anchors with the batch. A loss that has proxies or chooses its pairs overrides this method."""
        classes = None if labels.class_ids is None else labels.class_ids.to(embeddings.device)
        x, anchor_class = embeddings, classes
        if anchors is not None:
            x, anchor_class = embeddings[anchors], None if classes is None else classes[anchors]

        def rows(part: slice) -> Tensor | slice | None:
            if anchors is not None:
                return anchors[part]
            # Without a slice, a label space may compute only half of the symmetric matrix.
            return None if part == ALL else part

        def label_distances(part: slice) -> Tensor:
            return labels.pairwise(rows(part))

        def known(part: slice) -> Tensor:
            has_distance = labels.known(rows(part))
            assert has_distance is not None  # of partial labels
            return has_distance

        index, of_partial = range(len(embeddings)) if anchors is None else anchors, known if labels.is_partial else None
        return Comparison(x, embeddings, label_distances, index, anchor_class, classes, known=of_partial)

    @property
    def on_sphere(self) -> bool:
        """True if the scores are computed from unit vectors."""
        return self.normalize or self.distance == "cosine"

    @property
    def pair_distance(self) -> Distance:
        """The distance that gives the scores of a comparison: the cosine of unit vectors is their dot product."""
        return "dot" if self.distance == "cosine" else self.distance

    def rows_of_a_block(self, comparison: Comparison) -> int:
        """Return the number of anchors in a block."""
        if self.needs_whole_batch:
            return max(1, len(comparison.x))
        entries = _ENTRIES_CPU if comparison.y.device.type == "cpu" else _ENTRIES_GPU
        return self.block_rows or max(1, entries // max(len(comparison.y), 1))

    def sums(self, comparison: Comparison) -> tuple[Tensor, Tensor]:
        """Sum the values and the counts over the anchors, `[T]` each. Only the values have a gradient."""
        x, y = comparison.x, comparison.y
        step = self.rows_of_a_block(comparison)
        if len(x) <= step:
            with no_autocast(x):
                values, counts = _columns(self, self.block(comparison, pairs(self.pair_distance, x, y), ALL))
                return values.sum(0), counts.sum(0)
        lifted = lift(self.pair_distance, x, y)
        parameters = [p for p in self.parameters() if p.requires_grad]
        needs_gradient = torch.is_grad_enabled()
        with no_autocast(x):
            sums: tuple[Tensor, Tensor] = _Blocked.apply(self, comparison, step, needs_gradient, *lifted, *parameters)
        return sums

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """Return the block of these anchors, given their similarities or distances `[A, B]`."""
        label_distances = comparison.label_distances(part).to(scores.device, scores.dtype)
        weights, dim = comparison.weights(scores, part), comparison.y.shape[1]
        index = None if comparison.self_index is None else comparison.self_index[part]
        anchor_class = None if comparison.anchor_class is None else comparison.anchor_class[part]
        compared = None if comparison.known is None else (weights > 0).any(1)
        classes = anchor_class, comparison.item_class
        block = Block(scores, label_distances, weights, index, *classes, dim, compared=compared)
        if self.miner is None:
            return block
        return replace(block, weights=block.weights * self._miner_weights(self.miner, block))

    def _miner_weights(self, miner: PairMiner, block: Block) -> Tensor:
        s = block.scores.detach()
        if self.distance not in ("cosine", "dot"):
            squared = s if self.distance == "squared_euclidean" else s.square()
            s = 1 - squared / 2 if self.normalize else -s
        anchors = block.self_index
        if not isinstance(anchors, Tensor):
            anchors = torch.arange(len(s), device=s.device) + (0 if anchors is None else anchors.start)
        return miner(Candidates(s, block.positive > 0, block.negative > 0, anchors, block.dim))


def refuse_double_backward() -> None:
    """Refuse to differentiate a gradient that was computed in the forward pass, which is a constant for autograd.

    Raises:
        RuntimeError: autograd records the backward pass.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("this loss has no double backward: omit create_graph=True")


class _Blocked(torch.autograd.Function):
    """`PairLoss.sums` over blocks of rows. The forward pass computes the gradient of each block and adds them up."""

    @staticmethod
    def forward(
        ctx: Any, loss: PairLoss, comparison: Comparison, step: int, needs_gradient: bool, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        needed = [needs_gradient and tensor.requires_grad for tensor in inputs]  # rows, columns, parameters
        scores_need_gradient = needed[0] or needed[1]
        x, y = inputs[0].detach(), inputs[1].detach()
        sums: tuple[Tensor, Tensor] | None = None
        gradients: list[list[Tensor]] = []  # [T][input]
        for start in range(0, len(x), step):
            part = slice(start, min(start + step, len(x)))
            block = block_values(loss.pair_distance, x[part], y)
            s = block.s.requires_grad_(scores_need_gradient)
            with torch.set_grad_enabled(any(needed)):
                values, counts = _columns(loss, loss.block(comparison, root(loss.pair_distance, s), part))
            # The sum is in place: a small tensor kept from each block would fragment the heap, which would then grow
            # block by block.
            if sums is None:
                sums = (values.detach().sum(0), counts.detach().sum(0))
            else:
                sums[0].add_(values.detach().sum(0))
                sums[1].add_(counts.detach().sum(0))
            if not values.requires_grad:
                continue
            if not gradients:
                gradients = [[torch.zeros_like(t) for t in inputs] for _ in range(values.shape[1])]
            parameter_positions = [position for position in range(2, len(inputs)) if needed[position]]
            leaves = [s] * scores_need_gradient + [inputs[position] for position in parameter_positions]
            for t, sum_gradients in enumerate(gradients):
                is_last = t + 1 == len(gradients)
                with torch.enable_grad():
                    value = values[:, t].sum()
                block_gradients = list(torch.autograd.grad(value, leaves, retain_graph=not is_last, allow_unused=True))
                score_gradient = block_gradients.pop(0) if scores_need_gradient else None
                if score_gradient is not None:
                    add_gradient(score_gradient, block, x[part], y, sum_gradients[0][part], sum_gradients[1])
                for position, gradient in zip(parameter_positions, block_gradients, strict=True):
                    if gradient is not None:
                        sum_gradients[position].add_(gradient)
        ctx.gradients, ctx.needed = gradients, needed
        assert sums is not None
        values, counts = sums
        ctx.mark_non_differentiable(counts)
        return values, counts

    @staticmethod
    def backward(ctx: Any, values: Tensor, _counts: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        # Not scaled in place: a second backward through the same graph needs the gradients again.
        gradients: list[Tensor | None] = []
        for position, need in enumerate(ctx.needed):
            terms = [value * total[position] for value, total in zip(values, ctx.gradients, strict=True) if need]
            gradients.append(sum(terms[1:], terms[0]) if terms else None)
        return (None, None, None, None, *gradients)


def _columns(loss: PairLoss, block: Block) -> tuple[Tensor, Tensor]:
    """Return values and counts of a block, `[A, T]` each. An anchor that is compared with nothing has count 0."""
    values, counts = loss.values(block)
    values, counts = (values[:, None], counts[:, None]) if values.ndim == 1 else (values, counts)
    if block.compared is not None and len(counts) == len(block.compared):  # else the values are not of anchors
        counts = counts * block.compared[:, None]
    return values, counts
