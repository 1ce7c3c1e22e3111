"""The configs of packs have the rows that the readers before the table gave them: names, queries, labels, groups."""

import hashlib

import numpy as np
import pytest
from support.paths import DATA_ROOT

from contml.app.experiment import load

#: The file of each config; of each split the number of items, and a hash of their names, after a validation split is
#: drawn; the number of queries and a hash of their names; the mean label distance of 80 training items.
PACKS = {
    "pose/lspet": (
        "pose_lspet/joints.npz",
        {"train": (1800, "5cd5901b67"), "val": (200, "b2979561ee"), "test": (500, "5a3af75046")},
        (100, "1adb367b24"),
        42456.238,
    ),
    "layout/nyuv2 task.frame=nyu_index task.exclude_group=true": (
        "rooms_nyuv2/pairs.csv",
        {"train": (704, "93675f3a37"), "val": (73, "c377b16cc9"), "test": (646, "69092b9fe3")},
        (128, "97806b08bc"),
        0.72623,
    ),
    "layout/camvid task=benchmarks.streets:streets": (
        "labelmaps_camvid/pairs.csv",
        {"train": (257, "ab9d39b5fa"), "val": (40, "2f1e83d9a8"), "test": (192, "6535f0713d")},
        (38, "818f4c2c33"),
        0.82393,
    ),
}


def hashed(names):
    return hashlib.sha1("\n".join(sorted(names)).encode()).hexdigest()[:10]


@pytest.mark.slow
@pytest.mark.parametrize("command", PACKS)
def test_rows_are_those_of_the_readers_before(command):
    data, sizes, queries, mean = PACKS[command]
    if not (DATA_ROOT / data).is_file():
        pytest.skip(f"no pack {data.partition('/')[0]}: set CONTML_DATA to the folder of the packs")
    config, *changes = command.split()
    experiment = load(config, [*changes, f"task.data={DATA_ROOT / data}"])
    task = experiment.read_task()
    built = experiment.build_task()
    assert {part: (len(split), hashed(split.names)) for part, split in built.splits.items()} == sizes
    found = None if task.test.queries is None else [task.test.name(row) for row in task.test.queries.tolist()]
    assert (found and (len(found), hashed(found))) == queries
    rows = np.argsort(task.train.names, kind="stable")
    sample = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:80])].tolist()
    distances = task.train.labels.pairwise(sample, sample).double()
    distances = distances.square() if "pose" in command else distances  # that reader squared the distances of poses
    assert distances.mean() == pytest.approx(mean, rel=1e-5)
    groups = [0 if split.groups is None else len(split.groups.unique()) for split in (task.train, task.test)]
    assert groups == ([123, 124] if "frame" in command else [17, 10] if "streets" in command else [0, 0])
