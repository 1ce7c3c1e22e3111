"""One vocabulary: words that only this project would understand stand nowhere in its code, configs and pages."""

from __future__ import annotations

import io
import re
import tokenize

import pytest
from support.paths import ROOT

#: Names of variables, functions and arguments that do not say what they hold.
NAMES = {"told", "those", "sides", "odd", "twin", "itself", "lonely", "said"}
#: Phrases, and what to write instead.
PHRASES = {
    r"matters? of degree|of any degree": "graded",
    r"who queries whom": "query set and gallery",
    r"on the way (to|from)|way to (the )?oracle|[\"']/way|the way from random": "normalized score",
    r"\btwins?\b": "synthetic data set",
    r"as (they|it) comes?\b": "unnormalized, in order",
    r"\b(one|each|numbers?|labels?|vector|row|line|proxy|neighbours?|images?|captions?|centers?) an? "
    r"(item|class|image|row|query|batch|epoch|label|anchor|line)\b": "per",
    r"leaves? away|left away": "omit",
    r"(stands?|given|named) twice": "appears twice",
    r"(?<!\.)\b(tells?|told|telling)\b": "report, show",
    r"\bRegionLabels|PlaceLabels|MultiLabels\b": "SegmentationLabels, GeoLabels, MultiHotLabels",
    r"\blonely\b": "singletons",
    r"\bis of another\b": "",
    r"[Hh]eld to (the|its|their)\b": "checked against",
    r"\bfigures?\b": "metric, plot, person, number",
    r"\bnoneof\b": "",
}
#: Files that may hold a phrase: what matplotlib calls a figure, numbers of papers' figures.
ALLOWED = {
    r"\bRegionLabels|PlaceLabels|MultiLabels\b": ("CHANGELOG",),
    r"\bfigures?\b": (
        "contml/report/",
        "contml/compare/",
        "contml/sweep/",
        "benchmarks/",
        "tests/report",
        "tests/compare",
    ),
}
FILES = sorted(
    path
    for pattern in (
        "contml/**/*.py",
        "tasks/**/*.py",
        "benchmarks/*.py",
        "tests/**/*.py",
        "configs/**/*.yaml",
        "docs/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "test_vocabulary.py"
) + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/messages.txt")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_words(path):
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    found = [
        f"{name}:{number}: {match[0]!r}; write {instead}: {line.strip()[:90]}"
        for phrase, instead in PHRASES.items()
        if not name.startswith(ALLOWED.get(phrase, ("nowhere",)))
        for number, line in enumerate(text.splitlines(), 1)
        for match in re.finditer(phrase, line)
    ]
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        found += [
            f"{name}:{token.start[0]}: the name {token.string!r}"
            for token in tokens
            if token.type == tokenize.NAME and token.string in NAMES
        ]
    assert not found, "\n".join(found)
