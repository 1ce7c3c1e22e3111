"""Hashes of the weights after short seeded trainings, to check that a code change does not change the results.

    python -m benchmarks.weights

One thread on the CPU. The hashes depend on the processor and on the version of torch: compare two versions of contml on
one machine, on one day.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import torch

from benchmarks.measure import heading, table
from contml._support.files import write
from contml.app.experiment import load

_SHORT = ["training.epochs=2", "training.evaluate_every=2", "training.select=none", "sampler.batches=6"]
_CLASSES = ["task.classes=12", "task.per_class=8", "task.test_classes=5", "task.test_per_class=4"]
_BATCH = ["sampler.classes=6", "sampler.instances=4"]

#: Each run by its name: a config and its overrides.
RUNS: dict[str, tuple[str, list[str]]] = {
    "pose": ("pose/synthetic", ["task.train=400", "task.test=300", *_SHORT]),
    "layout": ("layout/synthetic", ["task.train=400", "task.test=300", *_SHORT]),
    "captions": ("captions/synthetic", ["task.train=400", "task.test=300", *_SHORT]),
    "classes": ("classes/synthetic", [*_CLASSES, *_BATCH, *_SHORT]),
    "thresholded poses": ("pose/synthetic_threshold", ["task.train=400", "task.test=300", *_SHORT]),
    "nearest poses": ("pose/synthetic_nearest", ["task.train=400", "task.test=300", *_SHORT]),
    "miner": ("classes/synthetic", [*_CLASSES, *_BATCH, *_SHORT, "loss=margin", "miner=distance_weighted"]),
    "memory": ("classes/synthetic", [*_CLASSES, *_BATCH, *_SHORT, "loss=raw", "memory.size=100"]),
    "memory of poses": (
        "pose/synthetic",
        ["task.train=400", "task.test=300", *_SHORT, "memory.size=300", "images.flip=none"],
    ),
    "proxies": ("classes/synthetic", [*_CLASSES, *_BATCH, *_SHORT, "loss=proxy_anchor"]),
    "HDML": (
        "classes/synthetic",
        [
            *(*_CLASSES, *_BATCH, *_SHORT, "model.normalize=false", "step=hdml"),
            *("loss=triplet_margin", "loss.distance=squared_euclidean", "loss.reduction=sum", "loss.margin=1"),
        ],
    ),
}


def weights_after(config: str, overrides: list[str]) -> str:
    """A hash of the weights of the model after training."""
    experiment = load(config, overrides)
    trainer = experiment.build_trainer(experiment.build_task(), quiet=True)
    trainer.fit()
    content = hashlib.sha256()
    for name, value in sorted(trainer.bare_model.state_dict().items()):
        content.update(name.encode())
        content.update(value.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(1)
    rows = [["run", "weights", "seconds"]]
    for name, (config, overrides) in RUNS.items():
        start = time.perf_counter()
        rows.append([name, weights_after(config, overrides), f"{time.perf_counter() - start:.0f}"])
        print(rows[-1], file=sys.stderr)
    text = f"{heading('Weights after short seeded trainings')}\n{table(rows)}\n"
    print(text)
    path = Path(__file__).parent / "results" / "weights.md"
    write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
