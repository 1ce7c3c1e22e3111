"""COCO's people with keypoints, or any data set in its form."""

from __future__ import annotations

from typing import Literal

from contml import InputError

from .coco_json import Keypoints, read_keypoints
from .people import Chosen, Options, a_folder, choose, make_split, shuffled


class PoseCOCO:
    """COCO keypoints: people cut out of their images, train2017 to learn from, val2017 to retrieve in.

    ROOT/annotations/person_keypoints_train2017.json, ROOT/annotations/person_keypoints_val2017.json, and the images in
    ROOT/train2017 and ROOT/val2017; for 2014, or another data set of the same form, name the files and the folders.
    Names and limbs of the joints are those of the file's category: 17, five of them in the face. Crowds, people with
    few labelled keypoints and small people are left out; 'contml check' tells how many. The test images are drawn in an
    order that is the same on every machine, and the people of the first query the others.

    Args:
        root: the folder of the data set.
        train: the file of keypoints of the training images in it.
        test: that of the test images.
        train_images: the folder of the training images in it.
        test_images: that of the test images.
        min_joints: people of whom fewer keypoints than this are labelled are left out; what is not labelled of the
            others does not count in a label distance.
        min_size: people whose labelled keypoints span fewer pixels than this are left out.
        occluded: keypoints that are labelled but hidden (v = 1) count as well; false takes those seen (v = 2).
        box: what a crop is cut round: "joints", the extent of the keypoints; "bbox", the bounding box.
        margin: side of a crop, in sides of that.
        side: crops have this many pixels, square; label distances are in these pixels.
        queries: how many test people query the others; default a fifth; 0: each queries all others.
        seed: of the order of the test images.
        missing: what to do with people whose image is not there or not listed: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither place nor size counts.
    """

    def __init__(
        self,
        root: str,
        train: str = "annotations/person_keypoints_train2017.json",
        test: str = "annotations/person_keypoints_val2017.json",
        train_images: str = "train2017",
        test_images: str = "val2017",
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
    ) -> None:
        options = Options(min_joints, occluded, margin, side, squared, normalize, missing, box == "bbox", min_size)
        folder = a_folder(root)
        first = read_keypoints(folder / train, "train", folder / train_images, missing)
        second = read_keypoints(folder / test, "test", folder / test_images, missing)
        if first.body.names != second.body.names:
            raise InputError(f"{folder / test}: its keypoints are other ones than those of {folder / train}")
        options.check(len(first.body.names))
        if both := {person.file for person in first.people} & {person.file for person in second.people}:
            raise InputError(f"{min(both)} is in train and in test ({len(both)} such images)")
        learned, tested = (
            choose(folder / name, read.people, options) for name, read in ((train, first), (test, second))
        )
        self.facts = [
            ("people to train on", _fact(learned, first)),
            ("people to test on", _fact(tested, second)),
        ]
        querying = len(tested.people) // 5 if queries is None else queries
        self.train = make_split(folder / train, learned.people, first.body, options, 0)
        self.test = make_split(folder / test, shuffled(tested.people, seed), first.body, options, querying)


def _fact(chosen: Chosen, read: Keypoints) -> str:
    chosen.left_out.update(read.left_out)
    return chosen.fact(len(read.people) + read.left_out.total(), read.images)
