"""Items whose neighbours contradict their label.

    a_i = mean label distance of item i to its k nearest items by embedding
    b_i = mean label distance of item i to reference items, drawn from all items
    q_i = a_i / b_i               near 0: the neighbours have the label of the item; near 1: they are like any items

    score_i = (q_i + 0.05) / (mean of q_j over the k nearest items j + 0.05)

1 is as usual there, and more is suspicious. The division by b_i: a label that is far from most labels (an unusual pose)
is far from its neighbours too. The local scale q_j: where neighbours do not have similar labels either, the embedding
knows little, and no item stands out. 0.05 bounds the score where neighbours have equal labels. Only label distances are
read, so labels of every kind can be scored.

Ties of embedding distances go to the lower row. Where all labels are equal (b_i = 0), q_i is 0 and the score 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import check_whole
from contml.evaluation.inputs import Numbers, as_class_ids, as_embeddings, as_row_numbers, check_label_space
from contml.evaluation.query_gallery import QueryGallery
from contml.labels.base import LabelSpace
from contml.labels.weighted import WeightedLabels

#: Neighbours of an item, at most one in so many of the items; reference items, and the seed that draws them.
NEIGHBOURS, _LOCAL, REFERENCES, _SEED = 20, 5, 100, 0
#: Added to both sides of the ratio of a score.
_SMOOTHING = 0.05
#: Items whose label distances to the reference items are computed at a time.
_ROWS = 4096


class LabelErrors(NamedTuple):
    """How much the neighbours of each item contradict its label.

    Attributes:
        scores: `[N]`, float64, 1 for an item as usual; NaN for an item without an embedding, or without a label in
            common with its neighbours.
        neighbours: `[N, k]`, the rows of the nearest items by embedding, nearest first; -1 without an embedding.
        label_distances: `[N, k]`, float64, the label distances of the item to them; NaN without a label in common.
    """

    scores: Tensor
    neighbours: Tensor
    label_distances: Tensor

    @property
    def order(self) -> Tensor:
        """The rows that have a score, the highest first; of equal scores the lower row first."""
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
    """Score each item by how much the labels of its nearest items by embedding contradict its own.

    A network that was trained on an item may have learned its wrong label. Give embeddings of items that it has not
    seen, or those of several networks, with `folds`.

    Args:
        embeddings: `[N, d]`, one for each row of the label space; with `folds`, these of each fold's network in order.
        labels: the label space.
        k: the number of neighbours; default 20, or a fifth of fewer than 100 items.
        folds: the fold of each row `[N]`, 0, 1, ...: the network of fold f has not seen these rows, so its embeddings
            find their neighbours, among all rows.
        missing: rows without an embedding: neither scored nor neighbours.
        groups: the group of each row `[N]`, such as the house of a photograph: items of one group are not neighbours.
        progress: called with the number of scored items.

    Raises:
        InputError: the numbers of embeddings, labels, folds or groups differ, an embedding is not finite, or k is not 1
            to the number of items that may be neighbours.
    """
    check_label_space(labels)
    n = len(labels)
    read = torch.ones(n, dtype=torch.bool)
    if missing is not None:
        read[as_row_numbers("missing", missing, n)] = False
    kept = read.nonzero()[:, 0]
    group = torch.arange(n) if groups is None else as_class_ids("groups", groups)
    fold = torch.zeros(n, dtype=torch.int64) if folds is None else as_class_ids("folds", folds)
    for name, given in (("groups", group), ("folds", fold)):
        if len(given) != n:
            raise InputError(name, f"{len(given)} for {n} labels", hint="give one for each row of the label space")
    k = neighbour_count(k, group[kept])
    neighbours = torch.full((n, k), -1)
    networks = [embeddings] if folds is None else embeddings
    count = 0
    for number, each in enumerate(networks):
        x = as_embeddings("embeddings", each)
        if len(x) != n:
            raise InputError("embeddings", f"{len(x)} for {n} labels", hint="give one for each row of the label space")
        rows = kept[fold[kept] == number]
        if len(rows):
            neighbours[rows] = _nearest(x, rows, kept, group, k)
        count = number + 1
    if int(fold.min()) < 0 or int(fold.max()) >= count:
        wrong = int(fold.min()) if int(fold.min()) < 0 else int(fold.max())
        raise InputError(
            "folds", f"fold {wrong}", f"must be 0 to {count - 1}: there are embeddings of {count} networks"
        )
    near = torch.full((n, k), torch.nan, dtype=torch.float64)
    for done, row in enumerate(kept.tolist(), start=1):
        near[row] = _label_distances(labels, torch.tensor([row]), neighbours[row])[0]
        progress(done)
    to_any = torch.full((n,), torch.nan, dtype=torch.float64)
    references = _references(kept)
    for part in torch.split(kept, _ROWS):
        # An item may be a reference item itself: its distance of 0 to itself does not count.
        d = _label_distances(labels, part, references).masked_fill(part[:, None] == references, torch.nan)
        to_any[part] = d.nanmean(1)
    # Where an item shares a label with its neighbours alone, or with reference items alone, it has no score.
    share = torch.where(to_any > 0, near.nanmean(1) / to_any, torch.where(to_any == 0, 0.0, torch.nan))  # [N]
    scores = torch.full((n,), torch.nan, dtype=torch.float64)
    scores[kept] = (share[kept] + _SMOOTHING) / (share[neighbours[kept]].nanmean(1) + _SMOOTHING)
    return LabelErrors(scores, neighbours, near)


def neighbour_count(k: int | None, groups: Tensor) -> int:
    """The number of neighbours of each item, checked: so many are outside its group; None: the default.

    Raises:
        InputError: k is not 1 to the number of items that may be neighbours.
    """
    largest = int(torch.unique(groups, return_counts=True)[1].max()) if len(groups) else 0
    available = len(groups) - largest
    if available < 1:
        what = f"{len(groups)} items" + ("" if largest <= 1 else f", {largest} of them of one group")
        raise InputError("items", what, "must be at least two, of two groups")
    if k is None:
        return min(NEIGHBOURS, max(1, available // _LOCAL))
    check_whole(1, k=k)
    if k > available:
        raise InputError("k", str(k), f"must be 1 to {available}, the number of items that may be neighbours")
    return int(k)


def _nearest(x: Tensor, rows: Tensor, kept: Tensor, groups: Tensor, k: int) -> Tensor:
    """The k nearest of the rows `kept` to each of `rows`, of another group `[R, k]`."""
    search = QueryGallery(
        x[rows], x[kept], torch.searchsorted(kept, rows), groups=(groups[rows], groups[kept]), device=x.device
    )
    return torch.cat([kept[search.nearest(part, k).positions] for part in search.parts(max(k, 512))])


def _references(rows: Tensor) -> Tensor:
    """Some of the rows, drawn with a fixed seed."""
    generator = torch.Generator().manual_seed(_SEED)
    return rows[torch.randperm(len(rows), generator=generator)[:REFERENCES]].sort().values


def _label_distances(labels: LabelSpace, rows: Tensor, cols: Tensor) -> Tensor:
    """Label distances `[R, C]` in float64 on the CPU; NaN for items without a label in common."""
    found = labels.pairwise(rows, cols).double().cpu()
    if isinstance(labels, WeightedLabels) and labels.present is not None:
        present = labels.present.cpu()
        found[~(present[rows, None] & present[None, cols]).any(2)] = torch.nan
    return found
