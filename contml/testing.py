"""Conformance checks for label spaces, losses and samplers, to be called in tests.

Each check raises an `AssertionError` of one line that names the first broken rule. Exceptions of the checked object are
not caught. The checks use a few items and take about a second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain, islice, repeat
from typing import get_args

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.contracts import LabelKind, Part, Sampler
from contml.distances import class_distance
from contml.labels import ClassLabels, LabelSpace, NumberLabels, VectorLabels
from contml.labels.base import check_label_space as require_label_space
from contml.losses.inputs import Loss, check_loss as require_loss

__all__ = ["check_label_space", "check_loss", "check_sampler"]

#: Items of a label space that are checked.
_ITEMS = 64
#: Batches of a sampler that are checked.
_BATCHES = 6
#: Items in the batch of a loss.
_BATCH = 12


def check_label_space(space: LabelSpace, *, symmetric: bool = True) -> None:
    """Check that a label space follows the contract `LabelSpace`: distances, blocks, batches, subsets, classes, words.

    Args:
        space: at least 3 items. If there are more than 64, a random 64 are checked.
        symmetric: False for label distances that are not symmetric, such as in `NearestLabels`.

    Raises:
        AssertionError: a rule is broken.
        InputError: the object is not a label space.
    """
    require_label_space("space", space)
    _check(space, _space_failures(space), () if symmetric else ("symmetric",))


def check_loss(loss: Loss, space: LabelSpace | None = None, *, dim: int = 6, skip: Collection[str] = ()) -> None:
    """Check that a loss follows the contract `Loss`: values, dtypes, gradients, edge cases, anchors, forms of labels.

    Each call uses a copy of the loss, so the loss does not change.

    Args:
        loss: a loss. With proxies, it must be constructed for the classes of `space` and the embedding dimension `dim`.
        space: labels of the batch; default 12 vectors, or 12 items of 4 classes if the loss needs 0 / 1 or classes.
        dim: the embedding dimension.
        skip: names of rules that do not apply by design: "empty" for a loss whose anchors are not items of the batch
            (proxies), "gradcheck" for a surrogate gradient, "permutation" if the loss depends on the order of items.

    Raises:
        AssertionError: a rule is broken.
        InputError: the object is not a loss, or `space` is not a label space.
    """
    require_loss(loss)
    if space is not None:
        require_label_space("space", space)
    else:
        random = torch.Generator().manual_seed(0)
        vectors = VectorLabels(torch.randn(_BATCH, 2, generator=random, dtype=torch.float64))
        space = vectors if loss.requires in ("any", "graded") else ClassLabels([0, 1, 2, 0, 3, 1, 0, 2, 3, 1, 0, 1])
    x = torch.randn(len(space), dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _check(loss, _loss_failures(loss, space, x), skip)


def check_sampler(sampler: Sampler, items: int, *, duplicates: bool = False) -> None:
    """Check that a sampler follows the contract `Sampler`: pure batches of existing rows, iteration and resuming.

    Args:
        sampler: a new sampler, not iterated yet; it does not change.
        items: the number of items in the data set.
        duplicates: True if an item may appear twice in a batch.

    Raises:
        AssertionError: a rule is broken.
        InputError: the object is not a sampler.
    """
    if isinstance(sampler, type) or not isinstance(sampler, Sampler):
        got = f"the class {sampler.__name__}" if isinstance(sampler, type) else f"a {type(sampler).__name__}"
        raise InputError("sampler", got, "must be a sampler", "see contml.contracts.Sampler")
    _check(sampler, _sampler_failures(sampler, items), ("distinct",) if duplicates else ())


def _check(subject: object, failures: Iterator[tuple[str, str]], skip: Collection[str]) -> None:
    for rule, details in failures:
        if rule not in skip:
            raise AssertionError(f"{type(subject).__name__} breaks the rule {rule!r}: {details}")


def _close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> bool:
    a, b = a.detach().double(), b.detach().double()
    scale = float(b.abs().max()) if b.numel() else 0.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def _space_failures(space: LabelSpace) -> Iterator[tuple[str, str]]:
    n, kinds = len(space), get_args(LabelKind)
    if n < 3:
        yield "length", f"{n} items; must be at least 3"
    if not isinstance(space.unit, str) or not space.unit.strip():
        yield "unit", f"{space.unit!r}; must say what a label distance of 1 means"
    if space.kind not in kinds:
        yield "kind", f"{space.kind!r}; must be one of {', '.join(kinds)}"
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_ITEMS].to(space.device)
    matrix = space.pairwise(rows, rows)
    if matrix.shape != (len(rows), len(rows)):
        yield "shape", f"pairwise of {len(rows)} rows is {list(matrix.shape)}; must be {[len(rows)] * 2}"
    if matrix.dtype != torch.float32:
        yield "float32", f"pairwise is {matrix.dtype}; must be torch.float32"
    if matrix.device != space.device:
        yield "device", f"pairwise is on {matrix.device}; must be on {space.device}, as the labels"
    if len(invalid := matrix[~(matrix.isfinite() & (matrix >= 0))]):
        yield "numbers", f"a label distance is {invalid[0].item()}; must be finite and >= 0"
    if len(invalid := matrix.diagonal().nonzero()):
        yield "diagonal", f"the label distance of row {int(rows[invalid[0, 0]])} to itself is not 0"
    if not _close(matrix, matrix.T):
        yield "symmetric", "D(i, j) and D(j, i) differ; use symmetric=False if that is intended"
    if space.kind != "graded" and len(invalid := matrix[(matrix != 0) & (matrix != 1)]):
        yield "0 or 1", f"a label distance is {invalid[0].item()}; must be 0 or 1 for kind {space.kind!r}"

    two_rows = torch.tensor([2, 0], device=space.device)
    if not _close(space.pairwise(rows[:2], rows[1:]), matrix[:2, 1:]):
        yield "blocks", "pairwise(rows, cols) differs from the same part of a larger block"
    if not _close(space.pairwise([2, 0], rows), space.pairwise(two_rows, rows)):
        yield "blocks", "a list and a tensor of the same rows give different label distances"
    if not _close(space.pairwise(slice(1, 3), rows), space.pairwise(range(1, 3), rows)):
        yield "blocks", "a slice and a range of the same rows give different label distances"
    if n <= _ITEMS and not _close(space.pairwise()[rows][:, rows], matrix):
        yield "blocks", "pairwise() differs from pairwise(rows, cols) with all rows"
    if space.pairwise([], rows).shape != (0, len(rows)):
        yield "blocks", "pairwise([], cols) does not have the shape [0, cols]"

    subset, submatrix = space[rows[1:]], matrix[1:, 1:]
    if not isinstance(subset, type(space)) or len(subset) != len(rows) - 1 or subset.kind != space.kind:
        expected = f"a {type(space).__name__} of {len(rows) - 1} items and kind {space.kind!r}"
        yield "index", f"labels[rows] of {len(rows) - 1} rows is not {expected}"
    if not _close(subset.pairwise(), submatrix) or not _close(subset[[1, 0]].pairwise(), submatrix[[1, 0]][:, [1, 0]]):
        yield "index", "label distances of labels[rows], or of labels[rows][rows], differ from pairwise(rows, rows)"
    if subset.rows is None or space.rows is None or not torch.equal(subset.rows, space.rows[rows[1:]]):
        yield "rows", "labels[rows].rows are not the row numbers in the root"
    elif not torch.equal(subset[[1, 0]].rows, subset.rows[:2].flip(0)):  # type: ignore[arg-type]
        yield "rows", "labels[rows][rows].rows are not the row numbers in the root"
    if len(subset.root) != len(space.root) or not _close(subset.root[subset.rows].pairwise(), submatrix):
        yield "rows", "labels[rows].root[labels[rows].rows] differs from labels[rows]"
    if (new_rows := subset.as_root().rows) is None or new_rows.tolist() != list(range(len(subset))):
        yield "rows", "as_root().rows do not start at 0"

    repeated_rows = torch.cat((rows, rows[:2]))  # an item may appear twice in a batch
    batch, block = space[repeated_rows], space.pairwise(repeated_rows, repeated_rows)
    if not _close(batch.pairwise(), block):
        yield "batch", "labels[rows].pairwise() differs from pairwise(rows, rows)"
    if not all(_close(batch.pairwise(anchors), block[anchors]) for anchors in (two_rows, slice(1, 3))):
        yield "batch", "labels[rows].pairwise(anchors) differs from labels[rows].pairwise()[anchors]"

    moved = space.to("cpu")
    if moved.device != torch.device("cpu") or not _close(moved.pairwise(rows.cpu(), rows.cpu()), matrix.cpu()):
        yield "device", 'to("cpu") is not on the CPU, or changes label distances'

    classes = space.class_ids
    if space.kind != "classes":
        if classes is not None or batch.class_ids is not None:
            yield "classes", f"class_ids is set, but kind is {space.kind!r}"
    elif not isinstance(classes, Tensor) or classes.shape != (n,) or classes.is_floating_point():
        yield "classes", "class_ids is not a tensor with one integer per item, but kind is 'classes'"
    elif batch.class_ids is None or not torch.equal(batch.class_ids, classes[repeated_rows]):
        yield "classes", "labels[rows].class_ids differs from class_ids[rows]"
    elif not torch.equal(matrix, class_distance(classes[rows], classes[rows])):
        yield "classes", "label distances are not 0 within a class and 1 between classes"

    yield from _word_failures(space, two_rows)


def _word_failures(space: LabelSpace, rows: Tensor) -> Iterator[tuple[str, str]]:
    part = space[rows].as_root()
    for place, row in enumerate(rows.tolist()):
        if not isinstance(text := space.text(row), str) or part.text(place) != text:
            got = f"{text!r}, and {part.text(place)!r} in a subset"
            yield "text", f"text of row {row} is {got}; must be the same string"
    if not all(isinstance(each, Part) and all(isinstance(text, str) for text in each) for each in space.parts(0, 1)):
        yield "parts", f"parts(0, 1) is {space.parts(0, 1)!r:.60}; must be a list of Part of strings"
    if colours := space.colours():
        values, count = colours.values, len(colours.classes)
        if values.shape != (len(space),) or (count and not bool(((values >= 0) & (values < count)).all())):
            shape = f"[{len(space)}], below the number of classes if any"
            yield "colours", f"values are {list(values.shape)}; must be {shape}"


def _loss_failures(loss: Loss, space: LabelSpace, x: Tensor) -> Iterator[tuple[str, str]]:
    items, block, classes = len(x), space.pairwise(), space.class_ids

    def run(x: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return value and gradient `[B, d]` of a call on a copy of the loss."""
        leaf = x.clone().requires_grad_()
        value = copy.deepcopy(loss)(leaf, labels, anchors=anchors)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    def same(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> bool:
        return _close(a[0], b[0]) and _close(a[1], b[1])

    output = copy.deepcopy(loss)(x.clone().requires_grad_(), space)
    if not isinstance(output, Tensor) or output.ndim != 0 or not output.requires_grad:
        yield "scalar", "the value is not a scalar tensor with a gradient for the embeddings"
    value, gradient = run(x, space)

    half = x.bfloat16()
    exact = run(half.double(), space)[0]
    for batch, dtype in ((x, torch.float64), (x.float(), torch.float32), (half, torch.float32)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=batch is half):
            rounded, slope = run(batch, space)
        if rounded.dtype != dtype or slope.dtype != batch.dtype:
            yield "dtype", f"the value is {rounded.dtype} for embeddings in {batch.dtype}; must be {dtype}"
    if not _close(rounded, exact, 1e-3):
        got = f"{rounded.item():g}, in float64 {exact.item():g}"
        yield "dtype", f"with bfloat16 embeddings under autocast the value is {got}"

    distinct_rows = [i for i in range(items) if bool((block[i, :i] > 0).all())]  # no two of them at label distance 0
    copied, identical, zero = x.clone(), 30 * x[:1].expand_as(x), x.clone()
    copied[1:3], zero[0] = x[0], 0
    for case, batch, rows in (
        ("a generic batch", x, range(items)),
        ("copies of an embedding", copied, range(items)),
        ("identical embeddings", identical, range(items)),
        ("an embedding of zeros", zero, range(items)),
        ("embeddings of norm 1e-3", 1e-3 * x, range(items)),
        ("embeddings of norm 100", 100 * x, range(items)),
        ("all label distances 0", x, [0] * items),
        ("no label distance 0", x[: len(distinct_rows)], distinct_rows),
    ):
        if len(batch) >= 2 and not all(bool(t.isfinite().all()) for t in run(batch.float(), space[list(rows)])):
            yield "finite", f"the value or the gradient is not finite for {case}"

    some_anchors, reverse = torch.tensor([2, 0]), torch.arange(items).flip(0)
    if not same(run(x, space, reverse), (value, gradient)):
        yield "anchors", "all positions as anchors, in another order, give another result than the default"
    if loss.requires in ("any", "graded"):
        try:
            run(x, torch.arange(items))
            yield "integers", "integers [B] are accepted, but may be numbers or classes; must raise an InputError"
        except InputError:
            pass
    elif classes is not None and not same(run(x, classes), (value, gradient)):
        yield "labels", "class ids [B] and the label space of the same labels give different results"
    if loss.requires != "classes":
        if not same(run(x, block), (value, gradient)):
            yield "labels", "label distances [B, B] and the label space of the same labels give different results"
        if not same(run(x, block[some_anchors], some_anchors), run(x, space, some_anchors)):
            yield "labels", "label distances [A, B] of some anchors and the label space give different results"
    numbers = torch.arange(items, dtype=torch.float64).sqrt()
    graded = NumberLabels(numbers)
    if loss.requires in ("any", "graded") and not same(run(x, numbers), run(x, graded)):
        yield "labels", "numbers [B] and a NumberLabels of the same numbers give different results"
    if not same(run(x.flip(0), space[reverse]), (value, gradient.flip(0))):
        yield "permutation", "permuting the batch changes the value, or does more than permute the gradient"
    empty_value, empty_gradient = run(x, space, some_anchors[:0])
    if empty_value.item() != 0 or bool(empty_gradient.any()):
        yield "empty", f"without anchors the value is {empty_value.item():g}, or the gradient not 0; both must be 0"

    yield from _kind_failures(loss, partial(run, x), graded, numbers)
    double_loss = copy.deepcopy(loss)
    parameters = list(double_loss.double().parameters()) if isinstance(double_loss, nn.Module) else []
    inputs = (x.clone().requires_grad_(), *(p for p in parameters if p.requires_grad))
    if not torch.autograd.gradcheck(lambda x, *_: double_loss(x, space), inputs, raise_exception=False):
        yield "gradcheck", "the gradient differs from finite differences in float64"


def _kind_failures(
    loss: Loss, run: Callable[[LabelSpace | Tensor], object], graded: LabelSpace, numbers: Tensor
) -> Iterator[tuple[str, str]]:
    binary = torch.ones(len(numbers), len(numbers)).fill_diagonal_(0)
    wrong: dict[
        str, tuple[LabelSpace | Tensor, tuple[str, ...]]
    ] = {  # the labels, and the losses that must refuse them
        "graded labels": (graded, ("binary", "classes")),
        "label distances of 0.5": (0.5 * binary, ("binary", "classes")),
        "numbers [B]": (numbers, ("binary", "classes")),
        "0 / 1 without class ids": (binary, ("classes",)),
        "classes": (ClassLabels(list(range(len(numbers)))), ("graded",)),
    }
    for description, labels in ((name, labels) for name, (labels, of) in wrong.items() if loss.requires in of):
        try:
            run(labels)
        except InputError:
            continue
        yield "kind", f"takes {description}, but requires {loss.requires!r}; must raise an InputError"


def _sampler_failures(sampler: Sampler, items: int) -> Iterator[tuple[str, str]]:
    def stream(sampler: Sampler, batches: int = _BATCHES) -> list[list[int]]:
        """Return the next batches, across the ends of epochs."""
        return list(islice(chain.from_iterable(repeat(sampler, _BATCHES + 1)), batches))

    steps = len(sampler)
    if steps < 1:
        yield "length", f"{steps} batches in an epoch; must be at least 1"
    batches = {(epoch, step): sampler.batch(epoch, step) for epoch in (0, 1) for step in range(min(steps, _BATCHES))}
    for (epoch, step), rows in batches.items():
        batch = f"batch({epoch}, {step})"
        if not isinstance(rows, list) or len(rows) < 2 or not all(type(row) is int for row in rows):
            yield "rows", f"{batch} is not a list of at least 2 integers"
        if not 0 <= min(rows) <= max(rows) < items:
            yield "rows", f"{batch} has rows {min(rows)} to {max(rows)}; must be 0 to {items - 1}"
        if len(set(rows)) < len(rows):
            yield "distinct", f"a row appears twice in {batch}; use duplicates=True if that is intended"
        if sampler.anchors is not None and not 1 <= sampler.anchors <= len(rows):
            yield "anchors", f"anchors is {sampler.anchors}; must be 1 to {len(rows)}, the rows of {batch}"
    for (epoch, step), rows in reversed(batches.items()):
        if sampler.batch(epoch, step) != rows:
            yield "pure", f"a second batch({epoch}, {step}) differs; it must depend on (seed, epoch, step) only"
    if all(rows == batches[1, step] for (epoch, step), rows in batches.items() if epoch == 0):
        yield "epochs", "epochs 0 and 1 have the same batches"
    expected = [sampler.batch(*divmod(number, steps)) for number in range(_BATCHES)]
    if stream(copy.deepcopy(sampler)) != expected:
        yield "iteration", "iterating does not give batch(0, 0), batch(0, 1), ..., and then epoch 1"
    for taken in range(1, _BATCHES) if hasattr(sampler, "state_dict") else ():
        stopped, resumed = copy.deepcopy(sampler), copy.deepcopy(sampler)
        stream(stopped, taken)
        resumed.load_state_dict(stopped.state_dict())  # type: ignore[attr-defined]
        if stream(resumed, _BATCHES - taken) != expected[taken:]:
            yield "resume", f"from the state after {taken} batches it does not continue with the next batch"
