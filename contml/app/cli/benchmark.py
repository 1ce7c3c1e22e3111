"""`contml benchmark`: compare losses on several data sets, with equal numbers of trials."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from contml.app.cli.options import Cluster, Trainings
from contml.app.cli.printing import echo

EXAMPLE = """Example: contml benchmark graded_features --plan"""


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

    try:
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
    except KeyboardInterrupt:
        echo("contml: stopped; the same command continues this benchmark", err=True)
        raise typer.Exit(130) from None
    if not plan:
        echo(f"{finished}; page: {page_of(results, suite)}")
        if len(finished.suite.seeds) == 1:
            from contml.app.trials.page import ONE_SEED

            echo(ONE_SEED)
