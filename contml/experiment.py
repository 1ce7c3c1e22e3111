"""A config made real: task, labels, model, sampler, loss, trainer put together; the schema of a whole config."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contml.config import Config, Document, Scalar, Section, data_arguments, difference, dump, read, resolved, validate
from contml.contracts import InputError, LabelSpace, Loss, Split, Task
from contml.evaluation.embed import embed
from contml.evaluation.protocol import evaluate
from contml.evaluation.published import Published
from contml.evaluation.result import Evaluation, Ranking
from contml.images import Images
from contml.labels import VIEWS
from contml.losses import LOSSES
from contml.losses.levels import LevelLosses
from contml.losses.memory import CrossBatchMemory
from contml.losses.outside import outside
from contml.mining import MINERS
from contml.models import EmbeddingModel
from contml.reporting import write_report
from contml.runs import HEAD, Run, create, open_run, write
from contml.sampling import SAMPLERS
from contml.training import OPTIMIZERS, SCHEDULES, STEPS, Trainer, Training, check_labels, load_weights
from contml.training.checkpoint import load_state, save_weights

#: What may be put right in a run's config before it goes on: where things are and who reads them, not what they are.
_WHERE = (
    *("task.root", "task.data", "model.weights", "labels.cache", "sampler.cache", "images.cache", "images.workers"),
    "training.checkpoint_minutes",
)
#: The config of a table of one's own where nothing else is named.
_TABLE = "table/default"


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
        # Of several processes each searches for neighbours, and the first shows how far it is.
        silent = quiet or os.environ.get("RANK", "0") != "0"
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


def train(
    experiment: Experiment,
    root: Path,
    *,
    started: Callable[[Run], None] = lambda _: None,
    described: Callable[[list[list[str]]], None] = lambda _: None,
) -> Run | None:
    """Train from the beginning in a new run folder, evaluate, and write the report. `started` gets the run folder.

    `described` gets what a task tells of its data in `task.described()`, if it does: rows of texts, a header first.
    Of several processes the main one has the run folder; the others return None.
    """
    task = experiment.build_task()
    _describe(task, described)
    trainer = experiment.build_trainer(task)
    for split in (task.train, task.test):
        trainer.images.prepare(split)  # what is wrong with a cache, or with an image, is told before there is a run
    if trainer.accelerator.is_main_process:
        trainer.run = _create(root, experiment)
        started(trainer.run)
    trainer.fit()
    return _finish(experiment, trainer, task)


def resume(folder: Path, *, trust: bool = False) -> Run | None:
    """Go on with a run from its last checkpoint, to the same end as if it had never stopped.

    Raises:
        InputError: the folder is no run, or its config was changed since.
    """
    experiment, run = load_run(folder, trust=trust)
    state = run.checkpoints / "state.safetensors"
    if state.exists():
        changed = [
            change
            for change in difference(load_state(state)[2]["config"], experiment.values)
            if change.split(":")[0] not in _WHERE and not change.startswith("published.")
        ]
        if changed:
            raise InputError(
                f"{run.config}: changed since the run began ({'; '.join(changed)}); put it back, or start a new run"
            )
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, run, weights=not state.exists())
    trainer.resume()
    trainer.fit()
    return _finish(experiment, trainer, task)


def evaluate_run(folder: Path, *, checkpoint: str = "last", trust: bool = False) -> Evaluation:
    """Embed the test split with a run's weights ("last" or "best"), and write what was found to its folder."""
    experiment, run = load_run(folder, trust=trust)
    path = run.checkpoints / f"{checkpoint}.safetensors"
    weights = load_weights(path)
    task = experiment.build_task()
    model = experiment.build_model(weights=False)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path}: does not fit the model of {run.config} ({str(error).splitlines()[0]})") from None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    embeddings, missing = embed(model.to(device), task.test, experiment.build_images(), device=device)
    evaluation, _ = _evaluate(embeddings, missing, task.test)
    _save(run, evaluation, embeddings, missing, checkpoint)
    return evaluation


def report_run(folder: Path, *, trust: bool = False, pair: tuple[str, str] | None = None) -> Path:
    """Write the report of a run from its metrics and its saved embeddings; `pair` are test images to explain."""
    experiment, run = load_run(folder, trust=trust)
    path = run.folder / "embeddings" / "test.safetensors"
    if not path.exists():
        raise InputError(f"{folder}: has no embeddings yet; run 'contml evaluate {folder}' first")
    saved = load_weights(path)
    task = experiment.build_task()
    if len(saved["embeddings"]) != len(task.test):
        raise InputError(
            f"{path}: has {len(saved['embeddings'])} embeddings, but the test split has {len(task.test)} images now; "
            f"run 'contml evaluate {folder}' again"
        )
    if pair is not None and not hasattr(task.test, "explain"):
        raise InputError(f"{experiment.config.parts['task'].name}: this task explains no pair; leave --pair out")
    rows = None if pair is None else (_row_of(task.test, pair[0]), _row_of(task.test, pair[1]))
    evaluation, ranking = _evaluate(saved["embeddings"], saved["missing"], task.test)
    return _report(experiment, run, task, evaluation, ranking, rows)


