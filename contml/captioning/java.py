"""METEOR and SPICE: programs in Java, which come with `pycocoevalcap`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contml._support.errors import InputError
from contml.captioning.scores import Tokenized

if TYPE_CHECKING:
    from contml.captioning._ngrams import Doubles

#: What SPICE parses with; `pycocoevalcap` downloads it.
_PARSER = "stanford-corenlp-3.6.0"


def meteor(candidates: list[str], references: list[list[str]]) -> tuple[float, Doubles]:
    """Returns METEOR 1.5 of the corpus and of each image `[N]`; arguments as of `score_captions`.

    Raises:
        InputError: Java or `pycocoevalcap` is missing, or the captions are wrong, as in `score_captions`.
    """
    texts = _texts(candidates, references)
    _package("METEOR")
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    try:
        corpus, per_image = scorer.compute_score(*texts)
    finally:
        for stream in (scorer.meteor_p.stdout, scorer.meteor_p.stderr):
            stream.close()
    return float(corpus), np.array(per_image)


def spice(candidates: list[str], references: list[list[str]]) -> tuple[float, Doubles]:
    """Returns SPICE of the corpus and of each image `[N]`; arguments as of `score_captions`. It never downloads.

    Raises:
        InputError: Java, `pycocoevalcap` or its parser is missing, or the captions are wrong, as in `score_captions`.
    """
    texts = _texts(candidates, references)
    libraries = _package("SPICE") / "spice" / "lib"
    for filename in (f"{_PARSER}.jar", f"{_PARSER}-models.jar"):
        if not (libraries / filename).is_file():
            hint = "download it (about 400 MB): python -m pycocoevalcap.spice.get_stanford_models"
            raise InputError("SPICE", f"its parser is missing: {libraries / filename}", hint=hint)
    from pycocoevalcap.spice.spice import Spice

    corpus, per_image = Spice().compute_score(*texts)
    return float(corpus), np.array([scores["All"]["f"] for scores in per_image])


def _texts(candidates: list[str], references: list[list[str]]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Returns references and captions in the form that `pycocoevalcap` takes."""
    reference_texts, candidate_texts = {}, {}
    for image, (tokens, references_tokens) in enumerate(Tokenized(candidates, references).images()):
        reference_texts[image], candidate_texts[image] = (
            [" ".join(each) for each in references_tokens],
            [" ".join(tokens)],
        )
    return reference_texts, candidate_texts


def _package(score: str) -> Path:
    """Returns the folder of `pycocoevalcap`, after checking that it and Java are there."""
    try:
        import pycocoevalcap
    except ImportError:
        raise InputError(score, "pycocoevalcap is not installed", hint="pip install 'contml[captions]'") from None
    if shutil.which("java") is None:
        raise InputError(score, "no program 'java' on the PATH", hint="install a Java runtime, version 8 or later")
    return Path(next(iter(pycocoevalcap.__path__)))
