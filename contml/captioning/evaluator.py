"""The evaluator of a captioner: it describes the images of a split, and compares the captions with the references."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.captioning.scores import score_captions
from contml.data.split import Split
from contml.evaluation.evaluators import Device, Evaluator
from contml.evaluation.metrics import METRICS_AT_K
from contml.evaluation.results import Evaluation, curve_of, score_of

#: The scores of captions beside BLEU, the main one first.
_SCORES = ("cider_d", "cider", "rouge_l")
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True)
class Captions:
    """The captions that a model wrote for the images of a split.

    queries `[Q]` are the rows of the images that could be read, texts their captions. `scores` are the metrics of each
    image by name, each float64 `[Q]`. `values` `[Q]` is the main one, CIDEr-D.
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
        """Return positions of images at equal quantiles of CIDEr-D, best first.

        The quantiles decide, so the examples are not chosen to look good.
        """
        order = np.argsort(-self.scores["cider_d"], kind="stable")
        count = min(count, len(order))
        return [int(order[int((rank + 0.5) / count * len(order))]) for rank in range(count)]


class CaptionEvaluator(Evaluator):
    """Describes the images of a split, and compares the captions with the references.

    Args:
        decode: converts the tokens of a caption to its text.
    """

    def __init__(self, decode: Any) -> None:
        self.decode = decode

    def function(self, model: Any) -> Callable[[Tensor], Tensor]:
        """Return the function that writes captions as tokens `[B, T]`."""
        return model.describe

    def evaluate(
        self,
        outputs: Tensor,
        missing: Tensor,
        split: Split,
        device: Device = "cpu",  # noqa: ARG002
    ) -> tuple[Evaluation, Captions]:
        """Return the scores of the captions of a split."""
        rows = torch.arange(len(split))
        rows = rows[~torch.isin(rows, missing)]
        return evaluate_captions([self.decode(outputs[row]) for row in rows.tolist()], split, rows)


def evaluate_captions(texts: Sequence[str], split: Split, rows: Tensor) -> tuple[Evaluation, Captions]:
    """Compare captions with the references of a split.

    Two baselines are scored beside them. One is a reference of another image. The other is a person: one reference of
    the image, compared with its others. Both are drawn with a fixed seed. Images with one reference have no such
    person.

    Args:
        texts: the caption of each row.
        split: the split with the references.
        rows: the rows `[Q]`.

    Raises:
        InputError: the split has no captions.
    """
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
        chosen = [references[n].pop(person_indices[n]) for n in multi_reference_images]  # the others stay
        person_scores = score_captions(chosen, [references[n] for n in multi_reference_images])
    corpus_scores = [{} if result is None else result.corpus for result in (model_scores, random_scores, person_scores)]
    values_by_name = {name: [corpus.get(name, math.nan) for corpus in corpus_scores] for name in model_scores.corpus}
    bleu = torch.tensor([values_by_name[f"bleu_{k}"] for k in METRICS_AT_K["bleu"].ks], dtype=torch.float64)  # [4,3]
    curves = {"bleu": curve_of("bleu", *bleu.T)}
    scores = {name: score_of(name, *values_by_name[name]) for name in _SCORES}
    per_image = {name: model_scores.per_image[name] for name in _SCORES}
    evaluation = Evaluation("", len(rows), 0, curves, math.nan, len(split) - len(rows), scores, kind="captions")
    return evaluation, Captions(rows, list(texts), per_image)
