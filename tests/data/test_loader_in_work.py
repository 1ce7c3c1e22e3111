"""Workers that decode, in a process that does items of work: its default start method is joblib's own."""

import subprocess
import sys

import pytest
from PIL import Image
from support.processes import script_environment

PROGRAM = """
import sys
from pathlib import Path

from joblib import Parallel, delayed

from contml.data import Images, Split
from contml.data.sources import ImageFile
from contml.labels import NumberLabels

def count(folder):
    files = sorted(Path(folder).iterdir())
    split = Split([ImageFile(file) for file in files], [file.name for file in files], NumberLabels([0.0] * len(files)))
    images = Images(8, 8, workers=1)
    found = sum(len(batch.images) for batch in images.test_batches(split, None, 2))
    images.close()
    return found

print(Parallel(2, backend="loky")(delayed(count)(sys.argv[1]) for _ in range(2)))
"""


@pytest.mark.slow
def test_workers_decode_in_a_process_that_does_items(tmp_path):
    for number in range(5):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    done = subprocess.run(command, env=script_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[5, 5]\n"), done.stderr
