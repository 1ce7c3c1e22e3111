"""Your own data as a task: a function that returns a training and a test split. Configs and commands use it by name.

python examples/own_split.py
cd examples && contml check pose/synthetic task=own_split:dials images.resize=36 images.crop=32
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dials import dial
from PIL import Image

import contml
from contml.app.experiment import load
from contml.data import Split, Task, query_split


@dataclass(frozen=True)
class Drawn:
    """An image source. `read` returns the image of an item when its batch is made."""

    reading: float
    hue: float
    stamp = None  # the file that an image comes from

    def read(self) -> Image.Image:
        return dial(self.reading, self.hue)


def dials(items: int = 400, queries: int = 50, seed: int = 0) -> Task:
    """Draw dials with a reading from 0 to 100.

    Args:
        items: number of training items.
        queries: number of queries in the test split, which has four times as many items in its gallery.
        seed: seed of the readings.
    """
    random = np.random.default_rng(seed)

    def split(count: int) -> Split:
        readings: list[float] = random.uniform(0, 100, count).tolist()
        labels = contml.NumberLabels(readings, unit="units of the dial")
        names = [f"dial {row}" for row in range(count)]
        images = [Drawn(reading, hue) for reading, hue in zip(readings, random.random(count), strict=True)]
        return Split(images, names, labels)

    test = split(5 * queries)
    query_rows, gallery = query_split(range(queries), len(test))
    return Task(split(items), Split(test.images, test.names, test.labels, query_rows, gallery))


def main() -> None:
    sizes = ["images.resize=36", "images.crop=32", "images.workers=0", "transform.scale_jitter=2", "transform.shift=1"]
    short = ["training.epochs=2", "training.select=none", "sampler.batches=10", "sampler.anchors_per_batch=10"]
    experiment = load("pose/synthetic", ["task=own_split:dials", *sizes, *short])
    task = experiment.build_task()
    trainer = experiment.build_trainer(task)
    for state in ("untrained", "trained"):
        if state == "trained":
            trainer.fit()
        main = trainer.evaluate(task.evaluated)[0].main
        print(f"{state}, {main.title}: {100 * main.model / main.random:.1f} % of a random ranking")


if __name__ == "__main__":
    main()
