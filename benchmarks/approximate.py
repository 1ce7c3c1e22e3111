"""Approximate nearest neighbours by label (NN-descent): recall, pairs compared, and time beside the exact search.

    python -m benchmarks.approximate [--save FILE] [NAME ...]

Real poses are the 10,000 of the Leeds sports data set, from the pack `pose_lspet` in `CONTML_DATA`, or in
`../shared/data` beside the checkout. Synthetic poses are 14 joints that follow 6 hidden numbers; places are around 200
towns; label maps of 32 x 32 pixels have three regions whose edges move. Recall is that of the result: of 10 neighbours,
on 1,000 random rows. Times are processor seconds of one thread: of the whole approximate search, with these 1,000
rows; the exact search is timed on 200 rows, and computed from their share.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import heading, table
from contml.labels import GeoLabels, LabelSpace, PoseLabels, SegmentationLabels

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
K, ROWS = 10, 200


def real_poses() -> LabelSpace:
    from scipy.io import loadmat

    path = DATA / "pose_lspet/official_layout/lspet_dataset/joints_full_10000.mat"
    joints = loadmat(str(path))["joints"].transpose(2, 0, 1)  # [N,14,3]
    return PoseLabels(joints[..., :2], joints[..., 2] > 0, normalize=True, hidden="drop")


def poses(items: int) -> LabelSpace:
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(items, 6, generator=random, dtype=torch.float64)
    joints = 50 * torch.tanh(hidden @ torch.randn(6, 28, generator=random, dtype=torch.float64))
    return PoseLabels(joints.view(items, 14, 2) + torch.randn(items, 14, 2, generator=random))


def places(items: int) -> LabelSpace:
    random = np.random.default_rng(0)
    towns = random.uniform((-60, -180), (70, 180), (200, 2))
    around = towns[random.integers(0, 200, items)] + random.normal(0, 2, (items, 2))
    return GeoLabels(np.clip(around, (-90, -180), (90, 180)))


def maps(items: int) -> LabelSpace:
    random = np.random.default_rng(0)
    edges = np.sort(random.uniform(0, 32, (items, 2)), axis=1)
    slope = random.normal(0, 0.5, (items, 1, 1))
    x = np.arange(32)[None, None, :] + slope * (np.arange(32)[None, :, None] - 16)
    values = (x > edges[:, 0, None, None]).astype(np.int64) + (x > edges[:, 1, None, None])
    return SegmentationLabels(torch.from_numpy(values), 3, side=None)


SPACES: dict[str, Callable[[], LabelSpace]] = {
    "poses of people": real_poses,
    "label maps": lambda: maps(10_000),
    "synthetic poses": lambda: poses(100_000),
    "places": lambda: places(100_000),
}


def measured(name: str, labels: LabelSpace) -> list[str]:
    """The row of a label space."""
    start = time.process_time()
    found = labels.nearest(K, approximate=True)
    spent = time.process_time() - start
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))[:ROWS].sort().values
    start = time.process_time()
    labels.nearest(K, rows)
    exact = (time.process_time() - start) * len(labels) / ROWS
    recall = f"{found.recall:.3f} ({found.recall_low:.3f} to {found.recall_high:.3f})"
    return [name, f"{len(labels):,}", recall, f"{found.compared:.2%}", f"{spent:.0f} s", f"{exact:.0f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*SPACES], help=f"of {', '.join(SPACES)}")
    parser.add_argument("--save", type=Path, help="write the table to this file too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [["labels", "items", "recall of the 10 nearest", "pairs compared", "approximate", "exact"]]
    for name in given.names:
        rows.append(measured(name, SPACES[name]()))
        print(" ".join(rows[-1]), flush=True)
        if given.save:
            text = heading("Approximate nearest neighbours by label") + "\n" + table(rows) + "\n"
            given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
