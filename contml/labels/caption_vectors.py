"""The label space of caption sets that are compared as vectors: tf-idf, means of word vectors, a sentence encoder.

The label distances are

    V(c, c') = 1 - v . v'            v: the unit vector of a caption
    mean:    D(i, j) = 1 - m . m'    m: the mean of the unit vectors of an image's captions, scaled to length 1
    minima:  D(i, j) = sum_{c in i} min_{c' in j} V(c, c') + sum_{c' in j} min_{c in i} V(c, c')

of captions as vectors

    tfidf:        v ~ (count_w idf_w)_w, one entry per word        Salton and Buckley, 1988
    mean_vector:  v ~ sum_w count_w weight_w x_w                   x_w: the vector of the word w
    a function:   v ~ encode(caption)
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_numbers
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.validation import check_range, check_ranges
from contml.distances._compiled import Floats, Ints
from contml.distances.euclidean import normalize, recompute
from contml.distances.nearest import Neighbours, Progress, neighbours_by_value
from contml.labels.caption_words import caption_tokens, split_words
from contml.labels.captions import CaptionSets, checked_captions, word_weights
from contml.labels.word_vectors import WordVectors, vector_matrix, vector_source
from contml.transport.bags import set_members, split_sets

#: Vectors `[N, d]` of N captions.
Encoder: TypeAlias = Callable[[list[str]], Any]
#: Vectors `[K, d]` in float64: an array, or a sparse matrix of scipy.
_Rows: TypeAlias = Any

_OPTIONS = {"encoder": str, "sets": str, "weights": dict | str, "vectors": WordVectors | None}
#: Minima are computed in tiles of this many captions on each axis.
_TILE = 1280
#: Distances below this share cancel: they are recomputed by subtraction, so that equal captions are at distance 0.
_CANCELS = 2.0**-20


class CaptionVectorLabels(CaptionSets):
    """Images with captions, each caption a vector: two images are near if their captions point the same way.

    The label distance of two captions is 1 minus their cosine, in [0, 2]. `sets="mean"` compares two images by the
    means of their captions' unit vectors. `sets="minima"` sums the minima over captions, as `CaptionLabels` does.
    Distances are in float64, symmetric, and 0 for equal captions. Words are as in `CaptionLabels`. An encoder gets
    captions in Unicode's form NFC.

    A caption without a vector is dropped (`dropped` counts them): a caption without words, without words that have a
    vector, or with a vector of 0. For an encoder, a blank caption is dropped. An image without captions is refused or,
    with `empty="drop"`, dropped. `kept` are the rows of the input that are in the space. Distances are computed on the
    CPU.

    Args:
        captions: the captions of each image.
        encoder: "tfidf": one entry per word, its count times its weight; "mean_vector": the sum of its words' vectors
            times their weights; or a function that returns vectors `[N, d]` of a list of N captions, such as the
            `encode` of a sentence-transformers model. The function is called once, with each different caption once.
        vectors: the word vectors of "mean_vector", as in `CaptionLabels`.
        normalize: scale word vectors to unit length first.
        weights: the word weights of "tfidf" and "mean_vector". "idf" takes their `idf_weights` in these captions.
            "count" gives every word the weight 1. Or a mapping from words to weights above 0, where a word without a
            weight weighs 1. Give the weights of the training set to its test set: `weights=idf_weights(train, test)`.
        sets: the comparison of the captions of two images: "mean" or "minima".
        empty: what to do with an image without captions: "refuse" it, or "drop" it.
        dim: dimension of trained word vectors.
        seed: seed of their training.

    Raises:
        InputError: an image has no captions left, an option has another value, or the encoder returns no such vectors.
    """

    item_arguments: ClassVar[Mapping[str, Any]] = {"captions": list}
    option_arguments: ClassVar[Mapping[str, Any]] = _OPTIONS
    hashes: Tensor

    @check_ranges
    def __init__(
        self,
        captions: Sequence[Sequence[str]],
        encoder: Literal["tfidf", "mean_vector"] | Encoder = "tfidf",
        vectors: Mapping[str, Any] | Any | Path | str | None = None,
        normalize: bool = False,
        weights: Literal["count", "idf"] | Mapping[str, float] = "idf",
        sets: Literal["mean", "minima"] = "mean",
        empty: Literal["refuse", "drop"] = "refuse",
        dim: int = 100,
        seed: int = 0,
    ) -> None:
        captions = checked_captions(captions)
        normal = ([unicodedata.normalize("NFC", caption) for caption in image] for image in captions)
        # Sorted by their words, because the rounding of a sum depends on the order of its terms.
        texts = [sorted(image, key=lambda caption: (sorted(split_words(caption)), caption)) for image in normal]
        if isinstance(encoder, str):
            check_range(Literal["tfidf", "mean_vector"], "encoder", encoder)
            mass = word_weights(weights, captions)
            known, rows = _of_words(texts, encoder, vectors, normalize, mass, dim, seed)
            weights = "count" if mass is None else dict(mass)
            self._form = {"encoder": encoder, "weights": weights, "vectors": known}
        else:
            rows = _encoded([caption for image in texts for caption in image], encoder)
        rows, usable = _unit(rows)
        rows = rows[usable]
        owners = np.repeat(np.arange(len(texts)), [len(image) for image in texts])
        self.dropped = len(owners) - len(usable)
        sizes = np.bincount(owners[usable], minlength=len(texts))
        if sets == "mean":  # captions that cancel have no mean direction
            rows, directed = _unit(_sums(rows, np.concatenate(([0], np.cumsum(sizes)))))
            rows, sizes = rows[directed], np.bincount(directed, minlength=len(texts))
        kept = np.flatnonzero(sizes)
        if len(kept) < len(texts) and empty == "refuse":
            subject, count = f"image {int(np.flatnonzero(sizes == 0)[0])}", len(texts) - len(kept)
            got, hint = f"no caption with a vector ({count} such images)", "omit them, or set empty=drop"
            raise InputError(subject, got, hint=hint)
        if not len(kept):
            raise InputError("captions", f"none has a vector, of {len(texts)} images")
        contents = ["\n".join(texts[row]).encode() for row in kept]
        hashes = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True) for text in contents]
        super().__init__(kept=torch.from_numpy(kept), hashes=torch.tensor(hashes))
        self._rows: _Rows = rows
        self._captions = captions
        self._edges: Ints = np.concatenate(([0], np.cumsum(sizes[kept])))
        self.sets = sets
        self.unit = "1 - cosine" if sets == "mean" else "1 - cosine, summed over captions"

    def arguments(self) -> dict[str, Any]:
        """Return the captions of each image, and the options that make their vectors again."""
        if not self._form:
            raise InputError("captions", "vectors of a function", "must be vectors of words, to be made again")
        captions = [list(self._captions[row]) for row in self.kept.tolist()]
        return {"captions": captions, "sets": self.sets, **self._form}

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute label distances `[X, Y]` in float64."""
        out = np.empty((len(x), len(y)))
        for i in split_sets(np.diff(x._edges), _TILE):
            for j in split_sets(np.diff(y._edges), _TILE):
                (a, starts_a), (b, starts_b) = set_members(x._edges, i), set_members(y._edges, j)
                d = _cosine_distances(x._rows[a], y._rows[b])
                if self.sets == "minima":
                    x_to_y = np.add.reduceat(np.minimum.reduceat(d, starts_b[:-1], axis=1), starts_a[:-1], axis=0)
                    y_to_x = np.add.reduceat(np.minimum.reduceat(d, starts_a[:-1], axis=0), starts_b[:-1], axis=1)
                    d = x_to_y + y_to_x
                out[i[0] : i[-1] + 1, j[0] : j[-1] + 1] = d
        if y is x:  # a product need not be symmetric to the last bit
            out = np.triu(out, 1)
            out += out.T
        return torch.from_numpy(out).to(self.device)

    def fingerprint(self) -> str:
        """Return a hash of the vectors of the captions, the same on every device: the key of caches."""
        rows = self._rows
        arrays = [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices, rows.indptr, list(rows.shape)]
        return fingerprint(type(self), arrays, self._edges, self.sets)

    def _select(self, index: Tensor) -> Self:
        subset = super()._select(index)
        members, subset._edges = set_members(self._edges, index.cpu().numpy())
        subset._rows = self._rows[members]
        return subset

    def _nearest(self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Progress) -> Neighbours:
        if self.sets == "minima" or not isinstance(self._rows, np.ndarray):
            return super()._nearest(k, rows, among, memory, progress)
        vectors = torch.from_numpy(self._rows)
        neighbours = neighbours_by_value(vectors, k, rows.cpu(), among.cpu(), lambda d: d / 2, memory, progress)
        return Neighbours(*(tensor.to(self.device) for tensor in neighbours))

    def _contents(self) -> str:
        return f"{self._rows.shape[0]:,} vectors of {self._rows.shape[1]:,} numbers; unit: {self.unit}"


