"""The config files for `accelerate launch`: accelerate reads them, and they start trainings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
import yaml
from accelerate.commands import launch
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from support.miniature import TINY
from support.paths import ROOT
from support.processes import script_environment

from contml.experiment import load, train
from contml.training.sharding import Sharding, launched_sharding

FILES = sorted((ROOT / "examples/accelerate").glob("*.yaml"))
#: Batch norm would normalize by the images of a process; Adam would enlarge differences of rounding.
CHANGES = [*TINY, "training.epochs=1", "model.freeze_batch_norm=true", "optimizer={name: sgd, lr: 0.01}"]
CONTML = ["-m", "contml.cli", "train", "pose/synthetic", *CHANGES, "--name", "first"]
#: A captioner in its three phases: embedding, cross entropy, self-critical.
CAPTIONER = (
    *("task.train=60", "task.val=12", "task.test=14", "task.queries=4", "model.dim=16", "decoder.hidden=24"),
    *("decoder.words=12", "sampler.batch_size=12", "sampler.batches=2", "step.embedding_epochs=1"),
    *("step.cross_entropy_epochs=1", "training.epochs=3", "captioner.beam=1", "captioner.length=8"),
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_accelerate_reads_each_file(file, monkeypatch):
    """Each key is one that it knows, and has a meaning; `contml` follows what it asks for."""
    parser = launch.launch_command_parser()
    known = {*vars(parser.parse_args(["script.py"]))}
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert {*values.get("fsdp_config", {})} <= known
    launched = []
    monkeypatch.setattr(launch, "multi_gpu_launcher", launched.append)
    launch.launch_command(parser.parse_args(["--config_file", str(file), *CONTML]))  # it refuses other unknown keys
    (arguments,) = launched
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda port: False)
    for key, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setitem(os.environ, key, value)
    sharding = launched_sharding("no")
    assert sharding == (Sharding(1_000_000, (), True) if file.stem == "fsdp2" else None)
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


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["true", "false"])
def test_fsdp2_trains_a_captioner_as_ddp_does(tmp_path, frozen):
    """Equal to the bit; a frozen visual network learns in the first phase alone."""
    (fsdp,) = [file for file in FILES if file.stem == "fsdp2"]
    values = yaml.safe_load(fsdp.read_text(encoding="utf-8"))
    values["fsdp_config"]["fsdp_auto_wrap_policy"] = "NO_WRAP"
    (tmp_path / "fsdp2.yaml").write_text(yaml.safe_dump(values))
    (ddp,) = [file for file in FILES if file.stem == "ddp"]
    found = []
    for name, file in (("ddp", ddp), ("fsdp2", tmp_path / "fsdp2.yaml")):
        changes = [*CAPTIONER, f"captioner.frozen={frozen}", "--name", name]
        program = ["-m", "contml.cli", "train", "captioning/synthetic", *changes]
        options = ["--num_processes", "2", "--main_process_port", str(free_port())]
        process = launched(tmp_path, file, *options, program=program)
        output = process.communicate(timeout=540)[0]
        assert process.returncode == 0, output
        found.append(load_file(tmp_path / f"runs/captioning/synthetic/{name}/checkpoints/last.safetensors"))
    assert found[0].keys() == found[1].keys()
    assert all(found[1][key].equal(value) for key, value in found[0].items())
