"""The facts that a caption of a synthetic scene states, and which of them are true of the scene.

The words are those of the grammar; the caption may be clumsy, ungrammatical or false.

- A noun states an object. Colours, sizes and patterns before it ("a small red ball") or after "is" ("a ball is red")
  are facts about it. A relation is between the nearest noun before it and the next noun ("between": the next two). A
  word of a place states the place, "three things" the count; verbs state nothing.
- A fact is right if the scene has such a thing, or such things in this relation whatever their attributes. Relations
  are those of the scene and what follows from them: a table is under the cat that is on it, and what is on, above or in
  front of a thing is left of, right of or between the same things as that thing.
- A fact counts once, also in synonyms. Of an object that is not in the scene, only the object is a (wrong) fact, not
  its attributes and relations. An attribute or a relation without its nouns ("a cat on a red") states nothing.
- Unknown words state nothing, negation and plurals included. But "a" or "an" with unknown words and no noun is an
  object that is not in the scene: "a dog sits", not "a group of".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

import numpy as np

from contml.labels.words import split_words

from .grammar import COLOURS, NOUNS, NUMBERS, OPENINGS, PATTERNS, PLACES, RELATIONS, SIZES, VERBS
from .scenes import Scene, choose_scene


class Fact(NamedTuple):
    """A fact that a caption states; `right` if it is true of the scene."""

    kind: str  # object, colour, size, pattern, relation, place, count
    text: str  # red ball, cat left of tree
    right: bool


class Statement(NamedTuple):
    """What a fact says: its kind, the word that says it, and the things of which it says it, in the grammar's terms."""

    kind: str
    word: str
    things: tuple[str, ...]

    @property
    def text(self) -> str:
        """As a person would write it."""
        if self.kind == "relation":
            subject, *objects = self.things
            phrase = RELATIONS.get(self.word, (self.word,))[0].removeprefix("to the ")
            return f"{subject} {phrase} {' and '.join(objects)}"
        if self.kind == "place":
            return PLACES[self.word][0]
        return " ".join((self.word, *self.things)).strip()


@dataclass(frozen=True)
class SceneFacts:
    """The facts in captions of the rows of a split of synthetic scenes.

    Args:
        seed: the seed of the scenes.
        numbers: the number of the scene of each row.
    """

    seed: int
    numbers: tuple[int, ...]

    def __call__(self, row: int, caption: str) -> list[tuple[str, str, bool]]:
        """The kind and the text of each fact that a caption of a row states, and whether it is right."""
        return [*facts_of(choose_scene(np.random.default_rng([self.seed, self.numbers[row]])), caption)]


def facts_of(scene: Scene, caption: str) -> list[Fact]:
    """The facts that a caption states about a scene, in the caption's order, each once."""
    true_statements = _true_of(scene)
    present_kinds = {thing.kind for thing in scene.things}
    return [
        Fact(statement.kind, statement.text, statement in true_statements)
        for statement in _stated(caption)
        if statement.kind == "object" or present_kinds.issuperset(statement.things)
    ]


def _true_of(scene: Scene) -> set[Statement]:
    """All statements that are true of a scene."""
    things = scene.things
    kinds = [thing.kind for thing in things]
    count = NUMBERS.get(len(things), len(things))
    statements = {Statement("place", scene.place, ()), Statement("count", f"{count} things", ())}
    for thing in things:
        subject = (thing.kind,)
        statements |= {Statement("object", "", subject), Statement("size", SIZES[thing.large][0], subject)}
        statements |= {Statement("colour", thing.colour, subject), Statement("pattern", thing.pattern, subject)}
    columns = [thing.x for thing in things]
    for first, word, second, _ in scene.relations:
        statements.add(Statement("relation", word, (kinds[first], kinds[second])))
        if word == "on":
            statements.add(Statement("relation", "under", (kinds[second], kinds[first])))
        if word in ("on", "above", "front"):
            columns[first] = things[second].x
    for a, b in permutations(range(len(things)), 2):
        if columns[a] < columns[b]:
            statements.add(Statement("relation", "left", (kinds[a], kinds[b])))
            statements.add(Statement("relation", "right", (kinds[b], kinds[a])))
    for a, b, c in permutations(range(len(things)), 3):
        if columns[a] < columns[b] < columns[c]:
            statements.add(Statement("relation", "between", (kinds[b], kinds[a], kinds[c])))
            statements.add(Statement("relation", "between", (kinds[b], kinds[c], kinds[a])))
    return statements


