"""What the page shows: items with labels, and for each run a map, neighbours by embedding and by label, and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.app.experiment.building import Experiment
from contml.app.experiment.loading import load_run
from contml.app.experiment.run_results import title_of_page
from contml.app.experiment.saved_run import SavedEmbeddings, read_evaluation, recorded_task, saved_embeddings
from contml.app.explore.label_search import training_items
from contml.app.report.embedding_map import MIN_TSNE, main_direction, principal_components, tsne
from contml.app.report.plots import Array
from contml.contracts import PLAIN, Colours, Measure
from contml.data.identity import DataRecord, item_names
from contml.data.sources import ImageFile
from contml.data.split import Split
from contml.distances import nearest_vectors
from contml.distances.exact import squared_distances_to
from contml.evaluation import evaluate
from contml.evaluation.evaluated import unit_words
from contml.evaluation.results import Retrieval, unit_of_distances
from contml.runs import Run
from contml.search import Index
from contml.search.bundle import LABELS
from contml.search.images import FILE, IndexModel, pending_text, shown_files
from contml.search.inputs import SourceItem, split_of
from contml.search.labelled_items import LabelledItems

#: Neighbours of each item.
NEIGHBOURS = 10
#: Items on the page unless the caller gives another number; what is drawn at random depends on the seed alone.
ITEMS, SEED = 5000, 0


@dataclass(frozen=True)
class ItemNeighbours:
    """The nearest items of each item, nearest first."""

    rows: Tensor  # [N,k]
    distances: Tensor  # [N,k] float64: embedding distances
    label_distances: Tensor | None  # [N,k] float32; None without labels


@dataclass(frozen=True)
class ModelView:
    """The items as one model sees them.

    Attributes:
        title: the run.
        model: the folder of the model, which `contml.load` reads.
        made_with: of an index, its model, which that one must be; of a run, None: a run knows its own.
        embeddings: `[N, d]`.
        points: the map, `[N, 2]`.
        by_embedding: the nearest items by embedding distance.
        by_label: the nearest items by label distance; None without labels.
        means: `[N, 2]`, float64: mean label distance of the first `Explored.error_k` items by embedding, ties as
            expectations, and by label; NaN for items that are not queries. None without labels.
    """

    title: str
    model: Path | None
    embeddings: Tensor
    points: Array
    by_embedding: ItemNeighbours
    by_label: ItemNeighbours | None = None
    means: Tensor | None = None
    made_with: IndexModel | None = None

    @property
    def errors(self) -> Tensor | None:
        """`[N]`: how much larger the mean label distance of the retrieved items is than the oracle's."""
        return None if self.means is None else self.means[:, 0] - self.means[:, 1]


