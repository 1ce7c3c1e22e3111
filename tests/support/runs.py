"""A small config of squares, and a training that is killed."""

from __future__ import annotations

import pytest

from contml.experiment import load

CONFIG = """
task: {name: "test_assembly:squares_task", classes: %(classes)s}
model: {backbone: small_cnn, dim: 4}
images: {resize: 32, crop: 32}
transform: {scale_jitter: 1, shift: 1}
sampler: %(sampler)s
training: {epochs: 2, evaluate_every: 2, checkpoint_minutes: 0.0}
optimizer: {name: adamw, loss_lr: 0.1}
seed: 3
"""


def from_text(folder, classes, parts, *overrides):
    dense = "{name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 3}"
    sampler = "{name: classes, classes: 3, instances: 2, batches: 3}" if classes else dense
    path = folder / "own.yaml"
    path.write_text(CONFIG % {"classes": str(classes).lower(), "sampler": sampler} + parts + "\n")
    return load(str(path), overrides)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


def kill_at(trainer, epoch, step):
    """Train until the batch of this epoch and step is needed, and stop as if killed."""
    batch = trainer.sampler.batch

    def batch_or_die(*position):
        if position == (epoch, step):
            raise Killed
        return batch(*position)

    trainer.sampler.batch = batch_or_die
    with pytest.raises(Killed):
        trainer.fit()
