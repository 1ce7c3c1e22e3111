"""MPII Human Pose: annotation file and images, for the pose retrieval of the log-ratio paper."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import compress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, Range, check_ranges
from contml.data import Task, draw
from contml.data.text_files import no_such_file

from .._readers.folders import DiskFiles, data_folder, image_folders
from .._readers.mat import read_variable
from .bodies import MPII
from .people import Array, Margin, Person, PoseOptions, Side, exclude_unusable, kept, make_crop_split

_PUBLISHED = "mpii_human_pose_v1_u12_1.mat"
_JOINTS = len(MPII.names)
_REPEATED = "with a joint or an image that appears twice"
#: Reading a file of more bytes takes longer than a second.
_LONG = 1 << 20


@check_ranges
def mpii(
    root: str,
    annotations: str = "mpii_human_pose_v1_u12_1.mat",
    images: str | list[str] = "images",
    min_joints: PositiveInt = 16,
    occluded: bool = True,
    margin: Margin = 1.3,
    side: Side = 288,
    test: Annotated[float, Range(above=0, below=1)] = 0.445,
    queries: NonNegativeInt = 1919,
    seed: NonNegativeInt = 0,
    missing: Literal["refuse", "drop"] = "refuse",
    normalize: bool = False,
) -> Task:
    """Read MPII Human Pose: full-body people cropped from the annotated images, split by video.

    The folder holds mpii_human_pose_v1_u12_1.mat, which takes half a minute to read, and images/. The joints of the
    official test images are not public, so both splits come from the 28,883 people of the training images.

    "Deep Metric Learning Beyond Binary Supervision" has 12,366 training and 9,919 test people, of whom 1,919 are
    queries. The paper does not say which people. Here a person is kept if all 16 joints are marked, hidden joints
    included. This rule keeps about 19,700 people. The estimate comes from Tompson's 2,958 validation people: 68 % have
    all 16 joints, 72 % at least 15, and 82 % at least 14. A limit of 14 joints would keep 23,700 people.

    Each video, with all its people, is drawn for the test split with a probability of 44.5 %. The queries are the
    people of some test videos. The draw is the same on every machine. 'contml check' counts the excluded people by
    reason.

    Args:
        root: the folder of the data set.
        annotations: the annotation file, in the folder.
        images: the folder of images in `root`, or a list of folders, which are searched in order.
        min_joints: people with fewer marked joints are excluded. Unmarked joints of the other people do not count
            in a label distance.
        occluded: use hidden joints, whose positions the annotators guessed; false: only visible ones.
        margin: side of the crop, relative to the extent of the joints.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        test: probability that a video is drawn for the test split.
        queries: number of test people that are queries for the others. 0: each is a query for all others.
        seed: seed of the draws of the test split and of the queries.
        missing: what to do with people whose image does not exist: "refuse", or "drop" them.
        normalize: compare poses in the frame of the person, so that neither position nor size counts.
    """
    options = PoseOptions(min_joints, occluded, margin, side, normalize, missing)
    options.check(len(MPII.names))
    folder = data_folder(root)
    path = folder / annotations
    if not path.is_file():
        raise no_such_file(path, "annotations")
    if path.stat().st_size > _LONG:
        print(f"reading {path}: the whole file takes half a minute", file=sys.stderr)  # noqa: T201
    folders, on_disk = image_folders(folder, images), DiskFiles()
    release = read_release(path, lambda name: on_disk.locate(folders, name))
    people = exclude_unusable(path, release.people, options)
    is_test = draw([person.group for person in people], test, seed, "test")
    train_people, test_people = (list(compress(people, chosen)) for chosen in (~is_test, is_test))
    sizes = f"{len(kept(train_people)):,} people for training, {len(kept(test_people)):,} for testing"
    summary = {
        "people with joints": f"{len(kept(people)):,} kept of {len(people):,} in {release.images:,} images",
        "without joints": f"{release.unmarked:,} people in these images; {release.test_images:,} official test images",
        "split": f"drawn, about {test:.1%} of the videos for testing, no video in both (seed {seed}): {sizes}",
    }
    train_split = make_crop_split(path, train_people, MPII, options, 0)
    test_split = make_crop_split(path, test_people, MPII, options, queries, seed=seed)
    groups = [person.group for person in kept(train_people)]
    return Task(train_split, test_split, val_groups=groups, summary=list(summary.items()))


# The annotation file


class Release(NamedTuple):
    """The content of the annotation file."""

    people: list[Person]  # excluded if a joint appears twice, or an earlier entry has the same image
    images: int  # training images with people
    unmarked: int  # people without joints in training images
    test_images: int  # the official test images, whose joints are not public


def read_release(path: Path, locate: Callable[[str], Path] = Path) -> Release:
    """Read the people of the training images with their joints, whatever the order and form of the joints.

    Args:
        path: the file.
        locate: returns the path of an image, given its name.

    Raises:
        InputError: the file is missing or of another kind, or an entry does not have the published form.
    """
    release = _records(read_variable(path, "RELEASE", "annotations"))
    missing = [name for name in ("annolist", "img_train") if not release or _field(release[0], name) is None]
    if missing:
        raise InputError(str(path), f"no RELEASE.{missing[0]}", f"must be {_PUBLISHED}")
    entries = _records(release[0]["annolist"])
    train = np.asarray(release[0]["img_train"]).ravel()
    if len(train) != len(entries) or train.dtype.kind not in "buif":
        problem = f"img_train has {len(train)} numbers, annolist {len(entries)} entries"
        raise InputError(str(path), problem, "must be one number per entry")
    people: list[Person] = []
    images: set[str] = set()
    unmarked = 0
    for index, (entry, in_train) in enumerate(zip(entries, train, strict=True), start=1):
        if not in_train:
            continue
        location = f"{path}: annolist({index})"
        name = _image_name(location, entry)
        video = _number(location, entry, "vididx")
        group = f"video {video:g}" if video else f"image {name}"
        image, is_repeated, usable = locate(name), name in images, False
        for number, rectangle in enumerate(_records(_field(entry, "annorect")), start=1):
            records = _records(_field(rectangle, "annopoints"))
            points = [point for record in records for point in _records(_field(record, "point"))]
            if not points:
                unmarked += 1
                continue
            annotation, person_name = f"{location}.annorect({number})", f"{image}, person {number}"
            person = Person(person_name, image, *_joints(annotation, points), group)
            appears_twice = is_repeated or len(points) > person.marked.sum()
            people.append(person._replace(excluded=_REPEATED if appears_twice else ""))
            usable = usable or not appears_twice
        if usable:
            images.add(name)
    if not people:
        raise InputError(str(path), f"no person with joints in {len(entries)} entries of annolist")
    return Release(people, len(images), unmarked, int((train == 0).sum()))


def _joints(where: str, points: list[np.void]) -> tuple[Array, Array, Array]:
    """Return joints `[16, 2]`, and masks `[16]` of the marked joints and of the joints that are not hidden.

    Joints are in pixels from 0, NaN if not marked.
    """
    joints = np.full((_JOINTS, 2), np.nan)
    marked, visible = np.zeros(_JOINTS, bool), np.ones(_JOINTS, bool)
    for point in points:
        x, y, joint = (_number(where, point, name) for name in ("x", "y", "id"))
        if x is None or y is None or joint is None or joint not in range(_JOINTS):
            raise InputError(where, f"a point has x {x}, y {y}, id {joint}", f"ids are 0 to {_JOINTS - 1}")
        # MATLAB counts pixels from 1. If `is_visible` is empty or missing, the joint is not hidden.
        joints[int(joint)] = x - 1, y - 1
        marked[int(joint)] = True
        visible[int(joint)] = _number(where, point, "is_visible") != 0
    return joints, marked, visible


def _image_name(where: str, entry: np.void) -> str:
    images = _records(_field(entry, "image"))
    name = np.asarray(_field(images[0], "name")).ravel() if images else np.empty(0)
    if name.size != 1 or not isinstance(name[0], str) or not name[0].strip():
        raise InputError(where, "no image.name", f"must be {_PUBLISHED}")
    return str(name[0]).strip()


def _records(value: Any) -> list[np.void]:
    """Return the elements of a struct array as a list. The list is empty if MATLAB wrote an empty matrix instead."""
    array = np.asarray(value)
    return [*array.ravel()] if array.dtype.names is not None else []


def _field(record: np.void, name: str) -> Any:
    """Return a field of a struct.

    Return None if this entry has no such field, as not every entry has the same fields.
    """
    return record[name] if name in (record.dtype.names or ()) else None


def _number(where: str, record: np.void, name: str) -> float | None:
    """Return a number that is written as an integer of any size, a float or characters.

    Return None if the field is missing.
    """
    value = _field(record, name)
    array = np.asarray([] if value is None else value)
    if array.size == 0 or (array.dtype.kind == "U" and not str(array.flat[0]).strip()):
        return None
    try:
        number = float(array.flat[0])
    except (TypeError, ValueError):
        number = math.nan
    if array.size > 1 or not math.isfinite(number):
        raise InputError(where, f"{name} is {array.tolist()!r:.60}", "must be one finite number")
    return number
