"""What processes gather: items of each, and an evaluation by the first one."""

import pytest
from support.processes import run_connected

GATHERED = """
import torch, torch.distributed as dist
from contml.processes import from_first, gather_items
dist.init_process_group("gloo")
rank, cpu = dist.get_rank(), torch.device("cpu")
whole = torch.arange(1000 * 6, dtype=torch.float64).view(1000, 2, 3)
own = torch.arange(rank, len(whole), 2)
own = own[own != [0, 5][rank]]
found, missing = gather_items(own, whole[own], len(whole), cpu)
assert missing.tolist() == [0, 5]
whole[[0, 5]] = 0
assert found.equal(whole)
own = torch.arange(3)[rank::2] if rank == 0 else torch.arange(0)  # one process has no item
tokens = own[:, None] + torch.tensor([7, 8]) if rank == 0 else torch.zeros(0, 0)
found, missing = gather_items(own, tokens, 3, cpu)
assert found.dtype == torch.int64 and found.tolist() == [[7, 8], [0, 0], [9, 10]] and missing.tolist() == [1]
assert from_first({"rank": rank}) == {"rank": 0}
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_items_of_all_processes_are_gathered():
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
    evaluation, found, missing = trainer.evaluate(split)
    assert missing.tolist() == [*broken] and evaluation.skipped == len(broken)
    assert len(found.values) == 20 - len(broken)
    assert type(found) is (QueryMetric if rank else Ranking)
    outputs, missing = trainer.outputs(split)
    assert outputs.shape == (20, 4) and not bool(outputs[[*broken]].any()) and missing.tolist() == [*broken]
    assert evaluation.main.model == trainer.evaluator.evaluate(outputs, missing, split)[0].main.model
    outputs, missing = trainer.outputs(split, among=torch.arange(0, 20, 3))
    assert outputs.shape == (7, 4) and missing.tolist() == [row for row in broken if row % 3 == 0]
"""


@pytest.mark.slow
def test_the_first_process_evaluates_what_all_embedded():
    run_connected(EVALUATED, seconds=300)
