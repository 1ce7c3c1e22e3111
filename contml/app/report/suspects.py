"""What an audit finds: items beside their nearest items, as examples of a page and as a CSV file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from contml._support.pages import csv_bytes
from contml._support.text import number
from contml.app.report.examples import TOP, Example, Line, line_of
from contml.app.report.judgments import judgment_kind
from contml.app.report.page import Album, render, text, texts
from contml.data.split import Split
from contml.evaluation.judgment_errors import ScoredJudgments
from contml.evaluation.label_errors import FITTED, LabelErrors, label_errors
from contml.evaluation.results import kind_of

#: A split of fewer items, or of fewer groups, says too little about its labels.
_LEAST = 20


def report_errors(split: Split, embeddings: Tensor, missing: Tensor | None) -> LabelErrors | None:
    """The scores of a split by the embeddings `[N, d]` of a network that has not seen it.

    Of more than 10,000 items, that many are scored, drawn with a fixed seed: all are compared with all. None of too few
    items, or of embeddings that are not finite.
    """
    valid_mask = torch.ones(len(split), dtype=torch.bool)
    if missing is not None:
        valid_mask[missing] = False
    if len(embeddings) < len(split) or not bool(embeddings[valid_mask].isfinite().all()):
        return None
    rows = valid_mask.nonzero()[:, 0]
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:FITTED]]
    groups = split.excluded_groups
    if len(rows) < _LEAST or (groups is not None and len(torch.unique(groups[rows])) < _LEAST):
        return None
    valid_mask[:] = False
    valid_mask[rows] = True
    return label_errors(embeddings, split.labels, missing=(~valid_mask).nonzero()[:, 0], groups=groups)


@dataclass(frozen=True)
class Suspects(ABC):
    """What has the highest scores in an audit.

    Attributes:
        ranked: whether the highest score is first; else they are in the order of the data.
        what: what one of them is called.
    """

    split: Split
    errors: Any
    ranked: bool = field(default=True, kw_only=True)
    what: ClassVar[str]

    def rows(self, count: int) -> list[int]:
        """The rows with the highest scores."""
        rows: list[int] = self.errors.order[:count].tolist()
        return rows if self.ranked else sorted(rows)

    @abstractmethod
    def words(self, row: int) -> str:
        """One of them in words."""

    def examples(self, count: int) -> list[Example]:
        """The judgments or items with the highest scores, each with its items."""
        examples = []
        for place, row in enumerate(self.rows(count), start=1):
            score = number(float(self.errors.scores[row]))
            examples.append(self.example(row, f"{place}. Score {score}" if self.ranked else f"Score {score}"))
        return examples

    @abstractmethod
    def example(self, row: int, title: str) -> Example:
        """One of them with its items."""

    @abstractmethod
    def csv(self, count: int) -> bytes:
        """A file of the judgments or items with the highest scores."""


@dataclass(frozen=True)
class LabelSuspects(Suspects):
    """The items of a split with the highest scores."""

    errors: LabelErrors
    what = "item"

    def words(self, row: int) -> str:
        """The name of an item."""
        return self.split.name(row)

    def example(self, row: int, title: str) -> Example:
        """An item with its nearest items."""
        errors, labels = self.errors, self.split.labels
        distances, k = errors.label_distances[row], errors.neighbours.shape[1]
        mean_error = float(errors.errors[errors.neighbours[row]].nanmean())
        predicted = f"Error of the predicted label: {number(float(errors.errors[row]))} times that of the mean label"
        quality = kind_of(labels).quality(distances.tolist(), labels.measure)
        line = line_of(labels, "Nearest items", errors.neighbours[row], distances)
        return Example(
            title, row, f"{predicted} (mean of its {k} nearest items: {number(mean_error)}); {quality}", [line]
        )

    def csv(self, count: int) -> bytes:
        """The items with the highest scores, their labels, and names, labels and distances of the nearest."""
        split, errors = self.split, self.errors

        def words(row: int) -> list[str]:
            return [split.name(row), split.labels.text(row)]

        k = min(TOP, errors.neighbours.shape[1])
        nearest = [f"{column}_{n}" for n in range(1, k + 1) for column in ("neighbour", "label", "label_distance")]
        lines: list[list[str | float]] = [["item", "score", "error", "label", "mean_label_distance", *nearest]]
        for row in self.rows(count):
            rows, distances = errors.neighbours[row], errors.label_distances[row]
            name, label = words(row)
            numbers = [float(errors.scores[row]), float(errors.errors[row])]
            nearest_cells = [
                [*words(item), d] for item, d in zip(rows[:k].tolist(), distances[:k].tolist(), strict=True)
            ]
            cells = (cell for row_cells in nearest_cells for cell in row_cells)
            lines.append([name, *numbers, label, float(distances.nanmean()), *cells])
        return csv_bytes(lines)


@dataclass(frozen=True)
class JudgmentSuspects(Suspects):
    """The judgments of a split with the highest scores, in the words of their kind."""

    errors: ScoredJudgments

    what = "judgment"

    def words(self, row: int) -> str:
        """A judgment in words."""
        return judgment_kind(self.split.labels).words(self.errors, row, self._names(row))

    def example(self, row: int, title: str) -> Example:
        """A judgment with its items."""
        kind = judgment_kind(self.split.labels)
        line = Line("Judged", kind.shown(self.errors, row))
        return Example(title, int(self.errors.items[row, 0]), "; ".join(kind.facts(self.errors, row)), [line])

    def csv(self, count: int) -> bytes:
        """The judgments with the highest scores: their items, what was judged and predicted, and what others say."""
        errors, kind = self.errors, judgment_kind(self.split.labels)
        lines: list[list[str | float]] = [[*kind.roles, "score", "judged", "predicted", *kind.counts]]
        for row in self.rows(count):
            names = self._names(row)
            numbers = [float(errors.predicted[row]), *(int(errors._asdict()[name][row]) for name in kind.counts)]
            lines.append([*names, float(errors.scores[row]), kind.judged(errors, row, names), *numbers])
        return csv_bytes(lines)

    def _names(self, row: int) -> list[str]:
        return [self.split.name(item) for item in self.errors.items[row].tolist()]


def suspects_of(split: Split, errors: LabelErrors | ScoredJudgments, *, ranked: bool) -> Suspects:
    """The items or judgments of a split, with their scores, as a page and a file show them."""
    if isinstance(errors, ScoredJudgments):
        return JudgmentSuspects(split, errors, ranked=ranked)
    return LabelSuspects(split, errors, ranked=ranked)


def errors_page(suspects: Suspects, *, title: str, caution: str, facts: Sequence[tuple[str, str]], count: int) -> bytes:
    """The page of an audit: the items with the highest scores beside their nearest items, or such judgments.

    Args:
        suspects: the items or judgments.
        title: the heading.
        caution: the first sentence, in place of what they are; "": none.
        facts: rows below the heading: name and text.
        count: number of items or judgments.
    """
    split = suspects.split.with_short_names()
    suspects = replace(suspects, split=split)
    album, shown, labels = Album(split), suspects.examples(count), split.labels
    album.prepare(shown)
    return render(
        "audit.html",
        album,
        title=text(title),
        caution=text(caution),
        ranked=suspects.ranked,
        facts=texts(facts),
        judged=suspects.what == "judgment",
        unit=text(kind_of(labels).unit_of_numbers(labels.unit, labels.measure)),
        legend=[(colour, text(name)) for colour, name in split.view.legend],
        shown=shown,
    )
