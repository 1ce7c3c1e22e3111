"""One batch of images: decoded, augmented and stacked. Augmentation is a function of (seed, epoch, step, row)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.data.cache import CachedImages
from contml.data.decode import PixelArray, cause, resized
from contml.data.split import Batch, Split
from contml.data.transforms import Box, CropTransform, Transform, centre

#: What training flips with probability 1/2: whole batches, so that label distances in a batch stay valid, or each
#: image.
Flip: TypeAlias = Literal["batch", "image", "none"]

# First numbers of the seeds, so that flips and crops never share a random stream.
_FLIP, _CROP = 1, 2


class Request(NamedTuple):
    """The rows of a batch, and the seed of its augmentation."""

    step: int
    rows: list[int]
    offset: int  # position of the first row in the sampler's batch
    seed: tuple[int, int, int] | None  # seed, epoch, step; None: no augmentation

    def batch(self, images: Tensor, positions: list[int]) -> Batch:
        """Returns the batch of the images that could be read; `positions`: their positions in `rows`."""
        valid_positions = torch.tensor(positions, dtype=torch.int64)
        rows = torch.tensor(self.rows, dtype=torch.int64)[valid_positions]
        skipped = len(self.rows) - len(positions)
        return Batch(images, rows, self.step, skipped, valid_positions + self.offset)


class Decoded(NamedTuple):
    """The positions of the images that were decoded, and the name and the cause of each that is broken."""

    positions: list[int]
    broken: list[tuple[str, str]]


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
        values = self.values[[request.rows[n] for n in positions]]
        broken = [(self.split.name(row), self.broken[row]) for row in request.rows if row in self.broken]
        return BatchResult(request.batch(values, positions), broken)


@dataclass(frozen=True)
class BatchDecoder:
    """Makes the images of batches: decoded, cropped and flipped, or features in their place."""

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

    def batch(self, request: Request) -> BatchResult:
        """Returns the batch of a request."""
        if isinstance(self.cached, SplitFeatures):
            return self.cached.batch(request)
        if self.split.feature_dim is not None:  # features in place of images are not decoded or augmented
            values = np.stack([np.asarray(self.split.image(row), np.float32) for row in request.rows])
            return BatchResult(request.batch(torch.from_numpy(values), [*range(len(request.rows))]), [])
        images = self.empty(len(request.rows))
        decoded = self.decode(request.rows, request.seed, images)
        return BatchResult(request.batch(images[: len(decoded.positions)], decoded.positions), decoded.broken)

    def empty(self, *counts: int) -> Tensor:
        """Memory for images: uint8 `[*counts, 3, crop, crop]`."""
        return torch.empty((*counts, 3, self.crop, self.crop), dtype=torch.uint8)

    def decode(self, rows: list[int], seed: tuple[int, int, int] | None, images: Tensor) -> Decoded:
        """Writes the images of some rows of a batch, without broken ones, to the first of `images`.

        seed: seed, epoch, step; None: no augmentation.
        """
        from contml.data._resampling import crop_planes  # here: it imports numba

        out: PixelArray = images.numpy()
        decoded = Decoded([], [])
        # Drawn before the first image: between two images, whose pixels fill the processor's cache, it takes longer.
        draws = [self._draw(seed, row) for row in rows]
        flip_batch = self.flip == "batch" and seed is not None and _is_flipped(*seed)
        for position, (row, (drawn, flip)) in enumerate(zip(rows, draws, strict=True)):
            try:
                image = None if not isinstance(self.cached, CachedImages) else self.cached.get(row)
                if image is None:
                    image = resized(self.split.image(row), self.split.name(row), self.resize)
            except OSError as error:
                decoded.broken.append((self.split.name(row), cause(error)))
                continue
            if isinstance(drawn, np.random.Generator):
                image, box = self._transformed(image, drawn), (0, 0, self.crop)
            else:
                box = drawn
            crop_planes(image, box, flip or flip_batch, out[len(decoded.positions)])
            decoded.positions.append(position)
        return decoded

    def _draw(self, seed: tuple[int, int, int] | None, row: int) -> tuple[Box | np.random.Generator, bool]:
        """Returns the box of a row, or the generator for another transform, and whether this image is flipped."""
        if seed is None:
            return centre(self.resize, self.crop), False
        generator = np.random.default_rng([_CROP, *seed, row])
        flip = self.flip == "image" and _is_flipped(*seed, row)
        if type(self.transform) is CropTransform:  # a subclass may do more
            return self.transform.box(generator), flip
        return generator, flip

    def _transformed(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """The result of a transform that is not ours, checked."""
        pixels: Any = self.transform(image, generator)
        shape = (self.crop, self.crop, 3)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != shape:
            is_array = isinstance(pixels, np.ndarray)
            got = f"{pixels.dtype} {list(pixels.shape)}" if is_array else f"a {type(pixels).__name__}"
            raise InputError("transform", f"returned {got}", f"must return a numpy array, uint8 {list(shape)}")
        return pixels


def load_compiled() -> None:
    """Loads what numba compiled, or compiles it."""
    from contml.data._resampling import resize  # here: it imports numba

    resize(np.zeros((1, 1, 3), np.uint8), 1)


def _is_flipped(*seed: int) -> bool:
    return bool(np.random.default_rng([_FLIP, *seed]).random() < 0.5)
