"""Judged pairs: with how many judgments does an embedding reach what the full labels give?

    python -m benchmarks.judged_pairs [--minutes M] --save benchmarks/results/judged_pairs.md \\
        --plot docs/judged_pairs.png

Items are drawn: 1,000 to train on and 300 to test, each with two hidden numbers and 64 features, which a fixed random
network computes from these two and from six numbers of no interest. The true label distance is that of the two
numbers. Judges see random pairs: the true distance from 0 to 10, with noise of standard deviation 1.5, as a whole
number, and in 5 % of the judgments any number. A network of two layers is trained for 600 steps of 96 items, on
batches of the sampler "judged", or, with full labels, on random items whose true distances are all known. The metric is
Spearman's correlation of embedding distance and true distance over all test pairs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor, nn

from benchmarks.measure import heading, table
from contml._support.files import write
from contml.app.report.plots import BLUE, INK, STYLE, VERMILION, png
from contml.app.trials.record import FinishedTrainings
from contml.evaluation import half_width
from contml.labels import LabelSpace, PairLabels, VectorLabels
from contml.losses import LOSSES
from contml.sampling import JudgedSampler, UniformSampler

TRAIN, TEST, FEATURES = 1000, 300, 64
JUDGMENTS = (250, 500, 1000, 2000, 4000, 8000, 16000, 32000)
SEEDS = range(3)
#: Losses, and their options where the defaults assume other label distances.
LOSS_OPTIONS: dict[str, dict[str, Any]] = {"cosent": {}, "log_ratio": {"squared": False}}
_STEPS, _BATCH, _LR = 600, 96, 1e-3
_NOISE, _LAPSES = 1.5, 0.05


class Data(NamedTuple):
    """The features `[N, 64]` of the items and their hidden numbers `[N, 2]`, the training items first."""

    features: Tensor
    hidden: Tensor


def draw_items(seed: int) -> Data:
    """The items of a seed."""
    random = torch.Generator().manual_seed(seed)
    hidden = torch.rand(TRAIN + TEST, 8, generator=random)
    first = torch.randn(8, 128, generator=random) * 2
    second = torch.randn(128, FEATURES, generator=random) / 8
    features = torch.tanh((hidden - 0.5) @ first) @ second
    return Data(features + 0.05 * torch.randn(features.shape, generator=random), hidden[:, :2])


def judge(data: Data, count: int, seed: int) -> PairLabels:
    """The judgments of random pairs of training items."""
    random = np.random.default_rng([seed, count])
    first = random.integers(TRAIN, size=count)
    second = (first + 1 + random.integers(TRAIN - 1, size=count)) % TRAIN
    x = data.hidden.numpy()
    distances = 10 / np.sqrt(2) * np.linalg.norm(x[first] - x[second], axis=1) + random.normal(0, _NOISE, count)
    distances = np.where(random.random(count) < _LAPSES, random.uniform(0, 10, count), distances)
    return PairLabels(np.stack((first, second), 1), np.clip(np.round(distances), 0, 10), TRAIN, "points")


def train(loss_name: str, labels: LabelSpace, data: Data, seed: int) -> float:
    """Train on the labels; Spearman's correlation over all pairs of test items."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 32))
    loss = LOSSES[loss_name](**LOSS_OPTIONS[loss_name])
    make: Any = JudgedSampler if isinstance(labels, PairLabels) else UniformSampler
    sampler = make(_BATCH, labels=labels, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    for step in range(_STEPS):
        rows = sampler.batch(*divmod(step, len(sampler)))
        value = loss(model(data.features[rows]), labels[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        embeddings = model(data.features[TRAIN:])
    if loss.distance == "cosine":
        embeddings = nn.functional.normalize(embeddings)
    pairs = torch.triu_indices(TEST, TEST, 1)
    found, true = (torch.cdist(x, x)[pairs[0], pairs[1]] for x in (embeddings, data.hidden[TRAIN:]))
    return float(spearmanr(found.numpy(), true.numpy()).statistic)


def key_of(loss_name: str, count: int, seed: int) -> str:
    """The key of a training in the file; a count of 0 means full labels."""
    return f'["{loss_name}", {count}, {seed}]'


def run(
    record: FinishedTrainings, minutes: float, counts: Sequence[int] = JUDGMENTS, seeds: Sequence[int] = SEEDS
) -> bool:
    """Do the trainings that are missing; returns whether all are done."""
    end = time.monotonic() + 60 * minutes
    for seed in seeds:
        data = draw_items(seed)
        for count in (0, *counts):
            for loss_name in LOSS_OPTIONS:
                key = key_of(loss_name, count, seed)
                if key in record:
                    continue
                if time.monotonic() > end:
                    return False
                labels = judge(data, count, seed) if count else VectorLabels(data.hidden[:TRAIN])
                record.add(key, {"spearman": train(loss_name, labels, data, seed)})
    return True


def values_of(record: FinishedTrainings, loss_name: str, count: int) -> list[float]:
    """The correlation of each seed."""
    return [record[key]["spearman"] for seed in SEEDS if (key := key_of(loss_name, count, seed)) in record]


def results(record: FinishedTrainings) -> str:
    """The table: a row for each number of judgments, a column for each loss."""
    rows = [["judgments", "of an item", *LOSS_OPTIONS]]
    for count in (*JUDGMENTS, 0):
        cells = []
        for loss_name in LOSS_OPTIONS:
            values = values_of(record, loss_name, count)
            cells.append(f"{statistics.fmean(values):.3f} ± {half_width(values):.3f}" if len(values) > 1 else "-")
        rows.append(
            [f"{count:,}" if count else "full labels", f"{2 * count / TRAIN:g}" if count else f"{TRAIN - 1}", *cells]
        )
    return table(rows)


@matplotlib.rc_context(STYLE)
def plot(record: FinishedTrainings) -> Figure:
    """Correlation against the number of judgments; dashed: full labels."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for loss_name, colour in zip(LOSS_OPTIONS, (BLUE, VERMILION), strict=True):
        found = [values_of(record, loss_name, count) for count in JUDGMENTS]
        means, widths = [statistics.fmean(each) for each in found], [half_width(each) for each in found]
        axes.errorbar(JUDGMENTS, means, yerr=widths, color=colour, marker="o", capsize=3, label=loss_name)
        axes.axhline(statistics.fmean(values_of(record, loss_name, 0)), color=colour, linestyle=(0, (5, 2)))
    axes.set_xscale("log")
    axes.set_xticks(JUDGMENTS, [f"{count:,}" for count in JUDGMENTS])
    axes.minorticks_off()
    axes.set_xlabel("judgments of pairs of 1,000 items (dashed: full labels)", color=INK)
    axes.set_ylabel("Spearman, all pairs of new items")
    axes.legend(loc="lower right")
    return figure


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many minutes")
    parser.add_argument("--raw", type=Path, default=Path("benchmarks/results/raw/judged_pairs.jsonl"))
    parser.add_argument("--save", type=Path, help="the table")
    parser.add_argument("--plot", type=Path, help="the figure")
    options = parser.parse_args()
    record = FinishedTrainings(options.raw)
    finished = run(record, options.minutes)
    about = " ".join(str(__doc__).split("\n\n")[2].split())
    text = f"{heading('Judged pairs')}\n`python -m benchmarks.judged_pairs`. {about}\n"
    text += f"\nMean and 95 % t interval over {len(SEEDS)} seeds; it does not include the choice of test items."
    text += f"\n\n{results(record)}\n"
    print(text)
    if not finished:
        print("not finished: the same command goes on")
        return
    if options.save:
        write(options.save, lambda path: path.write_text(text, encoding="utf-8"))
    if options.plot:
        write(options.plot, lambda path: path.write_bytes(png(plot(record))))


if __name__ == "__main__":
    main()
