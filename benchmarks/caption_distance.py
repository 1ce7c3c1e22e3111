"""Distances of caption sets: ours against gensim's wmdistance and a loop over POT's emd2; nearest sets.

    python -m benchmarks.caption_distance [--clone 80000] [--queries N]

On Flickr8k's captions with GloVe vectors from `CONTML_DATA`, or `../shared/data` beside the checkout; on random
captions where there are none. The peers run on a sample of the batch's caption pairs, alternating with ours in one
process, and are scaled to the batch; all values of the sample are checked equal. `--clone` finds the nearest sets of so
many clones of the real captions, whose words are drawn again with probability 0.3, in a fresh process whose peak memory
is measured.
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
from contml.distances import smallest
from contml.labels import CaptionLabels
from contml.labels.captions import load_word_vectors, tokens
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
        vectors = load_word_vectors(DATA / "word_vectors" / "glove.6B.50d.flickr8k.bin")
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


def batch() -> str:
    """Times of one batch's label distances."""
    images, vectors, name = corpus()
    images = images[:IMAGES]
    space = CaptionLabels(images, vectors)
    bags = [[w for w in tokens(caption) if w in vectors] for image in images for caption in image]
    bags = [bag for bag in bags if bag]
    number = {word: row for row, word in enumerate(sorted({word for bag in bags for word in bag}))}
    matrix = np.array([vectors[word] for word in number], dtype=np.float64)
    costs = ot.dist(matrix, matrix, metric="euclidean")
    packed = [(np.array([number[w] for w in sorted(set(bag))]), sorted(set(bag)), bag) for bag in bags]
    shares = [np.array([bag.count(w) / len(bag) for w in words]) for _, words, bag in packed]
    pairs = len(space) * (len(space) - 1) // 2 * 25
    random = np.random.default_rng(0)
    sample = np.array([random.choice(len(bags), 2, replace=False) for _ in range(SAMPLE)])
    some = sample[: SAMPLE // 4]  # gensim takes longer
    found: dict[str, Any] = {}

    def gensim() -> None:
        found["gensim"] = [vectors.wmdistance(bags[a], bags[b], norm=False) for a, b in some]

    def pot() -> None:
        found["pot"] = [
            ot.emd2(shares[a], shares[b], costs[np.ix_(packed[a][0], packed[b][0])]) for a, b in sample.tolist()
        ]

    def ours() -> None:
        found["ours"] = space.pairwise()

    def every() -> None:
        found["every"] = word_movers_distance(bags, bags, vectors)

    spent: dict[str, list[float]] = {}

    def counted(name: str, function: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            start = time.process_time()
            function()
            spent.setdefault(name, []).append(time.process_time() - start)

        return run

    median = alternate(
        {
            name: counted(name, call)
            for name, call in {"gensim": gensim, "pot": pot, "ours": ours, "every": every}.items()
        },
        ROUNDS,
    )
    cpu = {name: statistics.median(times[1:]) for name, times in spent.items()}
    every_pair = found["every"].numpy()
    for peer, used in (("gensim", some), ("pot", sample)):
        np.testing.assert_allclose(every_pair[used[:, 0], used[:, 1]], found[peer], rtol=1e-5, atol=1e-5)
    owner = np.repeat(np.arange(len(space)), [len(image) for image in images])[: len(bags)]
    if len(owner) == len(bags) == 5 * len(space):  # D of all pairs from the W of all pairs
        blocks = every_pair.reshape(len(space), 5, len(space), 5)
        expected = blocks.min(3).sum(1) + blocks.min(1).sum(2)
        np.testing.assert_allclose(found["ours"].numpy(), expected, rtol=1e-5, atol=1e-5)
    share = {"gensim": pairs / len(some), "pot": pairs / len(sample), "every": 1, "ours": 1}
    names = {"gensim": "gensim wmdistance", "pot": "POT emd2 loop", "every": "ours, every W", "ours": "ours, D"}
    head = [
        "a batch of label distances",
        "seconds",
        "caption pairs/s",
        "time / ours, D",
        "CPU seconds",
        "CPU / ours, D",
    ]
    body = []
    for who, name_of in names.items():
        wall, core = median[who] * share[who], cpu[who] * share[who]
        rate, ratio, each = f"{pairs / wall:,.0f}", wall / median["ours"], core / cpu["ours"]
        body.append([name_of, f"{wall:.3f}", rate, f"{ratio:.0f}", f"{core:.3f}", f"{each:.0f}"])
    note = (
        f"\n{name}; {len(space)} images, {pairs:,} caption pairs; gensim on {len(some)} of them, POT on {len(sample)}; "
        f"median of {ROUNDS} rounds.\n"
    )
    return table([head, *body]) + "\n" + note


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
    body = []
    for k in KS:
        expected = smallest(block, torch.arange(len(space)), k, excluded=rows[:, None] == torch.arange(len(space)))
        start = time.perf_counter()
        found = space.nearest(k)
        spent = time.perf_counter() - start
        assert torch.equal(found.rows[rows], expected.rows), "not the neighbours that brute force finds"
        assert torch.equal(found.distances[rows], expected.distances)
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
    parser.add_argument(
        "--clone", type=int, help="nearest sets of so many clones of the real captions, and nothing else"
    )
    parser.add_argument("--queries", type=int, default=10**9, help="of so many of the clones only")
    parser.add_argument("--batch", action="store_true", help="one batch, and nothing else")
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
