"""What is installed is what is in the checkout."""

from __future__ import annotations

import runpy

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
