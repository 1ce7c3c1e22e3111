"""The script of a search for neighbours that several processes share.

python -m support.searches FOLDER COUNT SECONDS
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from contml import work
from contml.labels import LabelSpace, VectorLabels
from support.items import Number, square

cache = sys.modules["contml.distances.cache"]


class Slow(LabelSpace):
    """Numbers on a line; the distances of a row take about so many seconds, and add a line to `begun`."""

    def __init__(self, count: int, folder: Path, seconds: float) -> None:
        super().__init__(values=torch.arange(float(count)))
        self.folder, self.seconds = folder, seconds

    def distances(self, x, y):
        for row in x.rows.tolist():
            square(self.folder, self.seconds, Number(row))
        return (x.values[:, None] - y.values).abs()

    def fingerprint(self) -> str:
        return f"{len(self)} numbers"


def search(folder: Path, count: int, seconds: float) -> None:
    """The three nearest of each row, which is an item."""
    cache._ROWS = 1
    print("ready", flush=True)
    found = Slow(count, folder, seconds).nearest(3, cache=folder / "cache")
    expected = VectorLabels(torch.arange(float(count)), squared=False).nearest(3)
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.distances, expected.distances)


if __name__ == "__main__":
    work._POLL = 0.05
    search(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
