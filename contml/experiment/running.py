"""Runs of an experiment: train, resume, evaluate, report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml._support.files import write
from contml._support.tensors import load_tensors, save_tensors
from contml._support.text import plain_text
from contml.config import dump
from contml.data.identity import DataRecord, item_names
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.evaluators import (
    CaptionEvaluator,
    Captions,
    Evaluator,
    RetrievalEvaluator,
    evaluate_captions,
)
from contml.evaluation.query_values import QueryValues
from contml.evaluation.results import Evaluated, Ranking
from contml.experiment.about import brief_of, facts_of, squared_of, training_of, usage_of
from contml.experiment.building import Experiment, first_process
from contml.experiment.checking import report_columns
from contml.experiment.loading import load_run
from contml.experiment.recorded import (
    check_config,
    how_to_train_longer,
    read_captions,
    read_evaluation,
    recorded_task,
    row_of,
    saved_embeddings,
    saved_numbers,
    trained_model,
)
from contml.models.captioner import Captioner
from contml.retrieval.calibration import Calibration, save_calibration
from contml.runs import COMMAND, HEAD, Run, create
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

    If several processes train, the main one returns the run; the others return None.

    Args:
        experiment: what to train.
        root: the folder in which the run folder is created.
        on_start: called with the run when its folder is created.
        on_columns: called with how the columns of a table were read: rows of text, the first one a header.
        split: "val": only the validation split is evaluated, and no report is written; the test split is not read.
        folder: the run folder; None: a new one in `root`, named by date and time.
        command: what the user typed, for the report.
    """
    experiment.check_tracker()
    task = experiment.build_task()
    report_columns(task, on_columns)
    if split == "val" and "val" not in task.splits:
        raise InputError("training.select", "none", "the data need a validation split", "set training.select=val")
    trainer = experiment.build_trainer(task)
    late_splits = {
        name: s for name, s in task.splits.items() if name not in ("train", *trainer.watched) and split == "result"
    }
    for name, data_split in {**trainer.watched, **late_splits}.items():
        _check_size(name, data_split, experiment.is_captioning)  # it would otherwise be found only after the training
    for data_split in (task.train, *trainer.watched.values(), *late_splits.values()):
        trainer.images.prepare(data_split)  # errors in a cache or an image are raised before a run folder is created
    for data_split in late_splits.values():
        trainer.check_images(data_split)  # a broken image would otherwise be found only after the training
    with ExitStack() as stack:
        if trainer.accelerator.is_main_process:
            trainer.run = create(root, experiment.name, folder)
            stack.enter_context(trainer.run.lock())
            header_lines = [f"{HEAD}{experiment.name}", *([f"{COMMAND}{plain_text(command)}"] if command else [])]
            text = "".join(f"{line}\n" for line in header_lines) + dump(experiment.values)
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
    """Resume a run from its last checkpoint; the result equals that of an uninterrupted run.

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
            numbers = saved_numbers(state)
            if numbers["finished"]:
                on_finished(f"{folder} is finished, after {numbers['epoch']} epochs; {how_to_train_longer(run)}")
            check_config(experiment, run, numbers, longer=numbers["finished"])
        experiment.check_tracker()
        task, _ = recorded_task(experiment, run, accept_changes=False)
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
    """A run with a report, whose data are unchanged.

    Raises:
        InputError: its config or its data were changed.
    """
    experiment, run = load_run(folder, trust=True)
    check_config(experiment, run, saved_numbers(run.checkpoints / "state.safetensors"))
    recorded_task(experiment, run, accept_changes=False)
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
        checkpoint: which weights; None: those that the run selected.
        accept_changes: evaluate data that changed since the run began: the items of the run that are left, with their
            current labels.
        trust: allow its config to name code to import.

    Raises:
        InputError: the folder is not a run, the weights do not fit, or its config or its data were changed.
    """
    experiment, run = load_run(folder, trust=trust)
    name = checkpoint or experiment.selected
    path = run.checkpoints / f"{name}.safetensors"
    weights, saved = load_weights(path)
    check_config(experiment, run, saved)
    epoch = saved.get("epoch")
    if not isinstance(epoch, int | float) or not 0 <= epoch < math.inf:
        raise InputError(str(path), "not the weights of a training", hint="restore it, or resume the run")
    numbers = saved_numbers(run.checkpoints / "state.safetensors")
    task, changes = recorded_task(experiment, run, accept_changes)
    model = trained_model(experiment, run, task, weights, path)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    split, evaluator = task.evaluated, _evaluator(model)
    outputs, missing = evaluator.outputs(model.to(device), split, experiment.build_images(), device=device)
    evaluation, predictions = evaluator.evaluate(outputs, missing, split)
    result = Evaluated(
        evaluation,
        task.evaluated_name,
        name,
        epoch,
        numbers["epoch"],
        numbers["selection"],
        changes,
        trained=numbers["trained"],
        identity=experiment.identity_of(model),
    )
    if name == experiment.selected and not changes and task.val is not None and isinstance(predictions, Ranking):
        val_predictions: Ranking | Captions = predictions
        if task.val is not split:
            val_outputs, val_missing = evaluator.outputs(model, task.val, experiment.build_images(), device=device)
            val_predictions = evaluator.evaluate(val_outputs, val_missing, task.val)[1]
        assert isinstance(val_predictions, Ranking)
        save_calibration(run.calibration, task, val_predictions, predictions)
    _save(experiment, run, task, result, predictions, missing, model)
    return result


