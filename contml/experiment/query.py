"""One query under several runs: a picture of what each run, an untrained model and the oracle retrieve."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch
from PIL import Image
from torch import Tensor

from contml._support.errors import InputError
from contml._support.tensors import save_tensors
from contml.compare.comparison import Comparison, Row, Table
from contml.compare.runs import EvaluatedRun
from contml.data.identity import DataRecord, item_names
from contml.data.split import Split, Task
from contml.evaluation import evaluate
from contml.evaluation.embed import embed
from contml.evaluation.results import Ranking
from contml.experiment.building import Experiment
from contml.experiment.loading import load_run
from contml.experiment.running import SavedEmbeddings, recorded_task, row_of, saved_embeddings
from contml.report.gallery import Line, mean_label_distance, printable, query_strip, ranking_lines
from contml.runs import Run

#: In place of the name of a checkpoint: the weights with which a training begins.
_UNTRAINED = "untrained"


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
    if len(comparison.tables) > 1:
        sets = " and ".join(table.title.partition(": ")[0] for table in comparison.tables[:2])
        raise InputError("--query", f"runs with different test data ({sets})", hint="give runs on the same data")
    table = replace(comparison.tables[0], axis=None)
    name = table.rows[0].runs[0].evaluated.split
    runs: list[tuple[str, Experiment, Run, SavedEmbeddings]] = []
    for heading, each in ((_heading(table, row, run), run) for row in table.rows for run in row.runs):
        experiment, run = load_run(each.folder, trust=trust)
        if runs and _items(runs[0][2], name) != _items(run, name):
            got = f"runs with different test data ({runs[0][2].folder} and {run.folder})"
            raise InputError("--query", got, hint="give runs on the same data")
        other = None if each.evaluated.checkpoint == experiment.selected else each.evaluated.checkpoint
        runs.append((heading, experiment, run, saved_embeddings(experiment, run, name, other)))
    _, experiment, run, _ = runs[0]
    task, _ = recorded_task(experiment, run, accept_changes=False)
    split, names = task.splits[name], item_names(task.splits[name], experiment.root)
    row = row_of(split, query, "--query")
    lines: list[Line] = []
    oracle, notes = None, []
    for heading, *_, saved in runs:
        _, embeddings, missing = saved.of(names)
        line, oracle = ranking_lines(split, _ranking(split, row, embeddings, missing), 0, heading)
        lines.append(line)
    try:
        embeddings, missing = _untrained(experiment, run, task, name, names)
    except InputError as error:
        notes.append(f"no line of untrained weights: {error}")
    else:
        heading = f"Untrained{', first run' if len(runs) > 1 else ''}"
        lines.append(ranking_lines(split, _ranking(split, row, embeddings, missing), 0, heading)[0])
    assert oracle is not None  # there is a run
    lines.append(oracle)
    if split.labels.kind != "classes":
        lines = [line._replace(heading=f"{line.heading} (mean {mean_label_distance(line)})") for line in lines]
    broken: dict[int, str] = {}
    details = [] if split.labels.kind == "classes" else ["Below each image: its label distance"]
    picture = query_strip(split, row, lines, "Query", details, broken).picture
    return picture, [*notes, *(f"{printable(split.name(n))}: not drawn ({printable(e)})" for n, e in broken.items())]


def _heading(table: Table, row: Row, run: EvaluatedRun) -> str:
    """The name of the run's row in the table, with the seed where the row has several."""
    return table.label(row) + (f", seed {run.config.get('seed')}" if len(row.runs) > 1 else "")


def _items(run: Run, split: str) -> dict[str, str]:
    """The label hash of each item of a split by its name, as the run recorded them."""
    record = DataRecord.load(run.data)
    return dict(zip(record.names.get(split, ()), record.labels.get(split, ()), strict=True))


def _ranking(split: Split, row: int, embeddings: Tensor, missing: Tensor) -> Ranking:
    """The ranking of the gallery for one query."""
    gallery = torch.arange(len(split)) if split.gallery is None else split.gallery
    if bool(torch.isin(torch.tensor(row), missing)):
        raise InputError("--query", f"{split.name(row)} could not be read", hint="choose another image")
    return evaluate(embeddings, split.labels, [row], gallery, missing=missing, clusters=False, groups=split.groups)[1]


def _untrained(experiment: Experiment, run: Run, task: Task, name: str, names: list[str]) -> tuple[Tensor, Tensor]:
    """Embeddings by the weights with which the training began, and the rows that could not be read."""
    if run.embeddings(name, _UNTRAINED).exists():
        return saved_embeddings(experiment, run, name, _UNTRAINED).of(names)[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = experiment.build_model(task).to(device)
    embeddings, missing = embed(model, task.splits[name], experiment.build_images(), device=device)
    with suppress(InputError):  # a folder that cannot be written: they are computed again the next time
        tensors = {"embeddings": embeddings, "missing": missing}
        save_tensors(run.embeddings(name, _UNTRAINED), tensors, names=names, config=experiment.values)
    return embeddings, missing
