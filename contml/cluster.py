"""A connection to a Ray cluster, whose processes call functions: where `contml.work` does items on several machines.

    contml sweep pose/synthetic --try loss=log_ratio,dense_triplet --cluster HEAD:6379
    labels.nearest(k, cache="neighbours", cluster="HEAD:6379")

Each process of the cluster needs the same version of contml.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import IO, Any

from contml._support.errors import InputError, one_line

#: How often a call is begun again after its process or its machine was lost.
_RETRIES = 3
#: Seconds in which a server answers.
_ANSWER = 10.0
#: How a client of HTTP/2 begins, with a frame of no settings; and the type of the frame that it gets.
_GREETING, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", b"\x04"
#: Seconds in which a call that is stopped may save its state.
_STOP = 10.0


class Cluster:
    """A connection to a cluster. Machines can join and leave; a call whose machine is lost is begun again elsewhere.

    Args:
        address: "local" for the processors of this machine, "auto" for the cluster that this machine belongs to, or
            HOST:PORT of the first machine of a cluster. Ignored if this process is connected to a cluster already.
        function: what is called. It is sent to each process once.
        gpus: each call has a GPU, if the cluster has any; else a processor.

    Raises:
        InputError: Ray is not installed, or no cluster answers.
    """

    def __init__(self, address: str, function: Callable[..., Any], gpus: bool) -> None:
        self._ray, self._is_ours = _connected(address)
        self._unit = "GPU" if gpus and self._ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
        self._call = self._ray.remote(max_retries=_RETRIES, num_gpus=int(self._unit == "GPU"))(_call)
        self._sent = self._ray.put(function)

    @property
    def size(self) -> int:
        """The number of calls that it can do at a time now."""
        return max(1, int(self._ray.cluster_resources().get(self._unit, 1)))

    def begin(self, *args: Any) -> Any:
        """Call the function; returns the call."""
        return self._call.remote([self._sent], *args)

    def ended(self, calls: Collection[Any], seconds: float) -> list[Any]:
        """The calls that have ended; it waits up to so many seconds for the first one."""
        waiting = [*calls]
        if not waiting:
            return []
        self._ray.wait(waiting, timeout=seconds)
        ended: list[Any] = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        return ended

    def result(self, call: Any, name: str) -> Any:
        """What a call that has ended returned; `name` names it in messages.

        Raises:
            InputError: the function raised it, or its process died several times.
        """
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(call)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise error.cause from None
            raise
        except exceptions.RayError as error:
            got = f"its process died {_RETRIES + 1} times ({one_line(error):.80})"
            raise InputError(name, got, hint="the same command continues; see the logs of Ray") from None

    def stop(self, calls: Collection[Any]) -> None:
        """Interrupt calls as Ctrl-C does, so that a training saves its state, and end the connection."""
        calls = [*calls]
        for call in calls:
            self._ray.cancel(call)
        if calls:
            _, running = self._ray.wait(calls, num_returns=len(calls), timeout=_STOP)
            for call in running:
                self._ray.cancel(call, force=True)
        if self._is_ours:
            self._ray.shutdown()


def _connected(address: str) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether this call has connected it."""
    if find_spec("ray") is None:
        raise InputError("cluster", "Ray is not installed", hint="pip install 'contml[cluster]'")
    import ray

    if ray.is_initialized():
        return ray, False
    host, colon, port = address.rpartition(":")
    with TemporaryFile() as log:
        try:
            if address not in ("local", "auto"):
                if not (host and colon and port.isdecimal()):
                    raise InputError("cluster", repr(address), "must be local, auto or HOST:PORT")
                _check_server(host, int(port))
            with _stderr_in(log):
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (OSError, OverflowError, ray.exceptions.RayError) as error:
            got, hint = (
                f"no cluster answers ({one_line(error):.80})",
                "start it with 'ray start --head', or see 'ray status'",
            )
            log.seek(0)
            if b"AuthToken" in log.read():
                got = "the cluster asks for a token"
                hint = "export RAY_AUTH_MODE=token, and have ~/.ray/auth_token of the first machine on each one"
            raise InputError("cluster", f"{address!r}, {got}", hint=hint) from None
    return ray, True


def _check_server(host: str, port: int) -> None:
    """Check that a server answers as those of Ray do, in HTTP/2: Ray would try for minutes.

    Raises:
        OSError: none answers, or another one.
    """
    with socket.create_connection((host, port), timeout=_ANSWER) as connection:
        if os.environ.get("RAY_USE_TLS", "0") == "0":
            connection.sendall(_GREETING)
            if connection.recv(9)[3:4] != _SETTINGS:
                raise OSError("another program has this port")


@contextmanager
def _stderr_in(file: IO[bytes]) -> Iterator[None]:
    """What any code prints on stderr in the block is in a file: Ray prints a line for each attempt to connect."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


#: The function that this process of the cluster called last.
_functions: dict[str, Callable[..., Any]] = {}


def _call(sent: list[Any], *args: Any) -> Any:
    """Call a function in a process of the cluster; `sent` is a reference to it, which is read once per process."""
    import ray

    name = sent[0].hex()
    if name not in _functions:
        _functions.clear()
        _functions[name] = ray.get(sent[0])
    return _functions[name](*args)
