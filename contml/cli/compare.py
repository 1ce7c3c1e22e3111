"""`contml compare`: a table of runs, and pictures of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contml import experiment
from contml._support.endings import check_suffix
from contml._support.files import check_new_file, check_new_folder, write_new
from contml.cli.options import Json, Trust
from contml.cli.printing import complete, echo, print_table

if TYPE_CHECKING:
    from contml.compare.comparison import Comparison

EXAMPLE = """Example: for d in 16 32 64 128; do contml train pose/synthetic model.dim=$d; done;
contml compare runs/pose/synthetic/* --by model.dim"""

#: The files that it writes, in this order, and where a page has its date.
_SAVED = ("plot.png", "curves.png", "table.md", "table.csv", "query.png")
_DATE = "<dt>Page</dt><dd>[^<]*</dd>"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that contain some.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A metric to show, such as 'recall@1' or 'label_distance@10/random'; repeatable."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="KEY", help="Plot the metric against this config key, such as 'model.dim'.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="Average runs with equal values of this key; repeatable. Default: all keys but seed."
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="A test image, by name or by row: query.png shows its nearest images under each run, under untrained "
            "weights and by the true label distance.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write one HTML page there: all runs in a table, their curves, and the nearest images of the same "
            "queries under each run.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write table.md, table.csv and curves.png there, plot.png with --by, and query.png with --query.",
        ),
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Compare runs in a table: the differences of their configs, and their metrics.

    Runs that differ only in seed and fold share a row, with mean and standard deviation. If a config has a section
    'published', the numbers of the paper are shown too. Runs tested on different data get separate tables. Runs
    without metrics are listed below the tables, with the reason.

    The best row is named, and bold, only if the 95 % interval of its difference from each other row excludes 0: over
    the queries, and over the runs if a row has several. Rows with untrained weights (epoch 0) are never the best.

    Metrics of an evaluation: recall@K, map_at_r, label_distance@K, ndcg@K, spearman, ... With '/random'
    (label_distance@10/random) a metric is divided by that of a random ranking. With '/normalized' it is the normalized
    score: 0 = random ranking, 1 = oracle.

    curves.png has two plots: the metric on the validation split over the epochs, and the metric on the test split over
    K. --by plots one line per group. Runs that differ in other keys are in different groups; --group chooses the keys.

    --query and --report need runs that were tested on the same data. The untrained weights are those with which the
    first run began; the first call embeds the test images with them.
    """
    if report is not None:
        check_suffix(report, (".html",))
    from contml.compare.comparison import compare as compare_runs
    from contml.compare.table import as_data
    from contml.report.plots import encode

    folder = save or Path()
    hint = "choose another folder with --save"
    if save is not None:
        check_new_folder(save, _SAVED, hint=hint)
    options = (by, save, save, save, query)
    wanted = [folder / name for name, option in zip(_SAVED, options, strict=True) if option is not None]
    check_new_file(*wanted, hint=hint)
    if report is not None:
        check_new_file(report)
    comparison = compare_runs(runs, metric or (), by, group or ())
    files = _plots_and_tables(comparison, metric or (), folder, has_plot=by is not None, has_tables=save is not None)
    notes: list[str] = []
    if query is not None:
        picture, notes = experiment.query_picture(comparison, query, trust=trust)
        files[folder / "query.png"] = encode(picture)
    page: dict[Path, bytes] = {}
    if report is not None:
        page[report] = experiment.comparison_report(comparison, metric or (), trust=trust)
    lines = [f"{complete(path)}{path}" for path in (*files, *page)]
    write_new(files, hint=hint)
    write_new(page, date=_DATE)
    for note in notes:
        echo(note, err=True)
    if as_json:
        echo(json.dumps(as_data(comparison)))
    else:
        _print(comparison)
    for line in lines:
        echo(line, err=as_json)


def _plots_and_tables(
    comparison: Comparison, metrics: Sequence[str], folder: Path, *, has_plot: bool, has_tables: bool
) -> dict[Path, bytes]:
    """The files with the numbers: plot.png for --by, curves.png and the tables for --save."""
    from contml.compare.plot import comparison_plot, curves_plot
    from contml.compare.table import comma_separated, markdown
    from contml.report.plots import png

    files = {folder / "plot.png": png(comparison_plot(comparison, metrics))} if has_plot else {}
    if has_tables:
        files[folder / "curves.png"] = png(curves_plot(comparison, metrics))
        files[folder / "table.md"] = markdown(comparison).encode()
        files[folder / "table.csv"] = comma_separated(comparison).encode()
    return files


def _print(comparison: Comparison) -> None:
    from contml.compare.table import body, header, remarks

    for table in comparison.tables:
        echo(table.title)
        print_table([header(table), *body(table)], text_columns=len(table.keys))
        echo("\n".join([*remarks(table), ""]), lines=True)
    for line in (*comparison.notes, *comparison.left_out):
        echo(line)
