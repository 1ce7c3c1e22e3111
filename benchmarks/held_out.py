"""People of COCO that nothing was chosen on, a person per crop: `task=benchmarks.held_out:people` in a config."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from contml._support.arrays import read_arrays
from contml.data import ImageFile, Split, Task
from contml.labels import PoseLabels

#: Bytes that the arrays of the file may unpack to.
_MOST_BYTES = 1 << 26


def people(root: str) -> Task:
    """Crops of people with 17 joints, divided by photograph; a query does not find people of its own photograph.

    Args:
        root: the folder with `images/` and `keypoints.npz`.
    """
    folder = Path(root)
    table = read_arrays(folder / "keypoints.npz", _MOST_BYTES)
    photographs = np.unique(table["image_id"], return_inverse=True)[1]

    def split(part: str) -> Split:
        rows = np.flatnonzero(table["split"] == part)
        names = [str(name) for name in table["names"][rows]]
        labels = PoseLabels(table["joints"][rows], table["visibility"][rows] > 0)
        groups = torch.from_numpy(photographs[rows])
        return Split([ImageFile(folder / "images" / name) for name in names], names, labels, groups=groups)

    of_train = photographs[table["split"] == "train"]
    return Task(split("train"), split("test"), val_groups=[str(photograph) for photograph in of_train])
