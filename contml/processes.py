"""Several processes train as one: each gathers the embeddings of the whole batch and computes the whole loss."""

from __future__ import annotations

import atexit
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from contml._support.errors import InputError, one_line

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

#: Words of the errors that PyTorch's backends raise when another process is gone.
_LOST = ("connection closed", "connection reset", "broken pipe", "remote process exited", "socket timeout")

#: Seconds between two looks of the first process at the keys of the others.
_POLL = 0.05

#: Bytes of outputs that the processes sum at a time.
_BLOCK_BYTES = 1 << 24


def world() -> tuple[int, int]:
    """(rank, number of processes); (0, 1) without a process group."""
    is_distributed = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if is_distributed else (0, 1)


@cache
def close_at_exit() -> None:
    """Closes the process group when Python ends: threads of the backend that still run would abort the process."""

    def close() -> None:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

    atexit.register(close)


@cache
def restartable() -> str:
    """The `init_method` of process groups that `torchrun` can begin again: they connect through keys of their own.

    The store of `torchrun` outlives a restart. Without this, a new process reads the addresses of killed ones there.
    """
    from torch.distributed.distributed_c10d import PrefixStore  # here: not in every build of torch
    from torch.distributed.rendezvous import register_rendezvous_handler, rendezvous

    def connect(url: str, timeout: timedelta, **options: Any) -> Iterator[tuple[Store, int, int]]:
        store, rank, processes = next(rendezvous(url.replace("contml:", "env:", 1), timeout=timeout, **options))
        yield PrefixStore(agreed(store, rank, processes, timeout), store), rank, processes

    register_rendezvous_handler("contml", connect)  # type: ignore[no-untyped-call]
    return "contml://"


def agreed(store: Store, rank: int, processes: int, timeout: timedelta) -> str:
    """A word that these processes have in common, and that no earlier ones with the same store had.

    Each process writes a word of its own, and the first one answers. An answer to a process that was killed has
    another key, so nobody reads it.

    Raises:
        DistStoreError: a process did not come.
    """
    own = secrets.token_hex(8)
    if rank:
        store.set(f"process {rank}", own)
        store.wait([f"answer to {own}"], timeout)
        word: str = store.get(f"answer to {own}").decode()
        store.set(f"{word} reached {own}", "")
        return word
    end, waiting = time.monotonic() + timeout.total_seconds(), {*range(1, processes)}
    while True:
        for each in [*waiting]:
            if store.check([f"process {each}"]):  # maybe still of a process that was killed
                other = store.get(f"process {each}").decode()
                store.set(f"answer to {other}", own)
                if store.check([f"{own} reached {other}"]):
                    waiting.discard(each)
        if not waiting:
            return own
        if time.monotonic() > end:
            raise dist.DistStoreError(f"process {min(waiting)} did not come within {timeout}")
        time.sleep(_POLL)


def any_process(*flags: bool, device: torch.device) -> list[bool]:
    """Whether each of these flags is true on any process. All processes get the same answer."""
    if world()[1] == 1:
        return list(flags)
    values = torch.tensor(flags, dtype=torch.float32, device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return [flag > 0 for flag in values.tolist()]


@torch.no_grad()
def share(tensors: Iterable[Tensor]) -> None:
    """Give all processes the values of the first one, in place; `tensors` are of one device."""
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
    """The error of a process that cannot go on because of another one."""
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


def gather_rows(x: Tensor) -> Tensor:
    """The rows `[b, ...]` of every process, in order of rank; the gradient reaches this process's own rows.

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


def gather_outputs(outputs: Tensor, missing: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """The outputs `[n, ...]` and the unreadable rows of all processes; a process has zeros for the rows of the others.

    Blocks of rows are summed over the processes, in place: each holds one copy of the outputs.

    Args:
        outputs: of this process, on the CPU; they are changed.
        missing: its unreadable rows.
        device: that of the process group.
    """
    if world()[1] == 1:
        return outputs, missing
    is_missing = torch.zeros(len(outputs), dtype=torch.uint8)
    is_missing[missing] = 1
    for values in (outputs, is_missing):
        row_bytes = max(1, values[:1].nbytes)
        for block in torch.split(values, max(1, _BLOCK_BYTES // row_bytes)):
            total = block.to(device, copy=True)
            dist.all_reduce(total)
            block.copy_(total)
    return outputs, is_missing.nonzero()[:, 0]
