"""Loading of an experiment: a config by name, a file, your own table, or a run folder.

There are three presets of your own data:

features    a head on the features of a pretrained network, which is frozen: minutes for thousands of photographs
finetune    all weights of the pretrained network: slow without a GPU
quick       a small network from scratch, at 64 pixels: for drawings and small images

Mistyped names are found before torch is imported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contml._support.errors import InputError, did_you_mean
from contml._support.files import JOINTS, check_table_suffix
from contml.app.experiment.names import Preset, config_names, config_path, data_task, refuse_data, task_table
from contml.config import Document, check_name, read
from contml.config.source import check_numbers
from contml.runs import Run, open_run

if TYPE_CHECKING:
    from contml.app.experiment.building import Experiment

PRESETS = ("features", "finetune", "quick")
#: Overrides that name the network or the inputs. With one of them, no preset is chosen.
_FEATURES = "images.features="
_NAMES_NETWORK = ("backbone=", "model=", "model.backbone=", "model.weights=", _FEATURES)


def choose(name: str | None, weights: Path | None, config: str | None, overrides: Sequence[str]) -> Preset:
    """Choose the preset of your own data.

    Args:
        name: the preset that the user named, if any.
        weights: the file that the user named, if any.
        config: the config that the user named, if any.
        overrides: changes to the config, which may name the network.

    Raises:
        InputError: the file cannot be read, or fits no network; or the preset takes no file.
    """
    if name == "quick" and weights is not None:
        hint = "omit one of them, or use --preset features"
        raise InputError("--weights", "used with --preset quick, which trains a small network from scratch", hint=hint)
    naming = [o for o in overrides if o.startswith(_NAMES_NETWORK)]
    if name is None and weights is None and (config is not None or naming):
        from_features = all(o.startswith(_FEATURES) for o in naming) and naming[-1:] != [f"{_FEATURES}null"]
        return Preset(changes=("model.backbone=features",) if config is None and from_features else ())
    if name == "quick":
        return Preset("quick", (), "a small network from scratch")
    from contml.models import weights as known

    network, source = known.Architecture(known.DEFAULT_BACKBONE, 224), known.DEFAULT_WEIGHTS
    named = [o.removeprefix("model.backbone=") for o in overrides if o.startswith("model.backbone=")]
    if named:
        network, source = known.Architecture(named[-1], known.side_of(named[-1])), "DEFAULT"
    if weights is not None:
        network, source = network if named else known.architecture_of(weights.expanduser()), str(weights)
    elif name is None:
        file, address = known.default_file()
        if not file.is_file() or not known.is_whole(file):
            damaged = f"; {file} is damaged, remove it" if file.is_file() else ""
            hint = f"for photographs give a pretrained network, such as --weights {file.name} (from {address})"
            return Preset("quick", (), f"a small network from scratch; {hint}{damaged}")
    changes = f"model.backbone={network.backbone}", f"model.weights={json.dumps(source)}", "model.head_start=pca"
    crop = f"images.crop={network.side}"
    if name == "finetune":  # the pretrained network learns slowly, its new head fast
        rates = ("optimizer.lr=1e-4", "optimizer.head_lr=1e-3")
        images = (f"images.resize={network.side * 8 // 7}", crop, "transform.scale_jitter=12", "transform.shift=8")
        return Preset(name, (*changes, *images, *rates), f"all of {network.backbone} is trained, from {source}")
    # The images are the same in every epoch: features are kept.
    images = (f"images.resize={network.side}", crop, "images.flip=none", "transform=null")
    # Of normalized features more can be found: benchmarks/results/graded_features.md.
    head = ("model.frozen=true", "model.dim=128", "model.normalize=true", "training.evaluate_every=2")
    # A head on four parts knows where things are: benchmarks/results/presets.md, measured for this network.
    pool = ("model.pooling=average_2x2",) * (network.backbone == known.DEFAULT_BACKBONE)
    return Preset("features", (*changes, *head, *pool, *images), f"a head on {network.backbone}, frozen, with {source}")


#: Endings of files that are data, not configs.
_TABLES = (".csv", ".tsv", ".txt", ".gz", ".jsonl", ".ndjson", ".json", ".parquet", ".pq", ".xlsx", ".zip")
#: The override that takes the network of a run.
_NETWORK = "backbone="
#: The config of your own table if none is named; the task comes from an entry point.
_TABLE = "table/default"
#: The sections of a config that define which data are read, and how they are split.
_OF_DATA = ("task.", "images.", "training.")


def load(config: str, overrides: Sequence[str] = ()) -> Experiment:
    """Load the experiment of a config that comes with contml, by name, or of a YAML file, by path.

    The override `backbone=RUN` takes the trained network of a run: its weights, the options of its model, and the size
    of its images.

    Raises:
        InputError: there is no such config or run, or it has an error.
    """
    path, overrides = Path(config), _with_network(overrides)
    if path.suffix in (".yaml", ".yml") or (path.is_file() and not path.name.lower().endswith(_TABLES)):
        return _experiment(read(path, overrides), path.stem)
    if path.exists() and config not in config_names():
        if (path / "config.yaml").is_file():
            raise InputError(config, "a run, not a config", hint=f"continue it with 'contml train --resume {config}'")
        kind = "a folder" if path.is_dir() else "a table"
        raise InputError(config, f"{kind}, not a config", hint=f"your own data are given as --data {config}")
    return _experiment(read(config_path(config), overrides, f"config {config}", bundled=True), config)


#: Options of a run's images that its network expects.
_IMAGE_OPTIONS = ("resize", "crop", "features")


def _with_network(overrides: Sequence[str]) -> list[str]:
    """Return the overrides, with the options of a run's network in place of `backbone=RUN`."""
    network_overrides = [override for override in overrides if override.startswith(_NETWORK)]
    if not network_overrides:
        return list(overrides)
    run = open_run(Path(network_overrides[-1].removeprefix(_NETWORK)).expanduser())
    found = map(read(run.config).values.get, ("model", "images", "training"))
    model, images, training = (section if isinstance(section, dict) else {} for section in found)
    selected = "best" if training.get("select", "val") == "val" and training.get("epochs") != 0 else "last"
    weights = run.checkpoints / f"{selected}.safetensors"
    if not weights.is_file():
        raise InputError(f"backbone={run.folder}", f"no {weights.name}", hint="the run has not been trained to its end")
    options = {f"model.{name}": value for name, value in model.items()} | {"model.weights": str(weights)}
    options |= {f"images.{name}": images[name] for name in _IMAGE_OPTIONS if name in images}
    network = [f"{key}={_quoted(value)}" for key, value in options.items()]
    return [*network, *(o for o in overrides if o not in network_overrides)]  # the others may change it


