"""The synthetic task, pose data of your own, and splits of both."""

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from support.refusals import refuses

from contml.data import ImageFile, Pixels, Task
from contml.tasks.pose.files import files
from contml.tasks.pose.synthetic import synthetic


@pytest.fixture
def folder(tmp_path):
    """Writes a data set of 12 training images, 3 queries and 5 others; `hidden` are rows with half their joints."""

    def write(hidden=()):
        random = np.random.default_rng(0)
        (tmp_path / "images").mkdir()
        names = [f"{k:02}.png" for k in range(20)]
        for name in names:
            Image.fromarray(random.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / "images" / name)
        visible = np.ones((20, 14), bool)
        visible[list(hidden), ::2] = False
        split = ["train"] * 12 + ["query"] * 3 + ["test"] * 5
        joints = random.uniform(0, 20, (20, 14, 2))
        np.savez(tmp_path / "joints.npz", names=names, joints=joints, visible=visible, split=split)
        return str(tmp_path), joints

    return write


def test_synthetic_people_are_pixels_with_queries_first():
    task = synthetic(train=5, test=8, queries=3, size=20)
    assert isinstance(task, Task)
    assert (len(task.train), len(task.test)) == (5, 8)
    assert all(isinstance(image, Pixels) for image in task.train.images)
    assert task.train.image(0).shape == (20, 20, 3)
    assert task.train.stamp(0) is None
    assert (task.train.queries, task.train.gallery) == (None, None)
    assert (task.test.queries.tolist(), task.test.gallery.tolist()) == ([0, 1, 2], [3, 4, 5, 6, 7])
    larger = synthetic(train=9, test=8, queries=0, size=20)
    np.testing.assert_array_equal(larger.train.image(4), task.train.image(4))
    np.testing.assert_array_equal(larger.test.image(4), task.test.image(4))
    assert larger.test.queries is None


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"train": 2}, {"subject": "train", "got": "2", "allowed": "3"}),
        ({"size": 4}, {"subject": "size", "got": "4", "allowed": "8"}),
        ({"seed": -1}, {"subject": "seed", "got": "-1", "allowed": "0"}),
        ({"test": 6, "queries": 5}, {"subject": "queries", "got": "5", "allowed": "0 to 4"}),
    ],
)
def test_wrong_options_of_synthetic_people(options, fields):
    with refuses(**fields):
        synthetic(**options)


def test_hidden_people_are_dropped_and_counted(folder):
    root, joints = folder(hidden=(4, 12, 19))
    with refuses(".png", "7 of 14 joints are visible (2 such items)", "more than half", "hidden=drop"):
        files(root)
    task = files(root, hidden="drop")
    assert task.train.excluded == {"with too few visible joints": 1}
    assert task.test.excluded == {"with too few visible joints": 2}
    numbers = [int(name[-6:-4]) for name in task.test.names]
    assert sorted(numbers) == [13, 14, 15, 16, 17, 18]
    np.testing.assert_array_equal(task.test.view.renderer.joints, joints[numbers])
    assert list(task.test.images) == [ImageFile(task.test.image(row)) for row in range(6)]
    expected = ((joints[numbers[0]] - joints[numbers[5]]) ** 2).sum()
    assert task.test.labels.pairwise()[0, 5] == pytest.approx(expected, rel=1e-6)


def test_images_in_several_folders(folder, tmp_path):
    root, _ = folder()
    (tmp_path / "rest").mkdir()
    for path in sorted((tmp_path / "images").iterdir())[::3]:
        path.rename(tmp_path / "rest" / path.name)
    with refuses("images/00.png", got="7 of 20 images of joints.npz"):
        files(root)
    task = files(root, images=["images", "rest"])
    assert [name[-6:] for name in task.train.names] == [f"{k:02}.png" for k in range(12)]
    assert [path.parent.name for path in map(task.train.image, range(4))] == ["rest", "images", "images", "rest"]


def test_queries_that_are_all_dropped_are_refused(folder):
    root, _ = folder(hidden=(12, 13, 14))
    with refuses("queries", "all 3"):
        files(root, hidden="drop")


def test_worker_processes_can_receive_a_split(folder):
    root, _ = folder()
    for task in (synthetic(train=4, test=5, queries=1, size=16), files(root)):
        copy = pickle.loads(pickle.dumps(task.test))
        assert copy.draw(1, 40).tobytes() == task.test.draw(1, 40).tobytes()
        torch.testing.assert_close(copy.labels.pairwise(), task.test.labels.pairwise())


def own_json(tmp_path, **change):
    """Twelve people of four joints in images of 20 pixels; the first with these values."""
    (tmp_path / "images").mkdir(exist_ok=True)
    people = []
    for number in range(12):
        Image.new("RGB", (20, 20)).save(tmp_path / f"images/{number}.png")
        joints = [[1 + (number * (k + 3)) % 17, 1 + (number * (k + 5)) % 13] for k in range(4)]
        people.append({"name": f"{number}.png", "joints": joints, "split": "train" if number < 6 else "test"})
        people[-1]["visible"] = [0, 1, 1, 1]
    people[0] |= change
    (tmp_path / "joints.json").write_text(json.dumps({"people": people}))
    return files(str(tmp_path), joints="joints.json").train.labels.pairwise()[0]


@pytest.mark.parametrize("visible", [["0", "1", "1", "1"], [False, True, True, True], [0.0, 1.0, 1.0, 1.0]])
def test_visible_is_read_by_its_plain_meaning(tmp_path, visible):
    assert (own_json(tmp_path, visible=visible) == own_json(tmp_path)).all()


@pytest.mark.parametrize("value", [float("nan"), None, 0.01, 2, -1, "maybe", [1]])
def test_visible_that_is_no_flag_is_refused(tmp_path, value):
    with refuses("joints.json: visible"):
        own_json(tmp_path, visible=[value, 1, 1, 1])


@pytest.mark.parametrize("point", [[-1, -1], [9999, 9999], [-1.0, -1.0], [10, 30], [None, None], ["3", "4"]])
def test_visible_joints_are_in_their_image(tmp_path, point):
    joints = [[3, 3], point, [5, 5], [6, 6]]
    with refuses("joints.json"):
        own_json(tmp_path, joints=joints)
    if point[0] != "3":
        own_json(tmp_path, joints=joints, visible=[1, 0, 1, 1])


def test_null_is_an_unknown_joint(tmp_path):
    joints = [[3, 3], None, [5, 5], [6, 6]]
    unknown = own_json(tmp_path, joints=joints, visible=[1, 0, 1, 1])
    assert (unknown == own_json(tmp_path, joints=[[3, 3], [0, 0], *joints[2:]], visible=[1, 0, 1, 1])).all()
    with refuses("joints.json", "joint 1 (1) of 0.png is not a number"):
        own_json(tmp_path, joints=joints, visible=[1, 1, 1, 1])


@pytest.mark.parametrize("name", [None, 7, ["0.png"], ""])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    with refuses("joints.json: item 0", repr(name), "name of an image file"):
        own_json(tmp_path, name=name)


def test_names_may_be_bytes(folder, tmp_path):
    root, _ = folder()
    expected = files(root).train.names
    with np.load(tmp_path / "joints.npz") as arrays:
        values = dict(arrays)
    np.savez(tmp_path / "joints.npz", **{**values, "names": values["names"].astype("S")})
    assert files(root).train.names == expected
