"""The label space of caption sets: images with a few captions each, compared by the words they use."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_items
from contml._support.errors import InputError
from contml.distances.cache import fingerprint
from contml.distances.search import Neighbours
from contml.labels.base import LabelSpace
from contml.transport import set_distances
from contml.transport.bags import check_weights, most_words, pack, take, whole_weights
from contml.transport.word_costs import WordCosts

#: English words that do not describe a picture: articles, pronouns, forms of be, have and do, conjunctions, and the
#: most common prepositions.
_STOP_WORDS = """
a about all also am an and another any are as at be because been being both but by can could did do does doing each for
from had has have having he her here hers herself him himself his how i if in into is it it's its itself just me my
myself no nor not of off on once only or other our ours out own she should so some such than that the their theirs them
themselves then there these they this those through to too very was we were what when where which while who whom whose
why will with would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
#: A run of letters and digits; apostrophes inside it belong to it.
_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
#: Passes over the captions when Word2Vec is trained on them.
_EPOCHS = 20


def tokens(caption: str, stop_words: frozenset[str] = STOP_WORDS) -> list[str]:
    """The words of a caption: lower case, runs of letters, digits and inner apostrophes, without stop words."""
    return [word for word in _TOKEN.findall(caption.lower().replace("\u2019", "'")) if word not in stop_words]


def idf_weights(captions: Sequence[Sequence[str]], others: Sequence[Sequence[str]] = ()) -> dict[str, float]:
    """Inverse document frequencies of the words of captions, where a document is all captions of an image.

        idf(w) = ln((1 + N) / (1 + n_w)) + 1        N images, n_w of them with w in a caption

    This is scikit-learn's smooth form: at least 1, for a word that all images have.

    Args:
        captions: the captions of each image.
        others: captions whose words get a weight too, but are not counted: those of a test set.
    """
    captions, others = checked_captions(captions), checked_captions(others)
    counts = Counter(word for image in captions for word in {word for caption in image for word in tokens(caption)})
    words = counts.keys() | {word for image in others for caption in image for word in tokens(caption)}
    return {word: math.log((1 + len(captions)) / (1 + counts[word])) + 1 for word in sorted(words)}


def word_weights(weights: object, captions: Sequence[Sequence[str]]) -> Mapping[str, float] | None:
    """The weight of each word of captions, as the option `weights` of a label space says; None for "count".

    Raises:
        InputError: `weights` is none of count, idf and a mapping to finite numbers above 0.
    """
    if isinstance(weights, Mapping):
        check_weights(weights)
        return weights
    if weights not in ("count", "idf"):
        raise InputError("weights", repr(weights), "must be count, idf, or a mapping from words to weights")
    return idf_weights(captions) if weights == "idf" else None


