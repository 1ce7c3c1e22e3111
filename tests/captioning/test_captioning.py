import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.captioning import captioning_trainer, described_squares, small_captioner, small_step, words_of
from support.decoders import forced
from support.miniature import squares, weights
from support.processes import run_connected
from support.refusals import refuses
from support.runs import assert_resumes

from contml._support.tensors import save_tensors
from contml.captioning import CaptioningStep, CiderDReward
from contml.captioning.vocabulary import Vocabulary
from contml.data import Vector
from contml.losses import LogRatioLoss
from contml.training import EmbeddingStep, Trainer, Training
from contml.training.optimizers import adamw, sgd

ROWS = [3, 0, 7]


def batch(split, rows=ROWS):
    return torch.stack([torch.from_numpy(split.images[row].values) for row in rows]).double(), split.labels[rows]


def slow_cross_entropy(captioner, split, rows, smoothing, length):
    """Caption after caption, word after word."""
    total, words = 0.0, 0
    for row in rows:
        image = torch.from_numpy(split.images[row].values).double()[None]
        for caption in words_of(split)[row]:
            targets = [*captioner.vocabulary.encode(caption)[:length], Vocabulary.END]
            state, token = captioner.decoder.start(captioner.visual(image)), Vocabulary.BEGIN
            for target in targets:
                logits, state = captioner.decoder.step(torch.tensor([token]), state)
                logs = logits[0] - torch.logsumexp(logits[0], 0)
                total -= (1 - smoothing) * logs[target] + smoothing * logs.mean()
                words, token = words + 1, target
    return total / words


@pytest.mark.parametrize(("decoder", "smoothing", "length"), [("lstm", 0, 8), ("attention", 0.1, 8), ("lstm", 0.3, 3)])
def test_cross_entropy_equals_a_slow_loop(decoder, smoothing, length):
    split = described_squares(maps=decoder == "attention")
    captioner = small_captioner(split, decoder=decoder, length=length).double()
    step = small_step(split, captioner, label_smoothing=smoothing)
    images, labels = batch(split)
    value = step(captioner, images, labels)
    slow = slow_cross_entropy(captioner, split, ROWS, smoothing, length)
    torch.testing.assert_close(value, slow, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(v, [*captioner.decoder.parameters()]) for v in (value, slow))
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("samples", "compared_with"), [(4, "samples"), (4, "greedy"), (1, "greedy")])
def test_self_critical_training_equals_a_slow_loop_without_dropout(samples, compared_with):
    split = described_squares()
    captioner = small_captioner(split, dropout=0.5).double().train()
    step = small_step(split, captioner, cross_entropy_epochs=0, samples=samples, baseline=compared_with)
    images, labels = batch(split)
    torch.manual_seed(5)
    value = step(captioner, images, labels)
    assert captioner.decoder.training
    captioner.eval()
    torch.manual_seed(5)
    tokens, _, _ = captioner(images, samples=samples)
    most_probable = captioner.describe(images, beam=1)
    ids = [[[*captioner.vocabulary.encode(w), Vocabulary.END] for w in of_image] for of_image in words_of(split)]
    reward = CiderDReward(ids)
    total, words = 0.0, 0
    for position, row in enumerate(ROWS):
        drawn = [[t for t in caption.tolist() if t != Vocabulary.PAD] for caption in tokens[position]]
        greedy = [t for t in most_probable[position].tolist() if t != Vocabulary.PAD]
        *rewards, of_greedy = (reward(np.array([d]), np.array([len(d)]), np.array([row]))[0] for d in [*drawn, greedy])
        for number, caption in enumerate(drawn):
            baseline = of_greedy
            if compared_with == "samples":
                baseline = sum(r for other, r in enumerate(rewards) if other != number) / (samples - 1)
            inputs = torch.tensor([[Vocabulary.BEGIN, *caption[:-1]]])
            logits = forced(captioner.decoder, captioner.visual(images[position : position + 1]), inputs)[0]
            logits[:, [Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.UNKNOWN]] = -math.inf  # never drawn
            logs = logits.log_softmax(1)[range(len(caption)), caption]
            total, words = total - (rewards[number] - baseline) * logs.sum(), words + len(caption)
    torch.testing.assert_close(value, total / words, rtol=1e-9, atol=1e-12)
    assert len({tuple(t.flatten().tolist()) for t in tokens}) > 1
    gradients = (torch.autograd.grad(v, [*captioner.decoder.parameters()]) for v in (value, total / words))
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-12)


def test_each_phase_trains_its_part():
    trainer = captioning_trainer(epochs=1, batches=3, embedding_epochs=0, cross_entropy_epochs=1)
    before = weights(trainer)
    trainer.fit()
    for name, value in weights(trainer).items():
        frozen = name.startswith("network.") or name == "words"
        assert torch.equal(value, before[name]) == frozen, name
    trainer = captioning_trainer(epochs=1, batches=3, embedding_epochs=1)
    before = weights(trainer)
    trainer.fit()
    for name, value in weights(trainer).items():
        learns = name.startswith(("network.head", "feature_"))
        assert torch.equal(value, before[name]) != learns, name


