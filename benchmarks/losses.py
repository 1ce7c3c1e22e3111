"""Class-label losses, forward and backward: contml compared with pytorch-metric-learning.

    python -m benchmarks.losses [--sizes 128 512 1024 2048] [--large 8192] [--only NAME ...] [--busy]

Both get the same embeddings, of dimension 512 with four items per class, and run in turn in one process with two
threads (`--busy`: processor time of one). Where the definitions agree, values are compared in float64: `agreement` is
their difference, or why they are not compared. Peers that list all triplets of a batch stop at 1,024 items: with 2,048
items, their [B, B, B] mask takes 8 GiB. The second table runs each loss in blocks on a large batch, and compares value
and gradient with plain autograd on one block of all rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import alternate, heading, peak_memory, table
from contml.config import data_arguments
from contml.labels import ClassLabels
from contml.losses import LOSSES

DIM, PER_CLASS = 512, 4
#: The losses that take classes.
NAMES = [name for name, loss in LOSSES.items() if getattr(loss, "requires", "any") != "graded"]
#: The largest batch for peers that list triplets.
LISTED = 1024
#: Batch sizes whose peak memory is measured too, in a new process.
MEASURED = (512,)
MIB = 1 << 20


def inputs(batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Unnormalized embeddings `[B, 512]` around class centres, and classes `[B]`, in random order."""
    random = torch.Generator().manual_seed(0)
    classes = torch.arange(batch).div(PER_CLASS, rounding_mode="floor")[torch.randperm(batch, generator=random)]
    centres = torch.randn(batch // PER_CLASS, DIM, generator=random, dtype=torch.float64)
    embeddings = centres[classes] + 2 * torch.randn(batch, DIM, generator=random, dtype=torch.float64)
    return embeddings.to(dtype), classes


def make(name: str, batch: int, **options: Any) -> Any:
    """Ours, by its name in the table."""
    name = name.split(" with ")[0]
    takes = data_arguments(LOSSES[name])
    data = {"num_classes": batch // PER_CLASS, "embedding_dim": DIM}
    torch.manual_seed(0)
    return LOSSES[name](**options, **{key: value for key, value in data.items() if takes.get(key)})


@dataclass(frozen=True)
class Peer:
    """A loss of pytorch-metric-learning to compare with ours.

    make: the peer, given the batch size. options: ours, so that the definitions agree. equal: the peer's value as ours
    has it, from (value, embeddings, classes); None: not compared, for the reason in `differs`. proxies: names of the
    parameter in ours and in the peer, and whether the peer's is transposed.
    """

    make: Callable[[int], Any]
    options: dict[str, Any]
    equal: Callable[[Tensor, Tensor], Tensor] | None = None
    differs: str = ""
    listed: bool = False
    proxies: tuple[str, str, bool] | None = None


def _peers() -> dict[str, Peer]:
    from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

    cosine = distances.CosineSimilarity()

    def same(value: Tensor, _classes: Tensor) -> Tensor:
        return value

    def contrastive(value: Tensor, classes: Tensor) -> Tensor:
        # sum over positives of (1 - s): the paper has -s, and divides by the items.
        positives = (classes[:, None] == classes).sum() - len(classes)
        return (value - positives) / len(classes)

    class Mined(torch.nn.Module):
        def __init__(self, loss: Any, miner: Any) -> None:
            super().__init__()
            self.loss, self.miner = loss, miner

        def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
            value: Tensor = self.loss(embeddings, classes, self.miner(embeddings, classes))
            return value

    def classes_of(batch: int) -> dict[str, int]:
        return {"num_classes": batch // PER_CLASS, "embedding_size": DIM}

    multi_similarity = {"alpha": 2, "beta": 50, "base": 0.5}
    return {
        "contrastive": Peer(
            lambda _: losses.ContrastiveLoss(1, 0.5, distance=cosine, reducer=reducers.SumReducer()),
            {"margin": 0.5},
            contrastive,
        ),
        "triplet_margin": Peer(
            lambda _: losses.TripletMarginLoss(0.1, distance=cosine), {"reduction": "nonzero"}, same, listed=True
        ),
        "n_pairs": Peer(lambda _: losses.NPairsLoss(), {"l2": 0.0}, differs="its pair of a class is drawn"),
        "n_pairs with l2": Peer(
            lambda _: losses.NPairsLoss(
                embedding_regularizer=regularizers.LpRegularizer(power=2), embedding_reg_weight=0.0015
            ),
            {"l2": 0.0015},
            differs="its pair of a class is drawn",
        ),
        "angular": Peer(lambda _: losses.AngularLoss(40), {}, differs="it takes all triplets, not pairs", listed=True),
        "lifted_structure": Peer(
            lambda _: losses.GeneralizedLiftedStructureLoss(neg_margin=0, pos_margin=1, distance=cosine), {}, same
        ),
        "raw": Peer(lambda _: losses.MultiSimilarityLoss(**multi_similarity), {}, same),
        "multi_similarity": Peer(
            lambda _: Mined(losses.MultiSimilarityLoss(**multi_similarity), miners.MultiSimilarityMiner(0.1)), {}, same
        ),
        "margin": Peer(lambda _: losses.MarginLoss(0.2, beta=1.2), {}, same, listed=True),
        "normalized_softmax": Peer(
            lambda batch: losses.NormalizedSoftmaxLoss(**classes_of(batch), temperature=0.05),
            {},
            same,
            proxies=("proxies", "W", True),
        ),
        "proxy_nca": Peer(
            lambda batch: losses.ProxyNCALoss(**classes_of(batch), softmax_scale=1),
            {"positive_in_denominator": True},
            same,
            proxies=("proxies", "proxies", False),
        ),
        "proxy_anchor": Peer(
            lambda batch: losses.ProxyAnchorLoss(**classes_of(batch), margin=0.1, alpha=32),
            {},
            same,
            proxies=("proxies", "proxies", False),
        ),
        "soft_triple": Peer(
            lambda batch: losses.SoftTripleLoss(**classes_of(batch), centers_per_class=10, la=20, gamma=0.1),
            {"tau": 0.0},
            same,
            proxies=("centers", "fc", True),
        ),
    }


PEERS = _peers()


def pair_of(name: str, batch: int) -> dict[str, Any]:
    """Ours and the peer's, with the same proxies."""
    found = {"ours": make(name, batch, **(PEERS[name].options if name in PEERS else {}))}
    if name in PEERS:
        found["peer"] = PEERS[name].make(batch)
        if PEERS[name].proxies is not None:
            mine, theirs, turned = PEERS[name].proxies or ("", "", False)
            values = getattr(found["ours"], mine).detach().flatten(0, -2)
            getattr(found["peer"], theirs).data = (values.T if turned else values).clone()
    return found


def call(name: str, side: str, batch: int) -> Callable[[], tuple[Tensor, ...]]:
    """Forward and backward of ours or of the peer, gradients of parameters included."""
    embeddings, classes = inputs(batch)
    embeddings.requires_grad_()
    loss = pair_of(name, batch)[side]
    leaves = [embeddings, *(p for p in loss.parameters() if p.requires_grad)]

    def run() -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(embeddings, classes), leaves, allow_unused=True)

    return run


def agreement(name: str, batch: int = 128) -> str:
    """How far the values are from the peer's in float64, relative to their size; or why they are not compared."""
    peer = PEERS[name]
    if peer.equal is None:
        return peer.differs
    embeddings, classes = inputs(batch, torch.float64)
    losses = {side: loss.double() for side, loss in pair_of(name, batch).items()}
    value = losses["ours"](embeddings, classes)
    expected = peer.equal(losses["peer"](embeddings, classes), classes)
    far = float(((value - expected) / expected).abs().detach())
    return f"{far:.0e}" if far else "0"


def beside_peers(names: list[str], sizes: list[int], clock: Callable[[], float]) -> str:
    head = ["loss", "B", "ours", "peer", "peer / ours", "peak: ours", "peer", "agreement"]
    rows = []
    for name in names:
        for batch in sizes:
            values = ["ours"]
            if name in PEERS and not (PEERS[name].listed and batch > LISTED):
                values.append("peer")
            calls = {side: call(name, side, batch) for side in values}
            times = alternate(calls, rounds=11 if batch <= 512 else 3, clock=clock)
            memory = {side: peak_memory(call, name, side, batch) / MIB for side in values if batch in MEASURED}
            peer = "peer" in times
            rows.append(
                [
                    name,
                    f"{batch:,}",
                    f"{1e3 * times['ours']:.1f} ms",
                    f"{1e3 * times['peer']:.1f} ms" if peer else "-",
                    f"{times['peer'] / times['ours']:.2f}" if peer else "-",
                    *(f"{memory[side]:,.0f} MiB" if side in memory else "-" for side in ("ours", "peer")),
                    agreement(name) if peer else "",
                ]
            )
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return table([head, *rows])


def in_blocks(name: str, batch: int) -> Callable[[], tuple[Tensor, ...]]:
    """Value and gradients of ours on a large batch, in blocks."""
    return _both(name, batch, None)


def _both(name: str, batch: int, block_rows: int | None) -> Callable[[], tuple[Tensor, ...]]:
    embeddings, classes = inputs(batch)
    embeddings.requires_grad_()
    labels = ClassLabels(classes)  # losses for graded labels refuse integers
    loss = make(name, batch)
    loss.block_rows = block_rows
    leaves = [embeddings, *loss.parameters()]

    def run() -> tuple[Tensor, ...]:
        value = loss(embeddings, labels)
        return value.detach(), *torch.autograd.grad(value, leaves, allow_unused=True)

    return run


def large(names: list[str], batch: int) -> str:
    rows = [["loss", "B", "time", "peak beyond the inputs", "against plain autograd: value", "gradient"]]
    for name in names:
        size = min(batch, 1024) if name == "dense_triplet" else batch
        peak = peak_memory(in_blocks, name, size) / MIB
        run = _both(name, size, None)
        run()
        start = time.perf_counter()
        blocks = run()
        seconds = time.perf_counter() - start
        plain = _both(name, size, size)()
        far = [float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(blocks, plain, strict=True)]
        rows.append([name, f"{size:,}", f"{seconds:.2f} s", f"{peak:,.0f} MiB", f"{far[0]:.0e}", f"{max(far[1:]):.0e}"])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 512, 1024, 2048], help="batches beside the peers")
    parser.add_argument("--large", type=int, default=8192, help="the large batch; 0 leaves it out")
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES, help="these losses alone")
    parser.add_argument("--busy", action="store_true", help="processor time of one thread, beside other programs")
    given = parser.parse_args()
    torch.set_num_threads(1 if given.busy else 2)
    print(heading("Class-label losses, forward and backward, d = 512, float32, beside pytorch-metric-learning"))
    if given.sizes:
        names = [name for name in PEERS if name.split(" with ")[0] in given.only]
        print(beside_peers(names, given.sizes, time.process_time if given.busy else time.perf_counter))
    if given.large:
        rowwise = [name for name in given.only if not getattr(LOSSES[name], "whole", False)]
        print(f"\nIn blocks, all anchors:\n\n{large(rowwise, given.large)}")


if __name__ == "__main__":
    main()
