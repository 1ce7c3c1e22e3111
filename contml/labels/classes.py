"""The label space of classes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from numbers import Number
from typing import Any, ClassVar, Self
from unicodedata import normalize

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_items, as_numbers, is_hashable, is_missing
from contml._support.errors import InputError, did_you_mean
from contml._support.packed import Packed
from contml._support.validation import as_rows
from contml.contracts import Colours, LabelKind, Rows
from contml.distances.nearest import MEMORY
from contml.labels.base import LabelSpace
from contml.labels.items import ItemLabels

#: What a class must be.
_CLASS = "must be an integer from 0 on, or a string"


class ClassLabels(ItemLabels):
    """Class labels: label distance 0 within a class, 1 between classes.

    Args:
        labels: the class of each item. Integers from 0 on need not be consecutive, and become the `class_ids`
            unchanged. Strings and other values get ids in the order of the sorted names; strings are compared in
            Unicode's form NFC. The names of only some items would get other ids: give all items, and index the result.

    Attributes:
        names: the sorted names; `class_ids` are positions in this list. The list is empty if classes are integers.
    """

    kind: LabelKind = "classes"
    unit = "another class"
    title = "class"
    item_arguments: ClassVar[Mapping[str, Any]] = {"labels": list}
    typed_as = "text"
    class_ids: Tensor

    def __init__(self, labels: Numbers | Sequence[Hashable]) -> None:
        if isinstance(labels, Tensor | np.ndarray) and _is_integer(labels):
            super().__init__(class_ids=_as_ids(as_numbers("classes", labels)))
            self.names: list[Any] = []
            return
        numbers = None  # the number of each item's text among those that differ
        if isinstance(labels, Packed):
            labels, numbers = labels.numbered()
        values = [_class(row, label) for row, label in enumerate(as_items("classes", labels, "a class for each item"))]
        if not values:
            raise InputError("classes", "no labels", hint="give each item a class")
        names = {value for value in values if type(value) is not int}
        self.names = sorted({*values}, key=lambda value: (str(type(value)), value)) if names else []
        id_of = {name: class_id for class_id, name in enumerate(self.names)}
        device = labels.device if isinstance(labels, Tensor) else "cpu"
        class_ids = torch.tensor([id_of.get(v, v) for v in values], dtype=torch.int64, device=device)
        super().__init__(class_ids=class_ids if numbers is None else class_ids[torch.from_numpy(numbers)])

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return 0 within a class and 1 between classes, `[X, Y]`."""
        return (x.class_ids[:, None] != y.class_ids).float()

    def pairwise(
        self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None, *, memory: int = MEMORY
    ) -> Tensor:
        """Return 0 within a class and 1 between classes, `[R, C]` in float32."""
        has_own = type(self).distances is not ClassLabels.distances
        if has_own or isinstance(rows, LabelSpace) or isinstance(cols, LabelSpace):
            return super().pairwise(rows, cols, memory=memory)
        ids = self.class_ids  # needs no check and no temporaries
        r, c = (ids if index is None else ids[as_rows(index, len(ids), ids.device)] for index in (rows, cols))
        return (r[:, None] != c).float()

    def arguments(self) -> dict[str, Any]:
        """Return the class of each item: an integer or a text."""
        # Files hold integers or texts.
        names = [name if isinstance(name, str) or type(name) is int else str(name) for name in self.names]
        return {"labels": [names[class_id] if names else class_id for class_id in self.class_ids.tolist()]}

    def parse(self, text: str) -> Any:
        """Return the class with this text: a class of an item, or its name in `with_texts`."""
        classes = self.arguments()["labels"]
        known = {str(each): each for each in classes} | {self.text(row): each for row, each in enumerate(classes)}
        wanted = normalize("NFC", text.strip())
        if wanted not in known:
            hint = did_you_mean(wanted, known)
            raise InputError(self.title, f"no class {text!r:.60}", f"must be one of {_listed(known)}", hint)
        return known[wanted]

    def text(self, row: int) -> str:
        """Return the class of an item, as text."""
        class_id = int(self.class_ids[row])
        return super().text(row) or str(self.names[class_id] if self.names else class_id)

    def _difference(self, a: int, b: int) -> str:
        return "same" if self.class_ids[a] == self.class_ids[b] else "different"

    def colours(self) -> Colours:
        """Return the class of each item, as colours."""
        unique_ids, positions = torch.unique(self.class_ids.cpu(), return_inverse=True)
        row_of = {position: row for row, position in enumerate(positions.tolist())}
        return Colours(positions, self.title, [self.text(row_of[position]) for position in range(len(unique_ids))])

    def as_root(self) -> Self:
        """Return the same items as a new root: names are numbered anew, without classes that have no item."""
        root = super().as_root()
        if not self.names:
            return root
        present_ids, root.class_ids = torch.unique(self.class_ids, return_inverse=True)
        root.names = [self.names[class_id] for class_id in present_ids.tolist()]
        return root

    def _item_contents(self) -> Iterable[bytes]:
        names = self.names
        class_ids = map(int, self.class_ids.cpu().numpy())  # one at a time
        return (repr(names[class_id] if names else class_id).encode() for class_id in class_ids)

    def _contents(self) -> str:
        return f"{len(set(self.class_ids.tolist())):,} classes"


def _listed(names: Collection[str], most: int = 8) -> str:
    shown = list(islice(names, most))
    return ", ".join([*shown, f"and {len(names) - most:,} more"] if len(names) > most else shown)


def _is_integer(labels: Tensor | np.ndarray[Any, Any]) -> bool:
    """Return True for integers, which booleans are not."""
    if isinstance(labels, Tensor):
        return not labels.is_floating_point() and not labels.is_complex() and labels.dtype != torch.bool
    return labels.dtype.kind in "iu"


def _as_ids(ids: Tensor) -> Tensor:
    """Return class ids `[N]` in int64: torch cannot compare or sort uint16, uint32 and uint64 with other integers.

    On a GPU, an id below 0 stops the process, as an index out of bounds does there ("device-side assert"). An
    `InputError` would wait for the GPU in each step.

    Raises:
        InputError: the ids have another shape, or an id is below 0, on the CPU.
    """
    if ids.ndim != 1 or not len(ids):
        raise InputError("classes", f"{str(ids.dtype).removeprefix('torch.')} {list(ids.shape)}", f"{_CLASS}, [items]")
    ids = ids.long()
    if ids.device.type == "cuda":
        torch._assert_async((ids >= 0).all(), "class ids must be integers from 0 on")
    elif bool((negative := ids < 0).any()):
        row = int(negative.nonzero()[0, 0])
        raise InputError(f"class of item {row}", str(int(ids[row])), _CLASS, "omit items without a class")
    return ids


def _class(row: int, label: Any) -> Any:
    """Return the class of an item: a string, an integer from 0 on, or another value that is not a number."""
    if is_missing(label):
        raise InputError(f"class of item {row}", str(label), hint="give each item a class")
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if not isinstance(label, bool) and isinstance(label, Number):
        if not isinstance(label, int):
            raise InputError(f"class of item {row}", str(label), _CLASS, "numbers are labels of NumberLabels")
        if not 0 <= label < 1 << 63:
            raise InputError(f"class of item {row}", str(label), _CLASS, "omit items without a class")
    if not is_hashable(label):
        hint = "several labels of an item are labels of TagLabels or MultiHotLabels"
        raise InputError(f"class of item {row}", f"{label!r:.60}", _CLASS, hint)
    return normalize("NFC", label) if isinstance(label, str) else label
