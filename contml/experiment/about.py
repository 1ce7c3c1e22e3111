"""What a report says of a run beside its result: data, network, loss, time, device, and how to use it."""

from __future__ import annotations

import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from contml._support.errors import InputError
from contml._support.files import read_bytes, write_json
from contml._support.text import duration
from contml._support.versions import versions
from contml.data.identity import DataRecord
from contml.evaluation.table import value_text
from contml.runs import Run

if TYPE_CHECKING:
    from contml.experiment.building import Experiment

#: Largest about.json in bytes.
_LIMIT = 1 << 16


class Training(BaseModel):
    """How the weights of a run were made, as `about.json` holds it.

    Attributes:
        parameters: number of parameters of the model.
        device: the device that trained it, in words.
        seconds: the time of the training, over all its sessions; None where one of them did not record it.
        versions: the packages that embeddings depend on.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    parameters: int = Field(ge=0)
    device: str
    seconds: float | None = Field(ge=0)
    versions: dict[str, str]

    def save(self, run: Run) -> None:
        """Write it into the folder of the run."""
        write_json(run.about, self.model_dump())


def training_of(model: nn.Module, device: torch.device, processes: int, seconds: float | None) -> Training:
    """What is known of a training at its end."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"
    return Training(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        device=name if processes == 1 else f"{processes} x {name}",
        seconds=seconds,
        versions=versions(),
    )


def read_training(run: Run) -> Training | None:
    """How the run was trained; None for a run that did not record it.

    Raises:
        InputError: the file is damaged.
    """
    try:
        return Training.model_validate_json(read_bytes(run.about, _LIMIT))
    except FileNotFoundError:
        return None
    except ValidationError:
        raise InputError(str(run.about), "cannot be read", hint="remove it") from None


def brief_of(experiment: Experiment, run: Run, dim: int | None) -> list[str]:
    """The essentials for the header of a report: data, backbone, parameters, loss, time, device, version.

    `dim` is the length of the embeddings; None: the run has none, such as that of a captioner.
    """
    values, training = experiment.values, read_training(run)
    facts = [_data(experiment, run), f"{values['model']['backbone']}{_dimensions(dim)}"]
    if training:
        facts.append(f"{training.parameters:,} parameters")
    if "loss" in values:
        facts.append(f"loss {values['loss']['name']}")
    if training:
        time = f"{duration(training.seconds)} " if training.seconds is not None else ""
        facts += [f"trained {time}on {training.device}", f"contml {training.versions['contml']}"]
    return facts


def facts_of(experiment: Experiment, run: Run, dim: int | None) -> list[tuple[str, str]]:
    """All that a report says of its run; `dim` as in `brief_of`."""
    values, training = experiment.values, read_training(run)
    model = values["model"]
    task = {key: value for key, value in values["task"].items() if key != "name"}
    facts = [
        ("Data", _data(experiment, run)),
        ("Options of the data", _options(task)),
        ("Backbone", f"{model['backbone']} (weights: {value_text(model['weights'])}){_dimensions(dim)}"),
        ("Parameters", f"{training.parameters:,}" if training else ""),
        ("Loss", _with_options(values.get("loss", {}))),
        ("Training time", duration(training.seconds) if training and training.seconds is not None else ""),
        ("Device", training.device if training else ""),
        ("Versions", ", ".join(f"{name} {version}" for name, version in training.versions.items()) if training else ""),
        ("Same training", f"contml train {shlex.quote(str(run.config))}"),
    ]
    return [(name, text) for name, text in facts if text]


def usage_of(experiment: Experiment, folder: Path) -> str:
    """The lines of code that use the model of a run."""
    start = f"import contml\nmodel = contml.load({str(folder)!r})\n"
    if experiment.is_captioning:
        return start + "captions = model.caption(['a.jpg', 'b.jpg'])\n"
    return start + "embeddings = model.embed(['a.jpg', 'b.jpg'])  # [2, d]\n"


def squared_of(experiment: Experiment) -> bool | None:
    """Whether the loss wants label distances in proportion to squared embedding distances; None: in no proportion."""
    loss: dict[str, Any] = experiment.values.get("loss", {})
    return bool(loss["squared"]) if loss.get("name") == "log_ratio" else None


def _data(experiment: Experiment, run: Run) -> str:
    counts = {name: len(items) for name, items in DataRecord.load(run.data).names.items()}
    return f"{experiment.values['task']['name']}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _with_options(part: dict[str, Any]) -> str:
    options = _options({key: value for key, value in part.items() if key != "name"})
    return f"{part['name']} ({options})" if part and options else str(part.get("name", ""))


def _dimensions(dim: int | None) -> str:
    return "" if dim is None else f", {dim:,} dimensions"


def _options(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value_text(value)}" for key, value in values.items() if value is not None)
