"""The findings of an audit: items with their nearest items, as examples of a page and as a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from contml._support.pages import csv_bytes
from contml._support.text import number
from contml.app.report.examples import TOP, Example, line_of
from contml.app.report.page import Album, render, text, texts
from contml.data.split import Split
from contml.evaluation.label_errors import LabelErrors
from contml.evaluation.results import kind_of


@dataclass(frozen=True)
class Suspects:
    """The items of a split with the highest scores in an audit.

    Attributes:
        ranked: whether the highest score is first. Otherwise items are in the order of the data.
    """

    split: Split
    errors: LabelErrors
    ranked: bool = field(default=True, kw_only=True)

    def rows(self, count: int) -> list[int]:
        """Return the rows with the highest scores."""
        rows: list[int] = self.errors.order[:count].tolist()
        return rows if self.ranked else sorted(rows)

    def examples(self, count: int) -> list[Example]:
        """Return the items with the highest scores, each with its nearest items."""
        examples = []
        for place, row in enumerate(self.rows(count), start=1):
            score = number(float(self.errors.scores[row]))
            examples.append(self.example(row, f"{place}. Score {score}" if self.ranked else f"Score {score}"))
        return examples

    def example(self, row: int, title: str) -> Example:
        """Return an item with its nearest items."""
        errors, labels = self.errors, self.split.labels
        distances, k = errors.label_distances[row], errors.neighbours.shape[1]
        mean_error = float(errors.errors[errors.neighbours[row]].nanmean())
        predicted = f"Error of the predicted label: {number(float(errors.errors[row]))} times that of the mean label"
        quality = kind_of(labels).quality(distances.tolist(), labels.measure)
        line = line_of(labels, "Nearest items", errors.neighbours[row], distances)
        details = f"{predicted} (mean of its {k} nearest items: {number(mean_error)}); {quality}"
        return Example(title, row, details, [line])

    def csv(self, count: int) -> bytes:
        """Return a CSV file of the items with the highest scores and their labels.

        It also has names, labels and distances of the nearest items.
        """
        split, errors = self.split, self.errors

        def words(row: int) -> list[str]:
            return [split.name(row), split.labels.text(row)]

        k = min(TOP, errors.neighbours.shape[1])
        nearest = [f"{column}_{n}" for n in range(1, k + 1) for column in ("neighbour", "label", "label_distance")]
        lines: list[list[str | float]] = [["item", "score", "error", "label", "mean_label_distance", *nearest]]
        for row in self.rows(count):
            rows, distances = errors.neighbours[row], errors.label_distances[row]
            name, label = words(row)
            line: list[str | float] = [
                name,
                float(errors.scores[row]),
                float(errors.errors[row]),
                label,
                float(distances.nanmean()),
            ]
            for item, distance in zip(rows[:k].tolist(), distances[:k].tolist(), strict=True):
                line += [*words(item), distance]
            lines.append(line)
        return csv_bytes(lines)


def errors_page(suspects: Suspects, *, title: str, caution: str, facts: Sequence[tuple[str, str]], count: int) -> bytes:
    """Return the page of an audit: the items with the highest scores, each with its nearest items.

    Args:
        suspects: the items.
        title: the heading.
        caution: the first sentence, in place of a description. By default "".
        facts: rows below the heading: name and text.
        count: number of items.
    """
    split = suspects.split.with_short_names()
    shown, album, labels = replace(suspects, split=split).examples(count), Album(split), split.labels
    album.prepare(shown)
    values = {"title": text(title), "caution": text(caution), "facts": texts(facts), "shown": shown}
    unit = text(kind_of(labels).unit_of_numbers(labels.unit, labels.measure))
    legend = [(colour, text(name)) for colour, name in split.view.legend]
    return render("audit.html", album, **values, ranked=suspects.ranked, unit=unit, legend=legend)
