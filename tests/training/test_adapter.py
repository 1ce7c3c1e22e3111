"""LoRA adapters: against a slow reference, merged into what is saved, resumed, and in two processes."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import torch
from support.miniature import assert_equal, small_trainer, weights
from support.models import images
from support.refusals import refuses
from support.runs import kill_at
from test_layer_decay import DRAWN, Deep, check_two_processes

import contml
from contml.app.experiment import evaluate_run, load, read_evaluation, train
from contml.models import EmbeddingModel
from contml.models.adapter import is_adapter, plain_weights
from contml.runs import create
from contml.training import OPTIMIZERS
from contml.training.checkpoint import load_weights

pytest.importorskip("peft")
LORA = ["model.backbone=small_cnn", "model.adapter=lora", "model.adapter_rank=2"]


def adapted(name, **options):
    """A model with adapters whose B is not 0, and the weights that it had before."""
    torch.manual_seed(0)
    model = EmbeddingModel(name, dim=4, adapter="lora", **options).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.add_adapter(3)
    for key, parameter in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.02)
    return model, before


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_convnext", "mobilenet_v2", "resnet18"])
def test_merged_weights_are_those_of_the_paper(name):
    """W + 2 B A, of each layer, written out; and the network is the same function."""
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    model, before = adapted(name, adapter_rank=3)
    own = dict(model.named_parameters())
    x, merged = images(2, 160 if "timm" in name else 64), plain_weights(model)
    output = model(x)
    assert merged.keys() == before.keys()
    changed = 0
    for key, value in merged.items():
        module = key.removesuffix(".weight")
        expected = before[key]
        if f"{module}.lora_A.default.weight" in own:
            a, b = (own[f"{module}.lora_{part}.default.weight"].detach().double() for part in "AB")
            product = torch.einsum("or,r...->o...", b.flatten(1), a)
            expected, changed = (before[key].double() + 2 * product).float(), changed + 1
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6, msg=key)
    assert changed > 5
    model.merge_adapter()
    assert_equal(merged, model.state_dict())
    torch.testing.assert_close(model(x), output, rtol=1e-3, atol=1e-3 * output.detach().abs().max().item())


def test_only_adapters_and_the_head_are_trained():
    model, _ = adapted("mobilenet_v2", frozen=10)
    trained = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(key.startswith("head.") or is_adapter(key) for key in trained)
    stages = {int(key.split(".")[2]) for key in trained if is_adapter(key)}
    assert stages == {*range(10, 19)}
    assert not any(module.training for module in model.train().modules() if isinstance(module, torch.nn.BatchNorm2d))
    model.requires_grad_(True)
    assert {key for key, parameter in model.named_parameters() if parameter.requires_grad} == trained
    count = len(trained)
    model.add_adapter(3)
    assert count == len({key for key, parameter in model.named_parameters() if parameter.requires_grad})


def test_targets():
    pytest.importorskip("timm")
    model, _ = adapted("timm:test_vit", adapter_targets=["qkv", "mlp.fc1"])
    layers = {key.split(".lora_")[0].partition(".")[2] for key, _ in model.named_parameters() if is_adapter(key)}
    assert layers == {f"blocks.{n}.{layer}" for n in range(6) for layer in ("attn.qkv", "mlp.fc1")}
    with refuses("adapter_targets", "qvk of timm:test_vit", hint="'qkv'"):
        adapted("timm:test_vit", adapter_targets=["qvk"])


def test_wrong_options(monkeypatch):
    with refuses("adapter", "lora, but all of the backbone is frozen", hint="omit it, or set frozen=false"):
        EmbeddingModel("small_cnn", adapter="lora", frozen=True)
    with refuses("adapter", "lora, but features has no linear layer"):
        EmbeddingModel("features", adapter="lora", feature_dim=4).add_adapter(0)
    with refuses("adapter_rank", "0"):
        EmbeddingModel("small_cnn", adapter="lora", adapter_rank=0)
    monkeypatch.setitem(sys.modules, "peft", None)
    with refuses("adapter", "lora needs peft", hint='pip install "contml[finetune]"'):
        EmbeddingModel("small_cnn", adapter="lora").add_adapter(0)
    with refuses("model.adapter", "lora needs peft"):
        load("pose/synthetic", [*DRAWN, *LORA]).check_packages()


def trainer_of(run=None, **options):
    experiment = load("pose/synthetic", [*DRAWN, *LORA])
    return experiment.build_trainer(experiment.build_task(), run, quiet=True, **options)


@pytest.mark.slow
def test_a_killed_training_gives_the_same_weights(tmp_path):
    whole = trainer_of()
    start = weights(whole)
    whole.fit()
    trained = weights(whole)
    assert all(torch.equal(value, start[key]) for key, value in trained.items() if ".base_layer." in key)
    assert not any(torch.equal(value, start[key]) for key, value in trained.items() if "lora_B" in key)
    run = create(tmp_path, "killed")
    kill_at(trainer_of(run), 1, 1)
    resumed = trainer_of(run, weights=False)
    resumed.resume()
    resumed.fit()
    assert_equal(trained, weights(resumed))
    assert_equal(whole.best.weights, resumed.best.weights)
    saved, _ = load_weights(run.checkpoints / "last.safetensors")
    assert_equal(saved, plain_weights(whole.bare_model))
    whole.take_best()
    assert_equal(weights(whole), whole.best.weights)


@pytest.mark.usefixtures("no_reports")
def test_a_run_needs_no_peft_when_it_is_used(tmp_path, monkeypatch, capsys):
    run = train(load("pose/synthetic", [*DRAWN, *LORA, "training.select=none"]), tmp_path / "runs")
    assert "trained weights: " in capsys.readouterr().err
    evaluated = read_evaluation(run)
    monkeypatch.setitem(sys.modules, "peft", None)
    model = contml.load(run.folder)
    picture = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    embedding = model.embed([picture])
    assert evaluate_run(run.folder) == evaluated
    model.save(tmp_path / "bundle")
    np.testing.assert_array_equal(contml.load(tmp_path / "bundle").embed([picture]), embedding)


def deep_trainer():
    model = EmbeddingModel(Deep(), dim=4, adapter="lora", adapter_rank=2)
    return small_trainer(model=model, optimizer=partial(OPTIMIZERS["sgd"], lr=1e-3))


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_two_processes(deep_trainer, free=("head.bias",), frozen=".base_layer.")
