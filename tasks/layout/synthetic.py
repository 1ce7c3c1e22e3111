"""The synthetic data set: drawn rooms with exact surface maps, the same on every machine."""

from __future__ import annotations

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar
from contml.data import Pixels, Split, Task

from .interiors import draw_room
from .split import make_split

#: Numbers of test rooms start here, so that a larger training set never contains one of them.
_FIRST_TEST_ROOM = 10_000_000
#: Surface ids are 1 to 5; no pixel has id 0.
_CLASSES, _UNKNOWN = 6, 0


def synthetic(train: int = 3000, test: int = 1000, queries: int = 200, size: int = 64, seed: int = 0) -> Task:
    """Furnished box rooms seen by cameras of varied place, direction and focal length, drawn from a seed.

    The label map says which surface each pixel would show if the room were empty: 1 frontal wall, 2 left wall, 3 right
    wall, 4 floor, 5 ceiling. A view of two walls has a left and a right wall. Drawing takes about two milliseconds per
    room of 64 pixels; the rooms are kept in memory.

    Args:
        train: number of training images.
        test: number of test images.
        queries: this many test images are queries, the others the gallery; 0: every test image is a query.
        size: side of an image and of its label map in pixels.
        seed: another seed draws another data set.
    """
    for name, count in (("train", train), ("test", test)):
        if count < 3:
            raise InputError(f"{name} is {count}; a split needs at least 3 images")
    if seed < 0 or size < 8:
        raise InputError(f"seed is {seed} and size is {size}; these must be at least 0 and 8")
    if not 0 <= queries <= test - 2:
        raise InputError(f"queries is {queries}; it must be 0 to {test - 2}, so that two test images are left to find")
    return Task(
        train=_draw_split(seed, 0, train, size, queries=0),
        test=_draw_split(seed, _FIRST_TEST_ROOM, test, size, queries=queries),
    )


def _draw_split(seed: int, first: int, count: int, size: int, queries: int) -> Split:
    rooms = []
    with progress_bar(count, "drawing rooms") as progress:
        for index in range(count):
            rooms.append(draw_room(seed, first + index, size))
            progress(index + 1)
    return make_split(
        [Pixels(image) for image, _ in rooms],
        [f"room {first + index}" for index in range(count)],
        np.stack([surfaces for _, surfaces in rooms]),
        classes=_CLASSES,
        ignore=_UNKNOWN,
        queries=queries,
    )
