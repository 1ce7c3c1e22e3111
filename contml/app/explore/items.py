"""The content of the page: items with labels, and for each run a map, neighbours and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.app.experiment.loading import load_embedding_run
from contml.app.experiment.run_results import title_of_page
from contml.app.experiment.saved_run import SavedEmbeddings, read_evaluation, recorded_task, saved_embeddings
from contml.app.explore.label_search import training_items
from contml.app.report.embedding_map import MIN_TSNE, main_direction, tsne
from contml.app.report.plots import Array
from contml.contracts import Colours, Measure
from contml.data.identity import DataRecord, item_names
from contml.data.split import Split
from contml.distances.exact import squared_distances_to
from contml.evaluation import evaluate
from contml.evaluation.evaluated import unit_words
from contml.evaluation.results import Retrieval, unit_of_distances
from contml.runs import Run
from contml.search.labelled_items import LabelledItems

#: Neighbours of each item.
NEIGHBOURS = 10
#: The default number of items on the page, and the seed of random draws.
ITEMS, SEED = 5000, 0


@dataclass(frozen=True)
class ItemNeighbours:
    """The nearest items of each item, nearest first."""

    rows: Tensor  # [N,k]
    distances: Tensor  # [N,k] float64: embedding distances
    label_distances: Tensor  # [N,k] float32


@dataclass(frozen=True)
class ModelView:
    """The items as one model sees them.

    Attributes:
        title: the run.
        folder: the folder of the run, which `contml.load` reads.
        embeddings: `[N, d]`.
        points: the map, `[N, 2]`.
        by_embedding: the nearest items by embedding distance.
        by_label: the nearest items by label distance.
        means: mean label distance of the first `Explored.error_k` items by embedding, ties as expectations, and by
            label, `[N, 2]`, float64. NaN for items that are not queries.
    """

    title: str
    folder: Path
    embeddings: Tensor
    points: Array
    by_embedding: ItemNeighbours
    by_label: ItemNeighbours
    means: Tensor

    @property
    def errors(self) -> Tensor:
        """The mean label distance of the retrieved items minus the oracle's, `[N]`."""
        return self.means[:, 0] - self.means[:, 1]


@dataclass(frozen=True)
class Explored:
    """The items of a page.

    Attributes:
        title: the heading.
        split: the items, in the order of all `[N]`.
        texts: the label of each item as text. "" if only its picture shows the label.
        views: one for each run.
        unit: the meaning of a label distance of 1, as text.
        measure: how label distances are printed.
        error_k: number of retrieved items over which the error is averaged.
        colours: the labels as colours.
        metadata: of each item, by name.
        notes: sentences about parts that are not shown.
        labelled: the training items of each view, for a search by label. Empty if the page does not search by label.
    """

    title: str
    split: Split
    texts: Sequence[str]
    views: Sequence[ModelView]
    unit: str
    measure: Measure
    error_k: int
    colours: Colours
    metadata: Sequence[dict[str, Any]] | None = None
    notes: list[str] = field(default_factory=list)
    labelled: Sequence[LabelledItems] = ()

    @property
    def gallery(self) -> Tensor:
        """The rows that are searched."""
        return torch.arange(len(self.split)) if self.split.gallery is None else self.split.gallery


# -- runs --------------------------------------------------------------------------------------------------------------


