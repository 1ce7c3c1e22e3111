"""The commands of the docs: found in the pages as they are typed, with the files that they name, and made short.

A page is typed from top to bottom in one folder. The folder holds what the page assumes: a table of photographs, a run,
and each data set in a miniature of its official layout, in the place that the command names (`FOLDER`,
`data/CUB_200_2011`). A command is run as it is typed; what makes it take seconds is appended to it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import typer.main
from PIL import Image

from contml.app.cli.commands import app
from contml.app.cli.options import _own_data as own_data, load_experiment
from contml.app.experiment import Experiment
from contml.models.backbones import build
from contml.tasks.layout import lsun

from .caption_sets import scenes, write_coco, write_flickr, write_karpathy
from .class_copies import published
from .class_layouts import write_cars_old, write_class_table, write_cub, write_inshop, write_sop
from .layouts import write_label_maps, write_lsun
from .paths import ROOT
from .pose_sets import pose_files, write_keypoints, write_lsp, write_mpii
from .tables import dials, write_judgments, write_table

#: Every page with commands: Markdown, and the heads of configs.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("configs/*/*.yaml")]
    if path.name != "CHANGELOG.md"
)


class Command(NamedTuple):
    """A command as typed, without environment variables, and the block of the page that it is in; None: a sentence."""

    words: list[str]
    block: int | None


def commands(page: str) -> list[Command]:
    """The commands of a page in order: those of code blocks, and those between backticks or quotes in the text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = _of_head(text) if page.endswith(".yaml") else _of_markdown(text)
    weights = "model.weights=FILE"  # whose name has an ending
    return [Command([f"{word}.pth" if word == weights else word for word in words], block) for words, block in found]


def protocol_rows() -> list[list[str]]:
    """The words after `contml train` in the tables of docs/classes.md."""
    text = (ROOT / "docs/classes.md").read_text(encoding="utf-8")
    return [shlex.split(row) for row in re.findall(r"\| `(classes/[^`]+)` \|$", text, re.MULTILINE)]


#: Names of programs with which a line of a block, or a span of code, is a command.
PROGRAMS = r"(?:\.venv/bin/)?(?:contml|python3?|pip|accelerate|sphinx-build|hf|wandb|tensorboard)|git|source|curl|cd"
_COMMAND = re.compile(rf"(?:{PROGRAMS}) \S")
_ENVIRONMENT = r"(?:[A-Z_]+=\S+ )*"


def _words(command: str) -> list[str]:
    return shlex.split(re.sub(f"^{_ENVIRONMENT}", "", command))


def _of_markdown(text: str) -> list[Command]:
    found: list[Command] = []
    sentences: list[str] = []
    language, block = None, 0  # of the code block; None: outside
    loop: tuple[str, list[str]] = ("", [])
    text = re.sub(r"(?<!\\)\\\n\s*", "", text)  # a command on several lines
    for line in [*text.splitlines(), ""]:
        if match := re.match(r"\s*```(\w*)", line):
            language = match[1] if language is None else None
            block += 1
            continue
        if language is None and not line.startswith("    "):
            sentences.append(line)
            continue
        found += _in_sentences(sentences)
        sentences = []
        if language == "text":
            found += [Command(_words(each), None) for each in re.findall(r"(?:: |^)(contml .*)", line)]
        elif match := re.fullmatch(r"for (\w+) in (.*); do", line):
            loop = f"${match[1]}", match[2].split()[:2]
        elif language in ("sh", "", None):
            for part in re.split(r"\s+#", line)[0].strip().split(" && "):
                if part == "done":
                    loop = "", []
                elif part and (language == "sh" or _COMMAND.match(part)):
                    turns = loop[1] if loop[0] and loop[0] in part else [""]
                    found += [Command(_words(part.replace(loop[0], turn) if turn else part), block) for turn in turns]
    return found + _in_sentences(sentences)


def _in_sentences(lines: Sequence[str], quote: str = "`") -> list[Command]:
    spans = [" ".join(span.split()) for span in re.findall(f"{quote}([^{quote}]+){quote}", "\n".join(lines))]
    parts = [part for span in spans for part in re.split(" && |; ", span)]
    return [Command(_words(part), None) for part in parts if re.match(f"{_ENVIRONMENT}(?:{PROGRAMS}) \\S", part)]


def _of_head(text: str) -> list[Command]:
    """The commands of a config's head: lines that begin with one, with the indented lines of KEY=VALUE below."""
    head = [line.removeprefix("#") for line in text.splitlines() if line.startswith("#")]
    found, before = [], False
    for line in head:
        words = re.split(r"\s+\(", line)[0].split()
        if re.match(r"\s{2,}contml ", line):
            found.append(Command(shlex.split(line.partition("  (")[0]), 0))
            before = True
        elif before and words and line.startswith("     ") and all("=" in word for word in words):
            found[-1].words.extend(words)
        else:
            before = False
    return found + _in_sentences([line.strip() for line in head], "'")


