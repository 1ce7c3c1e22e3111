"""The same queries under several runs, an untrained model and the oracle: a picture of one, or a page of several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from contml._support.errors import InputError
from contml._support.tensors import save_tensors
from contml._support.text import page_text
from contml.compare.comparison import Comparison, Row, RunTable
from contml.compare.evaluated_runs import EvaluatedRun
from contml.data.identity import DataRecord, item_names
from contml.data.split import Split, Task
from contml.evaluation import evaluate
from contml.evaluation.embed import embed
from contml.evaluation.results import Ranking
from contml.experiment.building import Experiment
from contml.experiment.loading import load_run
from contml.experiment.saved_run import SavedEmbeddings, recorded_task, row_of, saved_embeddings
from contml.models import EmbeddingModel
from contml.models.heads import FROM_FEATURES, head_rows
from contml.report.examples import Example
from contml.report.gallery import Line, choose_queries, query_strip, ranking_lines
from contml.runs import Run

#: In place of the name of a checkpoint: the weights with which a training begins.
_UNTRAINED = "untrained"
#: Number of queries on a page: where the runs differ most, and from good to bad.
_APART, _SPREAD = 2, 4


@dataclass(frozen=True)
class _Compared:
    """Runs on the same split of a task: heading, embeddings `[N, d]` and unreadable rows of each.

    The last ones may be of untrained weights; the first `trained` ones are of trained runs.
    """

    task: Task
    name: str
    runs: list[tuple[str, Tensor, Tensor]]
    trained: int
    notes: list[str]

    @property
    def split(self) -> Split:
        """The split by its name."""
        return self.task.splits[self.name]


def query_picture(comparison: Comparison, query: str, *, trust: bool = False) -> tuple[Image.Image, list[str]]:
    """The nearest images of a query under each run, untrained weights and the oracle, a line each; and notes on it.

    The untrained weights are the ones with which the first run began. Their embeddings are computed once, and kept in
    the folder of that run.

    Args:
        comparison: the runs.
        query: an image of their test split: its name, the end of its name, or its row.
        trust: allow the configs of the runs to name code to import.

    Raises:
        InputError: the runs were tested on different data, there is no such image, or a run has no embeddings.
    """
    compared = _read(comparison, "--query", trust)
    split, notes = compared.split, compared.notes
    row, split = row_of(compared.task, compared.name, query, "--query"), split.with_short_names()
    lines: list[Line] = []
    oracle = None
    for heading, embeddings, missing in compared.runs:
        if bool(torch.isin(torch.tensor(row), missing)):
            raise InputError("--query", f"{split.name(row)} could not be read", hint="choose another image")
        line, oracle = ranking_lines(split, _ranking(split, torch.tensor([row]), embeddings, missing), 0, heading)
        lines.append(line)
    assert oracle is not None  # there is a run
    lines.append(oracle)
    broken: dict[int, str] = {}
    picture = query_strip(split, row, lines, "Query", broken).picture
    return picture, [*notes, *(f"{page_text(split.name(n))}: not drawn ({page_text(e)})" for n, e in broken.items())]


def comparison_report(comparison: Comparison, metrics: Sequence[str] = (), *, trust: bool = False) -> bytes:
    """Several runs on the same queries as one HTML page.

    Args:
        comparison: the runs.
        metrics: the metrics of its curves.
        trust: allow the configs of the runs to name code to import.

    Raises:
        InputError: the runs were tested on different data, or a run has no embeddings.
    """
    from contml.compare.page import comparison_page  # here: it imports matplotlib

    compared = _read(comparison, "--report", trust)
    split, all_rows = compared.split, torch.arange(len(compared.split))
    queries = all_rows if split.queries is None else split.queries
    rankings = [(heading, _ranking(split, queries, *tensors)) for heading, *tensors in compared.runs]
    queries_shown = _same_queries(split, rankings, compared.trained)
    return comparison_page(comparison, split, queries_shown, metrics, compared.notes)


def _same_queries(split: Split, rankings: Sequence[tuple[str, Ranking]], trained: int) -> list[Example]:
    """Queries under each run: first where trained runs differ most, then from good to bad."""
    row_indices = [{row: q for q, row in enumerate(ranking.queries.tolist())} for _, ranking in rankings]
    rows = [row for row in row_indices[0] if all(row in indices for indices in row_indices)]  # readable for all of them
    query_indices = [[indices[row] for row in rows] for indices in row_indices]
    nearest = torch.stack([ranking.label_distances[q] for (_, ranking), q in zip(rankings, query_indices, strict=True)])
    values = torch.stack([ranking.values[q].double() for (_, ranking), q in zip(rankings, query_indices, strict=True)])
    trained_values = values[:trained].nan_to_num()
    apart = (trained_values.amax(0) - trained_values.amin(0)).argsort(descending=True, stable=True)[:_APART].tolist()
    spread = choose_queries(nearest.mean(0), _SPREAD).tolist()
    examples = []
    for number, n in enumerate(dict.fromkeys([*apart, *spread]), start=1):
        lines = [
            ranking_lines(split, ranking, indices[n], heading)
            for (heading, ranking), indices in zip(rankings, query_indices, strict=True)
        ]
        examples.append(Example(f"Query {number}", rows[n], "", [*(model for model, _ in lines), lines[0][1]]))
    return examples


def _read(comparison: Comparison, option: str, trust: bool) -> _Compared:
    """The embeddings of all runs, which must be of the same items; `option` asked for them."""
    if len(comparison.tables) > 1:
        data_sets = " and ".join(table.title.partition(": ")[0] for table in comparison.tables[:2])
        raise InputError(option, f"runs with different test data ({data_sets})", hint="give runs on the same data")
    table = replace(comparison.tables[0], axis=None)
    name = table.rows[0].runs[0].evaluated.split
    runs: list[tuple[str, Experiment, Run, SavedEmbeddings]] = []
    for heading, table_run in ((_heading(table, row, run), run) for row in table.rows for run in row.runs):
        experiment, run = load_run(table_run.folder, trust=trust)
        if experiment.unranked:
            got, hint = f"{run.folder} {experiment.unranked}", "give runs of embeddings of items with labels"
            raise InputError(option, got, hint=hint)
        if runs and not have_same_items(runs[0][2], run, name):
            got = f"runs with different test data ({runs[0][2].folder} and {run.folder})"
            raise InputError(option, got, hint="give runs on the same data")
        checkpoint = None if table_run.evaluated.checkpoint == experiment.selected else table_run.evaluated.checkpoint
        runs.append((heading, experiment, run, saved_embeddings(experiment, run, name, checkpoint)))
    _, experiment, run, _ = runs[0]
    task, _ = recorded_task(experiment, run, accept_changes=False)
    names = [*item_names(task.splits[name], experiment.root)]
    compared_runs, notes = [(heading, *saved.of(names)[1:]) for heading, *_, saved in runs], []
    try:
        untrained = _untrained(experiment, run, task, name, names)
    except InputError as error:
        notes.append(f"no line of untrained weights: {error}")
    else:
        compared_runs.append((f"Untrained{', first run' if len(runs) > 1 else ''}", *untrained))
    return _Compared(task, name, compared_runs, len(runs), notes)


def _heading(table: RunTable, row: Row, run: EvaluatedRun) -> str:
    """The name of the run's row in the table, with the seed where the row has several."""
    return table.label(row) + (f", seed {run.config.get('seed')}" if len(row.runs) > 1 else "")


