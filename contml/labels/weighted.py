"""A weighted sum of several label spaces of the same items."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError, did_you_mean
from contml._support.text import MISSING, number
from contml._support.validation import is_finite
from contml.contracts import Part
from contml.labels.base import LabelSpace, check_label_space
from contml.labels.items import ItemLabels, growing


class WeightedLabels(ItemLabels):
    """Several label spaces of the same items; the label distance is the weighted sum of their label distances.

    With weights of 1 / (mean label distance of the space), spaces of different units count equally.

    Args:
        spaces: each label space with its weight, a number above 0: `{places: 0.01, tags: 1.0}`.
        unit: the meaning of a label distance of 1.
        present: bool `[N, K]`, True where an item has a label in a space; None: everywhere. The distance of two items
            is the sum over the spaces in which both have a label, times (sum of all weights) / (sum of the weights of
            these spaces). Two items without such a space have no label distance, and losses leave them out. In a
            ranking of all items they have the sum of all weights, which is the mean distance if every space is scaled
            by its mean.
    """

    item_arguments: ClassVar[Mapping[str, Any]] = {"spaces": dict, "present": Tensor | None}
    present: Tensor | None = None

    def __init__(self, spaces: Mapping[LabelSpace, float], unit: str = "", *, present: Numbers | None = None) -> None:
        allowed = "must be at least one label space with its weight, {space: weight}"
        if not isinstance(spaces, Mapping):
            raise InputError("spaces", f"a {type(spaces).__name__}", allowed)
        if not spaces:
            raise InputError("spaces", "no label spaces", allowed)
        for space in spaces:
            check_label_space("spaces", space)
        lengths = [len(space) for space in spaces]
        if len(set(lengths)) != 1:
            raise InputError("spaces", f"{lengths} items", "must hold the same items in the same order")
        if len(devices := {str(space.device) for space in spaces}) != 1:
            raise InputError("spaces", f"on {', '.join(sorted(devices))}", "must be on one device")
        for space, weight in spaces.items():
            if not is_finite(weight) or weight <= 0:
                raise InputError(f"weight of {type(space).__name__}", str(weight), "must be above 0 and finite")
        packed: dict[str, Tensor | LabelSpace] = {f"space_{n}": space for n, space in enumerate(spaces)}
        if present is not None:
            allowed = f"bool [{lengths[0]}, {len(spaces)}]"
            mask = as_numbers("present", present, allowed)
            if mask.dtype != torch.bool or mask.shape != (lengths[0], len(spaces)):
                got = f"{str(mask.dtype).removeprefix('torch.')} {list(mask.shape)}"
                raise InputError("present", got, f"must be {allowed}")
            packed["present"] = mask.to(next(iter(spaces)).device, copy=True)
        super().__init__(**packed)
        self.weights = tuple(float(weight) for weight in spaces.values())
        self.unit = unit or " + ".join(f"{w:g} x ({s.unit})" for s, w in spaces.items())

    @property
    def spaces(self) -> tuple[LabelSpace, ...]:
        """The label spaces that are summed."""
        return tuple(self.__dict__[name] for name in self._packed if name != "present")

    @property
    def mirrored(self) -> bool:  # type: ignore[override]
        """True if mirroring one item does not change its label distances in any space."""
        return all(space.mirrored for space in self.spaces)

    @property
    def terms(self) -> Sequence[tuple[LabelSpace, Tensor | None]]:
        """The spaces, each with a mask `[N]` of the items that have a label in it; None: all."""
        return [(space, None if self.present is None else self.present[:, n]) for n, space in enumerate(self.spaces)]

    @property
    def captions(self) -> Sequence[Sequence[str]] | None:
        """The captions of the first space that has some."""
        return next((texts for space in self.spaces if (texts := space.captions) is not None), None)

    def arguments(self) -> dict[str, Any]:
        """Return the spaces with their weights, and the mask `present`."""
        return {"spaces": dict(zip(self.spaces, self.weights, strict=True)), "present": self.present}

    def joined(self, other: LabelSpace) -> Self:
        """Return the items of this sum and then the items of another one of the same spaces, as a new root."""
        if not isinstance(other, type(self)) or len(other.spaces) != len(self.spaces):
            raise InputError("labels", f"a {type(other).__name__}", "must be a sum of the same label spaces")
        if not all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(self.weights, other.weights, strict=True)):
            raise InputError("labels: weights", str(other.weights), f"must be {self.weights} in both spaces")
        pairs = zip(self.spaces, other.spaces, self.weights, strict=True)
        spaces: dict[LabelSpace, float] = {growing(a).joined(b): weight for a, b, weight in pairs}
        masks = ((each, torch.ones(len(each), len(self.spaces), dtype=torch.bool)) for each in (self, other))
        both = [ones if each.present is None else each.present.cpu() for each, ones in masks]
        present = None if self.present is None and other.present is None else torch.cat(both)
        whole = self._made({"spaces": spaces, "present": present})
        if self.root._texts or other.root._texts:
            whole._texts = [each.text(row) for each in (self, other) for row in range(len(each))]
        return whole

    def item(self, label: Any) -> Self:
        """Return a space of one item with labels of some of the spaces, by their titles: `{"age": 30}`.

        The other spaces do not count.
        """
        titles = [space.title for space in self.spaces]
        if not isinstance(label, Mapping) or not label:
            raise InputError(self.title, f"{label!r:.60}", f"must be labels by name, of {', '.join(titles)}")
        for title in label:
            if title not in titles:
                allowed = f"must be one of {', '.join(titles)}"
                raise InputError("label", f"no label {title!r}", allowed, did_you_mean(str(title), titles))
        given = ((space, space.title in label) for space in self.spaces)
        items = [growing(s).item(label[s.title]) if is_given else s[[0]].as_root() for s, is_given in given]
        present = torch.tensor([[title in label for title in titles]])
        return self._made({"spaces": dict(zip(items, self.weights, strict=True)), "present": present})

    @property
    def is_partial(self) -> bool:
        """True if no space has a label of all items, or a space is partial."""
        lacks_some = self.present is not None and not bool(self.present.all(0).any())
        return lacks_some or any(space.is_partial for space in self.spaces)

    @property
    def usual_distance(self) -> float:
        """The sum of the weights."""
        return sum(self.weights)

    def has(self, n: int, row: int) -> bool:
        """Return True if an item has a label in space n."""
        return self.present is None or bool(self.present[row, n])

    def text(self, row: int) -> str:
        """Return the labels of an item, each after its title."""
        texts = [(s.title, s.text(row)) for n, s in enumerate(self.spaces) if self.has(n, row)]
        return super().text(row) or "\n".join(f"{title}: {text}" for title, text in texts if text)

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the parts of each label, and its contribution to the sum."""
        parts = []
        shared = [self._shared(n, self[[a]], self[[b]]) for n in range(len(self.spaces))]
        in_both = [known is None or bool(known) for known in shared]
        scale = sum(self.weights) / (sum(w for w, both in zip(self.weights, in_both, strict=True) if both) or 1.0)
        for n, (space, weight) in enumerate(zip(self.spaces, self.weights, strict=True)):
            if not in_both[n]:
                x, y = (space.text(row) if self.has(n, row) else "missing" for row in (a, b))
                parts.append(Part(space.title, x, y, MISSING, number(0)))
                continue
            distance = float(space.pairwise([a], [b]))
            found = [part._replace(contribution="") for part in space.parts(a, b)]
            if len(found) != 1:
                found.append(Part(space.title, "", "", space.measure.text(distance)))
            found[-1] = found[-1]._replace(contribution=number(weight * distance * scale))
            parts += found
        return parts

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute weighted sums `[X, Y]` in float64 of the spaces' distances, each rounded to float32.

        Pairs without a label distance in any space have 0.
        """
        total = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
        shared_weight = torch.zeros_like(total)  # of the spaces in which both items have a label
        is_whole = True
        for index, (space, a, b, weight) in enumerate(zip(self.spaces, x.spaces, y.spaces, self.weights, strict=True)):
            term = weight * space.distances(a, a if x is y else b).float().double()
            if (in_both := self._shared(index, x, y)) is not None:
                is_whole = False
                term = term * in_both
            shared_weight += weight if in_both is None else weight * in_both
            total += term
        return total if is_whole else total * sum(self.weights) / shared_weight.where(shared_weight > 0, 1)

    def _known(self, x: Self, y: Self) -> Tensor:
        known = torch.zeros(len(x), len(y), dtype=torch.bool, device=x.device)
        for index in range(len(self.spaces)):
            in_both = self._shared(index, x, y)
            known = torch.ones_like(known) if in_both is None else known | in_both
        return known

    def _shared(self, n: int, x: Self, y: Self) -> Tensor | None:
        """Return True for items of x and y that have a label distance in space n, bool `[X, Y]`.

        Return None for all.
        """
        a, b = x.spaces[n], y.spaces[n]
        known = a._known(a, a if x is y else b) if a.is_partial else None
        if x.present is None or y.present is None:
            return known
        in_both = x.present[:, n, None] & y.present[None, :, n]
        return in_both if known is None else in_both & known

    def _item_contents(self) -> Iterable[bytes]:
        """Return the labels of each item as bytes. An item without a label in a space adds no bytes for it."""
        if self.present is None:
            return super()._item_contents()
        columns = []
        for space, column in zip(self.spaces, self.present.T.cpu().numpy(), strict=True):
            pairs = zip(space._item_contents(), column, strict=True)
            columns.append(content if present else b"" for content, present in pairs)
        return (b"/".join(contents) for contents in zip(*columns, strict=True))

    def _contents(self) -> str:
        return " + ".join(f"{weight:g} x {space!r}" for space, weight in zip(self.spaces, self.weights, strict=True))