@dataclass(frozen=True)
class Explored:
    """The items of a page.

    Attributes:
        title: the heading.
        split: the items, in the order of all `[N]`; without labels, its label space says nothing.
        texts: the label of each item in words; "" where only its picture shows it.
        views: one for each run; of an index, one.
        unit: what a label distance is, in words; "" without labels.
        measure: how label distances are printed.
        error_k: number of retrieved items of which the error is the mean.
        colours: the labels as colours; None without labels.
        metadata: of each item, by name.
        notes: sentences about what is not shown.
        labelled: of each view, the training items by which labels are searched for; empty: they are not.
    """

    title: str
    split: Split
    texts: Sequence[str]
    views: Sequence[ModelView]
    unit: str = ""
    measure: Measure = PLAIN
    error_k: int = 0
    colours: Colours | None = None
    metadata: Sequence[dict[str, Any]] | None = None
    notes: list[str] = field(default_factory=list)
    labelled: Sequence[LabelledItems] = ()

    @property
    def has_labels(self) -> bool:
        """Whether the items have labels."""
        return self.views[0].by_label is not None

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
    """The evaluated split of a run, or of several runs that were evaluated on the same items.

    Args:
        folders: the run folders.
        items: the largest number of items: of more, that many are drawn at random.
        accept_changes: use data that changed since the run began, as in `evaluate_run`.
        trust: allow the configs of the runs to name code to import.
        on_start: called with the number of items before maps and neighbours are computed.

    Raises:
        InputError: a folder is not a run or not evaluated yet, or the runs are of different items or labels.
    """
    runs = [_embedding_run(folder, trust) for folder in folders]
    evaluations = [read_evaluation(run) for _, run in runs]
    (experiment, run), split_name = runs[0], evaluations[0].split
    for (_, other_run), evaluation in zip(runs[1:], evaluations[1:], strict=True):
        if evaluation.split != split_name or not DataRecord.load(other_run.data).same_items(
            DataRecord.load(run.data), split_name
        ):
            got = f"evaluated on other items or labels than {run.folder}"
            raise InputError(str(other_run.folder), got, hint="give runs on the same data")
    task, changes = recorded_task(experiment, run, accept_changes)
    full_split = task.splits[split_name]
    names = item_names(full_split, experiment.root)
    saved = [_embeddings_by_row(saved_embeddings(*each, split_name), names) for each in runs]
    readable = torch.stack([has_embedding for _, has_embedding in saved]).all(0)
    rows, notes = _drawn_rows(readable.nonzero()[:, 0], full_split.queries, items)
    for (_, its_run), evaluation in zip(runs, evaluations, strict=True):
        if evaluation.untrained:
            notes.append(f"{its_run.name}: {evaluation.untrained}.")
    if count := int((~readable).sum()):
        notes.append(f"{count:,} image{'s' * (count > 1)} could not be read.")
    if changes:
        notes.append(f"The data changed since the run began: {'; '.join(changes)}.")
    split = full_split.subset(rows).with_short_names()
    on_start(len(split))
    run_views = [
        _run_view(split, embeddings[rows], its_run) for (_, its_run), (embeddings, _) in zip(runs, saved, strict=True)
    ]
    views, units, error_ks = zip(*run_views, strict=True)
    reads = [partial(LabelledItems.of_run, its_run) for _, its_run in runs]
    labelled, remarks = training_items(reads, split.labels, [view.embeddings for view in views])
    if len(rows) < MIN_TSNE:
        notes.append(f"The map shows principal components: t-SNE needs at least {MIN_TSNE} items.")
    return Explored(
        title=title_of_page(experiment, [its_run for _, its_run in runs], split),
        split=split,
        texts=[split.labels.text(row) for row in range(len(split))],
        views=views,
        unit=units[0],
        measure=split.labels.measure,
        error_k=error_ks[0],
        colours=split.labels.colours() or main_direction(split.labels, SEED),
        metadata=_by_item(split) if split.metadata else None,
        notes=[*notes, *remarks],
        labelled=labelled,
    )


def _by_item(split: Split) -> list[dict[str, Any]]:
    """Return the metadata of each item, without missing values."""
    columns = split.metadata.items()
    return [{name: values[row] for name, values in columns if values[row] is not None} for row in range(len(split))]


def _embedding_run(folder: Path, trust: bool) -> tuple[Experiment, Run]:
    """A run of embeddings."""
    experiment, run = load_run(folder, trust=trust)
    if experiment.results.unranked:
        raise InputError(str(folder), experiment.results.unranked, hint="give a run of embeddings of items with labels")
    return experiment, run


