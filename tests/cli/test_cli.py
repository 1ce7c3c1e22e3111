"""The command line as a user types it: what it prints, and the one line that a mistake gives."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from support.miniature import TINY
from support.pose_sets import pose_files

OWN = [
    "task=pose/files",
    "task.root=own",
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
    for name in ("config.yaml", "metrics.jsonl", "evaluation.json", "report.html", "gallery.png", "embeddings"):
        assert (folder / name).exists()
    first = json.loads((folder / "evaluation.json").read_text())
    assert first["queries"] == 6
    assert first["gallery"] == 18

    status, out, _ = contml("evaluate", folder, "--json")
    assert status == 0
    again = json.loads(out)
    assert again["checkpoint"] == "last"
    for name, curve in first["curves"].items():
        assert again["curves"][name]["model"] == pytest.approx(curve["model"], rel=1e-4)
    status, out, _ = contml("evaluate", folder, "--checkpoint", "best")
    assert status == 0
    assert "6 queries, 18 in the gallery" in out

    (folder / "report.html").unlink()
    status, _, err = contml("report", folder, "--pair", "1", "2")
    assert (status, err) == (2, "contml: pose/synthetic: this task explains no pair; leave --pair out\n")
    status, out, _ = contml("report", folder)
    assert status == 0
    assert (folder / "report.html").exists()

    status, out, err = contml("train", "--resume", folder)  # a finished run: nothing left to do but the report
    assert status == 0, err


def test_ones_own_files(contml, tmp_path):
    pose_files(tmp_path / "own")
    status, out, err = contml("train", "pose/synthetic", *OWN)
    assert status == 0, err
    assert "3 queries, 7 in the gallery" in out


def test_ones_own_files_in_json_with_a_split_by_file(contml, tmp_path):
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
    status, out, err = contml("check", "pose/synthetic", *OWN, "task.joints=joints.json", "task.split=split.json")
    assert status == 0, err
    assert "10, of which 2 query" in out


def test_check_and_list_and_copy(contml, tmp_path):
    status, out, _ = contml("check", "pose/synthetic", *TINY)
    assert status == 0
    assert "squared pixels, summed over 14 joints" in out
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

    status, out, _ = contml("copy", "pose/synthetic", "mine.yaml")
    assert status == 0
    assert "contml train mine.yaml" in out
    status, _, err = contml("check", "mine.yaml", *TINY)
    assert status == 0, err


def test_a_loss_of_ones_own_by_import_string(contml, tmp_path):
    (tmp_path / "my_losses.py").write_text(
        "from contml.losses import LogRatioLoss\n\n\nclass Mine(LogRatioLoss):\n"
        '    """Mine."""\n\n    def __init__(self, weight: float = 1.0):\n        super().__init__()\n'
    )
    status, _, err = contml("train", "pose/synthetic", *TINY, "loss=my_losses:Mine", "loss.weight=2.0")
    assert status == 0, err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    status, _, err = contml("evaluate", folder)
    assert status == 2
    assert "'loss.name' names code to import (my_losses:Mine); pass --trust to allow it" in err
    assert contml("evaluate", folder, "--trust")[0] == 0


def test_a_backbone_of_ones_own_needs_trust_in_a_run_folder(contml, tmp_path):
    (tmp_path / "my_backbone.py").write_text(
        "from torch import nn\n\n\ndef tiny():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())\n"
    )
    status, _, err = contml("train", "pose/synthetic", *TINY, "model.backbone=my_backbone:tiny")
    assert status == 0, err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    status, _, err = contml("evaluate", folder)
    assert status == 2
    assert "'model.backbone' names code to import (my_backbone:tiny); pass --trust to allow it" in err
    assert contml("evaluate", folder, "--trust")[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("loss.sqared=true", "command line: unknown key 'loss.sqared'; did you mean 'squared'?"),
        ("los.squared=true", "command line: unknown key 'los'; did you mean 'loss'?"),
        ("loss=logratio", "command line: unknown loss 'logratio'; did you mean 'log_ratio'?"),
        ("sampler.batch_size=many", "'sampler.batch_size' is 'many'; it must be a whole number"),
        ("sampler.batch_size=1", "sampler: batch_size is 1; a batch compares items, so it needs at least 2"),
        ("sampler.batch_size=5000", "sampler: batch_size is 5000, but the data set has 40 items"),
        ("sampler.neighbours=40", "sampler: 2 anchors with 40 neighbours each are 82 items, more than batch_size 10"),
        ("loss=triplet_margin", "set a threshold with 'labels: {name: threshold, threshold: ...}'"),
        ("loss=proxy_anchor", "loss 'proxy_anchor' needs classes, but the labels are graded"),
        ("loss.num_classes=3", "unknown key 'loss.num_classes'"),
        ("model.backbone=resnet19", "resnet18"),
        ("model.weights=missing.safetensors", "missing.safetensors"),
        ("images.crop=900", "crop is 900; it must be 1 to resize"),
        ("optimizer.lr=fast", "'optimizer.lr' is 'fast'; it must be a number"),
        ("seed", "KEY=VALUE"),
        ("seed=-1", "command line: seed is -1; it must be 0 to 4294967295"),
        ("task.figures_seed=-1", "figures_seed is -1"),
        ("optimizer.weight_decay=-1.0", "optimizer: weight_decay is -1.0; it must be at least 0"),
        ("schedule={name: step, epochs: 0}", "schedule: epochs is 0 and factor is 0.5; these must be at least 1"),
        (
            "loss={name: margin, per_class: true}",
            "per_class=True learns a boundary for each class, so labels must be classes",
        ),
        ("model.backbone=os:nothing", "backbone 'os:nothing' cannot be imported"),
    ],
)
def test_a_mistake_in_a_config_is_one_line(refused, change, message):
    if change == "seed":
        assert "seed" in refused("check", "pose/synthetic", *TINY, change)
        return
    assert message in refused("check", "pose/synthetic", *TINY, change)


def test_a_sampler_of_classes_on_poses(refused):
    changes = [*[c for c in TINY if not c.startswith("sampler")], "sampler={name: classes, classes: 3, instances: 2}"]
    assert "sampler: the sampler takes classes x instances, but the labels are no classes" in refused(
        "check", "pose/synthetic", *changes
    )


def test_more_neighbours_than_items(refused):
    changes = ["sampler.neighbours=8", "sampler.anchors_per_batch=1", "task.train=8", "sampler.batch_size=9"]
    assert "batch_size is 9, but the data set has 8 items" in refused("check", "pose/synthetic", *TINY, *changes)
    nearest = ["labels=nearest", "labels.k=40", "loss=triplet_margin"]
    line = refused("check", "pose/synthetic", *TINY, *nearest)
    assert "labels: k is 40, but there are 39 items to choose neighbours from; k must be 1 to 39" in line


def test_a_mistake_in_a_file_points_at_its_line(contml, refused, tmp_path):
    contml("copy", "pose/synthetic", "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text()
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "squared: true" in line)
    (tmp_path / "mine.yaml").write_text(text.replace("squared: true", "sqared: true"))
    assert f"mine.yaml:{number}: unknown key 'loss.sqared'; did you mean 'squared'?" in refused("check", "mine.yaml")
    assert "mine.yaml" in refused("copy", "pose/synthetic", "mine.yaml")
    assert "no config 'pose/syntetic'" in refused("copy", "pose/syntetic", "x.yaml")


def test_missing_and_bad_data(refused, contml, tmp_path):
    assert "no such folder" in refused("check", "pose/synthetic", *OWN)
    values = pose_files(tmp_path / "own", hidden=(4,))
    line = refused("check", "pose/synthetic", *OWN)
    assert "person04.jpg: 7 of 14 joints are visible (1 such items); a pose needs more than half" in line
    status, out, err = contml("check", "pose/synthetic", *OWN, "task.hidden=drop")
    assert status == 0, err
    assert "19" in out
    values["visible"][:] = True
    values["joints"][5, 3] = np.nan
    np.savez(tmp_path / "own/joints.npz", **values)
    line = refused("check", "pose/synthetic", *OWN)
    assert "joint 3 (left_hip) of person05.jpg is not a number; mark it 0 in 'visible'" in line
    values["joints"][5, 3] = 1
    np.savez(tmp_path / "own/joints.npz", **values)
    (tmp_path / "own/images/person02.jpg").rename(tmp_path / "elsewhere.jpg")
    assert "person02.jpg: no such image (1 of 30 images of joints.npz are missing)" in refused(
        "check", "pose/synthetic", *OWN
    )
    (tmp_path / "own/joints.npz").write_bytes(b"PK\x03\x04 cut short")
    assert "joints.npz: not a readable .npz file" in refused("check", "pose/synthetic", *OWN)
    assert "set joints to the name of the file" in refused("check", "pose/synthetic", *OWN, "task.joints=none.npz")


@pytest.mark.parametrize(
    ("people", "message"),
    [
        ([5], "has no list 'people' of {name, joints, visible, split}"),
        ([{"name": "a.jpg", "joints": None, "split": "train"}], "joints of a person are a list of [x, y]"),
        ([{"name": "a.jpg", "joints": [[1.0], [1.0, 2.0]], "split": "train"}], "not every item has the same form"),
        ([{"name": "a.jpg", "split": "train"}], "has no 'joints'; it needs names and joints"),
        (
            [{"name": "a.jpg", "joints": [[1, 2]] * 3, "split": "training"}],
            "a.jpg has split 'training'; must be one of train, test, query",
        ),
        (
            [{"name": "a.jpg", "joints": [[1, 2]]}, {"name": "b.jpg", "joints": [[1, 2]] * 2}],
            "people have [1, 2] joints; give each the same joints",
        ),
    ],
)
def test_joints_in_another_form(refused, tmp_path, people, message):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/joints.json").write_text(json.dumps({"people": people}))
    assert message in refused("check", "pose/synthetic", *OWN, "task.joints=joints.json")


def test_a_truncated_jpeg_is_named_with_the_choice_to_skip(refused, contml, tmp_path):
    pose_files(tmp_path / "own")
    for number in (1, 23):  # one to train on, one to evaluate
        path = tmp_path / f"own/images/person{number:02}.jpg"
        path.write_bytes(path.read_bytes()[:600])
    status, _, err = contml("train", "pose/synthetic", *OWN)
    assert status == 2
    assert "person23.jpg: cannot be decoded" in err
    assert "leave out broken images (broken: skip)" in err
    assert "Traceback" not in err
    status, out, err = contml("train", "pose/synthetic", *OWN, "images.broken=skip")
    assert status == 0, err
    assert "1 images could not be read and were left out" in out


def test_commands_on_what_is_no_run(refused, contml, tmp_path):
    assert "nowhere: no such run folder" in refused("evaluate", "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty: not a run folder, it has no config.yaml" in refused("report", "empty")
    assert "--resume goes on with empty as it is" in refused("train", "pose/synthetic", "--resume", "empty")
    assert "nowhere: no such run folder" in refused("train", "--resume", "nowhere")
    assert "name a config: 'contml train pose/synthetic'" in refused("train")
    assert "there is no list of 'loses'" in refused("list", "loses")
    assert "no config 'pose/synthetics'" in refused("train", "pose/synthetics")


def test_a_run_without_embeddings_or_with_foreign_weights(contml, refused, tmp_path):
    status, _, err = contml("train", "pose/synthetic", *TINY)
    assert status == 0, err
    folder = next((tmp_path / "runs/pose/synthetic").iterdir())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["dim"] = 9
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert "last.safetensors: does not fit the model" in refused("evaluate", folder)
    (folder / "checkpoints/last.safetensors").unlink()
    assert "last.safetensors: no such checkpoint" in refused("evaluate", folder)
    (folder / "embeddings/test.safetensors").unlink()
    assert "has no embeddings yet; run 'contml evaluate" in refused("report", folder)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "contml.cli", "train", "pose/synthetic", *TINY, "training.epochs=5000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
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
    assert last.endswith(f"go on with: contml train --resume {folder.relative_to(tmp_path)}")
    assert "Traceback" not in errors


def test_a_run_can_be_moved_and_its_data_too(contml, tmp_path):
    pose_files(tmp_path / "own")
    status, _, err = contml("train", "pose/synthetic", *OWN)
    assert status == 0, err
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    (tmp_path / "own").rename(tmp_path / "data")
    folder = next((tmp_path / "elsewhere/pose/synthetic").iterdir())
    assert "no such folder" in contml("evaluate", folder)[2]
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("root: own", "root: data"))
    assert contml("evaluate", folder)[0] == 0
    status, _, err = contml("train", "--resume", folder)
    assert status == 0, err
    assert "<title>pose/synthetic" in (folder / "report.html").read_text()


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
    for command in ([], ["train"], ["evaluate"], ["report"], ["check"], ["list"], ["copy"]):
        status, out, _ = contml(*command, "--help")
        assert status == 0
        assert "Usage" in out
