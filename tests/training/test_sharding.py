"""FSDP2 trains as DDP does, to the bit; its checkpoints are whole; what it does not follow is refused."""

from __future__ import annotations

import os

import pytest
import torch
from support.miniature import small_trainer, squares
from support.processes import run_connected
from support.refusals import refuses
from torch import nn

from contml.losses import LogRatioLoss
from contml.models import EmbeddingModel
from contml.processes import world
from contml.runs import Run
from contml.training import EmbeddingStep
from contml.training.sharding import Sharding, _units, launched_sharding

SCRIPT = """
import shutil
from test_sharding import *
from pathlib import Path
from contml.training.optimizers import adam, sgd
from test_hdml import ClassSampler, Trainer, Training, augmented, class_squares, hdml, model_of, triplet_margin
from support.miniature import *

def trained(sharded, run=None, stop=None, wrap="SIZE_BASED_WRAP", **options):
    environment(sharded, wrap)
    trainer = trainer_of(run, Scaled(), **{"optimizer": adam, **options})
    assert (trainer._sharded is not None) == sharded
    if sharded:
        assert isinstance(next(trainer.bare_model.parameters()), torch.distributed.tensor.DTensor)
    if run is not None:
        trainer.resume()
    if stop is not None:
        batch = trainer.sampler.batch
        def stopped(*position):
            if position == stop:
                raise KeyboardInterrupt
            return batch(*position)
        trainer.sampler.batch = stopped
    try:
        trainer.fit()
    except KeyboardInterrupt:
        return None
    modules = trainer.whole_model(), trainer.training_step, trainer.average
    states = [{key: value.clone() for key, value in module.state_dict().items()} for module in modules]
    metric = trainer.evaluate(trainer.watched["val"])[0].main.model
    trainer.take_best()
    assert type(trainer.model) is EmbeddingModel
    return *states, trainer.bare_model.state_dict(), metric

def compare(a, b, tolerance=0.0):
    for x, y in zip(a[:4], b[:4]):
        assert x.keys() == y.keys()
        for key in x:
            assert torch.allclose(x[key].double(), y[key].double(), rtol=tolerance, atol=tolerance), key
    assert abs(a[4] - b[4]) <= tolerance

def both(tolerance=0.0, **options):
    compare(trained(False, **options), trained(True, **options), tolerance)
"""

CASES = {
    "values": "both(clip_value=1e-3, head_only_epochs=1)",
    "norm": "both(tolerance=1e-6, clip_norm=1e-3, optimizer=sgd)",
    "chunks": "both(chunk_size=3, ema_weight=0.5, wrap='NO_WRAP')",
    "lora": "both(adapter='lora')",
    "resume": """
run = Run(FOLDER)
whole = trained(False)
for first in (True, False):  # begun with FSDP2 and ended with DDP, and the other way round
    torch.distributed.barrier()
    if world()[0] == 0:
        shutil.rmtree(run.folder)
        run.checkpoints.mkdir(parents=True)
    torch.distributed.barrier()
    assert trained(first, run, stop=(1, 1), checkpoint_minutes=0) is None
    compare(whole, trained(not first, run, checkpoint_minutes=0))
assert trained(True, run, stop=(9, 9)) is not None  # finished: the state is read, nothing is trained
""",
    "hdml": """
def hdml_trained(sharded):
    environment(sharded, "NO_WRAP")
    split = class_squares()
    sampler = ClassSampler(4, 3, batches=3, labels=split.labels, seed=3)
    step = hdml(triplet_margin(), beta=30.0, alpha=5.0)
    trainer = Trainer(model_of(), step, split, sampler, augmented(resize=16, crop=14), Training(epochs=1), quiet=True)
    assert (trainer._sharded is not None) == sharded
    trainer.fit()
    return {**trainer.whole_model().state_dict(), **step.state_dict()}
expected, found = hdml_trained(False), hdml_trained(True)
assert all(found[key].equal(expected[key]) for key in expected)
""",
}


