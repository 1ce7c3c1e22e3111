"""The command line: parse, call, print. Results go to stdout, progress and logs to stderr."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from contml._support.errors import InputError, did_you_mean, lost_worker
from contml._support.files import write_new
from contml.app import experiment
from contml.app.cli import STOPPED, listing
from contml.app.cli.comparisons import BENCHMARK_EXAMPLE, COMPARE_EXAMPLE, SWEEP_EXAMPLE, benchmark, compare, sweep
from contml.app.cli.embed import CAPTION_EXAMPLE, EMBED_EXAMPLE, PREDICT_EXAMPLE, caption, embed, export, predict
from contml.app.cli.explore import AUDIT_EXAMPLE, EXPLORE_EXAMPLE, audit, explore
from contml.app.cli.hints import CONFIGURED, fitting
from contml.app.cli.index import INDEX_EXAMPLE, SEARCH_EXAMPLE, index, search
from contml.app.cli.options import AcceptChanges, BundledConfig, Json, RunFolder, Trust, argument, option
from contml.app.cli.printing import complete, echo, print_calibration, print_evaluation
from contml.app.cli.train import check, features, train
from contml.runs import open_run


class _Commands(TyperGroup):
    """The commands. Ctrl-C gives one line, where typer would write an empty one."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo(STOPPED, err=True)
            raise typer.Exit(130) from None


app = typer.Typer(cls=_Commands, rich_markup_mode=None, pretty_exceptions_enable=False)
#: The error of wrong arguments, in the version of click that typer uses.
_UsageError: Any = typer.BadParameter.__bases__[0]


#: The processor time that a container may use in a period, both in microseconds: "200000 100000" or "max 100000".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def _set_threads() -> None:
    """Set how OpenMP's threads wait, and their number, unless the user did. Torch reads both when it is imported.

    Waiting threads sleep, since spinning threads take the time of other work. On a busy machine, spinning threads make
    a training several times slower. A container with a quota of processor time gets one thread per processor of its
    quota.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with suppress(OSError, ValueError):
        quota, period = map(int, _QUOTA.read_text().split())
        if (allowed := max(1, round(quota / period))) < (os.cpu_count() or 1):
            os.environ.setdefault("OMP_NUM_THREADS", str(allowed))


def main() -> None:
    """Run the `contml` command. Bad input is reported in one line on stderr, with exit status 2."""
    _set_threads()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a pipe on Windows may have a code page that lacks characters
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(args=sys.argv[1:] or ["--help"], standalone_mode=False))
    except InputError as error:
        message = str(fitting(error, *_called(sys.argv[1:])))
    except _UsageError as error:
        message = " ".join(error.format_message().split()).replace(": Value error, ", ": ")
        command = _called(sys.argv[1:])[0]
        is_unknown = message.startswith("No such option") and "Possible" not in message
        if is_unknown and command in CONFIGURED:
            message += "; an option of the config is written as training.epochs=3"
    except typer.Abort:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has closed it
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        message = f"{error.filename or 'a file'}: {error.strerror or error}"
    except RuntimeError as error:  # of a worker: PyTorch raises it in whatever code runs at that moment
        if (lost := lost_worker(error)) is None:
            raise
        message = str(lost)
    echo(f"contml: {message}", err=True)
    sys.exit(2)


def _called(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that was called, and its options."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group
    name = next((argument for argument in arguments if argument in commands), "")
    options = [option for parameter in commands[name].params for option in parameter.opts] if name else []
    is_resumed = name == "train" and any(argument.partition("=")[0] == "--resume" for argument in arguments)
    return "train --resume" if is_resumed else name, options


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        echo(f"contml {version('contml')}")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")


@app.callback()
def options(version: Annotated[bool, _VERSION] = False) -> None:
    """Train embeddings whose distances follow the distances between labels."""


app.command()(train)
app.command(epilog=SWEEP_EXAMPLE)(sweep)
app.command(epilog=BENCHMARK_EXAMPLE)(benchmark)


_CHECKPOINT = option(None, "Which weights. Default: the weights that the run selected.")


@app.command()
def evaluate(
    run: RunFolder,
    checkpoint: Annotated[Literal["last", "best"] | None, _CHECKPOINT] = None,
    accept_changes: AcceptChanges = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run's weights on its test split, beside a random ranking and the oracle.

    The result of weights that the run did not select is kept in a file of its own, such as
    evaluation-last.json.
    """
    result = experiment.evaluate_run(run, checkpoint=checkpoint, accept_changes=accept_changes, trust=trust)
    print_evaluation(result, as_json=as_json)
    if checkpoint is None and not as_json:
        print_calibration(open_run(run), result.evaluation.measure)


@app.command()
def report(run: RunFolder, accept_changes: AcceptChanges = False, trust: Trust = False) -> None:
    """Write the report.html of a run again, with its pictures."""
    echo(experiment.report_run(run, accept_changes=accept_changes, trust=trust))


app.command(epilog=COMPARE_EXAMPLE)(compare)
app.command(epilog=INDEX_EXAMPLE)(index)
app.command(epilog=SEARCH_EXAMPLE)(search)
app.command(epilog=EXPLORE_EXAMPLE)(explore)
app.command(epilog=AUDIT_EXAMPLE)(audit)
app.command()(check)
app.command()(features)
app.command()(export)
app.command(epilog=EMBED_EXAMPLE)(embed)
app.command(epilog=PREDICT_EXAMPLE)(predict)
app.command(epilog=CAPTION_EXAMPLE)(caption)


@app.command(name="list")
def list_(
    kind: Annotated[str | None, argument("[KIND]", "One kind of part. Default: an overview.")] = None,
    as_json: Json = False,
) -> None:
    """List configs, tasks, losses, samplers, backbones, ..., with their options."""
    kinds = listing.kinds()
    if kind is not None and kind not in kinds:
        raise InputError(f"'{kind}'", "unknown kind", f"must be one of {', '.join(kinds)}", did_you_mean(kind, kinds))
    if kind is None and not as_json:
        kinds["backbones"] = listing.own_backbones
    entries_by_kind = {name: kinds[name]() for name in ([kind] if kind else kinds)}
    if as_json:
        echo(json.dumps({name: listing.as_data(entries) for name, entries in entries_by_kind.items()}))
        return
    for name, entries in entries_by_kind.items():
        echo(f"{name}:")
        for entry, part in entries.items():
            echo(textwrap.indent(listing.describe(entry, part, full=kind is not None), "  "), lines=True)


@app.command()
def copy(config: BundledConfig, file: Annotated[Path, argument("FILE", "The file to write.")]) -> None:
    """Copy a config that comes with contml, to edit it."""
    text = experiment.config_text(config)
    if file.is_dir():
        file = file / f"{config.split('/')[-1]}.yaml"
    before = complete(file)
    write_new(file, text.encode())
    echo(f"{file}: {before}train it with 'contml train {file}'")
