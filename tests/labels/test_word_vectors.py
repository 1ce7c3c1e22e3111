"""Files of word vectors: every format and packing; what is left out is counted, what is wrong is named by its line."""

import bz2
import gzip
import lzma
import os
import pickle

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings, strategies as st
from support.refusals import refused, refuses

from contml import InputError
from contml.labels import CaptionLabels, load_word_vectors

ROWS = {"the": [0.1, 0.2, 0.3], "dog": [1, 2, 3], "cat": [-0.5, 1e-3, 4]}
TEXT = "the 0.1 0.2 0.3\ndog 1 2 3\ncat -0.5 1e-3 4\n"
PACKINGS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def read(tmp_path, content, words=None, name="vectors"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_word_vectors(path, words)


def is_right(vectors, rows=ROWS, excluded=None):
    assert list(vectors) == list(rows)
    for word, row in rows.items():
        assert np.array_equal(vectors[word], np.float32(row))
    assert vectors.excluded == (excluded or {})


def binary(rows, head=None, between=b"\n"):
    dim = len(next(iter(rows.values())))
    packed = [word.encode() + b" " + np.float32(row).tobytes() + between for word, row in rows.items()]
    return (head or f"{len(rows)} {dim}\n".encode()) + b"".join(packed)


# Formats


@pytest.mark.parametrize(
    "content",
    [
        TEXT,  # GloVe
        "3 3\n" + TEXT,  # word2vec, fastText .vec
        "3 3\n" + TEXT.replace("\n", " \n"),  # as the C program writes it
        TEXT.replace("dog ", "dog\t"),
        "3\t3\r\n" + TEXT.replace("\n", "\r\n"),
        "\ufeff3 3\n" + TEXT,
        TEXT.rstrip("\n"),
        TEXT + "\n\n",
        "1 3\n" + TEXT,  # more rows than the header declares
        binary(ROWS),
        binary(ROWS, between=b""),
    ],
)
@pytest.mark.parametrize("packing", PACKINGS)
def test_healthy_files_are_read(tmp_path, content, packing):
    content = PACKINGS[packing](content.encode() if isinstance(content, str) else content)
    is_right(read(tmp_path, content))
    is_right(read(tmp_path, content, ["dog", "unknown"]), {"dog": ROWS["dog"]})


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_numbers_are_those_of_gensim(tmp_path, form, suffix):
    words = [f"w{number}" for number in range(500)]
    model = KeyedVectors(7)
    model.add_vectors(words, np.random.default_rng(0).normal(size=(500, 7)).astype(np.float32) ** 9)
    path = str(tmp_path / f"vectors{suffix}")
    model.save_word2vec_format(path, binary=form)
    theirs, ours = KeyedVectors.load_word2vec_format(path, binary=form), load_word_vectors(path)
    assert list(ours) == theirs.index_to_key
    assert np.array_equal(ours.matrix, theirs.vectors)
    assert np.array_equal(load_word_vectors(path, words[100:400:7]).matrix, theirs.vectors[100:400:7])


def test_a_binary_file_of_several_blocks(tmp_path):
    rows = {f"word{number}": row for number, row in enumerate(np.random.default_rng(0).normal(size=(900, 700)))}
    is_right(read(tmp_path, binary(rows)), rows)


# Words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("the 0.1 0.2 0.3\n. . . 0.5 0.6 0.7\nat name@domain.com 1 2 3\n", ["the", ". . .", "at name@domain.com"]),
        (". . . 0.5 0.6 0.7\nthe 0.1 0.2 0.3\nNew York 7 8 9\n", [". . .", "the", "New York"]),
        ("3 3\nNew York 7 8 9\n. 1 2 3\n22 catch 0.1 0.2 0.3\n", ["New York", ".", "22 catch"]),
        ("New York\t7\t8\t9\nthe\t1\t2\t3\n", ["New York", "the"]),
        ("1 0.1 0.2 0.3\n1984 0.5 0.6 0.7\nnan 1 2 3\n", ["1", "1984", "nan"]),
        ("a\u00a0b 1 2 3\n\u0085 1 2 3\n\u2028 1 2 3\n", ["a\u00a0b", "\u0085", "\u2028"]),
    ],
)
def test_words_may_have_spaces_and_be_numbers(tmp_path, content, words):
    vectors = read(tmp_path, content)
    assert (list(vectors), vectors.matrix.shape) == (words, (len(words), 3))


