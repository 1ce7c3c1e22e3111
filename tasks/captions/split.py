"""A split of images with captions, and the word vectors of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
        images: the source of each image.
        names: the name of each item.
        captions: the captions of each item.
        vectors: the word vectors of both splits.
        normalize: scale word vectors to unit length first.
        empty: what to do with items whose captions have no word with a vector: "refuse", or "drop" and count them.
        queries: the number of queries, drawn at random, or the rows of the queries; 0: every item is a query against
            all others.
        seed: seed of that draw.
        excluded: how many items were omitted before, by reason.

    Raises:
        InputError: an item has no word with a vector, or too few queries or other items are left.
    """
    labels = CaptionLabels(captions, vectors=vectors, normalize=normalize, empty="drop")
    kept: list[int] = labels.kept.tolist()
    unknown = len(names) - len(kept)
    if unknown and empty == "refuse":
        first = min(set(range(len(names))) - set(kept))
        found = f"no caption has a word that has a vector ({unknown:,} such images)"
        raise InputError(names[first], found, hint="give vectors for their words, or set empty=drop to omit them")
    counts = {**(excluded or {}), "without a word that has a vector": unknown}
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
        seed: seed of that training.

    Raises:
        InputError: the file cannot be read, or fewer than half of the words have a vector in it.
    """
    train_words, test_words = ([tokens(text) for texts in images for text in texts] for images in (train, test))
    counts = Counter(word for words in (*train_words, *test_words) for word in words)
    source = train_word_vectors(train_words, dim, seed) if path is None else load_word_vectors(path)
    # Copies: a view would keep the whole file in memory.
    vectors = {word: np.array(source[word]) for word in counts if word in source}
    known, total = sum(counts[word] for word in vectors), counts.total()
    if path is not None and 2 * known < total:
        unknown = next(word for word, _ in counts.most_common() if word not in vectors)
        found = f"has vectors for {known:,} of the {total:,} words of the captions (none for '{unknown}')"
        raise InputError(str(path), found, hint="give vectors of the captions' language, in lower case")
    return vectors


def _kept_queries(queries: Sequence[int], kept: Sequence[int]) -> list[int]:
    """The positions of the queries among the rows that were kept."""
    chosen = set(queries)
    rows = [position for position, row in enumerate(kept) if row in chosen]
    if not rows or len(kept) - len(rows) < 2:
        found = f"{len(rows)} of {len(kept)} test images are queries"
        raise InputError("queries", found, "needs at least 1 query and 2 other images to find")
    return rows
