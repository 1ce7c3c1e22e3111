"""Files that contml writes itself: checkpoints, run folders, caches, the trials of a sweep, features."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from support.fake_runs import poses, write_run
from support.miniature import TINY

from contml._support.tensors import save_tensors
from contml.app.experiment import saved_run, train_and_evaluate
from contml.app.experiment.loading import load
from contml.app.report.plots import metrics_plot, training_plot
from contml.app.trials.compare import compare
from contml.app.trials.space import parse_space
from contml.app.trials.sweep import ROUND, _SweepRecord
from contml.app.trials.sweep_result import Sweep, Trial, ranked
from contml.config import read
from contml.data import ImageFile, Images, Split, Task
from contml.data.features import with_features, write_features
from contml.data.identity import DataRecord
from contml.evaluation.evaluated import Evaluated, Selection, summary
from contml.labels import ClassLabels
from contml.labels.neighbours import NeighbourCache
from contml.runs import open_run
from contml.training.checkpoint import load_numbers, load_state, load_weights, save_state

from .base import Kind, changed_file

# files that contml writes


def build_checkpoints(folder: Path) -> None:
    """Weights and the state of a training."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_tensors(folder / "last.safetensors", model.state_dict(), epoch=1, config={"seed": 0})
    numbers = {"epoch": 1, "step": 0, "config": {}, "finished": False, "schedule": {}, "scaler": None}
    save_state(folder / "state.safetensors", {"model": model.state_dict()}, optimizer.state_dict(), numbers)


def read_checkpoints(folder: Path, random: Random) -> None:
    """Reads all that a resumed training reads."""
    load_weights(folder / "last.safetensors")
    load_state(folder / "state.safetensors")
    load_numbers(folder / "state.safetensors")


