import numpy as np
import pytest
import torch
from PIL import Image
from support.pose_sets import COCO_NAMES
from support.refusals import refused, refuses

from contml.data import Square, SquareCrop
from contml.labels import PoseLabels
from contml.tasks.pose.bodies import LSP, MPII
from contml.tasks.pose.people import in_crop, square_around

# Joint numbers that change places in a mirror, from the documentation of the data sets.
MIRRORS = {
    "lsp": (LSP.names, [(0, 5), (1, 4), (2, 3), (6, 11), (7, 10), (8, 9)]),
    "mpii": (MPII.names, [(0, 5), (1, 4), (2, 3), (10, 15), (11, 14), (12, 13)]),
    "coco": (COCO_NAMES, [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)]),
}


@pytest.mark.parametrize("body", MIRRORS)
def test_a_flip_of_all_poses_keeps_distances(body):
    names, pairs = MIRRORS[body]
    assert len(names) == {"lsp": 14, "mpii": 16, "coco": 17}[body]
    swap = np.arange(len(names))
    for a, b in pairs:
        assert {names[a].partition("_")[0], names[b].partition("_")[0]} == {"left", "right"}
        assert names[a].partition("_")[2] == names[b].partition("_")[2]
        swap[[a, b]] = b, a
    assert not any(name.startswith(("left_", "right_")) for k, name in enumerate(names) if swap[k] == k)
    random = np.random.default_rng(0)
    poses, visible = random.uniform(0, 64, (12, len(names), 2)), random.random((12, len(names))) < 0.9
    mirrored = np.stack([63 - poses[..., 0], poses[..., 1]], 2)[:, swap]
    before, after = PoseLabels(poses, visible), PoseLabels(mirrored, visible[:, swap])
    torch.testing.assert_close(before.pairwise(), after.pairwise())


@pytest.mark.parametrize("body", [LSP, MPII])
def test_limbs_connect_joints_of_one_side_or_the_middle(body):
    for a, b in body.skeleton:
        sizes = {body.names[k].partition("_")[0] for k in (a, b)} & {"left", "right"}
        trunk = ("shoulder", "hip")
        assert len(sizes) < 2 or (body.names[a].endswith(trunk) and body.names[b].endswith(trunk))
    assert {k for pair in body.skeleton for k in pair} == set(range(len(body.names)))
    turned = {"left": "right", "right": "left"}
    mirror = [body.names.index("_".join(turned.get(word, word) for word in name.split("_"))) for name in body.names]
    limbs = {frozenset(pair) for pair in body.skeleton}
    assert {frozenset(mirror[k] for k in limb) for limb in limbs} == limbs


def dotted(folder, points, size=(120, 80), suffix="png", **options):
    """A black image with white squares of three pixels around some points."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    for x, y in points:
        pixels[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2] = 255
    path = folder / f"dots.{suffix}"
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.mark.parametrize("points", [[(40, 30), (70, 30), (50, 60)], [(3, 3), (60, 4), (30, 20)], [(116, 76), (90, 60)]])
@pytest.mark.parametrize("side", [40, 64, 200])
def test_joints_are_at_the_same_point_of_the_crop_as_of_the_image(tmp_path, points, side):
    path, joints = dotted(tmp_path, points), np.array(points, float)
    square = square_around(joints, 1.3)
    crop = SquareCrop(path, square, side).read()
    assert (crop.shape, crop.dtype) == ((side, side, 3), np.uint8)
    weights = crop[:, :, 0].astype(float)
    for x, y in in_crop(joints[None], [square], side)[0]:
        near = 2.5 * side / square.side
        rows, columns = np.mgrid[:side, :side]
        mask = weights * (abs(rows - y) < near) * (abs(columns - x) < near)
        centre = (mask * columns).sum() / mask.sum(), (mask * rows).sum() / mask.sum()
        assert np.abs(np.array(centre) - (x, y)).max() < 0.6, "a dot's middle is its joint"


def test_margin_and_middle():
    square = square_around(np.array([[10.0, 20.0], [30.0, 60.0]]), 1.5)
    assert square == Square(20.5 - 30, 40.5 - 30, 60)
    np.testing.assert_allclose(in_crop(np.array([[[20.0, 40.0]]]), [square], 120), [[[59.5, 59.5]]])
    assert square_around(np.array([[5.0, 5.0]]), 1.0).side == 1


def test_outside_the_image_its_edge_is_repeated(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    crop = SquareCrop(tmp_path / "a.png", Square(-10, -15, 40), 40).read()
    np.testing.assert_array_equal(crop[15:35, 10:40], pixels)
    np.testing.assert_array_equal(crop[:15, 10:40], np.broadcast_to(pixels[0], (15, 30, 3)))
    np.testing.assert_array_equal(crop[15:35, :10], np.broadcast_to(pixels[:, :1], (20, 10, 3)))


def test_joints_are_given_in_the_pixels_of_the_file(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # seen lying, as cameras write it
    path = dotted(tmp_path, [(100, 20)], suffix="jpg", exif=turned, quality=95)
    assert SquareCrop(path, Square(90, 10, 20), 20).read()[10, 10, 0] > 200
    assert SquareCrop(path, Square(90, 10, 20), 20, (120, 80)).read()[10, 10, 0] > 200
    # If the annotation gives the size of the upright image, positions are given in it too: x = 79 - 20, y = 100.
    assert SquareCrop(path, Square(49, 90, 20), 20, (80, 120)).read()[10, 10, 0] > 200


def test_images_that_do_not_belong_to_the_joints(tmp_path):
    path = dotted(tmp_path, [])
    refused(SquareCrop(path, Square(0, 0, 20), 8, (240, 160)).read, str(path), got="120 x 80", allowed="240 x 160")
    with refuses(str(path), got="120 x 80 pixels, and a person of 20 is marked at 310, 10"):
        SquareCrop(path, Square(300, 0, 20), 8).read()
    refused(SquareCrop(path, Square(60 - 5e5, 40 - 5e5, 1e6), 8).read, str(path), got="1000000 is marked at 60, 40")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 nothing")
    with pytest.raises(OSError, match="not an image"):
        SquareCrop(tmp_path / "broken.jpg", Square(0, 0, 20), 8).read()
    with pytest.raises(OSError, match="no such file"):
        SquareCrop(tmp_path / "away.jpg", Square(0, 0, 20), 8).read()


def test_crops_of_one_image_differ_in_their_stamp():
    forms = (0, 0, 20, 8), (0, 0, 20.5, 8), (1, 0, 20, 8), (0, 0, 20, 9)
    crops = [SquareCrop(None, Square(*square), side) for *square, side in forms]
    assert (len({crop.stamp for crop in crops}), crops[0].stamp.crop) == (4, "8 x 8 of 0.000, 0.000, 20.000")
