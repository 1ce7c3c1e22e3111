"""The report of a ranking: queries with the nearest items, maps, densities, results by label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contml._support.text import percent
from contml.app.report.embedding_map import MAX_TSNE, map_plot
from contml.app.report.examples import Explanation, examples, explain_first
from contml.app.report.page import Album, Page, text, texts
from contml.app.report.plots import class_density_plot, density_plot, metrics_plot
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated, unit_words
from contml.evaluation.results import KINDS, Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels.weighted import WeightedLabels
from contml.search.calibration import Calibration
from contml.search.labelled_items import LabelledItems


def label_rows(split: Split, ranking: Ranking, missing: Tensor | None = None) -> list[list[str]]:
    """Return a table of the ranking measured by each label alone.

    A row has unit, metric, model, random, oracle, and normalized score. Items without this label are neither queries
    nor ranked. The table is empty if there is only one label, or if a label is in too few items.
    """
    labels = split.labels
    if not isinstance(labels, WeightedLabels):
        return []
    rows = []
    unread = torch.zeros(0, dtype=torch.long) if missing is None else missing.cpu()
    for n, space in enumerate(labels.spaces):
        unlabelled_rows = unread[:0] if labels.present is None else (~labels.present[:, n]).nonzero()[:, 0].cpu()
        missing_rows = torch.unique(torch.cat((unread, unlabelled_rows)))
        groups: Any = {"groups": split.groups, "exclude_group": split.exclude_group and space.class_ids is None}
        found = split.queries, split.gallery
        options: Any = {**groups, "places": split.places, "missing": missing_rows, "clusters": False}
        evaluation = evaluate(ranking.embeddings, space, *found, **options).evaluation
        name, score = evaluation.headline, evaluation.main
        values = [evaluation.text(name, x, unit=False) for x in (score.model, score.random, score.oracle)]
        rows.append([space.unit, evaluation.titled(name, score.title), *values, percent(score.normalized())])
    return rows


@dataclass(frozen=True)
class RankingContent:
    """A ranking for a report.

    Attributes:
        ranking: the items retrieved on the split of the report.
        missing: rows whose image could not be read.
        calibration: the meaning of embedding distances, for a line of the header.
        labelled: training items to predict labels with, for a table of the errors of predictions.
    """

    ranking: Ranking
    missing: Tensor | None = None
    calibration: Calibration | None = None
    labelled: LabelledItems | None = None

    def page(self, split: Split, evaluated: Evaluated) -> Page:
        """Return the content of the report."""
        ranking, metrics, album = self.ranking, evaluated.evaluation, Album(split)
        kind = KINDS[metrics.kind]
        explanation = explain_first(split, ranking, album.broken) or Explanation("", (), ())
        density = density_plot(ranking.pairs, metrics.spearman, metrics.measure)
        density = class_density_plot(ranking.pairs) if kind.by_class else density
        tsne = map_plot(split.labels, ranking.embeddings)
        figures = {"metrics": metrics_plot(metrics), "density": density, "tsne": tsne}
        shown = examples(split, metrics, ranking)
        album.prepare([*shown.first, *shown.spread])
        labelled = self.labelled
        units = {"unit": text(unit_words(metrics)), "classes": kind.by_class, "largest_map": MAX_TSNE, "shown": shown}
        explained = {"explained": text(explanation.names), "parts": texts(explanation.table)}
        values: dict[str, Any] = {
            **units,
            **explained,
            "unit_of_numbers": text(kind.unit_of_numbers(metrics.unit, metrics.measure)),
            "calibration": "" if self.calibration is None else self.calibration.sentence(metrics.measure),
            "answers": [] if labelled is None else texts(labelled.error_rows()[1:]),
            "answer_sentences": [] if labelled is None else [text(each) for each in labelled.sentences()],
            "match": [(picture, text(title)) for title, picture in explanation.pictures],
            "legend": [(colour, text(name)) for colour, name in split.view.legend],
            "labels": texts(label_rows(split, ranking, self.missing)),
        }
        return Page("report.html", album, figures, values)
