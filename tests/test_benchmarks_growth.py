"""Run times grow linearly with the number of items: a reduced run of `benchmarks.growth`, with a generous bound."""

import subprocess
import sys

import numpy as np
import pytest
from support.processes import script_environment

from benchmarks import growth
from contml import InputError
from contml.data.features import read_features


@pytest.mark.slow
@pytest.mark.parametrize("name", growth.GROWTH)
def test_times_grow_linearly(name):
    items = [10**3, 10**4, 10**5] if name != "reading a table" else [10**3, 10**4]
    growth.GROWTH[name](1000)  # compiles machine code, imports
    assert growth.exponent(items, [growth.GROWTH[name](count) for count in items]) < 1.5  # 2 is comparing all pairs


@pytest.mark.slow
def test_an_evaluation_costs_a_few_matrix_products():
    growth.evaluation(300)  # compiles machine code
    product, spent = growth.evaluation(6000)
    assert spent < 30 * product  # 5 products for 30,000 items; what grows with the items is more for few of them


@pytest.mark.slow
def test_memory_of_the_index_of_a_cache():
    on_disk, kept, most, _ = growth.cache_index(10**5)
    assert on_disk == 32
    assert kept < 14
    assert most < 200  # 90 of 10^6 images, of which fewer are compared at a time


def test_exponents():
    assert growth.exponent([10, 100, 1000], [0.3, 3, 30]) == pytest.approx(1)
    assert growth.exponent([10, 100], [1, 100]) == pytest.approx(2)


CHECKED = """
import sys
from pathlib import Path
import numpy as np
from benchmarks import growth
from contml.data.features import read_features
values = np.ones((10**6, 16), np.float32)  # 64 MB
values[0] = 2
np.save(sys.argv[1], values)
del values
with growth.watched(growth._process_memory, 0.001) as most:
    mapped = most()[2]
    features = read_features(Path(sys.argv[1])).values
    assert most()[2] < mapped + 0.02
    assert float(features.sum()) == 16 * 10**6 + 16  # now it is read
    assert mapped + 0.05 < most()[2]
before = growth._process_memory()[1]
copy = np.array(features)
assert before + 0.05 < growth._process_memory()[1]
"""


@pytest.mark.slow
def test_a_file_of_features_is_checked_without_keeping_it_in_memory(tmp_path):
    """In a process of its own: one of many tests has free memory, in which a copy does not show."""
    script = [sys.executable, "-c", CHECKED, str(tmp_path / "features.npy")]
    checked = subprocess.run(script, env=script_environment(), capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stderr


def test_values_that_are_not_finite_are_found_in_every_part(tmp_path):
    values = np.zeros((1 << 17, 2), np.float32)
    for row in (0, (1 << 16) + 3, len(values) - 1):
        values[row, 1] = np.nan
        np.save(tmp_path / "features.npy", values)
        with pytest.raises(InputError, match=f"item {row} are not finite"):
            read_features(tmp_path / "features.npy")
        values[row, 1] = 0
