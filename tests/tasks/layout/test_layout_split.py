import numpy as np
import pytest
from PIL import Image
from support.refusals import refuses

from contml.data import ImageFile, Pixels, Split
from contml.data.renderers.labels import class_colours, draw_label_map
from contml.labels import SegmentationLabels
from contml.tasks._readers.label_maps import make_split
from contml.tasks.layout.drawn_rooms import draw_room


@pytest.fixture(scope="module")
def rooms():
    return [draw_room(0, index, 40) for index in range(30)]


def split_of(rooms, queries=0, excluded=()):
    images, maps = [Pixels(room[0]) for room in rooms], np.stack([room[1] for room in rooms])
    return make_split(images, [f"room {row}" for row in range(len(rooms))], maps, queries, dict(excluded))


# Flips of a whole batch


@pytest.mark.parametrize("side", [None, 24])
def test_mirrored_label_maps_are_as_far_apart(side):
    maps = np.random.default_rng(0).integers(0, 5, (12, 6, 8)).repeat(4, 1).repeat(3, 2)
    here, there = (SegmentationLabels(m, 4, 4, side).pairwise() for m in (maps, maps[:, :, ::-1].copy()))
    assert (here == there).all()


# The split


def test_a_split_keeps_its_contract(rooms):
    split = split_of(rooms, queries=6)
    assert isinstance(split, Split)
    assert (len(split), split.queries.tolist(), split.gallery.tolist()) == (30, list(range(6)), list(range(6, 30)))
    assert split_of(rooms).queries is None
    assert (split.image(4) == rooms[4][0]).all()
    assert split.name(4) == "room 4"


def test_maps_come_back_as_they_went_in(rooms):
    split = split_of(rooms)
    for row, (_, labels) in enumerate(rooms):
        np.testing.assert_array_equal(split.view.renderer.map(row), labels)
    wide = np.random.default_rng(0).integers(0, 6, (5, 7, 23))
    split = split_of([(np.zeros((7, 23, 3), np.uint8), labels) for labels in wide])
    for row in range(5):
        np.testing.assert_array_equal(split.view.renderer.map(row), np.where(wide[row] == 0, -1, wide[row]))


def test_items_with_half_of_their_map_ignored_are_excluded(rooms):
    blind = [(image, labels.copy()) for image, labels in rooms]
    for row in (1, 7, 20):
        blind[row][1][: 20 if row < 20 else 30] = 0
    blind[3][1][:19] = 0  # just enough is left
    excluded = {"without an image file": 2, "without a layout type": 0}
    split = split_of(blind, queries=8, excluded=excluded)
    assert (split.excluded, len(split)) == ({"without an image file": 2, "without enough labelled pixels": 3}, 27)
    assert split.queries.tolist() == list(range(6))
    assert [split.name(row) for row in (0, 1, 2, 5, 6)] == ["room 0", "room 2", "room 3", "room 6", "room 8"]
    assert split.labels.pairwise().isfinite().all()


def test_a_split_needs_labelled_items_and_queries(rooms):
    with refuses("room 0", "0% of its label map", "one item must have more than 50%"):
        split_of([(image, labels * 0) for image, labels in rooms])
    blind = [(image, labels * (row >= 4)) for row, (image, labels) in enumerate(rooms)]
    with refuses("room 0", "0% of its label map", "one query must have more than 50%", "other queries"):
        split_of(blind, queries=4)
    assert split_of(blind, queries=5).queries.tolist() == [0]


# Drawing


def test_a_drawing_shows_the_classes_where_they_are():
    labels = np.full((10, 10), 1)
    labels[:, 5:] = 4
    labels[:3, :3] = -1
    drawn = np.asarray(draw_label_map(Image.new("RGB", (30, 20), (128, 128, 128)), labels, 200), int)
    assert drawn.shape == (200, 200, 3)
    colours = class_colours(6).astype(int)
    assert (drawn[:118] == 128).all(), "the picture is as it is, but for its corner"
    assert (drawn[:, :118] == 128).all()
    assert (drawn[119, 119:] == 255).all()
    corner = drawn[120:, 120:]  # the map, 8 pixels a cell
    assert (corner[30:, :40] == colours[1]).all()
    assert (corner[:, 40:] == colours[4]).all()
    assert (corner[:24, :24] == 225).all(), "ignored pixels have no class colour"


def test_colours_are_fixed_by_class_id():
    many = class_colours(40)
    assert (class_colours(6) == many[:6]).all()
    assert (class_colours(12) == many[:12]).all()
    assert len({tuple(colour) for colour in many.tolist()}) == 40
    apart = np.linalg.norm(many[:12, None].astype(float) - many[None, :12], axis=2) + 1000 * np.eye(12)
    assert apart.min() > 60


def test_files_are_drawn_upright(tmp_path):
    picture = Image.fromarray(np.zeros((20, 40, 3), np.uint8))
    picture.paste((255, 255, 255), (0, 0, 40, 10))  # white above, in the file
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: white on the right
    picture.save(tmp_path / "a.jpg", exif=exif, quality=95)
    split = make_split(([ImageFile(tmp_path / "a.jpg")] * 3), list("abc"), np.ones((3, 4, 4), int), 0, {})
    drawn = np.asarray(split.draw(0, 100), int).sum(2)
    assert drawn[50, 80] > drawn[50, 20] + 100