class CaptionLabels(LabelSpace):
    """Images with captions: two images are near if every caption of one has a near caption of the other.

    The label distance is D(i, j) = sum over the captions of i of the least Word Mover's Distance to a caption of j,
    plus the same with i and j exchanged (Kim et al., CVPR 2019, section 5.4): exact, symmetric, 0 for equal captions,
    in float32. Captions are compared as bags of words, in lower case; a word is a run of letters, digits and inner
    apostrophes. `STOP_WORDS` are omitted, and so are words without a vector (`unknown` counts each of them). A caption
    without words is dropped (`dropped` counts them). An image without captions is refused or, with `empty="drop"`,
    dropped. `kept` are the rows of the input that are in the space.

    A Triton kernel computes distances on a CUDA device; on the CPU they use torch's number of threads. Nearest
    rows are always found on the CPU, even for labels on a GPU.

    Args:
        captions: the captions of each image.
        vectors: word vectors: gensim's KeyedVectors, a mapping from words to vectors, or a file: word2vec binary or
            text, GloVe text (each plain or .gz). None: gensim trains Word2Vec on these captions.
        normalize: scale word vectors to unit length, as gensim's `wmdistance` does by default.
        empty: what to do with an image without captions: "refuse" it, or "drop" it.
        dim: dimension of trained vectors.
        seed: seed of the training of vectors, which is reproducible.
        weights: the mass of a word in its caption, before the mass of a caption is scaled to 1: "count", how often it
            occurs; "idf", this times its `idf_weights` in these captions; or a mapping from words to weights above 0,
            where a word without one weighs 1. Weights are rounded to 1/1024 of the largest, so the transport is exact.
            Give the weights of the training set to its test set: `weights=idf_weights(train, test)`.

    Raises:
        InputError: an image has no captions left, the word vectors cannot be read or are not finite, or a weight is not
            a finite number above 0.
    """

    kept: Tensor

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
        words = [[tokens(caption) for caption in image] for image in captions]
        mass = word_weights(weights, captions)
        source = vector_source(vectors, words, dim, seed)
        counts = Counter(word for image in words for caption in image for word in caption)
        vocabulary = sorted(word for word in counts if word in source)
        word_ids = {word: position for position, word in enumerate(vocabulary)}
        self.unknown = {word: count for word, count in counts.most_common() if word not in word_ids}
        bags = [[[word_ids[w] for w in caption if w in word_ids] for caption in image] for image in words]
        # Sorted, because the rounding of a sum depends on the order of its terms.
        usable = [sorted(caption for caption in image if caption) for image in bags]
        self.dropped = sum(map(len, bags)) - sum(map(len, usable))
        empty_images = [row for row, image in enumerate(usable) if not image]
        if empty_images and empty == "refuse":
            raise InputError(
                f"image {empty_images[0]}",
                f"no caption with a word that has a vector ({len(empty_images)} such images)",
                hint="omit them, give vectors for their words, or set empty=drop",
            )
        if len(empty_images) == len(usable):
            raise InputError("captions", f"no word has a vector in any of {len(usable)} images")
        super().__init__(kept=torch.tensor([row for row, image in enumerate(usable) if image], dtype=torch.int64))
        self.words = vocabulary
        self._weights = None if mass is None else whole_weights(mass, vocabulary)
        self._bags = pack((image for image in usable if image), self._weights)
        self._costs = WordCosts(vector_matrix(source, vocabulary, normalize), vocabulary)
        self.unit = "word-vector distance, summed over captions"

    def distances(self, x: Self, y: Self) -> Tensor:
        """Label distances `[X, Y]`; half the work where x is y."""
        return set_distances(x._bags, x._bags if y is x else y._bags, self._costs, device=self.device)

    def fingerprint(self) -> str:
        """A hash of the words of the captions and of their vectors, the same on every device: the key of caches."""
        return fingerprint(type(self), list(self._bags), self._costs.vectors)

    def _item_contents(self) -> list[bytes]:
        bags = self._bags
        if self._weights is not None:  # the hash of an item is that of its words, whatever they weigh
            bags = bags._replace(counts=bags.counts // self._weights[bags.words])
        entries = [f"{self.words[w]} {n}" for w, n in zip(bags.words.tolist(), bags.counts.tolist(), strict=True)]
        captions = [";".join(entries[a:b]) for a, b in pairwise(bags.starts.tolist())]
        return ["/".join(sorted(captions[a:b])).encode() for a, b in pairwise(bags.sets.tolist())]

    def _select(self, index: Tensor) -> Self:
        subset = super()._select(index)
        subset._bags = take(self._bags, index.cpu().numpy())
        return subset

    def _nearest(
        self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Callable[[int], None] | None
    ) -> Neighbours:
        # On the CPU, where bounds of D exclude all but a few hundred candidates per row. `memory` limits the threads.
        from contml.transport.set_distance_cpu import nearest_sets  # here: it imports numba

        row_ids, among_ids = rows.cpu().numpy(), among.cpu().numpy()
        distances, neighbours = nearest_sets(
            take(self._bags, row_ids), row_ids, take(self._bags, among_ids), among_ids, k, self._costs, memory, progress
        )
        return Neighbours(torch.from_numpy(distances).to(self.device), torch.from_numpy(neighbours).to(self.device))

    def _contents(self) -> str:
        return f"{len(self._bags.totals):,} captions, {len(self.words):,} words with a vector"

    @property
    def longest(self) -> int:
        """The number of distinct words of the longest caption."""
        return most_words(self._bags)


def vector_source(vectors: Any, words: Sequence[Sequence[Sequence[str]]], dim: int, seed: int) -> Any:
    """What holds the vector of each word: as given, read from a file, or trained on the words of captions.

    Raises:
        InputError: it has another type, or the file cannot be read.
    """
    if vectors is None:
        return train_word_vectors([caption for image in words for caption in image], dim, seed)
    if isinstance(vectors, str | Path):
        return load_word_vectors(vectors)
    if not hasattr(vectors, "__contains__"):
        accepted = "give KeyedVectors, a mapping from words to vectors, or a file"
        raise InputError("vectors", type(vectors).__name__, hint=accepted)
    return vectors


def load_word_vectors(path: Path | str) -> Any:
    """Read word vectors as gensim's KeyedVectors: word2vec binary or text, or GloVe text, each plain or .gz.

    The first bytes of the file decide its format. A file saved by gensim is refused: it is a pickle, which
    can run code.

    Raises:
        InputError: the file does not exist, has another format, or is incomplete.
    """
    from gensim.models import KeyedVectors  # here: it takes a second to import

    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
            file.seek(-1 if head else 0, 2)
            ends_in_newline = file.read() == b"\n"
        if path.suffix == ".gz":  # as gensim decides
            ends_in_newline = True  # gzip reports a file that is cut short
            with gzip.open(path) as unpacked:
                head = unpacked.read(1 << 16)
    except FileNotFoundError:
        raise InputError(str(path), "no such file", hint="give a file of word vectors") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), f"damaged or cut short, read as gzip ({error})") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error})") from None
    if head[:1] == b"\x80":
        hint = "convert it: KeyedVectors.load(FILE).save_word2vec_format('vectors.bin', binary=True)"
        raise InputError(str(path), "a pickle saved by gensim, which can run code", "must be word2vec or GloVe", hint)
    file_format = _format(head)
    if file_format is None:
        raise InputError(str(path), "no word vectors", hint="give word2vec binary or text, or GloVe text")
    try:
        if file_format != "binary" and not ends_in_newline:  # a truncated last number would still be a number
            raise ValueError("its last line has no end")
        if file_format in ("binary", "text"):
            count, dim = map(int, head.split(maxsplit=2)[:2])
            size = path.stat().st_size * (_GZIP if path.suffix == ".gz" else 1)
            if 2 * count * dim > size:  # a number takes two bytes; checked before gensim allocates memory for them
                raise ValueError(f"its header declares {count} vectors of {dim} numbers")
        return KeyedVectors.load_word2vec_format(
            str(path), binary=file_format == "binary", no_header=file_format == "glove", unicode_errors="replace"
        )
    except _DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(str(path), f"damaged or cut short, read as {_FORMATS[file_format]} ({reason})") from None