class OwnData(NamedTuple):
    """Your own data, as the command line names them.

    Attributes:
        path: a table, or a folder of images.
        labels: the labels, as `NAME=KIND`, `NAME=KIND:WEIGHT`, or `NAME` (the kind is guessed).
        image: the column of images.
        box: the columns of the part of the image that belongs to each row.
        pattern: the meaning of the names of the images in a folder.
        preset: a name of `PRESETS`. If it is None, one is chosen.
        weights: a file of a pretrained network.
    """

    path: Path
    labels: Sequence[str] = ()
    image: str | None = None
    box: str | None = None
    pattern: str | None = None
    preset: str | None = None
    weights: Path | None = None

    def arguments(self) -> list[str]:
        """Return the arguments of a command that name these data."""
        options = {"--image": self.image, "--box": self.box, "--pattern": self.pattern, "--preset": self.preset}
        options["--weights"] = None if self.weights is None else str(self.weights)
        labels = [word for label in self.labels for word in ("--label", label)]
        option_arguments = [word for option, value in options.items() if value is not None for word in (option, value)]
        return ["--data", str(self.path), *labels, *option_arguments]

    def kinds(self) -> dict[str, str]:
        """Return the kind of each label.

        Raises:
            InputError: a label appears twice.
        """
        parsed_labels = [(label if "=" in label else f"{label}=auto").rpartition("=") for label in self.labels]
        names = [name.strip() for name, *_ in parsed_labels]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError("--label", f"{repeated[0]} appears twice", hint="give each label once")
        return {name.strip(): kind for name, _, kind in parsed_labels}

    def overrides(self) -> list[str]:
        """Return the changes to a config of the task that reads such data.

        Raises:
            InputError: a label appears twice.
        """
        options = {"data": str(self.path), "labels": self.kinds() or None, "image": self.image, "pattern": self.pattern}
        options["table.box"] = self.box
        return [f"task.{name}={_quoted(value)}" for name, value in options.items() if value is not None]

    def decided(self, config: str | None, overrides: Sequence[str]) -> OwnData:
        """Return these data with the preset that is chosen for them now."""
        return self._replace(preset=self.choose_preset(config, overrides).name or None)

    def choose_preset(self, config: str | None, overrides: Sequence[str]) -> Preset:
        """Choose the preset of these data, as `choose` does.

        Raises:
            InputError: there is no such preset, or as in `choose`.
        """
        if self.preset is not None and self.preset not in PRESETS:
            allowed = f"must be one of {', '.join(PRESETS)}"
            raise InputError("--preset", self.preset, allowed, did_you_mean(self.preset, PRESETS))
        return choose(self.preset, self.weights, config, overrides)


