"""Progress on stderr: a bar in a terminal, otherwise a line every 20 seconds."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from contml._support.text import duration, plain_text

#: Seconds before the bar is shown, and between two lines where stderr is not a terminal.
_BAR_DELAY, _LINE_INTERVAL = 2.0, 20.0


@cache
def note(text: str) -> None:
    """Print a line on stderr, once, and only in the first of several training processes."""
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"{plain_text(text)}\n")


@contextmanager
def progress_bar(total: int, text: str = "nearest neighbours") -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of `total` items are finished: a bar or lines, or nothing for a short task.

    with progress_bar(len(space)) as progress: nearest(space, 30, progress=progress)
    """
    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(TextColumn("{task.description}"), *columns, console=console)
    task = bar.add_task(text, total=total)
    start = time.monotonic()
    last_time, last_finished = start, 0  # of the last line

    def report(finished: int) -> None:
        nonlocal last_time, last_finished
        now = time.monotonic()
        bar.update(task, completed=finished)
        if console.is_terminal:
            if now - start >= _BAR_DELAY and not bar.live.is_started:
                bar.start()
        elif finished == total:
            if last_time > start:
                console.print(f"{text}: all {total:,} after {duration(now - start)}", soft_wrap=True, markup=False)
        elif now - last_time >= _LINE_INTERVAL and finished > last_finished:
            # Speed since the last line: items of a cache are finished at once.
            left = duration((now - last_time) / (finished - last_finished) * (total - finished))
            last_time, last_finished = now, finished
            console.print(f"{text}: {finished:,} of {total:,}, {left} left", soft_wrap=True, markup=False)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


class TrainingProgress(Progress):
    """The display of loss, images per second and remaining time on stderr."""

    def __init__(self, epochs: int, steps: int, done: int, *, silent: bool = False) -> None:
        console = Console(file=sys.stderr, highlight=False)
        self.epochs, self.steps, self.silent = epochs, steps, silent
        self.total, self.done, self.first = epochs * steps, done, done
        self.start_time = time.monotonic()
        self.images = 0
        epoch, bar = TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"), (BarColumn(), MofNCompleteColumn())
        loss = TextColumn("loss {task.fields[loss]:.4g}  {task.fields[rate]:.0f} images/s")
        columns = (epoch, *bar, loss, TimeRemainingColumn(), TextColumn("left"))
        super().__init__(*columns, console=console, disable=silent or not console.is_terminal)
        self._id = self.add_task("", total=self.total, completed=done, epoch=0, epochs=epochs, loss=math.nan, rate=0)

    @property
    def rate(self) -> float:
        """Images per second since the start."""
        return self.images / max(time.monotonic() - self.start_time, 1e-9)

    def step(self, epoch: int, images: int, loss: float) -> None:
        """Update the progress after a step. The first epoch is 1."""
        self.done += 1
        self.images += images
        self.update(self._id, completed=self.done, epoch=epoch, loss=loss, rate=self.rate)
        if self.disable and self.done % self.steps == 0:
            seconds = (time.monotonic() - self.start_time) / (self.done - self.first) * (self.total - self.done)
            speed = f"{self.rate:.0f} images/s  {duration(seconds)} left"
            self.line(f"epoch {epoch}/{self.epochs}  loss {loss:.4g}  {speed}")

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.silent:
            self.console.print(plain_text(text), soft_wrap=True, markup=False)
