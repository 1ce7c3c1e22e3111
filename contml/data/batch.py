"""One batch of images: decoded, augmented and stacked. Augmentation is a function of (seed, epoch, step, row).

A transform changes one image between decoding and the model. It is a callable `(image, generator)`. It takes pixels
uint8 `[H, W, 3]` and a `numpy.random.Generator`, and returns pixels uint8 `[crop, crop, 3]`. It draws only from the
generator, which is seeded by (seed, epoch, step, row). So a batch is the same for any number of workers and after a
resume. Evaluation takes the centre crop, without a transform.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.text import options_of
from contml._support.validation import NonNegativeInt, check_ranges
from contml.data.cache import CachedImages
from contml.data.decode import PixelArray, cause, resized
from contml.data.split import Batch, Split

#: The unit that training flips with probability 1/2: whole batches, so that label distances in a batch stay valid, or
#: each image.
Flip: TypeAlias = Literal["batch", "image", "none"]

# First numbers of the seeds, so that flips and crops never share a random stream.
_FLIP, _CROP = 1, 2


class Request(NamedTuple):
    """The rows of a batch, and the seed of its augmentation."""

    step: int
    rows: list[int]
    offset: int  # position of the first row in the sampler's batch
    seed: tuple[int, int, int] | None  # seed, epoch, step; None: no augmentation

    def result(self, images: Tensor, positions: list[int], broken: list[tuple[str, str]]) -> BatchResult:
        """Return the batch of the images that could be read. `positions` are their positions in `rows`."""
        valid_positions = torch.tensor(positions, dtype=torch.int64)
        rows = torch.tensor(self.rows, dtype=torch.int64)[valid_positions]
        batch = Batch(images, rows, self.step, len(self.rows) - len(positions), valid_positions + self.offset)
        return BatchResult(batch, broken)


class Decoded(NamedTuple):
    """The positions of the images that were decoded, and name and cause of each broken image."""

    positions: list[int]
    broken: list[tuple[str, str]]


class BatchResult(NamedTuple):
    """A batch, and name and cause of each broken image that was left out of it."""

    batch: Batch
    broken: list[tuple[str, str]]


@dataclass
class SplitFeatures:
    """The features of a split by a frozen backbone.

    Attributes:
        split: the split.
        values: features `[N, F]`, 0 for a broken image.
        broken: the cause of each broken image, by row.
    """

    split: Split
    values: Tensor
    broken: dict[int, str] = field(default_factory=dict)

    def take(self, cached: CachedImages, broken: Mapping[str, str]) -> list[int]:
        """Take the features that a cache has, and return the rows whose features are damaged.

        `broken` has the cause of each broken image by name.
        """
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
        """Return the batch of a request, without broken images."""
        positions = [n for n, row in enumerate(request.rows) if row not in self.broken]
        broken = [(self.split.name(row), self.broken[row]) for row in request.rows if row in self.broken]
        return request.result(self.values[[request.rows[n] for n in positions]], positions, broken)


@dataclass(frozen=True)
class BatchDecoder:
    """The decoder of batches. Images are decoded, cropped and flipped, or replaced by features."""

    split: Split
    resize: int
    crop: int
    transform: Transform
    flip: Flip
    cached: CachedImages | SplitFeatures | None = None

    @property
    def has_features(self) -> bool:
        """True if batches have features in place of images."""
        return self.split.feature_dim is not None or isinstance(self.cached, SplitFeatures)

    def batch(self, request: Request) -> BatchResult:
        """Return the batch of a request."""
        if isinstance(self.cached, SplitFeatures):
            return self.cached.batch(request)
        if self.split.feature_dim is not None:  # features in place of images are not decoded or augmented
            values = np.stack([np.asarray(self.split.image(row), np.float32) for row in request.rows])
            return request.result(torch.from_numpy(values), [*range(len(request.rows))], [])
        images = self.empty(len(request.rows))
        decoded = self.decode(request.rows, request.seed, images)
        return request.result(images[: len(decoded.positions)], *decoded)

    def empty(self, *counts: int) -> Tensor:
        """Allocate memory for images: uint8 `[*counts, 3, crop, crop]`."""
        return torch.empty((*counts, 3, self.crop, self.crop), dtype=torch.uint8)

    def decode(self, rows: list[int], seed: tuple[int, int, int] | None, images: Tensor) -> Decoded:
        """Write the images of some rows of a batch, without broken ones, to the first places of `images`.

        `seed` is (seed, epoch, step). If it is None, images are not augmented.
        """
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
            planes = _planes(image, box, self.crop)
            images[len(decoded.positions)] = planes.flip(2) if flip or flip_batch else planes
            decoded.positions.append(position)
        return decoded

    def _draw(self, seed: tuple[int, int, int] | None, row: int) -> tuple[Box | np.random.Generator, bool]:
        """Draw the box of a row, or return the generator for another transform, and whether this image is flipped."""
        if seed is None:
            return centre(self.resize, self.crop), False
        generator = np.random.default_rng([_CROP, *seed, row])
        flip = self.flip == "image" and _is_flipped(*seed, row)
        if type(self.transform) is CropTransform:  # a subclass may do more
            return self.transform.box(generator), flip
        return generator, flip

    def _transformed(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """Apply a transform that is not ours, and check its result."""
        pixels: Any = self.transform(image, generator)
        shape = (self.crop, self.crop, 3)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != shape:
            is_array = isinstance(pixels, np.ndarray)
            got = f"{pixels.dtype} {list(pixels.shape)}" if is_array else f"a {type(pixels).__name__}"
            raise InputError("transform", f"returned {got}", f"must return a numpy array, uint8 {list(shape)}")
        return pixels


def _is_flipped(*seed: int) -> bool:
    return bool(np.random.default_rng([_FLIP, *seed]).random() < 0.5)


Transform: TypeAlias = Callable[[PixelArray, np.random.Generator], PixelArray]
#: The part that is cut from an image: left, top, side in pixels.
Box: TypeAlias = "tuple[int, int, int]"

_PREFIX = "torchvision:"


class CropTransform:
    """The crop of "Deep Metric Learning Beyond Binary Supervision": of random size, around a shifted centre.

    Crops are in whole pixels of the resized image. A crop of size `crop` is copied and not resampled. Outside the
    image, its edge is repeated.

    Args:
        scale_jitter: the side is drawn from crop - scale_jitter to crop + scale_jitter, and resized to crop.
        shift: the centre is moved by -shift to shift pixels, in x and in y.
    """

    @check_ranges
    def __init__(self, scale_jitter: NonNegativeInt = 0, shift: NonNegativeInt = 0, *, resize: int, crop: int) -> None:
        if scale_jitter >= crop:
            raise InputError("scale_jitter", str(scale_jitter), f"must be 0 to crop - 1, {crop - 1}")
        self.scale_jitter, self.shift, self.resize, self.crop = scale_jitter, shift, resize, crop

    @property
    def is_fixed(self) -> bool:
        """True if the crop is always the centre."""
        return not self.scale_jitter and not self.shift

    def __call__(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """Return a crop `[crop, crop, 3]` of an image `[resize, resize, 3]`."""
        return cut(image, self.box(generator), self.crop)

    def box(self, generator: np.random.Generator) -> Box:
        """Draw the box to cut: left, top, side in pixels of the resized image."""
        side, right, down = self.crop, 0, 0
        if self.scale_jitter or self.shift:
            side += int(generator.integers(-self.scale_jitter, self.scale_jitter, endpoint=True))
            right, down = (int(d) for d in generator.integers(-self.shift, self.shift, size=2, endpoint=True))
        corner = (self.resize - side) // 2
        return corner + right, corner + down, side

    def __repr__(self) -> str:
        return f"{type(self).__name__}({options_of(self)})"


class TorchvisionTransform:
    """Base of torchvision's transforms (v2). Each transform is a subclass whose signature shows its options."""

    library: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        values = dict(inspect.signature(type(self)).bind(*args, **options).arguments)
        self.resize, self.crop = values.pop("resize"), values.pop("crop")
        try:
            self.transform = self.library(**values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InputError(type(self).__name__, one_line(error)) from error

    def __call__(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """Return the transformed image `[crop, crop, 3]`. Of a larger image, return the centre crop."""
        # torchvision draws from torch's global generator. `torch.manual_seed` would take longer, and also seed the
        # generators of GPUs, from which a training draws.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(generator.integers(1 << 62)))
            result = self.transform(torch.from_numpy(image).permute(2, 0, 1))
        if not isinstance(result, Tensor) or result.dtype != torch.uint8 or result.ndim != 3 or result.shape[0] != 3:
            got = f"{result.dtype} {list(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
            raise InputError(type(self).__name__, f"returned {got}", "must return uint8 [3, H, W]")
        height, width = result.shape[1:]
        if min(height, width) < self.crop:
            got, allowed = f"returned {height} x {width} pixels", f"must be at least images.crop, {self.crop}"
            raise InputError(type(self).__name__, got, allowed, "give a larger size")
        top, left = (height - self.crop) // 2, (width - self.crop) // 2
        return result.permute(1, 2, 0)[top : top + self.crop, left : left + self.crop].numpy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transform!r})"


