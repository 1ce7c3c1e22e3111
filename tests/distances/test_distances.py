"""Distances of embeddings and labels against single-pair loops, at every scale; blocks and nearest neighbours."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference
from support.choices import pairwise
from support.label_spaces import Matrix
from support.refusals import refused
from support.strategies import batches, label_matrices

from contml.distances import cosine, dot, euclidean, squared_euclidean
from contml.distances.euclidean import pairs, recompute
from contml.labels import PoseLabels, VectorLabels, nearest

PAIRWISE = {
    "squared_euclidean": (squared_euclidean, reference.squared_euclidean),
    "euclidean": (euclidean, reference.euclidean),
    "cosine": (cosine, reference.cosine),
    "dot": (dot, lambda x, y: (x * y).sum()),
}


def loop(one_pair, x, y):
    return torch.stack([torch.stack([one_pair(a, b) for b in y]) for a in x])


@pytest.mark.parametrize("name", PAIRWISE)
@settings(max_examples=20, deadline=None)
@given(batch=batches(max_size=6))
def test_equals_the_loop_in_float64(name, batch):
    function, one_pair = PAIRWISE[name]
    embeddings, _ = batch
    expected = loop(one_pair, embeddings, embeddings)
    torch.testing.assert_close(function(embeddings, embeddings), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("dim", "norm", "share"), pairwise([2, 128, 2048], [30.0, 1.0, 1e-3], [1e-7, 1e-5, 1e-3, 1e-1, 1.0])
)
def test_relative_error_is_below_a_thousandth_at_every_scale(dim, norm, share):
    torch.manual_seed(0)
    x = norm * torch.nn.functional.normalize(torch.randn(20, dim))
    both = torch.cat((x, (x + share * norm * torch.nn.functional.normalize(torch.randn(20, dim)))))
    exact = (both.double()[:, None] - both.double()[None]).square().sum(2)
    ours = squared_euclidean(both, both).double()
    apart = exact > 0
    assert ((ours - exact).abs()[apart] <= 1e-3 * exact[apart]).all()
    assert (ours[~apart] == 0).all()
    for moved in (both + 1000 * norm, torch.cat((both, both + 1000 * norm))):  # a common offset; a cluster far away
        exact = (moved.double()[:, None] - moved.double()[None]).square().sum(2)
        apart = exact > 0
        assert ((squared_euclidean(moved, moved).double() - exact).abs()[apart] <= 1e-3 * exact[apart]).all()


@pytest.mark.parametrize("items", [20, 200])  # 200: enough identical pairs for the dense path
def test_gradients_are_finite_and_right_at_identical_embeddings(items):
    for function in (squared_euclidean, euclidean, cosine):
        x = torch.full((items, 3), 7.0, requires_grad=True)
        function(x, x).sum().backward()
        assert torch.isfinite(x.grad).all()
    zero = torch.zeros(3, 4, requires_grad=True)
    cosine(zero, torch.randn(2, 4)).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("name", PAIRWISE)
def test_gradcheck_twice(name):
    function, _ = PAIRWISE[name]
    torch.manual_seed(0)
    x, y = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(function, (x, y))
    assert torch.autograd.gradgradcheck(function, (x, y))


@pytest.mark.parametrize("name", PAIRWISE)
def test_half_precision_and_autocast_are_computed_in_float32(name):
    function, _ = PAIRWISE[name]
    x = torch.randn(5, 8).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = function(x, x)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, function(x.double(), x.double()).float(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["squared_euclidean", "euclidean"])
def test_going_backward_inside_autocast_changes_nothing(kind):
    torch.manual_seed(0)
    x = torch.randn(12, 2)
    x[1] = x[0] + 1e-3  # a pair that a matrix product cancels
    x.requires_grad_()
    for other in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (inside,) = torch.autograd.grad(pairs(kind, x, x * 1 if other else x).sum(), x)
        (outside,) = torch.autograd.grad(pairs(kind, x, x * 1 if other else x).sum(), x)
        assert inside.dtype == torch.float32
        assert torch.equal(inside, outside)


@pytest.mark.parametrize("kind", ["squared_euclidean", "euclidean"])
@pytest.mark.parametrize("other", [False, True])
def test_gradients_of_pairs_that_a_matrix_product_cancels(kind, other):
    """Two clusters of near items far apart: their pairs are subtracted, all others multiplied."""
    torch.manual_seed(0)
    x = torch.cat((1e-3 * torch.randn(3, 4), 10 + 1e-3 * torch.randn(3, 4), 10 * torch.randn(30, 4))).requires_grad_()
    y = (x.detach() + 1e-4 * torch.randn(36, 4)).requires_grad_() if other else x
    near = torch.zeros(36, 36)
    near[:3, :3] = near[3:6, 3:6] = 1e3 * torch.rand(3, 3)
    leaves = (x, y) if other else (x,)
    ours = torch.autograd.grad((pairs(kind, x, y) * near).sum(), leaves)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    d = (wide[0][:, None] - wide[-1]).square().sum(2)
    d = d if kind == "squared_euclidean" else (d + torch.eye(36) * (not other)).sqrt()
    exact = torch.autograd.grad((d * (near if other else near.fill_diagonal_(0))).sum(), wide)
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


@pytest.mark.parametrize("offset", [30.0, 3000.0])
def test_gradients_under_an_offset_that_all_share(offset):
    torch.manual_seed(0)
    x = (offset + torch.randn(100, 16)).requires_grad_()
    weight = torch.rand(100, 100)
    for y in (x, x[:100] * 1):
        (ours,) = torch.autograd.grad((squared_euclidean(x, y) * weight).sum(), x)
        wide = x.double()
        (exact,) = torch.autograd.grad(((wide[:, None] - wide[None]).square().sum(2) * weight).sum(), x)
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-3)


def test_an_infinite_embedding_spoils_its_own_distances_alone():
    x = torch.randn(5, 3)
    x[2, 1] = torch.inf
    assert squared_euclidean(x, x)[[0, 1, 3, 4]][:, [0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize("array", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_cancelled_entries_are_recomputed_in_parts(array, monkeypatch):
    monkeypatch.setattr(sys.modules["contml.distances.euclidean"], "_RECOMPUTED", 2)
    x, d, sizes = array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), array([[9.0] * 3] * 3), []

    def subtract(i, j):
        sizes.append(len(i))
        return ((x[i] - x[j]) ** 2).sum(1)

    recompute(d, array([0, 1, 2]), array([2, 1, 1]), subtract)
    assert (d.tolist(), sizes) == ([[9, 9, 32], [9, 0, 9], [9, 8, 9]], [2, 1])


@st.composite
def poses(draw):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    items, joints = draw(st.integers(2, 6)), draw(st.integers(1, 7))
    xy = torch.rand(items, joints, 2, generator=generator, dtype=torch.float64) * draw(st.sampled_from([1.0, 300.0]))
    if draw(st.booleans()):
        xy[-1] = xy[0]
    visible = torch.rand(items, joints, generator=generator) < draw(st.sampled_from([0.7, 1.0]))
    visible[visible.sum(1) * 2 <= joints] = True
    weights, scale = (0.1 + torch.rand(2, joints, generator=generator, dtype=torch.float64)).unbind()
    return xy, visible, weights, draw(st.sampled_from([None, scale * xy.max()]))


@settings(max_examples=60, deadline=None)
@given(pose=poses())
def test_pose_distance_equals_the_loop(pose):
    xy, visible, weights, saturation = pose
    poses = list(zip(xy, visible, strict=True))
    expected = loop(lambda a, b: reference.pose_distance(a[0], b[0], a[1], b[1], weights, saturation), poses, poses)
    ours = PoseLabels(xy, visible, weights=weights, saturation=saturation).pairwise()
    torch.testing.assert_close(ours, expected.float(), rtol=1e-6, atol=1e-6)
    assert torch.equal(ours, ours.T)
    assert (ours.diagonal() == 0).all()
    same = (xy[0] == xy[-1]).all() and (visible[0] == visible[-1]).all()
    assert not same or ours[0, -1] == 0


def test_hidden_coordinates_are_never_read():
    xy = torch.rand(3, 5, 2)
    visible = torch.ones(3, 5, dtype=torch.bool)
    visible[1, 2] = False
    garbage = xy.clone()
    garbage[1, 2] = torch.tensor([torch.nan, 1e30])
    assert torch.equal(PoseLabels(garbage, visible).pairwise(), PoseLabels(xy, visible).pairwise())


@settings(max_examples=40, deadline=None)
@given(matrix=st.integers(2, 12).flatmap(label_matrices), data=st.data())
def test_nearest_equals_the_loop_with_ties_to_the_lower_row(matrix, data):
    k = data.draw(st.integers(1, len(matrix) - 1))
    found = nearest(Matrix(matrix), k, memory=data.draw(st.sampled_from([1, 1000, 1 << 28])))
    expected = reference.nearest(matrix, k)
    assert torch.equal(found.rows, expected)
    assert torch.equal(found.distances, matrix.float().gather(1, expected))


def test_nearest_in_blocks_of_columns(monkeypatch):
    torch.manual_seed(0)
    vectors = VectorLabels(torch.randint(0, 9, (300, 2)))
    space = Matrix(vectors.pairwise())  # it knows no faster way than blocks
    whole = nearest(space, 20)
    asked, original = [], min

    def distances(self, x, y):
        asked.append((len(x), len(y)))
        return self.matrix[x.row][:, y.row]

    monkeypatch.setattr(Matrix, "distances", distances)
    monkeypatch.setattr(
        "contml.distances.nearest.min", lambda *a: 64 if a == (300, 1 << 14) else original(*a), raising=False
    )
    blocks = nearest(space, 20, memory=5000)
    assert {cols for _, cols in asked} == {64, 300 % 64}
    for other in (blocks, nearest(vectors, 20)):
        assert torch.equal(other.rows, whole.rows)
        assert torch.equal(other.distances, whole.distances)


@pytest.mark.parametrize("memory", [1, 500, 1 << 28])
def test_pairwise_in_any_memory(memory):
    torch.manual_seed(0)
    space = PoseLabels(torch.rand(30, 4, 2))
    rows, cols = [3, 1, 29], torch.arange(5, 20)
    assert torch.equal(space.pairwise(rows, cols, memory=memory), space.pairwise(rows, cols))
    assert torch.equal(space[rows].pairwise(memory=memory), space.pairwise(rows, rows))
    assert torch.equal(space.pairwise(memory=memory), torch.stack([space.pairwise([row])[0] for row in range(30)]))
    assert space.pairwise([], cols, memory=memory).shape == (0, 15)
    assert (space.pairwise(rows, [], memory=memory).shape, space[[]].pairwise(memory=memory).shape) == ((3, 0), (0, 0))


def test_bad_input():
    refused(Matrix(torch.tensor([[0, torch.nan], [1, 0]])).pairwise, "label distance", got="nan in row 0, column 1")
    refused(lambda: nearest(Matrix(torch.tensor([[0.0, -1.0], [1.0, 0.0]])), 1), "label distance", got="-1.0")
