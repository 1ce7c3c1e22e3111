"""The words of a caption by the rules of the Penn Treebank (PTB), as the published caption scores count them.

The published scores were computed with `pycocoevalcap`: Stanford's `PTBTokenizer` (CoreNLP 3.4.1, a Java program) with
`-lowerCase`, whose output then loses a list of punctuation. The regular expressions here return the same words. They
were found by comparison with that program, character by character and case by case. docs/caption_scores.md lists the
texts on which both agree, and their differences.

At each position the rule with the longest match makes the next token. Of equally long matches, the first rule makes
it. The text that must follow a token counts in the length of its match, but is not part of the token: "isn't" is `is`,
followed by `n't`.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Symbols that are words. Characters that no rule knows (emoji, private use) separate words, as a space does.
_SYMBOLS = (
    "\xa1\xa5-\xa9\xac\xae-\xb4\xb6-\xb9\xbf\xd7\xf7\u037e\u0387\u0589\u05be\u05c0\u05c3\u05c6\u05f3\u05f4\u0600-\u0603"
    "\u0606-\u060c\u0614\u061b\u061e\u061f\u066a\u066d\u06d4\u0700-\u070d\u07f6-\u07f8\u0964\u0965\u0e3f\u0e4f\u1fbd"
    "\u2016\u2017\u201a\u201e-\u2023\u2030-\u2038\u203b\u203e-\u2042\u2070\u2074-\u207e\u2080-\u208e\u2100\u2101"
    "\u2103-\u2106\u2108\u2109\u2114\u2116-\u2118\u211e-\u2123\u2125\u2127\u2129\u212e\u213a\u213b\u2140-\u2144"
    "\u214a-\u214d\u214f\u2155-\u215e\u2190-\u2bff\u3001\u3002\u3012\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40"
    "\uff5b-\uff65\uffe0\uffe1\uffe5\uffe6"
)
#: Marks that are part of words: accents that combine with the letter before, vowel signs.
_MARKS = (
    "\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u02ed\u02ef-\u036f\u0375\u0378\u0379\u0384\u0385\u03f6\u0483-\u0487"
    "\u055a-\u055f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0615-\u061a\u064b-\u065e\u0670\u06d6-\u06e4"
    "\u06e7-\u06ed\u06fd\u06fe\u070f\u0711\u0730-\u074c\u07a6-\u07b0\u07eb-\u07f3\u0900-\u0903\u093c\u093e-\u094e"
    "\u0951-\u0955\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09c4\u09c7\u09c8\u09cb-\u09cd\u09d7\u09e2\u09e3\u0a01-\u0a03"
    "\u0a3c\u0a3e-\u0a4f\u0a81-\u0a83\u0abc\u0abe-\u0acf\u0b82\u0bbe-\u0bc2\u0bc6-\u0bc8\u0bca-\u0bcd\u0c01-\u0c03"
    "\u0c3e-\u0c56\u0d3e-\u0d44\u0d46-\u0d48\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd"
)
_SPACE = r"[ \t\xa0\u2000-\u200a\u3000]"
_NOT_LETTERS = rf"_{_SYMBOLS}\xbc-\xbe\u2044\u20a4\u2150-\u2188\U00010000-\U0010ffff"
_LETTER = rf"(?:[^\W\d{_NOT_LETTERS}]|[\xad{_MARKS}])"
_LETTER_OR_DIGIT = rf"(?:{_LETTER}|\d)"
_ALPHANUMERIC = rf"[^\W{_NOT_LETTERS}]"
_APOSTROPHE = r"(?:['\u2019\x92]|&apos;)"
_ACCENT = rf"(?:{_APOSTROPHE}|[`\x91\u2018\u201b])"  # an apostrophe, or a character that is typed instead
_AFTER_WORD = "[^A-Za-z]"

# Words.
_WORD = rf"{_LETTER}{_LETTER_OR_DIGIT}*(?:[.!?]{_LETTER}{_LETTER_OR_DIGIT}*)*"
_PART = rf"(?:[dDoOlL]{_ACCENT}{_ALPHANUMERIC})?{_ALPHANUMERIC}+"  # of a compound: a word, d'Arc, O'Neil
_COMPOUND = rf"{_PART}(?:[-_\u058a\u2010\u2011]{_PART})*"  # well-known, 3-year-old
_DOTTED_COMPOUND = r"[A-Za-z0-9][A-Za-z0-9.,\xad]*(?:-(?:[A-Za-z](?:\.[A-Za-z])+\.|[A-Za-z0-9\xad]+))+"  # U.S.-led
_JOINED_CAPITALS = r"[A-Z]+(?:(?:[+]|&(?:amp;)?)[A-Z]+)+"  # AT&T, A&amp;P
_SLASHED = r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2}"  # and/or, black/white
_WITH_APOSTROPHE = rf"""
    {_APOSTROPHE}(?ai:em|till?|cause|n{_APOSTROPHE}) | {_APOSTROPHE}[2-9]0[sS]
    | (?ai:dunkin|somethin|ol){_APOSTROPHE}
    | [A-HJ-XZn]{_ACCENT}{_LETTER}{{2,}} | {_LETTER}+[aeiouyAEIOUY]{_ACCENT}[aeiouA-Z]{_LETTER}*
    | (?ai:o{_ACCENT}o|cap{_APOSTROPHE}n|ev{_APOSTROPHE}ry|li{_APOSTROPHE}l|nat{_APOSTROPHE}l|e{_APOSTROPHE}er
    | s{_APOSTROPHE}mores|c{_APOSTROPHE}est|c{_APOSTROPHE}mon) | [lLdDjJ]{_APOSTROPHE}
