"""The synthetic class data set: drawn beetles of many species."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from contml._support.validation import NonNegativeInt, Range, check_ranges
from contml.data import Pixels, Split, Task, drawn
from contml.data.draw import Array
from contml.labels import ClassLabels

from .creatures import draw_specimen, species

#: Numbers of the first validation and test species: training sets never reach them; multiples of a genus.
_FIRST_VAL, _FIRST_TEST = 500_000, 1_000_000


#: Classes of a split, or items of a class.
_Number: TypeAlias = Annotated[int, Range(2, whole=True)]


@check_ranges
def synthetic(
    classes: _Number = 60,
    per_class: _Number = 25,
    val_classes: _Number = 20,
    val_per_class: _Number = 20,
    test_classes: _Number = 40,
    test_per_class: _Number = 20,
    size: Annotated[int, Range(8, whole=True)] = 48,
    seed: NonNegativeInt = 0,
) -> Task:
    """Drawn beetles of many species, in any pose and light, with clutter; no species is in two splits.

    The seed draws the traits of each species (shape, legs, pattern, relations of colours), four species per genus. No
    genus is in two splits. A beetle of 48 pixels takes about two milliseconds to draw; what was drawn is kept in
    ~/.cache/contml.

    Args:
        classes: number of training species.
        per_class: images per training species.
        val_classes: number of validation species.
        val_per_class: images per validation species.
        test_classes: number of test species.
        test_per_class: images per test species.
        size: side of an image in pixels.
        seed: seed of the species and the images.
    """
    # A query needs another image of its class.
    return Task(
        train=_draw_split(seed, 0, classes, per_class, size),
        val=_draw_split(seed, _FIRST_VAL, val_classes, val_per_class, size),
        test=_draw_split(seed, _FIRST_TEST, test_classes, test_per_class, size),
    )


def _draw_split(seed: int, first: int, classes: int, per_class: int, size: int) -> Split:
    kinds = [species(seed, first + number) for number in range(classes)]
    items = [(number, item) for number in range(classes) for item in range(per_class)]
    (pixels,) = drawn(_draw, seed, [(first + number, item) for number, item in items], size, "beetles")
    labels = ClassLabels([first + number for number, _ in items])  # a test species is none of training
    return Split(
        images=[Pixels(image) for image in pixels],
        names=[f"{kinds[number].name} {item + 1}" for number, item in items],
        labels=labels.with_texts([kinds[number].name for number, _ in items]),
    )


def _draw(seed: int, specimen: tuple[int, int], size: int) -> tuple[Array]:
    """Pixels `[size, size, 3]` of a specimen: the number of its species, and its own."""
    number, item = specimen
    return (draw_specimen(species(seed, number), item, size),)
