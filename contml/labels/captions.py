"""The label space of caption sets: images with a few captions each, compared by the words they use."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_items
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.packed_texts import TextLists
from contml._support.text import number, percent
from contml.contracts import Part
from contml.distances._compiled import Ints
from contml.distances.nearest import Neighbours, Progress
from contml.labels.caption_words import caption_tokens, spelling, split_words, tokens as tokens
from contml.labels.items import ItemLabels
from contml.labels.word_vectors import WordVectors, load_word_vectors as load_word_vectors, vector_matrix, vector_source
from contml.transport import set_distances
from contml.transport.bags import WordCosts, check_weights, pack, take, whole_weights
from contml.transport.caption_distances import word_movers_distance, word_movers_plan

T = TypeVar("T")

_KNOWN = "use words of the training captions"
#: Pairs of captions that are shown as parts of a label distance.
_SHOWN = 3
#: Token files have a space before punctuation; a full stop could be alone on a line.
_SPACED = re.compile(r" (?=[.,;:!?]|'s\b)")


def idf_weights(captions: Sequence[Sequence[str]], others: Sequence[Sequence[str]] = ()) -> dict[str, float]:
    """Compute inverse document frequencies of the words of captions, where a document is all captions of an image.

        idf(w) = ln((1 + N) / (1 + n_w)) + 1        N images, n_w of them with w in a caption

    This is scikit-learn's smooth form. Its least value is 1, for a word that all images have.

    Args:
        captions: the captions of each image.
        others: captions whose words get a weight too, but are not counted: the captions of a test set.
    """
    captions, others = checked_captions(captions), checked_captions(others)
    counts = Counter(word for image in caption_tokens(captions) for word in set(chain.from_iterable(image)))
    words = counts.keys() | {word for image in caption_tokens(others) for caption in image for word in caption}
    return {word: math.log((1 + len(captions)) / (1 + counts[word])) + 1 for word in sorted(words)}


def word_weights(weights: object, captions: Sequence[Sequence[str]]) -> Mapping[str, float] | None:
    """Return the weight of each word of captions, from the option `weights` of a label space. Return None for "count".

    Raises:
        InputError: `weights` is not "count", "idf" or a mapping to finite numbers above 0.
    """
    if isinstance(weights, Mapping):
        check_weights(weights)
        return {**{spelling(word): weight for word, weight in weights.items() if isinstance(word, str)}, **weights}
    if weights not in ("count", "idf"):
        raise InputError("weights", repr(weights), "must be count, idf, or a mapping from words to weights")
    return idf_weights(captions) if weights == "idf" else None


class CaptionSets(ItemLabels):
    """A label space of images with captions. It keeps the texts of the rows `kept` of the input."""

    title = "captions"
    typed_as = "text"
    kept: Tensor
    _captions: TextLists

    @property
    def captions(self) -> TextLists:
        """The captions of each image that are not blank."""
        captions = self._captions.taken(self.kept.cpu().numpy())
        return captions.kept(np.fromiter(map(bool, map(str.strip, captions.texts)), bool, len(captions.texts)))

    def plain(self, row: int) -> Any:
        """Return the captions of an image."""
        return [text for text in self._captions[int(self.kept[row])] if text.strip()]

    def parse(self, text: str) -> list[str]:
        """Return one caption, as a list."""
        return [text]

    def _item(self, label: Any) -> Self:
        """Return a space of one image with these captions."""
        texts = [*label]
        if all(not set(split_words(text)) & self._known_words for text in texts if isinstance(text, str)):
            raise InputError(self.title, f"no known word in {' '.join(map(str, texts))!r:.80}", hint=_KNOWN)
        return super()._item(texts)

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a caption that no caption of an item has."""
        return [word for word in dict.fromkeys(split_words(text)) if word not in self._known_words]

    @property
    def _known_words(self) -> Set[str]:
        """The words of the captions that have a vector."""
        return {word for text in self._captions.taken(self.kept.cpu().numpy()).texts for word in split_words(text)}

    def text(self, row: int) -> str:
        """Return the captions of an image, one per line."""
        return super().text(row) or "\n".join(_SPACED.sub("", _line(text)) for text in CaptionSets.plain(self, row))


