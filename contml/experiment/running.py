"""Runs of an experiment: train, go on, evaluate, report."""

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
from contml.evaluation.retrieval import evaluate
from contml.experiment.building import Experiment
from contml.experiment.checking import describe
from contml.experiment.loading import load_run
from contml.runs import HEAD, Run, create
from contml.training import Trainer, load_weights
from contml.training.checkpoint import load_state, save_weights

#: What may be put right in a run's config before it goes on: where things are and who reads them, not what they are.
_WHERE = (
    *("task.root", "task.data", "model.weights", "labels.cache", "sampler.cache", "images.cache", "images.workers"),
    "training.checkpoint_minutes",
)


def train(
    experiment: Experiment,
    root: Path,
    *,
    started: Callable[[Run], None] = lambda _: None,
    described: Callable[[Sequence[Sequence[str]]], None] = lambda _: None,
) -> Run | None:
    """Train from the beginning in a new run folder, evaluate, and write the report. `started` gets the run folder.

    `described` gets how the columns of a table were read: rows of texts, a header first.
    Of several processes the main one has the run folder; the others return None.
    """
    task = experiment.build_task()
    describe(task, described)
    trainer = experiment.build_trainer(task)
    for split in (task.train, task.test):
        trainer.images.prepare(split)  # what is wrong with a cache, or with an image, is told before there is a run
    if trainer.accelerator.is_main_process:
        trainer.run = _create(root, experiment)
        started(trainer.run)
    trainer.fit()
    return _finish(experiment, trainer, task)


def resume(folder: Path, *, trust: bool = False) -> Run | None:
    """Go on with a run from its last checkpoint, to the same end as if it had never stopped.

    Raises:
        InputError: the folder is no run, or its config was changed since.
    """
    experiment, run = load_run(folder, trust=trust)
    state = run.checkpoints / "state.safetensors"
    if state.exists():
        changed = [
            change
            for change in difference(load_state(state)[2]["config"], experiment.values)
            if change.split(":")[0] not in _WHERE and not change.startswith("published.")
        ]
        if changed:
            raise InputError(
                f"{run.config}: changed since the run began ({'; '.join(changed)}); put it back, or start a new run"
            )
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, run, weights=not state.exists())
    trainer.resume()
    trainer.fit()
    return _finish(experiment, trainer, task)


def evaluate_run(folder: Path, *, checkpoint: str = "last", trust: bool = False) -> Evaluation:
    """Embed the test split with a run's weights ("last" or "best"), and write what was found to its folder."""
    experiment, run = load_run(folder, trust=trust)
    path = run.checkpoints / f"{checkpoint}.safetensors"
    weights = load_weights(path)
    task = experiment.build_task()
    model = experiment.build_model(task, weights=False)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path}: does not fit the model of {run.config} ({str(error).splitlines()[0]})") from None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    embeddings, missing = embed(model.to(device), task.test, experiment.build_images(), device=device)
    evaluation, _ = _evaluate(embeddings, missing, task.test)
    _save(run, evaluation, embeddings, missing, checkpoint)
    return evaluation


def report_run(folder: Path, *, trust: bool = False, pair: tuple[str, str] | None = None) -> Path:
    """Write the report of a run from its metrics and its saved embeddings; `pair` are test images to explain."""
    experiment, run = load_run(folder, trust=trust)
    path = run.folder / "embeddings" / "test.safetensors"
    if not path.exists():
        raise InputError(f"{folder}: has no embeddings yet; run 'contml evaluate {folder}' first")
    saved = load_weights(path)
    task = experiment.build_task()
    if len(saved["embeddings"]) != len(task.test):
        raise InputError(
            f"{path}: has {len(saved['embeddings'])} embeddings, but the test split has {len(task.test)} images now; "
            f"run 'contml evaluate {folder}' again"
        )
    if pair is not None and task.test.explainer is None:
        raise InputError(f"{experiment.config.parts['task'].name}: this task explains no pair; leave --pair out")
    rows = None if pair is None else (_row_of(task.test, pair[0]), _row_of(task.test, pair[1]))
    evaluation, ranking = _evaluate(saved["embeddings"], saved["missing"], task.test)
    return _report(experiment, run, task, evaluation, ranking, rows)


def _row_of(split: Split, given: str) -> int:
    """The row of a name, of the end of one behind a slash or a space, or the row itself."""
    names = [split.name(row) for row in range(len(split))]
    ends = [name for name in names if name.endswith((f"/{given}", f" {given}"))]
    if given in names or len(ends) == 1:
        return names.index(given if given in names else ends[0])
    if given.isdecimal() and int(given) < len(split):
        return int(given)
    how = f"{len(ends)} test images end in" if ends else "no test image is"
    raise InputError(
        f"--pair: {how} '{given}'; give a name as the gallery shows it ({names[0]}), or a row, 0 to {len(split) - 1}"
    )


def _create(root: Path, experiment: Experiment) -> Run:
    run = create(root, experiment.name)
    text = f"{HEAD}{experiment.name}\n{dump(experiment.values)}"
    write(run.config, lambda path: path.write_text(text, encoding="utf-8"))
    return run


def _finish(experiment: Experiment, trainer: Trainer, task: Task) -> Run | None:
    if trainer.result is None:  # a finished run was resumed
        trainer.result = trainer.evaluate()
    evaluation, ranking = trainer.result
    if trainer.run is None or not trainer.accelerator.is_main_process:
        return None
    _save(trainer.run, evaluation, ranking.embeddings, trainer.missing, "last")
    _report(experiment, trainer.run, task, evaluation, ranking)
    return trainer.run


def _evaluate(embeddings: Tensor, missing: Tensor, test: Split) -> tuple[Evaluation, Ranking]:
    return evaluate(
        embeddings,
        test.labels,
        test.queries,
        test.gallery,
        missing=missing,
        recall_at=test.recall_at,
        groups=test.groups,
    )


def _save(run: Run, evaluation: Evaluation, embeddings: Tensor, missing: Tensor, checkpoint: str) -> None:
    text = json.dumps({"checkpoint": checkpoint, **evaluation.to_dict()})
    write(run.folder / "evaluation.json", lambda path: path.write_text(text, encoding="utf-8"))
    save_weights(run.folder / "embeddings" / "test.safetensors", {"embeddings": embeddings, "missing": missing})


def _report(
    experiment: Experiment,
    run: Run,
    task: Task,
    evaluation: Evaluation,
    ranking: Ranking,
    pair: tuple[int, int] | None = None,
) -> Path:
    from contml.reporting import write_report  # here: it imports matplotlib

    return write_report(
        run.folder,
        title=experiment.name,
        config=dump(experiment.values),
        rows=run.rows(),
        evaluation=evaluation,
        ranking=ranking,
        split=task.test,
        pair=pair,
    )
