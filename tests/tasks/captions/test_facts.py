"""The reader of captions of synthetic scenes, checked against what the grammar put in and against coordinates."""

from __future__ import annotations

import pickle
import re
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from contml.tasks.captions import grammar
from contml.tasks.captions.facts import Fact, SceneFacts, facts_of
from contml.tasks.captions.grammar import COLOURS, NOUNS, NUMBERS, PATTERNS, PLACES, RELATIONS, SIZES, write_captions
from contml.tasks.captions.scenes import KINDS, Relation, Scene, Thing, choose_scene
from contml.tasks.captions.synthetic import draw_scene

OF_NOUN = {word: kind for kind, words in NOUNS.items() for word in words}
OF_COLOUR = {word: colour for colour, words in COLOURS.items() for word in words}
OF_PATTERN = {word: pattern for pattern, words in PATTERNS.items() for word in words}
OF_SIZE = {word: large for large, words in SIZES.items() for word in words}
#: How a fact names a relation.
NAMES = {"on": "on", "above": "above", "under": "under", "front": "in front of", "behind": "behind", "left": "left of",
    "right": "right of", "beside": "next to"}  # fmt: skip


def thing(kind, colour, pattern="plain", large=True, x=0.5):
    return Thing(kind, colour, pattern, large, x, 0.8, 0.2, 0.2, 0.8, False)


#: From left to right: a small orange cat on a brown table, a large red ball, a striped grey car with a bird above.
SCENE = Scene(
    "room",
    (
        thing("table", "brown", x=0.2),
        thing("cat", "orange", large=False, x=0.22),
        thing("ball", "red", x=0.5),
        thing("car", "grey", "striped", x=0.8),
        thing("bird", "blue", large=False, x=0.78),
    ),
    (
        Relation(1, "on", 0),
        Relation(4, "above", 3),
        Relation(3, "under", 4),
        *(Relation(a, word, b) for a, b in ((0, 2), (2, 3)) for word in ("left", "beside")),
        *(Relation(b, word, a) for a, b in ((0, 2), (2, 3)) for word in ("right", "beside")),
        Relation(2, "between", 0, 3),
    ),
)


def read(caption, scene=SCENE):
    """The facts of a caption as two lists of texts: right and wrong."""
    facts = facts_of(scene, caption)
    return [fact.text for fact in facts if fact.right], [fact.text for fact in facts if not fact.right]


# Captions written by hand


def test_kinds_and_texts():
    assert facts_of(SCENE, "a small red cat sits on top of a bench in a room") == [
        Fact("object", "cat", True),
        Fact("size", "small cat", True),
        Fact("colour", "red cat", False),
        Fact("object", "table", True),
        Fact("relation", "cat on table", True),
        Fact("place", "in a room", True),
    ]
    assert facts_of(SCENE, "two things on the road: a stripy automobile and a sphere between a desk and a vehicle") == [
        Fact("count", "two things", False),
        Fact("place", "on the street", False),
        Fact("object", "car", True),
        Fact("pattern", "striped car", True),
        Fact("object", "ball", True),
        Fact("object", "table", True),
        Fact("relation", "ball between table and car", True),
    ]


