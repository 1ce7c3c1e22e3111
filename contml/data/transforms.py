"""Training transforms: what happens to one image between decoding and the model.

A transform is a callable `(image, generator)`: pixels uint8 `[H, W, 3]` and a `numpy.random.Generator` in, pixels uint8
`[crop, crop, 3]` out. It draws only from the generator, which is seeded by (seed, epoch, step, row): a batch is the
same for any number of workers and after a resume. Evaluation takes the centre crop, without a transform.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.text import options_of
from contml._support.validation import NonNegativeInt, check_ranges
from contml.data.decode import PixelArray

Transform: TypeAlias = Callable[[PixelArray, np.random.Generator], PixelArray]
#: What is cut from an image: left, top, side in pixels.
Box: TypeAlias = "tuple[int, int, int]"

_PREFIX = "torchvision:"


class CropTransform:
    """The crop of "Deep Metric Learning Beyond Binary Supervision": of random size, around a shifted centre.

    Crops are in whole pixels of the resized image; a crop of size `crop` is copied and not resampled. Outside the
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
        """Whether it always takes the centre."""
        return not self.scale_jitter and not self.shift

    def __call__(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """Returns a crop `[crop, crop, 3]` of an image `[resize, resize, 3]`."""
        return cut(image, self.box(generator), self.crop)

    def box(self, generator: np.random.Generator) -> Box:
        """Draws what is cut: left, top, side in pixels of the resized image."""
        side, right, down = self.crop, 0, 0
        if self.scale_jitter or self.shift:
            side += int(generator.integers(-self.scale_jitter, self.scale_jitter, endpoint=True))
            right, down = (int(d) for d in generator.integers(-self.shift, self.shift, size=2, endpoint=True))
        corner = (self.resize - side) // 2
        return corner + right, corner + down, side

    def __repr__(self) -> str:
        return f"{type(self).__name__}({options_of(self)})"


class TorchvisionTransform:
    """Base of torchvision's transforms (v2); each is a subclass whose signature shows its options."""

    library: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        values = dict(inspect.signature(type(self)).bind(*args, **options).arguments)
        self.resize, self.crop = values.pop("resize"), values.pop("crop")
        try:
            self.transform = self.library(**values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InputError(type(self).__name__, one_line(error)) from error

    def __call__(self, image: PixelArray, generator: np.random.Generator) -> PixelArray:
        """Returns the transformed image, or the centre crop `[crop, crop, 3]` of a larger one."""
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
        pixels: PixelArray = result.permute(1, 2, 0)[top : top + self.crop, left : left + self.crop].numpy()
        return pixels

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transform!r})"


@functools.cache
def torchvision_transform(name: str) -> type[TorchvisionTransform] | None:
    """Returns the transform `torchvision:NAME`; None if the name does not start with `torchvision:`.

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
    """Returns the type of an option from its default; where it is a number, a list of numbers is allowed too."""
    numbers = int | float | list[int] | list[float]
    if isinstance(default, bool | str):
        return type(default)
    return numbers | None if default is None else numbers


def centre(side: int, crop: int) -> Box:
    """The centre of an image of side x side pixels: left, top, side."""
    corner = (side - crop) // 2
    return corner, corner, crop


def cut(image: PixelArray, box: Box, crop: int) -> PixelArray:
    """Returns the box (left, top, side) of an image uint8 `[H, W, 3]`, resized to `[crop, crop, 3]`.

    Outside the image, its edge is repeated.
    """
    from contml.data import _resampling  # here: it imports numba

    return _resampling.crop(image, box, crop)


#: Every transform by its name in a config. Transforms of torchvision are `torchvision:NAME`.
TRANSFORMS = {"crop": CropTransform}
