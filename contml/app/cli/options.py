"""The arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer

from contml._support.errors import InputError
from contml.app import experiment
from contml.app.experiment.loading import OwnData

if TYPE_CHECKING:
    from contml.data.tables import TableOptions


def option(metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """Return an option of a command, given the name of its value and the text of its help."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument of a command, given its name and the text of its help."""
    return typer.Argument(metavar=metavar, help=text, **more)


def complete_config(incomplete: str) -> list[str]:
    """Return the bundled configs whose names start with `incomplete`, for shell completion."""
    return [name for name in experiment.config_names() if name.startswith(incomplete)]


_CONFIG = "A config that comes with contml ('pose/synthetic'), or a YAML file."
Config = Annotated[str | None, argument("CONFIG", _CONFIG, autocompletion=complete_config)]
BundledConfig = Annotated[str, argument("CONFIG", "A config that comes with contml.", autocompletion=complete_config)]
Overrides = Annotated[list[str] | None, argument("[KEY=VALUE]...", "Changes to the config, such as 'loss.margin=0.1'.")]
_PART = "is a part of its image: the columns 'x,y,w,h', or one of lists, in pixels."
_LABEL = (
    "A label of --data: 'age=number', 'lat,lon=geo:0.5', or 'age' to guess its kind ('contml list labels'); repeatable."
)
_PATTERN = "What the names of the images in the folder --data mean: '{age}_{sex}_*.jpg' has the columns age and sex."
_PRESET = (
    "For --data: a head on a frozen pretrained network ('features'), all of it trained ('finetune'), or a small "
    "network from scratch ('quick'). Default: 'features' with --weights, or if torch's cache has its file."
)
#: The options that name your own data: type, name of the value, and help.
_OWN_DATA: dict[str, tuple[Any, str | None, str]] = {
    "data": (Path, "PATH", "Your own table (.csv, .tsv, .jsonl, .parquet), or a folder of images, instead of CONFIG."),
    "label": (list[str], "NAME[=KIND[:WEIGHT]]", _LABEL),
    "image": (str, "COLUMN", "The column of images in --data."),
    "box": (str, "COLUMNS", f"Each row of --data {_PART}"),
    "pattern": (str, "TEXT", _PATTERN),
    "preset": (Literal["features", "finetune", "quick"], None, _PRESET),
    "weights": (Path, "FILE", "The weights of a pretrained network of torchvision, for --data."),
}
#: Your own data: `takes_own_data` puts their options in its place.
Own: TypeAlias = OwnData | None
RunFolder = Annotated[Path, argument("RUN", "A run folder, as printed by 'contml train'.")]
Trust = Annotated[bool, typer.Option("--trust", help="Let the config of the run import code.")]
_IMAGES = "'batch' decodes the images of one batch, 'all' every image of every split."
DecodedImages = Annotated[Literal["batch", "all"], option(None, _IMAGES, "--images")]
_CHANGES = "Evaluate data that changed since the run began: its items that are left, with their current labels."
AcceptChanges = Annotated[bool, typer.Option(help=_CHANGES)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DIM = "Length of the embeddings: one of the run's model.nested_dims. Default: the full length."
Dim = Annotated[int | None, option("N", _DIM, min=1)]
_TRAININGS = "Trainings at a time. Default: 1; with --cluster, all that fit."
Trainings = Annotated[int | None, option("P", _TRAININGS, "--processes", min=1)]
_CLUSTER = "Do the work on a Ray cluster: 'auto', HOST:PORT, or 'local' for the processors of this machine."
Cluster = Annotated[str, option("ADDRESS", _CLUSTER)]
Box = Annotated[str | None, option("COLUMNS", f"Each row of '@items.csv:COLUMN' {_PART}")]
_TABLE = (
    "How a table is read, such as that of '@items.csv:COLUMN': delimiter, encoding, sheet, missing_words, max_bytes or "
    "max_rows; repeatable."
)
Tables = Annotated[list[str] | None, option("KEY=VALUE", _TABLE, "--table")]


def table_options(changes: list[str] | None) -> TableOptions:
    """Return the options that `--table` sets. By default, all cells that are not empty have values."""
    from contml.config import Section, from_overrides, validate
    from contml.data.tables import TableOptions

    class GivenOptions(TableOptions):
        set_by = "--table "

    document = from_overrides([f"table.{change}" for change in ("missing_words=[]", *(changes or []))])
    return validate(document, {"table": Section(GivenOptions)}).parts["table"].build()


def check_run_name(name: str) -> None:
    """Refuse a name of a run that would be in another folder."""
    if "/" in name or name.startswith("."):
        raise InputError("--name", repr(name), "must be a word", "the folder above it is --runs FOLDER")


def takes_own_data(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of your own data in place of its argument `own`."""
    hints, parameters = get_type_hints(command, include_extras=True), list[Parameter]()
    for parameter in signature(command).parameters.values():
        if parameter.name == "own":
            for name, (kind, metavar, text) in _OWN_DATA.items():
                annotation = Annotated[kind | None, option(metavar, text, f"--{name}")]  # type: ignore[valid-type]
                parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))

    @wraps(command)
    def with_options(**given: Any) -> None:
        command(own=_own_data(**{name: given.pop(name) for name in _OWN_DATA}), **given)

    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _own_data(data: Path | None, label: list[str] | None, **options: Any) -> OwnData | None:
    """Return the data that the options of a command name. Return None if there are none."""
    if data is not None:
        return OwnData(data, tuple(label or []), **options)
    for name, value in {"label": label, **options}.items():
        if value:
            hint = "name your table or folder: --data PATH"
            if name == "weights":
                hint = "with a config: model.backbone=NAME model.weights=FILE"
            raise InputError(f"--{name}", "used without --data", hint=hint)
    return None


def split_config(config: str | None, overrides: list[str] | None, own: OwnData | None) -> tuple[str | None, list[str]]:
    """Return the config and its overrides. The config is None if a command has your own data and names no config.

    Raises:
        InputError: there is no config, and there are no data.
    """
    changes = overrides or []
    # Without a config, the first argument is an override, perhaps without its value: training.epochs
    if own is not None and config is not None and ("=" in config or not ("/" in config or Path(config).exists())):
        return None, [config, *changes]
    if own is None and config is None:
        raise InputError("CONFIG", "missing", hint="choose one of 'contml list configs', such as pose/synthetic")
    return config, changes


def load_experiment(config: str | None, overrides: list[str] | None, own: OwnData | None) -> experiment.Experiment:
    """Load the experiment that the arguments of a command name."""
    config, changes = split_config(config, overrides, own)
    return experiment.load(str(config), changes) if own is None else experiment.load_table(own, config, changes)
