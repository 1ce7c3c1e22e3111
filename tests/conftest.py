"""Fixtures: the command line as a user types it, a small run, and a browser."""

import gc
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from contml.app.cli import main

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: several processes share the cores
settings.register_profile("any speed", deadline=None)  # the machine may be busy
settings.load_profile("any speed")


def pytest_collection_finish():
    """Modules and cases live to the end: garbage is looked for without them, more often, and memory is free sooner."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory):
    """Folders of caches for the tests: what a developer has in theirs must not change what the tests see."""
    # matplotlib finds its fonts once, which takes seconds.
    fonts = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        if "MPLCONFIGDIR" not in os.environ:
            patch.setenv("MPLCONFIGDIR", str(fonts))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TORCH_HOME", str(tmp_path_factory.mktemp("torch")))
        yield


@pytest.fixture
def contml(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder. Returns (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["contml", *(str(a) for a in arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def accepted(contml):
    """Run a command that must end with exit status 0. Returns (stdout, stderr)."""

    def run(*arguments):
        status, out, err = contml(*arguments)
        assert status == 0, err
        return out, err

    return run


@pytest.fixture
def refused(contml):
    """Run a command that must fail with one line on stderr and exit status 2. Returns the line."""

    def run(*arguments):
        status, out, err = contml(*arguments)
        assert status == 2
        assert out == ""
        (line,) = err.strip().splitlines()
        assert line.startswith("contml: ")
        return line

    return run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """The folder of a small run of drawn people, with its report. Tests that change a run copy it."""
    from support.miniature import TINY

    from contml.app.experiment import load, train

    return train(load("pose/synthetic", TINY), tmp_path_factory.mktemp("tiny")).folder


@pytest.fixture(scope="session")
def captioners(tmp_path_factory):
    """A function: the folder of a small run of a captioner with a decoder, "lstm" or "attention", with its report."""
    from support.captioning import SMALL_DECODERS, without

    from contml.app.experiment import load, train

    def made(decoder):
        changes = [SMALL_DECODERS[decoder]]
        experiment = load("captioning/synthetic", [*without(changes), *changes])
        return train(experiment, tmp_path_factory.mktemp(decoder)).folder

    return cache(made)


@pytest.fixture
def no_reports():
    """Trainings write no report."""
    from support.runs import without_reports

    with without_reports():
        yield


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, driven by playwright; the test is skipped where one of them is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()
