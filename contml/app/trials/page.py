"""The page of a benchmark: means over the sets, and a table per set, with intervals over seeds and queries."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from contml import InputError
from contml.app.trials.plan import UNIT, Cell, data_key, value
from contml.app.trials.record import Result
from contml.app.trials.statistics import Array, Estimate, estimate, holm
from contml.app.trials.suite import SCORES, Suite
from contml.app.trials.table import markdown

#: The text on intervals on the page of a suite with one seed.
ONE_SEED = "There is one seed: what another seed would change is not in the intervals."


@dataclass(frozen=True)
class SetScores:
    """The scores of the methods on a set whose trainings are finished.

    Attributes:
        name: the set.
        scores: of each method `[S, Q]`.
        groups: the group of each query `[Q]`, or its items `[Q, m]`.
        data: a key of the queries (`contml.app.trials.plan.data_key`).
    """

    name: str
    scores: Mapping[str, Array]
    groups: Sequence[int] | Sequence[Sequence[int]]
    data: str


def _estimated(sets: Sequence[SetScores], method: str, less: str | None = None) -> Estimate:
    """Estimate the mean score of a method over sets, or the mean difference to another method."""
    values = [each.scores[method] - (0 if less is None else each.scores[less]) for each in sets]
    return estimate(values, [each.groups for each in sets], [each.data for each in sets])


def set_scores(
    suite: Suite, found: Sequence[Cell], results: Mapping[str, Result], score: str | None = None
) -> list[SetScores]:
    """Return the scores of the sets, for the methods that are finished. A set without such a method is left out.

    Args:
        suite: the suite.
        found: the cells.
        results: the finished trainings.
        score: a score of the suite. Default: the first one.

    Raises:
        InputError: the methods of a set were measured on other queries, or in another order.
    """
    scores = list[SetScores]()
    for set_name in dict.fromkeys(cell.set_name for cell in found):
        part = [cell for cell in found if cell.set_name == set_name and cell.finished(results)]
        tests = {cell.method_name: [results[item.key] for item in cell.tests(results)] for cell in part}
        for key in ("groups", "items"):
            if len({str(result[key]) for found in tests.values() for result in found if key in result}) > 1:
                got = "its methods were measured on different queries, or in another order of them"
                raise InputError(f"results of {set_name}", got, hint="delete the older lines from raw/SUITE.jsonl")
        groups = next((result["groups"] for found in tests.values() for result in found if "groups" in result), None)
        if groups is None:
            continue
        matrices = {name: _matrix(found, score or suite.scores[0], suite, len(groups)) for name, found in tests.items()}
        scores.append(SetScores(set_name, matrices, groups, data_key(suite, set_name, drawn=False)))
    return scores


def _matrix(found: Sequence[Result], score: str, suite: Suite, queries: int) -> Array:
    """Return a score of each seed and query `[S, Q]`. It is 0 if a training failed.

    A baseline has one score for all seeds.
    """
    first = score == suite.scores[0]
    parts = [each if first or "error" in each else {"queries": each["others"][score]} for each in found]
    rows = [np.array([0] * queries if "error" in each else each["queries"], float) / UNIT for each in parts]
    return np.stack([rows[n % len(rows)] for n in range(len(suite.seeds))])


def page(suite: Suite, found: Sequence[Cell], results: Mapping[str, Result], head: str) -> str:
    """Return the page, in Markdown.

    Args:
        suite: the suite.
        found: the cells that it shows.
        results: the finished trainings.
        head: the text below the title: the date, and the progress.
    """
    scores = set_scores(suite, found, results)
    lines = [f"# {suite.title}", "", f"{head} A method is shown where all of its trainings are done.", ""]
    lines += [_protocol(suite), ""]
    complete = complete_sets(found, scores)
    if suite.claims:
        lines += ["## Published orderings", "", _claims(suite, found, results), ""]
    if complete:
        lines += ["## Overview", "", _overview(suite, complete), ""]
        for name in suite.scores[1:]:
            others = complete_sets(found, set_scores(suite, found, results, name))
            lines += [f"## Overview: {SCORES[name].title}", "", _overview(suite, others), ""]
    for each in scores:
        part = [cell for cell in found if cell.set_name == each.name and cell.method_name in each.scores]
        lines += [f"## {each.name}", "", _table(suite, each, part, results), ""]
    return "\n".join(lines)


def complete_sets(found: Sequence[Cell], scores: Sequence[SetScores]) -> list[SetScores]:
    """Return the sets whose methods are all finished."""
    methods = {each.name: {cell.method_name for cell in found if cell.set_name == each.name} for each in scores}
    return [each for each in scores if methods[each.name] <= each.scores.keys()]


def _protocol(suite: Suite) -> str:
    fixed = "" if SCORES[suite.scores[0]].classes else "The denominator of the score is fixed. "
    further = (
        f", then {suite.further} more around the best one. If the best number is at the edge of its grid, up to two of "
        "these are beyond the edge. The others are between the best number and its neighbours."
    )
    several = len(suite.seeds) > 1
    seeds = f"seed{'s' if several else ''} {', '.join(map(str, suite.seeds))}"
    return (
        f"Each trained method tries {suite.trials} options with seed 0 on the validation split"
        f"{further if suite.further else '.'} The best option is trained with {seeds}, and its last weights are "
        f"measured on the test split.\n\n"
        f"{_of_scores(suite)} Brackets: 95 % intervals over {'seeds and ' if several else ''}queries (or "
        f"groups of queries), by Student's t. {fixed}No interval covers the choice of options. The interval of a mean "
        f"is valid for these sets only. {'' if several else f'{ONE_SEED} '}Differences to {suite.reference} are paired "
        "by seed and query. p: two-sided, by Holm's correction over the methods of a table. Seconds: of one core."
    )


def _of_scores(suite: Suite) -> str:
    """Describe the queries, and their scores."""
    first, *others = (SCORES[name] for name in suite.scores)
    groups = "; the queries of a class are a group" if first.classes else ", without its own group"
    text = f"Every item is a query against all other items{groups}. Score: {first.meaning}."
    return " ".join([text, *(f"Also {other.meaning}." for other in others)])


#: The verdicts on a claim.
HOLDS, REVERSED, UNDECIDED = "holds", "does not hold", "undecided"


def _claims(suite: Suite, found: Sequence[Cell], results: Mapping[str, Result]) -> str:
    """Return the published orderings with a verdict by each score."""
    tables = {name: {each.name: each for each in set_scores(suite, found, results, name)} for name in suite.scores}
    titles = [SCORES[name].title for name in suite.scores]
    head = [f"{part}{title}" for title in titles for part in ("", "verdict by ")]
    rows = [["ordering", "published", "source", *head]]
    verdicts = {name: claim_verdicts(suite, tables[name]) for name in suite.scores}
    for n, claim in enumerate(suite.claims):
        cells = [f"{claim.better} > {claim.worse}", claim.published, claim.source]
        for name in suite.scores:
            cells += verdicts[name][n]
        rows.append(cells)
    counts = []
    for name, title in zip(suite.scores, titles, strict=True):
        of = Counter(verdict for _, verdict in verdicts[name])
        counts.append(f"by {title}, {of[HOLDS]} hold, {of[REVERSED]} do not, {of[UNDECIDED]} are undecided")
    return (
        "The first method of an ordering is better in its source. The columns of scores have the difference of the two "
        "methods on each finished set, and the interval of the mean over these. An ordering holds if the mean "
        f"difference is above 0 with p < 0.05 by Holm's correction over all orderings; it does not hold if it is below "
        f"0 with such a p; else it is undecided: the difference may be chance.\n\n"
        f"{markdown(rows)}\n\nOf all orderings: {'; '.join(counts)}."
    )


def claim_verdicts(suite: Suite, scores: Mapping[str, SetScores]) -> list[tuple[str, str]]:
    """Return the differences of each claim of a suite as a text, and the verdict on the claim.

    Args:
        suite: the suite.
        scores: the sets by name, of one score.
    """
    found, shown = list[Estimate | None](), list[str]()
    for claim in suite.claims:
        both = {claim.better, claim.worse}
        names = [name for name in suite.sets_of_claim(claim) if name in scores and both <= set(scores[name].scores)]
        if not names:
            found.append(None)
            shown.append("-")
            continue
        sets = [scores[name] for name in names]
        values = [float((each.scores[claim.better] - each.scores[claim.worse]).mean()) for each in sets]
        of_mean = _estimated(sets, claim.better, claim.worse)
        found.append(of_mean)
        parts = ", ".join(f"{name} {value:+.3f}" for name, value in zip(names, values, strict=True))
        mean = f"; mean {of_mean.mean:+.3f}" if len(sets) > 1 else ""
        shown.append(f"{parts}{mean} [{of_mean.low:+.3f}, {of_mean.high:+.3f}]")
    corrected = iter(holm([each.p for each in found if each is not None]))
    verdicts = list[str]()
    for each in found:
        if each is None:
            verdicts.append("not measured yet")
        elif next(corrected) >= 0.05:
            verdicts.append(UNDECIDED)
        else:
            verdicts.append(HOLDS if each.mean > 0 else REVERSED)
    return list(zip(shown, verdicts, strict=True))


def _overview(suite: Suite, sets: Sequence[SetScores]) -> str:
    """Return a table of scores and mean of the methods that all sets have, then of the others, which have no mean."""
    everywhere = [name for name in suite.methods if all(name in each.scores for each in sets)]
    somewhere = [name for name in suite.methods if any(name in each.scores for each in sets) and name not in everywhere]
    means = {name: _estimated(sets, name) for name in everywhere}
    differences = _differences(suite.reference, everywhere, sets)
    rows = [["method", *(each.name for each in sets), "mean", f"less {suite.reference}", "p"]]
    for name in sorted(everywhere, key=lambda name: -means[name].mean):
        shown = [f"{each.scores[name].mean():.3f}" for each in sets]
        rows.append([name, *shown, _score_cell(means[name]), *_difference_cells(differences.get(name))])
    for name in somewhere:
        shown = [f"{each.scores[name].mean():.3f}" if name in each.scores else "-" for each in sets]
        rows.append([name, *shown, "-", "-", "-"])
    lines = [markdown(rows), "", _tied(means, sets)]
    if len({each.data for each in sets}) < len(sets):
        lines += ["", "Sets of the same items are one data set: their scores are averaged by seed and query."]
    return "\n".join(lines)


Differences: TypeAlias = dict[str, tuple[Estimate, float]]


def _differences(reference: str, methods: Sequence[str], sets: Sequence[SetScores]) -> Differences:
    """Return the difference of each other method to the reference, and its corrected p-value."""
    if reference not in methods:
        return {}
    others = [name for name in methods if name != reference]
    found = [_estimated(sets, name, reference) for name in others]
    return dict(zip(others, zip(found, holm([each.p for each in found]), strict=True), strict=True))


def _score_cell(score: Estimate) -> str:
    return f"{score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]"


def _difference_cells(found: tuple[Estimate, float] | None) -> list[str]:
    if found is None:
        return ["-", "-"]
    difference, p = found
    return [f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]", f"{p:.3f}"]


def _tied(means: Mapping[str, Estimate], sets: Sequence[SetScores]) -> str:
    """Describe the methods that the interval does not distinguish from the best one.

    The intervals are not corrected for several comparisons.
    """
    best = max(means, key=lambda name: means[name].mean)
    tied = [name for name in means if name != best and not _estimated(sets, best, name).low > 0]
    return f"Within noise of {best} (the 95 % interval of the difference contains 0): {', '.join(tied) or 'none'}."


#: Notes below a table.
_EDGES = "Chosen at the edge of the search range (the optimum may lie beyond)"
_EQUAL = "Trials with the same score as an earlier trial, probably the same training"
_DIVERGED = "Trials that diverged"
_LEFT_OUT = "A training leaves out those whose image is in the split that it is measured on."
#: Columns of graded labels, and their names in a result.
_METRICS = {"label distance@10": "label_distance", "Spearman": "spearman", "Kendall": "kendall"}


def _table(suite: Suite, each: SetScores, part: Sequence[Cell], results: Mapping[str, Result]) -> str:
    means = {name: _estimated([each], name) for name in each.scores}
    differences = _differences(suite.reference, [*means], [each])
    queries = len(each.groups)
    first, *others = suite.scores
    head = ["method", "chosen option", "validation", SCORES[first].title, f"less {suite.reference}", "p"]
    metrics = [] if SCORES[first].classes else [name for name in _METRICS if _METRICS[name] not in others]
    rows = [[*head, *(SCORES[name].title for name in others), *metrics, "seconds"]]
    notes: dict[str, list[str]] = {_EDGES: [], _EQUAL: [], _DIVERGED: []}
    for cell in sorted(part, key=lambda cell: -means[cell.method_name].mean):
        name, trials, tests = cell.method_name, cell.trials(results), cell.tests(results)
        options = tests[0].options
        found, tried = ([results[item.key] for item in items] for items in (tests, trials))
        shown = [f"{_matrix(found, other, suite, queries).mean():.3f}" for other in others]
        shown += [_mean(found, _METRICS[name]) for name in metrics]
        seconds = statistics.median(float(result["seconds"]) for result in found)
        score_cells = [_score_cell(means[name]), *_difference_cells(differences.get(name))]
        rows.append([name, options or "-", f"{max(map(value, tried)):.3f}", *score_cells, *shown, f"{seconds:.1f}"])
        if at_edge := cell.method.at_edge(options, [item.options for item in trials]):
            notes[_EDGES].append(f"{name} ({', '.join(at_edge)})")
        if failed := sum("error" in each for each in tried):
            notes[_DIVERGED].append(f"{name} {failed}")
        if equal := len(tried) - failed - len({value(each) for each in tried if "error" not in each}):
            notes[_EQUAL].append(f"{name} {equal} of {len(tried)}")
    lines = [markdown(rows), "", f"{queries:,} queries. {_tied(means, [each])}"]
    if chosen_on := suite.sets[each.name].options_of:
        lines.append(f"The options were chosen on {chosen_on}; the column 'validation' is of that set.")
    if copies := suite.sets[each.name].copies:
        lines.append(f"{copies} items have an image that is also in another split. {_LEFT_OUT}")
    lines += [f"{text}: {', '.join(names)}." for text, names in notes.items() if names]
    return "\n".join(lines)


def _mean(found: Sequence[Result], metric: str) -> str:
    known = [float(result[metric]) for result in found if metric in result]
    return f"{statistics.mean(known):.3f}" if known else "-"
