"""The commands of the README's section "From photographs to search"."""

from __future__ import annotations

import re
import shutil

from support.paths import ROOT
from support.tables import dials, write_table

SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## From photographs to search\n")[1].split("\n## ")[0]


def commands():
    """The lines that start with `contml`, without their remarks."""
    (block,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    return [line.split("  #")[0] for line in block.splitlines() if line.startswith("contml ")]


def houses(folder):
    """A table items.csv of pictures in photos, each with a price and a house, and a query.jpg."""
    rows = dials(folder)
    (folder / "img").rename(folder / "photos")
    photos = [f"photos/{number:03}.png" for number in range(len(rows))]
    table = [
        {"image": each, "price": row["reading"], "house": row["maker"]} for each, row in zip(photos, rows, strict=True)
    ]
    write_table(folder / "items.csv", table)
    shutil.copy(folder / photos[0], folder / "query.jpg")


def with_run(words, folder):
    """The words of a command, with the last run folder in place of RUN."""
    runs = sorted(path.parent for path in folder.glob("runs/*/*/*/config.yaml"))
    return [str(runs[-1].relative_to(folder)) if word == "RUN" else word for word in words]
