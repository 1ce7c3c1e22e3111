"""The config files for `accelerate launch`: accelerate reads them, and they start trainings."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from accelerate.commands import launch
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from support.miniature import TINY, small_trainer
from support.paths import ROOT
from support.processes import script_environment
from support.refusals import refuses

from contml.app.experiment import load, train
from contml.training.setup import _check_launch

FILES = sorted((ROOT / "examples/accelerate").glob("*.yaml"))
#: Batch norm would normalize by the images of a process; Adam would enlarge differences of rounding.
CHANGES = [*TINY, "training.epochs=1", "model.freeze_batch_norm=true", "optimizer={name: sgd, lr: 0.01}"]
CONTML = ["-m", "contml", "train", "pose/synthetic", *CHANGES, "--name", "first"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_accelerate_reads_each_file(file, monkeypatch):
    """Each key is one that it knows, and has a meaning; `contml` follows what it asks for."""
    parser = launch.launch_command_parser()
    launched = []
    monkeypatch.setattr(launch, "multi_gpu_launcher", launched.append)
    launch.launch_command(parser.parse_args(["--config_file", str(file), *CONTML]))  # it refuses other unknown keys
    (arguments,) = launched
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda port: False)
    for key, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setitem(os.environ, key, value)
    _check_launch("no")
    assert (arguments.num_processes, arguments.num_machines) == ((8, 2) if file.stem == "two_nodes" else (4, 1))
    assert int(arguments.nproc_per_node) == 4
    assert file.relative_to(ROOT).as_posix() in file.read_text(encoding="utf-8")  # the command


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def launched(folder, file, *options, program=CONTML):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), *options, *program]
    return subprocess.Popen(
        command, cwd=folder, env=script_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights that one process trains."""
    run = train(load("pose/synthetic", CHANGES), tmp_path_factory.mktemp("alone"), split="val")
    return load_file(run.checkpoints / "last.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_two_processes_train_on_a_cpu(file, tmp_path, alone):
    """The same command, with two processes in place of GPUs; two machines are one here."""
    options = ["--num_processes", "2", "--main_process_port", str(free_port())]
    machines = [[]]
    if file.stem == "two_nodes":
        options += ["--main_process_ip", "127.0.0.1"]
        machines = [["--machine_rank", str(rank)] for rank in range(2)]
    for process in [launched(tmp_path, file, *options, *machine) for machine in machines]:
        output = process.communicate(timeout=540)[0]
        assert process.returncode == 0, output
    run = tmp_path / "runs/pose/synthetic/first"
    assert json.loads((run / "about.json").read_text())["device"].startswith("2 x cpu")
    found = load_file(run / "checkpoints/last.safetensors")
    assert found.keys() == alone.keys()
    for key, value in alone.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)


LAUNCH = {
    "FSDP": {"ACCELERATE_USE_FSDP": "true"},
    "dynamo_backend INDUCTOR": {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"},
    "gradient_accumulation_steps 4": {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"},
    "mixed_precision bf16, but the training has no": {"ACCELERATE_MIXED_PRECISION": "bf16"},
}


@pytest.mark.parametrize("got", LAUNCH)
def test_what_a_training_does_not_follow_is_refused(monkeypatch, got):
    for key, value in LAUNCH[got].items():
        monkeypatch.setenv(key, value)
    with refuses("accelerate launch", got=got):
        small_trainer()
