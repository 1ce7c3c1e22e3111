"""The report of a ranking: queries with the nearest items, maps, densities, results by label and by group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contml._support.text import percent, value_text
from contml.app.report.embedding_map import MAX_TSNE, map_plots
from contml.app.report.examples import (
    SHOWN,
    Explanation,
    examples,
    explain_pair,
    queries_csv,
)
from contml.app.report.page import About, Album, Page, text, texts
from contml.app.report.plots import class_density_plot, density_plot, metrics_plot
from contml.app.report.suspects import LabelSuspects, report_errors
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated, unit_words
from contml.evaluation.label_errors import FITTED
from contml.evaluation.results import KINDS, Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels.weighted import WeightedLabels
from contml.search.calibration import Calibration
from contml.search.labelled_items import LabelledItems

#: Groups that a page shows: the worst.
_GROUPS = 10


def label_rows(split: Split, ranking: Ranking, missing: Tensor | None = None) -> list[list[str]]:
    """The same ranking measured by each label alone: its unit, metric, model, random, oracle, normalized score.

    Items without this label are neither queries nor ranked. Empty if there is only one label, or if one of them is in
    too few items.
    """
    labels = split.labels
    if not isinstance(labels, WeightedLabels):
        return []
    rows = []
    unread = torch.zeros(0, dtype=torch.long) if missing is None else missing.cpu()
    for n, space in enumerate(labels.spaces):
        unlabelled_rows = unread[:0] if labels.present is None else (~labels.present[:, n]).nonzero()[:, 0].cpu()
        missing_rows = torch.unique(torch.cat((unread, unlabelled_rows)))
        evaluation = evaluate(
            ranking.embeddings,
            space,
            split.queries,
            split.gallery,
            missing=missing_rows,
            clusters=False,
            groups=split.groups,
            exclude_group=split.exclude_group and space.class_ids is None,
            places=split.places,
        ).evaluation
        name, score = evaluation.headline, evaluation.main
        values = [evaluation.text(name, x, unit=False) for x in (score.model, score.random, score.oracle)]
        rows.append([space.unit, evaluation.titled(name, score.title), *values, percent(score.normalized())])
    return rows


def group_rows(split: Split, ranking: Ranking) -> tuple[int, list[list[str]]]:
    """The number of groups of queries, and the worst: name, queries, and the mean of the main metric of their queries.

    The groups of the split are named by its metadata, or else by their first item. Classes are groups where labels are
    classes.
    """
    classes = split.labels.class_ids
    group_ids = split.groups if classes is None else classes.cpu()
    if group_ids is None or not len(ranking.queries):
        return 0, []
    unique_groups, position, counts = torch.unique(group_ids[ranking.queries], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(unique_groups), dtype=torch.float64).index_add_(0, position, ranking.values.double())
    means = sums / counts
    if len(unique_groups) < 2:
        return len(unique_groups), []
    rows = []
    for n in means.argsort(descending=classes is None, stable=True)[:_GROUPS].tolist():
        first_row = int((group_ids == unique_groups[n]).nonzero()[0, 0])
        name = _group_name(split, first_row) if classes is None else split.labels.text(first_row)
        rows.append([name, f"{int(counts[n]):,}", _value(float(means[n]), split)])
    return len(unique_groups), rows


def has_group_names(split: Split) -> bool:
    """Whether a split knows the name of each group."""
    return split.group_name in split.metadata


def _group_name(split: Split, row: int) -> str:
    value = split.metadata[split.group_name][row] if has_group_names(split) else None
    if value is None:
        return split.name(row)
    return value_text(value) if isinstance(value, float) else str(value)


def _value(value: float, split: Split) -> str:
    return percent(value) if split.labels.class_ids is not None else split.labels.measure.text(value)


@dataclass(frozen=True)
class RankingContent:
    """A ranking, as a report shows it.

    Also `queries.csv`: the main metric of each query, and its nearest items.

    Attributes:
        ranking: the items retrieved on the split of the report.
        missing: rows whose image could not be read.
        calibration: what embedding distances mean, for a line of the header.
        labelled: training items that answer with labels, for a table of the errors of answers.
        pair: the rows whose label distance is explained; default the first query and its nearest item.
    """

    ranking: Ranking
    missing: Tensor | None = None
    calibration: Calibration | None = None
    labelled: LabelledItems | None = None
    pair: tuple[int, int] | None = None

    def page(self, split: Split, evaluated: Evaluated, about: About) -> Page:
        """What the report shows."""
        ranking, metrics, album = self.ranking, evaluated.evaluation, Album(split)
        broken, kind = album.broken, KINDS[evaluated.evaluation.kind]
        explanation = explain_pair(split, ranking, broken, self.pair) or Explanation("", (), ())
        density = density_plot(ranking.pairs, metrics.spearman, about.ideal, metrics.measure)
        figures = {
            "metrics": metrics_plot(metrics),
            "density": class_density_plot(ranking.pairs) if kind.by_class else density,
            **map_plots(split.labels, ranking.embeddings),
        }
        shown = examples(split, metrics, ranking)
        errors = report_errors(split, ranking.embeddings, self.missing)
        suspects = [] if errors is None else LabelSuspects(split, errors).examples(SHOWN)
        album.prepare([*shown.first, *shown.spread, *shown.worst, *shown.surprises, *suspects])
        group_count, groups = group_rows(split, ranking)
        labelled = self.labelled
        values = {
            "unit": text(unit_words(metrics)),
            "unit_of_numbers": text(kind.unit_of_numbers(metrics.unit, metrics.measure)),
            "calibration": "" if self.calibration is None else self.calibration.sentence(metrics.measure),
            "answers": [] if labelled is None else texts(labelled.error_rows()[1:]),
            "answer_sentences": [] if labelled is None else [text(each) for each in labelled.sentences()],
            "classes": kind.by_class,
            "chosen_pair": self.pair is not None,
            "explained": text(explanation.names),
            "match": [(picture, text(title)) for title, picture in explanation.pictures],
            "parts": texts(explanation.table),
            "largest_map": MAX_TSNE,
            "ideal": about.ideal,
            "shown": shown,
            "suspects": suspects,
            "scored": f"{FITTED:,} of {len(split):,}" if len(split) > FITTED else "",
            "split_name": evaluated.split,
            "legend": [(colour, text(name)) for colour, name in split.view.legend],
            "labels": texts(label_rows(split, ranking, self.missing)),
            "groups": texts(groups),
            "group_count": group_count,
            "group": text("class" if kind.by_class else split.group_name or "group"),
            "named_by_item": not (kind.by_class or has_group_names(split)),
        }
        return Page("report.html", album, figures, {"queries.csv": queries_csv(split, metrics, ranking)}, values)
