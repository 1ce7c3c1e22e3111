"""The words of captions: one rule for all label spaces and tasks.

A word is a run of letters, digits and combining marks (Unicode categories L, N, M) that begins with a letter or digit.
An apostrophe between two letters or digits belongs to the word: isn't, l'été. A quotation mark between two Hebrew
letters (צה"ל) and the dot of the Catalan l·l also belong to it. Hyphens, other punctuation, symbols and emoji separate
words.

Equal words have equal spellings:

  NFC          é is one character, also where the text has e and a combining accent
  lower case   not folded further: German ß is not ss, and Turkish ı is not i; İ is i
  width        full-width Latin, half-width Katakana, ligatures and Arabic presentation forms are the usual letters
  invisible    joiners, soft hyphens, direction marks and variation selectors are omitted; a zero-width space separates
  apostrophes  ’ ‘ ‛ ʼ ʻ ´ inside a word are '
  marks        <start>, [CLS] and others of tokenizers are omitted; &amp; is &

In ASCII text, words are lower-case runs of a-z, 0-9 and inner apostrophes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, NamedTuple
from unicodedata import normalize

from contml._support.errors import InputError

#: English words that do not describe a picture: articles, pronouns, forms of be, have and do, conjunctions, and the
#: most common prepositions.
_STOP_WORDS = """
a about all also am an and another any are as at be because been being both but by can could did do does doing each for
from had has have having he her here hers herself him himself his how i if in into is it it's its itself just me my
myself no nor not of off on once only or other our ours out own she should so some such than that the their theirs them
themselves then there these they this those through to too very was we were what when where which while who whom whose
why will with would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

#: Marks of tokenizers: <start>, </s>, <|endoftext|>, [CLS]; and the line break of HTML.
_MARK = r"(?:start|end|pad|unk|mask|[be]os|sos|cls|sep|(?:start|end)_?of_?(?:text|seq(?:uence)?)|(?:start|end)seq)"
_MARKERS = re.compile(rf"<\|?{_MARK}\|?>|</?s>|<br ?/?>|\[{_MARK}\]")
_ENTITIES = re.compile(r"&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z]{2,20}[0-9]{0,2});")
_ASCII_WORD = re.compile(r"[a-z0-9]++(?:'[a-z0-9]++)*+")
#: Captions without spaces are refused from this share of all captions. Below this share, they count as unknown words.
_UNSPACED_SHARE = 0.01


class _Script(NamedTuple):
    """Scripts whose text has no spaces between words."""

    names: str
    letters: str  # a class of regex
    #: Words that are separated by spaces have fewer letters on average. Sentences without spaces have more.
    mean_letters: float


_UNSPACED = (
    _Script("Chinese or Japanese", r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}ー", 2.5),
    _Script("Thai, Lao, Khmer, Burmese or similar", r"\p{LB=SA}", 4.5),
)


def tokens(caption: str, stop_words: frozenset[str] = STOP_WORDS) -> list[str]:
    """Return the words of a caption, in the spelling by which words are compared, without stop words.

    Raises:
        InputError: the caption is a sentence in a script without spaces between words.
    """
    if not caption.isascii():
        refuse_unspaced([[caption]])
    return split_words(caption, stop_words)


def caption_tokens(captions: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
    """Return the words of the captions of one image after another, without stop words.

    Raises:
        InputError: more than 1 % of the captions are sentences in a script without spaces between words.
    """
    refuse_unspaced(captions)
    return ([split_words(caption) for caption in image] for image in captions)


def split_words(caption: str, stop_words: frozenset[str] = STOP_WORDS) -> list[str]:
    """Return the words of a caption as `tokens` does, but take a sentence without spaces as one word."""
    caption = caption.lower()
    if "&" in caption:
        caption = _ENTITIES.sub(lambda match: unescape(match[0]), caption)
    if "<" in caption or "[" in caption:
        caption = _MARKERS.sub(" ", caption)
    words = _ASCII_WORD.findall(caption) if caption.isascii() else _patterns().word.findall(spelling(caption))
    return [word for word in words if word not in stop_words]


def spelling(text: str) -> str:
    """Return the spelling of a text by which words are compared, except for its case."""
    if text.isascii():
        return text
    patterns = _patterns()
    text = patterns.form.sub(lambda match: normalize("NFKC", match[0]), text)
    text = normalize("NFC", patterns.invisible.sub("", text)).replace("i\u0307", "i")  # the lower case of İ
    return patterns.gershayim.sub('"', patterns.apostrophe.sub("'", text))


def refuse_unspaced(captions: Sequence[Sequence[str]]) -> None:
    """Refuse captions in a script without spaces between words, unless spaces separate their words.

    Raises:
        InputError: more than 1 % of the captions are such sentences.
    """
    total = sum(map(len, captions))
    num_others = sum(not text.isascii() for image in captions for text in image)
    if num_others <= _UNSPACED_SHARE * total:
        return
    for script, run in zip(_UNSPACED, _patterns().runs, strict=True):
        num_letters, num_runs, num_found = 0, 0, 0
        longest = (0.0, 0, "")  # letters per run, row and text
        others = ((row, text) for row, image in enumerate(captions) for text in image if not text.isascii())
        for row, text in others:
            text_letters = _patterns().katakana.sub("ア", spelling(text))  # a foreign word or name: long, but one word
            runs = run.findall(text_letters)
            letters = sum(map(_count_letters, runs))
            if 2 * letters > _count_letters(text_letters):  # else it only quotes words of that script
                num_letters, num_runs, num_found = num_letters + letters, num_runs + len(runs), num_found + 1
                longest = max(longest, (letters / len(runs), row, text), key=itemgetter(0))  # the first of equals
        if num_found > _UNSPACED_SHARE * total and num_letters > script.mean_letters * num_runs:
            _, row, text = longest
            got = f"{text!r:.60} has no spaces between words ({script.names})"
            hint = "put a space between words, with a word segmenter of the language"
            hint += ", or compare captions by the vectors of a sentence encoder"
            raise InputError(f"captions of image {row}", got, hint=hint)


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


@cache
def _patterns() -> SimpleNamespace:
    """Compile the patterns that ASCII captions do not need, on first use."""
    import regex

    def compiled(expression: str) -> Any:
        return regex.compile(expression, regex.V1)

    begins = r"[[\p{L}\p{N}]--[\u115f\u1160\u3164\uffa0]]"  # these letters of Hangul are blank
    goes_on = rf"[{begins}\p{{M}}]"
    inner = rf"""'(?={begins})|(?<=\p{{Hebrew}}\p{{M}}*)"(?=\p{{Hebrew}})|(?<=l)·(?=l)"""
    return SimpleNamespace(
        word=compiled(rf"{begins}{goes_on}*+(?:(?:{inner}){goes_on}*+)*+"),
        form=compiled(r"[\ufb00-\ufdff\ufe70-\uffef]+"),
        # Me: an enclosing keycap
        invisible=compiled(r"[[\p{Default_Ignorable_Code_Point}\p{Me}]--[\u200b\u115f\u1160\u3164\uffa0]]+"),
        apostrophe=compiled(rf"(?<={goes_on})[\u2019\u2018\u201b\u02bc\u02bb\u00b4\u05f3](?={begins})"),
        gershayim=compiled(r"(?<=\p{Hebrew}\p{M}*)\u05f4(?=\p{Hebrew})"),
        katakana=compiled(r"[\p{Katakana}ー]+"),
        runs=[compiled(rf"[[{script.letters}]&&[\p{{L}}\p{{M}}]][[{script.letters}]\p{{M}}]*") for script in _UNSPACED],
    )
