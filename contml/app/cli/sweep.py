"""`contml sweep`: try values of options, choose the best on the validation split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from contml.app.cli.options import (
    Cluster,
    Config,
    Data,
    ImageColumn,
    Json,
    Labels,
    Overrides,
    Pattern,
    Preset,
    Trainings,
    Weights,
    check_run_name,
    own_data,
    split_config,
)
from contml.app.cli.printing import echo, print_table
from contml.app.trials.space import parse_space

EXAMPLE = """Example: contml sweep pose/synthetic --try loss=log_ratio,dense_triplet --try optimizer.lr=1e-4..1e-2
--trials 20"""


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
    data: Data = None,
    label: Labels = None,
    image: ImageColumn = None,
    pattern: Pattern = None,
    preset: Preset = None,
    weights: Weights = None,
    runs: Annotated[Path, typer.Option(help="The folder in which the sweep's folder is created.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Try values of options: train each, judge it on the validation split, choose the best. The test split is not read.

    Nothing is chosen if no training improved on the untrained network, or if all trials are equal.

    Ctrl-C stops it; the same command goes on, also with more --trials.
    """
    user_data = own_data(data, label, image, pattern, preset, weights)
    config, overrides = split_config(config, overrides, user_data)
    check_run_name(name)
    # Here, before torch is imported.
    parse_space(tries, overrides, trials=trials, seeds=seeds, folds=folds, processes=processes)
    from contml.app.trials.sweep import sweep as run_sweep

    try:
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
            own=user_data,
            on_line=lambda line: echo(line, err=True),
        )
    except KeyboardInterrupt:
        echo("contml: stopped; the same command continues this sweep", err=True)
        raise typer.Exit(130) from None
    if as_json:
        echo(json.dumps(result.as_data()))
        return
    print_table(result.table())
    for line in result.sentences():
        echo(line)
    if result.command is not None:
        echo(f"train it with: {result.command}")
    echo(f"runs: contml compare {result.folder}")
