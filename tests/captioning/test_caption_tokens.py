"""Tokens are those of Stanford's PTBTokenizer: the committed ones, and where Java is there, those of all captions."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import shutil
import string
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.paths import DATA_ROOT

from contml.captioning import tokenize, tokenizer

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))
PIECES = [
    *"anstbdlmreoA1TSB2'\"-.,:;/&$@#()<>!? *+=_%[]\\~^|{}`é\u2019\u201c\u2013\u2026\u20ac\xbd\u2018",
    "  ", "can", "not", "gonna", "Mr.", "U.S.", "n't", "'s", "http://", "www.", ".com", "&amp;", "...", "1/2", "No. ",
    "K. ", "The ", "A ", "3,000", "--", "'90s", "Jan.", " a ", ":)", "etc.", "O'Brien", "ma'am", "650-723-0293",
    "T-shirt", "AT&T", "p.m.", "w/o", "5%", "<b>", "t.v.", "mp3",
]  # fmt: skip
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


@pytest.mark.parametrize(("text", "words"), [(row[0], row[1:]) for row in EXPECTED["tokens"]])
def test_tokens_are_those_of_java(text, words):
    assert tokenize(text) == words


def test_a_word_without_spaces_takes_a_shorter_way_to_the_same_tokens():
    """Most words are not given to the rules; the tokens are those of the rules all the same."""
    abbreviations = tokenizer._TITLES + tokenizer._ABBREVIATIONS + tokenizer._STATES
    words = {"".join(pair) for pair in itertools.product(string.ascii_letters, repeat=2)}
    words |= set(abbreviations.replace("?", "").split())
    words |= {"mfg", "mtg", "pty", "ptes", "cannot", "cannots", "gonna", "gotta", "wanna", "lemme", "gimme", "isnt"}
    for word in words:
        for spelled in (word, word.title(), word.upper()):
            for part in (spelled, f"{spelled},", f"{spelled}."):
                assert tokenize(part) == tokenizer._tokens(part), part


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
    captions = [{"caption": part} for text in texts for part in (text, "x")]
    return ptb.PTBTokenizer().tokenize({0: captions})[0][::2]


def check(texts):
    wrong = [(text, line) for text, line in zip(texts, of_java(texts), strict=True) if " ".join(tokenize(text)) != line]
    assert wrong == []


@needs_java
def test_random_texts_have_the_tokens_of_java(capfd):
    draw = random.Random(0)
    check(["".join(draw.choices(PIECES, k=draw.randint(1, 8))) for _ in range(20_000)])


@needs_java
@pytest.mark.slow
@pytest.mark.skipif(not (DATA_ROOT / "coco_mini_2017").is_dir(), reason="no pack coco_mini_2017: set CONTML_DATA")
def test_all_captions_have_the_tokens_of_java(capfd):
    with gzip.open(DATA_ROOT / "flickr8k_1500" / "Flickr8k.token.full.txt.gz", "rt", encoding="utf-8") as file:
        check([line.rstrip("\n").split("\t")[1] for line in file])
    with gzip.open(DATA_ROOT / "coco_mini_2017" / "captions_val2017.full.json.gz", "rt", encoding="utf-8") as file:
        check([annotation["caption"] for annotation in json.load(file)["annotations"]])
