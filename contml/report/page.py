"""The report as one self-contained HTML page: inline pictures, no scripts, no external files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from contml._support.files import write
from contml._support.text import unbroken
from contml.data.split import SPLIT_TITLES, Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import Captions
from contml.evaluation.judgment_errors import JudgmentErrors
from contml.evaluation.judgments import Judged
from contml.evaluation.kinds import KINDS, kind_of
from contml.evaluation.label_errors import LabelErrors
from contml.evaluation.metrics import title_of
from contml.evaluation.results import Ranking
from contml.evaluation.table import further, headline_words, scope, sentence, shortened, summary, unit_words
from contml.labels.judgments import RankingLabels
from contml.labels.pairs import PairLabels
from contml.report.breakdown import group_rows, label_rows
from contml.report.caption_examples import caption_examples, captions_csv, fact_table, intervals
from contml.report.card import card
from contml.report.embedding_map import MAX_TSNE, map_plot, tsne_plot
from contml.report.examples import SHOWN, Example, examples, queries_csv
from contml.report.explanation import Explanation, explain_pair, explanation_picture
from contml.report.gallery import Strip, gallery_strips, stack
from contml.report.judgments import interval_rows, judged_examples, judgments_csv
from contml.report.label_errors import LabelSuspects, report_errors, suspects_of
from contml.report.pictures import Album, panel_pictures
from contml.report.plots import (
    class_density_plot,
    density_plot,
    encode,
    metrics_plot,
    picture_of,
    training_plot,
    watched,
)
from contml.report.rendering import render, text, texts
from contml.retrieval.calibration import Calibration
from contml.retrieval.labelled_items import LabelledItems

#: Plots whose panels are pictures of their own on the page.
_PANELS = ("curves", "metrics")
#: The line of a card: a picture, the pictures beside it, and words.
CardLine: TypeAlias = tuple[Image.Image, list[Image.Image], str]
#: The lines of `metrics.jsonl`.
Rows: TypeAlias = Sequence[Mapping[str, Any]]
#: Items of a query on the card.
_ON_CARD = 5


@dataclass(frozen=True)
class About:
    """What a report says of the run beside its result.

    Attributes:
        brief: the essentials for the header: data, backbone, parameters, loss, time, device, version.
        command: the command that started the run; empty if it was started from Python.
        facts: all of the run, for its foot: options, versions, ...
        usage: the lines of code that use the model.
        squared: whether the loss wants label distances proportional to squared embedding distances, or to plain ones;
            None: it wants no proportion.
    """

    brief: Sequence[str] = ()
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()
    usage: str = ""
    squared: bool | None = None


def write_report(
    folder: Path,
    *,
    title: str,
    config: str,
    rows: Rows,
    evaluation: Evaluated,
    ranking: Ranking,
    split: Split,
    missing: Tensor | None = None,
    calibration: Calibration | None = None,
    labelled: LabelledItems | None = None,
    pair: tuple[int, int] | None = None,
    about: About = About(),
) -> Path:
    """Write `report.html`, its plots as PNG, `card.png` and `queries.csv` into the folder; returns the page's path.

    `match.png` explains the label distance of a pair.

    Args:
        folder: where to write; made if it does not exist. Every file is replaced as a whole or not at all.
        title: the heading of the page, usually the name of the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        evaluation: the metrics of the result, and which split and weights they are of.
        ranking: the items retrieved on this split.
        split: the split itself: it draws the pictures.
        missing: rows whose image could not be read.
        calibration: what embedding distances mean, for a line of the header.
        labelled: training items that answer with labels, for a table of the errors of answers.
        pair: the rows whose label distance `match.png` explains; default the first query and its nearest item.
        about: what the page says of the run.
    """
    split, metrics = split.with_short_names(), evaluation.evaluation
    album = Album(split)
    broken = album.broken
    strips, explained = gallery_strips(split, ranking, broken), explain_pair(split, ranking, broken, pair)
    kind = KINDS[metrics.kind]
    density = density_plot(ranking.pairs, metrics.spearman, about.squared, metrics.measure)
    figures = {
        "metrics": metrics_plot(metrics),
        "density": class_density_plot(ranking.pairs) if kind.by_class else density,
        "map": map_plot(split, ranking.embeddings, broken),
        "tsne": tsne_plot(split, ranking.embeddings, broken),
    }
    page_examples = examples(split, metrics, ranking)
    errors = report_errors(split, ranking.embeddings, missing)
    suspects = [] if errors is None else LabelSuspects(split, errors).examples(SHOWN)
    example_lists = (page_examples.first, page_examples.spread, page_examples.worst, page_examples.surprises, suspects)
    album.prepare([example for example_list in example_lists for example in example_list])
    files = {"gallery.png": encode(stack(strips)), "queries.csv": queries_csv(split, metrics, ranking)}
    if explained is not None:
        files["match.png"] = encode(explanation_picture(explained))
    group_count, groups = group_rows(split, ranking)
    explanation = explained or Explanation("", (), ())
    values = {
        "unit": text(unit_words(metrics)),
        "unit_of_numbers": text(kind.unit_of_numbers(metrics.unit, metrics.measure)),
        "calibration": "" if calibration is None else calibration.sentence(metrics.measure),
        "answers": [] if labelled is None else texts(labelled.error_rows()[1:]),
        "answer_sentences": [] if labelled is None else [text(each) for each in labelled.sentences()],
        "classes": kind.by_class,
        "chosen_pair": pair is not None,
        "explained": text(explanation.names),
        "match": [Strip(picture, text(title)) for title, picture in explanation.pictures],
        "parts": texts(explanation.table),
        "largest_tsne": MAX_TSNE,
        "squared": about.squared,
        "shown": page_examples,
        "suspects": suspects,
        "legend": [(colour, text(name)) for colour, name in split.view.legend],
        "labels": texts(label_rows(split, ranking, missing)),
        "groups": texts(groups),
        "group_count": group_count,
    }

    lines = [_card_line(album, example) for example in page_examples.first]
    page = _Page("report.html", album, figures, lines, files, values)
    return page.write(folder, title, config, rows, evaluation, about)


def write_caption_report(
    folder: Path,
    *,
    title: str,
    config: str,
    rows: Rows,
    evaluation: Evaluated,
    captions: Captions,
    split: Split,
    attention: Mapping[str, Tensor],
    size: tuple[int, int],
    about: About = About(),
) -> Path:
    """Write `report.html` of a captioner: scores, captions under their images, facts, attention, curves.

    Also `card.png`, and `queries.csv`: the caption and the scores of each image.

    Args:
        folder: where to write; made if it does not exist.
        title: the heading of the page, usually the name of the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        evaluation: the metrics of the result, and which split and weights they are of.
        captions: the captions of the images.
        split: the split itself: its images and references.
        attention: where the captioner looked before each word `[T, P]`, by row.
        size: side of the resized image and of its centre crop, which the captioner saw.
        about: what the page says of the run.
    """
    album, positions = Album(split.with_short_names()), captions.shown()
    first = sorted({index for index in (0, 1, len(positions) // 2) if index < len(positions)})  # two best, and median
    values = {
        "intervals": texts(intervals(captions)),
        "facts_stated": fact_table(captions),
        "first": first,
        "examples": caption_examples(captions, album, attention, size),
    }
    shown = [(int(captions.queries[positions[n]]), captions.texts[positions[n]]) for n in first]
    lines: list[CardLine] = [(album.picture(row), [], words) for row, words in shown]
    files = {"queries.csv": captions_csv(captions, album.split)}
    page = _Page("captions.html", album, {}, lines, files, values)
    return page.write(folder, title, config, rows, evaluation, about)


def write_judgment_report(
    folder: Path,
    *,
    title: str,
    config: str,
    rows: Rows,
    evaluation: Evaluated,
    judged: Judged,
    split: Split,
    about: About = About(),
) -> Path:
    """Write `report.html` of judgments: metrics with intervals, judgments with their images, curves.

    Also `card.png`, and `queries.csv`: what judges and model say in each judgment.

    Args:
        folder: where to write; made if it does not exist.
        title: the heading of the page, usually the name of the run.
        config: the resolved config of the run, as YAML text.
        rows: the lines of `metrics.jsonl`; the events "train" and "evaluation" are drawn.
        evaluation: the metrics of the result, and which split and weights they are of.
        judged: what the model says about the judgments.
        split: the split itself: its images.
        about: what the page says of the run.
    """
    metrics, album, labels = evaluation.evaluation, Album(split.with_short_names()), judged.labels
    spread, worst = judged_examples(judged)
    first = [spread[n] for n in sorted({0, len(spread) // 2, len(spread) - 1})]
    album.prepare([*spread, *worst])
    values = {
        "triplets": labels.kind == "triplets",
        "pairs": isinstance(labels, PairLabels),
        "value": labels.of if isinstance(labels, RankingLabels) else "",
        "size": scope(metrics),
        "intervals": texts(interval_rows(metrics)),
        "first": first,
        "spread": spread,
        "worst": worst,
    }
    lines = [_card_line(album, each) for each in first]
    files = {"queries.csv": judgments_csv(judged, album.split)}
    figures = {}
    if isinstance(labels, PairLabels):
        points = torch.stack((labels.judged_pairs.distances, judged.distances), 1)
        figures["density"] = density_plot(points, metrics.main.model, None, metrics.measure)
    page = _Page("judgments.html", album, figures, lines, files, values)
    return page.write(folder, title, config, rows, evaluation, about)


def errors_page(
    split: Split,
    errors: LabelErrors | JudgmentErrors,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    count: int,
) -> bytes:
    """The page of an audit: the items with the highest scores beside their nearest items, or such judgments.

    Args:
        split: the items.
        errors: their scores and neighbours, or the scores of their judgments.
        title: the heading.
        facts: rows below the heading: name and text.
        count: number of items or judgments.
    """
    split = split.with_short_names()
    suspects = suspects_of(split, errors)
    album, shown, labels = Album(split), suspects.examples(count), split.labels
    album.prepare(shown)
    return render(
        "audit.html",
        album,
        title=text(title),
        facts=texts(facts),
        judged=suspects.what == "judgment",
        unit=text(kind_of(labels).unit_of_numbers(labels.unit, labels.measure)),
        legend=[(colour, text(name)) for colour, name in split.view.legend],
        shown=shown,
    )


def _card_line(album: Album, each: Example) -> CardLine:
    items = each.lines[0][1][:_ON_CARD]
    return album.picture(each.row), [album.picture(item.row) for item in items], each.details


def _sections(figures: Mapping[str, Figure], whole: Mapping[str, Image.Image]) -> dict[str, list[Strip]]:
    """The pictures of the plots by section of the page; the panels of some are pictures of their own."""
    return {
        name: [Strip(picture, "") for picture in (panel_pictures(figure) if name in _PANELS else [whole[name]])]
        for name, figure in figures.items()
    }


class _Page(NamedTuple):
    """What the report of one kind of result shows.

    Attributes:
        template: the file of the page.
        album: its pictures of items.
        figures: the plots by section, beside that of the training.
        card: the lines of the card.
        files: other files by name.
        values: of the template.
    """

    template: str
    album: Album
    figures: Mapping[str, Figure]
    card: Sequence[CardLine]
    files: Mapping[str, bytes]
    values: Mapping[str, Any]

    def write(self, folder: Path, title: str, config: str, rows: Rows, evaluated: Evaluated, about: About) -> Path:
        """Write all files, and the page with pictures of the best quality with which it is small enough."""
        folder.mkdir(parents=True, exist_ok=True)
        metrics, shown_split = evaluated.evaluation, watched(rows, evaluated)
        headline = f"{'Untrained weights. ' if evaluated.untrained else ''}{headline_words(metrics)}"
        trained = any(row.get("event") == "train" for row in rows)
        figures = {**({"curves": training_plot(rows, evaluated)} if trained else {}), **self.figures}
        plots = {name: picture_of(figure) for name, figure in figures.items()}
        files = {f"{name}.png": encode(picture) for name, picture in plots.items()}
        files |= {"card.png": encode(card(title, headline, self.card)), **self.files}
        header, *table = summary(metrics)
        table, rest = shortened(table, str(metrics.k)) if KINDS[metrics.kind].ranked else (table, [])
        files["report.html"] = render(
            self.template,
            self.album,
            sections=_sections(figures, plots),
            title=text(title),
            headline=unbroken(text(headline)),
            result=unbroken(sentence(metrics)),
            date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
            evaluation=metrics,
            description=evaluated.description,
            cautions=evaluated.notes,
            comparison="" if evaluated.without_head else text(evaluated.comparison),
            split=evaluated.split_words,
            watched=SPLIT_TITLES[shown_split],
            baselines=shown_split == evaluated.split,
            main=title_of(metrics.headline),
            header=header,
            table=texts(table),
            folded=texts([*rest, *further(metrics)]),
            config=text(config),
            brief=[text(fact) for fact in about.brief],
            facts=[(name, text(value)) for name, value in about.facts],
            command=text(about.command),
            usage=text(about.usage),
            **self.values,
        )
        for name, content in files.items():
            write(folder / name, methodcaller("write_bytes", content))
        return folder / "report.html"
