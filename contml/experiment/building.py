"""A config made real: task, labels, model, sampler, loss, trainer put together."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from contml._support.errors import InputError
from contml.config import Config, Document, Part, data_arguments, resolved, validate
from contml.contracts import LabelKind, Loss, Requirement
from contml.data import Images
from contml.data.features import with_features
from contml.data.split import Task
from contml.experiment.parts import schema
from contml.labels.base import LabelSpace
from contml.losses import LOSSES
from contml.losses.inputs import check_loss, check_requirement
from contml.losses.levels import LevelLosses
from contml.models import EmbeddingModel
from contml.runs import Run
from contml.training import Trainer


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
        features = self.config.parts["images"].options["features"]
        return task if features is None else with_features(task, features)

    def build_model(self, task: Task, weights: bool = True) -> EmbeddingModel:
        """The model of a task; weights=False leaves out those that the config names, since others will be loaded."""
        part = self.config.parts["model"]
        backbone = str(part.options["backbone"])
        if not self.document.trusted and ":" in backbone and not backbone.startswith("timm:"):
            raise InputError(
                f"{self.document.where(('model', 'backbone'))}: 'model.backbone' names code to import ({backbone}); "
                "pass --trust to allow it"
            )
        torch.manual_seed(self.config.values["seed"])
        options = part.options if weights else {**part.options, "weights": "none"}
        model: EmbeddingModel = replace(part, options=options).build(feature_dim=task.train.feature_dim)
        return model

    def build_images(self) -> Images:
        """How images become batches."""
        part = self.config.parts["images"]
        size = {name: part.options[name] for name in ("resize", "crop")}
        images: Images = part.build(transform=self.config.parts["transform"].build(**size))
        return images

    def build_trainer(
        self, task: Task, run: Run | None = None, *, weights: bool = True, quiet: bool = False
    ) -> Trainer:
        """Everything that trains, put together; weights=False where a checkpoint will bring them."""
        parts, seed = self.config.parts, self.config.values["seed"]
        model, images = self.build_model(task, weights), self.build_images()
        if task.train.feature_dim is None:
            model.check_size(images.crop)
        train = task.train
        device = "cuda" if torch.cuda.is_available() else "cpu"
        own = train.labels.to(device)
        silent = quiet or not first_process()  # each searches for neighbours, one shows how far it is
        labels: LabelSpace = parts["binarize"].build(space=own, quiet=silent) if "binarize" in parts else own
        data = {"embedding_dim": model.embedding_dim, "labels": labels, "seed": seed, "quiet": silent}
        if labels.class_ids is not None:
            data["num_classes"] = int(labels.class_ids.max()) + 1
        else:
            for part in (parts["loss"], parts["step"]):  # before they ask for a number of classes
                if data_arguments(part.constructor).get("num_classes"):
                    self._check_requirement(part, "classes", labels.kind)
        loss = self._build_loss(data, model.parts if model.levels else [])
        self._check_requirement(parts["loss"], loss.requires, labels.kind)
        # Neighbours are found among the labels themselves, not among the labels as 0 / 1.
        sampler = parts["sampler"].build(**{**data, "labels": own if labels.class_ids is None else labels})
        data |= {"loss": loss, "feature_dim": model.feature_dim, "steps_per_epoch": len(sampler)}
        step = parts["step"].build(**data)
        training = parts["training"].build()
        steps, start = training.epochs * len(sampler), parts["memory"].options["start"] if "memory" in parts else 0
        if start >= steps > 0:
            raise InputError(
                f"{self.document.where(('memory', 'start'))}: 'memory.start' is {start}, but the training has {steps} "
                "steps: the memory would never be used; set a smaller start"
            )
        return Trainer(
            model,
            step,
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
            labels=labels,
            config=self.values,
            quiet=quiet,
        )

    def _check_requirement(self, part: Part, requires: Requirement, kind: LabelKind) -> None:
        """`check_requirement`, with the line of the config and in its words."""
        binarize = "'labels: {name: threshold, threshold: ...}' or 'labels: {name: nearest, k: ...}'"
        try:
            check_requirement(f"{part.section} '{part.name}'", requires, kind, binarize)
        except InputError as error:
            raise InputError(f"{part.origin}: {error}") from None

    def _build_loss(self, data: dict[str, Any], levels: list[int]) -> Loss:
        parts = self.config.parts
        if levels:  # how long the part of each in an embedding is
            if parts["step"].name != "embedding":
                raise InputError(
                    f"{self.document.where(('model', 'levels'))}: 'model.levels' has a loss for each level, and step "
                    f"'{parts['step'].name}' takes one for the whole embedding; leave out one of them"
                )
            losses: list[Any] = [self._build_loss({**data, "embedding_dim": part}, []) for part in levels]
            return LevelLosses(losses, levels)
        if "miner" in parts:
            data = {**data, "miner": parts["miner"].build(**data)}
        loss: Loss = parts["loss"].build(**data)
        try:
            check_loss(loss)
        except InputError as error:
            raise InputError(f"{parts['loss'].origin}: {error}") from None
        return parts["memory"].build(**data, loss=loss) if "memory" in parts else loss


def first_process() -> bool:
    """Whether this is the one of several training processes that speaks; told before these know of each other."""
    return os.environ.get("RANK", "0") == "0"


def experiment(document: Document, name: str) -> Experiment:
    """The experiment of a document.

    Raises:
        InputError: something in it is wrong: one line that points at it.
    """
    config = validate(document, schema())
    seed = config.values["seed"]
    if not 0 <= seed < 2**32:
        raise InputError(f"{document.where(('seed',))}: seed is {seed}; it must be 0 to {2**32 - 1}")
    if "published" in config.parts:
        config.parts["published"].build()
    loss = config.parts["loss"]
    if "miner" in config.parts and "miner" not in data_arguments(loss.constructor):
        names = ", ".join(name for name, other in LOSSES.items() if "miner" in data_arguments(other))
        raise InputError(
            f"{document.where(('miner',))}: the loss '{loss.name}' takes no miner; leave out 'miner', or choose one "
            f"of {names}"
        )
    return Experiment(name, config, document)
