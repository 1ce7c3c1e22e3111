"""Items that a function compares: each pair once, symmetric, and every bad value is one line."""

import copy
import math
import pickle
import re
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.label_spaces import edits
from support.refusals import refused, refuses

from contml.labels import FunctionLabels, NearestLabels, NumberLabels, WeightedLabels, nearest
from contml.losses import DenseTripletLoss


class Counted:
    """A function that counts its calls, and the pairs that it was called with."""

    def __init__(self, function=lambda a, b: abs(a - b)):
        self.function, self.calls = function, []

    def __call__(self, a, b):
        self.calls.append((a, b))
        return self.function(a, b)


def test_each_pair_is_computed_once():
    function = Counted()
    values = [n**1.5 for n in range(30)]
    space = FunctionLabels(values, function)
    function.calls.clear()
    d = space.pairwise()
    torch.testing.assert_close(d, NumberLabels(values).pairwise())
    assert torch.equal(d, d.T)
    assert len(function.calls) < 30 * 29 / 2  # some were computed for the check
    assert all(a < b for a, b in function.calls)
    assert len(set(function.calls)) == len(function.calls)
    function.calls.clear()
    space.pairwise([3, 1, 1], [1, 2])
    space[[5, 4]][[1]].pairwise(space)
    space.nearest(4)
    space.pairwise(memory=1)
    copy.copy(space).as_root()[::-1].pairwise()
    assert function.calls == []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_blocks_equal_the_loop(data):
    values = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
    space = FunctionLabels(values, Counted())
    rows = st.lists(st.integers(0, len(values) - 1), max_size=8)
    for _ in range(3):
        r, c = data.draw(rows), data.draw(rows)
        expected = torch.tensor([[abs(values[a] - values[b]) for b in c] for a in r]).reshape(len(r), len(c))
        assert torch.equal(space.pairwise(r, c), expected.float())
        assert torch.equal(space.pairwise(space[r], space[c]), expected.float())


def test_of_more_pairs_than_are_kept_all_are_computed_again(monkeypatch):
    monkeypatch.setattr("contml.labels.functions.MEMORY", 4 * 30 * 30 - 1)
    values = [n**1.5 for n in range(30)]
    function = Counted()
    space = FunctionLabels(values, function)
    function.calls.clear()
    for _ in range(2):
        torch.testing.assert_close(space.pairwise(), NumberLabels(values).pairwise())
        torch.testing.assert_close(space.pairwise([7, 2]), NumberLabels(values).pairwise([7, 2]))
    assert (len(function.calls), space._kept.values.nbytes) == (2 * (30 * 29 / 2 + 29 + 28), 0)


def test_threads_share_the_memory_of_pairs():
    values = [n**1.5 for n in range(60)]
    space = FunctionLabels(values, lambda a, b: abs(a - b))
    expected, wrong = NumberLabels(values).pairwise(), []

    def work(seed):
        rows = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
        for part in rows.split(7):
            if not torch.allclose(space.pairwise(part), expected[part], atol=1e-4):
                wrong.append(part)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_items_of_any_kind():
    def length(a, b):
        return abs(len(a) - len(b))

    for items in (["a", "bcd", ""], [[1], [1, 2, 3], []], iter(["a", "bcd", ""]), ({1}, {1, 2, 3}, set())):
        assert FunctionLabels(items, length).pairwise()[0].tolist() == [0, 2, 1]
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    for array in (rows, torch.tensor(rows), rows.astype(object)):
        assert FunctionLabels(array, lambda a, b: sum(abs(a - b))).pairwise()[0, 1] == 7
    assert FunctionLabels(torch.tensor([1.0, 4.0]), lambda a, b: abs(a - b)).pairwise()[0, 1] == 3
    assert FunctionLabels(["one"], length).pairwise().tolist() == [[0]]


@pytest.mark.parametrize(
    "value", [2, True, np.int8(2), np.array(2.0), torch.tensor(2.0), Decimal(2), Fraction(2), np.bool_(True)], ids=repr
)
def test_numbers_that_a_function_may_return(value):
    space = FunctionLabels([0, 1, 1], lambda a, b: value if a != b else 0)
    assert space.pairwise()[0].tolist() == [0, float(value), float(value)]


BAD = {"nan": float("nan"), "1e+39": 1e39, "-0.5": -0.5, "None": None, "tensor([1.])": torch.ones(1)}
BAD["timedelta"] = np.timedelta64(1, "D")


@pytest.mark.parametrize(("got", "value"), BAD.items())
def test_a_bad_value_names_its_pair(got, value):
    with refuses("label distance of items 0 and 1", got=got, allowed="finite number >= 0"):
        FunctionLabels([0, 1, 2], lambda a, b: value)
    # An item that is not in the sample of the check.
    function = Counted(lambda a, b: value if {a, b} == {1, 40} else abs(a - b))
    space = FunctionLabels(list(range(100)), function)
    uses = [space.pairwise, lambda: space[[50, 40, 1]].pairwise(), lambda: space.nearest(2, [1])]
    uses += [lambda: WeightedLabels({space: 1.0}).pairwise([1], [40])]
    uses += [lambda: DenseTripletLoss()(torch.zeros(4, 2), space[[0, 1, 40, 7]])]
    for use in uses:
        refused(use, "label distance of items 1 and 40", got=got)
    assert space.pairwise([1], range(40)).shape == (1, 40)
    function.calls.clear()
    refused(lambda: space.pairwise([1], [2, 40]), "label distance of items 1 and 40")
    assert function.calls == [(1, 40)]  # what was computed before is kept


