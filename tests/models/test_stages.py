"""Stages of backbones: what `model.frozen` counts."""

import re
from collections import Counter

import pytest
import torch
from support.models import images
from support.refusals import refuses
from torch import nn
from torchvision import models

from contml.models import EmbeddingModel
from contml.models.network import stage_of

NETWORKS = ["mobilenet_v2", "resnet18", "vit_b_16", "small_cnn", "timm:test_vit", "timm:test_convnext"]


@pytest.mark.parametrize(
    ("name", "pattern", "count"),
    [("mobilenet_v2", r"features\.(\d+)", 19), ("vit_b_16", r"encoder\.layers\.encoder_layer_(\d+)", 13)],
)
def test_networks_inside_a_module_with_nearly_all_weights(name, pattern, count):
    with torch.device("meta"):
        network = models.get_model(name)
    setattr(network, "heads" if name == "vit_b_16" else "classifier", nn.Identity())
    stages = stage_of(network)
    blocks = {key: int(re.match(pattern, key)[1]) for key in stages if re.match(pattern, key)}
    first = 1 if name == "vit_b_16" else 0
    assert {key: stages[key] - first for key in blocks} == blocks
    assert {*stages.values()} == {*range(count)}
    rest = {key: stages[key] for key in stages if key not in blocks}
    if name == "vit_b_16":
        at_start = {"class_token", "conv_proj.weight", "conv_proj.bias", "encoder.pos_embedding"}
        assert rest == {**dict.fromkeys(at_start, 0), "encoder.ln.weight": 12, "encoder.ln.bias": 12}


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext", "test_vit2"])
def test_timm_names_its_stages(name):
    timm = pytest.importorskip("timm")
    backbone = timm.create_model(name, num_classes=0)
    stages = stage_of(backbone)
    groups = timm.models.group_parameters(backbone, backbone.group_matcher(coarse=True))
    last = max(groups)
    if all(backbone.get_parameter(key).ndim == 1 for key in groups[last]):  # the normalization at the end
        groups[last - 1] += groups.pop(last)
    assert {stage: sorted(names) for stage, names in groups.items()} == {
        stage: sorted(key for key, own in stages.items() if own == stage) for stage in groups
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "vit_b_16")) for name in NETWORKS]
)
def test_the_first_stages_are_frozen(name):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    torch.manual_seed(0)
    model = EmbeddingModel(name, dim=4, frozen=2).eval().train()
    stages = stage_of(model.backbone)
    assert not model.frozen
    before = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    side = 160 if name.startswith("timm:") else 224 if name == "vit_b_16" else 64
    for _ in range(2):
        optimizer.zero_grad()
        model(images(2, side)).square().mean().backward()
        optimizer.step()
    changed = {key for key, value in model.backbone.state_dict().items() if not torch.equal(value, before[key])}
    named = dict(model.backbone.named_parameters())
    for key, stage in stages.items():
        assert named[key].requires_grad == (stage >= 2), key
        assert stage >= 2 or key not in changed, key
    assert {key for key in changed if key in stages}
    for key in changed - {*stages}:  # statistics of batch norm are those of trained stages alone
        assert stages[key.rpartition(".")[0] + ".weight"] >= 2, key
    weight_of = {key: key.replace("running_mean", "weight") for key in before if key.endswith("running_mean")}
    assert all(key in changed for key, weight in weight_of.items() if stages.get(weight, -1) >= 2)
    model.requires_grad_(True)
    assert not any(named[key].requires_grad for key, stage in stages.items() if stage < 2)
    assert Counter(stages.values())[0] > 0


def test_all_stages_are_too_many():
    for wrong in (5, 9):
        with refuses("frozen", str(wrong), "must be at most 4, since resnet18 has 5 stages", "true freezes all"):
            EmbeddingModel("resnet18", frozen=wrong)
    for wrong in (0, -1, 1.5):
        with refuses("frozen", str(wrong)):
            EmbeddingModel("resnet18", frozen=wrong)
    with refuses("frozen", "1"):
        EmbeddingModel("features", frozen=1, feature_dim=4)
    assert EmbeddingModel("resnet18", frozen=True).frozen
    assert not EmbeddingModel("resnet18", frozen=False).frozen


def test_levels_have_stages_too():
    model = EmbeddingModel("resnet18", dim=4, levels=["middle", "high"], frozen=3)
    assert not any(p.requires_grad for p in model.backbone.layer2.parameters())
    assert all(p.requires_grad for p in model.backbone.layer3.parameters())
