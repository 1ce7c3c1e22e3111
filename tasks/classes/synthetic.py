"""The synthetic twin: drawn beetles of many species, some to train on and others to test on."""

from __future__ import annotations

from contml import InputError

from .creatures import draw_specimen, species
from .split import ClassSplit

#: Test species start here, so that more training species never run into them; a multiple of a genus.
_TEST = 1_000_000


class SyntheticClasses:
    """Beetles of drawn species, in any pose, light and litter; the species to test on are none of those to train on.

    What makes a species (shape, legs, pattern, how its colours relate) is drawn from a seed, four species a genus; no
    genus is on both sides. About two milliseconds a beetle of 48 pixels; they are kept in memory.

    Args:
        classes: species to train on.
        per_class: images of each of them.
        test_classes: species to test on.
        test_per_class: images of each of them.
        size: side of an image in pixels.
        seed: another seed draws another data set.
    """

    def __init__(
        self,
        classes: int = 60,
        per_class: int = 25,
        test_classes: int = 40,
        test_per_class: int = 20,
        size: int = 48,
        seed: int = 0,
    ) -> None:
        for name, count in (("classes", classes), ("test_classes", test_classes)):
            if count < 2:
                raise InputError(f"{name} is {count}; a split needs at least 2 classes")
        for name, count in (("per_class", per_class), ("test_per_class", test_per_class)):
            if count < 2:
                raise InputError(f"{name} is {count}; a class needs at least 2 images to have anything to find")
        if seed < 0 or size < 8:
            raise InputError(f"seed is {seed} and size is {size}; these must be at least 0 and 8")
        self.train = _draw(seed, 0, classes, per_class, size)
        self.test = _draw(seed, _TEST, test_classes, test_per_class, size)


def _draw(seed: int, first: int, classes: int, per_class: int, size: int) -> ClassSplit:
    kinds = [species(seed, first + number) for number in range(classes)]
    items = [(number, item) for number in range(classes) for item in range(per_class)]
    return ClassSplit(
        [draw_specimen(kinds[number], item, size) for number, item in items],
        [f"{kinds[number].name} {item + 1}" for number, item in items],
        [number for number, _ in items],
        [kind.name for kind in kinds],
    )
