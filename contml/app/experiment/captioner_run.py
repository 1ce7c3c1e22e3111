"""Runs that train a captioner: their config, their network, and their results, the captions of a split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.files import read_bytes, unreadable, write_json
from contml.app.experiment.building import Experiment, RunResult
from contml.app.experiment.run_results import RunResults
from contml.app.experiment.saved_run import recorded_task
from contml.captioning import tokenize
from contml.captioning.captioner import Captioner, DecoderFactory
from contml.captioning.decoders import DECODERS
from contml.captioning.evaluator import CaptionEvaluator, evaluate_captions
from contml.config import Config, Document, data_arguments
from contml.data.split import Split, Task
from contml.evaluation.evaluated import Evaluated
from contml.labels.caption_words import refuse_unspaced
from contml.losses import LOSSES
from contml.models import EmbeddingModel
from contml.runs import Run

#: Largest file of captions in bytes.
_CAPTIONS_LIMIT = 1 << 28


class CaptionResults(RunResults, CaptionEvaluator):
    """Results of a captioner. A run keeps the captions."""

    unranked = "trained a captioner, which ranks nothing"
    embeds = False

    def __init__(self, experiment: Experiment, model: Any = None) -> None:
        super().__init__(experiment)
        self.decode = model and model.vocabulary.decode

    @staticmethod
    def belongs_to(config: Config) -> bool:
        """Return True if a config trains a captioner."""
        return "captioner" in config.parts

    @staticmethod
    def check_config(config: Config, document: Document) -> None:
        """Refuse a captioner without decoder or step, a step without loss, and the opposite of each."""
        parts, step = config.parts, config.parts["step"]
        captioning = "captions" in data_arguments(step.constructor)
        if captioning and "captioner" not in parts:
            raise document.error(("captioner",), "missing", hint=f"add it, since step {step.name} trains a captioner")
        if "captioner" in parts and not captioning:
            raise document.error(("captioner",), f"step {step.name} trains no captioner", hint="set step=captioning")
        if captioning and "decoder" not in parts:
            raise document.error(("decoder",), "missing", f"must be one of {', '.join(DECODERS)}")
        if "decoder" in parts and not captioning:
            hint = "remove it, or add the section 'captioner'"
            raise document.error(("decoder",), "there is no captioner", hint=hint)
        if "loss" not in parts and data_arguments(step.constructor).get("loss"):
            raise document.error(("loss",), "missing", f"must be one of {', '.join(LOSSES)}")

    @staticmethod
    def build(
        experiment: Experiment, network: EmbeddingModel, task: Task, weights: bool
    ) -> tuple[nn.Module, dict[str, Any]]:
        """Return the captioner with this network, and the data of its training step: its words and their number."""
        words, parts = caption_words(task.train), experiment.config.parts
        options = parts["captioner"].options if weights else {**parts["captioner"].options, "weights": "none"}
        decoder = DecoderFactory.of(parts["decoder"].constructor, parts["decoder"].build)
        data = {"network": network, "decoder": decoder, "captions": chain.from_iterable(words)}
        captioner: Captioner = replace(parts["captioner"], options=options).build(**data)
        return captioner, {"captions": words, "vocabulary": captioner.vocabulary, "length": captioner.length}

    @staticmethod
    def network(model: Any) -> EmbeddingModel:
        """Return the visual network."""
        return model.network if isinstance(model, Captioner) else model

    @staticmethod
    def fitted(model: Any, weights: dict[str, Tensor], path: Path) -> Any:
        """Return the captioner. Its words must be the words of the weights."""
        model.check_words(weights, path)
        return model

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the captions, and the rest of the result."""
        captions, name, names = result.found, result.evaluated.split, self.names(result.split)
        weights = self.other_weights(result.evaluated)
        entries = zip(captions.queries.tolist(), captions.texts, captions.values.tolist(), strict=True)
        content = [{"image": names[row], "caption": text, "cider_d": value} for row, text, value in entries]
        write_json(run.captions(name, weights), content)
        super().save(run, result, model)

    def read(self, run: Run, evaluated: Evaluated, accept_changes: bool) -> RunResult:
        """Score the saved captions."""
        saved = _read_captions(run, evaluated.split)
        task, changes = recorded_task(self.experiment, run, accept_changes)
        split = task.splits[evaluated.split]
        texts = [saved.get(name) for name in self.names(split)]
        known = torch.tensor([text is not None for text in texts])
        written = [text for text in texts if text is not None]
        evaluation, captions = evaluate_captions(written, split, known.nonzero()[:, 0])
        evaluated = replace(evaluated, evaluation=evaluation, changes=changes)
        return RunResult(task, evaluated, captions, (~known).nonzero()[:, 0])

    def report(self, run: Run, result: RunResult) -> Path:
        """Write the report of captions."""
        from contml.app.report.caption_examples import CaptionContent  # here: it imports matplotlib

        return self.write_report(run, result, CaptionContent(result.found))


def caption_words(split: Split) -> Sequence[Sequence[Sequence[str]]]:
    """Return the words of each caption of a split.

    Raises:
        InputError: its data have no captions, or sentences in a script without spaces between words.
    """
    captions = split.labels.captions
    if captions is None:
        raise InputError("captioner", "the data have no captions", hint="choose a task of captions, or omit it")
    refuse_unspaced(captions)
    return [[tokenize(caption) for caption in image] for image in captions]


@dataclass(frozen=True)
class _Described:
    """A caption in a file of captions."""

    image: str
    caption: str
    cider_d: float


def _read_captions(run: Run, split: str) -> dict[str, str]:
    """Return the captions that the selected weights of a run wrote, by the names of the images.

    Raises:
        InputError: there are none, or the file is damaged.
    """
    path = run.captions(split)
    try:
        content = json.loads(read_bytes(path, _CAPTIONS_LIMIT))
        return {entry.image: entry.caption for entry in TypeAdapter(list[_Described]).validate_python(content)}
    except FileNotFoundError:
        raise InputError(str(path), "no captions", hint=f"run 'contml evaluate {run.folder}'") from None
    except (ValueError, RecursionError) as error:
        raise unreadable(path, error, "evaluate the run again") from None
