"""Everything in the checkout is installed."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest
from support.paths import ROOT


def test_every_package_is_found(monkeypatch):
    setuptools = pytest.importorskip("setuptools", reason="setuptools is not installed")
    found = {}
    monkeypatch.setattr(setuptools, "setup", lambda **options: found.update(options))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    folders = {
        folder.relative_to(ROOT)
        for name in ("contml", "tasks", "configs")
        for folder in [ROOT / name, *(ROOT / name).rglob("*")]
        if (folder / "__init__.py").exists()
    }
    names = {".".join(folder.parts if folder.parts[0] == "contml" else ("contml", *folder.parts)) for folder in folders}
    assert len(names) > 20
    assert set(found["packages"]) == names
    assert found["package_dir"] == {"contml": "contml", "contml.tasks": "tasks", "contml.configs": "configs"}


def test_files_beside_the_code_are_packaged():
    """Each file that is not Python code matches a pattern of `package-data`."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packaged = set()
    for package, globs in patterns.items():
        folder = (
            ROOT / package.removeprefix("contml.") if package == "contml.configs" else ROOT / Path(*package.split("."))
        )
        packaged |= {file for pattern in globs for file in folder.glob(pattern)}
    found = {
        file
        for name in ("contml", "tasks", "configs")
        for file in (ROOT / name).rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert ROOT / "contml" / "__init__.pyi" in found
    assert found == packaged