def _of_words(
    texts: Sequence[Sequence[str]],
    encoder: str,
    vectors: Any,
    normalize: bool,
    weights: Mapping[str, float] | None,
    dim: int,
    seed: int,
) -> tuple[WordVectors | None, _Rows]:
    """Return the word vectors, after scaling and weights, and the vectors of all captions from their words.

    The word vectors are None for "tfidf".
    """
    from scipy.sparse import csr_array  # here: importing a loss must stay quick

    counts = [Counter(caption) for image in caption_tokens(texts) for caption in image]
    words = dict.fromkeys(word for caption in counts for word in caption)
    source = vector_source(vectors, words, texts, dim, seed) if encoder == "mean_vector" else None
    vocabulary = sorted(word for word in words if source is None or word in source)
    word_ids = {word: position for position, word in enumerate(vocabulary)}
    known = [[(word_ids[w], count) for w, count in sorted(caption.items()) if w in word_ids] for caption in counts]
    entries, starts = [*chain.from_iterable(known)], np.cumsum([0, *map(len, known)])
    columns, values = np.array(entries, dtype=np.int64).reshape(-1, 2).T
    mass = np.array([1.0 if weights is None else weights.get(word, 1.0) for word in vocabulary])
    mass /= mass.max(initial=1e-300)  # the squares of very large weights would overflow
    rows = csr_array((values * mass[columns], columns, starts), shape=(len(counts), len(vocabulary)))
    if source is None or not vocabulary:
        return None, rows
    matrix = vector_matrix(source, vocabulary, normalize)
    return WordVectors(vocabulary, matrix), rows @ matrix


