"""The pages using_a_model.md and export.md run: commands, then Python, in a folder with a run and photographs."""

from __future__ import annotations

import re
import shlex
import shutil

import numpy as np
import pytest
from support.paths import ROOT

TEXT = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("using_a_model.md", "export.md"))


@pytest.mark.slow
def test_the_page_runs(accepted, trained, tmp_path, capsys):
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'contml[onnx]'")
    shutil.copytree(trained.run, tmp_path / "RUN")
    shutil.copytree(trained.images, tmp_path / "photos")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 5
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "contml"
        accepted(*arguments)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    graphs = []
    for block in blocks:
        exec(compile(block, "docs", "exec"), names)
        graphs += [names.pop("found")] if "found" in names else []
    assert len(graphs) == 1
    assert all(np.abs(found - trained.embeddings).max() <= 1e-4 for found in graphs)
    assert np.abs(names["embeddings"] - trained.embeddings).max() <= 1e-6
    assert re.search(r"^label distance \d+, 90 % between \d+ and \d+; unit: pixels", capsys.readouterr().out, re.M)
