"""Conformance checks: hold a label space, a loss or a sampler of your own to the rules that contml's own keep.

Each check walks over its rules and raises an `AssertionError` of one line that names the first one broken; what the
subject itself raises on the way goes through. They look at a few items, in about a second: call them in a test.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from itertools import chain, islice, repeat

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.contracts import Loss, Sampler
from contml.distances import class_distance
from contml.labels import ClassLabels, LabelSpace, VectorLabels

#: Items of a label space that are looked at.
_ITEMS = 64
#: Batches of a sampler that are looked at.
_BATCHES = 6
#: Items in a loss's batch.
_BATCH = 12


def check_label_space(space: LabelSpace, *, symmetric: bool = True) -> None:
    """Hold a label space to the contract `LabelSpace`: distances, blocks, batches and subsets, classes.

    Args:
        space: at least 3 items; of more than 64, a random 64 are looked at.
        symmetric: False for a relation that says it is not symmetric, as `NearestLabels` does.

    Raises:
        AssertionError: a rule is broken, told in one line.
    """
    _hold(space, _broken_by_space(space), () if symmetric else ("symmetric",))


def check_loss(loss: Loss, space: LabelSpace | None = None, *, dim: int = 6, skip: Collection[str] = ()) -> None:
    """Hold a loss to the contract `Loss`: values, dtypes, gradients at the edges, anchors, every form of labels.

    Each call is made on a copy of the loss, which stays as it is.

    Args:
        loss: for proxies, one that knows the classes of `space` and the embedding dimension `dim`.
        space: labels of the batch; default 12 vectors, or 12 items of 4 classes where the loss needs 0 / 1 or classes.
        dim: the embedding dimension.
        skip: names of rules that do not hold by design: "empty" for a loss whose anchors are no items of
            the batch (proxies), "gradcheck" for a surrogate gradient, "permutation" where the order of items counts.

    Raises:
        AssertionError: a rule is broken, told in one line.
    """
    if space is None:
        random = torch.Generator().manual_seed(0)
        vectors = VectorLabels(torch.randn(_BATCH, 2, generator=random, dtype=torch.float64))
        space = vectors if loss.requires in ("any", "graded") else ClassLabels([0, 1, 2, 0, 3, 1, 0, 2, 3, 1, 0, 1])
    x = torch.randn(len(space), dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _hold(loss, _broken_by_loss(loss, space, x), skip)


def check_sampler(sampler: Sampler, items: int, *, duplicates: bool = False) -> None:
    """Hold a sampler to the contract `Sampler`: pure batches of existing rows, iteration and resuming.

    Args:
        sampler: as constructed, not iterated yet; it stays as it is.
        items: how many items the data set has.
        duplicates: a batch may hold an item twice.

    Raises:
        AssertionError: a rule is broken, told in one line.
    """
    _hold(sampler, _broken_by_sampler(sampler, items), ("distinct",) if duplicates else ())


def _hold(subject: object, broken: Iterator[tuple[str, str]], skip: Collection[str]) -> None:
    for rule, what in broken:
        if rule not in skip:
            raise AssertionError(f"{type(subject).__name__} breaks the rule {rule!r}: {what}")


def _close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> bool:
    a, b = a.detach().double(), b.detach().double()
    scale = float(b.abs().max()) if b.numel() else 0.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def _broken_by_space(space: LabelSpace) -> Iterator[tuple[str, str]]:
    n, kinds = len(space), ("graded", "binary", "classes")
    if n < 3:
        yield "length", f"it has {n} items; the check needs at least 3"
    if not isinstance(space.unit, str) or not space.unit.strip():
        yield "unit", f"unit is {space.unit!r}; say in words what a label distance of 1 is"
    if space.kind not in kinds:
        yield "kind", f"kind is {space.kind!r}; it must be one of {', '.join(kinds)}"
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_ITEMS].to(space.device)
    whole = space.pairwise(rows, rows)
    if whole.dtype != torch.float32 or whole.shape != (len(rows), len(rows)) or whole.device != space.device:
        yield "float32", f"pairwise of {len(rows)} rows is {whole.dtype} {list(whole.shape)} on {whole.device}"
    if len(bad := whole[~(whole.isfinite() & (whole >= 0))]):
        yield "numbers", f"a label distance is {bad[0].item()}; label distances are finite numbers >= 0"
    if len(at := whole.diagonal().nonzero()):
        yield "diagonal", f"the label distance of row {int(rows[at[0, 0]])} to itself is not 0"
    if not _close(whole, whole.T):
        yield "symmetric", "D(i, j) and D(j, i) differ; symmetric=False if that is meant"
    if space.kind != "graded" and len(bad := whole[(whole != 0) & (whole != 1)]):
        yield "0 or 1", f"a label distance is {bad[0].item()}, but kind is {space.kind!r}: only 0 and 1"

    some = torch.tensor([2, 0], device=space.device)
    if not _close(space.pairwise(rows[:2], rows[1:]), whole[:2, 1:]):
        yield "blocks", "pairwise(rows, cols) differs from the same block of a larger one"
    if not _close(space.pairwise([2, 0], rows), space.pairwise(some, rows)):
        yield "blocks", "rows as a list and as a tensor give different label distances"
    if not _close(space.pairwise(slice(1, 3), rows), space.pairwise(range(1, 3), rows)):
        yield "blocks", "rows as a slice and as a range give different label distances"
    if n <= _ITEMS and not _close(space.pairwise()[rows][:, rows], whole):
        yield "blocks", "pairwise() differs from pairwise(rows, cols) of all rows"
    if space.pairwise([], rows).shape != (0, len(rows)):
        yield "blocks", "pairwise([], cols) is not of shape [0, cols]"

    part, own = space[rows[1:]], whole[1:, 1:]
    if not isinstance(part, type(space)) or len(part) != len(rows) - 1 or part.kind != space.kind:
        name = type(space).__name__
        yield "index", f"labels[rows] of {len(rows) - 1} rows is no {name} of as many items, of kind {space.kind!r}"
    if not _close(part.pairwise(), own) or not _close(part[[1, 0]].pairwise(), own[[1, 0]][:, [1, 0]]):
        yield "index", "label distances of labels[rows], or of an index of it, differ from pairwise(rows, rows)"
    if part.rows is None or space.rows is None or not torch.equal(part.rows, space.rows[rows[1:]]):
        yield "rows", "labels[rows].rows are not the row numbers in the root"
    elif not torch.equal(part[[1, 0]].rows, part.rows[:2].flip(0)):  # type: ignore[arg-type]
        yield "rows", "labels[rows][some].rows are not the row numbers in the root"
    if len(part.root) != len(space.root) or not _close(part.root[part.rows].pairwise(), own):
        yield "rows", "labels[rows].root[labels[rows].rows] are other labels than labels[rows]"
    if part.as_root().rows is None or part.as_root().rows.tolist() != list(range(len(part))):  # type: ignore[union-attr]
        yield "rows", "as_root().rows do not start anew"

    twice = torch.cat((rows, rows[:2]))  # a batch may hold an item twice
    batch, block = space[twice], space.pairwise(twice, twice)
    if not _close(batch.pairwise(), block):
        yield "batch", "labels[rows].pairwise() differs from pairwise(rows, rows)"
    if not all(_close(batch.pairwise(anchors), block[anchors]) for anchors in (some, slice(1, 3))):
        yield "batch", "labels[rows].pairwise(anchors) differs from these rows of labels[rows].pairwise()"

    moved = space.to("cpu")
    if moved.device != torch.device("cpu") or not _close(moved.pairwise(rows.cpu(), rows.cpu()), whole.cpu()):
        yield "device", 'to("cpu") is not on the CPU, or has other label distances'

    classes = space.class_ids
    if space.kind != "classes":
        if classes is not None or batch.class_ids is not None:
            yield "classes", f"it has class_ids, but kind is {space.kind!r}"
    elif not isinstance(classes, Tensor) or classes.shape != (n,) or classes.is_floating_point():
        yield "classes", "kind is 'classes', but class_ids is no tensor of one whole number for each item"
    elif batch.class_ids is None or not torch.equal(batch.class_ids, classes[twice]):
        yield "classes", "labels[rows].class_ids differs from class_ids[rows]"
    elif not torch.equal(whole, class_distance(classes[rows], classes[rows])):
        yield "classes", "label distances are not 0 within a class and 1 between classes"


def _broken_by_loss(loss: Loss, space: LabelSpace, x: Tensor) -> Iterator[tuple[str, str]]:
    items, block, classes = len(x), space.pairwise(), space.class_ids

    def run(x: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Value and gradient `[B, d]` of a call on a copy of the loss."""
        leaf = x.clone().requires_grad_()
        value = copy.deepcopy(loss)(leaf, labels, anchors=anchors)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    def same(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> bool:
        return _close(a[0], b[0]) and _close(a[1], b[1])

    first = copy.deepcopy(loss)(x.clone().requires_grad_(), space)
    if not isinstance(first, Tensor) or first.ndim != 0 or not first.requires_grad:
        yield "scalar", "it does not return a scalar tensor with a graph to the embeddings"
    value, gradient = run(x, space)

    half = x.bfloat16()
    exact = run(half.double(), space)[0]
    for given, wanted in ((x, torch.float64), (x.float(), torch.float32), (half, torch.float32)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=given is half):
            ours, slope = run(given, space)
        if ours.dtype != wanted or slope.dtype != given.dtype:
            yield "dtype", f"embeddings in {given.dtype} give a value in {ours.dtype}; it must be {wanted}"
    if not _close(ours, exact, 1e-3):
        yield "dtype", f"of bfloat16 embeddings under autocast it is {ours.item():g}, exactly {exact.item():g}"

    apart = [i for i in range(items) if bool((block[i, :i] > 0).all())]  # no two of them at label distance 0
    copied, identical, zero = x.clone(), 30 * x[:1].expand_as(x), x.clone()
    copied[1:3], zero[0] = x[0], 0
    for what, given, rows in (
        ("a generic batch", x, range(items)),
        ("copies of an embedding", copied, range(items)),
        ("identical embeddings", identical, range(items)),
        ("an embedding of zeros", zero, range(items)),
        ("embeddings of norm 1e-3", 1e-3 * x, range(items)),
        ("embeddings of norm 100", 100 * x, range(items)),
        ("all label distances 0", x, [0] * items),
        ("no label distance 0", x[: len(apart)], apart),
    ):
        if len(given) >= 2 and not all(bool(t.isfinite().all()) for t in run(given.float(), space[list(rows)])):
            yield "finite", f"{what}: the value or the gradient is not finite"

    some, everyone = torch.tensor([2, 0]), torch.arange(items).flip(0)
    if not same(run(x, space, everyone), (value, gradient)):
        yield "anchors", "anchors=all positions, in any order, differs from the default"
    if classes is not None and not same(run(x, classes), (value, gradient)):
        yield "labels", "class ids [B] and the label space of the same labels differ"
    if loss.requires != "classes":
        if not same(run(x, block), (value, gradient)):
            yield "labels", "label distances [B, B] and the label space of the same labels differ"
        if not same(run(x, block[some], some), run(x, space, some)):
            yield "labels", "of some anchors, label distances [A, B] and the label space of the same labels differ"
    if not same(run(x.flip(0), space[everyone]), (value, gradient.flip(0))):
        yield "permutation", "permuting the batch changes the value, or does not just permute the gradient"
    nothing, flat = run(x, space, some[:0])
    if nothing.item() != 0 or bool(flat.any()):
        yield "empty", f"without anchors there is nothing to compare, but the value is {nothing.item():g}, not 0"

    graded, binary = VectorLabels(torch.arange(items)), torch.ones(items, items).fill_diagonal_(0)
    wrong: list[tuple[str, LabelSpace | Tensor]] = []
    if loss.requires in ("binary", "classes"):
        wrong += [("graded labels", graded), ("label distances of 0.5", 0.5 * binary)]
    if loss.requires == "classes":
        wrong += [("0 / 1 without class ids", binary)]
    if loss.requires == "graded":
        wrong += [("classes", ClassLabels(list(range(items))))]
    for what, labels in wrong:
        try:
            run(x, labels)
        except InputError:
            continue
        yield "kind", f"it requires {loss.requires!r}, but takes {what}; refuse it with an InputError"

    exactly = copy.deepcopy(loss)
    parameters = list(exactly.double().parameters()) if isinstance(exactly, nn.Module) else []
    inputs = (x.clone().requires_grad_(), *(p for p in parameters if p.requires_grad))
    if not torch.autograd.gradcheck(lambda x, *_: exactly(x, space), inputs, raise_exception=False):
        yield "gradcheck", "the gradient differs from finite differences in float64"


def _broken_by_sampler(sampler: Sampler, items: int) -> Iterator[tuple[str, str]]:
    def stream(sampler: Sampler, batches: int = _BATCHES) -> list[list[int]]:
        """The next batches, over the ends of epochs."""
        return list(islice(chain.from_iterable(repeat(sampler, _BATCHES + 1)), batches))

    steps = len(sampler)
    if steps < 1:
        yield "length", f"an epoch has {steps} batches; it needs at least 1"
    found = {(epoch, step): sampler.batch(epoch, step) for epoch in (0, 1) for step in range(min(steps, _BATCHES))}
    for (epoch, step), rows in found.items():
        batch = f"batch({epoch}, {step})"
        if not isinstance(rows, list) or len(rows) < 2 or not all(type(row) is int for row in rows):
            yield "rows", f"{batch} is no list of at least 2 whole numbers"
        if not 0 <= min(rows) <= max(rows) < items:
            yield "rows", f"{batch} has rows {min(rows)} to {max(rows)}, but rows are 0 to {items - 1}"
        if len(set(rows)) < len(rows):
            yield "distinct", f"{batch} holds a row twice; duplicates=True if that is meant"
        if sampler.anchors is not None and not 1 <= sampler.anchors <= len(rows):
            yield "anchors", f"anchors is {sampler.anchors}, but {batch} has {len(rows)} rows; it must be 1 to that"
    for (epoch, step), rows in reversed(found.items()):
        if sampler.batch(epoch, step) != rows:
            yield "pure", f"batch({epoch}, {step}) is another the second time; draw from (seed, epoch, step) alone"
    if all(rows == found[1, step] for (epoch, step), rows in found.items() if epoch == 0):
        yield "epochs", "epochs 0 and 1 have the same batches"
    expected = [sampler.batch(*divmod(number, steps)) for number in range(_BATCHES)]
    if stream(copy.deepcopy(sampler)) != expected:
        yield "iteration", "iterating does not give batch(0, 0), batch(0, 1), ..., and then epoch 1"
    for taken in range(1, _BATCHES) if hasattr(sampler, "state_dict") else ():
        left, resumed = copy.deepcopy(sampler), copy.deepcopy(sampler)
        stream(left, taken)
        resumed.load_state_dict(left.state_dict())  # type: ignore[attr-defined]
        if stream(resumed, _BATCHES - taken) != expected[taken:]:
            yield "resume", f"from the state after {taken} batches it does not go on with the very next one"
