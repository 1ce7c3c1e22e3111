"""`contml train`, `contml check` and `contml features`: commands that take a config or your own data."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import contml.app.cli.options as shared
from contml._support.errors import InputError
from contml._support.files import FEATURES, check_new_file, check_suffix, write_new
from contml.app import experiment
from contml.app.cli.options import Cluster, Config, DecodedImages, Json, Overrides, Own, Trust, option
from contml.app.cli.printing import complete, echo, print_broken, print_calibration, print_evaluation, print_table
from contml.config import dump
from contml.runs import Run, begun, open_run, recorded_preset


@shared.takes_own_data
def train(
    config: Config = None,
    overrides: Overrides = None,
    own: Own = None,
    resume: Annotated[Path | None, option("RUN", "Resume this run instead.")] = None,
    runs: Annotated[Path, typer.Option(help="The folder in which the run folder is created.")] = Path("runs"),
    name: Annotated[str, option("NAME", "The run folder is RUNS/CONFIG/NAME. Default: date and time.")] = "",
    trust: Trust = False,
) -> None:
    """Train a config, evaluate, and write a report. Ctrl-C saves the run, and --resume continues it.

    With --name, the same command continues it too.

    Your own table needs no config: contml train --data items.csv --label age=number
    """
    shared.check_run_name(name)
    # Mistyped names are reported before torch is imported.
    new_folder = None
    if resume is None:
        new_experiment = shared.load_experiment(config, overrides, own)
        new_folder = runs / new_experiment.name / name if name else None
        if new_folder is not None and own is not None and own.preset is None and own.weights is None:
            recorded = recorded_preset(new_folder)  # a file in the cache may have come or gone since
            if recorded not in ("", new_experiment.preset.name):
                new_experiment = shared.load_experiment(config, overrides, own._replace(preset=recorded))
        if new_folder is not None and begun(new_folder, dump(new_experiment.values)):  # before the data are read
            resume = new_folder  # the same command was interrupted, or is complete
            trust = True  # the user's own config
    elif other_argument := config or ("--data" if own is not None else "--name" if name else ""):
        raise InputError("--resume", f"used with {other_argument}", hint="omit one of them")
    else:
        open_run(resume)
    from contml.training import Interrupted

    folder = resume
    before = "" if new_folder is None else complete(new_folder / "report.html")

    def on_start(run: Run) -> None:
        nonlocal folder
        folder = run.folder
        if chosen := new_experiment.preset.name:
            echo(f"preset: {chosen}, {new_experiment.preset.reason}", err=True)
        echo(f"run folder: {folder}", err=True)

    def on_columns(rows: Sequence[Sequence[str]]) -> None:
        print_table(rows, text_columns=len(rows[0]), stderr=True)

    try:
        if resume is not None and before:
            run: Run | None = experiment.complete_run(resume)
        elif resume is not None:
            run = experiment.resume(resume, trust=trust, on_finished=lambda text: echo(text, err=True))
        else:
            events: Any = {"on_start": on_start, "on_columns": on_columns}
            command = shlex.join(["contml", *sys.argv[1:]])
            run = experiment.train(new_experiment, runs, **events, folder=new_folder, command=command)
    except Interrupted as stop:
        hint = f"; continue with: contml train --resume {folder}" if folder else ""
        echo(f"contml: {stop}{hint}", err=True)
        raise typer.Exit(130) from None
    if run is not None:
        result = experiment.read_evaluation(run)
        print_evaluation(result)
        print_calibration(run, result.evaluation.measure)
        echo(f"report: {before}{run.folder / 'report.html'}")


_SAVED = option("FILE", "Write the whole config, with what was found in your data.")


@shared.takes_own_data
def check(
    config: Config = None,
    overrides: Overrides = None,
    own: Own = None,
    images: DecodedImages = "batch",
    save_config: Annotated[Path | None, _SAVED] = None,
    as_json: Json = False,
) -> None:
    """Read the data, build everything and run one batch, without training. --images all decodes every image."""
    columns: list[Sequence[str]] = []
    if save_config is not None:
        check_new_file(save_config, begins=b"task:")
    loaded_experiment = shared.load_experiment(config, overrides, own)
    facts = experiment.check(loaded_experiment, images=images, on_columns=columns.extend, on_broken=print_broken)
    if chosen := loaded_experiment.preset.name:
        facts.append(("preset", f"{chosen}, {loaded_experiment.preset.reason}"))
    if save_config is not None:
        before = complete(save_config) or "written: "
        write_new(save_config, dump(loaded_experiment.values).encode())
        facts.append(("config", f"{before}contml train {save_config}"))
    if as_json:
        table = {"columns": [dict(zip(columns[0], row, strict=True)) for row in columns[1:]]} if columns else {}
        echo(json.dumps({**dict(facts), **table}))
        return
    if columns:
        print_table(columns, text_columns=len(columns[0]))
    print_table([["", ""], *facts], header=False)


_MAPS = typer.Option("--maps", help="Write the last feature maps, for a captioner with attention.")


@shared.takes_own_data
def features(
    config: Config = None,
    overrides: Overrides = None,
    out: Annotated[Path, option("FILE", "The file to write: .npz, .npy or .parquet.")] = Path("features.npz"),
    own: Own = None,
    maps: Annotated[bool, _MAPS] = False,
    cluster: Cluster = "",
) -> None:
    """Write the backbone features of all images of a config, to train a head on them in seconds.

    contml features classes/synthetic --out f.npz; contml train classes/synthetic images.features=f.npz
    model.backbone=features

    After an interruption, the same command continues. A complete file stays as it is.
    """
    from contml._support.progress import progress_bar

    check_suffix(out, FEATURES)
    check_new_file(out, hint="choose another file with --out")
    before = complete(out)
    loaded_experiment = shared.load_experiment(config, overrides, own)
    task = loaded_experiment.read_task()
    loaded_experiment = replace(loaded_experiment, task=task)
    with progress_bar(sum(map(len, task.splits.values())), "features") as progress:
        written = experiment.extract_features(loaded_experiment, out, progress, maps=maps, cluster=cluster)
    resumed = f" ({written.resumed:,} from an earlier run)" if written.resumed else ""
    echo(f"{out}: {before}{written.items:,} {'maps' if maps else 'vectors'} of {written.dim:,} numbers{resumed}")
    named = loaded_experiment.config.parts["model"].options["weights"] != "none"
    changes = f"images.features={out} model.backbone=features" + " model.weights=none" * named
    echo(f"train a head on them with: {changes}")
