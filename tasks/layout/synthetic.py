"""The synthetic twin: drawn rooms with exact surface maps, the same on every machine."""

from __future__ import annotations

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar

from .interiors import draw_room
from .split import LabelMapSplit

#: Test rooms start here, so that a larger training set never runs into them.
_TEST = 10_000_000
#: Canonical ids are 1 to 5; there is no pixel of id 0.
_CLASSES, _UNKNOWN = 6, 0


class SyntheticLayout:
    """Furnished box rooms seen by cameras of varied place, direction and focal length, drawn from a seed.

    The layout is what wall, floor and ceiling each pixel would show if the room were empty: 1 frontal wall, 2 left
    wall, 3 right wall, 4 floor, 5 ceiling, where a view of two walls has a left and a right one. About two milliseconds
    a room of 64 pixels; they are kept in memory.

    Args:
        train: training images.
        test: test images.
        queries: how many test images query the others.
        size: side of an image and of its label map in pixels.
        rooms_seed: another seed draws another data set.
    """

    def __init__(
        self, train: int = 3000, test: int = 1000, queries: int = 200, size: int = 64, rooms_seed: int = 0
    ) -> None:
        for name, count in (("train", train), ("test", test)):
            if count < 3:
                raise InputError(f"{name} is {count}; a split needs at least 3 images")
        if rooms_seed < 0 or size < 8:
            raise InputError(f"rooms_seed is {rooms_seed} and size is {size}; these must be at least 0 and 8")
        if not 0 <= queries <= test - 2:
            raise InputError(
                f"queries is {queries}; it must be 0 to {test - 2}, so that two test images are left to find"
            )
        self.train = _draw(rooms_seed, 0, train, size, 0)
        self.test = _draw(rooms_seed, _TEST, test, size, queries)


def _draw(seed: int, first: int, count: int, size: int, queries: int) -> LabelMapSplit:
    rooms = []
    with progress_bar(count, "drawing rooms") as progress:
        for index in range(count):
            rooms.append(draw_room(seed, first + index, size))
            progress(index + 1)
    return LabelMapSplit(
        [image for image, _ in rooms],
        [f"room {first + index}" for index in range(count)],
        np.stack([surfaces for _, surfaces in rooms]),
        queries,
        classes=_CLASSES,
        ignore=_UNKNOWN,
    )
