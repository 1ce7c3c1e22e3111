"""Small trainings that take seconds: squares labelled by position, and overrides for a config of drawn people."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import nn

from contml.data import CropTransform, Images, Pixels, Split
from contml.labels import VectorLabels
from contml.losses import LogRatioLoss
from contml.sampling import DenseSampler
from contml.training import EmbeddingStep, Trainer, Training
from contml.training.optimizers import sgd

#: Overrides with which the quick start takes seconds.
TINY = [
    *("task.train=40", "task.val=16", "task.test=24", "task.queries=6", "task.size=32", "images.resize=32"),
    *("images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "model.dim=8", "sampler.batch_size=10"),
    *("sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=4", "training.epochs=2"),
]


def squares(items: int = 30, seed: int = 0, broken: tuple[int, ...] = ()) -> Split:
    """Returns images with a bright square, labelled by its position. The rows `broken` cannot be decoded."""
    random = np.random.default_rng(seed)
    positions = random.integers(0, 12, (items, 2))
    pixels = random.integers(0, 60, (items, 16, 16, 3)).astype(np.uint8)
    for image, (x, y) in zip(pixels, positions, strict=True):
        image[y : y + 4, x : x + 4] = 255
    images = [Pixels(closed() if row in broken else image) for row, image in enumerate(pixels)]
    return Split(images, [f"square {row}" for row in range(items)], VectorLabels(torch.from_numpy(positions)))


def closed() -> Image.Image:
    """Returns a picture that cannot be decoded."""
    picture = Image.new("RGB", (4, 4))
    picture.close()
    return picture


def augmented(*, resize, crop, scale_jitter=0, shift=0, flip="batch", **options):
    """Returns `Images` with the crop of the papers."""
    transform = CropTransform(scale_jitter, shift, resize=resize, crop=crop)
    return Images(resize=resize, crop=crop, flip=flip, transform=transform, **options)


class Flat(nn.Module):
    """A linear embedding with dropout; without batch norm, several processes give the result of one."""

    def __init__(self, dim: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(14 * 14 * 3, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, images):
        return self.linear(self.dropout(images.flatten(1).to(self.linear.weight.dtype) / 255))


def small_trainer(
    run=None,
    *,
    model=None,
    epochs=2,
    batches=5,
    loss=None,
    step=None,
    split=None,
    broken="fail",
    val=None,
    optimizer=sgd,
    **options,
):
    split = split or squares()
    torch.manual_seed(0)
    return Trainer(
        model or Flat(dropout=0.2),
        step or EmbeddingStep(loss=loss or LogRatioLoss()),
        split,
        DenseSampler(10, 2, 2, batches=batches, labels=split.labels, seed=3),
        augmented(resize=16, crop=14, scale_jitter=1, shift=1, broken=broken),
        Training(epochs=epochs, **options),
        optimizer=lambda groups: optimizer(groups=groups),
        val=val,
        test=squares(20, seed=1),
        run=run,
        quiet=True,
    )


def fitted(trainer, resume=False):
    """The trainer after its training, which goes on from the saved state if `resume`."""
    if resume:
        trainer.resume()
    trainer.fit()
    return trainer


def weights(trainer):
    """Copies of the weights of a trainer's model."""
    return {name: value.clone() for name, value in trainer.bare_model.state_dict().items()}


def assert_equal(a, b):
    """Asserts that two state dicts are equal bit for bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
