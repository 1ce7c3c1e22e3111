"""Scores of captions against the references of their images: BLEU, ROUGE-L, CIDEr and CIDEr-D.

    BLEU-n  = min(1, e^(1 - r / c)) (prod_{k = 1..n} p_k)^(1/n),  p_k = share of the caption's k-grams in a reference
    ROUGE-L = (1 + b^2) P R / (R + b^2 P),  P, R = longest common subsequence / length of the caption, the reference
    CIDEr   = mean_n mean_r cos(g_n(c), g_n(r)),  g_n = counts of the n-grams times log(images / images with the n-gram)
    CIDEr-D = 10 mean_n mean_r e^(-(l_c - l_r)^2 / (2 6^2)) min(g_n(c), g_n(r)) . g_n(r) / (|g_n(c)| |g_n(r)|)

Papineni et al. 2002; Lin 2004; Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", 2015.
BLEU, ROUGE-L and CIDEr-D are as in `pycocoevalcap` 1.2, whose `Cider` is CIDEr-D: of BLEU, r is the length of the
reference that is closest in length; of ROUGE-L, b = 1.2, and P and R are each the largest over the references; of
CIDEr-D, the lengths l count bigrams. Words are not stemmed, in neither form of CIDEr. An n-gram that no reference has
counts as if one image had it. Where every image has all n-grams, as in a corpus of one image, CIDEr and CIDEr-D are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from contml._support.errors import InputError
from contml.captioning.tokenizer import tokenize_all

if TYPE_CHECKING:
    from contml.captioning._ngrams import Captions, Doubles, Longs

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contml.captioning._ngrams import Doubles

_BETA = 1.2  # of ROUGE-L


@dataclass(frozen=True)
class CaptionScores:
    """The scores that need no Java.

    Args:
        corpus: of all captions: `bleu_1` ... `bleu_4`, `rouge_l`, `cider`, `cider_d`.
        per_image: the same of each image `[N]`. The score of the corpus is their mean, except of BLEU.
    """

    corpus: dict[str, float]
    per_image: dict[str, Doubles]


def score_captions(candidates: list[str], references: list[list[str]]) -> CaptionScores:
    """Returns BLEU, ROUGE-L, CIDEr and CIDEr-D of captions; the text is tokenized once.

    Args:
        candidates: one caption per image, as raw text.
        references: the references of each image.

    Raises:
        InputError: the numbers of both differ or are 0, an image has no reference, or something is not a string.
    """
    texts = Tokenized(candidates, references)
    captions, packed = _numbered(texts)
    bleus, bleu_per_image = _bleu(captions, packed)
    ciders, ciders_d = _ReferenceVectors(packed).ciders(captions, np.arange(len(candidates)))
    per_image = {f"bleu_{n + 1}": bleu_per_image[:, n] for n in range(4)}
    per_image |= {"rouge_l": _rouge_l(texts), "cider": ciders, "cider_d": ciders_d}
    corpus = {name: float(values.mean()) for name, values in per_image.items()}
    return CaptionScores(corpus | {f"bleu_{n + 1}": float(bleus[n]) for n in range(4)}, per_image)


def bleu(candidates: list[str], references: list[list[str]]) -> tuple[Doubles, Doubles]:
    """Returns BLEU-1 to BLEU-4 of the corpus `[4]` and of each image `[N, 4]`; arguments as of `score_captions`."""
    return _bleu(*_numbered(Tokenized(candidates, references)))


def rouge_l(candidates: list[str], references: list[list[str]]) -> tuple[float, Doubles]:
    """Returns ROUGE-L of the corpus and of each image `[N]`; arguments as of `score_captions`."""
    return _with_mean(_rouge_l(Tokenized(candidates, references)))


def cider(candidates: list[str], references: list[list[str]]) -> tuple[float, Doubles]:
    """Returns CIDEr, between 0 and 1, of the corpus and of each image `[N]`; arguments as of `score_captions`."""
    return _with_mean(_ciders(candidates, references)[0])


def cider_d(candidates: list[str], references: list[list[str]]) -> tuple[float, Doubles]:
    """Returns CIDEr-D, between 0 and 10, of the corpus and of each image `[N]`; arguments as of `score_captions`."""
    return _with_mean(_ciders(candidates, references)[1])


class CiderDReward:
    """CIDEr-D of captions as word numbers, for self-critical training. Document frequencies are computed once.

    It equals `cider_d` where the document frequencies are the same. A caption without words is worth 0.

    Args:
        references: the word numbers of each reference of each image. Document frequencies are over these images. A
            number for "end" at the end of references and captions rewards captions that end well.

    Raises:
        InputError: there is no image, an image has no reference, or a word is not a number from 0 to 2^31 - 1.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]]) -> None:
        _check_references(references)
        for image, captions in enumerate(references):
            _check_numbers(f"references[{image}]", np.array([*chain.from_iterable(captions)] or [0]), (1 << 31) - 1)
        stops = np.cumsum([len(caption) for captions in references for caption in captions])
        words = np.array([*chain.from_iterable(chain.from_iterable(references))], np.int64)
        self._vectors = _ReferenceVectors(_References(_packed(words, stops), np.cumsum([0, *map(len, references)])))

    def __call__(self, tokens: Longs, lengths: Longs, rows: Longs) -> Doubles:
        """Returns CIDEr-D of captions `[N]`.

        Args:
            tokens: word numbers `[N, T]`; numbers after the end of a caption are not read.
            lengths: the number of words of each caption `[N]`.
            rows: the image whose references count, for each caption `[N]`.

        Raises:
            InputError: the shapes do not fit, these are no whole numbers, or a length or a row is out of range.
        """
        tokens, lengths, rows = np.asarray(tokens), np.asarray(lengths), np.asarray(rows)
        if tokens.ndim != 2 or not lengths.shape == rows.shape == tokens.shape[:1]:
            got = f"{list(tokens.shape)}, with lengths {list(lengths.shape)} and rows {list(rows.shape)}"
            raise InputError("tokens", got, "must be [N, T], with lengths [N] and rows [N]")
        _check_numbers("tokens", tokens)
        _check_numbers("lengths", lengths, tokens.shape[1])
        _check_numbers("rows", rows, len(self._vectors.references.reference_starts) - 2)
        starts = np.arange(len(tokens)) * tokens.shape[1]
        words = np.ascontiguousarray(tokens, np.int64).ravel()
        captions = words, starts, starts + lengths.astype(np.int64)
        return self._vectors.ciders(captions, rows.astype(np.int64))[1]


