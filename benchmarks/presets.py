"""The preset `features` against the untrained features, and its head against others: `benchmarks/results/presets.md`.

    python -m benchmarks.presets data=FOLDER weights=FILE

FOLDER holds the data packs of the maintainers, FILE is `mobilenet_v2-b0353104.pth` of torchvision; EfficientNet-Lite2
is that of `benchmarks/efficientnet.py`. A finished training is a line of `benchmarks/results/raw/presets.jsonl`; the
same command goes on. Every item of the test split is a query
against all others, without its own group. The untrained features are normalized or not, as is better on
the validation split. Intervals are over seeds and groups of queries (`contml.app.trials.statistics`).

Heads on means of 2 x 2 and 4 x 4 parts of the feature map were added on 1 December 2026, when the preset had the mean
of the map, and poses were measured again, in pixels. Known: with tuned options and 512 principal components, 4 x 4
positions are above the mean by .07 on poses and .02 on rooms, within noise on captions, and .04 below on house prices
(`features_pooled.md`). Predictions: the same signs here, 4 x 4 parts above by .04 or more on poses; 2 x 2 parts gain
half of that on poses and rooms, and are within noise on captions and houses.

The same at 224 pixels was added later on that day. Known: at 128 pixels, 2 x 2 parts are above the mean by .094 on
rooms and .059 on poses, and within .008 of it on houses and captions. Prediction: above by .06 or more on rooms and
.03 or more on poses, within noise on houses and captions. Rule: if the intervals of rooms and poses are above 0 and
no other is below it, 2 x 2 parts become the preset. They did. A table of classes has this preset too: `cars` is the
same comparison by Recall@1 of classes that training has not seen. Prediction: within noise.

The parts of EfficientNet-Lite2, at 128 pixels, were added last. Prediction: above its mean by .05 or more on rooms and
.03 or more on poses, within noise on houses and captions.

So was `label_power: 2` of `log_ratio`, which the validation splits of `features_2x2.md` chose with `squared: false` for
poses, rooms and captions, not for house prices. Prediction: above by .005 to .02 on poses and rooms, within noise on
houses. Poses were left out by mistake: `squared: true`, of their config, trains like power 1 of plain distances.

Losses in the preset were added after the suite `preset_losses`, which chooses the options of each loss and set on the
validation split and measures the last weights. On captions these have .40, where the preset, which takes the best
weights by the validation split, has .463. So each loss is trained here as README's commands do, with the options that
the suite chose. Predictions: all losses but triplets have .44 or more on captions; regression is below log_ratio by .03
or more on poses and rooms; triplets are below it on captions and houses; the others are within .02 of it on poses,
rooms and captions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.efficientnet import lite2
from contml import InputError
from contml.app.experiment import Experiment, load
from contml.app.experiment.loading import choose
from contml.app.trials.measure import is_slow
from contml.app.trials.plan import cells
from contml.app.trials.record import FinishedTrainings
from contml.app.trials.statistics import estimate
from contml.app.trials.suite import read_suite
from contml.data import Split, Task
from contml.evaluation.evaluators import Found
from contml.evaluation.results import Evaluation, Ranking
from contml.labels import MatrixLabels
from contml.models import EmbeddingModel
from contml.tasks.table.text_labels import CaptionsLabel

#: The images of the packs are of about this side: larger ones would only be blurred.
SIDE = 128
SEEDS = (0, 1, 2)
#: The sets: a config, and changes to it.
SETS = {
    "houses": (
        "table/default",
        ("task.data=$/houses_535/houses.csv", "task.labels={price_usd: number:log}", "task.group=house"),
    ),
    "captions": (
        "captions/flickr8k",
        (
            *("task.root=$/flickr8k_1500", "task.images=images", "task.missing=drop"),
            *(
                f"task.{split}=official_lists/Flickr_8k.{name}Images.txt"
                for split, name in (("train", "train"), ("val", "dev"), ("test", "test"))
            ),
            "task.vectors=word_vectors/glove.6B.50d.flickr8k.txt.gz",
            f"loss={CaptionsLabel.loss}",  # as for a table with captions
        ),
    ),
    "rooms": ("layout/nyuv2", ("task.data=$/rooms_nyuv2/pairs.csv", "task.frame=nyu_index", "task.exclude_group=true")),
    "poses": ("pose/lspet", ("task.data=$/pose_lspet/joints.npz",)),
    "cars": ("classes/cars196_small", ("task.data=$/cars196_small/images.csv",)),
}
_LITE2 = "model.backbone=benchmarks.efficientnet:lite2"
_LARGE = ("images.resize=224", "images.crop=224")  # as the preset has them
#: The head that was the preset until 1 December 2026.
MEAN = "model.pooling=average"
#: Networks, and heads in place of the preset's: changes to the preset. For networks other than MobileNetV2, the preset
#: has the mean of the map.
NETWORKS = {"MobileNetV2, 128 px": (), "EfficientNet-Lite2, 128 px": (_LITE2,), "MobileNetV2, 224 px": _LARGE}
HEADS = {
    "mean of the map": (MEAN,),
    "mean of the map, from random numbers": (MEAN, "model.head_start=random"),
    "4 x 4 parts": ("model.pooling=average_4x4",),
    "mean of the map, 224 px": (*_LARGE, MEAN),
    "2 x 2 parts, 224 px, label_power 2": (*_LARGE, "loss.label_power=2"),
    "2 x 2 parts, EfficientNet-Lite2": (_LITE2, "model.pooling=average_2x2"),
}
#: The rows of the table of heads: what is shown, and what it is compared with.
COMPARED = {
    "MobileNetV2, 128 px": None,
    "mean of the map": "MobileNetV2, 128 px",
    "mean of the map, untrained": "MobileNetV2, 128 px",
    "mean of the map, from random numbers": "mean of the map",
    "4 x 4 parts": "MobileNetV2, 128 px",
    "MobileNetV2, 224 px": None,
    "mean of the map, 224 px": "MobileNetV2, 224 px",
    "mean of the map, 224 px, untrained": "MobileNetV2, 224 px",
    "2 x 2 parts, 224 px, label_power 2": "MobileNetV2, 224 px",
    "EfficientNet-Lite2, 128 px": None,
    "2 x 2 parts, EfficientNet-Lite2": "EfficientNet-Lite2, 128 px",
}
#: Sets that only these networks and heads are trained on, or all except these.
ONLY = {"cars": {"MobileNetV2, 224 px", "mean of the map, 224 px"}}
_POWER = {"2 x 2 parts, 224 px, label_power 2"}
EXCEPT = {"captions": _POWER, "poses": _POWER}  # another loss; not trained
#: The suite that chooses the options of a loss, its losses, and its names of sets.
SUITE = "preset_losses"
LOSSES = {
    "log_ratio": "log_ratio",
    "smooth_rank": "smooth_rank, ap",
    "graded_instance_cross_entropy": "graded_instance_cross_entropy",
    "triplet_margin": "triplet_margin, 30 nearest positive",
    "regression": "regression",
}
GRADED = {"poses": "poses", "rooms": "rooms", "captions": "captions", "houses": "house prices"}
#: Own data are trained by `table/default`, classes by `table/classes`: their sampler, optimizer and length.
TABLE = ("sampler", "optimizer", "schedule", "training")
RAW = Path(__file__).parent / "results" / "raw" / "presets.jsonl"


def experiment_of(name: str, data: str, weights: str, seed: int, more: Sequence[str] = ()) -> Experiment:
    """The experiment of a set with the preset, as `contml train --data` makes it; `more`: further changes."""
    config, changes = SETS[name]
    table = load("table/classes" if name == "cars" else "table/default").values
    same = [f"{section}={json.dumps(table[section])}" for section in TABLE]
    preset = choose("features", Path(weights), None, more)
    model = ["model.freeze_batch_norm=false", f"images.resize={SIDE}", f"images.crop={SIDE}"]
    return load(
        config, [*(c.replace("$", data) for c in changes), *same, *preset.changes, *model, *more, f"seed={seed}"]
    )


def loss_changes(loss: str, name: str) -> tuple[str, ...]:
    """The changes to the preset that a loss has on a set: the changes of its suite, and the options chosen there."""
    suite, results = read_suite(str(RAW.parents[2] / f"suites/{SUITE}.yaml")), FinishedTrainings(RAW.with_stem(SUITE))
    place = GRADED[name], LOSSES[loss]
    (cell,) = (each for each in cells(suite, {}) if (each.set_name, each.method_name) == place)
    return (*_LARGE, *suite.methods[LOSSES[loss]].changes, *cell.tests(results)[0].options.split())


def trainings(data: str, weights: str, sets: Sequence[str] = tuple(SETS)) -> Iterator[dict[str, Any]]:
    """Trains each variant on its sets with each seed that has no line yet."""
    done = {(row["variant"], row["set"], row["seed"]) for row in read()}
    tasks: dict[str, Task] = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant in (*NETWORKS, *HEADS, *LOSSES):
            for seed, name in itertools.product(SEEDS, SETS):
                left_out = variant not in ONLY.get(name, {variant}) or variant in EXCEPT.get(name, ())
                left_out |= variant in LOSSES and name not in GRADED
                if (variant, name, seed) in done or left_out or name not in sets:
                    continue
                changes = loss_changes(variant, name) if variant in LOSSES else (NETWORKS | HEADS)[variant]
                file = _lite2_file(Path(folder)) if _LITE2 in changes else weights
                experiment = experiment_of(name, data, file, seed, changes)
                if name not in tasks:
                    tasks[name] = with_matrices(experiment.build_task())
                yield {"variant": variant, "set": name, "seed": seed, **train(experiment, tasks[name])}


def _lite2_file(folder: Path) -> str:
    """The weights of EfficientNet-Lite2 as `--weights` takes them."""
    file = folder / "efficientnet_lite2.pth"
    if not file.exists():
        torch.save(lite2().state_dict(), file)
    return str(file)


def with_matrices(task: Task) -> Task:
    """The task with label distances that are computed once, where each batch would take long."""
    splits = {
        name: replace(split, labels=MatrixLabels(split.labels.pairwise())) if is_slow(split.labels) else split
        for name, split in task.splits.items()
    }
    return task.with_splits(splits)


def train(experiment: Experiment, task: Task) -> dict[str, Any]:
    """One training: the score of each query of the test split by the model, and by the untrained features."""
    start = time.process_time()
    trainer = experiment.build_trainer(task, quiet=True)
    assert isinstance(trainer.bare_model, EmbeddingModel)
    features = trainer.bare_model.without_head()
    trainer.fit()
    seconds = time.process_time() - start
    trainer.take_best()
    assert task.val is not None
    scores = {}
    for normalized in (False, True):
        features.normalize = normalized
        scores[normalized] = trainer.evaluate(task.val, features)[0].main.normalized()
    features.normalize = scores[True] > scores[False]
    split = every_query(task.evaluated)
    assert trainer.best is not None
    evaluation, ranking = trainer.evaluate(split)[:2]
    assert isinstance(ranking, Ranking)
    return {
        "model": per_query(evaluation, ranking),
        "features": per_query(*trainer.evaluate(split, features)[:2]),
        "normalized": features.normalize,
        "epoch": trainer.best.epoch,
        "chosen": trainer.best.features is not None and trainer.best.features.chosen,
        "groups": list(range(len(split))) if ranking.items is None else ranking.items[:, 0].tolist(),
        "seconds": round(seconds, 1),
    }


def every_query(split: Split) -> Split:
    """The split, in which every item is a query."""
    return replace(split, queries=None, gallery=None)


def per_query(evaluation: Evaluation, ranking: Found) -> list[float]:
    """The normalized score of each query, whose mean is that of the split."""
    assert isinstance(ranking, Ranking)
    span = float((ranking.random_values - ranking.oracle_values).mean())
    assert evaluation.queries == len(ranking.values)
    return [round(value, 4) for value in ((ranking.random_values - ranking.values) / span).tolist()]


def read() -> list[dict[str, Any]]:
    """The finished trainings."""
    return [json.loads(line) for line in RAW.read_text(encoding="utf-8").splitlines()] if RAW.exists() else []


def table() -> str:
    """The first table of the page: the preset against the untrained features, with each network."""
    heads = ("network", "set", "queries", "untrained features", "preset `features`", "difference", "seconds")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for variant, name in itertools.product(NETWORKS, SETS):
        rows = rows_of(variant, name)
        if len(rows) < len(SEEDS):
            continue
        model, features = (np.array([row[key] for row in rows]) for key in ("model", "features"))
        means = (f"{features.mean():.3f}", f"{model.mean():.3f}", difference(model, features, rows[0]["groups"]))
        cells = (variant, name, f"{model.shape[1]:,}", *means, f"{np.mean([row['seconds'] for row in rows]):.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_heads() -> str:
    """The second table: heads of MobileNetV2 against others."""
    names = ("head", "minus", *(f"{name}{what}" for name in SETS for what in ("", ", difference")))
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for shown, base in COMPARED.items():
        variant, key = shown.removesuffix(", untrained"), "features" if shown.endswith(", untrained") else "model"
        cells = [_shown(shown), _shown(base)]
        for name in SETS:
            rows = rows_of(variant, name)
            if len(rows) < len(SEEDS):
                cells += ["", ""]
                continue
            scores = np.array([row[key] for row in rows])
            others = [row["model"] for row in rows_of(base, name)] if base else None
            cells += [f"{scores.mean():.3f}", difference(scores, np.array(others), rows[0]["groups"]) if others else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_losses() -> str:
    """The third table: losses in the preset, and their differences to log-ratio."""
    names = ("loss", *(f"{name}{what}" for name in (*GRADED, "mean") for what in ("", ", difference")))
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    found = {loss: [np.array([row["model"] for row in rows_of(loss, name)]) for name in GRADED] for loss in LOSSES}
    if any(len(scores) < len(SEEDS) for sets in found.values() for scores in sets):
        return ""
    groups = [rows_of("log_ratio", name)[0]["groups"] for name in GRADED]
    for loss, sets in found.items():
        shown = [f"`{loss}`"]
        gaps = [scores - others for scores, others in zip(sets, found["log_ratio"], strict=True)]
        for scores, gap, own in zip(sets, gaps, groups, strict=True):
            shown += [f"{scores.mean():.3f}", _interval([gap], [own]) if gap.any() else ""]
        shown += [f"{np.mean([scores.mean() for scores in sets]):.3f}", _interval(gaps, groups) if gap.any() else ""]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(variant: str | None) -> str:
    """A head as the table names it."""
    shown = (variant or "").replace("MobileNetV2", "2 x 2 parts (preset)").removesuffix(", 128 px")
    return "mean of the map (preset), EfficientNet-Lite2" if shown == "EfficientNet-Lite2" else shown


def rows_of(variant: str, name: str) -> list[dict[str, Any]]:
    """The trainings of a variant on a set, by seed."""
    of_set = [row for row in read() if row["set"] == name]
    if len({json.dumps(row["groups"]) for row in of_set}) > 1:  # differences are paired
        raise InputError(name, "rows have other queries, or another order of them", "must be of the same queries")
    return sorted((row for row in of_set if row["variant"] == variant), key=lambda row: int(row["seed"]))


def difference(scores: Any, others: Any, groups: Sequence[int]) -> str:
    """The mean difference of scores `[seeds, queries]` with its 95 % interval over seeds and groups of queries."""
    found = estimate([scores - others], [groups])
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _interval(gaps: Sequence[Any], groups: Sequence[Sequence[int]]) -> str:
    """The mean over sets of differences, with its interval."""
    found = estimate(gaps, groups)
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def main() -> None:
    """Train what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=2, metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=list(SETS), help="these sets alone")
    given = parser.parse_args()
    places = dict(word.split("=", 1) for word in given.places)
    for row in trainings(places["data"], places["weights"], given.only):
        with RAW.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        means = " ".join(f"{np.mean(row[key]):.4f}" for key in ("features", "model"))
        sys.stderr.write(f"{row['variant']}, {row['set']}, seed {row['seed']}: {means}\n")
    sys.stdout.write(f"{table()}\n\n{table_of_heads()}\n\n{table_of_losses()}\n")


if __name__ == "__main__":
    main()
