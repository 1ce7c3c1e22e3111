"""Items whose label is not what their embedding predicts.

A ridge regression predicts each label from the embedding. It is fitted on items of other folds. A prediction is a set
of weights h_ij of the items j, with sum 1, that stand for the label "sum_j h_ij y_j". Such a sum needs no coordinates
of labels. Its squared distance from the label of item i follows from label distances D, as if D were squared distances:

    a_i = sum_j h_ij D_ij - 1/2 sum_jk h_ij h_ik D_jk
    b_i = the same with equal weights h_ij: the distance from the mean label
    q_i = max(a_i, 0) / b_i          b_i not below 3/4 and not above 5/4 of its mean over the items

    score_i = (q_i + 0.05) / sqrt(mean of q_j over the k nearest items j + 0.05)

q is near 0 if the label is as predicted. q is near 1 if the prediction is no better than the mean label, and larger if
the prediction is worse. A label that is far from most labels is also far from its prediction: the division by b_i
corrects for this. The root is a local scale: of two items with equal q, the item whose neighbours are predicted well is
more suspicious. The scores read only label distances, so labels of every kind can be scored.

The penalty of the regression is the one with the least mean a_i. Two items may have no label in common. Their label
distance is replaced by the mean label distance of the item. Ties of embedding distances go to the lower row. If all
labels are equal, q is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from contml._support.conversion import Numbers
from contml._support.errors import InputError
from contml._support.ids import as_class_ids, as_group_ids
from contml._support.validation import check_whole
from contml.evaluation.query_gallery import QueryGallery, as_embeddings, as_row_numbers
from contml.labels.base import LabelSpace, check_label_space

#: Neighbours of an item, at most one in _LOCAL of the items. Folds of items that one network embeds.
NEIGHBOURS, _LOCAL, _FOLDS = 20, 5, 5
#: Items on which the regression is fitted, at most, and the seed that draws these and the folds.
FITTED, _SEED = 10_000, 0
#: Penalties as shares of the total variance of the embedding; infinite: the prediction is the mean label.
_PENALTIES = torch.cat([torch.logspace(-5, 1, 13, dtype=torch.float64), torch.tensor([torch.inf])])
#: Bounds of b as shares of its mean, and what is added to both sides of the ratio of a score.
_LEAST, _MOST, _SMOOTHING = 0.75, 1.25, 0.05
#: Entries of a block of label distances, at most.
_BLOCK = 1 << 22


class LabelErrors(NamedTuple):
    """The distance of each item's label from the label that its embedding predicts.

    Attributes:
        scores: `[N]`, float64, the higher the more suspicious. NaN for an item without an embedding or without a label
            in common with other items.
        errors: q `[N]`, float64: the squared distance of the label from its prediction, divided by the squared distance
            from the mean label. NaN as in scores.
        neighbours: the rows of the nearest items by embedding `[N, k]`, nearest first. -1 for an item without an
            embedding.
        label_distances: the label distances of the item to these neighbours `[N, k]`, float64. NaN without a label in
            common.
    """

    scores: Tensor
    errors: Tensor
    neighbours: Tensor
    label_distances: Tensor

    @property
    def order(self) -> Tensor:
        """The rows that have a score, the highest score first. Of equal scores, the lower row is first."""
        rows = self.scores.isfinite().nonzero()[:, 0]
        return rows[self.scores[rows].sort(descending=True, stable=True).indices]


def label_errors(
    embeddings: Numbers | Iterable[Numbers],
    labels: LabelSpace,
    *,
    k: int | None = None,
    folds: Numbers | None = None,
    missing: Numbers | None = None,
    groups: Numbers | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> LabelErrors:
    """Score each item by the distance of its label from the label that its embedding predicts.

    A network that was trained on an item may have learned its wrong label. Give embeddings of items that the network
    has not seen, or the embeddings of several networks, with `folds`. Features of a backbone find more errors than a
    short embedding.

    Args:
        embeddings: `[N, d]`, one for each row of the label space. With `folds`, one such matrix per fold, made by the
            network of this fold, in order.
        labels: the label space.
        k: the number of neighbours. Default 20, or a fifth of the items if there are fewer than 100.
        folds: the fold of each row `[N]`, 0, 1, ... The network of fold f has not seen the rows of fold f. A regression
            on the rows of the other folds predicts their labels from its embeddings. Default: five folds are drawn.
        missing: rows without an embedding. They are neither scored nor neighbours.
        groups: the group of each row `[N]`, such as the house of a photograph. Items of one group are in one fold, and
            are not neighbours.
        progress: called with the number of scored items.

    Raises:
        InputError: the numbers of embeddings, labels, folds or groups differ, an embedding is not finite, a group is in
            two folds, all items are in one, or k is not 1 to the number of items that may be neighbours.
    """
    check_label_space("labels", labels)
    if labels.judged_pairs is not None:
        raise InputError("labels", "judged pairs", "must be labels that compare all items")
    n = len(labels)
    readable = torch.ones(n, dtype=torch.bool)
    if missing is not None:
        readable[as_row_numbers("missing", missing, n)] = False
    valid_rows = readable.nonzero()[:, 0]
    group = torch.arange(n) if groups is None else as_group_ids("groups", groups)
    if len(group) != n:
        raise InputError("groups", f"{len(group)} for {n} labels", hint="give one for each row of the label space")
    k = neighbour_count(k, group[valid_rows])
    fold = _draw_folds(group, valid_rows) if folds is None else _checked_folds(folds, group, valid_rows)
    drawn = torch.randperm(len(valid_rows), generator=torch.Generator().manual_seed(_SEED))[:FITTED]
    fitted = valid_rows[drawn].sort().values
    size = max(1, _BLOCK // len(fitted))
    fitted_distances = torch.empty(len(fitted), len(fitted), dtype=torch.float64)
    for rows, out in zip(torch.split(fitted, size), torch.split(fitted_distances, size), strict=True):
        out[:] = _label_distances(labels, rows, fitted)
    labelled = (~fitted_distances.isnan()).sum(1) > 1  # it has a label in common with another one than itself
    if not labelled.all():  # else without a copy
        fitted, fitted_distances = fitted[labelled], fitted_distances[labelled][:, labelled]
    fitted_distances = _filled(fitted_distances)
    neighbours, errors = torch.full((n, k), -1), torch.full((len(_PENALTIES), n), torch.nan, dtype=torch.float64)
    num_networks, done = 0, 0
    for network, fold_embeddings in enumerate([embeddings] if folds is None else embeddings):
        x = as_embeddings("embeddings", fold_embeddings)
        if len(x) != n:
            raise InputError("embeddings", f"{len(x)} for {n} labels", hint="give one for each row of the label space")
        for fold_id in torch.unique(fold[valid_rows]).tolist() if folds is None else [network]:
            rows = valid_rows[fold[valid_rows] == fold_id]
            if not len(rows):
                continue
            groups_of_both, own = (group[rows], group[valid_rows]), torch.searchsorted(valid_rows, rows)
            search = QueryGallery(x[rows], x[valid_rows], own, groups=groups_of_both, device=x.device)
            neighbours[rows] = valid_rows[search.nearest(k).positions]
            train_rows = (fold[fitted] != fold_id).nonzero()[:, 0]
            regression = _Regression(x[fitted[train_rows]], fitted_distances[train_rows[:, None], train_rows])
            for block in torch.split(rows, size):
                distances = _label_distances(labels, block, fitted[train_rows])
                errors[:, block] = regression.errors(x[block], _filled(distances))
                done += len(block)
                progress(done)
        num_networks = network + 1
    if folds is not None and int(fold.max()) >= num_networks:
        allowed = f"must be 0 to {num_networks - 1}: there are embeddings of {num_networks} networks"
        raise InputError("folds", f"fold {int(fold.max())}", allowed)
    neighbour_distances = torch.full((n, k), torch.nan, dtype=torch.float64)
    for row in valid_rows.tolist():
        neighbour_distances[row] = _label_distances(labels, torch.tensor([row]), neighbours[row])[0]
    q, scores = _relative(errors), torch.full((n,), torch.nan, dtype=torch.float64)
    scores[valid_rows] = (q[valid_rows] + _SMOOTHING) / (q[neighbours[valid_rows]].nanmean(1) + _SMOOTHING).sqrt()
    return LabelErrors(scores, q, neighbours, neighbour_distances)


def _relative(errors: Tensor) -> Tensor:
    """Compute q `[N]` with the best penalty, given the squared distances `[P, N]` of labels to the predictions."""
    best = errors.nanmean(1).nan_to_num(torch.inf).argmin()
    to_mean = errors[-1]
    mean = to_mean.nanmean()
    if not mean > 0:  # all labels are equal
        return to_mean.where(to_mean.isnan(), 0)
    return errors[best].clamp(min=0) / to_mean.clamp(_LEAST * mean, _MOST * mean)


class _Regression:
    """A ridge regression from embeddings x `[M, d]` to labels, for each penalty.

    `known` are label distances `[M, M]`.
    """

    def __init__(self, x: Tensor, known: Tensor) -> None:
        self.centre = x.double().mean(0)
        self.left, values, self.right = torch.linalg.svd(x.double() - self.centre, full_matrices=False)
        squares = values.square()
        penalties = _PENALTIES[:, None] * squares.sum()
        self.shrink = torch.where(values > 0, values / (squares + penalties), 0)  # [P,r]
        self.between = self.left.T @ known @ self.left  # [r,r]
        self.to_mean = self.left.T @ (known.mean(1) + known.mean(0))  # [r]
        self.spread = known.mean()

    def errors(self, x: Tensor, distances: Tensor) -> Tensor:
        """Compute the squared distances of labels to their predictions, for each penalty, `[P, R]`.

        They are `a_i` in the docstring of the module. `x` `[R, d]` are the embeddings of the items. `distances` `[R,
        M]` are their label distances to the fitted items.
        """
        projected, products, mean = (x.double() - self.centre) @ self.right.T, distances @ self.left, distances.mean(1)
        errors = []
        for shrink in self.shrink:
            weights = projected * shrink  # h = weights @ left.T + 1 / M
            spread = ((weights @ self.between) * weights).sum(1) + weights @ self.to_mean + self.spread
            errors.append((weights * products).sum(1) + mean - spread / 2)
        return torch.stack(errors)


def neighbour_count(k: int | None, groups: Tensor) -> int:
    """Check the number of neighbours of each item. If k is None, return the default.

    Raises:
        InputError: k is not 1 to the number of items that may be neighbours, which are outside the item's group.
    """
    largest_group = int(torch.unique(groups, return_counts=True)[1].max()) if len(groups) else 0
    available = len(groups) - largest_group
    if available < 1:
        got = f"{len(groups)} items" + ("" if largest_group <= 1 else f", {largest_group} of them of one group")
        raise InputError("items", got, "must be at least two, of two groups")
    if k is None:
        return min(NEIGHBOURS, max(1, available // _LOCAL))
    check_whole(1, k=k)
    if k > available:
        raise InputError("k", str(k), f"must be 1 to {available}, the number of items that may be neighbours")
    return int(k)


def _draw_folds(groups: Tensor, kept: Tensor) -> Tensor:
    """Draw a fold for each row `[N]`. Rows of one group are in one fold.

    Only groups of the rows `kept` are drawn. Folds have about equal numbers of groups.
    """
    group_ids, group_index = torch.unique(groups[kept], return_inverse=True)
    order = torch.randperm(len(group_ids), generator=torch.Generator().manual_seed(_SEED))
    fold = torch.zeros_like(groups)
    fold[kept] = (order * min(_FOLDS, len(group_ids)) // len(group_ids))[group_index]
    return fold


def _checked_folds(folds: Numbers, groups: Tensor, kept: Tensor) -> Tensor:
    """Check the fold of each row `[N]`, given by the caller."""
    fold, n = as_class_ids("folds", folds), len(groups)
    if len(fold) != n:
        raise InputError("folds", f"{len(fold)} for {n} labels", hint="give one for each row of the label space")
    if len(torch.unique(fold[kept])) < 2:
        raise InputError("folds", "all items are in one", hint="omit folds if one network embedded them")
    pairs = torch.unique(torch.stack([groups, fold], 1)[kept], dim=0)
    divided = (pairs[1:, 0] == pairs[:-1, 0]).nonzero()[:, 0]
    if len(divided):
        group = int(pairs[divided[0], 0])
        raise InputError("folds", f"the items of group {group} are in two", hint="keep each group in one fold")
    return fold


def _filled(distances: Tensor) -> Tensor:
    """Replace NaN in label distances `[R, M]` by the mean of the row."""
    unknown = distances.isnan()
    return torch.where(unknown, distances.nanmean(1, keepdim=True), distances) if unknown.any() else distances


def _label_distances(labels: LabelSpace, rows: Tensor, cols: Tensor) -> Tensor:
    """Compute label distances `[R, C]` in float64 on the CPU. NaN for items without a label in common."""
    distances, known = labels.pairwise(rows, cols).double().cpu(), labels.known(rows, cols)
    return distances if known is None else distances.masked_fill_(~known.cpu(), torch.nan)
