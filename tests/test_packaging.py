"""Everything in the checkout is installed."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT


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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what git would commit, with its links, in a folder called contml."""
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("parent") / "contml"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def files_below(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and not file.is_symlink()}


def build(kind: str, checkout: Path, folder: Path) -> Path:
    """The path of a wheel or source distribution, built from a copy of the checkout in a new process."""
    copied = folder / "contml"
    shutil.copytree(checkout, copied, symlinks=True)
    code = f"from setuptools import build_meta; build_meta.build_{kind}('..')"
    subprocess.run([sys.executable, "-c", code], cwd=copied, capture_output=True, check=True)
    (archive,) = (file for file in folder.iterdir() if file.is_file())
    return archive


def test_a_wheel_has_each_file_once(checkout, tmp_path):
    with zipfile.ZipFile(build("wheel", checkout, tmp_path)) as opened:
        packed = [name for name in opened.namelist() if ".dist-info/" not in name]
    expected = files_below(checkout / "contml")
    expected |= {f"{name}/{file}" for name in ("tasks", "configs") for file in files_below(checkout / name)}
    expected = {f"contml/{name}" for name in expected}
    assert len(expected) > 300
    assert sorted(packed) == sorted(expected)


def test_a_source_distribution_has_the_pages_tests_and_data_files(checkout, tmp_path):
    archive = build("sdist", checkout, tmp_path)
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
        (info,) = [name for name in opened.getnames() if name.count("/") == 1 and name.endswith("PKG-INFO")]
        metadata = opened.extractfile(info).read().decode()
    files = {name for name in files_below(checkout) if not name.startswith(".")}
    assert {f"contml/{name}" if name.startswith(("tasks/", "configs/")) else name for name in files} <= packed
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert "\nAuthor: contml developers\n" in metadata


@pytest.mark.slow
def test_an_editable_install_is_imported_from_the_folder_above_the_clone(checkout, tmp_path):
    """There, `contml` is the clone itself: a folder without `__init__.py`, which must not hide the package."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    packages = next((environment / "lib").glob("python*/site-packages"))
    (packages / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    options = ["install", "--no-deps", "--no-build-isolation", "--editable", "."]
    command = [sys.executable, "-m", "pip", "--python", python, *options]
    subprocess.run(command, cwd=checkout, capture_output=True, check=True)
    code = "import contml, contml.tasks.pose, contml.configs; print(contml.load, contml.__file__)"
    for folder in (checkout.parent, checkout, tmp_path):
        output = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
        assert str(checkout / "contml" / "__init__.py") in output


def test_the_citation_names_this_version_and_the_authors_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # required by the format
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert (citation["authors"], citation["keywords"]) == (project["authors"], project["keywords"])
