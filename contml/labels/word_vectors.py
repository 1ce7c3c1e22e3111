r"""Word vectors: one reader of files, and their training on captions.

    text     [COUNT DIM\n] (WORD NUMBER ... NUMBER\n)*      word2vec, GloVe, fastText .vec
    binary   COUNT DIM\n (WORD space DIM float32 [\n])*     word2vec

The first bytes of a file decide how it is read, not its name. A file may be packed (.gz, .bz2, .xz, or a member of
a .zip) and is read as a stream: only the vectors of the words that are wanted are kept.

A word may have spaces, as ". . ." in glove.840B: the last DIM fields of a line are its numbers. Only spaces and tabs
separate fields, and only line feeds end lines: words have other white space.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from contml._support.errors import InputError, did_you_mean, one_line
from contml.labels.caption_words import caption_tokens, spelling

Vectors: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: A file may have so many bytes, unpacked, and so many vectors: about twice those of the largest published ones.
MAX_BYTES, MAX_ROWS = 1 << 34, 10_000_000
#: Passes over the captions when Word2Vec is trained on them.
_EPOCHS = 20
#: The most bytes of a line, of a word of a binary file, and of a block.
_LINE, _WORD, _BLOCK = 1 << 24, 1 << 12, 1 << 20
#: The most numbers of a vector.
_DIM = 1 << 20
#: Lines at the beginning of a text, most of which have the right length.
_SAMPLE = 100
#: A larger share of words that are not UTF-8 means that the file is not.
_NOT_UTF8 = 0.01

_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(rb"[0-9]{1,18}")
_SEPARATORS = re.compile(rb"[ \t]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BOM = b"\xef\xbb\xbf"

_ALLOWED = "must be word2vec text or binary, GloVe text, or fastText .vec"
#: Files of other kinds by their first bytes: what they are, and what to do.
_OTHERS = (
    (rb"\x80[\x00-\x05]", "a pickle saved by gensim, which can run code", "convert it: "
     "KeyedVectors.load(FILE).save_word2vec_format('vectors.bin', binary=True)"),
    (rb"\x93NUMPY", "a NumPy array, which has no words", "write it as word2vec text"),
    (rb"\x89HDF", "an HDF5 file", "write it as word2vec text"),
    (rb"(?s:.{257})ustar", "a tar archive", "unpack it"),
    (rb"version https://git-lfs", "a pointer of Git LFS in place of the file", "run git lfs pull"),
    (rb"(?i:<!doctype|<html|<\?xml)", "HTML or XML, as an error of a download", "download it again"),
    (rb"\xba\x16\x4f\x2f", "a fastText .bin file", "give the .vec file that is published beside it"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)  # fmt: skip


class WordVectors(Mapping[str, Vectors]):
    """The vectors of words.

    Args:
        words: the words, each once.
        matrix: their vectors `[V, d]`.
        excluded: how many rows of the file were left out, by reason.
    """

    def __init__(self, words: Sequence[str], matrix: Vectors, excluded: Mapping[str, int] | None = None) -> None:
        self.matrix = matrix
        self.excluded = dict(excluded or {})
        self._rows = {word: row for row, word in enumerate(words)}

    def __getitem__(self, word: str) -> Vectors:
        vector: Vectors = self.matrix[self._rows[word]]
        return vector

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def vector_source(
    vectors: Any, wanted: Collection[str], captions: Sequence[Sequence[str]], dim: int, seed: int
) -> Mapping[str, Any]:
    """The vectors of the words of captions that have one: as given, read from a file, or trained on the captions.

    Args:
        vectors: as of `CaptionLabels`.
        wanted: the words, in the order of the captions.
        captions: the captions of each image.
        dim: dimension of vectors that are trained.
        seed: seed of that training.

    Raises:
        InputError: it has another type, or the file cannot be read.
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
    """Train Word2Vec (skip-gram) on these words by gensim. One worker, so it is reproducible.

    Raises:
        InputError: there are no words.
    """
    from gensim.models import Word2Vec  # here: it takes a second to import

    if not any(sentences):
        raise InputError("captions", "no words to train word vectors on", hint="give captions, or word vectors")
    model = Word2Vec(
        sentences=sentences, vector_size=dim, window=5, min_count=1, sg=1, epochs=_EPOCHS, workers=1, seed=seed
    )
    return WordVectors(model.wv.index_to_key, model.wv.vectors)