def _encoded(captions: Sequence[str], encoder: Encoder) -> Floats:
    """Compute the vectors of all captions by a function, which gets each different one once. Blank captions have 0."""
    unique = [caption for caption in dict.fromkeys(captions) if caption.strip()]
    if not callable(encoder):
        raise InputError("encoder", repr(encoder), "must be tfidf, mean_vector, or a function of a list of captions")
    if not unique:
        return np.zeros((len(captions), 1))
    encoded = as_numbers("encoder", encoder(unique), "vectors [captions, d]").cpu().double().numpy()
    has_shape = encoded.ndim == 2 and len(encoded) == len(unique)
    if not has_shape or not np.isfinite(encoded).all():
        got = "not finite" if has_shape else f"returned {list(encoded.shape)}"
        raise InputError("encoder", got, f"must be finite numbers [{len(unique)}, d], a vector for each caption")
    row_of = {caption: row for row, caption in enumerate(unique)}
    rows = np.zeros((len(captions), encoded.shape[1]))
    nonblank_rows = [row for row, caption in enumerate(captions) if caption in row_of]
    rows[nonblank_rows] = encoded[[row_of[captions[row]] for row in nonblank_rows]]
    return rows


def _unit(rows: _Rows) -> tuple[_Rows, Ints]:
    """Scale rows to length 1, and return the numbers of the rows that are not 0. Rows of 0 do not change."""
    if isinstance(rows, np.ndarray):
        rows = normalize(torch.from_numpy(rows)).numpy()
        return rows, np.flatnonzero(rows.any(axis=1))
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
    return (rows.multiply(1 / np.where(lengths > 0, lengths, 1)[:, None])).tocsr(), np.flatnonzero(lengths)


def _sums(rows: _Rows, edges: Ints) -> _Rows:
    """Sum the rows of each set."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(edges[-1]), np.arange(edges[-1]), edges), shape=(len(edges) - 1, edges[-1])) @ rows


def _cosine_distances(x: _Rows, y: _Rows) -> Floats:
    """Compute 1 - cosine `[N, M]` in float64 of unit vectors x `[N, d]` and y `[M, d]`, at least 0."""
    product = x @ y.T
    d: Floats = 1 - (product if isinstance(product, np.ndarray) else product.toarray())
    i, j = np.nonzero(d < _CANCELS)
    recompute(d, i, j, lambda a, b: ((x[a] - y[b]) ** 2).sum(axis=1) / 2)
    return d
