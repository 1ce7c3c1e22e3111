"""Vectors in compiled code, lane by lane as numpy has it."""

import numba
import numpy as np
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from contml.transport import vector_operations as ops

numbers = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]))
vectors = arrays(np.float64, ops.LANES, elements=numbers)


@numba.njit
def applied(memory, out):
    """Everything that vectors do: vectors into `out`, one per row; the rest returned."""
    a, b = ops.load(ops.pointer(memory, 1), 0), ops.load(ops.pointer(memory, 0), 9)
    rows = ops.pointer(out, 0)
    below = ops.less(a, b)
    ops.store(rows, 0, a + b)
    ops.store(rows, 8, a - b)
    ops.store(rows, 16, a * b)
    ops.store(rows, 24, ops.minimum(a, b))
    ops.store(rows, 32, ops.select(below, a, ops.broadcast(2.5)))
    rows[40] = ops.reduce_sum(a)
    return below, ops.equal(a, b), ops.reduce_min(a)


@numba.njit
def lowest(bits):
    return ops.lowest_bit(bits)


def bits(flags):
    return int(sum(1 << k for k, flag in enumerate(flags) if flag))


@settings(deadline=None)  # the first call compiles
@given(vectors, vectors)
@example(np.arange(8.0), np.arange(8.0)[::-1].copy())
@example(np.zeros(8), -np.zeros(8))
def test_each_lane_is_what_numpy_computes(a, b):
    out = np.zeros(41)
    with np.errstate(invalid="ignore"):
        below, same, least = applied(np.concatenate(([7.0], a, b)), out)
        expected = [a + b, a - b, a * b, np.where(a < b, a, b), np.where(a < b, a, 2.5)]
    np.testing.assert_array_equal(out[:40].reshape(5, 8), expected)
    assert (below, same) == (bits(a < b), bits(a == b))
    if not np.isnan(a).any():
        assert least == a.min()
    if np.isfinite(a).all():
        np.testing.assert_allclose(out[40], a.sum(), rtol=1e-12, atol=1e-6)


@settings(deadline=None)  # the first call compiles
@given(st.integers(1, 255))
def test_the_lowest_bit(bits):
    assert lowest(bits) == min(k for k in range(8) if bits >> k & 1)
