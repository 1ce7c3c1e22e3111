"""The Trainer of Hugging Face with a loss and a sampler of contml.

pip install transformers
python examples/hugging_face_trainer.py
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import torch
from dials import draw_dials, network, share_of_random
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset
from transformers import Trainer, TrainingArguments

import contml
from contml.sampling import UniformSampler


class MetricTrainer(Trainer):
    """A trainer of an embedding of images, `[B, 3, H, W]`. A batch also has the row numbers of its items."""

    def __init__(self, *args: Any, labels: contml.LabelSpace, loss_function: nn.Module, **options: Any) -> None:
        super().__init__(*args, **options)
        self.labels, self.loss_function = labels.to(self.args.device), loss_function

    def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        sampler = UniformSampler(self.args.train_batch_size, batches=40, labels=self.labels, seed=self.args.seed)
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_sampler=sampler))

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        loss: Tensor = self.loss_function(model(inputs["images"]), self.labels[inputs["rows"]])
        return loss


def main() -> None:
    images, readings = draw_dials(400, seed=0)
    labels, model = contml.NumberLabels(readings), network()
    print(f"untrained, {share_of_random(model)}")
    with TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder, num_train_epochs=3, per_device_train_batch_size=100, learning_rate=2e-3, use_cpu=True,
            save_strategy="no", report_to="none", remove_unused_columns=False, logging_steps=40,
        )  # fmt: skip
        dataset = StackDataset(images=images, rows=torch.arange(len(images)))
        trainer = MetricTrainer(model, options, None, dataset, labels=labels, loss_function=contml.LogRatioLoss())
        trainer.train()
    print(f"trained, {share_of_random(model)}")


if __name__ == "__main__":
    main()