def load_word_vectors(
    path: Path | str,
    words: Collection[str] | None = None,
) -> WordVectors:
    """Read word vectors: word2vec text or binary, GloVe text, fastText .vec.

    Each may be packed as .gz, .bz2, .xz or .zip; FILE.zip/MEMBER names a file in a .zip of several. A file saved by
    gensim is refused: it is a pickle, which can run code.

    Words are returned in the spelling of `contml.labels.caption_words`, but not in lower case. Of several rows with one
    word the first counts, unless a later one has just this spelling. `excluded` counts the rows that are left out: of
    words that appeared before, without a word, and of words that are not UTF-8.

    Args:
        path: the file.
        words: the words whose vectors are kept, in the spelling of captions; None: all.

    Raises:
        InputError: the file does not exist, has another format, is damaged, incomplete or too large, a line has more or
            fewer numbers than the others, or a number that is kept is not finite.
    """
    source = _VectorFile(*_located(Path(path)))
    with _opened(source) as file:
        head = file.read(_BLOCK).removeprefix(_BOM)
    for beginning, what, hint in _OTHERS:
        if re.match(beginning, head):
            raise InputError(str(source), what, _ALLOWED, hint)
    first, _, rest = head.partition(b"\n")
    fields = first.split()
    header = [int(field) for field in fields if _WHOLE.fullmatch(field)]
    if len(header) != len(fields) or len(fields) > 2:
        header = []
    second = _fields(rest.partition(b"\n")[0])
    if len(header) == 2 and _CONTROL.search(rest, 0, _WORD) and _num_numbers(second) != header[1]:
        return _read_binary(source, header[0], header[1], words)
    return _read_text(source, header, words)


# Files


class _VectorFile(NamedTuple):
    """A file, or a member of a .zip."""

    path: Path
    member: str | None

    def __str__(self) -> str:
        return str(self.path / self.member if self.member else self.path)

    def damaged(self, reason: str) -> InputError:
        """The error of a file that is incomplete, or was changed."""
        return InputError(str(self), f"damaged or cut short: {reason}", hint="download or write it again")

    def check_size(self, num_bytes: int) -> None:
        """Refuse more bytes than the limit."""
        if num_bytes > MAX_BYTES:
            raise InputError(str(self), f"more than {MAX_BYTES:,} bytes", f"must be at most {MAX_BYTES:,} bytes")

    def check_rows(self, num_rows: int) -> None:
        """Refuse more vectors than the limit."""
        if num_rows > MAX_ROWS:
            raise InputError(str(self), f"{num_rows:,} vectors or more", f"must be at most {MAX_ROWS:,}")


def _located(path: Path) -> tuple[Path, str | None]:
    """The file that a path names, and its member if it is a .zip."""
    try:
        file = next((place for place in (path, *path.parents) if place.is_file()), path)
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name that no file can have
        raise InputError(str(path), "no such file", hint="give a file of word vectors") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
    if not stat.S_ISREG(status.st_mode):  # a pipe may never end
        raise InputError(str(path), "a folder" if path.is_dir() else "not a regular file", "must be a file")
    try:
        with file.open("rb") as stream:
            is_zip = stream.read(4) == b"PK\x03\x04"
        if not is_zip and file != path:
            raise InputError(str(path), f"no such file ({file} is not a .zip)", hint="give a file of word vectors")
        if not is_zip:
            return file, None
        with zipfile.ZipFile(file) as packed:
            names = [info.filename for info in packed.infolist() if not info.is_dir()]
    except zipfile.BadZipFile as error:
        raise InputError(str(file), f"damaged or cut short, read as zip ({error})") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
    names = [name for name in names if not name.startswith("__MACOSX/") and not Path(name).name.startswith(".")]
    if all(name.endswith(".npy") for name in names):
        raise InputError(str(file), "a .zip of NumPy arrays" if names else "an empty .zip", _ALLOWED)
    member = path.relative_to(file).as_posix()
    if member in names or (file == path and len(names) == 1):
        return file, names[0] if file == path else member
    listed = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
    if file != path:
        raise InputError(str(path), f"no such file ({file} has {listed})", hint=did_you_mean(member, names))
    raise InputError(str(path), f"has {len(names):,} files ({listed})", hint=f"name one: {path / names[0]}")


