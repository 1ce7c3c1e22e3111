"""Training items with their embeddings and labels. A model uses them to predict labels and to search through labels.

    labels.safetensors   embeddings in float32; the arguments of the label space; coordinates of the labels
                         (`contml.evaluation.posterior`); a record of the fit

A run writes the file, and a bundle has it too, unless labels are left out. If there are many training items, it has a
sample.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import unreadable
from contml._support.tensors import load_tensors, save_tensors
from contml._support.text import number, percent
from contml.contracts import Measure
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.evaluation.intervals import items_of_queries, paired_interval
from contml.evaluation.metrics import title_of
from contml.evaluation.posterior import CHOOSING, COORDINATES, Coordinates, Posterior, as_query, softmax_of
from contml.evaluation.results import Evaluation, Ranking
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.labels.saved import SavedLabels, from_saved, to_saved
from contml.runs import Run
from contml.search.answers import Answer, Predicted, answer_of, predicted
from contml.search.calibration import STRICT, Calibration, Pairs, calibrate

#: The most training items that are kept, the most bytes of the file, and the seed of a sample of more.
MAX_ITEMS, MAX_BYTES, SEED = 10_000, 1 << 26, 0
#: The most items of labels that a file holds as a matrix of label distances.
_MAX_MATRIX = 2_000
#: The format of the file.
_FORMAT: Literal[3] = 3
#: Pairs of items whose label distances define which label is far from all. This share of the pairs is nearer.
_PAIRS, _FAR = 64, 0.75
#: Predictions compared with true labels at a time.
_BLOCK = 64
#: Two embeddings are of the same image if their squared distance is a smaller share of the mean squared length of all:
#: they differ by rounding.
SAME = 1e-6
_DAMAGED = "run 'contml evaluate' again, or export the run again"

#: The ranking of a search by image: embedding distance, or the distance of label vectors.
By = Literal["embedding", "labels"]
#: The ranking of a split, its unreadable rows, and the split.
Ranked: TypeAlias = tuple[Ranking, Tensor, Split]


class Errors(NamedTuple):
    """Mean label distances of predictions to the true labels. None if they are not known.

    Attributes:
        posterior: the error of the predictions.
        constant: the error of a constant prediction: the mean of all training labels, or the most central of a sample.
    """

    posterior: float | None = None
    constant: float | None = None


class PredictionRecord(BaseModel):
    """The quality of the predictions of a label.

    Attributes:
        calibration: the bound of the label distance to the true label, or the probability of the true class. None with
            too few validation queries.
        test: errors on the test split.
    """

    model_config = STRICT

    calibration: Calibration | None
    test: Errors


class SearchRecord(BaseModel):
    """The ranking that a search by image uses, chosen on the validation split.

    Attributes:
        by: the chosen ranking. It is "labels" if the 95 % interval of its gain is above 0.
        metric: the name of the metric that chose.
        embedding: the metric by embedding distance.
        labels: the metric through labels.
        margin: half the width of the interval of their difference. None for a single query or group.
        calibration: the meaning of a distance of label vectors. None with too few validation queries.
        test: the metric by embedding distance and through labels on the test split. None without a test split.
    """

    model_config = STRICT

    by: By
    metric: str
    embedding: float
    labels: float
    margin: float | None
    calibration: Calibration | None
    test: tuple[float, float] | None = None

    def words(self, measure: Measure) -> str:
        """Return the metric of both rankings on validation and test split, in the unit of the labels."""
        texts = [measure.text(value) for value in (self.labels, self.embedding, *reversed(self.test or ()))]
        on_test = f" (test: {texts[2]}, {texts[3]})" if self.test else ""
        found = f"{title_of(self.metric)} on validation: {texts[0]} through labels, {texts[1]} by embedding"
        if self.margin is None:
            return f"{found}, which says nothing of other queries{on_test}"
        return f"{found}, difference {measure.difference(self.labels, self.embedding, self.margin)}{on_test}"


class Record(BaseModel):
    """The record in the file, beside its tensors.

    Attributes:
        format: the number of the format.
        identity: the identity of the model that embedded the items.
        total: number of training items. The file has all of them, or a sample.
        neighbours: number of neighbours of the posterior.
        scale: scale of the posterior.
        labels: the labels.
        predictions: one for each label of a sum. Labels that are not a sum have one.
        search: the ranking of a search by image. None for classes, and without a validation split.
    """

    model_config = STRICT

    format: Literal[3] = _FORMAT
    identity: str
    total: int = Field(ge=1)
    neighbours: int = Field(ge=1)
    scale: float = Field(gt=0)
    labels: SavedLabels
    predictions: tuple[PredictionRecord, ...] = Field(min_length=1)
    search: SearchRecord | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.predictions) != max(1, len(self.labels.spaces)):
            raise ValueError(f"{len(self.predictions)} predictions for {max(1, len(self.labels.spaces))} labels")
        return self

    @property
    def words(self) -> str:
        """The items that predict a label, as text."""
        return f"the {self.neighbours} nearest training items"


class LabelQuery(NamedTuple):
    """A label as a query.

    Attributes:
        by: what its vector is compared with.
        vector: the label vector `[r + 1]`. For a class, it is the mean embedding of its training items `[d]`.
        labels: the label, as a space of one item.
        remarks: sentences on what is unusual about the label.
    """

    by: By
    vector: Tensor
    labels: LabelSpace
    remarks: Sequence[str]


class LabelledItems:
    """Training items with their embeddings and labels.

    Args:
        embeddings: `[N, d]` in float32, as the model gives them.
        labels: N labels.
        coordinates: the map from labels to coordinates. None for classes.
        values: the coordinates of each label `[N, r]`. For classes, their ids `[N]`.
        record: the record of the fit.
    """

    def __init__(
        self, embeddings: Tensor, labels: LabelSpace, coordinates: Coordinates | None, values: Tensor, record: Record
    ) -> None:
        self.embeddings, self.labels, self.coordinates, self.record = embeddings, labels, coordinates, record
        self.posterior = Posterior(embeddings, values, record.neighbours, record.scale)
        self._terms = [(space if has is None else space[has].as_root(), has) for space, has in labels.terms]

    @classmethod
    def make(
        cls, train: tuple[Tensor, Split], identity: str, total: int, val: Ranked | None, test: Ranked | None
    ) -> LabelledItems:
        """Fit to training items. Validation queries calibrate and choose, and test queries give the errors.

        Args:
            train: the embeddings of training items, and the items. There are at least three.
            identity: the identity of the model.
            total: the number of all training items.
            val: the ranking of the validation split, its unreadable rows, and the split.
            test: the same for the test split.
        """
        embeddings, split = train[0].float(), train[1]  # as the file has them
        labels = split.labels.to("cpu")
        ids = labels.class_ids
        coordinates = Coordinates.fit(labels) if ids is None else None
        rows = range(len(labels))
        values = ids if coordinates is None else coordinates.of(labels.filled(rows, coordinates.landmarks).cpu())
        assert values is not None
        asked, tested = (None if each is None else _Queries.of(labels, *each) for each in (val, test))
        queries = None if asked is None else (asked.embeddings, asked.label_values(coordinates))
        posterior = Posterior.fit(embeddings, values, queries, split.groups if split.exclude_group else None)
        blank = PredictionRecord(calibration=None, test=Errors())
        fit: dict[str, Any] = {"neighbours": posterior.k, "scale": posterior.scale, "labels": to_saved(labels)[0]}
        record = Record(identity=identity, total=total, predictions=(blank,) * len(labels.terms), **fit)
        made = cls(embeddings, labels, coordinates, values, record)
        predictions = tuple(made._fitted(n, asked, tested) for n in range(len(labels.terms)))
        search = None if val is None or coordinates is None else made._searching(*val)
        made.record = record.model_copy(update={"predictions": predictions, "search": search})
        return made

    def _fitted(self, n: int, val: _Queries | None, test: _Queries | None) -> PredictionRecord:
        """Return the quality of the predictions of label n."""
        (labels, _), calibration, of_test = self._terms[n], None, Errors()
        if val is not None and (asked := val.term(labels, n)) is not None:
            found = self.predict(asked.embeddings, n)
            pairs = asked.pairs(found.spread, asked.errors(found.labels))
            calibration = calibrate(pairs, labels.kind, form="bound", largest=labels.largest)
        if test is not None and (tested := test.term(labels, n)) is not None:
            found = self.predict(tested.embeddings, n)
            errors = tested.errors(found.labels)
            of_test = Errors(float(errors.mean()), tested.constant())
            if calibration is not None:
                calibration = calibration.checked(tested.pairs(found.spread, errors), labels.measure)
        return PredictionRecord(calibration=calibration, test=of_test)

    def _searching(self, ranking: Ranking, missing: Tensor, split: Split) -> SearchRecord:
        """Choose the ranking of a search by image, by validation queries."""
        evaluation, by_labels = self.evaluate(ranking.embeddings, missing, split)
        difference, margin = paired_interval(ranking.values, by_labels.values, ranking.items)
        vectors, rows, k = by_labels.embeddings.double(), by_labels.queries, evaluation.k  # label vectors
        queries, found = vectors[rows, None], vectors[by_labels.model[:, :k]]
        between = (queries - found)[:, :, :-1].square().sum(2) + queries[:, :, -1].square() + found[:, :, -1].square()
        label_distances = by_labels.label_distances[:, :k].double()
        units = rows if split.groups is None else split.groups[rows]
        pairs = Pairs(between.sqrt().numpy(), label_distances.numpy(), units.numpy(), ranking.items)
        by: By = "labels" if difference > margin else "embedding"
        means: dict[str, Any] = {"embedding": float(ranking.values.mean()), "labels": float(by_labels.values.mean())}
        means["margin"] = None if np.isnan(margin) else margin
        calibration = calibrate(pairs, "graded", largest=self.labels.largest)
        return SearchRecord(by=by, metric=evaluation.headline, calibration=calibration, **means)

    def evaluate(
        self, embeddings: Tensor, missing: Tensor, split: Split, evaluator: RetrievalEvaluator | None = None
    ) -> tuple[Evaluation, Ranking]:
        """Evaluate embeddings of a split through labels. `missing` are the rows whose image cannot be read."""
        vectors = self.posterior.label_vectors(embeddings)
        evaluator = evaluator or RetrievalEvaluator()
        return evaluator.evaluate(vectors, missing, split, as_queries=as_query(vectors))

    def add_test(self, embedding: float, labels: float) -> None:
        """Record the metric on the test split, by embedding distance and through labels."""
        if (search := self.record.search) is not None:
            search = search.model_copy(update={"test": (embedding, labels)})
            self.record = self.record.model_copy(update={"search": search})

    def save(self, path: Path) -> None:
        """Write the file."""
        saved, tensors = to_saved(self.labels)
        record = self.record.model_copy(update={"labels": saved})
        tensors = {"embeddings": self.embeddings, **tensors}
        if self.coordinates is not None:
            tensors |= {"coordinates": self.posterior.labels, **self.coordinates._asdict()}
        save_tensors(path, tensors, record=record.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path, identity: str) -> LabelledItems:
        """Read a file that `save` wrote.

        Args:
            path: the file.
            identity: the identity of the model that must have embedded the items.

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
            hint = "run 'contml evaluate' again; to save the model without them, give labels=False"
            raise InputError(str(path), "has labels for another model", hint=hint)
        if embeddings is None or embeddings.dtype != torch.float32 or embeddings.ndim != 2 or len(embeddings) < 3:
            raise InputError(str(path), "has no embeddings of training items", hint=_DAMAGED)
        labels, n = from_saved(record.labels, tensors, str(path)), len(embeddings)
        if len(labels) != n or not bool(embeddings.isfinite().all()):
            raise InputError(str(path), f"{n} embeddings, not finite, or not of {len(labels)} labels", hint=_DAMAGED)
        if record.neighbours > n:
            raise InputError(str(path), f"{record.neighbours} neighbours of {n} items", hint=_DAMAGED)
        if labels.class_ids is not None:
            return cls(embeddings, labels, None, labels.class_ids.cpu(), record)
        return cls(embeddings, labels, *_coordinates(tensors, n, path), record)

    @classmethod
    def of_run(cls, run: Run) -> LabelledItems | None:
        """Return the items of the model that a run evaluated.

        Return None if it has no items, or they are of other weights.

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
        """A text on the sample of training items. It is "" if all training items are there."""
        n, total = len(self.embeddings), self.record.total
        return f"{n:,} of {total:,} training items, drawn at random (seed {SEED})" if n < total else ""

    @property
    def landmarks(self) -> LabelSpace:
        """The labels that give another label its coordinates."""
        assert self.coordinates is not None
        return self.labels[self.coordinates.landmarks].as_root()

    @cached_property
    def far(self) -> float:
        """The least distance to the nearest training label at which a label counts as far from all of them."""
        rows = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(0))[: 2 * _PAIRS]
        return float(self.labels.filled(rows[: len(rows) // 2], rows[len(rows) // 2 :]).quantile(_FAR))

    def query(self, label: Any) -> LabelQuery:
        """Return a label as a query, with the vector that a search compares.

        The vector of a graded label is computed from its label distances to training items. The vector of a class is
        the mean embedding of the training items of this class.

        Args:
            label: as `LabelSpace.item` of the labels accepts it: in the unit of the data, or as text.

        Raises:
            InputError: it is not a label of this kind.
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
            remark = f"{whole.text(n) or labels.title} is far from all training labels"
            remarks.append(f"{remark}: the nearest is {words}{away}" if words else remark)
        given = label if isinstance(label, dict) else {labels.title: label}
        for space, _ in labels.terms:
            typed = given.get(space.title)
            if isinstance(typed, str) and (unknown := growing(space).unknown_words(typed)):
                remarks.append(f"{space.title}: no training item has {', '.join(unknown)}")
        if any(present is not None and not bool(present.all()) for _, present in item.terms):
            remarks.append("distances are no label distances, since only some labels of the sum are given")
        by: By = "embedding" if self.coordinates is None else "labels"
        return LabelQuery(by, self._vector_of(distances[0]), item, remarks)

    def predict(self, embeddings: Tensor, n: int = 0) -> Predicted:
        """Predict label n of Q embeddings `[Q, d]`."""
        rows, weights, _ = self._nearest(embeddings, n)
        return predicted(self._terms[n][0], rows, weights)

    def _nearest(self, embeddings: Tensor, n: int, leave_same: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Find the training items with label n nearest to Q embeddings.

        Return the items, their weights, and which queries are training items themselves.
        """
        posterior, limit = self._posteriors[n]
        found = posterior.weights(embeddings)
        k = max(1, min(self.record.neighbours, len(posterior.embeddings) - 1))
        same = (found.distances[:, 0].square() < limit) & (leave_same and len(posterior.embeddings) > k)
        shifted = same.long()[:, None] + torch.arange(k)
        return found.rows.gather(1, shifted), softmax_of(found.distances.gather(1, shifted), posterior.scale), same

    @cached_property
    def _posteriors(self) -> list[tuple[Posterior, float]]:
        """The posterior of each label, and a limit of the squared distance.

        An image whose squared distance to a training item is below the limit is the training item itself. The posterior
        has one more neighbour than the record, since the nearest item may be this image.
        """
        found = []
        for space, present in self._terms:
            known = self.embeddings if present is None else self.embeddings[present]
            posterior = Posterior(known, torch.empty(len(space)), self.record.neighbours + 1, self.record.scale)
            found.append((posterior, SAME * float(posterior.embeddings.square().sum(1).mean())))
        return found

    def _vector_of(self, distances: Tensor) -> Tensor:
        """Compute the vector of a label from its label distances to all items `[N]`."""
        if self.coordinates is None:
            own = self.embeddings[distances == distances.min()].double()
            mean: Tensor = torch.nn.functional.normalize(own.mean(0), dim=0) * own.norm(dim=1).mean()
            return mean.float()
        coordinates = self.coordinates.of(distances[None, self.coordinates.landmarks])
        return torch.cat((coordinates, torch.zeros(1, 1)), 1)[0].float()

    def answer(self, embeddings: Tensor) -> list[list[Answer]]:
        """Predict the labels of Q embeddings `[Q, d]` of the model.

        Each embedding has one answer, or one per term for a sum of labels. A training item that is the image itself is
        left out.
        """
        per_label = [self._answer(embeddings.float(), n) for n in range(len(self._terms))]
        return [list(each) for each in zip(*per_label, strict=True)]

    def _answer(self, embeddings: Tensor, n: int) -> Sequence[Answer]:
        space, present = self._terms[n]
        rows, weights, same = self._nearest(embeddings, n, leave_same=True)
        found, record = predicted(space, rows, weights), self.record
        numbers = torch.arange(len(self.labels)) if present is None else present.nonzero()[:, 0]
        kept = [None] * len(embeddings) if found.rows is None else numbers[found.rows].tolist()
        neighbours, calibration = rows.shape[1], record.predictions[n].calibration
        return [answer_of(found, q, space, calibration, neighbours, kept[q], bool(same[q])) for q in range(len(rows))]

    def error_rows(self) -> list[list[str]]:
        """Return a table of the errors of predictions in the unit of the labels.

        It has a header, and a row for each way to predict.
        """
        rows = [["label", "predicted by", "test"]]
        for (space, _), record in zip(self._terms, self.record.predictions, strict=True):
            constant = "always the mean" if space.vectors is not None else "always the most central label"
            for name, error in zip((self.record.words, constant), record.test, strict=True):
                if error is not None:
                    text = f"{percent(error)} wrong" if space.kind == "classes" else space.measure.text(error)
                    rows.append([space.title, name, text])
        return rows

    def sentences(self) -> list[str]:
        """Return sentences on the ranking of a search by image, and on the calibrated predictions on the test split."""
        found = []
        if (search := self.record.search) is not None:
            how = "through labels" if search.by == "labels" else "by embedding"
            found.append(f"search by image ranks {how}: {search.words(self.labels.measure)}")
        for (space, _), record in zip(self._terms, self.record.predictions, strict=True):
            calibration = record.calibration
            check = None if calibration is None else calibration.check
            if calibration is None or check is None or check.observed is None:
                continue
            share = f"{check.share} of test images"
            start = f"predictions of {space.title}, by {self.record.words}"
            if check.width is None:
                found.append(f"{start}: right with {100 * check.expected:.1f} % on average; right for {share}")
            else:
                width = f"{space.measure.before}{number(check.width)}{space.measure.after}"
                level = percent(calibration.level or 0)
                found.append(f"{start}: {level} interval holds for {share}, mean bound {width}")
        return found


class _Queries(NamedTuple):
    """Queries with known labels, and the training labels to compare them with.

    Attributes:
        known: the training labels.
        embeddings: `[Q, d]`.
        truth: Q labels.
        rows: the rows of the queries in their split `[Q]`.
        groups: the group of each query `[Q]`. If it is None, each query is its own group.
    """

    known: LabelSpace
    embeddings: Tensor
    truth: LabelSpace
    rows: Tensor
    groups: Tensor | None

    @classmethod
    def of(cls, known: LabelSpace, ranking: Ranking, _: Tensor, split: Split) -> _Queries | None:
        """Return the queries of a split. Return None if their labels cannot be compared with the training labels."""
        rows = ranking.queries.cpu()
        groups = None if split.groups is None else split.groups[rows]
        made = cls(known, ranking.embeddings[rows].cpu(), split.labels.to("cpu")[rows].as_root(), rows, groups)
        return made if made._is_comparable else None

    @property
    def _is_comparable(self) -> bool:
        try:
            whole = growing(self.known).joined(self.truth)
        except InputError:
            return False
        ids, n = whole.class_ids, len(self.known)
        return ids is None or bool(torch.isin(ids[n:], ids[:n]).any())

    def term(self, known: LabelSpace, n: int) -> _Queries | None:
        """Return the queries that have label n of a sum, with this label. Return None if no query can be compared."""
        space, present = self.truth.terms[n]
        kept = torch.arange(len(self.rows)) if present is None else present.cpu().nonzero()[:, 0]
        groups = None if self.groups is None else self.groups[kept]
        made = _Queries(known, self.embeddings[kept], space[kept].as_root(), self.rows[kept], groups)
        return made if len(kept) and made._is_comparable else None

    def label_values(self, coordinates: Coordinates | None) -> Tensor:
        """Return the coordinates of the labels `[Q, r]`. For classes, return their ids in the joined space `[Q]`."""
        n, whole = len(self.known), growing(self.known).joined(self.truth)
        if coordinates is None:
            assert whole.class_ids is not None
            return whole.class_ids[n:].cpu()
        return coordinates.of(whole.filled(range(n, n + len(self.rows)), coordinates.landmarks).cpu())

    def errors(self, predictions: LabelSpace) -> Tensor:
        """Compute the label distance of each prediction to the true label `[Q]`."""
        both, n = growing(predictions).joined(self.truth), len(predictions)
        parts = [range(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
        return torch.cat([both.filled(part, [n + row for row in part]).diagonal() for part in parts]).cpu().double()

    def pairs(self, spread: Tensor, errors: Tensor) -> Pairs:
        """Return spreads and errors in the form that a calibration accepts."""
        units, classes = self.rows if self.groups is None else self.groups, self.truth.class_ids
        items = items_of_queries(None if classes is None else classes.cpu(), self.groups)
        return Pairs(spread[:, None].numpy(), errors[:, None].numpy(), units.numpy(), items)

    def constant(self) -> float:
        """Compute the error of a constant prediction.

        The prediction is the mean of all training labels. If labels have no mean, it is the most central of a sample of
        labels.
        """
        labels, vectors, count = self.known, self.known.vectors, len(self.truth)
        if vectors is not None:
            return float(self.errors(growing(labels).of_vectors(vectors.mean(0).expand(count, -1))).mean())
        drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:CHOOSING].sort().values
        middle = drawn[labels.filled(drawn, drawn).double().sum(1).argmin()]
        return float(self.errors(labels[middle.expand(count)].as_root()).mean())


def _coordinates(tensors: dict[str, Tensor], n: int, path: Path) -> tuple[Coordinates, Tensor]:
    """Return the coordinates in a file of n items.

    Raises:
        InputError: it is damaged.
    """
    names = ("coordinates", *Coordinates._fields)
    values, landmarks, offsets, projection = [tensors.get(name, torch.empty(0)) for name in names]
    dims = (values.ndim, landmarks.ndim, offsets.ndim, projection.ndim) == (2, 1, 1, 2)
    floats = (values, offsets, projection)
    types = landmarks.dtype == torch.int64 and all(each.dtype == torch.float64 for each in floats)
    fits = dims and types and values.shape == (n, projection.shape[1])
    fits = fits and len(landmarks) == len(offsets) == len(projection) > 0
    fits = fits and 0 <= int(landmarks.min()) <= int(landmarks.max()) < n
    if not (fits and all(bool(each.isfinite().all()) for each in floats)):
        raise InputError(str(path), "has no coordinates of its labels", hint=_DAMAGED)
    return Coordinates(landmarks, offsets, projection), values


def sample(labels: LabelSpace, dim: int) -> Tensor:
    """Choose the training items to keep, and return their rows.

    These are all items, or as many as the limits allow, drawn with a fixed seed.

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
        of_labels = len(saved.model_dump_json()) + sum(tensor.nbytes for tensor in tensors.values())
        size = (4 * dim + 8 * COORDINATES) * count + of_labels
        if size <= MAX_BYTES or count <= 3:
            return rows
        count = max(3, int(0.9 * count * MAX_BYTES / size))
