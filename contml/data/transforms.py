"""Training transforms: what happens to an image between its decoding and the model, one image at a time.

A transform is a callable `(image, generator)`: pixels uint8 `[H, W, 3]` and a `numpy.random.Generator` in, pixels uint8
`[crop, crop, 3]` out. It draws from the generator alone, which is seeded by (seed, epoch, step, row): a batch is the
same for any number of workers and after a resume. In an evaluation images are centre crops, without a transform.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from contml._support.errors import InputError, did_you_mean
from contml._support.options import options_of
from contml._support.validation import check_at_least

Pixels: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Transform: TypeAlias = Callable[[Pixels, np.random.Generator], Pixels]

PREFIX = "torchvision:"


class CropTransform:
    """The crop of "Deep Metric Learning Beyond Binary Supervision": of jittered side, round a shifted centre.

    In whole pixels of the resized image, so that crops of equal size are copied, not resampled. Where a crop leaves the
    image, its edge is repeated.

    Args:
        scale_jitter: the side is drawn from crop - scale_jitter to crop + scale_jitter, and brought back to crop.
        shift: the centre is moved by -shift to shift pixels, in x and in y.
    """

    def __init__(self, scale_jitter: int = 0, shift: int = 0, *, resize: int, crop: int) -> None:
        check_at_least(0, scale_jitter=scale_jitter, shift=shift)
        if scale_jitter >= crop:
            raise InputError(f"scale_jitter is {scale_jitter}; it must be 0 to crop - 1, {crop - 1}")
        self.scale_jitter, self.shift, self.resize, self.crop = scale_jitter, shift, resize, crop

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        """A crop `[crop, crop, 3]` of an image `[resize, resize, 3]`."""
        side, right, down = self.crop, 0, 0
        if self.scale_jitter or self.shift:
            side += int(generator.integers(-self.scale_jitter, self.scale_jitter, endpoint=True))
            right, down = (int(d) for d in generator.integers(-self.shift, self.shift, size=2, endpoint=True))
        corner = (self.resize - side) // 2
        return cut(image, (corner + right, corner + down, side), self.crop)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({options_of(self)})"


class TorchvisionTransform:
    """Base of the transforms of torchvision (v2): each is a subclass whose signature shows its options."""

    library: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        given = inspect.signature(type(self)).bind(*args, **options)
        values = dict(given.arguments)
        self.resize, self.crop = values.pop("resize"), values.pop("crop")
        try:
            self.transform = self.library(**values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InputError(f"{type(self).__name__}: {' '.join(str(error).split())}") from error

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        """The transformed image, centre-cropped to `[crop, crop, 3]` where it is larger."""
        # torchvision draws from torch's own generator.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(1 << 62)))
            found = self.transform(torch.from_numpy(image).permute(2, 0, 1))
        if not isinstance(found, Tensor) or found.dtype != torch.uint8 or found.ndim != 3 or found.shape[0] != 3:
            form = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise InputError(f"{type(self).__name__} gives {form}; a transform gives uint8 [3, H, W]")
        height, width = found.shape[1:]
        if min(height, width) < self.crop:
            raise InputError(
                f"{type(self).__name__} gives {height} x {width} pixels, but the model sees {self.crop}; give a larger "
                "size"
            )
        top, left = (height - self.crop) // 2, (width - self.crop) // 2
        pixels: Pixels = found.permute(1, 2, 0)[top : top + self.crop, left : left + self.crop].numpy()
        return pixels

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transform!r})"


def torchvision_transform(name: str) -> type[TorchvisionTransform] | None:
    """The transform that a config calls `torchvision:NAME`; None where it is no such name.

    Raises:
        InputError: torchvision has no transform of that name.
    """
    return _adapter(name) if name.startswith(PREFIX) else None


@functools.cache
def _adapter(name: str) -> type[TorchvisionTransform]:
    from torchvision.transforms import v2  # here: it takes a second to import

    known = {
        key: found
        for key, found in vars(v2).items()
        if inspect.isclass(found) and issubclass(found, v2.Transform) and found is not v2.Transform
    }
    theirs = name.removeprefix(PREFIX)
    if theirs not in known:
        hint = did_you_mean(name, [PREFIX + key for key in known], f"it has {', '.join(sorted(known))}")
        raise InputError(f"torchvision has no transform '{theirs}'; {hint}")
    library = known[theirs]
    options = [
        p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=_kind(p.default))
        for p in inspect.signature(library).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and _is_plain(p.default)
    ]
    options.sort(key=lambda p: p.default is not p.empty)
    data = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=int) for key in ("resize", "crop")]
    summary = inspect.cleandoc(library.__doc__ or theirs)
    members = {"library": library, "__signature__": inspect.Signature([*options, *data]), "__doc__": summary}
    return type(name, (TorchvisionTransform,), members)


def _is_plain(default: Any) -> bool:
    return default in (inspect.Parameter.empty, None) or isinstance(default, bool | int | float | str | tuple)


def _kind(default: Any) -> Any:
    """The type of an option, from its default: a number may stand for several."""
    numbers = int | float | list[int] | list[float]
    if isinstance(default, bool | str):
        return type(default)
    return numbers | None if default is None else numbers


def centre(image: Pixels, crop: int) -> Pixels:
    """The centre crop `[crop, crop, 3]` of an image."""
    corner = (image.shape[0] - crop) // 2
    return cut(image, (corner, corner, crop), crop)


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


#: Every transform by its name in a config; torchvision's are `torchvision:NAME`.
TRANSFORMS = {"crop": CropTransform}