def test_a_negative_value_by_rounding_is_0():
    def cosine(a, b):
        return 1 - float(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b))

    rows = np.random.default_rng(0).normal(size=(20, 3))
    assert bool((FunctionLabels(np.concatenate((rows, rows)), cosine).pairwise() >= 0).all())
    with refuses("label distance of items", hint="1 - similarity"):
        FunctionLabels(rows, lambda a, b: 1 - cosine(a, b))


def test_a_function_that_is_no_distance():
    with refuses("label distance of item 0 to itself", got="1", allowed="0", hint="1 - similarity"):
        FunctionLabels([1, 2, 3], lambda a, b: 1.0)
    with refuses("label distance of items 0 and 1", got="1, and 2 in the other order", allowed="symmetric"):
        FunctionLabels([1, 2, 3], lambda a, b: 1.0 if a < b else 2.0 if b < a else 0)
    with refuses("label distance of items 1 and 2", allowed="symmetric"):
        FunctionLabels([1, 1, 3], lambda a, b: max(0, a - b))
    # Rounding does not count.
    FunctionLabels([0.1, 0.7, 0.3], lambda a, b: abs(a - b) * (1 + (a > b) * 1e-9) + 1e-12)


def test_what_is_not_a_function_of_two_items():
    for function, got in ((None, "None"), ("edit", "'edit'"), (lambda a: 0, "too many")):
        with refuses("function", got=got):
            FunctionLabels([1, 2], function)
    assert FunctionLabels([1, 2], lambda a, b, c=2: c * abs(a - b))
    assert FunctionLabels([(1.0,), (2.0,)], math.dist).pairwise()[0, 1] == 1
    for items, got in ((None, "None"), ("abc", "'abc'"), ({1, 2}, "a set"), ({"a": 1}, "a dict"), ([], "no items")):
        with refuses("items", got=got):
            FunctionLabels(items, lambda a, b: 0)
    with refuses("label", "'3'", "a label of FunctionLabels cannot"):
        FunctionLabels([1, 1], lambda a, b: 0.0).item("3")


def test_an_error_of_the_function_says_which_items():
    def broken(a, b):
        if (a, b) == (8, 7):
            raise ZeroDivisionError("no seven")
        return abs(a - b)

    space = FunctionLabels([*range(7), 8, *range(20, 30), 7], broken)
    with pytest.raises(ZeroDivisionError, match="no seven") as caught:
        space.pairwise()
    assert caught.value.__notes__ == ["in the label distance of items 7 and 18"]


def test_a_cache_on_disk_needs_a_name(tmp_path):
    function = Counted(edits)
    values = [n * n for n in range(20)]
    space = FunctionLabels(values, function)
    uses = [lambda: nearest(space, 3, cache=tmp_path), lambda: NearestLabels(space, 3, tmp_path), space.fingerprint]
    uses += [lambda: nearest(WeightedLabels({space: 1.0}), 3, cache=tmp_path)]
    for use in uses:
        refused(use, "cache", got="without a name", hint="FunctionLabels(name=...)")
    expected = space.nearest(3).rows
    first = FunctionLabels(values, function, name="edits 1")
    assert torch.equal(nearest(first, 3, cache=tmp_path).rows, expected)
    again = FunctionLabels(values, function, name="edits 1")
    function.calls.clear()
    assert torch.equal(nearest(again, 3, cache=tmp_path).rows, expected)
    assert function.calls == []
    changed = FunctionLabels(values, edits, name="edits 2"), FunctionLabels([*values[:-1], 7], edits, name="edits 1")
    assert len({space.fingerprint() for space in (first, *changed, first[[0, 1]], first[[1, 0]])}) == 5
    for same in (again, first.to("cpu"), again[range(20)].as_root()):
        assert same.fingerprint() == first.fingerprint()


def test_items_that_cannot_be_hashed():
    space = FunctionLabels([object(), object()], lambda a, b: float(a is not b), name="same")
    assert space.pairwise().tolist() == [[0, 1], [1, 0]]
    refused(space.fingerprint, "cache", got="object")
    refused(space.digests, "items", got="object", hint="with_texts(identity=...)")


def test_pickling_keeps_the_items_and_not_the_pairs():
    space = FunctionLabels([n * n for n in range(20)], edits, unit="digits", name="edits")
    d = space.pairwise()
    size = len(pickle.dumps(space))
    for other in (copy.deepcopy(space), *(pickle.loads(pickle.dumps(each)) for each in (space, space[range(20)]))):
        assert torch.equal(other.pairwise(), d)
        assert (other.unit, other.fingerprint()) == ("digits", space.fingerprint())
    assert size < 5000
    with pytest.raises((pickle.PicklingError, AttributeError), match=re.escape("lambda")):
        pickle.dumps(FunctionLabels([1, 2], lambda a, b: abs(a - b)))
