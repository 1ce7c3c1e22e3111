"""What label spaces are made of: equal labels in any form give one space, anything else is one line; their digests."""

from collections import deque
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from support.choices import spread
from support.label_spaces import SPACES
from support.refusals import refused, refuses

from contml import InputError, labels as spaces
from contml._support.conversion import as_items, as_numbers, is_missing

WORDS = {"dog": [1.0, 0.0], "cat": [0.0, 1.0], "red": [1.0, 1.0]}
JOINTS = np.arange(24.0).reshape(3, 4, 2) ** 1.5
NUMBERS = spaces.NumberLabels([0.0, 1.0, 3.0])

#: Every argument that holds labels: how a space is made of it, and labels of three items as plain lists.
MAKE = {
    "classes": (spaces.ClassLabels, ["b", "a", "b"]),
    "classes of integers": (spaces.ClassLabels, [7, 2, 7]),
    "vectors": (spaces.VectorLabels, [[0.0, 1.5], [2.0, 3.0], [4.0, 5.0]]),
    "numbers": (lambda x: spaces.NumberLabels(x), [3, 1, 2]),
    "poses": (spaces.PoseLabels, JOINTS.tolist()),
    "visible": (lambda x: spaces.PoseLabels(JOINTS, x), [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]]),
    "segmentation": (lambda x: spaces.SegmentationLabels(x, 3, side=None), [[[0, 1]], [[2, 1]], [[0, 0]]]),
    "captions": (lambda x: spaces.CaptionLabels(x, WORDS), [["a dog", "a cat"], ["red cat"], ["red"]]),
    "caption_vectors": (spaces.CaptionVectorLabels, [["a dog", "a cat"], ["red cat"], ["red"]]),
    "tags": (spaces.TagLabels, [["a", "b"], [], ["b"]]),
    "multi_hot": (spaces.MultiHotLabels, [[0, 1], [1, 1], [0, 0]]),
    "ordinal": (spaces.OrdinalLabels, [3, 1, 2]),
    "ordinal words": (lambda x: spaces.OrdinalLabels(x, ["low", "middle", "high"]), ["low", "high", "low"]),
    "levels": (lambda x: spaces.OrdinalLabels(["low", "high", "low"], x), ["low", "middle", "high"]),
    "geo": (spaces.GeoLabels, [[52.5, 13.4], [48.9, 2.4], [-33.9, 151.2]]),
    "circular": (spaces.CircularLabels, [350.0, 10.0, 95.5]),
    "headings": (lambda x: spaces.GeoLabels([[0, 0], [0, 1], [1, 0]], x), [0.0, 90.0, 350.0]),
    "sequences": (spaces.SequenceLabels, [["do", "re"], ["mi"], ["do"]]),
    "dates": (spaces.DateLabels, ["2024-01-31", "2024-02-01", "2023-12-31"]),
    "matrix": (spaces.MatrixLabels, [[0, 1, 2], [1, 0, 1], [2, 1, 0]]),
    "anchors": (lambda x: spaces.MatrixLabels([[1, 0, 1], [0, 1, 1]], x), [1, 0]),
    "weighted": (spaces.WeightedLabels, {NUMBERS: 1.0}),
    "present": (
        lambda x: spaces.WeightedLabels({NUMBERS: 1.0, spaces.ClassLabels([0, 1, 1]): 2.0}, present=x),
        [[True, True], [True, False], [False, True]],
    ),
    "threshold": (lambda x: spaces.ThresholdLabels(x, 1.0), NUMBERS),
    "nearest": (lambda x: spaces.NearestLabels(x, 1), NUMBERS),
}
#: Those whose labels are real numbers.
NUMERIC = ["vectors", "numbers", "poses", "visible", "segmentation", "multi_hot", "geo", "circular", "headings"]
NUMERIC += ["present", "matrix"]
#: Those that take one value per item.
SINGLE = ["dates", "classes", "classes of integers", "numbers", "ordinal", "ordinal words", "levels", "headings"]
SINGLE += ["circular"]


