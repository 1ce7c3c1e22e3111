"""People of COCO with keypoints, or of another data set in the same format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.data.values import flag, points, refuse_outside

from .._readers.coco_files import Field, listed_images, names_and_limbs, read_coco, refuse_unlisted
from .._readers.folders import DiskFiles, Missing, data_folder, image_folders
from .._readers.splits import refuse_shared
from .bodies import Body
from .people import Array, Margin, Person, PoseOptions, Side, exclude_unusable, kept, make_crop_split

_FIELDS: dict[str, dict[str, Field]] = {
    "images": {"id": "id", "file_name": "text", "width": "size", "height": "size"},
    "annotations": {"id": "id", "image_id": "id"},
    "categories": {},
}


@check_ranges
def coco(
    root: str,
    train: str = "annotations/person_keypoints_train2017.json",
    test: str = "annotations/person_keypoints_val2017.json",
    train_images: str | list[str] = "train2017",
    test_images: str | list[str] = "val2017",
    min_joints: PositiveInt = 12,
    min_size: PositiveInt = 64,
    occluded: bool = True,
    margin: Margin = 1.3,
    side: Side = 288,
    queries: NonNegativeInt | None = None,
    seed: NonNegativeInt = 0,
    missing: Literal["refuse", "drop"] = "refuse",
    normalize: bool = False,
) -> Task:
    """Read COCO keypoints: people cropped from their images. train2017 is for training, val2017 for testing.

    The folder holds annotations/person_keypoints_train2017.json, annotations/person_keypoints_val2017.json, and the
    images in train2017/ and val2017/. For 2014, or another data set in this format, name the files and the folders.
    Names and limbs of the joints come from the category in the file. COCO has 17 joints, five of them in the face.
    Crowds, people with few labelled keypoints, and small people are excluded; 'contml check' counts them. The query
    images are drawn from the test images by a seed, the same on every machine. Their people are the queries.

    Args:
        root: the folder of the data set.
        train: the file of keypoints of the training images, in the folder.
        test: the file of keypoints of the test images, in the folder.
        train_images: the folder of the training images in `root`, or a list of folders, which are searched in
            order.
        test_images: the folder of the test images in `root`, or a list of folders.
        min_joints: people with fewer labelled keypoints are excluded; keypoints of the others that are not labelled do
            not count in a label distance.
        min_size: people whose labelled keypoints span fewer pixels are excluded.
        occluded: use keypoints that are labelled but hidden (v = 1); false: only visible ones (v = 2).
        margin: side of the crop, relative to the extent of the keypoints.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        queries: number of test people that are queries for the others. Default: a fifth. 0: each is a query for all.
        seed: seed of the draw of queries.
        missing: what to do with people whose image does not exist or is not listed: "refuse", or "drop" them.
        normalize: compare poses in the frame of the person, so that neither position nor size counts.
    """
    options = PoseOptions(min_joints, occluded, margin, side, normalize, missing, min_size)
    folder = data_folder(root)
    train_file, test_file = folder / train, folder / test
    train_set = read_keypoints(train_file, "train", image_folders(folder, train_images), missing)
    test_set = read_keypoints(test_file, "test", image_folders(folder, test_images), missing)
    body = train_set.body
    if body.names != test_set.body.names:
        raise InputError(str(test_file), "other keypoints", f"must have the keypoints of {train_file}")
    options.check(len(body.names))
    files = {part: (p.file for p in data.people) for part, data in (("train", train_set), ("test", test_set))}
    refuse_shared(test_file, files)
    train_people = exclude_unusable(train_file, train_set.people, options)
    test_people = exclude_unusable(test_file, test_set.people, options)
    train_split = make_crop_split(train_file, train_people, body, options, 0, train_set.excluded)
    test_split = make_crop_split(test_file, test_people, body, options, queries, test_set.excluded, seed)
    summary = [
        (f"people to {use} on", f"{len(kept(people)):,} kept of {data.annotations:,} in {data.images:,} images")
        for use, people, data in (("train", train_people, train_set), ("test", test_people, test_set))
    ]
    return Task(train_split, test_split, val_groups=[person.group for person in kept(train_people)], summary=summary)


# The annotation file


class Keypoints(NamedTuple):
    """The content of an annotation file."""

    body: Body
    people: list[Person]
    images: int  # images with people that have a keypoint
    annotations: int  # all annotations in the file
    excluded: Counter[str]  # annotations without a person or without keypoints, by reason


def read_keypoints(path: Path, option: str, images: Sequence[Path], missing: Missing) -> Keypoints:
    """Read the people of a person_keypoints_*.json, and the names and limbs of their joints.

    Args:
        path: the file.
        option: the task option that names the file, for errors.
        images: the folders of the images.
        missing: what to do with people whose image the file does not list: "refuse" or "drop".

    Raises:
        InputError: the file is missing or of another kind, an id is repeated or unknown, or a joint lies far outside
            its image.
    """
    content = read_coco(path, option, "person_keypoints", _FIELDS)
    body = _body(path, option, content["categories"])
    categories = [category.get("id") for category in content["categories"]]
    images_by_id, on_disk = listed_images(path, content), DiskFiles()
    annotations = []
    for note in content["annotations"]:
        crowd = note.get("iscrowd")
        if crowd is None or not flag(crowd, f"{path}: annotation {note['id']}: iscrowd"):
            annotations.append(note)
    if missing == "refuse":
        refuse_unlisted(path, annotations, images_by_id)
    people: list[Person] = []
    excluded = Counter({"crowds": len(content["annotations"]) - len(annotations)})
    for note in annotations:
        where = f"{path}: annotation {note['id']}"
        if "category_id" in note and note["category_id"] not in categories:
            raise InputError(where, f"category_id is {note['category_id']!r:.40}", "must be a category of the file")
        image = images_by_id.get(note["image_id"])
        if image is None:
            excluded["of images that are not listed"] += 1
        elif joints := _joints(where, note.get("keypoints"), body, image):
            file = on_disk.locate(images, image["file_name"])
            size = int(image["width"]), int(image["height"])
            people.append(Person(f"{file}, annotation {note['id']}", file, *joints, image["file_name"], size))
        else:
            excluded["without keypoints"] += 1
    return Keypoints(body, people, len({person.group for person in people}), len(content["annotations"]), +excluded)


def _body(path: Path, option: str, categories: list[dict[str, Any]]) -> Body:
    bodies = {names_and_limbs(path, category) for category in categories if category.get("keypoints")}
    if not bodies:
        raise InputError(str(path), "no category has keypoints", f"{option} must be a person_keypoints_*.json")
    if len(bodies) > 1:
        problem = f"its categories have {len(bodies)} different lists of keypoints"
        raise InputError(str(path), problem, "all people must have the same joints")
    return Body(*bodies.pop())


def _joints(where: str, keypoints: Any, body: Body, image: dict[str, Any]) -> tuple[Array, Array, Array] | None:
    """Return the joints of a person `[J, 2]`, and masks of those that are marked and visible. None: no joint."""
    if not keypoints:  # CVAT writes an empty list for an object that is not labelled
        return None
    try:
        values = points(keypoints, where).reshape(len(body.names), 3)
    except ValueError:  # also an InputError
        values = np.full((1, 3), np.nan)
    # v is 0 for not labelled, 1 for labelled but hidden, 2 for labelled and visible.
    marked = values[:, 2] > 0
    if not np.isin(values[:, 2], (0, 1, 2)).all() or not np.isfinite(values[marked]).all():
        allowed = f"must be {len(body.names)} times numbers x, y, v, with v 0, 1 or 2"
        raise InputError(where, f"keypoints are {keypoints!s:.60}", allowed)
    if not marked.any():
        return None
    refuse_outside(values[:, :2], marked, (image["width"], image["height"]), body.names, where, image["file_name"])
    return values[:, :2], marked, values[:, 2] > 1
