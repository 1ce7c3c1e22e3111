"""What a run has recorded: its config, data, weights, evaluation, captions and embeddings."""

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
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.evaluated import Evaluated, Selection
from contml.runs import PLACES, Run, without_paths
from contml.training import load_weights
from contml.training.checkpoint import load_numbers

if TYPE_CHECKING:
    from contml.app.experiment.building import Experiment


def trained_model(experiment: Experiment, run: Run, task: Task, weights: dict[str, Tensor], path: Path) -> nn.Module:
    """The model of a run with the weights that were read from `path`.

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
    """The evaluation of the selected weights of a run.

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
    """The numbers of a state that the result needs: epoch, finished, trained, config, and selection."""
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
        """Positions in `names` of the items that have an embedding `[n]`, their embeddings, and which were not read.

        Raises:
            InputError: no item has one.
        """
        row_of_name = {name: row for row, name in enumerate(self.names)}
        positions = [position for position, name in enumerate(names) if name in row_of_name]
        if not positions:
            raise InputError(
                str(self.path), "has no embedding of the current items", hint="run 'contml evaluate' again"
            )
        rows = torch.tensor([row_of_name[names[position]] for position in positions])
        return positions, self.embeddings[rows], torch.isin(rows, self.missing).nonzero()[:, 0]


def saved_embeddings(experiment: Experiment, run: Run, split: str, checkpoint: str | None = None) -> SavedEmbeddings:
    """The saved embeddings of a split; `checkpoint`: by which weights, None: by the weights that the run selected.

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
    """The data of a run, in the order of its record, and what changed.

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
    """Refuse a run whose config is not the saved one; `longer`: it is finished, and may be edited to train longer."""
    config = saved.get("config")
    saved_values = without_paths(config) if isinstance(config, dict) else {}
    changed = [
        change
        for change in difference(saved_values, experiment.recorded, experiment.document.values)
        if (key := change.split(":")[0]) not in PLACES and not key.startswith("published.")
    ]
    if changed:
        got = f"changed since the run began ({'; '.join(changed)})"
        hint = f"restore it; {how_to_train_longer(run)}" if longer else "restore it, or start a new run"
        raise InputError(str(run.config), got, hint=hint)


def how_to_train_longer(run: Run) -> str:
    """How to train a finished run longer."""
    weights = run.checkpoints / "last.safetensors"
    section = "captioner" if "\ncaptioner:" in run.config.read_text(encoding="utf-8") else "model"
    return f"to train longer, start a new run from its weights: contml train {run.config} {section}.weights={weights}"


def row_of(task: Task, name: str, given: str, option: str) -> int:
    """The row of an image in the split `name`: by its name, the end of its name after a slash or space, or its row.

    Raises:
        InputError: there is no such image, or there are several. `option` asked for it.
    """
    split = task.splits[name]
    row = _row(split, given)
    if isinstance(row, int):
        return row
    title = SPLIT_TITLES[name]
    hint = f"give a name such as {split.name(0)}, or a row, 0 to {len(split) - 1}"
    if row:
        raise InputError(option, f"{len(row)} {title} images end in '{given}'", hint=hint)
    others = [
        SPLIT_TITLES[other] for other, images in task.splits.items() if other != name and _row(images, given) != []
    ]
    if others and not given.isdecimal():
        raise InputError(option, f"'{given}' is a {others[0]} image", f"must be one of the {title} split", hint)
    raise InputError(option, f"no {title} image '{given}'", hint=hint)


def _row(split: Split, given: str) -> int | list[str]:
    """The row of an image, or the names that end in what was given."""
    names = [split.name(row) for row in range(len(split))]
    matches = [name for name in names if name.endswith((f"/{given}", f" {given}"))]
    if given in names or len(matches) == 1:
        return names.index(given if given in names else matches[0])
    if given.isdecimal() and int(given) < len(split):
        return int(given)
    return matches
