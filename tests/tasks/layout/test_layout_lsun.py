import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat
from support.layouts import POINTS, corner_points, surfaces_of, write_lsun, write_records
from support.refusals import refused

from contml.tasks.layout import lsun as module
from contml.tasks.layout.lsun import TYPES, draw_surfaces, lsun, name_components
from contml.tasks.layout.views import choose_view, surface_map


@pytest.fixture(scope="module")
def layouts():
    """Up to four maps `[200, 200]` of each layout type, with their corner points."""
    found = {kind: [] for kind in TYPES}
    for index in range(4000):
        view = choose_view(np.random.default_rng([7, index]))
        kind = next(k for k, layout in TYPES.items() if surfaces_of(layout) == set(view.surfaces) - {0})
        if len(found[kind]) < 4:
            labels = surface_map(view, 200)
            if (points := corner_points(labels)) is not None:
                assert points[0] == kind
                found[kind].append((labels, points[1]))
    return found


def shuffled(labels, seed=0):
    """A map with its ids renamed at random, as the original maps number their components."""
    return (np.random.default_rng(seed).permutation(20) + 1)[labels]


# Surfaces from corner points


def test_the_table_of_types_is_the_official_one():
    assert [TYPES[kind].points for kind in range(11)] == [8, 6, 6, 4, 4, 6, 4, 4, 2, 2, 2]
    assert sum(layout.points for layout in TYPES.values()) == 48
    for kind, layout in TYPES.items():
        assert len(POINTS[kind]) == layout.points
        assert surfaces_of(layout) == {s for point in POINTS[kind] for s in point if not isinstance(s, str)}


@pytest.mark.parametrize("kind", range(11))
def test_points_draw_the_surfaces(layouts, kind):
    assert layouts[kind], "the test needs a room of each type"
    for labels, points in layouts[kind]:
        drawn = draw_surfaces(kind, points, 200, 200)
        assert (drawn == labels).mean() > 0.985
        assert set(np.unique(drawn)) == set(np.unique(labels))


@pytest.mark.parametrize("kind", range(11))
def test_components_get_canonical_ids(layouts, kind):
    for seed, (labels, points) in enumerate(layouts[kind]):
        named, agreement = name_components(kind, points, shuffled(labels, seed))
        assert (named == labels).all()
        assert agreement > 0.98


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("swaps", [[(1, 2)], [(4, 5)], [(1, 2), (4, 5)]])
def test_points_that_change_places_in_the_published_files(layouts, kind, swaps):
    for labels, points in layouts[kind]:
        order = list(range(6))
        for a, b in swaps:
            order[a], order[b] = order[b], order[a]
        named, agreement = name_components(kind, points[order], shuffled(labels))
        assert (named == labels).all()
        assert agreement > 0.98


def test_unknown_pixels_stay_unknown(layouts):
    labels, points = layouts[5][0]
    holes = shuffled(labels)
    holes[40:80, 20:150] = 0
    named, agreement = name_components(5, points, holes)
    assert (named[holes == 0] == 0).all()
    assert (named == labels)[holes > 0].all()
    assert agreement > 0.98


def test_a_map_that_does_not_fit_its_points_has_low_agreement(layouts):
    (labels, _), (_, points) = layouts[5][0], layouts[5][1]
    assert name_components(5, points[:, ::-1], shuffled(labels))[1] < 0.8
    halves = np.where(np.arange(200) < 100, 1, 2) * np.ones((200, 1), int)
    assert name_components(5, points, halves)[1] < 0.8, "two surfaces too few"


# The published files


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lsun")
    return folder, write_lsun(folder, train=14, validation=10, relabelled=True)


