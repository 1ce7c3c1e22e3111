"""Conditions on metadata, against the same conditions in Python."""

import operator

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow import compute
from support.refusals import refuses

from contml import Index
from contml.search.inputs import named_images, typed_cells
from contml.search.where import condition

COLUMNS = {"price": "int", "area": "float", "room": "text", "sold": "bool", "or": "int", 'a "b"': "int"}
ROWS = [
    {"price": 1, "area": 2.5, "room": "kitchen", "sold": True, "or": 1, 'a "b"': 1},
    {"price": 3, "area": -1.0, "room": "bath", "sold": False, "or": 2, 'a "b"': 2},
    {"price": None, "area": None, "room": None, "sold": None, "or": None, 'a "b"': None},
    {"price": 500_000, "area": 0.0, "room": "it's", "sold": True, "or": 3, 'a "b"': 3},
]
TABLE = pyarrow.Table.from_pylist([{**row, "row": n} for n, row in enumerate(ROWS)])


def found(text):
    return TABLE.filter(condition(text, COLUMNS))["row"].to_pylist()


CONDITIONS = [
    ("price < 500000 and room = 'kitchen'", [0]),
    ("price < 500000 AND NOT room = 'kitchen'", [1]),
    ("(price = 1 or price = 3) and sold = true", [0]),
    ("room in ('bath', 'it''s')", [1, 3]),
    ("room not in ('bath')", [0, 3]),
    ("not (room in ('bath') or price = 1)", [3]),
    ("room is null", [2]),
    ("room IS NOT NULL", [0, 1, 3]),
    ("area >= -1 and area <= .0", [1, 3]),
    ('"or" = 2', [1]),
    ('"a ""b""" = 3', [3]),
]


@pytest.mark.parametrize(("text", "rows"), CONDITIONS)
def test_conditions(text, rows):
    assert found(text) == rows


OPERATORS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _truth(tree, row):
    """True, False, or None where SQL says null."""
    kind, *rest = tree
    if kind in OPERATORS:
        return None if row[rest[0]] is None else OPERATORS[kind](row[rest[0]], rest[1])
    if kind == "null":
        return row[rest[0]] is None
    if kind == "in":
        return None if row[rest[0]] is None else row[rest[0]] in rest[1]
    values = [_truth(each, row) for each in rest]
    if kind == "not":
        return None if values[0] is None else not values[0]
    if kind == "and":
        return False if False in values else None if None in values else True
    return True if True in values else None if None in values else False


def _written(tree):
    kind, *rest = tree
    if kind in OPERATORS:
        return f"{rest[0]} {kind} {rest[1]}"
    if kind == "null":
        return f"{rest[0]} is null"
    if kind == "in":
        return f"{rest[0]} in ({', '.join(map(str, rest[1]))})"
    if kind == "not":
        return f"not ({_written(rest[0])})"
    return f"({_written(rest[0])}) {kind} ({_written(rest[1])})"


