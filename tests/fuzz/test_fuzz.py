"""Damaged files of every kind, and the inputs that once failed.

`FUZZ_CASES=10000` runs more cases of each kind; `FUZZ_SEED=17 FUZZ_CASES=1` runs the case 17 again.
"""

import os
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("the fuzzer reads the memory of its cases from /proc", allow_module_level=True)

from .cases import CORPUS, Miniatures
from .kinds import KINDS

#: gensim does not close its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SEED, CASES = int(os.environ.get("FUZZ_SEED", "0")), int(os.environ.get("FUZZ_CASES", "25"))


@pytest.fixture(scope="module")
def miniatures():
    found = Miniatures()
    yield found
    found.close()


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_accepted_or_refused(kind, miniatures):
    for seed in range(SEED, SEED + CASES):
        found = miniatures.run(kind, miniatures.case(kind, seed), seed)
        assert found.result != "failed", f"case {seed}: {found.words}\n{found.details}"


@pytest.mark.parametrize("case", sorted(path for kind in KINDS for path in (CORPUS / kind).glob("*")), ids=str)
def test_inputs_that_once_failed(case, miniatures):
    kind = str(case.parent.relative_to(CORPUS))
    files = {str(path.relative_to(case)): path.read_bytes() for path in case.rglob("*") if path.is_file()}
    assert files
    for seed in range(4):  # the options of the reader
        found = miniatures.run(kind, files, seed)
        assert found.result != "failed", f"{found.words}\n{found.details}"


@pytest.mark.parametrize("kind", KINDS)
def test_valid_files_are_accepted(kind, miniatures):
    assert "accepted" in [miniatures.run(kind, {}, seed).result for seed in range(4)]
