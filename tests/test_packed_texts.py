"""Texts and image files in one array of bytes behave as lists of them, in a tenth of the memory."""

import gc
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given, strategies as st

from contml._support.packed import taken
from contml._support.packed_texts import TextLists, Texts, joined
from contml.data import BoxCrop, ImageFile, Split, Square, SquareCrop, copies
from contml.data.sources import ImageFiles, Vectors
from contml.labels import ClassLabels, NumberLabels
from tasks._readers.folders import DiskFiles
from tasks.table.file import file

WORDS = ["grass", "snow", "sand", "water", "town", "sun", "rain", "red", "cat", "runs"]
TEXTS = ["a.png", "", "ä/日本.jpg", "a\udcff.png", "\ud800", "a\tb\n"]


def test_texts_are_a_list():
    texts = Texts(TEXTS)
    assert (len(texts), list(texts), texts[2], texts[-1]) == (len(TEXTS), TEXTS, TEXTS[2], TEXTS[-1])
    assert texts == TEXTS == texts == tuple(TEXTS)
    assert texts != TEXTS[:-1]
    assert texts != [*TEXTS[:-1], "other"]
    assert texts != Texts(["a.pngä", *TEXTS[2:]])
    assert Texts(["ab", "c"]) != Texts(["a", "bc"])
    assert (list(texts[1:4]), texts[::-2]) == (TEXTS[1:4], TEXTS[::-2])
    assert taken(texts, [3, 0, 3]) == [TEXTS[3], TEXTS[0], TEXTS[3]] == taken(TEXTS, [3, 0, 3])
    assert "ä/日本.jpg" in texts
    assert (texts.index(""), pickle.loads(pickle.dumps(texts))) == (1, texts)
    assert not Texts([])
    with pytest.raises(IndexError):
        texts[len(TEXTS)]


def test_texts_are_ordered_joined_and_counted():
    values = ["b", "a", "b", "", "\udcff", "a\x00"]
    texts = Texts(values)
    assert texts.taken(texts.order()) == sorted(values)
    assert joined([texts, texts], "\t") == [f"{value}\t{value}" for value in values]
    assert texts.is_empty.tolist() == [not value for value in values]
    distinct = Texts(["a", "b", "c"])
    assert (distinct.num_different(), distinct.taken([0, 2]).num_different()) == (3, 2)
    assert distinct.taken([2, 0, 2]).num_different() == 2


@pytest.mark.parametrize("seed", range(12))
def test_numbers_and_positions_are_those_of_a_list(seed):
    """Also of a part of a larger array."""
    random = np.random.default_rng(seed)

    def drawn():
        ends = ["", "x" * 40, "yä" * 20]
        sizes = random.integers(0, 1 + seed % 5, random.integers(0, 60))
        return ["".join(random.choice([*"ab/"], size)) + ends[random.integers(len(ends))] for size in sizes]

    values, others = [*drawn(), "", "\udcff", "a\x00"], drawn()
    for texts, expected in ((Texts(values), values), (Texts([*others, *values])[len(others) :], values)):
        different, numbers = texts.numbered()
        assert (different, [different[number] for number in numbers]) == ([*dict.fromkeys(expected)], expected)
        found = [others.index(value) if value in others else -1 for value in expected]
        assert texts.positions(Texts(others)).tolist() == found


def test_packed_texts_are_read_again():
    for values in (TEXTS, [], [""], ["a"]):
        assert Texts.of_packed(*Texts(values).packed()) == Texts(values)
    assert Texts.of_packed(*Texts(["ab", "c", "de"]).taken([1, 2]).packed()) == ["c", "de"]
    with pytest.raises(ValueError, match="lengths"):
        Texts.of_packed(np.zeros(3, np.uint8), np.array([1, 1], np.int32))


def test_features_are_a_list_of_vectors():
    vectors = Vectors(np.arange(12, dtype=np.float32).reshape(4, 3), ImageFiles(["a", "b"]), np.array([3, 1]))
    assert [vector.values.tolist() for vector in vectors] == [[9, 10, 11], [3, 4, 5]]
    assert vectors[-1].picture == ImageFile(Path("b"))
    split = Split(vectors, ["a", "b"], NumberLabels(torch.arange(2.0)))
    assert (split.feature_dim, split.subset([1]).image(0).tolist()) == (3, [3, 4, 5])
    assert isinstance(split.subset([1]).images, Vectors)


def test_more_files_than_are_read_are_compared_by_their_paths(tmp_path, monkeypatch, capsys):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"same")
    files = [str(tmp_path / name) for name in ("a", "b", "a", "c")] + ["", ""]
    assert copies.same_files(files).tolist() == [0, 0, 0, 0, 4, 5]
    monkeypatch.setattr(copies, "MOST_READ", 3)
    assert copies.same_files(files).tolist() == [0, 1, 0, 3, 4, 5]
    assert "not by their content" in capsys.readouterr().err


def test_image_files_are_a_list_of_image_sources():
    paths = ["a.png", "./b/c.png", "a\udcff.png"]
    files = ImageFiles(paths)
    expected = [ImageFile(Path(path)) for path in paths]
    assert ([*files], [*files[1:]]) == (expected, expected[1:])
    split = Split(files, paths, NumberLabels(torch.arange(3.0)))
    assert split.images is files
    assert split.feature_dim is None
    assert [*split.subset([2, 0]).images] == [expected[2], expected[0]]
    assert isinstance(split.subset([2, 0]).images, ImageFiles)
    assert replace(split, names=Texts(paths)).subset([2, 0]).names == [paths[2], paths[0]]


