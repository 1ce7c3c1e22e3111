"""A run folder is trained by one process at a time, and its files may be damaged or come from somebody else."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from support.refusals import refuses
from support.runs import from_text

from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import evaluate_run, report_run, resume, train
from contml.runs import Run


@pytest.fixture
def folder(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.mark.parametrize("rows", [0, 1])
def test_a_test_split_that_is_too_small_is_refused_before_the_training(tmp_path, monkeypatch, rows):
    made = from_text(tmp_path, False, "loss: log_ratio")
    task = made.read_task()
    small = replace(made, task=replace(task, test=task.test.subset(range(rows))))
    create = "contml.app.experiment.train_and_evaluate.create"
    monkeypatch.setattr(create, lambda *_: pytest.fail("a run folder was created"))
    with refuses("test split", got=f"{rows} queries and {rows} gallery items", allowed="at least 1 query and 2"):
        train(small, tmp_path / "runs")


# -- the lock ----------------------------------------------------------------------------------------------------------

HOLD = """
import os, sys, time
from pathlib import Path
from contml.runs import Run
with Run(Path(sys.argv[1])).lock():
    if os.fork():
        print("locked", flush=True)
    time.sleep(100)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_run_is_trained_by_one_process(folder):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert holder.stdout.readline() == b"locked\n"
        before = (folder / "metrics.jsonl").read_bytes()
        with refuses(str(folder), got="another process is training this run"):
            resume(folder, trust=True)
        assert (folder / "metrics.jsonl").read_bytes() == before
        evaluate_run(folder, trust=True)  # reads the folder, and replaces files as a whole
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with Run(folder).lock():  # though a process that it forked, such as one that loads images, still lives
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


def test_a_run_is_locked_while_it_is_trained(tmp_path):
    begun = []

    def on_start(run):
        begun.append(run)
        with refuses(str(run.folder), got="another process is training this run"):
            resume(run.folder, trust=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(from_text(tmp_path, False, "loss: log_ratio"), tmp_path, on_start=on_start)
    with begun[0].lock():
        pass


@pytest.mark.usefixtures("no_reports")
def test_other_processes_of_a_training_need_no_lock(folder, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with Run(folder).lock():
        resume(folder, trust=True)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_a_lock_that_is_a_link_leads_nowhere(folder, tmp_path):
    (tmp_path / "other").write_text("mine")
    (folder / ".lock").unlink(missing_ok=True)
    (folder / ".lock").symlink_to(tmp_path / "other")
    with refuses(str(folder), got="cannot be locked"):
        resume(folder, trust=True)
    assert (tmp_path / "other").read_text() == "mine"


# -- damaged files -----------------------------------------------------------------------------------------------------


def change(path, change):
    tensors, values = load_tensors(path)
    change(tensors, values)
    save_tensors(path, tensors, **values)


STATES = {
    "no numbers": lambda tensors, values: values.pop("numbers"),
    "epoch": lambda tensors, values: values["numbers"].update(epoch="1"),
    "selection": lambda tensors, values: values["numbers"].update(selection={"best": 1.0}),
    "no step": lambda tensors, values: values["numbers"].pop("step"),
    "no groups": lambda tensors, values: values["optimizer"].pop("param_groups"),
    "no model": lambda tensors, values: [tensors.pop(name) for name in list(tensors) if name.startswith("model.")],
    "a name without a part": lambda tensors, values: tensors.update(weight=torch.zeros(3)),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_another_form_is_refused(folder, name):
    path = folder / "checkpoints/state.safetensors"
    change(path, STATES[name])
    with refuses(str(folder)):
        resume(folder, trust=True)


@pytest.mark.parametrize("name", ["state", "last", "best"])
def test_a_damaged_checkpoint_is_refused(folder, name):
    path = folder / f"checkpoints/{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with refuses(str(path), got="damaged"):
        resume(folder, trust=True) if name == "state" else evaluate_run(folder, checkpoint=name, trust=True)


EMBEDDINGS = {
    "no names": lambda tensors, values: values.pop("names"),
    "fewer names": lambda tensors, values: values["names"].pop(),
    "shape": lambda tensors, values: tensors.update(embeddings=torch.zeros(3)),
    "missing": lambda tensors, values: tensors.update(missing=torch.zeros(3)),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_of_another_form_are_refused(folder, name):
    change(folder / "embeddings/test.safetensors", EMBEDDINGS[name])
    with refuses(str(folder)):
        report_run(folder, trust=True)


WEIGHTS = [({"epoch": None}, "checkpoints/last.safetensors"), ({"config": 3}, "config.yaml")]


@pytest.mark.parametrize(("update", "subject"), WEIGHTS)
def test_weights_of_another_form_are_refused(folder, update, subject):
    change(folder / "checkpoints/last.safetensors", lambda _, values: values.update(update))
    with refuses(f"{folder}/{subject}"):
        evaluate_run(folder, checkpoint="last", trust=True)


@pytest.mark.parametrize("name", ["metrics.jsonl", "data.safetensors", "evaluation.json", "config.yaml"])
def test_a_folder_in_place_of_a_file(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with refuses(str(folder)):
        report_run(folder, trust=True)
