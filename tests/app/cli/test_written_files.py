"""No command overwrites a file, except those of its own run, index or sweep; it refuses before it does any work."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from support.miniature import TINY, assert_equal
from support.paths import ROOT
from support.runs import without_reports

from contml._support.files import _clean_once, _machine
from contml.app.cli.commands import app

SMALL = " ".join(change for change in TINY if change != "model.dim=8")
#: The commands that write a file or a folder, and what they would overwrite. Nothing else that they name exists.
LINES = (ROOT / "tests/overwriting.txt").read_text(encoding="utf-8").replace("SMALL", SMALL).splitlines()
OVERWRITING = {name: (command, taken) for name, command, taken in (line.split(" || ") for line in LINES)}
#: The commands that write only in the folder of a run, an index, a sweep or a cache, which the same command continues.
OWN_FOLDERS = {"audit", "evaluate", "report"}
NO_FILES = {"caption", "compare", "list"}


@pytest.mark.parametrize("form", ["file", "link"])
@pytest.mark.parametrize("name", OVERWRITING)
def test_what_is_there_is_not_overwritten(refused, tmp_path, name, form):
    command, taken = OVERWRITING[name]
    file = tmp_path / taken
    file.parent.mkdir(parents=True, exist_ok=True)
    if form == "file":
        file.write_text("mine")
    else:
        file.symlink_to(tmp_path / "nowhere")  # a link to nothing: its name is taken too
    line = refused(*command.split())
    assert f"{taken}: exists already" in line or f"{Path(taken).parent} exists already" in line.replace(":", "")
    assert "choose another" in line
    assert file.is_symlink() if form == "link" else file.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_every_command_is_in_one_of_the_tables():
    names = {command.name or command.callback.__name__.rstrip("_") for command in app.registered_commands}
    assert names == {command.split()[0] for command, _ in OVERWRITING.values()} | OWN_FOLDERS | NO_FILES


#: Commands that write files from nothing but their arguments, and the same ones with another content.
AGAIN = {
    "check": (f"check pose/synthetic {SMALL} --save-config new.yaml", "new.yaml", "seed=1"),
    "copy": ("copy pose/synthetic new.yaml", "new.yaml", None),
}


@pytest.mark.parametrize("name", AGAIN)
def test_the_same_command_again_is_complete(contml, refused, tmp_path, name):
    command, file, change = AGAIN[name]
    assert contml(*command.split())[0] == 0
    (tmp_path / f".contml-{_machine()}ffffff{'0' * 6}").write_text("half")  # of a process that has ended
    before = (tmp_path / file).read_bytes()
    _clean_once.cache_clear()
    status, out, err = contml(*command.split())
    assert (status, err) == (0, "")
    assert "complete already" in out
    assert "exists already" in refused(*(["copy", "pose/mpii", file] if change is None else [*command.split(), change]))
    assert (tmp_path / file).read_bytes() == before
    (tmp_path / file).unlink()
    assert "complete" not in contml(*command.split())[1]
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.slow
def test_a_training_with_a_name_goes_on(contml, refused, tmp_path, monkeypatch):
    def killed(*_):
        raise SystemExit(9)  # stands for SIGKILL

    command = ["train", "pose/synthetic", *TINY, "--name"]
    with without_reports():
        assert contml(*command, "whole")[0] == 0
    folder = tmp_path / "runs/pose/synthetic/first"
    steps = [f"train_and_evaluate.{step}" for step in ("DataRecord.save", "write", "Trainer.fit", "_finish")]
    for step in (*steps, "run_results.RetrievalResults.report"):
        with monkeypatch.context() as patch:
            patch.setattr(f"contml.app.experiment.{step}", killed)
            assert contml(*command, "first")[0] == 9, step
    status, out, err = contml(*command, "first")
    assert (status, "report: runs/pose/synthetic/first/report.html" in out) == (0, True), err
    whole, first = (load_file(run / "checkpoints/last.safetensors") for run in (folder.with_name("whole"), folder))
    assert_equal(whole, first)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    status, out, err = contml(*command, "first")
    assert (status, err) == (0, "")
    assert "report: complete already: runs/pose/synthetic/first/report.html" in out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert "first: exists already; choose another name" in refused(*command, "first", "seed=1")
