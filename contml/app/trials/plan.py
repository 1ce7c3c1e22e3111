"""The trainings of a suite: all of them, the options that their results chose, and the next ones. It imports no torch.

    for each set, each method:   train each option of the grid with seed 0, measure on the validation split
                                 the second round: as many options again for each, around its best one
                                 train the best option with seeds 1 to 5, measure on the test split

The test split is measured for chosen options only. Two trainings are the same if their keys are equal. A key has data
set, method, options, seed, split, and a hash of all changes to the config. The places of data and weights are not part
of the key.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from contml.app.experiment.names import config_path
from contml.app.trials.record import Result
from contml.app.trials.suite import LABEL_DISTANCE, DataSet, Method, Suite, filled
from contml.config import Document, read

#: The seed of trials.
TRIAL_SEED = 0
#: The result of a test training has `queries`, the first score of each query in units of 1 / `UNIT`, and `others`, the
#: other scores by name. The result of the first seed also has `groups`, the group of each query.
UNIT = 10_000


@dataclass(frozen=True)
class TrainingItem:
    """A training, and the split on which it is measured.

    Attributes:
        suite: the suite.
        places: the paths of its places on this machine, by name. `folder` has the inputs.
        set_name: the data set.
        method_name: the method.
        options: the options that it tries: `"KEY=VALUE KEY=VALUE"`.
        seed: the seed of the training.
        split: "val" for a trial, "test" for a chosen option.
    """

    suite: Suite = field(repr=False)
    places: Mapping[str, str] = field(repr=False)
    set_name: str
    method_name: str
    options: str
    seed: int
    split: Literal["val", "test"]

    @property
    def data(self) -> DataSet:
        """The data set."""
        return self.suite.sets[self.set_name]

    @property
    def method(self) -> Method:
        """The method."""
        return self.suite.methods[self.method_name]

    @cached_property
    def key(self) -> str:
        """The key of the training."""
        suite, method = self.suite, self.method
        if method.baseline is None:
            texts = _unfilled(suite)
            document = _document(self.data, tuple(filled([*suite.train, *method.changes], texts)))
            values = document.with_overrides(filled(self.options.split(), texts)).values
            untrained = ("task",) if suite.inputs is None else ("task", "images")
            trained = {name: part for name, part in values.items() if name not in untrained}
        else:
            trained = {"baseline": method.baseline}
        content = [data_key(suite, self.set_name), trained, method.version]
        if self.split == "test" and suite.scores[0] == LABEL_DISTANCE:
            content += suite.scores[1:]  # trials measure the first score alone
        return json.dumps([self.set_name, self.method_name, self.options, self.seed, self.split, _hash(content)])

    def __str__(self) -> str:
        return f"{self.set_name}: {self.method_name}, {self.options or '-'}, seed {self.seed}, {self.split}"


def data_key(suite: Suite, set_name: str, drawn: bool = True) -> str:
    """Return a hash that identifies the inputs and the splits of a set.

    With `drawn`, it covers the validation split too.
    """
    data, inputs = suite.sets[set_name], suite.inputs
    changes = () if inputs is None else tuple(filled(inputs.changes, _unfilled(suite)))
    values = _document(data, changes).values
    content = [values["task"], suite.val_share]
    if inputs is not None:
        content[1:1] = [values["images"], values["model"], inputs.maps, inputs.components]
    if suite.scores[0] != LABEL_DISTANCE:
        content.append(suite.scores)
    if data.copies:
        content.append({"copies": data.copies})
    if data.draw and drawn:
        content.append({"draw": data.draw})
    return _hash(content)


def _unfilled(suite: Suite) -> dict[str, str]:
    """Return the places as they are written, so that a training has the same key wherever its data are."""
    return {name: f"${name}" for name in suite.places}


@cache
def _document(data: DataSet, changes: tuple[str, ...]) -> Document:
    """Return the config of a set, with changes."""
    path = Path(data.config) if data.config.endswith((".yaml", ".yml")) else config_path(data.config)
    return read(path, [*data.changes, *changes])


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Cell:
    """A method on a data set.

    Attributes:
        suite: the suite.
        places: as in `TrainingItem`.
        set_name: the data set.
        method_name: the method.
    """

    suite: Suite
    places: Mapping[str, str]
    set_name: str
    method_name: str
    _items: dict[tuple[str, int, str], TrainingItem] = field(default_factory=dict, init=False, repr=False)

    @property
    def method(self) -> Method:
        """The method."""
        return self.suite.methods[self.method_name]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its test trainings. A method without random draws has one."""
        return self.suite.seeds if self.method.baseline is None else self.suite.seeds[:1]

    @property
    def total(self) -> int:
        """The number of all its trainings."""
        return len(self.seeds) + (len(self.method.options) + self._further_count if self.chooses else 0)

    @property
    def chooses(self) -> bool:
        """True if it has its own trials. Otherwise the trials of another set choose its option."""
        return self._chooser is self

    @cached_property
    def _chooser(self) -> Cell:
        """The cell whose trials choose the option."""
        other = self.suite.sets[self.set_name].options_of
        return self if other is None else Cell(self.suite, self.places, other, self.method_name)

    @property
    def _further_count(self) -> int:
        return self.suite.further if any(axis.key for axis in self.method.axes) else 0

    def trials(self, results: Mapping[str, Result]) -> list[TrainingItem]:
        """Return the trials that are known: the first round, and also the second one when the first is finished."""
        if not self.chooses:
            return self._chooser.trials(results)
        first = [self._item(options, TRIAL_SEED, "val") for options in self.method.options]
        if not self._further_count or any(item.key not in results for item in first):
            return first
        chosen = _best(first, results)
        second = self.method.further(chosen.options, self._further_count)
        return [*first, *(self._item(options, TRIAL_SEED, "val") for options in second)]

    def tests(self, results: Mapping[str, Result]) -> list[TrainingItem]:
        """Return the trainings of the best option. Return none before all trials are finished."""
        trials = self.trials(results)
        if any(item.key not in results for item in trials):
            return []
        return [self._item(_best(trials, results).options, seed, "test") for seed in self.seeds]

    def done(self, results: Mapping[str, Result]) -> int:
        """Count the finished trainings."""
        return sum(item.key in results for item in self.known(results))

    def known(self, results: Mapping[str, Result]) -> list[TrainingItem]:
        """Return its trainings that are known so far: its own trials, and the trainings of the chosen option."""
        return [*(self.trials(results) if self.chooses else ()), *self.tests(results)]

    def finished(self, results: Mapping[str, Result]) -> bool:
        """Return True if all trainings are finished."""
        return self.done(results) == self.total

    def _item(self, options: str, seed: int, split: Literal["val", "test"]) -> TrainingItem:
        made = TrainingItem(self.suite, self.places, self.set_name, self.method_name, options, seed, split)
        return self._items.setdefault((options, seed, split), made)  # its key is computed once


