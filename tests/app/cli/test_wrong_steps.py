"""The wrong steps of a newcomer's first hour: each is answered by one line that names what the user typed or wrote.

`tests/wrong_steps.txt` is the list: what was done wrong, the command, the line. A step is added there. If a line
changes, the failure names a file with the new list: read its difference, and copy it there.
"""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from support.runs import without_reports
from support.tables import dials, write_judgments, write_table

from contml.app.cli import main
from contml.config import options
from contml.models import EmbeddingModel
from contml.training import Training

#: A new option of a training changes no line of the list.
OPTIONS = ", ".join(option.name for option in options(Training))

GOLDEN = Path(__file__).parents[2] / "wrong_steps.txt"
ITEMS = "--data items.csv --label reading"
SMALL = "images.resize=32 images.crop=32 images.workers=0 transform.scale_jitter=2 transform.shift=1 model.dim=8"
SMALL += " sampler.batches=2 training.epochs=1"
FIRST, STOPPED = "runs/table/default/first", "runs/table/default/stopped"

#: What was done wrong, the command after `contml`, and the line that answers it.
STEPS = [
    (what, command.removeprefix("  $ contml "), line.strip())
    for what, command, line in (each.splitlines() for each in GOLDEN.read_text(encoding="utf-8").strip().split("\n\n"))
]
#: Steps that compare weights with all networks of torchvision.
SLOW = ("weights of no known network", "weights of another network")
#: Steps that would take long without `SMALL`, which is not in the list.
LONG = ("an empty image", "more queries than test rows", "runs in a file", "no permission to write", "a full disk")


def with_columns(rows):
    """Rows with a column for each way in which cells are messy."""
    for number, row in enumerate(rows):
        row |= {
            "number": number + 0.5, "distance": f"{number + 1} km", "price": f"${1 + number % 3},{200 + number}",
            "comma": f"{number},5", "infinite": "inf" if number == 2 else number,
            "mixed": "red" if number == 3 else number, "zero": max(number - 1, 0) if number else 7,
            "day": f"{1 + number % 28}.1.2024", "taken": f"2024-01-{1 + number % 28:02}", "absent": "",
            "partly": "n/a" if number % 2 else number, "constant": 5,
            "name": f"item {chr(97 + number % 26)}{number}",
        }  # fmt: skip
    return rows


def write_tables(rows):
    """Tables in the working folder, each wrong in its own way."""
    short = ["image", "reading"]
    write_table(Path("messy.csv"), with_columns([dict(row) for row in rows]))
    for name, change in {
        "gone": lambda n, row: {"image": f"photos/{n}.jpg"},
        "case": lambda n, row: {"image": row["image"].upper().replace("IMG", "img")},
        "lacking": lambda n, row: {"image": "img/missing.png"} if n == 3 else {},
        "urls": lambda n, row: {"image": f"https://example.org/{n}.jpg"},
        "broken": lambda n, row: {"image": f"broken/{n}.jpg"},
        "split_yes": lambda n, row: {"split": "yes" if n % 2 else "no"},
        "split_train": lambda n, row: {"split": "train"},
    }.items():
        changed = [{key: row[key] for key in short} | change(n, row) for n, row in enumerate(rows)]
        write_table(Path(f"{name}.csv"), changed)
    write_table(Path("two.csv"), rows[:2], short)
    write_table(Path("single.csv"), rows, ["image"])
    lines = [[row["image"], row["reading"]] for row in rows]
    for name, content in {
        "headless": lines,
        "twice": [["image", "age", "age"], *([image, 1, 2] for image, _ in lines)],
        "images": [["id", "age"], *([n, n % 7] for n in range(30))],
        "uneven": [short, *lines[:2], [*lines[2][:1], "3", "5"], *lines[3:]],
    }.items():
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(content)
    shutil.copytree(Path(__file__).with_name("desk"), ".", dirs_exist_ok=True)
    Path("items.json").write_text(json.dumps(rows))
    Path("list.jsonl").write_text(json.dumps(rows, indent=1))
    Path("picture.csv").write_bytes(Path("img/000.png").read_bytes())
    Path("photos").mkdir()
    for name in ("img/000.png", "img/001.png", "items.csv"):
        shutil.copy(name, "photos")
    Path("items.zip").write_bytes(gzip.compress(b""))
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    np.savez("v.npz", ids=[f"item {n}" for n in range(40)], x=vectors)
    np.savez("twice.npz", ids=["a", "a"], x=vectors[:2])
    np.save("short.npy", vectors[:, :3])
    np.save("zero.npy", np.pad(vectors[1:], ((1, 0), (0, 0))))


