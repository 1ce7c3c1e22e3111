"""People of COCO with keypoints, or of another data set in the same format."""

from __future__ import annotations

from typing import Literal

from contml import InputError
from contml.data import Task

from .._readers.folders import data_folder, image_folders
from .._readers.splits import refuse_shared
from .coco_json import read_keypoints
from .people import Options, exclude_unusable, kept, make_crop_split, shuffled


def coco(
    root: str,
    train: str = "annotations/person_keypoints_train2017.json",
    test: str = "annotations/person_keypoints_val2017.json",
    train_images: str | list[str] = "train2017",
    test_images: str | list[str] = "val2017",
    min_joints: int = 12,
    min_size: int = 64,
    occluded: bool = True,
    box: Literal["joints", "bbox"] = "joints",
    margin: float = 1.3,
    side: int = 288,
    queries: int | None = None,
    seed: int = 0,
    missing: Literal["refuse", "drop"] = "refuse",
    squared: bool = True,
    normalize: bool = False,
) -> Task:
    """COCO keypoints: people cropped from their images; train2017 for training, val2017 for testing.

    The folder holds annotations/person_keypoints_train2017.json, annotations/person_keypoints_val2017.json, and the
    images in train2017/ and val2017/. For 2014, or another data set in this format, name the files and the folders.
    Names and limbs of the joints come from the category in the file: COCO has 17 joints, five of them in the face.
    Crowds, people with few labelled keypoints, and small people are excluded; 'contml check' counts them. The order of
    the test images is drawn from a seed, the same on every machine; the first people are queries for the others.

    Args:
        root: the folder of the data set.
        train: the file of keypoints of the training images, in the folder.
        test: the file of keypoints of the test images, in the folder.
        train_images: the folder of the training images in it, or a list of folders: a file is looked for in each in
            turn.
        test_images: the folder of the test images in it, or a list of folders.
        min_joints: people with fewer labelled keypoints are excluded; keypoints of the others that are not labelled do
            not count in a label distance.
        min_size: people whose labelled keypoints span fewer pixels are excluded.
        occluded: keypoints that are labelled but hidden (v = 1) count too; false: only visible ones (v = 2).
        box: what the crop is centred on: "joints", the extent of the keypoints; "bbox", the bounding box.
        margin: side of the crop, relative to the longer side of that box.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        queries: how many test people are queries for the others; default a fifth; 0: each is a query for all others.
        seed: seed of the order of the test images.
        missing: what to do with people whose image does not exist or is not listed: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
    """
    options = Options(min_joints, occluded, margin, side, squared, normalize, missing, box == "bbox", min_size)
    folder = data_folder(root)
    train_file, test_file = folder / train, folder / test
    train_set = read_keypoints(train_file, "train", image_folders(folder, train_images), missing)
    test_set = read_keypoints(test_file, "test", image_folders(folder, test_images), missing)
    body = train_set.body
    if body.names != test_set.body.names:
        raise InputError(str(test_file), "other keypoints", f"must have the keypoints of {train_file}")
    options.check(len(body.names))
    refuse_shared(test_file, (person.file for person in train_set.people), (person.file for person in test_set.people))
    train_people = exclude_unusable(train_file, train_set.people, options)
    test_people = exclude_unusable(test_file, test_set.people, options)
    return Task(
        train=make_crop_split(train_file, train_people, body, options, 0, train_set.excluded),
        test=make_crop_split(test_file, shuffled(test_people, seed), body, options, queries, test_set.excluded),
        summary=[
            (f"people to {use} on", f"{len(kept(people)):,} kept of {read.annotations:,} in {read.images:,} images")
            for use, people, read in (("train", train_people, train_set), ("test", test_people, test_set))
        ],
    )
