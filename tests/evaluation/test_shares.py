"""An evaluation that is divided between processes gives what one process does, and holds a share of the embeddings."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, replace

import pytest
import torch
from support.processes import run_connected

from contml.evaluation import evaluate, query_gallery
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
        options = {"recall_at": [1, 10, 300]}
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


def expected_of(case: str):
    x, labels, options = data(case)
    return evaluate(x, labels, missing=[5, 17], **options)


def same(a, b) -> bool:
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def check(case: str, kind: str) -> None:
    """The result is that of one process: to the bit, but for sums over queries."""
    evaluation, ranking = found_by(case, kind)
    expected, whole = expected_of(case)
    for name in SUMMED:
        if name in expected.curves:
            for found, wanted in zip(asdict(evaluation.curves[name]).values(), asdict(expected.curves[name]).values()):
                assert found == (wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-12, abs=1e-15))
    assert evaluation.curves.keys() == expected.curves.keys()
    for name in evaluation.curves.keys() - {*SUMMED}:
        assert evaluation.curves[name] == expected.curves[name], name
    if expected.recall_within is not None:
        for field, wanted in asdict(expected.recall_within).items():
            assert getattr(evaluation.recall_within, field) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    others = [replace(each, curves={}, recall_within=None) for each in (evaluation, expected)]
    for name, value in asdict(others[1]).items():
        assert same(getattr(others[0], name), value) or asdict(others[0])[name] == value, name
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


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_equal_one(processes):
    run_connected(SCRIPT, seconds=300, processes=processes)
