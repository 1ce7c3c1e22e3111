"""The label space: packed labels of some items, and the label distances between any two of them."""

from __future__ import annotations

import copy
import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.packed import taken
from contml._support.validation import as_rows, is_whole
from contml.contracts import LabelKind, Rows
from contml.distances.nearest import MEMORY, Neighbours, Progress, checked, chunks, neighbours_by_value, stream_nearest
from contml.labels.words import LabelWords

#: Attributes that do not change label distances: they are not part of a fingerprint.
_NOT_HASHED = (
    *("unit", "measure", "title", "part_names", "mirrored"),
    *("rows", "_root", "_tokens", "_texts", "_identity", "_form"),
)

#: The identities of the roots, as far as they were computed.
_IDENTITIES: WeakKeyDictionary[LabelSpace, int] = WeakKeyDictionary()


class JudgedPairs(NamedTuple):
    """Pairs of items that were judged, each once.

    rows `[P, 2]` are the items of each pair, the lower row first, in order. distances `[P]` are the means of the
    judgments of a pair, float64. counts `[P]` are the numbers of judgments. spreads `[P]` are their standard
    deviations, NaN for a single judgment.
    """

    rows: Tensor
    distances: Tensor
    counts: Tensor
    spreads: Tensor


class LabelSpace(LabelWords):
    """Packed labels of some items, one row per item, and the label distances between any two of them.

    `labels[rows]` is a batch or a subset of the items. It is a label space too, which can be indexed again. `rows` are
    row numbers in the *root*, the space that was built from the labels of a data set. A subclass packs its labels in
    the constructor and implements one method, `distances`.

    Args:
        packed: the labels by name, one row per item: tensors `[N, ...]`, or label spaces. They become attributes
            of these names, and are moved and indexed together.

    Attributes:
        kind: "graded": distances are numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1 from `class_ids`.
        largest: the largest possible label distance.
        class_ids: the class of each item `[N]`, if labels are classes.
        mirrored: True if mirroring the image of one item does not change its label distances. False for poses and
            label maps, which would be mirrored too.
        rows: row numbers in the root `[N]`; None if a loss made the labels from a plain tensor.
    """

    kind: LabelKind = "graded"
    largest: float = math.inf
    class_ids: Tensor | None = None
    mirrored: bool = True
    _root: Self | None = None
    _packed: tuple[str, ...] = ()

    def __init__(self, **packed: Tensor | LabelSpace) -> None:
        if not packed:
            raise InputError("packed labels", "none", "must be at least one tensor or label space")
        for name, labels in packed.items():
            if not isinstance(labels, Tensor | LabelSpace) or (isinstance(labels, Tensor) and labels.ndim == 0):
                got = "a tensor of no axes" if isinstance(labels, Tensor) else f"a {type(labels).__name__}"
                raise InputError(f"packed labels: {name}", got, "must be a tensor [N, ...] or a label space")
            if isinstance(labels, Tensor) and labels.is_complex():
                raise InputError(f"packed labels: {name}", str(labels.dtype), "must be real numbers")
            if isinstance(labels, Tensor) and labels.requires_grad:
                raise InputError(f"packed labels: {name}", "require a gradient", "get none", "give labels.detach()")
        lengths = {name: len(labels) for name, labels in packed.items()}
        if len(set(lengths.values())) != 1:
            raise InputError("packed labels", f"{lengths} items", "must all have the same number of items")
        for name, labels in packed.items():
            if isinstance(labels, Tensor) and labels.is_floating_point() and not bool(labels.isfinite().all()):
                row = int((~labels.isfinite()).nonzero()[0, 0])
                raise InputError(f"{name} of item {row}", "not finite", "must be finite numbers")
        self._packed = tuple(packed)
        self.__dict__.update(packed)
        self.rows = torch.arange(len(self), device=self.device)

    @abstractmethod
    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute exact label distances `[X, Y]` between the items of x and y. A subclass implements only this method.

        x and y are parts of one space. If both have the same items, y is x. The result may have any float dtype. Return
        plain distances, not their squares: a loss takes the power that its formula needs.
        """

    def __len__(self) -> int:
        return len(self.__dict__[self._packed_names[0]])

    @property
    def device(self) -> torch.device:
        """The device of the packed labels."""
        return self.__dict__[self._packed_names[0]].device

    @property
    def _packed_names(self) -> tuple[str, ...]:
        """The attributes that hold the packed labels."""
        if not self._packed:
            name = type(self).__name__
            raise InputError(f"{name}.__init__", "has packed no labels", "must call super().__init__(name=tensor)")
        return self._packed

    def to(self, device: torch.device | str) -> Self:
        """Return the same labels on another device.

        Move a label space before indexing it. `labels[rows].to(device)` moves only the batch: its `root` keeps its
        device, since it may be large and is shared with other batches.
        """
        moved = self._map(lambda labels: labels.to(device))
        moved.rows = None if self.rows is None else self.rows.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """Return these items as a label space: a batch, or a subset.

        `rows` of the result are row numbers in the root.
        """
        return self._part(as_rows(rows, len(self), self.device))

    @property
    def is_partial(self) -> bool:
        """True if some pairs of items may have no label distance; `known` finds the pairs that have one."""
        return False

    @property
    def judged_pairs(self) -> JudgedPairs | None:
        """The pairs that have a label distance, if labels are a list of pairs; else None."""
        return None

    @property
    def vectors(self) -> Tensor | None:
        """The labels as vectors `[N, D]` whose mean is a label too, in float64; None if labels have no mean."""
        return None

    @property
    def terms(self) -> Sequence[tuple[LabelSpace, Tensor | None]]:
        """The spaces of a sum, each with a mask `[N]` of the items that have a label in it (None: all).

        For a space that is not a sum, the space itself.
        """
        return [(self, None)]

    @property
    def root(self) -> Self:
        """The space that `rows` refers to."""
        return self if self._root is None else self._root

    def as_root(self) -> Self:
        """Return the same items as a new root: `rows` start at 0. The labels of a split are a root."""
        root = copy.copy(self)
        root.rows, root._root = torch.arange(len(self), device=self.device), None
        if self.rows is not None:
            rows, whole = self.rows.cpu().numpy(), self.root
            root._texts = taken(whole._texts, rows) if whole._texts else ()
            root._identity = taken(whole._identity, rows) if whole._identity else ()
        return root

    def pairwise(
        self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None, *, memory: int = MEMORY
    ) -> Tensor:
        """Compute label distances `[R, C]` of rows to columns (default all), in float32.

        They are computed in blocks of at most `memory` bytes. Rows and columns may also be given as labels: `self`, or
        a part of the same root.

        Raises:
            InputError: a row does not exist, a label space has another root, or a label distance is negative or not a
                number.
        """
        if isinstance(rows, LabelSpace) or isinstance(cols, LabelSpace):
            x = self._side(rows)
            y = x if cols is rows else self._side(cols)
        else:
            r = None if rows is None else as_rows(rows, len(self), self.device)
            c = None if cols is None else as_rows(cols, len(self), self.device)
            x = self if r is None else self._part(r)
            y = self if c is None else x if r is not None and torch.equal(r, c) else self._part(c)
        row_chunks = list(chunks(len(x), len(y), memory))
        if len(row_chunks) == 1:
            return checked(self._block(x, y))
        out = torch.empty(len(x), len(y), device=self.device)
        for chunk in row_chunks:
            out[chunk] = checked(self._block(x[chunk], y))
        return out

    def known(self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None) -> Tensor | None:
        """Return True for rows and columns that have a label distance, bool `[R, C]`.

        Return None if all pairs have one, as in most label spaces. `pairwise` is 0 for pairs without a label distance.
        The arguments are as in `pairwise`.

        Raises:
            InputError: a row does not exist, or a label space has another root.
        """
        if not self.is_partial:
            return None
        x = self._side(rows)
        return self._known(x, x if cols is rows else self._side(cols))

    @property
    def usual_distance(self) -> float:
        """The label distance that `filled` gives pairs without one.

        Raises:
            InputError: too few pairs have a label distance.
        """
        got = "most pairs of items have no label distance"
        raise InputError(type(self).__name__, got, "must be labels that compare all items")

    def filled(self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None) -> Tensor:
        """Compute `pairwise`, with `usual_distance` for pairs without a label distance: for rankings of all items.

        Raises:
            InputError: as in `pairwise`, or too few pairs have a label distance, as with judged pairs.
        """
        known = self.known(rows, cols)
        if known is None:
            return self.pairwise(rows, cols)
        return self.pairwise(rows, cols).masked_fill_(~known, self.usual_distance)

    def _known(self, x: Self, y: Self) -> Tensor:
        """Return True for items of x and y that have a label distance, bool `[X, Y]`.

        A space that `is_partial` implements it.
        """
        raise NotImplementedError(f"{type(self).__name__} is partial, and has no _known(self, x, y)")

    def _block(self, x: Self, y: Self) -> Tensor:
        """Compute label distances `[X, Y]` in float32, and check their shape."""
        block, shape = self.distances(x, y).float(), [len(x), len(y)]
        if list(block.shape) != shape:
            allowed = f"must be {shape}, a row for each item of x and a column for each of y"
            raise InputError(f"{type(self).__name__}.distances", str(list(block.shape)), allowed)
        return block

    def nearest(
        self,
        k: int,
        rows: Rows = None,
        *,
        among: Rows = None,
        memory: int = MEMORY,
        progress: Progress = None,
    ) -> Neighbours:
        """Find the exact k nearest items of each row by label distance. An item is not its own neighbour.

        The N x N matrix is never in memory. Ties of the float32 label distances go to the lower row. If some pairs have
        no label distance, an item may have fewer neighbours. The other places then have row -1 and distance infinity.
        `contml.labels.nearest` can keep the result in a folder.

        Args:
            k: the number of neighbours.
            rows: the rows to find neighbours of; default all.
            among: the rows that may be neighbours; default all.
            memory: maximum bytes of a block of label distances and its temporaries.
            progress: called with the number of rows finished so far; `progress_bar` shows it.

        Raises:
            InputError: k is not 1 to the number of candidates, or a label distance is negative or not a number.
        """
        neighbours = Neighbours(*self._nearest(k, *self._searched(k, rows, among), memory, progress))
        checked(neighbours.distances[neighbours.rows >= 0][None])
        return neighbours

    def _searched(self, k: int, rows: Rows, among: Rows) -> tuple[Tensor, Tensor]:
        """Return the rows `[R]` to find neighbours of, and the rows `[C]` that may be neighbours, ascending."""
        r, c = as_rows(rows, len(self), self.device), torch.unique(as_rows(among, len(self), self.device))
        available = len(c) - int(torch.isin(r, c).any())
        if not is_whole(k) or not 1 <= k <= available:
            raise InputError("k", str(k), f"must be 1 to {available}, the number of items that may be neighbours")
        return r, c

    def fingerprint(self) -> str:
        """Return a hash of the labels and of all options of the distance, the same on every device: the key of caches.

        The hash covers every attribute except `unit`, `measure`, `title`, `part_names`, `rows` and the texts of
        `with_texts`. A subclass whose distance depends on more than its attributes overrides this method.

        Raises:
            InputError: an attribute is of a type that cannot be hashed by content.
        """
        content = {name: value for name, value in vars(self).items() if name not in _NOT_HASHED}
        space_hashes = {name: value.fingerprint() for name, value in content.items() if isinstance(value, LabelSpace)}
        return fingerprint(type(self), content | space_hashes)

    @property
    def identity(self) -> int:
        """A number from the fingerprint of the root, by which memories and checkpoints recognize its labels.

        The number is computed once. Labels without a fingerprint are recognized by their type and number.
        """
        if (root := self.root) not in _IDENTITIES:
            try:
                content = root.fingerprint()
            except InputError:
                content = fingerprint(type(root), len(root))
            _IDENTITIES[root] = int(content[:15], 16)
        return _IDENTITIES[root]

    def digests(self) -> list[str]:
        """Return a short hash of the label of each item, independent of the other items.

        A run recognizes its data by these hashes.
        """
        contents: Iterable[bytes]
        if identity := self.root._identity:
            mine = identity if self.rows is None else taken(identity, self.rows.cpu().numpy())
            contents = (text.encode(errors="surrogateescape") for text in mine)
        else:
            contents = self._item_contents()
        return [hashlib.blake2b(each, digest_size=6).hexdigest() for each in contents]

    def _item_contents(self) -> Iterable[bytes]:
        """Return the label of each item as bytes.

        A subclass whose packed numbers depend on other items overrides this method.
        """
        packed = [self.__dict__[name] for name in self._packed if name != "kept"]
        rows = (each if isinstance(each, LabelSpace) else each.cpu().numpy() for each in packed)
        columns = (r._item_contents() if isinstance(r, LabelSpace) else (row.tobytes() for row in r) for r in rows)
        return (b"/".join(contents) for contents in zip(*columns, strict=True))

    def __repr__(self) -> str:
        suffix = "" if self._root is None else f" of {len(self._root):,}"
        return f"{type(self).__name__}({len(self):,}{suffix} items; {self._contents()})"

    def _contents(self) -> str:
        """Return a few words about the labels, for `repr`."""
        return f"unit: {self.unit}"

    def _side(self, rows: Rows | LabelSpace) -> Self:
        """Return these items: rows of this space, or a part of its root, which is returned unchanged."""
        if not isinstance(rows, LabelSpace):
            return self if rows is None else self[rows]
        if not isinstance(rows, type(self)) or rows.root is not self.root or rows.device != self.device:
            where = "" if rows.device == self.device else f" on {rows.device}"
            allowed = "must be row numbers, these labels, or a part of them on the same device, labels[rows]"
            raise InputError("rows", f"{rows!r}{where}", allowed)
        return rows

    def _part(self, index: Tensor) -> Self:
        subset = self._select(index)
        subset.rows = None if self.rows is None else self.rows[index]
        subset._root = self if self._root is None else self._root
        return subset

    def _select(self, index: Tensor) -> Self:
        """Return the packed labels of these rows `[R]`, which are valid."""
        return self._map(lambda labels: labels[index])

    def _nearest(self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Progress) -> Neighbours:
        """Return the result of `nearest`, for valid rows.

        A subclass with a faster method than blocks overrides this method. `rows` are `[R]`, `among` are `[C]`,
        ascending. A row is not its own neighbour.
        """
        if (found := self._compared_by()) is None:
            return stream_nearest(self.pairwise, self.known, k, rows, among, memory, progress)
        values, order = found
        return neighbours_by_value(values, k, rows, among, order, memory, progress)

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """Return values `[N, D]` and a function from their squared Euclidean distances to the label distances.

        The function does not decrease. Return None if there are no such values.
        """
        return None

    def _map(self, change: Callable[[Any], Any]) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update({name: change(self.__dict__[name]) for name in self._packed_names})
        return changed


def check_label_space(name: str, labels: object) -> None:
    """Check that labels are a label space: plain numbers could be classes or continuous labels.

    Raises:
        InputError: the labels are something else.
    """
    if not isinstance(labels, LabelSpace):
        hint = "give ClassLabels(classes) or NumberLabels(numbers)"
        raise InputError(name, f"a {type(labels).__name__}", "must be a label space", hint)
