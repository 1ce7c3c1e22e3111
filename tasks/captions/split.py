"""A split of images with captions, and the word vectors of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from contml import InputError
from contml.data import ImageSource, Split, draw_queries, query_split
from contml.data.renderers.captions import CaptionExplainer, CaptionRenderer, Vectors
from contml.labels import CaptionLabels
from contml.labels.captions import load_word_vectors, tokens, train_word_vectors

Captions: TypeAlias = "Sequence[Sequence[str]]"


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    captions: Captions,
    vectors: Vectors,
    *,
    normalize: bool = False,
    empty: Literal["refuse", "drop"] = "refuse",
    queries: int | Sequence[int] = 0,
    seed: int = 0,
    excluded: Mapping[str, int] | None = None,
) -> Split:
    """A split of images with captions.

    Args:
        images: where the image of each item comes from.
        names: the name of each item.
        captions: the captions of each item.
        vectors: the word vectors of both splits.
        normalize: scale word vectors to unit length first.
        empty: what to do with items whose captions have no word with a vector: "refuse", or "drop" them.
        queries: how many items, drawn at random, are queries, or which rows; 0: every item is a query against all
            others.
        seed: of that draw.
        excluded: how many items were left out before, by reason.

    Raises:
        InputError: an item has no word with a vector, or too few queries or other items are left.
    """
    labels = CaptionLabels(captions, vectors=vectors, normalize=normalize, empty="drop")
    kept: list[int] = labels.kept.tolist()
    wordless = len(names) - len(kept)
    if wordless and empty == "refuse":
        first = min(set(range(len(names))) - set(kept))
        raise InputError(
            f"{names[first]}: no caption has a word that has a vector ({wordless:,} such images); "
            "leave these out, give vectors for their words, or set empty=drop"
        )
    counts = {**(excluded or {}), "without a word that has a vector": wordless}
    chosen = draw_queries(queries, len(kept), seed) if isinstance(queries, int) else _kept_queries(queries, kept)
    query_rows, gallery = query_split(chosen, len(kept))
    kept_names = [names[row] for row in kept]
    kept_captions = [list(captions[row]) for row in kept]
    return Split(
        images=[images[row] for row in kept],
        names=kept_names,
        labels=labels,
        queries=query_rows,
        gallery=gallery,
        excluded={reason: count for reason, count in counts.items() if count},
        renderer=CaptionRenderer(kept_captions),
        explainer=CaptionExplainer(kept_captions, kept_names, vectors, normalize),
    )


def word_vectors(path: Path | None, train: Captions, test: Captions, dim: int, seed: int) -> Vectors:
    """The vectors of all words of these captions that have one.

    Args:
        path: a file of word vectors; None: they are trained on the training captions.
        train: the captions of each training image.
        test: the captions of each test image.
        dim: dimension of vectors that are trained.
        seed: of that training.

    Raises:
        InputError: the file cannot be read, or fewer than half of the words have a vector in it.
    """
    train_words = [[tokens(caption) for caption in image] for image in train]
    test_words = [[tokens(caption) for caption in image] for image in test]
    counts = Counter(_words(train_words)) + Counter(_words(test_words))
    if path is None:
        source = train_word_vectors([caption for image in train_words for caption in image], dim, seed)
    else:
        source = load_word_vectors(path)
    # Copies: a view would keep the whole file in memory.
    vectors = {word: np.array(source[word]) for word in counts if word in source}
    known, total = sum(counts[word] for word in vectors), counts.total()
    if path is not None and 2 * known < total:
        unknown = next(word for word, _ in counts.most_common() if word not in vectors)
        raise InputError(
            f"{path}: has vectors for {known:,} of the {total:,} words of the captions (none for '{unknown}'); "
            "give vectors of the captions' language, in lower case"
        )
    return vectors


def _words(images: Iterable[Iterable[Iterable[str]]]) -> Iterable[str]:
    return (word for image in images for caption in image for word in caption)


def _kept_queries(queries: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Where the rows that are queries are among those that were kept."""
    chosen = set(queries)
    rows = [position for position, row in enumerate(kept) if row in chosen]
    if not rows or len(kept) - len(rows) < 2:
        raise InputError(
            f"{len(rows)} of {len(kept)} test images are queries; an evaluation needs at least 1 query and 2 others"
        )
    return rows
