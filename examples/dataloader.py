"""A plain PyTorch loop: a sampler of contml chooses the batches of a DataLoader.

python examples/dataloader.py
"""

from __future__ import annotations

import torch
from dials import draw_dials, network, share_of_random
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import contml
from contml.sampling import DenseSampler


class Dials(Dataset[tuple[Tensor, int]]):
    """A data set of images and row numbers. The row number finds the label."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.images[row], row


def main() -> None:
    images, readings = draw_dials(400, seed=0)
    labels, model = contml.NumberLabels(readings), network()
    print(f"untrained, {share_of_random(model)}")
    # 10 anchors in a batch, each with its 5 nearest items by label distance; the rest are random items.
    sampler = DenseSampler(100, anchors_per_batch=10, neighbours=5, labels=labels, seed=0)
    loader = DataLoader(Dials(images), batch_sampler=sampler)  # also with num_workers=2, if reading an image takes time
    loss_function, anchors = contml.LogRatioLoss(), torch.arange(10)  # the anchors are the first items of a batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)  # so that a loop which starts at a later epoch, after a resume, has its batches
        for batch, rows in loader:
            loss = loss_function(model(batch), labels[rows], anchors=anchors)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}, loss {loss.item():.2f}")
    print(f"trained, {share_of_random(model)}")


if __name__ == "__main__":
    main()
