"""Distances of label maps equal a confusion matrix per pair: random, real, ignored pixels, absent classes, bad maps."""

import sys
from fractions import Fraction
from math import floor

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from support.paths import DATA_ROOT as DATA
from support.refusals import refused

from contml.distances import segmentation_distance
from contml.distances.segmentation import _by_product, pack_maps
from contml.labels import SegmentationLabels


def confusion(a, b, classes, ignore=None):
    """1 - mIoU pixel by pixel, or NaN without a common pixel."""
    matrix = np.zeros((classes, classes), dtype=np.int64)
    for p, q in zip(np.asarray(a).flatten().tolist(), np.asarray(b).flatten().tolist(), strict=True):
        if ignore not in (p, q):
            matrix[p, q] += 1
    ious = []
    for c in range(classes):
        union = matrix[c].sum() + matrix[:, c].sum() - matrix[c, c]
        if union:
            ious.append(matrix[c, c] / union)
    return 1 - sum(ious) / len(ious) if ious else float("nan")


def loop(x, y, classes, ignore=None):
    return torch.tensor([[confusion(a, b, classes, ignore) for b in y] for a in x], dtype=torch.float64)


@st.composite
def label_maps(draw):
    """Maps `[N, H, W]`, classes, ignore: few classes of many, copies, all one class, ignored regions of any size."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    classes, n = draw(st.integers(1, 7)), draw(st.integers(2, 6))
    shape = n, draw(st.integers(1, 13)), draw(st.integers(1, 13))
    maps = random.integers(0, classes, shape)
    if draw(st.booleans()):  # each map has few classes
        maps = maps % random.integers(1, classes + 1, (n, 1, 1))
    if draw(st.booleans()):
        maps[-1] = maps[0]
    ignore = draw(st.sampled_from([None, 255, -1, 0]))
    if ignore is not None:
        maps[random.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5]))] = ignore
        maps[0, 0, 0] = classes - 1
    return maps, classes, ignore


@settings(max_examples=80, deadline=None)
@given(drawn=label_maps(), cached=st.sampled_from([1, 1 << 18]))
def test_equals_the_confusion_matrix(drawn, cached):
    maps, classes, ignore = drawn
    expected = loop(maps, maps, classes, ignore)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["contml.distances.segmentation"], "_CACHED", cached)
        patch.setattr(sys.modules["contml.distances.segmentation"], "_WORDS_PER_THREAD", 1)
        if bool(expected.isnan().any()):
            refused(lambda: segmentation_distance(maps, maps, classes, ignore), "label maps", got="no pixel")
            return
        ours = segmentation_distance(maps, maps, classes, ignore)
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=1e-6)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, ours.T)
    assert (ours.diagonal() == 0).all()
    assert ((ours == 0) == (expected == 0)).all()
    assert torch.equal(segmentation_distance(maps, maps.copy(), classes, ignore), ours)  # without x is y
    packed = pack_maps(maps, classes, ignore)
    assert torch.equal(_by_product(packed, packed), ours)
    assert torch.equal(segmentation_distance(maps[1:], maps[:2], classes, ignore), ours[1:, :2])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    maps = np.random.default_rng(0).integers(0, 5, (40, 60, 60))
    maps[:20, :10] = 9
    space = SegmentationLabels(maps, 5, 9, side=None)
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        assert torch.equal(space.to("cuda").pairwise().cpu(), space.pairwise())


@pytest.mark.parametrize("name", ["labelmaps_camvid", "rooms_nyuv2"])
def test_real_maps(name):
    files = sorted((DATA / name / "labels").glob("*.png"))
    if not files:
        pytest.skip(f"no {name} in {DATA}")
    classes, ignore = {"labelmaps_camvid": (11, 11), "rooms_nyuv2": (40, 0)}[name]
    maps = [np.asarray(Image.open(file)) for file in files[:: len(files) // 8]]
    expected = [resized(m, 48) for m in maps]
    space = SegmentationLabels(maps, classes, ignore, side=48)
    torch.testing.assert_close(space.pairwise().double(), loop(expected, expected, classes, ignore), rtol=0, atol=1e-6)
    whole = SegmentationLabels(maps, classes, ignore, side=None).pairwise([0, 3], [5])
    torch.testing.assert_close(whole.double(), loop([maps[0], maps[3]], [maps[5]], classes, ignore), rtol=0, atol=1e-6)


def resized(one, side):
    """Nearest neighbour in whole numbers: Pillow's sums of floats go either way where a centre lies on a border."""
    rows, cols = ([floor((Fraction(i) + Fraction(1, 2)) * n / side) for i in range(side)] for n in one.shape)
    return one[rows][:, cols]


@pytest.mark.parametrize(
    ("size", "side"), [((1, 1), 8), ((7, 5), 1), ((8, 8), 8), ((160, 120), 112), ((112, 113), 112)]
)
def test_resized_by_nearest_neighbour(size, side):
    maps = np.random.default_rng(0).integers(0, 9, (2, *size), dtype=np.uint8)
    expected = np.stack([resized(one, side) for one in maps])
    if size in ((8, 8), (7, 5)) and side > 1:
        pillow = np.asarray(Image.fromarray(maps[0]).resize((side, side), Image.Resampling.NEAREST))
        assert np.array_equal(expected[0], pillow)
    for ours, theirs in zip(pack_maps(maps, 9, None, side), pack_maps(expected, 9), strict=True):
        assert torch.equal(ours, theirs)


def test_more_maps_than_are_packed_at_a_time(monkeypatch):
    maps = np.random.default_rng(0).integers(0, 3, (10, 6, 6))
    whole = SegmentationLabels(maps, 3)
    monkeypatch.setattr(sys.modules["contml.distances.segmentation"], "_PACKED", 3)
    assert torch.equal(SegmentationLabels(maps, 3).masks, whole.masks)
    maps[7, 1, 2] = 3
    refused(lambda: SegmentationLabels(maps, 3), "label map 7", got="3 at row 1, column 2", allowed="0 to 2")


def test_the_pair_without_a_common_pixel_is_named():
    maps = np.zeros((4, 2, 2), dtype=np.uint8)
    maps[1, 0], maps[3, 1] = 255, 255
    space = SegmentationLabels(maps, 2, ignore=255)
    refused(space.pairwise, "label maps 1 and 3", got="no pixel")
    refused(lambda: space[[2, 1, 3]].pairwise([1], [0, 2]), "label maps 1 and 3", got="no pixel")
    assert space.pairwise([0], [1, 3]).tolist() == [[0, 0]]
