"""Training of an image captioner: its embedding, cross entropy on words, then self-critical training on CIDEr-D.

    embedding:      a loss on the embeddings of the visual network and the label distances of captions
    cross entropy:  - mean over words of log p(word | words before it, image)
    self-critical:  - mean over words of (r - b) log p(word),  r = CIDEr-D of a drawn caption,
                    b = mean r of the other captions drawn for the same image, or r of the greedy caption

Rennie et al., "Self-Critical Sequence Training for Image Captioning", CVPR 2017: the greedy caption is the baseline.
Luo, "A Better Variant of Self-Critical Sequence Training", 2020: the mean of the others is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from contml._support.errors import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, Range, check_ranges
from contml.captioning.captioner import Captioner
from contml.captioning.evaluator import CaptionEvaluator
from contml.captioning.scores import CiderDReward
from contml.captioning.vocabulary import Vocabulary
from contml.labels.base import LabelSpace
from contml.processes import gather_rows, world
from contml.training.step import Outputs, TrainingStep

_Share: TypeAlias = Annotated[float, Range(0, most=1)]


class CaptioningStep(TrainingStep):
    """Trains a captioner: its visual network by a loss, then its words by cross entropy, then on CIDEr-D.

    A batch is images. In cross entropy, each image has all of its captions. In self-critical training, each has
    `samples` drawn captions. They are drawn without dropout, as the trained captioner writes. The reward counts the end
    of a caption as a word. A frozen visual network learns only in the first phase. Its features are standardized after
    this phase, before the decoder learns.

    Args:
        embedding_epochs: number of epochs in which the section `loss` trains the visual network; with 0, there is no
            such section.
        cross_entropy_epochs: number of epochs of cross entropy after `embedding_epochs`; null: all that remain.
        samples: captions drawn for each image in self-critical training.
        baseline: the reward that the reward of a caption is compared with: the mean of the other "samples", or
            "greedy", the caption of the most probable words. The paper uses "greedy" and draws one caption.
        label_smoothing: share of the target distribution that is spread over all words.
        loss: trains the visual network.
        captions: the words of each caption of each training image.
        vocabulary: the words of the captioner.
        length: largest number of words of a caption; longer ones are cut.
        steps_per_epoch: number of steps of an epoch.
        epochs: number of epochs.

    Raises:
        InputError: an option is out of range, or an image has no caption.
    """

    steps: Tensor
    every_parameter = False  # the decoder does not learn while the visual network does

    @check_ranges
    def __init__(
        self,
        embedding_epochs: NonNegativeInt = 0,
        cross_entropy_epochs: NonNegativeInt | None = None,
        samples: PositiveInt = 5,
        baseline: Literal["samples", "greedy"] = "samples",
        label_smoothing: _Share = 0.0,
        *,
        loss: nn.Module | None = None,
        captions: Sequence[Sequence[Sequence[str]]],
        vocabulary: Vocabulary,
        length: int,
        steps_per_epoch: int,
        epochs: int,
    ) -> None:
        super().__init__(loss=loss)
        if (loss is not None) != (embedding_epochs > 0):
            hint = "add the section 'loss'" if loss is None else "set it, or remove the section 'loss'"
            got = f"{embedding_epochs} {'without' if loss is None else 'with'} a loss"
            raise InputError("embedding_epochs", got, hint=hint)
        if baseline == "samples" and samples < 2:
            hint = "the mean of the other samples is the baseline; baseline=greedy works with one"
            raise InputError("samples", str(samples), "must be at least 2", hint)
        self.samples, self.baseline = samples, baseline
        self.label_smoothing = label_smoothing
        #: The steps at which cross entropy and self-critical training begin.
        self.begin = embedding_epochs * steps_per_epoch
        done = epochs if cross_entropy_epochs is None else embedding_epochs + cross_entropy_epochs
        self.critical = done * steps_per_epoch
        empty = [row for row, image in enumerate(captions) if not image]
        if empty:
            raise InputError(f"image {empty[0]}", f"has no caption ({len(empty):,} such images)", hint="omit them")
        ids = [[[*vocabulary.encode(words)[:length], Vocabulary.END] for words in image] for image in captions]
        #: The captions of each image as tokens `[N, R, T]`, each with its end.
        self._targets = _padded(ids)
        self._reward: Any = CiderDReward(ids) if self.critical < epochs * steps_per_epoch else None
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._logs: dict[str, Tensor] = {}

    def check(self, model: nn.Module, labels: LabelSpace) -> None:
        """Check that the model is a captioner, and that there are captions of each item.

        Raises:
            InputError: one of these checks fails.
        """
        if not isinstance(model, Captioner):
            raise InputError("model", type(model).__name__, "must be a Captioner", "add the section 'captioner'")
        if len(labels) != len(self._targets):
            raise InputError("captions", f"of {len(self._targets):,} images", f"must be of {len(labels):,}")
        super().check(model, labels)
        model.network.requires_grad_(not model.frozen or self.begin > 0)

    def evaluator(self, model: Any) -> CaptionEvaluator:
        """Return the evaluator that describes images, and compares the captions with the references."""
        return CaptionEvaluator(model.vocabulary.decode)

    def before_epoch(self, done: int, model: Any, outputs: Outputs) -> None:
        """Standardize the features of a frozen network if the decoder now begins to learn."""
        if not model.frozen or done != self.begin or (model.is_loaded and not self.begin):
            return
        model.standardize(outputs(model.feature_moments))

    def logs(self) -> dict[str, float]:
        """Return the mean reward of the captions drawn in the last step, in self-critical training."""
        return {name: value.item() for name, value in self._logs.items()}

    def forward(self, model: nn.Module, images: Tensor, labels: LabelSpace, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch."""
        step = int(self.steps)
        self.steps += 1
        self._logs = {}
        if step < self.begin:
            return self.loss(gather_rows(model(images, embed=True)), labels, anchors=anchors)
        rows = _own_rows(images, labels)
        loss = self._cross_entropy if step < self.critical else self._self_critical
        terms, word_counts = loss(model, images, rows)
        # Over the images of all processes, which may differ in their numbers of words.
        return gather_rows(terms).sum() / gather_rows(word_counts).sum()

    def _cross_entropy(self, model: nn.Module, images: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the cross entropies of the words of each image, and the number of these words."""
        target = self._targets[rows.cpu()].long()  # [B,R,T]
        tokens = F.pad(target[:, :, :-1], (1, 0), value=Vocabulary.BEGIN)
        word_counts = (target != Vocabulary.PAD).sum(2)
        lengths = word_counts.flatten().clamp(min=1)  # an image with fewer captions than others: PAD, which is ignored
        pack = partial(pack_padded_sequence, lengths=lengths, batch_first=True, enforce_sorted=False)
        packed_target, packed_tokens = (pack(part.flatten(0, 1).to(images.device)) for part in (target, tokens))
        logits = model(images, packed_tokens)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        options: Any = {"ignore_index": Vocabulary.PAD, "label_smoothing": self.label_smoothing, "reduction": "none"}
        values = F.cross_entropy(logits, packed_target.data, **options)
        terms = pad_packed_sequence(packed_target._replace(data=values), batch_first=True)[0]
        return terms.view(len(images), -1).sum(1), word_counts.sum(1).to(images.device)

    def _self_critical(self, model: nn.Module, images: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of each image, and the number of words that were drawn for it."""
        drawn = model(images, samples=self.samples, most_probable=self.baseline == "greedy")
        tokens, log_probabilities, most_probable = drawn  # [B,S,T] twice, [B,T']
        rewards = self._rewards(tokens, rows).to(log_probabilities.dtype)  # [B,S]
        if most_probable is None:
            baseline = (rewards.sum(1, keepdim=True) - rewards) / (self.samples - 1)
        else:
            baseline = self._rewards(most_probable[:, None], rows).to(rewards.dtype)  # [B,1]
        mask = tokens != Vocabulary.PAD
        self._logs = {"reward": rewards.mean()}
        terms = -((rewards - baseline)[:, :, None] * log_probabilities * mask)
        return terms.flatten(1).sum(1), mask.flatten(1).sum(1)

    def _rewards(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return CIDEr-D `[B, S]` of captions `[B, S, T]` of images."""
        lengths = (tokens != Vocabulary.PAD).flatten(0, 1).sum(1)
        images = np.repeat(rows.cpu().numpy(), tokens.shape[1])
        reward = self._reward(tokens.flatten(0, 1).cpu().numpy(), lengths.cpu().numpy(), images)
        return torch.from_numpy(reward).to(tokens.device).view(tokens.shape[:2])


def _padded(captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Convert captions to tokens `[N, R, T]`, padded with PAD."""
    shape = len(captions), max(map(len, captions)), max(len(ids) for image in captions for ids in image)
    tokens = np.full(shape, Vocabulary.PAD, np.int32)
    for row, image in enumerate(captions):
        for index, ids in enumerate(image):
            tokens[row, index, : len(ids)] = ids
    return torch.from_numpy(tokens)


def _own_rows(images: Tensor, labels: LabelSpace) -> Tensor:
    """Return the rows of this process's images `[b]` in the whole batch."""
    assert labels.rows is not None  # of a split's labels
    rank, processes = world()
    if processes == 1:
        return labels.rows
    owner = gather_rows(torch.full((len(images),), rank, device=images.device))
    return labels.rows[owner.to(labels.rows.device) == rank]
