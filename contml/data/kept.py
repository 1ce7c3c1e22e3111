"""Images of a split that a cache holds, as a worker reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from contml.data.decode import Pixels

#: The place of an image that cannot be decoded, and of one that is not kept.
NONE = -1


class Kept:
    """The images of one split that a cache holds. Each process opens the file for itself."""

    def __init__(self, pixels: Path, side: int, places: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self.pixels, self.side, self.places = pixels, side, places
        self._map: Pixels | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # a memory map would travel as a copy

    def get(self, row: int) -> Pixels | None:
        """The image of a row, uint8 `[side, side, 3]`; None where it is not kept."""
        place = int(self.places[row])
        if place == NONE:
            return None
        if self._map is None:
            shape = (int(self.places.max()) + 1, self.side, self.side, 3)
            # Copied on write, since torch takes no array that cannot be written; nobody writes.
            self._map = np.asarray(np.memmap(self.pixels, np.uint8, "c", shape=shape))
        pixels: Pixels = self._map[place]
        return pixels
