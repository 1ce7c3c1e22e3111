"""Items of work that say who began them, and the script of a command that does them.

python -m support.items FOLDER COUNT SECONDS lines|files [--stops]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contml import InputError, work
from contml._support.files import write


@dataclass(frozen=True)
class Number:
    """An item: its result is its square."""

    value: int

    @property
    def key(self) -> str:
        return f"number {self.value}"

    def __str__(self) -> str:
        return self.key


class Squares(work.Lines[int]):
    """A line per result, after a first line that says what it is."""

    of = "squares"

    def __init__(self, path: Path, what: str = "squares") -> None:
        super().__init__(path, {"what": what})

    def parse(self, row):
        return row["key"], int(row["square"])

    def row(self, key, value):
        return {"key": key, "square": value}


class SquareFiles(work.Files[int]):
    """The same results, a file each."""

    suffix = ".txt"

    def load(self, key, path):
        try:
            return int(path.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def save(self, value, path):
        write(path, lambda temporary: temporary.write_text(str(value)))


def files(folder: Path) -> SquareFiles:
    return SquareFiles(folder)


def square(folder: Path, seconds: float, item: Number) -> int:
    """The square of a number, after about so many seconds; `begun` has a line per call."""
    with (folder / "begun").open("a") as file:
        file.write(f"{item.value} {os.getpid()}\n")
    time.sleep(seconds * random.uniform(0.2, 1.8))
    return item.value**2


def begun(folder: Path) -> dict[int, list[int]]:
    """The processes that began each number, in order."""
    found: dict[int, list[int]] = {}
    for line in (folder / "begun").read_text().splitlines():
        value, process = map(int, line.split())
        found.setdefault(value, []).append(process)
    return found


def fails(item: Number, folder: Path | None = None) -> int:
    """Ends in another way for each number; with a folder, number 1 fails when 5 and 6 have begun."""
    print("item", item.value, flush=True)
    if item.value in (5, 6):  # as a training: SIGTERM lets it save its state
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
        write(folder / str(item.value), lambda temporary: temporary.write_text(str(os.getpid())))
        while not stopped:
            time.sleep(0.01)
        if item.value == 5:
            raise KeyboardInterrupt
    if item.value == 1:
        while folder is not None and not ((folder / "5").exists() and (folder / "6").exists()):
            time.sleep(0.01)
        raise InputError("number 1", "is odd")
    if item.value == 2:
        raise KeyboardInterrupt
    if item.value == 3:
        os._exit(9)
    if item.value == 4:
        raise ArithmeticError("a bug")
    return item.value**2


def main(folder: Path, count: int, seconds: float, store: str, *options: str) -> None:
    """Do the items; with `--stops`, numbers 5 and 6 wait for a signal, in two processes."""
    results = Squares(folder / "squares.jsonl") if store == "lines" else files(folder / "squares")
    items = [Number(value) for value in range(count)]
    with results.command(str(folder)):
        print("ready", flush=True)
        if options:
            work.run(items[5:7], partial(fails, folder=folder), results, processes=2)
        work.run(items, partial(square, folder, seconds), results)
    assert [results[item.key] for item in items] == [value**2 for value in range(count)]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
    except InputError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
