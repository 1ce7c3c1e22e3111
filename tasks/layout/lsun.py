"""The room layouts of the LSUN challenge.

A layout type defines the visible surfaces, and the order of the corner points (RoomLayoutTypes.m of the challenge's
toolkit). Each surface but one lies on one side of a line through some of the points. The line is extended beyond the
picture at both ends. The last surface is all other pixels.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from contml import InputError
from contml._support.progress import progress_bar
from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import ImageFile, Split, Task, check_queries
from contml.data.renderers.labels import shrink

from .._readers.folders import MOST_PIXELS, DiskFiles, Missing, data_folder, refuse_absent
from .._readers.label_maps import SURFACES, Array, as_whole, check_shape, image_size, make_split, read_matlab_map
from .._readers.mat import read_mat, read_records
from .views import CEILING, FLOOR, FRONTAL, LEFT, RIGHT

#: A component smaller than this share of the picture is a speck that a line cut off.
_SPECK = 0.002
#: The length by which lines are extended, in image sides. For each surface, a point far outside on its side.
_FAR = 1000.0
_SIDES = {LEFT: (-_FAR, 0.5), RIGHT: (_FAR, 0.5), FLOOR: (0.5, _FAR), CEILING: (0.5, -_FAR)}


class LayoutType(NamedTuple):
    """A layout type: the number of corner points, the surface of the remaining pixels, and lines of other surfaces.

    Points in lines are counted from 1.
    """

    points: int
    rest: int
    lines: dict[int, tuple[int, ...]]
    #: Points that some published annotations swap.
    swaps: tuple[tuple[int, int], ...] = ()


#: Every layout type by its number.
TYPES = {
    0: LayoutType(8, FRONTAL, {LEFT: (2, 1, 3, 4), RIGHT: (8, 7, 5, 6), FLOOR: (4, 3, 5, 6), CEILING: (2, 1, 7, 8)}),
    1: LayoutType(6, FRONTAL, {LEFT: (2, 1, 3), RIGHT: (5, 4, 6), FLOOR: (3, 1, 4, 6)}, ((2, 3), (5, 6))),
    2: LayoutType(6, FRONTAL, {LEFT: (2, 1, 3), RIGHT: (5, 4, 6), CEILING: (2, 1, 4, 5)}, ((2, 3), (5, 6))),
    3: LayoutType(4, RIGHT, {LEFT: (2, 1, 3), CEILING: (2, 1, 4)}),
    4: LayoutType(4, RIGHT, {LEFT: (3, 1, 2), FLOOR: (2, 1, 4)}),
    5: LayoutType(6, RIGHT, {LEFT: (2, 1, 4, 5), FLOOR: (5, 4, 6), CEILING: (2, 1, 3)}),
    6: LayoutType(4, FRONTAL, {FLOOR: (3, 4), CEILING: (1, 2)}),
    7: LayoutType(4, FRONTAL, {LEFT: (1, 2), RIGHT: (3, 4)}),
    8: LayoutType(2, FRONTAL, {CEILING: (1, 2)}),
    9: LayoutType(2, FRONTAL, {FLOOR: (1, 2)}),
    10: LayoutType(2, RIGHT, {LEFT: (1, 2)}),
}  # fmt: skip


def draw_surfaces(kind: int, points: Array, height: int, width: int) -> Array:
    """Draw the label map `[height, width]` of a layout in canonical ids, uint8.

    `kind` is a layout type of `TYPES`. `points` `[n, 2]` are x, y in the picture, 0 to 1, in the order of the type.
    """
    from matplotlib.path import Path as Outline

    layout = TYPES[kind]
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    pixels = np.stack((x.ravel(), y.ravel()), 1)
    labels = np.full(height * width, layout.rest, np.uint8)
    for surface, line in layout.lines.items():
        labels[Outline(_outline(points[np.array(line) - 1], surface)).contains_points(pixels)] = surface
    return labels.reshape(height, width)


def name_components(kind: int, points: Array, components: Array) -> tuple[Array, float]:
    """Return canonical ids `[H, W]` for a map of numbered components, and the share that agrees with the points.

    0 is unknown. The published maps number the regions between the lines in any order. Each region gets the surface
    that covers most of the region in the map drawn from the points. For a type with swaps, the order that agrees best
    is used.
    """
    shape, known_pixels = components.shape, components > 0
    ids, id_indices, areas = np.unique(components, return_inverse=True, return_counts=True)
    id_indices = id_indices.reshape(shape)
    num_components = int(((ids > 0) & (areas > _SPECK * components.size)).sum())
    best = np.zeros(shape, np.uint8), -1.0
    for order in _orders(TYPES[kind]):
        expected = draw_surfaces(kind, points[order], *shape)
        overlap = np.zeros((len(ids), CEILING + 1), np.int64)
        np.add.at(overlap, (id_indices, expected), 1)
        surfaces = np.where(known_pixels, overlap.argmax(1).astype(np.uint8)[id_indices], 0)
        agreement = float((surfaces == expected)[known_pixels].mean()) if known_pixels.any() else 0.0
        # Components and surfaces must match one to one. Otherwise the score is lower.
        agreement *= len(np.unique(surfaces[known_pixels])) / max(num_components, len(np.unique(expected)))
        if agreement > best[1]:
            best = surfaces, agreement
    return best


def _orders(layout: LayoutType) -> list[list[int]]:
    """Return the possible orders of the points of a type: the listed order, then orders with swaps.

    Points are counted from 0.
    """
    orders = [[*range(layout.points)]]
    for a, b in reversed(layout.swaps):
        swap = {a - 1: b - 1, b - 1: a - 1}
        orders += [[swap.get(point, point) for point in order] for order in orders]
    return orders


def _outline(line: Array, surface: int) -> Array:
    """Return a closed outline `[n, 2]` of a surface's side of a line, which is extended at both ends."""
    start, end = (_beyond(line[1], line[0]), _beyond(line[-2], line[-1]))
    return np.vstack((start, line[1:-1], end, _SIDES[surface]))


