"""`contml benchmark`: train the missing trainings of a suite, and write its page."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from contml import work
from contml._support.errors import InputError, did_you_mean
from contml._support.files import check_new_file, write
from contml.app.trials.plan import Cell, TrainingItem, cells, seconds_left
from contml.app.trials.record import FinishedTrainings, Result, train_missing
from contml.app.trials.suite import Suite, read_suite

#: The text of the page below this heading is written by hand, and kept.
NOTES = "\n## Notes\n"


@dataclass(frozen=True)
class Benchmark:
    """The cells of a benchmark that were asked for, and the finished trainings.

    Attributes:
        suite: the suite.
        cells: the cells.
        results: the finished trainings, of all cells.
    """

    suite: Suite
    cells: Sequence[Cell]
    results: Mapping[str, Result]

    @property
    def done(self) -> int:
        """The number of finished trainings."""
        return sum(cell.done(self.results) for cell in self.cells)

    @property
    def total(self) -> int:
        """The number of all trainings."""
        return sum(cell.total for cell in self.cells)

    @property
    def parts(self) -> dict[str, Benchmark]:
        """The cells of each set."""
        names = dict.fromkeys(cell.set_name for cell in self.cells)
        return {name: replace(self, cells=[cell for cell in self.cells if cell.set_name == name]) for name in names}

    def __str__(self) -> str:
        text, left = f"{self.done:,} of {self.total:,} trainings are done", self.total - self.done
        hours = seconds_left(self.cells, self.results, self.suite.seconds) / 3600
        return f"{text}; the other {left:,} take about {hours:.1f} core-hours" if left else text


def page_of(results: Path, suite: str) -> Path:
    """Return the page in a folder of results, for a suite given by name or by file."""
    return results / f"{Path(suite).name.removesuffix('.yaml').removesuffix('.yml')}.md"


def trainings_of(results: Path, suite: str) -> Path:
    """Return the file of the finished trainings in a folder of results."""
    return results / "raw" / page_of(results, suite).with_suffix(".jsonl").name


def benchmark(
    name: str,
    given: Sequence[str],
    *,
    inputs: Path,
    results: Path,
    only: Sequence[str] = (),
    plan: bool = False,
    processes: int | None = None,
    cluster: str = "",
    minutes: float = math.inf,
    on_line: Callable[[str], object] = print,
) -> Benchmark:
    """Train the missing trainings: all methods of a set before the next set.

    Args:
        name: the suite.
        given: `NAME=PATH` for each of its places.
        inputs: the folder for features and label distances.
        results: the folder for the finished trainings and the page.
        only: names of sets and methods.
        plan: train nothing.
        processes: number of trainings at a time. Default: 1. With a cluster, it is the number of its processors (GPUs,
            if it has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`. Its machines need the current
            folder, the data, `inputs` and `results`. If it is empty, this machine trains.
        minutes: no training begins after this time.
        on_line: called with the lines to print meanwhile.

    Raises:
        InputError: an error in the suite or the arguments, of the data or of the machine.
    """
    deadline = time.monotonic() + 60 * minutes
    suite = read_suite(name)
    places = {} if plan else _parse_places(suite, given, inputs)
    out, record = page_of(results, name), FinishedTrainings(trainings_of(results, name))
    names = [*suite.sets, *suite.methods]
    if unknown := next((each for each in only if each not in names), None):
        raise InputError("--only", unknown, hint=did_you_mean(unknown, names, f"choose of {', '.join(names)}"))
    chosen = Benchmark(suite, cells(suite, places, only), record)
    if not plan:
        check_new_file(out, begins=f"# {suite.title}\n".encode())
    from contml.app.trials.measure import check_methods, measure, prepare

    check_methods(suite, [(cell.set_name, cell.method_name) for cell in chosen.cells], places)
    on_line(f"{suite.title}: {chosen}")
    if plan:
        for set_name, part in chosen.parts.items():
            on_line(f"{set_name}: {part}")
        return chosen

    def on_done(item: TrainingItem) -> None:
        result = record[item.key]
        score = f"{result['value']:.4f}" if "value" in result else "failed"
        on_line(f"{item}: {score} in {result['seconds']:.1f} s")

    def known(set_name: str, part: Benchmark) -> list[TrainingItem]:
        items = [item for cell in part.cells for item in cell.known(record)]
        if any(item.key not in record for item in items):
            if time.monotonic() >= deadline:  # features may take long
                raise work.OutOfTimeError
            prepare(suite, set_name, places, [cell.method_name for cell in part.cells])
        return items

    options = {"processes": processes, "cluster": cluster, "deadline": deadline, "on_done": on_done}
    with record.command(str(record.path)), suppress(work.OutOfTimeError):
        for each in chosen.parts.items():
            train_missing(partial(known, *each), measure, record, **options)
    write_page(replace(chosen, cells=cells(suite, places)), out)
    return chosen


def write_page(benchmark: Benchmark, out: Path) -> None:
    """Write the page of all sets and methods. Its notes are kept."""
    from contml.app.trials.page import page

    text = page(benchmark.suite, benchmark.cells, benchmark.results, f"{date.today().isoformat()}. {benchmark}.")
    if out.exists():
        _, heading, notes = out.read_text(encoding="utf-8").partition(NOTES)
        text += heading + notes
    write(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _parse_places(suite: Suite, given: Sequence[str], inputs: Path) -> dict[str, str]:
    """Return the paths that the command line gives for the places of a suite, with the folder of the inputs.

    Raises:
        InputError: a place is unknown or missing.
    """
    places: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if name not in suite.places or not equals:
            asked = f"give {' '.join(f'{each}=PATH' for each in suite.places)}" if suite.places else "it asks for none"
            raise InputError(text, "no place of this suite", hint=did_you_mean(name, suite.places, asked))
        places[name] = str(Path(path).expanduser().absolute())
    for name, meaning in suite.places.items():
        if name not in places:
            raise InputError(name, "missing", hint=f"give {name}=PATH, {meaning}")
    return {**places, "folder": str(inputs.absolute())}
