"""How often 95 % intervals miss the truth, in drawn data: should be 5 %.

    python -m benchmarks.intervals [--save FILE]

**Groups.** The difference of two rankings has a mean of 0 over queries in G groups, ten queries per group on average.
Sizes are equal; "unequal": in proportion to 1, 1/2, 1/3, ...; "one of half": one group has half of the queries. A query
is the effect of its group alone (the worst case; "a third": the share of the group in the variance is 0.3). Effects
are normal, "heavy-tailed" (Student's t with three degrees of freedom) or "skewed" (exponential). In a cell:
1.96 standard errors / Student's t with G - 1 degrees of freedom / `contml.evaluation.half_width`. The first two are of
the usual variance by group, times G / (G - 1).

**Classes.** MAP@R and Recall@1 over all items of C classes, ten per class on average; each item searches all others.
Centres of classes are normal in 16 dimensions; the standard deviation around each is log-normal (median 1, standard
deviation of the logarithm 0.5). "Difference": to the same embeddings with noise, of the same items. Truth: the mean
over the draws; "new classes" are drawn each time, of "the same classes" only the items are (a closed set). In a cell:
`half_width` of independent queries / with each class as an item, as all results have it.

**Shared items.** 3 n pairs or triplets of n items, which each have a normal effect; noise with a standard deviation of
1. "One in half": one item is in half of all. "One of each half": the first item is one of n / 2, the second one of the
others, as a class and a group of a query, neither of which is part of the other. In a cell: 1.96 standard errors, of
the variance times n / (n - m) for m items / `half_width`.

**Shares.** The share of hits of ten pairs for each of four queries per group; groups differ (beta distribution, mean
0.9). A percentile bootstrap of the groups / `half_width`.

**Seeds and queries.** The mean over S seeds and G groups of queries; effects of groups, and of each seed on each group,
have a standard deviation of 0.5. "Standard deviation": that of the effects of seeds. In a cell: a bootstrap that draws
seeds and groups / the interval of `contml benchmark`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.measure import heading, table
from contml.app.trials.statistics import estimate
from contml.evaluation import evaluate, half_width
from contml.evaluation.metrics import title_of
from contml.labels import ClassLabels

Array: TypeAlias = "np.ndarray[Any, Any]"

GROUPS = (3, 5, 8, 12, 20, 50, 200)
ITEMS = (8, 12, 20, 40, 80, 200)
#: Data sets that are drawn for a cell: a miss of 5 % is measured to ± 1.7 %.
DRAWS = 600
#: Groups of queries of `contml benchmark`, and the standard deviations of seeds.
QUERIES, SEED_EFFECTS = (8, 20, 50, 200), (0.0, 0.05, 0.2, 0.5)
CLASSES, DIMENSIONS = (5, 10, 20, 50), 16
#: Draws of a bootstrap.
RESAMPLES = 500

EFFECTS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda random, count: random.standard_normal(count),
    "heavy-tailed": lambda random, count: random.standard_t(3, count),
    "skewed": lambda random, count: random.exponential(size=count) - 1,
}


def sizes(kind: str, groups: int) -> Array:
    """The number of queries of each group."""
    weights = 1 / np.arange(1, groups + 1) if kind == "unequal" else np.ones(groups)
    if kind == "one of half":
        weights[0] = groups - 1
    counts: Array = np.maximum(1, np.round(10 * groups * weights / weights.sum())).astype(int)
    return counts


def misses_of_groups(kind: str, effect: str, share: float, groups: int) -> list[float]:
    """Misses in percent of three intervals of a mean over queries in groups."""
    random, missed = np.random.default_rng(groups), np.zeros(3)
    group = np.repeat(np.arange(groups), sizes(kind, groups))
    items, t = torch.from_numpy(group[:, None]), _t(groups - 1)
    for _ in range(DRAWS):
        values = math.sqrt(share) * EFFECTS[effect](random, groups)[group]
        values += math.sqrt(1 - share) * random.standard_normal(len(group))
        mean = values.mean()
        error = _error(values, group) * math.sqrt(groups / (groups - 1))
        missed += abs(mean) > np.array([1.96 * error, t * error, half_width(values, items)])
    return [*map(float, 100 * missed / DRAWS)]


def misses_of_classes(kind: str, classes: int, *, new: bool) -> dict[tuple[str, str], list[float]]:
    """Misses in percent of two intervals, of independent queries and by class, by metric and by what is estimated.

    Args:
        kind: the sizes of the classes.
        classes: their number.
        new: each data set has classes of its own.
    """
    random = np.random.default_rng(classes)
    number = np.repeat(np.arange(classes), np.maximum(2, sizes(kind, classes)))
    labels, items = ClassLabels(torch.from_numpy(number)), torch.from_numpy(number[:, None])
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for draw in range(DRAWS):
        if new or not draw:
            centres = random.standard_normal((classes, DIMENSIONS))
            spreads = np.exp(0.5 * random.standard_normal((classes, 1)))
        x = centres[number] + spreads[number] * random.standard_normal((len(number), DIMENSIONS))
        noisy = x + 0.7 * random.standard_normal(x.shape)
        first, second = (evaluate(torch.from_numpy(each), labels, clusters=False).ranking for each in (x, noisy))
        for name in ("map_at_r", "recall@1"):
            values, others = (each.scores.get(name, each.values) for each in (first, second))
            for of, estimated in (("value", values), ("difference", values - others)):
                row = (float(estimated.mean()), half_width(estimated), half_width(estimated, items))
                found.setdefault((name, of), []).append(row)
    missed = {}
    for key, rows in found.items():
        means, halves = np.array(rows)[:, :1], np.array(rows)[:, 1:]
        missed[key] = [*map(float, 100 * (abs(means - means.mean()) > halves).mean(0))]
    return missed


def misses_of_items(width: int, kind: str, count: int) -> list[float]:
    """Misses in percent of two intervals of a mean over pairs or triplets of items."""
    random, missed = np.random.default_rng(count), np.zeros(2)
    chosen = np.stack([random.permutation(count)[:width] for _ in range(3 * count)])
    if kind == "one in half":
        chosen[::2] = np.stack([np.append(0, 1 + random.permutation(count - 1)[: width - 1]) for _ in chosen[::2]])
    if kind == "one of each half":
        chosen = np.stack([random.integers(0, count // 2, len(chosen)) + half for half in (0, count // 2)], 1)
    items = torch.from_numpy(chosen)
    share = (chosen[:, None, :, None] == chosen[None, :, None, :]).any((2, 3))  # [J, J]
    few = math.sqrt(count / (count - width))
    for _ in range(DRAWS):
        values = random.standard_normal(count)[chosen].sum(1) + random.standard_normal(len(chosen))
        residuals = values - values.mean()
        error = few * math.sqrt(max(residuals @ share @ residuals, residuals @ residuals)) / len(values)
        missed += abs(values.mean()) > np.array([1.96 * error, half_width(values, items)])
    return [*map(float, 100 * missed / DRAWS)]


def misses_of_shares(spread: float, groups: int) -> list[float]:
    """Misses in percent of two intervals of a share, of pairs of queries in groups."""
    random, missed = np.random.default_rng(groups), np.zeros(2)
    items = torch.arange(groups).repeat_interleave(4)[:, None]
    for _ in range(DRAWS):
        values = random.binomial(10, random.beta(0.9 * spread, 0.1 * spread, groups).repeat(4)) / 10
        drawn = values.reshape(groups, 4).mean(1)[random.integers(0, groups, (RESAMPLES, groups))].mean(1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        missed += not low <= 0.9 <= high, abs(values.mean() - 0.9) > half_width(values, items)
    return [*map(float, 100 * missed / DRAWS)]


def misses_of_seeds(seeds: int, effect: float, groups: int) -> list[float]:
    """Misses in percent of two intervals over seeds and groups of queries."""
    random, missed = np.random.default_rng(groups), np.zeros(2)
    drawn_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES)
    drawn_groups = random.multinomial(groups, np.full(groups, 1 / groups), RESAMPLES)
    for _ in range(DRAWS):
        values = effect * random.standard_normal((seeds, 1)) + 0.5 * random.standard_normal(groups)
        values = values + 0.5 * random.standard_normal((seeds, groups))
        drawn = ((drawn_seeds @ values) * drawn_groups).sum(1) / (seeds * groups)
        low, high = np.quantile(drawn, (0.025, 0.975))
        found = estimate([values], [range(groups)])
        missed += not low <= 0 <= high, not found.low <= 0 <= found.high
    return [*map(float, 100 * missed / DRAWS)]


def _error(values: Array, group: Array) -> float:
    """The standard error of a mean by group, at least that of independent values."""
    residuals = values - values.mean()
    return math.sqrt(max((np.bincount(group, residuals) ** 2).sum(), residuals @ residuals)) / len(values)


def _t(degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))


def _cell(misses: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in misses)


def tables() -> str:
    """The five tables."""
    groups = [["sizes", "effects", *(f"G = {count}" for count in GROUPS)]]
    for kind in ("equal", "unequal", "one of half"):
        for effect, share in (("normal", 1.0), ("normal", 0.3), ("heavy-tailed", 1.0), ("skewed", 1.0)):
            name = effect if share == 1 else f"{effect}, a third"
            groups.append([kind, name, *(_cell(misses_of_groups(kind, effect, share, count)) for count in GROUPS)])
    classes = [["", "of", *(f"C = {count}" for count in CLASSES)]]
    for new in (True, False):
        for kind in ("equal", "unequal"):
            missed = [misses_of_classes(kind, count, new=new) for count in CLASSES]
            for metric, of in missed[0]:
                head = f"{'new' if new else 'the same'} classes, sizes {kind}"
                classes.append([head, f"{title_of(metric)}, {of}", *(_cell(each[metric, of]) for each in missed)])
    items = [["", "items", *(f"n = {count}" for count in ITEMS)]]
    for width, name in ((2, "pairs"), (3, "triplets")):
        for kind in ("drawn equally", "one in half", *(["one of each half"] if width == 2 else [])):
            items.append([name, kind, *(_cell(misses_of_items(width, kind, count)) for count in ITEMS)])
    shares = [["groups differ", *(f"G = {count}" for count in (9, 12, 20, 50, 200))]]
    for spread, name in ((20.0, "a little"), (5.0, "much")):
        shares.append([name, *(_cell(misses_of_shares(spread, count)) for count in (9, 12, 20, 50, 200))])
    seeds = [["seeds", "standard deviation", *(f"G = {count}" for count in QUERIES)]]
    for count in (3, 5):
        for deviation in SEED_EFFECTS:
            cells = [_cell(misses_of_seeds(count, deviation, number)) for number in QUERIES]
            seeds.append([f"{count}", f"{deviation:g}", *cells])
    parts = {
        "Groups": groups,
        "Classes": classes,
        "Shared items": items,
        "Shares": shares,
        "Seeds and queries": seeds,
    }
    return "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in parts.items())


def main() -> None:
    """Draw, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the tables to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = tables()
    print(found)
    if given.save is not None:
        text = f"{heading('How often 95 % intervals miss')}\n{__doc__}\n"
        text += f"Percent of {DRAWS:,} drawn data sets.\n\n{found}\n"
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
