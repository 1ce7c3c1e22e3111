"""Tokens are those of Stanford's PTBTokenizer: the committed ones, and where Java is there, those of all captions."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from contml.captioning import tokenize, tokenizer

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))
PIECES = [
    *"anstbdlmreoA1TSB2'\"-.,/&$!? *+%\\é\u2019\u201c\u2013\u2026\u20ac\xbd\u2018",
    "  ", "can", "not", "gonna", "Mr.", "U.S.", "n't", "'s", "&amp;", "...", "1/2", "No. ",
    "K. ", "The ", "A ", "3,000", "--", "'90s", "Jan.", " a ", "etc.", "O'Brien", "ma'am",
    "T-shirt", "AT&T", "p.m.", "w/o", "5%", "t.v.",
]  # fmt: skip
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


@pytest.mark.parametrize(("text", "words"), [(row[0], row[1:]) for row in EXPECTED["tokens"]])
def test_tokens_are_those_of_java(text, words):
    assert tokenize(text) == words


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_captions_without_joined_spaces_are_tokenized_part_by_part(text):
    assert tokenize(text) == tokenizer._tokens(text)


@given(st.text(max_size=40))
def test_any_text_has_lower_case_words(text):
    for word in tokenize(text):
        assert word == word.lower()
        assert not set(word) & set(" \t\n")


def test_tokens_may_be_changed():
    tokenize("A dog runs").append("x")
    assert tokenize("A dog runs") == ["a", "dog", "runs"]


def of_java(texts):
    """The tokens of `pycocoevalcap`, each caption by itself."""
    ptb = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer")
    return ptb.PTBTokenizer().tokenize({0: [{"caption": part} for text in texts for part in (text, "x")]})[0][::2]


def check(texts):
    wrong = [(text, line) for text, line in zip(texts, of_java(texts), strict=True) if " ".join(tokenize(text)) != line]
    assert wrong == []


@needs_java
def test_random_texts_have_the_tokens_of_java(capfd):
    draw = random.Random(0)
    check(["".join(draw.choices(PIECES, k=draw.randint(1, 8))) for _ in range(20_000)])
