"""Which parameter belongs to which class: class ids, consecutive or not, to rows of proxies or boundaries."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import check_at_least


class ClassIndex(nn.Module):
    """The row that a loss keeps for each class: class ids `[B]` to rows `[B]`.

    Args:
        num_classes: how many classes there are.
        class_ids: the ids of the classes `[num_classes]`, distinct, in any order: row r is class_ids[r]; None: 0 to
            num_classes - 1.

    Raises:
        InputError: the ids are not as many, or not distinct whole numbers; in a call, an id that is not among them.
    """

    ids: Tensor
    rows: Tensor

    def __init__(self, num_classes: int, class_ids: Tensor | Sequence[int] | None = None) -> None:
        super().__init__()
        check_at_least(1, num_classes=num_classes)
        ids = torch.arange(num_classes) if class_ids is None else torch.as_tensor(class_ids)
        if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 1 or len(torch.unique(ids)) != num_classes:
            raise InputError(
                f"class_ids are {ids.dtype} {list(ids.shape)} with {len(torch.unique(ids))} different values; "
                f"give {num_classes} distinct whole numbers, one a class"
            )
        ordered, rows = ids.long().sort()
        self.consecutive = bool((ids == torch.arange(num_classes)).all())
        self.register_buffer("ids", ordered, persistent=class_ids is not None)
        self.register_buffer("rows", rows, persistent=class_ids is not None)

    def __len__(self) -> int:
        return len(self.ids)

    def forward(self, classes: Tensor) -> Tensor:
        """Rows `[B]` of class ids `[B]`."""
        ids, rows = self.ids.to(classes.device), self.rows.to(classes.device)
        place = torch.searchsorted(ids, classes.long()).clamp(max=len(ids) - 1)
        unknown = ids[place] != classes
        if bool(unknown.any()):
            known = (
                f"0 to {len(ids) - 1}" if self.consecutive else f"{len(ids)} ids from {int(ids[0])} to {int(ids[-1])}"
            )
            raise InputError(
                f"class id {int(classes[unknown][0])} is not one of the {len(ids)} classes that the loss was made for "
                f"({known}); ClassLabels numbers any labels from 0, or give class_ids"
            )
        return rows[place]
