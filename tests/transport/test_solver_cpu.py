"""The exact transport solver against POT, on every shape and on ties; it always ends."""

import hashlib
from pathlib import Path

import numba
import numpy as np
import ot
import pytest
from support.transport_problems import transport

from contml.transport import set_distance_cpu, solver_cpu
from contml.transport.solver_cpu import make_workspace, problem_in, solve


def masses(random, problems, size, low=0, high=4):
    """Whole masses `[P, size]`, some of them 0, at least one of them not."""
    mass = random.integers(low, high, (problems, size))
    mass[np.arange(problems), random.integers(0, size, problems)] += 1
    return mass


def problems(random, number, m, n, costs, low=0):
    """Costs, supplies and demands of one total: each side is scaled by the other's."""
    x, y = masses(random, number, m, low), masses(random, number, n, low)
    return costs(random, (number, m, n)), x * y.sum(1)[:, None], y * x.sum(1)[:, None]


def by_pot(cost, supply, demand):
    i, j = np.flatnonzero(supply), np.flatnonzero(demand)
    block = np.ascontiguousarray(cost[np.ix_(i, j)])
    # What ot.emd2 calls once it has checked its arguments, which takes it twenty times as long.
    plan, *_, status = ot.lp.emd_wrap.emd_c(supply[i].astype(float), demand[j].astype(float), block, 100_000, 1)
    assert status == 1
    return float((plan * block).sum())


@numba.njit
def bounded(workspace, cost, supply, demand, start_limit, limit):
    """The solver's value of one problem, and whether it went to the end; called with the memory, which has to last."""
    problem = problem_in(workspace)
    for i in range(len(supply)):
        problem.supply[i] = supply[i]
        for j in range(len(demand)):
            problem.demand[j] = demand[j]
            problem.cost[i * problem.width + j] = cost[i, j]
    return solve(problem, len(supply), len(demand), start_limit, limit)


def generic(random, shape):
    return random.random(shape)


def tied(random, shape):
    return random.integers(0, 3, shape).astype(float)


def metric(random, shape):
    number, m, n = shape
    x, y = random.normal(size=(number, m, 3)), random.normal(size=(number, n, 3))
    return np.sqrt(((x[:, :, None] - y[:, None]) ** 2).sum(3))


def wide(random, shape):
    return 10 ** random.uniform(-3, 3, shape)  # at (-12, 6) POT itself stops short of the optimum, by up to 6e-4 of it


@pytest.mark.slow
@pytest.mark.parametrize("costs", [generic, tied, metric, wide], ids=lambda f: f.__name__)
def test_a_hundred_thousand_small_problems_equal_pot(costs):
    random = np.random.default_rng(0)
    checked = 0
    while checked < 25_000:
        m, n = random.integers(1, 10, 2)
        given = problems(random, 500, m, n, costs)
        ours = transport(*given)
        expected = np.array([by_pot(*one) for one in zip(*given, strict=True)])
        np.testing.assert_allclose(ours, expected, rtol=1e-6)
        checked += len(ours)


@pytest.mark.parametrize("size", [1, 8, 16, 17, 24, 64, 65, 100])
@pytest.mark.parametrize("costs", [generic, tied, metric], ids=lambda f: f.__name__)
def test_every_size_equals_emd2(size, costs):
    random = np.random.default_rng(size)
    for m, n in ((size, size), (size, 1), (3, size), (size, 3), (size, max(1, size - 1))):
        given = problems(random, 2, m, n, costs, low=1)
        for ours, cost, supply, demand in zip(transport(*given), *given, strict=True):
            i, j = supply > 0, demand > 0
            a, b = supply[i] / supply.sum(), demand[j] / demand.sum()
            assert ours / supply.sum() == pytest.approx(ot.emd2(a, b, cost[i][:, j]), rel=1e-6, abs=1e-12)


def test_edges():
    one = np.ones((1, 1), dtype=np.int64)
    assert transport(np.full((1, 1, 1), 2.5), 3 * one, 3 * one).tolist() == [7.5]
    assert transport(np.ones((1, 2, 2)), np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)).tolist() == [0]
    assert np.isnan(transport(np.ones((1, 1, 1)), one, 2 * one)).all()  # totals differ
    assert np.isnan(transport(np.full((1, 2, 2), np.nan), one * [[1, 1]], one * [[1, 1]])).all()
    assert transport(np.ones((0, 2, 3)), np.ones((0, 2), np.int64), np.ones((0, 3), np.int64)).shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_costs_that_are_not_finite_are_gone_round_and_it_ends(bad):
    random = np.random.default_rng(0)
    infeasible = 0
    for _ in range(2_000):
        m, n = random.integers(2, 12, 2)
        cost, supply, demand = problems(random, 1, m, n, generic)
        cost[random.random(cost.shape) < random.choice([0.05, 0.3, 0.7])] = bad
        ours = transport(cost, supply, demand)[0]
        high = 1e4  # no plan of finite costs costs as much for a unit
        expected = by_pot(np.where(np.isfinite(cost[0]), cost[0], high), supply[0], demand[0])
        infeasible += expected >= high
        assert np.isnan(ours) if expected >= high else ours == pytest.approx(expected, rel=1e-9)
    assert 100 < infeasible < 1_900


@pytest.mark.slow
def test_a_bound_stops_a_solve_below_the_optimum_and_never_drops_it():
    """In one piece of memory, where a stopped solve leaves its traces, as in a fresh one."""
    random = np.random.default_rng(0)
    at_start, later = 0, 0
    workspace = make_workspace(16)
    for _ in range(1_000):
        m, n = random.integers(2, 17, 2)
        cost, supply, demand = (one[0] for one in problems(random, 1, m, n, generic))
        i, j = np.flatnonzero(supply), np.flatnonzero(demand)
        given = cost[np.ix_(i, j)], supply[i], demand[j]
        best = by_pot(cost, supply, demand)
        start = bounded(make_workspace(16), *given, -1.0, np.inf)[0]
        for bound in (0.0, 0.9 * best, 0.99 * best, best * (1 - 1e-9), best * (1 + 1e-9), np.inf):
            for start_limit, limit in ((bound, np.inf), (np.inf, bound)):
                value, exact = bounded(workspace, *given, start_limit, limit)
                assert (value, exact) == bounded(make_workspace(16), *given, start_limit, limit)
                assert value <= best * (1 + 1e-9)
                assert exact or value > bound
                assert not exact or value == pytest.approx(best, rel=1e-9)
                assert exact or bound < best
                at_start += not exact and value == start
                later += not exact and value > start
        if min(len(i), len(j)) > 1 and start < best * (1 - 1e-6):  # the running dual goes all the way
            assert not bounded(workspace, *given, np.inf, best * (1 - 1e-9))[1]
    assert at_start > 1_000
    assert later > 1_000


def test_the_copies_on_disk_are_renewed_when_the_solver_changes():
    folder = Path(solver_cpu.__file__).parent

    def digest(*names):
        return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()[:12]

    assert digest("vector_operations.py") == solver_cpu.DIGEST
    assert digest("vector_operations.py", "solver_cpu.py", "bounds.py") == set_distance_cpu.DIGEST
