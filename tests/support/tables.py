"""Tables of drawn dials with labels of every kind, as users have them."""

import csv
import json
import math

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {"red": "#c8321e", "green": "#2f8f4e", "blue": "#2b5fb0", "orange": "#e08a1e"}
SIZES = ("small", "medium", "large")


def dial(reading, colour, side=32):
    picture = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((2, 2, side - 3, side - 3), outline=COLOURS[colour], width=3)
    angle, middle, length = math.radians(135 + 2.7 * reading), side / 2, 0.36 * side
    tip = (middle + length * math.cos(angle), middle + length * math.sin(angle))
    pen.line((middle, middle, *tip), fill="black", width=2)
    return picture


def dials(folder, count=60, seed=0):
    """Images in folder/img, label maps in folder/maps, and rows of every kind of label."""
    random = np.random.default_rng(seed)
    (folder / "img").mkdir(parents=True, exist_ok=True)
    (folder / "maps").mkdir(exist_ok=True)
    rows = []
    for number in range(count):
        reading, colour = float(random.uniform(0, 100)), str(random.choice([*COLOURS]))
        picture = dial(reading, colour)
        picture.putpixel((0, 0), (number, number // 256, 255))  # no two images are the same
        picture.save(folder / "img" / f"{number:03}.png")
        halves = np.full((32, 32), 1, np.uint8)
        halves[:, : 4 + int(0.24 * reading)] = 0
        halves[:6] = 2
        Image.fromarray(halves).save(folder / "maps" / f"{number:03}.png")
        angle = math.radians(135 + 2.7 * reading)
        rows.append(
            {
                "image": f"img/{number:03}.png",
                "reading": f"{reading:.2f}",
                "colour": colour,
                "lat": f"{48 + reading / 50:.4f}",
                "lon": f"{7 + reading / 30:.4f}",
                "needle": json.dumps([round(math.cos(angle), 4), round(math.sin(angle), 4)]),
                "tags": ";".join(["round", colour, "high" if reading > 50 else "low"][: 2 + number % 2]),
                "text": f"a {colour} dial whose needle stands {'high' if reading > 50 else 'low'} near {reading:.0f}",
                "map": f"maps/{number:03}.png",
                "size": SIZES[min(2, int(reading / 34))],
                "grade": str(1 + int(reading / 20)),
                "maker": f"maker {number % 10}",
            }
        )
    return rows


def write_table(path, rows, columns=None, delimiter=",", encoding="utf-8"):
    columns = columns or list(rows[0])
    with path.open("w", newline="", encoding=encoding) as file:
        lines = csv.DictWriter(file, columns, delimiter=delimiter, extrasaction="ignore")
        lines.writeheader()
        lines.writerows(rows)
    return path


def write_items(folder, count=50):
    """A miniature for the configs: 40 rows to train on, split by a column."""
    rows = dials(folder, count)
    for number, row in enumerate(rows):
        row["split"] = "train" if number < count - 10 else "test"
    write_table(folder / "items.csv", rows, ["image", "reading", "colour", "split"])


def write_judgments(folder, count=50):
    """A miniature for the configs: judgments of groups of five items, 40 items to train on, split by a column."""
    random = np.random.default_rng(0)
    triplets, graded, scored = [], [], []
    names = [row["image"] for row in dials(folder, count)]
    for start in range(0, count, 5):
        group, part = names[start : start + 5], "train" if start < count - 10 else "test"
        for first in range(3):
            triplets.append([*group[first : first + 3], "xy"[random.integers(2)], part])
        graded += [[group[0], item, grade, part] for grade, item in enumerate(group[1:])]
        scored += [[group[a], group[b], 5 - b + a, part] for a, b in ((0, 1), (0, 2), (1, 4), (3, 0), (2, 4))]
    for name, header, rows in (
        ("triplets", "anchor,x,y,choice,split", triplets),
        ("rankings", "query,item,grade,split", graded),
        ("pairs", "a,b,score,split", scored),
    ):
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def suggested(task):
    """The config that a table suggests, and changes to it."""
    return task.suggested(task.train)
