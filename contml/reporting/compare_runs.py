"""Runs read for a comparison: their figures, what a paper reports, and which were tested on the same data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contml._support.errors import InputError
from contml.config import Section, read, validate
from contml.evaluation.metrics import Published
from contml.evaluation.results import Evaluation
from contml.reporting.differences import CONFIG, Values, differing, flat, identity, said, short
from contml.runs import Run, find_runs, open_run

#: Test sets are one where the figures of a random ranking and of the oracle agree as far as rounding goes.
_CLOSE = 1e-3


@dataclass(frozen=True)
class Trained:
    """A run with its evaluation: its folder, its config as flat keys, what a paper reports, which weights."""

    folder: Path
    config: Values
    published: Published | None
    evaluation: Evaluation
    checkpoint: str


def read_runs(paths: Sequence[Path]) -> tuple[list[Trained], list[str]]:
    """Runs with an evaluation; a line for each of the others.

    Raises:
        InputError: there is no such path, or no run in any of them.
    """
    folders: dict[Path, Path] = {}
    left_out = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such folder; give run folders, or a folder that holds some")
        found = find_runs(path) if path.is_dir() else []
        if not found:
            left_out.append(f"{path}: {'holds no run' if path.is_dir() else 'is no folder'}")
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        raise InputError(f"{left_out[0]}; give folders that 'contml train' made, or a folder that holds some")
    runs = []
    for folder in folders.values():
        run = _read(open_run(folder))
        if isinstance(run, str):
            left_out.append(f"{folder}: {run}")
        else:
            runs.append(run)
    return runs, left_out


def _read(run: Run) -> Trained | str:
    """A run with its evaluation, or why it has none."""
    try:
        document = read(run.config, trusted=False)
        epochs = [float(row.get("epoch", 0)) for row in run.rows()]
    except (InputError, AttributeError, TypeError, ValueError) as error:
        return f"cannot be read ({error})"
    section = replace(document, values={"published": document.values.get("published")})
    part = validate(section, {"published": Section(Published, required=False)}).parts.get("published")
    published = None if part is None else part.build()
    config = {CONFIG: run.name, **flat({key: v for key, v in document.values.items() if key != "published"})}
    path = run.folder / "evaluation.json"
    total, done = config.get("training.epochs"), max(epochs, default=0.0)
    if not isinstance(total, int):
        return "its config has no training.epochs; give a folder that 'contml train' made"
    # Where only the result was kept, nothing is known of the way there.
    if (run.metrics.exists() or not path.exists()) and done < total:
        return f"not finished, {round(done, 1):g} of {total} epochs; go on with: contml train --resume {run.folder}"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        checkpoint = saved.pop("checkpoint", "last")
        evaluation = Evaluation.from_dict(saved)
        return Trained(run.folder, config, published, evaluation, checkpoint)
    except FileNotFoundError:
        return f"finished, but not evaluated; run: contml evaluate {run.folder}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its evaluation.json cannot be read; write it anew with: contml evaluate {run.folder}"


def by_test_set(runs: Sequence[Trained]) -> list[list[Trained]]:
    """Runs by the data that they were tested on."""
    sets: list[list[Trained]] = []
    for run in runs:
        same = next((others for others in sets if _same_test(others[0], run)), None)
        if same is None:
            sets.append([run])
        else:
            same.append(run)
    return sets


def _same_test(a: Trained, b: Trained) -> bool:
    """Random and oracle depend on queries and gallery and their labels alone, so they tell test sets apart."""
    x, y = a.evaluation, b.evaluation
    if a.config.get("task.name") != b.config.get("task.name"):
        return False
    if (x.unit, x.queries, x.gallery) != (y.unit, y.queries, y.gallery):
        return False
    return all(
        math.isclose(p, q, rel_tol=_CLOSE, abs_tol=1e-9)
        for name in x.curves.keys() & y.curves.keys()
        for side in ("random", "oracle")
        for p, q in zip(getattr(x.curves[name], side), getattr(y.curves[name], side), strict=False)
    )


def tested(test_set: Sequence[Trained], runs: Sequence[Trained]) -> str:
    """What a table is of: task, test set, unit; and what sets its task apart from those of all other runs."""
    evaluation, config = test_set[0].evaluation, test_set[0].config
    every = [run.config for run in runs if run.config.get("task.name") == config.get("task.name")]
    within = differing([run.config for run in test_set])
    apart = [key for key in differing(every) if key.startswith("task.") and key != "task.name" and key not in within]
    names = [
        str(config.get("task.name", "task")),
        *(f"{short(key)} {said(config[key])}" for key in apart if key in config),
    ]
    unit = "0 within a class, 1 between classes" if "recall" in evaluation.curves else evaluation.unit
    sides = f"{evaluation.queries:,} queries, {evaluation.gallery:,} in the gallery"
    return f"{', '.join(names)}: {sides}; label distance: {unit}"


def once(runs: Sequence[Trained]) -> tuple[list[Trained], list[str]]:
    """The latest of the runs with one config and one seed, in their order; a line for each of the others."""
    latest: dict[tuple[str, str], Trained] = {}
    keys = [(identity(run.config), said(run.config.get("seed"))) for run in runs]
    for key, run in zip(keys, runs, strict=True):
        if key not in latest or run.folder.name > latest[key].folder.name:
            latest[key] = run
    kept, lines = [], []
    for key, run in zip(keys, runs, strict=True):
        if latest[key] is run:
            kept.append(run)
        else:
            lines.append(f"{run.folder}: left out, as {latest[key].folder} has the same config and seed")
    return kept, lines
