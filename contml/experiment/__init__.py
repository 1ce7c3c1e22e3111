"""Experiments: build the parts of a config, train, evaluate, check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contml._support.imports import lazy_names

if TYPE_CHECKING:
    from contml.experiment.building import Experiment as Experiment
    from contml.experiment.checking import check as check
    from contml.experiment.features import extract_features as extract_features
    from contml.experiment.loading import load as load, load_run as load_run, load_table as load_table
    from contml.experiment.names import (
        config_names as config_names,
        config_text as config_text,
        task_table as task_table,
    )
    from contml.experiment.parts import schema as schema
    from contml.experiment.running import (
        evaluate_run as evaluate_run,
        report_run as report_run,
        resume as resume,
        train as train,
    )

#: The module of each name. The imports above are for type checkers.
_MODULES = {
    "contml.experiment.building": ("Experiment",),
    "contml.experiment.checking": ("check",),
    "contml.experiment.features": ("extract_features",),
    "contml.experiment.loading": ("load", "load_run", "load_table"),
    "contml.experiment.names": ("config_names", "config_text", "task_table"),
    "contml.experiment.parts": ("schema",),
    "contml.experiment.running": ("evaluate_run", "report_run", "resume", "train"),
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
