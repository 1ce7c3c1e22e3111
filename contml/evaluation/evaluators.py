"""Evaluators: retrieval, or captions; `judgments.py` has the evaluators of judgments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.data import Images
from contml.data.split import Split
from contml.evaluation.embed import embed
from contml.evaluation.metrics import METRICS_AT_K
from contml.evaluation.results import Evaluation, QueryMetric, Ranking, curve_of, score_of
from contml.evaluation.retrieval import evaluate

if TYPE_CHECKING:
    from contml.evaluation.judgments import Judged

#: The scores of captions beside BLEU, the main one first.
_SCORES = ("cider_d", "cider", "rouge_l")
Device: TypeAlias = torch.device | str
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True)
class Captions:
    """The captions that a model wrote for the images of a split.

    queries `[Q]` are the rows of the images that could be read, texts their captions; `scores` are the metrics of each
    image by name, each float64 `[Q]`; `values` `[Q]` is the main one, CIDEr-D.
    """

    items: ClassVar[None] = None  # images are independent
    queries: Tensor
    texts: Sequence[str]
    scores: dict[str, Floats]

    @property
    def values(self) -> Tensor:
        """CIDEr-D of each image."""
        return torch.from_numpy(self.scores["cider_d"])

    def shown(self, count: int = 8) -> list[int]:
        """Positions of images at equal quantiles of CIDEr-D, best first: they are not selected to look good."""
        order = np.argsort(-self.scores["cider_d"], kind="stable")
        count = min(count, len(order))
        return [int(order[int((rank + 0.5) / count * len(order))]) for rank in range(count)]


#: What is found on a split.
Found: TypeAlias = "Ranking | Captions | Judged | QueryMetric"


class Evaluator(ABC):
    """Evaluates a model on a split, in two steps: several processes can divide the first one."""

    def function(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        """What maps a batch of images to the outputs that are evaluated."""
        return model

    def outputs(
        self, model: nn.Module, split: Split, images: Images, *, device: Device = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the model for a split `[N, ...]`, 0 where unreadable, and the unreadable rows."""
        return embed(model, split, images, device=device, function=self.function(model))

    @abstractmethod
    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Found]:
        """The metrics of the outputs of all rows; `missing`: rows whose image cannot be read."""


class RetrievalEvaluator(Evaluator):
    """Embeds a split, and evaluates the ranking of its gallery."""

    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Ranking]:
        """The metrics of the embeddings of a split."""
        return evaluate(
            outputs,
            split.labels.to(device),
            split.queries,
            split.gallery,
            missing=missing,
            recall_at=split.recall_at,
            groups=split.groups,
            exclude_group=split.exclude_group,
            places=split.places,
        )


class CaptionEvaluator(Evaluator):
    """Describes the images of a split, and compares the captions with the references.

    Args:
        decode: turns the tokens of a caption into its text.
    """

    def __init__(self, decode: Any) -> None:
        self.decode = decode

    def function(self, model: Any) -> Callable[[Tensor], Tensor]:
        """The captions as tokens `[B, T]`."""
        describe: Callable[[Tensor], Tensor] = model.describe
        return describe

    def evaluate(
        self,
        outputs: Tensor,
        missing: Tensor,
        split: Split,
        device: Device = "cpu",  # noqa: ARG002
    ) -> tuple[Evaluation, Captions]:
        """The scores of the captions of a split."""
        rows = torch.arange(len(split))
        rows = rows[~torch.isin(rows, missing)]
        return evaluate_captions([self.decode(outputs[row]) for row in rows.tolist()], split, rows)


def evaluate_captions(texts: Sequence[str], split: Split, rows: Tensor) -> tuple[Evaluation, Captions]:
    """Compare captions with the references of a split.

    Two baselines are scored beside them: a reference of another image, and a person, which is one reference of the
    image compared with its others; both are drawn with a fixed seed. Images with one reference have no such person.

    Args:
        texts: the caption of each row.
        split: has the references.
        rows: the rows `[Q]`.

    Raises:
        InputError: the split has no captions.
    """
    from contml.captioning import score_captions  # here: it compiles code

    captions = split.labels.captions
    if captions is None:
        raise InputError("task", "its data have no captions", hint="choose a task of captions")
    references = [list(captions[row]) for row in rows.tolist()]
    random = np.random.default_rng(0)
    order = random.permutation(len(rows))
    other_image = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))  # of each image, another one
    person_indices = [int(random.integers(len(image_captions))) for image_captions in references]
    multi_reference_images = [n for n, image_captions in enumerate(references) if len(image_captions) > 1]
    model_scores = score_captions(list(texts), references)
    random_scores = score_captions([references[other_image[n]][0] for n in range(len(rows))], references)
    person_scores = None
    if multi_reference_images:
        person_scores = score_captions(
            [references[n][person_indices[n]] for n in multi_reference_images],
            [[text for m, text in enumerate(references[n]) if m != person_indices[n]] for n in multi_reference_images],
        )
    corpus_scores = [{} if result is None else result.corpus for result in (model_scores, random_scores, person_scores)]
    values_by_name = {name: [corpus.get(name, math.nan) for corpus in corpus_scores] for name in model_scores.corpus}
    bleu = torch.tensor([values_by_name[f"bleu_{k}"] for k in METRICS_AT_K["bleu"].ks], dtype=torch.float64)  # [4,3]
    curves = {"bleu": curve_of("bleu", *bleu.T)}
    scores = {name: score_of(name, *values_by_name[name]) for name in _SCORES}
    per_image = {name: model_scores.per_image[name] for name in _SCORES}
    evaluation = Evaluation("", len(rows), 0, curves, math.nan, len(split) - len(rows), scores, kind="captions")
    return evaluation, Captions(rows, list(texts), per_image)
