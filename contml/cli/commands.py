"""The command line: parse, call, print. Results go to stdout, progress and logs to stderr."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from contml._support.errors import InputError
from contml.cli import listing
from contml.cli.printing import file_errors, show, show_evaluation

if TYPE_CHECKING:
    from contml.experiment import Experiment

app = typer.Typer(
    help="Train embeddings whose distances follow the distances between labels.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _complete_config(incomplete: str) -> list[str]:
    from contml.experiment import config_names

    return [name for name in config_names() if name.startswith(incomplete)]


def _complete_task(incomplete: str) -> list[str]:
    from contml.experiment import task_table

    return [name for name in task_table() if name.startswith(incomplete)]


Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as 'contml train' prints it.")]
Trust = Annotated[bool, typer.Option("--trust", help="Let the run's config name code to import.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
ConfigName = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="A config that comes with contml ('pose/synthetic'), or a YAML file.",
        autocompletion=_complete_config,
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config: 'loss.strict=true'.")
]
_COMPARE_EXAMPLE = """Example: for d in 16 32 64 128; do contml train pose/synthetic model.dim=$d; done;
contml compare runs/pose/synthetic/* --by model.dim"""
Data = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A table of your own, .csv or .parquet; then no config is needed.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME[=KIND[:WEIGHT]]",
        help="A label of --data: 'age=number', 'lat,lon=place:0.5', or 'age' (its kind is guessed); repeatable.",
    ),
]
ImageColumn = Annotated[str | None, typer.Option("--image", metavar="COLUMN", help="The column of images of --data.")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"contml {version('contml')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Train embeddings whose distances follow the distances between labels."""


def main() -> None:
    """Entry point of the `contml` command: a bad input is one line on stderr and exit status 2."""
    # A module of one's own in the working directory can be named in a config; last, so that it shadows nothing.
    sys.path.append(str(Path.cwd()))
    try:
        app()
    except InputError as error:
        print(f"contml: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        print(f"contml: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


@app.command()
def train(
    config: ConfigName = None,
    overrides: Overrides = None,
    data: Data = None,
    label: Labels = None,
    image: ImageColumn = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with this run instead.")] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    trust: Trust = False,
) -> None:
    """Train a config, evaluate, and write a report. Ctrl-C saves; --resume goes on from there.

    A table of your own needs no config: contml train --data items.csv --label age=number
    """
    from contml import experiment
    from contml.runs import Run, open_run

    # Mistyped names come before the import of torch.
    if resume is None:
        chosen = _chosen(config, overrides, data, label, image)
    elif config is not None or data is not None:
        extra = f"'{config}'" if config is not None else "--data"
        raise InputError(f"--resume goes on with {resume} as it is; leave out {extra}, or start a new run")
    else:
        open_run(resume)
    from contml.training import Interrupted

    folder: list[Path] = [resume] if resume else []

    def started(run: Run) -> None:
        folder.append(run.folder)
        print(f"run folder: {run.folder}", file=sys.stderr)  # noqa: T201

    try:
        if resume is not None:
            run = experiment.resume(resume, trust=trust)
        else:
            run = experiment.train(
                chosen, runs, started=started, described=lambda rows: show(rows, words=len(rows[0]), stderr=True)
            )
    except Interrupted as stop:
        how = f"; go on with: contml train --resume {folder[-1]}" if folder else ""
        print(f"contml: {stop}{how}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(130) from None
    if run is not None:
        show_evaluation(run.folder)
        print(f"report: {run.folder / 'report.html'}")  # noqa: T201


@app.command()
def evaluate(
    run: Folder,
    checkpoint: Annotated[Literal["last", "best"], typer.Option(help="Which weights.")] = "last",
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run's weights on its test split, beside a random ranking and the oracle."""
    from contml import experiment

    experiment.evaluate_run(run, checkpoint=checkpoint, trust=trust)
    show_evaluation(run, as_json=as_json)


@app.command()
def report(
    run: Folder,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="IMAGE IMAGE",
            help="Two test images, by name or by row, whose label distance match.png explains (captions: which words "
            "were matched to which). Default: the first query and its best retrieval.",
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a run's report.html and its pictures anew."""
    from contml import experiment

    print(experiment.report_run(run, trust=trust, pair=pair))  # noqa: T201


@app.command(epilog=_COMPARE_EXAMPLE)
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A metric to show, such as 'recall@1' or 'label_distance@10/random'; several times."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="KEY", help="Draw the metric against this config key, such as 'model.dim'.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="Average runs that agree in this config key; several times. Default: all but the seed."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write table.md and table.csv there, and plot.png with --by.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side: a table of what differs in their configs and what they reached.

    Runs that differ in nothing but the seed share a row, with mean and standard deviation. Where a config has a section
    'published', the paper's metrics are shown beside ours. Runs tested on different data get a table each; runs without
    metrics are listed under the tables, with the reason.

    Metrics are those of an evaluation: recall@K, map_at_r, label_distance@K, ndcg@K, spearman, ... With '/random'
    after it (label_distance@10/random) a metric is divided by a random ranking's, with '/normalized' it is the
    normalized score: 0 for a random ranking, 1 for the oracle.

    --by draws one line a group: runs that differ in other keys are other groups, or those that --group names.
    """
    from contml._support.files import write
    from contml.reporting.compare import compare as compare_runs
    from contml.reporting.compare_figure import comparison_figure
    from contml.reporting.compare_table import as_data, body, comma_separated, header, markdown, remarks
    from contml.reporting.figures import png

    found = compare_runs(runs, metric or (), by, group or ())
    files: dict[Path, bytes] = {}
    if by is not None:
        files[save / "plot.png" if save else Path("plot.png")] = png(comparison_figure(found, metric or ()))
    if save is not None:
        files |= {save / "table.md": markdown(found).encode(), save / "table.csv": comma_separated(found).encode()}
    for path, content in files.items():
        with file_errors(path):
            write(path, methodcaller("write_bytes", content))
    if as_json:
        print(json.dumps(as_data(found)))  # noqa: T201
    for part in [] if as_json else found.groups:
        print(part.title)  # noqa: T201
        show([header(part), *body(part)], words=len(part.keys))
        print(*remarks(part), "", sep="\n")  # noqa: T201
    for line in () if as_json else (*found.notes, *found.left_out):
        print(line)  # noqa: T201
    for path in files:
        print(path, file=sys.stderr if as_json else sys.stdout)


@app.command()
def check(
    config: ConfigName = None,
    overrides: Overrides = None,
    data: Data = None,
    label: Labels = None,
    image: ImageColumn = None,
    as_json: Json = False,
) -> None:
    """Read the data, build everything, take one batch; train nothing."""
    from contml import experiment

    columns: list[Sequence[str]] = []
    chosen = _chosen(config, overrides, data, label, image)
    facts = experiment.check(chosen, described=columns.extend)
    if as_json:
        table = {"columns": [dict(zip(columns[0], row, strict=True)) for row in columns[1:]]} if columns else {}
        print(json.dumps({**dict(facts), **table}))  # noqa: T201
        return
    if columns:
        show(columns, words=len(columns[0]))
    show([["", ""], *([name, value] for name, value in facts)], header=False)


@app.command()
def features(
    config: ConfigName = None,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .npz, .npy or .parquet.")] = Path(
        "features.npz"
    ),
    data: Data = None,
    label: Labels = None,
    image: ImageColumn = None,
) -> None:
    """Write the backbone's features of all images of a config, to train a head on them in seconds.

    contml features classes/synthetic --out f.npz; contml train classes/synthetic images.features=f.npz
    model.backbone=features

    Stopped, it goes on where it was when it is called again.
    """
    from contml import experiment
    from contml._support.progress import progress_bar

    chosen = _chosen(config, overrides, data, label, image)
    task = chosen.build_task()
    total = sum(len(split) for split in (task.train, task.test, task.val) if split is not None)
    with progress_bar(total, "features") as progress:
        found = experiment.extract_features(replace(chosen, task=task), out, progress)
    more = f" ({found.resumed:,} were there from a run that was stopped)" if found.resumed else ""
    print(f"{out}: {found.items:,} vectors of {found.dim:,} numbers{more}")  # noqa: T201
    print(f"train a head on them with: images.features={out} model.backbone=features")  # noqa: T201


@app.command()
def prepare(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="A task that reads files: 'classes/cub'.", autocompletion=_complete_task),
    ],
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="The folder of the data set.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the task: 'task.missing=drop'.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Pixels square that images are brought to, as images.resize.")] = 256,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode; 0 decodes in this one.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the resized images there, for images.cache=FOLDER.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hold a data set on disk to what was published: its lists, its counts, its files; decode every image.

    With --cache the decoded and resized images are kept in a folder, and a training reads them from there.
    """
    from contml.preparation import prepare as prepared

    found = prepared(task, root, overrides or [], size=size, workers=workers, cache=cache)
    if as_json:
        print(json.dumps(asdict(found)))  # noqa: T201
    else:
        for what, words in found.notes:
            print(f"{what}: {words}")  # noqa: T201
        show(found.facts)
    if found.broken:
        for name, cause in found.broken[1:]:
            print(f"{name}: cannot be decoded ({cause})", file=sys.stderr)  # noqa: T201
        name, cause = found.broken[0]
        raise InputError(
            f"{name}: cannot be decoded ({cause}), one of {len(found.broken):,} of the {found.images:,} images; get "
            "them again, or train with images.broken=skip"
        )
    if not as_json:
        print(f"{task}: all {found.images:,} images are there and can be decoded")  # noqa: T201
        if cache is not None:
            taken = f"images.cache={cache} images.resize={size}"
            print(f"{cache} has {found.kept / 1e9:.3g} GB of resized images; train with {taken}")  # noqa: T201


@app.command(name="list")
def list_(
    what: Annotated[str | None, typer.Argument(metavar="[WHAT]", help="One kind of part; default an overview.")] = None,
    as_json: Json = False,
) -> None:
    """List configs, tasks, labels as 0 / 1, backbones, transforms, samplers, losses, miners, steps, optimizers, ..."""
    kinds = listing.kinds()
    if what is not None and what not in kinds:
        raise InputError(f"there is no list of '{what}'; there are {', '.join(kinds)}")
    if what is None and not as_json:
        kinds["backbones"] = listing.own_backbones
    chosen = [what] if what else [*kinds]
    if as_json:
        print(json.dumps({name: listing.as_data(kinds[name]()) for name in chosen}))  # noqa: T201
        return
    for name in chosen:
        entries = kinds[name]()
        print(f"{name}:")  # noqa: T201
        for entry, part in entries.items():
            print(textwrap.indent(listing.described(entry, part, full=what is not None), "  "))  # noqa: T201


@app.command()
def copy(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG", help="A config that comes with contml.", autocompletion=_complete_config),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
) -> None:
    """Copy a config that comes with contml, to edit it."""
    from contml import experiment
    from contml._support.files import write

    text = experiment.config_text(config)
    if file.is_dir():
        file = file / f"{config.split('/')[-1]}.yaml"
    if file.exists():
        raise InputError(f"{file} exists already; name another file")
    with file_errors(file):
        write(file, lambda path: path.write_text(text, encoding="utf-8"))
    print(f"{file}: train it with 'contml train {file}'")  # noqa: T201


@app.command()
def weights(
    losses: Annotated[
        list[str],
        typer.Argument(
            metavar="LOSS [KEY=VALUE]...",
            help="Losses by their names in a config, each followed by its options: 'raw raw loss.beta=10 miner=vthm'.",
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The PNG to write.")] = Path("weights.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the curves as JSON, and draw nothing.")] = False,
) -> None:
    """Draw the weight that losses give a pair against its similarity, one panel a loss.

    A pair's weight is dH/ds for negatives and -dH/ds for positives: how hard the loss H pulls or pushes at the
    similarity s (cosine of unit vectors), as in Figure 1 of "A Unified View of Deep Metric Learning via Gradient
    Analysis"; before what all pairs are divided by. Positives are solid green, negatives dotted blue.

    It may depend on the anchor's other pairs: an anchor in a batch of 16 classes with 5 items each has one of its pairs
    moved over [-1, 1] while the others stay, its positives evenly from 0.4 to 0.8, its negatives from -0.2 to 0.6; the
    pairs of all other anchors are alike. Where a loss has proxies, they take the place of items.
    """
    from contml._support.files import write
    from contml.reporting.figures import png
    from contml.reporting.weights import SETUP, curves, weights_figure

    if output.is_dir():
        output = output / "weights.png"
    if output.suffix.lower() != ".png":
        raise InputError(f"--output is {output}; a PNG is written, so name it {output.stem}.png")
    drawn = curves(losses)
    if as_json:
        print(json.dumps({"setup": SETUP, "curves": [curve.as_data() for curve in drawn]}))  # noqa: T201
        return
    picture = png(weights_figure(drawn))
    with file_errors(output):
        write(output, lambda path: path.write_bytes(picture))
    print(output)  # noqa: T201


def _chosen(
    config: str | None, overrides: list[str] | None, data: Path | None, label: list[str] | None, image: str | None
) -> Experiment:
    from contml import experiment

    if data is not None:
        changes = [*([config] if config is not None and "=" in config else []), *(overrides or [])]
        named = None if config is None or "=" in config else config
        return experiment.load_table(data, label or [], image, named, changes)
    if label or image is not None:
        raise InputError("--label and --image tell of a table of your own; name it: --data FILE")
    if config is None:
        raise InputError("name a config: 'contml train pose/synthetic'; 'contml list configs' shows them")
    return experiment.load(config, overrides or [])