# ---------------------------------------------------------------------------------------------------------------------
# what makes a command short

#: Overrides that make the data set of each task small.
SMALL = {
    "pose/synthetic": ["task.train=40", "task.val=16", "task.test=20", "task.queries=4"],
    "pose/mpii": ["task.queries=4", "task.side=40"],
    "pose/coco": ["task.min_size=20", "task.side=40"],
    "pose/lsp": ["task.min_joints=9", "task.side=40"],
    "classes/synthetic": [
        "task.classes=8", "task.per_class=5", "task.val_classes=4", "task.val_per_class=5", "task.test_classes=4",
        "task.test_per_class=5",
    ],
    "layout/synthetic": ["task.train=40", "task.val=16", "task.test=20", "task.queries=4", "task.size=32"],
    "captions/synthetic": ["task.train=40", "task.val=16", "task.test=20", "task.queries=4", "task.size=32"],
    "captions/coco": ["task.queries=4"],
    "scalar/judged": ["task.train=40", "task.val=16", "task.test=20", "task.judgments=200", "task.size=32"],
    "scalar/synthetic": ["task.train=40", "task.val=16", "task.test=20", "task.queries=4", "task.size=32"],
}  # fmt: skip
TRANSFORMS = {
    "crop": ["transform.scale_jitter=2", "transform.shift=1"],
    "torchvision:RandomCrop": ["transform.size=32"],
    "torchvision:RandomResizedCrop": ["transform.size=32"],
}
BATCHES = {
    "triplets": ["sampler.triplets=4"],
    "dense": ["sampler.batch_size=12", "sampler.anchors_per_batch=2"],
    "classes": ["sampler.classes=4", "sampler.instances=3"],
    "uniform": ["sampler.batch_size=12"],
    "judged": ["sampler.batch_size=12"],
}


def write_poses(folder: Path) -> None:
    """Joints, and the split in a file of its own."""
    values = pose_files(folder, items=50)
    names, split = values["names"].tolist(), values["split"].tolist()
    parts = {"train": ["train"], "test": ["test", "query"], "queries": ["query"]}
    lists = {part: [n for n, own in zip(names, split, strict=True) if own in kinds] for part, kinds in parts.items()}
    (folder / "split.json").write_text(json.dumps(lists))


def write_package(folder: Path) -> None:
    """A table of images with the number and the name of their class."""
    write_class_table(folder, kind="kind {0} 20{0:02d}")
    head, *rows = (folder / "images.csv").read_text().splitlines()
    lines = [f"{head},class_id", *(f"{row},{row.split('kind ')[1].split()[0]}" for row in rows)]
    (folder / "images.csv").write_text("\n".join(lines) + "\n")


#: The data set of each task in its official layout, written into a folder.
LAYOUTS = {
    "pose/mpii": lambda folder: write_mpii(folder, images=40, frames_a_video=3),
    "pose/coco": lambda folder: write_keypoints(folder, train=20),
    "pose/lsp": write_lsp,
    "classes/cub": write_cub,
    "classes/cars": write_cars_old,
    "classes/sop": write_sop,
    "classes/inshop": write_inshop,
    "layout/lsun": lambda folder: write_lsun(folder, 40, 20),
    "captions/coco": write_coco,
    "captions/flickr": write_flickr,
}
#: What the folder of a table has, by the name of the table.
TABLES = {"joints.npz": write_poses, "images.csv": write_package, "pairs.csv": write_label_maps}


def short(experiment: Experiment, words: Sequence[str], *, own: bool = False, small: bool = False) -> list[str]:
    """Overrides that make an experiment a matter of seconds.

    Args:
        experiment: as the command names it.
        words: the words of the command.
        own: it trains on the user's own data, which its batches fit already.
        small: with a small network, unless the command names one.
    """
    parts = experiment.config.parts
    changes = list(SMALL.get(parts["task"].name, []))
    if parts["task"].name == "table/file" and parts["task"].options["queries"]:
        changes.append("task.queries=4")
    if not own:
        changes += BATCHES[parts["sampler"].name]
    if not any(word.startswith(("backbone=", "images.features=")) for word in words):
        crop = 36 if parts["model"].options.get("pooling") == "average_2x2" else 32  # whose maps need 2 x 2 places
        changes += ["images.resize=36", f"images.crop={crop}", *TRANSFORMS[parts["transform"].name]]
    if small and not any(word.startswith(("model.", "backbone=")) for word in words):
        changes += ["model.backbone=small_cnn", "model.weights=none"]
        changes += ["model.pooling=average"] * ("pooling" in parts["model"].options)
    return [*changes, "images.workers=0"]


