"""Labels that grow, are typed and are saved: label spaces whose constructor takes their items again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.labels.base import LabelSpace


class ItemLabels(LabelSpace):
    """A label space whose constructor takes its items again, so that it can grow and be saved.

    Attributes:
        item_arguments: the arguments of the constructor with an entry for each item, and their types; `arguments`
            returns them.
        option_arguments: its other arguments, and their types.
        typed_as: the way in which a user enters a label: as "text"; by the name of a file of "json" or of a "picture";
            "" if a user cannot enter it.
    """

    item_arguments: ClassVar[Mapping[str, Any]]
    option_arguments: ClassVar[Mapping[str, Any]] = {}
    typed_as: ClassVar[Literal["", "text", "json", "picture"]] = ""
    _form: Mapping[str, Any] = {}  # options that only new items use: label distances do not depend on them

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor that make these labels again.

        `type(labels)(**labels.arguments())` is equal to `labels`.
        """
        names = (*self.item_arguments, *self.option_arguments)
        return {name: self._form[name] if name in self._form else self.__dict__[name] for name in names}

    def joined(self, other: LabelSpace) -> Self:
        """Return the items of this space, then the items of another one of the same kind, as a new root.

        Raises:
            InputError: the other space has another kind or other options.
        """
        if type(other) is not type(self):
            raise InputError("labels", f"a {type(other).__name__}", f"must be a {type(self).__name__}")
        mine, others = self.arguments(), growing(other).arguments()
        for name in self.option_arguments:
            if isinstance(mine[name], Mapping) and isinstance(others[name], Mapping):
                mine[name] = {**others[name], **mine[name]}
            elif not _equal(mine[name], others[name]):
                allowed = f"must be {mine[name]!r:.60} in both spaces"
                raise InputError(f"labels: {name}", f"{others[name]!r:.60}", allowed)
        mine |= {name: _concatenated(mine[name], others[name]) for name in self.item_arguments}
        whole = self._made(mine)
        if self.root._texts or other.root._texts:
            whole._texts = [space.text(row) for space in (self, other) for row in range(len(space))]
        return whole

    def item(self, label: Any) -> Self:
        """Return a new label as a space of one item, for `labels.joined(labels.item(label))`.

        Args:
            label: as the constructor takes it for an item, in the unit of the data; or as text, which `parse` reads.

        Raises:
            InputError: the argument is not such a label.
        """
        try:
            return self._item(self.parse(label) if isinstance(label, str) else label)
        except InputError as error:
            raise InputError(self.title, error.got, error.allowed, error.hint.partition(", or set ")[0]) from None

    def _item(self, label: Any) -> Self:
        """Return the space of one label, as the constructor takes it.

        A subclass whose items are not a list overrides it.
        """
        return self._made({next(iter(self.item_arguments)): [label], **self._options()})

    def _options(self) -> dict[str, Any]:
        """Return the arguments of the constructor that hold no items."""
        return {name: value for name, value in self.arguments().items() if name in self.option_arguments}

    def parse(self, text: str) -> Any:
        """Return the label that a text stands for, as `item` takes it.

        Raises:
            InputError: the text is not a label of this kind, or labels of this kind cannot be typed.
        """
        raise InputError(self.title, f"{text!r:.60}", f"a label of {type(self).__name__} cannot be typed")

    def unknown_words(self, text: str) -> list[str]:  # noqa: ARG002
        """Return the words of a typed label that no item has. Return an empty list if labels are not words."""
        return []

    def of_vectors(self, vectors: Tensor) -> Self:  # noqa: ARG002
        """Return labels of this kind with these `vectors` `[M, D]`, as a new root of M items.

        Raises:
            InputError: labels have no vectors.
        """
        raise InputError(type(self).__name__, "has no vectors", "must be labels that have a mean")

    def interval(self, row: int, bound: float) -> tuple[Any, Any] | None:
        """Return the ends of the labels at most `bound` from the label of an item, as `plain` returns them.

        Return None if labels are not on a line.
        """
        if (vectors := self.vectors) is None or vectors.shape[1] != 1:
            return None
        low, high = (self.of_vectors(vectors[[row]] + end).plain(0) for end in (-bound, bound))
        return low, high

    def _replaced(self, **packed: Tensor) -> Self:
        """Return labels of this kind with other packed labels, as a new root without texts."""
        labels = self.as_root()
        labels.__dict__.update(packed)
        labels.rows, labels._texts, labels._identity = torch.arange(len(labels), device=self.device), (), ()
        return labels

    def _made(self, arguments: Mapping[str, Any]) -> Self:
        """Return a space made from these arguments, with the unit, title and part names of this one."""
        made = type(self)(**arguments)
        made.unit, made.measure, made.title, made.part_names = self.unit, self.measure, self.title, self.part_names
        return made


def growing(labels: LabelSpace) -> ItemLabels:
    """Return the labels, if their constructor takes their items again.

    Raises:
        InputError: the labels are of another kind.
    """
    if not isinstance(labels, ItemLabels):
        got, hint = "its items cannot be saved, joined or typed", "a label space that can derives from ItemLabels"
        raise InputError(type(labels).__name__, got, hint=hint)
    return labels


def _equal(x: Any, y: Any) -> bool:
    """Return True if two options are equal. Options may be tensors."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x.shape == y.shape and bool((x == y).all())
    return bool(x == y)


def _concatenated(x: Any, y: Any) -> Any:
    """Return the entries of the items of two spaces. Return None if neither space has entries."""
    if x is None or y is None:
        if x is not y:
            raise InputError("labels", "only one of two spaces has all arguments", "must be made alike")
        return None
    return torch.cat((x.cpu(), y.cpu())) if isinstance(x, Tensor) else [*x, *y]


def typed_numbers(title: str, text: str, count: int) -> list[float]:
    """Parse the numbers of a typed label: `count` finite numbers between commas or spaces, perhaps in brackets.

    Raises:
        InputError: the text is something else.
    """
    words = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    try:
        numbers = [float(word) for word in words if "_" not in word]
    except ValueError:
        numbers = []
    if len(numbers) != len(words) or len(numbers) != count or not all(map(math.isfinite, numbers)):
        allowed = "must be a number, with a decimal point" if count == 1 else f"must be {count} numbers, as 1.5,2"
        hint = "omit thousands separators" if re.search(r"\d,\d{3}(?!\d)", text) else ""
        raise InputError(title, f"{text!r:.60}", allowed, hint)
    return numbers


def typed_words(text: str) -> list[str]:
    """Return the words of a typed list, which stand between semicolons, else between bars or commas."""
    separator = next((mark for mark in ";|," if mark in text), ";")
    return [word.strip() for word in text.split(separator) if word.strip()]
