"""Search through labels: does a posterior over the training items rank better than the embedding itself?

    python -m benchmarks.through_labels run DATA --weights FILE --folder FOLDER [--only PART ...]
    python -m benchmarks.through_labels page --save FILE

DATA holds the maintainers' packs (`pose_lspet`, `rooms_nyuv2`, `flickr8k_1500`, `houses_535`), FILE is torchvision's
`mobilenet_v2-b0353104.pth`, FOLDER keeps features and label distances. Each row is appended to
`benchmarks/results/raw/through_labels.jsonl`; a later call goes on from it.

Each item has a label posterior: a softmax of -d / (t s) over its k nearest training embeddings, d the Euclidean
distance, s the root mean squared distance of the training embeddings from their mean. Two items are as far apart as the
expected label distance of two draws, `P_i D P_j`; a label q and an item, `D(q, train) P_i`.

Protocol, written before the first run:

- Sets: the five of `graded_features`, with its heads (log-ratio loss, the options that its trials chose, last weights),
  seeds 1 to 5; the features of EfficientNet-Lite2 with the same options, seeds 1 to 3 (without gauges); the whole
  network of `pose/synthetic`, seeds 1 to 3. A quarter of the training items (or groups) is the validation split.
- Every item of the test split is a query against all others of the split, without its own group. The score is the
  normalized score of label distance@10 (0: random, 1: by label), beside Kendall's tau-b over the whole order.
- Posteriors have training items alone, and no group of a test item. Test items with a near-duplicate in training, a
  cosine of centred features above .7, are counted and left out.
- Every method chooses its options on the validation split by the same score, from at most 30: k of 10, 20, 50, 100, 200
  and t of .02, .05, .1, .2, .5, 1 for posteriors. "k alone" are posteriors with the weights of today's answers,
  1 - d^2 / d_(k+1)^2, without t, k of 5, 10, 20, 50, 100, 200.
- The rule for users: among these 30, of all whose score is within one standard error (of the paired difference) of the
  best, the one with the largest k and then the largest t ("careful"); and through labels only if the 95 % interval of
  its gain on the validation split is above 0, else by the embedding ("rule").
- "energy": k and t with the least energy score on the validation split, the mean of `D(y, train) P - P D P / 2`, which
  is least for the true distribution of labels where label distances are of negative type. It needs no gallery.
- Predictions: the mean label distance of the true label to the mean or medoid of the posterior, with the k and t of
  "through labels", of "energy", and with today's answers (k alone, chosen by this error on the validation split).
- Compared: the embedding; the posterior; predicted labels (the mean of the posterior where labels have a mean, else its
  medoid); ridge regression and a regression network (512-128-labels, the steps of the head, four rates) by distance of
  their predictions; expansion of queries and gallery by neighbours; expansion by training embeddings, which is the
  posterior without labels; k-reciprocal re-ranking; the head trained three times as long; all of the first two for
  untrained features.
- Label queries: the mean embedding of the k training items nearest by label, and the expected label distance.
- Label vectors: the squared distance of the means of 4, 16 and 64 coordinates of the labels, plus their variance
  (`contml.evaluation.posterior`), in place of the expected label distance; k and t by energy.
- What the commands do: `contml.search.labelled_items` on the same heads, three seeds: what the validation split chose,
  and how often the bound of 90 % of predicted labels holds on the test split, with its interval over queries or groups.
- Fewer labels: 100 and 300 training items, three seeds. New labels: a training item is drawn, the 30 % of training
  items nearest to it by label are left out, and the queries are the test items nearer than the last of these; three
  seeds.

Intervals are of 95 %, over seeds and queries or their groups, by `contml.app.trials.statistics`.

Chosen after the first tables were seen, on test scores: "energy" among the four ways to choose k and t of the protocol,
after MobileNetV2; and the variance and the 64 coordinates of label vectors, after two heads each of poses, rooms and
house prices. EfficientNet-Lite2, the whole network, and label vectors of captions and gauges were looked at later.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import kendalltau, t as student
from torch import Tensor

from benchmarks.measure import heading, table
from contml._support.text import MISSING
from contml.app.experiment import load
from contml.app.trials.measure import experiment_of, folder_of, label_numbers, prepare, ridge, vectors_of
from contml.app.trials.statistics import Estimate, estimate
from contml.app.trials.suite import Suite, read_suite
from contml.data import Task
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.evaluation.intervals import paired_interval
from contml.evaluation.posterior import Coordinates
from contml.labels import MatrixLabels
from contml.labels.items import growing
from contml.search.labelled_items import LabelledItems

RAW = Path(__file__).parent / "results" / "raw" / "through_labels.jsonl"
CHOSEN = Path(__file__).parent / "results" / "raw" / "graded_features.jsonl"
KS, TEMPERATURES = (10, 20, 50, 100, 200), (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
K, DUPLICATE, UNIT = 10, 0.7, 10_000
SETS = ("poses", "rooms", "captions", "house prices", "gauges")


class Data(NamedTuple):
    """A set: its splits, and label distances between all items `[N, N]`, in the order of the splits.

    Attributes:
        task: training, validation and test split.
        distances: float64.
        rows: the rows of each split in `distances`.
        duplicates: number of test items that were left out.
    """

    task: Task
    distances: Tensor
    rows: dict[str, Tensor]
    duplicates: int


class Part(NamedTuple):
    """A split to search: its label distances, and which pairs do not count."""

    truth: Tensor  # [N,N] float64
    excluded: Tensor  # [N,N] bool
    units: Tensor  # [N] the group of each item
    queries: Tensor  # rows

    def score(self, distances: Tensor) -> Tensor:
        """The normalized score@10 of each query `[Q]`, by distances `[N, N]`; ties go to the lower row."""
        truth, excluded = self.truth[self.queries], self.excluded[self.queries]
        order = distances[self.queries].double().masked_fill(excluded, torch.inf).sort(dim=1, stable=True).indices
        random = truth.masked_fill(excluded, 0).sum(1) / (~excluded).sum(1)
        oracle = truth.masked_fill(excluded, torch.inf).topk(K, dim=1, largest=False).values.mean(1)
        return (random - truth.gather(1, order[:, :K]).mean(1)) / (random - oracle).mean()

    def kendall(self, distances: Tensor) -> float:
        """The mean of Kendall's tau-b over up to 200 queries."""
        values = []
        for row in self.queries[:200].tolist():
            kept = ~self.excluded[row]
            values.append(kendalltau(distances[row][kept].numpy(), self.truth[row][kept].numpy()).statistic)
        return float(np.nanmean(values))


