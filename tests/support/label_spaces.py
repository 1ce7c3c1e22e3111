"""A small label space of every kind."""

import numpy as np
import torch

from contml import labels as spaces


class Matrix(spaces.LabelSpace):
    """Label distances from a matrix, without a search of its own."""

    unit = "steps"

    def __init__(self, matrix):
        super().__init__(row=torch.arange(len(matrix)))
        self.matrix = matrix

    def distances(self, x, y):
        return self.matrix[x.row][:, y.row]


def vectors(items=20):
    return spaces.VectorLabels(torch.randn(items, 2, generator=torch.Generator().manual_seed(0)))


def poses(**options):
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(20, 6, generator=generator) > 0.15
    visible[visible.sum(1) <= 3] = True
    return spaces.PoseLabels(300 * torch.rand(20, 6, 2, generator=generator), visible, **options)


def matrix_file(folder):
    np.save(folder / "distances.npy", vectors().pairwise().numpy())
    return spaces.MatrixLabels(folder / "distances.npy", unit="apples")


def edits(a, b):
    """Characters by which two numbers differ, written with three digits."""
    return sum(x != y for x, y in zip(f"{a:03}", f"{b:03}", strict=True))


def label_maps(**options):
    maps = np.random.default_rng(2).integers(0, 4, (20, 9, 7))
    maps[::3, 2:5, 2:5] = 9
    return spaces.SegmentationLabels(maps, 4, ignore=9, **options)


def captions(**options):
    words = ["dog", "cat", "runs", "red", "grass"]
    vectors = dict(zip(words, np.random.default_rng(3).normal(size=(5, 4)), strict=True))
    texts = [[f"a {words[i % 5]} {words[i % 3]}", f"{words[i % 4]} {i}"] for i in range(20)]
    return (
        spaces.CaptionVectorLabels(texts, vectors=vectors, **options)
        if options
        else spaces.CaptionLabels(texts, vectors)
    )


def tags():
    return spaces.TagLabels([[f"tag {t}" for t in range(9) if (i * 7 + t * t) % 4 == 0] for i in range(20)])


def judged(share=0.4, items=20, repeats=3, size=1 / 64):
    """Judged pairs of some of the items, in no order, the first ones several times; distances that float32 holds."""
    pairs = torch.triu_indices(items, items, 1).T
    generator = torch.Generator().manual_seed(4)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[: int(share * len(pairs))]]
    pairs = torch.cat((pairs, pairs[:repeats].flip(1), pairs[:repeats]))
    return spaces.PairLabels(pairs, size * torch.randint(1, 128, (len(pairs),), generator=generator), items, "points")


def with_gaps():
    """A sum of two labels, of which some items have only one and one has none."""
    present = torch.tensor([[True, False], [False, True], [True, True], [False, False]]).repeat(5, 1)
    return spaces.WeightedLabels({vectors(): 0.5, tags(): 2.0}, present=present)


#: Label spaces by the names of the tables `LABELS` and `BINARY_LABELS`, and variants of them: name -> make(folder).
SPACES = {
    "classes": lambda folder: spaces.ClassLabels([f"class {i % 5}" for i in range(20)]),
    "classes of ids": lambda folder: spaces.ClassLabels(torch.arange(20) % 7 * 3),
    "vectors": lambda folder: vectors(),
    "numbers": lambda folder: spaces.NumberLabels(torch.arange(20).flip(0)),
    "vectors, more than are checked": lambda folder: vectors(200),
    "teacher": lambda folder: spaces.TeacherLabels(torch.randn(20, 6, generator=torch.Generator().manual_seed(7))),
    "vectors, far from 0": lambda folder: spaces.VectorLabels(1e6 + torch.randn(20, 3)),
    "poses": lambda folder: poses(),
    "poses, normalized": lambda folder: poses(normalize=True),
    "poses, mirrored": lambda folder: poses(
        normalize=True, weights=[1, 2, 3, 4, 3, 2], saturation=0.6, mirror=[(1, 5), (2, 4)]
    ),
    "segmentation": lambda folder: label_maps(),
    "segmentation, not resized": lambda folder: label_maps(side=None),
    "captions": lambda folder: captions(),
    "caption_vectors": lambda folder: captions(encoder="tfidf", sets="minima"),
    "caption_vectors, mean_vector": lambda folder: captions(encoder="mean_vector"),
    "tags": lambda folder: tags(),
    "multi_hot": lambda folder: spaces.MultiHotLabels(torch.arange(20)[:, None] >> torch.arange(5) & 1),
    "multi_hot, hamming": lambda folder: spaces.MultiHotLabels(
        torch.arange(20)[:, None] >> torch.arange(5) & 1, "hamming"
    ),
    "ordinal": lambda folder: spaces.OrdinalLabels(["low", "high", "middle", "low"] * 5, ["low", "middle", "high"]),
    "geo": lambda folder: spaces.GeoLabels(torch.tensor([90.0, 180.0]) * (2 * torch.rand(20, 2) - 1)),
    "circular": lambda folder: spaces.CircularLabels(24 * torch.rand(20) - 2, 24),
    "sequences": lambda folder: spaces.SequenceLabels([f"{i**3:b}" for i in range(20)]),
    "weighted": lambda folder: spaces.WeightedLabels({vectors(): 0.5, tags(): 2.0, label_maps(): 1.0}),
    "weighted, with gaps": lambda folder: with_gaps(),
    "pairs": lambda folder: judged(),
    "pairs, all judged": lambda folder: judged(1.0),
    "nearest, of pairs": lambda folder: spaces.NearestLabels(judged(), 4),
    "threshold, of pairs": lambda folder: spaces.ThresholdLabels(judged(), 0.8),
    "dates": lambda folder: spaces.DateLabels(np.array("2024-02-27T12", "M8[h]") + 31 * np.arange(20)),
    "dates, years": lambda folder: spaces.DateLabels([f"20{n:02}-11-22" for n in range(20)], scale=365.25),
    "matrix": lambda folder: spaces.MatrixLabels(vectors().pairwise(), unit="pears"),
    "matrix, float64": lambda folder: spaces.MatrixLabels(vectors().pairwise().double().numpy()),
    "matrix, in a file": matrix_file,
    "function": lambda folder: spaces.FunctionLabels([n * n for n in range(20)], edits, unit="digits", name="edits"),
    "threshold": lambda folder: spaces.ThresholdLabels(vectors(), 1.0),
    "nearest": lambda folder: spaces.NearestLabels(vectors(), 4),
}


def space_of(values, unit=""):
    """The label space of numbers `[N]` or `[N, 1]`, or of vectors `[N, D]`."""
    return (
        spaces.NumberLabels(values.flatten(), unit)
        if values.numel() == len(values)
        else spaces.VectorLabels(values, unit)
    )
