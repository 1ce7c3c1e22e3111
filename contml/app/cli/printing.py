"""Printing of tables and evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Exit, echo as write_line

from contml._support.text import plain_text

if TYPE_CHECKING:
    from contml.app.trials.table import TableCell
    from contml.contracts import Measure
    from contml.evaluation.evaluated import Evaluated
    from contml.runs import Run


#: The longest cell of a table that is printed whole; an index may hold texts of a megabyte.
_LONGEST = 2000


def echo(text: object, *, lines: bool = False, err: bool = False) -> None:
    """Print a line, in which text from data cannot control the terminal.

    Args:
        text: the line.
        lines: it has several lines.
        err: print on stderr.
    """
    write_line(plain_text(str(text), lines=lines), err=err)


@contextmanager
def stoppable(what: str = "") -> Iterator[None]:
    """Stop on Ctrl-C with a line: the same command continues `what`."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"contml: stopped; the same command continues{what}", err=True)
        raise Exit(130) from None


def complete(path: Path) -> str:
    """Return a remark for a file that exists before the command begins. The same command has made it."""
    return "complete already: " if path.exists() else ""


def print_evaluation(evaluated: Evaluated, *, as_json: bool = False) -> None:
    """Print the evaluation of a run as a table and a sentence, or as JSON."""
    from contml.evaluation.evaluated import scope, sentence, summary

    if as_json:
        echo(json.dumps(evaluated.to_dict()))
        return
    evaluation = evaluated.evaluation
    echo(evaluated.description)
    print_table(summary(evaluation))
    echo(scope(evaluation))
    if 0 < evaluation.sorted_queries < evaluation.queries:
        echo(f"H-AP and Kendall's tau: {evaluation.sorted_queries} of the queries")
    if evaluation.skipped:
        echo(f"images that could not be read and were excluded: {evaluation.skipped:,}")
    echo(sentence(evaluation))
    if evaluated.comparison and not evaluated.without_head:  # else a note says it
        echo(evaluated.comparison)
    for change in evaluated.changes:
        echo(f"changed since the run began: {change}")
    for note in evaluated.notes:
        echo(f"note: {note}")


def print_calibration(run: Run, measure: Measure) -> None:
    """Print how well the embedding distances of a run predict label distances, and how well it predicts labels."""
    from contml.search import Calibration
    from contml.search.labelled_items import LabelledItems

    calibration = Calibration.read(run.calibration)
    if calibration is not None:
        echo(calibration.sentence(measure))
    labelled = LabelledItems.of_run(run)
    for sentence in [] if labelled is None else labelled.sentences():
        echo(sentence)


def print_table(
    rows: Sequence[Sequence[str | TableCell]], *, header: bool = True, text_columns: int = 1, stderr: bool = False
) -> None:
    """Print a table. The first `text_columns` columns are text, the others are numbers."""
    table = Table(show_header=header, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column, title in enumerate(rows[0]):
        side: Any = "right" if header and column >= text_columns else "left"
        table.add_column(plain_text(str(title)), justify=side, overflow="fold")
    for row in rows[1:]:
        cells = ((cell, False) if isinstance(cell, str) else cell for cell in row)
        cut = ((text[:_LONGEST] + "…" * (len(text) > _LONGEST), "bold" * best) for text, best in cells)
        table.add_row(*(Text(plain_text(text), style) for text, style in cut))
    # A piped table is not folded to the width of a terminal.
    console = Console(highlight=False, markup=False, stderr=stderr)
    console.width = console.width if console.is_terminal else 400
    with console.capture() as capture:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def print_broken(name: str, cause: str) -> None:
    """Print a broken image on stderr."""
    echo(f"{name}: cannot be decoded ({cause})", err=True)


def print_unread(images: Mapping[str, str]) -> str:
    """Print broken images on stderr. Return a text with their number."""
    for name, cause in images.items():
        print_broken(name, cause)
    return f"{len(images):,} image{'s' * (len(images) > 1)} could not be read" if images else ""


def unread_data(images: Mapping[str, str]) -> list[dict[str, str]]:
    """Return broken images as plain values, for JSON."""
    return [{"image": name, "cause": cause} for name, cause in images.items()]
