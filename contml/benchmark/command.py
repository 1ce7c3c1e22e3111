"""`contml benchmark`: train what is missing of a suite, and write its page."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from contml import work
from contml._support.errors import InputError, did_you_mean
from contml._support.files import check_new_file, write
from contml.benchmark.suite import Suite, read_suite
from contml.benchmark.trials import Cell, Item, Result, cells, seconds_left, value

#: What stands on the page below this heading is written by hand, and kept.
NOTES = "\n## Notes\n"


class Trainings(work.Lines[Result]):
    """The finished trainings, a line each: the key, and the result."""

    of = "a benchmark"

    def parse(self, row: dict[str, Any]) -> tuple[str, Result]:
        """The key and the result of a line."""
        result = {name: part for name, part in row.items() if name != "key"}
        if not isinstance(result["seconds"], float | int) or ("value" in result) == ("error" in result):
            raise ValueError
        return str(row["key"]), result

    def row(self, key: str, value: Result) -> Mapping[str, Any]:
        """The line of a result."""
        return {"key": key, **value}


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
    def hours(self) -> float:
        """About how many hours one core needs for the others."""
        return seconds_left(self.cells, self.results, self.suite.seconds) / 3600

    @property
    def parts(self) -> dict[str, Benchmark]:
        """The cells of each set."""
        names = dict.fromkeys(cell.set_name for cell in self.cells)
        return {name: replace(self, cells=[cell for cell in self.cells if cell.set_name == name]) for name in names}

    def __str__(self) -> str:
        text = f"{self.done:,} of {self.total:,} trainings are done"
        left = self.total - self.done
        return f"{text}; the other {left:,} take about {self.hours:.1f} core-hours" if left else text


class Output(NamedTuple):
    """The files of a benchmark."""

    trainings: Path
    page: Path
    plot: Path

    @classmethod
    def of(cls, folder: Path, suite: str) -> Output:
        """The files in a folder, of a suite given by name or by file."""
        name = Path(suite).name.removesuffix(".yaml").removesuffix(".yml")
        return cls(folder / "raw" / f"{name}.jsonl", folder / f"{name}.md", folder / f"{name}.png")


def chosen_cells(suite: Suite, places: Mapping[str, str], only: Iterable[str]) -> list[Cell]:
    """The cells of some sets and methods.

    Raises:
        InputError: a name is neither.
    """
    names = [*suite.sets, *suite.methods]
    for name in only:
        if name not in names:
            raise InputError("--only", name, hint=did_you_mean(name, names, f"choose of {', '.join(names)}"))
    return cells(suite, places, only)


def parse_places(suite: Suite, given: Sequence[str], inputs: Path) -> dict[str, str]:
    """What the command line gives for the places of a suite, with the folder of the inputs.

    Raises:
        InputError: a place is unknown or missing.
    """
    places: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if name not in suite.places or not equals:
            asked = f"give {' '.join(f'{each}=PATH' for each in suite.places)}" if suite.places else "it asks for none"
            hint = did_you_mean(name, suite.places, asked)
            raise InputError(text, "no place of this suite", hint=hint)
        places[name] = str(Path(path).expanduser().absolute())
    for name, meaning in suite.places.items():
        if name not in places:
            raise InputError(name, "missing", hint=f"give {name}=PATH, {meaning}")
    return {**places, "folder": str(inputs.absolute())}


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
    """Train what is missing: all methods of a set before the next set.

    Args:
        name: the suite.
        given: `NAME=PATH` for each of its places.
        inputs: the folder for features and label distances.
        results: the folder for the finished trainings, the page and the plot.
        only: names of sets and methods.
        plan: train nothing.
        processes: so many trainings at a time; None: 1, or with a cluster as many as it has processors (GPUs, if it
            has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`: its machines share the data too.
        minutes: no training is begun after so many.
        on_line: called with what to print meanwhile.

    Raises:
        InputError: an error in the suite or the arguments, or of the data.
    """
    deadline = time.monotonic() + 60 * minutes
    suite = read_suite(name)
    places = {} if plan else parse_places(suite, given, inputs)
    output = Output.of(results, name)
    trainings = Trainings(output.trainings)
    chosen = Benchmark(suite, chosen_cells(suite, places, only), trainings)
    if not plan:
        check_new_file(output.page, output.plot, begins=f"# {suite.title}\n".encode())
    from contml.benchmark.inputs import check_methods

    check_methods(suite, [(cell.set_name, cell.method_name) for cell in chosen.cells], places)
    on_line(f"{suite.title}: {chosen}")
    if plan:
        for set_name, part in chosen.parts.items():
            on_line(f"{set_name}: {part}")
        return chosen
    from contml.benchmark.inputs import prepare
    from contml.benchmark.training import measure

    def on_done(item: Item) -> None:
        result = trainings[item.key]
        score = f"{value(result):.4f}" if "value" in result else "failed"
        on_line(f"{item}: {score} in {result['seconds']:.1f} s")

    with trainings.command(str(output.trainings)), suppress(work.OutOfTimeError):
        for set_name, part in chosen.parts.items():
            while missing := [item for cell in part.cells for item in cell.missing(trainings)]:
                if time.monotonic() >= deadline:  # features may take long
                    raise work.OutOfTimeError
                prepare(suite, set_name, places, [cell.method_name for cell in part.cells])
                work.run(
                    missing,
                    measure,
                    trainings,
                    processes=processes,
                    cluster=cluster,
                    deadline=deadline,
                    on_done=on_done,
                )
    write_page(replace(chosen, cells=cells(suite, places)), output)
    return chosen


def write_page(benchmark: Benchmark, output: Output) -> None:
    """Write the page of all sets and methods, and the plot of ranks if two sets are finished; its notes are kept."""
    from contml.benchmark.page import complete_sets, page, set_scores, write_plot

    scores = set_scores(benchmark.suite, benchmark.cells, benchmark.results)
    has_plot = write_plot(benchmark.suite, complete_sets(benchmark.cells, scores), output.plot)
    head = f"{date.today().isoformat()}. {benchmark}."
    text = page(benchmark.suite, benchmark.cells, benchmark.results, head, output.plot.name if has_plot else None)
    if output.page.exists():
        _, heading, notes = output.page.read_text(encoding="utf-8").partition(NOTES)
        text += heading + notes
    write(output.page, lambda temporary: temporary.write_text(text, encoding="utf-8"))