@functools.cache
def torchvision_transform(name: str) -> type[TorchvisionTransform] | None:
    """Return the transform `torchvision:NAME`. Return None if the name does not start with `torchvision:`.

    Raises:
        InputError: torchvision has no transform of that name.
    """
    if not name.startswith(_PREFIX):
        return None
    from torchvision.transforms import v2  # here: it takes a second to import

    classes = dict(inspect.getmembers(v2, lambda value: inspect.isclass(value) and issubclass(value, v2.Transform)))
    del classes["Transform"]
    key = name.removeprefix(_PREFIX)
    if key not in classes:
        hint = did_you_mean(name, [_PREFIX + key for key in classes], f"choose one of {', '.join(sorted(classes))}")
        raise InputError(name, "torchvision has no such transform", hint=hint)
    library = classes[key]
    options = [
        p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=_kind(p.default))
        for p in inspect.signature(library).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and (p.default in (p.empty, None) or isinstance(p.default, bool | int | float | str | tuple))
    ]
    options.sort(key=lambda p: p.default is not p.empty)
    sizes = [inspect.Parameter(size, inspect.Parameter.KEYWORD_ONLY, annotation=int) for size in ("resize", "crop")]
    summary = inspect.cleandoc(library.__doc__ or key)
    members = {"library": library, "__signature__": inspect.Signature([*options, *sizes]), "__doc__": summary}
    return type(name, (TorchvisionTransform,), members)


