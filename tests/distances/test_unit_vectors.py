"""Rows on the unit sphere: values and gradients at every norm."""

import pytest
import torch

from contml.distances.euclidean import normalize


def directions():
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def exact(x, upstream):
    """Unit vectors and the gradient (g - u (u . g)) / |x|, row by row in Python's numbers."""
    units, gradients = [], []
    for row, g in zip(x.tolist(), upstream.tolist(), strict=True):
        largest = max(abs(v) for v in row)
        norm = largest * sum((v / largest) ** 2 for v in row) ** 0.5
        u = [v / norm for v in row]
        along = sum(a * b for a, b in zip(u, g, strict=True))
        units.append(u)
        gradients.append([(b - a * along) / norm for a, b in zip(u, g, strict=True)])
    return torch.tensor(units, dtype=torch.float64), torch.tensor(gradients, dtype=torch.float64)


@pytest.mark.parametrize("norm", [1e-33, 1e-25, 6e-20, 1e-19, 1e-12, 1e-4, 1.0, 1e4, 1e14, 1e18, 1e19, 1e25, 1e37])
def test_values_and_gradients_at_every_norm(norm):
    x = (norm * directions()).float().requires_grad_()
    upstream = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    unit = normalize(x)
    (gradient,) = torch.autograd.grad(unit, x, upstream)
    units, gradients = exact(x.detach(), upstream)
    torch.testing.assert_close(unit.double(), units, rtol=1e-6, atol=1e-7)
    # Gradients at the largest norms are below float32's smallest normal number.
    atol = max(1e-6 * float(gradients.abs().max()), 1e-44)
    torch.testing.assert_close(gradient.double(), gradients, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("norm", [1e-260, 1e-150, 1.0, 1e150, 1e155, 1e300])
def test_values_and_gradients_in_float64(norm):
    x, upstream = (norm * directions()).requires_grad_(), torch.ones(5, 7, dtype=torch.float64)
    unit = normalize(x)
    (gradient,) = torch.autograd.grad(unit, x, upstream)
    units, gradients = exact(x.detach(), upstream)
    torch.testing.assert_close(unit, units, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(gradient, gradients, rtol=1e-10, atol=1e-12 * float(gradients.abs().max()))


@pytest.mark.parametrize("norm", [0.0, 1e-45, 1e-39, 1e-36])
def test_a_row_of_zeros_or_almost_stays_zero_without_a_gradient(norm):
    x = directions().float()
    x[2] *= norm
    x.requires_grad_()
    unit = normalize(x)
    (gradient,) = torch.autograd.grad(unit, x, torch.ones(5, 7))
    assert not unit[2].any()
    assert not gradient[2].any()
    assert gradient[[0, 1, 3, 4]].any(1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype):
    x = directions().to(dtype)
    assert torch.equal(normalize(x), normalize(x.float()))
    assert normalize(x).dtype == torch.float32


def test_scaling_by_a_power_of_2_changes_no_bit():
    x = directions().float()
    for power in (-90, -60, -49, -47, 0, 40, 47, 49, 90):
        assert torch.equal(normalize(x * 2.0**power), normalize(x))


def test_what_is_not_finite_stays_so():
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = directions().float()
        x[1, 3] = bad
        assert not normalize(x)[1].isfinite().all()


def test_gradcheck():
    assert torch.autograd.gradcheck(normalize, directions().requires_grad_())
    assert torch.autograd.gradgradcheck(normalize, directions().requires_grad_())
