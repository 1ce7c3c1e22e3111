"""What a config holds, and the configs that come with contml."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from contml.config import Scalar, Section
from contml.contracts import InputError, Task
from contml.evaluation.published import Published
from contml.images import Images
from contml.labels import VIEWS
from contml.losses import LOSSES
from contml.losses.memory import CrossBatchMemory
from contml.losses.outside import outside
from contml.mining import MINERS
from contml.models import EmbeddingModel
from contml.sampling import SAMPLERS
from contml.training import OPTIMIZERS, SCHEDULES, STEPS, Training


def task_table() -> dict[str, Callable[..., Task]]:
    """Every task that is installed, `folder/name`, from the entry-point group `contml.tasks`."""
    table: dict[str, Callable[..., Task]] = {}
    for entry in sorted(entry_points(group="contml.tasks"), key=lambda entry: entry.name):
        table |= {f"{entry.name}/{name}": task for name, task in entry.load().items()}
    return table


def schema() -> dict[str, Section | Scalar]:
    """What a config holds, in reading order."""
    return {
        "task": Section(task_table()),
        "labels": Section(VIEWS, required=False),
        "model": Section(EmbeddingModel),
        "images": Section(Images),
        "sampler": Section(SAMPLERS),
        "loss": Section(LOSSES, others=outside),
        "miner": Section(MINERS, required=False),
        "memory": Section(CrossBatchMemory, required=False),
        "step": Section(STEPS, required=False),
        "optimizer": Section(OPTIMIZERS, default="sgd"),
        "schedule": Section(SCHEDULES, default="inverse"),
        "training": Section(Training),
        "seed": Scalar(int, 0, "of the weights, the batches and the augmentation"),
        "published": Section(Published, required=False),
    }


def config_names() -> list[str]:
    """The configs that come with contml, as `folder/name`."""
    root = files("contml.configs")
    folders = sorted((f for f in root.iterdir() if f.is_dir()), key=lambda f: f.name)
    return [
        f"{folder.name}/{Path(file.name).stem}"
        for folder in folders
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    ]


def config_text(name: str) -> str:
    """The text of a config that comes with contml.

    Raises:
        InputError: there is none of that name.
    """
    if name not in config_names():
        raise InputError(
            f"no config '{name}'; 'contml list configs' shows them, and a path to a YAML file works as well"
        )
    return (files("contml.configs") / f"{name}.yaml").read_text(encoding="utf-8")
