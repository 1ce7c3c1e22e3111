"""Training items with their embeddings and labels: a trained model answers with labels by them, and is asked by labels.

    labels.safetensors   embeddings in float32; what the constructor of the label space takes; how it was fitted

A run writes the file, and a bundle has it too, unless labels are left out. Of many training items, it has a sample.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import unreadable
from contml._support.tensors import load_tensors, save_tensors
from contml._support.text import MISSING, number, percent
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import Ranking
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.labels.saved import SavedLabels, from_saved, to_saved
from contml.runs import Run
from contml.search.answers import (
    SAME,
    AnswerDistance,
    Answers,
    Errors,
    Known,
    answer,
    choose_label_k,
    compared_by,
    fit,
    label_query,
    nearest,
    shares_of_nearest,
)
from contml.search.calibration import STRICT, Calibration

#: The most training items that are kept, the most bytes of the file, and the seed of a sample of more.
MAX_ITEMS, MAX_BYTES, SEED = 10_000, 1 << 26, 0
#: The most items of labels that a file holds as a matrix of label distances.
_MAX_MATRIX = 2_000
#: The format of the file.
_FORMAT: Literal[2] = 2
#: Items whose label distances to each other say which label is far from all, and the share of pairs that is nearer.
_PAIRS, _FAR = 64, 0.75
SAME_NOTE = "; a training image, whose own label is left out"
_DAMAGED = "run 'contml evaluate' again, or export the run again"


class AnswerRecord(BaseModel):
    """How a label is answered.

    Attributes:
        neighbours: number of neighbours.
        distance: what they are ranked by.
        calibration: the bound of the label distance to the true label, or the probability of the true class.
        left_out: errors of neighbours, regression and constant answers on training items, each left out.
        test: the same on the test split.
    """

    model_config = STRICT

    neighbours: int = Field(ge=1)
    distance: AnswerDistance
    calibration: Calibration | None
    left_out: Errors
    test: Errors

    @property
    def words(self) -> str:
        """By what a label is answered."""
        return f"the {self.neighbours} nearest training items" + (" by cosine" if self.distance == "cosine" else "")


class Record(BaseModel):
    """What the file says beside its tensors.

    Attributes:
        format: the number of the format.
        identity: of the model that embedded the items.
        total: number of training items, of which the file has all or a sample.
        label_neighbours: number of items whose mean embedding is that of a label.
        labels: the labels.
        answers: one for each label of a sum, else one.
    """

    model_config = STRICT

    format: Literal[2] = _FORMAT
    identity: str
    total: int = Field(ge=1)
    label_neighbours: int = Field(ge=1)
    labels: SavedLabels
    answers: tuple[AnswerRecord, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.answers) != max(1, len(self.labels.spaces)):
            raise ValueError(f"{len(self.answers)} answers for {max(1, len(self.labels.spaces))} labels")
        return self


class LabelQuery(NamedTuple):
    """A label as a query.

    Attributes:
        embedding: `[d]`.
        labels: the label, as a space of one item.
        items: the number of training items whose embeddings were averaged.
        away: the largest label distance of these items to the label, as text with its unit; "" for classes.
        remarks: what is unusual about the label, in sentences.
    """

    embedding: Tensor
    labels: LabelSpace
    items: int
    away: str
    remarks: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """The label of an image by the labels of its nearest training items.

    Attributes:
        title: what the label is.
        text: the label in words; of a number or a date with its unit.
        value: a number, a date as text, a list of numbers, or None for labels that are no numbers.
        low: of a number or a date, the low end of the interval; None without a calibration.
        high: the high end.
        bound: the label distance within which the true label is, with the probability `level`; None for classes.
        bound_text: the same in the unit of the labels.
        level: that probability, or of classes, that the answer is right; None without a calibration.
        neighbours: number of training items.
        row: the training item whose label is the answer, a row of `LabelledItems.labels`; None for a mean.
        same: whether the image is a training item itself, which is then left out.
        labels: the answer as a space of one item, for pages that draw it.
    """

    title: str
    text: str
    value: Any
    low: Any
    high: Any
    bound: float | None
    bound_text: str
    level: float | None
    neighbours: int
    row: int | None
    same: bool
    labels: LabelSpace = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The title, and that the label is not the image's own."""
        return f"{self.title} (predicted)"

    def __str__(self) -> str:
        """The answer on one line, with its name."""
        return f"{self.name}: {self.words}" + (SAME_NOTE if self.same else "")

    @property
    def words(self) -> str:
        """The answer on one line."""
        text = " / ".join(self.text.split("\n")) or f"as training item {self.row}"
        return f"{text}{self.interval_words}"

    @property
    def interval_words(self) -> str:
        """The interval, the bound or the probability, in brackets after a space; "" without a calibration."""
        if self.level is None:
            return ""
        if self.bound is None:
            return f" ({percent(self.level)})"
        if self.low is not None:
            _, low, high = self.labels.interval_texts(self.value, self.low, self.high)
            return f" ({low} to {high})"
        return f" (within {self.bound_text}, {percent(self.level)})"

    def excludes(self, label: LabelSpace) -> bool:
        """Whether a label, a space of one item, is beyond the bound, or another class; False without a calibration."""
        if self.level is None:
            return False
        return float(growing(self.labels).joined(label).filled([0], [1])) > (self.bound or 0.0)

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON and tables."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "bound": self.bound, "level": self.level}
        words = {"label": self.title, "text": self.text}
        return {**words, **numbers, "neighbours": self.neighbours, "same_image": self.same}


