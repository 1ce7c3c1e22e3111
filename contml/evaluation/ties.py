"""Rankings in which items are at equal distance: expectations when the order of these items is drawn at random.

    places:     0    1    2    3    4    5 |        a ranking of 6 places of a larger gallery
    distances: 0.1  0.4  0.4  0.4  0.7  0.9 | 0.9   one more item ties with the last place: beyond = 1
    first:      0    1    1    1    4    5          first place of the group of each place
    size:       1    3    3    3    1    2          items of the group

A metric of one order of tied items, such as the order of files, would be arbitrary, and so would the score of a
collapsed embedding. The expectation does not depend on this order; without ties it is the usual metric.
McSherry, Najork: "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores",
ECIR 2008. Items tie when their float64 distances are equal (`contml.distances.exact`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


class Ties:
    """The groups of items at equal distance in rankings `[q, D]`; an item that ties with no other is a group of one.

    Args:
        distances: `[q, D]`, nearest first.
        beyond: number of items after the last place that tie with it, `[q]`.
    """

    def __init__(self, distances: Tensor, beyond: Tensor) -> None:
        begins = pad(distances[:, 1:] != distances[:, :-1], (1, 0), value=True)
        place = torch.arange(distances.shape[1]).expand_as(distances)
        self.first = torch.where(begins, place, 0).cummax(1).values  # [q,D] int64
        self._in_last_group = self.first == self.first[:, -1:]
        self.size = self.sums(torch.ones_like(begins), beyond)  # [q,D] float64

    def sums(self, values: Tensor, beyond: Tensor) -> Tensor:
        """Sums over the group of each place `[q, D]` of values `[q, D]`, and of `beyond` `[q]` after the last place."""
        totals = torch.zeros(values.shape, dtype=torch.float64).scatter_add_(1, self.first, values.double())
        return totals.gather(1, self.first) + torch.where(self._in_last_group, beyond[:, None], 0)

    def expected(self, values: Tensor, beyond: Tensor) -> Tensor:
        """The expected value at each place `[q, D]`: the mean over its group, arguments as of `sums`."""
        return self.sums(values, beyond) / self.size
