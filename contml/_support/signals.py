"""Signals that end a training: the trainer saves, then stops."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds after the first SIGINT from which a second one stops at once: launchers of several processes may send the
#: first one twice.
_REPEATED = 1.0


class StopRequest:
    """The first signal that asks this process to stop.

    A signal that is ignored when training starts stays ignored. Examples are SIGHUP under `nohup`, and SIGINT in a job
    that a script started in the background.

    Args:
        on_request: called at the first signal.

    Attributes:
        name: the name of the signal. It is empty before the signal.
    """

    def __init__(self, on_request: Callable[[], object] = lambda: None) -> None:
        self.name, self._time, self._on_request = "", 0.0, on_request

    def __bool__(self) -> bool:
        return bool(self.name)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the signals in this block. A second SIGINT, more than a second later, is a KeyboardInterrupt."""
        self.name = ""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        previous_handlers = {number: signal.signal(number, self._request) for number in handled}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    def _request(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.name:
            self.name, self._time = signal.Signals(number).name, now
            self._on_request()
        elif number == signal.SIGINT and now - self._time > _REPEATED:
            raise KeyboardInterrupt


def ignore_in_worker(_: int) -> None:
    """Ignore the signals in a worker process. Its training process ends it, after the state is saved."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
