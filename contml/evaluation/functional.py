"""Metrics of embeddings and of rankings as functions, for use without a task, a trainer or a config.

    from contml.evaluation import recall_at_k
    recall_at_k(embeddings, classes, k=[1, 10, 100, 1000])      # {1: 0.79, 10: 0.91, ...}, every item a query
    recall_at_k(queries, query_classes, k=[1], gallery=gallery, gallery_classes=gallery_classes)

Neighbours are found by exact Euclidean distance, on the device of the embeddings where that is CUDA, else on the CPU.
Conventions, and where pytorch-metric-learning's `AccuracyCalculator` has others:

- Items at equal distance share their places: a figure is its expectation over the orders of equals, whatever the order
  of storage; there it depends on the index's order.
- A query of whose class nothing else is there counts as a miss, as papers count; `drop_lonely=True` leaves such queries
  out, as the calculator does.
- Recall@K asks for one item of the query's class among the K nearest; the calculator's `precision_at_1` is Recall@1.
- Without a gallery every item queries all the others (the calculator's default).
- NMI is normalised by the arithmetic mean of the entropies in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.evaluation.class_figures import ClassFigures
from contml.evaluation.class_metrics import relevant_items
from contml.evaluation.class_ranks import nearest_of_class
from contml.evaluation.metrics import discounts, gains
from contml.evaluation.ranking import check_finite, rank, search_device

#: Places of rankings in memory at a time.
_ENTRIES = 1 << 24
#: Lists at a time: what is made of them stays in the processor's cache.
_LISTS = 512


def recall_at_k(
    embeddings: Tensor,
    classes: Tensor,
    k: Sequence[int] = (1,),
    *,
    gallery: Tensor | None = None,
    gallery_classes: Tensor | None = None,
    drop_lonely: bool = False,
) -> dict[int, float]:
    """Recall@K: the share of queries with an item of their own class among the K nearest.

    Any K costs the same: what is nearer than the nearest of the class is counted in one pass of matrix products, never
    an N x N matrix and no lists of K neighbours.

    Args:
        embeddings: of the queries `[Q, d]`.
        classes: whole numbers `[Q]`.
        k: one K or more.
        gallery: embeddings `[G, d]` to be found; None: every item queries all the others.
        gallery_classes: whole numbers `[G]`.
        drop_lonely: leave out queries of whose class nothing else is there, instead of counting them as misses.

    Raises:
        InputError: shapes that do not fit, an embedding that is not finite, or a K below 1.
    """
    if not len(k) or min(k) < 1:
        raise InputError(f"k is {list(k)}; give whole numbers from 1 on, such as [1, 10, 100]")
    sides = _sides(embeddings, classes, gallery, gallery_classes, drop_lonely)
    first = nearest_of_class(*sides)
    curve = first.recall(min(max(k), len(sides.gallery))).tolist()
    return {each: curve[min(each, len(curve)) - 1] for each in k}


def mean_average_precision_at_r(
    embeddings: Tensor,
    classes: Tensor,
    *,
    gallery: Tensor | None = None,
    gallery_classes: Tensor | None = None,
    drop_lonely: bool = False,
) -> float:
    """MAP@R of Musgrave et al. 2020: the mean of 1/R times the precisions at the relevant among the R nearest.

    R is the number of items of a query's class in the gallery, itself left out.

    Args:
        embeddings: of the queries `[Q, d]`.
        classes: whole numbers `[Q]`.
        gallery: embeddings `[G, d]` to be found; None: every item queries all the others.
        gallery_classes: whole numbers `[G]`.
        drop_lonely: leave out queries of whose class nothing else is there, instead of counting them as misses.
    """
    return _figures(_sides(embeddings, classes, gallery, gallery_classes, drop_lonely)).scores()["map_at_r"].model


def r_precision(
    embeddings: Tensor,
    classes: Tensor,
    *,
    gallery: Tensor | None = None,
    gallery_classes: Tensor | None = None,
    drop_lonely: bool = False,
) -> float:
    """R-precision: the mean share of the R nearest that are of the query's class; arguments as of MAP@R."""
    return _figures(_sides(embeddings, classes, gallery, gallery_classes, drop_lonely)).scores()["r_precision"].model


def label_distance_metrics(distances: Tensor, label_distances: Tensor, k: Sequence[int]) -> dict[str, float]:
    """Mean label distance@K and nDCG@K of ranked lists, as {"label_distance@10": ..., "ndcg@10": ...}, in one pass.

    Args:
        distances: of each query to the items of its list `[Q, C]`, by which they are ranked; of any monotone kind.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        k: one K or more, each 1 to C.

    Raises:
        InputError: shapes that do not fit, a K out of range, a number that is not finite or a negative label distance.
    """
    shape = list(distances.shape)
    if distances.ndim != 2 or distances.shape != label_distances.shape or not len(distances):
        raise InputError(
            f"distances are {shape} and label distances {list(label_distances.shape)}; give both as [queries, items]"
        )
    if not len(k) or not 1 <= min(k) <= max(k) <= shape[1]:
        raise InputError(f"k is {list(k)}, but the lists have {shape[1]} items; each k must be 1 to {shape[1]}")
    totals = torch.stack(
        [
            _figures_of_lists(*lists, k)
            for lists in zip(torch.split(distances, _LISTS), torch.split(label_distances, _LISTS), strict=True)
        ]
    ).sum(0)
    means = (totals / len(distances)).tolist()
    return {
        name: value
        for each, (distance, ndcg) in zip(k, means, strict=True)
        for name, value in ((f"label_distance@{each}", distance), (f"ndcg@{each}", ndcg))
    }


