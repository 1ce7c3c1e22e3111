"""Files are written completely or not at all: on a full disk, after a kill, and beside other processes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from fuzz.mutations import bytes_changed
from support.refusals import refuses

from contml import InputError
from contml._support.files import atomic, read_bytes, remove_temporaries, write
from contml._support.tensors import load_tensors, load_values, save_tensors
from contml.data.features import write_features
from contml.data.identity import DataRecord
from contml.runs import Run

NAMES, LABELS = {"train": ["a", "b"], "test": ["c"]}, {"train": ["1", "2"], "test": ["3"]}
RECORD = DataRecord(NAMES, LABELS, {"train": [], "test": [0]})


def large(run: Run):
    """Each file of a run, written by the function that writes it, larger than 100 kB."""
    tensors, names = {"a": torch.rand(200, 200)}, [os.urandom(8).hex() for _ in range(20_000)]
    weights, features = run.checkpoints / "last.safetensors", run.folder / "f.npz"
    return {
        weights: lambda: save_tensors(weights, tensors, epoch=1),
        run.data: lambda: DataRecord({"train": names}, {"train": names}, {"train": []}).save(run.data),
        run.config: lambda: write(run.config, lambda path: path.write_text("a" * 200_000)),
        run.metrics: lambda: run.log({"step": 1, "event": "a" * 200_000}),
        features: lambda: write_features(features, ["a"], ["train"], np.ones((1, 50_000), "f4")),
    }


def check_full(run: Run):
    """Every file of a run that does not fit is one error that names it, leaves the older file, and no other."""
    run.checkpoints.mkdir(exist_ok=True)
    for path, save in large(run).items():
        old = b"" if path == run.metrics else b"old"
        path.write_bytes(old)
        before = sorted(path.parent.iterdir())
        with refuses(str(path), got="cannot be written"):
            save()
        assert path == run.metrics or path.read_bytes() == old
        assert sorted(path.parent.iterdir()) == before
        path.unlink()
    assert run.rows() == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of processes")
def test_a_limit_on_the_size_of_files(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        check_full(Run(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("call", ["touch", "open", "fsync", "replace"])
def test_any_step_of_writing_may_fail(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, refuses(str(path), got="No space left on device"):
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, call)), fail)
        write(path, lambda temporary: temporary.write_text("new"))
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("old", [path])


def test_an_error_of_another_file_names_that_file_and_none_is_left(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write(tmp_path / "a.txt", lambda _: (tmp_path / "absent.txt").read_bytes())
    assert caught.value.filename == str(tmp_path / "absent.txt")
    with pytest.raises(KeyboardInterrupt), atomic(tmp_path / "a.txt"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with refuses(str(tmp_path / "file/a.txt"), "cannot be written"):
        write(tmp_path / "file/a.txt", Path.touch)


def test_names_of_temporary_files_are_not_predictable(tmp_path):
    names = set()
    for _ in range(20):
        with atomic(tmp_path / "a.json") as temporary:
            names.add(temporary.name)
            temporary.write_text("1")
    assert len(names) == 20
    umask = os.umask(0o027)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~umask


def test_a_file_or_link_with_the_temporary_name_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 6)
    with atomic(tmp_path / "a.json") as temporary:
        pass
    other = tmp_path / "other"
    other.write_text("mine")
    temporary.symlink_to(other)
    with refuses("a.json", got="File exists"):
        write(tmp_path / "a.json", lambda temporary: temporary.write_text("1"))
    assert other.read_text() == "mine"


KILLED = """
import os, signal, sys
from pathlib import Path
from contml._support.files import atomic
with atomic(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next_one(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a.json"], check=False)
    (left,) = tmp_path.iterdir()
    machine = left.name[len(".contml-") :][:4]
    (tmp_path / ".contml-mine").write_text("another name")
    living = tmp_path / f".contml-{machine}{os.getpid():06x}abcdef"
    elsewhere = tmp_path / left.name.replace(machine, f"{int(machine, 16) ^ 1:04x}")
    for path in (living, elsewhere):
        path.mkdir()
        (path / "half").write_text("half")
    write(tmp_path / "b.json", lambda temporary: temporary.write_text("1"))
    assert not left.exists()
    assert living.is_dir()
    assert elsewhere.is_dir(), "its process may live on another machine"
    os.utime(elsewhere, (time.time() - 7200,) * 2)
    os.utime(elsewhere / "half", (time.time() - 7200,) * 2)
    remove_temporaries(tmp_path, age=3600)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".contml-mine", "b.json", living.name])


