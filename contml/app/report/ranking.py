"""The report of a ranking: queries with the items nearest by embedding and by label, maps, densities, label errors."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from contml.app.report.breakdown import group_rows, has_group_names, label_rows
from contml.app.report.embedding_map import MAX_TSNE, map_plots
from contml.app.report.examples import SHOWN, examples, queries_csv
from contml.app.report.explanation import Explanation, explain_pair, explanation_picture
from contml.app.report.gallery import Strip, gallery_strips, stack
from contml.app.report.label_errors import LabelSuspects, report_errors
from contml.app.report.page import About, Page
from contml.app.report.pictures import Album
from contml.app.report.plots import class_density_plot, density_plot, encode, metrics_plot
from contml.app.report.rendering import text, texts
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated, unit_words
from contml.evaluation.label_errors import FITTED
from contml.evaluation.results import KINDS, Ranking
from contml.search.calibration import Calibration
from contml.search.labelled_items import LabelledItems


@dataclass(frozen=True)
class RankingContent:
    """A ranking, as a report shows it.

    Also `gallery.png`, `queries.csv`, and `match.png`, which explains the label distance of a pair.

    Attributes:
        ranking: the items retrieved on the split of the report.
        missing: rows whose image could not be read.
        calibration: what embedding distances mean, for a line of the header.
        labelled: training items that answer with labels, for a table of the errors of answers.
        pair: the rows whose label distance `match.png` explains; default the first query and its nearest item.
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
        strips, explained = gallery_strips(split, ranking, broken), explain_pair(split, ranking, broken, self.pair)
        density = density_plot(ranking.pairs, metrics.spearman, about.squared, metrics.measure)
        figures = {
            "metrics": metrics_plot(metrics),
            "density": class_density_plot(ranking.pairs) if kind.by_class else density,
            **map_plots(split.labels, ranking.embeddings),
        }
        shown = examples(split, metrics, ranking)
        errors = report_errors(split, ranking.embeddings, self.missing)
        suspects = [] if errors is None else LabelSuspects(split, errors).examples(SHOWN)
        album.prepare([*shown.first, *shown.spread, *shown.worst, *shown.surprises, *suspects])
        files = {"gallery.png": encode(stack(strips)), "queries.csv": queries_csv(split, metrics, ranking)}
        if explained is not None:
            files["match.png"] = encode(explanation_picture(explained))
        group_count, groups = group_rows(split, ranking)
        explanation, labelled = explained or Explanation("", (), ()), self.labelled
        values = {
            "unit": text(unit_words(metrics)),
            "unit_of_numbers": text(kind.unit_of_numbers(metrics.unit, metrics.measure)),
            "calibration": "" if self.calibration is None else self.calibration.sentence(metrics.measure),
            "answers": [] if labelled is None else texts(labelled.error_rows()[1:]),
            "answer_sentences": [] if labelled is None else [text(each) for each in labelled.sentences()],
            "classes": kind.by_class,
            "chosen_pair": self.pair is not None,
            "explained": text(explanation.names),
            "match": [Strip(picture, text(title)) for title, picture in explanation.pictures],
            "parts": texts(explanation.table),
            "largest_map": MAX_TSNE,
            "squared": about.squared,
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
        return Page("report.html", album, figures, files, values)
