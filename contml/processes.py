"""Several processes work as one. In training, each gathers the embeddings of a batch and computes the whole loss.

An evaluation is divided: each process has a share of the items (`Shares`), and sees the items of the others in blocks.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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

#: Looks per second at the threads of a process that ends.
_LOOKS = 200

#: Numbers of a block that a process sends to the others.
_BLOCK = 1 << 22

T = TypeVar("T")


def world() -> tuple[int, int]:
    """(rank, number of processes); (0, 1) without a process group."""
    is_distributed = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if is_distributed else (0, 1)


@cache
def close_at_exit() -> None:
    """Closes the process group when Python ends, and waits for the threads of its backend.

    These threads release the tensors of an operation after it has ended. One that needs Python when Python has ended
    aborts the process: "terminate called without an active exception". Closing the group does not end its threads: a
    network that DDP trains still refers to it.
    """

    def close() -> None:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
            _wait_for_threads()

    atexit.register(close)


def _wait_for_threads() -> None:
    """Waits until no other thread of this process runs, or is about to, at two looks; a second at most."""
    own, tasks = str(threading.get_native_id()), Path("/proc/self/task")
    still = 0
    for _ in range(_LOOKS):
        time.sleep(1 / _LOOKS)  # without the interpreter's lock
        states = [_state(each / "stat") for each in tasks.glob("*") if each.name != own]  # none without /proc
        still = 0 if "R" in states else still + 1
        if still == (2 if states else _LOOKS // 10):
            return


def _state(stat: Path) -> str:
    """The state of a thread: R where it runs or waits for a processor, S where it sleeps; "" where it has ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


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


class Shares:
    """Items that are divided between processes: each has a tensor with a row for each of its own items.

        owner      0 1 1 -1 0 1     of six items; the fourth one belongs to none, such as an image that cannot be read
        own        0 4              the items of the first process
        blocks     0 4 | 1 2 5      what each process sees, one block after the other

    With one process nothing is sent, and all items are one block. All processes call the methods that send something,
    in the same order.

    Args:
        owner: the number of the process that has each item `[N]`, or -1.
        rank: the number of this process.
        processes: how many there are.
        device: that of the process group.

    Attributes:
        own: the items of this process `[n]`, ascending.
        is_first: whether this is the first process.
        is_whole: whether there is no other process, and this one has all items.
    """

    def __init__(self, owner: Tensor, rank: int = 0, processes: int = 1, device: torch.device | str = "cpu") -> None:
        self.owner, self.rank, self.processes, self.device = owner, rank, processes, device
        self._items = [(owner == process).nonzero()[:, 0] for process in range(processes)]
        self.own = self._items[rank]
        self.is_first = rank == 0
        self.is_whole = processes == 1 and len(self.own) == len(owner)

    @classmethod
    def whole(cls, count: int) -> Shares:
        """So many items, which this process has."""
        return cls(torch.zeros(count, dtype=torch.int32))

    @classmethod
    def connect(cls, rows: Tensor, values: Tensor, count: int, device: torch.device) -> tuple[Shares, Tensor]:
        """The shares of all processes, and the values of this one.

        Args:
            rows: the items of this process `[n]`, ascending; each item is in one process at most.
            values: a tensor of them `[n, ...]`. If n is 0, another process says its shape and type.
            count: the number of items.
            device: that of the process group.
        """
        rank, processes = world()
        number = torch.zeros(count, dtype=torch.int32, device=device)
        number[rows.to(device)] = rank + 1
        if processes > 1:
            dist.all_reduce(number)
            forms: list[tuple[torch.Size, torch.dtype] | None] = [None] * processes
            dist.all_gather_object(forms, (values.shape[1:], values.dtype) if len(rows) else None)
            form = next((each for each in forms if each is not None), None)
            if form is not None and not len(rows):
                values = torch.empty(0, *form[0], dtype=form[1])
        return cls(number.cpu() - 1, rank, processes, device), values

    def __len__(self) -> int:
        return len(self.owner)

    def select(self, items: Tensor) -> Shares:
        """The shares of some of the items, which are numbered anew; an item may be there several times."""
        if self.is_whole:
            return Shares.whole(len(items))
        return Shares(self.owner[items], self.rank, self.processes, self.device)

    @property
    def missing(self) -> Tensor:
        """The items that no process has, ascending."""
        return (self.owner < 0).nonzero()[:, 0]

    def take(self, values: Tensor) -> Tensor:
        """Of the values of all items `[N, ...]`, the values of the items of this process `[n, ...]`."""
        return values if self.is_whole else values[self.own]

    def place(self, items: Tensor) -> Tensor:
        """The row of each of some items `[m]` in the tensors of this process, or -1."""
        return items if self.is_whole else self._place[items]

    @cached_property
    def _place(self) -> Tensor:
        return places(self.own, len(self))

    @property
    def largest(self) -> int:
        """The number of items of the process that has the most."""
        return max(map(len, self._items))

    def blocks(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The values of all items in blocks, each with its items `[b]`, ascending: all of them, on each process.

        A process holds one block of the others at a time.
        """
        if self.processes == 1:
            yield self.own, values
            return
        step = max(1, _BLOCK // max(1, values.shape[1:].numel()))
        for process, items in enumerate(self._items):
            for start in range(0, len(items), step):
                part = items[start : start + step]
                if process == self.rank:
                    block = values[start : start + step].to(self.device).contiguous()
                else:
                    block = torch.empty(len(part), *values.shape[1:], dtype=values.dtype, device=self.device)
                dist.broadcast(block, process)
                yield part, block.to(values.device)

    def gather(self, values: Tensor, *, everywhere: bool = False) -> Tensor:
        """The values of all items `[N, ...]`, 0 for missing ones, on the first process or `everywhere`.

        Another process gets its own values `[n, ...]`.
        """
        if self.is_whole:
            return values
        keeps = everywhere or self.is_first
        out = values.new_zeros(len(self), *values.shape[1:]) if keeps else values
        for items, block in self.blocks(values):
            if keeps:
                out[items] = block
        return out

    def total(self, values: Tensor) -> Tensor:
        """The sum of tensors of all processes."""
        if self.processes == 1:
            return values
        total = values.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def any(self, flag: bool) -> bool:
        """Whether a flag is true on any process."""
        return flag if self.processes == 1 else any_process(flag, device=torch.device(self.device))[0]

    def from_first(self, value: T) -> T:
        """The value that the first process has, on each."""
        if self.processes == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """If one process fails in this block, all of them stop. Nothing in it may wait for another process."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # raised again below
            error = raised
        failed = self.any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise other_process_error("failed")


def places(items: Tensor, count: int) -> Tensor:
    """The position of each number below `count` in items `[n]`, or -1."""
    out = torch.full((count,), -1)
    out[items] = torch.arange(len(items))
    return out
