"""A Lightning module with a loss and a sampler of contml.

pip install lightning
python examples/lightning_module.py
"""

from __future__ import annotations

import lightning
import torch
from dials import draw_dials, network, share_of_random
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import contml
from contml.sampling import UniformSampler


class Embedding(lightning.LightningModule):
    """An embedding of images whose distances follow label distances."""

    def __init__(self, labels: contml.LabelSpace) -> None:
        super().__init__()
        self.network, self.loss_function, self.labels = network(), contml.LogRatioLoss(), labels

    def on_fit_start(self) -> None:
        self.labels = self.labels.to(self.device)  # once, not in each step

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        images, rows = batch
        loss: Tensor = self.loss_function(self.network(images), self.labels[rows])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    images, readings = draw_dials(400, seed=0)
    labels = contml.NumberLabels(readings)
    module = Embedding(labels)
    print(f"untrained, {share_of_random(module.network)}")
    sampler = UniformSampler(100, batches=40, labels=labels, seed=0)
    loader = DataLoader(TensorDataset(images, torch.arange(len(images))), batch_sampler=sampler)  # images and rows
    # On several devices also use_distributed_sampler=False: each device then compares the items of its own batch only.
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(module, loader)
    print(f"trained, {share_of_random(module.network)}")


if __name__ == "__main__":
    main()
