"""Maps class ids, consecutive or not, to rows of a loss's parameters: its proxies or boundaries."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import check_whole


class ClassIndex(nn.Module):
    """Maps class ids `[B]` to the rows `[B]` that a loss keeps for them.

    Args:
        num_classes: the number of classes.
        class_ids: the ids of the classes `[num_classes]`, distinct, in any order: row r is for class_ids[r]; None: 0
            to num_classes - 1.

    Raises:
        InputError: the ids are not num_classes distinct whole numbers; in a call, an id is not among them.
    """

    ids: Tensor
    rows: Tensor

    def __init__(self, num_classes: int, class_ids: Tensor | Sequence[int] | None = None) -> None:
        super().__init__()
        check_whole(1, num_classes=num_classes)
        ids = torch.arange(num_classes) if class_ids is None else torch.as_tensor(class_ids)
        num_distinct = len(set(ids.flatten().tolist()))  # torch.unique does not support uint16, uint32 and uint64
        if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 1 or num_distinct != num_classes:
            got = f"{ids.dtype} {list(ids.shape)} with {num_distinct} different values"
            raise InputError("class_ids", got, f"must be {num_classes} distinct whole numbers, one per class")
        sorted_ids, rows = ids.long().sort()
        self.is_consecutive = class_ids is None
        self.register_buffer("ids", sorted_ids, persistent=class_ids is not None)
        self.register_buffer("rows", rows, persistent=class_ids is not None)

    def __len__(self) -> int:
        return len(self.ids)

    def forward(self, classes: Tensor) -> Tensor:
        """Rows `[B]` of class ids `[B]`."""
        if self.is_consecutive and classes.device.type == "cpu" and len(classes):
            least, largest = torch.aminmax(classes)
            if int(least) >= 0 and int(largest) < len(self):
                return classes.long()
        ids, rows = self.ids.to(classes.device), self.rows.to(classes.device)
        position = torch.searchsorted(ids, classes.long()).clamp(max=len(ids) - 1)
        unknown = ids[position] != classes
        if bool(unknown.any()):
            allowed = f"must be one of the loss's {len(ids)} classes, {int(ids[0])} to {int(ids[-1])}"
            hint = "number the classes from 0 with ClassLabels, or give class_ids"
            raise InputError("class id", str(int(classes[unknown][0])), allowed, hint)
        return rows[position]