def part_of(data: Data, name: str, rows: Tensor | None = None, queries: Tensor | None = None) -> Part:
    """A split, or some of its items."""
    split = data.task.splits[name]
    kept = torch.arange(len(split)) if rows is None else rows
    at = data.rows[name][kept]
    groups = kept if split.groups is None or not split.exclude_group else split.groups[kept]
    excluded = (groups[:, None] == groups) | torch.eye(len(kept), dtype=torch.bool)
    units = kept if split.groups is None else split.groups[kept]
    return Part(
        data.distances[at[:, None], at], excluded, units, torch.arange(len(kept)) if queries is None else queries
    )


# Posteriors


def spread_of(known: Tensor) -> float:
    """The root mean squared distance of embeddings `[T, d]` from their mean."""
    return float((known - known.mean(0)).square().sum(1).mean().sqrt())


def weights_of(distances: Tensor, k: int, scale: float) -> Tensor:
    """Weights `[N, T]` over training items: the softmax of -distance / scale over the k nearest, by distances."""
    values, rows = distances.sort(dim=1, stable=True)
    k = min(k, distances.shape[1])
    shares = torch.softmax(-values[:, :k] / scale, 1)
    return torch.zeros_like(distances).scatter_(1, rows[:, :k], shares)


def adaptive(distances: Tensor, k: int) -> Tensor:
    """Weights `[N, T]` over training items: 1 - d^2 / d_(k+1)^2 for the k nearest, divided by their sum."""
    values, rows = distances.square().sort(dim=1, stable=True)
    k = min(k, distances.shape[1] - 1)
    shares = 1 - values[:, :k] / values[:, k : k + 1].clamp(min=1e-300)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-300)
    return torch.zeros_like(distances).scatter_(1, rows[:, :k], shares)


class Head(NamedTuple):
    """The embeddings of a head: of training, validation and test items."""

    train: Tensor
    val: Tensor
    test: Tensor

    def posteriors(self, part: str) -> Callable[..., Tensor]:
        """Weights by k and t, or by k alone."""
        known, scale = self.train.double(), spread_of(self.train.double())
        distances = torch.cdist(getattr(self, part).double(), known)
        return lambda k, t=None: adaptive(distances, k) if t is None else weights_of(distances, k, t * scale)


def best(score: Callable[..., Tensor], options: list[tuple[Any, ...]], _: Tensor) -> tuple[Any, ...]:
    """The options with the highest mean score on the validation split."""
    return max(options, key=lambda each: float(score(*each).mean()))


def careful(score: Callable[..., Tensor], options: list[tuple[Any, ...]], units: Tensor) -> tuple[Any, ...]:
    """Of the options within one standard error of the best, that with the largest k, then the largest t."""
    scores = {each: score(*each) for each in options}
    top = max(options, key=lambda each: float(scores[each].mean()))
    close = [each for each in options if _within(scores[top], scores[each], units)]
    return max(close)


def _within(top: Tensor, other: Tensor, units: Tensor) -> bool:
    if torch.equal(top, other):
        return True
    difference, half = paired_interval(top, other, units[:, None])
    return bool(difference <= half / 1.96)


def gains(first: Tensor, second: Tensor, units: Tensor) -> bool:
    """Whether the 95 % interval of the gain over the second is above 0."""
    difference, half = paired_interval(first, second, units[:, None])
    return bool(difference > half)


