"""Drawn data sets, kept in a folder. Drawing an item takes milliseconds, reading it takes much less.

    ~/.cache/contml/drawn/KEY.safetensors        one array per kind of drawn value, with a row for each item

The key is a hash of all that the items depend on: seed, numbers and size, the source of the package that draws them,
and the versions of numpy and Pillow. A damaged file is drawn again. The folder may be removed at any time.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.files import user_cache
from contml._support.fingerprints import fingerprint
from contml._support.progress import progress_bar
from contml._support.tensors import load_tensors, save_tensors
from contml.data.draw import Array

#: A set that is drawn in fewer seconds is not kept. If all files have more bytes, the sets not read for longest go.
_LEAST_SECONDS, _MAX_BYTES = 0.5, 1 << 30


def drawn(
    draw: Callable[[int, Any, int], tuple[Array, ...]], seed: int, numbers: Sequence[Any], size: int, what: str
) -> list[Array]:
    """Draw items, or read them if they were drawn before. Return an array `[N, ...]` for each kind of drawn value.

    Args:
        draw: `draw(seed, number, size)` returns the arrays of an item, of the same shapes for each item. It depends on
            nothing but its arguments, numpy, Pillow, and the files of its package.
        seed: the seed of the data set.
        numbers: the number of each item, or several numbers that identify the item.
        size: side of an image in pixels.
        what: the items in a progress bar, such as "rooms".
    """
    source = {path.name: path.read_bytes() for path in sorted(Path(inspect.getfile(draw)).parent.glob("*.py"))}
    key = fingerprint(draw.__qualname__, source, version("numpy"), version("pillow"), seed, list(numbers), size)
    path = user_cache("drawn") / f"{key}.safetensors"
    with suppress(InputError, OSError):
        arrays = [tensor.numpy() for _, tensor in sorted(load_tensors(path)[0].items())]
        os.utime(path)
        return arrays
    start, items = time.monotonic(), []
    with progress_bar(len(numbers), f"drawing {what}") as progress:
        for number in numbers:
            items.append(draw(seed, number, size))
            progress(len(items))
    arrays = [np.stack(each) for each in zip(*items, strict=True)]
    if time.monotonic() - start > _LEAST_SECONDS:
        with suppress(InputError, OSError):  # as in a home that cannot be written
            save_tensors(path, {f"{n:02d}": torch.from_numpy(array) for n, array in enumerate(arrays)})
            _remove_oldest(path.parent)
    return arrays


def _remove_oldest(folder: Path) -> None:
    total = 0
    for path in sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime, reverse=True):
        total += path.stat().st_size
        if total > _MAX_BYTES:
            path.unlink()