def explore_runs(
    folders: Sequence[Path],
    *,
    items: int = ITEMS,
    accept_changes: bool = False,
    trust: bool = False,
    on_start: Callable[[int], None] = lambda _: None,
) -> Explored:
    """Return the evaluated split of a run, or of several runs that were evaluated on the same items.

    Args:
        folders: the run folders.
        items: the largest number of items. If there are more, this number is drawn at random.
        accept_changes: use data that changed since the run began, as in `evaluate_run`.
        trust: allow the configs of the runs to name code to import.
        on_start: called with the number of items before maps and neighbours are computed.

    Raises:
        InputError: a folder is not a run or not evaluated yet, or the runs are of different items or labels.
    """
    runs = [load_embedding_run(folder, trust=trust) for folder in folders]
    evaluations = [read_evaluation(run) for _, run in runs]
    (experiment, run), split_name = runs[0], evaluations[0].split
    record = DataRecord.load(run.data)
    for (_, other_run), evaluation in zip(runs[1:], evaluations[1:], strict=True):
        if evaluation.split != split_name or not DataRecord.load(other_run.data).same_items(record, split_name):
            got = f"evaluated on other items or labels than {run.folder}"
            raise InputError(str(other_run.folder), got, hint="give runs on the same data")
    task, changes = recorded_task(experiment, run, accept_changes)
    full_split = task.splits[split_name]
    names = item_names(full_split, experiment.root)
    saved = [_embeddings_by_row(saved_embeddings(*each, split_name), names) for each in runs]
    readable = torch.stack([has_embedding for _, has_embedding in saved]).all(0)
    rows, notes = _drawn_rows(readable.nonzero()[:, 0], full_split.queries, items)
    pairs = zip(runs, evaluations, strict=True)
    notes += [f"{its_run.name}: {each.untrained}." for (_, its_run), each in pairs if each.untrained]
    if count := int((~readable).sum()):
        notes.append(f"{count:,} image{'s' * (count > 1)} could not be read.")
    if changes:
        notes.append(f"The data changed since the run began: {'; '.join(changes)}.")
    split = full_split.subset(rows).with_short_names()
    on_start(len(split))
    shown_runs = [its_run for _, its_run in runs]
    run_views = [_run_view(split, x[rows], its_run) for its_run, (x, _) in zip(shown_runs, saved, strict=True)]
    views, units, error_ks = zip(*run_views, strict=True)
    reads = [partial(LabelledItems.of_run, its_run) for its_run in shown_runs]
    labelled, remarks = training_items(reads, split.labels, [view.embeddings for view in views])
    if len(rows) < MIN_TSNE:
        notes.append(f"The map shows principal components: t-SNE needs at least {MIN_TSNE} items.")
    title, texts = title_of_page(experiment, shown_runs, split), [split.labels.text(row) for row in range(len(split))]
    colours = split.labels.colours() or main_direction(split.labels, SEED)
    columns = split.metadata.items()
    metadata = [{name: values[n] for name, values in columns if values[n] is not None} for n in range(len(split))]
    shown = title, split, texts, views, units[0], split.labels.measure, error_ks[0], colours
    return Explored(*shown, metadata if columns else None, [*notes, *remarks], labelled)


def _embeddings_by_row(saved: SavedEmbeddings, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the saved embeddings of the items with these names `[N, d]`, and a mask `[N]` of items that have one."""
    positions, vectors, missing = saved.of(names)
    rows, embeddings = torch.tensor(positions), torch.zeros(len(names), vectors.shape[1])
    embeddings[rows] = vectors
    has_embedding = torch.isin(torch.arange(len(names)), rows)
    has_embedding[rows[missing]] = False
    return embeddings, has_embedding


def _drawn_rows(rows: Tensor, queries: Tensor | None, items: int) -> tuple[Tensor, list[str]]:
    """Draw at most `items` of the rows, ascending, and return them with a note.

    If queries are given, up to half are queries.
    """
    if len(rows) <= items:
        return rows, []
    generator = torch.Generator().manual_seed(SEED)

    def draw(some: Tensor, count: int) -> Tensor:
        return some[torch.randperm(len(some), generator=generator)[:count]]

    if queries is None:
        sampled_rows = draw(rows, items)
    else:
        is_query = torch.isin(rows, queries)
        query_rows = draw(rows[is_query], max(1, items // 2))
        sampled_rows = torch.cat((query_rows, draw(rows[~is_query], items - len(query_rows))))
    note = f"{items:,} of {len(rows):,} items, drawn at random (seed {SEED}); neighbours and errors are among these."
    return sampled_rows.sort().values, [note]


def _run_view(split: Split, embeddings: Tensor, run: Run) -> tuple[ModelView, str, int]:
    """Return a run's view of a split, the meaning of its label distances, and the K of the errors."""
    all_rows = torch.arange(len(split))
    gallery = all_rows if split.gallery is None else split.gallery
    options: dict[str, Any] = {"clusters": False, "groups": split.excluded_groups, "places": split.places}

    def ranked(queries: Tensor | None) -> Retrieval:
        return evaluate(embeddings, split.labels, queries, None if queries is None else gallery, **options)

    found = ranked(split.queries)
    evaluation, query_ranking = found.evaluation, found.ranking
    full_ranking = query_ranking if split.queries is None else ranked(all_rows).ranking
    means = torch.full((len(split), 2), torch.nan, dtype=torch.float64)
    means[query_ranking.queries] = query_ranking.label_distance_at_k

    def nearest(rows: Tensor, label_distances: Tensor) -> ItemNeighbours:
        rows = rows[:, :NEIGHBOURS]
        distances = squared_distances_to(embeddings, embeddings, rows).sqrt()  # [N,k]
        return ItemNeighbours(rows, distances, label_distances[:, :NEIGHBOURS])

    by_embedding = nearest(full_ranking.model, full_ranking.label_distances)
    by_label = nearest(full_ranking.oracle, full_ranking.oracle_label_distances)
    points, folder = tsne(embeddings, SEED), run.folder
    view = ModelView(folder.resolve().name, folder, embeddings, points, by_embedding, by_label, means)
    is_plain, distance_unit = evaluation.measure.is_plain, unit_of_distances(evaluation.unit, evaluation.measure)
    return view, unit_words(evaluation) if is_plain else distance_unit, evaluation.k
