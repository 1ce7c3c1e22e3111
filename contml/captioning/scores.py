"""Scores of captions against the references of their images: BLEU, ROUGE-L, CIDEr and CIDEr-D.

    BLEU-n  = min(1, e^(1 - r / c)) (prod_{k = 1..n} p_k)^(1/n),  p_k = share of the caption's k-grams in a reference
    ROUGE-L = (1 + b^2) P R / (R + b^2 P),  P, R = longest common subsequence / length of the caption, the reference
    CIDEr   = mean_n mean_r cos(g_n(c), g_n(r)),  g_n = counts of the n-grams times log(images / images with the n-gram)
    CIDEr-D = 10 mean_n mean_r e^(-(l_c - l_r)^2 / (2 6^2)) min(g_n(c), g_n(r)) . g_n(r) / (|g_n(c)| |g_n(r)|)

Papineni et al. 2002; Lin 2004; Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", 2015.
BLEU, ROUGE-L and CIDEr-D are as in `pycocoevalcap` 1.2, whose `Cider` is CIDEr-D. In BLEU, r is the length of the
reference that is closest in length. In ROUGE-L, b = 1.2, and P and R are each the largest over the references. In
CIDEr-D, the lengths l count bigrams. Words are not stemmed, in neither form of CIDEr. An n-gram that no reference has
counts as if one image had it. If every image has all n-grams, as in a corpus of one image, CIDEr and CIDEr-D are 0.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from contml._support.errors import InputError
from contml.captioning.tokenizer import tokenize

Doubles: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]
#: The number of times that each n-gram of 1 to 4 words occurs in a caption.
Ngrams: TypeAlias = "Counter[tuple[Any, ...]]"

_BETA = 1.2  # of ROUGE-L


@dataclass(frozen=True)
class CaptionScores:
    """The scores that need no Java.

    Args:
        corpus: the scores of all captions: `bleu_1` ... `bleu_4`, `rouge_l`, `cider`, `cider_d`.
        per_image: the scores of each image `[N]`. The score of the corpus is their mean, except for BLEU.
    """

    corpus: dict[str, float]
    per_image: dict[str, Doubles]


def score_captions(candidates: list[str], references: list[list[str]]) -> CaptionScores:
    """Return BLEU, ROUGE-L, CIDEr and CIDEr-D of captions.

    Args:
        candidates: one caption per image, as raw text.
        references: the references of each image.

    Raises:
        InputError: the numbers of both differ or are 0, an image has no reference, or something is not a string.
    """
    own_tokens, other_tokens = _tokenized(candidates, references)
    own = [_words(tokens) for tokens in own_tokens]
    others = [[_words(tokens) for tokens in image] for image in other_tokens]
    corpus = _ReferenceCorpus(others)
    counts = np.array([_bleu_counts(*each) for each in zip(own, others, strict=True)])  # [N,10]
    ciders = np.array([corpus.ciders(words, image) for image, words in enumerate(own)])  # [N,2]
    bleus = {f"bleu_{n + 1}": values for n, values in enumerate(_bleu(counts).T)}
    rouge = np.array([_rouge_l(*each) for each in zip(own_tokens, other_tokens, strict=True)])
    per_image = {**bleus, "rouge_l": rouge, "cider": ciders[:, 0], "cider_d": ciders[:, 1]}
    means = {name: float(values.mean()) for name, values in per_image.items()}
    of_corpus = {f"bleu_{n + 1}": float(value) for n, value in enumerate(_bleu(counts.sum(0)))}
    return CaptionScores(means | of_corpus, per_image)


class CiderDReward:
    """CIDEr-D of captions as word numbers, for self-critical training. Document frequencies are computed once.

    It equals CIDEr-D of `score_captions` if the document frequencies are the same. A caption without words has 0.

    Args:
        references: the word numbers of each reference of each image. Document frequencies are over these images. A
            number for "end" at the end of references and captions rewards captions that end well.

    Raises:
        InputError: there is no image, an image has no reference, or a word is not a whole number.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]]) -> None:
        _check_references(references)
        for image, captions in enumerate(references):
            _check_numbers(f"references[{image}]", np.array([*chain.from_iterable(captions)] or [0]))
        self._corpus = _ReferenceCorpus(references)

    def __call__(self, tokens: Longs, lengths: Longs, rows: Longs) -> Doubles:
        """Return CIDEr-D of captions `[N]`.

        Args:
            tokens: word numbers `[N, T]`; numbers after the end of a caption are not read.
            lengths: the number of words of each caption `[N]`.
            rows: the image whose references count, for each caption `[N]`.

        Raises:
            InputError: the shapes do not fit, a value is not a whole number, or a length or a row is out of range.
        """
        tokens, lengths, rows = np.asarray(tokens), np.asarray(lengths), np.asarray(rows)
        if tokens.ndim != 2 or not lengths.shape == rows.shape == tokens.shape[:1]:
            got = f"{list(tokens.shape)}, with lengths {list(lengths.shape)} and rows {list(rows.shape)}"
            raise InputError("tokens", got, "must be [N, T], with lengths [N] and rows [N]")
        _check_numbers("tokens", tokens)
        _check_numbers("lengths", lengths, tokens.shape[1])
        _check_numbers("rows", rows, len(self._corpus.references) - 1)
        captions = zip(tokens.tolist(), lengths.tolist(), rows.tolist(), strict=True)
        return np.array([self._corpus.ciders(words[:length], row)[1] for words, length, row in captions], np.float64)


