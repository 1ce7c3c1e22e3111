"""The synthetic twin: drawn people with exact joints, the same on every machine."""

from __future__ import annotations

import numpy as np

from contml import InputError

from .drawing import LSP_JOINTS, LSP_SKELETON
from .figures import draw_figure
from .split import PoseSplit

#: Test figures start here, so that a larger training set never runs into them.
_TEST = 10_000_000


class SyntheticPose:
    """Articulated figures of varied pose, body, clothes, background and clutter, drawn from a seed.

    About a millisecond a figure of 64 pixels; they are kept in memory.

    Args:
        train: training images.
        test: test images.
        queries: how many test images query the others.
        size: side of an image in pixels; label distances are in these pixels.
        squared: squared Euclidean pose distance, else plain; goes with the loss's option of that name.
        normalize: poses in the frame of the person, so that neither place nor size counts.
        figures_seed: another seed draws another data set.
    """

    def __init__(
        self,
        train: int = 3000,
        test: int = 1000,
        queries: int = 200,
        size: int = 64,
        squared: bool = True,
        normalize: bool = False,
        figures_seed: int = 0,
    ) -> None:
        for name, count in (("train", train), ("test", test)):
            if count < 3:
                raise InputError(f"{name} is {count}; a split needs at least 3 images")
        if figures_seed < 0 or size < 8:
            raise InputError(f"figures_seed is {figures_seed} and size is {size}; these must be at least 0 and 8")
        if not 0 <= queries <= test - 2:
            raise InputError(
                f"queries is {queries}; it must be 0 to {test - 2}, so that two test images are left to find"
            )
        self.train = _draw(figures_seed, 0, train, size, 0, squared, normalize)
        self.test = _draw(figures_seed, _TEST, test, size, queries, squared, normalize)


def _draw(seed: int, first: int, count: int, size: int, queries: int, squared: bool, normalize: bool) -> PoseSplit:
    figures = [draw_figure(seed, first + index, size) for index in range(count)]
    return PoseSplit(
        [image for image, _ in figures],
        [f"figure {first + index}" for index in range(count)],
        np.stack([joints for _, joints in figures]),
        None,
        queries,
        joint_names=LSP_JOINTS,
        skeleton=LSP_SKELETON,
        squared=squared,
        normalize=normalize,
        hidden="refuse",
    )
