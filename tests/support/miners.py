"""A miner of fixed weights."""

from __future__ import annotations

from torch import Tensor

from contml.contracts import Candidates
from contml.mining import Miner


class FixedWeights(Miner):
    """The weights of a table `[B, B]`, whose rows are the anchors' positions in the batch."""

    def __init__(self, table: Tensor | None) -> None:
        super().__init__()
        self.table = table

    def weights(self, candidates: Candidates) -> Tensor:
        """The rows of the table."""
        assert self.table is not None
        return self.table[candidates.anchors]
