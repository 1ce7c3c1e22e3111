"""Items of work on a Ray cluster: `contml.work`, with the processes of several machines.

    labels.nearest(k, cache="neighbours", cluster="10.0.0.5:6379")

Each process of the cluster needs the same version of contml. The results go to the process that calls: for
neighbours, the machines need no shared folder.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, TypeVar

from contml import work
from contml._support.errors import InputError, one_line

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT", bound=work.Item)

#: How often an item is begun again after its process or its machine was lost.
_RETRIES = 3


def run(
    address: str,
    items: Iterable[ItemT],
    function: Callable[[ItemT], ResultT],
    results: work.Results[ResultT],
    *,
    is_needed: Callable[[ItemT], bool] = lambda _: True,
    on_done: Callable[[ItemT], object] = lambda _: None,
    on_wait: Callable[[int], object] = lambda _: None,
) -> None:
    """Do the items that have no result, as many at once as the cluster has processors, like `contml.work.run`.

    Machines can join and leave. An item whose machine is lost is begun again on another one.

    Args:
        address: "local" for the processors of this machine, "auto" for the cluster that this machine belongs to, or
            HOST:PORT of the first machine of a cluster. Ignored if this process is connected to a cluster already.
        items: all items, also the ones that have a result.
        function: the result of an item. It is sent to each process once.
        results: the finished ones; they have all results of items that are needed when this returns.
        is_needed: asked before an item is begun.
        on_done: called in this process after an item of this call is recorded.
        on_wait: called with the number of items that other commands do, when nothing else is left.

    Raises:
        InputError: Ray is not installed, no cluster answers, the function raised it, or a process died several times.
    """
    ray, is_ours = _connected(address)
    do = ray.remote(max_retries=_RETRIES)(_do)
    sent = ray.put(function)
    waiting, held = deque(items := [*items]), deque[ItemT]()
    leases = {item.key: results.lease(item.key) for item in items}
    running: dict[Any, ItemT] = {}
    is_waiting = False
    try:
        while True:
            results.refresh()
            while waiting and len(running) < max(1, int(ray.cluster_resources().get("CPU", 1))):
                item = waiting.popleft()
                if item.key in results or not is_needed(item):
                    continue
                if leases[item.key].acquire():
                    running[do.remote([sent], item)] = item
                else:
                    held.append(item)
            if not running and not held:
                results.clean(item.key for item in items)
                return
            if not running:
                if not is_waiting:
                    on_wait(len(held))
                is_waiting = True
                time.sleep(work._POLL)
            for task in ray.wait([*running], timeout=work._POLL)[0] if running else ():
                item = running[task]
                results.add(item.key, _result(ray, task, item))
                leases[running.pop(task).key].release()
                on_done(item)
            if not waiting:
                waiting, held = held, waiting
    finally:
        for task, item in running.items():
            ray.cancel(task, force=True)
            leases[item.key].release()
        if is_ours:
            ray.shutdown()


def _connected(address: str) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether this call has connected it."""
    if find_spec("ray") is None:
        raise InputError("cluster", "Ray is not installed", hint="pip install 'contml[cluster]'")
    import ray

    if ray.is_initialized():
        return ray, False
    host, colon, port = address.rpartition(":")
    try:
        if address not in ("local", "auto"):
            if not (host and colon and port.isdecimal()):
                raise InputError("cluster", repr(address), "must be local, auto or HOST:PORT")
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray would try for minutes
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, OverflowError) as error:
        hint = "start it with 'ray start --head', or see 'ray status'"
        raise InputError("cluster", f"{address!r}, no cluster answers ({one_line(error):.80})", hint=hint) from None
    return ray, True


#: The function of the last items that this process of the cluster did.
_functions: dict[str, Callable[[Any], Any]] = {}


def _do(sent: list[Any], item: Any) -> Any:
    """The result of an item, in a process of the cluster; `sent` is a reference, which is read once per process."""
    import ray

    name = sent[0].hex()
    if name not in _functions:
        _functions.clear()
        _functions[name] = ray.get(sent[0])
    return _functions[name](item)


def _result(ray: Any, task: Any, item: ResultT) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        got = f"its process died {_RETRIES + 1} times ({one_line(error):.80})"
        raise InputError(str(item), got, hint="the same command continues; see the logs of Ray") from None
