import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from support.paths import DATA_ROOT, needs
from support.pose_sets import EMPTY, annopoints, packed, save_mpii, struct, write_mpii
from support.refusals import refused, refuses

from contml.app.experiment import check, load
from contml.data.draw import draw, positions
from contml.tasks.pose.mpii import mpii, read_release

DATA = DATA_ROOT / "pose_lspet"
SAMPLE = DATA / "mpii_annotations" / "mpii_struct_sample.mat"
MAT = "mpii_human_pose_v1_u12_1.mat"
SMALL = {"queries": 4, "side": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A miniature that no test changes, and its annotations."""
    folder = tmp_path_factory.mktemp("mpii")
    return folder, write_mpii(folder, images=40)


def person_of(name):
    """Image and number of a row of a split."""
    path, _, number = name.rpartition(", person ")
    return Path(path).name, int(number)


def one_image(folder, joints, rectangle=None, **entry):
    """A release of three training images: the first with the given joints, the others with whole people."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    random, names = np.random.default_rng(0), ("a.jpg", "b.jpg", "c.jpg")
    whole = random.uniform(10, 90, (3, 16, 2)).round()
    entries = []
    for k, name in enumerate(names):
        Image.new("RGB", (100, 100)).save(folder / "images" / name)
        points = annopoints(whole[k], np.ones(16), "number", random)
        rectangles = struct([{"annopoints": points if k or joints is None else struct([{"point": joints}])}])
        entries.append({"image": struct([{"name": name}]), "annorect": rectangles, "vididx": packed(k + 1)})
    if rectangle is not None:
        entries[0]["annorect"] = rectangle
    entries[0] |= entry
    save_mpii(folder, entries, [1, 1, 1])
    return whole


def points(*values):
    return struct([dict(zip(("x", "y", "id", "is_visible"), point, strict=False)) for point in values])


# The annotation file


def test_every_form_is_read(folder):
    path, truth = folder
    release = read_release(path / MAT)
    assert {person_of(person.name) for person in release.people} == set(truth)
    for person in release.people:
        joints, marked, seen = truth[person_of(person.name)]
        np.testing.assert_array_equal(person.marked, marked)
        np.testing.assert_allclose(person.joints[marked], joints[marked], atol=1e-9)
        assert np.isnan(person.joints[~marked]).all()
        np.testing.assert_array_equal(person.seen[marked], seen[marked])
    assert (release.images, release.unmarked, release.test_images) == (40, 1, 2)
    assert not any(person.excluded for person in release.people)


def test_small_integers_do_not_wrap(tmp_path):
    one_image(tmp_path, points((np.uint8(0), np.uint8(0), np.uint8(9)), (np.uint8(255), np.int8(-20), np.uint8(0))))
    person = read_release(tmp_path / MAT).people[0]
    np.testing.assert_array_equal(person.joints[[9, 0]], [[-1, -1], [254, -21]])


@pytest.mark.parametrize(
    ("written", "seen"),
    [("0", False), ("1", True), (np.uint8(0), False), (1.0, True), (EMPTY, True), (np.array([""]), True)],
)
def test_forms_of_is_visible(tmp_path, written, seen):
    one_image(tmp_path, points((5, 6, 3, written), (7, 8, 4, "1")))
    person = read_release(tmp_path / MAT).people[0]
    assert bool(person.seen[3]) is seen
    assert person.marked[[3, 4]].all()
    assert person.marked.sum() == 2


def test_a_single_point_without_is_visible_is_a_person_of_one_joint(tmp_path):
    # As annolist(24731).annorect(2) of the published file.
    one_image(tmp_path, points((5, 6, 3)))
    person = read_release(tmp_path / MAT).people[0]
    assert np.flatnonzero(person.marked).tolist() == [3]
    assert person.seen[3]
    with refuses(MAT, "people are kept", "at least 3"):
        mpii(str(tmp_path), queries=0)  # the person is excluded, and two others are too few


def test_fields_come_and_go(tmp_path):
    rectangle = struct(
        [
            {"scale": np.float64(2), "objpos": struct([{"x": packed(5), "y": packed(7)}])},
            {"annopoints": points_of(3), "scale": EMPTY, "objpos": EMPTY},
            {"annopoints": EMPTY},
            {"annopoints": points_of(2), "scale": np.uint8(1), "objpos": struct([{"x": packed(1), "y": packed(9)}])},
        ]
    )
    one_image(tmp_path, None, rectangle)
    release = read_release(tmp_path / MAT)
    first, second = release.people[:2]
    assert (person_of(first.name), int(first.marked.sum())) == (("a.jpg", 2), 3)
    assert ((person_of(second.name), int(second.marked.sum())), release.unmarked) == ((("a.jpg", 4), 2), 2)


def points_of(count):
    return struct([{"point": points(*((k + 1, k + 1, k, 1) for k in range(count)))}])


def test_people_with_a_joint_or_an_image_that_appears_twice_are_excluded(tmp_path):
    reason = "with a joint or an image that appears twice"
    one_image(tmp_path, points((5, 6, 3, 1), (9, 9, 3, 1)))
    release = read_release(tmp_path / MAT)
    assert ([person.excluded for person in release.people], release.images) == ([reason, "", ""], 2)
    one_image(tmp_path, None, image=struct([{"name": "b.jpg"}]))
    release = read_release(tmp_path / MAT)
    assert ([person.excluded for person in release.people], release.images) == (["", reason, ""], 2)


@pytest.mark.parametrize(("place", "got"), [((9999, 9999), "9998, 9998"), ((0, 0), "-1, -1"), ((-40, 5), "-41, 4")])
def test_a_joint_that_cannot_be_in_its_image(tmp_path, place, got):
    one_image(tmp_path, points(*((k + 20, k + 20, k, 1) for k in range(15)), (*place, 15, 1)))
    refused(lambda: mpii(str(tmp_path), queries=0), "a.jpg, person 1", f"left_wrist is at {got}", "in")


def test_an_image_without_a_video_is_a_group_of_its_own(tmp_path):
    one_image(tmp_path, None, vididx=EMPTY)
    groups = [person.group for person in read_release(tmp_path / MAT).people]
    assert groups == ["image a.jpg", "video 2", "video 3"]


# The task


def excluded(task, reason):
    """How many people of both splits are excluded for a reason, the only one."""
    assert {*task.train.excluded, *task.test.excluded} == {reason}
    return sum(split.excluded.get(reason, 0) for split in (task.train, task.test))


def test_excluded_people_are_counted_by_reason(folder):
    task = mpii(str(folder[0]), **SMALL)
    facts = dict(task.summary)
    few = sum(marked.sum() < 16 for _, marked, _ in folder[1].values())
    assert (few, facts["people with joints"]) == (7, f"{80 - few} kept of 80 in 40 images")
    assert excluded(task, "with fewer than 16 of 16 joints") == few
    assert facts["without joints"] == "1 people in these images; 2 official test images"
    checked = dict(check(load("pose/synthetic", [*OPTIONS, f"task.root={folder[0]}"]), images="all"))
    assert facts.items() <= checked.items()
    assert checked["decoded"] == f"all {80 - few} images"
    seen = mpii(str(folder[0]), min_joints=13, occluded=False, **SMALL)
    fewer = sum((marked & seen).sum() < 13 for _, marked, seen in folder[1].values())
    assert excluded(seen, "with fewer than 13 of 16 joints") == fewer
    assert seen.summary[0][1] == f"{80 - fewer} kept of 80 in 40 images"


def test_split_by_video_is_the_same_everywhere_and_whoever_is_kept(folder):
    task, loose = (mpii(str(folder[0]), min_joints=least, **SMALL) for least in (16, 9))
    release = read_release(folder[0] / MAT)
    video = {person.file.name: person.group for person in release.people}
    parts = [{video[person_of(name)[0]] for name in split.names} for split in (task.train, task.test)]
    assert not parts[0] & parts[1]
    assert not any(draw([v, *"abcdefgh"], 0.445, 0, "test")[0] for v in parts[0]), "whichever other videos there are"
    assert all(draw([v, *"abcdefgh"], 0.445, 0, "test")[0] for v in parts[1])
    first = positions(["video 17"], 0, "test")[0]
    assert first == pytest.approx(0.45264691575571714, abs=1e-12), "another number would change everybody's split"
    assert set(task.train.names) <= set(loose.train.names)
    assert set(task.test.names) < set(loose.test.names)
    assert (len(task.test.queries), len(task.test.gallery)) == (4, len(task.test) - 4)
    videos = [video[person_of(task.test.names[row])[0]] for row in task.test.queries.tolist()]
    first = sorted(parts[1], key=lambda v: positions([v], 0, "queries")[0])
    assert set(videos) == set(first[: len(set(videos))]), "queries are of the first videos drawn"
    assert task.val_groups == [video[person_of(name)[0]] for name in task.train.names]
    assert dict(task.summary)["split"].endswith(f"{len(task.train)} people for training, {len(task.test)} for testing")
    assert set(mpii(str(folder[0]), seed=1, **SMALL).test.names) != set(task.test.names)


def test_label_distances_are_those_of_joints_in_the_crops(folder):
    task = mpii(str(folder[0]), margin=1.5, min_joints=14, **SMALL)
    found = task.train.labels.pairwise().numpy()

    def in_pixels_of_crop(name):
        joints, marked, _ = folder[1][person_of(name)]
        low, high = joints[marked].min(0), joints[marked].max(0)
        return ((joints - (low + high) / 2) / (1.5 * (high - low).max()) + 0.5) * 64 - 0.5, marked

    poses = [in_pixels_of_crop(name) for name in task.train.names]
    for i, j in itertools.product(range(0, len(poses), 5), range(len(poses))):
        both = poses[i][1] & poses[j][1]
        distance = ((poses[i][0] - poses[j][0])[both] ** 2).sum() * 16 / both.sum()
        assert found[i, j] == pytest.approx(distance**0.5, rel=1e-5, abs=1e-3)
    assert task.train.labels.unit == "pixels of a crop of 64, over 16 joints"


def test_crops_show_their_person(folder):
    task = mpii(str(folder[0]), margin=1.0, queries=4, side=48)
    for row in range(0, len(task.test), 5):
        image, number = person_of(task.test.name(row))
        whole = np.asarray(Image.open(folder[0] / "images" / image))
        low, high = folder[1][image, number][0].min(0), folder[1][image, number][0].max(0)
        assert task.test.image(row).shape == (48, 48, 3)
        x0, y0, x1, y1 = (max(0, round(v)) for v in (*low, *high))
        inner = whole[y0 : y1 + 1, x0 : x1 + 1].mean((0, 1))
        joints = task.test.view.renderer.joints[row]
        a, b = np.maximum(joints.min(0).round().astype(int), 0), joints.max(0).round().astype(int)
        assert np.abs(task.test.image(row)[a[1] : b[1] + 1, a[0] : b[0] + 1].mean((0, 1)) - inner).max() < 8
    file, how = task.test.stamp(0)
    assert file == folder[0] / "images" / person_of(task.test.name(0))[0]
    assert how.startswith("48 x 48 of ")


OPTIONS = ["task=pose/mpii", "task.queries=4", "task.side=36", "images.resize=36", "images.crop=32", "model.dim=8"]
OPTIONS += ["sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=3"]
OPTIONS += ["transform.scale_jitter=2", "transform.shift=1", "training.epochs=1"]


# What is refused


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"min_joints": 8}, ("min_joints", "8", "9 to 16")),
        ({"min_joints": 17}, ("min_joints", "17", "9 to 16")),
        ({"annotations": "mpii.mat"}, ("mpii.mat", f"images, {MAT}", "", "annotations")),
        ({"test": 0.001}, ("queries", "4", "0 to 2, so that two of 4")),  # one video at least
    ],
)
def test_wrong_options(folder, options, fields):
    refused(lambda: mpii(str(folder[0]), **{**SMALL, **options}), *fields)


