"""Runs of an experiment: train, resume, evaluate, report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write
from contml.config import difference, dump
from contml.data.split import Split, Task
from contml.evaluation.embed import embed
from contml.evaluation.results import Evaluation, Ranking
from contml.experiment.building import Experiment
from contml.experiment.checking import report_columns
from contml.experiment.loading import load_run
from contml.runs import HEAD, Run, create
from contml.training import Trainer, load_weights
from contml.training.checkpoint import load_state, save_weights
from contml.training.trainer import evaluate_split

#: Keys that may change before a run is resumed: where files are and how they are read, not what they hold.
_MAY_CHANGE = (
    *("task.root", "task.data", "model.weights", "binarize.cache", "sampler.cache", "images.cache", "images.workers"),
    "training.checkpoint_minutes",
)


def train(
    experiment: Experiment,
    root: Path,
    *,
    on_start: Callable[[Run], None] = lambda _: None,
    on_columns: Callable[[Sequence[Sequence[str]]], None] = lambda _: None,
) -> Run | None:
    """Train from the beginning in a new run folder, evaluate, and write the report.

    If several processes train, the main one returns the run; the others return None.

    Args:
        experiment: what to train.
        root: the folder in which the run folder is created.
        on_start: called with the run when its folder is created.
        on_columns: called with how the columns of a table were read: rows of text, the first one a header.
    """
    task = experiment.build_task()
    report_columns(task, on_columns)
    trainer = experiment.build_trainer(task)
    for split in (task.train, task.test):
        trainer.images.prepare(split)  # errors in a cache or an image are raised before a run folder is created
    if trainer.accelerator.is_main_process:
        trainer.run = create(root, experiment.name)
        text = f"{HEAD}{experiment.name}\n{dump(experiment.values)}"
        write(trainer.run.config, lambda path: path.write_text(text, encoding="utf-8"))
        on_start(trainer.run)
    trainer.fit()
    return _finish(experiment, trainer, task)


def resume(folder: Path, *, trust: bool = False) -> Run | None:
    """Resume a run from its last checkpoint; the result equals that of an uninterrupted run.

    Raises:
        InputError: the folder is not a run, or its config was changed.
    """
    experiment, run = load_run(folder, trust=trust)
    state = run.checkpoints / "state.safetensors"
    if state.exists():
        changed = [
            change
            for change in difference(load_state(state)[2]["config"], experiment.values)
            if change.split(":")[0] not in _MAY_CHANGE and not change.startswith("published.")
        ]
        if changed:
            got = f"changed since the run began ({'; '.join(changed)})"
            raise InputError(str(run.config), got, hint="restore it, or start a new run")
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, run, weights=not state.exists())
    trainer.resume()
    trainer.fit()
    return _finish(experiment, trainer, task)


def evaluate_run(folder: Path, *, checkpoint: str = "last", trust: bool = False) -> Evaluation:
    """Evaluate a run's weights ("last" or "best") on its test split, and write the result to its folder."""
    experiment, run = load_run(folder, trust=trust)
    path = run.checkpoints / f"{checkpoint}.safetensors"
    weights = load_weights(path)
    task = experiment.build_task()
    model = experiment.build_model(task, weights=False)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        got = f"does not fit the model of {run.config} ({str(error).splitlines()[-1].strip()})"
        raise InputError(str(path), got) from None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    embeddings, missing = embed(model.to(device), task.test, experiment.build_images(), device=device)
    evaluation, _ = evaluate_split(embeddings, missing, task.test)
    _save(run, evaluation, embeddings, missing, checkpoint)
    return evaluation


def report_run(folder: Path, *, trust: bool = False, pair: tuple[str, str] | None = None) -> Path:
    """Write the report of a run from its metrics and saved embeddings; `pair`: two test images to explain."""
    experiment, run = load_run(folder, trust=trust)
    path = run.folder / "embeddings" / "test.safetensors"
    if not path.exists():
        raise InputError(str(folder), "has no embeddings yet", hint=f"run 'contml evaluate {folder}' first")
    saved = load_weights(path)
    task = experiment.build_task()
    if len(saved["embeddings"]) != len(task.test):
        got = f"{len(saved['embeddings'])} embeddings for {len(task.test)} test images"
        raise InputError(str(path), got, hint=f"run 'contml evaluate {folder}' again")
    if pair is not None and task.test.explainer is None:
        got = f"task {experiment.config.parts['task'].name} cannot explain a pair"
        raise InputError("--pair", got, hint="omit --pair")
    rows = None if pair is None else (_row_of(task.test, pair[0]), _row_of(task.test, pair[1]))
    evaluation, ranking = evaluate_split(saved["embeddings"], saved["missing"], task.test)
    return _report(experiment, run, task, (evaluation, ranking), rows)


def _row_of(split: Split, given: str) -> int:
    """The row of a test image given by its name, by the end of its name after a slash or space, or by its row."""
    names = [split.name(row) for row in range(len(split))]
    ends = [name for name in names if name.endswith((f"/{given}", f" {given}"))]
    if given in names or len(ends) == 1:
        return names.index(given if given in names else ends[0])
    if given.isdecimal() and int(given) < len(split):
        return int(given)
    got = f"{len(ends)} test images end in '{given}'" if ends else f"no test image '{given}'"
    raise InputError("--pair", got, hint=f"give a name such as {names[0]}, or a row, 0 to {len(split) - 1}")


def _finish(experiment: Experiment, trainer: Trainer, task: Task) -> Run | None:
    if trainer.result is None:  # a finished run was resumed
        trainer.result = trainer.evaluate()
    evaluation, ranking = trainer.result
    if trainer.run is None or not trainer.accelerator.is_main_process:
        return None
    _save(trainer.run, evaluation, ranking.embeddings, trainer.missing, "last")
    _report(experiment, trainer.run, task, trainer.result, None)
    return trainer.run


def _save(run: Run, evaluation: Evaluation, embeddings: Tensor, missing: Tensor, checkpoint: str) -> None:
    text = json.dumps({"checkpoint": checkpoint, **evaluation.to_dict()})
    write(run.folder / "evaluation.json", lambda path: path.write_text(text, encoding="utf-8"))
    save_weights(run.folder / "embeddings" / "test.safetensors", {"embeddings": embeddings, "missing": missing})


def _report(
    experiment: Experiment, run: Run, task: Task, result: tuple[Evaluation, Ranking], pair: tuple[int, int] | None
) -> Path:
    from contml.report.page import write_report  # here: it imports matplotlib

    return write_report(
        run.folder,
        title=experiment.name,
        config=dump(experiment.values),
        rows=run.rows(),
        evaluation=result[0],
        ranking=result[1],
        split=task.test,
        pair=pair,
    )