@pytest.mark.parametrize(
    ("caption", "right", "wrong"),
    [
        # repeated facts, also in synonyms
        ("a cat, a kitten and a kitty", ["cat"], []),
        ("a red ball and a scarlet sphere and a blue ball", ["ball", "red ball"], ["blue ball"]),
        # attributes
        ("a red and blue ball", ["ball", "red ball"], ["blue ball"]),
        ("a table is brown and large and a ball is striped", ["table", "brown table", "large table", "ball"],
            ["striped ball"]),
        ("a ball is red and on a table", ["ball", "red ball", "table"], ["ball on table"]),
        ("a plain ball", ["ball", "plain ball"], []),
        ("a red is on the green grass", [], ["on the grass"]),
        ("a red on a brown table", ["table", "brown table"], []),
        # cut off, or without a noun
        ("a cat on a", ["cat"], []),
        ("a cat on a red", ["cat"], []),
        ("a ball between a table", ["ball", "table"], []),
        ("on a table", ["table"], []),
        ("red", [], []),
        ("a a a a", [], []),
        ("two four things", [], ["four things"]),
        # the nearest noun
        ("a ball and a cat on a table", ["ball", "cat", "table", "cat on table"], []),
        ("a cat on a table next to a ball", ["cat", "table", "cat on table", "ball", "table next to ball"], []),
        ("a cat that is happily on the very old table", ["cat", "table", "cat on table"], []),
        ("cat on table", ["cat", "table", "cat on table"], []),
        ("a cat on in a room a table", ["cat", "in a room", "table"], []),
        ("a cat on the side of a table", ["cat", "table"], []),
        ("a cat behind on a table", ["cat", "table", "cat on table"], []),
        ("a ball on a ball", ["ball"], ["ball on ball"]),
        # places
        ("a cat on a rug in a meadow", ["cat", "in a room"], ["on the grass"]),
        ("a dog indoors", [], ["dog"]),
        ("a dog and cat", ["cat"], ["dog"]),
        ("a ball is red and table", ["ball", "red ball", "table"], []),
        ("is red, on a table", ["table"], []),
        ("a cat on a busy street", ["cat"], ["on the street"]),
        ("a cat on a sunny day on grass by a table", ["cat", "table"], ["on the grass"]),
        # absent and unknown objects
        ("a huge green tree stands next to a ball", ["ball"], ["tree"]),
        ("a dog sits on a table", ["table"], ["dog"]),
        ("a cat and a small brown dog on a table", ["cat", "table"], ["dog"]),
        ("a ball between a table and a dog", ["ball", "table"], ["dog"]),
        ("a dog and a <unk> and a dog", [], ["dog", "unk"]),
        ("a group of people with a ball", ["ball"], []),
        ("dogs, the dog and no cat", ["cat"], []),
        ("a nice picture of a cat that has rolled to a stop", ["cat"], []),
        # inferred relations
        ("a table under a cat, a cat under a table", ["table", "cat", "table under cat"], ["cat under table"]),
        ("a cat left of a bird; a bird to the right of a table", ["cat", "bird", "cat left of bird", "table",
            "bird right of table"], []),
        ("a ball between a bird and a cat", ["ball", "bird", "cat", "ball between bird and cat"], []),
        ("a table beside a car, a cat left of a table", ["table", "car", "cat"], ["table next to car",
            "cat left of table"]),
        # nothing
        ("", [], []),
        (" .,!\n", [], []),
        ("ein Hund läuft über die Straße 猫", [], []),
    ],
)  # fmt: skip
def test_captions_of_any_captioner(caption, right, wrong):
    assert read(caption) == (right, wrong)


def test_of_two_things_of_a_kind_any_may_be_the_one():
    scene = SCENE._replace(things=(*SCENE.things, thing("ball", "blue", large=False)))
    assert read("a large blue ball", scene) == (["ball", "large ball", "blue ball"], [])
    assert read("a ball next to a ball", scene) == (["ball"], ["ball next to ball"])


def test_case_and_punctuation_do_not_count():
    for caption in ("a polka-dot cat, on a table.", "A POLKA DOT cat   on a Table", "a polka - dot cat ; on a table !"):
        assert read(caption) == (["cat", "table", "cat on table"], ["spotted cat"])


def test_each_word_has_one_meaning():
    tables = [dict.fromkeys(table) for table in (OF_NOUN, OF_COLOUR, OF_PATTERN, OF_SIZE)]
    tables.append({phrase: None for phrases in RELATIONS.values() for phrase in phrases})
    assert len({word for table in tables for word in table}) == sum(map(len, tables))
    for role, table in (("colour", OF_COLOUR), ("pattern", OF_PATTERN), ("size", OF_SIZE)):
        for word in table:
            assert [fact.kind for fact in facts_of(SCENE, f"a {word} cat")] == ["object", role]
    for place, phrases in PLACES.items():
        for phrase in phrases:
            expected = Fact("place", PLACES[place][0], place == "room")
            assert facts_of(SCENE, f"a cat sits {phrase}") == [Fact("object", "cat", True), expected]


# Captions of the grammar


