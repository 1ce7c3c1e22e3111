"""Gradient caching: a batch in chunks has the loss and the gradients of the whole batch."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from support.label_spaces import judged
from support.losses import made
from support.processes import run_connected
from torch import nn

from contml import ClassLabels, VectorLabels
from contml.losses import LOSSES, CrossBatchMemory, MatryoshkaLoss
from contml.mining import MINERS
from contml.models import EmbeddingModel
from contml.training import HDML, EmbeddingStep
from contml.training.gradients import embed_in_chunks

ITEMS, CHUNKS = 16, 8
GRADED = [name for name, loss in LOSSES.items() if loss.requires in ("any", "graded")]


def images(seed=0):
    return torch.randint(0, 256, (ITEMS, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def labels(name):
    if name == "judged":
        return judged(0.2, 2 * ITEMS)
    generator = torch.Generator().manual_seed(1)
    return VectorLabels(torch.rand(2 * ITEMS, 3, generator=generator)) if name in GRADED else CLASSES


CLASSES = ClassLabels(torch.arange(2 * ITEMS) % ITEMS // 4)


def built(name, **options):
    """The loss in float64."""
    return made(name, **options).double()


def network():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    return EmbeddingModel(backbone, dim=6, freeze_batch_norm=True).double()


def cases():
    """A loss of every name; of every miner; of a memory that holds an earlier batch; of judged pairs."""
    found = {name: (name, lambda name=name: built(name)) for name in LOSSES}
    for miner in MINERS:
        name = "raw"
        found[f"{name}, {miner}"] = (name, lambda m=miner: built("raw", miner=MINERS[m]()))
    for name in ("log_ratio", "contrastive", "multi_similarity", "ranked_list"):
        found[f"{name}, memory"] = (name, lambda name=name: CrossBatchMemory(built(name), 64).double())
    for name in ("log_ratio", "cosent", "relaxed_contrastive", "smooth_rank"):
        found[f"{name}, judged"] = ("judged", lambda name=name: built(name))
    for name, kind in (("log_ratio", "log_ratio"), ("multi_similarity", "multi_similarity"), ("log_ratio", "judged")):
        found[f"{name}, {kind}, matryoshka"] = (
            kind,
            lambda name=name: MatryoshkaLoss([built(name) for _ in range(2)], [3, 6], normalize=True),
        )
    found["log_ratio, judged, memory"] = ("judged", lambda: CrossBatchMemory(built("log_ratio"), 64).double())
    return found


CASES = cases()


def two_steps(step, model, of, update=0.05):
    """Losses and gradients of two steps on two batches; the weights move between them."""
    values = {}
    for n in range(2):
        rows = torch.arange(n * ITEMS, (n + 1) * ITEMS)
        modules = {"model": model, "step": step}
        parameters = {f"{a}.{b}": p for a, part in modules.items() for b, p in part.named_parameters()}
        loss = step(model, images(n), of[rows])
        for parameter in parameters.values():
            parameter.grad = None
        loss.backward()
        values[f"loss {n}"] = loss.detach()
        values |= {f"{name} {n}": p.grad for name, p in parameters.items() if p.grad is not None}
        with torch.no_grad():
            for parameter in parameters.values():
                if parameter.grad is not None:
                    parameter -= update * parameter.grad / (1 + parameter.grad.norm())
    return values


def assert_close(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.abs().max().clamp(min=1))
        torch.testing.assert_close(found[name], value, rtol=0, atol=tolerance * scale, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_chunks_change_neither_loss_nor_gradients(case):
    name, make = CASES[case]
    expected = two_steps(EmbeddingStep(loss=make()), network(), labels(name))
    found = two_steps(EmbeddingStep(ITEMS // CHUNKS, loss=make()), network(), labels(name))
    assert_close(found, expected)
    assert any(value.abs().sum() > 0 for name, value in found.items() if "backbone" in name)


@pytest.mark.parametrize("size", [3, 100])
def test_the_last_chunk_may_be_smaller(size):
    expected = two_steps(EmbeddingStep(loss=built("raw")), network(), CLASSES)
    assert_close(two_steps(EmbeddingStep(size, loss=built("raw")), network(), CLASSES), expected)


@pytest.mark.parametrize("name", ["triplet_margin", "n_pairs"])
def test_hdml(name):
    def step(chunk_size):
        sizes = {"embedding_dim": 6, "feature_dim": network().feature_dim, "num_classes": 4, "steps_per_epoch": 1}
        torch.manual_seed(0)
        return HDML(hidden=8, chunk_size=chunk_size, loss=built(name), **sizes).double()

    assert_close(two_steps(step(2), network(), CLASSES), two_steps(step(None), network(), CLASSES))


class Noisy(nn.Module):
    """Random numbers, and buffers that each forward pass changes; the output depends on one of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 30 * 30, 6)
        )
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, batch):
        self.calls += 1
        return self.layers(batch.double() / 255) * self.calls.clone()


