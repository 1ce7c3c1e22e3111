"""The result of a run: each evaluator saves it in the run folder, reads it again, and reports it.

The report also says what the run is: its data, network, loss, time and device, and how to use it.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from contml._support.files import read_record, write_json
from contml._support.imports import versions
from contml._support.tensors import load_tensors, save_tensors
from contml._support.text import duration
from contml.app.experiment.saved_run import read_captions, recorded_task, saved_embeddings
from contml.captioning.evaluator import CaptionEvaluator, evaluate_captions
from contml.config import dump
from contml.data.identity import DataRecord, item_names
from contml.data.split import Split, Task
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import Evaluator, RetrievalEvaluator
from contml.evaluation.judgments import JudgmentEvaluator
from contml.evaluation.query_values import QueryValues
from contml.evaluation.table import value_text
from contml.runs import Run
from contml.search.calibration import Calibration, save_calibration
from contml.search.labelled_items import LabelledItems

if TYPE_CHECKING:
    from contml.app.experiment.building import Experiment
    from contml.app.report.page import Content


class RunResult(NamedTuple):
    """The result of a run.

    Attributes:
        task: the data.
        evaluated: the metrics, and of which split and weights.
        found: the ranking or the captions of this split.
        missing: rows of the split that could not be read.
        val: what was found on the validation split; None: no calibration is fitted to it.
        train: training items, their embeddings and the unreadable ones, that answer with labels; None: none do.
    """

    task: Task
    evaluated: Evaluated
    found: Any
    missing: Tensor
    val: Any = None
    train: tuple[Split, Tensor, Tensor] | None = None

    @property
    def split(self) -> Split:
        """The split of the metrics."""
        return self.task.splits[self.evaluated.split]


class _Results:
    """Saves, reads and reports the result of a run, as its subclasses evaluate it.

    Attributes:
        experiment: the experiment of the run.
        ranked: whether a gallery is ranked: it has at least two items, and a calibration is fitted on validation.
    """

    ranked: ClassVar[bool]

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def names(self, split: Split) -> list[str]:
        """The names of the items of a split in the files of a run."""
        return [*item_names(split, self.experiment.root)]

    def other_weights(self, evaluated: Evaluated) -> str | None:
        """The weights that file names of a result mention; None: the weights that the run selected."""
        return None if evaluated.checkpoint == self.experiment.selected else evaluated.checkpoint

    def save(self, run: Run, result: RunResult, model: Any) -> None:  # noqa: ARG002
        """Save what was found, the main metric of each query, and the evaluation."""
        evaluated, weights = result.evaluated, self.other_weights(result.evaluated)
        values = self.query_values(evaluated.evaluation.headline, result)
        values.save(run.query_values(evaluated.split, weights))
        write_json(run.evaluation(weights), evaluated.to_dict())

    def query_values(self, metric: str, result: RunResult) -> QueryValues:
        """The main metric of each query."""
        names = self.names(result.split)
        found = result.found
        return QueryValues.of(metric, [names[n] for n in found.queries.tolist()], found.values, found.items)

    def write_report(self, run: Run, result: RunResult, content: Content, dim: int | None = None) -> Path:
        """Write a report with this content; `dim` as in `brief_of`."""
        from contml.app.report.page import About, write_report  # here: it imports matplotlib

        experiment = self.experiment
        about = About(
            title=title_of_page(experiment, [run], result.split),
            config=dump(experiment.values),
            rows=run.rows(),
            brief=brief_of(experiment, run, dim),
            command=run.command,
            facts=facts_of(experiment, run, dim),
            usage=usage_of(experiment, run.folder),
            squared=squared_of(experiment),
        )
        return write_report(run.folder, content, result.split, result.evaluated, about)


class _EmbeddingResults(_Results, Evaluator):
    """A run keeps the embeddings of the split."""

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the embeddings too."""
        tensors = {"embeddings": result.found.embeddings, "missing": result.missing}
        path = run.embeddings(result.evaluated.split, self.other_weights(result.evaluated))
        save_tensors(path, tensors, names=self.names(result.split), config=self.experiment.recorded)
        super().save(run, result, model)

    def read(self, run: Run, evaluated: Evaluated, accept_changes: bool) -> RunResult:
        """Evaluate the saved embeddings."""
        name = evaluated.split
        saved = saved_embeddings(self.experiment, run, name)  # before the data: a config that was edited changes them
        task, changes = recorded_task(self.experiment, run, accept_changes)
        rows, embeddings, missing = saved.of(self.names(task.splits[name]))
        task = task.with_splits({name: task.splits[name].subset(rows)})
        evaluation, found = self.evaluate(embeddings, missing, task.splits[name])
        return RunResult(task, replace(evaluated, evaluation=evaluation, changes=changes), found, missing)


