"""The benchmark of label errors: what is planted, and the loss of an item."""

import numpy as np
import pytest
import torch
from support.label_spaces import captions, poses

from benchmarks import label_errors as benchmark
from contml.app.trials.record import FinishedTrainings
from contml.data import Split, Task
from contml.labels import NumberLabels, SegmentationLabels
from contml.losses import LogRatioLoss


def data(labels):
    n = len(labels)
    split = Split([torch.zeros(3, 1, 1, dtype=torch.uint8)] * n, [str(row) for row in range(n)], labels)
    return benchmark.Data(None, Task(split, split), labels.pairwise(), torch.zeros(n, 1))


def changed(found, planted):
    return sorted(set((found.matrix != planted.labels.matrix).any(1).nonzero()[:, 0].tolist()))


def test_swapped_labels_change_their_places():
    planted = benchmark.plant("houses_535", data(NumberLabels(torch.arange(200.0))), "swaps", 3)
    assert planted.wrong.sum() == 10
    wrong = np.flatnonzero(planted.wrong)
    assert sorted(planted.numbers[wrong]) == wrong.tolist()
    assert (planted.numbers[wrong] != wrong).all()
    right = np.flatnonzero(planted.wrong == 0)
    assert (planted.numbers[right] == right).all()
    expected = abs(planted.numbers[:, None] - planted.numbers[None])
    np.testing.assert_allclose(planted.labels.pairwise(), expected, atol=1e-4)


@pytest.mark.parametrize(("pack", "labels"), [
    ("houses_535", NumberLabels(torch.randn(20, generator=torch.Generator().manual_seed(0)))),
    ("pose_lspet", poses()),
    ("rooms_nyuv2", SegmentationLabels(np.random.default_rng(0).integers(0, 4, (20, 16, 16)), 4)),
])  # fmt: skip
def test_noise_changes_the_labels_of_the_wrong_items_alone(pack, labels):
    found = data(labels)
    planted = benchmark.plant(pack, found, "noise", 1)
    wrong = np.flatnonzero(planted.wrong)
    right = np.flatnonzero(planted.wrong == 0)
    assert len(wrong) == 2
    assert (planted.labels.matrix[wrong][:, right] != found.matrix[wrong][:, right]).any(1).all()
    assert torch.equal(planted.labels.matrix[right][:, right], found.matrix[right][:, right])
    assert torch.equal(planted.labels.matrix, planted.labels.matrix.T)
    assert planted.labels.matrix.diagonal().abs().max() < 1e-6


def test_noise_of_captions_replaces_three_of_them():
    found = data(captions())
    before = found.task.train.labels.captions
    noisy = benchmark.noisy_captions(found.task, torch.tensor([4]), np.random.default_rng(0))
    assert [row for row in range(20) if noisy.captions[row] != before[row]] == [4]
    assert found.task.train.labels.captions == before  # the data are as they were


def test_the_pixels_of_noisy_rooms_are_counted():
    labels = SegmentationLabels(np.random.default_rng(0).integers(0, 4, (20, 16, 16)), 4, side=None)
    noisy = benchmark.noisy_rooms(data(labels).task, torch.tensor([2, 5]), np.random.default_rng(0))
    assert noisy.areas.sum(1).tolist() == [256] * 20
    assert not torch.equal(noisy.areas[[2, 5]], labels.areas[[2, 5]])


def test_the_loss_of_an_item_is_its_mean_as_an_anchor(monkeypatch):
    monkeypatch.setattr(benchmark, "_BATCH", 10)
    monkeypatch.setattr(benchmark, "_BATCHES", 1)
    x, labels = torch.randn(10, 3, dtype=torch.float64), NumberLabels(torch.randn(10))
    loss = LogRatioLoss()
    found = benchmark.item_losses(loss, x, labels, torch.arange(10))
    expected = [loss(x, labels, anchors=torch.tensor([row])).item() for row in range(10)]
    np.testing.assert_allclose(found, expected)
    some = benchmark.item_losses(loss, x, labels, torch.tensor([3]))
    assert some[3] == pytest.approx(expected[3])
    assert (np.delete(some, 3) == 0).all()


def test_the_report_pairs_the_seeds(tmp_path):
    record = FinishedTrainings(tmp_path / "raw.jsonl")
    for kind in benchmark.KINDS:
        for seed in benchmark.SEEDS:
            values = {benchmark.OURS: 0.4 + seed / 100, benchmark.LOSS: 0.2 + seed / 100, benchmark.UNSEEN: 0.3}
            record.add(benchmark.Planting("pose_lspet", kind, seed).key, {**values, "seconds": 1.0})
    text = benchmark.report(FinishedTrainings(tmp_path / "raw.jsonl"), ["pose_lspet"])
    none = "- | - | -"
    row = f"| pose_lspet | 5 | 0.430 ± 0.020 | {none} | 0.230 ± 0.020 | 0.300 ± 0.000 | - | 1.9 | +0.200 ± 0.000 |"
    assert row in text
    assert "Swaps" in text
    assert "Noise" in text