def run(command):
    """The exit status of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["contml", *shlex.split(command)])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code or 0


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder as a newcomer has it after an hour, and the port of another program: runs, an index, messy tables."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch, socket.socket() as taken, without_reports():
        patch.chdir(folder)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        rows = dials(folder, 40)
        write_table(folder / "items.csv", rows)
        write_tables(rows)
        Path("empty").mkdir()
        Path("judged").mkdir()
        write_judgments(Path("judged"))
        Path("broken").mkdir()
        for number in range(40):
            Path(f"broken/{number}.jpg").write_bytes(b"" if number == 7 else Path("img/000.png").read_bytes())
        assert run(f"train {ITEMS} {SMALL} --name first") == 0
        assert run(f"train {ITEMS} {SMALL} training.epochs=0 seed=1 --name second") == 0
        assert run(f"index {FIRST} img --out own.index --metadata items.csv") == 0
        assert run("index --vectors v.npz --out vectors.index") == 0
        for copy in ("late", "later"):
            Path(shutil.copytree(FIRST, copy), "metrics.jsonl").write_text("")
        shutil.copytree(FIRST, STOPPED)
        Path(STOPPED, "evaluation.json").unlink()
        shutil.rmtree(Path(STOPPED, "checkpoints"))
        Path("cut.safetensors").write_bytes(Path(FIRST, "checkpoints/last.safetensors").read_bytes()[:2000])
        torch.save(EmbeddingModel("mobilenet_v2", dim=None).state_dict(), "net.pth")
        shutil.copy("net.pth", "net-00000000.pth")
        Path("short.pth").write_bytes(Path("net.pth").read_bytes()[:9000])
        torch.save({"layer.weight": torch.zeros(3)}, "other.pth")
        patch.setattr("torch.hub.get_dir", lambda: "CACHE")
        yield folder, taken.getsockname()[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The lines that were printed, by step; written to a file at the end."""
    lines: dict[str, str] = {}
    yield lines
    if len(lines) == len(STEPS):
        path = tmp_path_factory.getbasetemp() / "wrong_steps.txt"
        entries = [f"{what}\n  $ contml {command}\n  {lines[what]}\n" for what, command, _ in STEPS]
        path.write_text("\n".join(entries), encoding="utf-8")


def fail(error):
    def raises(*args, **options):
        raise error

    return raises


def contents(folder):
    return {path: path.stat().st_size for path in folder.rglob("*")}


MARKED = [pytest.param(*step, id=step[0], marks=[pytest.mark.slow] if step[0] in SLOW else []) for step in STEPS]


@pytest.mark.parametrize(("what", "command", "expected"), MARKED)
def test_a_wrong_step_is_answered_by_one_line(
    desk, found, monkeypatch, capsys, tmp_path_factory, what, command, expected
):
    folder, port = desk
    monkeypatch.chdir(folder)
    before = contents(folder)
    if what == "a full disk":
        monkeypatch.setattr(os, "fsync", fail(OSError(errno.ENOSPC, "No space left on device")))
    if what == "no permission to write":
        monkeypatch.setattr(Path, "mkdir", fail(PermissionError(errno.EACCES, "Permission denied")))
    if what == "--preset finetune without a network":
        monkeypatch.setattr("torchvision.models.get_model", fail(URLError("no route to host")))
    capsys.readouterr()
    assert run(command.replace("PORT", str(port)) + (f" {SMALL}" if what in LONG else "")) == 2
    out, err = capsys.readouterr()
    *columns, line = err.strip().splitlines()
    assert out == ""
    assert line.startswith("contml: ")
    assert not any(re.search("Traceback|Error|Warning", text) for text in columns)
    line = line.replace(str(folder), "FOLDER").replace(str(port), "PORT").replace(OPTIONS, "ITS OPTIONS")
    found[what] = line
    assert contents(folder) == before, "something was written or lost"
    new = tmp_path_factory.getbasetemp() / "wrong_steps.txt"
    assert line == expected, f"run all of this file, and cp {new} {GOLDEN}"