class RetrievalResults(_EmbeddingResults, RetrievalEvaluator):
    """A run keeps the embeddings of the split, and a calibration."""

    ranked = True

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the calibration too."""
        if result.val is not None:
            save_calibration(run.calibration, result.task, result.val, result.found)
        if result.train is not None:
            self._save_labels(run, result, *result.train)
        super().save(run, result, model)

    def _save_labels(self, run: Run, result: RunResult, split: Split, embeddings: Tensor, missing: Tensor) -> None:
        """Save training items that answer with labels; nothing with fewer than three."""
        usable = embeddings.isfinite().all(1)
        usable[missing] = False
        rows, task, evaluated = usable.nonzero()[:, 0], result.task, result.evaluated
        if len(rows) < 3:
            return
        val = None if result.val is None or task.val is None else (result.val, task.val)
        test = None if task.test is None else (result.found, task.test)
        train = embeddings[rows], split.subset(rows)
        LabelledItems.make(train, evaluated.identity, len(task.train), val, test).save(run.labels)

    def report(self, run: Run, result: RunResult, pair: tuple[int, int] | None = None) -> Path:
        """Write the report of a ranking."""
        from contml.app.report.ranking import RankingContent  # here: it imports matplotlib

        calibration, labelled = Calibration.read(run.calibration), LabelledItems.of_run(run)
        content = RankingContent(result.found, result.missing, calibration, labelled, pair)
        return self.write_report(run, result, content, result.found.embeddings.shape[1])


class JudgmentResults(_EmbeddingResults, JudgmentEvaluator):
    """A run keeps the embeddings of the split."""

    ranked = False

    def query_values(self, metric: str, result: RunResult) -> QueryValues:
        """The main metric of each judgment."""
        found = result.found
        return QueryValues.of(metric, found.labels.judgment_names(self.names(result.split)), found.values, found.items)

    def report(self, run: Run, result: RunResult, pair: tuple[int, int] | None = None) -> Path:  # noqa: ARG002
        """Write the report of judgments."""
        from contml.app.report.judgments import JudgmentContent  # here: it imports matplotlib

        return self.write_report(run, result, JudgmentContent(result.found), result.found.embeddings.shape[1])


class CaptionResults(_Results, CaptionEvaluator):
    """A run keeps the captions, and where a captioner with attention looked."""

    ranked = False

    def __init__(self, experiment: Experiment, decode: Any) -> None:
        super().__init__(experiment)
        self.decode = decode

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
        saved = read_captions(run, evaluated.split)
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


#: Evaluates the model of a run, and saves, reads and reports the result.
RunEvaluator: TypeAlias = RetrievalResults | JudgmentResults | CaptionResults


#: Largest about.json in bytes.
_LIMIT = 1 << 16


class TrainingRecord(BaseModel):
    """How the weights of a run were made, as `about.json` holds it.

    Attributes:
        parameters: number of parameters of the model.
        device: the device that trained it, in words.
        seconds: the time of the training, over all its sessions; None where one of them did not record it.
        versions: the packages that embeddings depend on.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    parameters: int = Field(ge=0)
    device: str
    seconds: float | None = Field(ge=0)
    versions: dict[str, str]

    def save(self, run: Run) -> None:
        """Write it into the folder of the run."""
        write_json(run.about, self.model_dump())