def value(result: Result) -> float:
    """Return the score of a result. If the training failed, return the worst possible score."""
    return float(result.get("value", -math.inf))


def _best(items: Iterable[TrainingItem], results: Mapping[str, Result]) -> TrainingItem:
    """Return the item with the highest score. Of equal scores, return the first."""
    return max(items, key=lambda item: value(results[item.key]))


def cells(suite: Suite, places: Mapping[str, str], only: Iterable[str] = ()) -> list[Cell]:
    """Return the cells of a benchmark: all methods of a set before the next set.

    Args:
        suite: the suite.
        places: as in `TrainingItem`.
        only: names of sets and methods. If it names no set, all sets are used. If it names no method, all methods are
            used.
    """
    names = set(only)
    sets = [name for name in suite.sets if name in names] or list(suite.sets)
    methods = [name for name in suite.methods if name in names] or list(suite.methods)
    pairs = ((set_name, method) for set_name in sets for method in methods)
    return [Cell(suite, places, *pair) for pair in pairs if pair[0] in suite.sets_of(pair[1])]


def seconds_left(found: Iterable[Cell], results: Mapping[str, Result], otherwise: float) -> float:
    """Estimate the seconds of the trainings that are not finished.

    A training is expected to take the median time of its cell. If no training of the cell is finished, it is the median
    time of all cells.
    """
    done = []
    for cell in found:
        known = (results[item.key] for item in cell.known(results) if item.key in results)
        done.append((cell.total, [float(result["seconds"]) for result in known]))
    of_all = [seconds for _, times in done for seconds in times] or [otherwise]
    return sum((total - len(times)) * statistics.median(times or of_all) for total, times in done)
