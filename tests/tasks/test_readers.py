"""What every reader of a data set on disk keeps to, with a miniature of the files of each."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from support.caption_sets import write_csv
from support.class_layouts import write_cars_new, write_class_table, write_folders
from support.commands import LAYOUTS, use_counts_of_miniatures
from support.refusals import refuses

from contml import InputError
from contml.app.experiment import load, task_table, train
from contml.data import Images

#: The options with which a reader takes its miniature, and the option of its folders of images with its value.
OPTIONS = {
    "pose/mpii": ({"queries": 4, "side": 36}, "images", "images"),
    "pose/coco": ({"min_size": 20, "side": 36}, "train_images", "train2017"),
    "pose/lsp": ({"min_joints": 9, "side": 36}, "", ""),
    "layout/lsun": ({"queries": 4}, "", ""),
    "captions/coco": ({"queries": 4, "dim": 8}, "train_images", "train2014"),
    "captions/flickr": ({"dim": 8}, "images", "Flicker8k_Dataset"),
    "table/file": ({"labels": {"class_name": "class"}, "split": "split"}, "", ""),
    "table/folders": ({}, "", ""),
    "table/captions": ({"labels": {"caption": {"kind": "captions", "dim": 8}}, "root": "images"}, "", ""),
}
WRITERS = LAYOUTS | {
    "classes/cars, new": write_cars_new,
    "table/file": write_class_table,
    "table/folders": write_folders,
    "table/captions": write_csv,
}
SHORT = [
    *("model.backbone=small_cnn", "model.weights=none", "model.dim=8", "images.resize=36", "images.crop=32"),
    *("images.workers=0", "sampler.batches=2", "training.epochs=1", "training.select=none"),
]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A function: the folder of a miniature, written when first needed; no test changes it."""
    folders: dict[str, Path] = {}

    def get(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("written")
            WRITERS[name](folders[name])
        return folders[name]

    return get


class Reader:
    """A reader and a copy of its miniature."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.options, self.option, self.first = OPTIONS.get(name, ({}, "", ""))

    def __call__(self, folder=None, **options):
        folder = Path(folder or self.folder)
        options = self.options | options
        if not self.name.startswith("table/"):
            return task_table()[self.name.partition(",")[0]](str(folder), **options)
        if "root" in options:
            options["root"] = str(folder / options["root"])
        data = folder if self.name == "table/folders" else next(folder.glob("[!.]*.csv"))
        return task_table()["table/file"](str(data), **options)


def file_of(split, row):
    return Path(split.stamp(row).file)


def facts(task, folder):
    """What a task says of its items, without the folder."""
    return {
        name: (
            [each.replace(str(folder), "") for each in split.names],
            split.labels.digests(),
            *(None if rows is None else rows.tolist() for rows in (split.queries, split.gallery, split.groups)),
        )
        for name, split in task.splits.items()
    } | {"groups": [str(each).replace(str(folder), "") for each in task.val_groups or ()]}


@pytest.fixture(params=WRITERS)
def reader(request, written, tmp_path, monkeypatch):
    use_counts_of_miniatures(monkeypatch)
    return Reader(request.param, Path(shutil.copytree(written(request.param), tmp_path / "data")))


def test_a_second_reading_and_a_moved_folder_give_the_same(reader, tmp_path):
    first = reader()
    before = facts(first, reader.folder)
    assert facts(reader(), reader.folder) == before
    received = pickle.loads(pickle.dumps(first.train))  # as a worker process gets it
    assert list(received.names) == list(first.train.names)
    reader.folder.rename(tmp_path / "moved")
    assert facts(reader(tmp_path / "moved"), tmp_path / "moved") == before


def test_each_item_has_an_image_a_label_and_a_picture(reader):
    task = reader()
    assert not {*task.train.names} & {*task.evaluated.names}
    for split in task.splits.values():
        assert len(split) == len(split.labels) == len({*split.names})
        assert split.labels.pairwise([0], [0]).item() == 0
        assert all(file_of(split, row).is_file() for row in range(len(split)))
        assert split.draw(len(split) - 1, 40).size == (40, 40)


def test_hidden_files_are_no_items(reader):
    before = facts(reader(), reader.folder)
    for path in [path for path in reader.folder.rglob("*") if path.is_file()]:
        (path.parent / f"._{path.name}").write_bytes(b"\0\5\26\7 Mac OS X")
        (path.parent / ".DS_Store").write_bytes(b"\0")
    assert facts(reader(), reader.folder) == before


def test_a_missing_image_is_named_or_dropped_and_counted(reader):
    before = reader()
    path = file_of(before.train, 1)
    with_image = [row for row in range(len(before.train)) if file_of(before.train, row) == path]
    path.unlink()
    kept = [name for row, name in enumerate(before.train.names) if row not in with_image]
    if reader.name == "table/folders":  # a folder lists what it has
        assert list(reader().train.names) == kept
        return
    of_table = reader.name.startswith("table/")
    with refuses("" if of_table else path.name, path.name if of_table else "", hint="drop"):
        reader()
    after = reader(missing="drop").train
    assert list(after.names) == kept
    assert after.excluded["without an image file"] >= len(with_image)


def test_images_in_several_folders(reader):
    if not reader.option:
        pytest.skip("it has one folder of images")
    before = reader()
    (reader.folder / "rest").mkdir()
    moved = sorted({file_of(before.train, row) for row in range(len(before.train))})[::2]
    for path in moved:
        path.rename(reader.folder / "rest" / path.name)
    kept = next(path for path in (reader.folder / reader.first).iterdir() if path.suffix == ".jpg")
    (reader.folder / "rest" / kept.name).write_bytes(b"of two folders that have a file, the first is used")
    with refuses(".jpg", "no such image", hint="missing=drop"):
        reader()
    after = reader(**{reader.option: [reader.first, "rest"]})
    assert {file_of(after.train, row).parent.name for row in range(len(after.train))} == {reader.first, "rest"}
    assert after.train.labels.digests() == before.train.labels.digests()
    with refuses("images", "[]"):
        reader(**{reader.option: []})


def test_a_name_in_another_case_is_named(reader):
    path = file_of(reader().train, 0)
    path.rename(path.with_name(path.name.swapcase()))
    if reader.name == "table/folders":
        assert reader().train.names
        return
    with pytest.raises(InputError, match=f"{path.name}.*upper and lower case differ"):
        reader()


def test_a_broken_image_is_found_when_it_is_read(reader):
    path = file_of(reader().train, 0)
    path.write_bytes(path.read_bytes()[:100])
    task = reader()
    with refuses(path.name, hint="broken="):
        list(Images(resize=16, crop=16).test_batches(task.train, [0], 1))
    skipping = Images(resize=16, crop=16, broken="skip")
    rows = [row for batch in skipping.test_batches(task.train, None, 8) for row in batch.rows.tolist()]
    assert rows == [row for row in range(len(task.train)) if file_of(task.train, row) != path]


def test_queries_are_drawn_by_a_seed(reader):
    if "queries" not in reader.options and reader.name != "captions/flickr":
        pytest.skip("its queries are not drawn")
    drawn = [reader(queries=4, seed=seed).test for seed in (0, 0, 1)] if reader.name != "layout/lsun" else []
    for each in drawn:
        assert len(each.queries) + len(each.gallery) == len(each)
    assert len({str(each.queries.tolist()) for each in drawn[:2]}) <= 1
    with refuses("queries", "9999"):
        reader(queries=9999)


@pytest.mark.parametrize("value", ["keep", None])
def test_what_is_done_with_missing_images_is_one_of_two_words(reader, value):
    with pytest.raises(InputError, match="missing"):
        reader(missing=value)


def test_a_folder_that_is_not_there(reader, tmp_path):
    if reader.name.startswith("table/"):
        with refuses("", "no such"):
            task_table()["table/file"](str(tmp_path / "nowhere"))
        return
    with refuses("root", "nowhere"):
        reader(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as error:
        reader(tmp_path / "empty")
    assert str(tmp_path / "empty") in str(error.value)


@pytest.mark.slow
def test_it_trains_and_is_reported(reader, tmp_path):
    if reader.name.startswith("table/"):
        pytest.skip("tests/tasks/table/test_table_command.py trains tables")
    name = reader.name.partition(",")[0]
    base = "classes/synthetic" if name.startswith("classes/") else "pose/synthetic"
    small = (
        "sampler={name: classes, classes: 4, instances: 3}" if base.startswith("classes") else "sampler.batch_size=10"
    )
    options = [f"task.{key}={value}" for key, value in {"root": reader.folder, **reader.options}.items()]
    changes = [f"task={name}", *options, *SHORT, small]
    if small.startswith("sampler.b"):
        changes += [
            "sampler.anchors_per_batch=2",
            "sampler.neighbours=2",
            "transform.scale_jitter=2",
            "transform.shift=1",
        ]
    run = train(load(base, changes), tmp_path / "runs")
    assert [row["event"] for row in run.rows()].count("evaluation") == 2
    assert (run.folder / "report.html").stat().st_size > 10_000
