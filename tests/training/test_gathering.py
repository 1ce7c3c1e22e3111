"""The outputs of several processes are merged in the memory of one copy."""

from __future__ import annotations

from support.processes import run_connected

SCRIPT = """
import os, resource, torch, torch.distributed as dist
from contml.processes import gather_outputs
dist.init_process_group("gloo")
rank = dist.get_rank()
whole = torch.arange(400_000 * 64, dtype=torch.float32).view(400_000, 64)  # 102 MB
outputs = torch.zeros_like(whole)
outputs[rank::2] = whole[rank::2]
outputs[[0, 5]] = 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found, missing = gather_outputs(outputs, torch.tensor([[0], [5]][rank]), torch.device("cpu"))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
whole[[0, 5]] = 0
assert found.equal(whole)
assert missing.tolist() == [0, 5]
assert grown < 100, grown  # less than another copy
tokens = torch.zeros(3, 2, dtype=torch.int64)
tokens[rank::2] = rank + 7
assert gather_outputs(tokens, torch.tensor([], dtype=torch.int64), torch.device("cpu"))[0].tolist() == [
    [7, 7], [8, 8], [7, 7]
]
dist.destroy_process_group()
"""


def test_outputs_are_merged_in_the_memory_of_one_copy():
    run_connected(SCRIPT, seconds=300)
