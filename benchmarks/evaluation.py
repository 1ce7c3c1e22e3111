"""Evaluation compared: Recall@K with pytorch-metric-learning, nDCG and mean label distance with torchmetrics.

    python -m benchmarks.evaluation [--items 60502] [--queries 8000] [--save]

Recall@1, 10, 100, 1000 of embeddings of Stanford Online Products' size (60,502 items of 11,316 classes, 512
dimensions); each item searches all other items. It is compared with what a user of `AccuracyCalculator` would write: a
subclass with one metric per K, on the calculator's own neighbours, k=1000. nDCG@100 of lists of 400 items is compared
with torchmetrics' `RetrievalNormalizedDCG`, with gains 1 / (1 + D) and all lists at once. One thread; the two are timed
in turn in one process on the same inputs; peak memory is measured in fresh processes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import heading, peak_memory, table
from contml.evaluation import mean_label_distance_at_k, ndcg_at_k, recall_at_k

ITEMS, CLASSES, DIM = 60_502, 11_316, 512
KS = (1, 10, 100, 1000)
LIST = 400
MIB = 1 << 20
RESULT = Path(__file__).parent / "results" / "evaluation.md"


def embeddings(items: int) -> tuple[Tensor, Tensor]:
    """Unit vectors `[N, 512]` around class centres, and classes `[N]` of 2 to 12 items, in random order."""
    random = torch.Generator().manual_seed(0)
    classes = max(2, items * CLASSES // ITEMS)
    sizes = torch.full((classes,), 2)
    while (left := items - int(sizes.sum())) > 0:
        chosen = torch.randint(0, classes, (left,), generator=random)
        sizes = (sizes + torch.bincount(chosen, minlength=classes)).clamp(max=12)
    of_item = torch.arange(classes).repeat_interleave(sizes)[torch.randperm(items, generator=random)]
    centres = torch.randn(classes, DIM, generator=random)
    return normalize(centres[of_item] + 2.3 * torch.randn(items, DIM, generator=random)), of_item


def ours(items: int) -> Callable[[], dict[int, float]]:
    x, classes = embeddings(items)
    recall_at_k(x[:64], classes[:64])  # compiles machine code, or loads it

    return lambda: recall_at_k(x, classes, k=KS)


def theirs(items: int) -> Callable[[], dict[int, float]]:
    import faiss
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    def recall(k: int) -> Callable[..., float]:
        def calculate(_self: Any, knn_labels: Tensor, query_labels: Tensor, **_: Any) -> float:
            return (knn_labels[:, :k] == query_labels[:, None]).any(1).double().mean().item()

        return calculate

    names = {f"recall_at_{k}": k for k in KS}
    methods: dict[str, Any] = {f"calculate_{name}": recall(k) for name, k in names.items()}
    methods["requires_knn"] = lambda _self: list(names)
    calculator = type("Recall", (AccuracyCalculator,), methods)(include=tuple(names), k=max(KS))
    faiss.omp_set_num_threads(torch.get_num_threads())
    x, classes = embeddings(items)

    def run() -> dict[int, float]:
        found = calculator.get_accuracy(x, classes)
        return {k: found[name] for name, k in names.items()}

    return run


def lists(queries: int) -> tuple[Tensor, Tensor]:
    """Correlated embedding distances and label distances `[Q, 400]`."""
    random = torch.Generator().manual_seed(0)
    labels = 10 * torch.rand(queries, LIST, generator=random)
    return labels + 3 * torch.rand(queries, LIST, generator=random), labels


def ours_of_lists(queries: int) -> Callable[[], dict[str, float]]:
    distances, labels = lists(queries)
    return lambda: {"ndcg@100": ndcg_at_k(distances, labels, k=100)}


def theirs_of_lists(queries: int) -> Callable[[], dict[str, float]]:
    from torchmetrics.retrieval import RetrievalNormalizedDCG

    distances, labels = lists(queries)
    scores, gains = -distances.flatten(), (1 / (1 + labels)).flatten()
    of_query = torch.arange(queries).repeat_interleave(LIST)

    def run() -> dict[str, float]:
        metric = RetrievalNormalizedDCG(top_k=100)
        metric.update(scores, gains, indexes=of_query)
        return {"ndcg@100": float(metric.compute())}

    return run


def in_turn(functions: Mapping[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Returns the median wall seconds of each function, called in turn (A B, A B, ...), and their last results."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            results[name] = function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) for name, spent in times.items()}, results


def recall_table(items: int, rounds: int) -> str:
    peak = {library.__name__: peak_memory(library, items) / MIB for library in (ours, theirs)}
    times, found = in_turn({"ours": ours(items), "theirs": theirs(items)}, rounds)
    different = {k: round(items * (found["ours"][k] - found["theirs"][k])) for k in KS}
    # The peer ranks in float32: a near tie at the K-th place may fall either way.
    assert all(abs(queries) <= max(3, items // 10_000) for queries in different.values()), different
    head = [f"{items:,} x {DIM}", "time", "peak beyond the inputs", *(f"Recall@{k}" for k in KS)]
    rows = [
        [name, f"{times[key]:.1f} s", f"{peak[key]:,.0f} MiB", *(f"{found[key][k]:.6f}" for k in KS)]
        for name, key in (("contml", "ours"), ("pytorch-metric-learning", "theirs"))
    ]
    ratio = f"{times['theirs'] / times['ours']:.2f}", f"{peak['theirs'] / peak['ours']:.2f}"
    rows.append(["ratio; queries that differ", *ratio, *(str(abs(different[k])) for k in KS)])
    matrix = items * items * 4 / MIB
    return f"{table([head, *rows])}\n\nA matrix of all similarities in float32 would take {matrix:,.0f} MiB."


def list_table(queries: int, rounds: int) -> str:
    functions = {"ours": ours_of_lists(queries), "theirs": theirs_of_lists(queries)}
    for function in functions.values():
        function()  # warm up
    times, found = in_turn(functions, rounds)
    difference = abs(found["ours"]["ndcg@100"] - found["theirs"]["ndcg@100"])
    assert difference < 1e-6, difference
    head = [f"{queries:,} queries, lists of {LIST}", "time", "nDCG@100", "mean label distance@100"]
    rows = [
        [
            "contml",
            f"{1e3 * times['ours']:.0f} ms",
            f"{found['ours']['ndcg@100']:.8f}",
            f"{mean_label_distance_at_k(*lists(queries), k=100):.8f}",
        ],
        ["torchmetrics", f"{1e3 * times['theirs']:,.0f} ms", f"{found['theirs']['ndcg@100']:.8f}", "-"],
        ["ratio; difference", f"{times['theirs'] / times['ours']:.0f}", f"{difference:.0e}", ""],
    ]
    return table([head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS, help="embeddings for Recall@K; 0 omits it")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of Recall@K")
    parser.add_argument("--queries", type=int, default=8000, help="lists for nDCG; 0 omits it")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.name} to benchmarks/results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = [heading("Evaluation beside pytorch-metric-learning and torchmetrics")]
    if given.items:
        parts.append(recall_table(given.items, given.rounds) + "\n")
    if given.queries:
        parts.append(list_table(given.queries, 3) + "\n")
    text = "\n".join(parts)
    print(text)
    if given.save:
        RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
