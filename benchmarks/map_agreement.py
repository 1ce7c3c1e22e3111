"""Do label distances of rooms agree with which photographs are of one room? `benchmarks/results/map_agreement.md`.

    python -m benchmarks.map_agreement data=FOLDER

FOLDER holds the data packs of the maintainers. Written before the first run (1 December 2026).

- Judge: frames of NYUv2 whose numbers follow each other are of one room (a run). The pack has no type of scene. Only
  maps of the test split whose run has another map are queries; the gallery is the whole test split.
- Agreement@1: the share of queries whose nearest map by label distance is of their run. Agreement@R: the share of the
  R nearest maps, where R is the number of other maps of the run. Ties take the first map.
- Label distances: 1 - mIoU of maps of 112 x 112 pixels, the default; of 14, 28 and 56 pixels; the share of pixels that
  differ; 1 - IoU weighted by the area of the classes; 1 - mIoU where unlabelled pixels are a class.
- Intervals are of 95 %, over runs (`contml.app.trials.statistics`).

Prediction: all are within .03 of the default at 1. Rule: the default follows only if a distance is above it at 1 and at
R by intervals above 0, and heads trained with it are too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import heading, table
from contml.app.experiment import load
from contml.app.trials.statistics import estimate
from contml.labels import SegmentationLabels

PAGE = Path(__file__).parent / "results" / "map_agreement.md"
#: Rows whose distances are computed at a time.
BLOCK = 16


def by_pixels(maps: Tensor, classes: int, ignore: int, *, weighted: bool) -> Tensor:
    """The share of differing pixels `[N, N]`, or 1 - IoU weighted by the area of the classes in the first map."""
    flat = maps.flatten(1)
    found = []
    for rows in torch.split(flat, BLOCK):
        both = (rows[:, None] != ignore) & (flat != ignore)  # [b, N, P]
        same = (rows[:, None] == flat) & both
        if not weighted:
            found.append(1 - same.sum(2) / both.sum(2).clamp(min=1))
            continue
        total = torch.zeros(both.shape[:2])
        for number in range(classes):
            own, other = (rows[:, None] == number) & both, (flat == number) & both
            union = (own | other).sum(2)
            total += own.sum(2) * (own & other).sum(2) / union.clamp(min=1)
        found.append(1 - total / both.sum(2).clamp(min=1))
    return torch.cat(found)


def distances(maps: Tensor, classes: int, ignore: int) -> dict[str, Tensor]:
    """The label distances `[N, N]` of maps `[N, H, W]`, by name."""
    found = {
        f"1 - mIoU, {side} pixels": SegmentationLabels(maps, classes, ignore, side).pairwise()
        for side in (112, 56, 28, 14)
    }
    of_all = SegmentationLabels(maps, classes + (ignore >= classes))
    found["1 - mIoU, unlabelled pixels are a class"] = of_all.pairwise()
    small = SegmentationLabels(maps, classes, ignore, 56).arguments()["maps"]
    found["pixels that differ, 56 pixels"] = by_pixels(small, classes, ignore, weighted=False)
    found["1 - IoU weighted by area, 56 pixels"] = by_pixels(small, classes, ignore, weighted=True)
    return found


def agreement(distance: Tensor, runs: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Whether the nearest map is of the run, and the share of the R nearest, of each query."""
    distance = distance.clone().fill_diagonal_(float("inf"))
    same = runs[:, None] == runs
    sizes = same.sum(1) - 1
    queries = (sizes > 0).nonzero()[:, 0]
    hits = same[queries[:, None], distance[queries].argsort(dim=1, stable=True)].double()
    at_r = [float(row[:size].mean()) for row, size in zip(hits, sizes[queries].tolist(), strict=True)]
    return hits[:, 0].numpy(), np.array(at_r)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", metavar="data=FOLDER")
    data = parser.parse_args().place.removeprefix("data=")
    places = [f"task.data={data}/rooms_nyuv2/pairs.csv", "task.frame=nyu_index", "task.exclude_group=true"]
    split = load("layout/nyuv2", places).build_task().evaluated
    assert isinstance(split.labels, SegmentationLabels)
    assert split.groups is not None
    form = split.labels.arguments()
    runs = split.groups
    found = {
        name: agreement(each, runs) for name, each in distances(form["maps"], form["classes"], form["ignore"]).items()
    }
    default, *_ = found.values()
    sizes = (runs[:, None] == runs).sum(1)
    groups = runs[sizes > 1].tolist()
    rows = [["label distance", "agreement@1", "difference", "agreement@R", "difference"]]
    for name, values in found.items():
        cells = [name]
        for own, first in zip(values, default, strict=True):
            gap = estimate([(own - first)[None]], [groups])
            shown = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if (own != first).any() else ""
            cells += [f"{own.mean():.3f}", shown]
        rows.append(cells)
    chance = float(((sizes[sizes > 1] - 1) / (len(runs) - 1)).mean())
    facts = f"{len(groups)} queries of {len(set(groups))} runs, {len(runs)} maps. By chance, agreement is {chance:.3f}."
    text = f"{heading('Label distances of rooms, judged by runs of frames')}\n"
    text += f"`python -m benchmarks.map_agreement data=FOLDER`. {facts}\n\n{table(rows)}\n"
    notes = PAGE.read_text(encoding="utf-8").partition("\n## Notes")[1:] if PAGE.exists() else ()
    PAGE.write_text(text + "".join(notes), encoding="utf-8")


if __name__ == "__main__":
    main()
