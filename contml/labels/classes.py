"""The label space of classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Rows
from contml.distances.labels import class_distance
from contml.distances.search import MEMORY
from contml.labels.base import LabelSpace


class ClassLabels(LabelSpace):
    """Class labels: label distance 0 within a class, 1 between classes.

    Args:
        labels: the class of each item: integers that need not be consecutive, or strings.

    Attributes:
        names: the sorted classes; `class_ids` are positions in this list. Empty if only ids were given.
    """

    kind: LabelKind = "classes"
    unit = "another class"
    class_ids: Tensor

    def __init__(self, labels: Tensor | Sequence[Hashable]) -> None:
        if isinstance(labels, Tensor) and (labels.ndim != 1 or labels.is_floating_point()):
            got = f"{labels.dtype} {list(labels.shape)}"
            raise InputError("classes", got, "must be an integer or a string for each item")
        values = labels.tolist() if isinstance(labels, Tensor) else [_as_python_scalar(label) for label in labels]
        for row, value in enumerate(values):
            if value is None or value != value:
                raise InputError(f"class of item {row}", str(value), hint="give each item a class")
        if not values:
            raise InputError("classes", "no labels", hint="give each item a class")
        self.names: list[Any] = sorted(set(values), key=lambda value: (str(type(value)), value))
        id_of = {name: class_id for class_id, name in enumerate(self.names)}
        device = labels.device if isinstance(labels, Tensor) else "cpu"
        super().__init__(class_ids=torch.tensor([id_of[v] for v in values], dtype=torch.int64, device=device))

    @classmethod
    def from_ids(cls, class_ids: Tensor) -> Self:
        """Class labels from integer ids `[N]`: not renumbered or checked; without row numbers."""
        labels = cls.__new__(cls)
        # In int64, since torch cannot compare or sort uint16, uint32 and uint64 with other integers.
        labels.class_ids, labels._packed, labels.names, labels.rows = class_ids.long(), ("class_ids",), [], None
        return labels

    def distances(self, x: Self, y: Self) -> Tensor:
        """0 or 1, `[X, Y]`."""
        return class_distance(x.class_ids, y.class_ids)

    def pairwise(self, rows: Rows = None, cols: Rows = None, *, memory: int = MEMORY) -> Tensor:
        """0 or 1, `[R, C]` in float32."""
        if type(self).distances is not ClassLabels.distances:
            return super().pairwise(rows, cols, memory=memory)
        ids = self.class_ids  # needs no check and no temporaries
        r, c = (ids if index is None else ids[as_rows(index, len(ids), ids.device)] for index in (rows, cols))
        return class_distance(r, c)

    def as_root(self) -> Self:
        """The same items as a new root: classes are numbered anew, without those that have no item."""
        root = super().as_root()
        present_ids, root.class_ids = torch.unique(self.class_ids, return_inverse=True)
        names = dict(enumerate(self.names))
        root.names = [names.get(class_id, class_id) for class_id in present_ids.tolist()]
        return root

    def _item_contents(self) -> list[bytes]:
        names = dict(enumerate(self.names))
        return [repr(names.get(class_id, class_id)).encode() for class_id in self.class_ids.tolist()]

    def _contents(self) -> str:
        return f"{len(set(self.class_ids.tolist())):,} classes"


def _as_python_scalar(label: Any) -> Any:
    """Converts a NumPy or torch scalar to a Python number, so that equal numbers are one class."""
    return label.item() if isinstance(label, np.generic) or (isinstance(label, Tensor) and label.ndim == 0) else label
