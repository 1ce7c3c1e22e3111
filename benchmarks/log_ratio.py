"""Log-ratio loss, forward and backward, all anchors: ours compared with explicit triplets and a plain closed form.

    python -m benchmarks.log_ratio [--largest 32768]

The plain form is twelve lines of torch: closed form, plain autograd, distances by matrix product (without the
recomputation where it cancels). All forms get the same inputs, and their values are checked to be equal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.measure import alternate, heading, peak_memory, table
from contml.labels import VectorLabels
from contml.losses import LogRatioLoss

DIM = 128
EPSILON = 1e-6


LOSS = LogRatioLoss()


def ours(embeddings: Tensor, distances: Tensor) -> Tensor:
    value: Tensor = LOSS(embeddings, distances)
    return value


def plain(embeddings: Tensor, distances: Tensor) -> Tensor:
    square = (embeddings * embeddings).sum(1)
    d = torch.addmm(square[:, None] + square, embeddings, embeddings.T, alpha=-2).clamp(min=0)
    r = (d + EPSILON).log() - (distances + EPSILON).log()
    member = distances > 0
    n = member.sum(1)
    mean = (r * member).sum(1) / n
    centred = (r - mean[:, None]) * member
    return (2 * centred.square().sum(1) / (n - 1)).mean()


def triplets(embeddings: Tensor, distances: Tensor) -> Tensor:
    square = (embeddings * embeddings).sum(1)
    d = torch.addmm(square[:, None] + square, embeddings, embeddings.T, alpha=-2).clamp(min=0)
    r = (d + EPSILON).log() - (distances + EPSILON).log()
    member = distances > 0
    pairs = member[:, :, None] & member[:, None, :]
    terms = (r[:, :, None] - r[:, None, :]).square() * pairs
    # Ordered pairs; the terms of an item with itself are 0.
    return (terms.sum((1, 2)) / (pairs.sum((1, 2)) - member.sum(1))).mean()


FORMS = {"ours": ours, "plain": plain, "triplets": triplets}


def inputs(batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Embeddings `[B, 128]` and label distances `[B, B]` of random pose-like vectors."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(batch, DIM, generator=generator, dtype=torch.float64)
    labels = VectorLabels(torch.randn(batch, 28, generator=generator, dtype=torch.float64)).pairwise()
    return embeddings.to(dtype), labels.to(dtype)


def call(form: str, batch: int) -> Callable[[], Tensor]:
    """Forward and backward of a form on a matrix of label distances."""
    embeddings, distances = inputs(batch)
    embeddings.requires_grad_()

    def run() -> Tensor:
        (gradient,) = torch.autograd.grad(FORMS[form](embeddings, distances), embeddings)
        return gradient

    return run


def call_on_labels(batch: int) -> Callable[[], Tensor]:
    """Forward and backward of ours on labels that are computed block by block: no [B, B] matrix at all."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(batch, DIM, generator=generator).requires_grad_()
    labels = VectorLabels(torch.randn(batch, 28, generator=generator))

    def run() -> Tensor:
        (gradient,) = torch.autograd.grad(LogRatioLoss()(embeddings, labels), embeddings)
        return gradient

    return run


def agreement(batch: int) -> float:
    """Largest difference of values and gradients between the forms in float64, relative to their size."""
    embeddings, distances = inputs(batch, torch.float64)
    embeddings.requires_grad_()
    found = {}
    for name in ("ours", "plain") if batch > 256 else FORMS:
        value = FORMS[name](embeddings, distances)
        (gradient,) = torch.autograd.grad(value, embeddings)
        found[name] = (value.detach(), gradient)
    reference = found["plain"]
    return max(
        float((a - b).abs().max() / b.abs().max())
        for name in found
        for a, b in zip(found[name], reference, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=32768, help="largest batch")
    largest = parser.parse_args().largest
    torch.set_num_threads(2)
    print(heading("Log-ratio loss, forward and backward, all anchors, d = 128, float32"))
    rows = [
        [
            "B",
            "ours",
            "plain",
            "triplets",
            "plain / ours",
            "triplets / ours",
            "peak: ours",
            "plain",
            "triplets",
            "float64 agreement",
        ]
    ]
    for batch in (128, 256, 512, 1024, 2048, 4096, 8192):
        if batch > largest:
            break
        forms = ["ours", "plain"] + (["triplets"] if batch <= 512 else [])
        times = alternate({name: call(name, batch) for name in forms}, rounds=11 if batch <= 2048 else 3)
        memory = {name: peak_memory(call, name, batch) for name in forms}

        def of(values: dict[str, float] | dict[str, int], name: str, unit: float, form: str) -> str:
            return form.format(values[name] / unit) if name in values else "-"

        rows.append(
            [
                f"{batch:,}",
                *(of(times, name, 1e-3, "{:,.1f} ms") for name in FORMS),
                f"{times['plain'] / times['ours']:.2f}",
                f"{times['triplets'] / times['ours']:.0f}" if "triplets" in times else "-",
                *(of(memory, name, 1 << 20, "{:,.0f} MiB") for name in FORMS),
                f"{agreement(batch):.0e}" if batch <= 2048 else "-",
            ]
        )
    print(table(rows))
    print("\nLabels as a label space, computed block by block (no matrix of label distances):\n")
    rows = [["B", "time", "peak beyond the inputs"]]
    for batch in (8192, 32768):
        if batch <= largest:
            (seconds,) = alternate({"labels": call_on_labels(batch)}, rounds=3 if batch == 8192 else 1).values()
            rows.append(
                [f"{batch:,}", f"{seconds:.2f} s", f"{peak_memory(call_on_labels, batch) / (1 << 20):,.0f} MiB"]
            )
    print(table(rows))


if __name__ == "__main__":
    main()