# Methods


def expected(weights: Tensor, between: Tensor) -> Tensor:
    """Expected label distances `[N, N]` of posteriors `[N, T]`, by label distances between training items `[T, T]`."""
    return weights @ between @ weights.T


def medoids(weights: Tensor, between: Tensor) -> Tensor:
    """The training item `[N]` with the least expected label distance, of those with a weight."""
    costs = (weights @ between).masked_fill(weights == 0, torch.inf)
    return costs.argmin(1)


def expanded(x: Tensor, excluded: Tensor, n: int, alpha: float) -> Tensor:
    """Embeddings `[N, d]` replaced by the weighted mean of each and its n nearest items that it may find."""
    unit = torch.nn.functional.normalize(x, dim=1)
    cosine = (unit @ unit.T).masked_fill(excluded, -torch.inf)
    values, rows = cosine.topk(n, dim=1)
    weights = values.clamp(min=0) ** alpha
    return torch.nn.functional.normalize(unit + (unit[rows] * weights[:, :, None]).sum(1), dim=1)


def reciprocal(x: Tensor, k1: int, k2: int, share: float) -> Tensor:
    """Distances `[N, N]` by k-reciprocal encoding (Zhong et al., CVPR 2017)."""
    squared = torch.cdist(x, x).square()
    original = squared / squared.amax(1, keepdim=True)
    n, order = len(x), original.sort(dim=1, stable=True).indices
    near = torch.zeros(n, n, dtype=torch.bool).scatter_(1, order[:, : k1 + 1], True)
    half = torch.zeros(n, n, dtype=torch.bool).scatter_(1, order[:, : k1 // 2 + 1], True)
    mutual, mutual_half = near & near.T, half & half.T
    members = mutual.clone()
    for row in range(n):
        for candidate in mutual[row].nonzero()[:, 0].tolist():
            its = mutual_half[candidate]
            if int((its & mutual[row]).sum()) > 2 / 3 * int(its.sum()):
                members[row] |= its
    encoded = torch.where(members, torch.exp(-original), 0)
    encoded = encoded / encoded.sum(1, keepdim=True)
    if k2 > 1:
        encoded = encoded[order[:, :k2]].mean(1)
    least = torch.stack([torch.minimum(encoded[row], encoded).sum(1) for row in range(n)])
    return (1 - share) * (1 - least / (2 - least)) + share * original


def network(x: Tensor, y: Tensor, known: Tensor, steps: int, rate: float, seed: int) -> Callable[[Tensor], Tensor]:
    """A regression network 512-128-labels on standardized labels, trained with batches of 120."""
    torch.manual_seed(seed)
    x, y = x.float(), y.float()
    mean, std, scale = y.mean(0), y.std(0, correction=0).clamp(min=1e-6), spread_of(x)
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, y.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(x), (120,))
        error = ((model(x[rows] / scale) - (y[rows] - mean) / std) * known[rows]).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
    return lambda queries: (model(queries.float() / scale).detach() * std + mean).double()


# Data and heads


@cache
def chosen() -> dict[str, str]:
    """The options of log_ratio that the trials of `graded_features` chose, by set."""
    found = {}
    for line in CHOSEN.read_text(encoding="utf-8").splitlines():
        set_name, method, options, _, split, _ = json.loads(json.loads(line)["key"])
        if method == "log_ratio" and split == "test":
            found[set_name] = options
    return found


def data_of(suite: Suite, name: str, places: Mapping[str, str]) -> Data:
    """The splits of a set on its features, and all label distances."""
    prepare(suite, name, places, ["log_ratio"])
    folder = folder_of(suite, name, places)
    changes = [f"images.features={folder / 'features.npz'}", f"training.val_share={suite.val_share}"]
    task = experiment_of(suite, name, places, [*changes, "training.select=val"]).build_task()
    file = folder / "all.npy"
    if not file.exists():
        whole = growing(task.train.labels)
        for part in ("val", "test"):
            whole = whole.joined(task.splits[part].labels.as_root())
        np.save(file, whole.pairwise().double().numpy())
    distances = torch.from_numpy(np.load(file))
    sizes, start, rows = [len(task.splits[part]) for part in ("train", "val", "test")], 0, {}
    for part, size in zip(("train", "val", "test"), sizes, strict=True):
        rows[part], start = torch.arange(start, start + size), start + size
    assert task.test is not None
    features = {part: vectors_of(task.splits[part]) for part in ("train", "test")}
    mean = features["train"].mean(0)
    unit = {part: torch.nn.functional.normalize(values - mean, dim=1) for part, values in features.items()}
    kept = ((unit["test"] @ unit["train"].T).amax(1) <= DUPLICATE).nonzero()[:, 0]
    duplicates = len(task.test) - len(kept)
    task = Task(train=task.train, val=task.val, test=replace(task.test, queries=None, gallery=None).subset(kept))
    rows["test"] = rows["test"][kept]
    return Data(task, distances, rows, duplicates)


def head_of(
    suite: Suite,
    name: str,
    places: Mapping[str, str],
    data: Data,
    seed: int,
    rows: Tensor | None = None,
    epochs: int = 5,
) -> Head:
    """The embeddings of a head that is trained on some training items, or all."""
    torch.set_num_threads(1)
    changes = [*suite.train, *chosen()[name].split(), f"seed={seed}", f"training.epochs={epochs}"]
    features = f"images.features={folder_of(suite, name, places) / 'features.npz'}"
    size = 120 if rows is None else min(120, len(rows))
    changes += ["loss=log_ratio", features, "training.select=none", f"sampler.batch_size={size}"]
    changes += [f"sampler.anchors_per_batch={size // 6}"]
    train = data.task.train if rows is None else data.task.train.subset(rows)
    at = data.rows["train"] if rows is None else data.rows["train"][rows]
    fast = replace(train, labels=MatrixLabels(data.distances[at[:, None], at]))
    labels = train.labels if train.labels.vectors is not None or name == "poses" else fast.labels
    experiment = experiment_of(suite, name, places, changes)
    trainer = experiment.build_trainer(Task(replace(train, labels=labels), None, data.task.test), quiet=True)
    trainer.fit()
    splits = (train, data.task.val, data.task.test)
    return Head(*(trainer.outputs(split)[0] for split in splits if split is not None))


# Runs


class Recorder:
    """Rows that are appended to the raw file, each once."""

    def __init__(self) -> None:
        lines = RAW.read_text(encoding="utf-8").splitlines() if RAW.exists() else []
        self.done = {tuple(json.loads(line)["key"]) for line in lines}

    def has(self, *key: Any) -> bool:
        """Whether a run is done."""
        return key in self.done

    def write(self, key: tuple[Any, ...], values: dict[str, Any]) -> None:
        """Append a run."""
        with RAW.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **values}) + "\n")
        self.done.add(key)


