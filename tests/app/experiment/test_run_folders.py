"""A run folder is trained by one process at a time, and its files may be damaged or come from somebody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from support.damage import mutations
from support.refusals import refuses
from support.runs import from_text, without_reports

from contml import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.app.cli.printing import print_evaluation
from contml.app.experiment import evaluate_run, load_run, read_evaluation, report_run, resume, train
from contml.runs import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with without_reports():
        return train(from_text(folder, False, "loss: log_ratio"), folder).folder


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize("rows", [0, 1])
def test_a_test_split_that_is_too_small_is_refused_before_the_training(tmp_path, monkeypatch, rows):
    made = from_text(tmp_path, False, "loss: log_ratio")
    task = made.read_task()
    small = replace(made, task=replace(task, test=task.test.subset(range(rows))))
    monkeypatch.setattr(
        "contml.app.experiment.train_and_evaluate.create", lambda *_: pytest.fail("a run folder was created")
    )
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


@pytest.mark.usefixtures("no_reports")
def test_a_run_is_locked_while_it_is_trained(tmp_path):
    def on_start(run):
        with refuses(str(run.folder), got="another process is training this run"):
            resume(run.folder, trust=True)

    run = train(from_text(tmp_path, False, "loss: log_ratio"), tmp_path, on_start=on_start)
    with run.lock():
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
    "numbers in a list": lambda tensors, values: values.update(numbers=[1]),
    "epoch": lambda tensors, values: values["numbers"].update(epoch="1"),
    "config": lambda tensors, values: values["numbers"].update(config=[]),
    "selection": lambda tensors, values: values["numbers"].update(selection={"best": 1.0}),
    "no step": lambda tensors, values: values["numbers"].pop("step"),
    "no schedule": lambda tensors, values: values["numbers"].pop("schedule"),
    "optimizer in a list": lambda tensors, values: values.update(optimizer=[1]),
    "no groups": lambda tensors, values: values["optimizer"].pop("param_groups"),
    "other groups": lambda tensors, values: values["optimizer"].update(param_groups=[{"params": [0]}]),
    "no model": lambda tensors, values: [tensors.pop(name) for name in list(tensors) if name.startswith("model.")],
    "shape": lambda tensors, values: tensors.update({"model.head.weight": torch.zeros(3)}),
    "a name without a part": lambda tensors, values: tensors.update(weight=torch.zeros(3)),
    "no such parameter": lambda tensors, values: tensors.update({"optimizer.x.y": torch.zeros(3)}),
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
    "names": lambda tensors, values: values.update(names=[1] * len(values["names"])),
    "fewer names": lambda tensors, values: values["names"].pop(),
    "no embeddings": lambda tensors, values: tensors.pop("embeddings"),
    "shape": lambda tensors, values: tensors.update(embeddings=torch.zeros(3)),
    "missing": lambda tensors, values: tensors.update(missing=torch.zeros(3)),
    "no config": lambda tensors, values: values.pop("config"),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_of_another_form_are_refused(folder, name):
    change(folder / "embeddings/test.safetensors", EMBEDDINGS[name])
    with refuses(str(folder)):
        report_run(folder, trust=True)


@pytest.mark.parametrize(
    ("update", "subject"),
    [({"epoch": None}, "checkpoints/last.safetensors"), ({"config": 3}, "config.yaml")],
)
def test_weights_of_another_form_are_refused(folder, update, subject):
    change(folder / "checkpoints/last.safetensors", lambda _, values: values.update(update))
    with refuses(f"{folder}/{subject}"):
        evaluate_run(folder, checkpoint="last", trust=True)


@pytest.mark.slow
def test_files_that_were_read_and_written_again_are_accepted(folder):
    for name in ("checkpoints/state", "checkpoints/last", "embeddings/test"):
        change(folder / f"{name}.safetensors", lambda *_: None)
    resume(folder, trust=True)
    evaluate_run(folder, checkpoint="last", trust=True)
    report_run(folder, trust=True)


def test_a_damaged_evaluation_is_one_error_or_can_be_printed(folder, capsys):
    path = folder / "evaluation.json"
    whole = path.read_bytes()
    values = json.loads(whole)
    forms = [{**values, key: form} for key in values for form in (None, [], {}, "a", -1, 1e400, float("nan"))]
    shorter = json.loads(whole)
    shorter["curves"]["ndcg"]["model"].pop()
    texts = [json.dumps(form).encode() for form in [*forms, shorter, [], None, 3]]
    for damaged in [*texts, *mutations(whole, 300, seed=6), b"[" * 100_000]:
        path.write_bytes(damaged)
        try:
            found = read_evaluation(Run(folder))
        except InputError as error:
            assert error.subject == str(path)  # noqa: PT017
        else:
            print_evaluation(found)
            print_evaluation(found, as_json=True)
    capsys.readouterr()


def test_a_damaged_config_is_one_error(folder):
    path = folder / "config.yaml"
    whole = path.read_bytes()
    for damaged in mutations(whole, 300, seed=7):
        path.write_bytes(damaged)
        try:
            load_run(folder, trust=False)
        except InputError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017


@pytest.mark.parametrize("name", ["metrics.jsonl", "data.safetensors", "evaluation.json", "config.yaml"])
def test_a_folder_in_place_of_a_file(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with refuses(str(folder)):
        report_run(folder, trust=True)
