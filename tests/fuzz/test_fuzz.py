"""A short profile of the fuzzer, and the inputs that once failed."""

from __future__ import annotations

import sys
import time

import pytest

from contml import InputError

if sys.platform != "linux":
    pytest.skip("the fuzzer reads the memory of its cases from /proc", allow_module_level=True)

from .cases import CORPUS, Miniatures, outcome
from .kinds import KINDS

#: gensim does not close its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
#: Kinds whose reader takes longer than a second, or compiles for long.
SLOW = ("trained",)
CASES = 25


@pytest.fixture(scope="module")
def miniatures():
    found = Miniatures()
    yield found
    found.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SLOW])
def test_damaged_files_are_accepted_or_refused(kind, miniatures):
    for seed in range(CASES):
        found = miniatures.run(kind, miniatures.case(kind, seed), seed)
        assert found.result != "failed", f"--kind {kind} --case {seed}: {found.words}\n{found.details}"


@pytest.mark.parametrize("case", sorted(path for kind in KINDS for path in (CORPUS / kind).glob("*")), ids=str)
def test_inputs_that_once_failed(case, miniatures):
    kind = str(case.parent.relative_to(CORPUS))
    files = {str(path.relative_to(case)): path.read_bytes() for path in case.rglob("*") if path.is_file()}
    assert files
    for seed in range(4):  # the options of the reader
        found = miniatures.run(kind, files, seed)
        assert found.result != "failed", f"{found.words}\n{found.details}"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SLOW])
def test_valid_files_are_accepted(kind, miniatures):
    assert "accepted" in [miniatures.run(kind, {}, seed).result for seed in range(4)]


def refused():
    raise InputError("a file", "damaged")


def failed():
    raise KeyError("a")


def slow():
    started = time.process_time()
    while time.process_time() - started < 60:
        pass


def large():
    return len(bytearray(3 << 29))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "result", "words"),
    [
        (int, "accepted", ""),
        (refused, "refused", "damaged"),
        (failed, "failed", "KeyError"),
        (large, "failed", "memory"),
    ],
)
def test_outcomes(read, result, words):
    found = outcome(read)
    assert found.result == result
    assert words in found.words


def test_a_hang_is_a_failure(monkeypatch):
    monkeypatch.setattr("fuzz.cases.SECONDS", 0.2)
    assert outcome(slow).words == "more than 0.2 s"


def test_cases_are_reproducible(miniatures):
    assert miniatures.case("table", 7) == miniatures.case("table", 7)