class Tokenized:
    """The tokens of captions and of their references; the captions of each are in one list, which is fast.

    Args:
        candidates: as of `score_captions`, and checked here.
        references: as of `score_captions`, and checked here.

    Raises:
        InputError: as `score_captions`.
    """

    def __init__(self, candidates: list[str], references: list[list[str]]) -> None:
        if len(candidates) != len(references):
            got = f"{len(candidates)} captions, and references of {len(references)} images"
            raise InputError("candidates", got, "must be one caption per image")
        _check_references(references)
        self.reference_starts = np.cumsum(
            [0, *map(len, references)]
        )  # the first reference of each image, and their number
        flat_references = [*chain.from_iterable(references)]
        checked: tuple[tuple[str, Sequence[Any]], ...] = (("candidates", candidates), ("references", flat_references))
        for name, texts in checked:
            for row, text in enumerate(texts):
                if not isinstance(text, str):
                    image = (
                        row if texts is candidates else int(np.searchsorted(self.reference_starts, row, "right")) - 1
                    )
                    raise InputError(f"{name}[{image}]", f"{type(text).__name__} {text!r}", "must be strings")
        self.candidate_tokens, self.candidate_stops = tokenize_all(candidates)
        self.reference_tokens, self.reference_stops = tokenize_all(flat_references)

    def images(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        """The tokens of each caption, and of the references of its image."""
        captions = _parts(self.candidate_tokens, self.candidate_stops)
        references = _parts(self.reference_tokens, self.reference_stops)
        for caption, size in zip(captions, np.diff(self.reference_starts).tolist(), strict=True):
            yield caption, [*islice(references, size)]


def _parts(tokens: list[str], stops: list[int]) -> Iterator[list[str]]:
    return (tokens[start:stop] for start, stop in pairwise([0, *stops]))


class _References:
    """References of images as word numbers."""

    def __init__(self, captions: Captions, first: Longs) -> None:
        self.captions, self.reference_starts = captions, first
        self.images = np.repeat(np.arange(len(first) - 1), np.diff(first))


class _ReferenceVectors:
    """The tf-idf vectors of references: document frequencies and norms."""

    def __init__(self, references: _References) -> None:
        from contml.captioning import _ngrams  # here: it imports numba

        self.references = references
        table, images, ngrams = _ngrams.count_images(references.captions, references.images)
        unseen = float(np.log(len(references.reference_starts) - 1))
        idf = unseen - np.log(np.maximum(images, 1))
        self._tree = table, idf, unseen
        self._norms = _ngrams.norms(references.captions, ngrams, idf)

    def ciders(self, captions: Captions, rows: Longs) -> tuple[Doubles, Doubles]:
        """Returns CIDEr and CIDEr-D of captions of images `[N]`."""
        from contml.captioning import _ngrams  # here: it imports numba

        references = self.references
        return _ngrams.ciders(captions, rows, references.captions, self._norms, references.reference_starts, self._tree)


def _bleu(captions: Captions, references: _References) -> tuple[Doubles, Doubles]:
    from contml.captioning import _ngrams  # here: it imports numba

    correct, closest = _ngrams.matches(captions, references.captions, references.reference_starts)
    lengths = captions[2] - captions[1]
    ngrams = np.maximum(lengths[:, None] - np.arange(4), 0)  # [N,4]
    corpus = _bleu_of_counts(correct.sum(0), ngrams.sum(0), lengths.sum(), closest.sum())
    return corpus, _bleu_of_counts(correct, ngrams, lengths, closest)


def _bleu_of_counts(correct: Longs, ngrams: Longs, length: Longs, closest: Longs) -> Doubles:
    """Returns BLEU-1 to BLEU-4; the small numbers are as in pycocoevalcap, instead of divisions by 0."""
    shares = np.cumprod((correct + 1e-15) / (ngrams + 1e-9), axis=-1) ** (1 / np.arange(1, 5))
    ratio = (length + 1e-15) / (closest + 1e-9)
    return np.asarray(shares * np.exp(np.minimum(1 - 1 / ratio, 0))[..., None])


def _rouge_l(texts: Tokenized) -> Doubles:
    from rapidfuzz.distance import LCSseq

    scores = np.zeros(len(texts.candidate_stops))
    for image, (caption, references) in enumerate(texts.images()):
        caption = caption or [""]  # so that two captions without words are equal, as in pycocoevalcap
        common = [(LCSseq.similarity(caption, reference or [""]), len(reference) or 1) for reference in references]
        precision = max(length for length, _ in common) / len(caption)
        recall = max(length / size for length, size in common)
        if precision:
            scores[image] = (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)
    return scores


def _ciders(candidates: list[str], references: list[list[str]]) -> tuple[Doubles, Doubles]:
    captions, packed = _numbered(Tokenized(candidates, references))
    return _ReferenceVectors(packed).ciders(captions, np.arange(len(candidates)))


def _check_references(references: Sequence[Sequence[Any]]) -> None:
    if not len(references):
        raise InputError("references", "no image", "must be at least one image")
    for image, captions in enumerate(references):
        if isinstance(captions, str):
            raise InputError(f"references[{image}]", "a string", "must be a list of captions")
        if not len(captions):
            raise InputError(f"references[{image}]", "no caption", "must be at least one caption per image")


def _check_numbers(name: str, numbers: np.ndarray[Any, Any], high: int | None = None) -> None:
    if numbers.dtype.kind not in "iu":
        raise InputError(name, str(numbers.dtype), "must be whole numbers")
    if high is not None and numbers.size and not 0 <= numbers.min() <= numbers.max() <= high:
        raise InputError(name, f"{numbers.min()} to {numbers.max()}", f"must be 0 to {high}")


def _numbered(texts: Tokenized) -> tuple[Captions, _References]:
    """Returns words as numbers. As in pycocoevalcap, n-grams are of words between any spaces: "3 1/2" is two."""
    rows = {
        token: row for row, token in enumerate(dict.fromkeys(chain(texts.candidate_tokens, texts.reference_tokens)))
    }
    words_of = [token.split() for token in rows]
    widths = np.array([len(words) for words in words_of], np.int64)
    word_ids: dict[str, int] = {}
    flat_words = np.array([word_ids.setdefault(word, len(word_ids)) for words in words_of for word in words], np.int64)
    word_starts = np.cumsum(widths) - widths  # of each token, in flat_words

    def packed(tokens: list[str], stops: list[int]) -> Captions:
        token_rows = np.fromiter(map(rows.__getitem__, tokens), np.int64, len(tokens))
        sizes = widths[token_rows]
        ends = np.cumsum(np.concatenate(([0], sizes)))
        positions = np.arange(ends[-1]) + np.repeat(word_starts[token_rows] - ends[:-1], sizes)
        return _packed(flat_words[positions], ends[stops])

    return packed(texts.candidate_tokens, texts.candidate_stops), _References(
        packed(texts.reference_tokens, texts.reference_stops), texts.reference_starts
    )


def _packed(words: Longs, stops: Longs) -> Captions:
    """Returns captions as `_ngrams` takes them."""
    return words, np.concatenate(([0], stops[:-1])), stops


def _with_mean(values: Doubles) -> tuple[float, Doubles]:
    return float(values.mean()), values


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
