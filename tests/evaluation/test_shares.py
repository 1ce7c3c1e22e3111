"""An evaluation that is divided between processes gives what one process does, and holds a share of the embeddings."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import cache

import pytest
import torch
from support.processes import run_connected, start

from contml.evaluation import evaluate
from contml.evaluation.retrieval import evaluate_shares
from contml.labels import ClassLabels, VectorLabels
from contml.processes import Shares, world

ITEMS, DIM = 420, 6
#: What sums over the queries in the order of the processes.
SUMMED = ("recall_area", "knn_error")
CASES = (
    "graded",
    "gallery",
    "groups",
    "copies",
    "collapsed",
    "few queries",
    "few items",
    "classes",
    "class gallery",
    "large classes",
    "class copies",
    "far away",
)


def data(case: str):
    """Embeddings, labels and arguments of an evaluation, and the process of each item for so many processes."""
    random = torch.Generator().manual_seed(len(case))
    x = torch.randn(ITEMS, DIM, generator=random)
    rows = torch.randperm(ITEMS, generator=random)
    options: dict = {}
    labels = VectorLabels(x[:, :2] + torch.randn(ITEMS, 2, generator=random))
    if "copies" in case:  # ties between items of different processes, in all places
        x = x[torch.randint(0, 40, (ITEMS,), generator=random)]
    if case == "collapsed":
        x = torch.ones(ITEMS, DIM)
    if case == "far away":
        x = x * 1e-4 + 1e3
    if case == "gallery":
        options = {"queries": rows[:150], "gallery": rows[100:]}
    elif case == "groups":
        options = {"groups": torch.randint(0, 30, (ITEMS,), generator=random)}
    elif case == "few queries":  # most processes have none
        options = {"queries": rows[:2]}
    elif case == "few items":
        options = {"queries": rows[:9], "gallery": rows[2:4]}
    elif "class" in case:
        classes = torch.randint(0, 3 if "large" in case else 60, (ITEMS,), generator=random)
        labels = ClassLabels(classes)
        options = {"recall_at": [1, 10, 300], "clusters": "large" in case}
        if "gallery" in case:
            options |= {"queries": rows[:150], "gallery": rows[100:], "exclude_singletons": True}
    return x, labels, options


def owners(processes: int, kind: str) -> torch.Tensor:
    """The process of each item; -1: none has it."""
    rows = torch.arange(ITEMS)
    if kind == "uneven":  # the last process has little
        owner = (rows % 7 > 2).long() * (processes - 2) + (rows % 50 == 0).long()
    elif kind == "one":  # the first processes have none
        owner = torch.full((ITEMS,), processes - 1)
    else:
        owner = rows % processes
    owner = owner.to(torch.int32)
    owner[[5, 17]] = -1
    return owner


def found_by(case: str, kind: str):
    """The result of all processes, on each."""
    x, labels, options = data(case)
    rank, processes = world()
    shares = Shares(owners(processes, kind), rank, processes)
    return evaluate_shares(x[shares.own], shares, labels, **options)


@cache
def expected_of(case: str):
    x, labels, options = data(case)
    return evaluate(x, labels, missing=[5, 17], **options)


def check(case: str, kind: str) -> None:
    """The result is that of one process: to the bit, but for sums over queries."""
    evaluation, ranking = found_by(case, kind)
    expected, whole = expected_of(case)
    for name in SUMMED:
        if name in expected.curves:
            found = asdict(evaluation.curves[name])
            for field, wanted in asdict(expected.curves[name]).items():
                is_same = found[field] == (
                    wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-12, abs=1e-15)
                )
                assert is_same, (name, field)
    assert evaluation.curves.keys() == expected.curves.keys()
    for name in evaluation.curves.keys() - {*SUMMED}:
        assert evaluation.curves[name] == expected.curves[name], name
    if expected.recall_within is not None:
        for field, wanted in asdict(expected.recall_within).items():
            assert getattr(evaluation.recall_within, field) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    rest, wanted = (replace(each, curves={}, recall_within=None) for each in (evaluation, expected))
    if math.isnan(expected.spearman):
        assert math.isnan(evaluation.spearman)
        rest, wanted = (replace(each, spearman=0.0) for each in (rest, wanted))
    assert rest == wanted
    rank = world()[0]
    assert torch.equal(ranking.values, whole.values)
    if rank:
        assert {*vars(ranking)} == {"values", "items"}
        return
    for name, value in vars(whole).items():
        if name == "embeddings":
            value = value.index_fill(0, torch.tensor([5, 17]), 0)
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(ranking, name), value), name
    assert ranking.scores.keys() == whole.scores.keys()
    assert all(torch.equal(ranking.scores[name], value) for name, value in whole.scores.items())


SCRIPT = """
import torch, torch.distributed as dist, sys
import contml.processes, contml.evaluation.query_gallery as query_gallery, contml.evaluation.retrieval as retrieval
from test_shares import *
dist.init_process_group("gloo")
contml.processes._BLOCK = 40 * DIM  # several blocks of each process
query_gallery._ROUND = 90 * ITEMS  # several rounds
retrieval._PAIRS = 20_000
for case in CASES:
    for kind in ("even", "uneven", "one"):
        try:
            check(case, kind)
        except BaseException:
            print(case, kind, file=sys.stderr)
            raise
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_equal_one(processes):
    run_connected(SCRIPT, seconds=300, processes=processes)


BROKEN = """
import torch.distributed as dist
from test_shares import *
from contml import InputError
dist.init_process_group("gloo")
rank, processes = world()
x, labels, options = data("gallery")
queries, gallery = options["queries"], options["gallery"]
x[queries[7]] = float("nan")
shares = Shares(owners(processes, "even"), rank, processes)
subject = "embedding of query 7" if shares.owner[queries[7]] == rank else "training"
try:
    evaluate_shares(x[shares.own], shares, labels, **options)
    raise AssertionError("not refused")
except InputError as error:
    assert error.subject == subject, error
dist.destroy_process_group()
"""


def test_an_embedding_that_is_not_finite_is_refused_by_all():
    run_connected(BROKEN, seconds=120)


HELD = """
import os, sys
import torch.distributed as dist, contml.evaluation.retrieval as retrieval
from support.processes import peak_memory
from test_shares import *
ITEMS, DIM, QUERIES = 100_000, 512, torch.arange(60)
retrieval._PAIRS = 20_000
if os.environ["WORLD_SIZE"] != "1":
    dist.init_process_group("gloo")
rank, processes = world()
labels = VectorLabels(torch.arange(float(ITEMS)))
small = torch.randn(3000, DIM)
evaluate(small, labels[torch.arange(3000)].as_root(), QUERIES, torch.arange(3000))  # compiles machine code, or loads it
before = peak_memory()
own, random = torch.arange(rank, ITEMS, processes), torch.Generator().manual_seed(rank)
x = torch.empty(len(own), DIM)
for part in torch.split(x, 1000):
    part.normal_(generator=random)
shares = Shares((torch.arange(ITEMS) % processes).to(torch.int32), rank, processes)
ranking = evaluate_shares(x, shares, labels, QUERIES, torch.arange(ITEMS), keep=False)[1]
print(peak_memory() - before)
assert rank or not len(ranking.embeddings)
if processes > 1:
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_process_holds_its_share_of_the_embeddings():
    """The memory of the evaluation of 205 MB of embeddings, with all that the search needs."""
    alone, *others = (
        int(process.communicate(timeout=300)[0]) for count in (1, 3) for process in start(HELD, processes=count)
    )
    assert max(others) < alone / 2, (alone, others)
