"""Judged pairs of words and of captions, with vectors as items: are judgments of new items predicted better?

    python -m benchmarks.judged_words DATA [--save benchmarks/results/judged_words.md]

DATA holds the packs (the maintainers' `shared/data`). Items are words, or captions; nothing has an image.

- SimLex-999 (Hill, Reichart, Korhonen, 2015), from the test data of gensim: 999 pairs of 1,028 words, similarity 0 to
  10. A word is its 50-d GloVe vector; pairs with a word that the file lacks are left out.
- Crisscrossed Captions (Parekh et al., 2021), pack cxc_val2017: 6,531 pairs of captions, similarity 0 to 5. A caption
  is the mean of the GloVe vectors of its words.

30 % of the items are drawn for the test (`divide`, by item): no judgment of theirs is trained on, and pairs of a test
and a training item are left out. A linear head of 50 dimensions, which starts as the identity, is trained on the
training pairs with cosent: 200 steps of 96 items, Adam with a learning rate of 0.001; no option was tuned. The metric
is Spearman's correlation of judged similarity and cosine similarity on the test pairs, untrained and trained, and their
difference; half the 95 % interval counts pairs that share an item as dependent.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import heading, table
from contml._support.files import write
from contml.captioning import tokenize
from contml.data.carve import divide
from contml.evaluation import half_width
from contml.evaluation.judgments import spearman_values
from contml.labels import PairLabels
from contml.losses import CoSENTLoss
from contml.sampling import JudgedSampler

SEEDS, TEST = (0, 1, 2), 0.3
_STEPS, _BATCH, _LR = 200, 96, 1e-3

Vectors = Mapping[str, "np.ndarray[Any, np.dtype[np.float32]]"]


class Judged(NamedTuple):
    """Judged pairs of items with vectors.

    Attributes:
        names: of the items `[N]`.
        vectors: `[N, 50]`.
        labels: their judged pairs.
        about: what was left out, in words.
    """

    names: list[str]
    vectors: Tensor
    labels: PairLabels
    about: str


def glove(data: Path) -> Vectors:
    """The vectors of the words of the pack."""
    from gensim.models import KeyedVectors

    file = data / "flickr8k_1500/word_vectors/glove.6B.50d.flickr8k.bin"
    keyed = KeyedVectors.load_word2vec_format(str(file), binary=True)
    return {word: keyed[word] for word in keyed.index_to_key}


def simlex_rows() -> list[tuple[str, str, float]]:
    """The pairs of SimLex-999 with their similarity."""
    import gensim

    file = Path(gensim.__file__).parent / "test/test_data/simlex999.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    cells = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(a, b, float(score)) for a, b, score in cells]


def simlex(vectors: Vectors) -> Judged:
    """The pairs of SimLex-999 whose words both have a vector."""
    rows = simlex_rows()
    words = {word for row in rows for word in row[:2]}
    known = [row for row in rows if row[0] in vectors and row[1] in vectors]
    names = sorted({word for row in known for word in row[:2]})
    number = {name: n for n, name in enumerate(names)}
    pairs = [[number[a], number[b]] for a, b, _ in known]
    labels = PairLabels.from_similarities(pairs, [score for *_, score in known], len(names), largest=10.0)
    found = sum(word in vectors for word in words)
    about = f"{found:,} of {len(words):,} words have a vector, both words of {len(known):,} of {len(rows):,} pairs"
    return Judged(names, torch.tensor(np.stack([vectors[name] for name in names])), labels, about)


def captions(data: Path, vectors: Vectors) -> Judged:
    """The judged pairs of captions of Crisscrossed Captions."""
    with (data / "cxc_val2017/sts.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["caption1"], row["caption2"], float(row["human"])) for row in csv.DictReader(file)]
    found = {text: [vectors[w] for w in tokenize(text) if w in vectors] for row in rows for text in row[:2]}
    names = sorted(text for text, words in found.items() if words)
    number = {name: n for n, name in enumerate(names)}
    known = [row for row in rows if row[0] in number and row[1] in number and row[0] != row[1]]
    pairs = [[number[a], number[b]] for a, b, _ in known]
    labels = PairLabels.from_similarities(pairs, [score for *_, score in known], len(names), largest=5.0)
    about = f"{len(known):,} of {len(rows):,} pairs, of {len(names):,} captions"
    return Judged(names, torch.tensor(np.stack([np.mean(found[name], axis=0) for name in names])), labels, about)


def train(labels: PairLabels, vectors: Tensor, seed: int) -> Tensor:
    """The vectors of all items after the head that is trained on some of their judgments."""
    torch.manual_seed(seed)
    head, loss = nn.Linear(vectors.shape[1], vectors.shape[1], bias=False), CoSENTLoss()
    nn.init.eye_(head.weight)
    optimizer = torch.optim.Adam(head.parameters(), lr=_LR)
    sampler = JudgedSampler(_BATCH, labels=labels, seed=seed)
    for step in range(_STEPS):
        rows = sampler.batch(*divmod(step, len(sampler)))
        value = loss(head(vectors[rows]), labels[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        embedded: Tensor = head(vectors)
    return embedded


def measure(judged: Judged, seed: int) -> list[str]:
    """A row of the table: pairs, Spearman untrained and trained, and the difference with its interval."""
    kept, drawn = divide(judged.labels, judged.names, TEST, "item", seed, "test")
    pairs = drawn.judged_pairs
    assert not set(kept.judged_pairs.rows.flatten().tolist()) & set(pairs.rows.flatten().tolist())
    values = {}
    for name, vectors in (("untrained", judged.vectors), ("trained", train(kept, judged.vectors, seed))):
        unit = nn.functional.normalize(vectors.double())
        distances = (unit[pairs.rows[:, 0]] - unit[pairs.rows[:, 1]]).norm(dim=1)
        values[name] = torch.from_numpy(spearman_values(distances.numpy(), pairs.distances.numpy()))
    values["difference"] = values["trained"] - values["untrained"]
    cells = [f"{float(each.mean()):.3f} ± {half_width(each, pairs.rows):.3f}" for each in values.values()]
    return [f"{kept.judged:,}", f"{drawn.judged:,}", *cells]


def main() -> None:
    """Measure both, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder of the packs")
    parser.add_argument("--save", type=Path, help="the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    vectors = glove(options.data)
    rows, about = [["data", "seed", "training pairs", "test pairs", "untrained", "trained", "difference"]], []
    for name, judged in (("SimLex-999", simlex(vectors)), ("CxC captions", captions(options.data, vectors))):
        about.append(f"{name}: {judged.about}.")
        rows += [[name, str(seed), *measure(judged, seed)] for seed in SEEDS]
    text = f"{heading('Judged words and captions')}\n`python -m benchmarks.judged_words DATA`. "
    text += "\n\n".join(str(__doc__).split("\n\n")[2:]) + f"\n{' '.join(about)}\n\n{table(rows)}\n"
    print(text)
    if options.save:
        write(options.save, lambda path: path.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
