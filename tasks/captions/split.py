"""Images with captions: what every source of caption data hands out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from contml import InputError
from contml.contracts import ImageItem
from contml.labels import CaptionLabels
from contml.labels.captions import load_word_vectors, tokens, train_word_vectors

from .drawing import Vectors, draw_captions, draw_match

Captions: TypeAlias = "Sequence[Sequence[str]]"


class CaptionSplit:
    """One split of a caption data set; items without a word that has a vector are refused, or dropped and counted.

    Args:
        images: one an item, files or pixels.
        names: one an item.
        captions: the captions of each item.
        vectors: the word vectors of both splits.
        normalize: as in `CaptionLabels`.
        empty: as in `CaptionLabels`.
        queries: which items query the others, or how many, drawn at random; 0: every item queries all others.
        seed: of that draw.
        dropped: items that were left out before.
    """

    def __init__(
        self,
        images: Sequence[ImageItem],
        names: Sequence[str],
        captions: Captions,
        vectors: Vectors,
        *,
        normalize: bool = False,
        empty: Literal["refuse", "drop"] = "refuse",
        queries: int | Sequence[int] = 0,
        seed: int = 0,
        dropped: int = 0,
    ) -> None:
        self.labels = CaptionLabels(captions, vectors=vectors, normalize=normalize, empty="drop")
        kept: list[int] = self.labels.kept.tolist()
        if empty == "refuse" and len(kept) < len(names):
            first = min(set(range(len(names))) - set(kept))
            raise InputError(
                f"{names[first]}: no caption has a word that has a vector ({len(names) - len(kept)} such images); "
                "leave these out, give vectors for their words, or set task.empty=drop"
            )
        self.dropped = dropped + len(names) - len(kept)
        self.images, self.names = [images[row] for row in kept], [names[row] for row in kept]
        self.captions = [list(captions[row]) for row in kept]
        self.vectors, self.normalize = vectors, normalize
        self.queries, self.gallery = _sides(kept, queries, seed)

    def __len__(self) -> int:
        return len(self.names)

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        return self.images[row]

    def name(self, row: int) -> str:
        """The file of a row, or its number in the synthetic data."""
        return self.names[row]

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row with its captions under it, `size` pixels square."""
        return draw_captions(_picture(self.images[row]), self.captions[row], size)

    def explain(self, query: int, row: int, size: int) -> Image.Image:
        """Why two rows are near or far: their nearest captions, and which word was matched to which, `size` wide."""
        pair = (query, row)
        words = {word for side in pair for text in self.captions[side] for word in tokens(text) if word in self.vectors}
        vectors = {word: np.asarray(self.vectors[word], np.float64) for word in words}
        if self.normalize:
            vectors = {word: vector / (np.linalg.norm(vector) or 1.0) for word, vector in vectors.items()}
        first, second = (_picture(self.images[side]) for side in pair)
        names = (Path(self.names[query]).name, Path(self.names[row]).name)
        return draw_match((first, second), names, (self.captions[query], self.captions[row]), vectors, size)


def word_vectors(path: Path | None, train: Captions, test: Captions, dim: int, seed: int) -> Vectors:
    """The vectors of all words of these captions that have one: of a file, else trained on the training captions.

    Raises:
        InputError: the file cannot be read, or fewer than half of the words have a vector in it.
    """
    corpus = [[tokens(caption) for caption in image] for image in train]
    counts = Counter(_words(corpus)) + Counter(_words([tokens(caption) for caption in image] for image in test))
    if path is None:
        source = train_word_vectors([caption for image in corpus for caption in image], dim, seed)
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


def _sides(kept: list[int], queries: int | Sequence[int], seed: int) -> tuple[Tensor | None, Tensor | None]:
    """Rows that query and rows that are ranked: the named ones, or a draw; both None where all query all others."""
    if queries == 0:
        return None, None
    asks = np.zeros(len(kept), dtype=bool)
    if isinstance(queries, int):
        if not 0 < queries <= len(kept) - 2:
            raise InputError(
                f"task.queries={queries}: allowed are 0 to {max(len(kept) - 2, 0)}, so that two of {len(kept)} "
                "test images are left to find; 0 lets every image query all others"
            )
        asks[np.random.default_rng(seed).choice(len(kept), queries, replace=False)] = True
    else:
        asks[np.isin(kept, list(queries))] = True
        if not asks.any() or len(kept) - asks.sum() < 2:
            raise InputError(
                f"{asks.sum()} of {len(kept)} test images query; an evaluation needs at least 1 query and 2 others"
            )
    rows: Any = torch.from_numpy(asks)
    return rows.nonzero().flatten(), (~rows).nonzero().flatten()


def _picture(item: ImageItem) -> Image.Image:
    if isinstance(item, Path):
        with Image.open(item) as file:
            return ImageOps.exif_transpose(file).convert("RGB")
    return (Image.fromarray(item) if isinstance(item, np.ndarray) else item).convert("RGB")