def test_the_second_pass_repeats_random_numbers_and_buffers():
    batch, target, results = images(), torch.rand(ITEMS, 6, dtype=torch.float64), []
    for cached in (True, False):
        model = Noisy().double()
        torch.manual_seed(3)
        if cached:
            with embed_in_chunks(model, 2):
                embeddings = model(batch)
        else:
            embeddings = torch.cat([model(chunk) for chunk in batch.split(2)])
        (embeddings - target).square().sum().backward()
        results.append([*(p.grad for p in model.parameters()), *model.buffers(), torch.get_rng_state()])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert int(results[0][-2]) == ITEMS // 2  # batches that batch norm has seen


def test_the_model_is_as_before_afterwards():
    model = network()
    names = set(vars(model))
    with embed_in_chunks(model, 2):
        assert "forward" in vars(model)
    assert set(vars(model)) == names
    with pytest.raises(ZeroDivisionError), embed_in_chunks(model, 2):
        raise ZeroDivisionError
    assert copy.deepcopy(model).forward.__func__ is EmbeddingModel.forward


def test_only_embeddings_are_kept_between_the_passes():
    kept = {}
    for size in (None, 2):
        sizes = []
        with (
            torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t),
            embed_in_chunks(model := EmbeddingModel("small_cnn", dim=6), size),
        ):
            embeddings = model(images())
        kept[size] = sum(sizes)
        assert embeddings.requires_grad
    # checkpoint() hides the tensors of the network behind hooks of its own
    assert kept[2] < 0.05 * kept[None]


SCRIPT = """
import os, sys, torch
from contml.training.setup import accelerator
accelerator("float32")
from test_gradients import *
from safetensors.torch import save_file
rank = int(os.environ["RANK"]); half = slice(rank * ITEMS // 2, (rank + 1) * ITEMS // 2)
out = {}
for case in CASES:
    name, make = CASES[case]
    for size in (None, 1):
        model, step = network(), EmbeddingStep(size, loss=make())
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        of = labels(name)[torch.arange(ITEMS)]
        loss = step(parallel, images()[half], of)
        loss.backward()
        out |= {f"{case}|{size}|{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
        out[f"{case}|{size}|loss"] = loss.detach().clone()
save_file(out, f"FOLDER/gradients{rank}")
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    run_connected(SCRIPT.replace("FOLDER", str(tmp_path)), seconds=300)
    found = load_file(tmp_path / "gradients0")
    for case, (name, make) in CASES.items():
        model, step = network(), EmbeddingStep(loss=make())
        loss = step(model, images(), labels(name)[torch.arange(ITEMS)])
        loss.backward()
        expected = {key: p.grad for key, p in model.named_parameters() if p.grad is not None} | {"loss": loss.detach()}
        for size in (None, 1):
            assert_close({key: found[f"{case}|{size}|{key}"] for key in expected}, expected, tolerance=1e-8)