def _beyond(inner: Array, end: Array) -> Array:
    """Return a far point on the line from an inner point through an end.

    Return the end itself if both are the same point.
    """
    direction = end - inner
    length = float(np.hypot(*direction))
    return np.asarray(end + direction * (_FAR / length) if length else end)


class _PublishedSplit(NamedTuple):
    """A published split: the name of its records, its folder of corrected maps, and its number of images."""

    records: str
    folder: str
    images: int


_TRAINING, _VALIDATION = _PublishedSplit("training", "train", 4000), _PublishedSplit("validation", "val", 394)
#: An annotation is excluded if its map and its corner points agree on less than this share of the picture.
_MIN_AGREEMENT = 0.8


@check_ranges
def lsun(
    root: str,
    maps: Literal["auto", "surface_relabel", "layout_seg", "points"] = "auto",
    side: Annotated[int, Range(8, whole=True)] = 112,
    queries: NonNegativeInt | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
) -> Task:
    """Read the LSUN room-layout challenge: its training images for training, its validation images for testing.

    The folder holds `training.mat`, `validation.mat`, `images/NAME.jpg` and `layout_seg/NAME.mat`. The numbers in these
    maps have no meaning; layout type and corner points define the surfaces. Alternatively, the folder holds the
    corrected copy: `surface_relabel/train/NAME.jpg` and `NAME.mat`, and the same in `val/`. The two record files may be
    missing there.

    Surfaces are 1 frontal wall, 2 left wall, 3 right wall, 4 floor, 5 ceiling. All other pixels are unknown and
    ignored. Images of a type other than 0 to 10 have no layout. They are excluded and counted. Annotations whose map
    and corner points disagree are excluded too.

    The test images of the challenge have no public layouts. The paper's split of the validation images into queries and
    gallery is not known. Here the first fifth of the validation images are the queries, in the order of
    `validation.mat`.

    Args:
        root: the folder of the data set.
        maps: "surface_relabel" or "layout_seg": the folder of maps. "auto": the first of both that exists. "points":
            maps are drawn from layout types and corner points, without files of maps.
        side: maps are resized to this many pixels square.
        queries: number of first validation images that are queries; the others are the gallery. Default: a fifth. 0:
            every validation image is a query.
        missing: what to do with an incomplete copy: "refuse" it, or "drop" the images without files.
    """
    folder = data_folder(root, "the LSUN room-layout files")
    source = _find_maps(folder) if maps == "auto" else maps
    train = _read_split(folder, source, _TRAINING, side, missing, 0)
    return Task(train, _read_split(folder, source, _VALIDATION, side, missing, queries))


