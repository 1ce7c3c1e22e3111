"""Results of a search: items with the meaning of their distances, and predicted labels. Predictions as a table."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from filecmp import cmp
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.pages import csv_bytes
from contml._support.text import percent
from contml.evaluation.posterior import as_query
from contml.evaluation.results import unit_of_distances
from contml.labels.base import LabelSpace
from contml.search.answers import Answer
from contml.search.calibration import Calibration
from contml.search.images import BOX, FILE, source_of
from contml.search.index import Index, SearchResult
from contml.search.inputs import NamedImage
from contml.search.labelled_items import By
from contml.search.segments import Floats

#: The labels of items by their ids.
Answering: TypeAlias = "Callable[[list[str]], list[list[Answer]]]"
#: The text of a result for the query's own image.
SAME = "the same image"
#: The text of a result for an item that is farther away than all pairs of the calibration.
FARTHER = "not known: too far"


class TypedLabel(NamedTuple):
    """A label to search with: as it was typed, and as a space of one item."""

    name: str
    labels: LabelSpace


class SearchHit(NamedTuple):
    """An item that was found for a query."""

    rank: int
    id: str
    distance: float
    #: By title, as text: the label distance and its interval, or the probability of the same class.
    meaning: dict[str, str]
    #: The same as numbers.
    numbers: dict[str, float]
    metadata: dict[str, Any]
    #: Whether it is the query's own image.
    is_same: bool = False
    #: Its labels, predicted from the labels of training items.
    answers: Sequence[Answer] = ()

    @property
    def answer_texts(self) -> dict[str, str]:
        """The answers as text, by name. A star marks an answer for a training image, whose own label is left out."""
        return {each.name: each.words + " *" * each.same for each in self.answers}

    @property
    def file(self) -> Path:
        """The image."""
        return Path(str(self.metadata.get(FILE, self.id)))

    def as_data(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        numbers: dict[str, Any] = {"same_image": True} if self.is_same else self.numbers
        text: dict[str, Any] = {"text": next(iter(self.meaning.values()))} if self.meaning else {}
        if self.answers:
            text["answers"] = [each.as_data() for each in self.answers]
        found = {"rank": self.rank, "id": self.id, "distance": self.distance, **numbers, **text}
        return {**found, "metadata": self.metadata}


class QueryResult(NamedTuple):
    """The items that were found for a query, nearest first. If the query is an image, it has predicted labels."""

    query: NamedImage | TypedLabel
    hits: list[SearchHit]
    answers: list[Answer]

    @property
    def contradiction(self) -> str:
        """A warning if the predicted labels of most images found exclude the label searched for. Otherwise it is ""."""
        if not isinstance(self.query, TypedLabel):
            return ""
        terms = self.query.labels.terms
        asked = [present is None or bool(present.any()) for _, present in terms]
        excluding = sum(
            any(asked[n] and answer.excludes(terms[n][0]) for n, answer in enumerate(hit.answers)) for hit in self.hits
        )
        if 2 * excluding <= len(self.hits):
            return ""
        return f"the predicted labels of {excluding:,} of {len(self.hits):,} images exclude {self.query.name}"

    def as_data(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        found: dict[str, Any] = {"query": self.query.name, "found": [hit.as_data() for hit in self.hits]}
        return {**found, "answers": [each.as_data() for each in self.answers]} if self.answers else found


def ranking_of(index: Index, model: Any, by: By | None) -> tuple[By, Calibration | None]:
    """Return the ranking of a search by image, and the meaning of its distances.

    Args:
        index: the index.
        model: the model that `contml.load` returns.
        by: the ranking that the user asked for. Default: the ranking that was better on the validation split, if the
            index has it.

    Raises:
        InputError: the index has no label vectors.
    """
    if by == "labels" and index.label_dim is None:
        of_classes = model.has_labels and model.label_dim is None
        hint = "make a new index with a model that has labels of training items"
        problem = f"labels, but {index.path} has no label vectors{': its labels are classes' if of_classes else ''}"
        raise InputError("--by", problem, hint="omit --by" if of_classes else hint)
    record = None if index.label_dim is None or not model.has_labels else model.labelled.record.search
    ranked = by or ("embedding" if record is None else record.by)
    if ranked == "embedding":
        return ranked, model.bundle.calibration
    return ranked, None if record is None else record.calibration


def label_unit(model: Any, calibration: Calibration | None) -> str:
    """Return the unit of the label distances that are printed, as text. Return "" if no label distances are printed."""
    if calibration is None or calibration.kind != "interval":
        return ""
    return f"label distance: {model.unit if model.measure.is_plain else unit_of_distances(model.unit, model.measure)}"


def ranked_words(index: Index, model: Any, by: By) -> str:
    """Describe the ranking of a search by image, and compare it with the other ranking on the validation split.

    Return "" if there is only one ranking.
    """
    if index.label_dim is None or not model.has_labels:
        return ""
    how, other = ("by embedding", "labels") if by == "embedding" else ("through labels", "embedding")
    record = model.labelled.record.search
    compared = "" if record is None else f"; {record.words(model.measure)}"
    return f"ranked {how} (--by {other} for the other way){compared}"


def search_images(index: Index, model: Any, embeddings: Floats, k: int, by: By, where: Any = None) -> SearchResult:
    """Search with embeddings `[Q, d]` of images.

    If `by` is "labels", a distance is the square root of the mean squared distance of the two labels.
    """
    if by == "embedding":
        return index.search(embeddings, k, where=where)
    vectors = model.label_vectors(embeddings)
    found = index.search(as_query(torch.from_numpy(vectors)).numpy(), k, by=by, where=where)
    return found._replace(distances=np.hypot(found.distances, vectors[:, -1:]))


def label_results(query: TypedLabel, result: SearchResult, answers: Answering) -> QueryResult:
    """Return the items that were found for a label.

    Args:
        query: the label.
        result: the result of the search of one query.
        answers: predicts the labels of items by their ids.
    """
    ids = result.ids[0].tolist()
    found = zip(ids, result.distances[0].tolist(), answers(ids), strict=True)
    metadata = [{}] * len(ids) if result.metadata is None else result.metadata[0]
    hits = [
        SearchHit(rank + 1, item, distance, {}, {}, metadata[rank], answers=item_answers)
        for rank, (item, distance, item_answers) in enumerate(found)
    ]
    return QueryResult(query, hits, [])


def results_of(
    queries: Sequence[NamedImage],
    result: SearchResult,
    model: Any,
    calibration: Calibration | None,
    query_answers: Sequence[list[Answer]] | None = None,
    answers: Answering = lambda ids: [[] for _ in ids],
) -> list[QueryResult]:
    """Return the items that were found for each query, with label distances if there is a calibration.

    The query's own image is marked, and has no label distance.

    Args:
        queries: the images that were searched with.
        result: the result of the search.
        model: the model that `contml.load` returns.
        calibration: the meaning of the distances.
        query_answers: the labels of the queries. None if they are not known.
        answers: predicts the labels of items by their ids.
    """
    distances = result.distances
    title, numbers = "", np.empty((*distances.shape, 0))
    keys: list[str] = []
    if calibration is not None and distances.size:
        if calibration.kind == "interval":
            title = f"label distance ({percent(calibration.level or 0)} interval)"
            keys = ["label_distance", "low", "high"]
            numbers = np.stack(calibration.label_distance(distances), -1)  # [Q,k,3]
        else:
            title, keys = "same class", ["same_class"]
            numbers = np.asarray(calibration.same_class(distances))[..., None]
    results = []
    for q, query in enumerate(queries):
        hits = []
        item_answers = answers(result.ids[q].tolist())
        for rank, name in enumerate(result.ids[q]):
            metadata = result.metadata[q][rank] if result.metadata else {}
            values, distance = numbers[q, rank].tolist(), float(distances[q, rank])
            hit = SearchHit(rank + 1, name, distance, {}, dict(zip(keys, values, strict=True)), metadata)
            hit = hit._replace(answers=item_answers[rank])
            if is_same_image(query, hit, float(distances[q].max())):
                hit = hit._replace(meaning={title or "note": SAME}, numbers={}, is_same=True)
            elif np.isnan(values).any():
                hit = hit._replace(meaning={title: FARTHER}, numbers={})
            elif keys:
                text = model.measure.text(*values) if len(values) == 3 else percent(values[0])
                hit = hit._replace(meaning={title: text})
            hits.append(hit)
        results.append(QueryResult(query, hits, [] if query_answers is None else query_answers[q]))
    return results


def is_same_image(query: NamedImage, hit: SearchHit, farthest: float) -> bool:
    """Return True if an item is the query itself: the same file or a copy of it.

    If the file of the item is gone, the name decides, provided the embeddings are equal up to rounding. `farthest` is
    the largest distance that was found.
    """
    try:
        if not hit.file.exists():
            return hit.id == query.name and hit.distance <= max(1e-5, 1e-4 * farthest)
        if query.box is not None or BOX in hit.metadata:
            return source_of(query.file, hit.metadata.get(BOX)) == query.source and hit.file.samefile(query.file)
        if hit.file.samefile(query.file):
            return True
        return query.file.is_file() and hit.file.is_file() and cmp(query.file, hit.file, shallow=False)
    except (OSError, ValueError):  # a name with a null character
        return False


#: The fields of an answer that have columns. A column is named after the label and the field, the label's own column
#: after the label.
_FIELDS = ("text", "low", "high", "bound", "level", "same_image")


def prediction_bytes(predicted: Sequence[tuple[str, Mapping[str, Answer]]], suffix: str) -> bytes:
    """Write a table with a row for each image.

    The columns are its name and, for each label, the fields of its answer that are not empty.

    Args:
        predicted: the name of each image, and its answers by title.
        suffix: ".csv" or ".parquet".
    """
    columns: dict[str, list[Any]] = {"image": [name for name, _ in predicted]}
    for title in predicted[0][1]:
        answers = [each[title].as_data() for _, each in predicted]
        columns[title] = [_cell(answer["value"]) for answer in answers]
        for field in _FIELDS:
            values = [_cell(answer[field]) for answer in answers]
            if any(value is not None for value in values):
                columns[f"{title} {field}"] = values
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()
    return csv_bytes([columns, *zip(*columns.values(), strict=True)])


def _cell(value: Any) -> Any:
    """Return a number or a text. A list becomes JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
