"""One batch of images: decoded, augmented and stacked. Augmentation is a function of (seed, epoch, step, row)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from contml._support.errors import InputError
from contml.data.cache import CachedImages
from contml.data.decode import PixelArray, cause, resized
from contml.data.split import Split
from contml.data.transforms import Transform, centre

#: What training flips with probability 1/2: whole batches, so that label distances in a batch stay valid, or each
#: image.
Flip: TypeAlias = Literal["batch", "image", "none"]

# First numbers of the seeds, so that flips and crops never share a random stream.
_FLIP, _CROP = 1, 2


class Batch(NamedTuple):
    """Images uint8 `[b, 3, crop, crop]`, or features float32 `[b, F]`, and their rows.

    `rows` `[b]` are rows of the split and `positions` `[b]` positions in the sampler's batch, both int64. `skipped` is
    the number of broken images that were left out; the order of the others is unchanged. The sampler's anchors are the
    positions below `sampler.anchors`.
    """

    images: Tensor
    rows: Tensor
    step: int
    skipped: int
    positions: Tensor


class Request(NamedTuple):
    """The rows of a batch, and the seed of its augmentation."""

    step: int
    rows: list[int]
    offset: int  # position of the first row in the sampler's batch
    seed: tuple[int, int, int] | None  # seed, epoch, step; None: no augmentation

    def batch(self, images: np.ndarray[Any, Any], positions: list[int]) -> Batch:
        """Returns the batch of the images that could be read; `positions`: their positions in `rows`."""
        valid_positions = torch.tensor(positions, dtype=torch.int64)
        rows = torch.tensor(self.rows, dtype=torch.int64)[valid_positions]
        skipped = len(self.rows) - len(positions)
        return Batch(torch.from_numpy(images), rows, self.step, skipped, valid_positions + self.offset)


class BatchResult(NamedTuple):
    """A batch, and the name and the cause of each broken image that it lacks."""

    batch: Batch
    broken: list[tuple[str, str]]


@dataclass
class SplitFeatures:
    """The features of a split by a frozen backbone.

    Attributes:
        split: the split.
        values: features `[N, F]`; 0 of a broken image.
        broken: the cause of each broken image, by row.
    """

    split: Split
    values: Tensor
    broken: dict[int, str] = field(default_factory=dict)

    def take(self, cached: CachedImages, broken: Mapping[str, str]) -> list[int]:
        """Takes what a cache has; returns the rows whose features are damaged. `broken`: causes by name."""
        damaged = []
        for row in range(len(self.split)):
            if cached.is_broken(row):
                self.broken[row] = broken[self.split.name(row)]
            elif (values := cached.get(row)) is None:
                damaged.append(row)
            else:
                self.values[row] = torch.from_numpy(values)
        return damaged

    def batch(self, request: Request) -> BatchResult:
        """The batch of a request, without broken images."""
        positions = [n for n, row in enumerate(request.rows) if row not in self.broken]
        values = self.values[[request.rows[n] for n in positions]].numpy()
        broken = [(self.split.name(row), self.broken[row]) for row in request.rows if row in self.broken]
        return BatchResult(request.batch(values, positions), broken)


@dataclass(frozen=True)
class BatchDecoder(data.Dataset["BatchResult | InputError"]):
    """Makes the batch of each request, in the worker processes.

    Errors are returned and not raised: torch would wrap them in a traceback.
    """

    split: Split
    resize: int
    crop: int
    transform: Transform
    flip: Flip
    cached: CachedImages | SplitFeatures | None = None

    @property
    def has_features(self) -> bool:
        """Whether batches have features in place of images."""
        return self.split.feature_dim is not None or isinstance(self.cached, SplitFeatures)

    def __getitem__(self, request: Request) -> BatchResult | InputError:
        try:
            if isinstance(self.cached, SplitFeatures):
                return self.cached.batch(request)
            if self.split.feature_dim is not None:
                return self._features(request)
            return self._images(request, self.cached)
        except InputError as error:
            return error

    def _features(self, request: Request) -> BatchResult:
        """Features in place of images are not decoded or augmented."""
        values = np.stack([np.asarray(self.split.image(row), np.float32) for row in request.rows])
        return BatchResult(request.batch(values, [*range(len(request.rows))]), [])

    def _images(self, request: Request, cached: CachedImages | None) -> BatchResult:
        images: PixelArray = np.empty((len(request.rows), 3, self.crop, self.crop), np.uint8)
        positions: list[int] = []
        broken: list[tuple[str, str]] = []
        for position, row in enumerate(request.rows):
            try:
                image = None if cached is None else cached.get(row)
                if image is None:
                    image = resized(self.split.image(row), self.split.name(row), self.resize)
            except OSError as error:
                broken.append((self.split.name(row), cause(error)))
                continue
            if request.seed is None:
                image = centre(image, self.crop)
            else:
                image = self.transform(image, np.random.default_rng([_CROP, *request.seed, row]))
                if self.flip == "image" and _is_flipped(*request.seed, row):
                    image = image[:, ::-1]
            images[len(positions)] = image.transpose(2, 0, 1)
            positions.append(position)
        images = images[: len(positions)]
        if self.flip == "batch" and request.seed and _is_flipped(*request.seed):
            images = images[..., ::-1].copy()  # torch takes no negative strides
        return BatchResult(request.batch(images, positions), broken)


def _is_flipped(*seed: int) -> bool:
    return bool(np.random.default_rng([_FLIP, *seed]).random() < 0.5)
