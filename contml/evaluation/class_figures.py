"""The figures of an evaluation where labels are classes: no label distance needs to be looked up."""

from __future__ import annotations

import torch
from torch import Tensor

from contml.distances import ExactDistances
from contml.distances.vectors import Nearest
from contml.evaluation.class_metrics import (
    FirstRelevant,
    average_precision_at_r,
    average_precision_at_r_by_chance,
    expected_precision_at_r,
    first_relevant,
    precision_at_r,
    precision_at_r_by_chance,
    recall_by_chance,
    relevant_items,
)
from contml.evaluation.class_ranks import nearest_of_class
from contml.evaluation.clustering import (
    cluster,
    f1_by_chance,
    nmi_by_chance,
    normalized_mutual_information,
    pairwise_f1,
)
from contml.evaluation.ranking import search_device
from contml.evaluation.result import Curve, Score
from contml.evaluation.ties import cut_off, find_ties, members_beyond


class ClassFigures:
    """Recall@K, MAP@R and R-precision of rankings that come in parts: MAP@R reads as many places as a class has items.

    Args:
        queries: embeddings `[Q, d]`.
        gallery: embeddings `[G, d]`.
        query_class: class ids of the queries `[Q]`.
        gallery_class: class ids of the gallery `[G]`.
        own: where each query stands in the gallery, or -1, `[Q]`.
        k: places of a ranking that are wanted at the least.
        device: where to count, as `rank` searches.
    """

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor,
        query_class: Tensor,
        gallery_class: Tensor,
        own: Tensor,
        k: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = search_device(device)
        self.queries, self.gallery, self.own = queries, gallery, own
        self.query_class, self.gallery_class = query_class, gallery_class
        self.relevant = relevant_items(query_class, gallery_class, own)
        self.others = len(gallery_class) - (own >= 0).long() - self.relevant
        #: How many places of each ranking are read.
        self.depth = max(k, int(self.relevant.max()))
        self.k = k
        #: Expected label distance at each of the first k places, `[Q, k]`.
        self.label_distances = torch.empty(len(query_class), k, dtype=torch.float64)
        self._whole = ExactDistances(gallery)
        self._precision, self._average = torch.zeros(2, len(query_class), dtype=torch.float64)
        nowhere = torch.zeros(len(query_class), dtype=torch.int64)
        self._first = FirstRelevant(nowhere, nowhere.clone(), nowhere.clone())

    def add(self, part: slice, found: Nearest) -> None:
        """The ranking of some queries, of `depth` places and one more if it has; at an infinite distance: no item."""
        same = (self.gallery_class[found.positions] == self.query_class[part, None]) & found.values.isfinite()
        relevant = self.relevant[part]
        ties = find_ties(found.values)
        beyond = torch.zeros(len(ties.rows), dtype=torch.float64)
        cut = cut_off(found.values, ties)
        rows = ties.rows[cut]
        classes, own = self.query_class[part][rows], self.own[part][rows]
        for cut_positions, equal in members_beyond(
            self.queries[part][rows],
            self._whole,
            found.values[rows],
            found.positions[rows],
            lambda some: own[some, None] == torch.arange(len(self.gallery)),
            len(self.gallery),
        ):
            ties.beyond[cut[cut_positions]] = equal.sum(1)
            beyond[cut[cut_positions]] = (equal & (self.gallery_class == classes[cut_positions, None])).sum(1).double()
        self._precision[part] = precision_at_r(same, relevant)
        self._average[part] = average_precision_at_r(same, relevant)
        distance = (~same).double()
        if len(ties.rows):
            tied = same[ties.rows]
            for out, values in zip(
                (self._precision[part], self._average[part]),
                expected_precision_at_r(tied, relevant[ties.rows], ties, beyond),
                strict=True,
            ):
                out[ties.rows] = values
            distance[ties.rows] = 1 - ties.sums(tied, beyond) / ties.size
        self.label_distances[part] = distance[:, : self.k]
        first = first_relevant(same, ties, beyond)
        self._first.nearer[part], self._first.tied[part] = first.nearer, first.tied
        self._first.relevant[part] = torch.where(relevant > 0, first.relevant, 0)

    def recall(self, largest: int) -> Curve:
        """Recall@K for K = 1 ... largest; beyond the places of the rankings, items are counted."""
        first = self._first
        if largest > self.depth:
            late = ((first.nearer >= self.depth) & (self.relevant > 0)).nonzero()[:, 0]
            queries, gallery = self.queries[late].to(self.device), self.gallery.to(self.device)
            classes = self.query_class[late], self.gallery_class
            counted = nearest_of_class(queries, gallery, *classes, self.own[late])
            first.nearer[late], first.tied[late] = counted.nearer, counted.tied
            first.relevant[late] = counted.relevant
        random = recall_by_chance(self.relevant, self.others, largest)
        return Curve("Recall", "higher", first.recall(largest).tolist(), random.tolist(), [self._possible] * largest)

    def scores(self) -> dict[str, Score]:
        """MAP@R and R-precision."""
        counts = self.relevant, self.others
        return {
            name: Score(title, "higher", float(value.mean()), float(chance(*counts).mean()), self._possible)
            for name, title, value, chance in (
                ("map_at_r", "MAP@R", self._average, average_precision_at_r_by_chance),
                ("r_precision", "R-precision", self._precision, precision_at_r_by_chance),
            )
        }

    def oracle(self) -> Tensor:
        """Label distances `[Q, k]` of the oracle's ranking: first its own class, then the others."""
        return (torch.arange(self.k) >= self.relevant[:, None]).float()

    def by_chance(self) -> tuple[Tensor, Tensor]:
        """Mean label distance and mean gain of a random item, `[Q]` each."""
        distance = self.others / (self.relevant + self.others).double()
        return distance, 1 - distance / 2  # a gain is 1 within a class, 1/2 between classes

    @property
    def _possible(self) -> float:
        return float((self.relevant > 0).double().mean())


def cluster_scores(embeddings: Tensor, classes: Tensor, seed: int = 0) -> dict[str, Score]:
    """NMI and pairwise F1 of k-means clusters, as many as there are classes."""
    clusters = cluster(embeddings, len(torch.unique(classes)), seed=seed).cpu()
    classes = classes.cpu()
    return {
        "nmi": Score(
            "NMI", "higher", normalized_mutual_information(classes, clusters), nmi_by_chance(classes, clusters), 1.0
        ),
        "f1": Score("F1", "higher", pairwise_f1(classes, clusters), f1_by_chance(classes, clusters), 1.0),
    }
