"""A full disk at each write of each command on a model: earlier work stays, one line, and the same command goes on."""

import errno
import os
import shutil
from pathlib import Path

import pytest

COMMANDS = {
    "embed": ["embed", "model", "photos", "--out", "new.npz"],
    "embed parquet": ["embed", "model", "photos", "--out", "new.parquet"],
    "index": ["index", "model", "photos", "--out", "new"],
    "add": ["index", "model", "photos", "--out", "old"],
    "remove": ["index", "--out", "old", "--remove", "0001.png"],
    "compact": ["index", "--out", "old", "--remove", "0001.png", "--compact"],
    "export": ["export", "model", "new"],
    "predict": ["predict", "model", "photos", "--out", "new.csv"],
    "search": ["search", "old", "photos/0001.png", "--gallery", "new.html"],
}
#: A command has at most so many writes here.
MOST = 40


@pytest.fixture
def place(contml, exported, trained, tmp_path):
    """A model, photos, and an index of a few of them."""
    shutil.copytree(exported, "model")
    (tmp_path / "photos").mkdir()
    for path in sorted(trained.images.iterdir())[:4]:
        shutil.copy(path, "photos")
    assert contml("index", "model", "photos", "--out", "old")[0] == 0
    shutil.copytree(trained.images, "photos", dirs_exist_ok=True, copy_function=copy_new)
    return tmp_path


def copy_new(source, target):
    return target if Path(target).exists() else shutil.copy(source, target)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_earlier_work_stays_and_the_same_command_goes_on(contml, place, monkeypatch, name):
    before = contents(place)
    for failing in range(1, MOST):
        count = 0

        def fsync(_, failing=failing):
            nonlocal count
            count += 1
            if count == failing:
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            status, _, err = contml(*COMMANDS[name])
        left = contents(place)
        is_manifest = [path.name == "manifest.json" for path in before if left.get(path) != before[path]]
        if status:
            lines = [line for line in err.splitlines() if line.startswith("contml: ")]
            assert (status, len(lines)) == (2, 1), err
            assert "No space left on device" in lines[0]
            assert all(is_manifest), "all that was there"
            assert not [path for path in left if path.name.startswith(".contml-")]
        assert contml(*COMMANDS[name])[0] == 0, failing
        for path in place.rglob("*"):
            if path.is_file() and path.relative_to(place) not in before:
                path.unlink()
        for folder in ("new", "old", ".new.npz.parts", ".new.parts", ".old.parts"):
            shutil.rmtree(place / folder, ignore_errors=True)
        for path, content in before.items():
            (place / path).parent.mkdir(exist_ok=True)
            (place / path).write_bytes(content)
        if count < failing:
            return
    pytest.fail("more writes than expected")