class Scaled(LogRatioLoss):
    """A loss with parameters, which are not sharded."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, embeddings, labels, *, anchors=None):
        return super().forward(embeddings, labels, anchors=anchors) * self.scale.square().sum()


class Small(nn.Module):
    """Linear layers and batch norm."""

    def __init__(self):
        super().__init__()
        self.pool, self.a, self.norm = nn.AdaptiveAvgPool2d(4), nn.Linear(48, 9), nn.BatchNorm1d(9)
        self.b = nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 5))

    def forward(self, images):
        return self.b(self.norm(self.a(self.pool(images.float() / 255).flatten(1))).tanh())


def environment(sharded, wrap="SIZE_BASED_WRAP"):
    """What `accelerate launch` sets."""
    values = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": wrap}
    values["FSDP_MIN_NUM_PARAMS"] = "30"
    for key, value in values.items():
        if sharded:
            os.environ[key] = value
        else:
            os.environ.pop(key, None)


def trainer_of(run=None, loss=None, chunk_size=None, ema_weight=None, adapter=None, **options):
    """Each process makes other weights: the first one's are trained."""
    torch.manual_seed(world()[0])
    model, step = EmbeddingModel(Small(), dim=4, adapter=adapter), EmbeddingStep(chunk_size, ema_weight, loss=loss)
    return small_trainer(run, model=model, step=step, batches=3, ema=0.7, val=squares(21, seed=2), **options)


@pytest.mark.slow
def test_it_trains_as_ddp(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    cases = "".join(f"{code}\nprint('{name}', flush=True)\n" for name, code in CASES.items())
    run_connected(SCRIPT + cases.replace("FOLDER", f"Path('{folder}')"), seconds=500)
    one = trainer_of(Run(folder), Scaled())  # one process reads the state
    one.resume()
    assert one.finished


LAUNCH = {
    "DeepSpeed": {"ACCELERATE_USE_DEEPSPEED": "true"},
    "Megatron-LM": {"ACCELERATE_USE_MEGATRON_LM": "true"},
    "tensor or context parallelism": {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"},
    "gradient_accumulation_steps 4": {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"},
    "dynamo_backend INDUCTOR": {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"},
    "mixed_precision bf16, but the training has no": {"ACCELERATE_MIXED_PRECISION": "bf16"},
    "fsdp_version 1": {"ACCELERATE_USE_FSDP": "true"},
    "fsdp_offload_params true": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"},
    "fsdp_activation_checkpointing true": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_ACTIVATION_CHECKPOINTING": "true",
    },
    "fsdp_ignored_modules head": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_IGNORED_MODULES": "head",
    },
}


@pytest.mark.parametrize("got", LAUNCH)
def test_what_a_training_does_not_follow_is_refused(monkeypatch, got):
    for key, value in LAUNCH[got].items():
        monkeypatch.setenv(key, value)
    with refuses("accelerate launch", got=got):
        small_trainer()


def test_float16_with_parts_of_weights(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with refuses("precision", got="float16, with FSDP2"):
        launched_sharding("fp16")


def test_one_process_keeps_its_weights(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    trainer = small_trainer()
    assert trainer._sharded is None
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"


def test_units(monkeypatch):
    for key, value in {"USE_FSDP": "true", "DYNAMO_BACKEND": "NO"}.items():
        monkeypatch.setenv(f"ACCELERATE_{key}", value)
    monkeypatch.setenv("FSDP_VERSION", "2")
    assert launched_sharding("no") == Sharding(None, (), True)
    monkeypatch.setenv("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP")
    monkeypatch.setenv("FSDP_TRANSFORMER_CLS_TO_WRAP", "TransformerEncoderLayer, Linear")
    monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "false")
    by_class = launched_sharding("bf16")
    assert by_class == Sharding(None, ("TransformerEncoderLayer", "Linear"), False)
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    model = nn.Sequential(nn.ModuleList([layer]), nn.Conv2d(3, 8, 1))
    # Attention reads the weights of its layer `out_proj`, without a call.
    assert _units(model, by_class) == [layer.linear2, layer.linear1, layer]
    assert _units(model, Sharding(200, (), True)) == [layer.self_attn, layer]
    assert _units(model, Sharding(None, (), True)) == []
    with refuses("accelerate launch", got="Blok", hint="TransformerEncoderLayer"):
        _units(model, Sharding(None, ("Blok",), True))
