"""MPII Human Pose: annotation file and images, for the pose retrieval of the log-ratio paper."""

from __future__ import annotations

import sys
from typing import Literal

from contml import InputError
from contml.data import Task

from .._readers.folders import Files, data_folder, image_folders, no_such_file
from .bodies import MPII
from .mpii_mat import read_release
from .people import Options, draw, exclude_unusable, kept, make_crop_split, shuffled

#: Reading a file of more bytes takes longer than a second.
_LONG = 1 << 20


def mpii(
    root: str,
    annotations: str = "mpii_human_pose_v1_u12_1.mat",
    images: str | list[str] = "images",
    min_joints: int = 16,
    occluded: bool = True,
    box: Literal["joints", "scale"] = "joints",
    margin: float = 1.3,
    side: int = 288,
    test: float = 0.445,
    queries: int = 1919,
    seed: int = 0,
    missing: Literal["refuse", "drop"] = "refuse",
    squared: bool = True,
    normalize: bool = False,
) -> Task:
    """MPII Human Pose: full-body people cropped from the annotated images, split by video.

    The folder holds mpii_human_pose_v1_u12_1.mat (it takes half a minute to read) and images/. The joints of the
    official test images are not public, so both splits come from the 28,883 people of the training images. "Deep
    Metric Learning Beyond Binary Supervision" has 12,366 training and 9,919 test people, of whom 1,919 are queries;
    which ones is not published. Here a person is kept if all 16 joints are marked, hidden ones included: about 19,700
    people, since 68 % of Tompson's 2,958 validation people have all 16 (72 % have 15; 82 % have 14, which would be
    23,700). Each video, with all its people, is drawn for the test split with a probability of 44.5 %. The people of
    the first videos drawn are the queries. The draw is the same on every machine. 'contml check' counts the excluded
    people by reason.

    Args:
        root: the folder of the data set.
        annotations: the annotation file, in the folder.
        images: the folder of images in it, or a list of folders: a file is looked for in each in turn.
        min_joints: people with fewer marked joints are excluded; joints of the others that are not marked do not count
            in a label distance.
        occluded: hidden joints, whose positions the annotators guessed, count too; false: only visible ones.
        box: what the crop is centred on: "joints", the extent of the joints; "scale", the person's rough centre and
            height as annotated, which the arms may leave.
        margin: side of the crop, relative to the longer side of that box.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        test: probability that a video is drawn for the test split.
        queries: how many test people are queries for the others; 0: each is a query for all others.
        seed: seed of that draw.
        missing: what to do with people whose image does not exist: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
    """
    options = Options(min_joints, occluded, margin, side, squared, normalize, missing, by_place=box == "scale")
    options.check(len(MPII.names))
    if not 0 < test < 1:
        raise InputError("test", str(test), "must be above 0 and below 1", "it is the probability of a video")
    folder = data_folder(root)
    path = folder / annotations
    if not path.is_file():
        raise no_such_file(path, "annotations")
    if path.stat().st_size > _LONG:
        print(f"reading {path}: the whole file takes half a minute", file=sys.stderr)  # noqa: T201
    places, on_disk = image_folders(folder, images), Files()
    release = read_release(path, lambda name: on_disk.locate(places, name))
    people = shuffled(exclude_unusable(path, release.people, options), seed)
    train_people = [person for person in people if draw(person.group, seed) >= test]
    test_people = [person for person in people if draw(person.group, seed) < test]
    without_joints = f"{release.unmarked:,} people in these images; {release.test_images:,} official test images"
    return Task(
        train=make_crop_split(path, train_people, MPII, options, 0),
        test=make_crop_split(path, test_people, MPII, options, queries),
        summary=[
            ("people with joints", f"{len(kept(people)):,} kept of {len(people):,} in {release.images:,} images"),
            ("without joints", without_joints),
        ],
    )
