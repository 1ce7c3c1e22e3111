"""A file that is replaced with its size and its time is another file."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from contml.data.cache import _digests
from contml.data.sources import ImageFile
from contml.data.split import Split
from contml.evaluation.embed_parts import Rows
from contml.labels.vectors import VectorLabels


def replace(path, other):
    """As `rsync -t` and `cp -p` do for a file that another program wrote in the same second."""
    status = path.stat()
    shutil.copy(other, path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize(
    "state",
    [lambda split: _digests(split)[0].tobytes(), lambda split: Rows("images", split, range(1), [0], 1).key],
    ids=["cache", "embed"],
)
def test_the_second_time_of_change_counts(tmp_path, state):
    for number, name in enumerate(("a.bmp", "b.bmp")):
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(tmp_path / name)
    split = Split([ImageFile(tmp_path / "a.bmp")], ["a"], VectorLabels(np.zeros((1, 1))))
    before = state(split)
    assert state(split) == before
    replace(tmp_path / "a.bmp", tmp_path / "b.bmp")
    assert state(split) != before
