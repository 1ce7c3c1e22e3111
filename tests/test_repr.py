"""`repr` of losses, miners and samplers shows their options. test_labels.py tests that of label spaces."""

import torch

from contml import ClassLabels, CrossBatchMemory, EmbeddingStep, NumberLabels
from contml.config import data_arguments, options
from contml.losses import LOSSES
from contml.mining import MINERS, VTHM
from contml.sampling import SAMPLERS


def test_losses_show_their_options():
    for name, loss in LOSSES.items():
        takes = data_arguments(loss)
        data = {"num_classes": 4, "embedding_dim": 8}
        text = repr(loss(**{key: value for key, value in data.items() if takes.get(key)}))
        assert text.startswith(loss.__name__)
        for option in options(loss):
            if option.default is not None and option.name not in ("centers", "boundary"):  # these are parameters
                assert f"{option.name}={option.default!r}" in text, name
        if takes.get("num_classes"):
            assert "4 classes, 8 dimensions" in text


def test_miners_memories_and_steps_show_their_options():
    assert repr(VTHM(0.2)) == "VTHM(epsilon=0.2)"
    for name, miner in MINERS.items():
        assert all(f"{option.name}={option.default!r}" in repr(miner()) for option in options(miner)), name
    memory = CrossBatchMemory(LOSSES["raw"](), 10)
    labels = ClassLabels([0, 0, 1, 1])
    memory(torch.randn(4, 3), labels[range(4)])
    assert "4 of 10 embeddings remembered" in repr(memory)
    assert "LogRatioLoss(squared=True, strict=False)" in repr(EmbeddingStep(loss=LOSSES["log_ratio"]()))


def test_samplers_show_their_batches():
    classes, vectors = ClassLabels([0, 0, 1, 1, 2, 2] * 5), NumberLabels(torch.arange(30))
    found = repr(SAMPLERS["classes"](2, 2, labels=classes))
    assert found == "ClassSampler(7 batches per epoch, 30 items, classes=2, instances=2, seed=0)"
    found = repr(SAMPLERS["triplets"](2, labels=classes))
    assert found == "TripletSampler(5 batches per epoch, 30 items, triplets=2, seed=0)"
    assert "30 batches per epoch, 30 items, batch_size=12" in repr(SAMPLERS["dense"](12, 1, labels=vectors))
    assert "UniformSampler(7 batches per epoch, 30 items, batch_size=4" in repr(SAMPLERS["uniform"](4, labels=vectors))
