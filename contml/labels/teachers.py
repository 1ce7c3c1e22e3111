"""The label space of another model's embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml.distances.euclidean import euclidean
from contml.labels.items import ItemLabels

#: A vector with a smaller difference from length 1 is not scaled: scaling would change its last digits.
_ROUNDING = 1e-12


class TeacherLabels(ItemLabels):
    """Embeddings of a teacher as labels: a model learns the distances of another one, without labels of its own.

    The label distance is the Euclidean distance of the embeddings, scaled to unit length. It is between 0 and 2, and
    ranks items as the cosine similarity does. Park et al., "Relational Knowledge Distillation" (CVPR 2019), transfer
    distances by a loss of their own. Here any loss for graded labels does.

    Args:
        values: the teacher's embeddings of the items `[N, D]`; D need not be the length of the model's embeddings.
    """

    title = "teacher"
    item_arguments: ClassVar[Mapping[str, Any]] = {"values": Tensor}
    values: Tensor

    def __init__(self, values: Numbers) -> None:
        vectors = as_numbers("values", values, "embeddings [items, D]").to(torch.float64, copy=True)
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise InputError("values", str(list(vectors.shape)), "must be embeddings [items, D]")
        norms = vectors.norm(dim=1, keepdim=True)
        if len(zeros := (norms[:, 0] == 0).nonzero()):
            raise InputError("values", f"the embedding of item {int(zeros[0])} is 0", "must have a direction")
        super().__init__(values=torch.where((norms - 1).abs() < _ROUNDING, vectors, vectors / norms))
        self.unit = "distance of the teacher's embeddings"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute Euclidean distances of the unit vectors in float64 `[X, Y]`."""
        return euclidean(x.values, y.values)

    def _contents(self) -> str:
        return f"embeddings of {self.values.shape[1]} numbers; unit: {self.unit}"

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return self.values, torch.sqrt