class Written(NamedTuple):
    """A caption and what the grammar put into it: noun phrases with their things, relation with its phrase, place."""

    scene: Scene
    text: str
    nouns: list[tuple[str, Thing]]
    relation: str
    phrase: str
    place: str

    @property
    def facts(self):
        """What a reader must find: kinds and texts."""
        found = set()
        for phrase, one in self.nouns:
            found.add(("object", one.kind))
            for word in phrase.split()[1:-1]:
                if word in OF_COLOUR:
                    found.add(("colour", f"{one.colour} {one.kind}"))
                elif word in OF_PATTERN:
                    found.add(("pattern", f"{one.pattern} {one.kind}"))
                else:
                    assert OF_SIZE[word] == one.large
                    found.add(("size", f"{'large' if one.large else 'small'} {one.kind}"))
        kinds = [one.kind for _, one in self.nouns]
        if self.relation == "between":
            found.add(("relation", f"{kinds[0]} between {kinds[1]} and {kinds[2]}"))
        elif self.relation:
            found.add(("relation", f"{kinds[0]} {NAMES[self.relation]} {kinds[1]}"))
        if self.place:
            found.add(("place", PLACES[self.place][0]))
        if " things " in self.text:
            found.add(("count", f"{NUMBERS[len(self.scene.things)]} things"))
        return found

    def exchange(self, old, new):
        """The caption with one phrase exchanged."""
        text, count = re.subn(rf"\b{re.escape(old)}\b", new, self.text)
        assert count == 1, (self.text, old)
        return text


@pytest.fixture(scope="module")
def written():
    """Captions of 2,000 scenes, five each, with the choices of the grammar, which are recorded as it makes them."""
    nouns, chosen = [], []
    noun, choose = grammar._noun, grammar._choose

    def record_noun(random, one, attributes=2):
        nouns.append((noun(random, one, attributes), one))
        return nouns[-1][0]

    def record_choice(random, choices):
        chosen.append((choices, choose(random, choices)))
        return chosen[-1][1]

    captions = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammar, "_noun", record_noun)
        patch.setattr(grammar, "_choose", record_choice)
        for index in range(2000):
            random = np.random.default_rng([5, index])
            scene = choose_scene(random)
            for _ in range(5):
                nouns.clear()
                chosen.clear()
                (text,) = write_captions(random, scene, 1)
                between = [("between", "between")] if " between " in text else []
                related = [(w, got) for w, words in RELATIONS.items() for choices, got in chosen if choices is words]
                place = [p for p, phrases in PLACES.items() for choices, _ in chosen if choices is phrases]
                captions.append(Written(scene, text, [*nouns], *(related or between or [("", "")])[0], "".join(place)))
    return captions


def test_all_that_the_grammar_says_is_found_and_nothing_else(written):
    for caption in written:
        facts = facts_of(caption.scene, caption.text)
        assert len(facts) == len(caption.facts), caption.text
        assert {(fact.kind, fact.text) for fact in facts} == caption.facts, caption.text
        assert all(fact.right for fact in facts), caption.text
        assert any(fact.kind == "object" for fact in facts)
    relations = {caption.relation for caption in written}
    assert relations == {"", "between", *RELATIONS}
    assert {kind for caption in written for kind, _ in caption.facts} == {
        *("object", "colour", "size", "pattern", "relation", "place", "count")
    }


def test_a_repeated_caption_states_the_same(written):
    for caption in written[:1000]:
        again = f"{caption.text}, {caption.text}"
        assert facts_of(caption.scene, again) == facts_of(caption.scene, caption.text)


def holds(scene, a, word, b):
    """Whether thing a is in this relation to thing b, from the drawn relations and the coordinates."""
    drawn = {(relation.first, relation.word, relation.second) for relation in scene.relations}
    stacked = any((x, w, y) in drawn for x, y in ((a, b), (b, a)) for w in ("on", "above", "front"))
    if word in ("left", "right"):
        first, second = (a, b) if word == "left" else (b, a)
        return not stacked and scene.things[first].x < scene.things[second].x
    if word == "under":
        return (b, "on", a) in drawn or (b, "above", a) in drawn
    if word == "behind":
        return (b, "front", a) in drawn
    return (a, word, b) in drawn