def _embeddings_by_row(saved: SavedEmbeddings, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The saved embeddings of the items with these names `[N, d]`, and which have one `[N]`."""
    positions, vectors, missing = saved.of(names)
    rows, embeddings = torch.tensor(positions), torch.zeros(len(names), vectors.shape[1])
    embeddings[rows] = vectors
    has_embedding = torch.isin(torch.arange(len(names)), rows)
    has_embedding[rows[missing]] = False
    return embeddings, has_embedding


def _drawn_rows(rows: Tensor, queries: Tensor | None, items: int) -> tuple[Tensor, list[str]]:
    """At most `items` of the rows, ascending, up to half of them queries where these are given; and a note on it."""
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
    """A run's view of a split, what its label distances are, and the K of the errors."""
    gallery = torch.arange(len(split)) if split.gallery is None else split.gallery

    def ranked(queries: Tensor | None) -> Retrieval:
        return evaluate(
            embeddings,
            split.labels,
            queries,
            None if queries is None else gallery,
            clusters=False,
            groups=split.excluded_groups,
            places=split.places,
        )

    found = ranked(split.queries)
    evaluation, query_ranking = found.evaluation, found.ranking
    full_ranking = query_ranking if split.queries is None else ranked(torch.arange(len(split))).ranking
    means = torch.full((len(split), 2), torch.nan, dtype=torch.float64)
    means[query_ranking.queries] = query_ranking.label_distance_at_k

    def nearest(rows: Tensor, label_distances: Tensor) -> ItemNeighbours:
        rows = rows[:, :NEIGHBOURS]
        return ItemNeighbours(rows, _distances(embeddings, rows), label_distances[:, :NEIGHBOURS])

    view = ModelView(
        title=run.folder.resolve().name,
        model=run.folder,
        embeddings=embeddings,
        points=_points(embeddings),
        by_embedding=nearest(full_ranking.model, full_ranking.label_distances),
        by_label=nearest(full_ranking.oracle, full_ranking.oracle_label_distances),
        means=means,
    )
    unit = (
        unit_words(evaluation)
        if evaluation.measure.is_plain
        else unit_of_distances(evaluation.unit, evaluation.measure)
    )
    return view, unit, evaluation.k


def _distances(embeddings: Tensor, rows: Tensor) -> Tensor:
    """The embedding distances of each item to some rows `[N, k]`."""
    return squared_distances_to(embeddings, embeddings, rows).sqrt()


def _points(embeddings: Tensor) -> Array:
    return tsne(embeddings, SEED) if len(embeddings) >= MIN_TSNE else principal_components(embeddings)[0]


# -- an index ----------------------------------------------------------------------------------------------------------


def explore_index(folder: Path, *, items: int = ITEMS, on_start: Callable[[int], None] = lambda _: None) -> Explored:
    """The images of an index, with their metadata. They have no labels.

    Args:
        folder: the index.
        items: as in `explore_runs`.
        on_start: as in `explore_runs`.

    Raises:
        InputError: it is no index, its items are not images, or there are fewer than two.
    """
    index = Index.open(folder)
    ids, made_with = index.ids, IndexModel.of(index)
    rows, notes = _drawn_rows(torch.arange(len(ids)), None, items)
    ids = [ids[row] for row in rows.tolist()]
    metadata, embeddings = index.metadata(ids), torch.from_numpy(index.embeddings(ids))
    notes += [f"{text}."] if (text := pending_text(index)) else []
    files = shown_files(index, ids, metadata)
    if without := [item for item, entry in zip(ids, metadata, strict=True) if entry.pop(FILE, None) is None]:
        got = f"'{without[0]}' has no image file"
        raise InputError(str(folder), got, hint="'contml index' makes an index of images")
    if count := files.count(""):
        notes.append(f"{count:,} pictures are not shown: their files are gone, or changed since they were indexed.")
    if len(ids) < 2:
        raise InputError(str(folder), f"an index of {len(ids)} images", "needs at least 2")
    on_start(len(ids))
    k, all_rows = min(NEIGHBOURS, len(ids) - 1), torch.arange(len(ids))
    nearest = nearest_vectors(embeddings, embeddings, k, self_index=all_rows)
    view = ModelView(
        title=str(folder),
        model=made_with.folder,
        made_with=made_with,
        embeddings=embeddings,
        points=_points(embeddings),
        by_embedding=ItemNeighbours(nearest.positions, nearest.values.sqrt(), None),
    )
    split = split_of([SourceItem(name, ImageFile(Path(file))) for name, file in zip(ids, files, strict=True)])
    split = split.with_short_names()
    labelled, remarks = training_items([partial(_labelled_items, made_with, embeddings.shape[1])], None, [embeddings])
    notes += remarks
    return Explored(str(folder), split, [""] * len(ids), [view], metadata=metadata, notes=notes, labelled=labelled)


def _labelled_items(made_with: IndexModel, dim: int) -> LabelledItems | None:
    """The training items of the model of an index, if it is still there and has them."""
    if made_with.folder is None:
        return None
    try:
        return LabelledItems.read(made_with.folder / LABELS, made_with.identity, dim)
    except FileNotFoundError:
        return None