def units(values: Tensor) -> list[int]:
    """Scores of queries in units of 1 / 10,000."""
    return [int(each) for each in (values * UNIT).round()]


def compared(
    data: Data, head: Head, raw: Head, *, full: bool, rows: Tensor | None = None, **parts: Part
) -> dict[str, Any]:
    """The score of each test query by each method, with the options that the validation split chose."""
    part_of_all = part_of(data, "val")
    val, test = parts.get("val") or part_of_all, parts.get("test") or part_of(data, "test")
    at = data.rows["train"] if rows is None else data.rows["train"][rows]
    between = data.distances[at[:, None], at]
    options = [(k, t) for k in KS for t in TEMPERATURES if k <= len(at)]
    out: dict[str, Any] = {"scores": {}, "kendall": {}, "chosen": {}}

    def add(name: str, distances: Tensor, choice: Any = None) -> None:
        out["scores"][name], out["chosen"][name] = units(test.score(distances)), choice
        out["kendall"][name] = round(test.kendall(distances), 4)

    for prefix, x in (("", head), ("untrained, ", raw)):
        val_distances, test_distances = (torch.cdist(each.double(), each.double()) for each in (x.val, x.test))
        add(f"{prefix}embedding", test_distances)
        of_val, of_test = x.posteriors("val"), x.posteriors("test")

        def val_score(*option: Any, of_val: Any = of_val) -> Tensor:
            return val.score(expected(of_val(*option), between))

        simple, safe = (choose(val_score, options, val.units) for choose in (best, careful))
        add(f"{prefix}through labels, best", expected(of_test(*simple), between), simple)
        add(f"{prefix}through labels", expected(of_test(*safe), between), safe)
        choice = best(val_score, [(k,) for k in (5, *KS) if k < len(at)], val.units)
        add(f"{prefix}through labels, k alone", expected(of_test(*choice), between), choice)
        if val is part_of_all:
            truth = data.distances[data.rows["val"][:, None], at]

            def energy(*option: Any, of_val: Any = of_val, truth: Tensor = truth) -> Tensor:
                weights = of_val(*option)
                score: Tensor = ((weights @ between) * weights).sum(1) / 2 - (truth * weights).sum(1)
                return score

            choice = best(energy, options, val.units)
            add(f"{prefix}through labels, energy", expected(of_test(*choice), between), choice)
            if not prefix:
                out["errors"] = _errors(data, between, at, of_val, of_test, {"through labels": safe, "energy": choice})
        won = gains(val_score(*safe), val.score(val_distances), val.units)
        add(f"{prefix}rule", expected(of_test(*safe), between) if won else test_distances, won)
        if prefix or not full:
            continue
        _others(data, head, val, test, options, of_val, of_test, between, add)
    return out


