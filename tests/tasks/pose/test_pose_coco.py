import json

import numpy as np
import pytest
from PIL import Image
from support.paths import DATA_ROOT, needs
from support.pose_sets import COCO_NAMES, COCO_SKELETON, write_keypoints
from support.refusals import refused, refuses

from contml.tasks.pose.coco import coco

DATA = DATA_ROOT / "coco_mini_2017"
SMALL = {"min_size": 20, "side": 64}
TRAIN = "annotations/person_keypoints_train2017.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A miniature that no test changes, and its annotations."""
    folder = tmp_path_factory.mktemp("coco")
    return folder, write_keypoints(folder)


@pytest.fixture
def own(tmp_path):
    """Writes a miniature and edits its training file; returns the folder."""
    write_keypoints(tmp_path, train=6, test=4)
    path = tmp_path / TRAIN

    def change(edit):
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
        return str(tmp_path)

    return change


def annotation_of(name):
    return int(name.rpartition("annotation ")[2])


def test_people_and_their_joints(folder):
    task = coco(str(folder[0]), margin=1.5, **SMALL)
    assert ((len(task.train), len(task.test)), task.train.view.renderer.joint_names) == ((48, 24), tuple(COCO_NAMES))
    assert list(task.train.view.renderer.skeleton) == [(a - 1, b - 1) for a, b in COCO_SKELETON]
    assert task.train.labels.unit == "pixels of a crop of 64, over 17 joints"
    for split in (task.train, task.test):
        for row, name in enumerate(split.names):
            joints, v = folder[1][annotation_of(name)]
            np.testing.assert_array_equal(split.view.renderer.visible[row], v > 0)
            low, high = joints[v > 0].min(0), joints[v > 0].max(0)
            expected = ((joints - (low + high) / 2) / (1.5 * (high - low).max()) + 0.5) * 64 - 0.5
            np.testing.assert_allclose(split.view.renderer.joints[row][v > 0], expected[v > 0], atol=1e-9)


def test_excluded_people_are_counted(own):
    def edit(content):
        notes = content["annotations"]
        notes[0] |= {"iscrowd": 1, "segmentation": {"counts": [10, 20], "size": [90, 200]}, "keypoints": [0] * 51}
        notes[1]["keypoints"] = [0] * 51
        notes[2]["keypoints"][: 3 * 8] = [0] * 24
        shrink(notes[3])
        del notes[4]["keypoints"]
        content["images"].append(
            {**content["images"][0], "id": 77, "file_name": "nobody.jpg"}
        )  # an image without people
        content["images"].append(dict(content["images"][1]))  # an image listed again

    task = coco(own(edit), **SMALL)
    assert dict(task.summary)["people to train on"] == "7 kept of 12 in 5 images"
    assert dict(task.summary)["people to test on"] == "8 kept of 8 in 4 images"
    assert task.train.excluded == {
        "crowds": 1, "without keypoints": 2, "with fewer than 12 of 17 joints": 1, "smaller than 20 pixels": 1
    }  # fmt: skip
    assert (len(task.train), task.test.excluded) == (7, {})


def shrink(note):
    points = np.array(note["keypoints"], float).reshape(17, 3)
    points[:, :2] += 0.9 * (points[0, :2] - points[:, :2])
    points[:, 2] = 2
    note["keypoints"] = points.ravel().tolist()


def test_hidden_joints_can_be_omitted(folder):
    task = coco(str(folder[0]), occluded=False, min_joints=9, **SMALL)
    kept = {annotation_of(name): row for row, name in enumerate(task.train.names)}
    for number, (_, v) in folder[1].items():
        if number < 1000:
            assert (number in kept) is bool((v == 2).sum() >= 9)
        if number in kept:
            np.testing.assert_array_equal(task.train.view.renderer.visible[kept[number]], v == 2)


def test_queries_are_the_people_of_drawn_images(folder):
    task = coco(str(folder[0]), **SMALL)
    assert (len(task.test.queries), len(task.test.gallery)) == (4, 20)
    images = [task.test.images[row].file for row in range(24)]
    queries = task.test.queries.tolist()
    assert {row for row in range(24) if images[row] in {images[query] for query in queries}} == set(queries)
    assert task.val_groups == [source.file.name for source in task.train.images]
    other = coco(str(folder[0]), seed=1, **SMALL)
    assert other.test.names == task.test.names
    assert other.test.queries.tolist() != queries
    assert coco(str(folder[0]), queries=0, **SMALL).test.queries is None


# What is refused


def test_an_image_that_was_resized_is_refused_when_it_is_read(own):
    task = coco(own(lambda content: None), **SMALL)
    Image.new("RGB", (100, 45)).save(task.train.images[0].file)
    refused(lambda: task.train.image(0), str(task.train.images[0].file), got="100 x 45", allowed="200 x 90")


def of_note(number, **values):
    return lambda content: content["annotations"][number].update(values)


def test_people_of_unlisted_images_can_be_dropped(own):
    task = coco(own(of_note(3, image_id=99)), missing="drop", **SMALL)
    assert task.summary[0][1] == "11 kept of 12 in 6 images"
    assert task.train.excluded == {"of images that are not listed": 1}


def test_other_files(own):
    root = own(lambda content: None)
    refused(lambda: coco(root, test="away.json", **SMALL), "away.json")
    with refuses(TRAIN, got="0000.jpg is in train and in test (6 such images)"):
        coco(root, test=TRAIN, test_images="train2017", **SMALL)


# Real annotations


@pytest.mark.slow
@needs("coco_mini_2017")
def test_real_people():
    files = TRAIN.replace("train", "val"), TRAIN, "val2017", "train2017"
    task = coco(str(DATA), *files, min_joints=10, min_size=32, side=96)
    assert task.summary[0][1] == "386 kept of 948 in 336 images"
    assert task.train.excluded == {
        "smaller than 32 pixels": 131, "with fewer than 10 of 17 joints": 159, "without keypoints": 258, "crowds": 14
    }  # fmt: skip
    assert (len(task.train), len(task.test)) == (386, 46)
    content = json.loads((DATA / "annotations" / "person_keypoints_val2017.json").read_text())
    labelled = sum(note["num_keypoints"] >= 10 and not note["iscrowd"] for note in content["annotations"])
    assert (labelled, task.train.image(0).shape, task.train.draw(1, 80).size) == (386 + 131, (96, 96, 3), (80, 80))
    distances = task.train.labels.pairwise()
    assert distances.isfinite().all()
    assert 60 < distances.mean() < 180


@pytest.mark.parametrize(
    ("edit", "excluded"),
    [
        (of_note(3, keypoints=[]), "without keypoints"),
        (of_note(3, iscrowd="1"), "crowds"),
        (of_note(3, iscrowd="0"), None),
        (lambda content: content["annotations"][3].update(image_id=float(content["annotations"][3]["image_id"])), None),
        (lambda content: content["categories"][0].update(skeleton=[[0, 16], [0, 1]]), None),
    ],
)
def test_values_are_read_by_their_plain_meaning(own, edit, excluded):
    expected, found = coco(own(lambda _: None), **SMALL), coco(own(edit), **SMALL)
    assert len(found.train) == len(expected.train) - (excluded is not None)
    if excluded:
        assert found.train.excluded[excluded] == expected.train.excluded.get(excluded, 0) + 1