def train_word_vectors(sentences: Sequence[Sequence[str]], dim: int = 100, seed: int = 0) -> Any:
    """Train Word2Vec (skip-gram) on these tokens by gensim; returns KeyedVectors. One worker, so it is reproducible.

    Raises:
        InputError: there are no words.
    """
    from gensim.models import Word2Vec

    if not any(sentences):
        raise InputError("captions", "no words to train word vectors on", hint="give captions, or word vectors")
    model = Word2Vec(
        sentences=sentences, vector_size=dim, window=5, min_count=1, sg=1, epochs=_EPOCHS, workers=1, seed=seed
    )
    return model.wv


#: Exceptions of gensim and gzip for a damaged file; a wrong header may request too much memory.
_DAMAGED = (ValueError, EOFError, OSError, AttributeError, IndexError, MemoryError, zlib.error)
#: The largest factor by which gzip makes data smaller.
_GZIP = 1032
_FORMATS = {"binary": "word2vec binary", "text": "word2vec text", "glove": "GloVe text"}


def _format(head: bytes) -> str | None:
    """The format of a file that begins with `head`; None if it is not supported."""
    first_line, _, rest = head.partition(b"\n")
    fields = first_line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < 20 for field in fields):
        dim = int(fields[1])
        line = rest.partition(b"\n")[0].split()
        return "text" if len(line) == dim + 1 and all(_is_number(field) for field in line[1:]) else "binary"
    return "glove" if len(fields) > 2 and all(_is_number(field) for field in fields[1:]) else None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def checked_captions(captions: object) -> list[list[str]]:
    """The captions of each image, lists of strings.

    Raises:
        InputError: they are something else.
    """
    images = [
        list(image) if isinstance(image, Set) else as_items(f"captions of image {row}", image, "a list of strings")
        for row, image in enumerate(as_items("captions", captions, "the captions of each image"))
    ]
    for row, image in enumerate(images):
        if texts := [caption for caption in image if not isinstance(caption, str)]:
            raise InputError(f"captions of image {row}", f"{texts[0]!r:.60}", "must be a list of strings")
    return images


def vector_matrix(vectors: Any, words: list[str], normalize: bool) -> np.ndarray[Any, Any]:
    """The vectors of these words, `[V, d]` float64."""
    try:
        matrix = np.array([vectors[word] for word in words], dtype=np.float64)
    except ValueError as error:
        raise InputError("word vectors", f"not of one length, or no numbers ({error})") from None
    if matrix.ndim != 2:
        raise InputError("word vectors", f"of shape {list(matrix.shape[1:])}", hint="give one vector per word")
    if normalize:
        norm = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = matrix / np.where(norm > 0, norm, 1)
    return matrix
