"""Configs with a memory, a miner, proxies or an outside loss: they train, resume bit for bit, and report mistakes."""

import pytest
import torch
from support.refusals import refuses
from support.runs import assert_resumes, from_text

from contml import InputError
from contml.app.experiment import check, load_run
from contml.losses import LogRatioLoss, RankSimLoss
from contml.losses.memory import CrossBatchMemory
from contml.runs import create

THRESHOLD = "binarize: {name: threshold, threshold: 20}"
MARGIN = "loss: {name: margin, per_class: true}\nminer: distance_weighted"
#: (whether labels are classes, further sections of the config).
EXPERIMENTS = {
    "memory of continuous labels": (False, "loss: log_ratio\nmemory: {size: 25, start: 1}"),
    "memory of a threshold": (False, f"{THRESHOLD}\nloss: contrastive\nmemory: {{size: 12}}"),
    "memory, miner and a loss that learns": (True, f"{MARGIN}\nmemory: {{size: 20, start: 0}}"),
    "miner": (True, "loss: raw\nminer: {name: vthm, epsilon: 0.2}"),
    "triplets": (True, "loss: {name: triplet_margin, margin: 1, distance: squared_euclidean, triplets: batch}"),
    "regularizer": (False, "loss: log_ratio\nregularizer: {name: rank_sim, weight: 5}"),
    "regularizer beside proxies": (True, "loss: {name: soft_triple, centers: 2}\nregularizer: rank_sim"),
    "proxies": (True, "loss: {name: soft_triple, centers: 2}"),
    "outside": (True, "loss: {name: pml:ProxyAnchorLoss, alpha: 16}"),
    "outside, at random": (True, "loss: {name: pml:TripletMarginLoss, triplets_per_anchor: 3}"),
}
#: Overrides of an experiment.
OVERRIDES = {"triplets": ["sampler={name: triplets, triplets: 2, batches: 3}"]}


def experiment(folder, name, *overrides):
    classes, parts = EXPERIMENTS[name]
    return from_text(folder, classes, parts, *OVERRIDES.get(name, []), *overrides)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_resumes_bit_for_bit(tmp_path, name):
    made = experiment(tmp_path, name)
    # With a memory: before it is used, and after its buffer is full.
    stops = ((0, 1), (1, 1)) if "memory" in name else ((1, 1),)
    whole = assert_resumes(lambda run: made.build_trainer(made.build_task(), run, quiet=True), tmp_path, *stops)
    if "memory" in name:
        assert isinstance(whole.training_step.loss, CrossBatchMemory)
        assert whole.training_step.loss.written == 6 * (whole.total_steps - whole.training_step.loss.start)


def test_an_outside_loss_needs_no_trust(tmp_path):
    made = experiment(tmp_path, "outside", "training.epochs=1")
    run = create(tmp_path, "run")
    text = (tmp_path / "own.yaml").read_text().replace("support.runs:squares_task", "pose/synthetic")
    run.config.write_text(text.replace(", classes: true", ""))
    assert load_run(run.folder)[0].values["loss"] == made.values["loss"]


def test_a_regularizer_is_added_to_the_loss_and_its_memory(tmp_path):
    parts = "loss: log_ratio\nmemory: {size: 25, start: 0}\nregularizer: {name: rank_sim, weight: 5}"
    made = from_text(tmp_path, False, parts)
    assert made.values["regularizer"] == {"name": "rank_sim", "interpolation": 2.0, "weight": 5.0}
    trainer = made.build_trainer(made.build_task(), quiet=True)
    both = trainer.training_step.loss
    first, second = trainer.labels[[0, 4, 9, 12]], trainer.labels[[1, 5, 10, 18]]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    loss, term = LogRatioLoss(), RankSimLoss(weight=5.0)
    torch.testing.assert_close(both(x, first), loss(x, first) + term(x, first))
    assert len(both.loss) == 4  # what the memory holds, the regularizer does not read
    both.eval()
    torch.testing.assert_close(both(x, second), both.loss(x, second) + term(x, second))
    assert float(term(x, second)) > 0
    assert not torch.isclose(both.loss(x, second), loss(x, second))


@pytest.mark.parametrize("loss", ["proxy_nca", "pml:NTXentLoss"])
def test_a_miner_of_a_loss_that_takes_none_is_refused_before_the_first_step(tmp_path, loss):
    with refuses("miner", loss, origin="own.yaml:11"):
        check(from_text(tmp_path, True, f"loss: {loss}\nminer: vthm"))


def test_an_outside_loss_has_all_items_as_anchors(tmp_path):
    dense = "sampler={name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 3}"
    with pytest.raises(InputError) as error:
        check(experiment(tmp_path, "outside", dense))
    assert "3 of 6" in str(error.value)
    assert float(dict(check(experiment(tmp_path, "outside", dense, "sampler.all_anchors=true")))["loss of a batch"]) > 0
