r"""Word vectors: one reader of files, and their training on captions.

    text     [COUNT DIM\n] (WORD NUMBER ... NUMBER\n)*      word2vec, GloVe, fastText .vec
    binary   COUNT DIM\n (WORD space DIM float32 [\n])*     word2vec

The first bytes of a file decide its format, not its name. A file may be packed (.gz, .bz2, .xz) and is read as a
stream: only the vectors of the words that are wanted are kept.

A word may have spaces, as ". . ." in glove.840B: the last DIM fields of a line are its numbers.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from contml._support.door import opened
from contml._support.errors import InputError, one_line
from contml.labels.caption_words import caption_tokens, spelling

Vectors: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: The most bytes of a file, unpacked, and the most vectors: about twice as many as in the largest published file.
MAX_BYTES, MAX_ROWS = 1 << 34, 10_000_000
#: Passes over the captions when Word2Vec is trained on them.
_EPOCHS = 20
#: The most bytes of a line and of a word of a binary file, and the most numbers of a vector.
_LINE, _WORD, _DIM = 1 << 24, 1 << 12, 1 << 20
#: If a larger share of words is not UTF-8, the whole file is not UTF-8.
_NOT_UTF8 = 0.01
#: The number of vectors and their length.
_HEADER = re.compile(rb"[0-9]{1,18}[ \t]+[0-9]{1,18}\s*")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_BOM = b"\xef\xbb\xbf"
#: The function that unpacks a file, by the first bytes of the file.
_PACKED: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}

_ALLOWED = "must be word2vec text or binary, GloVe text, or fastText .vec"
_HINT = "unpack a .zip; of a file saved by gensim, write KeyedVectors.load(FILE).save_word2vec_format('vectors.txt')"


class WordVectors(Mapping[str, Vectors]):
    """The vectors of words.

    Args:
        words: the words, each once.
        matrix: their vectors `[V, d]`.
        excluded: the number of rows of the file that were left out, by reason.
    """

    def __init__(self, words: Sequence[str], matrix: Vectors, excluded: Mapping[str, int] | None = None) -> None:
        self.matrix = matrix
        self.excluded = dict(excluded or {})
        self._rows = {word: row for row, word in enumerate(words)}

    def __getitem__(self, word: str) -> Vectors:
        return self.matrix[self._rows[word]]

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def vector_source(
    vectors: Any, wanted: Collection[str], captions: Sequence[Sequence[str]], dim: int, seed: int
) -> Mapping[str, Any]:
    """Return the vectors of words of captions: given, read from a file, or trained on the captions.

    Words without a vector are missing in the result.

    Args:
        vectors: as in `CaptionLabels`.
        wanted: the words, in the order of the captions.
        captions: the captions of each image.
        dim: dimension of vectors that are trained.
        seed: seed of their training.

    Raises:
        InputError: `vectors` has another type, or the file cannot be read.
    """
    if vectors is None:
        return train_word_vectors([*chain.from_iterable(caption_tokens(captions))], dim, seed)
    if isinstance(vectors, str | Path):
        return load_word_vectors(vectors, wanted)
    if not hasattr(vectors, "__contains__"):
        accepted = "give KeyedVectors, a mapping from words to vectors, or a file"
        raise InputError("vectors", type(vectors).__name__, hint=accepted)
    found = {word: vectors[word] for word in wanted if word in vectors}
    other_spellings = {word for word in wanted if word not in found and not word.isascii()}
    keys = getattr(vectors, "key_to_index", vectors)  # of gensim's KeyedVectors
    if other_spellings and isinstance(keys, Mapping):
        for key in keys:
            if isinstance(key, str) and not key.isascii() and (word := spelling(key)) in other_spellings:
                found.setdefault(word, vectors[key])
    return found


def train_word_vectors(sentences: Sequence[Sequence[str]], dim: int = 100, seed: int = 0) -> WordVectors:
    """Train Word2Vec (skip-gram) on these words by gensim. There is one worker, so the training is reproducible.

    Raises:
        InputError: there are no words.
    """
    from gensim.models import Word2Vec  # here: it takes a second to import

    if not any(sentences):
        raise InputError("captions", "no words to train word vectors on", hint="give captions, or word vectors")
    model = Word2Vec(sentences, vector_size=dim, window=5, min_count=1, sg=1, epochs=_EPOCHS, workers=1, seed=seed)
    return WordVectors(model.wv.index_to_key, model.wv.vectors)


def load_word_vectors(path: Path | str, words: Collection[str] | None = None) -> WordVectors:
    """Read word vectors: word2vec text or binary, GloVe text, fastText .vec; also packed as .gz, .bz2 or .xz.

    Words are returned in the spelling of `contml.labels.caption_words`, but not in lower case. If several rows have one
    word, the first row counts. A later row counts instead if it has exactly this spelling. `excluded` counts the rows
    that are left out: words that appeared before, rows without a word, and words that are not UTF-8.

    Args:
        path: the file.
        words: the words whose vectors are kept, in the spelling of captions; None: all.

    Raises:
        InputError: the file does not exist, has another format, or is damaged, incomplete or too large. Or a line has
            more or fewer numbers than the others, or a number that is kept is not finite.
    """
    path = Path(path)
    try:
        with opened(path) as raw:
            head = raw.read(6)
            raw.seek(0)
            file = next((unpack(raw) for mark, unpack in _PACKED.items() if head.startswith(mark)), raw)
            return _kept(path, _rows(path, file), words)
    except InputError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(str(path), "no such file", hint="give a file of word vectors") from None
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:  # ValueError: a NUL in its name
        raise InputError(str(path), f"cannot be read ({one_line(error)})", hint="download or write it again") from None


def _rows(path: Path, file: Any) -> Iterator[tuple[str, bytes, Any]]:
    """Yield the place of each row (for errors), its word, and its numbers as texts or as an array `[d]`."""
    line, count = file.readline(_LINE).removeprefix(_BOM), 0
    if has_header := _HEADER.fullmatch(line) is not None:
        count, dim = map(int, line.split())
        if not 0 < dim <= _DIM or count > MAX_ROWS or 4 * count * dim > MAX_BYTES:
            got = f"a header of {count:,} vectors of {dim:,} numbers"
            raise InputError(str(path), got, f"must be at most {MAX_ROWS:,}, of 1 to {_DIM:,}, in {MAX_BYTES:,} bytes")
        if _CONTROL.search(file.peek(_WORD)):
            yield from _binary_rows(path, file, count, dim)
            return
    else:
        dim = len([*takewhile(_is_number, line.split()[:0:-1])])
        if dim < 2:
            raise InputError(str(path), "no word vectors", _ALLOWED, _HINT)
    lines = chain([] if has_header else [line], iter(partial(file.readline, _LINE), b""))
    num_rows = num_bytes = 0
    for number, line in enumerate(lines, start=1 + has_header):
        num_bytes += len(line)
        if num_bytes > MAX_BYTES:
            raise InputError(str(path), f"more than {MAX_BYTES:,} bytes, unpacked", f"must be at most {MAX_BYTES:,}")
        if len(line) == _LINE:
            raise InputError(f"{path}:{number}", f"a line of more than {_LINE:,} bytes", _ALLOWED)
        if fields := line.rsplit(None, dim):
            num_rows += 1
            if len(fields) == dim and line[:1].isspace():
                fields.insert(0, b"")
            *others, last = fields[0].split() or [b""]
            if len(fields) <= dim or num_rows > MAX_ROWS or (others and _is_number(last)):
                got = f"{len(line.split()) - 1} numbers" if num_rows <= MAX_ROWS else "one more vector"
                raise InputError(f"{path}:{number}", got, f"must be {dim}, in at most {MAX_ROWS:,} lines")
            yield f"{path}:{number}", fields[0].strip(), fields[1:]
    if num_rows < count:
        got = f"damaged or cut short: its header declares {count:,} vectors, but it has {num_rows:,}"
        raise InputError(str(path), got, hint="download or write it again")


def _binary_rows(path: Path, file: IO[bytes], count: int, dim: int) -> Iterator[tuple[str, bytes, Vectors]]:
    for number in range(1, count + 1):
        word = bytearray()
        while len(word) < _WORD and (byte := file.read(1)) not in b" ":  # b"" at the end
            word += byte
        content = file.read(4 * dim)
        if len(content) < 4 * dim or (number == count and file.read(2).strip()):
            got = f"damaged or cut short: its header declares {count:,} vectors of {dim:,} numbers"
            raise InputError(f"{path}: vector {number:,}", got, hint="download or write it again")
        yield f"{path}: vector {number:,}", bytes(word).lstrip(b"\n"), np.frombuffer(content, "<f4")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _kept(path: Path, rows: Iterable[tuple[str, bytes, Any]], words: Collection[str] | None) -> WordVectors:
    """Return the vectors of some words."""
    wanted, vectors = None if words is None else {*words}, dict[str, Vectors]()
    other_spellings, excluded, num_rows = set[str](), Counter[str](), 0
    for num_rows, (place, content, numbers) in enumerate(rows, start=1):  # noqa: B007
        try:
            text = content.decode()
        except UnicodeDecodeError:
            excluded["not UTF-8"] += 1
            continue
        key = text if text.isascii() else spelling(text)
        key = text if key.isascii() else key  # words of ASCII have one spelling
        if not key:
            excluded["without a word"] += 1
        if not key or (wanted is not None and key not in wanted):
            continue
        if key in vectors:
            excluded["of words that appeared before"] += 1
            if key != text or key not in other_spellings:
                continue
        (other_spellings.discard if key == text else other_spellings.add)(key)
        if not isinstance(numbers, np.ndarray):
            if wrong := [number for number in numbers if not _is_number(number)]:
                got = f"'{wrong[0].decode('utf-8', 'backslashreplace'):.40}' is not a number"
                raise InputError(place, got)
            with np.errstate(over="ignore"):  # too large for float32: infinite
                numbers = np.array([*map(float, numbers)], np.float32)
        if not np.isfinite(numbers).all():
            raise InputError(place, f"a number of '{key:.40}' is not finite", "must be finite numbers")
        vectors[key] = numbers
    if excluded["not UTF-8"] > _NOT_UTF8 * num_rows:
        got = f"{excluded['not UTF-8']:,} of {num_rows:,} words are not UTF-8"
        raise InputError(str(path), got, hint="save it as UTF-8")
    matrix = np.stack([*vectors.values()]) if vectors else np.empty((0, 0), np.float32)
    return WordVectors([*vectors], matrix, {reason: n for reason, n in excluded.items() if n})


def vector_matrix(vectors: Mapping[str, Any], words: Sequence[str], normalize: bool) -> Vectors:
    """Return the vectors of these words, `[V, d]` float64."""
    try:
        matrix = np.array([vectors[word] for word in words], dtype=np.float64)
    except ValueError as error:
        lengths = [np.size(vectors[word]) for word in words]
        n = next((n for n, length in enumerate(lengths) if length != lengths[0]), 0)
        got = f"{words[n]!r} has {lengths[n]} numbers" if n else f"no numbers ({one_line(error)})"
        raise InputError("word vectors", got, f"must be {lengths[0]}, as of {words[0]!r}" if n else "") from None
    if matrix.ndim != 2:
        raise InputError("word vectors", f"of shape {list(matrix.shape[1:])}", hint="give one vector per word")
    if normalize:
        norm = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = matrix / np.where(norm > 0, norm, 1)
    return matrix
