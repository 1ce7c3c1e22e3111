"""Items of work, each done once, by one process or by several that share a folder.

    items      a list. Each has a key, and can be pickled. Its result depends on the item alone.
    results    `Lines`: one file, a line of JSON per result. `Files`: a folder, a file per result.
    run        does the items that have no result; it returns when all of them have one. They are done in this process,
               in several processes of this machine, or of a Ray cluster
    Shard      one of N shares of a list, which a command does without waiting for the other N - 1

A result is there as a whole or not at all. The first result of an item counts; a later one is ignored. A returned
value is recorded, even if it describes a failure. An exception ends the command and records nothing.

A process that does an item holds its lease, a file that it touches again and again. The lease of a process that was
killed is free at once on the same machine. Elsewhere it is free when the file has not changed for `LEASE` seconds,
which the waiting process measures with its own clock: clocks of machines may differ. A process that was suspended for
longer may do an item that another one does too.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from contml.work import workers
from contml.work.results import Files, Item, Lease, Lines, Results
from contml.work.shards import ItemsLeftError, Join, Shard, share

__all__ = [
    "Files",
    "Item",
    "ItemsLeftError",
    "Join",
    "Lease",
    "Lines",
    "OutOfTimeError",
    "Results",
    "Shard",
    "run",
    "share",
]

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT", bound=Item)


class OutOfTimeError(Exception):
    """The deadline has passed; what is finished is recorded."""


def run(
    items: Iterable[ItemT],
    function: Callable[[ItemT], ResultT],
    results: Results[ResultT],
    *,
    join: Join = False,
    processes: int | None = None,
    cluster: str = "",
    pure: bool = False,
    deadline: float = math.inf,
    is_needed: Callable[[ItemT], bool] = lambda _: True,
    on_done: Callable[[ItemT], object] = lambda _: None,
    on_wait: Callable[[int], object] = lambda _: None,
    log: Callable[[ItemT], Path | None] = lambda _: None,
) -> None:
    """Do the items that have no result, in order; wait for the items that other commands do.

    Args:
        items: all of them, also those that have a result.
        function: the result of an item. Processes of this machine import it by name; a cluster also takes a closure.
        results: the finished ones; they have all results of items that are needed when this returns.
        join: a `Shard`: its items alone are done.
        processes: so many items at a time, each in a process of its own. None or 1: in this process; None with a
            cluster: as many as it has processors.
        cluster: the address of a Ray cluster that does the items, as in `contml.cluster.Cluster`. Empty: this machine.
        pure: an item reads and writes no file, and needs no GPU: the machines of a cluster share no folder.
        deadline: no item is begun after this `time.monotonic()`.
        is_needed: asked before an item is begun.
        on_done: called in this process after an item of this call is recorded.
        on_wait: called with the number of items that other commands do, when nothing else is left.
        log: the file for what another process prints about an item; None: where this process prints.

    Raises:
        ItemsLeftError: the items of the shard are finished, and others are not.
        OutOfTimeError: items are left after the deadline.
        KeyboardInterrupt: a signal stopped an item. The others are asked to stop.
        InputError: the function raised it, a process died, or no cluster answers.
    """
    items = [*items]
    waiting, held = deque(own := share(items, join)), deque[ItemT]()
    leases: dict[str, Lease] = {}  # of held items: one object sees for how long a file has not changed
    pool = workers.workers_of(function, results, log, processes, cluster, pure)

    def next_item() -> ItemT | None:
        results.refresh()
        while waiting:
            item = waiting.popleft()
            if not is_needed(item) or item.key in results:
                continue
            if time.monotonic() >= deadline:
                waiting.appendleft(item)
                return None
            lease = leases.get(item.key)
            if lease is None:
                return item
            if lease.acquire():
                lease.release()
                del leases[item.key]
                return item
            held.append(item)
        return None

    is_waiting = False
    try:
        while True:
            while pool.busy < pool.size and (item := next_item()) is not None:
                pool.begin(item)
            if not pool.busy and (waiting or (held and time.monotonic() >= deadline)):
                raise OutOfTimeError
            if not pool.busy and not held:
                break
            if not pool.busy:
                if not is_waiting:
                    on_wait(len(held))
                is_waiting = True
                time.sleep(workers.POLL)
            for item, outcome in pool.ended(workers.POLL if held and not waiting else None):
                if outcome == "held":
                    held.append(item)
                    leases[item.key] = results.lease(item.key)
                elif outcome == "done":
                    results.refresh()
                    on_done(item)
            if not waiting:
                waiting, held = held, waiting
    finally:
        pool.stop()
    if isinstance(join, Shard):
        results.refresh()
        if left := sum(is_needed(item) and item.key not in results for item in items):
            raise ItemsLeftError(join, len(own), left, len(items))
    results.clean(item.key for item in items)
