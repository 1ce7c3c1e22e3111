"""The README's Python runs; the configs that it names exist. Its commands: test_commands.py."""

from __future__ import annotations

import re

from support.paths import ROOT

from contml.app.experiment import config_names

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def test_every_config_named_exists():
    for name in re.findall(r"contml (?:train|check|copy) (\w+/\w+)", TEXT):
        assert name in config_names()


def test_the_two_commands_are_between_their_markers():
    last_commands = {"train": "contml train pose/synthetic", "test": "python -m pytest -q -n 2 --dist worksteal"}
    for marker, last in last_commands.items():
        (block,) = re.findall(rf"<!-- {marker} command -->\n```sh\n(.*?)\n```\n<!-- end -->", TEXT)
        assert block.startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert block.endswith(last)
