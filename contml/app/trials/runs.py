"""The runs of a comparison: their metrics, the differences between their configs, and which had the same test data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from contml._support.errors import InputError
from contml._support.text import MISSING, flat
from contml.config import Section, read, validate
from contml.evaluation.evaluated import Evaluated, scope, value_text
from contml.evaluation.metrics import Published
from contml.evaluation.results import Evaluation, QueryValues
from contml.runs import WITHOUT_EFFECT, Run, find_runs, open_run

#: A config as flat keys: `{"loss.name": "triplet_margin", "loss.margin": 0.1}`; its name is under `CONFIG`.
Values: TypeAlias = "Mapping[str, Any]"

CONFIG = "config"
#: The text in a column where a config has no such key.
ABSENT = MISSING
#: Keys that do not change the trained model, and the seed, over which metrics are averaged.
_IRRELEVANT = WITHOUT_EFFECT | {CONFIG, "seed"}
#: Tables with more columns than these begin with the names of the configs.
_FEW_COLUMNS = 3
#: Two test sets are the same if the metrics of a random ranking and of the oracle agree up to rounding.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class EvaluatedRun:
    """A run with the evaluation of one of its weights.

    Attributes:
        folder: the run folder.
        config: the config as flat keys. "checkpoint" and "split" are the weights and the split of the evaluation.
        evaluated: the metrics, with their weights and split.
        query_values: the file of the main metric of each query.
        published: the metrics that a paper reports, which the config holds, as a line. Empty if there are none.
    """

    folder: Path
    config: Values
    evaluated: Evaluated
    query_values: Path
    published: str = ""

    @property
    def evaluation(self) -> Evaluation:
        """The metrics."""
        return self.evaluated.evaluation

    def queries(self) -> QueryValues | None:
        """Return the main metric of each query. Return None if the run does not have it."""
        try:
            found = QueryValues.read(self.query_values)
        except InputError:
            return None
        return found if found is not None and found.metric == self.evaluation.headline else None

    @property
    def seed(self) -> int | None:
        """The seed, if the config has one."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None


def read_runs(paths: Sequence[Path]) -> tuple[list[EvaluatedRun], list[str]]:
    """Read the evaluations of the runs. Also return a line for each run, or file of a run, without a result.

    Raises:
        InputError: a path does not exist, or no run is in any of them.
    """
    folders: dict[Path, Path] = {}
    reasons: dict[Path, str] = {}
    for path in paths:
        if not path.exists():
            raise InputError(str(path), "no such folder", hint="give run folders, or a folder that holds some")
        run_folders = find_runs(path) if path.is_dir() else []
        if not run_folders:
            reasons[path] = "holds no run" if path.is_dir() else "not a folder"
        for folder in run_folders:
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        hint = "give folders that 'contml train' made, or a folder that holds some"
        raise InputError(str(paths[0]), reasons[paths[0]], hint=hint)
    runs, left_out = [], [f"{path}: {reason}" for path, reason in reasons.items()]
    for folder in folders.values():
        for result in _read(open_run(folder)):
            if isinstance(result, str):
                left_out.append(f"{folder}: {result}")
            else:
                runs.append(result)
    return runs, left_out


def _read(run: Run) -> Iterator[EvaluatedRun | str]:
    """Yield the evaluations of a run, the selected weights first.

    For weights without a result, yield the reason instead.
    """
    try:
        document = read(run.config, trusted=False)
        rows = run.rows()
        epochs = [float(row.get("epoch", 0)) for row in rows]
    except (InputError, AttributeError, TypeError, ValueError) as error:
        yield f"cannot be read ({error})"
        return
    section = replace(document, values={"published": document.values.get("published")})
    part = validate(section, {"published": Section(Published, required=False)}).parts.get("published")
    paper = None if part is None else part.build()
    published = "" if paper is None else f"{paper.source}: " + ", ".join(f"{k} {v:g}" for k, v in paper.metrics.items())
    config = {CONFIG: run.name, **flat({key: v for key, v in document.values.items() if key != "published"})}
    files = sorted(run.folder.glob("evaluation*.json"), key=lambda path: len(path.name))
    total, done = config.get("training.epochs"), max(epochs, default=0.0)
    stopped = any(row.get("event") == "stop" for row in rows)
    if not isinstance(total, int):
        yield "its config has no training.epochs; give a folder that 'contml train' made"
        return
    # A folder that holds only the result does not record how many epochs are done.
    if (run.metrics.exists() or not files) and done < total and not stopped:
        yield f"not finished, {round(done, 1):g} of {total} epochs; continue with: contml train --resume {run.folder}"
        return
    if all(path == run.evaluation("labels") for path in files):
        yield f"finished, but not evaluated; run: contml evaluate {run.folder}"
        return
    for path in files:
        checkpoint = path.stem.partition("-")[2]
        try:
            evaluated = Evaluated.read(path)
        except InputError:
            weights = f" --checkpoint {checkpoint}" if checkpoint not in ("", "labels") else ""
            command = f"contml evaluate {run.folder}{weights}"
            reason = "cannot be read, or does not name split and checkpoint; write it again with"
            yield f"its {path.name} {reason}: {command}"
        else:
            run_config = {**config, "checkpoint": evaluated.checkpoint, "split": evaluated.split, "by": evaluated.by}
            query_values = run.query_values(evaluated.split, checkpoint)
            yield EvaluatedRun(run.folder, run_config, evaluated, query_values, published)