@contextmanager
def _opened(source: _VectorFile) -> Iterator[IO[bytes]]:
    """The content of a file, unpacked."""
    packing = ""
    try:
        with ExitStack() as stack:
            file: Any = stack.enter_context(source.path.open("rb"))
            mark = file.read(6)
            file.seek(0)
            if source.member is not None:
                packing = "zip"
                file = stack.enter_context(zipfile.ZipFile(file)).open(source.member)
            elif mark.startswith(b"\x1f\x8b"):
                packing, file = "gzip", gzip.GzipFile(fileobj=file)
            elif re.match(rb"BZh[1-9]", mark):
                packing, file = "bzip2", bz2.BZ2File(file)
            elif mark.startswith(b"\xfd7zXZ"):
                packing, file = "xz", stack.enter_context(lzma.LZMAFile(file))
            yield stack.enter_context(io.BufferedReader(file, _BLOCK))
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        # RuntimeError, NotImplementedError: a .zip with a password, or packed in an unusual way.
        raise InputError(str(source), f"damaged or cut short, read as {packing} ({one_line(error)})") from None
    except OSError as error:
        if error.errno is None and packing:  # not a failure of the disk
            raise InputError(str(source), f"damaged or cut short, read as {packing} ({one_line(error)})") from None
        raise InputError(str(source), f"cannot be read ({error.strerror or one_line(error)})") from None


class _Kept:
    """The vectors that are kept of a file, and the numbers of rows that were read and left out."""

    def __init__(self, source: _VectorFile, words: Collection[str] | None, dim: int) -> None:
        self.source, self.dim, self.words = source, dim, None if words is None else set(words)
        self.ascii_words = {word.encode() for word in words or () if word.isascii()}
        self.rows: dict[str, int] = {}
        self.other_spellings: set[str] = set()
        self.numbers = array("f")
        self.num_rows = 0
        self.excluded: Counter[str] = Counter()
        self.not_utf8 = b""

    def key(self, word: bytes) -> str | None:
        """Counts a row; returns its word if its vector is to be kept."""
        self.num_rows += 1
        if self.num_rows > MAX_ROWS:
            self.source.check_rows(self.num_rows)
        if word.isascii():
            if not word:
                self.excluded["without a word"] += 1
                return None
            if self.words is not None and word not in self.ascii_words:
                return None
            text = key = word.decode()
        else:
            try:
                text = word.decode()
            except UnicodeDecodeError:
                self.excluded["not UTF-8"] += 1
                self.not_utf8 = self.not_utf8 or word
                return None
            key = spelling(text)
            if key.isascii():  # words of ASCII have one spelling
                key = text
            if self.words is not None and key not in self.words:
                return None
        if key in self.rows:
            self.excluded["of words that appeared before"] += 1
            if key != text or key not in self.other_spellings:
                return None
        if key != text:
            self.other_spellings.add(key)
        else:
            self.other_spellings.discard(key)
        return key

    def store(self, key: str, vector: Vectors, place: str) -> None:
        """Keep a vector."""
        if not np.isfinite(vector).all():
            raise InputError(place, f"a number of '{key:.40}' is not finite", "must be finite numbers")
        if key in self.rows:
            start = self.rows[key] * self.dim
            self.numbers[start : start + self.dim] = array("f", vector.tobytes())
        else:
            self.rows[key] = len(self.rows)
            self.numbers.frombytes(vector.tobytes())

    def result(self, declared: int) -> WordVectors:
        """All vectors that were kept, if the file was complete."""
        if self.num_rows < declared:
            raise self.source.damaged(
                f"its header declares {declared} vectors of {self.dim} numbers, but it has {self.num_rows}"
            )
        if self.excluded["not UTF-8"] > _NOT_UTF8 * self.num_rows:
            got = (
                f"{self.excluded['not UTF-8']:,} of {self.num_rows:,} words are not UTF-8 (first {self.not_utf8!r:.60})"
            )
            raise InputError(str(self.source), got, hint="save it as UTF-8")
        matrix = np.frombuffer(self.numbers, np.float32).reshape(-1, self.dim)
        return WordVectors([*self.rows], matrix, {reason: count for reason, count in self.excluded.items() if count})


