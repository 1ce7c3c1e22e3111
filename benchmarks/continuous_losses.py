"""Rank-N-Contrast, CoSENT and smooth ranks, forward and backward: ours and explicit versions of the published forms.

    python -m benchmarks.continuous_losses [--save FILE] [--largest 2048]
    python -m benchmarks.continuous_losses --errors 20

The explicit forms are plain torch, as the papers print them. Rank-N-Contrast compares each pair of an anchor with all
others, [B, B, B] in steps of one column as in the authors' code, or all at once; CoSENT compares all pairs, [P, P].
Smooth ranks have sigmoids [B, B, B], computed for some anchors at a time.
Both get the same inputs as ours, in turn, and values and gradients are checked to be equal. The other losses for
continuous labels are timed alone. Times are processor time of one thread, which leaves out other jobs on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import alternate, heading, peak_memory, table
from contml.labels import VectorLabels
from contml.losses import LOSSES, CoSENTLoss, RankNContrastLoss, SmoothRankLoss

DIM = 128
MIB = 1 << 20
#: The largest batch and the largest number of pairs of the explicit forms: they take up to 2 GiB here.
LISTED_BATCH, LISTED_PAIRS = 512, 4096
SIZES = (128, 256, 512, 1024, 2048)
#: Losses timed alone.
ALONE = ("log_ratio", "soft_info_nce", "generalized_contrastive", "relaxed_contrastive", "rank_sim")
#: Batches in which smooth ranks are compared with the ranks of all sigmoids.
RANKED = (64, 128, 256, 512)
#: Divides the label distances of losses that have a scale.
LABEL_SCALE = 50.0
#: The batches of these.
MEASURED = (128, 512, 2048)


def rank_n_contrast(embeddings: Tensor, distances: Tensor) -> Tensor:
    """All denominators at once, `[B, B, B]`."""
    n = len(embeddings)
    others = ~torch.eye(n, dtype=torch.bool)
    s = -torch.cdist(embeddings, embeddings)[others].view(n, n - 1) / 2
    y = distances[others].view(n, n - 1)
    beyond = y[:, None, :] >= y[:, :, None]  # [i,j,k]
    lse = s[:, None, :].masked_fill(~beyond, -torch.inf).logsumexp(2)
    return (lse - s).mean()


def rank_n_contrast_by_column(embeddings: Tensor, distances: Tensor) -> Tensor:
    """A loop over the items j, each with its `[B, B]` denominators, as in the authors' code."""
    n = len(embeddings)
    others = ~torch.eye(n, dtype=torch.bool)
    s = (-torch.cdist(embeddings, embeddings)[others].view(n, n - 1)) / 2
    s = s - s.max(1, keepdim=True).values.detach()
    y, exponential, total = distances[others].view(n, n - 1), s.exp(), s.new_zeros(())
    for j in range(n - 1):
        beyond = (y >= y[:, j : j + 1]).to(s.dtype)
        total = total - (s[:, j] - (beyond * exponential).sum(1).log()).sum() / (n * (n - 1))
    return total


def cosent(embeddings: Tensor, distances: Tensor) -> Tensor:
    """All comparisons of pairs `[P, P]`; the rows of the distances are the anchors."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    anchors = len(distances)
    member = torch.ones(anchors, len(unit), dtype=torch.bool)
    member.diagonal().zero_()
    s, y = 20 * (unit[:anchors] @ unit.T)[member], distances[member]
    terms = (s[None] - s[:, None]).masked_fill(y[:, None] >= y[None], -torch.inf).flatten()
    return torch.cat((terms, terms.new_zeros(1))).logsumexp(0)


class AllSigmoids(SmoothRankLoss):
    """Smooth ranks from the B x B sigmoids of each anchor, in blocks of anchors; the public code has one block."""

    def is_direct(self, items: int) -> bool:  # noqa: ARG002
        """Always."""
        return True


def ours_rank_n_contrast(embeddings: Tensor, distances: Tensor) -> Tensor:
    value: Tensor = RankNContrastLoss()(embeddings, distances)
    return value


def ours_cosent(embeddings: Tensor, distances: Tensor) -> Tensor:
    value: Tensor = CoSENTLoss()(embeddings, distances, anchors=torch.arange(len(distances)))
    return value


def alone(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss of the table, with label distances as they are."""
    scale = {"label_scale": LABEL_SCALE} if name not in ("log_ratio", "rank_sim") else {}
    loss: Callable[[Tensor, Tensor], Tensor] = LOSSES[name](**scale)
    return loss


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ours": ours_rank_n_contrast,
    "explicit": rank_n_contrast,
    "by column": rank_n_contrast_by_column,
    "ours, pairs": ours_cosent,
    "explicit, pairs": cosent,
    **{name: alone(name) for name in ALONE},
}
for _metric in ("ndcg", "ap"):
    for _temperature in (0.1, 0.01):
        _options: dict[str, Any] = {"metric": _metric, "temperature": _temperature, "label_scale": LABEL_SCALE}
        FORMS[f"ours, {_metric}, {_temperature:g}"] = SmoothRankLoss(**_options)
        FORMS[f"explicit, {_metric}, {_temperature:g}"] = AllSigmoids(**_options)


