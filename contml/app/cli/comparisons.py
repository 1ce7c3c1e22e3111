"""`contml sweep`, `contml benchmark` and `contml compare`: several trainings beside each other."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from contml._support.files import check_new_file, check_new_folder, write_new
from contml.app.cli.options import (
    Cluster,
    Config,
    Json,
    Overrides,
    Own,
    Trainings,
    check_run_name,
    split_config,
    takes_own_data,
)
from contml.app.cli.printing import complete, echo, print_table, stoppable
from contml.app.trials.space import parse_space

COMPARE_EXAMPLE = """Example: for d in 16 32 64 128; do contml train pose/synthetic model.dim=$d; done;
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


BENCHMARK_EXAMPLE = """Example: contml benchmark graded_features --plan"""


def benchmark(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A suite that comes with contml ('graded_features'), or a YAML file.")
    ],
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=PATH]...", help="The places that the suite asks for, such as 'data=FOLDER'."),
    ] = None,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This data set or method alone; repeatable."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print how long it takes, and stop.")] = False,
    minutes: Annotated[float, typer.Option(metavar="M", help="Begin no training after so many minutes.")] = math.inf,
    processes: Trainings = None,
    cluster: Cluster = "",
    inputs: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder for features and label distances, computed once.")
    ] = Path("runs/benchmark"),
    results: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="The folder for raw/SUITE.jsonl (finished trainings) and SUITE.md."),
    ] = Path("runs/benchmark/results"),
) -> None:
    """Compare losses on several data sets: equal trials, intervals over seeds and queries, ranks.

    Options are chosen on the validation split; the test split is measured for the chosen ones alone. The same command
    continues after an interruption. The page shows what is finished.
    """
    from contml.app.trials.benchmark import benchmark as run_benchmark, page_of

    with stoppable(" this benchmark"):
        finished = run_benchmark(
            suite,
            places or [],
            inputs=inputs,
            results=results,
            only=only or [],
            plan=plan,
            processes=processes,
            cluster=cluster,
            minutes=minutes,
            on_line=lambda line: echo(line, err=not plan),
        )
    if not plan:
        echo(f"{finished}; page: {page_of(results, suite)}")
        if len(finished.suite.seeds) == 1:
            from contml.app.trials.page import ONE_SEED

            echo(ONE_SEED)


SWEEP_EXAMPLE = """Example: contml sweep pose/synthetic --try loss=log_ratio,dense_triplet --try optimizer.lr=1e-4..1e-2
--trials 20"""


@takes_own_data
def sweep(
    config: Config = None,
    overrides: Overrides = None,
    *,
    tries: Annotated[
        list[str],
        typer.Option(
            "--try",
            metavar="KEY=VALUES",
            help="What to try; repeatable. KEY=A,B,C is a choice, also of parts: loss=triplet_margin,multi_similarity. "
            "KEY=LOW..HIGH is a range: of whole numbers if both ends are, and on a logarithmic scale if LOW > 0 and "
            "HIGH is at least 10 times LOW.",
        ),
    ],
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Number of trials. Default: all combinations, if all are choices.")
    ] = None,
    sampler: Annotated[
        Literal["grid", "random", "tpe"] | None,
        typer.Option(
            help="How values are drawn. Default: grid if every --try is a choice and --trials suffices, else tpe."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Train each trial with N seeds; the mean judges it.")] = 1,
    folds: Annotated[
        int,
        typer.Option(
            metavar="K", help="K-fold cross-validation: each of K parts of the training split validates once."
        ),
    ] = 1,
    processes: Trainings = None,
    cluster: Cluster = "",
    name: Annotated[str, typer.Option(help="The sweep's folder is RUNS/CONFIG/sweep_NAME.")] = "",
    own: Own = None,
    runs: Annotated[Path, typer.Option(help="The folder in which the sweep's folder is created.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Try values of options: train each, judge it on the validation split, choose the best. The test split is not read.

    Nothing is chosen if no training improved on the untrained network, or if all trials are equal.

    Ctrl-C stops it; the same command goes on, also with more --trials.
    """
    config, overrides = split_config(config, overrides, own)
    check_run_name(name)
    # Here, before torch is imported.
    parse_space(tries, overrides, trials=trials, seeds=seeds, folds=folds, processes=processes)
    from contml.app.trials.sweep import sweep as run_sweep

    with stoppable(" this sweep"):
        result = run_sweep(
            config,
            overrides,
            tries,
            trials=trials,
            sampler=sampler,
            seeds=seeds,
            folds=folds,
            processes=processes,
            cluster=cluster,
            runs=runs,
            name=name,
            own=own,
            on_line=lambda line: echo(line, err=True),
        )
    if as_json:
        echo(json.dumps(result.as_data()))
        return
    print_table(result.table())
    for line in result.sentences():
        echo(line)
    if result.command is not None:
        echo(f"train it with: {result.command}")
    echo(f"runs: contml compare {result.folder}")
