from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from support.paths import DATA_ROOT, needs
from support.pose_sets import write_lsp
from support.refusals import refused, refuses

from contml.tasks.pose.lsp import _people, lsp

LAYOUT = DATA_ROOT / "pose_lspet" / "official_layout"
SMALL = {"side": 64, "min_joints": 9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A miniature that no test changes, and its annotations."""
    folder = tmp_path_factory.mktemp("lsp")
    return folder, write_lsp(folder)


@pytest.fixture
def own(tmp_path):
    """Writes a miniature and edits one of its matrices; returns the folder."""
    write_lsp(tmp_path, lsp=8, lspet=8)

    def change(name, edit):
        path = tmp_path / name / "joints.mat"
        savemat(path, {"joints": edit(loadmat(path)["joints"])})
        return str(tmp_path)

    return change


def numbers(split):
    """(data set, image from 1) of each row."""
    return [(Path(name).parts[-3], int(Path(name).stem[2:])) for name in split.names]


def test_lspet_and_the_first_half_of_lsp_train_the_last_half_tests(folder):
    task = lsp(str(folder[0]), **SMALL)
    assert numbers(task.train) == [("lspet_dataset", k + 1) for k in range(30)] + [
        ("lsp_dataset", k + 1) for k in range(10)
    ]
    assert (numbers(task.test), task.test.queries.tolist()) == ([("lsp_dataset", k + 1) for k in range(10, 20)], [0, 1])
    assert task.summary == [("images of LSPET", "30 kept of 30"), ("images of LSP", "20 kept of 20")]
    assert task.train.excluded == task.test.excluded == {}
    assert (Path(task.train.names[0]).name, Path(task.test.names[0]).name) == ("im00001.jpg", "im0011.jpg")


def test_one_of_them_alone(folder):
    task = lsp(str(folder[0]), lspet=None, **SMALL)
    assert {name for name, _ in numbers(task.train) + numbers(task.test)} == {"lsp_dataset"}
    assert (len(task.train), len(task.test)) == (10, 10)
    task = lsp(str(folder[0]), lsp=None, queries=3, **SMALL)
    assert numbers(task.test) == [("lspet_dataset", k + 1) for k in range(24, 30)]
    assert (len(task.train), len(task.test.queries)) == (24, 3)
    refused(lambda: lsp(str(folder[0]), None, None), "lsp and lspet", "null")


def test_flags_mean_hidden_in_lsp_and_inside_in_lspet(folder):
    joints, hidden = folder[1]["LSP"]
    inside = folder[1]["LSPET"][1]
    task = lsp(str(folder[0]), **SMALL)
    assert task.test.view.renderer.visible.all(), "hidden joints have places"
    np.testing.assert_array_equal(task.train.view.renderer.visible[:30], inside)
    assert not inside.all()
    seen = lsp(str(folder[0]), occluded=False, **SMALL)
    assert hidden[10:].any()
    rows = [number - 1 for _, number in numbers(seen.test)]
    np.testing.assert_array_equal(seen.test.view.renderer.visible, ~hidden[rows])
    np.testing.assert_array_equal(seen.train.view.renderer.visible[:30], inside)
    low, high = joints[10].min(0), joints[10].max(0)
    expected = ((joints[10] - (low + high) / 2) / (1.3 * (high - low).max()) + 0.5) * 64 - 0.5
    np.testing.assert_allclose(task.test.view.renderer.joints[0], expected, atol=1e-9)


def test_an_axis_of_one_image_is_put_back(own, tmp_path):
    own("lspet_dataset", lambda joints: joints[:, :, 0])
    own("lsp_dataset", lambda joints: joints[:, :, :1])
    for name, kind in (("lspet_dataset", "LSPET"), ("lsp_dataset", "LSP")):
        people = _people(tmp_path / name / "joints.mat", kind)
        assert (len(people), people[0].joints.shape) == (1, (14, 2))
    savemat(tmp_path / "lspet_dataset" / "joints.mat", {"joints": np.ones((14, 3))})
    assert _people(tmp_path / "lspet_dataset" / "joints.mat", "LSPET")[0].marked.all()


# What is refused


def test_missing_files(own, tmp_path):
    root = own("lsp_dataset", lambda joints: joints)
    (tmp_path / "lsp_dataset" / "images" / "im0003.jpg").unlink()
    refused(lambda: lsp(root, **SMALL), "images/im0003.jpg", got="1 of 8 images of joints.mat", hint="missing=drop")
    task = lsp(root, missing="drop", **SMALL)
    assert ("lsp_dataset", 3) not in numbers(task.train)
    assert (len(task.train), len(task.test)) == (11, 4), "halves are those of the whole file"
    assert task.summary[1] == ("images of LSP", "7 kept of 8")
    assert (task.train.excluded, task.test.excluded) == ({"without an image file": 1}, {})
    refused(lambda: lsp(root, lsp="away", **SMALL), "away/joints.mat")
    refused(lambda: lsp(root, min_joints=7), "min_joints", "7", "8 to 14")
    with refuses("queries", got="3", allowed="0 to 2, so that two of 4"):
        lsp(root, missing="drop", queries=3, **SMALL)


# Real annotations


@pytest.mark.slow
@needs("pose_lspet")
def test_real_lspet():
    task = lsp(str(LAYOUT), lsp=None)
    joints = loadmat(LAYOUT / "lspet_dataset" / "joints.mat")["joints"]
    enough = (joints[:, 2] == 1).sum(0) >= 10
    assert len(task.train) + len(task.test) == enough.sum() == 181
    assert task.summary == [("images of LSPET", "181 kept of 200")]
    reason = "with fewer than 10 of 14 joints"
    assert task.train.excluded[reason] + task.test.excluded.get(reason, 0) == 19
    assert task.train.excluded[reason] == (~enough[: (int(Path(task.test.names[0]).stem[2:]) - 1)]).sum()
    first = int(np.flatnonzero(enough)[0])
    np.testing.assert_array_equal(task.train.view.renderer.visible[0], joints[:, 2, first] == 1)
    assert task.train.image(0).shape == (144, 144, 3)
    assert (task.train.view.renderer.joints[task.train.view.renderer.visible] > -0.5).all()
    assert (task.train.view.renderer.joints[task.train.view.renderer.visible] < 143.5).all()
    assert task.train.labels.pairwise().isfinite().all()


@pytest.mark.slow
@needs("pose_lspet")
def test_real_lsp_and_all_of_lspet_by_their_joints():
    people = _people(LAYOUT / "lsp_dataset_original" / "joints.mat", "LSP")
    assert len(people) == 2000
    hidden = 1 - np.mean([person.seen for person in people], axis=0)
    assert hidden[9] == pytest.approx(0.16, abs=0.01), "left shoulder"
    assert hidden[13] < 0.01, "head top"
    assert sum(person.seen.all() for person in people) == 1056
    people = _people((LAYOUT / "lspet_dataset") / "joints_full_10000.mat", "LSPET")
    assert np.bincount([person.marked.sum() for person in people])[[14, 13, 12, 11, 10]].tolist() == [
        *(3945, 1652, 1494, 1114, 849)
    ]