def test_a_run_that_is_locked_removes_all_temporary_files_of_its_checkpoints(tmp_path):
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    left = run.checkpoints / f".contml-{'0' * 16}.safetensors"
    left.write_text("half")
    with run.lock():
        assert not left.exists()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
def test_only_files_up_to_a_limit_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with refuses(str(tmp_path / "a"), got="5 bytes", allowed="at most 4 bytes"):
        read_bytes(tmp_path / "a", 4)
    with refuses(str(tmp_path), got="a folder"):
        read_bytes(tmp_path, 9)
    os.mkfifo(tmp_path / "pipe")
    with refuses(str(tmp_path / "pipe"), got="not a regular file"):
        read_bytes(tmp_path / "pipe", 9)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 9)
    with refuses("/dev/zero", got="not a regular file"):
        read_bytes(Path("/dev/zero"), 9)


def test_damaged_tensors_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "a.safetensors"
    tensors = {"a": torch.arange(20.0), "b": torch.tensor(True), "c": torch.empty(0, 3, dtype=torch.bfloat16)}
    save_tensors(path, tensors, epoch=3, names=["ä"])
    loaded, values = load_tensors(path)
    assert values == load_values(path) == {"epoch": 3, "names": ["ä"]}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    whole = path.read_bytes()
    for _ in range(10):
        save_tensors(path, tensors, epoch=3, names=["ä"])
        assert path.read_bytes() == whole
    for damaged in [*(bytes_changed(whole, Random(n)) for n in range(400)), *(whole[:n] for n in range(len(whole)))]:
        path.write_bytes(damaged)
        try:
            again, found = load_tensors(path)
        except InputError as error:
            assert error.subject == str(path)  # noqa: PT017
        else:  # a change of the white space of the header
            assert found == values
            assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    for path, got in ((tmp_path, "a folder"), (Path("/dev/zero"), "not a regular file")):
        with refuses(str(path), got=got, allowed="must be a file"):
            load_tensors(path)


@pytest.mark.parametrize("spoil", [
    lambda tensors: tensors.pop("train.names"),
    lambda tensors: tensors.pop("test.queries"),
    lambda tensors: tensors.update({"other.names": tensors["test.names"]}),
    lambda tensors: tensors.update({"train.names": tensors["train.names"][:-1]}),
    lambda tensors: tensors.update({"train.names": torch.full_like(tensors["train.names"], 255)}),
    lambda tensors: tensors.update({"train.names.lengths": -tensors["train.names.lengths"]}),
    lambda tensors: tensors.update(
        {"train.labels": tensors["test.labels"], "train.labels.lengths": tensors["test.labels.lengths"]}
    ),
    lambda tensors: tensors.update({"test.queries": torch.tensor([9])}),
])  # fmt: skip
def test_a_record_of_another_form_is_refused(tmp_path, spoil):
    path = tmp_path / "data.safetensors"
    RECORD.save(path)
    tensors, _ = load_tensors(path)
    spoil(tensors)
    save_tensors(path, tensors)
    with refuses(str(path), got="cannot be read"):
        DataRecord.load(path)


@pytest.mark.parametrize("row", [
    "[]", '{"event": "train"}', '{"step": "3"}', '{"step": 1, "loss": NaN}', f'{{"step": 1, "loss": {"9" * 400}}}',
    '{"step": 1, "loss": "high"}', '{"step": 1, "event": "evaluation"}',
    '{"step": 1, "event": "evaluation", "split": "all"}', "[" * 100_000, "\xff",
])  # fmt: skip
def test_a_row_of_metrics_of_another_form_is_refused(tmp_path, row):
    run = Run(tmp_path)
    run.log({"event": "train", "epoch": 0.5, "step": 1, "loss": 2.0})
    good = run.metrics.read_bytes()
    run.metrics.write_bytes(good + row.encode("latin-1") + b"\n" + good)
    with refuses(f"{run.metrics}:2", got="not a row of metrics"):
        run.rows()