#: What no label space can be made of, whatever it is.
NEVER = {
    "None": lambda: None,
    "a number": lambda: 3,
    "a text": lambda: "abc",
    "no items": list,
    "no items from a generator": lambda: iter(()),
    "a tensor of no axes": lambda: torch.tensor(3.0),
    "a set": lambda: {1, 2, 3},
    "a frozen set of texts": lambda: frozenset("abc"),
    "a mapping": lambda: {"a": 1, "b": 2, "c": 3},
    "a function": lambda: len,
    "an object": object,
    "objects": lambda: [{"a": 1}, {"a": 2}, {"a": 3}],
    "missing labels": lambda: [None, None, None],
    "complex numbers": lambda: np.array([1 + 2j, 3, 5]),
    "NaN": lambda: [1.0, float("nan"), 2.0],
    "NaN in a tensor": lambda: torch.tensor([1.0, 2.0, torch.nan]),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "a sparse matrix": lambda: csr_array(np.eye(3)),
    "masked values": lambda: np.ma.masked_array([1, 2, 3], [False, True, False]),
    "NaT": lambda: np.array(["2024-01-31", "NaT", "2024-02-01"], "M8[D]"),
}
#: What a real number or a list of them is not.
NOT_NUMBERS = {
    "texts": lambda: ["1", "2", "3"],
    "texts in an array": lambda: np.array([["1", "2"], ["3", "4"], ["5", "6"]]),
    "lists of several lengths": lambda: [[1, 2], [3], [4, 5]],
    "a missing label": lambda: [1, None, 3],
    "dates": lambda: [date(2024, 1, 31), date(2024, 2, 1), date(2024, 3, 1)],
    "durations": lambda: np.array([1, 2, 3], "m8[D]"),
    "sets": lambda: [{1}, {2}, {3}],
    "records": lambda: np.zeros(3, [("a", "f8"), ("b", "i4")]),
    "too large": lambda: [10**400, 1, 2],
    "infinity": lambda: [1.0, float("inf"), 2.0],
}


def outcome(name, value):
    """The space that is made of a value; None if the value is refused in one line."""
    try:
        return MAKE[name][0](value)
    except InputError as refusal:
        error = refusal
    assert "\n" not in str(error)
    assert error.subject
    return None


@pytest.mark.parametrize(("name", "kind"), spread(MAKE, NEVER, times=4))
def test_what_no_label_space_is_made_of(name, kind):
    is_default = kind == "None" and name in ("visible", "headings", "present")  # None: all, or none
    assert (outcome(name, NEVER[kind]()) is None) != is_default


def test_no_space_is_made_of_a_sparse_tensor():
    assert [name for name in MAKE if outcome(name, NEVER["a sparse tensor"]()) is not None] == []


@pytest.mark.parametrize(("name", "kind"), spread(NUMERIC, NOT_NUMBERS, times=3))
def test_what_is_not_numbers(name, kind):
    assert outcome(name, NOT_NUMBERS[kind]()) is None


@pytest.mark.parametrize(
    ("name", "kind"), spread([name for name in MAKE if name not in (*NUMERIC, "anchors")], NOT_NUMBERS, times=3)
)
def test_other_labels_are_read_as_they_are_or_refused(name, kind):
    space = outcome(name, NOT_NUMBERS[kind]())
    if space is not None:
        assert len(space) == 3
        d = space.pairwise()
        assert bool((d >= 0).all())
        assert not d.diagonal().any()


def equal(a, b):
    return a.digests() == b.digests() and torch.equal(a.pairwise(), b.pairwise())


@pytest.mark.parametrize("name", [name for name in MAKE if name not in ("weighted", "threshold", "nearest", "anchors")])
def test_labels_in_any_form_are_the_same_labels(name):
    make, labels = MAKE[name]
    expected = make(labels)
    assert isinstance(expected, spaces.LabelSpace)
    forms = [tuple(labels), deque(labels), iter(labels), (label for label in labels), dict(enumerate(labels)).values()]
    if name in NUMERIC or name in SINGLE:
        array = np.array(labels)
        frozen = array.copy()
        frozen.flags.writeable = False
        forms += [array, frozen, array[::-1][::-1], list(array), np.ma.masked_array(array), array.astype(object)]
        forms.append(array.astype(array.dtype.newbyteorder(">")))
        if array.dtype.kind in "biuf":
            forms += [torch.tensor(array), [torch.tensor(row) for row in array]]
    for form in forms:
        assert equal(make(form), expected)


