"""Label spaces of levels on a scale, and of places on the earth."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances.labels import haversine
from contml.labels.base import LabelSpace


class OrdinalLabels(LabelSpace):
    """Levels of an ordered scale, as of a rating; the label distance is |rank difference| / (levels - 1), in [0, 1].

    Args:
        labels: the level of each item: numbers or strings.
        levels: all levels from the lowest to the highest; default the values that occur, sorted.
    """

    unit = "the whole scale"
    ranks: Tensor

    def __init__(self, labels: Sequence[Hashable] | Tensor, levels: Sequence[Hashable] | None = None) -> None:
        values = labels.tolist() if isinstance(labels, Tensor | np.ndarray) else list(labels)
        if levels is None:
            try:
                levels = sorted(set(values))
            except TypeError:
                raise InputError("labels have no order of their own; give levels, from lowest to highest") from None
        rank = {level: number for number, level in enumerate(levels)}
        if len(rank) < max(2, len(levels)):
            raise InputError(f"levels are {list(levels)}; give at least 2, each once")
        for item, value in enumerate(values):
            if value not in rank:
                raise InputError(f"item {item} is {value!r}, which is none of the {len(rank)} levels {list(rank)}")
        super().__init__(ranks=torch.tensor([rank[value] for value in values], dtype=torch.int64))
        self.levels = list(rank)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Rank differences as a share of the scale, `[X, Y]`."""
        return (x.ranks[:, None] - y.ranks).abs().double() / (len(self.levels) - 1)


class GeoLabels(LabelSpace):
    """Places on the earth; the label distance is the great-circle distance in km, exact from metres to antipodes.

    Args:
        places: `[N, 2]`: latitude, -90 to 90, and longitude, -180 to 180, in degrees.
    """

    unit = "km"
    places: Tensor

    def __init__(self, places: Tensor | np.ndarray[Any, Any] | Sequence[Any]) -> None:
        try:
            degrees = torch.tensor(np.asarray(places, dtype=np.float64))
        except (ValueError, TypeError) as error:
            raise InputError(f"places are no numbers [items, 2] ({error})") from None
        if degrees.ndim != 2 or degrees.shape[1] != 2:
            raise InputError(f"places are {list(degrees.shape)}; give [items, 2]: latitude and longitude in degrees")
        for column, (name, most) in enumerate((("latitude", 90), ("longitude", 180))):
            bad = (~(degrees[:, column].abs() <= most)).nonzero()[:, 0]
            if len(bad):
                raise InputError(
                    f"the {name} of item {int(bad[0])} is {float(degrees[bad[0], column]):g}; "
                    f"it must be -{most} to {most} degrees, and latitude comes first"
                )
        super().__init__(places=degrees)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Kilometres, `[X, Y]`."""
        return haversine(x.places, y.places)
