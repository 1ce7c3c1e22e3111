"""The programs of `benchmarks/` that need no data run, at tiny sizes: a change of the library must not break them."""

import subprocess
import sys

import pytest
from support.paths import ROOT

LOSSES = "contrastive proxy_anchor dense_triplet cosent"
#: A program and its arguments, and a text that its output has.
PROGRAMS = {
    "losses": (f"--sizes 32 --large 64 --only {LOSSES} --busy", "| dense_triplet | 64"),
    "log_ratio": ("--largest 64", "label space"),
    "evaluation": ("--items 100 --rounds 1 --queries 20", "torchmetrics"),
    "step": ("--batch 8 --size 32 --rounds 1", "8 chunks"),
    "weights": ("", "pose"),
    "pair_weights": ("raw raw loss.beta=10 --output {folder}/weights.png", "weights.png"),
    "unused_options": ("", "| file | function"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(name, tmp_path):
    arguments, expected = PROGRAMS[name]
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments.format(folder=tmp_path).split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert expected in done.stdout
