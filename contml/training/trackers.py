"""The log of a training: metrics.jsonl, and a tracker (TensorBoard, Weights & Biases) through Accelerate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from contml._support.errors import InputError, one_line
from contml._support.text import flat
from contml.evaluation.results import Evaluation
from contml.runs import Run

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

#: The trackers by name, which is also the name of their Python package.
TrackerName: TypeAlias = Literal["tensorboard", "wandb"]
#: The project of all runs in Weights & Biases; WANDB_PROJECT is not read by Accelerate.
_PROJECT = "contml"


class RunLog:
    """The log of a training: writes rows to the metrics of the run folder, and to a tracker.

    It writes nothing before `open`.

    Args:
        tracker: the name of the tracker; None for no tracker.

    Raises:
        InputError: the package of the tracker is not installed.
    """

    def __init__(self, tracker: TrackerName | None) -> None:
        check_installed(tracker)
        self._name = tracker
        self._run: Run | None = None
        self._tracker: GeneralTracker | None = None

    def open(self, run: Run | None, config: Mapping[str, Any], *, step: int | None) -> None:
        """Begin the log, or continue the log in the run folder.

        Args:
            run: the run folder; None: nothing is written.
            config: the config of the run: its hyperparameters.
            step: the number of finished steps of a run that continues; None for a new run.

        Raises:
            InputError: the tracker cannot start, for example without a login.
        """
        self._run = run
        if self._name is not None and run is not None and self._tracker is None:
            self._tracker = _started(self._name, run, config, step)

    def add(self, event: str, epoch: float, step: int, **values: Any) -> None:
        """Add a row: "train", "evaluation" of a split, or "stop".

        The tracker gets only numbers, such as `train/loss`.
        """
        if self._run is not None:
            self._run.log({"event": event, "epoch": epoch, "step": step, **values})
            self._track(values.get("split", event), step, {"epoch": epoch, **values})

    def add_result(self, split: str, evaluation: Evaluation, step: int) -> None:
        """Send the metrics of the selected weights to the tracker, such as `result_test/recall@1`."""
        self._track(f"result_{split}", step, evaluation.numbers())

    def close(self) -> None:
        """End the log of the tracker."""
        if self._tracker is not None:
            self._tracker.finish()
            self._tracker = None

    def _track(self, group: str, step: int, values: Mapping[str, Any]) -> None:
        if self._tracker is not None:
            numbers = {f"{group}/{name}": x for name, x in values.items() if isinstance(x, int | float)}
            self._tracker.log({name: x for name, x in numbers.items() if math.isfinite(x)}, step=step)


def check_installed(name: TrackerName | None) -> None:
    """Refuse a tracker whose package is missing.

    Raises:
        InputError: the package is not installed.
    """
    if name is not None and find_spec(name) is None:
        raise InputError("tracker", f"{name} is not installed", hint=f"pip install {name}")


def _started(name: TrackerName, run: Run, config: Mapping[str, Any], step: int | None) -> GeneralTracker:
    """Return the tracker of a run, whose log is in the run folder."""
    from accelerate.tracking import TensorBoardTracker, WandBTracker

    tracker: GeneralTracker
    if name == "tensorboard":
        # Values after the last checkpoint are hidden: a run that continues writes them again.
        tracker = TensorBoardTracker(name, run.folder, purge_step=None if step is None else step + 1)
    else:
        log_folders = sorted((run.folder / "wandb").glob("*run-*-*"))  # named `run-date_time-id`
        log = log_folders[0].name.rpartition("-")[2] if log_folders else None
        tracker = WandBTracker(_PROJECT, dir=str(run.folder), name=run.name, id=log, resume="allow")
    try:
        tracker.start()
        if step is None:
            values = flat(config).items()
            plain = {key: x if isinstance(x, bool | int | float | str) else json.dumps(x) for key, x in values}
            tracker.store_init_configuration(plain)
    except Exception as error:  # of the package: no login, no network, a full disk
        hint = "run 'wandb login', or set WANDB_MODE=offline" if name == "wandb" else "omit it"
        raise InputError("tracker", f"{name} does not start ({one_line(error)})", hint=hint) from None
    return tracker
