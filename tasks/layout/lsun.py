"""LSUN room layout (2015): 4,000 training and 394 validation images, from the published files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar

from .maps import as_whole, check_shape, image_size, load_matlab, read_matlab_map, shrink
from .split import LabelMapSplit
from .surfaces import TYPES, draw_surfaces, name_components

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Names of the published splits: records, folder of relabelled maps, images.
_PARTS = (("training", "train", 4000), ("validation", "val", 394))
#: Canonical ids are 1 to 5; 0 is unknown.
_CLASSES, _UNKNOWN = 6, 0
#: A map and its points agree at least on this share of the picture, or the annotation is dropped.
_AGREE = 0.8


class LayoutLSUN:
    """The LSUN room-layout challenge: training images to train on, validation images to test on.

    The folder holds `training.mat`, `validation.mat` and `images/NAME.jpg` with `layout_seg/NAME.mat`, whose numbers
    mean nothing and are named by the layout type and the corner points; or the corrected copy,
    `surface_relabel/train/NAME.jpg` and `NAME.mat`, the same in `val`, with or without the two records. Surfaces are 1
    frontal wall, 2 left wall, 3 right wall, 4 floor, 5 ceiling; all else is unknown and ignored. Images of a type
    beyond 0 to 10 have no layout; they are dropped and counted, as are annotations whose map and points disagree. The
    test images of the challenge have no public layouts, and how the paper split the validation images into queries and
    gallery is not known to us: here the first fifth of them, in the order of `validation.mat`, query the rest.

    Args:
        root: the folder of the data set.
        maps: "surface_relabel" or "layout_seg"; "auto" takes the first of them that is there; "points" draws the maps
            from types and corner points, without files of maps.
        side: maps are compared at this many pixels square.
        queries: how many of the validation images query the others; default a fifth; 0: each queries all others.
        complete: refuse a copy that is not whole; false takes what is there.
    """

    def __init__(
        self,
        root: str,
        maps: Literal["auto", "surface_relabel", "layout_seg", "points"] = "auto",
        side: int = 112,
        queries: int | None = None,
        complete: bool = True,
    ) -> None:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise InputError(f"task.root={root}: no such folder; give the folder of the LSUN room-layout files")
        if side < 8:
            raise InputError(f"task.side={side}: a layout needs at least 8 pixels")
        kind = _found(folder) if maps == "auto" else maps
        self.train, self.test = (
            _split(folder, kind, part, side, complete, 0 if part is _PARTS[0] else queries) for part in _PARTS
        )


class _Corners(NamedTuple):
    """What the original annotation of an image says."""

    type: int
    points: Array  # [n,2] x, y in pixels, from 1
    resolution: tuple[int, int]  # height, width


class _Record(NamedTuple):
    """One image of `training.mat` or `validation.mat`; the corrected copy needs no corners, and does without types."""

    name: str
    type: int | None = None
    corners: _Corners | None = None


class _Item(NamedTuple):
    record: _Record
    image: Path
    map: Path | None


def _found(folder: Path) -> str:
    for name in ("surface_relabel", "layout_seg"):
        if (folder / name).is_dir():
            return name
    raise InputError(
        f"{folder}: has neither surface_relabel/ nor layout_seg/; unpack the layouts there, or set task.maps=points"
    )


def _split(
    folder: Path, kind: str, part: tuple[str, str, int], side: int, complete: bool, queries: int | None
) -> LabelMapSplit:
    records_name, folder_name, published = part
    path = folder / f"{records_name}.mat"
    if path.is_file() or kind != "surface_relabel":
        records, source = _read_records(path, need_points=kind != "surface_relabel"), path
    else:
        source = folder / kind / folder_name
        names = {file.stem for file in source.glob("*.mat")} | {file.stem for file in source.glob("*.jpg")}
        records = [_Record(name) for name in sorted(names) if not name.startswith("._")]
    if complete and len(records) != published:
        raise InputError(
            f"{source}: {len(records):,} images, {published:,} were published; complete the copy, or set "
            "task.complete=false to take what is there"
        )
    items, missing = _locate(folder, kind, folder_name, records)
    if missing and complete:
        raise InputError(
            f"{missing[0]}: no such file ({len(missing)} missing for the {len(records):,} images of {source.name}); "
            "complete the copy, or set task.complete=false to leave their images out"
        )
    kept, labels = [], []
    with progress_bar(len(items), f"layouts of {records_name}") as progress:
        for done, item in enumerate(items, start=1):
            found = _layout(item, side)
            if found is not None:
                kept.append(item)
                labels.append(found)
            progress(done)
    if len(kept) < 3:
        raise InputError(f"{source}: {len(kept)} images with a layout ({len(records)} named); a split needs at least 3")
    querying = len(kept) // 5 or 1 if queries is None else queries
    if not 0 <= querying <= len(kept) - 2:
        raise InputError(f"task.queries={querying}: it must be 0 to {len(kept) - 2}, so that two are left to find")
    return LabelMapSplit(
        [item.image for item in kept],
        [str(item.image) for item in kept],
        np.stack(labels),
        querying,
        classes=_CLASSES,
        ignore=_UNKNOWN,
        dropped=len(records) - len(kept),
    )


def _locate(folder: Path, kind: str, part: str, records: list[_Record]) -> tuple[list[_Item], list[Path]]:
    """The files of images that have a layout; those that are not there."""
    items, missing = [], []
    for record in records:
        if record.type is not None and record.type not in TYPES:
            continue
        base = folder / kind / part if kind == "surface_relabel" else folder / "images"
        labels = {"surface_relabel": base, "layout_seg": folder / kind}.get(kind)
        item = _Item(record, base / f"{record.name}.jpg", None if labels is None else labels / f"{record.name}.mat")
        gone = [file for file in item[1:] if file is not None and not file.is_file()]
        missing += gone
        if not gone:
            items.append(item)
    return items, missing


def _layout(item: _Item, side: int) -> Array | None:
    """The surfaces of an image `[side, side]` in canonical ids, uint8; None where map and points disagree."""
    corners = item.record.corners
    if item.map is None:
        return None if corners is None else draw_surfaces(corners.type, _places(corners, item.image), side, side)
    labels = read_matlab_map(item.map, "layout")
    check_shape(item.map, labels, item.image)
    labels = as_whole(item.map, shrink(labels, side))  # first small: a map may have millions of pixels
    if corners is None:  # the corrected copy
        return np.where((labels >= 1) & (labels < _CLASSES), labels, _UNKNOWN).astype(np.uint8)
    named, agreement = name_components(corners.type, _places(corners, item.image), labels)
    return named if agreement >= _AGREE else None


def _places(corners: _Corners, image: Path) -> Array:
    """Corner points as shares of the picture, put on its edge where they lie outside, as the toolkit does."""
    height, width = corners.resolution
    size = image_size(image)
    if size is not None and abs(size[0] * height - size[1] * width) > 0.04 * size[1] * width:
        raise InputError(
            f"{image}: is {size[0]} x {size[1]} pixels, but its record says height {height}, width {width}; "
            "move the image away and set task.complete=false to do without it"
        )
    return np.asarray((np.clip(np.rint(corners.points), 1, (width, height)) - 0.5) / (width, height))


# Records


def _read_records(path: Path, need_points: bool) -> list[_Record]:
    """The records of a split, by the names of their fields: not every copy has all, in this order."""
    found = load_matlab(path)
    table = found.get(path.stem, next(iter(found.values())) if len(found) == 1 else None)
    if table is None or table.dtype.names is None:
        raise InputError(f"{path}: has no struct array '{path.stem}' (it has {', '.join(found) or 'nothing'})")
    needed = ("image", "type", "point", "resolution") if need_points else ("image", "type")
    if missing := [field for field in needed if field not in table.dtype.names]:
        raise InputError(
            f"{path}: its records have no field '{missing[0]}' (they have {', '.join(table.dtype.names)}); "
            "the test images of the challenge have no public layouts"
        )
    records = [_record(path, row, record, need_points) for row, record in enumerate(table.ravel(), start=1)]
    names = [record.name for record in records]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path}: the image {twice} stands twice")
    return records


def _record(path: Path, row: int, record: Any, need_points: bool) -> _Record:
    where = f"{path}: record {row}"
    name = _innermost(record["image"])
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: 'image' is no name ({name!r})")
    found = _innermost(record["type"])
    if not isinstance(found, np.integer | np.floating) or not float(found).is_integer():
        raise InputError(f"{where} ({name}): 'type' is no whole number ({found!r})")
    kind, name = int(found), name.removesuffix(".jpg")
    if not need_points or kind not in TYPES:
        return _Record(name, kind)
    points = np.asarray(record["point"])
    wanted = TYPES[kind].points
    if points.shape != (wanted, 2) or points.dtype.kind not in "uif" or not np.isfinite(points).all():
        raise InputError(
            f"{where} ({name}): 'point' is {points.dtype} {list(points.shape)}; type {kind} has {wanted} points x, y"
        )
    resolution = np.asarray(record["resolution"]).ravel()
    if resolution.shape != (2,) or resolution.dtype.kind not in "uif" or resolution.min() < 1:
        raise InputError(f"{where} ({name}): 'resolution' is {resolution.tolist()}; it is height and width")
    height, width = (int(length) for length in resolution)
    return _Record(name, kind, _Corners(kind, points.astype(np.float64), (height, width)))


def _innermost(value: Any) -> Any:
    """What MATLAB's nested 1 x 1 arrays hold: a text, a number, or an array that is more."""
    while isinstance(value, np.ndarray):
        if value.size != 1:
            return value if value.size else ""
        value = value.ravel()[0]
    return str(value) if isinstance(value, str) else value
