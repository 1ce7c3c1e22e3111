"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from contml import experiment
from contml._support.errors import InputError


def complete_config(incomplete: str) -> list[str]:
    """The bundled configs whose names start with `incomplete`, for shell completion."""
    return [name for name in experiment.config_names() if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    """The tasks whose names start with `incomplete`, for shell completion."""
    return [name for name in experiment.task_table() if name.startswith(incomplete)]


Config = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="A config that comes with contml ('pose/synthetic'), or a YAML file.",
        autocompletion=complete_config,
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config, such as 'loss.margin=0.1'.")
]
Data = Annotated[Path | None, typer.Option(metavar="FILE", help="Your own table, .csv or .parquet, instead of CONFIG.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME[=KIND[:WEIGHT]]",
        help="A label of --data: 'age=number', 'lat,lon=geo:0.5', or 'age' to guess its kind; repeatable.",
    ),
]
ImageColumn = Annotated[str | None, typer.Option("--image", metavar="COLUMN", help="The column of images in --data.")]
BundledConfig = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A config that comes with contml.", autocompletion=complete_config)
]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="A task that reads files, such as 'classes/cub'.", autocompletion=complete_task
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as printed by 'contml train'.")]
Trust = Annotated[bool, typer.Option("--trust", help="Let the config of the run import code.")]
DecodedImages = Annotated[
    Literal["batch", "all"],
    typer.Option("--images", help="'batch' decodes the images of one batch, 'all' every image of every split."),
]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        help="Evaluate data that changed since the run began: its items that are left, with their current labels."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_experiment(
    config: str | None, overrides: list[str] | None, data: Path | None, label: list[str] | None, image: str | None
) -> experiment.Experiment:
    """Load the experiment that the arguments of a command name."""
    changes = overrides or []
    if data is not None:
        if config is not None and "=" in config:  # without a config the first argument is an override
            return experiment.load_table(data, label or [], image, None, [config, *changes])
        return experiment.load_table(data, label or [], image, config, changes)
    if label or image is not None:
        raise InputError("--label" if label else "--image", "used without --data", hint="name your table: --data FILE")
    if config is None:
        raise InputError("CONFIG", "missing", hint="choose one of 'contml list configs', such as pose/synthetic")
    return experiment.load(config, changes)
