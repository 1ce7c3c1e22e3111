"""Time functions in turn, and measure the peak memory of a call in a new process."""

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

#: Options with which `captions/flickr8k` reads the pack `flickr8k_1500`, 1,500 of the images.
FLICKR8K_PACK = (
    "task.images=images",
    *(
        f"task.{key}=official_lists/Flickr_8k.{name}Images.txt"
        for key, name in {"train": "train", "test": "test", "val": "dev"}.items()
    ),
    "task.missing=drop",
    "task.vectors=word_vectors/glove.6B.50d.flickr8k.txt.gz",
)


def alternate(
    functions: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds per call of each function. They run in turn (A B C, A B C, ...), after one round to warm up.

    clock: `time.process_time` on a machine with other jobs, for functions of one thread.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    calls: dict[str, int] = {}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            if not turn:
                calls[name] = max(1, int(_SPAN / _seconds(function, 3, clock)))
                continue
            gc.collect()
            function()  # so that the caches do not hold data of the function before
            times[name].append(_seconds(function, calls[name], clock))
    return {name: statistics.median(spent) for name, spent in times.items()}


#: A fast function is called several times, until a measurement takes about this many seconds.
_SPAN = 0.05


def _seconds(function: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (clock() - start) / calls


def peak_memory(function: Callable[..., Any], *arguments: Any) -> int:
    """Peak memory of `function(*arguments)()` in bytes, above the memory in use before the call.

    `function(*arguments)` creates the inputs and returns the call to measure. It runs in a new process (Linux only).
    """
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(send, function, arguments))
    process.start()
    send.close()
    try:
        peak: int = receive.recv()
    except EOFError:
        raise MemoryError(f"{function.__name__}{arguments} died, perhaps out of memory") from None
    finally:
        process.join()
    return peak


def _measure(send: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(2)
    call = function(*arguments)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    call()
    send.send(_status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def heading(title: str) -> str:
    """Title, date, versions and machine, for the top of a result file."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return (
        f"# {title}\n\n{date.today().isoformat()}, {device}, {torch.get_num_threads()} threads of "
        f"{platform.machine()}, torch {torch.__version__.split('+')[0]}, Python {platform.python_version()}\n"
    )


def table(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is the header."""
    header, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *body]]
    return "\n".join(lines)