def test_killed_in_any_phase_it_ends_with_the_same_weights(tmp_path):
    def make(run):
        return captioning_trainer(run, training={"checkpoint_minutes": 0.0})

    assert_resumes(make, tmp_path, (0, 3), (1, 2), (2, 0), (2, 4))


SCRIPT = """
import sys, torch
from support.captioning import captioning_trainer
from contml._support.tensors import save_tensors
from contml.training.optimizers import sgd
from pathlib import Path
for frozen in (True, False):
    trainer = captioning_trainer(epochs=2, dropout=0, frozen=frozen, optimizer=sgd)
    trainer.fit()
    if trainer.accelerator.is_main_process:
        save_tensors(Path(%r) / f"{frozen}.safetensors", trainer.bare_model.state_dict())
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    from safetensors.torch import load_file

    run_connected(SCRIPT % str(tmp_path), 240)
    for frozen in (True, False):
        # Adam would scale the rounding of gradients that are 0, such as that of a bias of the embedding.
        one = captioning_trainer(epochs=2, dropout=0, frozen=frozen, optimizer=sgd)
        one.fit()
        for name, value in load_file(tmp_path / f"{frozen}.safetensors").items():
            torch.testing.assert_close(value, weights(one)[name], rtol=1e-3, atol=1e-4, msg=name)


def test_bad_options():
    split = described_squares()
    captioner = small_captioner(split)
    with refuses("samples"):
        small_step(split, captioner, samples=1)
    with refuses("model", allowed="must be a Captioner"):
        small_step(split, captioner).check(torch.nn.Identity(), split.labels)
    with refuses("captions", got="30", allowed="20"):
        small_step(split, captioner).check(captioner, squares(20).labels)
    assert EmbeddingStep(loss=LogRatioLoss()).every_parameter
    described = words_of(split)
    described[4] = []
    with refuses("image 4", got="has no caption"):
        data = {"vocabulary": captioner.vocabulary, "length": 5, "steps_per_epoch": 1, "epochs": 1}
        CaptioningStep(captions=described, **data)


def shifted(split, shift, scale=1):
    return replace(split, images=[Vector(scale * each.values + np.float32(shift)) for each in split.images])


def frozen_trainer(change, decoder="lstm", epochs=1, **options):
    """A trainer of a decoder on features that are changed."""
    trainer = captioning_trainer(decoder=decoder, embedding_epochs=0)
    captioner = small_captioner(trainer.split, decoder=decoder, layer="features", **options)
    step, split = small_step(trainer.split, captioner, epochs=epochs), change(trainer.split)
    parts = captioner, step, split, trainer.sampler, trainer.images, Training(epochs=epochs)
    return Trainer(*parts, optimizer=lambda groups: adamw(groups=groups, lr=0.02), quiet=True)


@pytest.mark.parametrize("decoder", ["lstm", pytest.param("attention", marks=pytest.mark.slow)])
def test_features_of_a_frozen_network_are_standardized(decoder):
    """A common mean and a scale change no caption."""
    written = []
    for change in (partial(shifted, shift=0), partial(shifted, shift=100), partial(shifted, shift=-3, scale=1000)):
        trainer = frozen_trainer(change, decoder, epochs=40)
        trainer.fit()
        features = np.stack([each.values for each in trainer.split.images]).astype(np.float64)
        mean = features.reshape(-1, 8).mean(0)
        captioner = trainer.bare_model
        torch.testing.assert_close(captioner.feature_mean.double(), torch.from_numpy(mean), rtol=1e-6, atol=1e-6)
        deviation = np.sqrt(np.square(features - mean).mean())
        torch.testing.assert_close(float(captioner.feature_deviation), float(deviation), rtol=1e-4, atol=0)
        tokens = captioner.eval().describe(torch.from_numpy(features).float())
        written.append([captioner.vocabulary.decode(row) for row in tokens])
    assert len({*written[0]}) > 3
    assert written[0] == written[1] == written[2]


def test_what_is_standardized(tmp_path):
    """Not a network that learns; after the embedding; not under a decoder that is trained already."""

    def moments(trainer):
        captioner = trainer.bare_model
        return captioner.feature_mean.clone(), captioner.feature_deviation.clone()

    trainer = captioning_trainer(frozen=False)
    trainer.fit()
    assert not moments(trainer)[0].any()
    assert moments(trainer)[1] == 1

    trainer = captioning_trainer()
    trainer.fit()
    captioner = trainer.bare_model.eval()
    with torch.no_grad():
        x = captioner.network(torch.stack([torch.from_numpy(each.values) for each in trainer.split.images]))
    torch.testing.assert_close(captioner.feature_mean, x.mean(0))
    torch.testing.assert_close(captioner.feature_deviation, (x - x.mean(0)).square().mean().sqrt())

    constant = frozen_trainer(lambda split: replace(split, images=[Vector(np.full(8, 7, np.float32))] * len(split)))
    constant.fit()
    assert moments(constant)[1] == 1

    first = frozen_trainer(partial(shifted, shift=100))
    first.fit()
    save_tensors(tmp_path / "first.safetensors", first.bare_model.state_dict())
    second = frozen_trainer(partial(shifted, shift=50), weights=str(tmp_path / "first.safetensors"))
    second.fit()
    for a, b in zip(moments(first), moments(second), strict=True):
        assert torch.equal(a, b)
