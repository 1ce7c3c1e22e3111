"""What processes share: items in blocks, gathered in the memory of one copy, and an evaluation that holds a share."""

from __future__ import annotations

from support.processes import run_connected

GATHERED = """
import os, torch, torch.distributed as dist
from contml.processes import Shares
from support.processes import peak_memory
dist.init_process_group("gloo")
rank = dist.get_rank()
whole = torch.arange(400_000 * 64, dtype=torch.float32).view(400_000, 64)  # 102 MB
own = torch.arange(rank, len(whole), 2)
own = own[own != [0, 5][rank]]
shares, values = Shares.connect(own, whole[own], len(whole), torch.device("cpu"))
assert shares.missing.tolist() == [0, 5]
whole[[0, 5]] = 0
before = peak_memory()
found = shares.gather(values, everywhere=True)
grown = (peak_memory() - before) / 1e3
assert found.equal(whole)
assert grown < 102 + 60, grown  # the copy, and a block of 17 MB
assert shares.gather(values).equal(whole if rank == 0 else values)
own = torch.arange(3)[rank::2] if rank == 0 else torch.arange(0)  # one process has no item
tokens = own[:, None] + torch.tensor([7, 8]) if rank == 0 else torch.zeros(0, 0)
shares, values = Shares.connect(own, tokens, 3, torch.device("cpu"))
assert values.shape == (len(own), 2) and values.dtype == torch.int64
assert shares.gather(values, everywhere=True).tolist() == [[7, 8], [0, 0], [9, 10]]
assert shares.total(torch.tensor([rank + 1.0])).item() == 3
assert shares.from_first({"rank": rank}) == {"rank": 0}
dist.destroy_process_group()
"""


def test_outputs_are_gathered_in_the_memory_of_one_copy():
    run_connected(GATHERED, seconds=300)


EVALUATED = """
import torch
from support.miniature import *
from contml.evaluation.results import QueryMetric, Ranking
trainer = small_trainer(model=Flat(), broken="skip")
rank = trainer.accelerator.process_index
odd = tuple(range(1, 20, 2))  # the second process can read none of its images
for broken in ((3, 8), odd):
    split = squares(20, seed=1, broken=broken)
    values, shares = trainer._shares(split, torch.arange(20), None)
    assert len(values) == len(shares.own) == len([row for row in range(rank, 20, 2) if row not in broken])
    evaluation, found, missing = trainer.evaluate(split)
    assert missing.tolist() == [*broken] and evaluation.skipped == len(broken)
    assert len(found.values) == 20 - len(broken)
    assert type(found) is (QueryMetric if rank else Ranking)
    if rank == 0:
        assert found.embeddings.shape == (20, 4) and not bool(found.embeddings[[*broken]].any())
        assert evaluation.main.model == trainer.evaluator.evaluate(found.embeddings, missing, split)[0].main.model
        assert not len(trainer.evaluate(split, keep=False)[1].embeddings)
    else:
        trainer.evaluate(split, keep=False)
    outputs, missing = trainer.outputs(split, among=torch.arange(0, 20, 3))
    assert outputs.shape == (7, 4) and missing.tolist() == [row for row in broken if row % 3 == 0]
"""


def test_an_evaluation_during_a_training_gathers_no_embeddings():
    run_connected(EVALUATED, seconds=300)
