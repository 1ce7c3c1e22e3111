"""The label space: packed labels of some items, and the label distances between any two of them."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from contml._support.conversion import Packed, taken
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.text import value_text
from contml._support.validation import as_rows, is_whole
from contml.contracts import PLAIN, Colours, LabelKind, Measure, Part, Rows
from contml.distances.nearest import MEMORY, Neighbours, checked, chunks, stream_nearest

#: Attributes that do not change label distances: they are not part of a fingerprint.
_NOT_HASHED = ("unit", "measure", "title", "part_names", "rows", "_root", "_tokens", "_texts", "_identity", "_form")


class JudgedPairs(NamedTuple):
    """Pairs of items that were judged, each once: rows `[P, 2]`, the lower one first, in order.

    distances `[P]`: the mean of the judgments of a pair, float64; counts `[P]`: their number; spreads `[P]`: their
    standard deviation, NaN for a single one.
    """

    rows: Tensor
    distances: Tensor
    counts: Tensor
    spreads: Tensor


class LabelSpace(ABC):
    """Packed labels of some items, one row per item, and the label distances between any two of them.

    `labels[rows]` is a batch or a subset of the items, and a label space too, which can be indexed again; `rows` are
    row numbers in the *root*, the space that was built from the labels of a data set. A subclass packs its
    labels in the constructor and implements one method, `distances`.

    Args:
        packed: the labels by name, one row per item: tensors `[N, ...]`, or label spaces. They become attributes
            of these names, and are moved and indexed together.

    Attributes:
        kind: "graded": distances are numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1 from `class_ids`.
        unit: what a label distance of 1 means, in words.
        measure: how label distances are printed; the default prints them as plain numbers.
        largest: the largest possible label distance.
        title: what the labels are, in a word or two: "age".
        part_names: the names of the parts of a label, such as joints, the classes of a map, or the numbers of a vector;
            empty: they are numbered.
        class_ids: the class of each item `[N]`, if labels are classes.
        item_arguments: the arguments of the constructor with an entry for each item, and their types; `arguments`
            returns them. Empty: the items cannot be given to a constructor again.
        option_arguments: its other arguments, and their types.
        typed_as: how a label is typed: as "text"; by the name of a file of "json" or of a "picture"; "": not at all.
        rows: row numbers in the root `[N]`; None if a loss made the labels from a plain tensor.
    """

    kind: LabelKind = "graded"
    unit: str = "label distance"
    measure: Measure = PLAIN
    largest: float = math.inf
    title: str = "label"
    part_names: Sequence[str] = ()
    class_ids: Tensor | None = None
    rows: Tensor | None = None
    item_arguments: ClassVar[Mapping[str, Any]] = {}
    option_arguments: ClassVar[Mapping[str, Any]] = {}
    typed_as: ClassVar[Literal["", "text", "json", "picture"]] = ""
    _form: Mapping[str, Any] = {}  # options that are read for new items alone: label distances do not depend on them
    _root: Self | None = None
    _packed: tuple[str, ...] = ()
    _texts: Sequence[str] = ()  # of the root, as `_identity`
    _identity: Sequence[str] = ()

    def __init__(self, **packed: Tensor | LabelSpace) -> None:
        if not packed:
            raise InputError("packed labels", "none", "must be at least one tensor or label space")
        for name, labels in packed.items():
            if not isinstance(labels, Tensor | LabelSpace) or (isinstance(labels, Tensor) and labels.ndim == 0):
                got = "a tensor of no axes" if isinstance(labels, Tensor) else f"a {type(labels).__name__}"
                raise InputError(f"packed labels: {name}", got, "must be a tensor [N, ...] or a label space")
            if isinstance(labels, Tensor) and labels.is_complex():
                raise InputError(f"packed labels: {name}", str(labels.dtype), "must be real numbers")
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
        """Exact label distances `[X, Y]` between the items of x and y: the one method that a subclass implements.

        x and y are parts of one space; if both have the same items, y is x. The result may have any float dtype.
        """

    def __len__(self) -> int:
        return len(self.__dict__[self._packed_names[0]])

    @property
    def device(self) -> torch.device:
        """The device of the packed labels."""
        device: torch.device = self.__dict__[self._packed_names[0]].device
        return device

    @property
    def _packed_names(self) -> tuple[str, ...]:
        """The attributes that hold the packed labels."""
        if not self._packed:
            name = type(self).__name__
            raise InputError(f"{name}.__init__", "has packed no labels", "must call super().__init__(name=tensor)")
        return self._packed

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """A label, with its unit, and the ends of an interval around it as texts; each as `plain` returns it."""
        first, second, third = (value_text(x) if isinstance(x, float) else str(x) for x in (value, low, high))
        return first, second, third

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device.

        Move a label space before indexing it. `labels[rows].to(device)` moves only the batch: its `root` keeps its
        device, since it may be large and is shared with other batches.
        """
        moved = self._map(lambda labels: labels.to(device))
        moved.rows = None if self.rows is None else self.rows.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """These items as a label space: a batch, or a subset. `rows` of the result are row numbers in the root."""
        return self._part(as_rows(rows, len(self), self.device))

    @property
    def exponent(self) -> int | None:
        """The power of a metric that the label distances are: 2 where they are squared, 1 where they are the metric.

        None: not known, so a loss uses the label distances as they are.
        """
        return None

    def with_exponent(self, exponent: int) -> LabelSpace:
        """The same labels with label distances of this power of the metric; itself where `exponent` is None.

        Raises:
            InputError: a subclass has another exponent, and no method to change it.
        """
        if self.exponent in (None, exponent):
            return self
        name = type(self).__name__
        hint = f"write {name}.with_exponent, or let `exponent` be None"
        raise InputError(f"{name}.exponent", str(self.exponent), f"must be {exponent} for this loss", hint)

    @property
    def is_partial(self) -> bool:
        """Whether some pairs of items may have no label distance; `known` says which have one."""
        return False

    @property
    def judged_pairs(self) -> JudgedPairs | None:
        """The pairs that have a label distance, where labels are a list of them; else None."""
        return None

    @property
    def vectors(self) -> Tensor | None:
        """The labels as vectors `[N, D]` whose mean is a label too, in float64; None where labels have no mean."""
        return None

    @property
    def captions(self) -> Sequence[Sequence[str]] | None:
        """The captions of each item, which a captioner learns; None where labels are no captions."""
        return None

    def text(self, row: int) -> str:
        """The label of an item in words, with its unit, in one line or several; "" where only a picture shows it.

        The default is its text of `with_texts`.
        """
        texts = self.root._texts
        return texts[row if self.rows is None else int(self.rows[row])] if texts else ""

    def plain(self, row: int) -> Any:
        """The label of an item as a plain value, for JSON and tables: a number, a text, a list; None: it has none."""
        return self.text(row) or None

    def parts(self, a: int, b: int) -> list[Part]:
        """Why two items are near or far: what is compared, both values, and how much they differ.

        The default is one part of both texts; none if the labels have no words.
        """
        texts = self.text(a), self.text(b)
        return [Part(self.title, *texts, self._difference(a, b))] if all(texts) else []

    def _difference(self, a: int, b: int) -> str:
        """How much two items differ, in words."""
        return self.measure.text(float(self.pairwise([a], [b])))

    def colours(self) -> Colours | None:
        """The labels as colours; None if they are neither numbers nor classes."""
        return None

    def with_texts(self, texts: Sequence[str] = (), *, identity: Sequence[str] = ()) -> Self:
        """The same items as a new root, with texts that `text` returns. Label distances and fingerprint stay the same.

        Args:
            texts: the label of each item in words; default: the texts that it has.
            identity: what identifies the label of each item in the record of a run, such as the cells of a table;
                default: its content.

        Raises:
            InputError: there is not one text for each item.
        """
        root = self.as_root()
        for name, given in (("texts", texts), ("identity", identity)):
            if len(given) not in (0, len(self)):
                raise InputError(name, f"{len(given)} for {len(self)} items", "must be one for each item")
            if len(given):
                setattr(root, f"_{name}", given if isinstance(given, Packed) else [*map(str, given)])
        return root

    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that make these labels again: `type(labels)(**labels.arguments())`.

        Raises:
            InputError: the items cannot be given to a constructor again.
        """
        if not self.item_arguments:
            raise InputError(type(self).__name__, "has no items that a constructor takes", hint="give another space")
        names = (*self.item_arguments, *self.option_arguments)
        return {name: self._form[name] if name in self._form else self.__dict__[name] for name in names}

    def joined(self, other: LabelSpace) -> Self:
        """The items of this space and then those of another one of the same kind, as a new root.

        Raises:
            InputError: the other space has another kind or other options, or its items cannot be given to a
                constructor again.
        """
        if type(other) is not type(self):
            raise InputError("labels", f"a {type(other).__name__}", f"must be a {type(self).__name__}")
        mine, others = self.arguments(), other.arguments()
        for name in self.option_arguments:
            if isinstance(mine[name], Mapping) and isinstance(others[name], Mapping):
                mine[name] = {**others[name], **mine[name]}
            elif not _equal(mine[name], others[name]):
                raise InputError(
                    f"labels: {name}", f"{others[name]!r:.60}", f"must be {mine[name]!r:.60} in both spaces"
                )
        mine |= {name: _concatenated(mine[name], others[name]) for name in self.item_arguments}
        whole = self._made(mine)
        if self.root._texts or other.root._texts:
            whole._texts = [space.text(row) for space in (self, other) for row in range(len(space))]
        return whole

    def item(self, label: Any) -> Self:
        """A label that is none of these items, as a space of one item: `labels.joined(labels.item(label))`.

        Args:
            label: as the constructor takes it for an item, in the unit of the data; or as text, which `parse` reads.

        Raises:
            InputError: it is no such label.
        """
        try:
            return self._item(self.parse(label) if isinstance(label, str) else label)
        except InputError as error:
            raise InputError(self.title, error.got, error.allowed, error.hint.partition(", or set ")[0]) from None

    def _item(self, label: Any) -> Self:
        """The space of one label, as the constructor takes it; a subclass whose items are no list overrides it."""
        return self._made({next(iter(self.item_arguments), ""): [label], **self._options()})

    def _options(self) -> dict[str, Any]:
        """The arguments of the constructor that are not of the items."""
        return {name: value for name, value in self.arguments().items() if name in self.option_arguments}

    def parse(self, text: str) -> Any:
        """The label that a text says, as `item` takes it.

        Raises:
            InputError: it says no label of this kind, or labels of this kind cannot be typed.
        """
        raise InputError(self.title, f"{text!r:.60}", f"a label of {type(self).__name__} cannot be typed")

    @property
    def terms(self) -> Sequence[tuple[LabelSpace, Tensor | None]]:
        """The spaces of a sum, each with which items have a label in it `[N]` (None: all); else this space alone."""
        return [(self, None)]

    def unknown_words(self, text: str) -> list[str]:  # noqa: ARG002
        """The words of a typed label that no item has; none where labels are no words."""
        return []

    def of_vectors(self, vectors: Tensor) -> Self:  # noqa: ARG002
        """Labels of this kind with these `vectors` `[M, D]`, as a new root of M items.

        Raises:
            InputError: labels have no vectors.
        """
        raise InputError(type(self).__name__, "has no vectors", "must be labels that have a mean")

    def _made(self, arguments: Mapping[str, Any]) -> Self:
        """A space of these arguments with the words of this one."""
        made = type(self)(**arguments)
        made.unit, made.measure, made.title, made.part_names = self.unit, self.measure, self.title, self.part_names
        return made

    @property
    def root(self) -> Self:
        """The space that `rows` refers to."""
        return self if self._root is None else self._root

    def as_root(self) -> Self:
        """The same items as a new root: `rows` start at 0. The labels of a split are a root."""
        root = copy.copy(self)
        root.rows, root._root = torch.arange(len(self), device=self.device), None
        if self.rows is not None:
            root._texts, root._identity = (
                taken(kept, self.rows.cpu().numpy()) if kept else () for kept in (self.root._texts, self.root._identity)
            )
        return root

    def pairwise(
        self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None, *, memory: int = MEMORY
    ) -> Tensor:
        """Label distances `[R, C]` of rows to columns (default all), in float32, in blocks of at most `memory` bytes.

        Rows and columns may also be given as labels: `self`, or a part of the same root.

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
        """Which rows and columns have a label distance, bool `[R, C]`; None: all, as in most label spaces.

        `pairwise` is 0 where it is False. The arguments are those of `pairwise`.

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
            InputError: too few pairs have one.
        """
        got = "most pairs of items have no label distance"
        raise InputError(type(self).__name__, got, "must be labels that compare all items")

    def filled(self, rows: Rows | LabelSpace = None, cols: Rows | LabelSpace = None) -> Tensor:
        """As `pairwise`, but `usual_distance` for pairs without a label distance: for rankings of all items.

        Raises:
            InputError: as of `pairwise`, or too few pairs have a label distance, as of judged pairs.
        """
        known = self.known(rows, cols)
        if known is None:
            return self.pairwise(rows, cols)
        usual = self.usual_distance
        return self.pairwise(rows, cols).masked_fill_(~known, usual)

    def _known(self, x: Self, y: Self) -> Tensor:
        """Which items of x and y have a label distance, bool `[X, Y]`; what a space that `is_partial` implements."""
        raise NotImplementedError(f"{type(self).__name__} is partial, and has no _known(self, x, y)")

    def _block(self, x: Self, y: Self) -> Tensor:
        """Label distances `[X, Y]` in float32, of the right shape."""
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
        progress: Callable[[int], None] | None = None,
    ) -> Neighbours:
        """The exact k nearest items of each row by label distance; an item is not its own neighbour.

        The N x N matrix is never in memory. Ties of the float32 label distances go to the lower row. Where some pairs
        have no label distance, an item may have fewer neighbours: the other places have row -1 and distance infinity.
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
        """The rows `[R]` to find neighbours of, and those `[C]` that may be neighbours, ascending."""
        r, c = as_rows(rows, len(self), self.device), torch.unique(as_rows(among, len(self), self.device))
        available = len(c) - int(torch.isin(r, c).any())
        if not is_whole(k) or not 1 <= k <= available:
            raise InputError("k", str(k), f"must be 1 to {available}, the number of items that may be neighbours")
        return r, c

    def fingerprint(self) -> str:
        """A hash of the labels and of all options of the distance, the same on every device: the key of caches.

        It covers every attribute except `unit`, `measure`, `title`, `part_names`, `rows` and the texts of
        `with_texts`. A subclass whose distance depends on more than its attributes overrides it.

        Raises:
            InputError: an attribute is of a type that cannot be hashed by content.
        """
        content = {name: value for name, value in vars(self).items() if name not in _NOT_HASHED}
        space_hashes = {name: value.fingerprint() for name, value in content.items() if isinstance(value, LabelSpace)}
        return fingerprint(type(self), content | space_hashes)

    def digests(self) -> list[str]:
        """A short hash of the label of each item, independent of the other items: a run recognizes its data by it."""
        contents: Iterable[bytes]
        if identity := self.root._identity:
            mine = identity if self.rows is None else taken(identity, self.rows.cpu().numpy())
            contents = (text.encode(errors="surrogateescape") for text in mine)
        else:
            contents = self._item_contents()
        return [hashlib.blake2b(each, digest_size=6).hexdigest() for each in contents]

    def _item_contents(self) -> Iterable[bytes]:
        """The label of each item as bytes. A subclass whose packed numbers depend on other items overrides it."""
        packed = [self.__dict__[name] for name in self._packed if name != "kept"]
        columns = [
            labels._item_contents()
            if isinstance(labels, LabelSpace)
            else (row.tobytes() for row in labels.cpu().numpy())
            for labels in packed
        ]
        return (b"/".join(contents) for contents in zip(*columns, strict=True))

    def __repr__(self) -> str:
        suffix = "" if self._root is None else f" of {len(self._root):,}"
        return f"{type(self).__name__}({len(self):,}{suffix} items; {self._contents()})"

    def _contents(self) -> str:
        """A few words about the labels, for `repr`."""
        return f"unit: {self.unit}"

    def _part_name(self, number: int, default: str) -> str:
        """The name of a part of a label; `default` where it has none."""
        return self.part_names[number] if number < len(self.part_names) else default

    def _side(self, rows: Rows | LabelSpace) -> Self:
        """These items: rows of this space, or a part of its root, as it is."""
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
        """The packed labels of these rows `[R]`, which are valid."""
        return self._map(lambda labels: labels[index])

    def _nearest(
        self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Callable[[int], None] | None
    ) -> Neighbours:
        """The result of `nearest`, for valid rows; a subclass with a faster method than blocks overrides it.

        rows `[R]`; among `[C]` ascending; a row is not its own neighbour.
        """
        return stream_nearest(self.pairwise, self.known, k, rows, among, memory, progress)

    def _map(self, change: Callable[[Any], Any]) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update({name: change(self.__dict__[name]) for name in self._packed_names})
        return changed


def _equal(x: Any, y: Any) -> bool:
    """Whether two options are equal, which may be tensors."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return x.shape == y.shape and bool((x == y).all())
    return bool(x == y)


