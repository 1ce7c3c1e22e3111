"""The command line as a user types it: its output, and one line per mistake."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from support.miniature import TINY
from support.processes import restore_ctrl_c
from support.refusals import refuses
from support.runs import without_reports

from contml import load as load_model
from contml.app.cli.commands import _set_threads
from contml.app.experiment import load, load_run
from contml.config import dump
from contml.evaluation.metrics import METRICS, METRICS_AT_K
from contml.labels import LABELS
from contml.runs import Run, open_run
from contml.search.calibration import Calibration

POSE = {"weight", "normalize", "joint_names", "skeleton"}


def test_train_evaluate_report(contml, accepted, tmp_path):
    arguments = ["train", "pose/synthetic", *TINY, "--name", "it's <b>"]
    out, err = accepted(*arguments)
    folder = tmp_path / "runs/pose/synthetic/it's <b>"
    run = open_run(folder)
    assert (run.command, run.name) == (shlex.join(["contml", *arguments]), "pose/synthetic")
    assert f"report: {folder.relative_to(tmp_path)}/report.html" in out
    assert "mean label distance" in out
    assert "random" in out
    assert "oracle" in out
    assert "epoch 2/2" in err
    sentence = Calibration.read(Run(folder).calibration).sentence(load_model(folder).measure)
    assert f"\n{sentence}\n" in out
    for name in ("config.yaml", "metrics.jsonl", "evaluation.json", "report.html", "tsne.png", "embeddings"):
        assert (folder / name).exists()
    first = json.loads((folder / "evaluation.json").read_text())
    assert (first["queries"], first["gallery"]) == (6, 18)

    out, _ = accepted("evaluate", folder, "--json")
    again = json.loads(out)
    assert (again["split"], again["checkpoint"]) == ("test", "best")
    for name, curve in first["curves"].items():
        assert again["curves"][name]["model"] == pytest.approx(curve["model"], rel=1e-4)
    out, _ = accepted("evaluate", folder, "--checkpoint", "last")
    assert "test split, last weights (epoch 2)" in out
    assert "6 queries, 18 in the gallery" in out
    assert json.loads((folder / "evaluation.json").read_text())["checkpoint"] == "best"
    assert json.loads((folder / "evaluation-last.json").read_text())["checkpoint"] == "last"

    with without_reports():  # a finished run: nothing left to do but the report
        status, out, err = contml("train", "--resume", folder)
    assert status == 0, err


def test_check_and_list_and_copy(contml, accepted, tmp_path):
    out, _ = accepted("check", "pose/synthetic", *TINY)
    assert "pixels, over 14 joints" in out
    assert not (tmp_path / "runs").exists()
    _, out, _ = contml("check", "pose/synthetic", *TINY, "--json")
    assert json.loads(out)["training images"] == "40"

    out, _ = accepted("list")
    for word in ("pose/synthetic", "log_ratio", "proxy_anchor", "dense", "threshold", "small_cnn", "adamw", "inverse"):
        assert word in out
    _, out, _ = contml("list", "losses")
    assert "squared = true: " in out
    _, out, _ = contml("list", "samplers", "--json")
    assert json.loads(out)["samplers"]["dense"]["options"]["neighbours"]["default"] == 5

    out, _ = accepted("list", "labels")
    for kind, options in (("number", {"weight", "scale"}), ("pose", POSE)):
        assert f"  {kind}: " in out
        listed = json.loads(contml("list", "labels", "--json")[1])["labels"][kind]["options"]
        assert set(listed) == options
        assert all(option["help"] for option in listed.values())
    out, _ = accepted("list", "label_spaces")
    for space in LABELS.values():
        assert f"  {space.__name__}: " in out
    assert "normalize = false: " in out
    out, _ = accepted("list", "metrics")
    lines = [line.strip() for line in out.splitlines()]
    assert {line.partition(": ")[0] for line in lines[1:]} == {*(f"{name}@K" for name in METRICS_AT_K), *METRICS}
    assert all(line.endswith(("lower is better", "higher is better")) for line in lines[1:])
    assert "label_distance@K: mean label distance of the K nearest; at least 0, lower is better" in lines

    out, _ = accepted("copy", "pose/synthetic", "mine.yaml")
    assert "contml train mine.yaml" in out
    accepted("check", "mine.yaml", *TINY)


OWN = """from torch import Tensor
from contml.losses import LogRatioLoss

