"""Random norms, copies and label distances: what is finite in float64 is finite in float32, up to the stated norm."""

from __future__ import annotations

import math

import pytest
import torch
from test_numerics import CASES, IDS, make

from contml._support.errors import InputError

LARGEST = torch.finfo(torch.float32).max
NORM = 1e18


def drawn(seed):
    """Embeddings `[B, 6]` and label distances `[B, B]` of random size."""
    random = torch.Generator().manual_seed(seed)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=random, dtype=torch.float64)

    count = (4, 7, 12, 24)[seed % 4]
    x = torch.randn(count, 6, generator=random, dtype=torch.float64) * 10 ** uniform(-30, 17, 1)
    x *= 10 ** uniform(0, (0, 2, 30)[seed % 3], count, 1)
    x[1] = x[0]
    if seed % 5 == 0:
        x = x[:1] * (1 + 1e-7 * torch.randn(count, 6, generator=random, dtype=torch.float64))
    x *= (NORM / x.norm(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1)
    numbers = torch.randn(count, generator=random, dtype=torch.float64) * 10 ** uniform(-20, 18, 1)
    numbers = numbers.round() if seed % 2 else numbers
    return x.float(), (numbers[:, None] - numbers).abs().float()


@pytest.mark.filterwarnings("ignore:label distances")  # of another size than those of training
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_what_is_finite_in_float64_is_finite_in_float32(name, options):
    compared = 0
    for seed in range(12):
        x, distances = drawn(seed)
        found = []
        for dtype in (torch.float32, torch.float64):
            loss = make(name, **options).to(dtype)
            is_graded = loss.requires in ("any", "graded")
            labels = distances.to(dtype) if is_graded else torch.arange(len(x)) % 3
            embeddings = x.to(dtype, copy=True).requires_grad_()
            try:
                value = loss(embeddings, labels)
            except InputError:  # label distances of another size than those of training
                break
            value.backward()
            found.append((float(value.detach()), float(embeddings.grad.abs().max())))
        if len(found) < 2:
            continue
        compared += 1
        single, double = found
        for one, exact in zip(single, double, strict=True):
            assert math.isfinite(one) or not math.isfinite(exact) or abs(exact) > LARGEST / 10, (seed, single, double)
    assert compared > 3
