"""Distances of caption sets: ours against gensim's wmdistance and a loop over POT's emd2; nearest sets.

    python -m benchmarks.caption_distance [--clone 80000] [--queries N]

Uses Flickr8k's captions with GloVe vectors from `CONTML_DATA`, or `../shared/data` beside the checkout; else random
captions. The other libraries run on a sample of the caption pairs of a batch, in turn with ours in one process, and
their times are scaled to the batch; all values of the sample are checked to be equal. `--clone` finds the nearest sets
among so many clones of the real captions, whose words are drawn again with probability 0.3, in a fresh process, and
measures its peak memory.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ot
import torch
from gensim.models import KeyedVectors

from benchmarks.measure import alternate, heading, peak_memory, table
from contml.labels import CaptionLabels
from contml.labels.caption_words import tokens
from contml.transport import word_movers_distance

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data")) / "flickr8k_1500"
IMAGES, SAMPLE, ROUNDS, BRUTE = 150, 2_000, 5, 12
KS = (5, 30)


def corpus() -> tuple[list[list[str]], KeyedVectors, str]:
    """Captions of images, word vectors, and what they are."""
    if DATA.is_dir():
        images: dict[str, list[str]] = {}
        with gzip.open(DATA / "Flickr8k.token.full.txt.gz", "rt") as file:
            for line in file:
                name, caption = line.rstrip("\n").split("\t")
                images.setdefault(name.split("#")[0], []).append(caption)
        path = DATA / "word_vectors" / "glove.6B.50d.flickr8k.bin"
        vectors = KeyedVectors.load_word2vec_format(str(path), binary=True)
        return list(images.values()), vectors, "Flickr8k, GloVe 50d"
    random = np.random.default_rng(0)
    vectors, words = KeyedVectors(50), [f"w{number}" for number in range(4000)]
    vectors.add_vectors(words, random.normal(size=(4000, 50)).astype(np.float32))
    share = 1 / np.arange(1, 4001)
    draw = random.choice(words, (2000, 5, 6), p=share / share.sum())
    return [[" ".join(caption) for caption in image] for image in draw], vectors, "random captions"


def clone(images: list[list[str]], vectors: KeyedVectors, number: int) -> list[list[str]]:
    """Clones of random images: each word is kept with probability 0.7, else drawn from the words of the corpus."""
    random = np.random.default_rng(0)
    bags = [[[w for w in tokens(caption) if w in vectors] for caption in image] for image in images]
    words = np.array([word for image in bags for caption in image for word in caption])
    clones = []
    for row in random.integers(0, len(bags), number):
        flat = [word for caption in bags[row] for word in [*caption, ""]]  # "" ends a caption
        drawn, kept = words[random.integers(0, len(words), len(flat))], random.random(len(flat)) < 0.7
        text = " ".join(old if old == "" or keep else new for old, new, keep in zip(flat, drawn, kept, strict=True))
        clones.append([caption for caption in text.split("  ") if caption.strip()])
    return [image for image in clones if image]


class Batch:
    """The captions of a batch of images, ready for every solver, and a sample of caption pairs."""

    def __init__(self) -> None:
        images, self.vectors, self.name = corpus()
        images = images[:IMAGES]
        self.space = CaptionLabels(images, self.vectors)
        bags = [[[w for w in tokens(caption) if w in self.vectors] for caption in image] for image in images]
        self.bags = [bag for image in bags for bag in image if bag]
        self.same_count = all(len(image) == 5 and all(image) for image in bags)
        number = {word: row for row, word in enumerate(sorted({word for bag in self.bags for word in bag}))}
        matrix = np.array([self.vectors[word] for word in number], dtype=np.float64)
        self.costs = ot.dist(matrix, matrix, metric="euclidean")
        self.numbers = [np.array([number[w] for w in sorted(set(bag))]) for bag in self.bags]
        self.shares = [np.array([bag.count(w) / len(bag) for w in sorted(set(bag))]) for bag in self.bags]
        self.pairs = len(self.space) * (len(self.space) - 1) // 2 * 25
        random = np.random.default_rng(0)
        self.sample = np.array([random.choice(len(self.bags), 2, replace=False) for _ in range(SAMPLE)])
        self.gensim_sample = self.sample[: SAMPLE // 4]  # gensim takes longer

    def gensim(self) -> list[float]:
        return [self.vectors.wmdistance(self.bags[a], self.bags[b], norm=False) for a, b in self.gensim_sample]

    def pot(self) -> list[float]:
        return [
            ot.emd2(self.shares[a], self.shares[b], self.costs[np.ix_(self.numbers[a], self.numbers[b])])
            for a, b in self.sample.tolist()
        ]

    def word_movers(self) -> torch.Tensor:
        return word_movers_distance(self.bags, self.bags, self.vectors)

    def check(self, found: dict[str, Any]) -> None:
        """All solvers agree on the sample, and D is the sum of minima of W."""
        w = found["ours, every W"].numpy()
        for peer, sample in (("gensim wmdistance", self.gensim_sample), ("POT emd2 loop", self.sample)):
            np.testing.assert_allclose(w[sample[:, 0], sample[:, 1]], found[peer], rtol=1e-5, atol=1e-5)
        if self.same_count:
            blocks = w.reshape(len(self.space), 5, len(self.space), 5)
            expected = blocks.min(3).sum(1) + blocks.min(1).sum(2)
            np.testing.assert_allclose(found["ours, D"].numpy(), expected, rtol=1e-5, atol=1e-5)


def batch() -> str:
    """Times of the label distances of one batch."""
    data = Batch()
    solvers: dict[str, tuple[Callable[[], Any], int]] = {  # each with the number of caption pairs that it solves
        "gensim wmdistance": (data.gensim, len(data.gensim_sample)),
        "POT emd2 loop": (data.pot, len(data.sample)),
        "ours, every W": (data.word_movers, data.pairs),
        "ours, D": (data.space.pairwise, data.pairs),
    }
    found: dict[str, Any] = {}
    processor_times: dict[str, list[float]] = {name: [] for name in solvers}

    def measured(name: str, function: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            start = time.process_time()
            found[name] = function()
            processor_times[name].append(time.process_time() - start)

        return run

    wall_times = alternate({name: measured(name, function) for name, (function, _) in solvers.items()}, ROUNDS)
    data.check(found)
    rows = [
        ["a batch of label distances", "seconds", "caption pairs/s", "time / ours, D", "CPU seconds", "CPU / ours, D"]
    ]
    seconds = {}
    for name, (_, pairs) in solvers.items():
        scale = data.pairs / pairs
        seconds[name] = wall_times[name] * scale, statistics.median(processor_times[name][1:]) * scale
    our_wall, our_cpu = seconds["ours, D"]
    for name, (wall, cpu) in seconds.items():
        rate = f"{data.pairs / wall:,.0f}"
        rows.append([name, f"{wall:.3f}", rate, f"{wall / our_wall:.0f}", f"{cpu:.3f}", f"{cpu / our_cpu:.0f}"])
    return table(rows) + (
        f"\n\n{data.name}; {len(data.space)} images, {data.pairs:,} caption pairs; gensim on {len(data.gensim_sample)} "
        f"of them, POT on {len(data.sample)}; median of {ROUNDS} rounds.\n"
    )


def graph() -> str:
    """Times of the k-nearest graph of all images."""
    images, vectors, name = corpus()
    space = CaptionLabels(images, vectors, empty="drop")
    space.nearest(1, range(4))  # compiles
    queries = np.random.default_rng(1).choice(len(space), BRUTE, replace=False).tolist()
    start = time.perf_counter()
    block = space.pairwise(queries)
    brute = (time.perf_counter() - start) / BRUTE * len(space)
    rows = torch.tensor(queries)
    block[torch.arange(BRUTE), rows] = torch.inf
    distances, order = block.sort(dim=1, stable=True)
    body = []
    for k in KS:
        start = time.perf_counter()
        found = space.nearest(k)
        spent = time.perf_counter() - start
        assert torch.equal(found.rows[rows], order[:, :k]), "not the neighbours that brute force finds"
        assert torch.equal(found.distances[rows], distances[:, :k])
        body.append([str(k), f"{spent:.1f}", f"{brute:.0f}", f"{brute / spent:.0f}"])
    head = ["k", "nearest, seconds", "brute force, seconds", "ratio"]
    note = (
        f"\n{name}: {len(space)} images; brute force (ours, pruned) on {BRUTE} queries, whose neighbours are equal.\n"
    )
    return table([head, *body]) + "\n" + note


def clone_call(number: int, queries: int, k: int) -> Callable[[], None]:
    """The call to measure: the nearest sets of some clones among all."""
    images, vectors, _ = corpus()
    space = CaptionLabels(clone(images, vectors, number), vectors)
    space.nearest(1, range(4), among=range(100))  # compiles

    def run() -> None:
        start, core = time.perf_counter(), time.process_time()
        rows = None if queries >= number else np.linspace(0, number - 1, queries).astype(int).tolist()
        space.nearest(k, rows)
        spent, core = time.perf_counter() - start, time.process_time() - core
        whole = "" if rows is None else f" (for all {number:,}: {spent / queries * number / 60:.1f} min at that rate)"
        took = f"{spent:.1f} s ({core:.1f} CPU seconds)"
        print(f"k = {k}: {took} for {min(queries, number):,} of {len(space):,} clones{whole}", flush=True)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", type=int, help="only the nearest sets among so many clones")
    parser.add_argument("--queries", type=int, default=10**9, help="search for so many of the clones")
    parser.add_argument("--batch", action="store_true", help="only the batch")
    parser.add_argument("-k", type=int, default=30, help="neighbours of a clone")
    given = parser.parse_args()
    print(heading("Distances of caption sets"))
    if given.clone:
        peak = peak_memory(clone_call, given.clone, given.queries, given.k)
        print(f"Peak memory beyond the packed captions: {peak / 2**20:,.0f} MiB")
        return
    print(batch())
    if not given.batch:
        print(graph())


if __name__ == "__main__":
    main()
