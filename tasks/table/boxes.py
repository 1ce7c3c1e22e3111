"""Boxes in the images of a table: each row is the part of its image inside its box."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contml import InputError
from contml.data.tables import Table

from .kinds import label_parts
from .label import Array, Cells, Reading

#: Kinds of labels that describe the whole image.
_OF_IMAGES = ("map", "pose", "teacher")


def with_boxes(table: Table, box: str, reading: Reading) -> Table:
    """Return the table without its columns of boxes, and with the `boxes` of its rows.

    Args:
        table: the table.
        box: four columns x, y, w, h with commas, or one column of lists [x, y, w, h]. Boxes are in pixels.
        reading: the options of the task.

    Raises:
        InputError: the column is missing, a cell is not a number, or boxes are fractions of the image.
    """
    columns = [box] if box in table.columns else [name.strip() for name in box.split(",")]
    found = {name: table.column(name, "the box", "box") for name in columns}
    part = label_parts({box: "vector"})[box]
    with part.errors():
        values = Cells(part, replace(table, columns=found), [], reading).vectors()
    if values.shape[1] != 4:
        raise InputError("box", f"{values.shape[1]} numbers in {box}", "must be x, y, width and height")
    known = values[~np.isnan(values).any(1)]
    if len(known) and known.max() <= 1:
        raise InputError("box", f"all numbers of {box} are at most 1", "must be pixels, not shares of the image")
    others = {name: column for name, column in table.columns.items() if name not in found}
    return replace(table, columns=others, boxes=values)


def box_problem(boxes: Array) -> tuple[Array, str]:
    """Return a mask `[N]` of the boxes `[N, 4]` that show nothing of an image, and the requirement for a box."""
    invalid = ~((boxes[:, 2:] > 0) & (boxes[:, :2] + boxes[:, 2:] > 0)).all(1)
    return np.asarray(invalid), "a box needs a width and a height above 0, and some of it in the image"


def describe_boxes(boxes: Array) -> str:
    """Describe the sizes of boxes `[N, 4]`, with a hint if the numbers look like corners."""
    low, high = boxes[:, 2:].min(0), boxes[:, 2:].max(0)
    text = f"crops of {low[0]:g} to {high[0]:g} x {low[1]:g} to {high[1]:g} pixels, cut at the edges of the image"
    if len(boxes) >= 10 and bool((boxes[:, 2:] > boxes[:, :2]).all()):
        text += "; if the last two numbers are the right and the bottom edge, subtract x and y from them"
    return text


def refuse_kinds_of_images(kinds: dict[str, str]) -> None:
    """Refuse labels of the whole image in a table with boxes.

    Args:
        kinds: the kind of each label by its name.

    Raises:
        InputError: a label describes the whole image.
    """
    for name, kind in kinds.items():
        if kind in _OF_IMAGES:
            raise InputError("box", f"used with {name}, a label of the kind {kind}", "which describes whole images")
