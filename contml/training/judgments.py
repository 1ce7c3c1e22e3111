"""Training on judgments between items: the nearer of two items, and the relevance of items to a query.

    triplets    - 1/T sum_t sum_a q_ta log p_ta,   p_ta = e^{s_ta / tau} / sum_b e^{s_tb / tau}
                s_ta  cosine similarity of the pair of items that answer a makes more alike: (anchor, x) or
                      (anchor, y); for an odd-one-out triplet, the two other items
                q_ta  share of the judges who gave answer a
    rankings    1/Q sum_q loss(query q and its judged items, with q as the only anchor)

For three pairs, p is the probability of the odd one out in SPoSE: Zheng, Pereira, Baker, Hebart, "Revealing
interpretable object representations from human behavior", ICLR 2019 (with dot products). Muttenthaler et al.,
"Improving neural network representations using human similarity judgments", NeurIPS 2023, add a temperature. For two
pairs, p is a logistic model of the difference of both similarities. DreamSim (Fu et al., NeurIPS 2023) trains on
NIGHTS by a hinge on the same difference, which takes one answer for each triplet. Shares of several judges need p.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import PositiveFloat, PositiveInt, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import normalize
from contml.evaluation.evaluators import Evaluator
from contml.evaluation.judgments import JudgmentEvaluator
from contml.labels.base import LabelSpace
from contml.labels.judged import ANSWER_PAIRS, RankingLabels, TripletLabels
from contml.labels.matrices import MatrixLabels
from contml.losses.inputs import check_embeddings, check_loss, check_requirement, nan_unless_finite
from contml.processes import gather_rows
from contml.training.step import TrainingStep


def answer_logits(embeddings: Tensor, positions: Tensor, answers: int, temperature: float) -> Tensor:
    """Return the similarity that decides each answer to a triplet, divided by the temperature, `[T, answers]`.

    Args:
        embeddings: `[B, d]`; only their directions count.
        positions: positions of the three items of each triplet `[T, 3]`.
        answers: 2, for an anchor, x and y; or 3, for the odd one out.
        temperature: divides the cosine similarities.
    """
    with torch.autocast(embeddings.device.type, enabled=False):  # autocast would multiply in half precision
        unit = normalize(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
        items = unit[positions]  # [T,3,d]
        return torch.stack([(items[:, i] * items[:, j]).sum(1) for i, j in ANSWER_PAIRS[answers]], dim=1) / temperature


class _JudgedStep(TrainingStep):
    """A step on judgments, which counts the judgments of the last batch."""

    judged = True
    _logs: dict[str, float]

    def evaluator(self, model: Any) -> Evaluator:  # noqa: ARG002
        """Return the evaluator that compares embedding distances with judgments."""
        return JudgmentEvaluator()

    def logs(self) -> dict[str, float]:
        """Return the number of judgments in the last batch."""
        return self._logs

    def _embeddings(self, model: nn.Module, images: Tensor, labels: LabelSpace) -> Tensor:
        """Return the embeddings of the whole batch, of all processes, after the checks of embeddings and labels."""
        embeddings = gather_rows(self.embed(model, images))
        check_embeddings(embeddings)
        check_requirement(type(self).__name__, self.requires, labels.kind)
        return embeddings


class TripletStep(_JudgedStep):
    """Trains on judgments of three items: cross entropy of the answers of the judges, by a softmax of similarities.

    The loss is the mean over the triplets of the batch: all triplets of the data whose three items are in the batch.

    Args:
        temperature: divides the cosine similarities: a small one trusts small differences.
        chunk_size: as in `EmbeddingStep`.
    """

    @check_ranges
    def __init__(self, temperature: PositiveFloat = 0.1, chunk_size: PositiveInt | None = None) -> None:
        super().__init__(chunk_size, loss=None)
        self.temperature = temperature
        self._logs = {}

    @property
    def requires(self) -> Requirement:
        """The kind of labels that the step needs: triplets."""
        return "triplets"

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Compute the loss of a batch. Return 0 if no triplet is whole, because broken images are left out."""
        embeddings = self._embeddings(model, images, labels)
        assert isinstance(labels, TripletLabels)  # by their kind
        triplets = labels.within()
        self._logs = {"triplets": float(len(triplets))}
        if not len(triplets):
            return embeddings.float().sum() * 0
        positions, shares = triplets.positions.to(embeddings.device), triplets.shares
        logits = answer_logits(embeddings, positions, shares.shape[1], self.temperature)
        loss = nn.functional.cross_entropy(logits, shares.to(logits))
        return loss + nan_unless_finite([embeddings]).to(loss)


class RankingStep(_JudgedStep):
    """Trains on judged lists: a loss of `contml.losses` for each query and its items, the mean over the queries.

    The query is the only anchor of its list. The label distance of an item is `(highest - grade) / highest`, or the
    distance that was judged. With smooth_rank (metric "ndcg", kernel "linear", label_scale 1), the loss of a list of
    grades is one minus a smooth nDCG whose gain is the grade.

    Args:
        chunk_size: as in `EmbeddingStep`.
        loss: a loss for graded labels. A loss that needs label distances above 0, such as log_ratio, is refused for
            grades: it would leave out the items of the highest grade.
    """

    @check_ranges
    def __init__(self, chunk_size: PositiveInt | None = None, *, loss: nn.Module) -> None:
        check_loss(loss)
        super().__init__(chunk_size, loss=loss)
        self._logs = {}

    @property
    def requires(self) -> Requirement:
        """The kind of labels that the step needs: judged lists."""
        return "rankings"

    def check(self, model: nn.Module, labels: LabelSpace) -> None:  # noqa: ARG002
        """Check that labels are judged lists, and that the loss takes graded labels."""
        check_requirement(type(self).__name__, self.requires, labels.kind)
        assert isinstance(labels, RankingLabels)  # by their kind
        name = type(self.loss).__name__
        check_requirement(name, self.loss.requires, "graded")
        if self.loss.requires == "graded" and labels.of == "grade":
            hint = "choose a loss that needs their order, such as SmoothRankLoss, or give distances"
            raise InputError(name, "grades", "would leave out the items of the highest grade", hint)

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Compute the loss of a batch. Return 0 if no list has two items, because broken images are left out."""
        embeddings = self._embeddings(model, images, labels)
        assert isinstance(labels, RankingLabels)  # by their kind
        lists = labels.within()
        self._logs = {"lists": float(len(lists))}
        if not lists:
            return embeddings.float().sum() * 0
        query = torch.zeros(1, dtype=torch.int64, device=embeddings.device)
        values = []
        for positions, distances in lists:
            matrix = MatrixLabels(distances[None].to(embeddings.device), query)
            values.append(self.loss(embeddings[positions.to(embeddings.device)], matrix, anchors=query))
        return torch.stack(values).mean()
