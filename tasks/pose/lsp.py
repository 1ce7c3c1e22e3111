"""Leeds Sports Pose (LSP) and its extended training set (LSPET), from the published `joints.mat` and images."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from contml import InputError
from contml._support.validation import NonNegativeInt, PositiveInt, check_ranges
from contml.data import Task
from contml.data.decode import from_file

from .._readers.folders import data_folder
from .._readers.mat import read_variable
from .bodies import LSP
from .people import Margin, Person, PoseOptions, Side, exclude_unusable, kept, make_crop_split

#: Number of images that are opened to check that the joints belong to them.
_SAMPLE = 200
#: The farthest joint of an image, as a share of its width or height: largest 90 % quantile and smallest median over
#: the images. Of the first 200 images of LSPET 98 % lie below 0.98, half above 0.77, and none below 0.48.
_MAX_QUANTILE, _MIN_MEDIAN = 1.1, 0.45


@check_ranges
def lsp(
    root: str,
    lsp: str | None = "lsp_dataset",
    lspet: str | None = "lspet_dataset",
    min_joints: PositiveInt = 10,
    occluded: bool = True,
    margin: Margin = 1.3,
    side: Side = 144,
    queries: NonNegativeInt | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    normalize: bool = False,
) -> Task:
    """Read Leeds Sports Pose: LSPET and the first half of LSP for training, the last half of LSP for testing.

    The folder holds lsp_dataset/ and lspet_dataset/, each with joints.mat and images/ as published. LSP has 2,000
    images with four digits in their names, LSPET has 10,000 with five. The shape of joints.mat shows its data set: [3,
    14, n] is LSP, [14, 3, n] is LSPET. In LSP every joint has coordinates, and a flag that is 1 for a hidden joint. In
    LSPET the flag is 1 for a joint inside the image; the other joints have no usable coordinates.

    LSP also exists with full-size images (lsp=lsp_dataset_original), which have another joints.mat. LSPET has no test
    split. With lsp=null the last fifth of LSPET is the test split. The first fifth of the test images are the queries.

    Args:
        root: the folder of the data sets.
        lsp: the folder of LSP in `root`; null: without LSP.
        lspet: the folder of LSPET in `root`; null: without LSPET.
        min_joints: images with fewer joints are excluded; every LSP image has all 14.
        occluded: use hidden joints of LSP too. false: only visible ones. LSPET does not mark hidden joints.
        margin: side of the crop, relative to the extent of the joints.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        queries: number of test images that are queries for the others. Default: a fifth. 0: each is a query for all.
        missing: what to do with joints whose image does not exist: "refuse", or "drop" them.
        normalize: compare poses in the frame of the person, so that neither position nor size counts.
    """
    options = PoseOptions(min_joints, occluded, margin, side, normalize, missing)
    options.check(len(LSP.names))
    root_folder = data_folder(root)
    folders = [(kind, root_folder / name) for kind, name in (("LSPET", lspet), ("LSP", lsp)) if name is not None]
    if not folders:
        raise InputError("lsp and lspet", "both are null", hint="give the folder of at least one of them")
    train, test, summary = list[Person](), list[Person](), []
    for kind, folder in folders:
        source = folder / "joints.mat"
        people = exclude_unusable(source, _people(source, kind), options)
        _check_scale(source, kept(people))
        if kind == "LSP":
            first_test = len(people) - len(people) // 2
        elif lsp is not None:
            first_test = len(people)
        else:  # the last fifth of the people that are kept
            rows = [row for row, person in enumerate(people) if not person.excluded]
            first_test = rows[-(len(rows) // 5)] if len(rows) >= 5 else len(people)
        train += people[:first_test]
        test += people[first_test:]
        summary.append((f"images of {kind}", f"{len(kept(people)):,} kept of {len(people):,}"))
    test_split = make_crop_split(source, test, LSP, options, queries)
    return Task(make_crop_split(source, train, LSP, options, 0), test_split, summary=summary)


def _people(path: Path, kind: str) -> list[Person]:
    """Read all people of a joints.mat of LSP or LSPET, in order."""
    joints = np.asarray(read_variable(path, "joints"))
    if joints.ndim == 2:  # MATLAB drops the last axis if there is only one image
        joints = joints[:, :, None]
    shapes = {"LSP": (3, len(LSP.names)), "LSPET": (len(LSP.names), 3)}
    file_kind = next((name for name, shape in shapes.items() if joints.shape[:2] == shape and joints.ndim == 3), None)
    if file_kind is None or joints.dtype.kind not in "buif":
        problem = f"joints are {joints.dtype} {list(joints.shape)}"
        raise InputError(str(path), problem, "must be numbers [3, 14, n] (LSP) or [14, 3, n] (LSPET)")
    if file_kind != kind:
        problem = f"{list(joints.shape)}, a file of {file_kind}, not of {kind}"
        raise InputError(str(path), problem, hint=f"give its folder as {file_kind.lower()}")
    ordered = (joints.transpose(2, 1, 0) if kind == "LSP" else joints.transpose(2, 0, 1)).astype(np.float64)  # [N,14,3]
    coordinates, flags = ordered[:, :, :2], ordered[:, :, 2] == 1
    if not np.isin(ordered[:, :, 2], (0, 1)).all():
        raise InputError(str(path), f"a flag of {ordered[:, :, 2].max():g} after x and y", "must be 0 or 1")
    every_joint = np.ones_like(flags)
    # The flag is 1 for a hidden joint in LSP, and for a joint inside the image in LSPET.
    marked, visible = (every_joint, ~flags) if kind == "LSP" else (flags, every_joint)
    invalid = ~np.isfinite(coordinates).all(2) & marked
    if invalid.any():
        row, joint = (int(index) for index in np.argwhere(invalid)[0])
        raise InputError(str(path), f"{LSP.names[joint]} of image {row + 1} is not a number")
    digits, folder = 4 if kind == "LSP" else 5, path.parent / "images"
    files = [folder / f"im{number:0{digits}d}.jpg" for number in range(1, len(joints.T) + 1)]
    # MATLAB counts pixels from 1.
    return [Person(str(file), file, *row) for file, *row in zip(files, coordinates - 1, marked, visible, strict=True)]


def _check_scale(path: Path, people: list[Person]) -> None:
    """Refuse joints of LSP whose scale differs from the images.

    LSP has full-size and scaled images, each with their own joints.
    """
    shares = []
    for person in people[:: max(1, len(people) // _SAMPLE)]:
        try:
            size = from_file(person.file, lambda picture: picture.size)
        except OSError:  # the option images.broken decides about broken images
            continue
        shares.append(float(((person.joints[person.marked] + 1) / size).max()))
    if not shares:
        return
    high, median = np.quantile(shares, (0.9, 0.5))
    if high > _MAX_QUANTILE or median < _MIN_MEDIAN:
        problem = f"its farthest joints are at {median:.0%} of the width or height (median; 90 % quantile {high:.0%})"
        hint = "do not mix joints.mat and images of lsp_dataset and lsp_dataset_original"
        raise InputError(str(path), problem, "joints must be in the pixels of the images", hint)
