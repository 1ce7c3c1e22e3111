"""Run folders are never shared, files are never half written, and metrics that a crash cut short are still read."""

from datetime import datetime

import pytest
from support.refusals import refuses

from contml import runs
from contml.runs import Run, create, find_runs, open_run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_create_and_open(tmp_path):
    run = create(tmp_path / "runs", "pose/small")
    assert run.folder.parent == tmp_path / "runs" / "pose/small"
    datetime.strptime(run.folder.name, "%Y-%m-%d_%H-%M-%S")
    assert names(run.folder) == ["checkpoints"]
    assert run.checkpoints.is_dir()
    run.config.write_text("a: 1\n")
    assert open_run(run.folder).folder == run.folder


def test_runs_that_start_in_the_same_second_have_their_own_folders(tmp_path, monkeypatch):
    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 5, 6, 12, 0, 0)

    monkeypatch.setattr(runs, "datetime", Noon)
    noon = "2024-05-06_12-00-00"
    assert [create(tmp_path, "a").folder.name for _ in range(3)] == [noon, f"{noon}_2", f"{noon}_3"]
    assert create(tmp_path, "b").folder.name == noon
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / noon).write_text("")
    with refuses(f"c/{noon}", got="is a file"):
        create(tmp_path, "c")


def test_find_runs_in_a_folder(tmp_path):
    for name in ("b/2", "b/10", "a/1", ".hidden/1", "a/1/copy"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("# contml run of pose/small\nseed: 0\n")
    (tmp_path / "b/latest").symlink_to(tmp_path / "b/2")
    (tmp_path / "b/again").symlink_to(tmp_path)
    (tmp_path / "note.txt").write_text("")
    assert [str(path.relative_to(tmp_path)) for path in find_runs(tmp_path)] == ["a/1", "b/10", "b/2"]
    assert find_runs(tmp_path / "a/1") == [tmp_path / "a/1"]
    assert find_runs(tmp_path / "b/latest") == [tmp_path / "b/latest"]


def test_the_name_of_a_run_is_the_name_of_its_config(tmp_path):
    run = Run(tmp_path / "mine/2024-05-06_12-00-00")
    run.folder.mkdir(parents=True)
    run.config.write_text("# contml run of pose/small\nseed: 0\n")
    assert run.name == "pose/small"
    run.config.write_text("seed: 0\n")  # somebody edited it
    assert run.name == "mine"


def logged(folder, steps=3):
    run = Run(folder)
    for step in range(steps):
        run.log({"step": step, "loss": step / 2, "metric": "ä\n\u2028"})
    return run


def test_rows_are_read_as_logged(tmp_path):
    assert Run(tmp_path).rows() == []
    run = logged(tmp_path)
    assert run.rows() == [{"step": step, "loss": step / 2, "metric": "ä\n\u2028"} for step in range(3)]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_last_line_cut_short_is_left_out(tmp_path, cut):
    run = logged(tmp_path)
    run.metrics.write_bytes(run.metrics.read_bytes()[:-cut])
    whole = 3 if cut == 1 else 2  # the line break alone may be missing
    assert [row["step"] for row in run.rows()] == list(range(whole))
    if cut % 3:  # the cut line is dropped, or a row is logged after it
        run.rewind(1)
        whole = 2
    run.log({"step": 5})
    assert [row["step"] for row in run.rows()] == [*range(whole), 5]


@pytest.mark.parametrize("value", ["text", [1.0], 10**400])
def test_a_value_that_is_no_number_is_refused_before_it_is_written(tmp_path, value):
    run = create(tmp_path, "pose/small")
    run.log({"step": 1, "loss": 1e300})  # read as null, like an infinite one
    with refuses("metric loss", allowed="number"):
        run.log({"step": 2, "loss": value})
    assert run.rows() == [{"step": 1, "loss": None}]


def test_rewind_drops_later_rows_and_leaves_no_temporary_file(tmp_path):
    run = logged(tmp_path, 5)
    run.log({"step": 2, "evaluation": True})
    before = run.rows()
    run.rewind(2)
    assert (run.rows(), names(tmp_path)) == ([*before[:3], before[-1]], ["metrics.jsonl"])
    run.rewind(-1)
    assert run.rows() == []
    Run(tmp_path / "new").rewind(10)