def _figures_of_lists(distances: Tensor, label_distances: Tensor, k: Sequence[int]) -> Tensor:
    """Sums over the lists of mean label distance@K and nDCG@K, `[K, 2]`."""
    near, labels = (_floats(x) for x in (distances, label_distances))
    nearest, best = np.sort(near, axis=1), np.sort(labels, axis=1)
    for name, ordered in (("distances", nearest), ("label distances", best)):
        if not np.isfinite(ordered[:, [0, -1]]).all():  # NaN comes last
            raise InputError(f"some {name} are not finite; look for NaN in them")
    if best[:, 0].min() < 0:
        raise InputError(f"a label distance is {best[:, 0].min()}; label distances are at least 0")
    expected, gain = np.empty((2, len(near), max(k)))
    from contml.evaluation._places import share_places  # here: it imports numba

    share_places(near, labels, nearest, expected, gain)
    found = torch.from_numpy(expected), torch.from_numpy(gain), gains(torch.from_numpy(best[:, : max(k)]))
    out = torch.empty(len(k), 2, dtype=torch.float64)
    for row, each in enumerate(k):
        distance, gained, ideal = (x[:, :each] for x in found)
        out[row, 0] = distance.mean(1).sum()
        out[row, 1] = ((gained @ discounts(each)) / (ideal @ discounts(each))).sum()
    return out


def mean_label_distance_at_k(distances: Tensor, label_distances: Tensor, k: int) -> float:
    """Mean label distance@K: the mean over queries of the mean label distance of the K nearest; lower is better.

    Arguments as of `label_distance_metrics`.
    """
    return label_distance_metrics(distances, label_distances, [k])[f"label_distance@{k}"]


def ndcg_at_k(distances: Tensor, label_distances: Tensor, k: int) -> float:
    """nDCG@K with gains 1 / (1 + label distance) and discounts 1 / log2(rank + 1), against the best order of each list.

    torchmetrics' `retrieval_normalized_dcg` of scores `-distances` and these gains is the same number, ties included.
    Arguments as of `label_distance_metrics`.
    """
    return label_distance_metrics(distances, label_distances, [k])[f"ndcg@{k}"]


def _floats(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.floating]]:
    x = x.detach().cpu()
    return np.ascontiguousarray((x if x.dtype in (torch.float32, torch.float64) else x.double()).numpy())


class _Sides(NamedTuple):
    """Queries and gallery, checked, where they are searched; arguments of `nearest_of_class`."""

    queries: Tensor  # [Q,d]
    gallery: Tensor  # [G,d]
    query_class: Tensor  # [Q]
    gallery_class: Tensor  # [G]
    own: Tensor  # [Q]


def _sides(
    embeddings: Tensor, classes: Tensor, gallery: Tensor | None, gallery_classes: Tensor | None, drop_lonely: bool
) -> _Sides:
    if (gallery is None) != (gallery_classes is None):
        raise InputError("gallery and gallery_classes go together; give both, or neither to let every item query")
    given = [("queries", embeddings, classes)]
    if gallery is not None and gallery_classes is not None:
        given.append(("gallery items", gallery, gallery_classes))
    for name, x, ids in given:
        if x.ndim != 2 or ids.shape != x.shape[:1] or ids.is_floating_point():
            raise InputError(
                f"embeddings of the {name} are {list(x.shape)} and their classes {ids.dtype} {list(ids.shape)}; "
                "give [N, d] and one whole number an item"
            )
    device = search_device(embeddings.device)
    q, query_class = embeddings.detach().to(device), classes.cpu()
    own = torch.arange(len(q)) if gallery is None else torch.full((len(q),), -1)
    g, gallery_class = q, query_class
    if gallery is not None and gallery_classes is not None:
        g, gallery_class = gallery.detach().to(device), gallery_classes.cpu()
    if q.shape[1] != g.shape[1]:
        raise InputError(f"embeddings have {q.shape[1]} and {g.shape[1]} dimensions; queries and gallery need the same")
    check_finite(q, g)
    _, numbers = torch.unique(torch.cat((query_class, gallery_class)), return_inverse=True)
    query_class, gallery_class = numbers.split((len(q), len(g)))
    if drop_lonely:
        kept = relevant_items(query_class, gallery_class, own) > 0
        q, query_class, own = q[kept.to(device)], query_class[kept], own[kept]
    if len(q) < 1 or len(g) < 2:
        raise InputError(f"there are {len(q)} queries and {len(g)} gallery items; an evaluation needs at least 1 and 2")
    return _Sides(q, g, query_class, gallery_class, own)


def _figures(sides: _Sides) -> ClassFigures:
    figures = ClassFigures(*sides, k=1, device=sides.queries.device)
    places = min(figures.depth + 1, len(sides.gallery))
    step = max(1, _ENTRIES // places)
    itself = sides.own if bool((sides.own >= 0).any()) else None
    for start in range(0, len(sides.queries), step):
        part = slice(start, min(start + step, len(sides.queries)))
        own = None if itself is None else itself[part]
        figures.add(part, rank(sides.queries[part], sides.gallery, places, itself=own, device=sides.queries.device))
    return figures
