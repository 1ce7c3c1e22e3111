"""Label spaces: what they accept, what they refuse, and their distances."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.label_spaces import SPACES
from support.refusals import refused, refuses
from support.strategies import class_distances, label_vectors

from contml.labels import (
    ClassLabels,
    LabelSpace,
    NearestLabels,
    NumberLabels,
    PoseLabels,
    ThresholdLabels,
    VectorLabels,
    nearest,
)
from contml.losses.inputs import as_labels

# ---------------------------------------------------------------------------------------------------------------------
# classes


@pytest.mark.parametrize("labels", [["cat", "dog", "cat", "bird"], [("a", 1), ("b", 1), ("a", 1), ("c", 0)]], ids=repr)
def test_classes_of_any_names_are_numbered_from_0(labels):
    space = ClassLabels(labels)
    ids = space.class_ids.tolist()
    assert (sorted(set(ids)), ids[0], [space.names[i] for i in ids]) == ([0, 1, 2], ids[2], list(labels))
    assert torch.equal(space.pairwise().double(), class_distances(torch.tensor([0, 1, 0, 2])))
    assert space[[3, 0]].class_ids.tolist() == [ids[3], ids[0]]
    assert (space.kind, space.unit, len(space)) == ("classes", "another class", 4)


def test_class_numbers_do_not_depend_on_the_order_of_items():
    assert (ClassLabels(["c", "a", "b"]).class_ids.tolist(), ClassLabels(["b", "a"]).names) == ([2, 0, 1], ["a", "b"])
    assert ClassLabels(["5", "9"])[[1]].class_ids.tolist() == [1]


def test_packed_labels_of_a_new_label_space():
    class Circle(LabelSpace):
        """Angles; labels and weights move together."""

        def __init__(self, angles, weights):
            super().__init__(angles=angles, weights=weights)

        def distances(self, x, y):
            turn = (x.angles[:, None] - y.angles).abs() % 360
            return torch.minimum(turn, 360 - turn)

    space = Circle(torch.tensor([0.0, 90.0, 350.0]), torch.arange(3))
    assert space.pairwise().tolist() == [[0, 90, 10], [90, 0, 100], [10, 100, 0]]
    assert (space[[2, 1]].weights.tolist(), space.unit) == ([2, 1], "label distance")
    refused(lambda: Circle(torch.zeros(3), torch.zeros(2)), "packed labels", got="{'angles': 3, 'weights': 2}")
    refused(lambda: Circle(torch.tensor([0.0, torch.nan]), torch.zeros(2)), "angles of item 1", got="not finite")
    with pytest.raises(TypeError, match="abstract class LabelSpace with abstract method distances"):
        LabelSpace(a=torch.zeros(2))


def test_a_label_space_that_does_not_call_the_constructor_of_its_base():
    class Unpacked(LabelSpace):
        def __init__(self, values):
            self.values = values

        def distances(self, x, y):
            return (x.values[:, None] - y.values).abs()

    space = Unpacked(torch.arange(3.0))
    for use in (lambda: len(space), lambda: space[[0]], space.pairwise, lambda: space.nearest(1), lambda: repr(space)):
        refused(use, "Unpacked.__init__", allowed="super().__init__(")


def test_what_cannot_be_packed():
    class Any(LabelSpace):
        def distances(self, x, y):
            return torch.zeros(len(x), len(y))

    refused(Any, "packed labels", "none")
    refused(lambda: Any(a=[1.0, 2.0]), "packed labels: a", "a list")
    refused(lambda: Any(a=torch.zeros(2, dtype=torch.complex64)), "packed labels: a", "complex64")


@pytest.mark.parametrize("name", SPACES)
def test_rows_in_other_forms(name, tmp_path):
    space = SPACES[name](tmp_path)
    rows = [7, 0, 3]
    mask = np.zeros(len(space), dtype=bool)
    mask[[0, 3, 7]] = True
    expected, ascending = space.pairwise(rows, rows), space.pairwise([0, 3, 7])
    for form in (tuple(rows), np.array(rows), np.array(rows, "u2"), np.array(rows, ">i4"), np.array([3, 0, 7])[::-1]):
        assert torch.equal(space[form].pairwise(), expected)
    frozen = np.array(rows)
    frozen.flags.writeable = False
    for form in (frozen, list(np.array(rows)), iter(rows), [torch.tensor(row) for row in rows]):
        assert torch.equal(space[form].pairwise(), expected)
    for form in (mask, torch.from_numpy(mask), mask.tolist()):
        assert torch.equal(space.pairwise(form), ascending)
    assert space[np.zeros(len(space), dtype=bool)].pairwise().shape == (0, 0)
    assert torch.equal(space[::-1].pairwise([0]), space.pairwise([len(space) - 1], range(len(space) - 1, -1, -1)))
    assert len(space[5:2]) == 0
    assert torch.equal(space[-2:].pairwise(), space.pairwise([len(space) - 2, len(space) - 1], slice(-2, None)))


@pytest.mark.parametrize("name", ["vectors", "captions", "matrix, in a file", "function", "nearest", "weighted"])
def test_pairwise_takes_labels_in_place_of_rows(name, tmp_path):
    space = SPACES[name](tmp_path)
    part, other = space[[5, 0, 5]], space[[1, 2]]
    assert torch.equal(space.pairwise(space), space.pairwise())
    assert torch.equal(space.pairwise(space, space), space.pairwise())
    assert torch.equal(space.pairwise(part), space.pairwise([5, 0, 5]))
    assert torch.equal(space.pairwise(part, other), space.pairwise([5, 0, 5], [1, 2]))
    assert torch.equal(space.pairwise([4], other), space.pairwise([4], [1, 2]))
    assert torch.equal(part.pairwise(other), space.pairwise([1, 2], [5, 0, 5]))
    assert torch.equal(part.pairwise(other[[1]]), space.pairwise([2], [5, 0, 5]))
    for stranger in (NumberLabels([1.0, 2.0]), ClassLabels([1, 2]), space.as_root()):
        for use in (lambda s: space.pairwise(s), lambda s: space.pairwise(None, s), lambda s: part.pairwise(s, other)):
            with refuses("rows", got=type(stranger).__name__, allowed="labels[rows]"):
                use(stranger)


BAD_ROWS = {"3": [0, 3], "torch.float64": [0.5], "a mask of shape [2]": [True, False], "1": 1}
BAD_ROWS |= {"missing (None)": [0, None], "slice(0.5, None, None)": slice(0.5, None)}


@pytest.mark.parametrize(("got", "rows"), BAD_ROWS.items())
def test_rows_that_do_not_exist(got, rows):
    space = NumberLabels([0.0, 1.0, 2.0])
    uses = [space.__getitem__, space[[2, 1, 0]].__getitem__, space.pairwise, lambda rows: space.pairwise(None, rows)]
    uses += [lambda rows: space.nearest(1, rows), lambda rows: space.nearest(1, among=rows)]
    for use in uses:
        with refuses("row", got=got):
            use(rows)


# ---------------------------------------------------------------------------------------------------------------------
# poses


def joints_and_visible(items=6, joints=5):
    generator = torch.Generator().manual_seed(0)
    return 300 * torch.rand(items, joints, 2, generator=generator), torch.ones(items, joints, dtype=torch.bool)


def test_hidden_items_are_refused_or_dropped():
    joints, visible = joints_and_visible()
    visible[1, :3], visible[4] = False, False
    visible[5, :2] = False  # 3 of 5 are enough
    with refuses("item 1", got="2 of 5 joints visible, and 1 more", allowed="half", hint="hidden=drop"):
        PoseLabels(joints, visible)
    space = PoseLabels(joints, visible, hidden="drop")
    assert (space.kept.tolist(), len(space)) == ([0, 2, 3, 5], 4)
    expected = PoseLabels(joints[space.kept], visible[space.kept])
    assert torch.equal(space.pairwise(), expected.pairwise())
    assert PoseLabels(joints).kept.tolist() == list(range(6))
    with refuses("visible", got="no item", allowed="half of 5 joints"):
        PoseLabels(joints, torch.zeros_like(visible), hidden="drop")
    refused(lambda: PoseLabels(joints, visible, hidden="keep"), "hidden", got="keep", allowed="refuse, drop")


@pytest.mark.parametrize("normalize", [False, True])
def test_an_error_names_the_item_of_the_input_where_some_are_dropped(normalize):
    joints, visible = joints_and_visible()
    visible[0], joints[3] = False, torch.nan if not normalize else 123.456
    got = "one place" if normalize else "not finite"
    refused(lambda: PoseLabels(joints, visible, hidden="drop", normalize=normalize), "item 3", got)


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
    assert PoseLabels(torch.stack((joints[1], 2 * joints[1])), normalize=True).pairwise()[0, 1] < 1e-6


def test_a_pose_equals_its_mirror_image_if_joints_change_places():
    joints, visible = joints_and_visible()
    visible[2, 0] = False
    mirrored = joints[:, [1, 0, 2, 4, 3]] * torch.tensor([-2.0, 2.0]) + 100
    both, shown = torch.cat((joints, mirrored)), torch.cat((visible, visible[:, [1, 0, 2, 4, 3]]))
    for saturation in (None, [0.5, 0.5, 1.0, 0.2, 0.2]):
        options = {"normalize": True, "weights": [3, 3, 1, 1, 1], "saturation": saturation}
        space, plain = PoseLabels(both, shown, mirror=[(0, 1), (3, 4)], **options), PoseLabels(both, shown, **options)
        expected = torch.minimum(plain.pairwise()[:6, :6], plain.pairwise()[:6, 6:])
        torch.testing.assert_close(space.pairwise()[:6, :6], expected, rtol=1e-5, atol=1e-6)
        assert (space.pairwise()[:6, 6:].diagonal() < 1e-3).all()
        assert not (plain.pairwise()[:6, 6:] < 0.1).any()
        # An explanation compares the joints with those of the mirror image.
        assert space.mirrored
        assert all(float(part.difference.split()[0]) < 1e-3 for part in space.parts(0, 6))
    assert (space.largest, space.measure.unit, space.unit) == (1, "", "1 - keypoint similarity")


def test_poses_in_space():
    keypoints = torch.rand(4, 17, 3)
    assert len(PoseLabels(keypoints, np.ones((4, 17), dtype=np.uint8), dim=3)) == 4
    assert "17 joints in 3-D" in repr(PoseLabels(keypoints, dim=3))
    torch.testing.assert_close(PoseLabels(keypoints, dim=3).pairwise()[0, 1], (keypoints[0] - keypoints[1]).norm())


# ---------------------------------------------------------------------------------------------------------------------
# one space as another


@settings(max_examples=30, deadline=None)
@given(values=label_vectors(), data=st.data())
def test_a_threshold_makes_nearer_items_positives(values, data):
    source = VectorLabels(values)
    d = source.pairwise()
    threshold = data.draw(st.sampled_from([1e-3, 1.0, float(d.max()) or 1.0]))
    space = ThresholdLabels(source, threshold)
    assert torch.equal(space.pairwise(), (d >= threshold).float())
    rows = [len(values) - 1, 0]
    assert torch.equal(space[rows].pairwise(), space.pairwise(rows, rows))
    assert space.kind == space[rows].kind == "binary"
    assert space[rows].class_ids is None


def test_threshold_options():
    assert ThresholdLabels(NumberLabels([0.0, 1.0, 3.0], unit="years"), 2.5).unit == "2.5 or more (years)"
    # Classes behind a threshold have lost their class ids.
    assert ThresholdLabels(ClassLabels([0, 0, 1]), 0.5).class_ids is None


@settings(max_examples=30, deadline=None)
@given(values=label_vectors(max_size=9), data=st.data())
def test_a_subset_keeps_the_neighbours_of_the_whole(values, data):
    source = VectorLabels(values)
    k = data.draw(st.integers(1, len(values) - 1))
    whole = NearestLabels(source, k)
    assert (whole.kind, whole.unit) == ("binary", f"not among the {k} nearest")
    d = whole.pairwise()
    assert torch.equal((d == 0).sum(1), torch.full((len(values),), k + 1))
    assert torch.equal(torch.where(d == 0, source.pairwise(), 0).amax(1), nearest(source, k).distances[:, -1])
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
    part = whole[rows]
    assert len(part) == len(rows)
    assert torch.equal(part.pairwise(), d[rows][:, rows])
    assert torch.equal(part[[len(rows) - 1]].to("cpu").pairwise(), torch.zeros(1, 1))


# ---------------------------------------------------------------------------------------------------------------------
# batches and subsets


#: What `repr` gives of a space of 20 items, after the number of items.
CONTENTS = {
    "classes": "5 classes",
    "classes of ids": "7 classes",
    "vectors": "vectors of 2 numbers; unit: difference of labels",
    "poses": "6 joints in 2-D; unit: pixels, over 6 joints",
    "segmentation": "label maps of 4 classes; unit: 1 - mIoU",
    "captions": "40 captions, 5 words with a vector",
    "caption_vectors": "40 vectors of 25 numbers; unit: 1 - cosine, summed over captions",
    "tags": "unit: Jaccard distance of tags",
    "multi_hot": "unit: Jaccard distance of labels",
    "multi_hot, hamming": "unit: share of labels that differ",
    "ordinal": "unit: the whole scale",
    "geo": "unit: km",
    "circular": "unit: difference of labels; period: 24",
    "sequences": "unit: edits a token",
    "weighted": "0.5 x VectorLabels(20 items; vectors of 2 numbers; unit: difference of labels)"
    " + 2 x TagLabels(20 items; unit: Jaccard distance of tags)"
    " + 1 x SegmentationLabels(20 items; label maps of 4 classes; unit: 1 - mIoU)",
    "dates": "2024-02-27 to 2024-03-23; unit: days",
    "matrix": "a matrix [20, 20]; unit: pears",
    "matrix, in a file": "a matrix [20, 20]; unit: apples",
    "function": "unit: digits",
    "threshold": "positives below 1 of VectorLabels(20 items; vectors of 2 numbers; unit: difference of labels)",
    "nearest": "the 4 nearest items are positives",
}


@pytest.mark.parametrize("kind", ["part", "batch of a part"])
def test_moving_a_batch_leaves_its_root_where_it_is(kind):
    root = NumberLabels(torch.arange(6.0))
    batch = root[[4, 1]] if kind == "part" else root[[3, 4, 1]][[1, 2]]
    moved = batch.to("meta")
    assert moved.device == moved.values.device == moved.rows.device == torch.device("meta")
    assert moved.root is root
    assert root.device == batch.device == torch.device("cpu")
    # A batch of a moved space has a moved root.
    there = root.to("meta")
    assert there.root is there
    assert there.root.rows.device == torch.device("meta")


def test_distances_get_one_space_where_rows_and_columns_are_the_same_items():
    asked = []

    class Line(NumberLabels):
        def distances(self, x, y):
            asked.append((len(x), len(y), x is y))
            return super().distances(x, y)

    space = Line(torch.arange(6.0))
    batch = space[[3, 1, 1]]
    for call, expected in (
        (space.pairwise, (6, 6, True)),
        (lambda: space.pairwise([2, 1], [2, 1]), (2, 2, True)),
        (lambda: space.pairwise(slice(2), range(2)), (2, 2, True)),
        (lambda: space.pairwise([2, 1], [1, 2]), (2, 2, False)),
        (lambda: space.pairwise([2, 1]), (2, 6, False)),
        (lambda: space.pairwise(None, [2, 1]), (6, 2, False)),
        (batch.pairwise, (3, 3, True)),
        (lambda: batch.pairwise([0, 2]), (2, 3, False)),
    ):
        asked.clear()
        call()
        assert asked == [expected]
    asked.clear()
    assert torch.equal(space.pairwise(memory=1), super(Line, space).distances(space, space).float())
    assert asked == [(1, 6, False)] * 6


def test_a_label_space_of_label_spaces():
    class Sum(LabelSpace):
        """A number, and labels of another kind, with a weight for each item."""

        def __init__(self, values, others):
            super().__init__(values=values, others=others)

        def distances(self, x, y):
            return (x.values[:, None] - y.values).abs() + x.others.distances(x.others, y.others)

    space = Sum(torch.arange(4.0), ClassLabels(list("abab")))
    assert space.pairwise([0]).tolist() == [[0, 2, 2, 4]]
    part = space[[3, 2, 0]][[2, 1]]
    assert (part.rows.tolist(), part.others.rows.tolist()) == ([0, 2], [0, 2])
    assert (part.pairwise().tolist(), repr(part)) == ([[0, 2], [2, 0]], "Sum(2 of 4 items; unit: label distance)")
    refused(lambda: Sum(torch.zeros(3), ClassLabels(list("ab"))), "packed labels", got="{'values': 3, 'others': 2}")


# ---------------------------------------------------------------------------------------------------------------------
# labels made of a bare tensor


def test_integer_class_ids_keep_their_values():
    ids = torch.tensor([7, 3, 7, 1000], dtype=torch.int32)
    mixed = [torch.tensor(7), 3, np.int64(7), 1000]
    for form in (ids.tolist(), ids.numpy(), ids.numpy().astype("uint16"), ids.float(), ids, mixed):
        assert ClassLabels(form).class_ids.tolist() == ids.tolist()
    labels = ClassLabels(ids)
    assert labels.class_ids.dtype == torch.int64
    assert (labels.kind, labels.unit, labels.names, len(labels)) == ("classes", "another class", [], 4)
    assert torch.equal(labels.pairwise().double(), class_distances(ids))
    assert (labels.pairwise([1], [3, 1]).tolist(), labels.nearest(1, [0, 2]).rows.tolist()) == ([[1, 0]], [[2], [0]])
    assert labels.fingerprint() == ClassLabels(ids.clone()).fingerprint()
    for form in (torch.tensor([7, -1]), [7, -1], [7, 1 << 63]):
        with refuses("class of item 1", got=str(int(form[1])), allowed="from 0 on"):
            ClassLabels(form)


def test_labels_of_a_bare_tensor_have_no_row_numbers():
    for kind, values in (("binary", torch.tensor([7, 3, 7])), ("any", torch.tensor([0.0, 1.0, 3.0]))):
        bare = as_labels("a loss", kind, values, torch.zeros(3, 2), None)
        for labels in (bare, bare[[2, 0, 0]], bare[[2, 1]][[0]], bare.to("cpu"), bare[[1]].to("cpu")):
            assert labels.rows is None
        assert bare[[2, 0, 0]][[1]].root is bare
        assert torch.equal(bare[[2, 1]].pairwise(), bare.pairwise([2, 1], [2, 1]))
        assert bare.as_root().rows.tolist() == [0, 1, 2]
        assert bare.rows is None


# ---------------------------------------------------------------------------------------------------------------------
# repr


@pytest.mark.parametrize("name", SPACES)
def test_repr_of_a_label_space(name, tmp_path):
    space = SPACES[name](tmp_path)
    kind, n = type(space).__name__, len(space)
    assert repr(space).startswith(f"{kind}({n} items; ")
    if name in CONTENTS:
        assert repr(space) == f"{kind}({n} items; {CONTENTS[name]})"
    assert repr(space.as_root()) == repr(space)
    for rows in ([4, 1], [], [0, 0, 0]):
        part = space[rows]
        assert repr(part).startswith(f"{kind}({len(rows)} of {n} items; ")
        assert repr(part[: len(rows)]) == repr(part)
        assert repr(part.as_root()).startswith(f"{kind}({len(rows)} items; ")
        assert "\n" not in repr(part)
