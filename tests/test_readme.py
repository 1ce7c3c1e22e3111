"""The README runs: its Python as it stands, its shell commands on small data, those for official data as far as the config."""

from __future__ import annotations

import re
import shlex

import pytest
from support.paths import ROOT
from support.pose_sets import pose_files
from support.tables import dials, write_table

from contml.experiment import config_names, load

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)

#: What makes a training of a config short, without changing what the command says.
SHORT = {
    "--data": ["training.epochs=0", "sampler.batch_size=16", "sampler.anchors_per_batch=2"],
    "pose/": ["task.train=160", "task.test=20", "task.queries=10", "training.epochs=0"],
    "classes/synthetic": ["task.classes=12", "task.per_class=8", "task.test_classes=4", "task.test_per_class=4"],
    "mine.yaml": ["sampler.batch_size=8", "sampler.anchors_per_batch=1", "sampler.neighbours=2", "training.epochs=0"],
}
OFFICIAL = "data/CUB_200_2011"


def commands():
    """(block, command) of each `contml` command of the shell blocks, loops of the shell taken once."""
    for number, block in enumerate(SHELL):
        for line in block.replace("$dim", "16").splitlines():
            for command in re.split(r" && |; do", line.split("  #")[0]):
                words = shlex.split(command)
                if words and words[0].endswith("contml"):
                    yield number, words[1:]


def short(arguments):
    """The arguments, with options behind them that make the command short."""
    what = arguments[1] if len(arguments) > 1 else ""
    if arguments[0] == "train" or (arguments[0] == "check" and what == "mine.yaml"):
        found = [options for start, options in SHORT.items() if what.startswith(start)]
        epochs = ["training.epochs=0"] if what == "classes/synthetic" else []
        return [*arguments, *(found[0] if found else []), *epochs]
    return (
        [*arguments, *SHORT["classes/synthetic"]] if arguments[:2] == ["features", "classes/synthetic"] else arguments
    )


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
    rows = dials(tmp_path)
    write_table(tmp_path / "items.csv", [{"image": row["image"], "age": row["reading"]} for row in rows])
    pose_files(tmp_path / "DATA")
    official = [arguments for number, arguments in commands() if number == block and OFFICIAL in " ".join(arguments)]
    for arguments in official:
        if arguments[0] == "train":
            assert load(arguments[1], arguments[2:]).config.parts["task"].options["root"] == OFFICIAL
    for number, arguments in commands():
        if number == block and arguments not in official:
            status, _, err = contml(*short(arguments))
            assert status == 0, err


def test_every_config_named_exists():
    for name in re.findall(r"contml (?:train|check|copy) (\w+/\w+)", TEXT):
        assert name in config_names()


def test_the_two_commands_are_between_their_markers():
    for marker, last in (("train", "contml train pose/synthetic"), ("test", "python -m pytest -q")):
        (block,) = re.findall(rf"<!-- {marker} command -->\n```sh\n(.*?)\n```\n<!-- end -->", TEXT)
        assert block.startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert block.endswith(last)
