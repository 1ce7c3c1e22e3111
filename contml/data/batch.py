"""One batch: its images read and cropped, and the augmentation, a function of seed, epoch, step and row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from contml._support.errors import InputError
from contml.data.decode import BrokenError, cause, resized
from contml.data.kept import Kept
from contml.data.split import Split
from contml.data.transforms import Pixels, Transform, centre

#: What is mirrored in training, half of the time: a whole batch, so that label distances inside it stay; each image.
Flip: TypeAlias = Literal["batch", "image", "none"]

# First numbers of the seeds, so that the two kinds of draws never share a stream.
_FLIP, _CROP = 1, 2


class Batch(NamedTuple):
    """Images uint8 `[b, 3, crop, crop]`, or features float32 `[b, F]`, and where they are from.

    `rows` `[b]` are the rows of the split, `positions` `[b]` those in the sampler's whole batch, both int64. `skipped`
    images of the batch were broken and left out; the others keep their order. The sampler's anchors are the positions
    below `sampler.anchors`.
    """

    images: Tensor
    rows: Tensor
    step: int
    skipped: int
    positions: Tensor


class Request(NamedTuple):
    """Which rows make a batch."""

    step: int
    rows: list[int]
    offset: int  # position of the first row in the whole batch
    seed: tuple[int, int, int] | None  # seed, epoch, step; None: no augmentation


class Result(NamedTuple):
    """A batch, or what is wrong with it."""

    batch: Batch
    broken: list[tuple[str, str]]  # name, cause
    error: str = ""  # an InputError to raise


@dataclass(frozen=True)
class Decoder(data.Dataset[Result]):
    """Requests to batches. It runs in the workers, so it returns what is wrong: torch would wrap it in a traceback.

    `kept`: resized images of the split that need no decoding.
    """

    split: Split
    resize: int
    crop: int
    transform: Transform
    flip: Flip
    kept: Kept | None = None

    def __getitem__(self, request: Request) -> Result:
        try:
            return self._result(request)
        except InputError as error:
            none = torch.empty(0, dtype=torch.int64)
            return Result(Batch(torch.empty(0, dtype=torch.uint8), none, request.step, 0, none), [], str(error))

    def _features(self, request: Request) -> Result:
        """Features in place of images: nothing is decoded or augmented."""
        values = np.stack([np.asarray(self.split.image(row), np.float32) for row in request.rows])
        positions = torch.arange(len(request.rows))
        rows = torch.tensor(request.rows, dtype=torch.int64)
        return Result(Batch(torch.from_numpy(values), rows, request.step, 0, positions + request.offset), [])

    def _result(self, request: Request) -> Result:
        if self.split.feature_dim is not None and request.rows:
            return self._features(request)
        images: Pixels = np.empty((len(request.rows), 3, self.crop, self.crop), np.uint8)
        kept: list[int] = []
        broken: list[tuple[str, str]] = []
        for position, row in enumerate(request.rows):
            image = None if self.kept is None else self.kept.get(row)
            try:
                if image is None:
                    image = resized(self.split.image(row), self.split.name(row), self.resize)
            except (BrokenError, OSError) as error:  # OSError: of a split that reads files itself
                broken.append((self.split.name(row), cause(error)))
                continue
            if request.seed is None:
                image = centre(image, self.crop)
            else:
                image = self.transform(image, np.random.default_rng([_CROP, *request.seed, row]))
                if self.flip == "image" and np.random.default_rng([_FLIP, *request.seed, row]).random() < 0.5:
                    image = image[:, ::-1]
            images[len(kept)] = image.transpose(2, 0, 1)
            kept.append(position)
        pixels = images[: len(kept)]
        if self.flip == "batch" and request.seed and np.random.default_rng([_FLIP, *request.seed]).random() < 0.5:
            pixels = pixels[..., ::-1].copy()  # of no images numpy takes any strides for contiguous
        positions = torch.tensor(kept, dtype=torch.int64)
        batch = Batch(
            torch.from_numpy(pixels),
            torch.tensor(request.rows, dtype=torch.int64)[positions],
            request.step,
            len(broken),
            positions + request.offset,
        )
        return Result(batch, broken)
