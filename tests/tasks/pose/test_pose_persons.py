import numpy as np
import pytest
from PIL import Image

from contml.data.renderers import poses as rendering
from contml.data.renderers.poses import PoseRenderer
from contml.tasks.pose import drawn_persons
from contml.tasks.pose.bodies import LSP
from contml.tasks.pose.drawn_persons import Piece, draw_person

# Joint of LSP -> the part of the person that must cover it.
PARTS = {
    0: "right_leg_lower", 1: "right_leg_upper", 2: "right_leg_upper", 3: "left_leg_upper", 4: "left_leg_upper",
    5: "left_leg_lower", 6: "right_arm_lower", 7: "right_arm_upper", 8: "right_arm_upper", 9: "left_arm_upper",
    10: "left_arm_upper", 11: "left_arm_lower", 12: "neck", 13: "head",
}  # fmt: skip


def draw_pose(image, joints, visible, size, skeleton, names=()):
    """A picture with one pose."""
    return PoseRenderer(joints[None], None if visible is None else visible[None], skeleton, names)(image, 0, size)


@pytest.fixture(scope="module")
def poses():
    return np.stack([draw_person(3, index)[1] for index in range(500)])  # [500,14,2]


def masks(seed, index, size):
    """How much of each pixel each part of a person covers, 0..1; parts of one name together."""
    rng = np.random.default_rng([seed, index])
    parts = drawn_persons._dress(drawn_persons.choose_body(rng), drawn_persons._choose_clothes(rng))
    covered = {}
    for name in {part.name for part in parts}:
        canvas = Image.new("RGB", (size * drawn_persons.SUPERSAMPLING,) * 2)
        drawn_persons._paint(canvas, [part._replace(colour=(255, 255, 255)) for part in parts if part.name == name])
        covered[name] = np.asarray(canvas.reduce(drawn_persons.SUPERSAMPLING))[:, :, 0] / 255
    return covered


def at(array, point):
    x, y = np.rint(point).astype(int)
    return array[y, x]


# Persons


def test_joints_are_in_the_frame(poses):
    assert ((poses > -0.5) & (poses < 63.5)).all(axis=2).mean() > 0.999
    assert (np.ptp(poses, axis=1).max(axis=1) > 20).all(), "a person fills a good part of the frame"


def test_the_same_pose_at_every_size():
    for index in range(10):
        for size in (32, 128):
            scaled, joints = draw_person(1, index, size)[1], draw_person(1, index, 64)[1]
            np.testing.assert_allclose((scaled + 0.5) / size, (joints + 0.5) / 64, atol=1e-5)


def test_every_joint_lies_on_its_own_limb():
    hits, elsewhere = [], []
    for index in range(40):
        covered, (_, joints) = masks(2, index, 64), draw_person(2, index, 64)
        for joint, name in PARTS.items():
            hits.append(at(covered[name], joints[joint]) > 0.5)
            elsewhere.append(at(covered[name], 63 - joints[joint]) > 0.5)
            if "leg" in name or "arm" in name:  # knee, elbow and the ends lie where two parts meet
                limb = covered[name.replace("upper", "lower")] + covered[name.replace("lower", "upper")]
                assert at(limb, joints[joint]) > 0.5
    assert np.mean(hits) > 0.995
    assert np.mean(elsewhere) < 0.2, "otherwise the test shows nothing"


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.31, 0.72)])
def test_a_disc_is_drawn_at_its_centre(place):
    canvas = Image.new("RGB", (192, 192))
    drawn_persons._paint(canvas, [Piece("disc", 0.0, ((complex(*place), 0.1),) * 4, (255.0, 255.0, 255.0))])
    mass = np.asarray(canvas.reduce(3), np.float64)[:, :, 0]
    rows, cols = np.mgrid[:64, :64]
    centre = [(mass * cols).sum() / mass.sum(), (mass * rows).sum() / mass.sum()]
    np.testing.assert_allclose(centre, np.array(place) * 64 - 0.5, atol=0.2)
    assert mass.sum() / 255 == pytest.approx(np.pi * 6.4**2, rel=0.07)


# Drawing a pose


def test_visible_joints_are_drawn_and_only_they():
    pixels, joints = draw_person(0, 3)
    image = Image.fromarray(pixels)
    plain = np.asarray(image.resize((160, 160), Image.Resampling.BICUBIC), np.int64)
    nothing = draw_pose(image, joints, np.zeros(14, bool), 160, LSP.skeleton)
    assert nothing.size == (160, 160)
    np.testing.assert_array_equal(np.asarray(nothing), plain)
    whole = np.abs(np.asarray(draw_pose(image, joints, None, 160, LSP.skeleton)) - plain).sum(axis=2)
    scaled = (joints + 0.5) * 2.5 - 0.5
    assert all(at(whole, point) > 30 for point in scaled)
    assert (whole == 0).mean() > 0.5
    wrist_only = np.arange(14) == 6
    changed = np.abs(np.asarray(draw_pose(image, joints, wrist_only, 160, LSP.skeleton)) - plain).sum(axis=2) > 0
    rows, cols = np.nonzero(changed)
    assert np.hypot(cols - scaled[6, 0], rows - scaled[6, 1]).max() < 6, "a limb with a hidden end is omitted"


@pytest.mark.parametrize("background", [0, 128, 255])
def test_sides_have_their_colours_on_any_background(background):
    image = Image.new("RGB", (40, 20), (background,) * 3)
    joints = np.array([(5.0, 5.0), (5.0, 14.0), (30.0, 5.0), (30.0, 14.0), (18.0, 5.0), (18.0, 14.0)])
    names = ("right_knee", "right_ankle", "left_knee", "left_ankle", "neck", "head_top")
    drawn = np.asarray(draw_pose(image, joints, None, 240, [(0, 1), (2, 3), (4, 5)], names), np.int64)
    right, left, middle = (drawn[119, round((x + 0.5) * 6 - 0.5)] for x in (5, 30, 18))
    assert right[0] > right[2] + 100
    assert left[2] > left[0] + 100
    assert np.ptp(middle) < 40
    for column in (right, left, middle):
        assert column.max() > 180
    assert drawn.min() < 60, "a dark rim"


def test_pixel_centres_are_kept():
    image = Image.new("RGB", (32, 32), (0, 0, 0))
    for size in (16, 32, 96, 97):
        drawn = np.asarray(draw_pose(image, np.array([(12.0, 20.0)]), None, size, [], ["left_eye"]), np.float64)
        mass = drawn[:, :, 2]
        centre = [(mass * np.arange(size)).sum() / mass.sum(), (mass * np.arange(size)[:, None]).sum() / mass.sum()]
        np.testing.assert_allclose(centre, np.array([12.5, 20.5]) * size / 32 - 0.5, atol=0.13)


def test_joints_without_a_place_are_left_out():
    image = Image.new("L", (64, 64), 90)
    _, joints = draw_person(0, 0)
    joints[6] = np.nan
    visible = np.arange(14) != 6
    assert draw_pose(image, joints, None, 64, LSP.skeleton) == draw_pose(image, joints, visible, 64, LSP.skeleton)


def test_the_outline_stays_thin():
    assert rendering._OUTLINE[3] < 255
    image = Image.new("RGB", (64, 64), (255, 255, 255))
    drawn = np.asarray(draw_pose(image, np.array([(10.0, 32.0), (53.0, 32.0)]), None, 64, [(0, 1)]))
    assert (drawn[:, 32] != 255).any(axis=1).sum() <= 5
