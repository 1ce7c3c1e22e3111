"""Labels by the labels of the nearest items, and how far they are from the true ones.

    d_j = |x - x_j|                   x_j: the embeddings of training items, nearest first; by cosine: of length 1
    w_j = 1 - d_j^2 / d_{k+1}^2       the weights of the k nearest: 0 for one as far as the next one
    answer: sum_j w_j y_j / sum_j w_j where labels have a mean, else the label of the k with the least
            sum_j w_j D(y, y_j) / sum_j w_j, which for classes is the one with the most votes
    spread: the root of the weighted mean of |y_j - answer|^2, or that least sum

The spread is large where the neighbours disagree, and the answer is then farther from the true label: a calibration
turns it into a bound (`contml.search.calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.euclidean import normalize, squared_euclidean
from contml.distances.exact import squared_distances_to
from contml.evaluation.intervals import items_of_queries
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.search.calibration import Calibration, Pairs, calibrate

#: Numbers of neighbours that are tried, of an answer and of a label query.
ANSWER_KS, LABEL_KS = (1, 2, 3, 5, 10, 20, 50), (1, 2, 5, 10, 20, 50, 100)
#: Items that are left out in turn, at most, and the items that a label query is to find.
_LEFT_OUT, _FOUND = 300, 10
#: Folds of the regression, and its penalties as shares of the mean variance of an embedding's direction.
_FOLDS, _PENALTIES = 5, tuple(10.0**n for n in range(-4, 4))
#: The share by which the lengths of normalized embeddings differ, and are taken for equal.
_ROUNDING = 1e-4
#: Two embeddings are of the same image if their squared distance is a smaller share of the mean squared length of all:
#: they differ by rounding.
SAME = 1e-6
#: Answers compared with labels at a time.
_BLOCK = 64


#: What an answer ranks training items by: the distance of the embeddings as they are, or of these scaled to length 1.
AnswerDistance: TypeAlias = Literal["euclidean", "cosine"]


class Known(NamedTuple):
    """Items with embeddings and labels.

    Attributes:
        embeddings: `[N, d]`.
        labels: N labels.
        groups: the group of each item `[N]`; None: each is its own.
        exclude_group: whether items of one group are left out together.
    """

    embeddings: Tensor
    labels: LabelSpace
    groups: Tensor | None = None
    exclude_group: bool = True

    @property
    def left_out_together(self) -> Tensor:
        """A number of each item `[N]`, equal where items are left out together."""
        if self.groups is None or not self.exclude_group:
            return torch.arange(len(self.embeddings))
        return self.groups

    def by(self, distance: AnswerDistance) -> Known:
        """The same items, with embeddings whose Euclidean distance is that."""
        return self._replace(embeddings=compared_by(distance, self.embeddings))

    def part(self, rows: Tensor, number: int) -> Known:
        """Return the items of some rows that have a label in term `number` of the labels, with that label."""
        space, present = self.labels.terms[number]
        kept = rows if present is None else rows[present[rows]]
        groups = None if self.groups is None else self.groups[kept]
        return Known(self.embeddings[kept], space[kept].as_root(), groups, self.exclude_group)


class Answers(NamedTuple):
    """The answers to Q queries."""

    labels: LabelSpace  # Q labels
    spread: Tensor  # [Q] float64
    rows: Tensor | None  # [Q] the items whose labels they are; None for means


class Errors(NamedTuple):
    """Mean label distances of answers to the true labels; None where there are none.

    Attributes:
        neighbours: of the answers.
        regression: of a ridge regression on the embedding; None also where labels have no mean.
        constant: of the mean of all labels, or of the label that is nearest to all.
    """

    neighbours: float | None = None
    regression: float | None = None
    constant: float | None = None


class Fitted(NamedTuple):
    """How a label is answered.

    Attributes:
        k: number of neighbours.
        distance: what they are ranked by.
        calibration: the bound of the label distance to the true label, or the probability of the true class; None with
            too few validation queries.
        left_out: errors on training items, each left out.
        test: errors on the test split.
    """

    k: int
    distance: AnswerDistance
    calibration: Calibration | None
    left_out: Errors
    test: Errors


def compared_by(distance: AnswerDistance, embeddings: Tensor) -> Tensor:
    """Vectors `[N, d]` whose Euclidean distance ranks as this distance of the embeddings `[N, d]`."""
    return normalize(embeddings) if distance == "cosine" else embeddings


def _distances_of(embeddings: Tensor) -> list[AnswerDistance]:
    """The distances that rank embeddings differently: for embeddings of one length, both rank alike."""
    lengths = embeddings.double().norm(dim=1)
    lengths = lengths[lengths > 0]  # an embedding of 0 stays 0 when it is normalized
    differ = len(lengths) and float(lengths.max()) > (1 + _ROUNDING) * float(lengths.min())
    return ["euclidean", "cosine"] if differ else ["euclidean"]


def nearest(known: Tensor, queries: Tensor, k: int, excluded: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Squared distances `[Q, k + 1]` in float64 of queries to the nearest known vectors, and their rows, nearest first.

    Args:
        known: `[N, d]`, more than k.
        queries: `[Q, d]`.
        k: number of neighbours.
        excluded: `[Q, N]`, pairs that do not count: their distance is infinite.
    """
    squared = squared_euclidean(queries.double(), known.double())
    if excluded is not None:
        squared[excluded] = torch.inf
    values, rows = (each[:, : k + 1] for each in squared.sort(dim=1, stable=True))
    # Distances to two copies of a vector differ by rounding. By subtraction they are equal, and so are their weights.
    squared = squared_distances_to(queries, known, rows).masked_fill(values.isinf(), torch.inf)
    squared, order = squared.sort(dim=1, stable=True)
    return squared, rows.gather(1, order)


