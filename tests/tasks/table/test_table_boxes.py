"""Rows of a table that are boxes in images: crops, names, splits, objects of COCO, and what is refused."""

import json

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused, refuses

from contml.tasks.table.file import file

COUNT, PER_IMAGE = 12, 3


def boxes():
    """x, y, width and height of three boxes in each image, whose red is the number of the row."""
    random = np.random.default_rng(0)
    places = [20 * place for _ in range(COUNT) for place in range(PER_IMAGE)]
    return [(x + int(random.integers(6)), int(random.integers(6)), *random.integers(5, 12, 2).tolist()) for x in places]


@pytest.fixture
def folder(tmp_path):
    for number in range(COUNT):
        pixels = np.zeros((30, 60, 3), np.uint8)
        for place in range(PER_IMAGE):
            row = PER_IMAGE * number + place
            x, y, w, h = boxes()[row]
            pixels[y : y + h, x : x + w] = row + 1, 10, 20
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    write(tmp_path)
    return tmp_path


def write(folder, boxes=boxes()):  # noqa: B008
    rows = ["image,x,y,w,h,red,box"]
    for row, (x, y, w, h) in enumerate(boxes):
        rows.append(f'{row // PER_IMAGE}.png,{x},{y},{w},{h},{row + 0.5},"[{x}, {y}, {w}, {h}]"')
    (folder / "items.csv").write_text("\n".join(rows))


def task(folder, box="x,y,w,h", label="red=number", data="items.csv", **options):
    name, _, kind = label.partition("=")
    return file(str(folder / data), {name: kind or "class"}, table={"box": box}, **options)


@pytest.mark.parametrize("box", ["x,y,w,h", "x, y, w, h", "box"])
def test_each_row_is_the_part_of_its_image_in_its_box(folder, box):
    made = task(folder, box)
    images = {split: {name.rpartition("#")[0] for name in made.splits[split].names} for split in made.splits}
    assert not images["train"] & images["test"]
    for split in made.splits.values():
        for row, name in enumerate(split.names):
            image, number = name.split("/")[-1].split(".png#")
            expected = PER_IMAGE * int(image) + int(number) - 1
            picture = np.asarray(split.image(row))
            assert picture.shape[:2] == boxes()[expected][:1:-1]
            assert (picture == (expected + 1, 10, 20)).all()
            assert split.labels.plain(row) == pytest.approx(expected + 0.5)
    line = next(line for line in made.columns if line[1] == "box")
    assert line[0] == box
    assert line[3].startswith("crops of 5 to 11 x 5 to 11 pixels")


def test_boxes_are_cut_at_the_edges_of_the_image(folder):
    write(folder, [(-2, 25, 8, 10), *boxes()[1:]])
    made = task(folder)
    split, row = next((s, s.names.index("0.png#1")) for s in made.splits.values() if "0.png#1" in s.names)
    assert np.asarray(split.image(row)).shape == (5, 6, 3)


def test_objects_of_coco_are_a_row_each(folder):
    images = [{"id": n, "file_name": f"{n}.png", "width": 60, "height": 30} for n in range(COUNT)]
    objects = [
        {"id": row, "image_id": row // PER_IMAGE, "category_id": row % 2, "bbox": [*box], "iscrowd": int(row == 5)}
        for row, box in enumerate(boxes())
    ]
    content = {"images": images, "annotations": objects, "categories": [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]}
    (folder / "instances.json").write_text(json.dumps(content))
    made = task(folder, "bbox", "category", "instances.json")
    names = [name for split in made.splits.values() for name in split.names]
    assert len(names) == COUNT * PER_IMAGE - 1
    assert {"1.png#1", "1.png#2"} <= {*names}
    assert "1.png#3" not in names
    del objects[7]["bbox"]
    (folder / "instances.json").write_text(json.dumps(content))
    refused(lambda: task(folder, "bbox", "category", "instances.json"), "annotation 7", "no bbox")


@pytest.mark.parametrize(
    ("row", "box", "words"),
    [
        (4, (3, 3, 0, 5), ("items.csv:6", "width and a height above 0")),
        (4, (3, 3, 5, -5), ("items.csv:6", "width and a height above 0")),
        (4, (-9, 3, 5, 5), ("items.csv:6", "some of it in the image")),
        (4, (3, "", 5, 5), ("items.csv:6", "no box")),
        (4, (3, "top", 5, 5), ("items.csv:6: y", "'top'")),
    ],
)
def test_a_box_that_shows_nothing_is_refused_or_dropped(folder, row, box, words):
    write(folder, [*boxes()[:row], box, *boxes()[row + 1 :]])
    refused(lambda: task(folder), *words)
    if box[1] != "top":
        names = [name for split in task(folder, missing="drop").splits.values() for name in split.names]
        assert len(names) == COUNT * PER_IMAGE - 1
        assert "1.png#2" not in names


def test_what_is_no_box_is_refused(folder):
    for box, words in (("x,y,w", "3 numbers"), ("x,y,w,z", "no such column"), ("red", "1 numbers")):
        with pytest.raises(Exception, match=words):
            task(folder, box)
    write(folder, [tuple(each / 60 for each in box) for box in boxes()])
    refused(lambda: task(folder), "box", "at most 1", "must be pixels")
    write(folder, [(x, y, x + w, y + h) for x, y, w, h in ((x + 1, y + 1, w, h) for x, y, w, h in boxes())])
    line = next(line for line in task(folder).columns if line[1] == "box")
    assert "subtract x and y" in line[3]


def test_labels_of_whole_images_are_refused(folder):
    (folder / "run").mkdir()
    with refuses("box", "red, a label of the kind teacher", "whole images"):
        file(str(folder / "items.csv"), {"red": "teacher:run"}, table={"box": "box"})