def report_run(
    folder: Path, *, accept_changes: bool = False, trust: bool = False, pair: tuple[str, str] | None = None
) -> Path:
    """Write the report of a run from its metrics and saved embeddings.

    Args:
        folder: the run folder.
        accept_changes: report on data that changed since the run began, as in `evaluate_run`.
        trust: allow its config to name code to import.
        pair: two test images to explain.
    """
    experiment, run = load_run(folder, trust=trust)
    evaluated = read_evaluation(run)
    # Before the data: a config that was edited may change them.
    if experiment.is_captioning:
        if pair is not None:
            raise InputError("--pair", "the run trained a captioner, which ranks nothing", hint="omit --pair")
        return _report_captions(experiment, run, evaluated, accept_changes)
    saved = saved_embeddings(experiment, run, evaluated.split)
    task, changes = recorded_task(experiment, run, accept_changes)
    split = task.splits[evaluated.split]
    embedded_rows, embeddings, missing = saved.of(item_names(split, experiment.root))
    split = split.subset(embedded_rows)
    pair_rows = None
    if pair is not None:
        named = task.with_splits({evaluated.split: split})
        pair_rows = row_of(named, evaluated.split, pair[0], "--pair"), row_of(named, evaluated.split, pair[1], "--pair")
    evaluation, ranking = RetrievalEvaluator().evaluate(embeddings, missing, split)
    return _report(
        experiment, run, split, replace(evaluated, evaluation=evaluation, changes=changes), ranking, missing, pair_rows
    )


def _report_captions(experiment: Experiment, run: Run, evaluated: Evaluated, accept_changes: bool) -> Path:
    saved = read_captions(run, evaluated.split)
    task, changes = recorded_task(experiment, run, accept_changes)
    split = task.splits[evaluated.split]
    rows = [row for row, name in enumerate(item_names(split, experiment.root)) if name in saved]
    texts = [saved[name] for name in item_names(split.subset(rows), experiment.root)]
    evaluation, captions = evaluate_captions(texts, split, torch.tensor(rows))
    evaluation = replace(evaluation, skipped=len(split) - len(rows))
    return _report(experiment, run, split, replace(evaluated, evaluation=evaluation, changes=changes), captions)


def _check_size(name: str, split: Split, is_captioning: bool) -> None:
    """Refuse a split that is too small to be evaluated."""
    queries = len(split) if split.queries is None else len(split.queries)
    gallery = len(split) if split.gallery is None else len(split.gallery)
    if queries < 1 or (gallery < 2 and not is_captioning):
        got = f"{queries} queries and {gallery} gallery items"
        raise InputError(f"{SPLIT_TITLES[name]} split", got, "needs at least 1 query and 2 gallery items")


def _evaluator(model: nn.Module) -> Evaluator:
    return CaptionEvaluator(model.vocabulary.decode) if isinstance(model, Captioner) else RetrievalEvaluator()


