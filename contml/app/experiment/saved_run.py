"""The records of a run: its config, data, weights, evaluation, captions and embeddings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.files import unreadable
from contml.config import difference
from contml.data.identity import DataRecord, with_recorded_items
from contml.data.split import Task
from contml.evaluation.evaluated import Evaluated, Selection
from contml.runs import PLACES, Run, without_paths
from contml.training import load_weights
from contml.training.checkpoint import load_numbers

if TYPE_CHECKING:
    from contml.app.experiment.building import Experiment


def trained_model(experiment: Experiment, run: Run, task: Task, weights: dict[str, Tensor], path: Path) -> nn.Module:
    """Return the model of a run with the weights that were read from `path`.

    Raises:
        InputError: the weights do not fit.
    """
    model: nn.Module = experiment.build_model(task, weights=False)
    try:
        model = experiment.results.fitted(model, weights, path)
        model.load_state_dict(weights)
    except RuntimeError as error:
        got = f"does not fit the model of {run.config} ({str(error).splitlines()[-1].strip()})"
        raise InputError(str(path), got) from None
    return model


def read_evaluation(run: Run) -> Evaluated:
    """Read the evaluation of the selected weights of a run.

    Raises:
        InputError: there is none, or its file is damaged.
    """
    try:
        return Evaluated.read(run.evaluation())
    except FileNotFoundError:
        trained = any(run.checkpoints.glob("*.safetensors"))
        command = f"contml {'evaluate' if trained else 'train --resume'} {run.folder}"
        raise InputError(str(run.folder), "not evaluated yet", hint=f"run '{command}'") from None


def saved_numbers(state: Path) -> dict[str, Any]:
    """Read the numbers of a state that the result needs: epoch, finished, trained, config, and selection."""
    numbers = load_numbers(state)
    kinds = {"epoch": int, "finished": bool, "trained": bool, "config": dict, "selection": dict | None}
    if not isinstance(numbers, dict) or not all(isinstance(numbers.get(k, ...), kind) for k, kind in kinds.items()):
        raise InputError(str(state), "not the state of a training", hint="restore it, or start a new run")
    try:
        selection = TypeAdapter(Selection | None).validate_json(json.dumps(numbers["selection"]), strict=True)
    except ValueError as error:
        raise unreadable(state, error, "restore it") from None
    return {**numbers, "selection": selection}


@dataclass(frozen=True)
class SavedEmbeddings:
    """The embeddings of a split that a run saved: one for each name `[N, d]`, and the rows that could not be read."""

    path: Path
    names: Sequence[str]
    embeddings: Tensor
    missing: Tensor

    def of(self, names: Sequence[str]) -> tuple[list[int], Tensor, Tensor]:
        """Find the saved embeddings of the items with these names.

        Returns:
            The positions in `names` of the items that have an embedding `[n]`, their embeddings, and the unreadable
            ones.

        Raises:
            InputError: no item has one.
        """
        row_of_name = {name: row for row, name in enumerate(self.names)}
        positions = [position for position, name in enumerate(names) if name in row_of_name]
        if not positions:
            got = "has no embedding of the current items"
            raise InputError(str(self.path), got, hint="run 'contml evaluate' again")
        rows = torch.tensor([row_of_name[names[position]] for position in positions])
        return positions, self.embeddings[rows], torch.isin(rows, self.missing).nonzero()[:, 0]


def saved_embeddings(experiment: Experiment, run: Run, split: str, checkpoint: str | None = None) -> SavedEmbeddings:
    """Read the saved embeddings of a split.

    `checkpoint` is the name of the weights that made them. Default: the weights that the run selected.

    Raises:
        InputError: there are none, or they are damaged or of another config.
    """
    path = run.embeddings(split, checkpoint)
    option = f" --checkpoint {checkpoint}" if checkpoint else ""
    if not path.exists():
        raise InputError(str(path), "no embeddings", hint=f"run 'contml evaluate {run.folder}{option}'")
    tensors, saved = load_weights(path)
    names, tensor_types = saved.get("names"), {name: (t.dtype, t.ndim) for name, t in tensors.items()}
    if tensor_types != {"embeddings": (torch.float32, 2), "missing": (torch.int64, 1)} or not isinstance(names, list):
        raise InputError(str(path), "not the embeddings of a run", hint="run 'contml evaluate' again")
    if len(names) != len(tensors["embeddings"]) or not all(isinstance(name, str) for name in names):
        raise InputError(str(path), f"{len(names):,} names for {len(tensors['embeddings']):,} embeddings")
    check_config(experiment, run, saved)
    return SavedEmbeddings(path, names, tensors["embeddings"], tensors["missing"])


def recorded_task(experiment: Experiment, run: Run, accept_changes: bool) -> tuple[Task, list[str]]:
    """Return the data of a run, in the order of its record, and their changes.

    Args:
        experiment: builds the data.
        run: has the record of its data.
        accept_changes: omit added items instead of refusing changed data.

    Raises:
        InputError: the data changed since the run began.
    """
    record, task = DataRecord.load(run.data), experiment.build_task()
    changes = record.changes(DataRecord.of(task, experiment.root))
    if changes and not accept_changes:
        hint = "restore them, start a new run, or evaluate the items of the run that are left with --accept-changes"
        raise InputError(str(run.folder), f"its data changed since it began: {'; '.join(changes)}", hint=hint)
    return with_recorded_items(task, record, experiment.root), changes


def check_config(experiment: Experiment, run: Run, saved: Mapping[str, Any], *, longer: bool = False) -> None:
    """Refuse a run whose config differs from the saved one.

    With `longer`, the run is finished, and the hint describes how to train it longer.
    """
    config = saved.get("config")
    saved_values = without_paths(config) if isinstance(config, dict) else {}
    changes = difference(saved_values, experiment.recorded, experiment.document.values)
    if changed := [each for each in changes if each.split(":")[0] not in PLACES and not each.startswith("published.")]:
        got = f"changed since the run began ({'; '.join(changed)})"
        hint = f"restore it; {how_to_train_longer(run)}" if longer else "restore it, or start a new run"
        raise InputError(str(run.config), got, hint=hint)


def how_to_train_longer(run: Run) -> str:
    """Return a hint on how to train a finished run longer."""
    weights = run.checkpoints / "last.safetensors"
    section = "captioner" if "\ncaptioner:" in run.config.read_text(encoding="utf-8") else "model"
    return f"to train longer, start a new run from its weights: contml train {run.config} {section}.weights={weights}"