def test_relations_are_judged_by_where_things_are():
    counts = dict.fromkeys([*RELATIONS, "between"], 0)
    for index in range(300):
        scene = choose_scene(np.random.default_rng([6, index]))
        numbers = range(len(scene.things))
        for a, b in permutations(numbers, 2):
            first, second = scene.things[a].kind, scene.things[b].kind
            for word, phrases in RELATIONS.items():
                fact = facts_of(scene, f"a {first} is {phrases[0]} a {second}")[-1]
                assert fact == ("relation", f"{first} {NAMES[word]} {second}", holds(scene, a, word, b))
                counts[word] += fact.right
        for a, b, c in permutations(numbers, 3):
            first, second, third = (scene.things[n].kind for n in (a, b, c))
            fact = facts_of(scene, f"a {first} is between a {second} and a {third}")[-1]
            assert fact.text == f"{first} between {second} and {third}"
            assert fact.right == any(
                holds(scene, x, "left", a) and holds(scene, a, "left", y) for x, y in ((b, c), (c, b))
            )
            counts["between"] += fact.right
    assert min(counts.values()) > 20, counts


# Wrong captions


def wrong_of(scene, text):
    return [(fact.kind, fact.text) for fact in facts_of(scene, text) if not fact.right]


def test_a_wrong_attribute_is_one_wrong_fact(written):
    random = np.random.default_rng(0)
    counts = {"colour": 0, "pattern": 0, "size": 0}
    for caption in written[:3000]:
        for phrase, one in caption.nouns:
            for word in phrase.split()[1:-1]:
                kind, table, true = next(
                    entry
                    for entry in (
                        ("colour", OF_COLOUR, one.colour),
                        ("pattern", OF_PATTERN, one.pattern),
                        ("size", OF_SIZE, one.large),
                    )
                    if word in entry[1]
                )
                other = str(random.choice([new for new, meaning in table.items() if meaning != true]))
                text = caption.exchange(phrase, re.sub(rf"\b{word}\b", other, phrase))
                ((found, fact),) = wrong_of(caption.scene, text)
                assert found == kind
                assert fact.endswith(f" {one.kind}")
                assert len(facts_of(caption.scene, text)) == len(caption.facts)
                counts[kind] += 1
    assert min(counts.values()) > 200


@pytest.mark.parametrize("unknown", [False, True], ids=["of the vocabulary", "unknown"])
def test_a_wrong_noun_is_one_wrong_fact(written, unknown):
    random = np.random.default_rng(1)
    for caption in written[:3000]:
        absent = set(KINDS) - {one.kind for one in caption.scene.things}
        words = ["dog", "spaceship"] if unknown else [word for word, kind in OF_NOUN.items() if kind in absent]
        for phrase, one in caption.nouns:
            new = str(random.choice(sorted(words)))
            text = caption.exchange(phrase, f"{phrase.rsplit(' ', 1)[0]} {new}")
            assert wrong_of(caption.scene, text) == [("object", OF_NOUN.get(new, new))]
            # what was said of that thing is not judged, the rest is
            kept = {fact for fact in caption.facts if one.kind not in fact[1].split()}
            assert {fact[:2] for fact in facts_of(caption.scene, text) if fact.right} == kept


def test_a_wrong_relation_is_one_wrong_fact(written):
    random = np.random.default_rng(2)
    count = 0
    for caption in written[:3000]:
        if not caption.relation or caption.relation == "between":
            continue
        (_, first), (phrase, second) = caption.nouns
        a, b = caption.scene.things.index(first), caption.scene.things.index(second)
        wrong = [word for word in RELATIONS if not holds(caption.scene, a, word, b)]
        word = str(random.choice(wrong))
        new = str(random.choice(RELATIONS[word]))
        text = caption.exchange(f"{caption.phrase} {phrase}", f"{new} {phrase}")
        assert wrong_of(caption.scene, text) == [("relation", f"{first.kind} {NAMES[word]} {second.kind}")]
        assert len(facts_of(caption.scene, text)) == len(caption.facts)
        count += 1
    assert count > 500


