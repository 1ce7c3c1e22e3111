"""A config made real: task, labels, model, sampler, loss, trainer put together."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contml.config import Config, Document, data_arguments, read, resolved, validate
from contml.contracts import InputError, LabelSpace, Loss, Task
from contml.experiment.parts import config_text, schema
from contml.images import Images
from contml.losses import LOSSES
from contml.losses.levels import LevelLosses
from contml.models import EmbeddingModel
from contml.runs import Run, open_run
from contml.training import Trainer, check_labels

#: The config of a table of one's own where nothing else is named.
_TABLE = "table/default"


@dataclass(frozen=True)
class Experiment:
    """A validated config, its name, and its document for the origin of errors. `task` is its data if read already."""

    name: str
    config: Config
    document: Document
    task: Task | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> dict[str, Any]:
        """The resolved config as plain values."""
        return resolved(self.config)

    def build_task(self) -> Task:
        """The data."""
        task: Task = self.config.parts["task"].build() if self.task is None else self.task
        return task

    def build_model(self, weights: bool = True) -> EmbeddingModel:
        """The model; weights=False leaves out those that the config names, since others will be loaded."""
        part = self.config.parts["model"]
        backbone = str(part.options["backbone"])
        if not self.document.trusted and ":" in backbone and not backbone.startswith("timm:"):
            raise InputError(
                f"{self.document.where(('model', 'backbone'))}: 'model.backbone' names code to import ({backbone}); "
                "pass --trust to allow it"
            )
        torch.manual_seed(self.config.values["seed"])
        options = part.options if weights else {**part.options, "weights": "none"}
        model: EmbeddingModel = replace(part, options=options).build()
        return model

    def build_images(self) -> Images:
        """How images become batches."""
        images: Images = self.config.parts["images"].build()
        return images

    def build_trainer(
        self, task: Task, run: Run | None = None, *, weights: bool = True, quiet: bool = False
    ) -> Trainer:
        """Everything that trains, put together; weights=False where a checkpoint will bring them."""
        parts, seed = self.config.parts, self.config.values["seed"]
        model, images = self.build_model(weights), self.build_images()
        model.check_size(images.crop)
        train = task.train
        device = "cuda" if torch.cuda.is_available() else "cpu"
        own = train.labels.to(device)
        silent = quiet or not first_process()  # each searches for neighbours, one shows how far it is
        labels: LabelSpace = parts["labels"].build(space=own, quiet=silent) if "labels" in parts else own
        data = {"embedding_dim": model.embedding_dim, "labels": labels, "seed": seed, "quiet": silent}
        classes = getattr(labels, "classes", None)
        if isinstance(classes, Tensor):
            data["num_classes"] = int(classes.max()) + 1
        else:
            for part in ("loss", "step"):  # before they ask for a number of classes
                if part in parts:
                    check_labels(parts[part].constructor, labels.kind)
        loss = self._build_loss(data, model.parts if model.levels else [])
        # Neighbours are found among the labels themselves, not among their view as 0 / 1.
        sampler = parts["sampler"].build(**{**data, "labels": labels if isinstance(classes, Tensor) else own})
        data |= {"loss": loss, "feature_dim": model.feature_dim, "steps_per_epoch": len(sampler)}
        step = parts["step"].build(**data) if "step" in parts else None
        training = parts["training"].build()
        steps, start = training.epochs * len(sampler), parts["memory"].options["start"] if "memory" in parts else 0
        if start >= steps > 0:
            raise InputError(
                f"{self.document.where(('memory', 'start'))}: 'memory.start' is {start}, but the training has {steps} "
                "steps: the memory would never be used; set a smaller start"
            )
        return Trainer(
            model,
            loss,
            train,
            sampler,
            images,
            training,
            optimizer=lambda groups: parts["optimizer"].build(groups=groups),
            schedule=lambda optimizer, steps, total: parts["schedule"].build(
                optimizer=optimizer, steps_per_epoch=steps, total_steps=total
            ),
            test=task.test,
            run=run,
            step=step,
            labels=labels,
            config=self.values,
            quiet=quiet,
        )

    def _build_loss(self, data: dict[str, Any], levels: list[int]) -> Loss:
        parts = self.config.parts
        if levels:  # how long the part of each in an embedding is
            if "step" in parts:
                raise InputError(
                    f"{self.document.where(('model', 'levels'))}: 'model.levels' has a loss for each level, and step "
                    f"'{parts['step'].name}' takes one for the whole embedding; leave one of them away"
                )
            losses: list[Any] = [self._build_loss({**data, "embedding_dim": part}, []) for part in levels]
            return LevelLosses(losses, levels)
        if "miner" in parts:
            data = {**data, "miner": parts["miner"].build(**data)}
        loss: Loss = parts["loss"].build(**data)
        return parts["memory"].build(**data, loss=loss) if "memory" in parts else loss


def first_process() -> bool:
    """Whether this is the one of several training processes that speaks; told before these know of each other."""
    return os.environ.get("RANK", "0") == "0"


def load(config: str, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a config that comes with contml, by name, or of a YAML file, by path.

    Raises:
        InputError: there is no such config, or something in it is wrong: one line that points at it.
    """
    path = Path(config)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return _experiment(read(path, overrides), path.stem)
    config_text(config)
    document = read(Path(str(files("contml.configs") / f"{config}.yaml")), overrides, name=f"{config}.yaml")
    return _experiment(document, config)


