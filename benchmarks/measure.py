"""Timing things in turn, and the peak memory of a call in a fresh process."""

from __future__ import annotations

import gc
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch


def alternate(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of a call of each function, run in turn: A B C, A B C, ...; a first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    calls: dict[str, int] = {}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            if not turn:
                calls[name] = max(1, int(_SPAN / _seconds(function, 3)))
                continue
            gc.collect()
            function()  # what ran before has left its own data in the caches
            times[name].append(_seconds(function, calls[name]))
    return {name: statistics.median(spent) for name, spent in times.items()}


#: A quick function is called so often that a measurement takes about this long, in seconds.
_SPAN = 0.05


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def peak_memory(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that `function(*arguments)()` takes at its peak beyond what was resident before that call.

    `function(*arguments)` makes the inputs and returns the call to measure; it runs in a fresh process (Linux only).
    """
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(send, function, arguments))
    process.start()
    send.close()
    try:
        peak: int = receive.recv()
    except EOFError:
        raise MemoryError(f"{function.__name__}{arguments} died, out of memory perhaps") from None
    finally:
        process.join()
    return peak


def _measure(send: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(2)
    call = function(*arguments)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    before = _status("VmRSS")
    call()
    send.send(_status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def heading(title: str) -> str:
    """Title, date, versions and machine, for the head of a result."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return (
        f"# {title}\n\n{date.today().isoformat()}, {device}, {torch.get_num_threads()} threads of "
        f"{platform.machine()}, torch {torch.__version__.split('+')[0]}, Python {platform.python_version()}\n"
    )


def table(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]]
    return "\n".join(lines)