"""  # 'em, '90s, ol', O'Neil, ma'am
_CLITIC = rf"{_APOSTROPHE}(?ai:[msd]|re|ve|ll)"  # 's, 'll
_NOT = rf"[nN]{_ACCENT}[tT]"
_CLITICS = re.compile(f"{_CLITIC}|{_NOT}")

# Numbers.
_NUMBER = r"(?:\d*(?:[.:,\xad\u066b\u066c]\d+)+|\d+)"
_FRACTION = r"(?:\d{1,4}[- \xa0])?\d{1,4}(?:\\?/|\u2044)\d{1,4}"  # 1 1/2 is one token
_DATE = r"\d{1,2}[-/]\d{1,2}[-/]\d{2,4}"

# Abbreviations, which keep their full stop.
_TITLES = """
    adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det drs? elec ens ft gen govs?
    hon insp invt jos lieut lt maj messrs mlle mme mrs? ms msgr mt natl pfc ph pres profs? pvt reps? rev sens? sfc sgt
    spc st ste supt treas vs wm
"""
_ABBREVIATIONS = """
    al ala apr ariz assn aug bhd bldg blvd bros calif co colo conn corp cos ct dak dec esq est etc ext feb fla fri ga
    inc ind intl jan jr jul jun kans? ky ltd mar md mich minn mo mon mont neb nev nov oct okla penn plc rd rt sept? seq
    sq sr sys tel tenn thu thurs tue tues univ va vt wed wisc? wyo ph\\.d
"""
_STATES = "ark az del ill la mass miss ore pa tex wash"
_ABBREVIATIONS_BEFORE_NUMBERS = "art ca fig figs no nos op pp prop"
#: After an initial ("K."), such a word starts a sentence, so the full stop ends the sentence before it.
_SENTENCE_STARTS = """
    a about according after an as at but he her here however if in it last many more now once one other our she since so
    some such that the their then there these they this we what when while yet you
