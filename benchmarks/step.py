"""What a training step costs beyond the network, and the memory that chunks save.

    python -m benchmarks.step [--batch 128] [--size 224] [--rounds 3] [--save FILE]

Time: forward and backward pass of the bare network, the same with the optimizer's update, and the trainer's step with
loss, label distances and the checks that loss and weights are finite, in turn on the same images. Memory: a forward and
backward pass of `EmbeddingStep(chunk_size)`, each in a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import alternate, heading, peak_memory, table
from contml.data import Batch, Images, Split
from contml.labels import VectorLabels
from contml.losses import LOSSES
from contml.models import EmbeddingModel
from contml.sampling import UniformSampler
from contml.training import EmbeddingStep, Trainer

DIM = 512
LOSS = "log_ratio"


def inputs(batch: int, size: int) -> tuple[EmbeddingModel, Tensor, VectorLabels]:
    """ResNet-50 with frozen batch normalization, random images, and labels of three numbers."""
    torch.manual_seed(0)
    model = EmbeddingModel("resnet50", dim=DIM, freeze_batch_norm=True)
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
    return model, images, VectorLabels(torch.rand(batch, 3))


def tiny_steps(groups: Any) -> torch.optim.Optimizer:
    """SGD with momentum and a tiny learning rate, so that random gradients do not make the weights infinite."""
    return torch.optim.SGD(groups, lr=1e-9, momentum=0.9)


def times(batch: int, size: int, rounds: int) -> dict[str, float]:
    """Seconds of the bare network, of the network with its update, and of the trainer's step."""
    model, images, labels = inputs(batch, size)
    split = Split(list(images.permute(0, 2, 3, 1).numpy()), [str(n) for n in range(batch)], labels)
    sampler = UniformSampler(batch, labels=labels)
    trainer = Trainer(
        model, EmbeddingStep(loss=LOSSES[LOSS]()), split, sampler, Images(size, size), optimizer=tiny_steps, quiet=True
    )
    device = trainer.device
    images = images.to(device)
    gradient = torch.randn(batch, DIM, device=device) / batch
    data = Batch(images, torch.arange(batch), step=0, skipped=0, positions=torch.arange(batch))

    def network() -> None:
        trainer.optimizer.zero_grad()
        trainer.model(images).backward(gradient)

    def update() -> None:
        network()
        trainer.optimizer.step()

    def step() -> None:
        trainer.train_step(data)
        trainer._check_finite()

    trainer.model.train()
    return alternate({"network": network, "network and update": update, "training step": step}, rounds)


def pass_in_chunks(batch: int, size: int, chunk_size: int | None) -> Callable[[], None]:
    """A forward and backward pass."""
    model, images, labels = inputs(batch, size)
    step = EmbeddingStep(chunk_size, loss=LOSSES[LOSS]())
    return lambda: step(model, images, labels).backward()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    batch, size = arguments.batch, arguments.size
    torch.set_num_threads(2)
    seconds = times(batch, size, arguments.rounds)
    bare = seconds["network"]
    rows = [["", "seconds", "beyond the network"]]
    rows += [[name, f"{value:.3f}", f"{value / bare - 1:+.1%}"] for name, value in seconds.items()]
    text = heading(f"ResNet-50, batch {batch}, {size} x {size} pixels, {LOSS} with 512 dimensions")
    text += "\n" + table(rows)
    whole = peak_memory(pass_in_chunks, batch, size, None)
    rows = [["forward and backward", "peak MiB", "of the whole batch"], ["whole batch", f"{whole / 2**20:,.0f}", ""]]
    for chunks in (2, 4, 8):
        peak = peak_memory(pass_in_chunks, batch, size, batch // chunks)
        rows.append([f"{chunks} chunks", f"{peak / 2**20:,.0f}", f"{peak / whole:.2f}"])
    text += "\n\n" + table(rows) + "\n"
    print(text)
    if arguments.save is not None:
        arguments.save.write_text(text)


if __name__ == "__main__":
    main()