class CaptionLabels(CaptionSets):
    """Images with captions: two images are near if every caption of one has a near caption of the other.

    The label distance is D(i, j) = sum over the captions of i of the least Word Mover's Distance to a caption of j,
    plus the same with i and j exchanged (Kim et al., CVPR 2019, section 5.4). It is exact, symmetric, 0 for equal
    captions, and in float32. Captions are compared as bags of words, in lower case. A word is a run of letters, digits,
    combining marks and inner apostrophes, in Unicode's form NFC (`contml.labels.caption_words` has the rule). English
    stop words are omitted. Words without a vector are omitted too, and `unknown` counts them. A caption without words
    is dropped, and `dropped` counts such captions. An image without captions is refused or, with `empty="drop"`,
    dropped. `kept` are the rows of the input that are in the space.

    A Triton kernel computes distances on a CUDA device. On the CPU they use torch's number of threads. Nearest rows are
    always found on the CPU, even for labels on a GPU.

    Args:
        captions: the captions of each image.
        vectors: word vectors: gensim's KeyedVectors, a mapping from words to vectors, or a file: word2vec text or
            binary, GloVe text, fastText .vec (`contml.labels.load_word_vectors`). None: gensim trains Word2Vec
            on these captions.
        normalize: scale word vectors to unit length, as gensim's `wmdistance` does by default.
        empty: what to do with an image without captions: "refuse" it, or "drop" it.
        dim: dimension of trained vectors.
        seed: seed of the training of vectors, which is reproducible.
        weights: the mass of a word in its caption, before the mass of a caption is scaled to 1. "count" is the number
            of times that the word occurs. "idf" is this number times its `idf_weights` in these captions. Or a mapping
            from words to weights above 0, where a word without a weight weighs 1. Weights are rounded to 1/1024 of the
            largest, so the transport is exact. Give the weights of the training set to its test set:
            `weights=idf_weights(train, test)`.

    Raises:
        InputError: an image has no captions left, the word vectors cannot be read or are not finite, or a weight is not
            a finite number above 0.
    """

    item_arguments: ClassVar[Mapping[str, Any]] = {"captions": list}
    option_arguments: ClassVar[Mapping[str, Any]] = {"vectors": WordVectors, "weights": dict | str}

    def __init__(
        self,
        captions: Sequence[Sequence[str]],
        vectors: Mapping[str, Any] | Any | Path | str | None = None,
        normalize: bool = False,
        empty: Literal["refuse", "drop"] = "refuse",
        dim: int = 100,
        seed: int = 0,
        weights: Literal["count", "idf"] | Mapping[str, float] = "count",
    ) -> None:
        if empty not in ("refuse", "drop"):
            raise InputError("empty", repr(empty), "must be refuse or drop")
        captions = checked_captions(captions)
        mass = word_weights(weights, captions)
        words, numbers, lengths = _numbered_words(captions)
        source = vector_source(vectors, words, captions, dim, seed)
        vocabulary = sorted(word for word in words if word in source)
        positions = {word: position for position, word in enumerate(vocabulary)}
        counts = dict(zip(words, np.bincount(numbers, minlength=len(words)).tolist(), strict=True))
        self.unknown = {word: count for word, count in Counter(counts).most_common() if word not in positions}
        word_ids = np.array([positions.get(word, -1) for word in words], np.int64)[numbers]
        is_known = word_ids >= 0
        starts = np.concatenate(([0], np.cumsum(lengths)))
        sizes = np.diff(np.concatenate(([0], np.cumsum(is_known)))[starts])  # words with a vector, of each caption
        self.dropped = int((sizes == 0).sum())
        usable = np.diff(np.concatenate(([0], np.cumsum(sizes > 0)))[captions.starts])  # captions of each image
        empty_images = np.flatnonzero(usable == 0)
        if len(empty_images) and empty == "refuse":
            got = f"no caption with a word that has a vector ({len(empty_images)} such images)"
            hint = "omit them, give vectors for their words, or set empty=drop"
            raise InputError(f"image {empty_images[0]}", got, hint=hint)
        if len(empty_images) == len(usable):
            raise InputError("captions", f"no word has a vector in any of {len(usable)} images")
        super().__init__(kept=torch.from_numpy(np.flatnonzero(usable)))
        self.words = vocabulary
        self._form = {"weights": "count" if mass is None else dict(mass)}
        self._weights = None if mass is None else whole_weights(mass, vocabulary)
        bags = _split(_split(map(int, word_ids[is_known]), sizes[sizes > 0]), usable[usable > 0])
        # Sorted, because the rounding of a sum depends on the order of its terms.
        self._bags = pack(map(sorted, bags), self._weights)
        self._costs = WordCosts(vector_matrix(source, vocabulary, normalize), vocabulary)
        self.unit = "word-vector distance, summed over captions"
        self._captions = captions

    def arguments(self) -> dict[str, Any]:
        """Return the sorted captions of each image, the vectors of their words, and the weights of words."""
        captions = [sorted(self._captions[row]) for row in self.kept.tolist()]
        return {"captions": captions, "vectors": WordVectors(self.words, self._costs.vectors), **self._form}

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute label distances `[X, Y]`. If x is y, half the work is enough."""
        return set_distances(x._bags, x._bags if y is x else y._bags, self._costs, device=self.device)

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the nearest captions of both images, each in one pair, their distance, and the words that move."""
        vectors = dict(zip(self.words, self._costs.vectors, strict=True))
        weights = None if self._weights is None else dict(zip(self.words, self._weights.tolist(), strict=True))
        x, y = (
            [(text, words) for text in self._captions[row] if (words := [w for w in split_words(text) if w in vectors])]
            for row in self.kept[[a, b]].tolist()
        )
        x_words, y_words = ([words for _, words in side] for side in (x, y))
        distances = word_movers_distance(x_words, y_words, vectors, weights=weights)
        used: set[tuple[str, int]] = set()
        parts: list[Part] = []
        for position in distances.flatten().argsort(stable=True).tolist():
            i, j = divmod(position, len(y))
            if len(parts) < _SHOWN and used.isdisjoint({("x", i), ("y", j)}):
                used |= {("x", i), ("y", j)}
                plan = word_movers_plan(x_words[i], y_words[j], vectors, weights)
                moves = sorted((m for m in plan if m.distance > 0), key=lambda m: -m.share * m.distance)
                moved = ", ".join(f"{m.source} to {m.target} ({percent(m.share)})" for m in moves)
                distance = number(float(distances[i, j])) + (f": {moved}" if moved else "")
                parts.append(Part(f"captions {len(parts) + 1}", _line(x[i][0]), _line(y[j][0]), distance))
        return parts

    def fingerprint(self) -> str:
        """Return a hash of the words of the captions and of their vectors: the key of caches.

        The hash is the same on every device.
        """
        return fingerprint(type(self), list(self._bags), self._costs.vectors)

    def _item_contents(self) -> Iterable[bytes]:
        bags = self._bags
        if self._weights is not None:  # the hash of an item depends on its words, not on their weights
            bags = bags._replace(counts=bags.counts // self._weights[bags.words])
        entries = (f"{self.words[w]} {n}" for w, n in zip(bags.words, bags.counts, strict=True))
        captions = map(";".join, _split(entries, np.diff(bags.starts)))
        return ("/".join(sorted(image)).encode() for image in _split(captions, np.diff(bags.sets)))

    def _select(self, index: Tensor) -> Self:
        subset = super()._select(index)
        subset._bags = take(self._bags, index.cpu().numpy())
        return subset

    def _nearest(self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Progress) -> Neighbours:
        # On the CPU, bounds of D exclude all but a few hundred candidates per row. `memory` limits the threads.
        from contml.transport.set_distance_cpu import nearest_sets  # here: it imports numba

        bags = [(take(self._bags, ids), ids) for ids in (rows.cpu().numpy(), among.cpu().numpy())]
        distances, neighbours = nearest_sets(*bags[0], *bags[1], k, self._costs, memory, progress)
        return Neighbours(torch.from_numpy(distances).to(self.device), torch.from_numpy(neighbours).to(self.device))

    def _contents(self) -> str:
        return f"{len(self._bags.totals):,} captions, {len(self.words):,} words with a vector"

    @property
    def _known_words(self) -> Set[str]:
        return set(self.words)


def _line(text: str) -> str:
    return " ".join(text.split())


def _numbered_words(captions: TextLists) -> tuple[Collection[str], Ints, Ints]:
    """Return the different words in the order of the captions, the number of each word, and the length of each caption.

    The length of a caption is its number of words.
    """
    number_of: dict[str, int] = {}
    numbers, lengths = array("q"), array("q")
    for image in caption_tokens(captions):
        for caption in image:
            numbers.extend(number_of.setdefault(word, len(number_of)) for word in caption)
            lengths.append(len(caption))
    return number_of, np.frombuffer(numbers, np.int64), np.frombuffer(lengths, np.int64)


def _split(values: Iterable[T], lengths: Ints) -> Iterator[list[T]]:
    """Yield lists of values that follow each other. Their lengths are `[N]`."""
    rest = iter(values)
    return ([*islice(rest, length)] for length in map(int, lengths))


def checked_captions(captions: object) -> TextLists:
    """Return the captions of each image, after a check of their type.

    Raises:
        InputError: the captions are not lists of strings.
    """
    if isinstance(captions, TextLists):
        return captions
    images = [
        list(image) if isinstance(image, Set) else as_items(f"captions of image {row}", image, "a list of strings")
        for row, image in enumerate(as_items("captions", captions, "the captions of each image"))
    ]
    for row, image in enumerate(images):
        if texts := [caption for caption in image if not isinstance(caption, str)]:
            raise InputError(f"captions of image {row}", f"{texts[0]!r:.60}", "must be a list of strings")
    return TextLists(images)