class _ListedRoom(NamedTuple):
    """One image of `training.mat` or `validation.mat`. The corrected copy has no corner points and perhaps no types."""

    name: str
    type: int = 0
    points: Any = None  # [n,2] x, y in pixels, from 1, as originally annotated
    resolution: tuple[int, int] = (0, 0)  # height, width of the annotated picture


def _find_maps(folder: Path) -> str:
    for name in ("surface_relabel", "layout_seg"):
        if (folder / name).is_dir():
            return name
    hint = "unpack the layouts there, or set maps=points"
    raise InputError(str(folder), "neither surface_relabel/ nor layout_seg/", hint=hint)


def _read_split(
    folder: Path, source: str, part: _PublishedSplit, side: int, missing: Missing, queries: int | None
) -> Split:
    records, origin = _find_records(folder, source, part)
    if missing == "refuse" and len(records) != part.images:
        hint = "complete the copy, or set missing=drop to use these images"
        raise InputError(str(origin), f"{len(records):,} images", f"must be the {part.images:,} published images", hint)
    with_layout = [record for record in records if record.type in TYPES]
    excluded = Counter({"without a layout type": len(records) - len(with_layout)})
    image_folder, label_folder = folder / "images", folder / source
    if source == "surface_relabel":
        image_folder = label_folder = label_folder / part.folder
    items, absent_files, on_disk = [], [], DiskFiles()
    for record in with_layout:
        image = image_folder / f"{record.name}.jpg"
        label = None if source == "points" else label_folder / f"{record.name}.mat"
        absent_of_record = [file for file in (image, label) if file is not None and not on_disk.has(file)]
        absent_files += absent_of_record
        if not absent_of_record:
            items.append((record, image, label))
        else:
            excluded["without an image file" if image in absent_of_record else "without a label map file"] += 1
    if missing == "refuse":
        num_listed = len(with_layout) * (1 if source == "points" else 2)
        refuse_absent(absent_files, num_listed, f"files for {origin.name}", kind="file")
    kept_images, maps = [], []
    with progress_bar(len(items), f"layouts of {part.records}") as progress:
        for num_done, (record, image, label) in enumerate(items, start=1):
            layout = _read_layout(record, image, label, side)
            if layout is None:
                excluded["with a label map that contradicts the corner points"] += 1
            else:
                kept_images.append(image)
                maps.append(layout)
            progress(num_done)
    if len(maps) < 3:
        raise InputError(
            str(origin), f"{len(maps)} images with a layout, of {len(records)}", "a split needs at least 3"
        )
    queries = len(kept_images) // 5 or 1 if queries is None else queries
    check_queries(queries, len(kept_images))
    return make_split([*map(ImageFile, kept_images)], [*map(str, kept_images)], np.stack(maps), queries, excluded)


def _find_records(folder: Path, source: str, part: _PublishedSplit) -> tuple[list[_ListedRoom], Path]:
    """Return the images of a split, and the file or folder that lists them."""
    path = folder / f"{part.records}.mat"
    if path.is_file() or source != "surface_relabel":
        return _read_records(path, need_points=source != "surface_relabel"), path
    maps = folder / source / part.folder
    names = {file.stem for pattern in ("*.mat", "*.jpg") for file in maps.glob(pattern)}
    return [_ListedRoom(name) for name in sorted(names) if not name.startswith("._")], maps


