"""COCO annotation files, read as pycocotools reads them."""

import contextlib
import io
import json

import pytest
from pycocotools.coco import COCO
from support.caption_sets import write_coco
from support.pose_sets import write_keypoints
from support.refusals import refuses

from contml.tasks._readers.coco_files import listed_images, read_coco
from contml.tasks.captions.caption_files import _FIELDS, coco as captions
from contml.tasks.pose.coco import coco as poses
from contml.tasks.table.file import file


def test_images_and_annotations_equal_those_of_pycocotools(tmp_path):
    write_coco(tmp_path)
    path = tmp_path / "annotations" / "captions_train2014.json"
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = COCO(str(path))
    ours = read_coco(path, "train", "captions", _FIELDS)
    assert (listed_images(path, ours), {note["id"]: note for note in ours["annotations"]}) == (theirs.imgs, theirs.anns)
    captions = {}
    for note in ours["annotations"]:
        captions.setdefault(note["image_id"], []).append(note)
    assert captions == dict(theirs.imgToAnns)


@pytest.mark.parametrize("key", ["images", "annotations"])
@pytest.mark.parametrize("task", ["table", "captions", "poses"])
def test_ids_of_images_that_are_numbers_here_and_texts_there_are_refused(tmp_path, task, key):
    (write_coco if task != "poses" else lambda folder: write_keypoints(folder, 6, 5))(tmp_path)
    path = next((tmp_path / "annotations").glob("*train*.json"))
    content = json.loads(path.read_text())
    for entry in content[key]:
        field = "id" if key == "images" else "image_id"
        entry[field] = str(entry[field])
    path.write_text(json.dumps(content))
    with refuses(f"{path}: annotation", "'images' has", "both numbers, or both texts"):
        if task == "table":
            file(str(path))
        else:
            {"captions": captions, "poses": poses}[task](str(tmp_path), missing="drop")