def _errors(
    data: Data, between: Tensor, at: Tensor, of_val: Any, of_test: Any, choices: Mapping[str, tuple[Any, ...]]
) -> dict[str, float]:
    """The mean label distance of predictions to true labels on the test split."""
    train = data.task.train
    labels = train.labels if train.labels.vectors is not None else None
    own = (at - data.rows["train"][0]).tolist()

    def errors(weights: Tensor, part: str) -> Tensor:
        if labels is None:
            return data.distances[data.rows[part], at[medoids(weights, between)]]
        assert labels.vectors is not None
        means = growing(labels).of_vectors(weights @ labels.vectors[own].double())
        both = means.joined(data.task.splits[part].labels.as_root())
        n = len(means)
        return torch.cat([both.pairwise([row], [n + row])[0] for row in range(n)]).double()

    today = min(((k,) for k in (1, 2, 3, 5, 10, 20, 50)), key=lambda each: float(errors(of_val(*each), "val").mean()))
    found = {name: float(errors(of_test(*choice), "test").mean()) for name, choice in choices.items()}
    return {**found, f"today, k = {today[0]}": float(errors(of_test(*today), "test").mean())}


def _others(
    data: Data,
    head: Head,
    val: Part,
    test: Part,
    options: list[tuple[int, float]],
    of_val: Any,
    of_test: Any,
    between: Tensor,
    add: Callable[..., None],
) -> None:
    """The other methods on the embeddings of a head, and on features."""
    train = data.task.train
    vectors = label_numbers(train)
    whole = vectors if vectors is not None and bool(vectors[1].all()) else None

    def predicted(weights: Tensor) -> Tensor:
        if whole is not None:
            means = weights @ whole[0].double()
            return torch.cdist(means, means)
        rows = medoids(weights, between)
        return between[rows[:, None], rows]

    choice = best(lambda k, t: val.score(predicted(of_val(k, t))), options, val.units)
    add("predicted label", predicted(of_test(*choice)), choice)
    known = head.train.double()

    def smoothed(weights: Tensor) -> Tensor:
        means = torch.nn.functional.normalize(weights @ known, dim=1)
        return torch.cdist(means, means)

    choice = best(lambda k, t: val.score(smoothed(of_val(k, t))), options, val.units)
    add("expansion by training items", smoothed(of_test(*choice)), choice)
    x_val, x_test = head.val.double(), head.test.double()

    def expansion(x: Tensor, part: Part, n: int, alpha: float) -> Tensor:
        x = expanded(x, part.excluded, n, alpha)
        return torch.cdist(x, x)

    grid: list[tuple[Any, ...]] = [(n, a) for n in (1, 2, 3, 5, 10, 20) for a in (0.0, 1.0, 3.0)]
    choice = best(lambda n, a: val.score(expansion(x_val, val, n, a)), grid, val.units)
    add("query and gallery expansion", expansion(x_test, test, *choice), choice)
    grid = [(k1, k2, share) for k1 in (10, 20, 40) for k2 in (1, 3, 6) for share in (0.1, 0.3, 0.6)]
    choice = best(lambda *each: val.score(reciprocal(x_val, *each)), grid, val.units)
    add("k-reciprocal re-ranking", reciprocal(x_test, *choice), choice)
    # label queries
    to_val, to_test = (data.distances[data.rows[part][:, None], data.rows["train"]] for part in ("val", "test"))

    def mean_query(x: Tensor, to_train: Tensor, k: int) -> Tensor:
        rows = to_train.sort(dim=1, stable=True).indices[:, :k]
        targets = known[rows].mean(1)
        lengths = known[rows].norm(dim=2).mean(1, keepdim=True)
        return torch.cdist(torch.nn.functional.normalize(targets, dim=1) * lengths, x)

    ks: list[tuple[Any, ...]] = [(k,) for k in (1, 2, 5, 10, 20, 50, 100)]
    choice = best(lambda k: val.score(mean_query(x_val, to_val, k)), ks, val.units)
    add("label query, mean embedding", mean_query(x_test, to_test, *choice), choice)
    for name, choose in (("best", best), ("", careful)):
        choice = choose(lambda k, t: val.score(to_val @ of_val(k, t).T), options, val.units)
        add(
            ", ".join(filter(None, ("label query, expected label distance", name))),
            to_test @ of_test(*choice).T,
            choice,
        )
    if vectors is None:
        return
    features = {part: vectors_of(data.task.splits[part]) for part in ("train", "val", "test")}
    measured = {"val": val, "test": test}

    def of_ridge(part: str, strength: float) -> Tensor:
        values = ridge(features["train"], vectors[0].double(), vectors[1], features[part], strength)
        return torch.cdist(values, values)

    choice = best(lambda s: val.score(of_ridge("val", s)), [(10.0**n,) for n in range(-4, 3)], val.units)
    add("ridge regression", of_ridge("test", *choice), choice)
    nets = {rate: network(features["train"], *vectors, 200, rate, 0) for rate in (3e-4, 1e-3, 3e-3, 1e-2)}

    def of_net(part: str, rate: float) -> Tensor:
        values = nets[rate](features[part])
        return torch.cdist(values, values)

    choice = best(lambda rate: measured["val"].score(of_net("val", rate)), [(rate,) for rate in nets], val.units)
    add("regression network", of_net("test", *choice), choice)


