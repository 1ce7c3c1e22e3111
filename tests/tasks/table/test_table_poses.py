"""Poses of a table: files of joints, cells, columns and keypoints of COCO; flags, and what is refused."""

import csv
import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from support.pose_sets import COCO_NAMES, COCO_SKELETON
from support.refusals import refused, refuses

from contml.labels import PoseLabels
from contml.tasks.table.columns import guess_cells
from contml.tasks.table.file import file

COUNT, SIDE = 20, 20
SPLIT = ["train"] * 12 + ["query"] * 3 + ["test"] * 5
NAMES = [f"{number:02}.png" for number in range(COUNT)]


def poses(joints=4):
    return np.random.default_rng(0).uniform(1, SIDE - 1, (COUNT, joints, 2)).round(1)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(COUNT):
        Image.new("RGB", (SIDE, SIDE), (number, 0, 0)).save(tmp_path / f"images/{number:02}.png")
    return tmp_path


def write_arrays(folder, joints, visible=None, **others):
    arrays = {"names": NAMES, "joints": joints, "split": SPLIT, **others}
    np.savez(folder / "joints.npz", **arrays, **({} if visible is None else {"visible": visible}))
    return str(folder / "joints.npz")


def write_people(folder, joints, visible=None, first=()):
    rows = zip(NAMES, joints.tolist(), SPLIT, strict=True)
    people = [{"name": name, "joints": pose, "split": part} for name, pose, part in rows]
    for number, person in enumerate(people):
        person |= {} if visible is None else {"visible": visible[number].tolist()}
    people[0] |= dict(first)
    (folder / "joints.json").write_text(json.dumps({"people": people}))
    return str(folder / "joints.json")


def write_columns(folder, joints, visible=None):
    names = [f"{axis}{joint}" for joint in range(joints.shape[1]) for axis in ("xy" if visible is None else "xyv")]
    values = joints if visible is None else np.concatenate((joints, visible[..., None]), 2)
    with (folder / "own.csv").open("w", newline="") as stream:
        cells = zip(NAMES, SPLIT, values.reshape(COUNT, -1), strict=True)
        rows = [[f"images/{name}", part, *row] for name, part, row in cells]
        csv.writer(stream).writerows([["image", "split", *names], *rows])
    return str(folder / "own.csv"), {",".join(names): "pose"}


def write_cells(folder, joints, visible=None, **first):
    values = joints if visible is None else np.concatenate((joints, visible[..., None]), 2)
    cells = zip(NAMES, SPLIT, values.tolist(), strict=True)
    rows = [{"image": f"images/{name}", "split": part, "pose": pose} for name, part, pose in cells]
    rows[0] |= first
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "own.jsonl")


def write_coco(folder, joints, visible, more=()):
    notes = [
        {"id": number, "image_id": number, "category_id": 1, "keypoints": np.c_[pose, 2 * seen].ravel().tolist()}
        for number, (pose, seen) in enumerate(zip(joints, visible, strict=True))
    ]
    category = {"id": 1, "name": "person", "keypoints": COCO_NAMES, "skeleton": COCO_SKELETON}
    images = [{"id": n, "file_name": f"images/{n:02}.png", "split": part} for n, part in enumerate(SPLIT)]
    content = {"images": images, "annotations": [*notes, *more], "categories": [category]}
    (folder / "keypoints.json").write_text(json.dumps(content))
    return str(folder / "keypoints.json")


@pytest.mark.parametrize("joints", [4, 14])
@pytest.mark.parametrize("hides", [False, True])
def test_every_form_is_the_same_label_space(folder, joints, hides):
    values, visible = poses(joints), None
    if hides:
        visible = np.ones((COUNT, joints), int)
        visible[np.arange(COUNT), np.arange(COUNT) % joints] = 0
    expected = PoseLabels(values[12:], None if visible is None else visible[12:]).pairwise()
    tasks = [
        file(write_arrays(folder, values, visible), {"joints": "pose"}),
        file(write_people(folder, values, visible), {"joints": "pose"}),
        file(*write_columns(folder, values, visible)),
        file(write_cells(folder, values, visible), {"pose": "pose"}),
    ]
    for task in tasks:
        torch.testing.assert_close(task.test.labels.pairwise(), expected)
        assert (task.test.queries.tolist(), task.test.name(0)) == ([0, 1, 2], "images/12.png")
        assert bool(task.test.labels.skeleton) == (joints == 14)  # the body of LSP
        assert len(task.test.explain(0, 4, 60)) == 3
    copy = pickle.loads(pickle.dumps(tasks[0].test))
    assert copy.draw(1, 40).tobytes() == tasks[0].test.draw(1, 40).tobytes()


