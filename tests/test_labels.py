"""Label spaces: what they accept, what they refuse and in which words, and what their distances are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import class_distances, label_distances_of, label_vectors

from contml.contracts import InputError
from contml.distances import nearest, pairwise
from contml.labels import (
    ClassLabels,
    NearestLabels,
    PackedLabels,
    PoseLabels,
    PrecomputedLabels,
    ThresholdLabels,
    VectorLabels,
)


def raises(message, make):
    """The whole message of the InputError, which is one line."""
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value) == message


# ---------------------------------------------------------------------------------------------------------------------
# classes


@pytest.mark.parametrize(
    "labels",
    [
        ["cat", "dog", "cat", "bird"],
        [7, -3, 7, 1000],
        torch.tensor([7, -3, 7, 1000]),
        np.array([7, -3, 7, 1000]),
        (True, False, True, 5),
        [("a", 1), ("b", 1), ("a", 1), ("c", 0)],
        ["1", 1, "1", 2.5],
    ],
    ids=repr,
)
def test_classes_of_any_names_are_numbered_from_0(labels):
    space = ClassLabels(labels)
    ids = space.classes.tolist()
    assert sorted(set(ids)) == [0, 1, 2]
    assert ids[0] == ids[2]
    assert [space.names[i] for i in ids] == list(labels)
    assert torch.equal(space.pairwise().double(), class_distances(torch.tensor([0, 1, 0, 2])))
    assert space.view([3, 0]).classes.tolist() == [ids[3], ids[0]]
    assert (space.kind, space.unit, len(space)) == ("classes", "another class", 4)


def test_class_numbers_do_not_depend_on_the_order_of_items():
    assert ClassLabels([30, 10, 20]).classes.tolist() == [2, 0, 1]
    assert ClassLabels(["b", "a"]).names == ["a", "b"]
    assert ClassLabels([5, 9]).subset([1]).classes.tolist() == [1]


# ---------------------------------------------------------------------------------------------------------------------
# vectors


@settings(max_examples=40, deadline=None)
@given(values=label_vectors())
def test_vectors_are_euclidean_squared_or_plain(values):
    plain = label_distances_of(values)
    torch.testing.assert_close(VectorLabels(values, squared=False).pairwise().double(), plain, rtol=1e-6, atol=1e-9)
    squared = (values[:, None] - values[None]).square().sum(2)
    torch.testing.assert_close(VectorLabels(values).pairwise().double(), squared, rtol=1e-6, atol=1e-9)
    # Copies are at exactly 0, all else above it.
    assert torch.equal(VectorLabels(values).pairwise() == 0, plain == 0)


@pytest.mark.parametrize("values", [[0, 3, 5], [0.0, 3.0, 5.0], np.array([0, 3, 5]), torch.tensor([[0], [3], [5]])])
def test_vectors_of_one_number(values):
    assert VectorLabels(values).pairwise().tolist() == [[0, 9, 25], [9, 0, 4], [25, 4, 0]]
    assert VectorLabels(values, squared=False).pairwise([0], [2]).tolist() == [[5]]


def test_vectors_of_more_axes_and_units():
    assert VectorLabels(torch.ones(2, 3, 4)).values.shape == (2, 12)
    assert VectorLabels([1.0]).unit == "squared difference of labels"
    assert VectorLabels([1.0], squared=False).unit == "difference of labels"
    assert VectorLabels([1.0], unit="years").unit == "years"


def test_dates_in_seconds_keep_their_small_differences():
    values = 1.7e9 + torch.tensor([0.0, 1e-3, 1.0], dtype=torch.float64)
    exact = values[:, None] - values[None]
    torch.testing.assert_close(VectorLabels(values).pairwise(), exact.square().float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_label_that_is_not_finite_is_named(bad):
    values = torch.zeros(5, 2)
    values[3, 1] = bad
    raises("values of item 3 is not finite; labels are finite numbers", lambda: VectorLabels(values))
    raises("values of item 3 is not finite; labels are finite numbers", lambda: VectorLabels(values[:, 1]))


def test_packed_labels_of_ones_own():
    class Circle(PackedLabels):
        """Angles; labels and weights move together."""

        def __init__(self, angles, weights):
            super().__init__(angles=angles, weights=weights)

        def distances(self, x, y):
            turn = (x.angles[:, None] - y.angles).abs() % 360
            return torch.minimum(turn, 360 - turn)

    space = Circle(torch.tensor([0.0, 90.0, 350.0]), torch.arange(3))
    assert space.pairwise().tolist() == [[0, 90, 10], [90, 0, 100], [10, 100, 0]]
    assert space.subset([2, 1]).weights.tolist() == [2, 1]
    assert space.unit == "label distance"
    raises(
        "the packed labels have {'angles': 3, 'weights': 2} items; give one row an item in each",
        lambda: Circle(torch.zeros(3), torch.zeros(2)),
    )
    raises(
        "angles of item 1 is not finite; labels are finite numbers",
        lambda: Circle(torch.tensor([0.0, torch.nan]), torch.zeros(2)),
    )
    with pytest.raises(NotImplementedError, match=r"PackedLabels has no distances\(self, x, y\)"):
        PackedLabels(a=torch.zeros(2)).pairwise()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 3], "row 3 does not exist; rows are 0 to 2"),
        ([-1], "row -1 does not exist; rows are 0 to 2"),
        ([0.5], "rows are torch.float32 of shape [1]; give a list of whole numbers"),
        ([[0, 1]], "rows are torch.int64 of shape [1, 2]; give a list of whole numbers"),
        ([True, False], "rows are torch.bool of shape [2]; give a list of whole numbers"),
    ],
)
def test_rows_that_do_not_exist(rows, message):
    space = VectorLabels([0.0, 1.0, 2.0])
    for use in (space.subset, space.view, space.pairwise, lambda rows: space.pairwise(None, rows)):
        raises(message, lambda use=use: use(rows))


# ---------------------------------------------------------------------------------------------------------------------
# poses


def joints_and_visible(items=6, joints=5):
    generator = torch.Generator().manual_seed(0)
    return 300 * torch.rand(items, joints, 2, generator=generator), torch.ones(items, joints, dtype=torch.bool)


def test_hidden_items_are_refused_or_dropped():
    joints, visible = joints_and_visible()
    visible[1, :3], visible[4] = False, False
    visible[5, :2] = False  # 3 of 5 are enough
    raises(
        "item 1 has 2 of 5 joints visible (2 such items); a pose needs more than half: "
        "leave these out, or set hidden=drop",
        lambda: PoseLabels(joints, visible),
    )
    space = PoseLabels(joints, visible, hidden="drop")
    assert space.kept.tolist() == [0, 2, 3, 5]
    assert len(space) == 4
    expected = PoseLabels(joints[space.kept], visible[space.kept])
    assert torch.equal(space.pairwise(), expected.pairwise())
    assert PoseLabels(joints).kept.tolist() == list(range(6))
    raises(
        "no item has more than half of its 5 joints visible",
        lambda: PoseLabels(joints, torch.zeros_like(visible), hidden="drop"),
    )


def test_half_of_the_joints_are_not_enough():
    joints, visible = joints_and_visible(joints=4)
    visible[2, :2] = False
    raises(
        "item 2 has 2 of 4 joints visible (1 such items); a pose needs more than half: "
        "leave these out, or set hidden=drop",
        lambda: PoseLabels(joints, visible),
    )


def test_kept_goes_with_a_subset():
    joints, visible = joints_and_visible()
    visible[1] = False
    space = PoseLabels(joints, visible, hidden="drop")
    assert space.subset([3, 1]).kept.tolist() == [4, 2]


def test_shapes_of_poses():
    raises(
        "joints are [6, 10]; give [items, joints, 2] or [items, joints, 3]",
        lambda: PoseLabels(torch.zeros(6, 10)),
    )
    raises(
        "visible is [5, 6], but joints are [6, 5, 2]; give [items, joints]",
        lambda: PoseLabels(torch.zeros(6, 5, 2), torch.ones(5, 6)),
    )
    assert len(PoseLabels(np.zeros((2, 5, 3)), np.ones((2, 5), dtype=np.uint8))) == 2


@pytest.mark.parametrize("normalize", [False, True])
def test_a_joint_that_is_not_finite_is_named(normalize):
    joints, _ = joints_and_visible()
    joints[3, 1, 0] = torch.nan
    raises(
        "a visible joint of item 3 is not finite; labels are finite numbers",
        lambda: PoseLabels(joints, normalize=normalize),
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_an_error_names_the_item_of_the_input_where_some_are_dropped(normalize):
    joints, visible = joints_and_visible()
    visible[0], joints[3] = False, torch.nan if not normalize else 1.0
    with pytest.raises(InputError, match="of item 3 "):
        PoseLabels(joints, visible, hidden="drop", normalize=normalize)


@settings(max_examples=30, deadline=None)
@given(
    scale=st.floats(0.05, 20.0),
    shift=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
    squared=st.booleans(),
    some_hidden=st.booleans(),
)
def test_normalised_poses_know_neither_place_nor_size(scale, shift, squared, some_hidden):
    joints, visible = joints_and_visible()
    joints = joints.double()
    if some_hidden:
        visible[2, 0] = visible[3, 4] = False
    moved = joints.clone()
    moved[1::2] = scale * moved[1::2] + torch.tensor(shift, dtype=torch.float64)
    options = {"squared": squared, "normalize": True}
    expected, ours = (PoseLabels(x, visible, **options).pairwise() for x in (joints, moved))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_normalised_pose_has_its_mean_at_0_and_a_scale_of_1():
    joints, visible = joints_and_visible()
    visible[0, 3] = False
    joints[0, 3] = 1e9
    space = PoseLabels(joints, visible, normalize=True)
    seen = space.joints[0, visible[0]]
    torch.testing.assert_close(seen.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(seen.square().sum(1).mean().item(), 1.0)
    assert space.joints[0, 3].tolist() == [0, 0]
    # A pose and the same pose twice as large.
    assert PoseLabels(torch.stack((joints[1], 2 * joints[1])), normalize=True).pairwise()[0, 1] < 1e-12


@pytest.mark.parametrize("place", [0.0, 2.0, 0.1, 123.456])
def test_a_pose_in_one_place_cannot_be_normalised(place):
    joints = joints_and_visible(joints=3)[0].double()
    joints[2] = place
    raises(
        "all visible joints of item 2 are in one place; a pose without size cannot be normalised",
        lambda: PoseLabels(joints, normalize=True),
    )


def test_units_of_poses():
    joints, _ = joints_and_visible()
    assert PoseLabels(joints).unit == "squared pixels, summed over 5 joints"
    assert PoseLabels(joints, squared=False).unit == "pixels, over 5 joints"
    assert PoseLabels(joints, normalize=True).unit == "squared person scales, summed over 5 joints"
    assert PoseLabels(joints, unit="cm").unit == "cm"


# ---------------------------------------------------------------------------------------------------------------------
# a matrix on disk


@pytest.fixture
def saved(tmp_path):
    def save(matrix, name="d.npy"):
        np.save(tmp_path / name, matrix)
        return tmp_path / name

    return save


def distances(n=9, dtype=np.float32):
    values = np.random.default_rng(0).normal(size=(n, 2))
    return np.square(values[:, None] - values[None]).sum(2).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "int32", "uint8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_comes_back(saved, dtype, order):
    matrix = np.asarray(distances(), dtype=dtype, order=order)
    path = saved(matrix)
    for space in (PrecomputedLabels(path, unit="apples"), PrecomputedLabels(str(path), unit="apples")):
        assert torch.equal(space.pairwise(), torch.from_numpy(matrix.astype(np.float32)))
        assert (len(space), space.unit, space.kind) == (9, "apples", "distances")
        rows, cols = [4, 1, 1], [8, 0]
        assert torch.equal(space.pairwise(rows, cols), torch.from_numpy(matrix[rows][:, cols].astype(np.float32)))
        part = space.subset([5, 3, 7]).subset([2, 0])
        assert torch.equal(part.pairwise(), torch.from_numpy(matrix[[7, 5]][:, [7, 5]].astype(np.float32)))
    assert path.read_bytes()[:6] == b"\x93NUMPY"


def test_the_matrix_stays_on_disk(saved):
    space = PrecomputedLabels(saved(distances(200)))
    parts = [space, space.subset(range(100)), space.to("cpu")]
    for part in parts:
        held = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
        assert all(isinstance(value, np.memmap) and value.mode == "r" for value in held)
        assert held
    block = space.pairwise([0], [1])
    before = block.clone()
    block += 1  # a block is a copy
    assert torch.equal(space.pairwise([0], [1]), before)


def test_a_matrix_behaves_as_the_labels_it_was_made_of(saved):
    source = VectorLabels(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)))
    space = PrecomputedLabels(saved(source.pairwise().numpy()))
    assert torch.equal(nearest(space, 5).rows, nearest(source, 5).rows)
    assert torch.equal(space.view([3, 1]).distances([1]), source.pairwise([1], [3, 1]))


def test_files_that_are_no_matrix(saved, tmp_path):
    missing = tmp_path / "none.npy"
    raises(
        f"{missing}: no such file; give the .npy file of a matrix of label distances",
        lambda: PrecomputedLabels(missing),
    )
    whole = saved(distances())
    for name, content in (
        ("truncated.npy", whole.read_bytes()[:-40]),
        ("truncated in its head.npy", whole.read_bytes()[:40]),
        ("empty.npy", b""),
        ("text.npy", b"1 2 3\n4 5 6\n"),
        ("pickle.npy", pickle.dumps(distances())),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            PrecomputedLabels(path)
        assert str(error.value).startswith(f"{path}: not a readable .npy matrix (")
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r": not a readable \.npy matrix \(.*directory"):
        PrecomputedLabels(tmp_path)


def test_pickled_objects_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    array = np.empty((2, 2), dtype=object)
    array[:] = 0
    array[0, 1] = Bomb()
    np.save(tmp_path / "bomb.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=r"bomb\.npy: not a readable \.npy matrix \("):
        PrecomputedLabels(tmp_path / "bomb.npy")


def test_an_archive_of_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", d=distances())
    with pytest.raises(InputError, match=r"d\.npz: "):
        PrecomputedLabels(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 4)), "float64 of shape [3, 4]; label distances are a square matrix of numbers"),
        (np.zeros(9), "float64 of shape [9]; label distances are a square matrix of numbers"),
        (np.zeros((3, 3, 3)), "float64 of shape [3, 3, 3]; label distances are a square matrix of numbers"),
        (np.zeros((3, 3), dtype=complex), "complex128 of shape [3, 3]; label distances are a square matrix of numbers"),
        (np.zeros((3, 3), dtype="U3"), "<U3 of shape [3, 3]; label distances are a square matrix of numbers"),
        (np.ones((3, 3)), "the diagonal is not 0; an item's label distance to itself is 0"),
        (np.diag([0, 0, np.nan]), "the diagonal is not 0; an item's label distance to itself is 0"),
        (np.diag([0, -1, 0]), "the diagonal is not 0; an item's label distance to itself is 0"),
        (np.array([[0, 1], [2, 0.0]]), "entries [0, 1] and [1, 0] differ; label distances are symmetric"),
        (np.array([[0, np.nan], [2, 0.0]]), "entries [0, 1] and [1, 0] differ; label distances are symmetric"),
    ],
)
def test_matrices_that_are_no_label_distances(saved, matrix, message):
    path = saved(matrix)
    raises(f"{path}: {message}", lambda: PrecomputedLabels(path))


def test_a_large_matrix_is_looked_at_in_some_rows(saved):
    matrix = distances(100)
    matrix[50:, :50] += 1
    with pytest.raises(InputError, match=r"entries \[0, 50\] and \[50, 0\] differ"):
        PrecomputedLabels(saved(matrix))
    # Rounding in single precision is no asymmetry.
    PrecomputedLabels(saved(distances(100) * (1 + 1e-7 * np.random.default_rng(0).normal(size=(100, 100)))))


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_a_bad_block_is_told_when_it_is_read(saved, bad):
    matrix = distances()
    matrix[2, 5] = matrix[5, 2] = bad
    space = PrecomputedLabels(saved(matrix))
    assert pairwise(space, [0, 1]).shape == (2, 9)
    message = (
        f"a label distance is {bad} (row 1, column 5 of the block); "
        "label distances are finite numbers >= 0: look for NaN in the labels"
    )
    raises(message, lambda: pairwise(space, [0, 2]))
    raises(message, lambda: nearest(space, 2, [0, 2]))
    raises(message.replace("column 5", "column 0"), lambda: space.view([5, 0, 2]).distances([1, 2]))


# ---------------------------------------------------------------------------------------------------------------------
# one space as another


@settings(max_examples=30, deadline=None)
@given(values=label_vectors(), data=st.data())
def test_a_threshold_makes_nearer_items_positives(values, data):
    source = VectorLabels(values)
    d = source.pairwise()
    threshold = data.draw(st.sampled_from([1e-3, 1.0, float(d.max()) or 1.0]))
    space = ThresholdLabels(threshold, space=source)
    assert torch.equal(space.pairwise(), (d >= threshold).float())
    rows = [len(values) - 1, 0]
    assert torch.equal(space.subset(rows).pairwise(), space.pairwise(rows, rows))
    assert space.kind == space.view(rows).kind == "binary"
    assert space.view(rows).classes is None


def test_threshold_options():
    source = VectorLabels([0.0, 1.0, 3.0], unit="years")
    assert ThresholdLabels(2.5, space=source).unit == "2.5 or more (years)"
    # A classes space seen through a threshold has lost its classes.
    assert ThresholdLabels(0.5, space=ClassLabels([0, 0, 1])).view().classes is None
    for threshold in (0, -1.0, float("nan")):
        raises(
            f"threshold is {threshold}; it must be above 0, or no item has a positive",
            lambda threshold=threshold: ThresholdLabels(threshold, space=source),
        )


def test_nearest_is_a_relation_that_is_not_symmetric():
    # 10 is alone: its nearest is 2, whose own nearest is 1.
    space = NearestLabels(1, space=VectorLabels([0.0, 1.0, 2.0, 10.0]))
    assert space.pairwise().tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]]
    assert not torch.equal(space.pairwise(), space.pairwise().T)
    assert (space.kind, space.unit) == ("binary", "not among the 1 nearest")
    assert space.view([3, 2]).distances().tolist() == [[0, 0], [1, 0]]


@settings(max_examples=30, deadline=None)
@given(values=label_vectors(max_size=9), data=st.data())
def test_a_subset_keeps_the_neighbours_of_the_whole(values, data):
    source = VectorLabels(values)
    k = data.draw(st.integers(1, len(values) - 1))
    whole = NearestLabels(k, space=source)
    d = whole.pairwise()
    assert torch.equal((d == 0).sum(1), torch.full((len(values),), k + 1))
    assert torch.equal(torch.where(d == 0, source.pairwise(), 0).amax(1), nearest(source, k).distances[:, -1])
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
    part = whole.subset(rows)
    assert len(part) == len(rows)
    assert torch.equal(part.pairwise(), d[rows][:, rows])
    assert torch.equal(part.subset([len(rows) - 1]).to("cpu").pairwise(), torch.zeros(1, 1))


def test_nearest_needs_as_many_items():
    source = VectorLabels([0.0, 1.0, 2.0])
    for k in (0, 3):
        raises(
            f"k is {k}, but there are 2 items to choose neighbours from; k must be 1 to 2",
            lambda k=k: NearestLabels(k, space=source),
        )
    raises(
        "k is 30, but there are 2 items to choose neighbours from; k must be 1 to 2",
        lambda: NearestLabels(space=source),
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, float("nan")], "the class of item 1 is nan; give each item a class"),
        (["a", None], "the class of item 1 is None; give each item a class"),
        ([], "there are no labels; give one class an item"),
    ],
)
def test_what_is_no_class(labels, message):
    raises(message, lambda: ClassLabels(labels))


def test_equal_numbers_of_numpy_and_torch_are_one_class():
    assert ClassLabels([torch.tensor(1), np.int64(1), 1]).classes.tolist() == [0, 0, 0]