def weights_of(squared: Tensor, k: int) -> Tensor:
    """The weights `[Q, k]` of the k nearest, by their squared distances `[Q, k + 1 or more]`."""
    own, limit = squared[:, :k], squared[:, k : k + 1]
    weights = torch.where(limit.isinf(), 1.0, 1 - own / limit.clamp(min=1e-300))
    weights = torch.where(own.isinf(), 0.0, weights)
    return torch.where(weights.sum(1, keepdim=True) > 0, weights, (~own.isinf()).double())


def answer(labels: LabelSpace, squared: Tensor, rows: Tensor, k: int) -> Answers:
    """The answers of the k nearest items, by their squared distances and rows `[Q, k + 1 or more]`."""
    vectors, weights = labels.vectors, weights_of(squared, k)
    if vectors is not None:
        means, spread = _means(vectors.cpu(), rows[:, :k], weights)
        return Answers(growing(labels).of_vectors(means), spread, None)
    blocks = [labels.filled(own, own).cpu() for own in rows[:, :k]]
    positions, spread = _medoids(torch.stack(blocks), weights)
    chosen = rows.gather(1, positions[:, None])[:, 0]
    return Answers(labels[chosen].as_root(), spread, chosen)


def _means(vectors: Tensor, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    shares = (weights / weights.sum(1, keepdim=True))[:, :, None]
    means = (vectors[rows] * shares).sum(1)
    return means, ((vectors[rows] - means[:, None]).square().sum(2) * shares[:, :, 0]).sum(1).sqrt()


def _medoids(distances: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The position `[Q]` of the neighbour with the least weighted mean of label distances `[Q, k, k]`, and that."""
    costs = (distances.double() @ weights[:, :, None])[:, :, 0] / weights.sum(1, keepdim=True)
    costs = torch.where(weights > 0, costs, torch.inf)
    return costs.argmin(1), costs.amin(1)


def label_query(embeddings: Tensor, distances: Tensor, k: int) -> Tensor:
    """The embedding `[Q, d]` of labels in float64, by their label distances `[Q, N]` to items with embeddings `[N, d]`.

    It is the mean of the embeddings of the k nearest items, scaled to the mean of their lengths: a mean is shorter than
    what it is of, so that short embeddings would be found in place of similar ones. Items that are tied at the k-th
    distance share its places: each mean is that over all choices of k items, and no order of the items counts.
    """
    shares, embeddings = shares_of_nearest(distances, k), embeddings.double()
    lengths: Tensor = shares @ embeddings.norm(dim=1, keepdim=True)
    return normalize(shares @ embeddings) * lengths


def shares_of_nearest(distances: Tensor, k: int) -> Tensor:
    """The share `[Q, N]` of each item in the mean of the k nearest, by label distances `[Q, N]`; 0 of farther ones."""
    last = distances.kthvalue(k, dim=1, keepdim=True).values
    nearer, tied = (distances < last).double(), (distances == last).double()
    return (nearer + tied * (k - nearer.sum(1, keepdim=True)) / tied.sum(1, keepdim=True)) / k


def choose_label_k(known: Known, val: Known | None = None) -> int:
    """The number of neighbours of a label query: that with the least mean label distance of the 10 items it finds.

    The label of each validation query asks the other validation queries. Without any, or where their labels cannot be
    compared with those of training, the label of each training item, without the item and its group, asks the other
    training items. That favours few neighbours: the network has seen these items, and placed them by their labels.
    """
    try:
        asked = val if val is not None and len(val.embeddings) > _FOUND else known
        whole = known.labels if asked is known else growing(known.labels).joined(asked.labels)
    except InputError:
        asked, whole = known, known.labels
    n, rows = len(known.embeddings), _drawn(len(asked.embeddings))
    own = _own(asked, rows)
    truth = asked.labels.filled(rows).cpu().double()
    if asked is known:
        distances = truth.masked_fill(own, torch.inf)
        most = int((~own).sum(1).min())
    else:
        distances, most = whole.filled(n + rows, range(n)).cpu().double(), n - 1
    tried = [k for k in LABEL_KS if k <= most] or [1]
    found_count = max(1, min(_FOUND, int((~own).sum(1).min())))
    means = []
    for k in tried:
        squared = squared_euclidean(label_query(known.embeddings, distances, k), asked.embeddings.double())
        found = squared.masked_fill(own, torch.inf).topk(found_count, dim=1, largest=False).indices
        means.append(float(truth.gather(1, found).mean()))
    return tried[means.index(min(means))]


def fit(known: Known, val: Known | None, test: Known | None) -> list[Fitted]:
    """How each label is answered: by the neighbours with the least mean error, on the validation split if any.

    Tried are several numbers of neighbours, by both distances.

    Args:
        known: training items.
        val: queries of the validation split.
        test: queries of the test split.
    """
    fitted = []
    for number in range(len(known.labels.terms)):
        own = known.part(torch.arange(len(known.embeddings)), number)
        others = [
            None if each is None else each.part(torch.arange(len(each.embeddings)), number) for each in (val, test)
        ]
        fitted.append(_fit(own, *others))
    return fitted


def _fit(known: Known, val: Known | None, test: Known | None) -> Fitted:
    n, rows = len(known.embeddings), _drawn(len(known.embeddings))
    tried = [k for k in ANSWER_KS if k <= n - 2] or [1]
    left_out = _Truth(known, known, rows)
    val_truth, test_truth = (None if each is None else _Truth.of(known, each) for each in (val, test))
    asked = left_out if val_truth is None else val_truth
    truths = {distance: asked.by(distance) for distance in _distances_of(known.embeddings)}
    results = {(distance, k): truth.answered(k, tried[-1]) for distance, truth in truths.items() for k in tried}
    distance, k = min(results, key=lambda each: float(results[each][1].mean()))
    calibration = None
    if val_truth is not None:
        pairs = val_truth.pairs(*results[distance, k])
        calibration = calibrate(pairs, known.labels.kind, form="bound", largest=known.labels.largest)
    test_errors = Errors()
    if test_truth is not None:
        found = test_truth.by(distance).answered(k, k)
        test_errors = Errors(float(found[1].mean()), test_truth.regression(), test_truth.constant())
        if calibration is not None:
            calibration = calibration.checked(test_truth.pairs(*found), known.labels.measure)
    own = results[distance, k] if val_truth is None else left_out.by(distance).answered(k, k)
    errors = Errors(float(own[1].mean()), left_out.regression(), left_out.constant())
    return Fitted(k, distance, calibration, errors, test_errors)


class _Truth:
    """Queries with known labels, and their label distances to training items.

    Args:
        known: the training items.
        queries: the queries; `known` itself where training items are left out.
        rows: the rows of the queries.
    """

    def __init__(self, known: Known, queries: Known, rows: Tensor) -> None:
        self.known, self.rows, self.is_left_out = known, rows, queries is known
        self.embeddings = queries.embeddings[rows]
        self.truth = queries.labels[rows].as_root()
        self.whole = known.labels if self.is_left_out else growing(known.labels).joined(self.truth)
        self.groups = None if queries.groups is None else queries.groups[rows]
        self._found: tuple[Tensor, Tensor, Tensor | None, Tensor] | None = None

    @classmethod
    def of(cls, known: Known, queries: Known) -> _Truth | None:
        """Return the queries of a split, or None if no training item could answer them, or be compared with them."""
        try:
            made = cls(known, queries, torch.arange(len(queries.embeddings))) if len(queries.embeddings) else None
        except InputError:
            return None
        if made is None or made.whole.class_ids is None:
            return made
        trained, asked = made.whole.class_ids[: len(known.labels)], made.whole.class_ids[len(known.labels) :]
        return made if bool(torch.isin(asked, trained).any()) else None

    def by(self, distance: AnswerDistance) -> _Truth:
        """The same queries, by that distance."""
        made = copy(self)
        made.known, made.embeddings = self.known.by(distance), compared_by(distance, self.embeddings)
        made._found = None
        return made

    def answered(self, k: int, most: int) -> tuple[Tensor, Tensor]:
        """The spreads and the errors of the answers `[Q]`; `most`: the largest k of all calls."""
        labels, vectors = self.known.labels, self.known.labels.vectors
        if self._found is None:
            self._found = self._find(most)
        squared, rows, blocks, cross = self._found
        weights = weights_of(squared, k)
        if vectors is not None:
            means, spread = _means(vectors.cpu(), rows[:, :k], weights)
            return spread, self._errors(growing(labels).of_vectors(means))
        assert blocks is not None
        positions, spread = _medoids(blocks[:, :k, :k], weights)
        return spread, cross.gather(1, positions[:, None])[:, 0]

    def _find(self, most: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Squared distances and rows of the neighbours; label distances between them, and to the true label."""
        labels = self.known.labels
        excluded = _own(self.known, self.rows) if self.is_left_out else None
        squared, rows = nearest(self.known.embeddings, self.embeddings, min(most, len(labels) - 1), excluded)
        if labels.vectors is not None:
            return squared, rows, None, torch.empty(0)
        own, truth = rows[:, :most], self.rows if self.is_left_out else len(labels) + self.rows
        blocks = torch.stack([labels.filled(each, each).cpu() for each in own])
        pairs = zip(own, truth.tolist(), strict=True)
        cross = torch.stack([self.whole.filled(each, [row])[:, 0].cpu().double() for each, row in pairs])
        return squared, rows, blocks, cross

    def _errors(self, answers: LabelSpace) -> Tensor:
        """The label distance of each answer to the true label `[Q]`."""
        both, n = growing(answers).joined(self.truth), len(answers)
        starts = range(0, n, _BLOCK)
        parts = [(list(range(start, min(start + _BLOCK, n)))) for start in starts]
        blocks = [both.filled(part, [n + row for row in part]).diagonal() for part in parts]
        return torch.cat(blocks).cpu().double()

    def pairs(self, spread: Tensor, errors: Tensor) -> Pairs:
        """Spreads and errors as a calibration takes them."""
        units, classes = self.rows if self.groups is None else self.groups, self.truth.class_ids
        items = items_of_queries(None if classes is None else classes.cpu(), self.groups)
        return Pairs(spread[:, None].numpy(), errors[:, None].numpy(), units.numpy(), items)

    def constant(self) -> float:
        """The error of the mean of all training labels, or of the one that is nearest to some of the others."""
        labels, vectors = self.known.labels, self.known.labels.vectors
        if vectors is not None:
            return float(self._errors(growing(labels).of_vectors(vectors.mean(0).expand(len(self.truth), -1))).mean())
        drawn = _drawn(len(labels))
        middle = drawn[labels.filled(drawn, drawn).double().sum(1).argmin()]
        truth = self.rows if self.is_left_out else len(labels) + self.rows
        return float(self.whole.filled(middle[None], truth).double().mean())

    def regression(self) -> float | None:
        """The error of a ridge regression on the embedding, fitted without the query's fold; None without vectors."""
        labels, vectors = self.known.labels, self.known.labels.vectors
        if vectors is None:
            return None
        x, y = self.known.embeddings.double(), vectors.cpu()
        units = torch.unique(self.known.left_out_together, return_inverse=True)[1]
        draw = torch.randperm(int(units.max()) + 1, generator=torch.Generator().manual_seed(0)) % _FOLDS
        fold, predicted = draw[units], torch.zeros(len(_PENALTIES), len(x), y.shape[1], dtype=torch.float64)
        for each in range(_FOLDS):
            inside, outside = fold == each, fold != each
            if bool(inside.any()) and bool(outside.any()):
                predicted[:, inside] = _ridge(x[outside], y[outside], x[inside], _PENALTIES)
        best = int((predicted - y).square().sum((1, 2)).argmin())
        if self.is_left_out:
            return float(self._errors(growing(labels).of_vectors(predicted[best][self.rows])).mean())
        values = _ridge(x, y, self.embeddings.double(), _PENALTIES[best : best + 1])[0]
        return float(self._errors(growing(labels).of_vectors(values)).mean())


def _ridge(x: Tensor, y: Tensor, queries: Tensor, penalties: Sequence[float]) -> Tensor:
    """Predictions `[P, Q, D]` of a ridge regression with an intercept, for each penalty."""
    centre, mean = x.mean(0), y.mean(0)
    u, s, v = torch.linalg.svd(x - centre, full_matrices=False)
    scale = s.square().mean()
    target, projected = u.T @ (y - mean), (queries - centre) @ v.T
    return torch.stack([(projected * (s / (s.square() + p * scale + 1e-300))) @ target + mean for p in penalties])


def _drawn(n: int) -> Tensor:
    """Rows that are left out in turn: all, or some that are drawn with a fixed seed."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_LEFT_OUT].sort().values


def _own(known: Known, rows: Tensor) -> Tensor:
    """`[R, N]`: the item itself, and the other items of its group."""
    together = known.left_out_together
    return together[rows][:, None] == together
