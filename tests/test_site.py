"""The site builds without a warning, and its API reference has every public name."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

import contml
from contml.losses import LOSSES

#: Packages and modules that are not part of the reference: a config's reading, drawing, and what commands share.
INTERNAL = {"__main__", "_support", "config", "configs", "processes", "tasks"}


def public_names(module):
    """The names that a module exports: `__all__`, the names of its stub, or else what it defines and re-exports."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    source = Path(module.__file__)
    stub = source.with_suffix(".pyi")
    names = set()
    for node in ast.parse((stub if stub.exists() else source).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.name for each in node.names if each.asname == each.name}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name) and each.id.isupper()}
    return {name for name in names if not name.startswith("_")}


def test_every_public_package_has_a_page():
    parts = {path.stem for path in (ROOT / "contml").iterdir() if not path.is_symlink()}
    modules = parts - {"__init__", "__pycache__", "py"}
    assert {path.stem for path in (ROOT / "docs" / "api").iterdir()} == {*(modules - INTERNAL), "contml"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_public_name(tmp_path):
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'contml[docs]'")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((tmp_path / "objects.inv").read_bytes(), uri="").data
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    for page in (ROOT / "docs" / "api").iterdir():
        if page.stem != "contml":
            module = importlib.import_module(f"contml.{page.stem}")
            missing = {name for name in public_names(module) if f"{module.__name__}.{name}" not in documented}
            assert not missing, page.name
    front = (tmp_path / "api" / "contml.html").read_text(encoding="utf-8")
    linked = {name.rpartition(".")[2] for name in re.findall(r'href="[\w./]*#(contml[\w.]+)"', front)}
    assert {name for name in contml.__all__ if not name.startswith("_")} <= linked

    for name in LOSSES:
        page = (tmp_path / "losses" / f"{name}.html").read_text(encoding="utf-8")
        assert "<math" in page
        assert ("data:image/png" in page) == (name != "log_ratio")
        assert f"loss={name}" in page
    assert "Search your own images" in (tmp_path / "index_and_search.html").read_text(encoding="utf-8")
    assert 'id="search-results"' in (tmp_path / "search.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "notebooks" / "poses.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    assert 'href="poses.ipynb"' in (tmp_path / "notebooks" / "poses.html").read_text(encoding="utf-8")
    pages = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^- \[(.+)\]\((.+)\)$", pages, re.MULTILINE))
    assert {"index.md", "losses.md", "losses/log_ratio.md", "contributing.md"} <= {*listed.values()}
    for title, file in listed.items():
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert f"# {title}" in text
        assert "data:image" not in text