def load_table(
    data: Path,
    labels: Sequence[str] = (),
    image: str | None = None,
    config: str | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """The experiment of a table of one's own: where no config is named, that which suits its labels and its size.

    Args:
        data: a CSV or Parquet file.
        labels: its labels, as `NAME=KIND`, `NAME=KIND:WEIGHT`, or `NAME` whose kind is guessed.
        image: the column of images.
        config: a config of the task table/file.
        overrides: changes to the config, which come after all these.

    Raises:
        InputError: something is wrong in the table or in what is said of it: one line that points at it.
    """
    given = [f"task.data={_quoted(str(data))}"]
    if labels:
        named = [label.rpartition("=") if "=" in label else (label, "", "auto") for label in labels]
        kinds = {name.strip(): kind for name, _, kind in named}
        if len(kinds) < len(named):
            twice = [name.strip() for name, *_ in named]
            raise InputError(f"--label names '{next(n for n in twice if twice.count(n) > 1)}' twice; give each once")
        given.append(f"task.labels={_quoted(kinds)}")
    if image is not None:
        given.append(f"task.image={_quoted(image)}")
    experiment = load(config or _TABLE, [*given, *overrides])
    task = experiment.build_task()
    if config is None:
        suited, changes = task.suited()  # type: ignore[attr-defined]
        if any(override.startswith(("sampler=", "sampler.name=")) for override in overrides):
            changes = [change for change in changes if not change.startswith("sampler")]
        experiment = load(suited, [*given, *changes, *overrides])
    return replace(experiment, task=task)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_run(folder: Path, *, trust: bool = False) -> tuple[Experiment, Run]:
    """The experiment of a run folder; names of code to import are honoured only with trust."""
    run = open_run(folder)
    return _experiment(read(run.config, trusted=trust), run.name), run


def _experiment(document: Document, name: str) -> Experiment:
    config = validate(document, schema())
    seed = config.values["seed"]
    if not 0 <= seed < 2**32:
        raise InputError(f"{document.where(('seed',))}: seed is {seed}; it must be 0 to {2**32 - 1}")
    if "published" in config.parts:
        config.parts["published"].build()
    loss = config.parts["loss"]
    if "miner" in config.parts and "miner" not in data_arguments(loss.constructor):
        those = ", ".join(name for name, other in LOSSES.items() if "miner" in data_arguments(other))
        raise InputError(
            f"{document.where(('miner',))}: the loss '{loss.name}' takes no miner; leave 'miner' away, or choose one "
            f"of {those}"
        )
    return Experiment(name, config, document)
