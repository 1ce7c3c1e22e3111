"""Drawn rooms in the official files of LSUN room layout, and label maps in plain folders."""

import itertools

import numpy as np
from PIL import Image
from scipy.io import savemat

from contml.tasks.layout.drawn_rooms import draw_room
from contml.tasks.layout.views import CEILING, FLOOR, FRONTAL, LEFT, RIGHT

from .tables import write_table

F, L, R, G, C = FRONTAL, LEFT, RIGHT, FLOOR, CEILING
#: The surfaces that meet at each point of a layout type, in the order of RoomLayoutTypes.m of the challenge: three at a
#: corner; two where their border leaves the picture, with the side of the picture if both ends leave it.
POINTS = {
    0: [(F, L, C), (L, C), (F, L, G), (L, G), (F, R, G), (R, G), (F, R, C), (R, C)],
    1: [(F, L, G), (F, L), (L, G), (F, R, G), (F, R), (R, G)],
    2: [(F, L, C), (L, C), (F, L), (F, R, C), (R, C), (F, R)],
    3: [(L, R, C), (L, C), (L, R), (R, C)],
    4: [(L, R, G), (L, G), (L, R), (R, G)],
    5: [(L, R, C), (L, C), (R, C), (L, R, G), (L, G), (R, G)],
    6: [(F, C, "left"), (F, C, "right"), (F, G, "left"), (F, G, "right")],
    7: [(L, F, "top"), (L, F, "bottom"), (F, R, "top"), (F, R, "bottom")],
    8: [(F, C, "left"), (F, C, "right")],
    9: [(F, G, "left"), (F, G, "right")],
    10: [(L, R, "top"), (L, R, "bottom")],
}
_SEEN = {
    tuple(sorted({s for point in points for s in point if not isinstance(s, str)})): kind
    for kind, points in POINTS.items()
}


def surfaces_of(layout):
    """Ids of the visible surfaces of a layout type."""
    return frozenset({layout.rest, *layout.lines})


def corner_points(labels):
    """Layout type and points `[n, 2]` (x, y from 0 to 1) of a map in canonical ids; None if a corner is not visible."""
    kind = _SEEN[tuple(np.unique(labels).tolist())]
    size = len(labels)
    blocks = np.stack([labels[:-1, :-1], labels[1:, :-1], labels[:-1, 1:], labels[1:, 1:]], 2)  # [S-1,S-1,4]
    edge = {"top": labels[0], "bottom": labels[-1], "left": labels[:, 0], "right": labels[:, -1]}
    points = []
    for point in POINTS[kind]:
        surfaces = {s for s in point if not isinstance(s, str)}
        if len(surfaces) == 3:
            meets = np.all([(blocks == surface).any(2) for surface in surfaces], 0)
            found = [(x + 1, y + 1) for y, x in np.argwhere(meets)]
            if not found:
                return None
            points.append(np.mean(found, 0))
            continue
        found = []
        for side, line in edge.items():
            steps = np.flatnonzero([{a, b} == surfaces for a, b in itertools.pairwise(line)]) + 1
            far = {"top": 0, "bottom": size, "left": 0, "right": size}[side]
            if isinstance(point[-1], int) or side == point[-1]:
                found += [(k, far) if side in ("top", "bottom") else (far, k) for k in steps]
        if len(found) != 1:
            return None
        points.append(found[0])
    return kind, np.array(points, float) / size


def write_lsun(folder, train=12, validation=6, originals=True, relabelled=False, seed=0):
    """Write a miniature of the published files; returns size, type, points and canonical map of each image."""
    random = np.random.default_rng(seed)
    truth = {}
    index = 0
    for part, short, count in (("training", "train", train), ("validation", "val", validation)):
        records = []
        while len(records) < count:
            index += 1
            pixels, labels = draw_room(seed, index, 160)
            if (found := corner_points(labels)) is None:
                continue
            kind, places = found
            width, height = random.integers(60, 120, 2).tolist()
            name = f"sun_{index:04d}"
            rows, columns = ((2 * np.arange(n) + 1) * 160 // (2 * n) for n in (height, width))
            canonical = labels[rows[:, None], columns]
            points = places * (width, height) + 0.5
            truth[name] = (width, height), kind, points, canonical
            picture = Image.fromarray(pixels).resize((width, height))
            if originals:
                _save(folder / "images" / f"{name}.jpg", picture)
                numbers = np.concatenate(([0], random.permutation(5) + 1))[canonical]
                (folder / "layout_seg").mkdir(exist_ok=True, parents=True)
                stored = numbers.astype(np.uint8 if index % 2 else float)
                savemat(folder / "layout_seg" / f"{name}.mat", {"layout": stored})
            if relabelled:
                beside = folder / "surface_relabel" / short
                _save(beside / f"{name}.jpg", picture)
                savemat(beside / f"{name}.mat", {"layout": canonical.astype(np.uint8 if index % 2 else float)})
            records.append((name, "bedroom", kind, points, (height, width)))
        if originals:
            write_records(folder / f"{part}.mat", records)
    return truth


def write_records(path, records, fields=("image", "scene", "type", "point", "resolution"), variable=None):
    """`training.mat` or `validation.mat`: a 1 x N struct array."""
    table = np.zeros((1, len(records)), dtype=[(field, object) for field in fields])
    for column, record in enumerate(records):
        for field, value in zip(("image", "scene", "type", "point", "resolution"), record, strict=True):
            if field in fields:
                table[0, column][field] = np.array([value]) if field == "resolution" else value
    savemat(path, {variable or path.stem: table})


def write_label_maps(folder, items=60, classes=12):
    """Images with one colour per class and their label maps; `pairs.csv` and `classes.csv` as in the real data."""
    random = np.random.default_rng(0)
    colours = random.integers(0, 255, (classes, 3))
    rows = []
    for index in range(items):
        labels = random.integers(0, classes, (3, 4)).repeat(8, 0).repeat(8, 1)
        _save(folder / "images" / f"{index:03d}.png", Image.fromarray(colours[labels].astype(np.uint8)))
        _save(folder / "labels" / f"{index:03d}.png", Image.fromarray(labels.astype(np.uint8)))
        split = "train" if index < items * 2 // 3 else "test"
        rows.append({"image": f"images/{index:03d}.png", "label": f"labels/{index:03d}.png", "split": split})
    groups = ["void", "wall", "floor", "object", "ceiling", "wall_mounted", "floor_cover"]
    groups += ["object"] * (classes - len(groups))
    write_table(folder / "pairs.csv", rows)
    write_table(folder / "classes.csv", [{"label_id": k, "name": f"c{k}", "surface": g} for k, g in enumerate(groups)])


def _save(path, picture):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
