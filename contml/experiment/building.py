"""Build the parts of a config: task, labels, model, sampler, loss, trainer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from contml.config import Config, Document, Part, data_arguments, import_user_code, resolved, validate
from contml.contracts import LabelKind, Loss, Requirement
from contml.data import Images
from contml.data.carve import with_validation
from contml.data.features import with_features
from contml.data.identity import item_names
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
    """A validated config, its name, and its document for the origin of errors. `task`: its data if already read."""

    name: str
    config: Config
    document: Document
    task: Task | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> dict[str, Any]:
        """The resolved config as plain values."""
        return resolved(self.config)

    @property
    def root(self) -> str:
        """The folder of the data, which names of items may start with; "" if the task names none."""
        options = self.config.parts["task"].options
        if options.get("root") is not None:
            return os.path.expanduser(str(options["root"]))  # noqa: PTH111
        data = options.get("data")
        return "" if data is None else str(Path(str(data)).expanduser().parent)

    @property
    def selected(self) -> Literal["best", "last"]:
        """The weights that are the result: the best ones on a validation split, or the last ones."""
        training = self.config.parts["training"].options
        return "best" if training["select"] == "val" and training["epochs"] > 0 else "last"

    def read_task(self) -> Task:
        """The data as the task reads them."""
        task: Task = self.config.parts["task"].build() if self.task is None else self.task
        return task

    def build_task(self) -> Task:
        """The data to train on: with features in place of images, and with a validation split if one is needed.

        It is drawn from the training split where the data name none.
        """
        task = self.read_task()
        features = self.config.parts["images"].options["features"]
        if features is not None:
            task = with_features(task, features)
        if self.selected == "last":
            return task
        training, task_part = self.config.parts["training"], self.config.parts["task"]
        share, fold = training.options["val_share"], training.options["val_fold"]
        with training.errors():
            # The seed of the data: runs that differ in the seed of the training have the same splits.
            seed = task_part.options.get("seed", 0)
            return with_validation(task, item_names(task.train, self.root), share=share, fold=fold, seed=seed)

    def build_model(self, task: Task, weights: bool = True) -> EmbeddingModel:
        """The model of a task. `weights=False` omits the pretrained weights, because others will be loaded."""
        part = self.config.parts["model"]
        backbone = str(part.options["backbone"])
        if ":" in backbone and not backbone.startswith("timm:"):
            # Checked here, before the model calls it.
            import_user_code(self.document, ("model", "backbone"), backbone, nn.Module)
        torch.manual_seed(self.config.values["seed"])
        options = part.options if weights else {**part.options, "weights": "none"}
        model: EmbeddingModel = replace(part, options=options).build(feature_dim=task.train.feature_dim)
        return model

    def build_images(self) -> Images:
        """The loader that turns images into batches."""
        part = self.config.parts["images"]
        size = {name: part.options[name] for name in ("resize", "crop")}
        images: Images = part.build(transform=self.config.parts["transform"].build(**size))
        return images

    def build_trainer(
        self, task: Task, run: Run | None = None, *, weights: bool = True, quiet: bool = False
    ) -> Trainer:
        """The trainer with all its parts. `weights=False`: a checkpoint will be loaded."""
        parts, seed = self.config.parts, self.config.values["seed"]
        model, images = self.build_model(task, weights), self.build_images()
        if task.train.feature_dim is None:
            model.check_size(images.crop)
        train = task.train
        device = "cuda" if torch.cuda.is_available() else "cpu"
        root = train.labels.to(device)
        quiet_search = quiet or not first_process()  # every process searches neighbours, one shows progress
        labels: LabelSpace = parts["binarize"].build(space=root, quiet=quiet_search) if "binarize" in parts else root
        data = {"embedding_dim": model.embedding_dim, "labels": labels, "seed": seed, "quiet": quiet_search}
        if labels.class_ids is not None:
            data["num_classes"] = int(labels.class_ids.max()) + 1
        else:
            for part in (parts["loss"], parts["step"]):  # refused before num_classes is found missing
                if data_arguments(part.constructor).get("num_classes"):
                    self._check_requirement(part, "classes", labels.kind)
        loss = self._build_loss(data, model.parts if model.levels else [])
        self._check_requirement(parts["loss"], loss.requires, labels.kind)
        # Neighbours are searched by the graded labels, not by the binarized ones.
        sampler = parts["sampler"].build(**{**data, "labels": root if labels.class_ids is None else labels})
        data |= {"loss": loss, "feature_dim": model.feature_dim, "steps_per_epoch": len(sampler)}
        step = parts["step"].build(**data)
        training = parts["training"].build()
        steps, start = training.epochs * len(sampler), parts["memory"].options["start"] if "memory" in parts else 0
        if start >= steps > 0:
            allowed = f"must be below {steps}, the number of training steps"
            raise self.document.error(("memory", "start"), str(start), allowed)
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
            val=task.val if self.selected == "best" else None,
            test=task.test,
            run=run,
            labels=labels,
            config=self.values,
            quiet=quiet,
        )

    def _check_requirement(self, part: Part, requires: Requirement, kind: LabelKind) -> None:
        binarize = "'binarize: {name: threshold, threshold: ...}' or 'binarize: {name: nearest, k: ...}'"
        with part.errors():
            check_requirement(f"{part.section} {part.name}", requires, kind, binarize)

    def _build_loss(self, data: dict[str, Any], levels: list[int]) -> Loss:
        """The loss; `levels`: the dimensions of each level of a multi-level embedding."""
        parts = self.config.parts
        if levels:
            if (step := parts["step"].name) != "embedding":
                got = f"one loss per level, but step {step} takes one loss for the whole embedding"
                raise self.document.error(("model", "levels"), got, hint="omit one of them")
            losses: list[Any] = [self._build_loss({**data, "embedding_dim": dim}, []) for dim in levels]
            return LevelLosses(losses, levels)
        if "miner" in parts:
            data = {**data, "miner": parts["miner"].build(**data)}
        loss: Loss = parts["loss"].build(**data)
        with parts["loss"].errors():
            check_loss(loss)
        return parts["memory"].build(**data, loss=loss) if "memory" in parts else loss


def first_process() -> bool:
    """Whether this is the main one of several training processes, known before they are connected."""
    return os.environ.get("RANK", "0") == "0"


def experiment(document: Document, name: str) -> Experiment:
    """The experiment of a document.

    Raises:
        InputError: an error in the config, with file and line.
    """
    config = validate(document, schema())
    seed = config.values["seed"]
    if not 0 <= seed < 2**32:
        raise document.error(("seed",), str(seed), f"must be 0 to {2**32 - 1}")
    if "published" in config.parts:
        config.parts["published"].build()
    loss = config.parts["loss"]
    if "miner" in config.parts and "miner" not in data_arguments(loss.constructor):
        names = ", ".join(name for name, other in LOSSES.items() if "miner" in data_arguments(other))
        got, hint = f"loss {loss.name} takes no miner", f"omit miner, or choose one of the losses {names}"
        raise document.error(("miner",), got, hint=hint)
    sampler = config.parts["sampler"].name
    drawn = sampler == "triplets" or ":" in sampler  # the user's own sampler may draw triplets too
    if loss.name == "triplet_margin" and loss.options["triplets"] == "batch" and not drawn:
        got, hint = f"batch, but the sampler is {sampler}", "use 'sampler: {name: triplets}', or omit triplets"
        raise document.error(("loss", "triplets"), got, hint=hint)
    return Experiment(name, config, document)
