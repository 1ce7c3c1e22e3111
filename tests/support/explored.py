"""What a page shows of four items whose names and labels are HTML."""

import math

import numpy as np
import torch

from contml.app.explore import Explored, ItemNeighbours, ModelView
from contml.contracts import PLAIN, Colours
from contml.data import Split
from contml.data.sources import Pixels
from contml.labels import NumberLabels, PoseLabels
from support.labelled import labelled_items

NAMES = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "line\nbreak\u2028", "broken \udcff utf"]


def hostile(texts=NAMES, names=NAMES, sources=None, **options):
    labels = NumberLabels([0.0, 1.0, 2.0, 4.0])
    sources = sources or [Pixels(np.full((8, 12, 3), 60 * row, np.uint8)) for row in range(4)]
    rows = torch.tensor([[1, 2], [0, 2], [1, 0], [2, 1]])
    near = ItemNeighbours(rows, torch.ones(4, 2).double(), torch.ones(4, 2))
    means = torch.tensor([[3.0, 1], [2, 1], [math.nan, math.nan], [9, 1]], dtype=torch.float64)
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    view = ModelView("<i>run</i>", None, torch.eye(4), points, near, near, means)
    colours = Colours(torch.arange(4), "label", list(names))
    about = {
        "views": [view],
        "unit": "<u>",
        "measure": labels.measure,
        "error_k": 2,
        "colours": colours,
        "notes": ["<p>"],
    }
    return Explored("<title>&", Split(sources, list(names), labels), list(texts), **{**about, **options})


def searchable(train, items, k=3, dim=5, **options):
    """A page of items with labels, and training items by which it searches; embeddings are drawn at random."""
    generator = torch.Generator().manual_seed(7)
    vectors = torch.randn(len(train), dim, generator=generator), torch.randn(len(items), dim, generator=generator)
    labelled = labelled_items(train, vectors[0], k)
    n, gallery = len(items), torch.arange(0, len(items), 2)
    rows = torch.tensor([[g for g in gallery.tolist() if g != row][: min(4, len(gallery) - 1)] for row in range(n)])
    near = ItemNeighbours(rows, torch.ones(rows.shape).double(), torch.ones(rows.shape))
    means, points = torch.ones(n, 2, dtype=torch.float64), vectors[1][:, :2].numpy()
    view = ModelView("run", None, vectors[1], points, near, near, means)
    sources = [Pixels(np.full((8, 8, 3), 5 * row, np.uint8)) for row in range(n)]
    split = Split(sources, [f"item {row}" for row in range(n)], items, torch.arange(1, n, 2), gallery)
    colours = Colours(torch.arange(n), "label")
    about = {"unit": items.unit, "measure": items.measure, "error_k": 2, "colours": colours, "labelled": [labelled]}
    return Explored("page", split, [""] * n, [view], **{**about, **options})


JOINTS = ("head", "neck", "left_hand", "right_hand", "hip", "left_foot", "right_foot")
LIMBS = [(0, 1), (1, 2), (1, 3), (1, 4), (4, 5), (4, 6)]


def poses(count, seed, axes=2, hidden=False, **options):
    """Drawn poses of seven joints; hidden: some joints are not visible."""
    generator = torch.Generator().manual_seed(seed)
    visible = torch.ones(count, 7, dtype=torch.bool)
    if hidden:
        visible = torch.rand(count, 7, generator=generator) > 0.25
        visible[visible.sum(1) <= 3] = True
    labels = PoseLabels(
        90 * torch.rand(count, 7, axes, generator=generator), visible, skeleton=LIMBS, dim=axes, **options
    )
    labels.part_names = JOINTS
    return labels


def numbers(count, seed, measure=PLAIN):
    """Drawn numbers."""
    labels = NumberLabels(torch.randn(count, generator=torch.Generator().manual_seed(seed)))
    labels.measure = measure
    return labels
