"""Leeds Sports Pose (LSP) and its extended training set (LSPET), from the published `joints.mat` and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from contml import InputError

from .bodies import LSP
from .matlab import load_matlab
from .people import Chosen, Options, Person, a_folder, choose, make_split

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: So many images are opened to see whether the joints are theirs.
_LOOKED_AT = 200
#: The farthest joint of an image, as a share of its width or height: of nearly all images, and of half of them. Of the
#: first 200 images of LSPET 98 % lie below 0.98, half above 0.77, and none below 0.48.
_FAR, _NEAR = 1.1, 0.45


class PoseLSP:
    """Leeds Sports Pose: LSPET and the first half of LSP to learn from, the last half of LSP to retrieve in.

    ROOT/lsp_dataset and ROOT/lspet_dataset, each with joints.mat and images/ as published: 2,000 images of four digits
    and 10,000 of five. Which of the two a joints.mat belongs to is told by its shape, [3, 14, n] or [14, 3, n]. Of LSP
    every joint has a place, and a flag that is 1 where it is hidden; of LSPET the flag is 1 where the joint is inside
    the image, and the others have no place that could be used. LSP comes in full-size images as well
    (task.lsp=lsp_dataset_original), whose joints.mat is another one. With lsp=null the last fifth of LSPET is the test
    split, since it has none of its own. The first fifth of the test images query the others.

    Args:
        root: the folder of the data sets.
        lsp: the folder of LSP in it; null leaves LSP out.
        lspet: the folder of LSPET in it; null leaves LSPET out.
        min_joints: images with fewer joints than this are left out; the 14 of all LSP images are there.
        occluded: hidden joints of LSP count as well; false takes those seen. LSPET does not tell.
        margin: side of a crop, in sides of the extent of the joints.
        side: crops have this many pixels, square; label distances are in these pixels.
        queries: how many test images query the others; default a fifth; 0: each queries all others.
        missing: what to do with joints whose image is not there: "refuse", or "drop" them.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither place nor size counts.
    """

    def __init__(
        self,
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
    ) -> None:
        options = Options(min_joints, occluded, margin, side, squared, normalize, missing)
        options.check(len(LSP.names))
        folder = a_folder(root)
        if lsp is None and lspet is None:
            raise InputError("task.lsp and task.lspet are both null; name the folder of one of them at least")
        self.facts: list[tuple[str, str]] = []
        source, train, test = folder, list[Person](), list[Person]()
        if lspet is not None:
            source = folder / lspet / "joints.mat"
            chosen = self._chosen("LSPET", source, "lspet", options)
            cut = len(chosen.people) if lsp is not None else len(chosen.people) - len(chosen.people) // 5
            train, test = chosen.people[:cut], chosen.people[cut:]
        if lsp is not None:
            source = folder / lsp / "joints.mat"
            chosen = self._chosen("LSP", source, "lsp", options)
            train += [person for person in chosen.people if person.group == "first half"]
            test += [person for person in chosen.people if person.group == "last half"]
        querying = len(test) // 5 if queries is None else queries
        self.train = make_split(source, train, LSP, options, 0)
        self.test = make_split(source, test, LSP, options, querying)

    def _chosen(self, kind: str, path: Path, option: str, options: Options) -> Chosen:
        people = _people(path, kind, option)
        chosen = choose(path, people, options)
        _check_scale(path, chosen.people)
        self.facts.append((f"images of {kind}", chosen.fact(len(people), len(people))))
        return chosen


class _Joints(NamedTuple):
    places: Array  # [N,14,2] as told, from 1
    flags: Array  # [N,14] bool


def _people(path: Path, kind: str, option: str) -> list[Person]:
    places, flags = _read(path, kind, option)
    count = len(places)
    all_of_them = np.ones(places.shape[1], bool)
    people = []
    for row in range(count):
        name = path.parent / "images" / (f"im{row + 1:04d}.jpg" if kind == "LSP" else f"im{row + 1:05d}.jpg")
        people.append(
            Person(
                str(name),
                name,
                places[row] - 1,  # MATLAB counts pixels from 1
                all_of_them if kind == "LSP" else flags[row],
                ~flags[row] if kind == "LSP" else all_of_them,
                "first half" if row < count - count // 2 else "last half",
            )
        )
    return people


def _read(path: Path, kind: str, option: str) -> _Joints:
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; task.{option} names the folder of {kind} in task.root, or null leaves it out"
        )
    joints = np.asarray(load_matlab(path, "joints"))
    if joints.ndim == 2:  # MATLAB drops the last axis where there is one image only
        joints = joints[:, :, None]
    shapes = {"LSP": (3, len(LSP.names)), "LSPET": (len(LSP.names), 3)}
    found = next((name for name, shape in shapes.items() if joints.shape[:2] == shape and joints.ndim == 3), None)
    if found is None or joints.dtype.kind not in "buif":
        raise InputError(
            f"{path}: 'joints' is {joints.dtype} {list(joints.shape)}; LSP has numbers [3, 14, n], LSPET [14, 3, n]"
        )
    if found != kind:
        raise InputError(
            f"{path}: is of {found} ({list(joints.shape)}), not of {kind}; name its folder with "
            f"task.{'lsp' if found == 'LSP' else 'lspet'}"
        )
    ordered = (joints.transpose(2, 1, 0) if kind == "LSP" else joints.transpose(2, 0, 1)).astype(np.float64)  # [N,14,3]
    if not np.isin(ordered[:, :, 2], (0, 1)).all():
        raise InputError(f"{path}: the third of x, y and flag is 0 or 1; this has {ordered[:, :, 2].max():g}")
    flags = ordered[:, :, 2] == 1
    bad = ~np.isfinite(ordered[:, :, :2]).all(2) & (flags | (kind == "LSP"))
    if bad.any():
        row, joint = (int(k) for k in np.argwhere(bad)[0])
        raise InputError(f"{path}: {LSP.names[joint]} of image {row + 1} is not a number")
    return _Joints(ordered[:, :, :2], flags)


def _check_scale(path: Path, people: list[Person]) -> None:
    """Refuse joints of the full-size images beside the scaled ones, or the other way round."""
    shares = []
    for person in people[:: max(1, len(people) // _LOOKED_AT)]:
        try:
            with Image.open(person.file) as picture:
                size = picture.size
        except OSError:  # what to do with broken images is said by images.broken
            continue
        shares.append(float(((person.joints[person.marked] + 1) / size).max()))
    if not shares:
        return
    high, middle = np.quantile(shares, (0.9, 0.5))
    if high > _FAR or middle < _NEAR:
        raise InputError(
            f"{path}: its joints reach {middle:.0%} of the width or height of half the images, {high:.0%} of a tenth; "
            "joints.mat and images are of different sizes: those of lsp_dataset and lsp_dataset_original do not mix"
        )
