"""Batches to test with: hypothesis strategies, and fixed lists of awkward cases.

Everything is float64; label distances are numbers that float32 holds exactly, so that a cast on the way changes neither
values nor ties. `smooth=False` marks a case with identical embeddings, or an embedding of norm 0: a square root has a
kink there, values are well defined but gradients are not unique. Numbers come from a drawn seed, the awkward features
from drawn flags: hypothesis shrinks to few features in a small batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

NORMS = (1.0, 30.0, 1e-3)


# ---------------------------------------------------------------------------------------------------------------------
# strategies

seeds = st.integers(0, 2**16)


@st.composite
def embeddings_of(draw: st.DrawFn, size: int, smooth: bool = False) -> Tensor:
    """Embeddings `[size, d]`, d 2 to 6, norms near 1, 30, 1e-3 or mixed, perhaps near copies or (not smooth) copies."""
    generator = _generator(draw(seeds))
    x = _embeddings(generator, size, draw(st.integers(2, 6)))
    norm = draw(st.sampled_from([*NORMS, "mixed"]))
    if norm == "mixed":
        x = x * torch.tensor(NORMS, dtype=torch.float64)[_randint(generator, 3, size)][:, None]
    else:
        x = x * norm
    kinds = ["apart", "near copies"] if smooth else ["apart", "near copies", "copies", "all the same"]
    kind = draw(st.sampled_from(kinds))
    if kind == "near copies":
        x[-1] = x[0] + 1e-2 * x[0].norm() * _embeddings(generator, 1, x.shape[1])[0]
    elif kind == "copies":
        x = x[_some_copied(generator, size)]
    elif kind == "all the same":
        x = x[:1].repeat(size, 1)
    return x


@st.composite
def label_vectors(draw: st.DrawFn, size: int | None = None, max_size: int = 12) -> Tensor:
    """Labels as vectors `[N, k]`, N 2 to max_size, k 1 to 4: sometimes on a coarse grid (ties), some or all copied."""
    n = draw(st.integers(2, max_size)) if size is None else size
    generator = _generator(draw(seeds))
    labels = torch.randn(n, draw(st.integers(1, 4)), generator=generator, dtype=torch.float64)
    if draw(st.booleans()):  # ties
        labels = labels.round()
    if draw(st.booleans()):  # duplicates
        labels = labels[_some_copied(generator, n)]
    if draw(st.integers(0, 9)) == 9:
        labels = labels[:1].repeat(n, 1)
    return labels * draw(st.sampled_from([1.0, 100.0, 1e-2]))


@st.composite
def label_matrices(draw: st.DrawFn, size: int) -> Tensor:
    """Label distances `[size, size]`, symmetric, >= 0, diagonal 0.

    Of vectors, of any numbers (no metric), of few levels (ties and zeros), of classes, all equal, or all zero.
    """
    kind = draw(st.sampled_from(["vectors", "any", "levels", "binary", "equal", "zero"]))
    generator = _generator(draw(seeds))
    if kind == "vectors":
        return label_distances_of(draw(label_vectors(size=size)))
    if kind == "any":
        return _symmetric(torch.rand(size, size, generator=generator, dtype=torch.float64))
    if kind == "levels":
        return _symmetric(torch.randint(0, 4, (size, size), generator=generator) * 0.25)
    if kind == "binary":
        return class_distances(_randint(generator, 3, size))
    return _symmetric(torch.full((size, size), 0.5 if kind == "equal" else 0.0))


@st.composite
def batches(draw: st.DrawFn, min_size: int = 2, max_size: int = 12, smooth: bool = False) -> tuple[Tensor, Tensor]:
    """(embeddings `[B, d]`, label distances `[B, B]`, symmetric, diagonal 0); smooth: no identical embeddings."""
    size = draw(st.integers(min_size, max_size))
    return draw(embeddings_of(size, smooth=smooth)), draw(label_matrices(size))


@st.composite
def class_ids(draw: st.DrawFn, size: int) -> Tensor:
    """Class ids `[size]`, shuffled, perhaps with gaps: one class only, all lone, pairs, unequal sizes, or any."""
    kind = draw(st.sampled_from(["any", "unequal", "pairs", "one", "lone"]))
    generator = _generator(draw(seeds))
    if kind == "any":
        ids = _randint(generator, 4, size)
    elif kind == "unequal":  # sizes 1, 2, 3, ...
        ids = torch.tensor([c for c in range(size) for _ in range(c + 1)][:size])
    elif kind == "pairs":
        ids = torch.arange(size) // 2
    elif kind == "one":
        ids = torch.zeros(size, dtype=torch.int64)
    else:
        ids = torch.arange(size)
    if draw(st.booleans()):
        ids = 2 * ids + 1  # the even classes have no item
    return ids[torch.randperm(size, generator=generator)]


@st.composite
def class_batches(
    draw: st.DrawFn, min_size: int = 2, max_size: int = 12, smooth: bool = False
) -> tuple[Tensor, Tensor]:
    """(embeddings `[B, d]`, class ids `[B]`); smooth: no identical embeddings."""
    size = draw(st.integers(min_size, max_size))
    return draw(embeddings_of(size, smooth=smooth)), draw(class_ids(size))


@st.composite
def retrievals(draw: st.DrawFn, max_queries: int = 5, max_gallery: int = 12) -> tuple[Tensor, Tensor, int]:
    """(embedding distances `[Q, G]`, label distances `[Q, G]`, k): ties on either side, k from 1 to G."""
    queries, gallery = draw(st.integers(1, max_queries)), draw(st.integers(1, max_gallery))
    generator = _generator(draw(seeds))
    vectors = []
    for tied in (draw(st.booleans()), draw(st.booleans())):
        x = torch.rand(queries, gallery, generator=generator, dtype=torch.float64)
        vectors.append(_float32_exact((x * 3).round() if tied else x))
    return vectors[0], vectors[1], draw(st.integers(1, gallery))


# ---------------------------------------------------------------------------------------------------------------------
# label distances


def label_distances_of(labels: Tensor) -> Tensor:
    """Euclidean distances `[N, N]` of label vectors `[N, k]` by subtraction: copies are at exactly 0."""
    return _float32_exact(((labels.double()[:, None] - labels.double()[None]) ** 2).sum(-1).sqrt())


def class_distances(classes: Tensor) -> Tensor:
    """0 where the class is the same, else 1: `[N, N]`."""
    return (classes[:, None] != classes[None]).double()


# ---------------------------------------------------------------------------------------------------------------------
# fixed cases: pytest.mark.parametrize("case", CLASS_CASES, ids=str)


class _Case:
    """A named batch."""

    name: str
    embeddings: Tensor

    def leaf(self) -> Tensor:
        """A new copy of the embeddings that requires a gradient."""
        return self.embeddings.clone().requires_grad_()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class ClassCase(_Case):
    """A named batch with classes; `num_classes` is the number of proxies or boundaries, one per class."""

    name: str
    embeddings: Tensor
    classes: Tensor
    smooth: bool = True

    @property
    def num_classes(self) -> int:
        return int(self.classes.max()) + 1

    @property
    def distances(self) -> Tensor:
        return class_distances(self.classes)


@dataclass(frozen=True, eq=False)
class DistanceCase(_Case):
    """A named batch with label distances `[B, B]`."""

    name: str
    embeddings: Tensor
    distances: Tensor
    smooth: bool = True


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _embeddings(generator: torch.Generator, size: int, dim: int) -> Tensor:
    return torch.randn(size, dim, generator=generator, dtype=torch.float64)


def _randint(generator: torch.Generator, below: int, size: int) -> Tensor:
    return torch.randint(0, below, (size,), generator=generator)


def _some_copied(generator: torch.Generator, size: int) -> Tensor:
    """Rows to take so that at least the last is a copy of an earlier one."""
    rows = torch.arange(size)
    for i in range(1, size):
        if i == size - 1 or float(torch.rand((), generator=generator)) < 0.3:
            rows[i] = rows[int(_randint(generator, i, 1))]
    return rows


def _float32_exact(x: Tensor) -> Tensor:
    return x.float().double()


def _symmetric(x: Tensor) -> Tensor:
    """The upper triangle on both sizes, 0 on the diagonal."""
    upper = _float32_exact(x).triu(1)
    return upper + upper.T


def _random(size: int, dim: int = 4, seed: int = 0, norm: float | None = None) -> Tensor:
    x = _embeddings(_generator(seed), size, dim)
    return x if norm is None else norm * torch.nn.functional.normalize(x, dim=1)


def _any_distances(size: int, seed: int = 1) -> Tensor:
    return _symmetric(0.1 + torch.rand(size, size, generator=_generator(seed), dtype=torch.float64))


def _labels(*values: float) -> Tensor:
    return label_distances_of(torch.tensor(values, dtype=torch.float64)[:, None])


def _with_copy(x: Tensor, source: int, copy: int) -> Tensor:
    x = x.clone()
    x[copy] = x[source]
    return x


def _with_zero_row(x: Tensor, row: int) -> Tensor:
    x = x.clone()
    x[row] = 0.0
    return x


CLASS_CASES = [
    ClassCase("equal class sizes", _random(8), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])),
    ClassCase("unequal class sizes", _random(9, seed=1), torch.tensor([0, 1, 1, 2, 0, 0, 0, 2, 2])),
    ClassCase("classes of one", _random(7, seed=2), torch.tensor([3, 0, 0, 1, 0, 4, 2])),
    ClassCase("class ids with gaps", _random(6, seed=3), torch.tensor([5, 5, 1, 8, 1, 8])),
    ClassCase("one class only", _random(5, seed=4), torch.zeros(5, dtype=torch.int64)),
    ClassCase("all lone", _random(5, seed=5), torch.arange(5)),
    ClassCase("norm 30", _random(8, seed=6, norm=30.0), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])),
    ClassCase("norm 1e-3", _random(8, seed=7, norm=1e-3), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])),
    ClassCase(
        "norms from 1e-3 to 30",
        _random(6, seed=8, norm=1.0) * torch.tensor([[1e-3], [30.0], [1.0], [30.0], [1e-3], [1.0]]),
        torch.tensor([0, 0, 1, 1, 2, 2]),
    ),
    ClassCase(
        "identical embeddings",
        torch.full((6, 4), 0.5, dtype=torch.float64),
        torch.tensor([0, 0, 1, 1, 1, 2]),
        smooth=False,
    ),
    ClassCase(
        "identical embeddings of norm 30",
        _random(1, seed=9, norm=30.0).repeat(6, 1),
        torch.tensor([0, 0, 1, 1, 1, 2]),
        smooth=False,
    ),
    ClassCase(
        "copy in the same class", _with_copy(_random(6, seed=10), 0, 2), torch.tensor([0, 1, 0, 1, 0, 2]), smooth=False
    ),
    ClassCase(
        "copy in another class", _with_copy(_random(6, seed=11), 0, 1), torch.tensor([0, 1, 0, 1, 0, 2]), smooth=False
    ),
    ClassCase(
        "an embedding of zeros", _with_zero_row(_random(5, seed=12), 1), torch.tensor([0, 0, 1, 1, 1]), smooth=False
    ),
    ClassCase("B = 2, one class", _random(2, seed=13), torch.tensor([0, 0])),
    ClassCase("B = 2, two classes", _random(2, seed=14), torch.tensor([0, 1])),
    ClassCase("B = 3, one triplet a side", _random(3, seed=15), torch.tensor([1, 0, 1])),
]

DISTANCE_CASES = [
    DistanceCase("plain", _random(8), _any_distances(8)),
    DistanceCase("labels on a line", _random(6, seed=1), _labels(0.0, 0.5, 1.25, 3.0, -2.0, 7.0)),
    DistanceCase("ties", _random(8, seed=2), _labels(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)),
    DistanceCase("duplicate labels", _random(7, seed=3), _labels(0.0, 0.0, 1.5, 1.5, 1.5, 4.0, -2.0)),
    DistanceCase("all label distances zero", _random(5, seed=4), torch.zeros(5, 5, dtype=torch.float64)),
    DistanceCase("all label distances equal", _random(5, seed=5), 0.75 * class_distances(torch.arange(5))),
    DistanceCase("one item away from all", _random(5, seed=6), _labels(0.0, 0.0, 0.0, 0.0, 2.0)),
    DistanceCase("classes as distances", _random(7, seed=7), class_distances(torch.tensor([0, 1, 1, 2, 0, 0, 3]))),
    DistanceCase("label distances of pixels", _random(6, seed=8), _float32_exact(_any_distances(6, seed=9) * 20000.0)),
    DistanceCase("label distances of 1e-5", _random(6, seed=10), _float32_exact(_any_distances(6, seed=11) * 1e-5)),
    DistanceCase("norm 30", _random(7, seed=12, norm=30.0), _any_distances(7, seed=13)),
    DistanceCase("norm 1e-3", _random(7, seed=14, norm=1e-3), _any_distances(7, seed=15)),
    DistanceCase(
        "near copies of norm 30",
        30.0 * _random(1, seed=16, norm=1.0) + 1e-2 * _random(5, seed=17),
        _any_distances(5, seed=18),
    ),
    DistanceCase(
        "identical embeddings", torch.full((5, 4), 0.5, dtype=torch.float64), _any_distances(5, seed=19), smooth=False
    ),
    DistanceCase(
        "identical embeddings of norm 30",
        _random(1, seed=20, norm=30.0).repeat(5, 1),
        _any_distances(5, seed=21),
        smooth=False,
    ),
    DistanceCase("one copy", _with_copy(_random(6, seed=22), 0, 3), _any_distances(6, seed=23), smooth=False),
    DistanceCase(
        "one copy, same label", _with_copy(_random(5, seed=24), 0, 1), _labels(1.0, 1.0, 2.0, 4.0, 4.0), smooth=False
    ),
    DistanceCase(
        "an embedding of zeros", _with_zero_row(_random(5, seed=25), 2), _any_distances(5, seed=26), smooth=False
    ),
    DistanceCase("B = 2", _random(2, seed=27), _any_distances(2)),
    DistanceCase("B = 3", _random(3, seed=28), _any_distances(3)),
]


@st.composite
def retrieval_cases(draw, max_items=8):
    """(embeddings, classes, queries, gallery): ties and copies of embeddings, classes of one, queries in or out."""
    items = draw(st.integers(3, max_items))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    embeddings = torch.randint(0, draw(st.integers(1, 4)), (items, 2), generator=generator).double()
    classes = draw(st.lists(st.integers(0, 4), min_size=items, max_size=items))
    order = draw(st.permutations(range(items)))
    cut = draw(st.integers(1, items - 2))
    everyone = list(range(items))
    queries, gallery = draw(
        st.sampled_from([(everyone, everyone), (order[:cut], order[cut:]), (order[: cut + 1], order[cut:])])
    )
    return embeddings, classes, queries, gallery