def _concatenated(x: Any, y: Any) -> Any:
    """The entries of the items of two spaces; None where neither has any."""
    if x is None or y is None:
        if x is not y:
            raise InputError("labels", "only one of two spaces has all arguments", "must be made alike")
        return None
    return torch.cat((x.cpu(), y.cpu())) if isinstance(x, Tensor) else [*x, *y]


def typed_numbers(title: str, text: str, count: int) -> list[float]:
    """The numbers of a typed label: `count` finite numbers between commas or spaces, perhaps in brackets.

    Raises:
        InputError: they are something else.
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
    """The words of a typed list: between semicolons, else between bars or commas."""
    separator = next((mark for mark in ";|," if mark in text), ";")
    return [word.strip() for word in text.split(separator) if word.strip()]


class MetricLabels(LabelSpace):
    """Labels whose distance is a metric or, with `squared`, its square.

    Attributes:
        squared: whether the label distances are squared.
    """

    squared: bool

    @property
    def exponent(self) -> int:
        """2 for squared label distances, else 1."""
        return 2 if self.squared else 1

    def with_exponent(self, exponent: int) -> Self:
        """The same labels, with squared label distances (2) or plain ones (1)."""
        if exponent not in (1, 2):
            raise InputError("exponent", str(exponent), "must be 1 or 2")
        if self.exponent == exponent:
            return self
        changed = copy.copy(self)
        changed.squared = exponent == 2
        changed.unit = f"{'square' if changed.squared else 'square root'} of: {self.unit}"
        changed.measure = self.measure.root if changed.squared else self.measure.linear
        return changed


def check_label_space(name: str, labels: object) -> None:
    """Checks that labels are a label space: numbers alone could be classes or continuous labels.

    Raises:
        InputError: they are something else.
    """
    if not isinstance(labels, LabelSpace):
        hint = "give ClassLabels(classes) or VectorLabels(numbers)"
        raise InputError(name, f"a {type(labels).__name__}", "must be a label space", hint)