def _vocabulary() -> dict[str, tuple[str, str]]:
    """The role and the meaning of each word or phrase; of a word in several tables, the last one counts.

    Roles that are no facts: "head" ends a phrase that names no thing ("a sunny day"), "end" follows a phrase.
    """
    verbs = [word for phrases in VERBS.values() for word in " ".join(phrases).split()]
    place_words = [phrase.split()[0] for phrases in PLACES.values() for phrase in phrases]  # in, on, indoors, ...
    entries = {word: ("place", place) for place, phrases in PLACES.items() for word in " ".join(phrases).split()}
    entries |= {word: ("head", word) for word in (*" ".join(OPENINGS).split(), "deep", "ground", "day")}
    entries |= {word: ("end", word) for word in (*verbs, *place_words, "of", "with")}
    for role, table in (("colour", COLOURS), ("pattern", PATTERNS), ("noun", NOUNS), ("relation", RELATIONS)):
        entries |= {word: (role, meaning) for meaning, words in table.items() for word in words}
    entries |= {word: ("size", words[0]) for words in SIZES.values() for word in words}
    entries |= {f"{number} things": ("count", f"{number} things") for number in NUMBERS.values()}
    entries |= {"between": ("relation", "between"), "and": ("and", "and")}
    entries |= {word: ("article", word) for word in ("a", "an", "the")}
    return {" ".join(_words(phrase)): entry for phrase, entry in entries.items()}


def _words(text: str) -> list[str]:
    return split_words(text, stop_words=frozenset())


_VOCABULARY = _vocabulary()
#: A phrase of the vocabulary, the longest first, or any other word.
_PHRASE = re.compile(rf"(?:{'|'.join(sorted(map(re.escape, _VOCABULARY), key=len, reverse=True))})(?!\S)|\S+")


@dataclass
class _Reader:
    """What a caption states, as far as it is read, and the words that wait for a noun."""

    stated: dict[Statement, None] = field(default_factory=dict)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # words since "a" or "an"
    opened: bool = False  # after "a" or "an"
    predicate: bool = False  # after "is": attributes are of the noun before
    subject: str = ""  # the noun before; without one, what is said of it is of no thing in the scene
    relation: tuple[str, ...] = ()  # the word, the subject, the first of the two nouns of "between"

    def read(self, role: str, meaning: str) -> None:
        """Read the next phrase."""
        if role == "unknown":
            self.unknown += [meaning] * self.opened
        elif role in ("colour", "size", "pattern"):
            self.attributes.append((role, meaning))
        elif role == "noun":
            self._name(meaning)
        elif role == "and":
            if self.unknown or self.predicate:  # else "a red and blue ball", or "between" a noun and another
                self._close()
        else:
            if role in ("place", "head", "count") or meaning == "of":
                self.unknown.clear()  # "a sunny day", "a group of"
            self._close()
            self.opened = meaning in ("a", "an")
            self.predicate = meaning == "is"
            if role in ("place", "count"):
                self._state(role, meaning)
            if role != "article":
                self.relation = (meaning, self.subject) if role == "relation" else ()

    def _close(self) -> None:
        """The phrase ends without a noun of the vocabulary."""
        if self.unknown:
            self._name(" ".join(self.unknown))
        elif self.predicate:
            self._attach(self.subject)
        self.attributes.clear()

    def _name(self, noun: str) -> None:
        """The phrase ends with its noun."""
        self._state("object", "", noun)
        self._attach(noun)
        if self.relation:
            self.relation += (noun,)
            word, *things = self.relation
            if len(things) == (3 if word == "between" else 2):
                self._state("relation", word, *things)
                self.relation = ()
        self.subject, self.opened = noun, False
        self.unknown.clear()
        self.attributes.clear()

    def _attach(self, noun: str) -> None:
        for kind, word in self.attributes:
            self._state(kind, word, noun)

    def _state(self, kind: str, word: str, *things: str) -> None:
        self.stated[Statement(kind, word, things)] = None


def _stated(caption: str) -> list[Statement]:
    reader = _Reader()
    for phrase in _PHRASE.findall(" ".join(_words(caption))):
        reader.read(*_VOCABULARY.get(phrase, ("unknown", phrase)))
    reader.read("end", "")
    return list(reader.stated)
