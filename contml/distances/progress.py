"""How far a long search is, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    told, then = start, 0  # when the last line was written, and how many were finished

    def tell(finished: int) -> None:
        nonlocal told, then
        now = time.monotonic()
        bar.update(task, completed=finished)
        if console.is_terminal:
            if now - start >= _SOON and not bar.live.is_started:
                bar.start()
        elif finished == total:
            if told > start:
                console.print(f"{text}: all {total:,} after {(now - start) / 60:.1f} min", soft_wrap=True, markup=False)
        elif now - told >= _BETWEEN and finished > then:
            # The speed since the last line: what a cache had came at once.
            left = (now - told) / (finished - then) * (total - finished) / 60
            told, then = now, finished
            console.print(f"{text}: {finished:,} of {total:,}, {left:.1f} min left", soft_wrap=True, markup=False)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