def build_runs(folder: Path) -> None:
    """Two run folders with metrics; data, embeddings."""
    chosen = Selection("label_distance@10", 40, 0.3, 0.4, -0.1, 0.05)
    for name, share, lr in (("one", 0.5, 0.002), ("two", 0.4, 0.01)):
        results = [
            Evaluated(poses(share, k=20), "test", "best", 2, 2, chosen),
            Evaluated(poses(0.6, k=20), "test", "last", 2, 2),
        ]
        write_run(
            folder / name,
            evaluated=results,
            optimizer={"name": "adamw", "lr": lr},
            published={"source": "a paper", "recall@1": 0.5},
        )
    rows = [{"event": "train", "epoch": 1, "step": 1, "loss": 0.5, "learning_rate": 0.1}]
    rows += [
        {
            "event": "evaluation",
            "epoch": 2,
            "step": 2,
            "split": "val",
            "metric": "label_distance@10",
            "label_distance@10": 5.0,
        }
    ]
    rows += [{"event": "train", "epoch": 2, "step": 2, "loss": 0.5, "learning_rate": 0.1}]
    (folder / "one" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record()[0].save(folder / "one" / "data.safetensors")


def record() -> tuple[DataRecord, DataRecord]:
    """The record of some data, and that of other data."""
    names = {"train": ["a", "b", "c"], "test": ["d", "e"]}
    labels = {split: [f"{name}0" for name in items] for split, items in names.items()}
    return DataRecord(names, labels, {"train": [], "test": [0]}), DataRecord(
        {**names, "test": ["d"]}, {**labels, "test": ["d1"]}, {"train": [], "test": []}
    )


def read_runs(folder: Path, random: Random) -> None:
    """Compares both runs, and reads what a report of the first reads."""
    options: Any = random.choice(({}, {"metrics": ["ndcg@10"]}))
    found = compare([folder], **options)
    found.markdown(), json.dumps(found.as_data())


def read_report(folder: Path, random: Random) -> None:
    """Reads what a report reads: the config, the data, the evaluation and the metrics."""
    read(folder / "one" / "config.yaml", trusted=False)
    before, now = DataRecord.load(folder / "one" / "data.safetensors"), record()[1]
    before.changes(now)
    for split in before.names:
        before.rows(split, now)
    run = open_run(folder / "one")
    evaluated = saved_run.read_evaluation(run)
    rows = run.rows()
    evaluated.description, evaluated.doubt, summary(evaluated.evaluation)
    training_plot(rows, evaluated)
    metrics_plot(evaluated.evaluation)
    run.rewind(1)


def build_trained(folder: Path) -> None:
    """A run folder of a training that takes a second."""
    run = train_and_evaluate.train(
        load("pose/synthetic", [*TINY, "sampler.batches=2", "training.epochs=1", "training.select=none"]),
        folder / "runs",
        folder=folder / "run",
    )
    assert run is not None


def read_trained(folder: Path, random: Random) -> None:
    """Resumes, evaluates, or reports the run: what reads the changed file."""
    run = folder / "run"
    names = tuple(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    name = changed_file(run, names)
    steps = [train_and_evaluate.evaluate_run, train_and_evaluate.report_run, train_and_evaluate.resume]
    wanted = (
        2
        if name.startswith("checkpoints/state")
        else 0
        if name.startswith("checkpoints")
        else 1
        if name.startswith("emb")
        else random.randrange(3)
    )
    with redirect_stderr(io.StringIO()):
        steps[wanted](run)


# caches


def cached_split(folder: Path) -> Split:
    """Four images in files."""
    return Split(
        [ImageFile(folder / f"{row}.png") for row in range(4)],
        [f"{row}.png" for row in range(4)],
        ClassLabels([0, 0, 1, 1]),
    )


def build_image_cache(folder: Path) -> None:
    """Four images and the cache of them."""
    for row in range(4):
        Image.new("RGB", (6, 5), (40 * row, 10, 10)).save(folder / f"{row}.png")
    fill(folder)


def fill(folder: Path) -> None:
    """Fills the cache, and reads its images."""
    with redirect_stderr(io.StringIO()):
        images = Images(8, 8, cache=folder / "cache")
        images.fill(cached_split(folder))
        list(images.test_batches(cached_split(folder), None, 4))


def build_neighbours(folder: Path) -> None:
    """A cache of neighbours: the whole search, and its parts."""
    neighbours(folder)


def neighbours(folder: Path) -> None:
    """Searches in a cache."""
    rows = torch.arange(6)
    found = NeighbourCache(folder, "labels", 2, rows, rows).get(
        lambda rows, _: (torch.zeros(len(rows), 2), torch.zeros(len(rows), 2, dtype=torch.long)), None
    )
    assert found[0].shape == (6, 2)
    assert found[1].dtype == torch.int64
    assert int(found[1].min()) >= 0
    assert int(found[1].max()) < 6


SPEC = {
    "config": {"loss": {"margin": 0.1}},
    "space": {"loss.margin": "0.1,0.2"},
    "sampler": "grid",
    "seeds": 1,
    "folds": 1,
    ROUND: None,
}


def build_trials(folder: Path) -> None:
    """The file of a sweep."""
    record = _SweepRecord(folder / "trials.jsonl", SPEC, SPEC)
    about = {"metric": "label_distance@10", "queries": 20, "epoch": 1, "untrained": False, "run": "run"}
    for n in range(4):
        record.add(f"trial {n}", {**({"value": 0.5, **about} if n else {"error": "diverged"}), "seconds": 3.0})


def read_trials(folder: Path, random: Random) -> None:
    """Goes on with the sweep, and ranks its trials."""
    path = folder / "trials.jsonl"
    record = _SweepRecord(path, SPEC, SPEC)
    trials = [Trial.of(n, {"loss.margin": 0.1}, {(0, None): each}, folder) for n, each in enumerate(record.values())]
    if trials and not (found := ranked(trials))[0].error:
        sweep = Sweep(folder, parse_space(["loss.margin=0.1,0.2"]), tuple(found), ())
        sweep.table(), sweep.sentences(), json.dumps(sweep.as_data())


def build_features(folder: Path) -> None:
    """Features of four images, in three formats."""
    build_image_cache(folder)
    for suffix in ("npz", "npy", "parquet"):
        names = [f"{row}.png" for row in range(4)]
        write_features(folder / f"features.{suffix}", names, ["train"] * 4, np.eye(4, 3, dtype=np.float32))


def read_features(folder: Path, random: Random) -> None:
    """Replaces images by features."""
    split = cached_split(folder)
    task = Task(split, replace(split, names=["x", *split.names[1:]]) if random.random() < 0.1 else split)
    name = changed_file(folder, ("features.npz", "features.npy", "features.parquet"))
    with_features(Task(split.subset([0, 1, 2]), split.subset([3])) if random.random() < 0.9 else task, folder / name)


KINDS = {
    "checkpoint": Kind(build_checkpoints, read_checkpoints, ("*",), 5),
    "runs": Kind(build_runs, read_runs, ("*/config.yaml", "*/metrics.jsonl", "*/evaluation*.json"), 8),
    "report": Kind(build_runs, read_report, ("one/*",), 4, restore=True),
    "trained": Kind(
        build_trained, read_trained, ("run/config.yaml", "run/*.json*", "run/*/*.safetensors"), 1, restore=True
    ),
    "image_cache": Kind(
        build_image_cache, lambda folder, _: fill(folder), ("cache/*.entries", "cache/*.pixels"), 4, restore=True
    ),
    "neighbours": Kind(build_neighbours, lambda folder, _: neighbours(folder), ("*.safetensors",), 4, restore=True),
    "trials": Kind(build_trials, read_trials, ("trials.jsonl",), 5, restore=True),
    "features": Kind(build_features, read_features, ("features.*",), 3),
}
