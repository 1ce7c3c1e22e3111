"""`contml compare`: a table of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from contml._support.files import check_new_file, check_new_folder, write_new
from contml.app.cli.options import Json
from contml.app.cli.printing import complete, echo, print_table

EXAMPLE = """Example: for d in 16 32 64 128; do contml train pose/synthetic model.dim=$d; done;
contml compare runs/pose/synthetic/*"""

#: The file that it writes.
_SAVED = "table.md"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that contain some.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A metric to show, such as 'recall@1' or 'label_distance@10/random'; repeatable."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write table.md there."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs in a table: the differences of their configs, and their metrics.

    Runs that differ only in seed and fold share a row, with mean and standard deviation. Runs tested on different
    data get separate tables. Runs without metrics are listed below the tables, with the reason.

    The best row is named, and bold, only if the 95 % interval of its difference from each other row excludes 0: over
    the queries, and over the runs if a row has several. Rows with untrained weights (epoch 0) are never the best.

    Metrics of an evaluation: recall@K, map_at_r, label_distance@K, ndcg@K, spearman, ... With '/random'
    (label_distance@10/random) a metric is divided by that of a random ranking. With '/normalized' it is the normalized
    score: 0 = random ranking, 1 = oracle.
    """
    from contml.app.trials.compare import compare as compare_runs

    hint = "choose another folder with --save"
    if save is not None:
        check_new_folder(save, (_SAVED,), hint=hint)
        check_new_file(save / _SAVED, hint=hint)
    comparison = compare_runs(runs, metric or ())
    if save is not None:
        line = f"{complete(save / _SAVED)}{save / _SAVED}"
        write_new({save / _SAVED: comparison.markdown().encode()}, hint=hint)
    if as_json:
        echo(json.dumps(comparison.as_data()))
    for table in () if as_json else comparison.tables:
        echo(table.title)
        print_table([[cell.text for cell in table.lines[0]], *table.lines[1:]], text_columns=len(table.keys))
        echo("\n".join([*table.remarks, ""]), lines=True)
    for note in () if as_json else (*comparison.notes, *comparison.left_out):
        echo(note)
    if save is not None:
        echo(line, err=as_json)
