"""The example of CONTRIBUTING works: a data set in one function, checked with a config."""

from __future__ import annotations

import re

import numpy as np
from PIL import Image
from support.paths import ROOT

from contml.experiment import check, config_text, load


def example():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return block


def test_a_data_set_is_one_function_of_at_most_40_lines(tmp_path, monkeypatch):
    block = example()
    assert len(block[block.index("def wingspans") :].strip().splitlines()) <= 40
    (tmp_path / "birds_of_contributing.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    lines = ["file,wingspan,split"]
    for number in range(24):
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"images/{number}.png")
        span = "" if number == 3 else f"{20 + number}"
        lines.append(f"{number}.png,{span},{'train' if number < 16 else 'test'}")
    (tmp_path / "birds.csv").write_text("\n".join(lines))
    (tmp_path / "mine.yaml").write_text(config_text("pose/synthetic"))
    changes = ["task=birds_of_contributing:wingspans", f"task.root={tmp_path}", "images.resize=32", "images.crop=32",
               "transform.scale_jitter=2", "sampler.batch_size=8", "sampler.anchors_per_batch=1"]  # fmt: skip
    facts = dict(check(load(str(tmp_path / "mine.yaml"), changes)))
    train, val = (int(facts[f"{name} images"].split()[0].strip(",")) for name in ("training", "validation"))
    assert train + val == 15
    assert facts["training images"].endswith("(excluded: 1 without a wingspan)")
    assert facts["label distance"] == "squared cm of wingspan"
