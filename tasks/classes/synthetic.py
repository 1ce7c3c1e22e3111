"""The synthetic class data set: drawn beetles of many species."""

from __future__ import annotations

from contml import InputError
from contml.data import Pixels, Split, Task
from contml.data.renderers.classes import ClassRenderer
from contml.labels import ClassLabels

from .creatures import draw_specimen, species

#: The number of the first test species: training sets of any size never reach it; a multiple of a genus.
_FIRST_TEST_SPECIES = 1_000_000


def synthetic(
    classes: int = 60,
    per_class: int = 25,
    test_classes: int = 40,
    test_per_class: int = 20,
    size: int = 48,
    seed: int = 0,
) -> Task:
    """Beetles of drawn species, in any pose and light, with litter; the test species are not in training.

    The seed draws what makes a species (shape, legs, pattern, how its colours relate), four species per genus. No genus
    is in both splits. A beetle of 48 pixels takes about two milliseconds; the images are kept in memory.

    Args:
        classes: training species.
        per_class: images of each training species.
        test_classes: test species.
        test_per_class: images of each test species.
        size: side of an image in pixels.
        seed: another seed draws another data set.
    """
    for name, count in (("classes", classes), ("test_classes", test_classes)):
        if count < 2:
            raise InputError(f"{name} is {count}; a split needs at least 2 classes")
    for name, count in (("per_class", per_class), ("test_per_class", test_per_class)):
        if count < 2:
            raise InputError(f"{name} is {count}; a query needs another image of its class: at least 2 per class")
    if seed < 0 or size < 8:
        raise InputError(f"seed is {seed} and size is {size}; these must be at least 0 and 8")
    return Task(
        train=_draw_split(seed, 0, classes, per_class, size),
        test=_draw_split(seed, _FIRST_TEST_SPECIES, test_classes, test_per_class, size),
    )


def _draw_split(seed: int, first: int, classes: int, per_class: int, size: int) -> Split:
    kinds = [species(seed, first + number) for number in range(classes)]
    items = [(number, item) for number in range(classes) for item in range(per_class)]
    labels = ClassLabels([number for number, _ in items])
    return Split(
        images=[Pixels(draw_specimen(kinds[number], item, size)) for number, item in items],
        names=[f"{kinds[number].name} {item + 1}" for number, item in items],
        labels=labels,
        renderer=ClassRenderer(labels.class_ids, [kind.name for kind in kinds]),
    )
