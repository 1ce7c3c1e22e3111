"""MPII Human Pose: its annotation file and its images, as the pose retrieval of the log-ratio paper uses them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from contml import InputError

from .bodies import MPII
from .mpii_mat import Marked, read_release
from .people import Options, Person, a_folder, choose, draw, make_split, shuffled

#: Bytes from which reading the annotations takes longer than a second.
_LONG = 1 << 20


class PoseMPII:
    """MPII Human Pose: full-body people of the annotated images, cut out, split by video.

    ROOT/mpii_human_pose_v1_u12_1.mat (a file of structs: half a minute to read) and ROOT/images. The
    joints of the official test images are not public, so both splits come from the 28,883 people of its training
    images. "Deep Metric Learning Beyond Binary Supervision" has 12,366 training and 9,919 test people, 1,919 of whom
    query; which they are is not published. Here a person is kept whose 16 joints are all marked, hidden ones included:
    about 19,700 people, as 68 % of Tompson's 2,958 validation people have all 16 (72 % have 15, 82 % have 14, which
    would be 23,700). Each video is drawn for the test split, with all its people, at a chance of 44.5 %, and the people
    of the first videos drawn query the others: the same on every machine. 'contml check' tells how many are left, and
    why others are not.

    Args:
        root: the folder of the data set.
        annotations: the annotation file in it.
        images: the folder of images in it.
        min_joints: people of whom fewer joints than this are marked are left out; what is not marked of the others does
            not count in a label distance.
        occluded: hidden joints, whose places are guessed by the annotators, count as well; false takes those seen.
        box: what a crop is cut round: "joints", their extent; "scale", the person's rough centre and height as
            annotated, which arms may leave.
        margin: side of a crop, in sides of that.
        side: crops have this many pixels, square; label distances are in these pixels.
        test: chance of a video to be drawn for the test split.
        queries: how many test people query the others; 0: each queries all others.
        seed: of that draw.
        missing: what to do with people whose image is not there: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither place nor size counts.
    """

    def __init__(
        self,
        root: str,
        annotations: str = "mpii_human_pose_v1_u12_1.mat",
        images: str = "images",
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
    ) -> None:
        options = Options(min_joints, occluded, margin, side, squared, normalize, missing, by_place=box == "scale")
        options.check(len(MPII.names))
        if not 0 < test < 1:
            raise InputError(f"task.test={test}: the chance of a video to be tested on, above 0 and below 1")
        folder = a_folder(root)
        path = folder / annotations
        if not path.is_file():
            raise InputError(
                f"{path}: no such file; task.annotations names the annotation file in task.root (its archive unpacks "
                "it to mpii_human_pose_v1_u12_2/)"
            )
        if path.stat().st_size > _LONG:
            print(f"reading {path}: half a minute for the whole file", file=sys.stderr)  # noqa: T201
        release = read_release(path)
        chosen = choose(path, [_person(folder / images, marked) for marked in release.people], options)
        chosen.left_out["with a joint or an image that stands twice"] = release.repeated
        found = len(release.people) + release.repeated
        self.facts = [
            ("people with joints", chosen.fact(found, release.images)),
            (
                "without joints",
                f"{release.unmarked:,} people of these images; {release.test_images:,} official test images",
            ),
        ]
        people = shuffled(chosen.people, seed)
        tested = [person for person in people if draw(person.group, seed) < test]
        learned = [person for person in people if draw(person.group, seed) >= test]
        self.train = make_split(path, learned, MPII, options, 0)
        self.test = make_split(path, tested, MPII, options, queries)


def _person(images: Path, marked: Marked) -> Person:
    return Person(
        f"{images / marked.image}, person {marked.number}",
        images / marked.image,
        marked.joints,
        marked.marked,
        marked.seen,
        f"video {marked.video}" if marked.video else f"image {marked.image}",
        marked.place,
    )
