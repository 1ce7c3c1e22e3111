"""Miniatures that train in seconds: squares whose label is a place, and a config of drawn people."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import nn

from contml.images import Images
from contml.labels import VectorLabels
from contml.losses import LogRatioLoss
from contml.sampling import DenseSampler
from contml.training import EmbeddingStep, Trainer, Training

#: Overrides that make the quick start a matter of seconds.
TINY = [
    "task.train=40",
    "task.test=24",
    "task.queries=6",
    "task.size=32",
    "images.resize=32",
    "images.crop=32",
    "images.scale_jitter=2",
    "images.shift=1",
    "model.dim=8",
    "sampler.batch_size=10",
    "sampler.anchors_per_batch=2",
    "sampler.neighbours=2",
    "sampler.batches=4",
    "training.epochs=2",
]


class Squares:
    """Images with a bright square; the label is where it is."""

    queries = None
    gallery = None

    def __init__(self, items: int = 30, seed: int = 0, broken: tuple[int, ...] = ()) -> None:
        random = np.random.default_rng(seed)
        self.places = random.integers(0, 12, (items, 2))
        self.pixels = random.integers(0, 60, (items, 16, 16, 3)).astype(np.uint8)
        for image, (x, y) in zip(self.pixels, self.places, strict=True):
            image[y : y + 4, x : x + 4] = 255
        self.labels = VectorLabels(torch.from_numpy(self.places))
        self.broken = broken

    def __len__(self):
        return len(self.pixels)

    def image(self, row):
        if row in self.broken:
            raise_from = Image.new("RGB", (4, 4))
            raise_from.close()
            return raise_from
        return self.pixels[row]

    def name(self, row):
        return f"square {row}"

    def draw(self, row, size):
        return Image.fromarray(self.pixels[row]).resize((size, size))


class Flat(nn.Module):
    """A linear embedding with dropout: no batch norm, so that several processes can equal one."""

    def __init__(self, dim: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(14 * 14 * 3, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, images):
        return self.linear(self.dropout(images.flatten(1).to(self.linear.weight.dtype) / 255))


def small_trainer(
    run=None, *, model=None, epochs=2, batches=5, loss=None, step=None, split=None, broken="fail", **options
):
    split = split or Squares()
    torch.manual_seed(0)
    return Trainer(
        model or Flat(dropout=0.2),
        step or EmbeddingStep(loss=loss or LogRatioLoss()),
        split,
        DenseSampler(10, 2, 2, batches=batches, labels=split.labels, seed=3),
        Images(resize=16, crop=14, scale_jitter=1, shift=1, flip=True, broken=broken),
        Training(epochs=epochs, **options),
        test=Squares(20, seed=1),
        run=run,
        quiet=True,
    )
