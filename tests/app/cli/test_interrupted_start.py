"""Ctrl-C while a command begins: one line, at whatever import it comes."""

import subprocess
import sys
from datetime import timedelta

import pytest
import torch
from accelerate.state import AcceleratorState
from support.processes import script_environment
from support.refusals import refuses

from contml.training import setup

PROGRAM = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

from contml.app.cli import main

sys.meta_path.insert(0, Finder())
sys.argv = ["contml", "check", "scalar/synthetic"]
main()
"""


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("contml.app.cli.train", "numpy", "torch.nn")]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("module", ["typer", *SLOW])
def test_ctrl_c_in_an_import_gives_one_line(tmp_path, module):
    command = [sys.executable, "-c", PROGRAM.format(module=module)]
    done = subprocess.run(command, cwd=tmp_path, env=script_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "contml: stopped\n")


def test_ctrl_c_in_a_command_gives_one_line(contml, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("contml.app.experiment.check", stop)
    status, out, err = contml("check", "scalar/synthetic")
    assert (status, out, err) == (130, "", "contml: stopped\n")


def test_a_process_does_not_wait_for_ever_for_another(monkeypatch):
    monkeypatch.setattr(setup, "CONNECTED_WITHIN", timedelta(seconds=1))
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state(reset_partial_state=True)  # of a training in this process before
    with refuses("training", "not connected after 0:00:01", hint="start all of them again"):
        setup.accelerator("float32", every_parameter=True, device="cpu")
    assert not torch.distributed.is_initialized()
    AcceleratorState._reset_state(reset_partial_state=True)