def crops(folder, random, count):
    """Crops of two equal files, a third one, and one that is missing; of each kind, as lists."""
    files = [folder / name for name in ("a", "b", "c\udcff", "missing")]
    for path, content in zip(files, (b"same", b"same", b"else"), strict=False):
        path.write_bytes(content)
    edges = [(0.0, 0.0, 9.0, 9.0), (0.1, 1 / 3, 9.0, 9.5), (-1.0, 0.0, 1e6, 2.0)]
    squares = [Square(0.0, 0.0, 9.0), Square(1e-4, 0.0, 9.0), Square(-5.25, 3.0, 1 / 3)]

    def drawn(values):
        return values[random.integers(len(values))]

    return {
        "files": [ImageFile(drawn(files)) for _ in range(count)],
        "boxes": [BoxCrop(drawn(files), drawn(edges)) for _ in range(count)],
        "whole boxes": [BoxCrop(drawn(files), tuple(map(int, drawn(edges)))) for _ in range(count)],
        "squares": [SquareCrop(*map(drawn, (files, squares, (8, 9), (None, (30, 40))))) for _ in range(count)],
    }


@pytest.mark.parametrize("kind", ["files", "boxes", "whole boxes", "squares"])
def test_copies_of_files_and_of_crops_are_found(tmp_path, kind):
    sources = crops(tmp_path, np.random.default_rng(0), 60)[kind]
    split = Split(sources, [*map(str, range(60))], NumberLabels(torch.arange(60.0)))
    assert ([*split.images], [*split.subset([7, 3, 8]).images]) == (sources, [sources[row] for row in (7, 3, 8)])

    def image(row):
        """What is equal for equal images; a file that is missing equals those of its path."""
        file, crop = sources[row].file, sources[row].stamp.crop
        return file.read_bytes() if file.exists() else file, crop

    images = [*map(image, range(60))]
    assert copies.same_images(split.images[:25], split.images[25:]).tolist() == [images.index(each) for each in images]


@given(st.lists(st.lists(st.text(max_size=2), max_size=3)), st.randoms())
def test_lists_of_texts_are_lists(lists, random):
    packed = TextLists(iter(lists))
    assert packed == lists == [*packed] == [packed[row] for row in range(len(lists))]
    assert (packed.texts, packed.lengths.tolist()) == ([text for texts in lists for text in texts], [*map(len, lists)])
    assert packed == TextLists(lists) == pickle.loads(pickle.dumps(packed))
    others = [*lists, []] if len(lists) < 2 else [[*lists[0], *lists[1][:1]], lists[1][1:], *lists[2:]]
    assert (packed == others) is (packed == TextLists(others)) is (lists == others)
    rows = [random.randrange(len(lists)) for _ in range(5 if lists else 0)]
    assert packed.taken(rows) == [lists[row] for row in rows]
    is_kept = np.array([len(text) < 2 for text in packed.texts], bool)
    assert packed.kept(is_kept) == [[text for text in texts if len(text) < 2] for texts in lists]
    assert [*packed.kept(is_kept)[::-1]] == [[text for text in texts if len(text) < 2] for texts in lists[::-1]]


@given(st.lists(st.text(max_size=3), min_size=1))
def test_classes_of_packed_texts_are_those_of_a_list(names):
    names = [*names, *(normalize("NFD", name) for name in names), "é", "e\u0301", ""]
    packed, listed = ClassLabels(Texts(names)), ClassLabels(names)
    assert (packed.names, packed.class_ids.tolist()) == (listed.names, listed.class_ids.tolist())
    assert (packed.digests(), packed.fingerprint()) == (listed.digests(), listed.fingerprint())
    assert packed.arguments() == listed.arguments()
    part = packed[[0, len(names) - 1, 0]].as_root()
    digests = Texts(listed.digests()[row] for row in (0, len(names) - 1, 0))
    assert (part.names, part.digests()) == (listed[[0, len(names) - 1, 0]].as_root().names, digests)


@pytest.mark.slow
@pytest.mark.parametrize(("column", "cell", "most"), [
    ("age", lambda row: row % 97, 100),
    ("name", lambda row: f"class {row % 997:05d}", 110),
    ("caption", lambda row: f"a red cat of {WORDS[row % 5]} and {WORDS[row % 7]} runs", 400),
])  # fmt: skip
def test_a_table_keeps_few_bytes_per_row(tmp_path, monkeypatch, column, cell, most):
    """Names, paths and what identifies the labels are bytes, and nothing keeps what was read besides them."""
    rows = 20_000
    names = [f"{row:08d}.jpg" for row in range(rows)]
    labels = {"caption": {"kind": "captions", "vectors": "words.txt"}} if column == "caption" else None
    (tmp_path / "words.txt").write_text("".join(f"{word} {n} 1\n" for n, word in enumerate(WORDS)))
    lines = [f"{name},{cell(row)}\n" for row, name in enumerate(names)]
    (tmp_path / "items.csv").write_text("".join([f"image,{column}\n", *lines]))
    monkeypatch.setattr(DiskFiles, "names", lambda _files, _folder, listed=frozenset(names): listed)
    file(str(tmp_path / "items.csv"), labels)  # what is computed once
    gc.collect()
    tracemalloc.start()
    of_arrow = pyarrow.total_allocated_bytes()
    try:
        task = file(str(tmp_path / "items.csv"), labels)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] + pyarrow.total_allocated_bytes() - of_arrow
    finally:
        tracemalloc.stop()
    assert task.train.names[0].endswith(".jpg")
    assert kept / rows < most + len(str(tmp_path))