def test_rows_that_are_left_out_are_counted(tmp_path):
    rows = "".join(f"w{number} 1 2 3\n" for number in range(300))
    content = f"dog 1 2 3\n{rows} 4 5 6\ndog 7 8 9\n".encode() + b"caf\xe9 1 2 3\n\xc3 4 4 4\n"
    excluded = {"without a word": 1, "of words that appeared before": 1, "not UTF-8": 2}
    vectors = read(tmp_path, content)
    assert (vectors.excluded, len(vectors), vectors["dog"].tolist()) == (excluded, 301, [1, 2, 3])
    is_right(read(tmp_path, content, {"dog"}), {"dog": [1, 2, 3]}, excluded)
    with refuses("vectors", got="2 of 3 words are not UTF-8", hint="UTF-8"):
        read(tmp_path, b"caf\xe9 1 2 3\n\xe9t\xe9 4 4 4\ndog 1 2 3\n")


@pytest.mark.parametrize("words", [None, ["café", "it's", "l'été"]])
def test_the_spelling_of_captions_is_found_and_the_same_spelling_counts_most(tmp_path, words):
    content = "cafe\u0301 1 1\ncafe\u0301 2 2\ncafé 3 3\ncafé 4 4\nl\u2019été 5 5\nit\u2019s 6 6\nit's 7 7\n"
    vectors = read(tmp_path, content, words)
    expected = {"café": [3, 3], "l'été": [5, 5], "it's": [7, 7]}
    assert {word: vectors[word].tolist() for word in expected} == expected
    assert vectors.excluded == {"of words that appeared before": 3}
    labels = CaptionLabels([["Café"], ["l\u2019été, it's"]], tmp_path / "vectors")
    assert labels.words == ["café", "l'été"]  # "it's" is a stop word
    assert labels.pairwise()[0, 1].item() == pytest.approx(2 * 8**0.5)


# Files


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".xz"])
def test_damaged_packing(tmp_path, packing):
    lines = "".join(f"w{number} {number / 7:.6f} {number / 3:.6f}\n" for number in range(3000))
    content = PACKINGS[packing](lines.encode())
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + bytes(40) + content[middle + 40 :]):
        with refuses("vectors"):
            read(tmp_path, damaged)


