"""The README runs: its Python, its shell commands on small data; of commands on official data, the config is loaded."""

from __future__ import annotations

import re
import shlex

import pytest
from support.paths import ROOT
from support.photographs import houses
from support.pose_sets import pose_files

from contml.experiment import config_names, load

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)

CLASSES = ["task.classes=12", "task.per_class=8", "task.test_classes=4", "task.test_per_class=4"]
POSES = ["task.train=160", "task.test=20", "task.queries=10", "task.val=20"]
#: Options that make a command short, by what it starts with.
SHORT = {
    "train --data": ["training.epochs=0", "sampler.batch_size=16", "sampler.anchors_per_batch=2"],
    "train pose/": ["training.epochs=0", *POSES],
    "sweep pose/": ["training.epochs=1", "sampler.batches=1", "--trials=2", "--processes=1", *POSES],
    "train classes/synthetic": ["training.epochs=0", *CLASSES],
    "features classes/synthetic": CLASSES,
    "train mine.yaml": ["training.epochs=0", "sampler.batch_size=8", "sampler.anchors_per_batch=1"],
    "check mine.yaml": ["sampler.batch_size=8", "sampler.anchors_per_batch=1"],
}
OFFICIAL = "data/CUB_200_2011"


def commands():
    """(block, command) of each `contml` command of the shell blocks; of the loop over $dim, two turns."""
    for number, block in enumerate(SHELL):
        for line in block.splitlines():
            for command in re.split(r" && |; do", line.split("  #")[0]):
                if re.match(r"\s*(\S*/)?contml ", command):
                    for dim in ("16", "32") if "$dim" in command else ("",):
                        yield number, command.split("contml ")[1].strip().replace("$dim", dim)


def test_python_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) >= 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("block", sorted({number for number, _ in commands()}))
def test_shell_commands_run_on_small_data(contml, tmp_path, block):
    houses(tmp_path)
    pose_files(tmp_path / "DATA")
    for command in (command for number, command in commands() if number == block):
        name, *arguments = shlex.split(command)
        if OFFICIAL in command:
            if name == "train":
                assert load(arguments[0], arguments[1:]).config.parts["task"].options["root"] == OFFICIAL
            continue
        files = [sorted(tmp_path.glob(word)) if "*" in word else [word] for word in arguments]
        options = [option for start, found in SHORT.items() if command.startswith(start) for option in found]
        status, _, err = contml(name, *(word for words in files for word in words), *options)
        assert status == 0, err


def test_every_config_named_exists():
    for name in re.findall(r"contml (?:train|check|copy) (\w+/\w+)", TEXT):
        assert name in config_names()


def test_the_two_commands_are_between_their_markers():
    for marker, last in (
        ("train", "contml train pose/synthetic"),
        ("test", "python -m pytest -q -n 2 --dist worksteal"),
    ):
        (block,) = re.findall(rf"<!-- {marker} command -->\n```sh\n(.*?)\n```\n<!-- end -->", TEXT)
        assert block.startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert block.endswith(last)
