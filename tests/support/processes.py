"""Processes that train together, as `accelerate launch` starts them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from .paths import ROOT


def script_environment() -> dict[str, str]:
    """The environment of a script that imports the helpers of the tests."""
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "tests", "tests/evaluation", "tests/training"))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def start_group(*arguments, **options):
    """Starts Python in a process group of its own, with pipes for its output."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command, env = [sys.executable, *arguments], script_environment()
    return subprocess.Popen(command, **pipes, text=True, start_new_session=True, env=env, **options)


def restore_ctrl_c() -> None:
    """Sets the default action of SIGINT in a new process: a shell may have started this one with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(script: str, *arguments: str, processes: int = 2) -> list[subprocess.Popen[str]]:
    """Starts a script in connected processes, each with its number in RANK."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env={**script_environment(), **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]


def run_connected(script: str, seconds: float, processes: int = 2) -> None:
    """Runs a script in two connected processes, or more, and checks that all succeed."""
    for process in start(script, processes=processes):
        _, errors = process.communicate(timeout=seconds)
        assert process.returncode == 0, errors
