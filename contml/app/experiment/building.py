"""The parts of a config, built: task, labels, model, sampler, loss, trainer."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from contml._support.errors import InputError
from contml.app.experiment.names import Preset
from contml.config import Config, ConfiguredPart, Document, data_arguments, import_user_code, resolved
from contml.contracts import LabelKind, OwnMetrics, Requirement
from contml.data import Images, refuse_equal
from contml.data.carve import with_validation
from contml.data.features import with_features
from contml.data.identity import item_names
from contml.data.split import SPLIT_TITLES, Split, Task
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.evaluators import Evaluator
from contml.labels.base import LabelSpace
from contml.labels.captions import CaptionLabels
from contml.labels.judged import JudgedItems
from contml.labels.vectors import NumberLabels
from contml.losses.driver import PairLoss
from contml.losses.inputs import Loss, check_loss, check_requirement
from contml.losses.levels import LevelLosses, MatryoshkaLoss
from contml.losses.regularizers import RegularizedLoss
from contml.models import EmbeddingModel
from contml.models.identity import FeatureExtractor, identity
from contml.runs import PLACES, Run, without_paths
from contml.sampling import SAMPLERS, fitting_options
from contml.training import Trainer, TrainingStep
from contml.training.setup import check_flip
from contml.training.trackers import check_installed


def _absolute(value: Any) -> Any:
    """Return an option with absolute paths, also in sections by name (`task.labels`)."""
    if isinstance(value, Path):
        return value.expanduser().absolute()
    return {key: _absolute(each) for key, each in value.items()} if isinstance(value, dict) else value


class RunResult(NamedTuple):
    """The result of a run.

    Attributes:
        task: the data.
        evaluated: the metrics, with their split and weights.
        found: the ranking or the captions of this split.
        missing: rows of the split that could not be read.
        val: the ranking of the validation split, and its unreadable rows. None if no calibration is fitted to it.
        train: training items, their embeddings and the unreadable rows, to predict labels with. None if no labels are
            predicted.
    """

    task: Task
    evaluated: Evaluated
    found: Any
    missing: Tensor
    val: tuple[Any, Tensor] | None = None
    train: tuple[Split, Tensor, Tensor] | None = None

    @property
    def split(self) -> Split:
        """The split of the metrics."""
        return self.task.splits[self.evaluated.split]


class Results(Evaluator):
    """One kind of results: evaluates the model of a run, and saves, reads and reports the result.

    Args:
        experiment: the experiment of the run.
        model: the model, if there is one yet.

    Attributes:
        ranked: whether a gallery is ranked. It then has at least two items, and a calibration is fitted on validation.
        unranked: the reason why there are no rankings to compare with labels. "" if there are rankings.
        embeds: whether the model is an embedding.
        counts_queries: whether a split has queries.
        evaluates_training: whether it evaluates validation data during training too, in place of the training step.
    """

    ranked: ClassVar[bool] = False
    unranked: ClassVar[str] = ""
    embeds: ClassVar[bool] = True
    counts_queries: ClassVar[bool] = True
    evaluates_training: ClassVar[bool] = False

    def __init__(self, experiment: Experiment, model: Any = None) -> None:  # noqa: ARG002
        self.experiment = experiment

    @staticmethod
    def belongs_to(config: Config) -> bool:  # noqa: ARG004
        """Return True if a config has results of this kind."""
        return True

    @staticmethod
    def check_config(config: Config, document: Document) -> None:
        """Refuse a config whose sections do not go together.

        Raises:
            InputError: they do not.
        """

    @staticmethod
    def check_labels(labels: LabelSpace, sampler: str) -> None:
        """Refuse labels that have results of another kind.

        Raises:
            InputError: the labels have other results.
        """
        if isinstance(labels, JudgedItems):
            raise InputError("sampler", sampler, "must be judged, since labels are judgments of some items together")

    @staticmethod
    def facts(task: Task) -> list[tuple[str, str]]:
        """Return facts about the labels for `contml check`: the unit of label distances, and words without a vector."""
        facts = [("label distance", task.evaluated.labels.unit)]
        for name, split in task.splits.items():
            labels = split.labels
            if isinstance(labels, CaptionLabels) and labels.unknown:
                words = labels.unknown
                dropped = f"; {labels.dropped:,} captions dropped" if labels.dropped else ""
                text = f"{sum(words.values()):,}, {len(words):,} different, most often '{next(iter(words))}'{dropped}"
                facts.append((f"{SPLIT_TITLES[name]} words without a vector", text))
        return facts

    @staticmethod
    def in_a_batch(labels: LabelSpace) -> str:
        """Describe the label distances of the pairs of a batch."""
        distances, known = labels.pairwise(), labels.known()
        counted = ~torch.eye(len(labels), dtype=torch.bool, device=distances.device)
        counted = counted if known is None else counted & known
        pairs, measure = distances[counted], labels.measure
        share = "" if known is None else f"; {len(pairs):,} of {len(labels) * (len(labels) - 1):,} pairs are known"
        if not len(pairs):
            return f"no label distances{share}"
        low, high, mean = (measure.text(float(each)) for each in (pairs.min(), pairs.max(), pairs.mean()))
        return f"label distances from {low} to {high}, mean {mean}{share}"

    @staticmethod
    def few(task: Task) -> str:  # noqa: ARG004
        """Return a warning before training if the data leave out many items. Otherwise return ""."""
        return ""

    @staticmethod
    def build(_: Experiment, network: EmbeddingModel, *__: Any) -> tuple[nn.Module, dict[str, Any]]:
        """Return the model with this network, and the additional data of its training step."""
        return network, {}

    @staticmethod
    def network(model: Any) -> EmbeddingModel:
        """Return the network that embeds images."""
        assert isinstance(model, EmbeddingModel)
        return model

    @staticmethod
    def fitted(model: Any, weights: dict[str, Tensor], path: Path) -> Any:  # noqa: ARG004
        """Return the model that accepts these weights, which were read from `path`."""
        return model.fitted_to(weights)

    @abstractmethod
    def read(self, run: Run, evaluated: Evaluated, accept_changes: bool) -> RunResult:
        """Evaluate the outputs that a run has saved."""

    @abstractmethod
    def save(self, run: Run, result: RunResult, model: Any) -> None:
        """Save the outputs, the main metric of each query, and the evaluation."""

    @abstractmethod
    def report(self, run: Run, result: RunResult) -> Path:
        """Write the report."""


def learns_judgments(config: Config) -> bool:
    """Return True if the training step of a config learns from judgments between items."""
    step = config.parts["step"].constructor
    return isinstance(step, type) and issubclass(step, TrainingStep) and step.judged


class BuiltStep(NamedTuple):
    """The result of `build_step`."""

    model: nn.Module
    step: TrainingStep
    sampler: Any
    labels: LabelSpace


@dataclass(frozen=True)
class Experiment:
    """A validated config, its name, its document for the origin of errors, and its kind of results.

    `task` has the data if they were already read. `built` has the data with a validation split, if it was already
    drawn, with the data that it was drawn from and the options that it depends on. `preset` is the preset that was
    chosen for the user's own data.
    """

    name: str
    config: Config
    document: Document
    results: type[Results]
    task: Task | None = field(default=None, compare=False, repr=False)
    built: tuple[Task, Task, tuple[Any, ...]] | None = field(default=None, compare=False, repr=False)
    preset: Preset = field(default=Preset(), compare=False, repr=False)

    @property
    def values(self) -> dict[str, Any]:
        """The resolved config as plain values, with absolute paths, so that a run can be resumed from anywhere.

        Paths are the options of the type `Path`, and the texts at `PLACES` and `task.vectors` that name a file.
        """
        parts = {key: replace(part, options=_absolute(part.options)) for key, part in self.config.parts.items()}
        values = resolved(replace(self.config, parts=parts))
        for key in (*PLACES, "task.vectors"):
            section, _, option = key.partition(".")
            options = values.get(section)
            value = options.get(option) if isinstance(options, dict) else None
            if isinstance(options, dict) and isinstance(value, str) and self._in_current_folder(key, value):
                options[option] = str(Path(value).expanduser().absolute())
        return values

    def _in_current_folder(self, key: str, text: str) -> bool:
        """Return True if a text names a file in the current folder. `vectors` are searched in `root` first."""
        path = os.path.expanduser(text)  # noqa: PTH111
        if key != "task.vectors":
            return os.path.exists(path)  # noqa: PTH110  # False for a name that no file can have
        return os.path.isfile(path) and not os.path.isfile(os.path.join(self.root or os.devnull, path))  # noqa: PTH113, PTH118

    @property
    def recorded(self) -> dict[str, Any]:
        """The values as weights and embeddings keep them: without paths."""
        return without_paths(self.values)

    @property
    def root(self) -> str:
        """The folder of the data, which names of items may start with. It is "" if the task names no folder."""
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
        """Return the data as the task reads them."""
        if self.task is not None:
            return self.task
        part = self.config.parts["task"]
        distance = part.options.get("distance")
        for name in distance if isinstance(distance, dict) else [distance]:
            if isinstance(name, str) and ":" in name:
                # Checked here, before the task calls it.
                import_user_code(self.document, ("task", "distance"), name, np.ndarray)
        return part.build(has_features=self.config.parts["images"].options["features"] is not None)

    def build_task(self) -> Task:
        """Return the data to train on: with features in place of images, and with a validation split if one is needed.

        The validation split is drawn from the training split if the data have none.
        """
        features, share, seed, *_ = options = self._options_of_splits
        if self.built is not None and self.built[1] is self.task and self.built[2] == options:
            return self.built[0]
        task = self.read_task()
        if features is not None:
            task = with_features(task, features)
        if self.selected == "last":
            return task
        with self.config.parts["training"].errors():
            return with_validation(task, item_names(task.train, self.root), share=share, seed=seed)

    def with_built_task(self, task: Task) -> Experiment:
        """Return the experiment with data that were read, and with the data that `build_task` makes of them."""
        read = replace(self, task=task)
        return replace(read, built=(read.build_task(), task, self._options_of_splits))

    @property
    def _options_of_splits(self) -> tuple[Any, ...]:
        """The file of features, share and seed of a drawn validation split, and what decides whether one is drawn."""
        parts = self.config.parts
        # The seed of the data: runs that differ in the seed of the training have the same splits.
        drawn = parts["training"].options["val_share"], parts["task"].options.get("seed", 0)
        return parts["images"].options["features"], *drawn, self.selected, self.root

    @property
    def metrics(self) -> OwnMetrics:
        """User-defined metrics by name, imported.

        Raises:
            InputError: one cannot be imported, or is not a function annotated to return a tensor.
        """
        named, key = self.config.parts["training"].options["metrics"] or {}, ("training", "metrics")
        return {name: import_user_code(self.document, (*key, name), text, Tensor) for name, text in named.items()}

    def build_model(self, task: Task, weights: bool = True) -> nn.Module:
        """Build the model of a task: an embedding, or a captioner. `weights` is as in `build_network`."""
        return self.results.build(self, self.build_network(task, weights), task, weights)[0]

    def evaluator(self, model: Any = None) -> Results:
        """Return the evaluator of a model of this experiment. Without a model, it reads results."""
        return self.results(self, model)

    def build_network(self, task: Task, weights: bool = True) -> EmbeddingModel:
        """Build the embedding of a task.

        `weights=False` omits the pretrained weights, because others will be loaded.
        """
        part = self.config.parts["model"]
        backbone = str(part.options["backbone"])
        if ":" in backbone and not backbone.startswith("timm:"):
            # Checked here, before the model calls it.
            import_user_code(self.document, ("model", "backbone"), backbone, nn.Module)
        torch.manual_seed(self.config.values["seed"])
        return part.build(feature_dim=task.train.feature_dim, pretrained=weights)

    def identity_of(self, model: nn.Module) -> str:
        """Return the identity of a model of this experiment.

        For a captioner, return the identity of its visual network.
        """
        options = self.config.parts["images"].options
        return identity(self.results.network(model), options["resize"], options["crop"])

    def build_images(self, model: nn.Module | None = None) -> Images:
        """Build the loader that turns images into batches.

        For a model with a frozen backbone, batches have features in place of images, if the augmentation allows it.
        """
        part = self.config.parts["images"]
        size = {name: part.options[name] for name in ("resize", "crop")}
        transform = self.config.parts["transform"].build(**size)
        extractor = None
        if isinstance(model, EmbeddingModel) and model.frozen:
            extractor = FeatureExtractor(model, **size)
        return part.build(transform=transform, skip="images.broken=skip", extractor=extractor)

    def fitted_to(self, labels: LabelSpace) -> Experiment:
        """Return the experiment with batches that these items can fill. They are a part of the items of a run."""
        part = self.config.parts["sampler"]  # perhaps the user's own
        options = fitting_options(part.options, labels) if part.name in SAMPLERS else part.options
        if options == part.options:
            return self
        parts = {**self.config.parts, "sampler": replace(part, options=options)}
        return replace(self, config=replace(self.config, parts=parts))

    def build_trainer(
        self, task: Task, run: Run | None = None, *, weights: bool = True, quiet: bool = False
    ) -> Trainer:
        """Build the trainer with all its parts. With `weights=False`, a checkpoint will be loaded."""
        parts, network = self.config.parts, self.build_network(task, weights)
        images = self.build_images(network if self.results.embeds else None)
        model, step, sampler, labels = self.build_step(task, network, weights=weights, quiet=quiet)
        with parts["images"].errors():
            check_flip(images.flip, labels, step)

        def schedule(optimizer: Optimizer, steps: int, total: int) -> Any:
            return parts["schedule"].build(optimizer=optimizer, steps_per_epoch=steps, total_steps=total)

        trainer = Trainer(
            model,
            step,
            task.train,
            sampler,
            images,
            parts["training"].build(),
            optimizer=lambda groups: parts["optimizer"].build(groups=groups),
            schedule=schedule,
            val=task.val if self.selected == "best" else None,
            test=task.test,
            run=run,
            labels=labels,
            config=self.recorded,
            quiet=quiet,
        )
        if self.results.evaluates_training or self.metrics:
            trainer.evaluator = self.evaluator(model)
        return trainer

    def build_step(
        self, task: Task, network: EmbeddingModel, *, weights: bool = True, quiet: bool = False, search: bool = True
    ) -> BuiltStep:
        """Build the model, training step and sampler, without the trainer.

        Options that do not fit the data are refused.

        Args:
            task: the data.
            network: the embedding, of `build_network`.
            weights: as in `build_network`.
            quiet: show no progress.
            search: search the nearest items by label, which may take long. If it is False, the next rows are used
                instead. The result then serves only to find options that do not fit.

        Raises:
            InputError: an option does not fit the data, or the network.
        """
        parts, seed = self.config.parts, self.config.values["seed"]
        if task.train.feature_dim is None:
            network.check_size(parts["images"].options["crop"])
        root = task.train.labels.to("cuda" if torch.cuda.is_available() else "cpu")
        quiet_search = quiet or not first_process()  # every process searches neighbours, one shows progress
        refuse_equal(root, root.title)
        with parts["sampler"].errors():
            self.results.check_labels(root, parts["sampler"].name)
        labels: LabelSpace = root
        if "binarize" in parts:
            part, space = (parts["binarize"], root) if search else _without_search(parts["binarize"], root)
            labels = part.build(space=space, quiet=quiet_search)
        data = {"embedding_dim": network.embedding_dim, "labels": labels, "train_labels": labels, "seed": seed}
        data |= {"quiet": quiet_search, "epochs": parts["training"].options["epochs"]}
        if labels.class_ids is not None:
            data["class_ids"] = torch.unique(labels.class_ids).cpu()
            data["num_classes"] = len(data["class_ids"])
        self._check_classes(labels.kind)  # before num_classes is found missing
        if "loss" in parts:
            data["loss"] = self._build_losses(data, network)
            if not learns_judgments(self.config):  # else the step checks it
                self._check_requirement(parts["loss"], data["loss"].requires, labels.kind)
        # Neighbours are searched by the graded labels, not by the binarized ones.
        of_sampler = root if labels.class_ids is None else labels
        part, space = (parts["sampler"], of_sampler) if search else _without_search(parts["sampler"], of_sampler)
        sampler = part.build(**{**data, "labels": space})
        data |= {"feature_dim": network.feature_dim, "steps_per_epoch": len(sampler)}
        model, of_model = self.results.build(self, network, task, weights)
        step = parts["step"].build(**data, **of_model)
        steps, start = data["epochs"] * len(sampler), parts["memory"].options["start"] if "memory" in parts else 0
        if start >= steps > 0:
            allowed = f"must be below {steps}, the number of training steps"
            raise self.document.error(("memory", "start"), str(start), allowed)
        return BuiltStep(model, step, sampler, labels)

    def check_labels(self, task: Task) -> None:
        """Refuse a loss or a step that needs other labels than the labels of a task, before anything is built.

        Raises:
            InputError: they do not fit.
        """
        parts = self.config.parts
        kind: LabelKind = "binary" if "binarize" in parts else task.train.labels.kind
        self._check_classes(kind)
        loss = parts["loss"].constructor if "loss" in parts else None
        # Other losses are checked when they are built; of judgments, the step checks the loss.
        if isinstance(loss, type) and issubclass(loss, PairLoss) and not learns_judgments(self.config):
            self._check_requirement(parts["loss"], loss.requires, kind)

    def _check_classes(self, kind: LabelKind) -> None:
        """Refuse a loss or a step that needs the number of classes, if labels are not classes."""
        parts = self.config.parts
        for part in (parts[name] for name in ("loss", "step") if name in parts):
            if kind != "classes" and data_arguments(part.constructor).get("num_classes"):
                self._check_requirement(part, "classes", kind)

    def check_packages(self) -> None:
        """Refuse a metric or a tracker that cannot be imported, before data are read."""
        if self.metrics and not self.results.ranked:
            raise self.document.error(("training", "metrics"), "no gallery is ranked", hint="remove it")
        training = self.config.parts["training"]
        with training.errors():
            check_installed(training.options["tracker"])

    def _check_requirement(self, part: ConfiguredPart, requires: Requirement, kind: LabelKind) -> None:
        binarize = "'binarize: {name: threshold, threshold: ...}' or 'binarize: {name: nearest, k: ...}'"
        with part.errors():
            check_requirement(f"{part.section} {part.name}", requires, kind, binarize)

    def _build_losses(self, data: dict[str, Any], network: EmbeddingModel) -> Loss:
        """Build the loss of an embedding: one loss for each level, or for each of its nested lengths."""
        dims = network.parts if network.levels else network.nested_dims
        losses: list[Any] = [self._build_loss({**data, "embedding_dim": dim}) for dim in dims]
        if network.levels:
            return LevelLosses(losses, dims)
        return MatryoshkaLoss(losses, dims, network.normalize) if losses else self._build_loss(data)

    def _build_loss(self, data: dict[str, Any]) -> Loss:
        """Build one loss, with its miner, memory and regularizer."""
        parts = self.config.parts
        if "miner" in parts:
            data = {**data, "miner": parts["miner"].build(**data)}
        loss: Loss = parts["loss"].build(**data)
        with parts["loss"].errors():
            check_loss(loss)
        loss = parts["memory"].build(**data, loss=loss) if "memory" in parts else loss
        if "regularizer" not in parts:
            return loss
        regularizer: Loss = parts["regularizer"].build(**data)
        with parts["regularizer"].errors():
            check_loss(regularizer)
        self._check_requirement(parts["regularizer"], regularizer.requires, data["labels"].kind)
        return RegularizedLoss(loss, regularizer)


def _without_search(part: ConfiguredPart, labels: LabelSpace) -> tuple[ConfiguredPart, LabelSpace]:
    """Return a part without its search for the nearest items, and labels whose nearest items are known at once.

    A part that does not search stays as it is.
    """
    if "cache" not in part.options:
        return part, labels
    return replace(part, options={**part.options, "cache": None}), NumberLabels(torch.arange(len(labels)))


def first_process() -> bool:
    """Return True in the main one of several training processes. It is known before they are connected."""
    return os.environ.get("RANK", "0") == "0"