def test_options_names_and_other_arrays(folder):
    values = poses()
    names, limbs = ["left_hand", "head", "right_hand", "foot"], [[0, 1], [1, 2]]
    others = {"joint_names": names, "skeleton": limbs, "video": np.arange(COUNT) // 4}
    task = file(write_arrays(folder, values, **others), {"joints": "pose"}, group="video")
    assert task.train.labels.pairwise()[0, 1] == pytest.approx(((values[0] - values[1]) ** 2).sum() ** 0.5, rel=1e-6)
    assert (task.train.labels.part_names, len(task.train.view.legend)) == (names, 3)
    assert task.train.labels.skeleton == [(0, 1), (1, 2)]
    assert (task.train.group_name, len(task.train.groups.unique())) == ("video", 3)
    path, labels = write_columns(folder, values)
    own = {"kind": "pose", "normalize": True, "joint_names": names, "skeleton": limbs}
    task = file(path, dict.fromkeys(labels, own))
    assert (task.train.labels.normalize, task.train.labels.skeleton) == (True, [(0, 1), (1, 2)])
    with refuses("labels", "3 joint_names for 4 joints"):
        file(path, {key: {"kind": "pose", "joint_names": names[:3]} for key in labels})
    with refuses("labels", "joint 9 of 4"):
        file(path, {key: {"kind": "pose", "skeleton": [[0, 9]]} for key in labels})


def test_keypoints_of_coco(folder):
    values, visible = poses(17), np.ones((COUNT, 17), int)
    visible[:, 3] = 0
    task = file(write_coco(folder, values, visible), {"keypoints": "pose"})
    expected = PoseLabels(values[:12], visible[:12])
    torch.testing.assert_close(task.train.labels.pairwise(), expected.pairwise())
    assert ([*task.train.labels.part_names], task.train.labels.skeleton[0]) == (COCO_NAMES, (15, 13))
    second = {"id": 99, "image_id": 3, "category_id": 1, "keypoints": [1, 2, 2] * 17}
    with refuses("keypoints", "several persons", hint=""):
        file(write_coco(folder, values, visible, [second]), {"keypoints": "pose"})


def test_rows_with_few_joints_are_refused_or_dropped_and_counted(folder):
    values, visible = poses(), np.ones((COUNT, 4), bool)
    visible[[4, 12], :2] = False
    data = write_arrays(folder, values, visible)
    with refuses("joints.npz: row 5", "joints: 2 of 4 joints are visible; must be more than half (2 such of 20 rows)"):
        file(data, {"joints": "pose"})
    task = file(data, {"joints": "pose"}, missing="drop")
    reason = "without more than half of its joints in 'joints'"
    assert (task.train.excluded, task.test.excluded) == ({reason: 1}, {reason: 1})
    assert (len(task.train), len(task.test), task.test.queries.tolist()) == (11, 7, [0, 1])
    np.testing.assert_array_equal(task.train.view.renderer.joints, values[[*range(4), *range(5, 12)]])


@pytest.mark.parametrize("flags", [["0", "1", "1", "1"], [False, True, True, True], [0.0, 1.0, 2, 1.0]])
def test_flags_are_read_by_their_plain_meaning(folder, flags):
    task = file(write_people(folder, poses(), np.ones((COUNT, 4)), first={"visible": flags}), {"joints": "pose"})
    assert task.train.labels.visible[0].tolist() == [False, True, True, True]


@pytest.mark.parametrize("flag", [float("nan"), None, 0.01, 3, -1, "maybe", [1]])
def test_what_is_no_flag_is_refused(folder, flag):
    with refuses("joints.json: row 1: joints", hint="of confidences"):
        file(write_people(folder, poses(), np.ones((COUNT, 4)), first={"visible": [flag, 1, 1, 1]}), {"joints": "pose"})


@pytest.mark.parametrize("point", [[-1, -1], [9999, 9999], [10, 30]])
def test_visible_joints_are_in_their_image(folder, point):
    joints = [[3, 3], point, [5, 5], [6, 6]]
    with refuses("own.jsonl:1: pose", f"1 is at {point[0]}, {point[1]}"):
        file(write_cells(folder, poses(), pose=joints), {"pose": "pose"})
    joints[1] = [*point, 0]
    assert len(file(write_cells(folder, poses(), pose=joints), {"pose": "pose"}).train) == 12


def test_null_is_an_unknown_joint(folder):
    joints = [[3, 3], None, [5, 5], [6, 6]]
    for unknown in (None, [None, None], [None, 4], [0, 0, 0]):
        task = file(write_cells(folder, poses(), pose=[joints[0], unknown, *joints[2:]]), {"pose": "pose"})
        assert task.train.labels.visible[0].tolist() == [True, False, True, True]
    with refuses("own.jsonl:1: pose", "joint 1 is visible and not a number"):
        file(write_cells(folder, poses(), pose=[joints[0], [None, None, 1], *joints[2:]]), {"pose": "pose"})


@pytest.mark.parametrize(
    ("cell", "got"),
    [
        ([[3, 3], [4, 4], [5, 5]], "4 joints"),  # the second row has another number
        ([[3, 3], [4, 4, 1, 1], [5, 5], [6, 6]], "joint 1 has 4 numbers"),
        ([["3", "4"], [4, 4], [5, 5], [6, 6]], "'3'"),
        ("left", "'left'"),
        ([], "'[]'"),
    ],
)
def test_cells_that_are_no_poses(folder, cell, got):
    refused(lambda: file(write_cells(folder, poses(), pose=cell), {"pose": "pose"}), "own.jsonl:", got)


@pytest.mark.parametrize(
    ("arrays", "got"),
    [
        ({"joints": np.zeros((COUNT, 4))}, "joints [20, 4]"),
        ({"joints": np.zeros((COUNT - 1, 4, 2))}, "joints [19, 4, 2]"),
        ({"visible": np.ones((COUNT, 3))}, "visible [20, 3]"),
        ({"names": np.arange(COUNT)}, "no column of image paths"),
    ],
)
def test_arrays_of_other_shapes(folder, arrays, got):
    path = write_arrays(folder, **{"joints": poses(), **arrays})
    refused(lambda: file(path, {"joints": "pose"}), "joints.npz", got)


def test_files_that_are_no_files_of_joints(folder):
    np.savez(folder / "own.npz", features=np.zeros((3, 4)))
    refused(lambda: file(str(folder / "own.npz")), "own.npz", "has features", "names and joints")
    (folder / "own.npz").write_bytes(b"PK\3\4")
    refused(lambda: file(str(folder / "own.npz")), "own.npz", "not a readable file of arrays")
    (folder / "own.json").write_text('{"people": [1]}')
    refused(lambda: file(str(folder / "own.json")), "own.json", "no list 'people'")
    path, _ = write_columns(folder, poses())
    refused(lambda: file(path, {"x0,y0,x1": "pose"}), "labels", "3 columns", "must be 2 for each joint")


def test_names_may_be_bytes(folder):
    task = file(write_arrays(folder, poses(), names=np.array(NAMES).astype("S")), {"joints": "pose"})
    assert task.train.name(3) == "images/03.png"


def test_lists_of_points_are_guessed(folder):
    assert guess_cells("pose", ["[[1, 2], [3, 4]]", "[[1, 2, 0], null]"] * 3, False).kind == "pose"
    assert file(write_arrays(folder, poses())).train.labels.title == "joints"
