"""A compiled backbone: the same training up to rounding, the same to the bit where it is resumed."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from support.miniature import assert_equal, small_trainer, weights
from support.runs import kill_at
from test_layer_decay import Deep

from contml.models import EmbeddingModel
from contml.runs import create
from contml.training.optimizers import sgd


def trainer_of(run=None, **options):
    """Small steps: two trainings that differ by rounding stay close."""
    return small_trainer(run, model=EmbeddingModel(Deep(), dim=4), optimizer=partial(sgd, lr=1e-3), **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_it_is_the_same_training(tmp_path):
    plain, compiled = trainer_of(checkpoint_minutes=0), trainer_of(compile=True, checkpoint_minutes=0)
    for trainer in (plain, compiled):
        trainer.fit()
    assert plain._compiled._code is None
    assert compiled._compiled._code is not None
    for key, value in weights(plain).items():
        torch.testing.assert_close(weights(compiled)[key], value, rtol=1e-3, atol=1e-4, msg=key)
    assert compiled.bare_model.backbone._compiled_call_impl is None  # it is evaluated as it is used
    run = create(tmp_path, "killed")
    kill_at(trainer_of(run, compile=True, checkpoint_minutes=0), 1, 1)
    resumed = trainer_of(run, compile=True, checkpoint_minutes=0)
    resumed.resume()
    resumed.fit()
    assert_equal(weights(compiled), weights(resumed))


def test_without_a_compiler_it_is_left_out(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Failed to find C++ compiler.\nPlease specify one")

    monkeypatch.setattr(torch, "compile", fail)
    lines = []
    trainer = trainer_of(compile=True, epochs=1)
    monkeypatch.setattr("contml._support.progress.TrainingProgress.line", lambda self, text: lines.append(text))
    trainer.fit()
    assert "training.compile is left out: Failed to find C++ compiler. Please specify one" in lines
    assert trainer.trained