def run(given: argparse.Namespace) -> None:
    """All runs that are not recorded yet."""
    torch.set_num_threads(1)
    recorder, start = Recorder(), time.perf_counter()
    places = {"data": str(given.data), "weights": str(given.weights), "folder": str(given.folder)}
    for network_name, suite_name, seeds in (
        ("mobilenet_v2", "graded_features", (1, 2, 3, 4, 5)),
        ("efficientnet_lite2", "benchmarks/suites/efficientnet_lite2.yaml", (1, 2, 3)),
    ):
        if given.only and network_name not in given.only:
            continue
        suite = read_suite(suite_name)
        for name in (each for each in SETS if each in suite.sets):
            data = data_of(suite, name, places)
            for key, make in runs_of(suite, name, places, data, network_name, seeds):
                if not recorder.has(*key):
                    recorder.write(key, make())
                    print(*key, f"{time.perf_counter() - start:.0f} s", flush=True)
    if not given.only or "whole" in given.only:
        for seed in (1, 2, 3):
            key = ("whole", "drawn poses", "all", seed)
            if not recorder.has(*key):
                recorder.write(key, whole_network(seed))
                print(*key, f"{time.perf_counter() - start:.0f} s", flush=True)


def runs_of(
    suite: Suite, name: str, places: Mapping[str, str], data: Data, network_name: str, seeds: tuple[int, ...]
) -> Iterator[tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]]:
    """The key of each run of a set, and what makes its row."""
    raw = Head(*(vectors_of(data.task.splits[part]) for part in ("train", "val", "test")))
    test_units = part_of(data, "test").units.tolist()
    about = {"units": test_units, "duplicates": data.duplicates, "train": len(data.task.train)}

    def whole(seed: int) -> dict[str, Any]:
        found = compared(data, head_of(suite, name, places, data, seed), raw, full=True)
        longer = head_of(suite, name, places, data, seed, epochs=15).test.double()
        distances, test = torch.cdist(longer, longer), part_of(data, "test")
        found["scores"]["embedding, trained three times as long"] = units(test.score(distances))
        return {**found, **about}

    def fewer(seed: int, count: int) -> dict[str, Any]:
        rows = torch.randperm(len(data.task.train), generator=torch.Generator().manual_seed(seed))[:count].sort().values
        head = head_of(suite, name, places, data, seed, rows)
        return {**compared(data, head, raw._replace(train=raw.train[rows]), full=False, rows=rows), **about}

    def new_labels(seed: int) -> dict[str, Any]:
        count = len(data.task.train)
        centre = int(torch.randint(count, (1,), generator=torch.Generator().manual_seed(seed)))
        away = data.distances[data.rows["train"][centre]]
        limit = away[data.rows["train"]].quantile(0.3)
        rows, kept = ((away[data.rows[part]] > limit).nonzero()[:, 0] for part in ("train", "val"))
        queries = (away[data.rows["test"]] <= limit).nonzero()[:, 0]
        if len(queries) < 2:
            queries = away[data.rows["test"]].sort().indices[:2]
        head, test = head_of(suite, name, places, data, seed, rows), part_of(data, "test", queries=queries)
        few = raw._replace(train=raw.train[rows], val=raw.val[kept])
        found = compared(
            data,
            head._replace(val=head.val[kept]),
            few,
            full=False,
            rows=rows,
            val=part_of(data, "val", kept),
            test=test,
        )
        return {**found, **about, "units": test.units[queries].tolist()}

    def vectors(seed: int) -> dict[str, Any]:
        head, val, test = head_of(suite, name, places, data, seed), part_of(data, "val"), part_of(data, "test")
        between, to_val, to_test = (
            data.distances[data.rows[part][:, None], data.rows["train"]] for part in ("train", "val", "test")
        )
        of_val, of_test = head.posteriors("val"), head.posteriors("test")

        def energy(k: int, t: float) -> Tensor:
            weights = of_val(k, t)
            score: Tensor = ((weights @ between) * weights).sum(1) / 2 - (to_val * weights).sum(1)
            return score

        weights = of_test(*best(energy, [(k, t) for k in KS for t in TEMPERATURES], val.units))
        scores = {
            "exact": units(test.score(expected(weights, between))),
            "label query, exact": units(test.score(to_test @ weights.T)),
        }
        coordinates = Coordinates.fit(MatrixLabels(between.float()))
        for count in (4, 16, 64):
            few = coordinates._replace(projection=coordinates.projection[:, -count:])
            u, asked = (few.of(each[:, coordinates.landmarks]) for each in (between, to_test))
            mean = weights @ u
            variance = weights @ u.square().sum(1) - mean.square().sum(1)
            scores[f"{count} coordinates"] = units(test.score(torch.cdist(mean, mean).square() + variance))
            scores[f"label query, {count} coordinates"] = units(
                test.score(torch.cdist(asked, mean).square() + variance)
            )
        return {"scores": scores, "kendall": {}, "chosen": {}, **about}

    def product(seed: int) -> dict[str, Any]:
        head, task, none = head_of(suite, name, places, data, seed), data.task, torch.empty(0, dtype=torch.int64)
        assert task.val is not None
        assert task.test is not None
        val, test = (
            (RetrievalEvaluator().evaluate(x, none, split)[1], none, split)
            for x, split in ((head.val, task.val), (head.test, task.test))
        )
        labelled = LabelledItems.make((head.train, task.train), "benchmark", len(task.train), val, test)
        record, (prediction,) = labelled.record.search, labelled.record.predictions
        assert record is not None
        check = prediction.calibration.check if prediction.calibration else None
        _, by_labels = labelled.evaluate(head.test, none, task.test)
        found = {
            "by": record.by,
            "validation": [record.embedding, record.labels, record.margin],
            "test": [float(test[0].values.mean()), float(by_labels.values.mean())],
            "errors": prediction.test._asdict(),
            "bound": None if check is None else check.model_dump(mode="json"),
        }
        return {"product": found, "scores": {}, **about}

    for seed in seeds:
        yield (network_name, name, "all", seed), partial(whole, seed)
    if network_name == "mobilenet_v2":
        for seed in seeds:
            yield (network_name, name, "label vectors", seed), partial(vectors, seed)
        for seed in seeds[:3]:
            yield (network_name, name, "product", seed), partial(product, seed)
        for seed in seeds[:3]:
            for count in (100, 300):
                if count < len(data.task.train):
                    yield (network_name, name, f"{count} labels", seed), partial(fewer, seed, count)
            yield (network_name, name, "new labels", seed), partial(new_labels, seed)