class _ReferenceCorpus:
    """References of images, with the inverse document frequencies of their n-grams.

    Args:
        references: the words of each reference of each image.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[Any]]]) -> None:
        self.references = references
        documents = Counter(ngram for image in references for ngram in set().union(*map(_ngrams, image)))
        self._unseen = math.log(len(references))
        self._idf = {ngram: self._unseen - math.log(count) for ngram, count in documents.items()}
        self._of_image = lru_cache(1024)(self._references_of)  # the captions of a batch are of few images

    def ciders(self, words: Sequence[Any], image: int) -> tuple[float, float]:
        """Return CIDEr and CIDEr-D of a caption of an image."""
        own, references = _ngrams(words), self._of_image(image)
        own_squares, cider, cider_d = self._squared_norms(own), 0.0, 0.0
        for other, other_squares, length in references:
            products, clipped = [0.0] * 4, [0.0] * 4
            for ngram in own.keys() & other.keys():
                n, product = len(ngram) - 1, other[ngram] * self._idf[ngram] ** 2
                products[n] += own[ngram] * product
                clipped[n] += min(own[ngram], other[ngram]) * product
            # Lengths are numbers of bigrams, as in pycocoevalcap.
            longer = max(len(words) - 1, 0) - max(length - 1, 0)
            penalty = math.exp(-(longer**2) / (2 * 6.0**2))
            for n, squares in enumerate(zip(own_squares, other_squares, strict=True)):
                if (divisor := math.sqrt(math.prod(squares)) * 4 * len(references)) > 0:
                    cider += products[n] / divisor
                    cider_d += 10 * penalty * clipped[n] / divisor
        return cider, cider_d

    def _references_of(self, image: int) -> list[tuple[Ngrams, list[float], int]]:
        """Return the n-grams of each reference of an image, their squared norms, and the length in words."""
        counts = [(_ngrams(words), len(words)) for words in self.references[image]]
        return [(each, self._squared_norms(each), length) for each, length in counts]

    def _squared_norms(self, counts: Ngrams) -> list[float]:
        """Return the squared norm of the tf-idf vector of a caption for n = 1 ... 4."""
        squares = [0.0] * 4
        for ngram, count in counts.items():
            squares[len(ngram) - 1] += (count * self._idf.get(ngram, self._unseen)) ** 2
        return squares


def _ngrams(words: Sequence[Any]) -> Ngrams:
    return Counter(chain.from_iterable(zip(*(words[at:] for at in range(n)), strict=False) for n in range(1, 5)))


def _bleu_counts(words: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """Return the counts that BLEU sums up: for n = 1 ... 4, the n-grams in a reference and all n-grams; two lengths.

    The first length is of the caption. The second is of the reference that is closest in length, the shorter of two.
    """
    common = _ngrams(words) & reduce(operator.or_, map(_ngrams, references))
    correct = [sum(count for ngram, count in common.items() if len(ngram) == n) for n in range(1, 5)]
    closest = min((abs(len(reference) - len(words)), len(reference)) for reference in references)[1]
    return [*correct, *(max(len(words) - n, 0) for n in range(4)), len(words), closest]


def _bleu(counts: Longs) -> Doubles:
    """Return BLEU-1 to BLEU-4 `[..., 4]`. Small numbers prevent divisions by 0, as in pycocoevalcap."""
    correct, ngrams, length, closest = counts[..., :4], counts[..., 4:8], counts[..., 8], counts[..., 9]
    shares = np.cumprod((correct + 1e-15) / (ngrams + 1e-9), axis=-1) ** (1 / np.arange(1, 5))
    ratio = (length + 1e-15) / (closest + 1e-9)
    return np.asarray(shares * np.exp(np.minimum(1 - 1 / ratio, 0))[..., None])


def _rouge_l(tokens: list[str], references: list[list[str]]) -> float:
    from rapidfuzz.distance import LCSseq

    tokens = tokens or [""]  # so that two captions without words are equal, as in pycocoevalcap
    common = [(LCSseq.similarity(tokens, reference or [""]), len(reference) or 1) for reference in references]
    precision = max(length for length, _ in common) / len(tokens)
    recall = max(length / size for length, size in common)
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision) if precision else 0.0


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


def _tokenized(candidates: list[str], references: list[list[str]]) -> tuple[list[list[str]], list[list[list[str]]]]:
    """Check captions and references, and return the tokens of each caption, and of the references of each image."""
    if len(candidates) != len(references):
        got = f"{len(candidates)} captions, and references of {len(references)} images"
        raise InputError("candidates", got, "must be one caption per image")
    _check_references(references)
    for image, (own, others) in enumerate(zip(candidates, references, strict=True)):
        for name, text in [("candidates", own), *(("references", other) for other in others)]:
            if not isinstance(text, str):
                raise InputError(f"{name}[{image}]", f"{type(text).__name__} {text!r}", "must be strings")
    return [*map(tokenize, candidates)], [[tokenize(text) for text in image] for image in references]


def _words(tokens: list[str]) -> list[str]:
    """Return the words of tokens, split at spaces as in pycocoevalcap: "3 1/2" is two words."""
    return " ".join(tokens).split()
