"""Machine code that runs without the interpreter's lock, in torch's number of threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def in_threads(work: Callable[[int, int], None], parts: int) -> None:
    """Run `work(start, step)` for each start below `step`, in torch's number of threads."""
    step = max(1, min(torch.get_num_threads(), parts))
    if step == 1:
        return work(0, 1)
    with ThreadPoolExecutor(step) as pool:
        for _ in pool.map(lambda start: work(start, step), range(step)):
            pass
    return None
