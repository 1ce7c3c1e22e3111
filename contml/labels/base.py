"""What label spaces have in common: rows packed as tensors, and some rows against each other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, LabelSpace, Rows, as_rows
from contml.distances import pairwise
from contml.distances.cache import fingerprint

if TYPE_CHECKING:
    from typing_extensions import Self


class SpaceView:
    """Some rows of a label space against each other; blocks of label distances are computed when asked for."""

    def __init__(self, space: LabelSpace, rows: Rows = None) -> None:
        self.space = space
        self.rows = as_rows(rows, len(space), space.device)
        # Packed once: a loss asks for block after block against all of them.
        self._items = space if rows is None else space.subset(self.rows)
        self.kind: LabelKind = space.kind

    def __len__(self) -> int:
        return len(self.rows)

    def distances(self, anchors: Tensor | slice | None = None) -> Tensor:
        """Label distances `[A, B]` of these positions of the view (default all) to every item of it."""
        return pairwise(self._items, anchors)

    @property
    def classes(self) -> Tensor | None:
        """Class ids `[B]`, or None where the labels are not classes."""
        classes: Tensor | None = getattr(self.space, "classes", None)
        return None if classes is None else classes[self.rows]


class PackedLabels:
    """Base of label spaces that keep their labels as tensors of one row an item: give them, and write `distances`.

    Args:
        tensors: the packed labels, `[N, ...]` each; they move and are cut together, and are attributes by their names.
    """

    kind: LabelKind = "distances"
    unit: str = "label distance"

    def __init__(self, **tensors: Tensor) -> None:
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"the packed labels have {lengths} items; give one row an item in each")
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                row = int((~tensor.isfinite()).flatten(1 if tensor.ndim > 1 else 0).nonzero()[0, 0])
                raise InputError(f"{name} of item {row} is not finite; labels are finite numbers")
        self._names = tuple(tensors)
        self.__dict__.update(tensors)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Label distances `[len(x), len(y)]` of the items of x to the items of y: what a subclass writes."""
        raise NotImplementedError(f"{type(self).__name__} has no distances(self, x, y)")

    def __len__(self) -> int:
        return len(self.__dict__[self._names[0]])

    @property
    def device(self) -> torch.device:
        """Where the packed labels live."""
        device: torch.device = self.__dict__[self._names[0]].device
        return device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def subset(self, rows: Rows) -> Self:
        """These rows as a label space of their own."""
        index = as_rows(rows, len(self), self.device)
        return self._with(lambda tensor: tensor[index])

    def pairwise(self, rows: Rows = None, cols: Rows = None) -> Tensor:
        """Label distances `[R, C]` in float32."""
        x = self if rows is None else self.subset(rows)
        y = self if cols is None else self.subset(cols)
        return self.distances(x, y).float()

    def view(self, rows: Rows = None) -> SpaceView:
        """These rows against each other: what a loss reads."""
        return SpaceView(self, rows)

    def fingerprint(self) -> str:
        """A hash of the labels and of all options of the distance, the same on every device: the key of caches.

        Every attribute counts but `unit`, which is only words. A subclass whose distance depends on more than its
        attributes writes its own.

        Raises:
            InputError: an attribute is of a type that has no content to hash.
        """
        return fingerprint(type(self), {name: value for name, value in vars(self).items() if name != "unit"})

    def _with(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update({name: change(self.__dict__[name]) for name in self._names})
        return changed
