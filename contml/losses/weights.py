"""The unified view as a tool: every pair loss is a way to weigh the pairs of an anchor.

    w_ij = (1 - 2 I_ij) dH / ds_ij        I_ij: 1 for positives, else 0

"A Unified View of Deep Metric Learning via Gradient Analysis". H is the sum of the loss's values, before they are
divided by what they have in common (the 1/m of most); the derivative is that of row i's entry alone, s_ij and s_ji
being two. A weight is >= 0 where the loss pulls positives and pushes negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contml.contracts import InputError, LabelView
from contml.distances.euclidean import pairs
from contml.losses.rows import RowLoss, Sides, _rows_of_a_block


def pair_weights(
    loss: nn.Module, embeddings: Tensor, labels: Tensor | LabelView, *, anchors: Tensor | None = None
) -> Tensor:
    """The weight that a loss gives each pair of a batch, as `[A, B]`, without a graph.

    The similarity is the cosine where the loss compares unit vectors, also where it is written on their distance. Where
    it takes embeddings as they come, it is the dot product, or minus the distance that the loss is written on (plain or
    squared Euclidean). A miner of the loss has its say first, and keeps the draws of the last training call.

    Args:
        loss: a pair loss, a `RowLoss`.
        embeddings: `[B, d]`.
        labels: as the loss takes them; positives are at label distance 0.
        anchors: positions `[A]` of the anchors in the batch; default all items.

    Returns:
        Anchors by items; where a loss has proxies, items by proxies `[A, P]`, or proxies by items `[P, B]`. 0 for an
        anchor with itself, and for pairs that the loss does not read.

    Raises:
        InputError: this is no pair loss, or it refuses the embeddings or the labels.
    """
    if not isinstance(loss, RowLoss):
        name = getattr(loss, "__name__", type(loss).__name__)
        raise InputError(f"{name} has no pair weights; give a pair loss, such as RAWLoss()")
    training = loss.miner is not None and loss.miner.training
    try:
        if loss.miner is not None:
            loss.miner.eval()
        with torch.no_grad():
            sides = loss.sides_of(embeddings, labels, anchors)
            weights = _in_blocks(loss, sides)
    finally:
        if loss.miner is not None:
            loss.miner.train(training)
    if not isinstance(sides.itself, Tensor):
        return weights
    # A loss may have anchors of its own choice: those of the call that it left out weigh nothing.
    row = torch.full((len(embeddings),), -1, device=weights.device)
    row[sides.itself] = torch.arange(len(weights), device=weights.device)
    row = row if anchors is None else row[anchors]
    return torch.cat((weights, weights.new_zeros(1, weights.shape[1])))[row]


def _in_blocks(loss: RowLoss, sides: Sides) -> Tensor:
    rows = len(sides.x)
    step = max(1, rows if loss.whole else loss.block_rows or _rows_of_a_block(len(sides.y), sides.y.device))
    parts = [slice(start, min(start + step, rows)) for start in range(0, max(rows, 1), step)]
    return torch.cat([row_weights(loss, sides, pairs(loss.similarity, sides.x[part], sides.y), part) for part in parts])


def row_weights(loss: RowLoss, sides: Sides, s: Tensor, part: slice, *, sphere: bool | None = None) -> Tensor:
    """The weights `[A, B]` of some anchors' pairs, of which s `[A, B]` are the similarities or distances.

    sphere: take s to be those of unit vectors; None: as the loss has it.
    """
    s = s.detach().requires_grad_()
    with torch.enable_grad():
        block = loss.block(sides, s, part)
        values, _ = loss.rows(block)
        total = values.sum() + 0 * s.sum()  # so that there is a graph where nothing is compared
    (slope,) = torch.autograd.grad(total, s)
    with torch.no_grad():
        slope = slope * _of_similarity(loss, s, loss.unit if sphere is None else sphere)
        return block.without_self(torch.where(block.target == 0, -slope, slope) + 0)  # + 0: no weight is -0


def _of_similarity(loss: RowLoss, s: Tensor, sphere: bool) -> Tensor | float:
    """The derivative of what the loss is written on, s, by the similarity."""
    if loss.similarity in ("cosine", "dot"):
        return 1.0
    if not sphere:
        return -1.0
    if loss.similarity == "squared_euclidean":
        return -2.0  # D = 2 - 2 s
    # d = sqrt(2 - 2 s). At distance 0 the slope is infinite, and taken as 0 as in every gradient here.
    return torch.where(s > 0, -1 / torch.where(s > 0, s, 1), 0)
