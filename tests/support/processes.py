"""Two processes that train together, as `accelerate launch` starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from .paths import ROOT


def run_two(script: str, seconds: float) -> None:
    """Runs a script in two connected processes, each with its number in RANK; checks that both succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "tests", "tests/training"))
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    common |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=seconds)
        assert process.returncode == 0, errors