def _finish(
    experiment: Experiment,
    trainer: Trainer,
    task: Task,
    split_name: Literal["result", "val"],
) -> Run | None:
    """Evaluate the selected weights, and save the result and the report."""
    epoch, selection = trainer.epoch, None
    if trainer.best is not None:
        assert trainer.best.weights is not None  # the untrained model is evaluated too
        trainer.bare_model.load_state_dict(trainer.best.weights)
        epoch, selection = trainer.best.epoch, trainer.best.summary()
    # The result is in float32, whatever the precision of the training: as `evaluate_run` and `contml.load` embed.
    trainer.model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    name: Literal["test", "val"] = "val" if split_name == "val" else task.evaluated_name
    evaluation, predictions, missing = trainer.evaluate(task.splits[name])
    val_predictions = None
    if split_name == "result" and task.val is not None and isinstance(predictions, Ranking):
        val_predictions = predictions if name == "val" else trainer.evaluate(task.val)[1]
    trainer.images.close()
    if trainer.run is None or not trainer.accelerator.is_main_process:
        return None
    model, accelerator = trainer.bare_model, trainer.accelerator
    result = Evaluated(
        evaluation,
        name,
        experiment.selected,
        epoch,
        trainer.epoch,
        selection,
        trained=trainer.trained,
        identity=experiment.identity_of(model),
    )
    if isinstance(val_predictions, Ranking) and isinstance(predictions, Ranking):
        save_calibration(trainer.run.calibration, task, val_predictions, predictions)
    _save(experiment, trainer.run, task, result, predictions, missing, model)
    trainer.log.add_result(name, evaluation, trainer.steps_done)
    training_of(model, accelerator.device, accelerator.num_processes, trainer.seconds).save(trainer.run)
    if split_name == "result":
        _report(experiment, trainer.run, task.splits[name], result, predictions, missing)
    return trainer.run


def _save(
    experiment: Experiment,
    run: Run,
    task: Task,
    result: Evaluated,
    found: Ranking | Captions,
    missing: Tensor,
    model: nn.Module,
) -> None:
    checkpoint = None if result.checkpoint == experiment.selected else result.checkpoint
    names = item_names(task.splits[result.split], experiment.root)
    if isinstance(found, Captions):
        entries = zip(found.rows.tolist(), found.texts, found.values.tolist(), strict=True)
        _write_json(
            run.captions(result.split, checkpoint),
            [{"image": names[row], "caption": text, "cider_d": value} for row, text, value in entries],
        )
        if isinstance(model, Captioner) and model.decoder.needs_maps:
            split = task.splits[result.split]
            save_tensors(run.attention(result.split, checkpoint), attention_of(experiment, model, split, found))
    else:
        tensors = {"embeddings": found.embeddings, "missing": missing}
        save_tensors(run.embeddings(result.split, checkpoint), tensors, names=names, config=experiment.recorded)
    rows = (found.rows if isinstance(found, Captions) else found.queries).tolist()
    queries = QueryValues.of(result.evaluation.headline, [names[row] for row in rows], found.values)
    queries.save(run.query_values(result.split, checkpoint))
    _write_json(run.evaluation(checkpoint), result.to_dict())


def attention_of(experiment: Experiment, model: Captioner, split: Split, captions: Captions) -> dict[str, Tensor]:
    """Where the captioner looks before each word `[T, P]`, for the images that the report shows, by their rows."""
    rows = captions.rows[captions.shown()]
    device = next(model.parameters()).device
    attention: dict[str, Tensor] = {}
    model.eval()
    for batch in experiment.build_images().test_batches(split, rows, len(rows)):
        images = batch.images.to(device)
        tokens = model.describe(images)
        for row, weights in zip(batch.rows.tolist(), model.attention(images, tokens).cpu(), strict=True):
            attention[str(row)] = weights.contiguous()
    return attention


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content)
    write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _report(
    experiment: Experiment,
    run: Run,
    split: Split,
    result: Evaluated,
    found: Ranking | Captions,
    missing: Tensor | None = None,
    pair: tuple[int, int] | None = None,
) -> Path:
    from contml.report.page import About, write_caption_report, write_report  # here: it imports matplotlib

    dim = None if isinstance(found, Captions) else found.embeddings.shape[1]
    about: Any = {
        "title": experiment.name,
        "config": dump(experiment.values),
        "rows": run.rows(),
        "evaluation": result,
        "about": About(
            brief_of(experiment, run, dim),
            run.command,
            facts_of(experiment, run, dim),
            usage_of(experiment, run.folder),
            squared_of(experiment),
        ),
    }
    if isinstance(found, Captions):
        path = run.attention(result.split)
        attention = load_tensors(path)[0] if path.exists() else {}
        images = experiment.config.parts["images"].options
        size = images["resize"], images["crop"]
        return write_caption_report(run.folder, captions=found, split=split, attention=attention, size=size, **about)
    calibration = Calibration.read(run.calibration)
    return write_report(
        run.folder, ranking=found, split=split, missing=missing, pair=pair, calibration=calibration, **about
    )
