"""The result of a run: each evaluator saves it in the run folder, reads it again, and reports it.

The report also describes the run: its data, network, loss, time and device, and how to use it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from contml._support.files import read_record, write_json
from contml._support.imports import versions
from contml._support.tensors import save_tensors
from contml._support.text import duration
from contml.app.experiment.building import Experiment, Results, RunResult, learns_judgments
from contml.app.experiment.saved_run import recorded_task, saved_embeddings
from contml.config import Config, Document, data_arguments, dump
from contml.contracts import OwnMetrics
from contml.data.identity import DataRecord, item_names
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.evaluation.judgments import JudgmentEvaluator
from contml.evaluation.results import QueryValues
from contml.labels.base import LabelSpace
from contml.labels.judged import JudgedItems, PairLabels
from contml.runs import Run
from contml.search.calibration import Calibration, save_calibration
from contml.search.labelled_items import LabelledItems

if TYPE_CHECKING:
    from contml.app.report.page import Content


class RunResults(Results):
    """The files of a run that hold its result, for all kinds of results."""

    def names(self, split: Split) -> list[str]:
        """Return the names of the items of a split in the files of a run."""
        return [*item_names(split, self.experiment.root)]

    def other_weights(self, evaluated: Evaluated) -> str | None:
        """Return the part of file names for the result of weights that were not selected, or "labels".

        Return None for the result of the weights that the run selected.
        """
        if evaluated.by == "labels":
            return evaluated.by
        return None if evaluated.checkpoint == self.experiment.selected else evaluated.checkpoint

    def save(self, run: Run, result: RunResult, model: Any) -> None:  # noqa: ARG002
        """Save the outputs, the main metric of each query, and the evaluation."""
        evaluated, weights = result.evaluated, self.other_weights(result.evaluated)
        self.query_values(evaluated.evaluation.headline, result).save(run.query_values(evaluated.split, weights))
        write_json(run.evaluation(weights), evaluated.to_dict())

    def query_values(self, metric: str, result: RunResult) -> QueryValues:
        """Return the main metric of each query."""
        names, found = self.names(result.split), result.found
        return QueryValues.of(metric, [names[n] for n in found.queries.tolist()], found.values, found.items)

    def write_report(self, run: Run, result: RunResult, content: Content, dim: int | None = None) -> Path:
        """Write a report with this content. `dim` is as in `brief_of`."""
        from contml.app.report.page import About, write_report  # here: it imports matplotlib

        experiment, title = self.experiment, title_of_page(self.experiment, [run], result.split)
        about = About(title, dump(experiment.values), run.rows(), brief_of(experiment, run, dim), run.command)
        return write_report(run.folder, content, result.split, result.evaluated, about)


class _EmbeddingResults(RunResults):
    """Results of an embedding. A run keeps the embeddings of the split."""

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the embeddings, and the rest of the result."""
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
    """Results of a ranking. A run keeps the embeddings of the split, and a calibration."""

    ranked = True

    @property
    def metrics(self) -> OwnMetrics:
        """User-defined metrics by name, imported."""
        return self.experiment.metrics

    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the calibration, and the rest of the result."""
        if result.val is not None:
            save_calibration(run.calibration, result.task, result.val[0], result.found)
        if self.other_weights(result.evaluated) is None:
            run.evaluation("labels").unlink(missing_ok=True)  # of the embeddings before
        if result.train is not None:
            self._save_labels(run, result, *result.train)
        super().save(run, result, model)

    def _save_labels(self, run: Run, result: RunResult, split: Split, embeddings: Tensor, missing: Tensor) -> None:
        """Save training items to predict labels with. Save nothing if there are fewer than three."""
        usable = embeddings.isfinite().all(1)
        usable[missing] = False
        rows, task, evaluated = usable.nonzero()[:, 0], result.task, result.evaluated
        if len(rows) < 3:
            return
        val = None if result.val is None or task.val is None else (*result.val, task.val)
        test = None if task.test is None else (result.found, result.missing, task.test)
        train = embeddings[rows], split.subset(rows)
        labelled = LabelledItems.make(train, evaluated.identity, len(task.train), val, test)
        if labelled.coordinates is not None:
            evaluation, ranking = labelled.evaluate(result.found.embeddings, result.missing, result.split, self)
            by_labels = replace(evaluated, evaluation=evaluation, by="labels")
            RunResults.save(self, run, result._replace(evaluated=by_labels, found=ranking), None)
            if evaluated.split == "test":
                labelled.add_test(float(result.found.values.mean()), float(ranking.values.mean()))
        labelled.save(run.labels)

    def report(self, run: Run, result: RunResult) -> Path:
        """Write the report of a ranking."""
        from contml.app.report.ranking import RankingContent  # here: it imports matplotlib

        calibration, labelled = Calibration.read(run.calibration), LabelledItems.of_run(run)
        content = RankingContent(result.found, result.missing, calibration, labelled)
        return self.write_report(run, result, content, result.found.embeddings.shape[1])


class JudgmentResults(_EmbeddingResults, JudgmentEvaluator):
    """Results of judgments. A run keeps the embeddings of the split."""

    unranked = "trained on judgments, so that its items have no labels"
    counts_queries = False
    evaluates_training = True  # also of judged pairs, which are trained on as labels

    @staticmethod
    def belongs_to(config: Config) -> bool:
        """Return True if a config learns from judgments between items, and not from labels of items."""
        return learns_judgments(config) or config.parts["sampler"].name == "judged"

    @staticmethod
    def check_config(config: Config, document: Document) -> None:
        """Refuse parts that do not fit a step for judgments: other samplers, and parts that compare labels of items."""
        if not learns_judgments(config):
            return
        parts, step, sampler = config.parts, config.parts["step"], config.parts["sampler"].name
        if sampler != "judged" and ":" not in sampler:  # the user's own sampler may draw judgments too
            got = f"{sampler}, but step {step.name} learns from judgments"
            raise document.error(("sampler",), got, hint="use 'sampler: {name: judged}'")
        takes_loss = "loss" in data_arguments(step.constructor)
        unused = ("binarize", "memory", "regularizer", *(() if takes_loss else ("loss", "miner")))
        if section := next((section for section in unused if section in parts), None):
            raise document.error((section,), f"step {step.name} does not use it", hint="remove it")

    @staticmethod
    def check_labels(labels: LabelSpace, sampler: str) -> None:
        """Accept any labels. The sampler refuses labels that are not judgments."""

    @staticmethod
    def facts(task: Task) -> list[tuple[str, str]]:
        """Return facts about the judgments of each split, and how many are kept."""
        labels = {SPLIT_TITLES[name]: split.labels for name, split in task.splits.items()}
        facts = [(f"{name} judgments", each.facts()) for name, each in labels.items() if isinstance(each, JudgedItems)]
        kept, _ = JudgmentResults.kept(task)
        return [*facts, *([("judgments", kept)] if kept else [])]

    @staticmethod
    def in_a_batch(labels: LabelSpace) -> str:
        """Describe the number of judgments of a batch, or the label distances of its judged pairs."""
        if isinstance(labels, PairLabels):
            return Results.in_a_batch(labels)
        assert isinstance(labels, JudgedItems)
        return f"{len(labels.within()):,} judgments"

    @staticmethod
    def few(task: Task) -> str:
        """Return the number of judgments that are kept as text, if they are few. Otherwise return ""."""
        kept, is_few = JudgmentResults.kept(task)
        return f"judgments: {kept}" if is_few else ""

    @staticmethod
    def kept(task: Task) -> tuple[str, bool]:
        """Return a text on how many judgments the splits keep, "" if they keep all, and whether they are few.

        A split by item leaves out judgments whose items are in two parts. Less than half of all judgments are few. Less
        than 30 judgments of the test split are few too: an accuracy near 0.8 then has a 95 % interval of more than 0.14
        to each side.
        """
        labels = {name: split.labels for name, split in task.splits.items()}
        judged = {name: each for name, each in labels.items() if isinstance(each, JudgedItems)}
        if not (left_out := sum(each.left_out for each in judged.values())):
            return "", False
        kept = sum(each.judged for each in judged.values())
        evaluated = task.evaluated.labels
        assert isinstance(evaluated, JudgedItems)
        few = 2 * kept < kept + left_out or evaluated.judged < _FEW_JUDGMENTS
        parts = ", ".join(f"{each.judged:,} {SPLIT_TITLES[name]}" for name, each in judged.items())
        others = "the items of the others are in two parts of the split"
        text = f"{kept:,} of {kept + left_out:,} are kept ({parts}); {others}"
        if few:
            text += ". These are few"
            if any(line[1] == "split" and line[2].startswith("drawn by item") for line in task.columns):
                text += ": task.judgments.by=judgment keeps all, with items that are in training and in test"
        return text, few

    def query_values(self, metric: str, result: RunResult) -> QueryValues:
        """Return the main metric of each judgment."""
        found = result.found
        return QueryValues.of(metric, found.labels.judgment_names(self.names(result.split)), found.values, found.items)

    def report(self, run: Run, result: RunResult) -> Path:
        """Write the report of judgments."""
        from contml.app.report.judgments import JudgmentContent  # here: it imports matplotlib

        return self.write_report(run, result, JudgmentContent(result.found), result.found.embeddings.shape[1])


#: Fewer test judgments are few.
_FEW_JUDGMENTS = 30
#: Largest about.json in bytes.
_LIMIT = 1 << 16


class TrainingRecord(BaseModel):
    """The record of a training, as `about.json` holds it.

    Attributes:
        parameters: number of parameters of the model.
        device: the name of the device that trained it.
        seconds: the time of the training, over all its sessions. None if a session did not record it.
        versions: the packages that embeddings depend on.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    parameters: int = Field(ge=0)
    device: str
    seconds: float | None = Field(ge=0)
    versions: dict[str, str]

    def save(self, run: Run) -> None:
        """Write the record into the folder of the run."""
        write_json(run.about, self.model_dump())


