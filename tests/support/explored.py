"""What a page shows of four items whose names and labels are HTML."""

from __future__ import annotations

import math

import numpy as np
import torch

from contml.contracts import Colours
from contml.data import Split
from contml.data.sources import Pixels
from contml.explore import Explored, ItemNeighbours, ModelView
from contml.labels import VectorLabels

NAMES = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "line\nbreak\u2028", "broken \udcff utf"]


def hostile(texts=NAMES, names=NAMES, sources=None, **options):
    labels = VectorLabels([0.0, 1.0, 2.0, 4.0])
    sources = sources or [Pixels(np.full((8, 12, 3), 60 * row, np.uint8)) for row in range(4)]
    rows = torch.tensor([[1, 2], [0, 2], [1, 0], [2, 1]])
    near = ItemNeighbours(rows, torch.ones(4, 2).double(), torch.ones(4, 2))
    means = torch.tensor([[3.0, 1], [2, 1], [math.nan, math.nan], [9, 1]], dtype=torch.float64)
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    view = ModelView("<i>run</i>", None, torch.eye(4), points, near, near, means)
    colours = Colours(torch.arange(4), "label", list(names))
    about = {"views": [view], "unit": "<u>", "error_k": 2, "colours": colours, "notes": ["<p>"]}
    split = Split(sources, list(names), labels)
    return Explored("<title>&", split, list(texts), **{**about, **options})
