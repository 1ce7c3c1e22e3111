"""What an audit finds: items beside their nearest items, as examples of a page and as a CSV file."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contml._support.text import csv_bytes, number
from contml.data.split import Split
from contml.evaluation.judgment_errors import JudgmentErrors
from contml.evaluation.kinds import kind_of
from contml.evaluation.label_errors import LabelErrors, label_errors
from contml.report.examples import Example
from contml.report.gallery import TOP, line_of
from contml.report.judgment_errors import JudgmentSuspects

#: A split of fewer items, or of fewer groups, says too little about its labels.
_LEAST = 20


def report_errors(split: Split, embeddings: Tensor, missing: Tensor | None) -> LabelErrors | None:
    """The scores of a split by the embeddings `[N, d]` of a network that has not seen it.

    None of too few items, or of embeddings that are not finite.
    """
    valid_mask = torch.ones(len(split), dtype=torch.bool)
    if missing is not None:
        valid_mask[missing] = False
    if int(valid_mask.sum()) < _LEAST or (split.groups is not None and len(set(split.groups.tolist())) < _LEAST):
        return None
    if len(embeddings) < len(split) or not bool(embeddings[valid_mask].isfinite().all()):
        return None
    return label_errors(embeddings, split.labels, missing=missing, groups=split.groups)


@dataclass(frozen=True)
class LabelSuspects:
    """The items of a split with the highest scores.

    Attributes:
        what: what one of them is called.
    """

    split: Split
    errors: LabelErrors
    what = "item"

    def words(self, row: int) -> str:
        """The name of an item."""
        return self.split.name(row)

    def examples(self, count: int) -> list[Example]:
        """The items with the highest scores, each with its nearest items."""
        return [self._example(row, rank) for rank, row in enumerate(self.errors.order[:count].tolist(), start=1)]

    def _example(self, row: int, place: int) -> Example:
        errors, labels = self.errors, self.split.labels
        distances, k = errors.label_distances[row], errors.neighbours.shape[1]
        mean_error = float(errors.errors[errors.neighbours[row]].nanmean())
        predicted = f"Error of the predicted label: {number(float(errors.errors[row]))}, of its {k} nearest"
        quality = kind_of(labels).quality(distances.tolist(), labels.measure)
        title = f"{place}. Score {number(float(errors.scores[row]))}"
        line = line_of(labels, "Nearest items", errors.neighbours[row], distances)
        return Example(title, row, f"{predicted} {number(mean_error)}; {quality}", [line])

    def csv(self, count: int) -> bytes:
        """The items with the highest scores, their labels, and the names, labels and label distances of the nearest."""
        split, errors = self.split, self.errors

        def words(row: int) -> list[str]:
            return [split.name(row), split.labels.text(row)]

        k = min(TOP, errors.neighbours.shape[1])
        nearest = [f"{column}_{n}" for n in range(1, k + 1) for column in ("neighbour", "label", "label_distance")]
        lines: list[list[str | float]] = [["item", "score", "error", "label", "mean_label_distance", *nearest]]
        for row in errors.order[:count].tolist():
            rows, distances = errors.neighbours[row], errors.label_distances[row]
            name, label = words(row)
            numbers = [float(errors.scores[row]), float(errors.errors[row])]
            nearest_cells = [
                [*words(item), d] for item, d in zip(rows[:k].tolist(), distances[:k].tolist(), strict=True)
            ]
            cells = (cell for row_cells in nearest_cells for cell in row_cells)
            lines.append([name, *numbers, label, float(distances.nanmean()), *cells])
        return csv_bytes(lines)


def suspects_of(split: Split, errors: LabelErrors | JudgmentErrors) -> LabelSuspects | JudgmentSuspects:
    """The items or judgments of a split, with their scores, as a page and a file show them."""
    return JudgmentSuspects(split, errors) if isinstance(errors, JudgmentErrors) else LabelSuspects(split, errors)
