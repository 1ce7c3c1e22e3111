"""Time and memory of each loss, forward and backward, as ratios to the log-ratio loss on the same batch.

    python -m benchmarks.loss_costs [--sizes 512 2048 8192] [--only NAME ...] [--limit SECONDS]

Each loss runs in turn with `log_ratio`, in one thread; times are processor time, so that other programs on the machine
matter less. The first call of each size warms up. A loss whose time would be above the limit, by its time on the
smaller batch, is omitted there ("-"). Memory is the peak of a call in a new process, above the memory in use before it.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import heading, peak_memory, table
from contml.config import data_arguments
from contml.labels import ClassLabels, NumberLabels
from contml.losses import LOSSES, PairLoss

DIM, PER_CLASS = 128, 4
#: Times below it are the mean of several calls, in seconds.
_SPAN = 0.2


def call(name: str, batch: int) -> Callable[[], Any]:
    """Forward and backward of a loss with its default options on unit vectors `[batch, 128]` and their labels."""
    random = torch.Generator().manual_seed(0)
    classes = torch.arange(batch) // PER_CLASS
    ages = 80 * torch.rand(batch, generator=random)
    centres = torch.randn(len(torch.unique(classes)), DIM, generator=random)
    x = torch.nn.functional.normalize(centres[classes] + 2 * torch.randn(batch, DIM, generator=random))
    kind = LOSSES[name]
    graded = issubclass(kind, PairLoss) and kind.requires in ("any", "graded")
    labels = NumberLabels(ages) if graded else ClassLabels(classes)
    data = {"num_classes": len(centres), "embedding_dim": DIM, "train_labels": labels}
    takes = data_arguments(kind)
    torch.manual_seed(0)
    loss = kind(**{key: value for key, value in data.items() if key in takes and (takes[key] or key == "train_labels")})

    def both() -> None:
        leaf = x.clone().requires_grad_()
        loss(leaf, labels).backward()

    return both


def seconds_of(function: Callable[[], Any]) -> float:
    """Processor time of a call."""
    gc.collect()
    start = time.process_time()
    function()
    seconds = time.process_time() - start
    if seconds < _SPAN:
        calls = int(_SPAN / max(seconds, 1e-4)) + 1
        start = time.process_time()
        for _ in range(calls):
            function()
        seconds = (time.process_time() - start) / calls
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 2048, 8192])
    parser.add_argument("--only", nargs="*", default=list(LOSSES))
    parser.add_argument("--limit", type=float, default=120.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    cells: dict[str, list[str]] = {name: [] for name in given.only}
    before: dict[str, tuple[int, float]] = {}
    for size in given.sizes:
        reference = call("log_ratio", size)
        reference()
        for name in given.only:
            smaller, seconds = before.get(name, (size, 0.0))
            if seconds * (size / smaller) ** 2 > given.limit:
                cells[name].append("-")
                continue
            function = call(name, size)
            if size <= 2048:
                function()
            base, seconds = seconds_of(reference), seconds_of(function)
            memory = peak_memory(call, name, size)
            before[name] = size, seconds
            cells[name].append(f"{seconds:.3g} s, {seconds / base:.2g} x, {memory / 1e6:.0f} MB")
            print(size, name, cells[name][-1], flush=True)
    header = ["loss", *(f"{size:,} items" for size in given.sizes)]
    print(heading("Time and memory of the losses"))
    print(table([header, *([f"`{name}`", *row] for name, row in cells.items())]))


if __name__ == "__main__":
    main()
