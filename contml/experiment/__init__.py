"""A config made real: task, labels, model, sampler, loss, trainer put together; its runs."""

from contml.experiment.building import Experiment, load, load_run, load_table
from contml.experiment.checking import check
from contml.experiment.parts import config_names, config_text, schema, task_table
from contml.experiment.running import evaluate_run, report_run, resume, train

__all__ = [
    "Experiment",
    "check",
    "config_names",
    "config_text",
    "evaluate_run",
    "load",
    "load_run",
    "load_table",
    "report_run",
    "resume",
    "schema",
    "task_table",
    "train",
]