def training_of(model: nn.Module, device: torch.device, processes: int, seconds: float | None) -> TrainingRecord:
    """Return the record of a training at its end."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"
    count, devices = sum(p.numel() for p in model.parameters()), name if processes == 1 else f"{processes} x {name}"
    return TrainingRecord(parameters=count, device=devices, seconds=seconds, versions=versions())


def read_training(run: Run) -> TrainingRecord | None:
    """Read the record of the training of a run. Return None if the run has no record.

    Raises:
        InputError: the file is damaged.
    """
    return read_record(run.about, TrainingRecord, hint="remove it", limit=_LIMIT)


def title_of_page(experiment: Experiment, runs: Sequence[Run], split: Split) -> str:
    """Return the heading of a page: the data, the label, and the runs.

    Example: "houses.csv: price_usd · 2026-11-26_10-00-00".
    """
    task = experiment.values["task"]
    data = Path(task["data"]).name if isinstance(task.get("data"), str) else task["name"]
    return f"{data}: {split.labels.title} · {' and '.join(run.folder.resolve().name for run in runs)}"


def brief_of(experiment: Experiment, run: Run, dim: int | None) -> list[str]:
    """Return the essentials for the header of a report: data, backbone, parameters, loss, time, device, version.

    `dim` is the length of the embeddings. It is None if the run has no embeddings, such as the run of a captioner.
    """
    values, training = experiment.values, read_training(run)
    counts = (f"{len(items):,} {name}" for name, items in DataRecord.load(run.data).names.items())
    dimensions = "" if dim is None else f", {dim:,} dimensions"
    facts = [f"{values['task']['name']}: {', '.join(counts)}", f"{values['model']['backbone']}{dimensions}"]
    if training:
        facts.append(f"{training.parameters:,} parameters")
    if "loss" in values:
        facts.append(f"loss {values['loss']['name']}")
    if training:
        time = f"{duration(training.seconds)} " if training.seconds is not None else ""
        facts += [f"trained {time}on {training.device}", f"contml {training.versions['contml']}"]
    return facts
