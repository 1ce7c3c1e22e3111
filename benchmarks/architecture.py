"""The picture of docs/architecture.md: the packages, their code lines, and what imports what.

    python -m benchmarks.architecture --plot docs/architecture.png

The rows are the layers of the import contract in pyproject.toml. An arrow goes from a package to a package below that
it imports, unless it also imports that one through others. Arrows to the last row, which most import, are omitted.
"""

from __future__ import annotations

import argparse
import runpy
import tomllib
from collections import Counter
from pathlib import Path

import grimp
import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from contml.app.report.plots import BLUE, DPI, STYLE, png

ROOT = Path(__file__).parents[1]
#: Packages that nearly all others import.
EVERYWHERE = ["work", "processes", "contracts", "_support"]
COLOURS = {"app": "#fbe3c8", "search": "#d6ecd2", "captioning": "#eadcf0"}
CORE = "#d9e8f5"


def layers() -> list[list[str]]:
    """The packages by layer, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = [row.split(" | ") for row in contracts["contracts"][0]["layers"]]
    return [*(row for row in rows if not {"__main__", *EVERYWHERE} & {*row}), EVERYWHERE]


def sizes() -> Counter[str]:
    """The code lines of each package."""
    code_lines = runpy.run_path(str(ROOT / ".ci" / "size"))["code_lines"]
    found = Counter[str]()
    for path in (ROOT / "contml").rglob("*.py"):
        parts = path.relative_to(ROOT / "contml").with_suffix("").parts
        if parts[0] not in {"tasks", "configs"}:
            found[parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    return found


def arrows() -> list[tuple[str, str]]:
    """The imports between packages, without imports that follow from others."""
    graph = grimp.build_graph("contml", exclude_type_checking_imports=True)
    level = {name: n for n, row in enumerate(layers()[:-1]) for name in row}
    below: dict[str, set[str]] = {}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            ends = [name.split(".")[1] for name in (module, other) if "." in name]
            if len(ends) == 2 and {*ends} <= level.keys() and level[ends[0]] < level[ends[1]]:
                below.setdefault(ends[0], set()).add(ends[1])

    def reached(name: str) -> set[str]:
        return below.get(name, set()).union(*(reached(other) for other in below.get(name, ())))

    return [(a, b) for a, found in below.items() for b in found if not any(b in reached(c) for c in found - {b})]


def picture() -> Figure:
    """The layers from top to bottom, a box for each package."""
    rows, lines = layers(), sizes()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 0.62 * len(rows) + 0.5), dpi=DPI)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, 9)
        axes.set_ylim(-len(rows), 0.3)
        centre = dict[str, tuple[float, float]]()
        for n, row in enumerate(rows):
            width = min(2.6, 6.6 / len(row))
            for m, name in enumerate(row):
                aside = 0 if len(row) > 3 else 0.9 if n % 2 else -0.9
                left = 4.5 + (m - len(row) / 2) * width + aside
                centre[name] = (left + width / 2, -n - 0.3)
                box = FancyBboxPatch(
                    (left + 0.08, -n - 0.54),
                    width - 0.16,
                    0.48,
                    boxstyle="round,pad=0.02",
                    facecolor=COLOURS.get(name, CORE),
                    edgecolor="#666666",
                    linewidth=0.8,
                    zorder=3,
                )
                axes.add_patch(box)
                axes.text(*centre[name], f"{name}  {lines[name]:,}", ha="center", va="center", fontsize=8.5, zorder=4)
        for start, end in arrows():
            if {start, end} <= centre.keys():
                (x, y), (u, v) = centre[start], centre[end]
                axes.annotate(
                    "", (u, v + 0.26), (x, y - 0.26), arrowprops={"arrowstyle": "-|>", "color": BLUE}, zorder=2
                )
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, required=True, metavar="FILE", help="the picture")
    parser.parse_args().plot.write_bytes(png(picture()))