def whole_network(seed: int) -> dict[str, Any]:
    """Drawn poses, trained as `pose/synthetic` does, with its last weights."""
    experiment = load("pose/synthetic", [f"seed={seed}", "training.select=none", "training.val_share=0.15"])
    task = load("pose/synthetic", ["training.select=val", "training.val_share=0.15"]).build_task()
    assert task.val is not None
    assert task.test is not None
    test = replace(task.test, queries=None, gallery=None)
    trainer = experiment.build_trainer(Task(task.train, None, test), quiet=True)
    trainer.fit()
    head = Head(*(trainer.outputs(split)[0] for split in (task.train, task.val, test)))
    joined = growing(task.train.labels).joined(task.val.labels.as_root()).joined(test.labels.as_root())
    sizes = torch.tensor([0, len(task.train), len(task.val), len(test)]).cumsum(0).tolist()
    rows = {
        part: torch.arange(first, last)
        for part, first, last in zip(("train", "val", "test"), sizes, sizes[1:], strict=False)
    }
    data = Data(Task(train=task.train, val=task.val, test=test), joined.pairwise().double(), rows, 0)
    found = compared(data, head, head, full=False)
    for each in ("scores", "kendall", "chosen"):
        found[each] = {name: value for name, value in found[each].items() if not name.startswith("untrained")}
    return {**found, "units": part_of(data, "test").units.tolist(), "duplicates": 0, "train": len(task.train)}


# Page

#: The columns of the tables: a method, and the one that it is compared with.
_SEARCH = (
    ("embedding", None),
    ("through labels, energy", "embedding"),
    ("rule", "embedding"),
    ("untrained, embedding", None),
    ("untrained, through labels, energy", "untrained, embedding"),
    ("untrained, through labels, energy", "embedding"),
)
_LABEL = (
    ("label query, mean embedding", None),
    ("label query, expected label distance", "label query, mean embedding"),
)
_CHOICES = (
    ("through labels, best", "embedding"),
    ("through labels", "embedding"),
    ("through labels, k alone", "embedding"),
    ("through labels, energy", "embedding"),
)
_NEW = (("embedding", None), ("through labels", "embedding"), ("rule", "embedding"))
_VECTORS = tuple(
    (f"{query}{count} coordinates", f"{query}exact") for query in ("", "label query, ") for count in (4, 16, 64)
)
_OTHERS = (
    ("predicted label", "embedding"),
    ("expansion by training items", "embedding"),
    ("query and gallery expansion", "embedding"),
    ("k-reciprocal re-ranking", "embedding"),
    ("ridge regression", "embedding"),
    ("regression network", "embedding"),
    ("embedding, trained three times as long", "embedding"),
)
Runs = dict[tuple[str, str, str], list[dict[str, Any]]]