class Mine(LogRatioLoss):
    def __init__(self, weight: float = 1.0):
        super().__init__()

def near(distances: Tensor, label_distances: Tensor) -> Tensor:
    return label_distances[:, 0]
"""
OWN_CODE = {
    "loss": ("own:Mine", ["loss=own:Mine", "loss.weight=2.0"]),
    "training.metrics.near": ("own:near", ["training.metrics={near: own:near}"]),
}


@pytest.mark.parametrize("key", OWN_CODE)
def test_own_code_needs_trust_in_a_run_folder(tiny_run, tmp_path, monkeypatch, key):
    name, changes = OWN_CODE[key]
    run = Run(shutil.copytree(tiny_run, tmp_path / "run"))
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = load("pose/synthetic", [*TINY, *changes])
    run.config.write_text(dump(own.values))
    with refuses(key, got=name, hint="--trust", origin="config.yaml:"):
        load_run(run.folder)[0].metrics  # noqa: B018
    trusted, _ = load_run(run.folder, trust=True)
    assert (trusted.values, list(trusted.metrics)) == (own.values, list(own.metrics))


def test_a_run_without_embeddings_or_with_foreign_weights(refused, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["dim"] = 9
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert "config.yaml: changed since the run began (model.dim: 8 -> 9)" in refused("evaluate", folder)
    (folder / "checkpoints/last.safetensors").unlink()
    assert "last.safetensors: no such checkpoint" in refused("evaluate", folder, "--checkpoint", "last")
    config["model"]["dim"] = 8
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "embeddings/test.safetensors").unlink()
    assert f"contml evaluate {folder}" in refused("report", folder)


@pytest.mark.slow
def test_ctrl_c_saves_and_reports_how_to_continue(tmp_path):
    command = [sys.executable, "-m", "contml", "train", "pose/synthetic", *TINY, "training.epochs=5000"]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, **streams, preexec_fn=restore_ctrl_c)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("runs/*/*/*/checkpoints/state.safetensors")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    last = errors.strip().splitlines()[-1]
    assert last.startswith("contml: stopped by SIGINT")
    folder = next(tmp_path.glob("runs/*/*/*"))
    assert last.endswith(f"contml train --resume {folder.relative_to(tmp_path)}")
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_resume_needs_no_file_of_weights(accepted, tmp_path):
    accepted("train", "pose/synthetic", *TINY)
    first = next((tmp_path / "runs/pose/synthetic").iterdir())
    (first / "checkpoints/best.safetensors").rename(tmp_path / "w.safetensors")
    accepted("train", "pose/synthetic", *TINY, "model.weights=w.safetensors", "--runs", "second")
    (tmp_path / "w.safetensors").unlink()
    accepted("train", "--resume", next((tmp_path / "second/pose/synthetic").iterdir()))


def test_help_of_everything(contml, accepted):
    commands = ("train", "evaluate", "report", "compare", "check", "features", "list", "copy")
    for command in ([], *([command] for command in commands)):
        out, _ = accepted(*command, "--help")
        assert "Usage" in out
    assert contml()[:2] == contml("--help")[:2]


@pytest.mark.parametrize(("quota", "processors", "threads"), [
    ("200000 100000", 8, "2"), ("50000 100000", 8, "1"), ("max 100000", 8, None), ("800000 100000", 2, None),
])  # fmt: skip
def test_waiting_threads_sleep_and_their_number_is_the_quota(monkeypatch, tmp_path, quota, processors, threads):
    monkeypatch.setattr("contml.app.cli.commands._QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    environment = {}
    monkeypatch.setattr(os, "environ", environment)
    _set_threads()
    assert environment == {"OMP_WAIT_POLICY": "PASSIVE"} | ({"OMP_NUM_THREADS": threads} if threads else {})
    environment.update(OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="5")
    _set_threads()
    assert environment == {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "5"}
