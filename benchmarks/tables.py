"""Writes the numbers of tables in pages from the recorded trainings.

    python -m benchmarks.tables

A table is found by a text before it. The first number of each cell of a row is written again, with as many decimals as
it has; all else stays. A row that is not known is an error, and so is a missing one.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.captioning import over_seeds_and_images
from contml._support.errors import InputError
from contml.app.trials.plan import UNIT
from contml.app.trials.suite import read_suite

ROOT = Path(__file__).parents[1]
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d+\.(\d+)")

#: Rows of losses on graded labels in the preset, and their names in its file.
GRADED = {
    "log-ratio (`log_ratio`)": "log_ratio",
    "smooth ranks (`smooth_rank`, `metric: ap`)": "smooth_rank",
    "graded cross entropy (`graded_instance_cross_entropy`)": "graded_instance_cross_entropy",
    "triplets (`triplet_margin`; positives: the 30 nearest labels)": "triplet_margin",
    "prediction of the label, not a loss of contml": "regression",
    "untrained features": "MobileNetV2, 224 px",
}
#: Networks that a captioner starts from.
NETWORKS = {
    "ImageNet, as it is": "ImageNet",
    "caption distances, log-ratio loss": "log-ratio",
    "caption distances, dense triplets": "dense triplets",
    "shuffled captions, log-ratio loss": "shuffled log-ratio",
    "cross entropy of a captioner": "cross entropy",
}
#: Data sets with planted errors of labels, and the columns of each.
PLANTED = {
    "poses (2,000)": ("pose_lspet", "audit, loss"),
    "rooms (777)": ("rooms_nyuv2", "audit, loss"),
    "captions (1,091)": ("flickr8k_1500", "audit, loss"),
    "house prices (1,400)": ("houses_535", "audit, loss"),
    "house prices: cleanlab, no audit": ("houses_535", "cleanlab"),
}


class Table(NamedTuple):
    """A table of a page, after a text: the numbers of the cells of each row."""

    page: str
    after: str
    rows: Mapping[str, Sequence[float]]


def tables() -> Iterator[Table]:
    """Yield the tables that are written."""
    yield Table("README.md", "| loss | poses | rooms |", {title: preset(name) for title, name in GRADED.items()})
    found = dict[str, list[float]]((title, []) for title in PLANTED)
    for title, (pack, names) in PLANTED.items():
        for kind in ("swaps", "noise"):
            trained = [each["metrics"] for each in lines("label_errors") if each["key"][:2] == [pack, kind]]
            found[title] += [statistics.mean(row[name] for row in trained) for name in names.split(", ")]
    yield Table("docs/audit.md", "| | audit, swaps |", found)
    yield Table("docs/captioning.md", "| initial network | CIDEr-D |", captioners())


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """Return the recorded trainings of a benchmark."""
    path = ROOT / f"benchmarks/results/raw/{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@cache
def suite_scores(name: str, score: str = "") -> dict[tuple[str, str], float]:
    """Return the mean score on the test split of each set and method of a suite: the first score, or another one."""
    values: dict[tuple[str, str], list[float]] = {}
    for each in lines(name):
        kind, method, _, _, split, _ = json.loads(each["key"])
        if split == "test":
            value = statistics.mean(each["others"][score]) / UNIT if score else each["value"]
            values.setdefault((kind, method), []).append(value)
    return {key: statistics.mean(found) for key, found in values.items()}


def preset(variant: str) -> list[float]:
    """Return the mean score of a loss in the preset on each set, and the mean of these; of a network: untrained."""
    key = "features" if variant.startswith("MobileNetV2") else "model"
    found = [
        statistics.mean(
            score for row in lines("presets") if (row["variant"], row["set"]) == (variant, name) for score in row[key]
        )
        for name in ("poses", "rooms", "captions", "houses")
    ]
    return [*found, statistics.mean(found)]


def suite_means(name: str, method: str, score: str = "") -> list[float]:
    """Return the mean score of a method on each set in order, and the mean of these."""
    own, scores = ROOT / f"benchmarks/suites/{name}.yaml", suite_scores(name, score)
    sets = read_suite(str(own) if own.exists() else name).sets  # records have them in the order of their trainings
    found = [scores[kind, method] for kind in sets if (kind, method) in scores]
    return [*found, statistics.mean(found)] if found else []


def over_draws(name: str, method: str, score: str = "") -> list[float]:
    """Return the mean score of a method on each set, over the draws of its validation split, and the mean of these."""
    values: dict[str, list[float]] = {}
    for (kind, trained), value in suite_scores(name, score).items():
        if trained == method:
            values.setdefault(kind.partition(", draw")[0], []).append(value)
    found = [
        statistics.mean(values[kind])
        for kind in read_suite(str(ROOT / f"benchmarks/suites/{name}.yaml")).sets
        if kind in values
    ]
    return [*found, statistics.mean(found)] if found else []


def captioners() -> dict[str, list[float]]:
    """Return CIDEr-D of the captioners that start from each network, and the differences to two of the networks."""
    tests = [each for each in lines("captioning_controls") if each["key"][3] == "test"]
    by_seed = sorted(tests, key=lambda each: each["key"][2])
    found = {
        title: [each["metrics"] for each in by_seed if each["key"][0] == f"lstm, {network}"]
        for title, network in NETWORKS.items()
    }
    references = [found[title] for title, network in NETWORKS.items() if network in ("ImageNet", "shuffled log-ratio")]
    cells = {
        title: [
            over_seeds_and_images(own),
            *(over_seeds_and_images(own, other) for other in references if other != own),
        ]
        for title, own in found.items()
    }
    return {title: [float(number) for cell in row for number in cell.split(" ± ")] for title, row in cells.items()}


def written(text: str, table: Table) -> str:
    """Return the text of a page with the numbers of a table.

    Raises:
        InputError: the table is not there, or a row is not known or has another number of numbers.
    """
    head, found, rest = text.partition(table.after)
    before, start, body = rest.partition("|---")
    if not found or not start:
        raise InputError(table.page, f"no table after {table.after!r}")
    first, *rows = body.split("\n")
    for number, line in enumerate(rows):
        if not line.startswith("|"):
            break
        title, *cells = line[1:].removesuffix("|").split("|")
        values = list(table.rows.get(title.strip(), ()))
        # An interval in brackets is one of the page of results.
        parts = [cell.partition(" [") for cell in cells]
        if sum(len(_NUMBER.findall(shown)) for shown, *_ in parts) != len(values) or not values:
            raise InputError(f"{table.page}: {title.strip()}", f"{len(values)} numbers are known", "must be as many")
        for at, (shown, *rest_of_cell) in enumerate(parts):
            cells[at] = "".join((_NUMBER.sub(partial(_as, values), shown), *rest_of_cell))
        rows[number] = "|".join(["", title, *cells, ""])
    return head + found + before + start + "\n".join([first, *rows])


def _as(values: list[float], found: re.Match[str]) -> str:
    """Return the next number with the decimals and the sign of what is printed."""
    printed, value = found[0], values.pop(0)
    decimals = len(printed.partition(".")[2])
    return f"{value:{'+' if printed[0] in '+-' else ''}.{decimals}f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the pages")
    root = parser.parse_args(arguments).root
    for table in tables():
        path = root / table.page
        path.write_text(written(path.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
