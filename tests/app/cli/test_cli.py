"""The command line as a user types it: its output, and one line per mistake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from PIL import Image
from support.miniature import TINY
from support.pose_sets import pose_files
from support.processes import restore_ctrl_c
from support.runs import without_reports

from contml import load as load_model
from contml.app.cli.commands import _set_threads
from contml.evaluation.metrics import METRICS, METRICS_AT_K
from contml.labels import LABELS
from contml.runs import Run
from contml.search.calibration import Calibration

POSE = {"weight", "normalize", "joint_names", "skeleton"}
OWN = [
    "task=table/file",
    "task.data=own/joints.npz",
    "task.labels={joints: {kind: pose, normalize: true}}",
    "images.resize=32",
    "images.crop=32",
    *[t for t in TINY if t[:4] not in ("task", "imag")],
]


def test_train_evaluate_report(contml, tmp_path):
    status, out, err = contml("train", "pose/synthetic", *TINY)
    assert status == 0, err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    assert f"report: {folder.relative_to(tmp_path)}/report.html" in out
    assert "mean label distance" in out
    assert "random" in out
    assert "oracle" in out
    assert "epoch 2/2" in err
    sentence = Calibration.read(Run(folder).calibration).sentence(load_model(folder).measure)
    assert f"\n{sentence}\n" in out
    for name in ("config.yaml", "metrics.jsonl", "evaluation.json", "report.html", "map.png", "embeddings"):
        assert (folder / name).exists()
    first = json.loads((folder / "evaluation.json").read_text())
    assert first["queries"] == 6
    assert first["gallery"] == 18

    status, out, _ = contml("evaluate", folder, "--json")
    assert status == 0
    again = json.loads(out)
    assert (again["split"], again["checkpoint"]) == ("test", "best")
    for name, curve in first["curves"].items():
        assert again["curves"][name]["model"] == pytest.approx(curve["model"], rel=1e-4)
    status, out, _ = contml("evaluate", folder, "--checkpoint", "last")
    assert status == 0
    assert "test split, last weights (epoch 2)" in out
    assert "6 queries, 18 in the gallery" in out
    assert json.loads((folder / "evaluation.json").read_text())["checkpoint"] == "best"
    assert json.loads((folder / "evaluation-last.json").read_text())["checkpoint"] == "last"

    (folder / "report.html").unlink()
    status, out, _ = contml("report", folder, "--pair", "1", "2")
    assert status == 0
    assert (folder / "report.html").exists()

    with without_reports():  # a finished run: nothing left to do but the report
        status, out, err = contml("train", "--resume", folder)
    assert status == 0, err


@pytest.mark.usefixtures("no_reports")
def test_own_files(contml, tmp_path):
    pose_files(tmp_path / "own")
    status, out, err = contml("train", "pose/synthetic", *OWN)
    assert status == 0, err
    assert "3 queries, 7 in the gallery" in out


def test_own_files_in_json_with_a_split_by_file(contml, tmp_path):
    values = pose_files(tmp_path / "own")
    people = [
        {"name": str(n), "joints": j.tolist(), "visible": v.astype(int).tolist()}
        for n, j, v in zip(values["names"], values["joints"], values["visible"], strict=True)
    ]
    (tmp_path / "own/joints.json").write_text(json.dumps({"people": people}))
    names = values["names"].tolist()
    (tmp_path / "own/split.json").write_text(
        json.dumps({"train": names[:20], "test": names[20:], "queries": names[28:]})
    )
    status, out, err = contml("check", "pose/synthetic", *OWN, "task.data=own/joints.json", "task.split=split.json")
    assert status == 0, err
    assert "10, of which 2 query" in out


def test_check_and_list_and_copy(contml, tmp_path):
    status, out, _ = contml("check", "pose/synthetic", *TINY)
    assert status == 0
    assert "pixels, over 14 joints" in out
    assert not (tmp_path / "runs").exists()
    status, out, _ = contml("check", "pose/synthetic", *TINY, "--json")
    assert json.loads(out)["training images"] == "40"

    status, out, _ = contml("list")
    assert status == 0
    for word in ("pose/synthetic", "log_ratio", "proxy_anchor", "dense", "threshold", "small_cnn", "adamw", "inverse"):
        assert word in out
    status, out, _ = contml("list", "losses")
    assert "squared = true: " in out
    status, out, _ = contml("list", "samplers", "--json")
    assert json.loads(out)["samplers"]["dense"]["options"]["neighbours"]["default"] == 5

    status, out, _ = contml("list", "labels")
    assert status == 0
    for kind, options in (("number", {"weight", "scale"}), ("pose", POSE)):
        assert f"  {kind}: " in out
        listed = json.loads(contml("list", "labels", "--json")[1])["labels"][kind]["options"]
        assert set(listed) == options
        assert all(option["help"] for option in listed.values())
    status, out, _ = contml("list", "label_spaces")
    assert status == 0
    for space in LABELS.values():
        assert f"  {space.__name__}: " in out
    assert "normalize = false: " in out
    status, out, _ = contml("list", "metrics")
    assert status == 0
    lines = [line.strip() for line in out.splitlines()]
    assert {line.partition(": ")[0] for line in lines[1:]} == {*(f"{name}@K" for name in METRICS_AT_K), *METRICS}
    assert all(line.endswith(("lower is better", "higher is better")) for line in lines[1:])
    assert "label_distance@K: mean label distance of the K nearest; at least 0, lower is better" in lines

    status, out, _ = contml("copy", "pose/synthetic", "mine.yaml")
    assert status == 0
    assert "contml train mine.yaml" in out
    status, _, err = contml("check", "mine.yaml", *TINY)
    assert status == 0, err


OWN_CODE = {
    "loss": (
        "own_loss:Mine",
        "from contml.losses import LogRatioLoss\n\n\nclass Mine(LogRatioLoss):\n"
        '    """Mine."""\n\n    def __init__(self, weight: float = 1.0):\n        super().__init__()\n',
        ["loss=own_loss:Mine", "loss.weight=2.0"],
    ),
    "model.backbone": (
        "own_backbone:tiny",
        "from torch import nn\n\n\ndef tiny() -> nn.Module:\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())\n",
        ["model.backbone=own_backbone:tiny"],
    ),
    "training.metrics.near": (
        "own_metric:near",
        "from torch import Tensor\n\n\ndef near(distances: Tensor, label_distances: Tensor) -> Tensor:\n"
        "    return label_distances[:, 0]\n",
        ["training.metrics={near: own_metric:near}"],
    ),
}


@pytest.mark.parametrize("key", OWN_CODE)
@pytest.mark.usefixtures("no_reports")
def test_own_code_needs_trust_in_a_run_folder(contml, tmp_path, key):
    name, code, changes = OWN_CODE[key]
    (tmp_path / f"{name.split(':')[0]}.py").write_text(code)
    status, _, err = contml("train", "pose/synthetic", *TINY, *changes)
    assert status == 0, err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    status, _, err = contml("evaluate", folder)
    assert status == 2
    for text in ("config.yaml:", key, name, "--trust"):
        assert text in err
    assert contml("evaluate", folder, "--trust")[0] == 0


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ("sampler.neighbours=40", ["neighbours", "40", "82", "batch_size", "10"]),
        ("loss=triplet_margin", ["triplet_margin", "graded", "'binarize: {name: threshold, threshold: ...}'"]),
        ("loss.num_classes=3", ["loss.num_classes: unknown key"]),
        ("images.crop=900", ["crop", "900"]),
        ("seed=-1", ["command line: seed: -1", "0 to 4294967295"]),
        ("task.seed=-1", ["seed", "-1"]),
        ("optimizer.weight_decay=-1.0", ["weight_decay", "-1.0", "at least 0"]),
        ("optimizer={name: sgd, momentum: 1}", ["optimizer.momentum: 1", "below 1"]),
        ("schedule={name: step, epochs: 0}", ["epochs", "0", "at least 1"]),
        ("loss={name: margin, per_class: true}", ["per_class", "classes"]),
        ("model.backbone=os:nothing", ["os:nothing"]),
        ("training.metrics={near: os:nothing}", ["command line: training.metrics.near", "os:nothing"]),
        ("training.metrics={near: os:sep}", ["training.metrics.near: os:sep is of type str", "'-> Tensor'"]),
        ("training.metrics={recall: os:nothing}", ["training.metrics.recall", "no metric of contml"]),
        ("training.metrics=os:nothing", ["training.metrics", "a mapping"]),
    ],
)
def test_a_mistake_in_a_config_is_one_line(refused, change, texts):
    line = refused("check", "pose/synthetic", *TINY, change)
    for text in texts:
        assert text in line


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["evaluate", "run", "--jsn"], ["--jsn", "--json"]),
        (["evaluate"], ["RUN"]),
        (["explore", "own", "--items", "big"], ["--items: 'big'; must be a whole number of at least 2"]),
        (["audit", "run", "--neighbours", "1.5"], ["--neighbours: '1.5'; must be a whole number of at least 1"]),
        (["copy", "pose/syntetic", "x.yaml"], ["pose/syntetic", "'pose/synthetic'"]),
        (["report", "empty"], ["empty", "config.yaml"]),
        (["train", "--pattern", "{a}.jpg"], ["--pattern", "--data PATH"]),
        (["train", "pose/coco"], ["task.root"]),
        (["train", "pose/synthetic", "--resume", "empty"], ["--resume", "pose/synthetic"]),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(refused, tmp_path, arguments, texts):
    (tmp_path / "empty").mkdir()
    line = refused(*arguments)
    for text in texts:
        assert text in line


def test_a_sampler_of_classes_on_poses(refused):
    changes = [*[c for c in TINY if not c.startswith("sampler")], "sampler={name: classes, classes: 3, instances: 2}"]
    assert "classes" in refused("check", "pose/synthetic", *changes)


def test_more_neighbours_than_items(refused):
    changes = ["sampler.neighbours=8", "sampler.anchors_per_batch=1", "task.train=8", "sampler.batch_size=9"]
    line = refused("check", "pose/synthetic", *TINY, *changes)
    assert "batch_size" in line
    assert "at most 8" in line
    nearest = ["binarize=nearest", "binarize.k=40", "loss=triplet_margin"]
    line = refused("check", "pose/synthetic", *TINY, *nearest)
    assert "40" in line
    assert "39" in line


def test_a_mistake_in_a_file_points_at_its_line(contml, refused, tmp_path):
    contml("copy", "pose/synthetic", "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text()
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "squared: true" in line)
    (tmp_path / "mine.yaml").write_text(text.replace("squared: true", "sqared: true"))
    line = refused("check", "mine.yaml")
    assert f"mine.yaml:{number}: loss.sqared: unknown key" in line
    assert "'squared'" in line
    assert "mine.yaml" in refused("copy", "pose/synthetic", "mine.yaml")


def test_missing_and_bad_data(refused, contml, tmp_path):
    def line(*changes):
        return refused("check", "pose/synthetic", *OWN, *changes)

    assert "own" in line()
    values = pose_files(tmp_path / "own", hidden=(4,))
    assert "own/joints.npz: row 5: joints: 7 of 14 joints" in line()
    status, out, err = contml("check", "pose/synthetic", *OWN, "task.missing=drop")
    assert status == 0, err
    assert "training images     16 (excluded: 1 without more than half of its joints in 'joints')" in out
    assert "validation images   3, of which 3 query (drawn from the training split)" in out
    values["visible"][:] = True
    values["joints"][5, 3] = np.nan
    np.savez(tmp_path / "own/joints.npz", **values)
    wrong_joint = line()
    assert "own/joints.npz: row 6: joints: joint 3 is visible and not a number" in wrong_joint
    values["joints"][5, 3] = 1
    np.savez(tmp_path / "own/joints.npz", **values)
    (tmp_path / "own/images/person02.jpg").rename(tmp_path / "elsewhere.jpg")
    missing_image = line()
    assert "person02.jpg" in missing_image
    assert "1 such of 30" in missing_image
    (tmp_path / "own/joints.npz").write_bytes(b"PK\x03\x04 cut short")
    assert "joints.npz" in line()
    missing_file = line("task.data=own/none.npz")
    assert "none.npz" in missing_file
    assert "no such file" in missing_file


@pytest.mark.parametrize(
    ("people", "texts"),
    [
        ([5], ["people"]),
        ([{"name": "a.jpg", "joints": [[1.0], [1.0, 2.0]]}], ["row 1: joints: joint 0 has 1 numbers", "[[x, y], ...]"]),
        ([{"name": "a.jpg", "split": "train"}], ["joints"]),
        ([{"name": "a.jpg", "joints": [[1, 2]] * 3, "split": "trainnig"}], ["row 1: split: 'trainnig'", "train, val"]),
        (
            [{"name": "a.jpg", "joints": [[1, 2]]}, {"name": "a.jpg", "joints": [[1, 2]] * 2}],
            ["row 2: joints: 2 joints; must be 1 as in own/joints.json: row 1"],
        ),
    ],
)
def test_joints_in_another_form(refused, tmp_path, people, texts):
    (tmp_path / "own").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "own/a.jpg")
    (tmp_path / "own/joints.json").write_text(json.dumps({"people": people}))
    line = refused("check", "pose/synthetic", *OWN, "task.data=own/joints.json")
    for text in texts:
        assert text in line


@pytest.mark.usefixtures("no_reports")
def test_a_truncated_jpeg_is_reported_or_skipped(contml, tmp_path):
    pose_files(tmp_path / "own")
    for number in (1, 23):  # one to train on, one to evaluate
        path = tmp_path / f"own/images/person{number:02}.jpg"
        path.write_bytes(path.read_bytes()[:600])
    status, _, err = contml("train", "pose/synthetic", *OWN)
    assert status == 2
    assert "person23.jpg: cannot be decoded" in err
    assert "skip" in err
    assert "Traceback" not in err
    status, out, err = contml("train", "pose/synthetic", *OWN, "images.broken=skip")
    assert status == 0, err
    assert "images that could not be read and were excluded: 1" in out


def test_a_run_without_embeddings_or_with_foreign_weights(refused, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["dim"] = 9
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    line = refused("evaluate", folder)
    assert "config.yaml: changed since the run began (model.dim: 8 -> 9)" in line
    (folder / "checkpoints/last.safetensors").unlink()
    assert "last.safetensors: no such checkpoint" in refused("evaluate", folder, "--checkpoint", "last")
    config["model"]["dim"] = 8
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "embeddings/test.safetensors").unlink()
    assert f"contml evaluate {folder}" in refused("report", folder)


@pytest.mark.slow
def test_ctrl_c_saves_and_reports_how_to_continue(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "contml", "train", "pose/synthetic", *TINY, "training.epochs=5000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_ctrl_c,
    )
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
def test_a_run_can_be_moved_and_its_data_too(contml, tmp_path):
    pose_files(tmp_path / "own")
    status, _, err = contml("train", "pose/synthetic", *OWN)
    assert status == 0, err
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    (tmp_path / "own").rename(tmp_path / "data")
    folder = next((tmp_path / "elsewhere/pose/synthetic").iterdir())
    status, _, err = contml("evaluate", folder)
    assert status == 2
    assert "config.yaml:" in err
    assert "own" in err
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace(str(tmp_path / "own"), "data"))
    assert contml("evaluate", folder)[0] == 0
    status, _, err = contml("train", "--resume", folder)
    assert status == 0, err
    assert "<title>joints.npz: joints" in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_resume_needs_no_file_of_weights(contml, tmp_path):
    status, _, err = contml("train", "pose/synthetic", *TINY)
    assert status == 0, err
    first = next((tmp_path / "runs/pose/synthetic").iterdir())
    (first / "checkpoints/best.safetensors").rename(tmp_path / "w.safetensors")
    status, _, err = contml("train", "pose/synthetic", *TINY, "model.weights=w.safetensors", "--runs", "second")
    assert status == 0, err
    (tmp_path / "w.safetensors").unlink()
    status, _, err = contml("train", "--resume", next((tmp_path / "second/pose/synthetic").iterdir()))
    assert status == 0, err


def test_help_of_everything(contml):
    commands = ("train", "evaluate", "report", "compare", "check", "features", "list", "copy")
    for command in ([], *([command] for command in commands)):
        status, out, _ = contml(*command, "--help")
        assert status == 0
        assert "Usage" in out
    assert contml()[:2] == contml("--help")[:2]


@pytest.mark.parametrize(
    ("quota", "processors", "threads"),
    [("200000 100000", 8, "2"), ("50000 100000", 8, "1"), ("max 100000", 8, None), ("800000 100000", 2, None)],
)
def test_waiting_threads_sleep_and_a_container_has_as_many_as_its_quota(
    monkeypatch, tmp_path, quota, processors, threads
):
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
