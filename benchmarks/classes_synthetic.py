"""Every class loss on held-out drawn classes: Recall@1, same budget, backbone and sampler, three seeds.

    python -m benchmarks.classes_synthetic [--workers 2] [--only NAME ...] [--save FILE]

Trains `classes/synthetic` with each loss of the family and HDML, beside an untrained model and cross entropy; with one
seed also with miners as in Table 1 of "A Unified View of Deep Metric Learning via Gradient Analysis", with a memory,
and with other options. None is tuned, except as the variants show. Each worker has one thread. Results are
added to FILE, and read from there in the next run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.measure import heading, table
from contml.distances.euclidean import normalize
from contml.evaluation.retrieval import evaluate
from contml.experiment import load

SEEDS = (0, 1, 2)
#: Unnormalized embeddings: for losses whose papers do not normalize them.
_FREE = "model.normalize=false"
#: Proxies have ten times the learning rate of the network: most papers give them their own.
_PROXIES = "optimizer.loss_lr=0.02"
#: The same batch with two items per class: losses on one pair per class ignore all others.
_TWO = ("sampler.classes=48", "sampler.instances=2")
#: Name in the table: what is changed in the config.
LOSSES: dict[str, list[str]] = {
    "cross_entropy": ["loss=cross_entropy", _FREE],
    "cross_entropy, unit embeddings": ["loss=cross_entropy"],
    "contrastive": ["loss=contrastive"],
    "contrastive, euclidean": ["loss=contrastive", "loss.distance=euclidean"],
    "triplet_margin": ["loss=triplet_margin"],
    "n_pairs": ["loss=n_pairs", _FREE, *_TWO],
    "angular": ["loss=angular", _FREE, *_TWO],
    "lifted_structure": ["loss=lifted_structure"],
    "binomial_deviance": ["loss=binomial_deviance"],
    "raw": ["loss=raw"],
    "multi_similarity (raw + vthm)": ["loss=multi_similarity"],
    "margin": ["loss=margin"],
    "ranked_list": ["loss=ranked_list"],
    "normalized_softmax": ["loss=normalized_softmax", _PROXIES],
    "instance_cross_entropy": ["loss=instance_cross_entropy"],
    "dro, topk": ["loss=dro", "loss.uncertainty=topk"],
    "dro, topk_pn": ["loss=dro", "loss.uncertainty=topk_pn"],
    "dro, kl": ["loss=dro", "loss.uncertainty=kl"],
    "proxy_nca": ["loss=proxy_nca", _PROXIES],
    "proxy_anchor": ["loss=proxy_anchor", _PROXIES],
    "soft_triple": ["loss=soft_triple", _PROXIES],
    "log_ratio (0 / 1)": ["loss=log_ratio", _FREE],
    "dense_triplet (0 / 1)": ["loss=dense_triplet"],
    "hdml, triplet": [
        "loss=triplet_margin",
        "loss.distance=squared_euclidean",
        "loss.reduction=sum",
        "loss.margin=1",
        "step=hdml",
    ],
    "hdml, n_pairs": ["loss=n_pairs", "step=hdml", _FREE, *_TWO],
}
#: Miners, a memory, and options that explain why a loss is worse: one seed.
VARIANTS: dict[str, list[str]] = {
    "triplet_margin, nonzero": ["loss=triplet_margin", "loss.reduction=nonzero"],
    "proxy_nca++": ["loss=proxy_nca", "loss.scale=3", "loss.positive_in_denominator=true", _PROXIES],
    "lifted_structure + vthm": ["loss=lifted_structure", "miner=vthm"],
    "dro, topk, binomial": ["loss=dro", "loss.pair=binomial"],
    "dro, topk of 2,000": ["loss=dro", "loss.k=2000"],
    "contrastive, margin -1, + vthm": ["loss=contrastive", "loss.margin=-1", "miner=vthm"],
    "binomial_deviance + vthm": ["loss=binomial_deviance", "miner=vthm"],
    "raw + semi_hard": ["loss=raw", "miner=semi_hard"],
    "raw + distance_weighted": ["loss=raw", "miner=distance_weighted"],
    "margin + distance_weighted": ["loss=margin", "miner=distance_weighted"],
    "triplet_margin + hardest": ["loss=triplet_margin", "miner=hardest"],
    "multi_similarity + memory": ["loss=multi_similarity", "memory.size=1024"],
    "binomial_deviance, beta 10": ["loss=binomial_deviance", "loss.beta=10"],
    "dro, topk_pn of 2,000": ["loss=dro", "loss.uncertainty=topk_pn", "loss.k=2000"],
    "dro, kl, gamma 1": ["loss=dro", "loss.uncertainty=kl", "loss.gamma=1"],
    "n_pairs, unit embeddings": ["loss=n_pairs", *_TWO],
    "n_pairs, l2 0.1": ["loss=n_pairs", "loss.l2=0.1", _FREE, *_TWO],
    "angular, unit embeddings": ["loss=angular", *_TWO],
    "dense_triplet, margin 0.3": ["loss=dense_triplet", "loss.margin=0.3"],
    "normalized_softmax, proxies at 2e-3": ["loss=normalized_softmax"],
    "soft_triple, centers at 2e-3": ["loss=soft_triple"],
    "hdml, triplet, beta 300": [
        "loss=triplet_margin",
        "loss.distance=squared_euclidean",
        "loss.reduction=sum",
        "loss.margin=1",
        "step=hdml",
        "step.beta=300",
    ],
    "triplet_margin as in hdml": [
        "loss=triplet_margin",
        "loss.distance=squared_euclidean",
        "loss.reduction=sum",
        "loss.margin=1",
    ],
}
METHODS = LOSSES | VARIANTS


def train(method: str, seed: int) -> dict[str, float]:
    """Recall@1 of the untrained and of the trained model, and the seconds that it took."""
    torch.set_num_threads(1)
    changes = [*METHODS[method], "training.evaluate_every=1000", f"seed={seed}"]
    experiment = load("classes/synthetic", changes)
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    before = trainer.evaluate()[0].curves["recall"].model[0]
    start = time.perf_counter()
    trainer.fit()
    assert trainer.result is not None
    curves, embeddings = trainer.result[0].curves, trainer.result[1].embeddings
    cosine = evaluate(normalize(embeddings), task.test.labels)[0].curves["recall"].model[0]
    return {
        "untrained": before,
        "recall": curves["recall"].model[0],
        "cosine": cosine,
        "random": curves["recall"].random[0],
        "seconds": time.perf_counter() - start,
    }


def _job(job: tuple[str, int]) -> tuple[str, int, dict[str, float]]:
    return *job, train(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS), help="these methods alone")
    parser.add_argument("--save", type=Path, help="file that keeps what was measured")
    given = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    if given.save is not None and given.save.exists():
        found = json.loads(given.save.read_text())
    wanted = [(name, seed) for seed in SEEDS for name in given.only if seed == SEEDS[0] or name in LOSSES]
    jobs = [(name, seed) for name, seed in wanted if f"{name}/{seed}" not in found]
    with get_context("spawn").Pool(given.workers) as pool:
        for name, seed, result in pool.imap_unordered(_job, jobs):
            found[f"{name}/{seed}"] = result
            print(name, seed, f"{result['recall']:.3f} in {result['seconds']:.0f} s", file=sys.stderr, flush=True)
            if given.save is not None:
                given.save.write_text(json.dumps(found, indent=1))
    rows = [["method", *(f"seed {seed}" for seed in SEEDS), "mean", "ranked by cosine", "seconds a run"]]
    every = list(found.values())
    for name in given.only:
        runs = [found.get(f"{name}/{seed}") for seed in SEEDS]
        recalls = [run["recall"] for run in runs if run]
        seconds = statistics.median(run["seconds"] for run in runs if run)
        each = [f"{run['recall']:.3f}" if run else "-" for run in runs]
        cosine = "-"  # the same on the unit sphere
        if _FREE in METHODS[name]:
            cosine = f"{statistics.mean(run['cosine'] for run in runs if run):.3f}"
        rows.append([name, *each, f"{statistics.mean(recalls):.3f}", cosine, f"{seconds:.0f}"])
    rows[1:] = sorted(rows[1:], key=lambda row: -float(row[4]))
    untrained = [found[f"triplet_margin/{seed}"]["untrained"] for seed in SEEDS]
    mean = statistics.mean(untrained)
    rows.append(["untrained", *(f"{value:.3f}" for value in untrained), f"{mean:.3f}", "-", "-"])
    rows.append(["by chance", *["-"] * len(SEEDS), f"{every[0]['random']:.3f}", "-", "-"])
    print(heading("Recall@1 of held-out drawn classes"))
    print(table(rows))


if __name__ == "__main__":
    main()
