"""Label distances of a batch of label maps, 1 - mIoU: ours against a confusion matrix a pair and a batched product.

    python -m benchmarks.segmentation_distance [--batch 150]

Maps are 112 x 112 pixels. Ours packs the maps once, outside of the timing, as a label space does; so do the peers: maps
as integers for `numpy.bincount`, masks as float32 for the matrix products. The loop takes each pair once, products take
all N x N. Values are checked equal. Real maps are read from CONTML_DATA, or from shared/data beside the checkout, where
they are; else there are only synthetic ones.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import alternate, heading, table
from contml.labels import SegmentationLabels

SIDE = 112
#: Surfaces of rooms_nyuv2 as classes; void is ignored.
SURFACES = {"wall": 0, "wall_mounted": 0, "floor": 1, "floor_cover": 1, "ceiling": 2, "object": 3, "void": 255}


def confusion(a: np.ndarray, b: np.ndarray, classes: int, ignore: int | None) -> float:
    """1 - mIoU of two maps `[P]`, as it is written everywhere."""
    if ignore is not None:
        keep = (a != ignore) & (b != ignore)
        a, b = a[keep], b[keep]
    matrix = np.bincount(classes * a + b, minlength=classes * classes).reshape(classes, classes)
    common = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - common
    return 1 - float((common[union > 0] / union[union > 0]).mean())


def loop(maps: np.ndarray, classes: int, ignore: int | None) -> Callable[[], np.ndarray]:
    """Every pair i < j by `confusion`, mirrored."""
    flat = maps.reshape(len(maps), -1).astype(np.int64)

    def run() -> np.ndarray:
        out = np.zeros((len(flat), len(flat)))
        for i in range(len(flat)):
            for j in range(i):
                out[i, j] = out[j, i] = confusion(flat[i], flat[j], classes, ignore)
        return out

    return run


def product(maps: np.ndarray, classes: int, ignore: int | None) -> Callable[[], Tensor]:
    """Batched float32 matrix products of one-hot masks, all pairs at once."""
    flat = torch.from_numpy(maps.reshape(len(maps), -1).astype(np.int64))
    masks = torch.stack([flat == c for c in range(classes) if c != ignore]).float()  # [C,N,P]
    valid = (flat != ignore).float() if ignore is not None else None

    def run() -> Tensor:
        common = masks @ masks.mT  # [C,N,N]
        if valid is None:
            areas = masks.sum(2)
            both = areas[:, :, None] + areas[:, None]
        else:
            inside = masks @ valid.T
            both = inside + inside.mT
        union = both - common
        iou = common / union.clamp(min=1)
        return 1 - iou.sum(0) / (union > 0).sum(0)

    return run


def ours(maps: np.ndarray, classes: int, ignore: int | None) -> Callable[[], Tensor]:
    view = SegmentationLabels(maps, classes, ignore, side=None)
    return view.pairwise


def synthetic(batch: int, classes: int, ignore: int | None) -> np.ndarray:
    """Maps `[N, 112, 112]` of regions around random points, as rooms are; 5 to 25 % of each ignored where asked for."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    maps = np.empty((batch, SIDE, SIDE), dtype=np.uint8)
    for one in maps:
        points = random.uniform(0, SIDE, (classes, 2))
        one[:] = (np.square(y - points[:, 0, None, None]) + np.square(x - points[:, 1, None, None])).argmin(0)
        if ignore is not None:
            top, left = random.integers(0, SIDE // 2, 2)
            high, wide = random.integers(SIDE // 4, SIDE // 2, 2)
            one[top : top + high, left : left + wide] = ignore
    return maps


def real(folder: Path, batch: int, lookup: np.ndarray) -> np.ndarray:
    """`batch` maps of a data set, evenly taken, at 112 x 112, their values looked up."""
    files = sorted((folder / "labels").glob("*.png"))
    files = [files[i] for i in np.linspace(0, len(files) - 1, batch).astype(int)]
    resized = [Image.open(file).resize((SIDE, SIDE), Image.Resampling.NEAREST) for file in files]
    maps: np.ndarray = lookup[np.stack([np.asarray(image) for image in resized])]
    return maps


def inputs(batch: int) -> dict[str, tuple[np.ndarray, int, int | None]]:
    """Maps, classes and ignore of each row of the table."""
    found: dict[str, tuple[np.ndarray, int, int | None]] = {
        "synthetic, 5 classes": (synthetic(batch, 5, None), 5, None),
        "synthetic, 5 classes, ignored regions": (synthetic(batch, 5, 255), 5, 255),
    }
    data = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if (data / "labelmaps_camvid").is_dir():
        found["camvid, 11 classes, ignored pixels"] = real(data / "labelmaps_camvid", batch, np.arange(256)), 11, 11
    if (data / "rooms_nyuv2").is_dir():
        lines = (data / "rooms_nyuv2" / "classes.csv").read_text().splitlines()
        surface = [line.split(",")[lines[0].split(",").index("surface")] for line in lines[1:]]
        lookup = np.full(256, 255)
        lookup[[int(line.split(",")[0]) for line in lines[1:]]] = [SURFACES[name] for name in surface]
        found["nyuv2, 4 surfaces, ignored pixels"] = real(data / "rooms_nyuv2", batch, lookup), 4, 255
        found["nyuv2, 39 classes, ignored pixels"] = real(data / "rooms_nyuv2", batch, np.arange(256)), 40, 0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=150, help="maps in the batch")
    batch = parser.parse_args().batch
    torch.set_num_threads(2)
    print(heading(f"Region distance, all pairs of a batch of {batch} maps of {SIDE} x {SIDE}"))
    head = ["maps", "ours", "us a pair i < j", "products", "confusion matrices", "products / ours", "confusion / ours"]
    rows = [[*head, "largest difference"]]
    for name, (maps, classes, ignore) in inputs(batch).items():
        forms = {"ours": ours(maps, classes, ignore), "product": product(maps, classes, ignore)}
        times = alternate(forms, rounds=11)
        slow = loop(maps, classes, ignore)
        start = time.perf_counter()
        expected = torch.from_numpy(slow())
        times["loop"] = time.perf_counter() - start
        found = [form().double() for form in forms.values()]
        difference = max(float((one - expected).abs().max()) for one in found)
        if difference > 1e-6:
            raise AssertionError(f"{name}: the forms differ by {difference:g}")
        rows.append(
            [
                name,
                f"{1e3 * times['ours']:.1f} ms",
                f"{1e6 * times['ours'] / (batch * (batch - 1) / 2):.2f}",
                f"{1e3 * times['product']:.0f} ms",
                f"{1e3 * times['loop']:,.0f} ms",
                f"{times['product'] / times['ours']:.0f}",
                f"{times['loop'] / times['ours']:.0f}",
                f"{difference:.0e}",
            ]
        )
    print(table(rows))


if __name__ == "__main__":
    main()