def _row_of(split: Split, given: str) -> int:
    """The row of a name, of the end of one behind a slash or a space, or the row itself."""
    names = [split.name(row) for row in range(len(split))]
    ends = [name for name in names if name.endswith((f"/{given}", f" {given}"))]
    if given in names or len(ends) == 1:
        return names.index(given if given in names else ends[0])
    if given.isdecimal() and int(given) < len(split):
        return int(given)
    how = f"{len(ends)} test images end in" if ends else "no test image is"
    raise InputError(
        f"--pair: {how} '{given}'; give a name as the gallery shows it ({names[0]}), or a row, 0 to {len(split) - 1}"
    )


def check(
    experiment: Experiment, *, described: Callable[[list[list[str]]], None] = lambda _: None
) -> list[tuple[str, str]]:
    """Read the data, build everything, take one batch forward and backward, train nothing: the facts, in words.

    `described` as in `train`.
    """
    task = experiment.build_task()
    _describe(task, described)
    trainer = experiment.build_trainer(task)
    trainer.images.cache = None  # one batch needs no other image
    batch = next(iter(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)))
    before = {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}
    if len(batch.rows) < 2:
        name, cause = next(iter(trainer.images.left_out.items()))
        raise InputError(
            f"{len(batch.rows)} images of the first batch could be read; the first that could not: {name} ({cause})"
        )
    loss = trainer.train_step(batch)
    trainer.bare_model.load_state_dict(before)
    trainer.images.close()
    distances = trainer.labels.view(batch.rows).distances()
    apart = distances[~torch.eye(len(batch.rows), dtype=torch.bool, device=distances.device)]
    queries = len(task.test) if task.test.queries is None else len(task.test.queries)
    learning = sum(p.numel() for p in trainer.parameters)
    return [
        *getattr(task, "facts", []),
        ("training images", f"{len(task.train):,}{_dropped(task.train)}"),
        ("test images", f"{len(task.test):,}, of which {queries:,} query{_dropped(task.test)}"),
        ("label distance", task.test.labels.unit),
        *_unknown_words(task),
        ("in a batch", f"{apart.min():.4g} to {apart.max():.4g}, mean {apart.mean():.4g} ({trainer.labels.unit})"),
        ("batch", f"{len(batch.rows)} images of {batch.images.shape[2]} x {batch.images.shape[3]} pixels"),
        ("steps", f"{trainer.total:,} in {trainer.options.epochs} epochs"),
        ("parameters", f"{learning:,}, on {trainer.device}"),
        ("loss of a batch", f"{loss.item():.4g}"),
    ]


def _describe(task: Task, described: Callable[[list[list[str]]], None]) -> None:
    tell = getattr(task, "described", None)
    if tell is not None:
        described(tell())


def _dropped(split: Split) -> str:
    words = {"dropped": "left out", "missing": "left out, their files are not there"}
    told = [f"{getattr(split, name):,} {text}" for name, text in words.items() if getattr(split, name, 0)]
    return f" ({', '.join(told)})" if told else ""


def _unknown_words(task: Task) -> list[tuple[str, str]]:
    """What caption labels could not use: words without a vector, and captions that had no other."""
    facts = []
    for name, split in (("training", task.train), ("test", task.test)):
        words, captions = getattr(split.labels, "unknown", {}), getattr(split.labels, "dropped", 0)
        if words:
            most, dropped = next(iter(words)), f"; {captions:,} captions dropped" if captions else ""
            text = f"{sum(words.values()):,}, {len(words):,} different, most often '{most}'{dropped}"
            facts.append((f"{name} words without a vector", text))
    return facts


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


def _create(root: Path, experiment: Experiment) -> Run:
    run = create(root, experiment.name)
    text = f"{HEAD}{experiment.name}\n{dump(experiment.values)}"
    write(run.config, lambda path: path.write_text(text, encoding="utf-8"))
    return run


def _finish(experiment: Experiment, trainer: Trainer, task: Task) -> Run | None:
    if trainer.result is None:  # a finished run was resumed
        trainer.result = trainer.evaluate()
    evaluation, ranking = trainer.result
    if trainer.run is None or not trainer.accelerator.is_main_process:
        return None
    _save(trainer.run, evaluation, ranking.embeddings, trainer.missing, "last")
    _report(experiment, trainer.run, task, evaluation, ranking)
    return trainer.run


def _evaluate(embeddings: Tensor, missing: Tensor, test: Split) -> tuple[Evaluation, Ranking]:
    recall_at = getattr(test, "recall_at", None)
    return evaluate(embeddings, test.labels, test.queries, test.gallery, missing=missing, recall_at=recall_at)


def _save(run: Run, evaluation: Evaluation, embeddings: Tensor, missing: Tensor, checkpoint: str) -> None:
    text = json.dumps({"checkpoint": checkpoint, **evaluation.to_dict()})
    write(run.folder / "evaluation.json", lambda path: path.write_text(text, encoding="utf-8"))
    save_weights(run.folder / "embeddings" / "test.safetensors", {"embeddings": embeddings, "missing": missing})


def _report(
    experiment: Experiment,
    run: Run,
    task: Task,
    evaluation: Evaluation,
    ranking: Ranking,
    pair: tuple[int, int] | None = None,
) -> Path:
    return write_report(
        run.folder,
        title=experiment.name,
        config=dump(experiment.values),
        rows=run.rows(),
        evaluation=evaluation,
        ranking=ranking,
        split=task.test,
        pair=pair,
    )
