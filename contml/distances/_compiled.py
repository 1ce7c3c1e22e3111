"""Functions compiled by numba, cached on disk and run in threads.

numba is imported when the first function is compiled, so that this module costs nothing to import.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.integer[Any]]
#: Entries of a block per thread. With fewer entries, starting a thread takes longer than its work.
_ENTRIES_PER_THREAD = 1 << 18
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function to machine code that runs without the interpreter's lock and is cached on disk.

    numba renews the cached code when the file of the function changes, but not when a file that it calls changes. A
    module whose functions call another module therefore holds a hash of the other module's source. A test checks that
    the hash is up to date. On a full disk, the compiled code is not kept.
    """
    dispatcher: Any = _jit(function)  # _cache is not public
    dispatcher._cache.save_overload = partial(_save_if_possible, dispatcher._cache.save_overload)
    return cast(_Function, dispatcher)


def _jit(function: Callable[..., Any], **options: Any) -> Any:
    import numba

    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # not cached: in some containers the user can write neither beside the file nor at home
        return numba.njit(nogil=True, **options)(function)


def _save_if_possible(save: Callable[..., None], *arguments: Any) -> None:
    with suppress(OSError):
        save(*arguments)


def inlined(function: _Function) -> _Function:
    """Compile a function as `compiled` does, and inline it into its caller.

    For a small function, passing the arrays costs more than its work.
    """
    return cast(_Function, _jit(function, inline="always"))


def rows_in_threads(work: Callable[[slice], None], rows: int, entries: int) -> None:
    """Run `work` on parts of the rows, in threads. The number of threads follows from the number of `entries`."""
    in_threads(
        lambda start, step: work(slice(rows * start // step, rows * (start + 1) // step)),
        entries // _ENTRIES_PER_THREAD,
    )


def in_threads(work: Callable[[int, int], None], parts: int) -> None:
    """Run `work(start, step)` in `step` threads, for start = 0 ... step - 1.

    `step` is torch's number of threads, and at most `parts`.
    """
    step = max(1, min(torch.get_num_threads(), parts))
    if step == 1:
        work(0, 1)
        return
    with ThreadPoolExecutor(step) as pool:
        list(pool.map(work, range(step), [step] * step))