def _kind(default: Any) -> Any:
    """Return the type of an option, given its default. An option that is a number may also be a list of numbers."""
    numbers = int | float | list[int] | list[float]
    if isinstance(default, bool | str):
        return type(default)
    return numbers | None if default is None else numbers


def centre(side: int, crop: int) -> Box:
    """Return the centre of an image of side x side pixels: left, top, side."""
    corner = (side - crop) // 2
    return corner, corner, crop


def cut(image: PixelArray, box: Box, crop: int) -> PixelArray:
    """Return the box (left, top, side) of an image uint8 `[H, W, 3]`, resized to `[crop, crop, 3]`.

    Outside the image, its edge is repeated.
    """
    return np.ascontiguousarray(_planes(image, box, crop).permute(1, 2, 0).numpy())


def _planes(image: PixelArray, box: Box, crop: int) -> Tensor:
    """Return the box of an image as planes `[3, crop, crop]`. The box is as in `cut`."""
    left, top, side = box
    if 0 <= left <= image.shape[1] - side and 0 <= top <= image.shape[0] - side:
        pixels = image[top : top + side, left : left + side]
    else:
        rows, columns = np.arange(top, top + side), np.arange(left, left + side)
        pixels = image.take(rows, 0, mode="clip").take(columns, 1, mode="clip")
    planes = torch.from_numpy(pixels).permute(2, 0, 1)
    return planes if side == crop else interpolate(planes[None], (crop, crop), mode="bilinear", antialias=True)[0]


#: Every transform by its name in a config. Transforms of torchvision are `torchvision:NAME`.
TRANSFORMS = {"crop": CropTransform}
