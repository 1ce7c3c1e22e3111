"""The result by label, where the label distance is a sum over several, and by group of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.text import percent, value_text
from contml.data.split import Split
from contml.evaluation.results import Ranking
from contml.evaluation.retrieval import evaluate
from contml.labels.weighted import WeightedLabels

#: Groups that a page shows: the worst.
_GROUPS = 10


def label_rows(split: Split, ranking: Ranking, missing: Tensor | None = None) -> list[list[str]]:
    """The same ranking measured by each label alone: its unit, metric, model, random, oracle, normalized score.

    Items without this label are neither queries nor ranked. Empty if there is only one label, or if one of them is in
    too few items.
    """
    labels = split.labels
    if not isinstance(labels, WeightedLabels):
        return []
    rows = []
    unread = torch.zeros(0, dtype=torch.long) if missing is None else missing.cpu()
    for n, space in enumerate(labels.spaces):
        unlabelled_rows = unread[:0] if labels.present is None else (~labels.present[:, n]).nonzero()[:, 0].cpu()
        missing_rows = torch.unique(torch.cat((unread, unlabelled_rows)))
        evaluation, _ = evaluate(
            ranking.embeddings,
            space,
            split.queries,
            split.gallery,
            missing=missing_rows,
            clusters=False,
            groups=split.groups,
            exclude_group=split.exclude_group and space.class_ids is None,
        )
        name, score = evaluation.headline, evaluation.main
        values = [evaluation.text(name, x, unit=False) for x in (score.model, score.random, score.oracle)]
        rows.append([space.unit, evaluation.titled(name, score.title), *values, percent(score.normalized())])
    return rows


def group_rows(split: Split, ranking: Ranking) -> tuple[int, list[list[str]]]:
    """The number of groups of queries, and the worst: name, queries, and the mean of the main metric of their queries.

    The groups are those of the split, named by its metadata or else by their first item; where labels are classes, the
    classes.
    """
    classes = split.labels.class_ids
    group_ids = split.groups if classes is None else classes.cpu()
    if group_ids is None or not len(ranking.queries):
        return 0, []
    unique_groups, position, counts = torch.unique(group_ids[ranking.queries], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(unique_groups), dtype=torch.float64).index_add_(0, position, ranking.values.double())
    means = sums / counts
    if len(unique_groups) < 2:
        return len(unique_groups), []
    rows = []
    for n in means.argsort(descending=classes is None, stable=True)[:_GROUPS].tolist():
        first_row = int((group_ids == unique_groups[n]).nonzero()[0, 0])
        name = _group_name(split, first_row) if classes is None else split.labels.text(first_row)
        rows.append([name, f"{int(counts[n]):,}", _value(float(means[n]), split)])
    return len(unique_groups), rows


def has_group_names(split: Split) -> bool:
    """Whether a split knows the name of each group."""
    return split.group_name in split.metadata


def _group_name(split: Split, row: int) -> str:
    value = split.metadata[split.group_name][row] if has_group_names(split) else None
    if value is None:
        return split.name(row)
    return value_text(value) if isinstance(value, float) else str(value)


def _value(value: float, split: Split) -> str:
    return percent(value) if split.labels.class_ids is not None else split.labels.measure.text(value)
