"""COCO annotation files, read as pycocotools reads them."""

from __future__ import annotations

import contextlib
import io

from pycocotools.coco import COCO
from support.caption_sets import write_coco

from contml.tasks._readers.coco import listed_images, read_coco
from contml.tasks.captions.coco import _FIELDS


def test_images_and_annotations_equal_those_of_pycocotools(tmp_path):
    write_coco(tmp_path)
    path = tmp_path / "annotations" / "captions_train2014.json"
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = COCO(str(path))
    ours = read_coco(path, "train", "captions", _FIELDS)
    assert listed_images(path, ours) == theirs.imgs
    assert {note["id"]: note for note in ours["annotations"]} == theirs.anns
    captions = {}
    for note in ours["annotations"]:
        captions.setdefault(note["image_id"], []).append(note)
    assert captions == dict(theirs.imgToAnns)
