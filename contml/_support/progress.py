"""Progress on stderr: a bar at a terminal, a line now and then when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Seconds: what is done sooner shows nothing; and how long it is, when piped, from one line to the next.
_SOON, _BETWEEN = 2.0, 20.0


@contextmanager
def progress_bar(total: int, text: str = "nearest neighbours") -> Iterator[Callable[[int], None]]:
    """For `progress` of `nearest`: a bar at a terminal, a line now and then when piped, nothing for what is soon done.

    with progress_bar(len(space)) as progress: nearest(space, 30, progress=progress)
    """
    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(TextColumn("{task.description}"), *columns, console=console)
    task = bar.add_task(text, total=total)
    start = time.monotonic()
    written, then = start, 0  # when the last line was written, and how many were finished

    def tell(finished: int) -> None:
        nonlocal written, then
        now = time.monotonic()
        bar.update(task, completed=finished)
        if console.is_terminal:
            if now - start >= _SOON and not bar.live.is_started:
                bar.start()
        elif finished == total:
            if written > start:
                console.print(f"{text}: all {total:,} after {(now - start) / 60:.1f} min", soft_wrap=True, markup=False)
        elif now - written >= _BETWEEN and finished > then:
            # The speed since the last line: what a cache had came at once.
            left = (now - written) / (finished - then) * (total - finished) / 60
            written, then = now, finished
            console.print(f"{text}: {finished:,} of {total:,}, {left:.1f} min left", soft_wrap=True, markup=False)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()


class TrainingProgress:
    """Loss, images a second and time left, on stderr."""

    def __init__(self, epochs: int, steps: int, done: int, *, silent: bool = False) -> None:
        self.console = Console(file=sys.stderr, highlight=False)
        self.epochs, self.steps, self.silent = epochs, steps, silent
        self.total, self.done, self.first = epochs * steps, done, done
        self.start = time.monotonic()
        self.images = 0
        self._bar: Progress | None = None
        if self.console.is_terminal and not silent:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]:.4g}  {task.fields[rate]:.0f} images/s"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self.console,
            )
            self._task = self._bar.add_task(
                "train", total=self.total, completed=done, epoch=0, epochs=epochs, loss=float("nan"), rate=0.0
            )

    def __enter__(self) -> TrainingProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def rate(self) -> float:
        """Images a second since the start."""
        return self.images / max(time.monotonic() - self.start, 1e-9)

    def step(self, epoch: int, images: int, loss: float) -> None:
        """After each step; epochs count from 1."""
        self.done += 1
        self.images += images
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, epoch=epoch, loss=loss, rate=self.rate)
        elif self.done % self.steps == 0:
            left = (time.monotonic() - self.start) / (self.done - self.first) * (self.total - self.done)
            self.line(
                f"epoch {epoch}/{self.epochs}  loss {loss:.4g}  {self.rate:.0f} images/s  {left / 60:.1f} min left"
            )

    def line(self, text: str) -> None:
        """A line of its own, above the bar."""
        if not self.silent:
            self.console.print(text, soft_wrap=True, markup=False)
