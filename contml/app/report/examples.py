"""The queries that a page shows: the best, the median, the worst, from good to bad; and pairs that surprise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from contml._support.pages import csv_bytes, unbroken
from contml.app.report.gallery import QUERIES, TOP, Indices, Line, choose_queries, finite_mean, line_of, ranking_lines
from contml.data.split import Split
from contml.distances import squared_distances_of
from contml.evaluation.kinds import KINDS
from contml.evaluation.results import Evaluation, Ranking

#: Queries of a kind, and pairs, that a page shows.
SHOWN = 3
#: Retrieved items in the table of queries.
LISTED = 10


@dataclass(frozen=True)
class Example:
    """A query with the retrieved items, a line per ranking: its heading and its items."""

    title: str
    row: int
    details: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Examples:
    """All queries of a page, and the pairs of a query and its nearest item that surprise."""

    first: list[Example]
    spread: list[Example]
    worst: list[Example]
    surprises: list[Example]


def examples(split: Split, evaluation: Evaluation, ranking: Ranking) -> Examples:
    """The queries that a page shows."""
    order, k = by_score(ranking, evaluation), len(ranking.queries)
    places = {k - 1: "Worst query", k // 2: "Median query", 0: "Best query"} if k else {}
    titles = {int(order[place]): title for place, title in places.items()}  # of few queries, one may be all of these
    show = partial(_example, split, evaluation, ranking)
    spread = choose_queries(ranking.label_distances, QUERIES).tolist()
    return Examples(
        first=[show(q, titles[q]) for q in sorted(titles, key=order.tolist().index)],
        spread=[show(q, f"Query {rank}") for rank, q in enumerate(spread, start=1)],
        worst=[show(q, f"Worst query {rank}") for rank, q in enumerate(worst(ranking), start=1)],
        surprises=[_pair(split, ranking, q) for q in surprises(ranking)],
    )


def by_score(ranking: Ranking, evaluation: Evaluation) -> Indices:
    """Positions of the queries by their main metric, best first; ties by the label distances of the first five."""
    values = ranking.values.double().numpy() * (-1 if evaluation.main.better == "higher" else 1)
    shuffled = np.random.default_rng(0).permutation(len(values))
    nearest = finite_mean(ranking.label_distances[:, :TOP].double().numpy())
    return np.asarray(np.lexsort((shuffled, nearest, values)), dtype=np.int64)


def worst(ranking: Ranking) -> list[int]:
    """Positions of the queries whose main metric is the farthest from that of the oracle, the farthest first."""
    gap = (ranking.values - ranking.oracle_values).abs().double().numpy()
    shuffled = np.random.default_rng(0).permutation(len(gap))
    order = np.lexsort((shuffled, -np.nan_to_num(gap)))
    return [int(q) for q in order[:SHOWN] if gap[q] > 0]


def surprises(ranking: Ranking) -> list[int]:
    """Positions of queries with a near first item of a far label.

    Of the half of the queries with the nearest first items, those with the largest label distance to it. A pair whose
    items are each other's nearest counts once.
    """
    if not ranking.model.numel():
        return []
    rows, x = ranking.model[:, 0], ranking.embeddings
    distances = squared_distances_of(x, x, ranking.queries, rows).sqrt().double().numpy()
    label_distances = np.nan_to_num(ranking.label_distances[:, 0].double().numpy())
    near_positions = np.flatnonzero(distances <= np.median(distances))
    order = near_positions[np.lexsort((distances[near_positions], -label_distances[near_positions]))]
    pairs = {frozenset((int(ranking.queries[q]), int(rows[q]))): int(q) for q in order[::-1] if label_distances[q] > 0}
    return list(pairs.values())[::-1][:SHOWN]


def _example(split: Split, evaluation: Evaluation, ranking: Ranking, q: int, title: str) -> Example:
    """The query at position `q`."""
    model, best = ranking_lines(split, ranking, q)
    values = [float(values[q]) for values in (ranking.values, ranking.random_values, ranking.oracle_values)]
    details = unbroken(KINDS[evaluation.kind].details(evaluation, model.distances, values))
    return Example(title, int(ranking.queries[q]), details, [model, best])


def _pair(split: Split, ranking: Ranking, q: int) -> Example:
    """The query at position `q` and its nearest item, without words."""
    item = line_of(split.labels, "", ranking.model[q, :1], ranking.label_distances[q, :1])
    return Example("", int(ranking.queries[q]), "", [item])


def queries_csv(split: Split, evaluation: Evaluation, ranking: Ranking) -> bytes:
    """The main metric of each query, of a random ranking and of the oracle, and the names of the nearest items."""
    k = min(LISTED, ranking.model.shape[1])
    lines = [["query", evaluation.headline, "random", "oracle", *(f"nearest_{n}" for n in range(1, k + 1))]]
    values = (ranking.values, ranking.random_values, ranking.oracle_values)
    columns = zip(*(value.double().tolist() for value in values), strict=True)
    for query, numbers, rows in zip(ranking.queries.tolist(), columns, ranking.model[:, :k].tolist(), strict=True):
        lines.append([split.name(query), *numbers, *map(split.name, rows)])
    return csv_bytes(lines)
