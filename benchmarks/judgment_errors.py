"""Wrong judgments that were planted, found by the audit: precision at the number of planted ones.

    python -m benchmarks.judgment_errors [--minutes M] [--save benchmarks/results/judgment_errors.md]

Items are drawn as in `benchmarks.judged_pairs`: 300, each with two hidden numbers and 64 features. Judges perceive the
true distances, from 0 to 10, with noise of standard deviation 1. Then 5 % of the judgments are made wrong:

- pairs: 3,000 scores of random pairs, as whole numbers; wrong: another score, which differs by at least 3;
- triplets: 3,000 answers, which of two items is nearer; wrong: the other answer;
- odd one out: 3,000 answers; wrong: another answer;
- rankings: 60 queries with 10 items each, graded 0 to 4; wrong: a grade that differs by at least 2.

"Three judges": 1,000 pairs, each judged by three. "20 items": triplets of 20 of the items, so that many triplets are
repeated, or imply the answer to another one. A network of two layers is trained for 200 steps of 96 items, three times
without a third of the judgments (pairs: log_ratio; triplets: the step "triplets"; rankings: the step "rankings" with
smooth_rank). Methods: the audit (`contml.evaluation.judgment_errors`); its two sources of evidence alone, the network
that has not seen the judgment and the other judgments; and the hidden truth: how far a judgment is from the true
distances, which no method can know. Precision: the share of wrong judgments among the N with the highest scores, N
being the number of wrong ones. A random order has 0.05.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.judged_pairs import FEATURES, draw_items
from benchmarks.measure import heading, table
from contml._support.files import write
from contml.app.audit import draw_folds
from contml.app.trials.record import FinishedTrainings
from contml.evaluation import half_width
from contml.evaluation.judgment_errors import ScoredJudgments, judgment_errors
from contml.labels import JudgedItems, PairLabels, RankingLabels, TripletLabels
from contml.labels.judged import ANSWER_PAIRS
from contml.losses import LogRatioLoss, SmoothRankLoss
from contml.sampling import JudgedSampler
from contml.training import EmbeddingStep, RankingStep, TrainingStep, TripletStep

ITEMS, FOLDS, SHARE = 300, 3, 0.05
SEEDS = (0, 1, 2)
KINDS = ("pairs", "pairs, three judges", "triplets", "triplets, 20 items", "odd one out", "rankings")
METHODS = ("audit", "network alone", "others alone", "hidden truth")
_STEPS, _BATCH, _LR, _NOISE = 200, 96, 1e-3, 1.0

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Planted(NamedTuple):
    """Judgments, and which of them were made wrong: the rows of the items and what was judged."""

    labels: JudgedItems
    wrong: set[tuple[float, ...]]


def _perceived(hidden: Floats, a: Any, b: Any, random: np.random.Generator) -> Floats:
    """The distances of items, 0 to 10, with noise."""
    distances: Floats = 10 / np.sqrt(2) * np.linalg.norm(hidden[a] - hidden[b], axis=-1)
    return distances + random.normal(0, _NOISE, distances.shape)


def plant(kind: str, hidden: Floats, seed: int) -> Planted:
    """The judgments of a kind, with wrong ones among them."""
    random, form = np.random.default_rng([seed, KINDS.index(kind)]), kind.partition(", ")[0]
    judges, among = 3 if kind.endswith("three judges") else 1, 20 if kind.endswith("20 items") else ITEMS
    if form == "rankings":
        rows = [(q, i) for q in range(60) for i in random.choice(np.delete(np.arange(ITEMS), q), 10, replace=False)]
        items = np.array(rows)
    else:
        size = 2 if form == "pairs" else 3
        items = np.stack([random.choice(among, size, replace=False) for _ in range(3000 // judges)])
        items = np.repeat(items, judges, axis=0)
    bad = random.permutation(len(items))[: round(SHARE * len(items))]
    if form in ("pairs", "rankings"):
        distances = _perceived(hidden, items[:, 0], items[:, 1], random)
        high, gap = (10, 3) if form == "pairs" else (4, 2)
        given = np.clip(np.round(distances if form == "pairs" else 4 - 0.8 * distances), 0, high)
        for row in bad:
            given[row] = random.choice([v for v in range(high + 1) if abs(v - given[row]) >= gap])
        labels: JudgedItems
        if form == "pairs":
            labels = PairLabels(items, given, ITEMS, "points")
            keys = np.sort(items, axis=1)
        else:
            labels, keys = RankingLabels(items, given, ITEMS, missing="drop"), items
        return Planted(labels, {(*keys[row].tolist(), given[row]) for row in bad})
    pairs = ((0, 1), (0, 2)) if form == "triplets" else ((1, 2), (0, 2), (0, 1))
    distances = np.stack([_perceived(hidden, items[:, i], items[:, j], random) for i, j in pairs], axis=1)
    answers = distances.argmin(1)
    answers[bad] = (answers[bad] + random.integers(1, len(pairs), len(bad))) % len(pairs)
    labels = TripletLabels(items, answers, ITEMS, odd_one_out=len(pairs) == 3)
    # By the item that an answer names, since the label space sorts the items.
    named = items[np.arange(len(items)), answers + 3 - len(pairs)]
    return Planted(labels, {(*_triplet_key(items[row], len(pairs)), float(named[row])) for row in bad})


def _triplet_key(items: Any, answers: int) -> tuple[float, ...]:
    moved = 3 - answers
    return (*map(float, items[:moved]), *map(float, sorted(items[moved:])))


def _step(labels: JudgedItems) -> TrainingStep:
    if isinstance(labels, PairLabels):
        return EmbeddingStep(loss=LogRatioLoss(squared=False))
    return (
        TripletStep()
        if isinstance(labels, TripletLabels)
        else RankingStep(loss=SmoothRankLoss(metric="ndcg", kernel="linear", label_scale=1))
    )


def train(labels: JudgedItems, features: Tensor, seed: int) -> Tensor:
    """Embeddings of all items by a network that is trained on the judgments."""
    torch.manual_seed(seed)
    model, step = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 32)), _step(labels)
    normalized = not isinstance(labels, PairLabels)
    sampler = JudgedSampler(_BATCH, labels=labels, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    for number in range(_STEPS):
        rows = sampler.batch(*divmod(number, len(sampler)))
        value = step(model, features[rows], labels[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        embeddings: Tensor = model(features)
    return nn.functional.normalize(embeddings) if normalized else embeddings


def precision(scores: Tensor, is_planted: Tensor, count: int) -> float:
    """The share of planted judgments among the `count` of the highest scores."""
    return float(is_planted[scores.sort(descending=True, stable=True).indices[:count]].double().mean())


def planted_mask(planted: Planted, found: ScoredJudgments) -> Tensor:
    """Which of the judgments were made wrong `[A]`."""
    labels, keys = planted.labels, []
    for items, value in zip(found.items.tolist(), found.judged.tolist(), strict=True):
        if isinstance(labels, TripletLabels):
            keys.append((*map(float, items), float(items[int(value) + 3 - labels.counts.shape[1]])))
        else:
            keys.append((*map(float, items), value))
    return torch.tensor([key in planted.wrong for key in keys])


def truth(planted: Planted, found: ScoredJudgments, hidden: Floats) -> Floats:
    """How far each judgment is from the true distances `[A]`."""
    items, judged, labels = found.items.numpy(), found.judged.numpy(), planted.labels
    if isinstance(labels, TripletLabels):
        pairs = ANSWER_PAIRS[labels.counts.shape[1]]
        distances = np.stack([np.linalg.norm(hidden[items[:, i]] - hidden[items[:, j]], axis=1) for i, j in pairs], 1)
        chosen: Floats = distances[np.arange(len(items)), judged.astype(int)]
        error: Floats = chosen - distances.min(1)
        return error
    distances = 10 / np.sqrt(2) * np.linalg.norm(hidden[items[:, 0]] - hidden[items[:, 1]], axis=1)
    given: Floats = abs(judged - (distances if isinstance(labels, PairLabels) else np.clip(4 - 0.8 * distances, 0, 4)))
    return given


def measure(kind: str, seed: int) -> dict[str, float]:
    """The precision of each method; of others alone only where there are some."""
    data = draw_items(seed)
    features, hidden = data.features[:ITEMS], data.hidden[:ITEMS].numpy()
    planted = plant(kind, hidden, seed)
    labels, names = planted.labels, [str(n) for n in range(ITEMS)]
    folds = draw_folds(labels.judgment_names(names), FOLDS)
    spaces = [train(labels.keep((folds != fold).numpy()), features, seed) for fold in range(FOLDS)]
    found = judgment_errors(spaces, labels, folds=folds)
    blind = judgment_errors([torch.zeros(ITEMS, 1)] * FOLDS, labels, folds=folds)  # a network that knows nothing
    is_triplets = isinstance(labels, TripletLabels)
    scores = {
        "audit": found.scores,
        "network alone": -found.predicted if is_triplets else (found.judged - found.predicted).abs(),
        "hidden truth": torch.from_numpy(truth(planted, found, hidden)),
    }
    if int((found.judgments > 1).sum() + (found.implied_otherwise > 0).sum()) > len(found.scores) / 10:
        scores["others alone"] = blind.scores
    is_planted = planted_mask(planted, found)
    count = int(is_planted.sum())
    return {method: precision(each, is_planted, count) for method, each in scores.items()}


def results(record: FinishedTrainings) -> str:
    """The table: a row for each kind of judgments, a column for each method."""
    rows = [["judgments", "seeds", *METHODS, "random order"]]
    for kind in KINDS:
        found = [record[key] for seed in SEEDS if (key := f'["{kind}", {seed}]') in record]
        values = [[each[method] for each in found if method in each] for method in METHODS]
        cells = [
            f"{statistics.fmean(v):.2f} ± {half_width(v):.2f}" if len(v) > 1 else f"{v[0]:.2f}" if v else "-"
            for v in values
        ]
        rows.append([kind, str(len(found)), *cells, f"{SHARE}"])
    return table(rows)


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no training after so many minutes")
    parser.add_argument("--raw", type=Path, default=Path("benchmarks/results/raw/judgment_errors.jsonl"))
    parser.add_argument("--save", type=Path, help="the table")
    options = parser.parse_args()
    record, end = FinishedTrainings(options.raw), time.monotonic() + 60 * options.minutes
    for seed in SEEDS:
        for kind in KINDS:
            key = f'["{kind}", {seed}]'
            if key not in record and time.monotonic() < end:
                record.add(key, measure(kind, seed))
    about = "\n\n".join(str(__doc__).split("\n\n")[2:])
    text = f"{heading('Wrong judgments')}\n`python -m benchmarks.judgment_errors`. {about}\n"
    text += f"Mean and 95 % t interval over the seeds.\n\n{results(record)}\n"
    print(text)
    if options.save:
        write(options.save, lambda path: path.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