def inputs(items: int, anchors: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embeddings `[B, 128]` and label distances `[A, B]` of random vectors like poses."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(items, DIM, generator=generator, dtype=torch.float64)
    labels = VectorLabels(torch.randn(items, 28, generator=generator, dtype=torch.float64))
    return embeddings.to(dtype).requires_grad_(), labels.pairwise(range(anchors)).to(dtype)


def call(form: str, items: int, anchors: int) -> Callable[[], Tensor]:
    """Forward and backward of a form."""
    embeddings, distances = inputs(items, anchors)

    def run() -> Tensor:
        (gradient,) = torch.autograd.grad(FORMS[form](embeddings, distances), embeddings)
        return gradient

    return run


def agreement(forms: list[str], items: int, anchors: int) -> float:
    """Largest difference of value and gradient from the first form in float64, relative to their size."""
    found = []
    for form in forms:
        embeddings, distances = inputs(items, anchors, torch.float64)
        value = FORMS[form](embeddings, distances)
        found.append((value.detach(), torch.autograd.grad(value, embeddings)[0]))
    return max(
        float((a - b).abs().max() / b.abs().max()) for other in found for a, b in zip(other, found[0], strict=True)
    )


def rows(forms: list[str], items: int, anchors: int, first: str) -> list[str]:
    """A row of a table: times, ratios to ours, peak memory, agreement."""
    few = anchors * (items - 1) <= LISTED_PAIRS if forms[0] == "ours, pairs" else items <= LISTED_BATCH
    listed = forms if few else forms[:1]
    times = alternate({form: call(form, items, anchors) for form in listed}, rounds=5, clock=time.process_time)
    memory = {form: peak_memory(call, form, items, anchors) for form in listed}
    ours = times[forms[0]]
    compared = [form for form in listed if form != "explicit" or items < LISTED_BATCH]  # 5 GiB in float64
    return [
        first,
        *(f"{times[form] * 1e3:,.1f} ms" if form in times else "-" for form in forms),
        *(f"{times[form] / ours:,.0f}" if form in times else "-" for form in forms[1:]),
        *(f"{memory[form] / MIB:,.0f} MiB" if form in memory else "-" for form in forms),
        f"{agreement(compared, items, anchors):.0e}" if len(compared) > 1 else "-",
    ]


def header(first: str, forms: list[str]) -> list[str]:
    """The head of a table of these forms, the first of which is ours."""
    names = ["ours", *(form.split(",")[0] for form in forms[1:])]
    ratios = [f"{name} / ours" for name in names[1:]]
    peaks = [f"peak: {names[0]}", *names[1:]]
    return [first, *names, *ratios, *peaks, "float64 agreement"]


def smooth_ranks(largest: int) -> str:
    """The table of smooth ranks: both forms up to 512 items, ours up to twice `largest`."""
    body = []
    for kind in ("ndcg, 0.1", "ndcg, 0.01", "ap, 0.1", "ap, 0.01"):
        ours, explicit = f"ours, {kind}", f"explicit, {kind}"
        for size in (*RANKED, *(size for size in (1024, 2048, 4096) if size <= 2 * largest)):
            listed = [ours, explicit] if size in RANKED else [ours]
            rounds = 5 if size in RANKED else 1
            times = alternate({form: call(form, size, size) for form in listed}, rounds=rounds, clock=time.process_time)
            cells = [f"{times[form] * 1e3:,.1f} ms" if form in times else "-" for form in (ours, explicit)]
            if size in RANKED:
                ratio, difference = f"{times[explicit] / times[ours]:.1f}", f"{agreement(listed, size, size):.0e}"
            else:
                ratio = difference = "-"
            memory = f"{peak_memory(call, ours, size, size) / MIB:,.0f} MiB"
            body.append([kind, f"{size:,}", *cells, ratio, memory, difference])
    columns = [
        "metric, temperature",
        "B",
        "ours",
        "all sigmoids",
        "all sigmoids / ours",
        "peak: ours",
        "float64 agreement",
    ]
    return table([columns, *body])


def errors(form: str, batches: int) -> tuple[float, float]:
    """Errors in float32 of value and gradient against all sigmoids in float64: root mean square over the batches."""
    squared = torch.zeros(2, dtype=torch.float64)
    for seed in range(batches):
        embeddings, distances = inputs(RANKED[2], RANKED[2], seed=seed)
        exact = embeddings.detach().double().requires_grad_()
        found = []
        for x, d, each in (
            (embeddings, distances, FORMS[form]),
            (exact, distances.double(), FORMS[form.replace("ours", "explicit")]),
        ):
            value = each(x, d)
            found.append((value.detach().double(), torch.autograd.grad(value, x)[0].double()))
        squared += torch.stack([((a - b).abs().max() / b.abs().max()).square() for a, b in zip(*found, strict=True)])
    value, gradient = (squared / batches).sqrt().tolist()
    return value, gradient


def error_table(batches: int) -> str:
    table_rows = [["float32", "value: ours", "all sigmoids", "ratio", "gradient: ours", "all sigmoids", "ratio"]]
    for metric in ("ndcg", "ap"):
        for temperature in ("0.1", "0.01"):
            ours, direct = (errors(f"{form}, {metric}, {temperature}", batches) for form in ("ours", "explicit"))
            cells = [(f"{a:.1e}", f"{b:.1e}", f"{a / b:.2f}") for a, b in zip(ours, direct, strict=True)]
            table_rows.append([f"{metric}, {temperature}", *cells[0], *cells[1]])
    return table(table_rows)


def report(largest: int) -> str:
    """All tables."""
    sizes = [size for size in SIZES if size <= largest]
    parts = [heading("Losses for continuous labels, forward and backward, d = 128, float32, processor time")]
    forms = ["ours", "explicit", "by column"]
    body = [rows(forms, size, size, f"{size:,}") for size in sizes]
    parts += ["Rank-N-Contrast, all anchors:\n", table([header("B", forms), *body])]
    forms = ["ours, pairs", "explicit, pairs"]
    # 4,096 pairs: 16 anchors with 257 items, of which each leaves itself out.
    batches = [(129, 8), (257, 8), (257, 16), *((size, size) for size in sizes)]
    body = [rows(forms, items, anchors, f"{anchors * (items - 1):,}") for items, anchors in batches]
    parts += [
        "\nCoSENT over all pairs of some anchors, or (from 128 x 127) of all:\n",
        table([header("P", forms), *body]),
    ]
    parts += ["\nSmooth ranks, nDCG and AP, by temperature:\n", smooth_ranks(largest)]
    body, large = [], [size for size in sizes if size in MEASURED]
    for name in ALONE:
        cells = []
        for size in large:
            (seconds,) = alternate({name: call(name, size, size)}, rounds=3, clock=time.process_time).values()
            cells.append(f"{seconds * 1e3:,.1f} ms, {peak_memory(call, name, size, size) / MIB:,.0f} MiB")
        body.append([f"`{name}`", *cells])
    parts += ["\nThe other losses, time and peak memory:\n"]
    parts += [table([["loss", *(f"B = {size:,}" for size in large)], *body])]
    parts += [
        "\n`python -m benchmarks.continuous_losses`; peaks are above the inputs, in a new process. Explicit forms end "
        "where a\nnext row would take eight (CoSENT: four) times the memory or more.\n"
    ]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="largest batch")
    parser.add_argument("--save", type=Path, help="also write the tables to this file")
    parser.add_argument("--errors", type=int, help="only the errors of smooth ranks in float32, on so many batches")
    given = parser.parse_args()
    torch.set_num_threads(1)
    text = error_table(given.errors) if given.errors else report(given.largest)
    print(text)
    if given.save:
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
