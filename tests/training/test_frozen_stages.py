"""Frozen stages in a training."""

from functools import partial

import pytest
import torch
from support.miniature import small_trainer, weights
from support.runs import of_two_processes
from torch import nn

from contml.models import EmbeddingModel
from contml.training import OPTIMIZERS


class Deep(nn.Module):
    """Three linear layers; `stages` are the layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.pool, self.a, self.b, self.c = nn.AdaptiveAvgPool2d(4), nn.Linear(48, 5), nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, images):
        return self.c(self.b(self.a(self.pool(images.float() / 255).flatten(1)).tanh()).tanh())


def deep_trainer():
    """A backbone of three layers whose first one is frozen."""
    model = EmbeddingModel(Deep(), dim=4, frozen=1)
    return small_trainer(model=model, optimizer=partial(OPTIMIZERS["sgd"], lr=1e-3))


def weights_of_deep_trainer():
    """The weights before and after, without biases that change no distance: their gradients are rounding."""
    trainer = deep_trainer()
    start = weights(trainer)
    trainer.fit()
    end = weights(trainer)
    for state in (start, end):
        del state["backbone.c.bias"], state["head.bias"]
    return start, end


@pytest.mark.slow
def test_two_processes_equal_one():
    start, expected = weights_of_deep_trainer()
    for name, value in expected.items():
        assert torch.equal(value, start[name]) == name.startswith("backbone.a."), name
    for _, found in of_two_processes(weights_of_deep_trainer):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
