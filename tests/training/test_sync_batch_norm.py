"""Synchronized batch norm: refused where it cannot work, and the weights of the model stay as they are."""

from __future__ import annotations

import pytest
import torch
from support.miniature import Flat, small_trainer
from support.refusals import refuses
from torch import nn

from contml.models import EmbeddingModel
from contml.training.setup import synchronize_batch_norm

CUDA = torch.device("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the trainer would use the GPU")
def test_a_cpu_has_none():
    with refuses("sync_batch_norm", got="true, on a CPU", hint="omit it"):
        small_trainer(model=EmbeddingModel("small_cnn", dim=4), sync_batch_norm=True)


@pytest.mark.parametrize("backbone", ["small_cnn", "timm:efficientnet_b0"])
def test_the_state_of_the_model_stays(backbone):
    model = EmbeddingModel(backbone, dim=4)
    parameters, state = [*model.parameters()], {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.eval()(images)
    synchronize_batch_norm(model, CUDA)
    kinds = [type(module) for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert kinds
    assert all(issubclass(kind, nn.SyncBatchNorm) for kind in kinds)
    assert not model.training
    assert all(found is old for found, old in zip(model.parameters(), parameters, strict=True))  # groups stay valid
    assert [*model.state_dict()] == [*state]
    with torch.no_grad():
        assert model(images).equal(expected)
    saved = EmbeddingModel(backbone, dim=4)
    saved.load_state_dict(model.state_dict())  # as one process reads the checkpoint
    with torch.no_grad():
        assert saved.eval()(images).equal(expected)


class OwnNorm(nn.BatchNorm2d):
    """A layer that does more than normalize."""

    def forward(self, x):
        return super().forward(x).relu()


@pytest.mark.parametrize(
    ("model", "chunk_size", "got"),
    [
        (Flat(), None, "true, but the model has no batch norm that is trained"),
        (EmbeddingModel("small_cnn", dim=4, freeze_batch_norm=True), None, "true, but the model has no batch norm"),
        (EmbeddingModel("small_cnn", dim=4, frozen=True), None, "true, but the model has no batch norm"),
        (nn.Sequential(OwnNorm(3)), None, "true, but the model has OwnNorm"),
        (EmbeddingModel("small_cnn", dim=4), 8, "true, with chunk_size=8"),
    ],
)
def test_where_it_would_do_nothing_or_something_else(model, chunk_size, got):
    with refuses("sync_batch_norm", got=got):
        synchronize_batch_norm(model, CUDA, chunk_size)
