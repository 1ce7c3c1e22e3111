"""The cost of many judgments: `contml check` of tables of a million rows.

    python -m benchmarks.judged_rows [--rows 1000 1000000] [--items 20000] [--only FORM ...] [--save FILE]

Judgments are drawn at random, and so are the small images of the items. `contml check` runs in a process of its own: it
reads the table, divides the judgments into training, validation and test, plans batches, takes a few training steps
of `small_cnn`, and looks for images that are there twice. Processor time is user and system time of the process, on one
thread; memory is its largest resident set. A table of 1,000 rows has the same imports and the same network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measure import heading, table

FORMS = {"pairs": "a,b,score", "triplets": "anchor,x,y,choice", "rankings": "query,item,grade"}


def write_images(folder: Path, items: int) -> None:
    """Images `[items]` of 16 x 16 random pixels."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for n in range(items):
        Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{n}.png")


def write_judgments(path: Path, form: str, rows: int, items: int) -> None:
    """Judgments of random items: scores 0 to 10, one of two items, or grades 0 to 3 of about 50 items of each query."""
    random = np.random.default_rng(1)
    anchors = random.integers(0, max(2, min(items, rows // 50)) if form == "rankings" else items, rows)
    steps = np.sort(random.integers(0, items - 2, (rows, 2)), axis=1) + np.array([1, 2])  # to two different others
    others = (anchors[:, None] + steps) % items
    names = np.array([f"images/{n}.png" for n in range(items)])
    columns = [names[anchors], names[others[:, 0]]]
    if form == "triplets":
        columns += [names[others[:, 1]], np.array(["x", "y"])[random.integers(0, 2, rows)]]
    else:
        columns.append(random.integers(0, 11 if form == "pairs" else 4, rows).astype(str))
    lines = [FORMS[form], *map(",".join, zip(*(column.tolist() for column in columns), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def measure(command: list[str]) -> tuple[float, float]:
    """The seconds of processor time and the gigabytes of memory of a command.

    Raises:
        RuntimeError: it fails.
    """
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)}: status {os.waitstatus_to_exitcode(status)}")
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)  # bytes on macOS
    return used.ru_utime + used.ru_stime, kilobytes / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 1_000_000])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    found = [["judgments", "rows", "processor time", "largest memory"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images", given.items)
        for form in given.only:
            for rows in given.rows:
                path = folder / "judgments.csv"
                write_judgments(path, form, rows, given.items)
                seconds, gigabytes = measure([sys.executable, "-m", "contml", "check", "--data", str(path)])
                found.append([form, f"{rows:,}", f"{seconds:.1f} s", f"{gigabytes:.2f} GB"])
                print(" | ".join(found[-1]), flush=True)
    if given.save is not None:
        given.save.write_text(f"{heading('The cost of many judgments')}\n{__doc__}\n{table(found)}\n")


if __name__ == "__main__":
    main()