def have_same_items(run: Run, other: Run, split: str) -> bool:
    """Whether two runs recorded the same items of a split, with the same labels."""
    return DataRecord.load(run.data).same_items(DataRecord.load(other.data), split)


def _ranking(split: Split, queries: Tensor, embeddings: Tensor, missing: Tensor) -> Ranking:
    """The ranking of the gallery for these queries."""
    gallery = torch.arange(len(split)) if split.gallery is None else split.gallery
    groups = split.excluded_groups
    return evaluate(embeddings, split.labels, queries, gallery, missing=missing, clusters=False, groups=groups)[1]


def _untrained(experiment: Experiment, run: Run, task: Task, name: str, names: list[str]) -> tuple[Tensor, Tensor]:
    """Embeddings by the weights with which the training began, and the rows that could not be read."""
    if run.embeddings(name, _UNTRAINED).exists():
        return saved_embeddings(experiment, run, name, _UNTRAINED).of(names)[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = experiment.build_model(task).to(device)
    images = experiment.build_images(model)
    if isinstance(model, EmbeddingModel) and model.head_start in FROM_FEATURES:
        rows = head_rows(len(task.train))
        features, unread = embed(model.bare_backbone(), task.train, images, rows, device=device)
        model.start_head(features[rows[~torch.isin(rows, unread)]])
    embeddings, missing = embed(model, task.splits[name], images, device=device)
    with suppress(InputError):  # a folder that cannot be written: they are computed again the next time
        tensors = {"embeddings": embeddings, "missing": missing}
        save_tensors(run.embeddings(name, _UNTRAINED), tensors, names=names, config=experiment.recorded)
    return embeddings, missing
