"""The kind `teacher` of a table: embeddings from a file or from a model, matched to images by their names."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.refusals import refused, refuses

from contml import InputError
from contml.app.experiment import load
from contml.data.features import write_features
from contml.labels import TeacherLabels
from contml.tasks.table.file import file

NAMES = [f"{row:02d}.png" for row in range(20)]


@pytest.fixture
def photos(tmp_path):
    """A folder of pictures without labels."""
    random, folder = np.random.default_rng(0), tmp_path / "photos"
    folder.mkdir()
    for name in NAMES:
        Image.fromarray(random.integers(0, 255, (12, 12, 3)).astype(np.uint8)).save(folder / name)
    return folder


def teacher(folder, names=NAMES, suffix="npz", seed=1):
    vectors = np.random.default_rng(seed).standard_normal((len(names), 6)).astype(np.float32)
    path = folder / f"teacher.{suffix}"
    write_features(path, names, None, vectors)
    return path, dict(zip(names, vectors, strict=True))


def task_of(photos, path, **options):
    return file(str(photos), {"name": f"teacher:{path}"}, pattern="{name}.png", **options)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_the_embeddings_of_a_file_by_name(photos, tmp_path, suffix):
    path, vectors = teacher(tmp_path, NAMES[::-1], suffix)
    task = task_of(photos, path)
    for split in (task.train, task.test):
        rows = [vectors[name.rpartition("/")[2]] for name in split.names]
        expected = TeacherLabels(torch.from_numpy(np.stack(rows)))
        torch.testing.assert_close(split.labels.pairwise(), expected.pairwise())
    assert any("embeddings of 6 numbers" in cell for row in task.columns for cell in row)


def test_in_a_config(photos, tmp_path, monkeypatch):
    """A relative path, which the run keeps as an absolute one."""
    monkeypatch.chdir(tmp_path)
    teacher(tmp_path)
    changes = ["task.data=photos", "task.pattern='{name}.png'", "task.labels={name: teacher:teacher.npz}"]
    experiment = load("table/default", changes)
    assert isinstance(experiment.build_task().train.labels, TeacherLabels)
    assert experiment.values["task"]["labels"]["name"]["model"] == str(tmp_path / "teacher.npz")


def test_images_that_the_teacher_lacks(photos, tmp_path):
    path, _ = teacher(tmp_path, NAMES[:18])
    with pytest.raises(InputError, match=r"has no embedding of .*18\.png"):
        task_of(photos, path)
    task = task_of(photos, path, missing="drop")
    assert sum(len(split) for split in task.splits.values()) == 18
    assert {reason for split in task.splits.values() for reason in split.excluded} == {
        "without an embedding of the teacher in 'name'"
    }


def test_one_name_for_two_images(tmp_path):
    path, _ = teacher(tmp_path)
    for name in ("a", "b"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for n in NAMES[:5]:
            Image.fromarray(np.full((8, 8, 3), 9, np.uint8)).save(tmp_path / "all" / name / n)
    with refuses(str(path), "the name 00.png may be", hint="embed the folder that holds both"):
        file(str(tmp_path / "all"), {"class": f"teacher:{path}"})


def test_what_is_no_teacher(photos, tmp_path):
    with refuses("", "no teacher", "must name a run or a file"):
        file(str(photos), {"name": "teacher"}, pattern="{name}.png")
    refused(lambda: task_of(photos, tmp_path / "no.npz"), str(tmp_path / "no.npz"), "no such file")
    refused(lambda: task_of(photos, photos), str(photos), "neither a run folder nor a bundle")
    np.save(tmp_path / "t.npy", np.ones((20, 3), np.float32))
    refused(lambda: task_of(photos, tmp_path / "t.npy"), str(tmp_path / "t.npy"), "vectors without names")
    path, _ = teacher(tmp_path, [f"other {name}" for name in NAMES])
    refused(lambda: task_of(photos, path), "", "has no embedding of any image")


def test_a_run_is_a_teacher(photos, tiny_run):
    import contml

    task = task_of(photos, tiny_run)
    model = contml.load(tiny_run)
    for split in (task.train, task.test):
        expected = TeacherLabels(torch.from_numpy(model.embed([photos / n.rpartition("/")[2] for n in split.names])))
        torch.testing.assert_close(split.labels.pairwise(), expected.pairwise(), atol=1e-4, rtol=1e-4)
