"""The solver of the transport problem on arrays of problems, for tests."""

import numba
import numpy as np

from contml.transport.solver_cpu import make_workspace, problem_in, solve


def transport(costs, supplies, demands):
    """Least transport costs `[P]` in float64 of P problems: costs `[P, m, n]`, supplies `[P, m]`, demands `[P, n]`.

    Costs are >= 0. Supplies and demands are whole numbers >= 0, of the same total below 2^53; rows and columns of 0 are
    ignored. NaN where the totals differ, or where every plan uses a cost that is not finite.
    """
    out = np.empty(len(costs), np.float64)
    _transport(make_workspace(max(costs.shape[1:])), costs, supplies, demands, out)
    return out


@numba.njit(nogil=True)
def _transport(workspace, costs, supplies, demands, out):
    problems, m, n = costs.shape
    problem, chosen = problem_in(workspace), np.empty(n, np.int64)
    for p in range(problems):
        rows, cols, rest = 0, 0, 0
        for j in range(n):
            if demands[p, j] > 0:
                chosen[cols] = j
                problem.demand[cols] = demands[p, j]
                rest -= demands[p, j]
                cols += 1
        for i in range(m):
            if supplies[p, i] > 0:
                for j in range(cols):
                    problem.cost[rows * problem.width + j] = costs[p, i, chosen[j]]
                problem.supply[rows] = supplies[p, i]
                rest += supplies[p, i]
                rows += 1
        if rest != 0:
            out[p] = np.nan
        elif rows == 0:
            out[p] = 0.0
        else:
            out[p] = solve(problem, rows, cols, np.inf, np.inf)[0]
