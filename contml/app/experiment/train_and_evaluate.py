"""Runs of an experiment: train, resume, evaluate, report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from contml._support.errors import InputError, one_line
from contml._support.files import write
from contml._support.progress import note
from contml._support.text import plain_text
from contml.app.experiment import saved_run
from contml.app.experiment.building import Experiment, Results, RunResult, first_process
from contml.app.experiment.checking import report_columns
from contml.app.experiment.loading import load_run
from contml.app.experiment.run_results import training_of
from contml.config import dump
from contml.data.identity import DataRecord
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import Found
from contml.evaluation.results import Evaluation
from contml.runs import COMMAND, HEAD, PRESET, Run, create
from contml.search.labelled_items import sample
from contml.training import Trainer, load_weights


def train(
    experiment: Experiment,
    root: Path,
    *,
    on_start: Callable[[Run], None] = lambda _: None,
    on_columns: Callable[[Sequence[Sequence[str]]], None] = lambda _: None,
    split: Literal["result", "val"] = "result",
    folder: Path | None = None,
    command: str = "",
) -> Run | None:
    """Train from the beginning in a new run folder, evaluate, and write the report.

    If several processes train, the main one returns the run. The others return None.

    Args:
        experiment: the experiment to train.
        root: the folder in which the run folder is created.
        on_start: called with the run when its folder is created.
        on_columns: called with how the columns of a table were read: rows of text, the first one a header.
        split: "val": only the validation split is evaluated, and no report is written; the test split is not read.
        folder: the run folder. Default: a new folder in `root`, named by date and time.
        command: the command that the user typed, for the report.
    """
    experiment.check_packages()
    task = experiment.build_task()
    report_columns(task, on_columns)
    if few := experiment.results.few(task):
        note(few)
    if split == "val" and "val" not in task.splits:
        raise InputError("training.select", "none", "the data need a validation split", "set training.select=val")
    trainer = experiment.build_trainer(task)
    late_splits = (
        {} if split == "val" else {n: s for n, s in task.splits.items() if n not in ("train", *trainer.watched)}
    )
    # Errors in the size of a split, in a cache or an image would otherwise be found only after the training.
    for name, data_split in {**trainer.watched, **late_splits}.items():
        queries = len(data_split) if data_split.queries is None else len(data_split.queries)
        gallery = len(data_split) if data_split.gallery is None else len(data_split.gallery)
        if queries < 1 or (gallery < 2 and experiment.results.ranked):
            got = f"{queries} queries and {gallery} gallery items"
            raise InputError(f"{SPLIT_TITLES[name]} split", got, "needs at least 1 query and 2 gallery items")
    for data_split in (task.train, *trainer.watched.values(), *late_splits.values()):
        trainer.images.prepare(data_split)
    for data_split in late_splits.values():
        trainer.check_images(data_split)
    with ExitStack() as stack:
        if trainer.accelerator.is_main_process:
            trainer.run = create(root, experiment.name, folder)
            stack.enter_context(trainer.run.lock())
            head = ((HEAD, experiment.name), (COMMAND, plain_text(command)), (PRESET, experiment.preset.name))
            text = "".join(f"{start}{words}\n" for start, words in head if words) + dump(experiment.values)
            DataRecord.of(task, experiment.root).save(trainer.run.data)
            write(trainer.run.config, lambda path: path.write_text(text, encoding="utf-8"))  # last: marks a run folder
            on_start(trainer.run)
        stack.callback(trainer.log.close)
        trainer.fit()
        return _finish(experiment, trainer, task, split)


def resume(
    folder: Path,
    *,
    trust: bool = False,
    split: Literal["result", "val"] = "result",
    on_finished: Callable[[str], None] = lambda _: None,
) -> Run | None:
    """Resume a run from its last checkpoint. The result equals the result of an uninterrupted run.

    Args:
        folder: the run folder.
        trust: allow its config to name code to import.
        split: as in `train`.
        on_finished: called with a sentence if the run is finished already, so that nothing is trained.

    Raises:
        InputError: the folder is not a run, another process trains it, its config or its data were changed, or its
            checkpoints are gone or damaged.
    """
    experiment, run = load_run(folder, trust=trust)
    # Before the state is read, so that no other process writes a newer one meanwhile.
    with run.lock() if first_process() else nullcontext():
        state = run.checkpoints / "state.safetensors"
        if state.exists():
            numbers = saved_run.saved_numbers(state)
            if numbers["finished"]:
                on_finished(
                    f"{folder} is finished, after {numbers['epoch']} epochs; {saved_run.how_to_train_longer(run)}"
                )
            saved_run.check_config(experiment, run, numbers, longer=numbers["finished"])
        experiment.check_packages()
        task, _ = saved_run.recorded_task(experiment, run, accept_changes=False)
        trainer = experiment.build_trainer(task, run, weights=not state.exists())
        try:
            trainer.resume()
        except (InputError, torch.OutOfMemoryError):
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
            hint = "restore it, or start a new run"
            raise InputError(str(state), f"does not fit this run ({one_line(error)})", hint=hint) from None
        with closing(trainer.log):
            trainer.fit()
            return _finish(experiment, trainer, task, split)


def complete_run(folder: Path) -> Run:
    """Return a run with a report, whose data are unchanged.

    Raises:
        InputError: its config or its data were changed.
    """
    experiment, run = load_run(folder, trust=True)
    saved_run.check_config(experiment, run, saved_run.saved_numbers(run.checkpoints / "state.safetensors"))
    saved_run.recorded_task(experiment, run, accept_changes=False)
    return run


def evaluate_run(
    folder: Path,
    *,
    checkpoint: Literal["last", "best"] | None = None,
    accept_changes: bool = False,
    trust: bool = False,
) -> Evaluated:
    """Evaluate the weights of a run, and write the result to its folder.

    Args:
        folder: the run folder.
        checkpoint: the weights to evaluate. Default: the weights that the run selected.
        accept_changes: evaluate data that changed since the run began. The items of the run that are left are
            evaluated, with their current labels.
        trust: allow its config to name code to import.

    Raises:
        InputError: the folder is not a run, the weights do not fit, or its config or its data were changed.
    """
    experiment, run = load_run(folder, trust=trust)
    name = checkpoint or experiment.selected
    path = run.checkpoints / f"{name}.safetensors"
    weights, saved = load_weights(path)
    saved_run.check_config(experiment, run, saved)
    epoch = saved.get("epoch")
    if not isinstance(epoch, int | float) or not 0 <= epoch < math.inf:
        raise InputError(str(path), "not the weights of a training", hint="restore it, or resume the run")
    numbers = saved_run.saved_numbers(run.checkpoints / "state.safetensors")
    task, changes = saved_run.recorded_task(experiment, run, accept_changes)
    model = saved_run.trained_model(experiment, run, task, weights, path)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, evaluator = experiment.build_images(model), experiment.evaluator(model.to(device))

    def evaluate(split: Split) -> tuple[Evaluation, Found, Tensor]:
        outputs, missing = evaluator.outputs(model, split, images, device=device)
        return *evaluator.evaluate(outputs, missing, split), missing

    evaluation, found, missing = evaluate(task.evaluated)
    about = {"epochs": numbers["epoch"], "selection": numbers["selection"], "trained": numbers["trained"]}
    about |= {"changes": changes, "identity": experiment.identity_of(model)}
    evaluated = Evaluated(evaluation, task.evaluated_name, name, epoch, **about)
    is_calibrated = name == experiment.selected and not changes
    val = _on_val(evaluator, task, task.evaluated_name, (found, missing), evaluate) if is_calibrated else None
    train = None
    if is_calibrated and evaluator.ranked:
        items = _labelled_items(task, model)
        train = items, *evaluator.outputs(model, items, images, device=device)
    evaluator.save(run, RunResult(task, evaluated, found, missing, val, train), model)
    return evaluated


def _labelled_items(task: Task, model: Any) -> Split:
    """Return the training items that are kept with their embeddings and labels."""
    return task.train.subset(sample(task.train.labels, model.embedding_dim))


def report_run(folder: Path, *, accept_changes: bool = False, trust: bool = False) -> Path:
    """Write the report of a run from its metrics and saved embeddings.

    Args:
        folder: the run folder.
        accept_changes: report on data that changed since the run began, as in `evaluate_run`.
        trust: allow its config to name code to import.
    """
    experiment, run = load_run(folder, trust=trust)
    evaluator = experiment.evaluator()
    return evaluator.report(run, evaluator.read(run, saved_run.read_evaluation(run), accept_changes))


def _on_val(
    evaluator: Results, task: Task, split: str, found: tuple[Found, Tensor], evaluate: Callable[[Split], Sequence[Any]]
) -> tuple[Found, Tensor] | None:
    """Return the result on the validation split and its unreadable rows, if a calibration is fitted to it.

    `found` is the result on `split`. It is used again if `split` is the validation split.
    """
    if not evaluator.ranked or task.val is None:
        return None
    if split == "val":
        return found
    _, of_val, missing = evaluate(task.val)
    return of_val, missing


def _finish(experiment: Experiment, trainer: Trainer, task: Task, split_name: Literal["result", "val"]) -> Run | None:
    """Evaluate the selected weights, and save the result and the report."""
    epoch, selection = trainer.epoch, None
    trainer.take_best()
    if trainer.best is not None:
        epoch, selection = trainer.best.epoch, trainer.best.summary()
    name: Literal["test", "val"] = "val" if split_name == "val" else task.evaluated_name
    evaluator = experiment.evaluator(trainer.bare_model)
    evaluation, found, missing = trainer.evaluate(task.splits[name])
    val = _on_val(evaluator, task, name, (found, missing), trainer.evaluate) if split_name == "result" else None
    train = None
    if split_name == "result" and evaluator.ranked:
        items = _labelled_items(task, trainer.bare_model)
        train = items, *trainer.outputs(items)
    trainer.images.close()
    if trainer.run is None or not trainer.accelerator.is_main_process:
        return None
    model, accelerator = trainer.bare_model, trainer.accelerator
    about: Any = {"trained": trainer.trained, "identity": experiment.identity_of(model)}
    evaluated = Evaluated(evaluation, name, experiment.selected, epoch, trainer.epoch, selection, **about)
    result = RunResult(task, evaluated, found, missing, val, train)
    evaluator.save(trainer.run, result, model)
    trainer.log.add_result(name, evaluation, trainer.steps_done)
    training_of(model, accelerator.device, accelerator.num_processes, trainer.seconds).save(trainer.run)
    if split_name == "result":
        evaluator.report(trainer.run, result)
    return trainer.run