def by_test_set(runs: Sequence[EvaluatedRun]) -> list[list[EvaluatedRun]]:
    """Group runs by the data that they were tested on."""
    test_sets: list[list[EvaluatedRun]] = []
    for run in runs:
        matching = next((test_set for test_set in test_sets if _same_test_set(test_set[0], run)), None)
        if matching is None:
            test_sets.append(matching := [])
        matching.append(run)
    return test_sets


def _same_test_set(a: EvaluatedRun, b: EvaluatedRun) -> bool:
    """Return True if two runs have the same test set.

    The scores of the random ranking and the oracle depend only on queries, gallery and labels. So they identify a test
    set.
    """
    x, y = a.evaluation, b.evaluation
    if any(a.config.get(key) != b.config.get(key) for key in ("task.name", "split")):
        return False
    # Changed data have a table of their own.
    if (a.evaluated.split_words, x.unit, x.queries) != (b.evaluated.split_words, y.unit, y.queries):
        return False
    if x.gallery != y.gallery:
        return False
    curves = [(x.curves[name], y.curves[name]) for name in x.curves.keys() & y.curves.keys()]
    baselines = [*((p.random, q.random) for p, q in curves), *((p.oracle, q.oracle) for p, q in curves)]
    pairs = chain.from_iterable(zip(*each, strict=False) for each in baselines)
    return all(math.isclose(p, q, rel_tol=_ROUNDING, abs_tol=1e-9) for p, q in pairs)


def test_set_title(test_set: Sequence[EvaluatedRun], runs: Sequence[EvaluatedRun]) -> str:
    """Return the title of a test set: the task, split, weights, sizes, and unit.

    The task has the options that distinguish it from the task of all other runs.
    """
    evaluation, config = test_set[0].evaluation, test_set[0].config
    task = config.get("task.name")
    keys_within = differing([run.config for run in test_set])
    keys_between = differing([run.config for run in runs if run.config.get("task.name") == task])
    keys = [key for key in keys_between if key.startswith("task.") and key not in keys_within and key in config]
    names = [str(task or "task"), *(f"{title_of_key(key)} {value_text(config[key])}" for key in keys)]
    names.append(test_set[0].evaluated.split_words)
    if len(checkpoints := {run.evaluated.checkpoint for run in test_set}) == 1:
        names.append(f"{checkpoints.pop()} weights")
    return f"{', '.join(names)}: {scope(evaluation)}"


def drop_repeats(runs: Sequence[EvaluatedRun]) -> tuple[list[EvaluatedRun], list[str]]:
    """Return the latest of the runs with one config and seed, in their order, and a line for each of the other runs."""
    latest: dict[tuple[str, ...], EvaluatedRun] = {}
    keys = [(identity(run.config), value_text(run.config.get("seed"))) for run in runs]
    for key, run in sorted(zip(keys, runs, strict=True), key=lambda pair: pair[1].folder.name, reverse=True):
        latest.setdefault(key, run)
    pairs = [(run, latest[key]) for key, run in zip(keys, runs, strict=True)]
    reason = "has the same config and seed"
    lines = [f"{run.folder}: left out, as {newest.folder} {reason}" for run, newest in pairs if run is not newest]
    return [run for run, newest in pairs if run is newest], list(dict.fromkeys(lines))


def identity(config: Values) -> str:
    """Return a text that is equal for runs that differ only in the seed. A key with the value null counts as absent."""
    return json.dumps({k: value for k, value in sorted(config.items()) if k not in _IRRELEVANT and value is not None})


def differing(configs: Sequence[Values]) -> list[str]:
    """Return the keys whose values differ between the configs, in order, without irrelevant ones."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in _IRRELEVANT and _varies(key, configs)]


def _varies(key: str, configs: Sequence[Values]) -> bool:
    return len({json.dumps(config.get(key)) for config in configs}) > 1


def distinct(configs: Sequence[Values]) -> dict[str, list[str]]:
    """Return columns that show the differences between configs: a text for each config under a key, or under a section.

    An option has a column if it differs between configs with the same part (`loss.name`). Other options follow from the
    part. Columns of words come before columns of numbers. The names of the configs are shown if nothing else differs,
    or if there are many columns.
    """
    keys = differing(configs)
    columns: dict[str, list[str]] = {}
    for section in dict.fromkeys(key.partition(".")[0] for key in keys):
        # "yes" for a section that is present and has only one part
        present = [any(key.startswith(f"{section}.") for key in config) for config in configs]
        named = [str(config.get(f"{section}.name", "yes")) for config in configs]
        parts = [name if known else ABSENT for name, known in zip(named, present, strict=True)]
        if len(set(parts)) > 1:
            columns[section] = parts
        for key in keys:
            alike = ([c for c, part in zip(configs, parts, strict=True) if part == each] for each in set(parts))
            if key.partition(".")[0] == section and key != f"{section}.name" and any(_varies(key, c) for c in alike):
                columns[key] = [value_text(config.get(key)) for config in configs]
    names = [value_text(config.get(CONFIG)) for config in configs]
    if not columns or (len(set(names)) > 1 and len(columns) > _FEW_COLUMNS):
        columns = {CONFIG: names, **columns}
    word_columns = {key: texts for key, texts in columns.items() if not all(map(_numeric, texts))}
    return word_columns | columns


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ABSENT
    return True


def title_of_key(key: str) -> str:
    """Return a key as a title: "loss" for loss.name."""
    return key.removesuffix(".name")


def is_name(key: str) -> bool:
    """Return True if the values of a key are names of parts or configs, which need no title."""
    return key.endswith(".name") or ("." not in key and key != "seed")
