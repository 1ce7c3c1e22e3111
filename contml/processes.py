"""Several processes train as one: each gathers the embeddings of a batch and computes the whole loss.

In an evaluation, the processes divide the images, and the first process evaluates all embeddings.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from contml._support.errors import InputError, one_line
from contml._support.signals import StopRequest

#: Words of the errors that PyTorch's backends raise when another process has ended.
_LOST = ("connection closed", "connection reset", "broken pipe", "remote process exited", "socket timeout")

#: The time in which the processes of a training must connect, and the time for which one may wait for the others.
CONNECTED_WITHIN, _WAITS = timedelta(minutes=5), timedelta(minutes=30)

#: Looks per second at the threads of a process that ends.
_LOOKS = 200

T = TypeVar("T")


def world() -> tuple[int, int]:
    """Return (rank, number of processes). Return (0, 1) without a process group."""
    is_distributed = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if is_distributed else (0, 1)


def wait_longer() -> None:
    """Raise the timeout of the connected processes, which wait while the first process evaluates."""
    if world()[1] > 1:
        set_timeout = getattr(dist, "set_timeout", distributed_c10d._set_pg_timeout)  # public since torch 2.14
        set_timeout(_WAITS)


@cache
def close_at_exit() -> None:
    """Register a function that closes the process group when Python ends, and waits for the threads of its backend.

    These threads release the tensors of an operation after the operation has ended. A thread that needs Python when
    Python has ended aborts the process: "terminate called without an active exception". Closing the group does not end
    its threads: a network that DDP trains still refers to the group.
    """

    def close() -> None:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
            _wait_for_threads()

    atexit.register(close)


def _wait_for_threads() -> None:
    """Wait until two checks in a row find no other thread of this process that runs, or is about to run.

    Wait a second at most.
    """
    own, tasks = str(threading.get_native_id()), Path("/proc/self/task")
    still = 0
    for _ in range(_LOOKS):
        time.sleep(1 / _LOOKS)  # without the interpreter's lock
        states = [_state(each / "stat") for each in tasks.glob("*") if each.name != own]  # none without /proc
        still = 0 if "R" in states else still + 1
        if still == (2 if states else _LOOKS // 10):
            return


def _state(stat: Path) -> str:
    """Return the state of a thread: R if it runs or waits for a processor, S if it sleeps.

    Return "" if it has ended.
    """
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def any_process(*flags: bool, device: torch.device) -> list[bool]:
    """Return True for each of these flags that is true on any process. All processes get the same answer."""
    if world()[1] == 1:
        return list(flags)
    values = torch.tensor(flags, dtype=torch.float32, device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return [flag > 0 for flag in values.tolist()]


@torch.no_grad()
def share(tensors: Iterable[Tensor]) -> None:
    """Copy the values of the first process to all processes, in place. `tensors` are of one device."""
    tensors = list(tensors)
    if world()[1] == 1:
        return
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        chosen = [tensor for tensor in tensors if tensor.dtype == dtype]
        values = torch.cat([tensor.reshape(-1) for tensor in chosen])
        dist.broadcast(values, 0)
        for tensor, part in zip(chosen, torch.split(values, [each.numel() for each in chosen]), strict=True):
            tensor.copy_(part.view_as(tensor))


def other_process_error(what: str) -> InputError:
    """Return the error of a process that cannot go on because of another process."""
    hint = "see its message; 'contml train --resume RUN' continues from the last checkpoint"
    return InputError("training", f"another process {what}", hint=hint)


@contextmanager
def connected() -> Iterator[None]:
    """Raise an InputError if another process ends in this block, instead of the error of the backend."""
    try:
        yield
    except RuntimeError as error:
        if world()[1] > 1 and any(word in str(error).lower() for word in _LOST):
            raise other_process_error(f"ended ({one_line(error)})") from None
        raise


class Together:
    """Makes the processes of a training fail, stop and save at the same step.

    Args:
        seconds: the time after which a state is due.
        device: the device of the process group.

    Attributes:
        request: the signal to this process.
        stopping: True if a process has received a signal; the same on all processes.
        save_due: True if a state is due on a process; the same on all processes.
        saved: the time of the last saved state.
    """

    def __init__(self, seconds: float, device: torch.device) -> None:
        self.request, self.stopping, self.save_due = StopRequest(), False, False
        self.saved = time.monotonic()
        self._seconds, self._device = seconds, device

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Stop all processes if one process fails in this block. Nothing in the block may wait for another process."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # raised again below
            error = raised
        flags = error is not None, bool(self.request), time.monotonic() - self.saved > self._seconds
        failed, self.stopping, self.save_due = any_process(*flags, device=self._device)
        if error is not None:
            raise error
        if failed:
            raise other_process_error("failed")


def gather_rows(x: Tensor) -> Tensor:
    """Gather the rows `[b, ...]` of every process, in order of rank. The gradient reaches this process's own rows.

    Data parallelism averages the gradients of the processes, but the gradient of one loss over the whole batch is their
    sum. So the gradient of this process's rows is multiplied by the number of processes. The parameters of the loss
    have the same, whole gradient on every process and are not changed.
    """
    rank, processes = world()
    if processes == 1:
        return x
    length = torch.tensor([len(x)], device=x.device)
    lengths = [torch.zeros_like(length) for _ in range(processes)]
    dist.all_gather(lengths, length)
    counts = [int(n) for n in lengths]
    padded = torch.zeros(max(counts), *x.shape[1:], dtype=x.dtype, device=x.device)
    padded[: len(x)] = x.detach()
    gathered = [torch.empty_like(padded) for _ in range(processes)]
    dist.all_gather(gathered, padded)
    rows = [part[:count] for part, count in zip(gathered, counts, strict=True)]
    if x.requires_grad:
        rows[rank] = x.view_as(x)
        rows[rank].register_hook(lambda gradient: gradient * processes)  # type: ignore[no-untyped-call]
    return torch.cat(rows)


def gather_items(rows: Tensor, values: Tensor, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gather the values of items that the processes have divided, on each process, and find the missing items.

    Args:
        rows: the items of this process `[n]`, ascending; each item is in one process at most.
        values: the values of these items `[n, ...]`. If n is 0, another process gives the shape and type.
        count: the number of items.
        device: the device of the process group.

    Returns:
        The values of all items `[N, ...]`, 0 for missing ones; and the missing items, ascending.
    """
    if world()[1] > 1:
        forms: list[tuple[torch.Size, torch.dtype] | None] = [None] * world()[1]
        dist.all_gather_object(forms, (values.shape[1:], values.dtype) if len(rows) else None)
        form = next((each for each in forms if each is not None), None)
        if form is not None and not len(rows):
            values = torch.empty(0, *form[0], dtype=form[1])
        rows, values = (gather_rows(each.to(device)).to(each.device) for each in (rows, values))
    elif len(rows) == count:
        return values, rows[:0]
    out = values.new_zeros(count, *values.shape[1:])
    out[rows] = values
    is_missing = torch.ones(count, dtype=torch.bool)
    is_missing[rows] = False
    return out, is_missing.nonzero()[:, 0]


def from_first(value: T) -> T:
    """Return the value of the first process, on every process."""
    if world()[1] == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, 0)
    return values[0]
