"""The command line: `contml`, or `python -m contml`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

STOPPED = "contml: stopped"


def main() -> None:
    """Run the `contml` command. Ctrl-C at any moment ends it with one line, and exit status 130."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from contml.app.cli.commands import main as run  # here: it takes a moment

        run()
    except KeyboardInterrupt:
        sys.stderr.write(f"{STOPPED}\n")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop. During an import, stop at once: its code may swallow the exception, or turn it into another one."""
    at = frame
    while at is not None:
        if at.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, f"{STOPPED}\n".encode())
            os._exit(130)
        at = at.f_back
    signal.default_int_handler(number, frame)
