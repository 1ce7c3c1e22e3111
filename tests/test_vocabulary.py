"""One vocabulary: words that only this project would understand stand nowhere in its code, configs and pages."""

import io
import re
import tokenize

import pytest
from support.paths import ROOT

#: Names of variables, functions and arguments that do not say what they hold.
NAMES = {"told", "those", "sides", "odd", "twin", "itself", "lonely", "said"}
#: Phrases, and what to write instead.
PHRASES = dict(line.split(" || ") for line in (ROOT / "tests/vocabulary.txt").read_text("utf-8").splitlines())
#: Files that may hold a phrase: what matplotlib calls a figure, numbers of papers' figures.
ALLOWED = {
    r"\bRegionLabels|PlaceLabels|MultiLabels\b": ("CHANGELOG",),
    r"\bfigures?\b": ("contml/app/report/", "contml/app/", "benchmarks/", "tests/app/report", "tests/app"),
}
PATTERNS = (
    *("contml/**/*.py", "tasks/**/*.py", "benchmarks/*.py", "tests/**/*.py", "configs/**/*.yaml", "docs/**/*.md"),
    *("*.md", "tests/messages.txt"),
)


def offences(path):
    """The lines of a file with a phrase or a name that is not used."""
    text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    for phrase, instead in PHRASES.items():
        if not name.startswith(ALLOWED.get(phrase, ("nowhere",))):
            for match in re.finditer(phrase, text):
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}; write {instead}"
    if path.suffix == ".py" and re.search(rf"\b({'|'.join(NAMES)})\b", text):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and token.string in NAMES:
                yield f"{name}:{token.start[0]}: the name {token.string!r}"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_private_words(pattern):
    paths = [path for path in ROOT.glob(pattern) if path.name != "test_vocabulary.py"]
    assert paths
    found = [line for path in sorted(paths) for line in offences(path)]
    assert not found, "\n".join(found)