# Text


def _read_text(source: _VectorFile, header: Sequence[int], words: Collection[str] | None) -> WordVectors:
    """The vectors of a file of text; `header` are the numbers of its first line, if it is one."""
    with _opened(source) as file:
        lines = _lines(source, file)
        if header:
            next(lines)
        sample = [(number, line) for number, line in islice(lines, _SAMPLE) if line]
        if sample and b"\r" in sample[0][1]:
            raise InputError(str(source), "its lines end in carriage returns alone", "must end in line feeds")
        dim, declared = _dimension(source, header, [_fields(line) for _, line in sample])
        separator = b"\t" if sum(line.count(b"\t") >= dim for _, line in sample) * 2 > len(sample) else b" "
        kept = _Kept(source, words, dim)
        rows = chain(sample, lines)
        for number, line in rows:
            if line.count(separator) == dim:  # nearly every line
                word, fields = line[: line.index(separator)], None
            elif line:
                word, fields = _split(source, number, _fields(line), dim, rows)
            else:
                continue
            key = kept.key(word)
            if key is not None:
                kept.store(key, _floats(source, number, fields or line.split()[-dim:]), f"{source}:{number}")
        return kept.result(declared)


def _lines(source: _VectorFile, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, without the white space at their ends."""
    num_bytes = 0
    for number, line in enumerate(iter(partial(file.readline, _LINE), b""), start=1):
        num_bytes += len(line)
        if num_bytes > MAX_BYTES:
            source.check_size(num_bytes)
        if len(line) == _LINE:
            raise InputError(f"{source}:{number}", f"a line of more than {_LINE:,} bytes", _ALLOWED)
        yield number, (line.removeprefix(_BOM) if number == 1 else line).rstrip(b" \t\r\n")


def _fields(line: bytes) -> list[bytes]:
    """The fields of a line; of one that begins with a separator, the first is empty."""
    return _SEPARATORS.split(line.rstrip(b" \t\r\n"))


def _num_numbers(fields: Sequence[bytes]) -> int:
    """How many numbers follow the word of a line."""
    words = next((count for count in range(len(fields), 0, -1) if not _is_number(fields[count - 1])), 1)
    return len(fields) - words


def _is_number(field: bytes) -> bool:
    return _DECIMAL.fullmatch(field) is not None or field.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity")


def _dimension(source: _VectorFile, header: Sequence[int], rows: Sequence[list[bytes]]) -> tuple[int, int]:
    """The length of the vectors, and the least number of vectors that the header declares."""
    counts = Counter(map(_num_numbers, rows))
    dim = counts.most_common(1)[0][0] if counts else 0
    if not rows and len(header) == 2:
        raise source.damaged(f"its header declares {header[0]} vectors of {header[1]} numbers, but it has none")
    # Between all fields, or between the word and the first number.
    marks = (
        mark
        for mark in (b",", b";")
        if rows and all(_is_number(row[0].partition(mark)[2].split(mark)[0]) for row in rows)
    )
    if mark := next(marks, None):
        got = f"its fields are separated by '{mark.decode()}'"
        raise InputError(f"{source}:1", got, "must be separated by spaces or tabs")
    if dim < 1 + (not header):
        raise InputError(str(source), "no word vectors", _ALLOWED)
    if len(header) == 1:  # one of the two numbers
        return dim, 0 if header[0] == dim else header[0]
    if header and header[1] != dim:
        got = f"declares {header[0]} vectors of {header[1]} numbers, but the lines below have {dim}"
        raise InputError(f"{source}:1", got, hint="correct its first line")
    if header:
        source.check_rows(header[0])
    return dim, header[0] if header else 0


def _split(
    source: _VectorFile, number: int, fields: list[bytes], dim: int, following: Iterator[Any]
) -> tuple[bytes, list[bytes]]:
    """The word of a line, which may have spaces, and its numbers."""
    words, numbers = fields[:-dim], fields[-dim:]
    found = _num_numbers(fields)
    if found < dim and next(following, None) is None:
        raise source.damaged(f"its last line, {number:,}, has {found} of {dim} numbers")
    if not words or found < dim or (len(words) > 1 and _is_like(words[-1], numbers)):
        raise InputError(f"{source}:{number}", f"{found} numbers", f"must be {dim}, as in other lines")
    return b" ".join(words).strip(), numbers


def _is_like(field: bytes, numbers: Sequence[bytes]) -> bool:
    """Whether a field is one more number: the 22 of "catch 22 0.1 0.2" is not."""
    if _WHOLE.fullmatch(field) and not all(map(_WHOLE.fullmatch, numbers)):
        return False
    return _DECIMAL.fullmatch(field) is not None


def _floats(source: _VectorFile, number: int, fields: Sequence[bytes]) -> Vectors:
    try:
        if b"_" in b"".join(fields):
            raise ValueError("1_000 is a number to Python alone")
        with np.errstate(over="ignore"):  # too large for float32: infinite, which is refused
            return np.array([*map(float, fields)], dtype=np.float32)
    except ValueError:
        field = next(field for field in fields if not _is_number(field)).decode("utf-8", "backslashreplace")
        raise InputError(f"{source}:{number}", f"'{field:.40}' is not a number") from None


# Binary


def _read_binary(source: _VectorFile, declared: int, dim: int, words: Collection[str] | None) -> WordVectors:
    """The vectors of a word2vec binary file."""
    size, num_bytes = 4 * dim, 0
    if not 0 < dim <= _DIM:
        raise source.damaged(f"its header declares {declared} vectors of {dim} numbers")
    kept = _Kept(source, words, dim)
    source.check_rows(declared)
    with _opened(source) as file:
        file.readline(_LINE)
        data, start = b"", 0
        while True:
            end = data.find(b" ", start)
            if 0 <= end < len(data) - size:
                key = kept.key(data[start:end].lstrip(b"\n"))
                if key is not None:
                    kept.store(key, np.frombuffer(data, "<f4", dim, end + 1), str(source))
                start = end + 1 + size
                continue
            if end < 0 and len(data) - start > _WORD:
                raise source.damaged(f"the word of vector {kept.num_rows + 1:,} has more than {_WORD:,} bytes")
            block = file.read(max(_BLOCK, 2 * size))
            if not block:
                break
            num_bytes += len(block)
            source.check_size(num_bytes)
            data, start = data[start:] + block, 0
    if rest := data[start:].strip(b"\r\n"):
        raise source.damaged(f"{len(rest):,} bytes follow vector {kept.num_rows:,} of {declared:,}")
    return kept.result(declared)


def vector_matrix(vectors: Mapping[str, Any], words: Sequence[str], normalize: bool) -> Vectors:
    """The vectors of these words, `[V, d]` float64."""
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
