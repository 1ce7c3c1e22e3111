"""`contml sweep`, `contml benchmark` and `contml compare`: several trainings beside each other."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import contml.app.cli.options as shared
from contml.app.cli.options import Cluster, Config, Json, Overrides, Own, Trainings, argument, option
from contml.app.cli.printing import echo, print_table, stoppable
from contml.app.trials.space import parse_space

COMPARE_EXAMPLE = """Example: for d in 16 32 64 128; do contml train pose/synthetic model.dim=$d; done;
contml compare runs/pose/synthetic/*"""
_METRIC = option("NAME", "A metric to show, such as 'recall@1' or 'label_distance@10/random'; repeatable.")


def compare(
    runs: Annotated[list[Path], argument("RUN", "Run folders, or folders that contain some.")],
    metric: Annotated[list[str] | None, _METRIC] = None,
    as_json: Json = False,
) -> None:
    """Compare runs in a table: the differences of their configs, and their metrics.

    Runs that differ only in the seed share a row, with mean and standard deviation. Runs tested on different
    data get separate tables. Runs without metrics are listed below the tables, with the reason.

    The best row is named, and bold, only if the 95 % interval of its difference from each other row excludes 0: over
    the queries, and over the runs if a row has several. Rows with untrained weights (epoch 0) are never the best.

    Metrics of an evaluation: recall@K, map_at_r, label_distance@K, ndcg@K, spearman, ... With '/random'
    (label_distance@10/random) a metric is divided by that of a random ranking. With '/normalized' it is the normalized
    score: 0 = random ranking, 1 = oracle.
    """
    from contml.app.trials.compare import compare as compare_runs

    comparison = compare_runs(runs, metric or ())
    if as_json:
        echo(json.dumps(comparison.as_data()))
    for table in () if as_json else comparison.tables:
        echo(table.title)
        print_table([[cell.text for cell in table.lines[0]], *table.lines[1:]], text_columns=len(table.keys))
        echo("\n".join([*table.remarks, ""]), lines=True)
    for note in () if as_json else (*comparison.notes, *comparison.left_out):
        echo(note)


BENCHMARK_EXAMPLE = """Example: contml benchmark graded_features --plan"""
_SUITE = argument("SUITE", "A suite that comes with contml ('graded_features'), or a YAML file.")
_PLACES = argument("[NAME=PATH]...", "The places that the suite asks for, such as 'data=FOLDER'.")
_INPUTS = option("FOLDER", "The folder for features and label distances, computed once.")
_RESULTS = option("FOLDER", "The folder for raw/SUITE.jsonl (finished trainings) and SUITE.md.")


def benchmark(
    suite: Annotated[str, _SUITE],
    places: Annotated[list[str] | None, _PLACES] = None,
    *,
    only: Annotated[list[str] | None, option("NAME", "This data set or method alone; repeatable.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print how long it takes, and stop.")] = False,
    minutes: Annotated[float, option("M", "Begin no training after so many minutes.")] = math.inf,
    processes: Trainings = None,
    cluster: Cluster = "",
    inputs: Annotated[Path, _INPUTS] = Path("runs/benchmark"),
    results: Annotated[Path, _RESULTS] = Path("runs/benchmark/results"),
) -> None:
    """Compare losses on several data sets: equal trials, intervals over seeds and queries, ranks.

    Options are chosen on the validation split. The test split is measured only for the chosen options. The same command
    continues after an interruption. The page shows the finished trainings.
    """
    from contml.app.trials.benchmark import benchmark as run_benchmark, page_of

    options: Any = {"only": only or [], "plan": plan, "processes": processes, "cluster": cluster, "minutes": minutes}
    options["on_line"] = partial(echo, err=not plan)
    with stoppable(" this benchmark"):
        finished = run_benchmark(suite, places or [], inputs=inputs, results=results, **options)
    if not plan:
        echo(f"{finished}; page: {page_of(results, suite)}")
        if len(finished.suite.seeds) == 1:
            from contml.app.trials.page import ONE_SEED

            echo(ONE_SEED)


SWEEP_EXAMPLE = """Example: contml sweep pose/synthetic --try loss=log_ratio,dense_triplet --try optimizer.lr=1e-4..1e-2
--trials 20"""
_TRIES = (
    "What to try; repeatable. KEY=A,B,C is a choice, also of parts: loss=triplet_margin,multi_similarity. "
    "KEY=LOW..HIGH is a range: of whole numbers if both ends are, and on a logarithmic scale if LOW > 0 and HIGH is at "
    "least 10 times LOW."
)
_TRIALS = option("N", "Number of trials, drawn at random. Default: all combinations, if all are choices.")


@shared.takes_own_data
def sweep(
    config: Config = None,
    overrides: Overrides = None,
    *,
    tries: Annotated[list[str], option("KEY=VALUES", _TRIES, "--try")],
    trials: Annotated[int | None, _TRIALS] = None,
    seeds: Annotated[int, option("N", "Train each trial with N seeds; the mean judges it.")] = 1,
    processes: Trainings = None,
    cluster: Cluster = "",
    name: Annotated[str, typer.Option(help="The sweep's folder is RUNS/CONFIG/sweep_NAME.")] = "",
    own: Own = None,
    runs: Annotated[Path, typer.Option(help="The folder in which the sweep's folder is created.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Try values of options: train each, judge it on the validation split, choose the best. The test split is not read.

    Nothing is chosen if no training improved on the untrained network, or if all trials are equal.

    Ctrl-C stops it. The same command continues, also with more --trials.
    """
    config, overrides = shared.split_config(config, overrides, own)
    shared.check_run_name(name)
    numbers: Any = {"trials": trials, "seeds": seeds, "processes": processes}
    parse_space(tries, overrides, **numbers)  # here, before torch is imported
    from contml.app.trials.sweep import sweep as run_sweep

    places: Any = {"cluster": cluster, "runs": runs, "name": name, "own": own}
    with stoppable(" this sweep"):
        result = run_sweep(config, overrides, tries, **numbers, **places, on_line=partial(echo, err=True))
    if as_json:
        echo(json.dumps(result.as_data()))
        return
    print_table(result.table())
    for line in result.sentences():
        echo(line)
    if result.command is not None:
        echo(f"train it with: {result.command}")
    echo(f"runs: contml compare {result.folder}")
