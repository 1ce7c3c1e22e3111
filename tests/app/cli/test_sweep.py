"""`contml sweep` as a user types it; its trainings take no time."""

import json
import re
import shlex

import pytest
from support import sweeps
from support.paths import ROOT
from support.sweeps import Trainings

from contml.app.cli.commands import app
from contml.app.experiment import load

MARGINS = ["sweep", "own.yaml", "--try", "loss.margin=0.05,0.1,0.2"]


@pytest.fixture
def trainings(monkeypatch, tmp_path):
    """Trainings that take no time, in the folder of the command, with own.yaml."""
    fake = Trainings()
    sweeps.config(tmp_path)
    monkeypatch.setattr("contml.app.trials.sweep.train", fake.train)
    return fake


def test_table_choice_command_and_plot(accepted, trainings, tmp_path):
    out, err = accepted(*MARGINS, "model.dim=5", "--try", "optimizer.lr=1e-4..1e-2", "--trials", 4, "--seeds", 2)
    header, *rows = [line.split() for line in out.splitlines()[:5]]
    assert header == ["trial", "loss.margin", "optimizer.lr", "epoch", "mean", "±", "std"]
    means = [float(row[4]) for row in rows]
    assert (means, len(means)) == (sorted(means), 4)
    assert "chosen: trial" in out
    assert "95 %" in out
    assert len(re.findall(r"^trial \d .* label_distance@10", err, re.MULTILINE)) == 8
    words = shlex.split(re.search(r"^train it with: (.*)$", out, re.MULTILINE)[1])
    values = load(words[2], words[3:]).values
    assert (values["model"]["dim"], values["loss"]["margin"]) == (5, float(rows[0][1]))
    assert f"{values['optimizer']['lr']:g}" == rows[0][2]
    assert "runs: contml compare runs/own/sweep" in out


def test_json(accepted, trainings):
    out, _ = accepted(*MARGINS, "--json", "--name", "margins")
    found = json.loads(out)
    assert found["chosen"] == {"loss.margin": 0.1}
    assert [trial["params"]["loss.margin"] for trial in found["trials"]] == [0.1, 0.05, 0.2]
    assert (found["metric"], found["better"]) == ("label_distance@10", "lower")
    assert found["second"]["interval"] is None
    assert found["command"] == "contml train own.yaml loss.margin=0.1"


def test_ctrl_c_says_how_to_go_on(contml, trainings):
    trainings.stop_at = 1
    status, out, err = contml(*MARGINS)
    assert (status, out) == (130, "")
    assert err.splitlines()[-1].startswith("contml: stopped")
    assert "same command" in err.splitlines()[-1]
    trainings.stop_at = 9
    assert (contml(*MARGINS)[0], len(trainings.done)) == (0, 4)


def test_every_option_is_on_the_page(accepted):
    page = (ROOT / "docs/sweep.md").read_text(encoding="utf-8")
    (command,) = [command for command in app.registered_commands if command.callback.__name__ == "sweep"]
    out, _ = accepted("sweep", "--help")
    assert command.epilog
    for option in set(re.findall(r"--[a-z]+", out)) - {"--help"}:
        assert f"`{option}" in page, option


def test_python_of_the_page_runs(trainings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sweep.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block.replace('["training', '["task.train=150", "training'), "sweep.md", "exec"), {})
    assert len(trainings.done) == 4