@pytest.mark.parametrize(
    ("point", "got", "allowed"),
    [
        ((5, 6, 16), "x 5.0, y 6.0, id 16.0", "0 to 15"),
        ((5, EMPTY, 2), "y None", ""),
        ((np.array([5, 6]), 6, 2), "[5, 6]", "one finite number"),
        (("five", 6, 2), "five", "one finite number"),
    ],
)
def test_malformed_points_are_named(tmp_path, point, got, allowed):
    one_image(tmp_path, points(point))
    refused(lambda: read_release(tmp_path / MAT), f"{MAT}: annolist(1).annorect(1)", got, allowed)


def test_other_files(tmp_path):
    path = tmp_path / MAT
    path.write_bytes(b"MATLAB 5.0 MAT-file, cut short")
    refused(lambda: read_release(path), MAT)
    savemat(path, {"joints": np.zeros(3)})
    refused(lambda: read_release(path), str(path), got="'RELEASE' (it has joints)")
    savemat(path, {"RELEASE": {"annolist": struct([{"image": "a"}])}})
    refused(lambda: read_release(path), MAT, "no RELEASE.img_train", "mpii_human_pose_v1_u12_1.mat")
    savemat(path, {"RELEASE": {"annolist": struct([{"image": "a"}]), "img_train": np.ones((1, 2))}})
    refused(lambda: read_release(path), MAT, "img_train has 2 numbers, annolist 1 entries", "one number per entry")
    savemat(path, {"RELEASE": {"annolist": struct([{"image": "a"}]), "img_train": np.ones((1, 1))}})
    refused(lambda: read_release(path), f"{MAT}: annolist(1)", "no image.name", "mpii_human_pose_v1_u12_1.mat")
    savemat(path, {"RELEASE": {"annolist": struct([{"image": struct([{"name": "a"}])}]), "img_train": np.ones((1, 1))}})
    refused(lambda: read_release(path), MAT, "no person with joints in 1 entries")


# Real annotations


@pytest.mark.slow
@needs("pose_lspet")
def test_real_joints_in_the_official_structs():
    release = read_release(SAMPLE)
    assert (len(release.people), release.images, release.test_images) == (644, 600, 40)
    listed = json.loads(gzip.decompress((SAMPLE.parent / "mpii_valid_2958.json.gz").read_bytes()))
    forms = json.loads((SAMPLE.parent / "mpii_struct_sample_forms.json").read_text())["is_visible_form_per_image"]
    truth = {(person["img_paths"], person["people_index"]): person for person in listed}
    used = set()
    for person in release.people:
        joints = np.array(truth[person_of(person.name)]["joint_self"])
        marked = joints[:, :2].any(1)
        np.testing.assert_array_equal(person.marked, marked)
        np.testing.assert_allclose(person.joints[marked] + 1, joints[marked, :2], atol=1e-3)
        if forms[person.file.name] != "none":
            np.testing.assert_array_equal(person.seen[marked], joints[marked, 2] == 1)
        used.add(forms[person.file.name])
    assert used == {"num", "char", "none", "mixed"}
