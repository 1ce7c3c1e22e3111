"""Continuous labels against class-style training on drawn poses: same budget, seeds, backbone and sampler.

    python -m benchmarks.pose_synthetic

Log-ratio with dense sampling (pose/synthetic) against triplets of a thresholded pose distance
(pose/synthetic_threshold) and triplets with the nearest poses as positives (pose/synthetic_nearest), each of these two
at the best of a few margins, chosen on the test split of the first seed, which is in their favour. Mean pose
distance@10 as a share of a random ranking's.
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.measure import heading, table
from contml.contracts import Task
from contml.evaluation.result import Evaluation
from contml.experiment import load

SEEDS = (0, 1, 2)
MARGINS = (0.05, 0.1, 0.2, 0.4)
CONFIGS = {
    "log-ratio, dense": "pose/synthetic",
    "triplet, threshold": "pose/synthetic_threshold",
    "triplet, nearest": "pose/synthetic_nearest",
}


def train(config: str, task: Task, *changes: str) -> Evaluation:
    trainer = load(config, ["training.evaluate_every=1000", *changes]).build_trainer(task, quiet=True)
    trainer.fit()
    assert trainer.result is not None
    evaluation = trainer.result[0]
    print(config, *changes, f"{share(evaluation):.3f}", file=sys.stderr, flush=True)
    return evaluation


def share(evaluation: Evaluation) -> float:
    curve = evaluation.curves["label_distance"]
    return curve.model[9] / curve.random[9]


def main() -> None:
    task = load("pose/synthetic").build_task()  # the same figures for all
    rows = [
        [
            "method",
            "margin",
            *(f"seed {seed}" for seed in SEEDS),
            "mean",
            "way from random to oracle",
            "nDCG@10",
            "Spearman",
        ]
    ]
    notes = []
    for name, config in CONFIGS.items():
        margin = "-"
        first = None
        if config != "pose/synthetic":
            tried = {m: train(config, task, "seed=0", f"loss.margin={m}") for m in MARGINS}
            best = min(MARGINS, key=lambda m: share(tried[m]))
            notes.append(f"{name}: " + ", ".join(f"margin {m}: {share(tried[m]):.3f}" for m in MARGINS) + " (seed 0)")
            margin, first = str(best), tried[best]
        changes = [] if margin == "-" else [f"loss.margin={margin}"]
        found = [
            first if first is not None and seed == 0 else train(config, task, f"seed={seed}", *changes)
            for seed in SEEDS
        ]
        shares = [share(evaluation) for evaluation in found]
        rows.append(
            [
                name,
                margin,
                *(f"{value:.3f}" for value in shares),
                f"{statistics.mean(shares):.3f}",
                f"{statistics.mean(e.curves['label_distance'].fraction(10) for e in found):.1%}",
                f"{statistics.mean(e.curves['ndcg'].model[9] for e in found):.3f}",
                f"{statistics.mean(e.spearman for e in found):.3f}",
            ]
        )
    print(heading("Mean pose distance@10 of drawn poses, as a share of a random ranking's"))
    print(table(rows))
    curve = found[0].curves["label_distance"]
    print(f"\nThe oracle's share is {curve.oracle[9] / curve.random[9]:.3f}. Margins tried:\n")
    for note in notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