def load_table(own: OwnData, config: str | None = None, overrides: Sequence[str] = ()) -> Experiment:
    """Load the experiment of your own data.

    If no config is named, one is chosen that suits the labels and the size of the data. If neither the config nor an
    override names the network, a preset is chosen too.

    Args:
        own: the data.
        config: a config of the task that reads such data.
        overrides: changes to the config. They override the changes that the data make.

    Raises:
        InputError: an error in the data, in the labels or in the config.
    """
    if own.path.is_file():
        check_table_suffix(own.path, JOINTS)
    if own.pattern is None:
        is_read_otherwise = any(override.startswith("task.") for override in overrides)
        refuse_data(own.path.expanduser(), own.kinds(), own.image, only_kinds=is_read_otherwise)
    data_overrides, preset = own.overrides(), own.choose_preset(config, overrides)
    data_overrides += preset.changes
    if config is not None:
        experiment = load(config, [*data_overrides, *overrides])
        return replace(experiment, task=experiment.read_task(), preset=preset)

    def chosen(name: str, changes: Sequence[str], given: Sequence[str] = overrides) -> Experiment:
        """Return the experiment of a config that the user did not name. Errors do not name it either."""
        return _experiment(read(config_path(name), given, "", bundled=True, changes=changes), name)

    data_overrides.insert(0, f"task.name={data_task()}")
    try:
        table_experiment = chosen(_TABLE, data_overrides)  # mistyped names are found before the data are read
    except InputError:  # the override may be of a sampler or a loss that the config for these data has
        of_data = [override for override in overrides if override.startswith(_OF_DATA)]
        table_experiment = chosen(_TABLE, data_overrides, of_data)
    task = table_experiment.read_task()
    assert task.suggested is not None  # of a table
    built = table_experiment.with_built_task(task).built
    assert built is not None
    suggested, changes = task.suggested(built[0].train)
    if any(override.startswith(("sampler=", "sampler.name=")) for override in overrides):
        changes = [change for change in changes if not change.startswith("sampler")]
    return replace(chosen(suggested, [*data_overrides, *changes]), task=task, built=built, preset=preset)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_run(folder: Path, *, trust: bool = False) -> tuple[Experiment, Run]:
    """Load the experiment of a run folder. Its config may import code only with `trust`."""
    run = open_run(folder)
    return _experiment(read(run.config, trusted=trust), run.name), run


def load_embedding_run(folder: Path, *, trust: bool = False) -> tuple[Experiment, Run]:
    """Load a run whose results are rankings of items with labels.

    Raises:
        InputError: the run has other results.
    """
    experiment, run = load_run(folder, trust=trust)
    if experiment.results.unranked:
        raise InputError(str(folder), experiment.results.unranked, hint="give a run of embeddings of items with labels")
    return experiment, run


def _experiment(document: Document, name: str) -> Experiment:
    check_name(document, "task", task_table())
    check_numbers(document, "contml.app.experiment.parts:schema", task_table().path)
    from contml.app.experiment.parts import experiment  # here: it imports torch

    return experiment(document, name)
