"""Labels that are drawn without their image."""

import numpy as np
import pytest
import torch
from support.label_spaces import SPACES

from contml.data.renderers.labels import class_colours, draw_text, label_drawing, label_picture
from contml.labels import NumberLabels, PoseLabels, SegmentationLabels, WeightedLabels

CROSS = [[10.0, 0], [10, 40], [0, 20], [20, 20]]


def ink(picture):
    """Where a picture differs from its corner."""
    pixels = np.asarray(picture, np.int64)
    return np.abs(pixels - pixels[0, 0]).sum(2) > 0


def test_a_pose_is_drawn_with_its_limbs_as_large_as_it_fits():
    limbs, points = (PoseLabels([CROSS], skeleton=skeleton) for skeleton in ([(0, 1), (2, 3)], []))
    for size in (84, 220):
        drawn, dots = ink(label_drawing(limbs, 0, size)), ink(label_drawing(points, 0, size))
        assert drawn[size // 2, size // 2]
        assert not dots[size // 2, size // 2]
        rows, columns = np.nonzero(drawn.any(1))[0], np.nonzero(drawn.any(0))[0]
        assert rows[-1] - rows[0] == pytest.approx(0.88 * size, abs=0.06 * size)
        assert rows[0] + rows[-1] == pytest.approx(size - 1, abs=2)
        assert columns[0] + columns[-1] == pytest.approx(size - 1, abs=2)
    hidden = PoseLabels([CROSS], [[1, 1, 1, 0]], skeleton=[(0, 1), (2, 3)])
    assert not ink(label_drawing(hidden, 0, 84))[:, -12:].any()


def test_a_pose_in_three_dimensions_is_seen_from_the_front():
    flat = PoseLabels([CROSS])
    deep = PoseLabels([[[*xy, z] for xy, z in zip(CROSS, (3, 9, -40, 7), strict=True)]], dim=3)
    assert label_drawing(flat, 0, 60).tobytes() == label_drawing(deep, 0, 60).tobytes()


@pytest.mark.parametrize("side", [None, 4])
def test_a_map_has_the_colours_of_its_classes(side):
    maps = np.zeros((2, 4, 4), np.int64)
    maps[1, :2], maps[1, 2:, :2] = 3, 7
    drawn = np.asarray(label_drawing(SegmentationLabels(maps, 8, side=side), 1, 40))
    for (y, x), number in {(5, 5): 3, (35, 5): 7, (35, 35): 0}.items():
        assert tuple(drawn[y, x]) == tuple(class_colours(8)[number])


def test_a_sum_is_drawn_by_its_first_label_that_has_a_drawing_and_a_value():
    poses = PoseLabels([CROSS] * 2)
    labels = WeightedLabels({NumberLabels([1.0, 2.0]): 1.0, poses: 1.0}, present=[[True, True], [True, False]])
    assert label_drawing(labels, 0, 50).tobytes() == label_drawing(poses, 0, 50).tobytes()
    assert label_drawing(labels, 1, 50) is None


@pytest.mark.parametrize("name", SPACES)
def test_every_label_has_a_picture(name, tmp_path):
    picture = label_picture(SPACES[name](tmp_path), 3, 120, "its words")
    assert picture.size == (120, 120)
    assert np.asarray(picture).std() > 1


def test_words_are_as_large_as_they_fit():
    heights = []
    for text in ("34", "869,500 USD", "two dogs on a beach run after a red ball", "many words " * 60):
        drawn = ink(draw_text(text, 220))
        rows, columns = np.nonzero(drawn.any(1))[0], np.nonzero(drawn.any(0))[0]
        assert rows[0] > 5
        assert rows[-1] < 214
        assert columns[0] > 5
        assert columns[-1] < 214
        gaps = np.nonzero(np.diff(np.concatenate(([0], drawn.any(1).astype(int), [0]))))[0]
        heights.append(int(np.diff(gaps)[0]))  # of the first line
    assert heights[0] > 25
    assert heights[0] > heights[2] > heights[3]
    assert heights[1] > heights[2]
    assert draw_text("a\nb", 100).tobytes() != draw_text("a b", 100).tobytes()
    assert draw_text("", 100).size == (100, 100)


def test_a_skeleton_is_kept_by_labels_made_of_others():
    labels = PoseLabels([CROSS] * 3, skeleton=[(0, 1), (2, 3)])
    for made in (labels[torch.tensor([2])].as_root(), labels.joined(labels.item(CROSS)), labels.item(CROSS)):
        assert list(made.skeleton) == [(0, 1), (2, 3)]
    assert labels.fingerprint() == PoseLabels([CROSS] * 3).fingerprint()
    assert labels.digests() == PoseLabels([CROSS] * 3).digests()
