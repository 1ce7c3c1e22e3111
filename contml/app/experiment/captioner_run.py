"""A captioner as what a run trains: its config, its network, and its results, the captions of a split."""

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
from contml._support.tensors import load_tensors, save_tensors
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
    """A run keeps the captions, and where a captioner with attention looked."""

    unranked = "trained a captioner, which ranks nothing"
    embeds = False
    usage = "captions = model.caption(['a.jpg', 'b.jpg'])"

    def __init__(self, experiment: Experiment, model: Any = None) -> None:
        super().__init__(experiment)
        self.decode = model and model.vocabulary.decode

    @staticmethod
    def belongs_to(config: Config) -> bool:
        """Return whether a config trains a captioner."""
        return "captioner" in config.parts

    @staticmethod
    def check_config(config: Config, document: Document) -> None:
        """Refuse a captioner without decoder or step, a step without loss, and the opposite of each."""
        parts, step = config.parts, config.parts["step"]
        captioning = "captions" in data_arguments(step.constructor)
        if captioning != ("captioner" in parts):
            if captioning:
                raise document.error(
                    ("captioner",), "missing", hint=f"add it, since step {step.name} trains a captioner"
                )
            raise document.error(("captioner",), f"step {step.name} trains no captioner", hint="set step=captioning")
        if captioning != ("decoder" in parts):
            if captioning:
                raise document.error(("decoder",), "missing", f"must be one of {', '.join(DECODERS)}")
            raise document.error(
                ("decoder",), "there is no captioner", hint="remove it, or add the section 'captioner'"
            )
        if "loss" not in parts and data_arguments(step.constructor).get("loss"):
            raise document.error(("loss",), "missing", f"must be one of {', '.join(LOSSES)}")

    @staticmethod
    def build(
        experiment: Experiment, network: EmbeddingModel, task: Task, weights: bool
    ) -> tuple[nn.Module, dict[str, Any]]:
        """Return the captioner on this network, with its words and their number for its training step."""
        words, parts = caption_words(task.train), experiment.config.parts
        options = parts["captioner"].options if weights else {**parts["captioner"].options, "weights": "none"}
        decoder = DecoderFactory.of(parts["decoder"].constructor, parts["decoder"].build)
        captioner: Captioner = replace(parts["captioner"], options=options).build(
            network=network, decoder=decoder, captions=chain.from_iterable(words)
        )
        return captioner, {"captions": words, "vocabulary": captioner.vocabulary, "length": captioner.length}

    @staticmethod
    def network(model: Any) -> EmbeddingModel:
        """Return the visual network."""
        network: EmbeddingModel = model.network if isinstance(model, Captioner) else model
        return network

    @staticmethod
    def fitted(model: Any, weights: dict[str, Tensor], path: Path) -> Any:
        """Return the captioner. Its words must be the words of the weights."""
        model.check_words(weights, path)
        return model

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the captions too, and where the captioner looked in the images that the report shows."""
        captions, name, names = result.found, result.evaluated.split, self.names(result.split)
        weights = self.other_weights(result.evaluated)
        entries = zip(captions.queries.tolist(), captions.texts, captions.values.tolist(), strict=True)
        content = [{"image": names[row], "caption": text, "cider_d": value} for row, text, value in entries]
        write_json(run.captions(name, weights), content)
        if model.decoder.needs_maps:
            save_tensors(run.attention(name, weights), self._attention(model, result))
        super().save(run, result, model)

    def _attention(self, model: Any, result: RunResult) -> dict[str, Tensor]:
        """Where the captioner looks before each word `[T, P]`, for the images that the report shows, by their rows."""
        rows = result.found.queries[result.found.shown()]
        device = next(model.parameters()).device
        attention: dict[str, Tensor] = {}
        model.eval()
        for batch in self.experiment.build_images().test_batches(result.split, rows, len(rows)):
            images = batch.images.to(device)
            tokens = model.describe(images)
            for row, weights in zip(batch.rows.tolist(), model.attention(images, tokens).cpu(), strict=True):
                attention[str(row)] = weights.contiguous()
        return attention

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

    def report(self, run: Run, result: RunResult, pair: tuple[int, int] | None = None) -> Path:  # noqa: ARG002
        """Write the report of captions."""
        from contml.app.report.caption_examples import CaptionContent  # here: it imports matplotlib

        path, images = run.attention(result.evaluated.split), self.experiment.config.parts["images"].options
        attention = load_tensors(path)[0] if path.exists() else {}
        content = CaptionContent(result.found, attention, (images["resize"], images["crop"]))
        return self.write_report(run, result, content)


def caption_words(split: Split) -> Sequence[Sequence[Sequence[str]]]:
    """The words of each caption of a split.

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
    """The captions that the selected weights of a run wrote, by the names of the images.

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