"""


def _any_case(words: str) -> str:
    return f"(?ai:{'|'.join(words.split())})"


def _capitalized(words: str) -> str:
    return f"(?:{'|'.join(f'{word[0].upper()}(?ai:{word[1:]})' for word in words.split())})"


_TITLE = rf"(?:{_any_case(_TITLES)}|[Mm][ft][gG])\."
_ABBREVIATION = rf"(?:{_any_case(_ABBREVIATIONS)}|{_capitalized(_STATES)}|[Pp]{{1,2}}[Tt][ey][sS]?)\."

#: The written forms of single and double quotation marks.
_QUOTES = {
    **dict.fromkeys("`\x91\u2018\u201b\u2039", "`"),
    **dict.fromkeys("'\x92\u2019\u203a", "'"),
    **dict.fromkeys("\x93\xab\u201c", "``"),
    **dict.fromkeys('"\x94\xbb\u201d', "''"),
}
#: The written forms of tokens that differ from their lower case.
_SPELLING = {
    "(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-",
    "&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&quot;": '"', "&apos;": "'", "\xa2": "cents", "\xa3": "#",
    "\xad": "-", "\xbc": "1/4", "\xbd": "1/2", "\xbe": "3/4", "\u2153": "1/3", "\u2154": "2/3",
    **dict.fromkeys("\x80\xa4\u20a0\u20ac", "$"),
    **dict.fromkeys("\x85\u2026", "..."),
    **dict.fromkeys(["\x96", "\x97", "\u2013", "\u2014", "\u2015", "---", "----", "&mdash;", "&ndash;", "&md;"], "--"),
}  # fmt: skip
#: The punctuation that `pycocoevalcap` omits. (Its list has "-LRB-" too, which never occurs after `-lowerCase`.)
_PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";", '"'])

#: The rules: the token, and the text that must follow it.
_RULES = tuple(
    re.compile(f"({token}){after}", re.VERBOSE)
    for token, after in [
        ("(?ai:can)", "(?ai:not)"),
        ("(?ai:gon|wan)", "(?ai:na)"),
        ("(?ai:got)", "(?ai:ta)"),
        ("(?ai:lem|gim)", "(?ai:me)"),
        ("'[tT]", "(?ai:is|was)"),
        (rf"[A-Za-z]*[A-MO-Za-mo-z](?={_NOT})", _NOT),
        (_WORD, _CLITIC),
        (_CLITIC, _AFTER_WORD),
        (rf"{_APOSTROPHE}\d\d", r"\s"),
        (_WITH_APOSTROPHE, ""),
        ("'", r"[A-Za-z0-9]\S"),  # a quotation mark
        (_CLITIC, ""),
        (_NOT, ""),
        (rf"{_APOSTROPHE}[nN]", ""),
        (_WORD, ""),
        (rf"[yY]{_APOSTROPHE}", _LETTER),
        (_FRACTION, ""),
        (_DATE, ""),
        (rf"[-+]?{_NUMBER}", ""),
        (r"[A-Za-z]", rf"\.\s+(?:{_capitalized(_SENTENCE_STARTS)}|M[rs]\.|<[/!]?[A-Za-z][A-Za-z0-9]*>)\s"),
        (_TITLE, ""),
        (_ABBREVIATION, r"(?s:..)"),
        (r"[A-Za-z](?:\.[A-Za-z])*\.", ""),
        (rf"{_any_case(_ABBREVIATIONS_BEFORE_NUMBERS)}\.", rf"{_SPACE}?\d"),
        (rf"(?:{_WORD}|{_COMPOUND}|{_JOINED_CAPITALS})\.", "[,;:]"),
        (rf"{_DOTTED_COMPOUND}\.", "[,;:]"),
        (_COMPOUND, ""),
        (_DOTTED_COMPOUND, ""),
        (_JOINED_CAPITALS, ""),
        (_SLASHED, ""),
        (r"[A-Z]*\$", ""),
        (r"&(?:[mn]dash|MD|nbsp|(?ai:amp|lt|gt|quot|apos));", ""),
        (r"''|[`\xab\xbb\x91-\x94\u2018-\u201d\u2039\u203a]{2}", ""),
        (r"-+|\.(?:\.{2,4}|(?:[ \xa0]\.){2,4})|\*+|[!?]+|<<|>>|@+|\#+|_+|\\\*|[!-~]", ""),
        (rf"[{_SYMBOLS}{''.join(_QUOTES)}\x80\x85\x96\x97\xa2-\xa4\xad\xbc-\xbe]", ""),
        (r"[\u2013-\u2015\u2026\u2044\u20a0\u20a4\u20ac\u2153\u2154]", ""),
    ]
)


#: Text in which a token may cross a space: "1 1/2", "No. 5"; or the next word matters: "K. The".
_ACROSS_SPACES = re.compile(r"[\d.\xa0\u2000-\u200a\u205f\u3000](?:(?<![\d.])|\s\d|(?<=[A-Za-z]\.)\s+[A-Z])")


def tokenize(text: str) -> list[str]:
    """Return the words of a caption by the rules of the Penn Treebank: lower case, without punctuation.

    They are as in `pycocoevalcap`'s `PTBTokenizer`, except that they never depend on the next caption. In
    `PTBTokenizer`, an initial at the end of a caption ("sign that reads K.") loses its full stop if the next one starts
    with "A". Some tokens contain a no-break space: "3 1/2" is one.
    """
    if _ACROSS_SPACES.search(text):
        return _tokens(text)
    return [token for part in text.split() for token in _tokens_of_part(part)]


def _tokens(text: str) -> list[str]:
    """Return the tokens of a text by the rules, without punctuation."""
    text, start, tokens = f"{text}\n\n", 0, []  # some rules look two characters ahead
    while start < len(text):
        matches = () if text[start].isspace() else [match for rule in _RULES if (match := rule.match(text, start))]
        if not matches:  # a space, or a character that no rule knows
            start += 1
            continue
        longest = max(matches, key=re.Match.end)  # the first of equally long ones
        start = longest.end(1)
        tokens.append(_written(longest[1]))
    return [token for token in tokens if token not in _PUNCTUATION and not token.isspace()]


#: The tokens of a text without spaces.
_tokens_of_part = lru_cache(1 << 16)(_tokens)


def _written(token: str) -> str:
    """Return the written form of a token."""
    token = token.lower()
    if token in _SPELLING:
        return _SPELLING[token]
    if all(character in _QUOTES for character in token):
        return "".join(_QUOTES[character] for character in token)
    if not token.strip(". \xa0"):
        return "..."
    if _CLITICS.fullmatch(token):
        return "".join(_QUOTES.get(character, character) for character in token.replace("&apos;", "'"))
    if "&amp;" in token and re.fullmatch(_JOINED_CAPITALS, token, re.IGNORECASE):
        token = token.replace("&amp;", "&")
    token = token.replace(" ", "\xa0").replace("\xad", "")
    return token if token.startswith(("<!", "<?")) else token.replace("(", "-lrb-").replace(")", "-rrb-")
