"""Tables on the terminal, and the line for a file that cannot be written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contml._support.errors import InputError

if TYPE_CHECKING:
    from contml.reporting.compare_table import Cell


def show_evaluation(folder: Path, *, as_json: bool = False) -> None:
    """The evaluation in a run folder, as a table and in words, or as JSON."""
    from contml.evaluation.results import Evaluation
    from contml.reporting import sentence, summary, unit_words

    values = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps(values))  # noqa: T201
        return
    evaluation = Evaluation.from_dict({name: value for name, value in values.items() if name != "checkpoint"})
    show(summary(evaluation))
    unit = unit_words(evaluation)
    print(f"{evaluation.queries} queries, {evaluation.gallery} in the gallery; label distance: {unit}")  # noqa: T201
    if evaluation.skipped:
        print(f"{evaluation.skipped} images could not be read and were left out")  # noqa: T201
    print(sentence(evaluation))  # noqa: T201


def show(rows: Sequence[Sequence[str | Cell]], *, header: bool = True, words: int = 1, stderr: bool = False) -> None:
    """A table on stdout; words: how many columns from the left on are no numbers."""
    table = Table(show_header=header, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column, title in enumerate(rows[0]):
        table.add_column(str(title), justify="right" if header and column >= words else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*(cell if isinstance(cell, str) else Text(cell.text, "bold" * cell.best) for cell in row))
    # A piped table is not folded to some terminal's width.
    console = Console(highlight=False, markup=False, stderr=stderr)
    console.width = console.width if console.is_terminal else 400
    console.print(table)


@contextmanager
def file_errors(file: Path) -> Iterator[None]:
    """What the disk says against writing a file is one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror})") from None
