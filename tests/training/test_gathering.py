"""What processes share: items in blocks, gathered in the memory of one copy, and an evaluation that holds a share."""

from __future__ import annotations

from support.processes import run_connected

GATHERED = """
import os, resource, torch, torch.distributed as dist
from contml.processes import Shares
dist.init_process_group("gloo")
rank = dist.get_rank()
whole = torch.arange(400_000 * 64, dtype=torch.float32).view(400_000, 64)  # 102 MB
own = torch.arange(rank, len(whole), 2)
own = own[own != [0, 5][rank]]
shares, values = Shares.connect(own, whole[own], len(whole), torch.device("cpu"))
assert shares.missing.tolist() == [0, 5]
whole[[0, 5]] = 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = shares.gather(values, everywhere=True)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
assert found.equal(whole)
assert grown < 102 + 60, grown  # the copy, and a block of 17 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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


#: A training's evaluation: images are the numbers of their rows, and the model maps them to many numbers.
EVALUATED = """
import os, sys, torch, torch.distributed as dist
from support.miniature import *
from contml.data import Split
from contml.data.split import Features
dist.init_process_group("gloo")
"""
