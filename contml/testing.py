"""Conformance checks: hold a label space, a loss or a sampler of your own to the rules that contml's own keep.

Each check walks a table of rules and raises an `AssertionError` of one line that names the first one broken. They work
on a few items, in under a second as a rule: call them in a test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from contml.contracts import InputError, LabelSpace, LabelView, Loss, Sampler
from contml.distances import class_distance
from contml.labels import ClassLabels, VectorLabels

#: Items of a label space that are looked at.
_ITEMS = 64
#: Batches of a sampler that are looked at.
_BATCHES = 6
#: Items in a loss's batch.
_BATCH = 12


def check_label_space(space: LabelSpace, *, symmetric: bool = True) -> None:
    """Hold a label space to the contract `LabelSpace`: distances, blocks, subsets, views, classes.

    Args:
        space: at least 3 items; of more than 64, a random 64 are looked at.
        symmetric: False for a relation that says it is not symmetric, as `NearestLabels` does.

    Raises:
        AssertionError: a rule is broken; the rules are the keys of `SPACE_RULES`.
    """
    _hold(space, SPACE_RULES, space, () if symmetric else ("symmetric",))


def check_loss(loss: Loss, space: LabelSpace | None = None, *, dim: int = 6, skip: Collection[str] = ()) -> None:
    """Hold a loss to the contract `Loss`: values, dtypes, gradients at the edges, anchors, every form of labels.

    Each call is made on a copy of the loss, which stays as it is.

    Args:
        loss: for proxies, one that knows the classes of `space` and the embedding dimension `dim`.
        space: labels of the batch; default 12 vectors, or 12 items of 4 classes where the loss needs 0 / 1 or classes.
        dim: the embedding dimension.
        skip: rules that do not hold by design, keys of `LOSS_RULES`: "empty" for a loss whose anchors are no items of
            the batch (proxies), "gradcheck" for a surrogate gradient, "permutation" where the order of items counts.

    Raises:
        AssertionError: a rule is broken.
        InputError: a rule to skip that does not exist.
    """
    if space is None:
        random = torch.Generator().manual_seed(0)
        vectors = VectorLabels(torch.randn(_BATCH, 2, generator=random, dtype=torch.float64))
        space = vectors if loss.labels == "distances" else ClassLabels([0, 1, 2, 0, 3, 1, 0, 2, 3, 1, 0, 1])
    x = torch.randn(len(space), dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _hold(loss, LOSS_RULES, _Case(loss, space, x), skip)


def check_sampler(sampler: Sampler, items: int, *, duplicates: bool = False) -> None:
    """Hold a sampler to the contract `Sampler`: pure batches of existing rows, iteration and resuming.

    Args:
        sampler: as constructed, not iterated yet; it stays as it is.
        items: how many items the data set has.
        duplicates: a batch may hold an item twice.

    Raises:
        AssertionError: a rule is broken; the rules are the keys of `SAMPLER_RULES`.
    """
    _hold(sampler, SAMPLER_RULES, (sampler, items), ("distinct",) if duplicates else ())


def _hold(subject: object, rules: dict[str, Callable[[Any], str | None]], case: object, skip: Collection[str]) -> None:
    unknown = sorted(set(skip) - set(rules))
    if unknown:
        raise InputError(f"there is no rule {unknown[0]!r} to skip; the rules are {', '.join(rules)}")
    for name, rule in rules.items():
        if name in skip:
            continue
        cause = None
        try:
            broken = rule(case)
        except Exception as error:
            broken, cause = " ".join(f"it raises {type(error).__name__}: {error}".split()), error
        if broken is not None:
            raise AssertionError(f"{type(subject).__name__} breaks the rule {name!r}: {broken}") from cause


def _close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> bool:
    a, b = a.detach().double(), b.detach().double()
    scale = float(b.abs().max()) if b.numel() else 0.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale)


# Label spaces: a rule reads the space and says what is wrong, or None.


def _some(space: LabelSpace) -> tuple[Tensor, Tensor]:
    """Rows `[R]` in random order and their label distances `[R, R]`."""
    order = torch.randperm(len(space), generator=torch.Generator().manual_seed(0))
    rows = order[:_ITEMS].to(space.device)
    return rows, space.pairwise(rows, rows)


def _length(space: LabelSpace) -> str | None:
    return None if len(space) >= 3 else f"it has {len(space)} items; the check needs at least 3"


def _unit(space: LabelSpace) -> str | None:
    text = isinstance(space.unit, str) and bool(space.unit.strip())
    return None if text else f"unit is {space.unit!r}; say in words what a label distance of 1 is"


def _kind(space: LabelSpace) -> str | None:
    known = ("distances", "binary", "classes")
    return None if space.kind in known else f"kind is {space.kind!r}; it must be one of {', '.join(known)}"


def _float32(space: LabelSpace) -> str | None:
    rows, block = _some(space)
    if block.dtype != torch.float32:
        return f"pairwise returns {block.dtype}; label distances are torch.float32"
    if block.shape != (len(rows), len(rows)):
        return f"pairwise of {len(rows)} rows and columns is {list(block.shape)}"
    same = block.device == space.device
    return None if same else f"pairwise returns a tensor on {block.device}, but the space is on {space.device}"


def _numbers(space: LabelSpace) -> str | None:
    block = _some(space)[1]
    bad = block[~(block.isfinite() & (block >= 0))]
    return f"a label distance is {bad[0].item()}; label distances are finite numbers >= 0" if len(bad) else None


def _diagonal(space: LabelSpace) -> str | None:
    rows, block = _some(space)
    for row, own in zip(rows.tolist(), block.diagonal().tolist(), strict=True):
        if own != 0:
            return f"the label distance of row {row} to itself is {own}, not 0"
    return None


def _symmetric(space: LabelSpace) -> str | None:
    block = _some(space)[1]
    return None if _close(block, block.T) else "D(i, j) and D(j, i) differ; symmetric=False if that is meant"


def _blocks(space: LabelSpace) -> str | None:
    rows, whole = _some(space)
    half = len(rows) // 2
    if not _close(space.pairwise(rows[:half], rows), whole[:half]):
        return "pairwise(rows, cols) differs from the same block of a larger one"
    if not _close(space.pairwise([2, 0], rows), space.pairwise(torch.tensor([2, 0], device=space.device), rows)):
        return "rows as a list and as a tensor give different label distances"
    if not _close(space.pairwise(slice(1, 3), rows), space.pairwise(range(1, 3), rows)):
        return "rows as a slice and as a range give different label distances"
    if len(rows) == len(space) and not _close(space.pairwise()[rows][:, rows], whole):
        return "pairwise() differs from pairwise(rows, cols) of all rows"
    return None if space.pairwise([], rows).shape == (0, len(rows)) else "pairwise([], cols) is not [0, cols]"


def _subset(space: LabelSpace) -> str | None:
    rows, whole = _some(space)
    part, own = space.subset(rows[1:]), whole[1:, 1:]
    if len(part) != len(rows) - 1 or part.kind != space.kind:
        return f"subset of {len(rows) - 1} rows has {len(part)} items, of kind {part.kind!r}"
    if not _close(part.pairwise(), own) or not _close(part.pairwise([1, 0]), own[[1, 0]]):
        return "subset(rows).pairwise() differs from pairwise(rows, rows)"
    again = part.subset([1, 0]).pairwise()
    return None if _close(again, own[[1, 0]][:, [1, 0]]) else "a subset of a subset has other label distances"


def _view(space: LabelSpace) -> str | None:
    rows, _ = _some(space)
    rows = torch.cat((rows, rows[:2]))  # a batch may hold an item twice
    view, block = space.view(rows), space.pairwise(rows, rows)
    if not isinstance(view, LabelView) or view.kind != space.kind or len(view) != len(rows):
        return f"view of {len(rows)} rows is no LabelView of {len(rows)} items of kind {space.kind!r}"
    if not _close(view.distances(), block):
        return "view(rows).distances() differs from pairwise(rows, rows)"
    for anchors in (torch.tensor([2, 0], device=space.device), slice(1, 3)):
        if not _close(view.distances(anchors), block[anchors]):
            return "view(rows).distances(anchors) differs from these rows of view(rows).distances()"
    return None


def _device(space: LabelSpace) -> str | None:
    moved = space.to("cpu")
    if len(moved) != len(space) or moved.device != torch.device("cpu"):
        return f'to("cpu") has {len(moved)} items on {moved.device}'
    same = _close(_some(moved)[1], _some(space)[1].cpu())
    return None if same else 'to("cpu") has other label distances'


def _zero_or_one(space: LabelSpace) -> str | None:
    block = _some(space)[1]
    bad = block[(block != 0) & (block != 1)]
    if space.kind == "distances" or not len(bad):
        return None
    return f"a label distance is {bad[0].item()}, but kind is {space.kind!r}: only 0 and 1"


def _classes(space: LabelSpace) -> str | None:
    rows, block = _some(space)
    classes, own = getattr(space, "classes", None), space.view(rows).classes
    if space.kind != "classes":
        return None if classes is None and own is None else f"it has classes, but kind is {space.kind!r}"
    if not isinstance(classes, Tensor) or classes.shape != (len(space),) or classes.is_floating_point():
        return "kind is 'classes', but classes is no tensor of one whole number an item"
    if own is None or not torch.equal(own, classes[rows]):
        return "view(rows).classes differs from classes[rows]"
    same = torch.equal(block, class_distance(classes[rows], classes[rows]))
    return None if same else "label distances are not 0 within a class and 1 between classes"


#: What holds for a label space, by name.
SPACE_RULES: dict[str, Callable[[LabelSpace], str | None]] = {
    "length": _length,
    "unit": _unit,
    "kind": _kind,
    "float32": _float32,
    "numbers": _numbers,
    "diagonal": _diagonal,
    "symmetric": _symmetric,
    "blocks": _blocks,
    "subset": _subset,
    "view": _view,
    "device": _device,
    "0 or 1": _zero_or_one,
    "classes": _classes,
}


# Losses: a rule reads a case.


class _Case(NamedTuple):
    loss: Loss
    space: LabelSpace
    x: Tensor  # [B,d] float64

    def run(self, x: Tensor, labels: Tensor | LabelView, anchors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Value and gradient `[B, d]` of a call on a copy of the loss."""
        leaf = x.clone().requires_grad_()
        value = copy.deepcopy(self.loss)(leaf, labels, anchors=anchors)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    def same(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> bool:
        return _close(a[0], b[0]) and _close(a[1], b[1])


def _scalar(case: _Case) -> str | None:
    value = copy.deepcopy(case.loss)(case.x.clone().requires_grad_(), case.space.view())
    if not isinstance(value, Tensor) or value.ndim != 0:
        return f"it returns {list(value.shape) if isinstance(value, Tensor) else type(value).__name__}, not a scalar"
    return None if value.requires_grad else "its value has no graph to the embeddings"


def _dtype(case: _Case) -> str | None:
    view, half = case.space.view(), case.x.bfloat16()
    exact = case.run(half.double(), view)[0]
    for x, wanted in ((case.x, torch.float64), (case.x.float(), torch.float32), (half, torch.float32)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x is half):
            value, gradient = case.run(x, view)
        if value.dtype != wanted or gradient.dtype != x.dtype:
            return f"{x.dtype} embeddings give a value in {value.dtype}, not {wanted}, a gradient in {gradient.dtype}"
    return None if _close(value, exact, 1e-3) else f"under autocast it is {value.item():g}, exactly {exact.item():g}"


def _finite(case: _Case) -> str | None:
    items, block = len(case.x), case.space.pairwise()
    apart = [i for i in range(items) if bool((block[i, :i] > 0).all())]  # no two of them at label distance 0
    copied, same, zero = (case.x.clone() for _ in range(3))
    copied[1:3], same[:], zero[0] = copied[0], 30 * same[0], 0
    for what, x, rows in (
        ("a generic batch", case.x, range(items)),
        ("two copies of an embedding", copied, range(items)),
        ("identical embeddings", same, range(items)),
        ("an embedding of zeros", zero, range(items)),
        ("embeddings of norm 1e-3", 1e-3 * case.x, range(items)),
        ("embeddings of norm 100", 100 * case.x, range(items)),
        ("all label distances 0", case.x, [0] * items),
        ("no label distance 0", case.x[: len(apart)], apart),
    ):
        if len(x) >= 2:
            value, gradient = case.run(x.float(), case.space.view(list(rows)))
            if not bool(value.isfinite()) or not bool(gradient.isfinite().all()):
                return f"{what}: the value is {value.item()}, or the gradient is not finite"
    return None


def _anchors(case: _Case) -> str | None:
    view, everyone = case.space.view(), torch.arange(len(case.x)).flip(0)
    same = case.same(case.run(case.x, view, everyone), case.run(case.x, view))
    return None if same else "anchors=all positions, in any order, differs from the default"


def _labels(case: _Case) -> str | None:
    view, classes, some = case.space.view(), getattr(case.space, "classes", None), torch.tensor([2, 0])
    if isinstance(classes, Tensor) and not case.same(case.run(case.x, classes), case.run(case.x, view)):
        return "class ids [B] and a view of the same labels differ"
    if case.loss.labels == "classes":
        return None
    block = case.space.pairwise()
    if not case.same(case.run(case.x, block), case.run(case.x, view)):
        return "label distances [B, B] and a view of the same labels differ"
    same = case.same(case.run(case.x, block[some], some), case.run(case.x, view, some))
    return None if same else "of some anchors, label distances [A, B] and a view of the same labels differ"


def _permutation(case: _Case) -> str | None:
    order = torch.randperm(len(case.x), generator=torch.Generator().manual_seed(2))
    value, gradient = case.run(case.x, case.space.view())
    same = case.same(case.run(case.x[order], case.space.view(order)), (value, gradient[order]))
    return None if same else "permuting the batch changes the value, or does not just permute the gradient"


def _empty(case: _Case) -> str | None:
    value, gradient = case.run(case.x, case.space.view(), torch.tensor([], dtype=torch.int64))
    zero = value.item() == 0 and not bool(gradient.any())
    return None if zero else f"without anchors there is nothing to compare, but the value is {value.item()}, not 0"


def _wrong_kind(case: _Case) -> str | None:
    degree = VectorLabels(torch.arange(len(case.x)))
    binary = torch.ones(len(case.x), len(case.x)).fill_diagonal_(0)
    wrong: list[tuple[str, Tensor | LabelView]] = []
    if case.loss.labels != "distances":
        wrong += [("a view of vectors", degree.view()), ("label distances such as 0.5", 0.5 * binary)]
    if case.loss.labels == "classes":
        wrong += [("0 / 1 without class ids", binary)]
    for what, labels in wrong:
        try:
            copy.deepcopy(case.loss)(case.x, labels)
        except InputError as error:
            if "\n" in str(error):
                return "the InputError that refuses a wrong kind of labels has more than one line"
        else:
            return f"it needs {case.loss.labels!r}, but takes {what} without an InputError"
    return None


def _gradcheck(case: _Case) -> str | None:
    loss, view = copy.deepcopy(case.loss), case.space.view()
    parameters = list(loss.double().parameters()) if isinstance(loss, nn.Module) else []
    inputs = (case.x.clone().requires_grad_(), *(p for p in parameters if p.requires_grad))
    right = torch.autograd.gradcheck(lambda x, *_: loss(x, view), inputs, raise_exception=False)
    return None if right else "the gradient differs from finite differences in float64"


#: What holds for a loss, by name.
LOSS_RULES: dict[str, Callable[[_Case], str | None]] = {
    "scalar": _scalar,
    "dtype": _dtype,
    "finite": _finite,
    "anchors": _anchors,
    "labels": _labels,
    "permutation": _permutation,
    "empty": _empty,
    "kind": _wrong_kind,
    "gradcheck": _gradcheck,
}


# Samplers: a rule reads the sampler and the number of items.


def _steps(case: tuple[Sampler, int]) -> Iterator[tuple[int, int, list[int]]]:
    """(epoch, step, batch) of the first batches of two epochs."""
    for epoch in (0, 1):
        for step in range(min(len(case[0]), _BATCHES)):
            yield epoch, step, case[0].batch(epoch, step)


def _stream(sampler: Sampler) -> list[list[int]]:
    """The next batches, over the ends of epochs."""
    return list(islice(chain.from_iterable(repeat(sampler, _BATCHES + 1)), _BATCHES))


def _batches(case: tuple[Sampler, int]) -> str | None:
    return None if len(case[0]) >= 1 else f"an epoch has {len(case[0])} batches; it needs at least 1"


def _rows(case: tuple[Sampler, int]) -> str | None:
    for epoch, step, rows in _steps(case):
        if not isinstance(rows, list) or len(rows) < 2 or not all(type(row) is int for row in rows):
            return f"batch({epoch}, {step}) is no list of at least 2 whole numbers"
        if not 0 <= min(rows) <= max(rows) < case[1]:
            return f"batch({epoch}, {step}) has rows {min(rows)} to {max(rows)}, but rows are 0 to {case[1] - 1}"
    return None


def _head(case: tuple[Sampler, int]) -> str | None:
    anchors, smallest = case[0].anchors, min(len(rows) for _, _, rows in _steps(case))
    fits = anchors is None or 1 <= anchors <= smallest
    return None if fits else f"anchors is {anchors}, but a batch has {smallest} rows; it must be 1 to that, or None"


def _distinct(case: tuple[Sampler, int]) -> str | None:
    for epoch, step, rows in _steps(case):
        if len(set(rows)) < len(rows):
            return f"batch({epoch}, {step}) holds a row twice; duplicates=True if that is meant"
    return None


def _pure(case: tuple[Sampler, int]) -> str | None:
    for epoch, step, rows in reversed(list(_steps(case))):
        if case[0].batch(epoch, step) != rows:
            return f"batch({epoch}, {step}) is another the second time; draw from (seed, epoch, step) alone"
    return None


def _epochs(case: tuple[Sampler, int]) -> str | None:
    batches = [rows for _, _, rows in _steps(case)]
    half = len(batches) // 2
    return "epochs 0 and 1 have the same batches" if batches[:half] == batches[half:] else None


def _iteration(case: tuple[Sampler, int]) -> str | None:
    expected = [case[0].batch(*divmod(number, len(case[0]))) for number in range(_BATCHES)]
    same = _stream(copy.deepcopy(case[0])) == expected
    return None if same else "iterating does not give batch(0, 0), batch(0, 1), ..., and then epoch 1"


def _resume(case: tuple[Sampler, int]) -> str | None:
    if not hasattr(case[0], "state_dict"):
        return None
    expected = _stream(copy.deepcopy(case[0]))
    for taken in range(1, _BATCHES):
        first, second = copy.deepcopy(case[0]), copy.deepcopy(case[0])
        for _ in islice(chain.from_iterable(repeat(first, taken + 1)), taken):
            pass
        second.load_state_dict(first.state_dict())  # type: ignore[attr-defined]
        if _stream(second)[: _BATCHES - taken] != expected[taken:]:
            return f"from the state after {taken} batches it does not go on with the very next one"
    return None


#: What holds for a sampler, by name.
SAMPLER_RULES: dict[str, Callable[[tuple[Sampler, int]], str | None]] = {
    "length": _batches,
    "rows": _rows,
    "anchors": _head,
    "distinct": _distinct,
    "pure": _pure,
    "epochs": _epochs,
    "iteration": _iteration,
    "resume": _resume,
}