def training_of(model: nn.Module, device: torch.device, processes: int, seconds: float | None) -> TrainingRecord:
    """What is known of a training at its end."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"
    return TrainingRecord(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        device=name if processes == 1 else f"{processes} x {name}",
        seconds=seconds,
        versions=versions(),
    )


def read_training(run: Run) -> TrainingRecord | None:
    """How the run was trained; None for a run that did not record it.

    Raises:
        InputError: the file is damaged.
    """
    return read_record(run.about, TrainingRecord, hint="remove it", limit=_LIMIT)


def title_of_page(experiment: Experiment, runs: Sequence[Run], split: Split) -> str:
    """The heading of a page: the data, the label, and the runs: "houses.csv: price_usd · 2026-11-26_10-00-00"."""
    task = experiment.values["task"]
    data = Path(task["data"]).name if isinstance(task.get("data"), str) else task["name"]
    return f"{data}: {split.labels.title} · {' and '.join(run.folder.resolve().name for run in runs)}"


def brief_of(experiment: Experiment, run: Run, dim: int | None) -> list[str]:
    """The essentials for the header of a report: data, backbone, parameters, loss, time, device, version.

    `dim` is the length of the embeddings; None: the run has none, such as that of a captioner.
    """
    values, training = experiment.values, read_training(run)
    facts = [_data(experiment, run), f"{values['model']['backbone']}{_dimensions(dim)}"]
    if training:
        facts.append(f"{training.parameters:,} parameters")
    if "loss" in values:
        facts.append(f"loss {values['loss']['name']}")
    if training:
        time = f"{duration(training.seconds)} " if training.seconds is not None else ""
        facts += [f"trained {time}on {training.device}", f"contml {training.versions['contml']}"]
    return facts


def facts_of(experiment: Experiment, run: Run, dim: int | None) -> list[tuple[str, str]]:
    """All that a report says of its run; `dim` as in `brief_of`."""
    values, training = experiment.values, read_training(run)
    model = values["model"]
    task = {key: value for key, value in values["task"].items() if key != "name"}
    facts = [
        ("Data", _data(experiment, run)),
        ("Options of the data", _options(task)),
        ("Backbone", f"{model['backbone']} (weights: {value_text(model['weights'])}){_dimensions(dim)}"),
        ("Preset", run.preset),
        ("Parameters", f"{training.parameters:,}" if training else ""),
        ("Loss", _with_options(values.get("loss", {}))),
        ("Training time", duration(training.seconds) if training and training.seconds is not None else ""),
        ("Device", training.device if training else ""),
        ("Versions", ", ".join(f"{name} {version}" for name, version in training.versions.items()) if training else ""),
        ("Same training", f"contml train {shlex.quote(str(run.config))}"),
    ]
    return [(name, text) for name, text in facts if text]


def usage_of(experiment: Experiment, folder: Path) -> str:
    """The lines of code that use the model of a run."""
    start = f"import contml\nmodel = contml.load({str(folder)!r})\n"
    if experiment.is_captioning:
        return start + "captions = model.caption(['a.jpg', 'b.jpg'])\n"
    return start + "embeddings = model.embed(['a.jpg', 'b.jpg'])  # [2, d]\n"


def squared_of(experiment: Experiment) -> bool | None:
    """Whether the loss wants label distances in proportion to squared embedding distances; None: in no proportion."""
    loss: dict[str, Any] = experiment.values.get("loss", {})
    return bool(loss["squared"]) if loss.get("name") == "log_ratio" else None


def _data(experiment: Experiment, run: Run) -> str:
    counts = {name: len(items) for name, items in DataRecord.load(run.data).names.items()}
    return f"{experiment.values['task']['name']}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _with_options(part: dict[str, Any]) -> str:
    options = _options({key: value for key, value in part.items() if key != "name"})
    return f"{part['name']} ({options})" if part and options else str(part.get("name", ""))


def _dimensions(dim: int | None) -> str:
    return "" if dim is None else f", {dim:,} dimensions"


def _options(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value_text(value)}" for key, value in values.items() if value is not None)
