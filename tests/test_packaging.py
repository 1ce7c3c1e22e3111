"""What is installed is what stands in the checkout."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_package_is_listed():
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'"(contml[\w.]*)"', re.search(r"^packages = \[(.*?)\]", text, re.M | re.S)[1])
    folders = {
        f"contml.{folder.relative_to(ROOT)}" if name != "contml" else str(folder.relative_to(ROOT))
        for name in ("contml", "tasks", "configs")
        for folder in [ROOT / name, *(ROOT / name).rglob("*")]
        if (folder / "__init__.py").exists()
    }
    assert sorted(listed) == sorted(folder.replace("/", ".") for folder in folders)
