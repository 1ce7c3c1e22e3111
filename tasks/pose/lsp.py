"""Leeds Sports Pose (LSP) and its extended training set (LSPET), from the published `joints.mat` and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from contml import InputError
from contml.data import Task

from .._readers.folders import data_folder
from .._readers.mat import read_variable
from .bodies import LSP
from .people import Options, Person, exclude_unusable, kept, make_crop_split

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: How many images are opened to check that the joints belong to them.
_SAMPLE = 200
#: The farthest joint of an image, as a share of its width or height: limits for nearly all images, and for half of
#: them. Of the first 200 images of LSPET 98 % lie below 0.98, half above 0.77, and none below 0.48.
_FAR, _NEAR = 1.1, 0.45


def lsp(
    root: str,
    lsp: str | None = "lsp_dataset",
    lspet: str | None = "lspet_dataset",
    min_joints: int = 10,
    occluded: bool = True,
    margin: float = 1.3,
    side: int = 144,
    queries: int | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    squared: bool = True,
    normalize: bool = False,
) -> Task:
    """Leeds Sports Pose: LSPET and the first half of LSP to train on, the last half of LSP to test on.

    Needed are ROOT/lsp_dataset and ROOT/lspet_dataset, each with joints.mat and images/ as published: 2,000 images with
    four digits in their names and 10,000 with five. The shape of a joints.mat says which of the two it belongs to:
    [3, 14, n] or [14, 3, n]. In LSP every joint has coordinates, and a flag that is 1 where the joint is hidden. In
    LSPET the flag is 1 where the joint is inside the image; the others have no usable coordinates. LSP also exists with
    full-size images (lsp=lsp_dataset_original); they have another joints.mat. With lsp=null the last fifth of
    LSPET is the test split, since LSPET has none of its own. The first fifth of the test images are the queries.

    Args:
        root: the folder of the data sets.
        lsp: the folder of LSP in it; null: without LSP.
        lspet: the folder of LSPET in it; null: without LSPET.
        min_joints: images with fewer joints than this are left out; every LSP image has all 14.
        occluded: hidden joints of LSP count too; false: only visible ones. LSPET does not say which are hidden.
        margin: side of the crop, relative to the extent of the joints.
        side: crops are resized to this many pixels, square; label distances are in these pixels.
        queries: how many test images are queries for the others; default a fifth; 0: each is a query for all others.
        missing: what to do with joints whose image does not exist: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither position nor size counts.
    """
    options = Options(min_joints, occluded, margin, side, squared, normalize, missing)
    options.check(len(LSP.names))
    folder = data_folder(root)
    if lsp is None and lspet is None:
        raise InputError("lsp and lspet are both null; give the folder of at least one of them")
    source, summary = folder, list[tuple[str, str]]()
    train, test = list[Person](), list[Person]()
    if lspet is not None:
        source = folder / lspet / "joints.mat"
        people = _usable_people(source, "LSPET", options)
        summary.append(("images of LSPET", f"{len(kept(people)):,} kept of {len(people):,}"))
        cut = len(people) if lsp is not None else _last_fifth(people)
        train, test = people[:cut], people[cut:]
    if lsp is not None:
        source = folder / lsp / "joints.mat"
        people = _usable_people(source, "LSP", options)
        summary.append(("images of LSP", f"{len(kept(people)):,} kept of {len(people):,}"))
        train += [person for person in people if person.group == "first half"]
        test += [person for person in people if person.group == "last half"]
    if queries is None:
        queries = len(kept(test)) // 5
    return Task(
        train=make_crop_split(source, train, LSP, options, 0),
        test=make_crop_split(source, test, LSP, options, queries),
        summary=summary,
    )


def _usable_people(path: Path, kind: str, options: Options) -> list[Person]:
    people = exclude_unusable(path, _people(path, kind), options)
    _check_scale(path, kept(people))
    return people


def _last_fifth(people: list[Person]) -> int:
    """Where the last fifth of the people who are kept begins."""
    rows = [row for row, person in enumerate(people) if not person.excluded]
    fifth = len(rows) // 5
    return rows[-fifth] if fifth else len(people)


class _Joints(NamedTuple):
    coordinates: Array  # [N,14,2] as in the file, from 1
    flags: Array  # [N,14] bool


def _people(path: Path, kind: str) -> list[Person]:
    coordinates, flags = _read(path, kind)
    count = len(coordinates)
    every_joint = np.ones(coordinates.shape[1], bool)
    people = []
    for row in range(count):
        name = path.parent / "images" / (f"im{row + 1:04d}.jpg" if kind == "LSP" else f"im{row + 1:05d}.jpg")
        people.append(
            Person(
                str(name),
                name,
                coordinates[row] - 1,  # MATLAB counts pixels from 1
                every_joint if kind == "LSP" else flags[row],
                ~flags[row] if kind == "LSP" else every_joint,
                "first half" if row < count - count // 2 else "last half",
            )
        )
    return people


def _read(path: Path, kind: str) -> _Joints:
    joints = np.asarray(read_variable(path, "joints"))
    if joints.ndim == 2:  # MATLAB drops the last axis if there is only one image
        joints = joints[:, :, None]
    shapes = {"LSP": (3, len(LSP.names)), "LSPET": (len(LSP.names), 3)}
    found = next((name for name, shape in shapes.items() if joints.shape[:2] == shape and joints.ndim == 3), None)
    if found is None or joints.dtype.kind not in "buif":
        raise InputError(
            f"{path}: 'joints' is {joints.dtype} {list(joints.shape)}; LSP has numbers [3, 14, n], LSPET [14, 3, n]"
        )
    if found != kind:
        raise InputError(
            f"{path}: belongs to {found} ({list(joints.shape)}), not to {kind}; give its folder as "
            f"{'lsp' if found == 'LSP' else 'lspet'}"
        )
    ordered = (joints.transpose(2, 1, 0) if kind == "LSP" else joints.transpose(2, 0, 1)).astype(np.float64)  # [N,14,3]
    if not np.isin(ordered[:, :, 2], (0, 1)).all():
        raise InputError(f"{path}: the flag after x and y must be 0 or 1; this file has {ordered[:, :, 2].max():g}")
    flags = ordered[:, :, 2] == 1
    bad = ~np.isfinite(ordered[:, :, :2]).all(2) & (flags | (kind == "LSP"))
    if bad.any():
        row, joint = (int(k) for k in np.argwhere(bad)[0])
        raise InputError(f"{path}: {LSP.names[joint]} of image {row + 1} is not a number")
    return _Joints(ordered[:, :, :2], flags)


def _check_scale(path: Path, people: list[Person]) -> None:
    """Refuse joints of the full-size images with the scaled images, or the other way round."""
    shares = []
    for person in people[:: max(1, len(people) // _SAMPLE)]:
        try:
            with Image.open(person.file) as picture:
                size = picture.size
        except OSError:  # images.broken says what to do with broken images
            continue
        shares.append(float(((person.joints[person.marked] + 1) / size).max()))
    if not shares:
        return
    high, middle = np.quantile(shares, (0.9, 0.5))
    if high > _FAR or middle < _NEAR:
        raise InputError(
            f"{path}: its joints reach {middle:.0%} of the width or height of half the images, {high:.0%} of a tenth; "
            "joints.mat and images are of different sizes: do not mix files of lsp_dataset and lsp_dataset_original"
        )