def one_step(experiment: Experiment) -> list[str]:
    """Overrides with which a training takes one step in each of its phases."""
    changes = ["training.epochs=1", "training.evaluate_every=1", "sampler.batches=1"]
    if not experiment.results.embeds:
        phases = ["step.cross_entropy_epochs=1", "captioner.threshold=1", "captioner.length=6"]
        changes += ["training.epochs=3", "step.embedding_epochs=1"] if "loss" in experiment.config.parts else []
        changes += [*phases, *([] if "loss" in experiment.config.parts else ["training.epochs=2"])]
    return changes


def parsed(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a command, as the command line reads them.

    Raises:
        click.UsageError: an option does not exist, or an argument is missing.
    """
    name, *arguments = words[1:]
    return name, app_commands()[name].make_context(name, list(arguments)).params


@cache
def app_commands() -> Mapping[str, Any]:
    """The commands of contml by name."""
    return typer.main.get_command(app).commands


def experiment_of(params: dict[str, Any], more: Sequence[str] = ()) -> Experiment:
    """The experiment that the arguments of `train`, `check`, `features` or `sweep` name."""
    data = {name: params[name] for name in ("data", "label", "image", "box", "pattern", "preset", "weights")}
    return load_experiment(params["config"], [*(params["overrides"] or []), *more], own_data(**data))


# ---------------------------------------------------------------------------------------------------------------------
# the files that a page assumes


def use_counts_of_miniatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published data sets have the numbers of images of their miniatures."""
    for name in ("cub", "cars_old", "sop", "inshop"):
        published(monkeypatch, name)
    for part, count in (("_TRAINING", 40), ("_VALIDATION", 20)):
        monkeypatch.setattr(lsun, part, getattr(lsun, part)._replace(images=count))


def write_world(folder: Path, run: Path) -> None:
    """What every page assumes: a table of photographs, photographs to search with, and RUN, a run folder."""
    rows = []
    for number, row in enumerate(dials(folder)):
        photo = Path("photos", row["colour"], f"{20 + int(float(row['reading']) / 2)}_{'fm'[number % 2]}_{number}.jpg")
        (folder / photo).parent.mkdir(parents=True, exist_ok=True)
        with Image.open(folder / row["image"]) as picture:
            picture.save(folder / photo)
        price, age = 1000 + 10 * float(row["reading"]), photo.name.partition("_")[0]
        group = {"house": f"house {number // 3}", "person": f"person {number // 3}"}
        rows.append({"image": photo, "price": price, "age": age, "species": f"kind {number % 10}", **group})
    write_table(folder / "items.csv", rows)
    write_judgments(folder)
    for name in ("query.jpg", "photo.jpg"):
        shutil.copy(folder / photo, folder / name)
    (folder / "RUN").symlink_to(run)


def write_files(experiment: Experiment, *, weights: bool = True) -> None:
    """The data set, word vectors and weights that a command names, in the current folder, if they do not exist yet."""
    task = experiment.config.parts["task"]
    write_layout(task.name, task.options.get("root"), karpathy=task.options.get("karpathy") is not None)
    table = Path(task.options.get("data") or "")
    if table.name in TABLES and not table.exists():
        TABLES[table.name](table.parent)
    vectors = task.options.get("vectors")
    if vectors and not Path(vectors).exists():
        words = sorted({word for _, captions in scenes() for text in captions for word in text.lower().split()})
        random = np.random.default_rng(0)
        entries = [f"{word} ".encode() + random.standard_normal(20, np.float32).tobytes() for word in words]
        Path(vectors).write_bytes(f"{len(words)} 20\n".encode() + b"".join(entries))  # word2vec, binary
    if weights:
        write_weights(experiment.config.parts["model"].options)


def write_layout(task: str, root: str | None, *, karpathy: bool = False) -> None:
    """The data set of a task in its official layout, if the folder does not exist; `karpathy`: and that file."""
    if root is None or task not in LAYOUTS or Path(root).exists():
        return
    folder = Path(root).parent if Path(root).name == "CUB_200_2011" else Path(root)
    if karpathy:
        write_karpathy(folder, coco=task == "captions/coco")
    else:
        LAYOUTS[task](folder)


def write_weights(model: Mapping[str, Any]) -> None:
    """Random weights in place of the published ones that a model names: in a file, or where torchvision keeps them."""
    from torchvision import models  # here: it takes two seconds to import

    name, weights = str(model["backbone"]), str(model["weights"])
    if weights == "none" or name == "features" or ":" in name:
        return
    registered = [] if name not in models.list_models() else models.get_model_weights(name)
    if weights in (each.name for each in registered) or weights == "DEFAULT":
        path = Path(torch.hub.get_dir(), "checkpoints", models.get_model_weights(name)[weights].url.rpartition("/")[2])
    else:
        path = Path(weights)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        network = build(name, "none").backbone if not registered else models.get_model(name)
        torch.save(network.state_dict(), path)
