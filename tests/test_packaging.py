"""Everything in the checkout is installed."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
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


def test_the_package_index_shows_a_readme_without_links_into_the_repository(monkeypatch):
    setuptools = pytest.importorskip("setuptools", reason="setuptools is not installed")
    found = {}
    monkeypatch.setattr(setuptools, "setup", lambda **options: found.update(options))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    text, readme = found["long_description"], (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\]\((?!https?:|#)", readme)
    assert not re.search(r"\]\((?!https?:|#)", text)
    assert "![" not in text
    kept = [line for line in readme.splitlines() if "](" not in line and not line.startswith("*")]
    assert len(set(kept) - set(text.splitlines())) < 8  # captions of pictures
    assert found["long_description_content_type"] == "text/markdown"


def test_a_source_distribution_has_the_pages_tests_and_data_files(tmp_path):
    """Built by setuptools from the files that git would commit."""
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    for name in files:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    code = "from setuptools import build_meta; build_meta.build_sdist('..')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "source", capture_output=True, check=True)
    (archive,) = tmp_path.glob("contml-*.tar.gz")
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
        (info,) = [name for name in opened.getnames() if name.count("/") == 1 and name.endswith("PKG-INFO")]
        metadata = opened.extractfile(info).read().decode()
    assert {name for name in files if not name.startswith(".")} <= packed
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert "\nAuthor: contml developers\n" in metadata


def test_the_citation_names_this_version_and_the_authors_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # required by the format
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert citation["authors"] == project["authors"]
    assert citation["keywords"] == project["keywords"]


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
