"""What every reader of a data set on disk keeps to, with a miniature of the files of each."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.recfunctions import drop_fields
from scipy.io import loadmat, savemat
from support.caption_sets import write_csv, write_karpathy
from support.class_layouts import write_cars_new, write_class_table, write_folders
from support.commands import LAYOUTS, use_counts_of_miniatures
from support.layouts import write_records
from support.pose_sets import COCO_NAMES
from support.refusals import refused, refuses

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
WRITERS = LAYOUTS | {"classes/cars, new": write_cars_new, "table/file": write_class_table}
WRITERS |= {"table/folders": write_folders, "table/captions": write_csv}
KARPATHY = {"captions/flickr, karpathy": lambda folder: write_karpathy(folder, coco=False)}
SHORT = ["model.backbone=small_cnn", "model.weights=none", "model.dim=8", "images.resize=36", "images.crop=32"]
SHORT += ["images.workers=0", "sampler.batches=2", "training.epochs=1", "training.select=none"]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A function: the folder of a miniature, written when first needed; no test changes it."""
    folders: dict[str, Path] = {}

    def get(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("written")
            (WRITERS | KARPATHY)[name](folders[name])
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
    refused(reader, "" if of_table else path.name, path.name if of_table else "", hint="drop")
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
    refused(reader, ".jpg", "no such image", hint="missing=drop")
    after = reader(**{reader.option: [reader.first, "rest"]})
    assert {file_of(after.train, row).parent.name for row in range(len(after.train))} == {reader.first, "rest"}
    assert after.train.labels.digests() == before.train.labels.digests()
    refused(lambda: reader(**{reader.option: []}), "images", "[]")


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
    refused(lambda: list(Images(resize=16, crop=16).test_batches(task.train, [0], 1)), path.name, hint="broken=")
    skipping = Images(resize=16, crop=16, broken="skip")
    rows = [row for batch in skipping.test_batches(task.train, None, 8) for row in batch.rows.tolist()]
    assert rows == [row for row in range(len(task.train)) if file_of(task.train, row) != path]


def test_queries_are_drawn_by_a_seed(reader):
    if "queries" not in reader.options and reader.name not in ("captions/flickr", "table/file", "table/folders"):
        pytest.skip("its queries are not drawn")
    drawn = [reader(queries=4, seed=seed).test for seed in (0, 0, 1)] if reader.name != "layout/lsun" else []
    for each in drawn:
        assert sorted([*each.queries.tolist(), *each.gallery.tolist()]) == list(range(len(each)))
    if reader.name.startswith("table/"):
        assert len(drawn[0].queries) == 4
        assert reader().test.queries is None
    assert len({str(each.queries.tolist()) for each in drawn[:2]}) <= 1
    refused(lambda: reader(queries=9999), "queries", "9999")


def test_a_folder_that_is_not_there(reader, tmp_path):
    if reader.name.startswith("table/"):
        refused(lambda: task_table()["table/file"](str(tmp_path / "nowhere")), "", "no such")
        return
    refused(lambda: reader(tmp_path / "nowhere"), "root", "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=str(tmp_path / "empty")):
        reader(tmp_path / "empty")


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


# ---------------------------------------------------------------------------------------------------------------------
# damage that only one layout can have


def in_last(old, new):
    """Write another text in the last line."""
    return lambda lines: [*lines[:-1], lines[-1].replace(old, new, 1)]


def note(number, **values):
    """Change an annotation of COCO."""
    return lambda content: content["annotations"][number].update(values)


def without(key, place=None, of=None):
    """Remove a key of a JSON file, or of one of its entries."""
    return lambda content: (content if of is None else content[of][place]).pop(key)


def ankle(x, y, v):
    """Keypoints of COCO of which only the last one may be marked."""
    return [0] * 48 + [x, y, v]


def joints(edit):
    """Change the matrix of LSP or LSPET."""
    return lambda path: savemat(path, {"joints": edit(loadmat(path)["joints"])})


def put(place, *values):
    """Write numbers into the matrix of LSP or LSPET, after one another."""

    def edit(matrix):
        for at, value in zip(place, values, strict=True):
            matrix[at] = value
        return matrix

    return joints(edit)


def car(**values):
    """Change the third record of Cars-196."""

    def change(path):
        found = loadmat(path)
        for field, value in values.items():
            found["annotations"][0, 2][field] = value
        savemat(path, {name: found[name] for name in ("annotations", "class_names")})

    return change


def cars_without_classes(path):
    found = loadmat(path)
    found["annotations"] = drop_fields(found["annotations"], "class")
    savemat(path, {name: found[name] for name in ("annotations", "class_names")})


def room(kind, points):
    """Replace the records of LSUN's training images by one."""
    return lambda path: write_records(path, [("a", "x", kind, points, (9, 9))])


def layout_map(change):
    """Change the first map of LSUN."""

    def changed(path):
        path = sorted(path.glob("*.mat"))[0]
        savemat(path, {"layout": change(loadmat(path)["layout"])})

    return changed


TRAIN, TEST = "person_keypoints_train2017.json", "person_keypoints_val2017.json"
#: For each file: how it is changed (its lines, its content, or what is at its path), and subject, got, allowed and hint
#: of the refusal. A subject without a file name begins after that of the file.
AWAY = "right_ankle is at 400, 2", "000000000001.jpg of 200 x 90 pixels", "resized"
DAMAGED = {
    ("classes/cub", "CUB_200_2011/images.txt"): [
        (lambda x: x[:-5], "image_class_labels.txt", "image 56; 5 of its images are not in images.txt"),
        (lambda x: ["x y", *x[1:]], ":1: image_id", "'x'", "a whole number, 1 or more"),
    ],
    ("classes/cub", "CUB_200_2011/image_class_labels.txt"): [
        (lambda x: ["1 2", *x[1:]], "images.txt: image 1", "7.jpg, but image_class_labels.txt gives class 2, 002."),
        (lambda x: ["1 1", *x], ":2", "image_id 1 appears twice, first in line 1"),
    ],
    ("classes/cub", "CUB_200_2011/classes.txt"): [(lambda x: x[:100], "", "no class 101, the class of image 41 (101")],
    ("classes/cub", "CUB_200_2011/bounding_boxes.txt"): [
        (lambda x: ["1 2.0 3.0 4.0", *x[1:]], ":1", "'1 2.0 3.0 4.0'", "image_id x y width height"),
    ],
    ("classes/cars", "cars_annos.mat"): [
        (cars_without_classes, "", "no field 'class' (they have relative_im_path, bbox_x1, bbox_y1, bbox_x2, "),
        (car(**{"class": np.array([[197]])}), ": record 3 (car_ims/000003.jpg): class", "197", "1 to 196"),
        (car(relative_im_path=np.zeros((0, 0))), ": record 3: relative_im_path", "[]", "file name"),
        (car(relative_im_path="car_ims/000001.jpg"), ": record 3", "/000001.jpg appears twice, first in record 1"),
    ],
    ("classes/sop", "Stanford_Online_Products/Ebay_train.txt"): [
        (lambda x: x[1:], ":1", "'1 1 2 cabinet_final/111085122872_0.JPG'", "image_id class_id super_class_id path"),
        (lambda x: x[:-20], "", "20 train images of 4 classes (without 5, 6, 7, ...)", "40 of 8", "missing=drop"),
    ],
    ("classes/sop", "Stanford_Online_Products/Ebay_test.txt"): [
        (lambda x: [*x[:-1], x[-1][:9]], ":21", "'60 11322", "image_id"),
        (lambda x: [*x, x[-1]], ":22", "lamp_final/111085134193_4.JPG appears twice, first in line 21"),
        (lambda x: [*x, "61 5 6 kettle_final/x.JPG"], "", "product 5 is in train and in test (1 such products)"),
    ],
    ("classes/inshop", "Eval/list_eval_partition.txt"): [
        (lambda x: x[2:], ":1", "'img/WOMEN/Dresses/id_00000001/01_0_front.jpg id_00000001 train'", "a number"),
        (lambda x: x[:-4], "", "56 images, but 60"),
        (in_last("gallery", "galery"), ":62: evaluation_status", "'galery'", "train, query, gallery"),
        (in_last("img/", ""), ":62: image_name", "'MEN/", "img/"),
        (lambda x: [*x, x[-1]], ":63", "/id_00000012/01_4_front.jpg appears twice, first in line 62"),
        (in_last("gallery", "train"), "", "garment 12 is in train and in test (1 such garments)"),
    ],
    ("captions/flickr", "Flickr_8k.trainImages.txt"): [
        (lambda x: [*x, "", x[3]], ":42", "1000003_0000000003.jpg appears twice, first in line 4"),
        (lambda x: ["", " "], "", "names no images"),
        (lambda x: x[:2], "Flickr8k.token.txt", "2 of 2 training images", "at least 3"),
    ],
    ("captions/flickr", "Flickr_8k.testImages.txt"): [
        (lambda x: [*x, "1000005_0000000005.jpg"], "Flickr8k.token.txt", "5.jpg is in train and in test (1 such"),
    ],
    ("captions/flickr, karpathy", "dataset_flickr8k.json"): [
        (without("images"), "", "no list 'images'"),
        (without("sentences", 4, "images"), ": image 4", "no 'sentences'"),
        (lambda x: x["images"][4].update(sentences=["text"]), ": image 4", "", "sentences"),
        (lambda x: x["images"][4].update(split="dev"), ": image 4", "'dev'", "train, restval, val, test"),
        (lambda x: x["images"].append(x["images"][2]), ": image 60", "02.jpg appears twice, first as image 2"),
    ],
    ("captions/coco", "annotations/captions_train2014.json"): [
        (lambda x: x["images"][3].update(id=100), ": image id 100", "COCO_train2014_000000000100.jpg and"),
        (lambda x: x["images"].pop(2), ": annotation ", "image id 114", "", "missing=drop"),
        (without("caption", 5, "annotations"), "", "no 'caption'", "train must be a captions_*.json"),
        (lambda x: x["annotations"].append(x["annotations"][5]), ": annotation ", "appears twice"),
        (without("image_id", 5, "annotations"), "", "no 'image_id'", "captions_*.json"),
        (without("file_name", 5, "images"), "", "'images' (id 135) has no 'file_name'"),
        (without("annotations"), "", "no list 'annotations'", "captions_*.json"),
        (lambda x: x.update(images="none"), "", "no list 'images'", "captions_*.json"),
    ],
    ("pose/coco", f"annotations/{TRAIN}"): [
        (note(3, id=10), ": annotation 10"),
        (note(3, image_id=99), ": annotation 11", "image id 99, which 'images' lacks (1 such", "", "missing=drop"),
        (lambda x: x["images"].append(x["images"][0] | {"file_name": "b.jpg"}), ": image id 0", "00.jpg and b.jpg"),
        (lambda x: x.update(annotations=[]), "", "'annotations'", "person_keypoints"),
        (note(3, keypoints=[1, 2, 2]), ": annotation 11", "[1, 2, 2]", "17 times numbers x, y, v"),
        (note(3, keypoints=ankle(float("nan"), 2, 2)), ": annotation 11", "[0, 0, ", "numbers x, y, v"),
        (note(3, keypoints=ankle(400, 2, 2)), ": annotation 11", *AWAY),
        (note(3, category_id=9), ": annotation 11", "category_id is 9", "a category of the file"),
        *((note(3, iscrowd=n), ": annotation 11: iscrowd", "", "0 or 1") for n in (float("nan"), 2, "maybe", 0.5)),
        (without("keypoints", 0, "categories"), "", "no category has keypoints", "must be a person_keypoints_*.json"),
        (
            lambda x: x["categories"].append(x["categories"][0] | {"keypoints": ["nose"], "skeleton": []}),
            "",
            "2 different lists",
            "same joints",
        ),
        (lambda x: x["categories"][0].update(skeleton=[[1, 18]]), ": skeleton", "joint 18 of 17", "1 to 17"),
        (lambda x: x["categories"][0].update(keypoints=COCO_NAMES[::-1]), TEST, "other keypoints", TRAIN),
    ],
    ("pose/lsp", "lsp_dataset/joints.mat"): [
        (joints(lambda x: x.transpose(1, 0, 2)), "", "[14, 3, 20], a file of LSPET, not of LSP", "", "lspet"),
        (joints(lambda x: x[:, :13]), "", "float64 [3, 13, 20]", "[3, 14, n] (LSP) or [14, 3, n] (LSPET)"),
        (joints(lambda x: x + 1), "", "a flag of 2", "0 or 1"),
        (put([np.s_[2, :, 5]], np.nan), "", "flag", "0 or 1"),
        (joints(lambda x: x * [[[2.5]], [[2.5]], [[1]]]), "", "", "pixels of the images", "lsp_dataset_original"),
        (put([np.s_[0, 9, 4]], np.nan), "", "left_shoulder of image 5"),  # MATLAB counts from 1
        (put([np.s_[:2, 9, 4]], 0), "im0005.jpg", "left_shoulder is at -1, -1", "must be a place in the image"),
    ],
    ("pose/lsp", "lspet_dataset/joints.mat"): [
        # marked as inside the image
        (put([np.s_[9, 2, 4], np.s_[9, :2, 4]], 1, 0), "im00005.jpg", "left_shoulder is at -1, -1", "in the image"),
    ],
    ("layout/lsun", "training.mat"): [
        (room(3, np.ones((3, 2))), ": record 1 (a)", " [3, 2]", "4 points x, y for type 3"),
        (room("nine", np.ones((2, 2))), ": record 1 (a)", "'type' is 'nine'", "whole number"),
    ],
    ("layout/lsun", "layout_seg"): [
        (layout_map(lambda x: np.ones((4, 400))), ".mat", "400 x 4 pixels", "its image sun_0"),
        (layout_map(lambda x: x + 0.5), ".mat", "numbers that are not whole", "one class number per pixel"),
        (lambda x: [*map(Path.unlink, x.iterdir())], "training.mat", "0 images with a layout, of 40", "at least 3"),
    ],
}
#: Further options of the readers of these files.
FURTHER = {"classes/cub": {"crop_boxes": True}, "layout/lsun": {"missing": "drop"}}
FURTHER["captions/flickr, karpathy"] = {"karpathy": "dataset_flickr8k.json"}


CASES = [(*place, change, fields) for place, rows in DAMAGED.items() for change, *fields in rows]


@pytest.mark.parametrize(("name", "file", "change", "fields"), CASES)
def test_damage_of_a_layout_is_named(written, tmp_path, monkeypatch, name, file, change, fields):
    use_counts_of_miniatures(monkeypatch)
    path = Path(shutil.copytree(written(name), tmp_path / "data"), file)
    if path.suffix == ".txt":
        path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))
    elif path.suffix == ".json":
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
    else:
        change(path)
    subject, *others = fields
    with refuses(path.name + subject if subject[:1] in ("", ":") else subject, *others):
        Reader(name, tmp_path / "data")(**FURTHER.get(name, {}))