def _estimate(rows: list[dict[str, Any]], name: str, less: str | None = None) -> Estimate | None:
    if any(name not in row["scores"] or (less and less not in row["scores"]) for row in rows):
        return None
    values = [np.array(row["scores"][name]) - (np.array(row["scores"][less]) if less else 0) for row in rows]
    if len({tuple(row["units"]) for row in rows}) == 1:
        return estimate([np.stack(values) / UNIT], [rows[0]["units"]])
    means = np.array([float(each.mean()) / UNIT for each in values])  # other queries in each run
    half = float(student.ppf(0.975, len(means) - 1)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Estimate(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half, math.nan)


def _cell(rows: list[dict[str, Any]], name: str, less: str | None) -> str:
    found = _estimate(rows, name, less)
    if found is None:
        return MISSING
    sign = "+" if less else ""
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def _table(runs: Runs, condition: str, columns: tuple[tuple[str, str | None], ...]) -> str:
    titles = [name if less is None else f"{name} less {less}" for name, less in columns]
    cells = [["data", "network", "seeds", "queries", *titles]]
    for (network_name, name, each), rows in runs.items():
        if each == condition:
            about = [name, network_name, str(len(rows)), str(len(rows[0]["units"]))]
            found = [_cell(rows, *column) for column in columns]
            if set(found) != {MISSING}:
                cells.append([*about, *found])
    return table(cells)


def _runs() -> Runs:
    found: Runs = {}
    for line in RAW.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(tuple(row["key"][:3]), []).append(row)
    return found


def gain(name: str) -> float:
    """What ranking through labels adds to the score of a set, with heads on MobileNetV2's features."""
    found = _estimate(_runs()["mobilenet_v2", name, "all"], "through labels, energy", "embedding")
    assert found is not None
    return found.mean


def _mean(rows: list[dict[str, Any]], field: str, name: str) -> float:
    return float(np.mean([row[field][name] for row in rows]))


def _product_row(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """What the commands do, mean label distance@10 and bounds; means over seeds."""
    columns = [*zip(*([*row["validation"][:2], *row["test"]] for row in rows), strict=True)]
    cells = [name, "/".join(row["by"] for row in rows), *(f"{np.mean(column):.4g}" for column in columns)]
    bounds = [row["bound"] for row in rows if row["bound"]]
    shares = [
        f"{100 * each['observed']:.1f} [{100 * each['interval'][0]:.1f}, {100 * each['interval'][1]:.1f}]"
        for each in bounds
    ]
    cells += ["; ".join(shares) or MISSING, f"{np.mean([each['width'] for each in bounds]):.4g}" if bounds else MISSING]
    return [*cells, *(f"{np.mean([row['errors'][each] for row in rows]):.4g}" for each in ("posterior", "constant"))]


def page() -> str:
    """The tables of the records."""
    runs = _runs()
    kendall = [["data", "network", *(name for name, less in _SEARCH[:2] + _LABEL)]]
    products = [["data", "ranked by", "validation, embedding", "validation, labels", "test, embedding", "test, labels"]]
    products[0] += ["bound of 90 % holds, %", "mean bound", "mean error", "error of a constant"]
    for (_, name, condition), rows in runs.items():
        if condition == "product":
            products.append(_product_row(name, [row["product"] for row in rows]))
    errors = [["data", "network", "energy", "through labels", "today"]]
    sizes = [["data", "network", "training items", "near-duplicates left out"]]
    for (network_name, name, condition), rows in runs.items():
        if condition != "all":
            continue
        sizes.append([name, network_name, str(rows[0]["train"]), str(rows[0]["duplicates"])])
        found = [method for method, _ in _SEARCH[:2] + _LABEL if method in rows[0]["kendall"]]
        kendall.append([name, network_name, *(f"{_mean(rows, 'kendall', method):.3f}" for method in found)])
        for row in rows:
            row.setdefault("errors", {})
            row["errors"] = {each.partition(",")[0]: value for each, value in row["errors"].items()}
        if all(row["errors"] for row in rows):
            names = ("energy", "through labels", "today")
            errors.append([name, network_name, *(f"{_mean(rows, 'errors', each):.4g}" for each in names)])
    parts = [
        ("Image queries", _table(runs, "all", _SEARCH)),
        ("Label queries", _table(runs, "all", _LABEL)),
        ("How k and t are chosen", _table(runs, "all", _CHOICES)),
        ("Other methods", _table(runs, "all", _OTHERS)),
        ("300 training items", _table(runs, "300 labels", _SEARCH)),
        ("100 training items", _table(runs, "100 labels", _SEARCH)),
        ("Labels that training lacks", _table(runs, "new labels", _NEW)),
        ("Label vectors in place of the posteriors", _table(runs, "label vectors", _VECTORS)),
        ("Kendall's tau over the whole order", table(kendall)),
        ("Predictions: mean label distance to the true label", table(errors)),
        ("What the commands do", table(products)),
        ("Data", table(sizes)),
    ]
    return "\n".join(f"## {title}\n\n{text}\n" for title, text in parts)


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("data", type=Path)
    runs.add_argument("--weights", type=Path, required=True)
    runs.add_argument("--folder", type=Path, required=True)
    runs.add_argument("--only", nargs="*", choices=["mobilenet_v2", "efficientnet_lite2", "whole"])
    pages = commands.add_parser("page")
    pages.add_argument("--save", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "run":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        run(given)
    else:
        given.save.write_text(f"{heading('Search through labels')}\n{__doc__}\n{page()}", encoding="utf-8")


if __name__ == "__main__":
    main()
