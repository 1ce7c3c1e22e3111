"""The wrong steps of a newcomer's first hour: each is answered by one line that names what the user typed or wrote.

`tests/wrong_steps.txt` holds the list: what was done wrong, the command, the line. If a line changes, the failure names
a file with the new list: read its difference, and copy it there.
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

import pytest
import torch
from support.runs import without_reports
from support.tables import dials, write_table

from contml.app.cli import main
from contml.config import options
from contml.models import EmbeddingModel
from contml.training import Training

#: A new option of a training changes no line of the list.
OPTIONS = ", ".join(option.name for option in options(Training))

GOLDEN = Path(__file__).parents[2] / "wrong_steps.txt"
ITEMS = "--data items.csv --label reading"
SMALL = (
    "images.resize=32 images.crop=32 images.workers=0 transform.scale_jitter=2 transform.shift=1 model.dim=8"
    " sampler.batches=2 training.epochs=1"
)
FIRST, SECOND, STOPPED = (f"runs/table/default/{name}" for name in ("first", "second", "stopped"))
LAST = f"{FIRST}/checkpoints/last.safetensors"

#: What was done wrong, the command after `contml`, and what its line must name: a file, a line of it, or a word typed.
STEPS = [
    # The command
    ("a command with a typo", "trian --data items.csv", "trian"),
    ("an option with a typo", "train --data items.csv --lable reading", "--lable"),
    ("an option of another program", "train --data items.csv --epochs 3", "--epochs"),
    ("an option without its value", "train --data", "--data"),
    ("nothing to train on", "train", "CONFIG"),
    ("the table in place of a config", "train items.csv", "--data items.csv"),
    ("a folder in place of a config", "train img", "--data img"),
    ("a run in place of a config", f"train {FIRST}", f"--resume {FIRST}"),
    ("a label without data", "train pose/synthetic --label reading", "--label"),
    ("a config with a typo", "train pose/synthtic", "pose/synthtic"),
    ("a task that has several configs", "train table/file", "table/file"),
    ("a task with a typo", "train pose/synthetic task=table/fil", "table/fil"),
    ("a kind of list with a typo", "list lossess", "lossess"),
    # The path of the data
    ("a table with a typo", "train --data itmes.csv", "itmes.csv"),
    ("a folder with a typo", "train --data imgs", "imgs"),
    ("a spreadsheet", "train --data items.xlsx", "items.xlsx"),
    ("a config as data", "train --data typo.yaml", "typo.yaml"),
    ("JSON in place of JSON lines", "train --data items.json", "items.json"),
    ("JSON in a file named .jsonl", "train --data list.jsonl", "list.jsonl:1"),
    ("an archive that is not unpacked", "train --data items.zip", "items.zip"),
    ("Parquet that is none", "train --data items.parquet", "items.parquet"),
    ("gzip that is none", "train --data items.csv.gz", "items.csv.gz"),
    ("a folder without images", "train --data empty", "empty"),
    ("a folder of images without classes", "train --data img", "img/000.png"),
    ("a folder of images beside their table", "train --data photos", "photos/items.csv"),
    # The table
    ("an empty table", "train --data empty.csv", "empty.csv"),
    ("a table with only a header", "train --data header.csv", "header.csv"),
    ("a table without a header", "train --data headless.csv", "headless.csv:1"),
    ("a picture named .csv", "train --data picture.csv", "picture.csv"),
    ("a table in Latin-1", "train --data latin.csv", "latin.csv:3"),
    ("decimal commas between commas", "train --data uneven.csv", "uneven.csv:4"),
    ("a quote that is not closed", "train --data quote.csv", "quote.csv:3"),
    ("two columns of one name", "train --data twice.csv", "twice.csv"),
    ("no column of images", "train --data images.csv", "images.csv"),
    ("one column only", "train --data single.csv", "single.csv"),
    ("two images in all", "train --data two.csv --label reading", "two.csv"),
    # The labels
    ("several columns could be the label", "train --data items.csv", "items.csv"),
    ("a label with a typo", "train --data items.csv --label redding", "redding"),
    ("a kind with a typo", "train --data items.csv --label reading=numbr", "numbr"),
    ("a weight of 0", "train --data items.csv --label reading=number:0", "labels.reading.weight"),
    ("a label that is given again", "train --data items.csv --label reading --label reading=class", "reading"),
    ("words as numbers", "train --data items.csv --label colour=number", "items.csv:2"),
    ("a unit after the number", "train --data messy.csv --label distance=number", "messy.csv:2"),
    ("a unit, and the kind is guessed", "train --data messy.csv --label distance", "distance"),
    ("a currency and thousands", "train --data messy.csv --label price=number:log", "messy.csv:2"),
    ("decimal commas", "train --data messy.csv --label comma=number", "messy.csv:2"),
    ("decimal commas, and the kind is guessed", "train --data messy.csv --label comma", "comma"),
    ("a number that is infinite", "train --data messy.csv --label infinite=number", "messy.csv:4"),
    ("a word between numbers", "train --data messy.csv --label mixed=number", "messy.csv:5"),
    ("the logarithm of 0", "train --data messy.csv --label zero=number:log", "messy.csv:3"),
    ("dates, day first", "train --data messy.csv --label day=date", "messy.csv:2"),
    ("dates, day first, and the kind is guessed", "train --data messy.csv --label day", "day"),
    ("dates as numbers", "train --data messy.csv --label taken=number", "messy.csv:2"),
    ("a label that all rows lack", "train --data messy.csv --label absent=number", "messy.csv:2"),
    ("a label that some rows lack", "train --data messy.csv --label partly=number", "messy.csv:3"),
    ("a label that is always the same", "train --data messy.csv --label constant=number", "constant"),
    ("one class", "train --data messy.csv --label constant=class", "constant"),
    ("a text of its own in each row", "train --data messy.csv --label name", "name"),
    ("a class of its own in each row", "train --data messy.csv --label name=class", "labels.name"),
    ("a scale with a typo", "train --data items.csv --label reading=number:lgo", "'log'"),
    ("an option of a label with a typo", f"check {ITEMS}=number task.labels.reading.scael=range", "'scale'"),
    ("an option of another kind", f"check {ITEMS}=number task.labels.reading.classes=3", "map"),
    ("an option of a label beside the labels", f"check {ITEMS} task.scale=range", "labels: {NAME: "),
    ("an option of a label whose kind is guessed", f"check {ITEMS} task.labels.reading.scale=range", "number, date"),
    ("a typo in a label of a config", "check labels.yaml", "labels.yaml:4"),
    ("levels in words", "train --data items.csv --label size=ordinal", "size"),
    ("longitude first", "train --data items.csv --label lon,lat=geo", "lon,lat"),
    # Images
    ("a column of images with a typo", "train --data items.csv --label reading --image imge", "imge"),
    ("a column that holds no images", "train --data items.csv --label reading --image colour", "items.csv:2"),
    ("images that are elsewhere", "train --data gone.csv --label reading", "gone.csv:2"),
    ("upper case in place of lower case", "train --data case.csv --label reading", "case.csv:2"),
    ("one image is missing", "train --data lacking.csv --label reading", "lacking.csv:5"),
    ("addresses of images", "train --data urls.csv --label reading", "urls.csv:2"),
    ("an empty image", f"check --data broken.csv --label reading --images all {SMALL}", "broken/"),
    ("a wrong root", f"train {ITEMS} task.root=imgs", "imgs"),
    # The split and groups
    ("a split in other words", "train --data split_yes.csv --label reading", "split_yes.csv:2"),
    ("a split of training rows alone", "train --data split_train.csv --label reading", "split_train.csv"),
    ("a split column with a typo", f"train {ITEMS} task.split=splitt", "splitt"),
    ("one group", "train --data messy.csv --label number task.group=constant", "task.group"),
    ("a group column with a typo", f"train {ITEMS} task.group=makerr", "makerr"),
    ("more queries than test rows", f"train {ITEMS} task.queries=1000 {SMALL}", "1000"),
    # Patterns
    ("a pattern that fits no image", "train --data img --pattern '{age}_{sex}_*.jpg'", "{age}_{sex}_*.jpg"),
    ("a pattern without a brace", "train --data img --pattern '{age.png'", "{age.png"),
    ("a pattern for a table", "train --data items.csv --pattern '{age}.png'", "pattern"),
    ("a pattern that few names fit", "train --data img --pattern '{tens}1.png' --label tens=number", "img/000.png"),
    ("a number that is no label", "train --data img --pattern '{number}.png'", "img"),
    # The config
    ("epochs=3", f"train {ITEMS} epochs=3", "training.epochs"),
    ("a section with a typo", f"train {ITEMS} trainig.epochs=3", "trainig"),
    ("an option of the config with a typo", f"train {ITEMS} training.epoch=3", "training.epoch"),
    ("no value", f"train {ITEMS} training.epochs", "training.epochs"),
    ("a word as a number", f"train {ITEMS} training.epochs=many", "many"),
    ("a negative number of epochs", f"train {ITEMS} training.epochs=-1", "training.epochs"),
    ("missing=drop", f"train {ITEMS} missing=drop", "task.missing"),
    ("a batch of one", f"train {ITEMS} sampler.batch_size=1", "sampler.batch_size"),
    ("a batch larger than the data", f"train {ITEMS} sampler.batch_size=1000", "1000"),
    ("a loss with a typo", f"train {ITEMS} loss=log_ratoi", "log_ratoi"),
    ("an option of another loss", f"train {ITEMS} loss.margin=0.1", "loss.margin"),
    ("a loss of classes for numbers", f"train {ITEMS} loss=proxy_anchor", "proxy_anchor"),
    ("a graphics card by name", f"train {ITEMS} training.device=cuda", "training.device"),
    ("a precision with a typo", f"train {ITEMS} training.precision=half", "half"),
    ("a typo in a config", "train typo.yaml", "typo.yaml:4"),
    ("a config that is no YAML", "train syntax.yaml", "syntax.yaml:2"),
    ("a config with a tab", "train tab.yaml", "tab.yaml:2"),
    ("a config that is not there", "train nowhere.yaml", "nowhere.yaml"),
    ("a config to write over", "copy table/default typo.yaml", "typo.yaml"),
    # Networks
    ("a backbone with a typo", f"train {ITEMS} model.backbone=resnet19", "resnet19"),
    ("weights that are not there", f"train {ITEMS} model.weights=nothing.pth", "nothing.pth"),
    ("weights that were cut short", f"train {ITEMS} model.weights=cut.safetensors", "cut.safetensors"),
    ("weights of another model", f"train {ITEMS} model.dim=9 model.weights={LAST}", FIRST),
    ("weights of a name for a small network", f"train {ITEMS} model.weights=DEFAULT", "DEFAULT"),
    ("a preset with a typo", f"train {ITEMS} --preset photo", "photo"),
    ("--preset finetune without a network", f"train {ITEMS} --preset finetune", "mobilenet_v2"),
    ("weights that do not exist", f"train {ITEMS} --weights none.pth", "none.pth"),
    ("weights that are no weights", f"train {ITEMS} --weights items.csv", "items.csv"),
    ("weights that are cut short", f"train {ITEMS} --weights short.pth", "short.pth"),
    ("weights that changed since their download", f"train {ITEMS} --weights net-00000000.pth", "net-00000000.pth"),
    ("weights of no known network", f"train {ITEMS} --weights other.pth", "model.backbone"),
    ("weights of another network", f"train {ITEMS} --weights net.pth model.backbone=resnet18", "resnet18"),
    ("weights of a run", f"train {ITEMS} --weights {LAST}", "backbone=RUN"),
    ("weights with a preset that takes none", f"train {ITEMS} --weights net.pth --preset quick", "--preset features"),
    ("weights without data", "train table/default --weights net.pth", "model.weights=FILE"),
    # Runs
    ("--resume of nothing", "train --resume runs/x", "runs/x"),
    ("--resume of a folder that is no run", "train --resume img", "img"),
    ("--resume with data", f"train --resume {FIRST} {ITEMS}", "--resume"),
    ("a name with a slash", f"train {ITEMS} --name a/b", "a/b"),
    ("a name that exists", f"train {ITEMS} --name first", FIRST),
    ("runs in a file", f"train {ITEMS} --runs items.csv --name x {SMALL}", "items.csv"),
    ("a report of a run that was stopped", f"report {STOPPED}", STOPPED),
    ("an evaluation of a run that was stopped", f"evaluate {STOPPED}", STOPPED),
    ("a folder that is no run", "evaluate img", "img"),
    ("weights that nobody keeps", f"evaluate {FIRST} --checkpoint first", "first"),
    ("a pair of items that are not there", f"report {FIRST} --pair a b", "--pair"),
    ("no runs to compare", "compare empty", "empty"),
    # Models in use
    ("an index without images", f"index {FIRST} --out new.index", "IMAGES"),
    ("an index of images that are not there", f"index {FIRST} imgs --out new.index", "imgs"),
    ("an index of another run", f"index {SECOND} img --out own.index", "own.index"),
    ("a search with an image that is not there", "search own.index img/999.png", "img/999.png"),
    ("a search with a table", "search own.index items.csv", "items.csv"),
    ("a search in a run", f"search {FIRST} img/000.png", FIRST),
    ("K of 0", "search own.index img/000.png -k 0", "-k"),
    ("embeddings in a file of another form", f"embed {FIRST} img --out vectors.csv", "vectors.csv"),
    ("an export into a folder with files", f"export {FIRST} img", "img"),
    ("a port that is in use", f"explore {FIRST} --port PORT", "PORT"),
    ("nothing to explore", "explore img", "img"),
    # The machine
    ("no permission to write", f"train {ITEMS} {SMALL} --name x", "runs/table/default/x"),
    ("a full disk", f"check {ITEMS} {SMALL} --save-config new.yaml", "new.yaml"),
]  # fmt: skip


def with_columns(rows):
    """Rows with a column for each way in which cells are messy."""
    for number, row in enumerate(rows):
        row |= {
            "number": number + 0.5,
            "distance": f"{number + 1} km",
            "price": f"${1 + number % 3},{200 + number}",
            "comma": f"{number},5",
            "infinite": "inf" if number == 2 else number,
            "mixed": "red" if number == 3 else number,
            "zero": max(number - 1, 0) if number else 7,
            "day": f"{1 + number % 28}.1.2024",
            "taken": f"2024-01-{1 + number % 28:02}",
            "absent": "",
            "partly": "n/a" if number % 2 else number,
            "constant": 5,
            "name": f"item {chr(97 + number % 26)}{number}",
        }
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
        write_table(
            Path(f"{name}.csv"), [{key: row[key] for key in short} | change(n, row) for n, row in enumerate(rows)]
        )
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
    for name, text in {
        "empty.csv": "",
        "header.csv": "image,reading\n",
        "quote.csv": 'image,reading\nimg/000.png,1\nimg/001.png,"2\nimg/002.png,3\n',
        "items.json": json.dumps(rows),
        "list.jsonl": json.dumps(rows, indent=1),
        "items.parquet": "image,reading\n",
        "items.csv.gz": "image,reading\n",
        "typo.yaml": "task: {name: table/file, data: items.csv}\nimages: {resize: 32, crop: 32}\n"
        "sampler: {name: uniform, batch_size: 9}\noptimzer: adam\nloss: log_ratio\n",
        "labels.yaml": "task:\n  name: table/file\n  data: items.csv\n  labels: {reading: {kind: map, sied: 9}}\n",
        "syntax.yaml": "task: {name: table/file\nloss: log_ratio\n",
        "tab.yaml": "task:\n\tname: table/file\n",
    }.items():
        Path(name).write_text(text)
    Path("latin.csv").write_text("image,age\nimg/000.png,1\nbär.png,2\n", encoding="latin-1")
    Path("picture.csv").write_bytes(Path("img/000.png").read_bytes())
    Path("items.xlsx").write_bytes(b"PK\x03\x04")
    Path("photos").mkdir()
    for name in ("img/000.png", "img/001.png", "items.csv"):
        shutil.copy(name, "photos")
    Path("items.zip").write_bytes(gzip.compress(b""))


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
        Path("broken").mkdir()
        for number in range(40):
            Path(f"broken/{number}.jpg").write_bytes(b"" if number == 7 else Path("img/000.png").read_bytes())
        for name, seed in (("first", 0), ("second", 1)):
            assert run(f"train {ITEMS} {SMALL} seed={seed} --name {name}") == 0
        assert run(f"index {FIRST} img --out own.index") == 0
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
        path.write_text("\n".join(entry(*step[:2], lines[step[0]]) for step in STEPS), encoding="utf-8")


def entry(what, command, line):
    """A step in the list, without the options that only make it quick."""
    return f"{what}\n  $ contml {command.replace(' ' + SMALL, '')}\n  {line}\n"


def fail(error):
    def raises(*args, **options):
        raise error

    return raises


def contents(folder):
    return {path: path.stat().st_size for path in folder.rglob("*")}


def test_the_list_is_long_enough():
    assert len(STEPS) >= 60
    assert len({what for what, *_ in STEPS}) == len({command for _, command, _ in STEPS}) == len(STEPS)


@pytest.mark.parametrize(("what", "command", "named"), STEPS, ids=[what for what, *_ in STEPS])
def test_a_wrong_step_is_answered_by_one_line(desk, found, monkeypatch, capsys, tmp_path_factory, what, command, named):
    if command.endswith(".parquet"):
        pytest.importorskip("pyarrow")
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
    assert run(command.replace("PORT", str(port))) == 2
    out, err = capsys.readouterr()
    *columns, line = err.strip().splitlines()
    assert out == ""
    assert line.startswith("contml: ")
    assert not any(re.search("Traceback|Error|Warning", text) for text in columns)
    line = line.replace(str(folder), "FOLDER").replace(str(port), "PORT").replace(OPTIONS, "ITS OPTIONS")
    found[what] = line
    assert contents(folder) == before, "something was written or lost"
    assert named in line
    new = tmp_path_factory.getbasetemp() / "wrong_steps.txt"
    assert entry(what, command, line) in GOLDEN.read_text(encoding="utf-8"), (
        f"run all of this file, and cp {new} {GOLDEN}"
    )


def test_the_list_holds_these_steps_alone():
    assert GOLDEN.read_text(encoding="utf-8").count("  $ contml ") == len(STEPS)
