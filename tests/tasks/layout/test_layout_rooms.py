import math
from collections import Counter

import numpy as np
import pytest
from support.layouts import surfaces_of

from contml.tasks.layout import drawn_rooms, views
from contml.tasks.layout.drawn_rooms import draw_room, synthetic
from contml.tasks.layout.lsun import TYPES
from contml.tasks.layout.views import CEILING, FLOOR, FRONTAL, LEFT, RIGHT, Camera, choose_view, surface_map

TYPE_OF = {surfaces_of(layout): kind for kind, layout in TYPES.items()}


@pytest.fixture(scope="module")
def rooms():
    return [choose_view(np.random.default_rng([0, index])) for index in range(3000)]


def looking(yaw, pitch=0.0, room=(4.0, 3.0, 5.0), eye=(2.0, 1.5, 1.0), zoom=0.5):
    """A view of a room with surfaces named as `choose_view` names them; yaw and pitch in degrees."""
    view = Camera(room, eye, views._rotation(math.radians(pitch), math.radians(yaw), 0), zoom, (1,) * 6)
    return view._replace(surfaces=views._judge(views.meet(view, views.cast(view, 32))[0]))


# Surfaces


def test_a_room_seen_straight_has_all_five_surfaces_in_their_places():
    labels = surface_map(looking(0), 64)
    assert labels[32, 32] == FRONTAL
    assert [labels[32, 0], labels[32, 63], labels[63, 32], labels[0, 32]] == [LEFT, RIGHT, FLOOR, CEILING]
    # The frontal wall is 4 x 3 m at 4 m: half of the width of a picture that shows 8 m there.
    np.testing.assert_array_equal((labels[32] == FRONTAL).nonzero()[0][[0, -1]], [16, 47])
    np.testing.assert_array_equal((labels[:, 32] == FRONTAL).nonzero()[0][[0, -1]], [20, 43])
    np.testing.assert_array_equal(labels[:, ::-1], np.array([0, 1, 3, 2, 4, 5])[labels], "its own mirror image")


@pytest.mark.parametrize("yaw", [45, -45, 135])
def test_two_walls_are_left_and_right(yaw):
    labels = surface_map(looking(yaw, zoom=0.8), 64)
    assert set(np.unique(labels)) <= {LEFT, RIGHT, FLOOR, CEILING}
    assert [labels[32, 0], labels[32, 63]] == [LEFT, RIGHT]


def test_looking_up_shows_the_ceiling_and_down_the_floor():
    up, down = (surface_map(looking(0, pitch, zoom=1.2), 64) for pitch in (30, -30))
    assert CEILING in up
    assert FLOOR not in up
    assert FLOOR in down
    assert CEILING not in down


def test_all_layout_types_appear(rooms):
    seen = Counter(TYPE_OF[frozenset(view.surfaces) - {0}] for view in rooms)
    assert set(seen) == set(TYPES)
    numbers = Counter(len(surfaces_of(TYPES[kind])) for kind in seen.elements())
    assert set(numbers) == {2, 3, 4, 5}
    assert all(count > 0.1 * len(rooms) for count in numbers.values())
    assert max(seen.values()) < 0.3 * len(rooms)


def test_no_surface_is_a_sliver_and_none_is_alone(rooms):
    for view in rooms[:300]:
        labels = surface_map(view, 64)
        found, counts = np.unique(labels, return_counts=True)
        assert set(found) == set(view.surfaces) - {0}
        assert counts.min() > 0.02 * labels.size
        assert counts.max() < 0.9 * labels.size


# Pictures


def test_furniture_changes_the_picture_and_not_the_layout(monkeypatch):
    furnished = [draw_room(2, index) for index in range(40)]
    monkeypatch.setattr(drawn_rooms.furniture, "furnish", lambda rng, view: [])
    empty = [draw_room(2, index) for index in range(40)]
    changed = [np.abs(a.astype(int) - b).max(2) for (a, _), (b, _) in zip(furnished, empty, strict=True)]
    assert all((a == b).all() for (_, a), (_, b) in zip(furnished, empty, strict=True))
    assert np.mean([(one > 40).mean() > 0.05 for one in changed]) > 0.4


def test_borders_of_surfaces_agree_with_the_map(monkeypatch):
    """In a room with one colour per surface, the picture is the map."""
    paints = np.array([(0, 0, 0), (250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 0), (0, 250, 250)])

    def flat(rng, view, planes, lengths, rays, boxes):
        return paints[np.array(view.surfaces)[planes]].transpose(2, 0, 1).astype(np.float32)

    monkeypatch.setattr(drawn_rooms, "_paint_surfaces", flat)
    monkeypatch.setattr(drawn_rooms.furniture, "furnish", lambda rng, view: [])
    monkeypatch.setattr(drawn_rooms, "_expose", lambda rng, picture: picture.transpose(1, 2, 0))
    for index in range(30):
        pixels, labels = draw_room(3, index)
        away = np.abs(pixels[None] - paints[1:, None, None]).sum(3)  # [5,S,S]
        pure = away.min(0) == 0
        assert (away.argmin(0)[pure] + 1 == labels[pure]).all()
        assert 0 < (~pure).mean() < 0.15, "pixels on a border are mixtures of both sides"


def test_boxes_stand_on_the_floor_in_the_room(rooms):
    for index, view in enumerate(rooms[:100]):
        for box in drawn_rooms.furniture.furnish(np.random.default_rng(index), view):
            low, high = np.array(box.low), np.array(box.high)
            assert (low <= high).all()
            assert (low > -1e-9).all()
            assert (high < np.array(view.room) + 1e-9).all()
            assert not ((low < view.eye) & (view.eye < high)).all()


# The task


@pytest.fixture(scope="module")
def task():
    return synthetic(train=60, test=30, queries=8, size=32)


def test_the_task_is_rooms_with_their_maps(task):
    for split, first in ((task.train, 0), (task.test, 10_000_000)):
        pixels, labels = draw_room(0, first + 3, 32)
        np.testing.assert_array_equal(split.image(3), pixels)
        np.testing.assert_array_equal(split.view.renderer.map(3), labels)
        assert split.name(3) == f"room {first + 3}"
