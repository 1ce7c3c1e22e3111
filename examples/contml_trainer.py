"""`contml.Trainer` from Python: your own images and labels, a validation split, and a run folder to resume from.

python examples/contml_trainer.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from dials import draw_dials

import contml
from contml.data import CropTransform, Images, Pixels, Split
from contml.models import EmbeddingModel
from contml.runs import Run
from contml.sampling import DenseSampler
from contml.training.optimizers import adamw


def dials(count: int, seed: int) -> Split:
    """Return drawn dials as a split. For files, give `ImageFile(path)` in place of `Pixels(array)`."""
    images, readings = draw_dials(count, seed)
    pixels = (255 * images).byte().permute(0, 2, 3, 1).numpy()
    labels = contml.NumberLabels(readings, unit="units of the dial")
    return Split([Pixels(image) for image in pixels], [f"dial {row}" for row in range(count)], labels)


def main() -> None:
    torch.manual_seed(0)
    train, val, test = dials(400, seed=0), dials(100, seed=2), dials(200, seed=1)
    size = {"resize": 36, "crop": 32}
    with TemporaryDirectory() as folder:
        trainer = contml.Trainer(
            EmbeddingModel("small_cnn", dim=16),
            contml.EmbeddingStep(loss=contml.LogRatioLoss()),
            train,
            DenseSampler(100, anchors_per_batch=10, neighbours=5, batches=15, labels=train.labels),
            Images(**size, transform=CropTransform(scale_jitter=2, shift=1, **size)),
            contml.Training(epochs=2),
            optimizer=lambda groups: adamw(lr=2e-3, groups=groups),
            val=val,
            run=Run(Path(folder)),
        )
        before = trainer.evaluate(test)[0].main
        print(f"untrained, {before.title}: {100 * before.model / before.random:.1f} % of a random ranking")
        trainer.fit()  # writes checkpoints and metrics; after an interruption, trainer.resume() continues
        after = trainer.evaluate(test)[0].main
        print(f"trained, {after.title}: {100 * after.model / after.random:.1f} % of a random ranking")


if __name__ == "__main__":
    main()