@pytest.mark.parametrize("name", [name for name in MAKE if name not in ("weighted", "threshold", "nearest", "anchors")])
def test_columns_of_pandas(name):
    pandas = pytest.importorskip("pandas")
    make, labels = MAKE[name]
    expected = make(labels)
    column = pandas.Series(labels, index=[30, 10, 20])  # in the order of the column, whatever its index
    forms = [column] + ([pandas.Index(labels)] if name in SINGLE else [])
    if name in ("vectors", "geo", "multi_hot", "present", "visible", "matrix"):
        forms.append(pandas.DataFrame(labels, index=[2, 0, 1]))
    if name in ("classes", "ordinal words", "levels", "ordinal", "numbers"):
        forms += [column.astype("category"), pandas.Categorical(labels)]
    if name in ("classes", "ordinal words", "levels"):
        forms.append(column.astype("string"))
    if name in ("classes of integers", "numbers", "ordinal"):
        forms += [column.astype("Int64")]
    for form in forms:
        assert equal(make(form), expected)
    if name in SINGLE:
        missing = column.astype(object)
        missing[10] = None
        bad = [missing]
        bad += [missing.astype("category")] if name in ("classes", "ordinal words", "levels", "ordinal") else []
        bad += [missing.astype("string")] if name in ("classes", "ordinal words", "levels") else []
        bad += [missing.astype("Int64")] if name in ("classes of integers", "numbers", "ordinal") else []
        for form in bad:
            assert outcome(name, form) is None


def test_dates_of_pandas_are_refused_as_numbers_and_accepted_as_classes():
    pandas = pytest.importorskip("pandas")
    days = pandas.Series(pandas.to_datetime(["2024-01-31", "2024-02-01", "2024-01-31"]))
    for form in (days, days.dt.tz_localize("UTC"), days.to_list()):
        with refuses("values", hint="DateLabels"):
            spaces.VectorLabels(form)
        assert spaces.ClassLabels(form).class_ids.tolist() == [0, 1, 0]
        with refuses("class of item 1", got="NaT"):
            spaces.ClassLabels(pandas.Series(form).where([True, False, True]))
    refused(lambda: spaces.VectorLabels(days - days[0]), "values", hint="divide")


def test_categories_in_order_are_levels():
    pandas = pytest.importorskip("pandas")
    column = pandas.Categorical(["low", "high"], categories=["low", "middle", "high"], ordered=True)
    for form in (column, pandas.Series(column)):
        labels = spaces.OrdinalLabels(form)
        assert (labels.pairwise()[0, 1], labels.levels) == (1, ["low", "middle", "high"])
        assert spaces.OrdinalLabels(form, ["high", "low"]).levels == ["high", "low"]
    with refuses("labels", got="'low' has no order"):
        spaces.OrdinalLabels(pandas.Series(["low", "high"]).astype("category"))


def test_real_numbers_of_other_types():
    assert as_numbers("x", [Decimal("1.5"), 2, np.float32(3), np.bool_(True)], "").tolist() == [1.5, 2, 3, 1]
    assert as_numbers("x", [2**70, 1], "").tolist() == [2.0**70, 1]
    assert as_numbers("x", np.array([1.5], np.longdouble), "").tolist() == [1.5]
    assert as_numbers("x", torch.ones(2, dtype=torch.bfloat16), "").dtype == torch.bfloat16
    assert as_numbers("x", np.array([[1, 2], [3, 4]], object)[:, 0], "").tolist() == [1, 3]
    column = np.empty(2, object)
    column[:] = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    assert (as_numbers("x", column, "").tolist(), as_items("x", np.array([1, 2]), "")) == ([[1, 2], [3, 4]], [1, 2])
    assert all(map(is_missing, (None, float("nan"), np.datetime64("NaT"))))
    assert not any(map(is_missing, (0, "", [], np.array([np.nan]))))


# ---------------------------------------------------------------------------------------------------------------------
# values that look right, and mean something else


def test_a_table_with_longitude_first():
    table = pytest.importorskip("pandas").DataFrame({"lon": [3.0, 40.0], "lat": [1.0, 2.0]})
    with refuses("places", got="'lon' first", allowed="latitude must come first", hint="table[['lat', 'lon']]"):
        spaces.GeoLabels(table)
    expected = spaces.GeoLabels([[1.0, 3.0], [2.0, 40.0]]).pairwise()
    assert torch.equal(spaces.GeoLabels(table[["lat", "lon"]]).pairwise(), expected)


