"""One batch: its images read and cropped, and the augmentation, a function of seed, epoch, step and row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import data

from contml._support.errors import InputError
from contml.contracts import Split
from contml.images.decode import BrokenError, Pixels, cause, resized
from contml.images.kept import Kept

# First numbers of the seeds, so that the two kinds of draws never share a stream.
_FLIP, _CROP = 1, 2


class Batch(NamedTuple):
    """Images uint8 `[b, 3, crop, crop]`, their rows `[b]` and positions `[b]` in the sampler's whole batch (int64).

    `skipped` images of the batch were broken and left out; the others keep their order. The sampler's anchors are the
    positions below `sampler.anchors`.
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
    scale_jitter: int
    shift: int
    flip: bool
    kept: Kept | None = None

    def __getitem__(self, request: Request) -> Result:
        try:
            return self._result(request)
        except InputError as error:
            none = torch.empty(0, dtype=torch.int64)
            return Result(Batch(torch.empty(0, dtype=torch.uint8), none, request.step, 0, none), [], str(error))

    def _result(self, request: Request) -> Result:
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
            images[len(kept)] = cut(image, self._box(request.seed, row), self.crop).transpose(2, 0, 1)
            kept.append(position)
        pixels = images[: len(kept)]
        if self.flip and request.seed and np.random.default_rng([_FLIP, *request.seed]).random() < 0.5:
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

    def _box(self, seed: tuple[int, int, int] | None, row: int) -> tuple[int, int, int]:
        """Left, top, side of a crop, in whole pixels of the resized image: equal sizes are copied, not resampled."""
        side, right, down = self.crop, 0, 0
        if seed and (self.scale_jitter or self.shift):
            random = np.random.default_rng([_CROP, *seed, row])
            side += int(random.integers(-self.scale_jitter, self.scale_jitter, endpoint=True))
            right, down = (int(d) for d in random.integers(-self.shift, self.shift, size=2, endpoint=True))
        corner = (self.resize - side) // 2
        return corner + right, corner + down, side


def cut(image: Pixels, box: tuple[int, int, int], crop: int) -> Pixels:
    """The box (left, top, side) of an image uint8 `[H, W, 3]`, a writable array, brought to `[crop, crop, 3]`.

    Where the box leaves the image, the edge is repeated.
    """
    left, top, side = box
    height, width = image.shape[:2]
    over = [max(0, d) for d in (-left, -top, left + side - width, top + side - height)]
    if any(over):
        image = np.pad(image, ((over[1], over[3]), (over[0], over[2]), (0, 0)), mode="edge")
        left, top = left + over[0], top + over[1]
    part = image[top : top + side, left : left + side]
    if side == crop:
        return part
    # Within two grey levels of 255 of what Pillow gives, in less than half of its time.
    planes = torch.from_numpy(part).permute(2, 0, 1)[None]
    planes = F.interpolate(planes, (crop, crop), mode="bilinear", antialias=True, align_corners=False)
    found: Pixels = planes[0].permute(1, 2, 0).numpy()
    return found
