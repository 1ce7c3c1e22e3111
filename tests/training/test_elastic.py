"""`torchrun` begins a training again when one of its processes is lost: it ends with the same weights."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
import torch.distributed as dist
from safetensors.torch import load_file
from support.miniature import TINY
from support.processes import script_environment

from contml.processes import agreed

SCRIPT = """
import os
with open("processes", "a") as file:
    print(os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"], os.getpid(), os.getppid(), file=file)
from contml.cli import main
from support.runs import without_reports
with without_reports():
    main()
"""


def start(folder, name, options=("--standalone", "--nproc-per-node=2")):
    """`contml train` with --name in two processes, as the page on several machines has it."""
    (folder / "script.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options, "--max-restarts=3"]
    changes = [*TINY, "training.epochs=6", "sampler.batches=8"]
    return subprocess.Popen(
        [*torchrun, "script.py", "train", "pose/synthetic", *changes, "--name", name],
        cwd=folder,
        env={**script_environment(), "ACCELERATE_USE_CPU": "true", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output = process.communicate(timeout=540)[0]
    assert process.returncode == 0, output
    return output


def processes(folder):
    return [[*map(int, line.split())] for line in (folder / "processes").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run folder of a training that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder, "whole"))
    return folder / "runs/pose/synthetic/whole"


def assert_same(run, whole):
    """Weights and evaluation are those of a training that nothing stopped."""
    for name in ("last", "best"):
        expected, found = (load_file(each / f"checkpoints/{name}.safetensors") for each in (whole, run))
        assert expected.keys() == found.keys()
        assert all(found[key].equal(expected[key]) for key in expected), name
    results = [json.loads((each / "evaluation.json").read_text()) for each in (whole, run)]
    assert results[0] == results[1]


def kill(folder, torchrun, rows, *, restarts=0, rank=None, machine=False):
    """Kills a process that was begun again so often, when there are so many rows of metrics; `torchrun` before it."""
    metrics, end = folder / "runs/pose/synthetic/killed/metrics.jsonl", time.monotonic() + 300
    while True:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= rows:
            for count, number, pid, parent in processes(folder):
                if (count, parent) == (restarts, torchrun.pid) and rank in (None, number):
                    if machine:
                        torchrun.kill()
                    os.kill(pid, signal.SIGKILL)
                    if machine:
                        torchrun.communicate()  # until its process has ended too, which holds its output
                    return
        assert time.monotonic() < end
        assert torchrun.poll() is None, torchrun.communicate()[0]
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[0], [1], [1, 0, 1]])
def test_processes_are_killed(tmp_path, whole, ranks):
    """Each in the middle of an epoch."""
    killed = start(tmp_path, "killed")
    for restarts, rank in enumerate(ranks):
        kill(tmp_path, killed, 3 + 10 * restarts, restarts=restarts, rank=rank)
    output = finish(killed)
    run = tmp_path / "runs/pose/synthetic/killed"
    begun = sorted(line[:2] for line in processes(tmp_path))
    assert begun == [[count, rank] for count in range(len(ranks) + 1) for rank in range(2)], output
    assert_same(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("is_whole_machine", [False, True])
def test_a_machine_is_lost(tmp_path, whole, is_whole_machine):
    """Of two machines with a process each, one loses its process, or also its `torchrun`, which is called again."""
    with socket.create_server(("localhost", 0)) as server:
        endpoint = server.getsockname()
    common = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{endpoint[1]}"]
    machines = [start(tmp_path, "killed", common)]
    end = time.monotonic() + 60
    while time.monotonic() < end:  # until the first one has the store
        with suppress(OSError), socket.create_connection(endpoint):
            break
        time.sleep(0.1)
    machines.append(start(tmp_path, "killed", common))
    kill(tmp_path, machines[1], 3, machine=is_whole_machine)
    if is_whole_machine:
        machines[1] = start(tmp_path, "killed", common)
    for each in machines:
        finish(each)
    assert len(processes(tmp_path)) == 4
    assert_same(tmp_path / "runs/pose/synthetic/killed", whole)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_processes_that_are_begun_again_agree_on_a_new_word(order):
    """The store, and what killed processes have written there, stays; the later ones come late."""
    server = dist.TCPStore("localhost", 0, is_master=True)
    words = []
    for _ in range(3):
        found = {}

        def join(rank, found=found):
            store = dist.TCPStore("localhost", server.port)
            found[rank] = agreed(store, rank, 3, timedelta(seconds=60))

        threads = [threading.Thread(target=join, args=(rank,)) for rank in order]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        words.append({*found.values()})
        assert len(found) == 3
        assert len(words[-1]) == 1
    assert len(set.union(*words)) == 3


def test_a_process_does_not_come():
    server = dist.TCPStore("localhost", 0, is_master=True)
    with pytest.raises(dist.DistStoreError, match="process 1 did not come"):
        agreed(server, 0, 2, timedelta(seconds=0.2))
    with pytest.raises(dist.DistStoreError):
        agreed(server, 1, 2, timedelta(seconds=0.2))