def _read_layout(record: _ListedRoom, image: Path, label: Path | None, side: int) -> Array | None:
    """Read the surfaces of an image `[side, side]`, uint8. Return None if its map and its corner points disagree."""
    if label is None:  # drawn from the corner points
        return draw_surfaces(record.type, _to_shares(record, image), side, side)
    labels = read_matlab_map(label, "layout")
    check_shape(label, labels, image)
    labels = as_whole(label, shrink(labels, side))  # shrink first: a map may have millions of pixels
    if record.points is None:  # the corrected copy
        return np.where((labels >= 1) & (labels < len(SURFACES)), labels, 0).astype(np.uint8)
    surfaces, agreement = name_components(record.type, _to_shares(record, image), labels)
    return surfaces if agreement >= _MIN_AGREEMENT else None


def _to_shares(record: _ListedRoom, image: Path) -> Array:
    """Return corner points as shares of the picture.

    Points outside are moved to its edge, as in the challenge's toolkit.
    """
    height, width = record.resolution
    size = image_size(image)
    if size is not None and abs(size[0] * height - size[1] * width) > 0.04 * size[1] * width:
        allowed = f"must have the aspect ratio of its record, width {width} x height {height}"
        hint = "to omit this image, move it away and set missing=drop"
        raise InputError(str(image), f"{size[0]} x {size[1]} pixels", allowed, hint)
    return np.asarray((np.clip(np.rint(record.points), 1, (width, height)) - 0.5) / (width, height))


# Records


def _read_records(path: Path, need_points: bool) -> list[_ListedRoom]:
    """Read the records of a split. Fields are found by name, as copies differ in fields and in their order."""
    variables = read_mat(path)
    name = path.stem if path.stem in variables or len(variables) != 1 else next(iter(variables))
    needed = ("image", "type", "point", "resolution") if need_points else ("image", "type")
    hint = "the test images of the challenge have no public layouts"
    rows = enumerate(read_records(path, variables, name, needed, hint), start=1)
    records = [_record(path, row, record, need_points) for row, record in rows]
    if repeated := [name for name, count in Counter(record.name for record in records).items() if count > 1]:
        raise InputError(str(path), f"image {repeated[0]} appears twice")
    return records


def _record(path: Path, row: int, record: Any, need_points: bool) -> _ListedRoom:
    location = f"{path}: record {row}"
    name = _innermost(record["image"])
    if not isinstance(name, str) or not name:
        raise InputError(location, f"'image' is {name!r}", "must be a file name")
    location = f"{location} ({name})"
    kind = _innermost(record["type"])
    if not isinstance(kind, np.integer | np.floating) or not float(kind).is_integer():
        raise InputError(location, f"'type' is {kind!r}", "must be a whole number")
    kind, name = int(kind), name.removesuffix(".jpg")
    if not need_points or kind not in TYPES:
        return _ListedRoom(name, kind)
    points = np.asarray(record["point"])
    count = TYPES[kind].points
    if points.shape != (count, 2) or points.dtype.kind not in "uif" or not np.isfinite(points).all():
        problem = f"'point' is {points.dtype} {list(points.shape)}"
        raise InputError(location, problem, f"must be {count} points x, y for type {kind}")
    resolution = np.asarray(record["resolution"]).ravel()
    is_pair = resolution.shape == (2,) and resolution.dtype.kind in "uif"
    if not is_pair or not ((resolution >= 1) & (resolution <= MOST_PIXELS)).all():
        raise InputError(location, f"'resolution' is {resolution.tolist()}", "must be height and width")
    height, width = (int(length) for length in resolution)
    return _ListedRoom(name, kind, points.astype(np.float64), (height, width))


def _innermost(value: Any) -> Any:
    """Return the content of MATLAB's nested 1 x 1 arrays: a text, a number, or an array of several values."""
    while isinstance(value, np.ndarray):
        if value.size != 1:
            return value if value.size else ""
        value = value.ravel()[0]
    return str(value) if isinstance(value, str) else value