class LabelledItems:
    """Training items with their embeddings and labels.

    Args:
        embeddings: `[N, d]` in float32, as the model gives them.
        labels: N labels.
        record: how it was fitted.
    """

    def __init__(self, embeddings: Tensor, labels: LabelSpace, record: Record) -> None:
        self.embeddings, self.labels, self.record = embeddings, labels, record
        self._terms = [
            (space if present is None else space[present].as_root(), present) for space, present in labels.terms
        ]

    @classmethod
    def make(
        cls,
        train: tuple[Tensor, Split],
        identity: str,
        total: int,
        val: tuple[Ranking, Split] | None,
        test: tuple[Ranking, Split] | None,
    ) -> LabelledItems:
        """Fitted to training items; the errors of answers are those of validation and test queries.

        Args:
            train: the embeddings of training items, and these items; at least three.
            identity: of the model.
            total: the number of all training items.
            val: what was found on the validation split.
            test: what was found on the test split.
        """
        embeddings, split = train
        kept = embeddings.float()  # as the file has them
        known = Known(kept, split.labels.to("cpu"), split.groups, split.exclude_group)

        def queries(found: tuple[Ranking, Split] | None) -> Known | None:
            if found is None:
                return None
            ranking, its_split = found
            rows = ranking.queries.cpu()
            groups = None if its_split.groups is None else its_split.groups[rows]
            return Known(ranking.embeddings[rows].cpu(), its_split.labels.to("cpu")[rows].as_root(), groups)

        asked = queries(val), queries(test)
        answers = [
            AnswerRecord(
                neighbours=fitted.k,
                distance=fitted.distance,
                calibration=fitted.calibration,
                left_out=fitted.left_out,
                test=fitted.test,
            )
            for fitted in fit(known, *asked)
        ]
        saved, _ = to_saved(known.labels)
        record = Record(
            identity=identity,
            total=total,
            label_neighbours=choose_label_k(known, asked[0]),
            labels=saved,
            answers=tuple(answers),
        )
        return cls(kept, known.labels, record)

    def save(self, path: Path) -> None:
        """Write the file."""
        saved, tensors = to_saved(self.labels)
        record = self.record.model_copy(update={"labels": saved})
        tensors = {"embeddings": self.embeddings, **tensors}
        save_tensors(path, tensors, record=record.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path, identity: str, dim: int | None = None) -> LabelledItems:
        """Read what `save` wrote.

        Args:
            path: the file.
            identity: of the model that the items must be embedded by.
            dim: the length of its embeddings, for the error of a model that was shortened.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: it is damaged, or of another model.
        """
        if path.is_file() and path.stat().st_size > 2 * MAX_BYTES:
            raise InputError(str(path), f"has {path.stat().st_size >> 20:,} MB", f"at most {2 * MAX_BYTES >> 20} MB")
        tensors, values = load_tensors(path)
        saved = values.get("record")
        written = saved.get("format") if isinstance(saved, dict) else None
        if type(written) is int and written != _FORMAT:
            raise InputError(str(path), f"format {written}", f"must be {_FORMAT}", _DAMAGED)
        try:
            record = Record.model_validate_json(json.dumps(saved))
        except (ValidationError, ValueError) as error:
            raise unreadable(path, error, _DAMAGED) from None
        embeddings = tensors.get("embeddings")
        if record.identity != identity:
            if dim is not None and embeddings is not None and embeddings.ndim == 2 and embeddings.shape[1] > dim:
                raise no_labels_of_shorter(str(path), dim, embeddings.shape[1])
            hint = "run 'contml evaluate' again; to save the model without them, give labels=False"
            raise InputError(str(path), "has labels for another model", hint=hint)
        if embeddings is None or embeddings.dtype != torch.float32 or embeddings.ndim != 2 or len(embeddings) < 3:
            raise InputError(str(path), "has no embeddings of training items", hint=_DAMAGED)
        labels, n = from_saved(record.labels, tensors, str(path)), len(embeddings)
        if len(labels) != n or not bool(embeddings.isfinite().all()):
            raise InputError(str(path), f"{n} embeddings, not finite, or not of {len(labels)} labels", hint=_DAMAGED)
        most = max(record.label_neighbours, *(each.neighbours for each in record.answers))
        if most >= n:
            raise InputError(str(path), f"{most} neighbours of {n} items", hint=_DAMAGED)
        return cls(embeddings, labels, record)

    @classmethod
    def of_run(cls, run: Run) -> LabelledItems | None:
        """Return the items of the model that a run evaluated; None if it has none, or they are of other weights.

        Raises:
            InputError: the file is damaged.
        """
        try:
            return cls.read(run.labels, Evaluated.read(run.evaluation()).identity)
        except FileNotFoundError:
            return None

    @property
    def titles(self) -> list[str]:
        """The names of the labels: one, or one per term of a sum."""
        return [space.title for space, _ in self._terms]

    @property
    def sample_words(self) -> str:
        """How many of the training items these are; "" for all."""
        n, total = len(self.embeddings), self.record.total
        return f"{n:,} of {total:,} training items, drawn at random (seed {SEED})" if n < total else ""

    @cached_property
    def _compared(self) -> list[tuple[Tensor, float]]:
        """Of each label, the items as queries are compared with them, and below which squared distance one is a query.

        Only items with the label are compared.
        """
        found = []
        for (_, present), record in zip(self._terms, self.record.answers, strict=True):
            known = compared_by(record.distance, self.embeddings if present is None else self.embeddings[present])
            found.append((known, SAME * float(known.double().square().sum(1).mean())))
        return found

    @cached_property
    def far(self) -> float:
        """The label distance to the nearest training item from which on a label is far from all of them."""
        rows = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(0))[: 2 * _PAIRS]
        return float(self.labels.filled(rows[: len(rows) // 2], rows[len(rows) // 2 :]).quantile(_FAR))

    def query(self, label: Any) -> LabelQuery:
        """The embedding of a label: the mean of the embeddings of the training items nearest to it by label.

        It has the mean of their lengths.

        Args:
            label: as `LabelSpace.item` of the labels takes it: in the unit of the data, or as text.

        Raises:
            InputError: it is no label of this kind.
        """
        labels, n = growing(self.labels), len(self.labels)
        item = labels.item(label)
        whole = labels.joined(item)
        distances = whole.filled([n], range(n)).cpu()
        remarks = []
        nearest_row, least = int(distances[0].argmin()), float(distances.min())
        if least >= self.far > 0:
            words = labels.text(nearest_row).split("\n")[0]
            away = f", {labels.measure.text(least)} away" if labels.kind == "graded" else ""
            remarks.append(
                f"{whole.text(n) or labels.title} is far from all training labels"
                + (f": the nearest is {words}{away}" if words else "")
            )
        given = label if isinstance(label, dict) else {labels.title: label}
        for space, _ in labels.terms:
            unknown = (
                growing(space).unknown_words(given.get(space.title, ""))
                if isinstance(given.get(space.title), str)
                else []
            )
            if unknown:
                remarks.append(f"{space.title}: no training item has {', '.join(unknown)}")
        k = self.record.label_neighbours
        averaged = distances[0, shares_of_nearest(distances, k)[0] > 0]
        away = whole.measure.text(float(averaged.max())) if labels.kind == "graded" else ""
        embedding = label_query(self.embeddings, distances, k)[0].float()
        return LabelQuery(embedding, item, len(averaged), away, remarks)

    def answer(self, embeddings: Tensor) -> list[list[Answer]]:
        """The labels of Q embeddings `[Q, d]` of the model: one answer for each, or several for a sum of labels.

        A training item that is the image itself is left out.
        """
        per_label = [self._answer(embeddings.float(), number) for number in range(len(self._terms))]
        return [list(each) for each in zip(*per_label, strict=True)]

    def _answer(self, embeddings: Tensor, number: int) -> Sequence[Answer]:
        (space, present), (known, limit) = self._terms[number], self._compared[number]
        record = self.record.answers[number]
        queries = compared_by(record.distance, embeddings)
        k = min(record.neighbours, max(1, len(known) - 2))
        squared, rows = nearest(known, queries, k + 1)
        same = squared[:, 0] < limit
        first = same.long()[:, None] + torch.arange(squared.shape[1] - 1)
        squared, rows = squared.gather(1, first), rows.gather(1, first)
        found = answer(space, squared, rows, k)
        numbers = torch.arange(len(self.labels)) if present is None else present.nonzero()[:, 0]
        kept = None if found.rows is None else numbers[found.rows].tolist()
        return [
            _answer_of(found, q, space, record, None if kept is None else kept[q], bool(same[q]))
            for q in range(len(queries))
        ]

    def error_rows(self) -> list[list[str]]:
        """The errors of answers as a table, in the unit of the labels: a header, and a row for each way to answer."""
        rows = [["label", "answered by", "training items, left out", "test"]]
        for (space, _), record in zip(self._terms, self.record.answers, strict=True):
            names = [record.words, "ridge regression on the embedding"]
            names.append("always the mean" if space.vectors is not None else "always the most central label")
            for name, *errors in zip(names, record.left_out, record.test, strict=True):
                if any(error is not None for error in errors):
                    rows.append([space.title, name, *(_error_text(error, space) for error in errors)])
        return rows

    def sentences(self) -> list[str]:
        """How well the answers hold on the test split, a sentence for each label that has a calibration."""
        found = []
        for (space, _), record in zip(self._terms, self.record.answers, strict=True):
            calibration = record.calibration
            check = None if calibration is None else calibration.check
            if calibration is None or check is None or check.observed is None:
                continue
            share = f"{check.share} of test images"
            start = f"answers of {space.title}, by {record.words}"
            if check.width is None:
                found.append(f"{start}: right with {100 * check.expected:.1f} % on average; right for {share}")
            else:
                width = f"{space.measure.before}{number(check.width)}{space.measure.after}"
                found.append(
                    f"{start}: {percent(calibration.level or 0)} interval holds for {share}, mean bound {width}"
                )
        return found


def no_labels_of_shorter(subject: str, dim: int, whole_dim: int) -> InputError:
    """The error of a model whose embeddings were shortened: labels of training items belong to the whole ones."""
    got = f"embeddings of {dim} numbers, the first of {whole_dim}, have no labels of training items"
    return InputError(
        subject, got, hint="'contml index RUN IMAGES --out INDEX' without --dim keeps the whole embedding"
    )


def _answer_of(found: Answers, q: int, space: LabelSpace, record: AnswerRecord, row: int | None, same: bool) -> Answer:
    labels, vectors, calibration = found.labels, found.labels.vectors, record.calibration
    low = high = bound = level = None
    bound_text = ""
    if calibration is not None and calibration.kind == "probability":
        level = float(calibration.same_class(float(found.spread[q])))
    elif calibration is not None:
        level, bound = calibration.level, float(calibration.label_distance(float(found.spread[q])).high)
        bound_text = space.measure.text(bound)
        if vectors is not None and vectors.shape[1] == 1:
            low, high = (growing(labels).of_vectors(vectors[[q]] + end).plain(0) for end in (-bound, bound))
    value = labels.plain(q)
    text = labels.text(q) if low is None else labels.interval_texts(value, low, high)[0]
    label, k = labels[[q]].as_root(), record.neighbours
    return Answer(space.title, text, value, low, high, bound, bound_text, level, k, row, same, label)


def _error_text(error: float | None, space: LabelSpace) -> str:
    if error is None:
        return MISSING
    return f"{percent(error)} wrong" if space.kind == "classes" else space.measure.text(error)


def sample(labels: LabelSpace, dim: int) -> Tensor:
    """The rows of training items that are kept: all, or as many as the limits allow, drawn with a fixed seed.

    Args:
        labels: of all training items.
        dim: the length of an embedding.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    few, _ = to_saved(labels[order[:3]].as_root())
    count = min(MAX_ITEMS if few.kind != "matrix" else _MAX_MATRIX, len(labels))
    while True:
        rows = order[:count].sort().values
        saved, tensors = to_saved(labels[rows].as_root())
        size = 4 * dim * count + len(saved.model_dump_json()) + sum(tensor.nbytes for tensor in tensors.values())
        if size <= MAX_BYTES or count <= 3:
            return rows
        count = max(3, int(0.9 * count * MAX_BYTES / size))