def test_exchanged_things_place_and_count_are_one_wrong_fact_each(written):
    counts = {"between": 0, "place": 0, "count": 0}
    for caption in written:
        if caption.relation == "between":
            (_, a), (_, b), (_, c) = caption.nouns
            text = f"a {b.kind} is between a {a.kind} and a {c.kind}"
            assert wrong_of(caption.scene, text) == [("relation", f"{b.kind} between {a.kind} and {c.kind}")]
            counts["between"] += 1
        phrase = next((phrase for phrase in PLACES.get(caption.place, ()) if phrase in caption.text), None)
        other = next(place for place in PLACES if place != caption.place)
        if phrase:
            text = caption.text.replace(phrase, PLACES[other][-1])
            assert wrong_of(caption.scene, text) == [("place", PLACES[other][0])]
            counts["place"] += 1
        if " things " in caption.text:
            number = len(caption.scene.things)
            text = caption.exchange(NUMBERS[number], NUMBERS[2 + (number - 1) % 3])
            assert [kind for kind, _ in wrong_of(caption.scene, text)] == ["count"]
            counts["count"] += 1
    assert min(counts.values()) > 50, counts


def test_captions_of_other_scenes_have_fewer_right_facts(written):
    captions = written[:2500]
    scenes = [caption.scene for caption in captions]
    one_kind, one_colour = ([changed(scene, field) for scene in scenes] for field in ("kind", "colour"))

    def share(scenes):
        found = [facts_of(scene, caption.text) for scene, caption in zip(scenes, captions, strict=True)]
        return np.mean([np.mean([fact.right for fact in facts]) for facts in found])

    assert share(scenes) == 1
    assert 0.75 < share(one_kind) < 0.9
    assert 0.85 < share(one_colour) < 0.95
    assert share(scenes[5:] + scenes[:5]) < 0.35


def changed(scene, field):
    """The scene with another kind or colour of its first thing."""
    first, *others = scene.things
    table = KINDS if field == "kind" else COLOURS
    taken = {getattr(one, field) for one in scene.things}
    new = first._replace(**{field: next(value for value in table if value not in taken)})
    return scene._replace(things=(new, *others))


WORDS = [
    *OF_NOUN, *OF_COLOUR, *OF_PATTERN, *OF_SIZE, "dog", "sits", "is", "with", "of", "things", *NUMBERS.values(),
    *("a", "an", "the", "and", "between") * 4,
    *(phrase for table in (RELATIONS, PLACES) for p in table.values() for phrase in p),
]  # fmt: skip


@given(st.integers(0, 1000), st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words_are_read(index, words):
    scene = choose_scene(np.random.default_rng([7, index]))
    caption = " ".join(words)
    facts = facts_of(scene, caption)
    assert len({(fact.kind, fact.text) for fact in facts}) == len(facts)
    present = {one.kind for one in scene.things}
    objects = {fact.text: fact.right for fact in facts if fact.kind == "object"}
    assert {text for text in objects if text in KINDS} == {OF_NOUN[word] for word in words if word in OF_NOUN}
    assert all(right == (text in present) for text, right in objects.items())
    for fact in facts:
        mentioned = {word for word in fact.text.split() if word in KINDS}
        if fact.kind in ("colour", "size", "pattern", "relation"):
            assert mentioned
            assert mentioned <= present & set(objects)
    assert facts_of(scene, caption.upper()) == facts


@given(st.text())
def test_any_text_is_read(text):
    known = {"object", "colour", "size", "pattern", "relation", "place", "count"}
    assert {fact.kind for fact in facts_of(SCENE, text)} <= known
    longer = facts_of(SCENE, f"{text} . a red ball")
    assert {("object", "ball", True), ("colour", "red ball", True)} <= set(longer)


# The facts of a split


def test_the_facts_of_a_split():
    numbers = (3, 10_000_001, 7, 7)
    facts = pickle.loads(pickle.dumps(SceneFacts(4, numbers)))
    for row, number in enumerate(numbers):
        scene = choose_scene(np.random.default_rng([4, number]))
        for text in draw_scene(4, number, 16)[1]:
            found = facts(row, text)
            assert found
            assert all(right for _, _, right in found)
        for text in draw_scene(4, 5, 16)[1]:
            assert facts(row, text) == facts_of(scene, text)
