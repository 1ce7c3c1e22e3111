"""The unified view of pair losses: every pair loss assigns a weight to each pair of an anchor.

    w_ij = (1 - 2 I_ij) dH / ds_ij        I_ij: 1 for positives, else 0

"A Unified View of Deep Metric Learning via Gradient Analysis". H is the sum of the loss's values, before the division
by their number (the 1/m of most losses). s_ij and s_ji are separate variables: w_ij is the derivative with respect to
row i only. A weight is >= 0 where the loss pulls positives closer and pushes negatives away.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.euclidean import pairs
from contml.labels.base import LabelSpace
from contml.losses.driver import Comparison, PairLoss
from contml.losses.inputs import as_anchors


def pair_weights(
    loss: object, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None
) -> Tensor:
    """Return the weight that a loss gives each pair of a batch, `[A, B]`, without an autograd graph.

    The similarity s is the cosine where the loss compares unit vectors, even if its formula uses their distance. For
    embeddings that are not normalized, s is the dot product, or minus the distance of the formula (Euclidean or squared
    Euclidean). A miner of the loss weighs the pairs first. The miner repeats the draws of its last training call.

    Args:
        loss: a pair loss.
        embeddings: `[B, d]`.
        labels: as the loss takes them; positives are at label distance 0.
        anchors: positions `[A]` of the anchors in the batch; default all items.

    Returns:
        Anchors by items `[A, B]`. For a loss with proxies, items by proxies `[A, P]` or proxies by items `[P, B]`. The
        weight is 0 for an anchor with itself, and for pairs that the loss does not use.

    Raises:
        InputError: the loss is not a pair loss, or it refuses the embeddings or the labels.
    """
    if not isinstance(loss, PairLoss):
        name = loss.__name__ if isinstance(loss, type) else type(loss).__name__
        raise InputError(name, "no pair weights", "must be a pair loss", "for example RAWLoss()")
    training = loss.miner is not None and loss.miner.training
    try:
        if loss.miner is not None:
            loss.miner.train(False)
        with torch.no_grad():
            comparison = loss.compare(embeddings, labels, anchors)
            rows, step = len(comparison.x), loss.rows_of_a_block(comparison)
            slices = [slice(start, min(start + step, rows)) for start in range(0, max(rows, 1), step)]
            scores = (pairs(loss.pair_distance, comparison.x[part], comparison.y) for part in slices)
            blocks = zip(scores, slices, strict=True)
            weights = torch.cat([block_weights(loss, comparison, s, part) for s, part in blocks])
    finally:
        if loss.miner is not None:
            loss.miner.train(training)
    if comparison.rows is None or comparison.cols is None:
        return weights
    # The loss chose its pairs: all other pairs of the batch have weight 0.
    batch_weights = weights.new_zeros(len(embeddings), len(embeddings))
    # An anchor that appears twice has two rows. A partner reads the first row, so the first row is written last.
    for row, row_weights in zip(comparison.rows.flip(0).tolist(), weights.flip(0), strict=True):
        batch_weights[row, comparison.cols] = row_weights
    positions = as_anchors(anchors, embeddings)
    return batch_weights if positions is None else batch_weights[positions]


def block_weights(
    loss: PairLoss, comparison: Comparison, scores: Tensor, part: slice, *, on_sphere: bool | None = None
) -> Tensor:
    """Return the weights `[A, B]` of some anchors' pairs, given their similarities or distances `[A, B]`.

    `on_sphere` is True if the scores are of unit vectors. The default is the loss's `normalize`.
    """
    s = scores.detach().requires_grad_()
    with torch.enable_grad():
        block = loss.block(comparison, s, part)
        values, _ = loss.values(block)
        total = values.sum() + 0 * s.sum()  # + 0 * s: a graph even if nothing is compared
    (slope,) = torch.autograd.grad(total, s)
    with torch.no_grad():
        slope = slope * _score_derivative(loss, s, loss.normalize if on_sphere is None else on_sphere)
        counted = comparison.weights(s, part) > 0
        return torch.where(block.label_distances == 0, -slope, slope) * counted + 0  # + 0: no weight is -0


def _score_derivative(loss: PairLoss, s: Tensor, on_sphere: bool) -> Tensor | float:
    """Return the derivative of the scores with respect to the similarity."""
    if loss.distance in ("cosine", "dot"):
        return 1.0
    if not on_sphere:
        return -1.0
    if loss.distance == "squared_euclidean":
        return -2.0  # D = 2 - 2 s
    # d = sqrt(2 - 2 s). At distance 0 the derivative is infinite; it is set to 0, as in the gradient of every loss.
    return torch.where(s > 0, -1 / torch.where(s > 0, s, 1), 0)
