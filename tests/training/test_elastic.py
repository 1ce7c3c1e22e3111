"""`torchrun` begins a training again when its first process is lost: it ends with the same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file
from support.miniature import TINY
from support.processes import script_environment

SCRIPT = """
import os
with open("processes", "a") as file:
    print(os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"], os.getpid(), file=file)
from contml.cli import main
from support.runs import without_reports
with without_reports():
    main()
"""


def start(folder, name):
    """`contml train` with --name in two processes, as the page on several machines has it."""
    (folder / "script.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    changes = [*TINY, "training.epochs=6", "sampler.batches=8"]
    return subprocess.Popen(
        [*torchrun, "script.py", "train", "pose/synthetic", *changes, "--name", name],
        cwd=folder,
        env={**script_environment(), "ACCELERATE_USE_CPU": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output = process.communicate(timeout=540)[0]
    assert process.returncode == 0, output


def processes(folder):
    return [[*map(int, line.split())] for line in (folder / "processes").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run folder of a training that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder, "whole"))
    return folder / "runs/pose/synthetic/whole"


@pytest.mark.slow
def test_the_first_process_is_killed(tmp_path, whole):
    killed = start(tmp_path, "killed")
    run = tmp_path / "runs/pose/synthetic/killed"
    end = time.monotonic() + 300
    while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_text().splitlines()) < 3:
        assert time.monotonic() < end
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.01)
    os.kill(next(pid for _, number, pid in processes(tmp_path) if number == 0), signal.SIGKILL)
    finish(killed)
    assert sorted(line[:2] for line in processes(tmp_path)) == [[0, 0], [0, 1], [1, 0], [1, 1]]
    for name in ("last", "best"):
        expected, found = (load_file(each / f"checkpoints/{name}.safetensors") for each in (whole, run))
        assert expected.keys() == found.keys()
        assert all(found[key].equal(expected[key]) for key in expected), name
    results = [json.loads((each / "evaluation.json").read_text()) for each in (whole, run)]
    assert results[0] == results[1]
