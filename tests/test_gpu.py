"""Results on a CUDA device equal those on the CPU."""

import subprocess
import sys

import pytest
import torch
from support.losses import made
from support.miniature import Flat, small_trainer

from contml import ContinuousMetric
from contml.distances import cosine, euclidean, squared_euclidean
from contml.labels import ClassLabels, NearestLabels, PoseLabels, ThresholdLabels, VectorLabels, nearest
from contml.losses import LOSSES
from contml.training.setup import accelerator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here"),
]


def test_class_ids_below_0_stop_the_process():
    """In a process of its own, since the assertion makes the device unusable for it."""
    code = "import torch; from contml import ClassLabels; ClassLabels(torch.tensor([0, -1]).cuda()); "
    found = subprocess.run([sys.executable, "-c", code + "torch.cuda.synchronize()"], capture_output=True, text=True)
    assert found.returncode != 0
    assert "assert" in found.stderr


@pytest.mark.parametrize("function", [squared_euclidean, euclidean, cosine])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_distances(function, dtype):
    torch.manual_seed(0)
    x = torch.cat((torch.randn(200, 64), torch.randn(1, 64).repeat(50, 1))).to(dtype)
    torch.testing.assert_close(function(x.cuda(), x.cuda()).cpu(), function(x, x), rtol=1e-4, atol=1e-4)


SPACES = [VectorLabels(torch.randn(300, 3)), PoseLabels(torch.rand(300, 14, 2))]


@pytest.mark.parametrize("space", SPACES, ids=["vectors", "poses"])
def test_labels_and_nearest(space):
    on_gpu = space.to("cuda")
    torch.testing.assert_close(on_gpu.pairwise().cpu(), space.pairwise())
    assert torch.equal(nearest(on_gpu, 7).rows.cpu(), nearest(space, 7).rows)
    for binary in (ThresholdLabels(space, 1.0), NearestLabels(space, 5)):
        assert torch.equal(binary.to("cuda").pairwise().cpu(), binary.pairwise())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("block_rows", [None, 7])
def test_losses(name, block_rows):
    loss = made(name).double()
    loss.block_rows = block_rows
    embeddings = torch.randn(40, 6, dtype=torch.float64)
    classes, vectors = ClassLabels(torch.arange(40) % 4), VectorLabels(torch.randn(40, 2))
    space = vectors if loss.requires in ("any", "graded") else classes
    results = []
    for device in ("cpu", "cuda"):
        moved, leaf = loss.to(device), embeddings.to(device, copy=True).requires_grad_()
        value = moved(leaf, space.to(device))
        results.append((value.cpu(), torch.autograd.grad(value, leaf)[0].cpu()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-8)


def test_one_process_trains_on_one_device_after_the_other():
    X, found = torch.randn(200, 5).numpy(), []
    for device, expected in {"auto": "cuda", "cpu": "cpu", "cuda": "cuda"}.items():
        found.append(torch.tensor(ContinuousMetric(epochs=5, random_state=0, device=device).fit(X, X[:, 0]).embedding_))
        assert accelerator("float32", device=device).device.type == expected
    torch.testing.assert_close(found[0], found[1], rtol=0.01, atol=0.01)


def test_training_in_bfloat16():
    trainer = small_trainer(model=Flat(), epochs=2)
    assert trainer.accelerator.mixed_precision == "bf16"
    trainer.fit()
    assert trainer.result is not None