LEAVES = st.one_of(
    st.tuples(st.sampled_from([*OPERATORS]), st.sampled_from(["price", "area"]), st.sampled_from([-1, 0, 1, 2.5, 3])),
    st.tuples(st.just("null"), st.sampled_from(["price", "room"])),
    st.tuples(st.just("in"), st.sampled_from(["price", "area"]), st.lists(st.sampled_from([0, 1, 3]), min_size=1)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_any_condition_is_as_in_sql(tree):
    assert found(_written(tree)) == [n for n, row in enumerate(ROWS) if _truth(tree, row) is True]


def test_a_long_condition_is_refused():
    with refuses("where", got="characters"):
        condition("price = 1 or " * 1000 + "price = 1", COLUMNS)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of 200 items in two segments: of the first, prices are whole numbers, and no item has a room."""
    made = Index.create(tmp_path_factory.mktemp("where") / "index", 4)
    vectors = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    made.add([f"{n}" for n in range(100)], vectors[:100], [{"price": n} if n % 9 else None for n in range(100)])
    rooms = ("bath", "hall")
    entries = [{"price": n + 0.5, "room": rooms[n % 2]} for n in range(100, 200)]
    made.add([f"{n}" for n in range(100, 200)], vectors[100:], entries)
    made.remove(["150", "3"])
    return made, vectors


@pytest.mark.parametrize(("where", "meets"), [
    ("price < 20", lambda n: n < 20 and n % 9 != 0), ("price is null", lambda n: n < 100 and n % 9 == 0),
    ("room = 'hall'", lambda n: n >= 100 and n % 2 == 1), ("not room = 'hall'", lambda n: n >= 100 and n % 2 == 0),
    ("room is null or price > 190", lambda n: n < 100 or n >= 190),
    (compute.field("price") >= 120.5, lambda n: n >= 120), ("price < 0", lambda n: False),
])  # fmt: skip
def test_a_search_finds_the_nearest_of_the_items_that_meet_a_condition(index, where, meets):
    made, vectors = index
    rows = [n for n in range(200) if meets(n) and n not in (3, 150)]
    found = made.search(vectors[:5], 7, where=where)
    distances = np.linalg.norm(vectors[:5, None].astype(np.float64) - vectors[rows], axis=2)
    expected = np.array(rows, int)[np.argsort(distances, axis=1, kind="stable")[:, :7]]
    assert found.ids.tolist() == expected.astype(str).tolist()
    assert [len(each) for each in found.metadata] == [expected.shape[1]] * 5
    assert np.allclose(found.distances, np.sort(distances, axis=1)[:, :7])


def test_a_wrong_condition_of_a_search_names_the_columns(index):
    made, vectors = index
    with refuses("where", got="no column 'prise'", hint="price"):
        made.search(vectors[:1], where="prise < 3")
    with refuses("where", allowed="must be a condition on price, room"):
        made.search(vectors[:1], where=compute.field("prise") < 3)
    with refuses("where", allowed="must be a condition on price, room"):
        made.search(vectors[:1], where=7)


def test_items_that_meet_a_condition_are_removed(index):
    made, _ = index
    live = {int(name) for name in made.ids}
    meets = {n for n in live if n >= 100 and n % 2 == 1}
    copy = Index.create(made.path.parent / "copy", made.dim)
    copy.add(made.ids, made.embeddings(made.ids), made.metadata(made.ids))
    assert copy.remove(["7"], where="room = 'hall'") == (len(meets) + 1, 0)
    assert {int(name) for name in copy.ids} == live - meets - {7}
    assert copy.remove(where="room = 'hall'") == (0, 0)
    with refuses("where", got="no column 'roo'"):
        copy.remove(where="roo = 'hall'")


def test_rows_of_a_table_that_meet_a_condition(tmp_path):
    lines = ["image,price,note", "a.png,3,", "b.png,,", "c.png,30,", "d.png,4.5,"]
    (tmp_path / "items.csv").write_text("\n".join(lines))
    given = f"@{tmp_path}/items.csv:image"
    names = [image.name for image in named_images([given], where="price < 10 and note is null")]
    assert names == ["a.png", "d.png"]
    (tmp_path / "list.txt").write_text("a.png")
    (tmp_path / "a.png").write_bytes(b"")
    for other in (f"@{tmp_path}/list.txt", str(tmp_path), f"{tmp_path}/a.png"):
        with refuses("--where", f"used with {other}", "@FILE:COLUMN"):
            named_images([other], where="price < 10")
    with refuses("--where", "no column 'prize'", hint="price"):
        named_images([given], where="prize < 10")
    with refuses("--where", "no row of"):
        named_images([given], where="price > 100")


@pytest.mark.parametrize(("texts", "values"), [
    (["1", "", "-20"], [1, None, -20]), (["1", "2.50"], [1.0, 2.5]),
    (["1354.25000000000001", "1e-05"], [1354.25, 1e-05]), (["007", "2"], ["007", "2"]),
    (["1234567890123456", "2"], ["1234567890123456", "2"]), (["1e5", "1"], ["1e5", "1"]), (["1", "x"], ["1", "x"]),
    (["nan", "inf"], ["nan", "inf"]),
])  # fmt: skip
def test_columns_of_numbers_and_codes(texts, values):
    found = typed_cells(texts)
    assert (found, [*map(type, found)]) == (values, [*map(type, values)])