def test_files_of_other_kinds(tmp_path):
    refused(lambda: load_word_vectors(tmp_path / "nothing"), str(tmp_path / "nothing"), got="no such file")
    refused(lambda: load_word_vectors(tmp_path), str(tmp_path), got="a folder")
    os.mkfifo(tmp_path / "pipe")
    refused(lambda: load_word_vectors(tmp_path / "pipe"), "pipe", got="not a regular file")
    (tmp_path / "text").write_text(TEXT)
    refused(lambda: load_word_vectors(tmp_path / "text" / "member"), "text/member", got="no such file")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    with refuses("arrays.npz", got="no word vectors", allowed="GloVe", hint="unpack a .zip"):
        load_word_vectors(tmp_path / "arrays.npz")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    page, table = b"<!DOCTYPE html>\n<html>404 1 2</html>\n", b"the,0.1,0.2\ndog,1,2\n"
    for content in (pickle.dumps([1, 2]), pointer, page, table, TEXT.encode("utf-16"), b""):
        with refuses("vectors", got="no word vectors"):
            read(tmp_path, content)
    refused(lambda: read(tmp_path, b"5 0\n\0 \0\0\0\0"), "vectors", got="a header of 5 vectors of 0 numbers")


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("the 0.1 0.2 0.3\ndog 1 2\ncat 1 2 3\n", (":2", "2 numbers", "must be 3")),
        ("3 3\nthe 0.1 0.2 0.3\n3 3\ncat 1 2 3\n", (":3", "1 numbers", "must be 3")),
        ("the 0.1 0.2 0.3\ndog 1 2,5 3\ncat 1 2 3\n", (":2", "'2,5' is not a number")),
        ("the 0.1 0.2 0.3\ncat 1 nan 3\n", (":2", "'cat' is not finite", "finite")),
        ("3 4\nthe 0.1 0.2 0.3\ncat 1 2 3\n", (":2", "3 numbers", "must be 4")),
        ("5 3\n" + TEXT, ("", "declares 5 vectors, but it has 3")),
        (TEXT[:-3], ("", "2 numbers")),
        (binary(ROWS, b"5 3\n"), ("", "declares 5 vectors of 3 numbers")),
        (binary(ROWS)[:-3], ("", "declares 3 vectors of 3 numbers")),
        (binary(ROWS, b"3 900000\n"), ("", "declares 3 vectors of 900,000 numbers")),
        (binary(ROWS, b"3 900000000000\n"), ("", "3 vectors of 900,000,000,000 numbers")),
    ],
)
def test_wrong_lines_and_incomplete_files(tmp_path, content, fields):
    refused(lambda: read(tmp_path, content), "vectors" + fields[0], *fields[1:])


def test_a_word_that_is_wanted_has_numbers(tmp_path):
    with refuses("vectors:2", got="'two' is not a number"):
        read(tmp_path, "the 0.1 0.2 0.3\ncat two 2 3\nx 1 2 3\n", ["cat"])


def test_limits(tmp_path, monkeypatch):
    long = TEXT * 2000
    monkeypatch.setattr("contml.labels.word_vectors.MAX_BYTES", 50_000)
    for content in (long.encode(), gzip.compress(long.encode()), TEXT.encode() + b"\n" * 60_000):
        with refuses("vectors", got="more than 50,000 bytes", allowed="at most 50,000"):
            read(tmp_path, content)
    with refuses("vectors", got="a header of 5,000 vectors of 3 numbers", allowed="in 50,000 bytes"):
        read(tmp_path, binary(ROWS, b"5000 3\n"))
    monkeypatch.undo()
    monkeypatch.setattr("contml.labels.word_vectors.MAX_ROWS", 3)
    for content in (long, f"6000 3\n{long}", binary(ROWS, b"6000 3\n")):
        with refuses("vectors", allowed="at most 3"):
            read(tmp_path, content)
    bomb = gzip.compress(b"the 1 2\nthe " + b"0" * (1 << 25))
    refused(lambda: read(tmp_path, bomb), "vectors:2", got="a line of more than 16,777,216 bytes")


@given(st.integers(0, 7), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_changed_files_are_read_or_refused(tmp_path_factory, form, random):
    """Bytes of a file are changed, removed or repeated: it is read, or refused in one line."""
    tmp_path = tmp_path_factory.getbasetemp()
    text = "".join(f"w{number} {number / 7:.4f} {number}\n" for number in range(20)).encode()
    forms = (text, b"20 2\n" + text, binary({f"w{n}": [n, n / 7] for n in range(20)}), gzip.compress(text))
    content = bytearray(forms[form % 4])
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content))
        how = random.randrange(3)
        if how == 0:
            content[at] = random.randrange(256)
        elif how == 1:
            del content[at : at + random.randrange(9)]
        else:
            content[at:at] = content[at : at + random.randrange(40)]
    try:
        vectors = read(tmp_path, bytes(content), [None, {"w3", "w7"}][form // 4], name="changed")
    except InputError as error:
        problem = str(error)
    else:
        problem = "" if np.isfinite(vectors.matrix).all() else "not\nfinite"
    assert "\n" not in problem
