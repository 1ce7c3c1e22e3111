"""Word vectors of a data set with captions: read from a file, or trained on the captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from contml import InputError
from contml.data.draw import positions
from contml.labels.caption_words import caption_tokens
from contml.labels.word_vectors import MAX_BYTES, MAX_ROWS, WordVectors, load_word_vectors, train_word_vectors

Captions: TypeAlias = "Sequence[Sequence[str]]"


def word_vectors(
    path: Path | None, train: Captions, test: Captions, dim: int, seed: int, max_bytes: int = 0, max_rows: int = 0
) -> WordVectors:
    """The vectors of all words of these captions that have one.

    Args:
        path: a file of word vectors; None: they are trained on the training captions.
        train: the captions of each training image.
        test: the captions of each validation and test image.
        dim: dimension of vectors that are trained.
        seed: seed of that training.
        max_bytes: the most bytes of the file, unpacked, where that is more than the default of `load_word_vectors`.
        max_rows: the same of its vectors.

    Raises:
        InputError: the file cannot be read, or fewer than half of the words have a vector in it.
    """
    images = chain.from_iterable(map(caption_tokens, (train, test)))
    counts = Counter(chain.from_iterable(map(chain.from_iterable, images)))
    if path is None:
        return train_word_vectors(_drawn_order([*chain.from_iterable(caption_tokens(train))], seed), dim, seed)
    vectors = load_word_vectors(path, counts, max(max_bytes, MAX_BYTES), max(max_rows, MAX_ROWS))
    num_known, total = sum(counts[word] for word in vectors), counts.total()
    if 2 * num_known < total:
        unknown_word = next(word for word, _ in counts.most_common() if word not in vectors)
        problem = f"has vectors for {num_known:,} of the {total:,} words of the captions (none for '{unknown_word}')"
        raise InputError(str(path), problem, hint="give vectors of the captions' language, in lower case")
    return vectors


def vectors_in_words(path: Path | None, vectors: WordVectors, train: Captions, option: str = "task.vectors") -> str:
    """Where word vectors are from, in words: their file and what was left out of it, or the captions.

    `option` takes another file.
    """
    if path is None:
        return f"{training_words(train)}; vectors of a large corpus are better: {option}=FILE"
    excluded = ", ".join(f"{count:,} {reason}" for reason, count in vectors.excluded.items())
    return f"{path.name}; rows left out: {excluded}" if excluded else path.name


def training_words(train: Captions) -> str:
    """What word vectors of no file were trained on, in words."""
    return f"Word2Vec, trained on the {sum(map(len, train)):,} captions of {len(train):,} training images"


def _drawn_order(captions: list[list[str]], seed: int) -> list[list[str]]:
    """The captions in an order drawn by their words: word vectors depend on the order in which captions are seen."""
    sort_keys = positions([" ".join(words) for words in captions], seed, "word vectors")
    return [captions[row] for row in np.argsort(sort_keys, kind="stable").tolist()]