def assert_canonical(split, truth):
    for row in range(len(split)):
        _, _, _, canonical = truth[split.images[row].file.stem]
        rows, columns = ((2 * np.arange(112) + 1) * n // 224 for n in canonical.shape)
        assert (split.view.renderer.map(row) == canonical[rows[:, None], columns]).mean() > 0.97


@pytest.mark.parametrize("maps", ["auto", "surface_relabel", "layout_seg", "points"])
def test_every_source_of_maps_gives_the_canonical_ids(published, maps):
    folder, truth = published
    task = lsun(str(folder), maps, missing="drop")
    assert (len(task.train), len(task.test)) == (14, 10)
    assert task.train.excluded == task.test.excluded == {}
    assert task.train.view.renderer.map(0).shape == (112, 112)
    assert "surface_relabel" in task.train.name(0) or maps in ("layout_seg", "points")
    assert_canonical(task.train, truth)
    assert_canonical(task.test, truth)
    assert task.train.queries is None
    assert task.test.queries.tolist() == [0, 1]
    task.test.draw(0, 200)


def test_records_keep_their_order_and_queries_are_the_first(published):
    folder, truth = published
    task = lsun(str(folder), "layout_seg", queries=4, missing="drop")
    assert [task.train.images[row].file.stem for row in range(14)] == list(truth)[:14]
    assert (task.test.queries.tolist(), task.test.gallery.tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    assert lsun(str(folder), "layout_seg", queries=0, missing="drop").test.queries is None


def test_the_corrected_copy_needs_no_records(tmp_path):
    truth = write_lsun(tmp_path, train=5, validation=5, originals=False, relabelled=True)
    (tmp_path / "surface_relabel" / "train" / "._sun_0001.mat").write_bytes(b"left by a Mac")
    task = lsun(str(tmp_path), missing="drop")
    assert (len(task.train), len(task.test)) == (5, 5)
    assert_canonical(task.train, truth)


def test_zero_and_unknown_numbers_of_the_corrected_copy_are_ignored(tmp_path):
    write_lsun(tmp_path, train=4, validation=4, originals=False, relabelled=True)
    path = sorted((tmp_path / "surface_relabel" / "train").glob("*.mat"))[1]
    labels = loadmat(path)["layout"].astype(float)
    labels[:10], labels[10:20] = 0, 6
    labels[20, :5] = np.nan
    savemat(path, {"layout": labels})
    task = lsun(str(tmp_path), missing="drop")
    rows = (2 * np.arange(112) + 1) * len(labels) // 224
    assert ((task.train.view.renderer.map(1) == -1).all(1) == (rows < 20)).all()


@pytest.mark.parametrize("fields", [("resolution", "point", "image", "type"), ("type", "image", "point", "resolution")])
def test_fields_are_read_by_their_names(tmp_path, fields):
    write_records(tmp_path / "training.mat", [("a", "x", 9, np.ones((2, 2)), (3, 4))], fields)
    (record,) = module._read_records(tmp_path / "training.mat", need_points=True)
    assert (record.name, record.type, record.resolution) == ("a", 9, (3, 4))


def test_images_without_a_layout_are_excluded_and_counted(tmp_path):
    truth = write_lsun(tmp_path, train=6, validation=4)
    records = [(name, "x", kind, points, size[::-1]) for name, (size, kind, points, _) in truth.items()]
    for row, kind in ((1, 11), (4, -1)):
        records[row] = (records[row][0], "x", kind, np.zeros((0, 2)), records[row][4])
    write_records(tmp_path / "training.mat", records[:6])
    (tmp_path / "layout_seg" / f"{records[1][0]}.mat").unlink()
    task = lsun(str(tmp_path), missing="drop")
    assert (len(task.train), task.train.excluded, task.test.excluded) == (4, {"without a layout type": 2}, {})


def test_annotations_that_contradict_themselves_are_excluded_and_counted(tmp_path):
    name, (size, *_) = next(iter(write_lsun(tmp_path, train=6, validation=4).items()))
    savemat(tmp_path / "layout_seg" / f"{name}.mat", {"layout": np.ones(size[::-1], np.uint8)})
    task = lsun(str(tmp_path), missing="drop")
    assert (len(task.train), task.train.excluded) == (5, {"with a label map that contradicts the corner points": 1})


def test_points_outside_the_picture_are_put_on_its_edge(tmp_path):
    record = module._ListedRoom("a", 9, np.array([(-30.0, 20.4), (140.0, 22.6)]), (40, 100))
    places = module._to_shares(record, tmp_path / "none.jpg")
    np.testing.assert_allclose(places, [(0.5 / 100, 19.5 / 40), (99.5 / 100, 22.5 / 40)])
    drawn = draw_surfaces(9, places, 40, 100)
    assert (drawn[:19] == 1).all()
    assert (drawn[23:] == 4).all()


def test_corners_outside_the_picture_draw_something():
    for kind, layout in TYPES.items():
        for places in (np.zeros((layout.points, 2)), np.ones((layout.points, 2)), np.full((layout.points, 2), 0.5)):
            assert set(np.unique(draw_surfaces(kind, places, 16, 16))) <= surfaces_of(layout)


def test_height_comes_first_in_the_resolution(tmp_path):
    write_lsun(tmp_path, train=4, validation=4)
    table = loadmat(tmp_path / "training.mat")["training"]
    name = table[0, 2]["image"][0]
    table[0, 2]["resolution"] = table[0, 2]["resolution"][:, ::-1]
    savemat(tmp_path / "training.mat", {"training": table})
    refused(lambda: lsun(str(tmp_path), missing="drop"), f"{name}.jpg", " x ", "width ", "missing=drop")


def publish(monkeypatch, training, validation):
    """Make so many images the published numbers."""
    monkeypatch.setattr(module, "_TRAINING", module._TRAINING._replace(images=training))
    monkeypatch.setattr(module, "_VALIDATION", module._VALIDATION._replace(images=validation))


def test_an_incomplete_copy_is_refused(tmp_path, monkeypatch):
    write_lsun(tmp_path, train=5, validation=4)
    refused(lambda: lsun(str(tmp_path)), "training.mat", "5 images", "4,000", "missing=drop")
    publish(monkeypatch, training=5, validation=4)
    assert len(lsun(str(tmp_path)).train) == 5
    for file in sorted((tmp_path / "images").glob("*.jpg"))[1:3]:
        file.unlink()
    refused(lambda: lsun(str(tmp_path)), "images/sun_0", got="2 of 10 files for training.mat", hint="missing=drop")
    task = lsun(str(tmp_path), missing="drop")
    assert (len(task.train), task.train.excluded) == (3, {"without an image file": 2})


@pytest.mark.parametrize("copy", ["surface_relabel", "layout_seg"])
def test_a_missing_map_is_named(tmp_path, monkeypatch, copy):
    write_lsun(tmp_path, train=4, validation=4, originals=copy == "layout_seg", relabelled=copy != "layout_seg")
    publish(monkeypatch, training=4, validation=4)
    path = sorted((tmp_path / copy).rglob("*.mat"))[0]
    path.unlink()
    refused(lambda: lsun(str(tmp_path)), str(path), got="1 of 8 files")
    assert lsun(str(tmp_path), missing="drop").train.excluded == {"without a label map file": 1}


def test_missing_folders(tmp_path):
    refused(lambda: lsun(str(tmp_path)), str(tmp_path), "neither surface_relabel/ nor layout_seg/", "", "maps=points")


def test_pictures_of_another_size_than_their_records(tmp_path):
    """Copies exist with smaller pictures: points are in pixels of the record."""
    truth = write_lsun(tmp_path, train=4, validation=4)
    for file in (tmp_path / "images").glob("*.jpg"):
        picture = Image.open(file)
        picture.resize((2 * picture.width, 2 * picture.height)).save(file)
    task = lsun(str(tmp_path), missing="drop")
    assert task.train.excluded == {}
    assert_canonical(task.train, truth)
