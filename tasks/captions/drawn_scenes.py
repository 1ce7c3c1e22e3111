"""The synthetic data set of captions: drawn scenes with English captions, from a seed.

No caption mentions everything. The sentence forms are used in turn: a relation, the place, one thing in detail, a list,
two things. Each caption draws its things, their attributes, and one of several synonyms for each thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from contml._support.validation import NonNegativeInt, PositiveInt, Range, SplitSize, check_ranges
from contml.data import Pixels, Task, drawn

from .._readers.splits import FIRST_TEST, FIRST_VAL, queries_like
from .distance import CaptionDistance, DistanceOptions, WordWeights, training_words, word_vectors
from .painting import Array, Random, Scene, Thing, choose_scene, draw_weighted, paint_scene
from .split import make_split

NOUNS = {
    "ball": ("ball", "ball", "sphere"), "box": ("box", "box", "crate", "cube"), "cone": ("cone", "cone", "pylon"),
    "mug": ("mug", "cup"), "bottle": ("bottle", "bottle", "flask"), "lamp": ("lamp", "lamp", "light"),
    "balloon": ("balloon",), "cat": ("cat", "cat", "kitten", "kitty"), "bird": ("bird", "bird", "songbird"),
    "car": ("car", "car", "automobile", "vehicle"), "table": ("table", "table", "bench", "desk"),
    "tree": ("tree", "tree", "oak"),
}  # fmt: skip
COLOURS = {
    "red": ("red", "red", "crimson", "scarlet"), "orange": ("orange", "orange", "tangerine"),
    "yellow": ("yellow", "yellow", "golden"), "green": ("green", "green", "emerald"), "blue": ("blue", "blue", "navy"),
    "purple": ("purple", "purple", "violet"), "pink": ("pink", "pink", "rosy"), "brown": ("brown", "brown", "tan"),
    "black": ("black", "black", "dark"), "grey": ("grey", "gray", "silver"), "white": ("white", "white", "pale"),
}  # fmt: skip
SIZES = {True: ("large", "big", "big", "huge"), False: ("small", "little", "little", "tiny")}
PATTERNS = {
    "plain": ("plain",), "striped": ("striped", "striped", "stripy"), "spotted": ("spotted", "dotted", "polka-dot"),
    "checked": ("checked", "checkered"),
}  # fmt: skip
PLACES = {
    "grass": ("on the grass", "on a lawn", "in a meadow", "on green grass"),
    "beach": ("on the beach", "on the sand", "at the sandy beach", "by the sea"),
    "snow": ("in the snow", "on snowy ground", "on a snowy day", "in deep snow"),
    "room": ("in a room", "on the carpet", "on a rug in a room", "indoors on the carpet"),
    "street": ("on the street", "on the road", "in a street", "on the asphalt of a road"),
}
VERBS = {
    "ball": ("lies", "is", "rests", "has rolled to a stop"), "box": ("stands", "is", "has been put down"),
    "cone": ("stands", "is", "has been put up"), "mug": ("stands", "is", "has been put down"),
    "bottle": ("stands", "is", "has been put down"), "lamp": ("stands", "is", "shines"),
    "balloon": ("floats", "hovers", "hangs"), "cat": ("sits", "is sitting", "waits"),
    "bird": ("perches", "is sitting", "has landed"), "car": ("is parked", "stands", "has stopped"),
    "table": ("stands", "is"), "tree": ("grows", "stands"), "flying bird": ("flies", "is flying", "flutters"),
}  # fmt: skip
RELATIONS = {
    "on": ("on", "on top of", "atop"), "above": ("above", "over", "high above"),
    "under": ("under", "below", "underneath"), "front": ("in front of", "before"), "behind": ("behind", "in back of"),
    "left": ("to the left of", "left of"), "right": ("to the right of", "right of"),
    "beside": ("next to", "beside", "near"),
}  # fmt: skip
OPENINGS = ("there is", "a picture of", "a view of", "we see", "this shows")
#: The relative frequency of each relation. The first relations are more informative than the last.
_WEIGHTS = {"on": 6, "above": 5, "front": 4, "between": 4, "under": 2, "behind": 2, "left": 2, "right": 2, "beside": 1}
NUMBERS = {2: "two", 3: "three", 4: "four"}


def write_captions(random: Random, scene: Scene, count: int = 5) -> list[str]:
    """Write `count` captions of a scene. The sentence forms take turns, in random order."""
    order = random.permutation(len(_FORMS))
    return [_FORMS[order[number % len(_FORMS)]](random, scene) for number in range(count)]


def _relation(random: Random, scene: Scene) -> str:
    relation = scene.relations[draw_weighted(random, [_WEIGHTS[relation.word] for relation in scene.relations])]
    first, second = scene.things[relation.first], scene.things[relation.second]
    place = f" {_choose(random, PLACES[scene.place])}" if random.random() < 0.2 else ""
    verb = _choose(random, VERBS[first.looks])
    if relation.word == "between":
        third = scene.things[relation.third]
        return f"{_noun(random, first)} {verb} between {_noun(random, second, 1)} and {_noun(random, third, 1)}{place}"
    return f"{_noun(random, first)} {verb} {_choose(random, RELATIONS[relation.word])} {_noun(random, second)}{place}"


def _place(random: Random, scene: Scene) -> str:
    thing = scene.things[_one_of(random, len(scene.things))]
    return f"{_noun(random, thing)} {_choose(random, VERBS[thing.looks])} {_choose(random, PLACES[scene.place])}"


def _detail(random: Random, scene: Scene) -> str:
    relation = scene.relations[_one_of(random, len(scene.relations))]
    first, second = scene.things[relation.first], scene.things[relation.second]
    word = "beside" if relation.word == "between" else relation.word
    opening = _choose(random, OPENINGS)
    return f"{opening} {_noun(random, first, 3)} {_choose(random, RELATIONS[word])} {_noun(random, second, 0)}"


def _list(random: Random, scene: Scene) -> str:
    nouns = [_noun(random, scene.things[n], 1) for n in random.permutation(len(scene.things))]
    place = _choose(random, PLACES[scene.place])
    listed = ", ".join(nouns[:-1]) + f" and {nouns[-1]}"
    if random.random() < 0.3:
        return f"{NUMBERS[len(nouns)]} things {place}: {listed}"
    return f"{listed} {place}"


def _two(random: Random, scene: Scene) -> str:
    a, b = (scene.things[n] for n in random.permutation(len(scene.things))[:2])
    if random.random() < 0.5:
        return f"{_noun(random, a)} and {_noun(random, b)}"
    opening = _choose(random, OPENINGS)
    return f"{opening} {_noun(random, a)} with {_noun(random, b, 1)} {_choose(random, PLACES[scene.place])}"


_FORMS = (_relation, _place, _detail, _list, _two)


def _noun(random: Random, thing: Thing, attributes: int = 2) -> str:
    """Return the thing with its article and at most `attributes` attributes: colour first, then pattern, then size."""
    draws = random.random(3)
    size = _choose(random, SIZES[thing.large]) if draws[0] < 0.45 and attributes > 1 else ""
    pattern = _choose(random, PATTERNS[thing.pattern]) if thing.pattern != "plain" and draws[1] < 0.65 else ""
    colour = _choose(random, COLOURS[thing.colour]) if draws[2] < 0.85 and attributes > 0 else ""
    attribute_words = [word for word in (colour, pattern, size) if word][:attributes]
    words = [word for word in (size, pattern, colour) if word in attribute_words]
    words.append(_choose(random, NOUNS[thing.kind]))
    return " ".join(["an" if words[0][0] in "aeiou" else "a", *words])


def _choose(random: Random, choices: Sequence[str]) -> str:
    return choices[_one_of(random, len(choices))]


def _one_of(random: Random, count: int) -> int:
    return int(random.random() * count)


@check_ranges
def synthetic(
    train: SplitSize = 3000,
    val: SplitSize = 500,
    test: SplitSize = 1000,
    queries: NonNegativeInt = 200,
    size: Annotated[int, Range(16, whole=True)] = 64,
    captions: PositiveInt = 5,
    distance: str | dict[str, float] = "wmd",
    word_weights: WordWeights = "count",
    normalize: bool = False,
    dim: PositiveInt = 100,
    seed: NonNegativeInt = 0,
) -> Task:
    """Draw scenes of two to four things (balls, cats, cars, ...) with five captions each, from a seed.

    Things have a colour, a size and a pattern. They are beside, on, above or in front of each other, in one of five
    places. No caption mentions everything, and words have synonyms. Word vectors are trained on the training captions.
    A scene of 64 pixels takes about two milliseconds to draw. Drawn images are kept in ~/.cache/contml.

    Args:
        train: number of training images.
        val: number of validation images. Test and validation images have the same share of queries.
        test: number of test images.
        queries: number of test images, drawn at random, that are queries. 0: each image is a query for all others.
        size: side of an image in pixels.
        captions: captions per image.
        distance: the distance between captions: wmd, tfidf, mean_vector, or module:name, a function that returns
            vectors of a list of captions. Or several with weights, {wmd: 0.5, tfidf: 0.5}, each divided by its mean in
            training.
        word_weights: the weights of words in wmd and mean_vector: count (1), or idf, of the training captions.
        normalize: scale word vectors to unit length first.
        dim: dimension of the word vectors.
        seed: seed of the scenes, the queries, and the training of word vectors.
    """
    choice = DistanceOptions(distance, word_weights)
    numbers = [*range(train), *range(FIRST_VAL, FIRST_VAL + val), *range(FIRST_TEST, FIRST_TEST + test)]
    (pixels,) = drawn(_paint, seed, numbers, size, "scenes")
    images, texts = [Pixels(image) for image in pixels], [_write(seed, number, captions) for number in numbers]
    names = [f"scene {number}" for number in numbers]
    vectors = word_vectors(None, texts[:train], texts[train:], dim, seed) if choice.needs_vectors else {}
    caption_distance = CaptionDistance(choice, texts[:train], texts[train:], vectors, normalize, seed)

    rows_of_parts = slice(train), slice(train, train + val), slice(train + val, None)
    train_split, val_split, test_split = (
        make_split(images[rows], names[rows], texts[rows], caption_distance, queries=count, seed=seed)
        for rows, count in zip(rows_of_parts, (0, queries_like(queries, test, val), queries), strict=True)
    )
    summary = [("word vectors", training_words(texts[:train]))] if choice.needs_vectors else []
    return Task(train_split, test_split, val_split, summary=summary)


def _paint(seed: int, index: int, size: int) -> tuple[Array]:
    scene = choose_scene(np.random.default_rng([seed, index]))
    return (paint_scene(np.random.default_rng([seed, index, 1]), scene, size),)


def _write(seed: int, index: int, count: int) -> list[str]:
    random = np.random.default_rng([seed, index])
    return write_captions(random, choose_scene(random), count)