def test_attributes_as_tags():
    for matrix in (np.eye(2), np.eye(2, dtype=np.int64), torch.eye(3), torch.eye(3, dtype=torch.bool)):
        with refuses("tags", got="a matrix of 0 and 1", hint="MultiHotLabels"):
            spaces.TagLabels(matrix)
    assert spaces.TagLabels([[1, 0], [0, 1]]).pairwise().sum() == 0  # lists of tags, which are called 0 and 1


class Elementwise(spaces.NumberLabels):
    def distances(self, x, y):
        return (x.values - y.values).abs()[:, 0]


def test_distances_of_another_shape():
    labels = Elementwise([1.0, 2.0, 3.0, 4.0])
    for call in (labels.pairwise, lambda: spaces.ThresholdLabels(labels, 1.0).pairwise()):
        refused(call, "Elementwise.distances", got="[4]", allowed="must be [4, 4]")


# ---------------------------------------------------------------------------------------------------------------------
# a short hash of each label: it does not depend on order or on other items, and another label changes it


#: Another label in place of the last one.
ANOTHER = {
    "classes": "d",
    "classes of integers": 8,
    "vectors": [4.0, 5.5],
    "numbers": 7,
    "poses": (JOINTS[2] + 0.01).tolist(),
    "segmentation": [[1, 1]],
    "captions": ["red red cat"],
    "caption_vectors": ["red red cat"],
    "tags": ["b", "d"],
    "multi_hot": [1, 0],
    "ordinal": 4,
    "ordinal words": "middle",
    "geo": [-33.9, 151.201],
    "circular": 95.501,
    "sequences": ["re", "do"],
    "dates": "2024-01-01",
}
DIGESTS = {name: (*MAKE[name], other) for name, other in ANOTHER.items()} | {
    "hidden joints": (
        lambda x: spaces.PoseLabels([joints for joints, _ in x], [visible for _, visible in x]),
        [(joints, [1, 1, 1, 1]) for joints in JOINTS.tolist()],
        (JOINTS[2].tolist(), [1, 0, 1, 1]),
    ),
    "number of captions": (lambda x: spaces.CaptionLabels(x, WORDS), [["dog"], ["cat"], ["red"]], ["red", "red"]),
    "sequences of characters": (spaces.SequenceLabels, ["ab", "bca", "c"], "cc"),
    "weighted": (
        lambda x: spaces.WeightedLabels(
            {spaces.ClassLabels([a for a, _ in x]): 1.0, spaces.NumberLabels([b for _, b in x]): 2.0}
        ),
        [("a", 1.0), ("b", 2.0), ("c", 3.0)],
        ("c", 3.5),
    ),
    "binarized": (lambda x: spaces.ThresholdLabels(spaces.NumberLabels(x), 1.0), [0.0, 1.0, 5.0], 6.0),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_a_digest_depends_on_its_label_alone(name):
    make, labels, other = DIGESTS[name]
    before = make(labels).digests()
    assert len(set(before)) == len(set(map(repr, labels)))
    assert all(len(digest) == 12 for digest in before)
    changed = make([*labels[:2], other]).digests()
    assert changed[:2] == before[:2]
    assert changed[2] not in before
    assert make([labels[2], labels[0]]).digests() == [before[2], before[0]]
    assert make([*labels, other]).digests()[:3] == before


@pytest.mark.parametrize("name", SPACES)
def test_a_part_has_the_digests_of_its_items(name, tmp_path):
    space = SPACES[name](tmp_path)
    digests = space.digests()
    rows = [7, 2, 2, 11]
    assert (len(digests), space[rows].digests()) == (len(space), [digests[row] for row in rows])
    assert (space[rows].as_root().digests(), space.to("cpu").digests()) == ([digests[row] for row in rows], digests)


def test_the_order_of_captions_and_tags_is_no_content():
    tags = spaces.TagLabels([["a", "b"], ["b", "a", "a"]])
    captions = spaces.CaptionLabels([["a dog", "red"], ["red", "dog"]], WORDS)
    assert (len({*tags.digests()}), len({*captions.digests()})) == (1, 1)
